/*
 * A program whose allocator has much to take and to give back: blocks of 64 bytes to 64 KiB, half of which are freed and allocated again in
 * waves, and all of which are read at random meanwhile. It uses a fifth of a processor.
 *
 *   churn MEBIBYTES
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SMALLEST 64
#define DOUBLINGS 10
/* The mean size: one and a half times the mean of ten powers of two from 64 on. */
#define MEAN 9821
#define WAVE_SECONDS 20

struct block {
    unsigned char *bytes;
    size_t size;
};

static uint64_t state = 1;

static uint64_t below(uint64_t bound) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % bound;
}

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void allocate(struct block *block) {
    size_t size = (size_t)SMALLEST << below(DOUBLINGS);
    size += below(size);
    block->bytes = malloc(size);
    if (!block->bytes) {
        fputs("churn: no memory left\n", stderr);
        exit(1);
    }
    memset(block->bytes, 1, size);
    block->size = size;
}

static void release(struct block *block) {
    free(block->bytes);
    block->bytes = NULL;
}

/* Reads a few thousand bytes here and there. */
static unsigned work(const struct block *blocks, size_t count) {
    unsigned sum = 0;
    for (int reads = 0; reads < 2000; reads++) {
        const struct block *block = &blocks[below(count)];
        if (block->bytes)
            sum += block->bytes[below(block->size)];
    }
    return sum;
}

int main(int argc, char **argv) {
    size_t count = (argc > 1 ? strtoul(argv[1], NULL, 10) : 512) * (1u << 20) / MEAN;
    struct block *blocks = calloc(count, sizeof *blocks);
    if (!blocks)
        return 1;
    for (size_t at = 0; at < count; at++)
        allocate(&blocks[at]);
    puts("ready");
    fflush(stdout);
    uint64_t began = now_ns(), wave = 0;
    volatile unsigned sum = 0;
    for (;;) {
        uint64_t before = now_ns(), second = (before - began) / 1000000000u;
        sum += work(blocks, count);
        if (second / WAVE_SECONDS != wave) {
            wave = second / WAVE_SECONDS;
            for (size_t at = 0; at < count; at++) {
                if (wave % 2 == 0 && !blocks[at].bytes)
                    allocate(&blocks[at]);
                else if (wave % 2 == 1 && below(2))
                    release(&blocks[at]);
            }
        }
        uint64_t rest = 4 * (now_ns() - before);
        struct timespec pause = {.tv_sec = (time_t)(rest / 1000000000u), .tv_nsec = (long)(rest % 1000000000u)};
        nanosleep(&pause, NULL);
    }
}
