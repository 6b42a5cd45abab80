/* Large pages through libhps' C interface, on Linux and on Windows: what is refused, what is allocated, and how it is described. A failed
 * check prints its line. */
#include "check.h"

#include <string.h>

static struct hps_large_options options(uint32_t policy, uint32_t flags)
{
    struct hps_large_options options = {.size = sizeof options, .policy = policy, .flags = flags};
    return options;
}

static void out_of_range(void)
{
    struct hps_large *large = NULL;
    struct hps_large_info info;
    struct hps_large_options wrong = options(3, 0);
    CHECK(hps_large_alloc(1, &wrong, &large) == -EINVAL && strstr(hps_error(), "policy"));
    wrong = options(HPS_LARGE_OFF, 4);
    CHECK(hps_large_alloc(1, &wrong, &large) == -EINVAL && strstr(hps_error(), "flag"));
    wrong = options(HPS_LARGE_OFF, 0), wrong.size = 3;
    CHECK(hps_large_alloc(1, &wrong, &large) == -EINVAL && strstr(hps_error(), "version"));
    CHECK(hps_large_alloc(0, NULL, &large) == -EINVAL && strstr(hps_error(), "0 bytes"));
    CHECK(hps_large_alloc(UINT64_MAX, NULL, &large) == -EINVAL);
    CHECK(hps_large_alloc(1, NULL, NULL) == -EINVAL && hps_large_get_info(NULL, &info) == -EINVAL && !large);
    hps_large_free(NULL);
}

/* Whatever the outcome, the result describes itself correctly. */
static void taken(uint32_t policy, uint32_t flags)
{
    struct hps_large_options wanted = options(policy, flags);
    struct hps_large *large;
    struct hps_large_info info;
    CHECK(hps_large_get_info(NULL, &info) == -EINVAL && strstr(hps_error(), "NULL"));
    CHECK(hps_large_alloc(5000000, &wanted, &large) == 0 && hps_large_get_info(large, &info) == 0);
    /* The message is about the fallback, if there was one, and not about an earlier error. */
    CHECK((strstr(hps_error(), "NULL") == NULL) == (policy == HPS_LARGE_PREFERRED && info.large_bytes < info.bytes));
    CHECK(hps_large_get_info(large, NULL) == -EINVAL);
    CHECK(info.bytes >= 5000000 && info.bytes % info.page_bytes == 0 && info.large_bytes <= info.bytes);
    CHECK((info.backing == HPS_LARGE_ON_ORDINARY) == (info.large_bytes == 0));
    CHECK(policy != HPS_LARGE_OFF || info.large_bytes == 0);
    unsigned char *memory = info.memory;
    CHECK(memory[0] == 0 && memory[info.bytes - 1] == 0);
    memset(memory, 1, info.bytes);
    hps_large_free(large);
}

int main(void)
{
    out_of_range();
    taken(HPS_LARGE_PREFERRED, 0);
    taken(HPS_LARGE_OFF, 0);
    struct hps_large_options required = options(HPS_LARGE_REQUIRED, 0);
    struct hps_large *large;
    int refused = hps_large_alloc(1 << 20, &required, &large);
    if (refused) {
        CHECK(refused == -EPERM || refused == -ENOMEM || refused == -ENOSYS);
        printf("refused: %s\n", hps_error());
    } else {
        struct hps_large_info info;
        CHECK(hps_large_get_info(large, &info) == 0 && info.large_bytes == info.bytes);
        hps_large_free(large);
        printf("made\n");
    }
    return 0;
}
