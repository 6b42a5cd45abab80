/* System V shared memory. */
#include "common.h"

#include <sys/shm.h>

#define LENGTH (9 * MIB + 5000)

/* The last segment created: it would outlive a program that crashes. */
static int made = -1;

static void remove_it(void) {
    if (made >= 0)
        shmctl(made, IPC_RMID, NULL);
}

static void die(int number) {
    remove_it();
    signal(number, SIG_DFL);
    raise(number);
}

/* Shared memory keeps its contents, whichever part is discarded. */
static void parts_of(char *memory) {
    int advice[] = {MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_DONTDUMP, MADV_DODUMP, MADV_DONTFORK, MADV_DOFORK, MADV_DONTNEED};
    CHECK(mprotect(memory + PAGE, PAGE, PROT_READ) == 0 && holds(memory, 0, LENGTH, 2));
    CHECK(write_fault(memory) == 0 && write_fault(memory + 2 * PAGE) == 0);
    CHECK(mprotect(memory + PAGE, 4 * MIB, PROT_READ | PROT_WRITE) == 0 && write_fault(memory + PAGE) == 0);
    for (int number = 0; number < 8; number++)
        CHECK(madvise(memory + 2 * MIB + PAGE, PAGE, advice[number]) == 0);
    CHECK(mprotect(memory + 1, PAGE, PROT_READ) == -1 && errno == EINVAL);
    CHECK(holds(memory, 0, LENGTH, 2));
}

static void used(int segment) {
    struct shmid_ds about;
    CHECK(shmctl(segment, IPC_STAT, &about) == 0);
    CHECK(about.shm_segsz == LENGTH && about.shm_nattch == 0 && (about.shm_perm.mode & 0777) == 0600);
    char *memory = shmat(segment, NULL, 0);
    CHECK(memory != (char *)-1);
    CHECK(is_zero(memory, 0, LENGTH));
    fill(memory, 0, LENGTH, 1);
    printf("aligned=%d pooled=%d\n", (long)memory % (2 * MIB) == 0, is_pooled(memory));
    pid_t child = fork();
    if (child == 0) {
        CHECK(holds(memory, 0, LENGTH, 1));
        fill(memory, 0, LENGTH, 2);
        CHECK(shmdt(memory) == 0);
        _exit(0);
    }
    ended_well(child);
    CHECK(holds(memory, 0, LENGTH, 2));
    parts_of(memory);
    char *again = shmat(segment, NULL, SHM_RDONLY);
    CHECK(again != (char *)-1 && again != memory && holds(again, 0, LENGTH, 2) && write_fault(again) == SIGSEGV);
    CHECK(shmdt(memory) == 0 && shmdt(memory) == -1 && shmdt(again) == 0);
    CHECK(shmctl(segment, IPC_STAT, &about) == 0 && about.shm_nattch == 0);
}

static void found_by_key(void) {
    key_t key = 0x68700000 | (getpid() & 0xfffff);
    int segment = shmget(key, LENGTH, IPC_CREAT | IPC_EXCL | 0600);
    CHECK(segment >= 0);
    made = segment;
    CHECK(shmget(key, LENGTH, IPC_CREAT | IPC_EXCL | 0600) == -1 && errno == EEXIST);
    CHECK(shmget(key, LENGTH, IPC_CREAT | 0600) == segment && shmget(key, 0, 0) == segment);
    CHECK(shmget(key, LENGTH + 1, IPC_CREAT | 0600) == -1 && errno == EINVAL);
    used(segment);
    CHECK(shmctl(segment, IPC_RMID, NULL) == 0);
    CHECK(shmget(key, LENGTH, 0) == -1 && errno == ENOENT);
}

int main(void) {
    errno = 77;
    int segment = shmget(IPC_PRIVATE, LENGTH, 0600);
    CHECK(segment >= 0 && errno == 77);
    made = segment;
    atexit(remove_it);
    signal(SIGSEGV, die);
    signal(SIGBUS, die);
    used(segment);
    CHECK(shmctl(segment, IPC_RMID, NULL) == 0);
    found_by_key();
    puts("fine");
    return 0;
}
