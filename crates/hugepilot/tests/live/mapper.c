/* Maps memory that an allocator would not, writes all of it, and waits to be observed. With "shared" it maps shared memory and reads it at
 * random until half of it is on huge pages, or for a minute. With "growing" or "sparse" it maps piece by piece, and writes each piece in full
 * or one byte per 64 KiB. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* KiB of shared memory that this process maps on huge pages. */
static long huge(void) {
    char line[256];
    long found = 0;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && fgets(line, sizeof line, file)) sscanf(line, "ShmemPmdMapped: %ld", &found);
    if (file) fclose(file);
    return found;
}

static int grow(size_t step) {
    size_t length = 16 << 20;
    for (int piece = 0; piece < 16; piece++) {
        char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) return 1;
        for (size_t at = 0; at < length; at += step) memory[at] = 7;
    }
    sleep(2);
    return 0;
}

int main(int count, char **arguments) {
    if (count > 1 && !strcmp(arguments[1], "growing")) return grow(4096);
    if (count > 1 && !strcmp(arguments[1], "sparse")) return grow(64 << 10);
    size_t length = 128 << 20;
    int kind = count > 1 ? MAP_SHARED : MAP_PRIVATE;
    char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 1;
    memset(memory, 7, length);
    if (count == 1) sleep(2);
    for (time_t end = time(NULL) + 60; count > 1 && time(NULL) < end && huge() < (long)(length >> 11);)
        for (int reads = 0; reads < 1 << 22; reads++)
            if (memory[((size_t)rand() * 4096 + (size_t)rand() % 4096) % length] != 7) return 3;
    return memory[length - 1] == 7 && (count == 1 || huge() >= (long)(length >> 11)) ? 0 : 2;
}
