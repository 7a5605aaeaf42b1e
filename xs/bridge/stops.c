/* stops.c - signals that tell a process to stop while it does not come back to its event loop.
 *
 * The loop blocks signals but while it waits, so an application that never returns leaves them no turn. A
 * thread takes them then. It counts them, passes each on to the loop's thread, where it waits, and lets the
 * third one that the loop has not heard end the process.
 *
 * The thread waits for the signals instead of handling them: Perl's handlers need the thread of an
 * interpreter, and an application may replace the handlers at any time. */
#include "bridge/bridge.h"
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

/* Signals that may wait for the loop. */
#define PX_STOPS_UNHEARD 2

static int unheard;
static pthread_t serving;
static pid_t process;
static sigset_t watched;

static void *take_signals(void *nothing) {
    PERL_UNUSED_VAR(nothing);
    while (true) {
        int number;
        if (sigwait(&watched, &number) != 0) continue;
        const int waiting = __atomic_add_fetch(&unheard, 1, __ATOMIC_RELAXED);
        (void)pthread_kill(serving, waiting > PX_STOPS_UNHEARD ? px_stuck_signal() : number);
    }
    return NULL;
}

static int start_thread(void) {
    sigset_t all, mine;
    pthread_t thread;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &mine);
    serving = pthread_self();
    const int error = pthread_create(&thread, NULL, take_signals, NULL);
    (void)pthread_sigmask(SIG_SETMASK, &mine, NULL);
    if (error) return error;
    process = getpid();
    return pthread_detach(thread);
}

/* From now on these signals, which Perl handles, are counted. The thread is made once in a process. Not 0: an
 * error's number. */
int px_stops_watch(const int *numbers, size_t count) {
    if (process == getpid()) return 0;
    (void)sigemptyset(&watched);
    for (size_t i = 0; i < count; i++) {
        struct sigaction action;
        if (sigaction(numbers[i], NULL, &action) != 0) return errno;
        if (!(action.sa_flags & SA_SIGINFO) &&
            (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN))
            continue;
        (void)sigaddset(&watched, numbers[i]);
    }
    return start_thread();
}

/* The loop has heard all signals until now. */
void px_stops_heard(void) {
    __atomic_store_n(&unheard, 0, __ATOMIC_RELAXED);
}
