/* alarm.c - alarm in an interpreter that is one of several threads of a process.
 *
 * The alarm of a process is one for all threads, and its signal belongs to the thread that was there first.
 * So each interpreter has a timer of its own, whose signal goes to its thread, interrupts the system call
 * that it waits in, and makes SIGALRM pending for that interpreter, as Perl's own handler does in a
 * process. */
#include "bridge/bridge.h"

#if defined(__linux__) && defined(USE_ITHREADS)
#include <signal.h>
#include <time.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

/* Those of the thread; of no other one than an interpreter that px_alarm_begin was called in. */
static __thread tTHX alarm_perl;
static __thread timer_t alarm_timer;
static __thread bool has_timer;

/* A process that was forked from one with such threads has its parent's mask, and an alarm as any other. */
static bool is_child;

/* What an alarm of a process does. */
static Perl_ppaddr_t process_alarm;

/* Beside those of stuck.c. */
static int timer_signal(void) {
    return SIGRTMIN + 7;
}

/* Whether $SIG{ALRM} names a handler. Allocates nothing. */
static bool has_handler(pTHX) {
    const SV *handler = PL_psig_ptr[SIGALRM];
    if (!handler) return false;
    if (SvROK(handler)) return true;
    if (!SvPOK(handler) || SvCUR(handler) == 0) return false;
    return strNE(SvPVX_const(handler), "IGNORE") && strNE(SvPVX_const(handler), "DEFAULT");
}

static void on_timer(int number) {
    PERL_UNUSED_VAR(number);
    if (!alarm_perl) return;
    dTHXa(alarm_perl);
    if (!has_handler(aTHX)) return;
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

/* Takes whole seconds, none for no alarm; gives those that were left of the one before, or -1. */
static IV set_alarm(IV seconds) {
    const struct itimerspec next = {.it_value = {.tv_sec = (time_t)seconds}};
    struct itimerspec before;
    if (seconds < 0) {
        errno = EINVAL;
        return -1;
    }
    if (!make_timer() || timer_settime(alarm_timer, 0, &next, &before) != 0) return -1;
    return (IV)before.it_value.tv_sec + (before.it_value.tv_nsec > 0 ? 1 : 0);
}

static void mask(int how, int number) {
    sigset_t one;
    (void)sigemptyset(&one);
    (void)sigaddset(&one, number);
    (void)pthread_sigmask(how, &one, NULL);
}

static OP *alarm_op(pTHX) {
    if (!alarm_perl) {
        if (is_child) mask(SIG_UNBLOCK, SIGALRM);
        return process_alarm(aTHX);
    }
    dSP;
    dTARGET;
    const IV left = set_alarm(POPi);
    if (left < 0) RETPUSHUNDEF;
    PUSHi(left);
    RETURN;
}

/* An op knows its function since it was compiled. */
static void change(OP *op) {
    if (op->op_type == OP_ALARM && op->op_ppaddr == process_alarm) op->op_ppaddr = alarm_op;
    if (op->op_type == OP_SUBST && cPMOPx(op)->op_pmreplrootu.op_pmreplroot)
        change(cPMOPx(op)->op_pmreplrootu.op_pmreplroot);
    if (!(op->op_flags & OPf_KIDS)) return;
    for (OP *kid = cUNOPx(op)->op_first; kid; kid = OpSIBLING(kid)) change(kid);
}

static void change_all(pTHX) {
    for (SV *arena = PL_sv_arenaroot; arena; arena = (SV *)SvANY(arena)) {
        const SV *end = &arena[SvREFCNT(arena)];
        for (SV *sv = arena + 1; sv < end; sv++) {
            if (SvIS_FREED(sv) || SvTYPE(sv) != SVt_PVCV) continue;
            if (!CvISXSUB((CV *)sv) && CvROOT((CV *)sv)) change(CvROOT((CV *)sv));
        }
    }
    if (PL_main_root) change(PL_main_root);
}

/* Timers stay with the parent. */
static void forget_in_child(void) {
    is_child = true;
    alarm_perl = NULL;
    has_timer = false;
}

/* To be called in the interpreter that will be cloned, when it has loaded the application. */
void px_alarm_prepare(pTHX) {
    is_child = false;
    if (!process_alarm) {
        struct sigaction action;
        Zero(&action, 1, struct sigaction);
        action.sa_handler = on_timer;
        if (sigaction(timer_signal(), &action, NULL) != 0) return;
        if (pthread_atfork(NULL, NULL, forget_in_child) != 0) return;
        process_alarm = PL_ppaddr[OP_ALARM];
        PL_ppaddr[OP_ALARM] = alarm_op;
    }
    change_all(aTHX);
}

/* This thread's interpreter has an alarm of its own now. */
void px_alarm_begin(pTHX) {
    alarm_perl = aTHX;
    mask(SIG_UNBLOCK, timer_signal());
}

/* The interpreter is about to go. */
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
#endif
