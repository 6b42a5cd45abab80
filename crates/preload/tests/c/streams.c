/* A program with its own allocator on memory that it maps: the C library's streams are there, and in children the C library
 * writes to them before any handler runs. */
#include "common.h"

#define LENGTH (32 * MIB)
#define HEAD 16

/* For allocations before the program begins. */
static _Alignas(HEAD) char early[MIB];
static _Atomic(char *) next = early;

void *malloc(size_t size) {
    size_t rounded = (size + HEAD - 1) / HEAD * HEAD;
    char *chunk = atomic_fetch_add(&next, rounded + HEAD);
    *(size_t *)chunk = size;
    return chunk + HEAD;
}

void free(void *unused) { (void)unused; }

void *calloc(size_t count, size_t size) { return malloc(count * size); }

void *realloc(void *old, size_t size) {
    void *new = malloc(size);
    if (old) {
        size_t had = *(size_t *)((char *)old - HEAD);
        memcpy(new, old, had < size ? had : size);
    }
    return new;
}

static pthread_barrier_t barrier;

static void *lock(void *stream) {
    flockfile(stream);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    funlockfile(stream);
    return NULL;
}

int main(void) {
    pthread_t thread;
    next = map(LENGTH);
    FILE *stream = tmpfile();
    CHECK(stream && fputs("parent\n", stream) >= 0);
    printf("pooled=%d\n", is_pooled(stream));
    fflush(stdout);
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0 && pthread_create(&thread, NULL, lock, stream) == 0);
    pthread_barrier_wait(&barrier);
    CHECK(ftrylockfile(stream) != 0);
    pid_t child = fork();
    if (child == 0)
        _exit(!(ftrylockfile(stream) == 0 && fputs("child\n", stream) >= 0 && fflush(stream) == 0));
    ended_well(child);
    CHECK(ftrylockfile(stream) != 0);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    CHECK(ftrylockfile(stream) == 0);
    puts("fine");
    return 0;
}
