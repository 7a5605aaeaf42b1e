/* stops.c - signals that tell a process to stop while it does not come back to its event loop.
 *
 * The loop blocks signals except while it waits, so they do not reach an application that never returns to
 * it. A thread takes them in its place. It counts them, and passes each on to the loop's thread, where it
 * stays pending. The third signal that the loop has not heard ends the process, and so does the end of the
 * time that a stop may take: Server::Starter, for one, sends a single signal and waits.
 *
 * The thread waits for the signals instead of handling them: Perl's handlers need the thread of an
 * interpreter, and an application may replace the handlers at any time. */
#include "bridge/bridge.h"
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

/* Signals that may wait for the loop before the next one ends the process. */
#define PX_STOPS_UNHEARD 2

static int unheard;
static int timing; /* 1: a thread waits for the end of the time that a stop may take */
static double within_s;
static pthread_t serving;
static pthread_t taker;
static pid_t process; /* in which the thread `taker` runs */
static int servers;   /* of the process, whose stops are counted */
static sigset_t watched;
static int last_watched;

/* Ends the process when the loop has not heard a signal in the time that a stop may take. */
static void *end_in_time(void *nothing) {
    PERL_UNUSED_VAR(nothing);
    struct timespec left = {.tv_sec = (time_t)within_s};
    left.tv_nsec = (long)((within_s - (double)left.tv_sec) * 1e9);
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {}
    __atomic_store_n(&timing, 0, __ATOMIC_RELAXED);
    if (__atomic_load_n(&unheard, __ATOMIC_RELAXED) > 0) (void)pthread_kill(serving, px_stuck_signal());
    return NULL;
}

/* Starts the time that a stop may take, unless it runs already. Without memory for its thread, only the third
 * signal ends the process. */
static void begin_time(void) {
    pthread_t thread;
    if (__atomic_exchange_n(&timing, 1, __ATOMIC_RELAXED)) return;
    if (pthread_create(&thread, NULL, end_in_time, NULL) == 0) (void)pthread_detach(thread);
    else __atomic_store_n(&timing, 0, __ATOMIC_RELAXED);
}

/* Waits for a signal. 0: the thread is to end, for which it gets a signal of its own. */
static int next_signal(void) {
    int number;
#ifdef __GLIBC__ /* musl has no pthread_sigqueue() */
    siginfo_t info;
    do number = sigwaitinfo(&watched, &info);
    while (number < 0);
    if (info.si_code == SI_QUEUE && info.si_value.sival_ptr == (void *)&taker) return 0;
#else
    while (sigwait(&watched, &number) != 0) {}
#endif
    return number;
}

static void *take_signals(void *nothing) {
    PERL_UNUSED_VAR(nothing);
    int number;
    while ((number = next_signal()) != 0) {
        const int waiting = __atomic_add_fetch(&unheard, 1, __ATOMIC_RELAXED);
        begin_time();
        (void)pthread_kill(serving, waiting > PX_STOPS_UNHEARD ? px_stuck_signal() : number);
    }
    return NULL;
}

static int start_thread(void) {
    sigset_t all, mine;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &mine);
    serving = pthread_self();
    const int error = pthread_create(&taker, NULL, take_signals, NULL);
    (void)pthread_sigmask(SIG_SETMASK, &mine, NULL);
    if (error) return error;
    process = getpid();
    servers = 1;
    return 0;
}

/* Counts these signals from now on, those without a handler excepted, and gives the loop `seconds` to hear
 * the first one. The servers of a process have one thread. Returns 0, or an error's number. */
int px_stops_watch(double seconds, const int *numbers, size_t count) {
    within_s = seconds;
    if (process == getpid()) {
        servers++;
        return 0;
    }
    (void)sigemptyset(&watched);
    for (size_t i = 0; i < count; i++) {
        struct sigaction action;
        if (sigaction(numbers[i], NULL, &action) != 0) return errno;
        if (!(action.sa_flags & SA_SIGINFO) &&
            (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN))
            continue;
        (void)sigaddset(&watched, numbers[i]);
        last_watched = numbers[i];
    }
    return start_thread();
}

/* A server of the process counts no signals any more. After the last one the thread ends: it has passed on
 * all signals that it took, so none comes to a process that has no handler any more. */
void px_stops_leave(void) {
#ifdef __GLIBC__ /* musl has no pthread_sigqueue() */
    if (process != getpid() || --servers > 0 || last_watched == 0) return;
    const union sigval end = {.sival_ptr = &taker};
    if (pthread_sigqueue(taker, last_watched, end) != 0) return;
    (void)pthread_join(taker, NULL);
    process = 0;
    px_stops_heard();
#endif
}

/* Notes that the loop has heard all signals until now. */
void px_stops_heard(void) {
    __atomic_store_n(&unheard, 0, __ATOMIC_RELAXED);
}
