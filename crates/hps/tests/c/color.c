/* Colored memory through libhps' C interface: what is refused, and, if page frames are readable (root), what is made. A failed check
   prints its line. */
#define _GNU_SOURCE
#include "check.h"

#include <linux/capability.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct hps_color_options options(uint32_t colors, uint64_t bytes)
{
    struct hps_color_options options = {.size = sizeof options, .colors = colors, .bytes = bytes};
    return options;
}

static void out_of_range(void)
{
    struct hps_color_arena *arena = NULL;
    struct hps_color_options wrong = options(32, 0);
    CHECK(hps_color_create(&wrong, &arena) == -EINVAL && strstr(hps_error(), "0 bytes"));
    wrong = options(0, 4096);
    CHECK(hps_color_create(&wrong, &arena) == -EINVAL && strstr(hps_error(), "color probe"));
    wrong = options(32, 4096), wrong.size = 3;
    CHECK(hps_color_create(&wrong, &arena) == -EINVAL && strstr(hps_error(), "version"));
    wrong = options(32, 4096), wrong.flags = 8;
    CHECK(hps_color_create(&wrong, &arena) == -EINVAL && strstr(hps_error(), "flag"));
    uint32_t used[33] = {1, 32};
    wrong = options(32, 4096), wrong.used = used, wrong.used_count = 2;
    CHECK(hps_color_create(&wrong, &arena) == -EINVAL && strstr(hps_error(), "no color 32 among 32"));
    wrong.used_count = 33;
    CHECK(hps_color_create(&wrong, &arena) == -EINVAL && strstr(hps_error(), "more colors"));
    wrong.used = NULL;
    CHECK(hps_color_create(&wrong, &arena) == -EINVAL && strstr(hps_error(), "used is NULL"));
    wrong = options(32, (uint64_t)1 << 50);
    CHECK(hps_color_create(&wrong, &arena) == -ENOMEM && strstr(hps_error(), "available"));
    wrong = options(32, UINT64_MAX);
    CHECK(hps_color_create(&wrong, &arena) == -ENOMEM && strstr(hps_error(), "available"));
    struct hps_color_info info;
    struct hps_color_verified verified;
    CHECK(hps_color_create(NULL, &arena) == -EINVAL && hps_color_create(&wrong, NULL) == -EINVAL);
    CHECK(hps_color_get_info(NULL, &info) == -EINVAL && hps_color_verify(NULL, &verified) == -EINVAL && !arena);
    hps_color_destroy(NULL);
}

/* A process that gained rights by setcap cannot be read by others of its user, nor can it read its own pagemap, until it allows that. Runs
   in a child, which gives up root's rights. */
static void closed_to_its_own_user(void)
{
    pid_t child = fork();
    if (child == 0) {
        if (geteuid() == 0 && setuid(65534)) {
            fputs("skipped: root cannot become another user here\n", stderr);
            _exit(0);
        }
        struct hps_color_options one = options(32, 4096);
        struct hps_color_arena *arena = NULL;
        CHECK(prctl(PR_SET_DUMPABLE, 0) == 0);
        CHECK(hps_color_create(&one, &arena) == -EACCES && strstr(hps_error(), "setcap") && !arena);
        CHECK(prctl(PR_SET_DUMPABLE, 1) == 0);
        int answer = hps_color_create(&one, &arena);
        CHECK(answer == -EPERM || answer == 0);
        hps_color_destroy(arena);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* Uses colors 4 to 7 of 32 only, and a child writes to it as well. */
static void confined(void)
{
    uint32_t used[] = {4, 5, 6, 7};
    struct hps_color_options wanted = options(32, 100 << 12);
    wanted.used = used, wanted.used_count = 4, wanted.flags = HPS_COLOR_HUGE;
    struct hps_color_arena *arena;
    CHECK(hps_color_create(&wanted, &arena) == 0);
    struct hps_color_info info;
    struct hps_color_verified verified;
    CHECK(hps_color_get_info(arena, &info) == 0 && info.bytes == 100 << 12);
    CHECK(info.huge_bytes == 0 && info.pages == 100);
    CHECK(hps_color_verify(arena, &verified) == 0 && verified.right_pages == 100 && verified.contiguous_bytes == 0);
    CHECK(hps_color_get_info(arena, NULL) == -EINVAL && hps_color_verify(arena, NULL) == -EINVAL);
    char *memory = (char *)(uintptr_t)info.address;
    CHECK(memory[0] == 0 && memory[info.bytes - 1] == 0);
    memset(memory, 1, info.bytes);
    pid_t child = fork();
    if (child == 0) {
        memset(memory, 2, info.bytes);
        hps_color_destroy(arena);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0 && memory[5000] == 1);
    hps_color_destroy(arena);
}

static void with_huge_pages(void)
{
    struct hps_color_options wanted = options(32, (4 << 20) + 5000);
    wanted.flags = HPS_COLOR_HUGE;
    struct hps_color_arena *arena;
    CHECK(hps_color_create(&wanted, &arena) == 0);
    struct hps_color_info info;
    struct hps_color_verified verified;
    CHECK(hps_color_get_info(arena, &info) == 0 && info.bytes == (4 << 20) + 8192);
    CHECK(info.huge_bytes + info.pages * 4096 == info.bytes && info.huge_bytes % (2 << 20) == 0);
    CHECK(hps_color_verify(arena, &verified) == 0);
    CHECK(verified.right_pages == info.pages && verified.contiguous_bytes == info.huge_bytes);
    hps_color_destroy(arena);
}

/* Must be last because it gives up the privilege: the memory can be inspected and used anyway. */
static void without_the_right(void)
{
    struct hps_color_options wanted = options(32, 4096);
    struct hps_color_arena *arena;
    CHECK(hps_color_create(&wanted, &arena) == 0);
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct rights[_LINUX_CAPABILITY_U32S_3];
    CHECK(syscall(SYS_capget, &header, rights) == 0);
    rights[0].effective &= ~((uint32_t)1 << CAP_SYS_ADMIN);
    CHECK(syscall(SYS_capset, &header, rights) == 0);
    struct hps_color_info info;
    struct hps_color_verified verified;
    CHECK(hps_color_verify(arena, &verified) == -EPERM && strstr(hps_error(), "CAP_SYS_ADMIN"));
    CHECK(hps_color_get_info(arena, &info) == 0 && info.bytes == 4096);
    memset((char *)(uintptr_t)info.address, 1, info.bytes);
    hps_color_destroy(arena);
}

int main(void)
{
    out_of_range();
    closed_to_its_own_user();
    struct hps_color_options one = options(32, 4096);
    struct hps_color_arena *arena;
    int answer = hps_color_create(&one, &arena);
    if (answer == -EPERM) {
        CHECK(strstr(hps_error(), "CAP_SYS_ADMIN"));
        puts("skipped: page frames are hidden from this process");
        return 0;
    }
    CHECK(answer == 0);
    hps_color_destroy(arena);
    confined();
    with_huge_pages();
    without_the_right();
    puts("made");
    return 0;
}
