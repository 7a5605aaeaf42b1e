/* in_vain.c - calls of an application after the end of its request, which have no effect: events without a
 * receiver, and $receive, which gives the last event again. */
#include "pagi/pagi.h"

/* Such calls that resolve at once: enough for an application that is about to end. */
#define IN_VAIN_AT_ONCE 100
/* Seconds by which each further call waits longer than the one before, and the longest wait. */
#define IN_VAIN_DELAY 1e-6
#define IN_VAIN_DELAY_MAX 1.0

/* A Future of the loop that resolves with `event` (borrowed, or NULL) after `seconds`; NULL when the
 * loop has none. */
static SV *after_delay(pTHX_ px_worker *worker, NV seconds, SV *event) {
    SV *after = sv_2mortal(newSVnv(seconds));
    SV *error = NULL;
    SV *delay = px_call(aTHX_ worker->loop, "delay_future", newSVpvs_flags("after", SVs_TEMP), after, &error);
    return delay && event ? px_call(aTHX_ sv_2mortal(delay), "then_done", event, NULL, &error) : delay;
}

/* A new reference to the Future of such a call, with `event` (taken over; NULL: without a value). An
 * application that makes only such calls would keep the loop from its turn for ever, so they have to wait for
 * the clock. */
SV *pagi_in_vain(pTHX_ pagi_exchange *exchange, SV *event) {
    px_worker *worker = exchange->base.worker;
    if (exchange->in_vain < UINT32_MAX) exchange->in_vain++;
    if (exchange->in_vain <= IN_VAIN_AT_ONCE) return px_future_done(aTHX_ worker, event);
    const NV delay = (exchange->in_vain - IN_VAIN_AT_ONCE) * IN_VAIN_DELAY;
    SV *future = after_delay(aTHX_ worker, delay < IN_VAIN_DELAY_MAX ? delay : IN_VAIN_DELAY_MAX, event);
    if (!future) return px_future_done(aTHX_ worker, event);
    if (event) SvREFCNT_dec_NN(event);
    return future;
}
