/* A program whose library uses its memory before a fork, and in the child (handlers.c). */
#include "common.h"

#define LENGTH (32 * MIB)

extern char *watched, seen;

int main(void) {
    char *memory = map(LENGTH);
    printf("pooled=%d\n", is_pooled(memory));
    fflush(stdout);
    memory[0] = 'a';
    watched = memory;
    pid_t child = fork();
    if (child == 0)
        _exit(!(seen == 'b' && memory[0] == 'a' && memory[PAGE] == 'b' && memory[4 * MIB] == 'c'));
    ended_well(child);
    CHECK(seen == 0 && memory[PAGE] == 'b' && memory[4 * MIB] == 0);
    puts("fine");
    return 0;
}
