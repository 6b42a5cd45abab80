/* What the tests of libhps' C interface share: a check that names its line. */
#include <hps.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "line %d: %s; errno %d, hps_error: %s\n", __LINE__, #condition, errno, hps_error());       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
