/* A buffer on large pages, on Linux and on Windows: allocated once, when the program starts.
 *
 *   cc large.c -lhps -o large && ./large
 *   x86_64-w64-mingw32-gcc -IINCLUDE large.c DIRECTORY/libhps.a -lntdll -lws2_32 -luserenv -o large.exe
 *
 * (INCLUDE contains hps.h: crates/hps/include; `make windows` prints DIRECTORY.)
 *
 * It takes 64 MiB as large pages if possible, otherwise as ordinary ones, fills them, and prints which they were, and why. */
#include <hps.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    struct hps_large_options options = {.size = sizeof options, .policy = HPS_LARGE_PREFERRED};
    struct hps_large *large;
    struct hps_large_info info;
    if (hps_large_alloc(64 << 20, &options, &large) || hps_large_get_info(large, &info)) {
        fprintf(stderr, "large: %s\n", hps_error());
        return 1;
    }
    memset(info.memory, 1, info.bytes);
    printf("%u of %u MiB on large pages\n", (unsigned)(info.large_bytes >> 20), (unsigned)(info.bytes >> 20));
    if (info.large_bytes < info.bytes)
        printf("not all: %s\n", hps_error());
    hps_large_free(large);
    return 0;
}
