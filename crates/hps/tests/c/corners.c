/* Corner cases of libhps' C interface: arguments out of range, fork, exec, dlopen, threads, and unexpected signals. A failed check prints
 * its line. The program has a fake daemon of its own, so it behaves the same everywhere. */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[108];
static int listener;

/* Accepts the next client, hands it the memory for its lists, and returns the connection. */
static int take_client(int *list)
{
    static const char answer[] = "{\"version\":2,\"tracked\":{}}\n";
    char asked[4096], control[CMSG_SPACE(sizeof(int))] = {0};
    int client = accept(listener, NULL, NULL);
    CHECK(client >= 0 && read(client, asked, sizeof asked) > 0);
    *list = memfd_create("list", MFD_CLOEXEC);
    struct iovec bytes = {(void *)answer, sizeof answer - 1};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(rights), list, sizeof(int));
    CHECK(sendmsg(client, &message, 0) == (ssize_t)bytes.iov_len);
    return client;
}

/* As the daemon writes them (src/wire.rs): runs of neighbouring pages, then the head. */
struct walked_run {
    uint64_t address;
    uint32_t pages;
    float walks_per_second;
};

static void write_list(int list, uint64_t sequence, struct walked_run run)
{
    uint64_t head[4] = {0, sequence, 1, run.pages};
    memcpy(head, "hpslist2", 8);
    CHECK(pwrite(list, &run, sizeof run, sizeof head) == sizeof run);
    CHECK(pwrite(list, head, sizeof head, 0) == sizeof head);
}

static struct hps_options options(uint32_t mode)
{
    struct hps_options options = {.size = sizeof options, .mode = mode, .socket = path};
    return options;
}

static void *enable(void *mode)
{
    struct hps_options wanted = options((uintptr_t)mode);
    return (void *)(intptr_t)hps_enable_track(&wanted);
}

/* Starts tracking; returns the daemon's end of the connection. */
static int tracked(uint32_t mode, int *list)
{
    pthread_t thread;
    void *enabled;
    CHECK(!pthread_create(&thread, NULL, enable, (void *)(uintptr_t)mode));
    int client = take_client(list);
    CHECK(!pthread_join(thread, &enabled) && enabled == NULL);
    return client;
}

static void out_of_range(void)
{
    struct hps_options wrong = options(HPS_WAIT);
    wrong.socket = "/nonexistent/socket";
    CHECK(hps_enable_track(&wrong) == -ECONNREFUSED && strstr(hps_error(), "hugepilotd"));
    wrong = options(7);
    CHECK(hps_enable_track(&wrong) == -EINVAL);
    wrong = options(HPS_WAIT), wrong.size = 3;
    CHECK(hps_enable_track(&wrong) == -EINVAL && strstr(hps_error(), "version"));
    wrong = options(HPS_WAIT), wrong.signal = SIGKILL;
    CHECK(hps_enable_track(&wrong) == -EINVAL && strstr(hps_error(), "real-time"));
    wrong = options(HPS_WAIT), wrong.interval_ms = 1;
    CHECK(hps_enable_track(&wrong) == -EINVAL);
    struct hps_range range = {5, 5};
    wrong = options(HPS_WAIT), wrong.ranges = &range, wrong.ranges_count = 1;
    CHECK(hps_enable_track(&wrong) == -EINVAL);
    wrong = options(HPS_WAIT), wrong.signal = SIGRTMIN + 7;
    signal(SIGRTMIN + 7, SIG_IGN);
    CHECK(hps_enable_track(&wrong) == -EBUSY);
    CHECK(hps_disable_track() == -ESRCH && hps_wait_signal(0, NULL) == -ESRCH);
    struct hps_functions functions = {.size = 1};
    CHECK(hps_set_functions(&functions) == -EINVAL && hps_set_functions(NULL) == 0);
    CHECK(hps_judge(&(struct hps_region){.pages_count = 128}) == HPS_CONVERT);
    CHECK(hps_judge(&(struct hps_region){.pages_count = 127}) == HPS_COMPACT);
}

static void arenas(void)
{
    struct hps_arena *arena = NULL;
    CHECK(hps_arena_create(0, 0, &arena) == -EINVAL && hps_arena_create(1, 0, NULL) == -EINVAL);
    CHECK(hps_arena_create(3 << 20, HPS_ARENA_FORK, &arena) == 0);
    char *pieces[100];
    for (int i = 0; i < 100; i++) {
        pieces[i] = hps_arena_alloc(arena, 5000);
        CHECK(pieces[i] && (uintptr_t)pieces[i] % 16 == 0);
        memset(pieces[i], i, 5000);
    }
    for (int i = 0; i < 100; i++)
        CHECK(pieces[i][0] == i && pieces[i][4999] == i && !hps_arena_free(arena, pieces[i]));
    CHECK(hps_arena_free(arena, pieces[0]) == -EINVAL && hps_arena_free(arena, &arena) == -EINVAL);
    CHECK(!hps_arena_alloc(arena, 5 << 20) && !hps_arena_alloc(arena, UINT64_MAX));
    struct hps_arena_info info;
    CHECK(!hps_arena_get_info(arena, &info) && info.bytes == 4 << 20 && info.backing != HPS_POOL);
    CHECK(hps_arena_get_info(NULL, &info) == -EINVAL && !hps_arena_alloc(NULL, 1));
    hps_arena_destroy(arena);
    hps_arena_destroy(NULL);
}

static int ended_lists;

static void count_list(void *context, const struct hps_report *report)
{
    CHECK(context == &ended_lists && report->pages == 3 && report->kept == 1);
    __atomic_add_fetch(&ended_lists, 1, __ATOMIC_SEQ_CST);
}

static int ends_tracking(void *context, const struct hps_region *region)
{
    CHECK(context == &ended_lists && region->pages_count == 3 && region->pages[2].address == 3 << 12);
    return hps_disable_track() ? HPS_CONVERT : HPS_KEEP;
}

static const struct walked_run some = {1 << 12, 3, 1.0};

/* The library's thread works through lists, and a callback may end that. */
static void a_thread_of_the_librarys(void)
{
    int list, client = tracked(HPS_HANDLE, &list);
    struct hps_options again = options(HPS_HANDLE);
    CHECK(hps_enable_track(&again) == -EBUSY && hps_wait_signal(0, NULL) == -EBUSY);
    struct hps_functions functions = {.size = sizeof functions, .context = &ended_lists};
    functions.end = count_list;
    functions.judge = ends_tracking;
    CHECK(!hps_set_functions(&functions));
    write_list(list, 1, some);
    kill(getpid(), SIGRTMIN + 4);
    char said[256] = {0};
    CHECK(read(client, said, sizeof said - 1) > 0 && strstr(said, "\"taken\":1"));
    CHECK(read(client, said, sizeof said - 1) == 0);
    while (!__atomic_load_n(&ended_lists, __ATOMIC_SEQ_CST))
        usleep(1000);
    CHECK(hps_disable_track() == -ESRCH && !hps_set_functions(NULL));
    /* A signal that was still pending kills nobody. */
    kill(getpid(), SIGRTMIN + 4);
    close(client), close(list);
}

static void *wait_for_ever(void *unused)
{
    int waited;
    (void)unused;
    /* The check whether this thread waits itself counts as waiting for a moment. */
    do
        waited = hps_wait_signal(-1, NULL);
    while (waited == -EBUSY);
    return (void *)(intptr_t)waited;
}

static void a_thread_that_waits(void)
{
    int list, client = tracked(HPS_WAIT, &list);
    struct hps_report report;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    CHECK(hps_wait_signal(10, &report) == -ETIMEDOUT);
    kill(getpid(), SIGRTMIN + 4);
    CHECK(hps_wait_signal(10, &report) == -ETIMEDOUT);
    write_list(list, 1, some);
    CHECK(hps_wait_signal(0, &report) == 0 && report.pages == 3 && report.regions == 1 && report.kept == 1);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_t thread;
    void *returned;
    pthread_create(&thread, NULL, wait_for_ever, NULL);
    int seen;
    for (int tries = 0; (seen = hps_wait_signal(0, NULL)) == -ETIMEDOUT && tries < 20000; tries++)
        usleep(1000);
    CHECK(seen == -EBUSY && hps_disable_track() == 0);
    CHECK(!pthread_join(thread, &returned) && (intptr_t)returned == -ECANCELED);
    close(client), close(list);
}

static void children(void)
{
    int list, client = tracked(HPS_HANDLE, &list), status, told[2];
    char byte = 0;
    CHECK(!pipe(told));
    pid_t child = fork();
    if (child == 0) {
        CHECK(hps_disable_track() == -ESRCH && hps_wait_signal(0, NULL) == -ESRCH);
        kill(getpid(), SIGRTMIN + 4);
        int own_list, own = tracked(HPS_WAIT, &own_list);
        CHECK(hps_disable_track() == 0);
        close(own), close(own_list);
        CHECK(write(told[1], "+", 1) == 1);
        /* Killed, so leak checkers do not blame the child for memory of its parent's lost threads. */
        raise(SIGKILL);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    CHECK(read(told[0], &byte, 1) == 1 && byte == '+');
    close(told[0]), close(told[1]);
    /* The parent's tracking is unaffected. */
    char said[256] = {0};
    write_list(list, 1, some);
    kill(getpid(), SIGRTMIN + 4);
    CHECK(read(client, said, sizeof said - 1) > 0 && strstr(said, "\"taken\":1"));
    CHECK(hps_disable_track() == 0);
    close(client), close(list);
}

/* exec ends tracking and closes the connection. */
static void exec_ends_it(const char *self)
{
    int status;
    char byte;
    pid_t child = fork();
    if (child == 0) {
        struct hps_options wanted = options(HPS_HANDLE);
        CHECK(!hps_enable_track(&wanted));
        execl(self, self, "sleep", NULL);
        raise(SIGKILL);
    }
    int list, client = take_client(&list);
    CHECK(read(client, &byte, 1) == 0);
    kill(child, SIGKILL);
    CHECK(waitpid(child, &status, 0) == child);
    close(client), close(list);
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "sleep"))
        return pause();
    /* Ends the test if something waits forever by mistake. */
    alarm(300);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(path, sizeof path, "/tmp/hps-corners-%d", getpid());
    memcpy(address.sun_path, path, sizeof path);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(!bind(listener, (struct sockaddr *)&address, sizeof address) && !listen(listener, 8));
    out_of_range();
    arenas();
    a_thread_of_the_librarys();
    a_thread_that_waits();
    children();
    exec_ends_it("/proc/self/exe");
    unlink(path);
    puts("all corners hold");
    return 0;
}
