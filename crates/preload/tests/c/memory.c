/* Private memory, and everything that programs do with it. The first argument names the case. */
#include "common.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <ucontext.h>

#define LENGTH (32 * MIB)

static atomic_int stop;

/* Writes to one page repeatedly, and counts; the counter must never go back. */
static void *keep_writing(void *page) {
    volatile long *counter = page;
    for (long count = 1; !stop; count++) {
        CHECK(*counter == count - 1);
        *counter = count;
    }
    return NULL;
}

static pthread_t start_writing(char *page) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, keep_writing, page) == 0);
    return thread;
}

static void stop_writing(pthread_t thread) {
    stop = 1;
    pthread_join(thread, NULL);
    stop = 0;
}

/* Prints where the memory is. */
static void one(long length) {
    errno = 77;
    char *memory = map(length);
    CHECK(errno == 77);
    CHECK(is_zero(memory, 0, length));
    fill(memory, 0, length, 1);
    CHECK(holds(memory, 0, length, 1));
    memory[length - 1] = 1;
    printf("aligned=%d pooled=%d advised=%d tail=%d\n", (long)memory % (2 * MIB) == 0, is_pooled(memory),
           smaps(memory, "AnonHugePages:") > 0, is_pooled(memory + length - 1));
    CHECK(munmap(memory, length) == 0);
    unsigned char present;
    CHECK(mincore(memory, PAGE, &present) == -1 && errno == ENOMEM);
    CHECK(mincore(memory + (length - 1) / PAGE * PAGE, PAGE, &present) == -1 && errno == ENOMEM);
}

/* Memory unmapped from a part of a huge page of the pool's may stay. */
static void unmap_parts(void) {
    char *memory = map(LENGTH);
    int pooled = is_pooled(memory);
    fill(memory, 0, LENGTH, 2);
    CHECK(munmap(memory + 1, PAGE) == -1 && errno == EINVAL);
    CHECK(munmap(memory + PAGE, 0) == -1 && errno == EINVAL);
    CHECK(mprotect(memory + 1, PAGE, PROT_READ) == -1 && errno == EINVAL);
    CHECK(madvise(memory + 1, PAGE, MADV_DONTNEED) == -1 && errno == EINVAL);
    CHECK(madvise(memory + 1, PAGE, MADV_RANDOM) == -1 && errno == EINVAL);
    CHECK(holds(memory, 0, LENGTH, 2));
    CHECK(munmap(memory, 5 * PAGE) == 0);
    CHECK(munmap(memory + 3 * MIB, 3 * MIB) == 0);
    CHECK(munmap(memory + 8 * MIB + PAGE, PAGE) == 0);
    CHECK(munmap(memory + LENGTH - PAGE, PAGE) == 0);
    CHECK(holds(memory, 5 * PAGE, 3 * MIB, 2) && holds(memory, 6 * MIB, 8 * MIB + PAGE, 2));
    CHECK(holds(memory, 8 * MIB + 2 * PAGE, LENGTH - PAGE, 2));
    unsigned char present;
    CHECK(mincore(memory + 4 * MIB, PAGE, &present) == -1 && errno == ENOMEM);
    CHECK(pooled || (write_fault(memory) == SIGSEGV && write_fault(memory + 8 * MIB + PAGE) == SIGSEGV));
    CHECK(munmap(memory, LENGTH) == 0);
    CHECK(munmap(memory + 1, LENGTH) == -1 && errno == EINVAL);
}

/* The rights of such a part only grow. */
static void protect_parts(void) {
    char *memory = map(LENGTH);
    int pooled = is_pooled(memory);
    fill(memory, 0, LENGTH, 3);
    CHECK(mprotect(memory, PAGE, PROT_NONE) == 0);
    CHECK(mprotect(memory + 5 * MIB + PAGE, 4 * MIB, PROT_READ) == 0);
    CHECK(mprotect(memory + 12 * MIB, PAGE, PROT_READ | PROT_EXEC) == 0);
    CHECK(holds(memory, PAGE, LENGTH, 3));
    CHECK(write_fault(memory + PAGE) == 0 && write_fault(memory + 5 * MIB) == 0 && write_fault(memory + 9 * MIB + PAGE) == 0);
    CHECK(write_fault(memory + 7 * MIB) == SIGSEGV);
    CHECK(pooled || (write_fault(memory) == SIGSEGV && write_fault(memory + 5 * MIB + PAGE) == SIGSEGV));
    CHECK(mprotect(memory, LENGTH, PROT_READ | PROT_WRITE) == 0);
    CHECK(holds(memory, 0, LENGTH, 3) && write_fault(memory) == 0);
    CHECK(mprotect(memory, LENGTH, PROT_NONE) == 0 && mprotect(memory + PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
    CHECK(holds(memory, PAGE, 2 * PAGE, 3) && write_fault(memory + PAGE) == 0 && write_fault(memory + 2 * MIB) == SIGSEGV);
    CHECK(munmap(memory, LENGTH) == 0);
}

static void empty_parts(void) {
    char *memory = map(LENGTH);
    fill(memory, 0, LENGTH, 4);
    CHECK(madvise(memory + PAGE, 5 * MIB, MADV_DONTNEED) == 0);
    CHECK(is_zero(memory, PAGE, PAGE + 5 * MIB));
    CHECK(holds(memory, 0, PAGE, 4) && holds(memory, PAGE + 5 * MIB, LENGTH, 4));
    CHECK(madvise(memory + 8 * MIB, 3 * PAGE, MADV_FREE) == 0 && madvise(memory, PAGE, MADV_NOHUGEPAGE) == 0);
    fill(memory, 0, LENGTH, 5);
    CHECK(holds(memory, 0, LENGTH, 5));
    CHECK(madvise(memory, LENGTH, MADV_DONTNEED) == 0 && is_zero(memory, 0, LENGTH));
    CHECK(munmap(memory, LENGTH) == 0);
}

/* Memory that is not writable can still be emptied, and is not writable afterwards. */
static void empty_protected_parts(void) {
    int rights[] = {PROT_READ, PROT_NONE, PROT_READ | PROT_EXEC};
    for (int number = 0; number < 3; number++) {
        char *memory = map(LENGTH), *emptied = memory + 3 * MIB + PAGE;
        fill(memory, 0, LENGTH, 13);
        CHECK(mprotect(memory, LENGTH, rights[number]) == 0);
        CHECK(madvise(emptied, 2 * MIB, MADV_DONTNEED) == 0);
        CHECK(write_fault(emptied) == SIGSEGV && write_fault(memory) == SIGSEGV);
        CHECK(mprotect(memory, LENGTH, PROT_READ | PROT_WRITE) == 0);
        CHECK(is_zero(emptied, 0, 2 * MIB));
        CHECK(holds(memory, 0, 3 * MIB + PAGE, 13) && holds(memory, 5 * MIB + PAGE, LENGTH, 13));
        CHECK(munmap(memory, LENGTH) == 0);
    }
}

/* Memory from the pool cannot be wiped in children, and the call fails. */
static void advise_parts(void) {
    char *memory = map(LENGTH), *part = memory + 12 * MIB + PAGE;
    int advice[] = {MADV_NORMAL,   MADV_RANDOM, MADV_SEQUENTIAL, MADV_DONTDUMP,  MADV_DODUMP,
                    MADV_DONTFORK, MADV_DOFORK, MADV_WIPEONFORK, MADV_KEEPONFORK};
    fill(memory, 0, LENGTH, 14);
    for (int number = 0; number < 9; number++)
        CHECK(madvise(part, PAGE, advice[number]) == 0 ||
              (advice[number] == MADV_WIPEONFORK && errno == EINVAL && is_pooled(part)));
    if (madvise(part, PAGE, MADV_WIPEONFORK) == 0) {
        pid_t child = fork();
        if (child == 0)
            _exit(!(is_zero(part, 0, PAGE) && holds(memory, 0, 12 * MIB + PAGE, 14)));
        ended_well(child);
    }
    CHECK(holds(memory, 0, LENGTH, 14));
    CHECK(munmap(memory, LENGTH) == 0);
}

/* Like realloc: where the pages cannot be moved, the call fails, nothing has changed, and the program copies. */
static char *grown(char *memory, long had, long wanted) {
    char *moved = mremap(memory, had, wanted, MREMAP_MAYMOVE);
    if (moved == MAP_FAILED) {
        CHECK(errno == EINVAL && is_pooled(memory));
        moved = map(wanted);
        memcpy(moved, memory, had);
        CHECK(munmap(memory, had) == 0);
    }
    return moved;
}

static void move_parts(void) {
    char *memory = map(LENGTH);
    fill(memory, 0, LENGTH, 6);
    memory = grown(memory, LENGTH, LENGTH + 3 * PAGE);
    CHECK(holds(memory, 0, LENGTH, 6) && is_zero(memory, LENGTH, LENGTH + 3 * PAGE));
    memory = grown(memory, LENGTH + 3 * PAGE, 2 * LENGTH);
    CHECK(holds(memory, 0, LENGTH, 6) && is_zero(memory, LENGTH, 2 * LENGTH));
    CHECK(mremap(memory, 2 * LENGTH, LENGTH - PAGE, 0) == memory && holds(memory, 0, LENGTH - PAGE, 6));
    char *place = map(4 * MIB), *part = memory + 3 * PAGE;
    int pooled = is_pooled(part);
    fill(place, 0, 4 * MIB, 24);
    char *moved = mremap(part, 2 * MIB, 2 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, place);
    if (pooled) {
        CHECK(moved == MAP_FAILED && errno == EINVAL);
        CHECK(holds(memory, 0, LENGTH - PAGE, 6) && holds(place, 0, 4 * MIB, 24));
    } else {
        CHECK(moved == place && *(long *)(place + PAGE) == word(4 * PAGE, 6));
    }
    CHECK(munmap(memory, LENGTH) == 0 && munmap(place, 4 * MIB) == 0);
}

static void replace_parts(void) {
    char *memory = map(LENGTH);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    fill(memory, 0, LENGTH, 7);
    CHECK(mmap(memory + PAGE, 5 * MIB, PROT_READ | PROT_WRITE, flags, -1, 0) == memory + PAGE);
    CHECK(is_zero(memory, PAGE, PAGE + 5 * MIB) && holds(memory, PAGE + 5 * MIB, LENGTH, 7));
    CHECK(mmap(memory + 9 * MIB, PAGE, PROT_NONE, flags | MAP_NORESERVE, -1, 0) == memory + 9 * MIB);
    CHECK(holds(memory, 9 * MIB + PAGE, LENGTH, 7) && holds(memory, 8 * MIB, 9 * MIB, 7));
    CHECK(munmap(memory, LENGTH) == 0);
}

/* No memory without a file is shared in this way. */
static void replace_by_an_invalid_kind(void) {
    char *memory = map(LENGTH);
    int flags = MAP_SHARED_VALIDATE | MAP_ANONYMOUS | MAP_FIXED;
    fill(memory, 0, LENGTH, 22);
    CHECK(mmap(memory + PAGE, 5 * MIB, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED && errno == EINVAL);
    CHECK(holds(memory, 0, LENGTH, 22));
    CHECK(munmap(memory, LENGTH) == 0);
}

static void parts(void) {
    unmap_parts();
    protect_parts();
    empty_parts();
    empty_protected_parts();
    advise_parts();
    move_parts();
    replace_parts();
    replace_by_an_invalid_kind();
}

/* Other threads use the rest of the huge pages meanwhile. */
static void parts_among_threads(void) {
    char *memory = map(LENGTH);
    printf("pooled=%d\n", is_pooled(memory));
    pthread_t thread = start_writing(memory + 2 * MIB + 3 * PAGE);
    for (int round = 0; round < 20; round++) {
        CHECK(mprotect(memory + 2 * MIB, PAGE, round % 2 ? PROT_READ : PROT_READ | PROT_WRITE) == 0);
        CHECK(madvise(memory + 2 * MIB + PAGE, PAGE, MADV_DONTNEED) == 0);
    }
    CHECK(munmap(memory, 2 * MIB + PAGE) == 0 && munmap(memory + 2 * MIB + 4 * PAGE, MIB) == 0);
    parts();
    stop_writing(thread);
    CHECK(munmap(memory, LENGTH) == 0);
}

static pthread_barrier_t barrier;

/* Two threads repeatedly change the rights of adjacent pages. */
static void *protect_beside(void *memory) {
    for (long place = 0; place < LENGTH; place += 2 * MIB) {
        char *page = (char *)memory + place + PAGE;
        pthread_barrier_wait(&barrier);
        CHECK(mprotect(page, PAGE, PROT_READ) == 0 && madvise(page, PAGE, MADV_DONTNEED) == 0);
        CHECK(is_zero(page, 0, PAGE));
    }
    return NULL;
}

static void rights_among_threads(void) {
    char *memory = map(LENGTH);
    pthread_t thread;
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
    printf("pooled=%d\n", is_pooled(memory));
    for (int round = 0; round < 30; round++) {
        CHECK(mprotect(memory, LENGTH, PROT_NONE) == 0);
        CHECK(pthread_create(&thread, NULL, protect_beside, memory) == 0);
        for (long place = 0; place < LENGTH; place += 2 * MIB) {
            pthread_barrier_wait(&barrier);
            CHECK(mprotect(memory + place, PAGE, PROT_READ | PROT_WRITE) == 0);
            for (int write = 0; write < 1000; write++)
                ((volatile char *)memory)[place] = write;
        }
        pthread_join(thread, NULL);
    }
}

/* Writes of parent and child stay separate as usual, although the pool is empty. */
static void forking(char *memory, long length) {
    for (int round = 0; round < 3; round++) {
        fill(memory, 0, length, round);
        int gate[2];
        char byte;
        CHECK(pipe(gate) == 0);
        pid_t child = fork();
        if (child == 0) {
            close(gate[1]);
            /* The parent has written everything. */
            CHECK(read(gate[0], &byte, 1) == 0);
            CHECK(holds(memory, 0, length, round));
            fill(memory, 0, length, 100);
            CHECK(holds(memory, 0, length, 100));
            pid_t grandchild = fork();
            if (grandchild == 0) {
                fill(memory, 0, length, 101);
                _exit(!holds(memory, 0, length, 101));
            }
            ended_well(grandchild);
            _exit(!holds(memory, 0, length, 100));
        }
        fill(memory, 0, length, 50);
        close(gate[0]);
        close(gate[1]);
        ended_well(child);
        CHECK(holds(memory, 0, length, 50));
    }
}

static void fork_alone(void) {
    char *memory = map(LENGTH);
    forking(memory, LENGTH);
    printf("pooled=%d\n", is_pooled(memory));
    CHECK(mprotect(memory, LENGTH, PROT_READ) == 0);
    pid_t child = fork();
    if (child == 0)
        _exit(!(write_fault(memory) == SIGSEGV && holds(memory, 0, LENGTH, 50) &&
                mprotect(memory, LENGTH, PROT_READ | PROT_WRITE) == 0 && write_fault(memory) == 0));
    ended_well(child);
    CHECK(mprotect(memory, LENGTH, PROT_NONE) == 0);
    child = fork();
    if (child == 0)
        _exit(!(write_fault(memory) == SIGSEGV && mprotect(memory, LENGTH, PROT_READ | PROT_WRITE) == 0 &&
                holds(memory, 0, LENGTH, 50)));
    ended_well(child);
    CHECK(write_fault(memory) == SIGSEGV && madvise(memory, LENGTH, MADV_DONTFORK) == 0);
    for (int round = 0; round < 2; round++) {
        unsigned char present;
        child = fork();
        if (child == 0)
            _exit(!(mincore(memory, PAGE, &present) == -1 && errno == ENOMEM));
        ended_well(child);
    }
    CHECK(munmap(memory, LENGTH) == 0);
}

/* Repeatedly removes and restores memory that another thread's fork copies. */
static void *keep_changing(void *memory) {
    while (!stop) {
        CHECK(mprotect(memory, LENGTH, PROT_NONE) == 0 && mprotect(memory, LENGTH, PROT_READ | PROT_WRITE) == 0);
        fill(memory, 0, LENGTH, 15);
        char *more = map(LENGTH);
        fill(more, 0, LENGTH, 16);
        CHECK(munmap(more, LENGTH) == 0);
    }
    return NULL;
}

static void fork_while_memory_changes(void) {
    char *memory = map(LENGTH), *kept = map(LENGTH);
    pthread_t thread;
    fill(kept, 0, LENGTH, 17);
    printf("pooled=%d\n", is_pooled(memory) && is_pooled(kept));
    CHECK(pthread_create(&thread, NULL, keep_changing, memory) == 0);
    for (int round = 0; round < 30; round++) {
        pid_t child = fork();
        if (child == 0) {
            fill(kept + LENGTH / 2, 0, LENGTH / 2, 18);
            _exit(!holds(kept, 0, LENGTH / 2, 17));
        }
        ended_well(child);
    }
    CHECK(holds(kept, 0, LENGTH, 17));
    stop_writing(thread);
}

/* Runs on a stack that the program provides. */
static void *fork_here(void *memory) {
    volatile long local = 5;
    for (int round = 0; round < 3; round++) {
        pid_t child = fork();
        if (child == 0) {
            local = 6;
            fill(memory, 0, LENGTH, 19);
            _exit(!(local == 6 && holds(memory, 0, LENGTH, 19)));
        }
        ended_well(child);
        CHECK(local == 5 && holds(memory, 0, LENGTH, 20));
    }
    /* While it exists, another thread forks. */
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return NULL;
}

static void fork_on_stack(void) {
    char *memory = map(LENGTH), *stack = map(2 * LENGTH);
    pthread_attr_t attributes;
    pthread_t thread;
    fill(memory, 0, LENGTH, 20);
    printf("pooled=%d\n", is_pooled(memory) && is_pooled(stack));
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
    CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, stack, 2 * LENGTH) == 0);
    CHECK(pthread_create(&thread, &attributes, fork_here, memory) == 0);
    pthread_barrier_wait(&barrier);
    pid_t child = fork();
    if (child == 0)
        _exit(!holds(memory, 0, LENGTH, 20));
    ended_well(child);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
}

static void fork_among_threads(void) {
    char *memory = map(LENGTH);
    pthread_t thread = start_writing(memory + LENGTH - 2 * MIB);
    forking(memory, LENGTH - 2 * MIB);
    printf("pooled=%d\n", is_pooled(memory));
    stop_writing(thread);
}

/* Asks the test to take all free pages from the pool, and waits until it has. */
static void have_the_pool_emptied(const char *memory) {
    printf("pooled=%d\n", is_pooled(memory));
    fflush(stdout);
    CHECK(getchar() == '\n');
}

/* malloc's memory, which bypasses the library, when GLIBC_TUNABLES takes it from the pool. */
static void fork_heap(void) {
    char *memory = malloc(LENGTH - 2 * MIB);
    int pooled = is_pooled(memory);
    CHECK(memory != NULL);
    have_the_pool_emptied(memory);
    forking(memory, LENGTH - 2 * MIB);
    CHECK(is_pooled(memory) == pooled);
    free(memory);
}

static void shrunk(void) {
    char *memory = map(LENGTH);
    have_the_pool_emptied(memory);
    fill(memory, 0, LENGTH, 8);
    CHECK(holds(memory, 0, LENGTH, 8) && madvise(memory, LENGTH, MADV_DONTNEED) == 0 && is_zero(memory, 0, LENGTH));
}

static ucontext_t outside;
static char *around;

/* Runs on a stack of its own, and discards parts of the memory next to it. */
static void give_up_parts(void) {
    volatile long local = 21;
    char *page = around + 4 * MIB;
    CHECK(munmap(page, PAGE) == 0 && mprotect(page + PAGE, PAGE, PROT_NONE) == 0);
    CHECK(madvise(page + 2 * PAGE, PAGE, MADV_DONTNEED) == 0 && is_zero(page, 2 * PAGE, 3 * PAGE));
    pid_t child = fork();
    if (child == 0) {
        local = 22;
        _exit(!(local == 22 && holds(around, 4 * MIB + 3 * PAGE, 5 * MIB, 21)));
    }
    ended_well(child);
    CHECK(local == 21 && holds(around, 4 * MIB + 3 * PAGE, 5 * MIB, 21));
}

static void coroutine(void) {
    char *memory = around = map(LENGTH);
    ucontext_t inside;
    fill(memory, 0, LENGTH, 21);
    printf("pooled=%d\n", is_pooled(memory));
    fflush(stdout);
    CHECK(getcontext(&inside) == 0);
    inside.uc_stack.ss_sp = memory + 5 * MIB;
    inside.uc_stack.ss_size = MIB;
    inside.uc_link = &outside;
    makecontext(&inside, give_up_parts, 0);
    CHECK(swapcontext(&outside, &inside) == 0);
    CHECK(holds(memory, 0, 4 * MIB, 21) && holds(memory, 6 * MIB, LENGTH, 21));
}

/* From now on there is room for this much more, and for nothing else. */
static void allow_only(long more) {
    struct rlimit limit;
    long pages;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%ld", &pages) == 1 && fclose(file) == 0);
    limit.rlim_cur = limit.rlim_max = pages * PAGE + more;
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

static void limited(void) {
    allow_only(LENGTH + 64 * 1024);
    char *memory = map(LENGTH);
    fill(memory, 0, LENGTH, 9);
    CHECK(holds(memory, 0, LENGTH, 9));
    errno = 0;
    CHECK(mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == ENOMEM);
    CHECK(munmap(memory, LENGTH) == 0);
}

/* A mapping that is refused changes nothing, at its ends either. */
static void replace_in_vain(void) {
    char *memory = map(LENGTH), *start = memory + 4 * MIB - PAGE;
    fill(memory, 0, LENGTH, 23);
    printf("pooled=%d\n", is_pooled(memory));
    CHECK(mprotect(memory, 4 * MIB, PROT_READ) == 0 && munmap(memory + 8 * MIB, 8 * MIB) == 0);
    allow_only(0);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    CHECK(mmap(start, 12 * MIB + 2 * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED && errno == ENOMEM);
    CHECK(holds(memory, 0, 8 * MIB, 23) && holds(memory, 16 * MIB, LENGTH, 23));
    CHECK(write_fault(start) == SIGSEGV && write_fault(memory + 4 * MIB) == 0 && write_fault(memory + 16 * MIB) == 0);
}

/* From now on madvise, and every call for huge pages, fails. */
static void refuse(int error) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 5, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mremap, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[3])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MAP_HUGETLB | MAP_FIXED_NOREPLACE, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error & SECCOMP_RET_DATA)),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void refused(int error) {
    refuse(error);
    errno = 77;
    char *memory = map(LENGTH), *populated = map_more(LENGTH, MAP_POPULATE);
    CHECK(errno == 77);
    fill(memory, 0, LENGTH, 10);
    fill(populated, 0, LENGTH, 11);
    CHECK(holds(memory, 0, LENGTH, 10) && holds(populated, 0, LENGTH, 11));
    CHECK(munmap(memory + PAGE, PAGE) == 0 && munmap(memory, LENGTH) == 0);
    CHECK(madvise(populated, PAGE, MADV_DONTNEED) == -1 && errno == error);
}

#define THREADS 64

/* Like an allocator with a heap per thread. */
static void *allocate_little(void *unused) {
    char *chunk = map(2 * MIB), *small = malloc(1000);
    fill(chunk, 0, 2 * PAGE, 12);
    memset(small, 1, 1000);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    CHECK(holds(chunk, 0, 2 * PAGE, 12) && small[999] == 1);
    return unused;
}

static void threads(void) {
    pthread_t all[THREADS];
    long size, resident;
    CHECK(pthread_barrier_init(&barrier, NULL, THREADS + 1) == 0);
    for (int number = 0; number < THREADS; number++)
        CHECK(pthread_create(&all[number], NULL, allocate_little, NULL) == 0);
    pthread_barrier_wait(&barrier);
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%ld %ld", &size, &resident) == 2 && fclose(file) == 0);
    printf("resident=%ld\n", resident * PAGE);
    pthread_barrier_wait(&barrier);
    for (int number = 0; number < THREADS; number++)
        pthread_join(all[number], NULL);
}

int main(int count, char **arguments) {
    const char *name = count > 1 ? arguments[1] : "";
    long number = count > 2 ? atol(arguments[2]) : 0;
    if (strcmp(name, "one") == 0)
        one(number);
    else if (strcmp(name, "parts") == 0)
        parts();
    else if (strcmp(name, "parts-among-threads") == 0)
        parts_among_threads();
    else if (strcmp(name, "fork") == 0)
        fork_alone();
    else if (strcmp(name, "fork-among-threads") == 0)
        fork_among_threads();
    else if (strcmp(name, "rights-among-threads") == 0)
        rights_among_threads();
    else if (strcmp(name, "fork-while-memory-changes") == 0)
        fork_while_memory_changes();
    else if (strcmp(name, "fork-on-stack") == 0)
        fork_on_stack();
    else if (strcmp(name, "coroutine") == 0)
        coroutine();
    else if (strcmp(name, "fork-heap") == 0)
        fork_heap();
    else if (strcmp(name, "shrunk") == 0)
        shrunk();
    else if (strcmp(name, "limited") == 0)
        limited();
    else if (strcmp(name, "replace-in-vain") == 0)
        replace_in_vain();
    else if (strcmp(name, "refused") == 0)
        refused(number);
    else if (strcmp(name, "threads") == 0)
        threads();
    else
        return 2;
    puts("fine");
    return 0;
}
