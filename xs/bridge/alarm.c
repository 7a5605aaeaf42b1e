/* alarm.c - alarm in an interpreter that is one of several threads of a process.
 *
 * The alarm of a process is one for all threads, and its signal belongs to the thread that was there first.
 * So each interpreter has a timer of its own, whose signal goes to its thread, interrupts the system call
 * that it waits in, and makes SIGALRM pending for that interpreter, as Perl's own handler does. */
#include "bridge/bridge.h"

#if defined(__linux__) && defined(USE_ITHREADS)
#include <signal.h>
#include <time.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

/* The interpreter and the timer of this thread, once px_alarm_begin was called in it. */
static __thread tTHX alarm_perl;
static __thread timer_t alarm_timer;
static __thread bool has_timer;

/* Perl's own `alarm`, which sets the alarm of the process. */
static Perl_ppaddr_t process_alarm_op;

/* The signal of these timers; stuck.c has SIGRTMIN + 5 and + 6. */
static int timer_signal(void) {
    return SIGRTMIN + 7;
}

static void on_timer(int number) {
    PERL_UNUSED_VAR(number);
    if (!alarm_perl) return;
    dTHXa(alarm_perl);
    if (!px_has_handler(aTHX_ SIGALRM)) return;
    PL_psig_pend[SIGALRM]++;
    PL_sig_pending = 1;
}

static bool make_timer(void) {
    struct sigevent event;
    if (has_timer) return true;
    Zero(&event, 1, struct sigevent);
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = timer_signal();
    event.sigev_notify_thread_id = (int)px_stuck_thread();
    has_timer = timer_create(CLOCK_MONOTONIC, &event, &alarm_timer) == 0;
    return has_timer;
}

static struct timespec time_of(NV seconds) {
    const time_t whole = (time_t)seconds;
    return (struct timespec){.tv_sec = whole, .tv_nsec = (long)((seconds - (NV)whole) * 1e9)};
}

static NV seconds_of(const struct timespec *time) {
    return (NV)time->tv_sec + (NV)time->tv_nsec / 1e9;
}

/* Whether this thread's interpreter has an alarm of its own. */
bool px_alarm_is_own(void) {
    return alarm_perl != NULL;
}

/* Sets the alarm of this thread: `seconds` until it (0: no alarm), then `interval` seconds between further
 * ones (0: none). Returns the seconds that the alarm before had left, or -1 with errno. */
NV px_alarm_set(NV seconds, NV interval) {
    const struct itimerspec next = {.it_value = time_of(seconds), .it_interval = time_of(interval)};
    struct itimerspec before;
    if (seconds < 0 || interval < 0) {
        errno = EINVAL;
        return -1;
    }
    if (!make_timer() || timer_settime(alarm_timer, 0, &next, &before) != 0) return -1;
    return seconds_of(&before.it_value);
}

static void mask(int how, int number) {
    sigset_t one;
    (void)sigemptyset(&one);
    (void)sigaddset(&one, number);
    (void)pthread_sigmask(how, &one, NULL);
}

static OP *alarm_op(pTHX) {
    if (!alarm_perl) return process_alarm_op(aTHX);
    dSP;
    dTARGET;
    const NV left = px_alarm_set((NV)POPi, 0);
    if (left < 0) RETPUSHUNDEF;
    PUSHi((IV)Perl_ceil(left));
    RETURN;
}

/* Runs in a forked child, in which the timer does not exist: the kernel leaves timers with the parent. */
static void forget_in_child(void) {
    alarm_perl = NULL;
    has_timer = false;
}

/* Replaces the op `alarm` and the functions of own_signals.c. To be called in the interpreter that will be
 * cloned, when it has loaded the application. */
void px_alarm_prepare(pTHX) {
    if (!process_alarm_op) {
        struct sigaction action;
        Zero(&action, 1, struct sigaction);
        action.sa_handler = on_timer;
        if (sigaction(timer_signal(), &action, NULL) != 0) return;
        if (pthread_atfork(NULL, NULL, forget_in_child) != 0) return;
    }
    const px_op_change change = {OP_ALARM, alarm_op, &process_alarm_op};
    px_ops_replace(aTHX_ &change, 1);
    px_own_signals_prepare(aTHX);
}

/* The interpreter of this thread has an alarm of its own from now on. */
void px_alarm_begin(pTHX) {
    alarm_perl = aTHX;
    mask(SIG_UNBLOCK, timer_signal());
}

/* Deletes the timer of this thread, whose interpreter ends. */
void px_alarm_end(void) {
    alarm_perl = NULL;
    if (has_timer) (void)timer_delete(alarm_timer);
    has_timer = false;
}
#else
void px_alarm_prepare(pTHX) {
    PERL_UNUSED_CONTEXT;
}

void px_alarm_begin(pTHX) {
    PERL_UNUSED_CONTEXT;
}

void px_alarm_end(void) {}

bool px_alarm_is_own(void) {
    return false;
}

NV px_alarm_set(NV seconds, NV interval) {
    PERL_UNUSED_VAR(seconds);
    PERL_UNUSED_VAR(interval);
    return -1;
}
#endif
