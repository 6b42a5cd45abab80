/* A library that registers fork handlers as soon as it is loaded. */
#include "common.h"

char *watched;
char seen;

static void before(void) {
    if (watched)
        watched[PAGE] = 'b';
}

static void in_child(void) {
    if (watched) {
        seen = watched[PAGE];
        watched[4 * MIB] = 'c';
    }
}

__attribute__((constructor)) static void begin(void) { CHECK(pthread_atfork(before, NULL, in_child) == 0); }
