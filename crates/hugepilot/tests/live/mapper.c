/* Maps what an allocator would not, writes all of it, and waits to be seen. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
    size_t length = 128 << 20;
    char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 1;
    memset(memory, 7, length);
    sleep(2);
    return memory[length - 1] == 7 ? 0 : 2;
}
