/* Forks while other threads are in the library, whose locks a child must not inherit held. Not for AddressSanitizer, whose own
 * allocator does not survive that. */
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FORKS = 300, PATIENCE_SECONDS = 20 };

static struct hps_arena *arena;
static int over;

static void use_arena(void)
{
    void *piece = hps_arena_alloc(arena, 100);
    CHECK(piece && !hps_arena_free(arena, piece));
}

/* Nobody listens there, which the library notices only after it has installed the handler. */
static void register_in_vain(void)
{
    struct hps_options options = {.size = sizeof options, .mode = HPS_WAIT, .socket = "/nonexistent/socket"};
    CHECK(hps_enable_track(&options) == -ECONNREFUSED);
}

static void *repeat(void *action)
{
    while (!__atomic_load_n(&over, __ATOMIC_SEQ_CST))
        ((void (*)(void))action)();
    return NULL;
}

int main(void)
{
    pthread_t threads[2];
    CHECK(!hps_arena_create(2 << 20, HPS_ARENA_FORK, &arena));
    CHECK(!pthread_create(&threads[0], NULL, repeat, (void *)use_arena));
    CHECK(!pthread_create(&threads[1], NULL, repeat, (void *)register_in_vain));
    for (int i = 0; i < FORKS; i++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            alarm(PATIENCE_SECONDS);
            use_arena();
            register_in_vain();
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    __atomic_store_n(&over, 1, __ATOMIC_SEQ_CST);
    CHECK(!pthread_join(threads[0], NULL) && !pthread_join(threads[1], NULL));
    hps_arena_destroy(arena);
    puts("all children did as they liked");
    return 0;
}
