/* A program that loads libhps, is tracked, and unloads it: a signal that comes later must find a handler. */
#define _GNU_SOURCE
#include <hps.h>

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    enum { SIZE = 1 << 20 };
    void *library = dlopen(argc > 1 ? argv[1] : "libhps.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "plugin: %s\n", dlerror());
        return 1;
    }
    int (*enable)(const struct hps_options *) = (int (*)(const struct hps_options *))dlsym(library, "hps_enable_track");
    int (*disable)(void) = (int (*)(void))dlsym(library, "hps_disable_track");
    void *memory = aligned_alloc(4096, SIZE);
    struct hps_range range = {(uintptr_t)memory, (uintptr_t)memory + SIZE};
    struct hps_options options = {.size = sizeof options, .flags = HPS_OWN_WRITES, .socket = "/nonexistent/socket"};
    options.ranges = &range;
    options.ranges_count = 1;
    if (enable(&options) || disable())
        return 2;
    if (dlclose(library))
        return 3;
    kill(getpid(), SIGRTMIN + 4);
    usleep(10000);
    puts("alive");
    return 0;
}
