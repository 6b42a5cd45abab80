/* A program that leaves everything to libhps: dense memory is put on huge pages in place.
 *
 *   cc convert.c -lhps -o convert && ./convert [SOCKET]
 *
 * It reads 64 MiB at random until all of it is converted, for at most a minute, and prints what libhps did. Without a daemon it tracks its
 * own writes, so it writes, too. */
#include <errno.h>
#include <hps.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HUGE_PAGE = 2 << 20, SIZE = 32 * HUGE_PAGE };

static void use(unsigned char *memory)
{
    static unsigned long random = 88172645463325252ul;
    for (int i = 0; i < 1000000; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        memory[random % SIZE]++;
    }
}

int main(int argc, char **argv)
{
    unsigned char *memory = aligned_alloc(HUGE_PAGE, SIZE);
    if (!memory)
        return 1;
    memset(memory, 1, SIZE);
    struct hps_range range = {(uintptr_t)memory, (uintptr_t)memory + SIZE};
    struct hps_options options = {.size = sizeof options, .mode = HPS_WAIT, .interval_ms = 200, .flags = HPS_OWN_WRITES};
    options.ranges = &range;
    options.ranges_count = 1;
    options.socket = argc > 1 ? argv[1] : NULL;
    if (hps_enable_track(&options)) {
        fprintf(stderr, "convert: %s\n", hps_error());
        return 2;
    }
    uint64_t converted = 0;
    for (time_t end = time(NULL) + 60; converted < SIZE / HUGE_PAGE && time(NULL) < end;) {
        struct hps_report report;
        use(memory);
        int error = hps_wait_signal(0, &report);
        if (error == -ETIMEDOUT)
            continue;
        if (error) {
            fprintf(stderr, "convert: %s\n", hps_error());
            break;
        }
        converted += report.converted;
        printf("%lu active pages in %lu regions: %lu converted, %lu refused\n", (unsigned long)report.pages,
               (unsigned long)report.regions, (unsigned long)report.converted, (unsigned long)report.refused);
    }
    hps_disable_track();
    printf("%lu of %d regions are on huge pages\n", (unsigned long)converted, SIZE / HUGE_PAGE);
    free(memory);
    return converted < SIZE / HUGE_PAGE;
}
