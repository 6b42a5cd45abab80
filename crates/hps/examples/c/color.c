/* Colored memory: a buffer whose pages follow each other through the sets of a cache, so that none evicts another for as long as it fits.
 *
 *   cc color.c -lhps -o color && sudo ./color COLORS
 *
 * COLORS is the number that `hugepilot color probe` calls real; without real colors this does not help. CAP_SYS_ADMIN is needed to create and
 * to verify the memory, but not to use it. */
#include <hps.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed(void)
{
    fprintf(stderr, "color: %s\n", hps_error());
    return 1;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: color COLORS\n");
        return 2;
    }
    struct hps_color_options options = {.size = sizeof options, .bytes = 300 << 10};
    options.colors = (uint32_t)strtoul(argv[1], NULL, 10);
    struct hps_color_arena *arena;
    struct hps_color_info info;
    if (hps_color_create(&options, &arena) || hps_color_get_info(arena, &info))
        return failed();
    memset((char *)(uintptr_t)info.address, 1, info.bytes);
    struct hps_color_verified verified;
    if (hps_color_verify(arena, &verified))
        return failed();
    printf("%u of %u pages have their color\n", (unsigned)verified.right_pages, (unsigned)info.pages);
    hps_color_destroy(arena);
    return 0;
}
