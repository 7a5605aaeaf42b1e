/* loop.c - the turns of an event loop that waits in the engine (IO::Async::Loop::Peregrine), for as long as
 * only the engine has something to do: then no Perl code runs for a turn. */
#include <math.h>
#include <time.h>

#include "bridge/bridge.h"

static SV *member(pTHX_ HV *loop, const char *name, I32 len) {
    SV **found = hv_fetch(loop, name, len, 0);
    return found ? *found : NULL;
}

/* The value that a member of the loop refers to; NULL: the member is no reference to a value of that type. */
static SV *referent(pTHX_ HV *loop, const char *name, I32 len, svtype type) {
    SV *reference = member(aTHX_ loop, name, len);
    return reference && SvROK(reference) && SvTYPE(SvRV(reference)) == type ? SvRV(reference) : NULL;
}

/* Seconds by which the time of day must have been set before turns here end, so that the loop moves timers
 * that have a time of day. DRIFT_S of IO::Async::Loop::Peregrine is less, so the loop then moves them. */
#define SET_S 0.02

/* Seconds by which the time of day is ahead of the timers' clock. */
static double ahead_s(void) {
    struct timespec day, steady;
    clock_gettime(CLOCK_REALTIME, &day);
    clock_gettime(CLOCK_MONOTONIC, &steady);
    return (double)(day.tv_sec - steady.tv_sec) + (double)(day.tv_nsec - steady.tv_nsec) / 1e9;
}

/* Whether the time of day was set, so that the loop has to move timers. */
static bool was_set(pTHX_ HV *loop) {
    SV *dated = member(aTHX_ loop, "peregrine_dated", 15);
    if (!dated || SvIV(dated) == 0) return false;
    SV *known = member(aTHX_ loop, "peregrine_ahead", 15);
    return known && fabs(ahead_s() - SvNV(known)) > SET_S;
}

/* Milliseconds until a timer or callback of the loop is due; 0: now, -1: none is planned. */
static int left_ms(pTHX_ HV *loop) {
    AV *idle = (AV *)referent(aTHX_ loop, "peregrine_idle", 14, SVt_PVAV);
    AV *timers = (AV *)referent(aTHX_ loop, "peregrine_timers", 16, SVt_PVAV);
    HV *ready = (HV *)referent(aTHX_ loop, "fakeevents", 10, SVt_PVHV);
    if (!idle || !timers || av_len(idle) >= 0 || (ready && HvUSEDKEYS(ready) > 0)) return 0;
    if (member(aTHX_ loop, "peregrine_signals", 17)) return 0;
    SV **first = av_fetch(timers, 0, 0);
    if (!first) return -1;
    if (was_set(aTHX_ loop)) return 0;
    SV **at = SvROK(*first) && SvTYPE(SvRV(*first)) == SVt_PVAV ? av_fetch((AV *)SvRV(*first), 0, 0) : NULL;
    if (!at) return 0;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const double left = ceil((SvNV(*at) - (double)now.tv_sec) * 1e3 - (double)now.tv_nsec / 1e6);
    return left <= 0 ? 0 : left >= INT32_MAX ? INT32_MAX : (int)left;
}

static bool is_running(pTHX_ HV *loop) {
    SV *running = member(aTHX_ loop, "running", 7);
    return running && SvTRUE(running);
}

/* Whether EV is loaded, and the loop has not decided yet whether it waits in EV. */
static bool is_for_ev(pTHX_ HV *loop) {
    return hv_exists(GvHVn(PL_incgv), "EV.pm", 5) && !member(aTHX_ loop, "peregrine_ev", 12);
}

/* Waits in the engine and handles its events, until the loop is stopped or has timers or callbacks to handle.
 * True: a descriptor that the loop watches is ready, or a signal came. */
bool px_loop_turns(pTHX_ px_worker *worker, HV *loop) {
    bool is_due;
    int left;
    worker->refs++;
    do {
        left = left_ms(aTHX_ loop);
        is_due = px_worker_wait(aTHX_ worker, left);
    } while (left != 0 && !is_due && !PL_sig_pending && is_running(aTHX_ loop) && worker->engine &&
             !px_is_foreign(worker) && !is_for_ev(aTHX_ loop));
    px_worker_release(aTHX_ worker);
    return is_due;
}
