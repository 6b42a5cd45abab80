/* A program that gives the kernel a buffer for long (io_uring): whatever happens to the memory beside the buffer, what is read into
 * its pages must be seen. The first argument names the case. */
#include "common.h"

#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define LENGTH (32 * MIB)
#define BUFFER (4 * PAGE)
#define ENTRIES 4

struct ring {
    int fd;
    struct io_uring_params about;
    char *submitted, *completed;
    struct io_uring_sqe *requests;
};

static void *mapped_from(int ring, size_t length, off_t offset) {
    void *start = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, offset);
    CHECK(start != MAP_FAILED);
    return start;
}

/* Ends the program where the kernel knows no io_uring, or does not permit this use. */
static int permitted(int answer) {
    if (answer < 0 && (errno == ENOSYS || errno == EPERM || errno == ENOMEM)) {
        puts("permitted=0\nfine");
        exit(0);
    }
    return answer;
}

static struct ring open_ring(void) {
    struct ring ring = {.fd = -1};
    ring.fd = permitted(syscall(SYS_io_uring_setup, ENTRIES, &ring.about));
    CHECK(ring.fd >= 0);
    struct io_sqring_offsets sq = ring.about.sq_off;
    struct io_cqring_offsets cq = ring.about.cq_off;
    ring.submitted = mapped_from(ring.fd, sq.array + ENTRIES * sizeof(unsigned), IORING_OFF_SQ_RING);
    ring.completed = mapped_from(ring.fd, cq.cqes + ring.about.cq_entries * sizeof(struct io_uring_cqe), IORING_OFF_CQ_RING);
    ring.requests = mapped_from(ring.fd, ENTRIES * sizeof(struct io_uring_sqe), IORING_OFF_SQES);
    return ring;
}

/* Has a pipe's bytes read into the buffer by its pages, which the kernel has held since it was registered. */
static void read_fixed(const struct ring *ring, int from, char *buffer) {
    struct io_sqring_offsets sq = ring->about.sq_off;
    struct io_cqring_offsets cq = ring->about.cq_off;
    atomic_uint *added = (atomic_uint *)(ring->submitted + sq.tail), *done = (atomic_uint *)(ring->completed + cq.tail);
    unsigned slot = *added % ring->about.sq_entries, before = *done;
    struct io_uring_cqe *completions = (struct io_uring_cqe *)(ring->completed + cq.cqes);
    ring->requests[slot] = (struct io_uring_sqe){
        .opcode = IORING_OP_READ_FIXED, .fd = from, .addr = (unsigned long)buffer, .len = BUFFER, .buf_index = 0};
    ((unsigned *)(ring->submitted + sq.array))[slot] = slot;
    ++*added;
    CHECK(syscall(SYS_io_uring_enter, ring->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 1);
    CHECK(*done == before + 1 && completions[before % ring->about.cq_entries].res == BUFFER);
    ++*(atomic_uint *)(ring->completed + cq.head);
}

/* Reads contents that were not there before into the buffer, which the program may have moved since. */
static void receive_at(const struct ring *ring, char *buffer, const char *now) {
    static long seed = 100;
    static _Alignas(PAGE) char contents[BUFFER];
    int ends[2];
    fill(contents, 0, BUFFER, ++seed);
    /* Where the kernel might have to wait, it would start a thread in this program. */
    CHECK(pipe2(ends, O_NONBLOCK) == 0 && write(ends[1], contents, BUFFER) == BUFFER);
    read_fixed(ring, ends[0], buffer);
    CHECK(holds(now, 0, BUFFER, seed) && close(ends[0]) == 0 && close(ends[1]) == 0);
}

static void receive(const struct ring *ring, char *buffer) { receive_at(ring, buffer, buffer); }

static struct ring open_ring_for(char *buffer) {
    struct ring ring = open_ring();
    struct iovec range = {.iov_base = buffer, .iov_len = BUFFER};
    CHECK(permitted(syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_BUFFERS, &range, 1)) == 0);
    receive(&ring, buffer);
    return ring;
}

/* Otherwise the kernel lets go of the pages some time after the program's end. */
static void let_go(const struct ring *ring) {
    CHECK(syscall(SYS_io_uring_register, ring->fd, IORING_UNREGISTER_BUFFERS, NULL, 0) == 0);
}

/* The child has the contents of before, whatever arrives in the parent. */
static void receive_after_fork(const struct ring *ring, char *buffer) {
    int gate[2];
    char byte;
    fill(buffer, 0, BUFFER, 1);
    CHECK(pipe(gate) == 0);
    pid_t child = fork();
    if (child == 0) {
        close(gate[1]);
        CHECK(read(gate[0], &byte, 1) == 0 && holds(buffer, 0, BUFFER, 1));
        fill(buffer, 0, BUFFER, 2);
        _exit(!holds(buffer, 0, BUFFER, 2));
    }
    receive(ring, buffer);
    close(gate[0]);
    close(gate[1]);
    ended_well(child);
    receive(ring, buffer);
}

/* Around the buffer, in the middle of a huge page, parts are given up. */
static void beside(void) {
    char *memory = map(LENGTH), *page = memory + 4 * MIB, *buffer = page + MIB;
    int over = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    fill(memory, 0, LENGTH, 3);
    struct ring ring = open_ring_for(buffer);
    printf("permitted=1 pooled=%d\n", is_pooled(buffer));
    fflush(stdout);
    CHECK(mprotect(page + PAGE, PAGE, PROT_READ) == 0);
    receive(&ring, buffer);
    CHECK(mmap(page + 2 * PAGE, PAGE, PROT_READ | PROT_WRITE, over, -1, 0) == page + 2 * PAGE);
    CHECK(is_zero(page, 2 * PAGE, 3 * PAGE));
    receive(&ring, buffer);
    CHECK(madvise(page + 3 * PAGE, PAGE, MADV_DONTNEED) == 0 && is_zero(page, 3 * PAGE, 4 * PAGE));
    receive(&ring, buffer);
    CHECK(munmap(memory, 4 * MIB + PAGE) == 0 && munmap(buffer + BUFFER, LENGTH - 5 * MIB - BUFFER) == 0);
    receive(&ring, buffer);
    receive_after_fork(&ring, buffer);
    CHECK(holds(memory, 4 * MIB + 4 * PAGE, 5 * MIB, 3));
    let_go(&ring);
}

/* The buffer moves with its pages, or not at all. */
static void moved(void) {
    char *memory = map(LENGTH + 3 * PAGE), *buffer = memory + 5 * MIB;
    fill(memory, 0, LENGTH + 3 * PAGE, 5);
    struct ring ring = open_ring_for(buffer);
    printf("permitted=1 pooled=%d\n", is_pooled(buffer));
    CHECK(!is_pooled(buffer) || (mremap(buffer, BUFFER, 2 * BUFFER, MREMAP_MAYMOVE) == MAP_FAILED && errno == EINVAL));
    receive(&ring, buffer);
    memory = mremap(memory, LENGTH + 3 * PAGE, 2 * LENGTH, MREMAP_MAYMOVE);
    CHECK(memory != MAP_FAILED && is_zero(memory, LENGTH + 3 * PAGE, 2 * LENGTH));
    CHECK(holds(memory, 0, 5 * MIB, 5) && holds(memory, 5 * MIB + BUFFER, LENGTH + 3 * PAGE, 5));
    receive_at(&ring, buffer, memory + 5 * MIB);
    CHECK(munmap(memory + 5 * MIB + BUFFER, MIB) == 0 && munmap(memory, PAGE) == 0);
    receive_at(&ring, buffer, memory + 5 * MIB);
    let_go(&ring);
}

/* Memory that bypasses the library, when GLIBC_TUNABLES takes it from the pool. */
static void heap(void) {
    char *memory = malloc(LENGTH - 2 * MIB);
    CHECK(memory != NULL);
    char *buffer = memory + (-(unsigned long)memory % PAGE) + MIB;
    fill(memory, 0, LENGTH - 2 * MIB, 4);
    struct ring ring = open_ring_for(buffer);
    printf("permitted=1 pooled=%d\n", is_pooled(buffer));
    fflush(stdout);
    receive_after_fork(&ring, buffer);
    CHECK(holds(memory, 0, MIB, 4));
    let_go(&ring);
    free(memory);
}

int main(int count, char **arguments) {
    const char *name = count > 1 ? arguments[1] : "";
    if (strcmp(name, "beside") == 0)
        beside();
    else if (strcmp(name, "moved") == 0)
        moved();
    else if (strcmp(name, "heap") == 0)
        heap();
    else
        return 2;
    puts("fine");
    return 0;
}
