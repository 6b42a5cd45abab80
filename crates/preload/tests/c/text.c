/* Text of several MiB, and unwinding through the middle of it. */
#include "common.h"

#include <execinfo.h>

#define FILLER "4194304"

static int reached;

int middle(int number);

__attribute__((noinline)) static int deep(int number) {
    void *frames[16];
    int count = backtrace(frames, 16);
    for (int frame = 0; frame < count; frame++) {
        long distance = (long)frames[frame] - (long)middle;
        reached |= distance > 0 && distance < 9 * MIB;
    }
    return number * 3;
}

__attribute__((noinline)) int middle(int number) {
    __asm__ volatile("jmp 1f\n.fill " FILLER ", 1, 0x90\n1:");
    int result = deep(number);
    __asm__ volatile("jmp 2f\n.fill " FILLER ", 1, 0x90\n2:");
    return result + 1;
}

/* Whether the text there is still named after the program's file. */
static int is_named(const void *address, const char *name) {
    FILE *file = fopen("/proc/self/maps", "r");
    char line[4352];
    unsigned long start, end;
    int named = 0;
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2 && start <= (unsigned long)address && (unsigned long)address < end)
            named = strstr(line, name) != NULL;
    fclose(file);
    return named;
}

int main(int count, char **arguments) {
    CHECK(count == 1 && middle(14) == 43 && reached);
    const char *inside = (const char *)middle + 4 * MIB;
    long huge = smaps(inside, "AnonHugePages:") + smaps(inside, "ShmemPmdMapped:") + smaps(inside, "FilePmdMapped:");
    printf("named=%d huge=%ld\n", is_named(inside, strrchr(arguments[0], '/')), huge);
    pid_t child = fork();
    if (child == 0)
        _exit(middle(1) != 4);
    ended_well(child);
    puts("fine");
    return 0;
}
