/* What the programs under test share: they end with 1 and say where, as soon as something is not as without the library. */
#ifndef COMMON_H
#define COMMON_H

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1024L * 1024)
#define PAGE 4096L

#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno);                             \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static inline char *map_more(size_t length, int more) {
    char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | more, -1, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

static inline char *map(size_t length) { return map_more(length, 0); }

static inline long word(long offset, long seed) { return offset * 2654435761L + seed; }

/* A word at the start of each page. */
static inline void fill(char *memory, long from, long to, long seed) {
    for (long offset = from; offset < to; offset += PAGE)
        *(volatile long *)(memory + offset) = word(offset, seed);
}

static inline int holds(const char *memory, long from, long to, long seed) {
    for (long offset = from; offset < to; offset += PAGE)
        if (*(volatile const long *)(memory + offset) != word(offset, seed))
            return 0;
    return 1;
}

static inline int is_zero(const char *memory, long from, long to) {
    for (long offset = from; offset < to; offset += PAGE)
        if (*(volatile const long *)(memory + offset) != 0)
            return 0;
    return 1;
}

/* A field of the mapping that an address is in, in KiB; -1 where there is none. */
static inline long smaps(const void *address, const char *field) {
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[4352];
    unsigned long start, end;
    long value = -1;
    int inside = 0;
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
            inside = start <= (unsigned long)address && (unsigned long)address < end;
        else if (inside && strncmp(line, field, strlen(field)) == 0)
            value = atol(line + strlen(field));
    }
    fclose(file);
    return value;
}

static inline int is_pooled(const void *address) { return smaps(address, "KernelPageSize:") >= 2048; }

static sigjmp_buf jump;

static inline void on_fault(int signal) { siglongjmp(jump, signal); }

/* The signal that writing to an address brings; 0 if none does. */
static inline int write_fault(char *address) {
    struct sigaction action = {.sa_handler = on_fault}, segv, bus;
    sigaction(SIGSEGV, &action, &segv);
    sigaction(SIGBUS, &action, &bus);
    int signal = sigsetjmp(jump, 1);
    if (signal == 0)
        *(volatile char *)address = *(volatile char *)address;
    sigaction(SIGSEGV, &segv, NULL);
    sigaction(SIGBUS, &bus, NULL);
    return signal;
}

/* Waits for a child, which must have ended well. */
static inline void ended_well(pid_t child) {
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    if (WIFSIGNALED(status))
        fprintf(stderr, "child: signal %d\n", WTERMSIG(status));
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

#endif
