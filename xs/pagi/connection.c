/* connection.c - the state behind pagi.connection and pagi.transport: callbacks and Futures about the end of
 * a request and about its output queue.
 *
 * No memory is allocated before the application registers a callback; most never do. */
#include "pagi/pagi.h"

static void run_callback(pTHX_ pagi_exchange *exchange, SV *callback, SV *argument) {
    SV *error = NULL;
    SV *result = px_call(aTHX_ callback, NULL, argument, NULL, &error);
    if (!result) px_exchange_tell(aTHX_ &exchange->base, "_callback_died", error, "in a callback");
    SvREFCNT_dec(result);
}

/* Calls a list of callbacks in the order of registration. An exception of a callback is reported, and the
 * other callbacks run. A callback that is added meanwhile has its turn the next time. */
static void run_callbacks(pTHX_ pagi_exchange *exchange, AV *list, SV *argument) {
    if (!list) return;
    /* a callback may end the exchange, which frees the list */
    sv_2mortal(SvREFCNT_inc_simple_NN((SV *)list));
    const SSize_t last = av_top_index(list);
    for (SSize_t i = 0; i <= last; i++) {
        SV **callback = av_fetch(list, i, 0);
        if (callback) run_callback(aTHX_ exchange, *callback, argument);
    }
}

static void run_callbacks_once(pTHX_ pagi_exchange *exchange, AV **slot, SV *argument) {
    AV *list = *slot;
    *slot = NULL;
    run_callbacks(aTHX_ exchange, list, argument);
    SvREFCNT_dec((SV *)list);
}

static void drop(pTHX_ AV **slot) {
    AV *list = *slot;
    *slot = NULL;
    SvREFCNT_dec((SV *)list);
}

/* Keeps a callback for later (`keep`), and calls it at once if its event has happened already (`now`). */
void pagi_connection_subscribe(pTHX_ pagi_exchange *exchange, AV **list, SV *callback, bool now, bool keep,
                               SV *argument) {
    SvGETMAGIC(callback);
    if (!SvROK(callback) || (SvTYPE(SvRV(callback)) != SVt_PVCV && !SvAMAGIC(callback)))
        croak("PAGI: a callback must be a code reference");
    SV *own = newSVsv_nomg(callback);
    if (keep) {
        if (!*list) *list = newAV();
        av_push(*list, SvREFCNT_inc_simple_NN(own));
    }
    sv_2mortal(own);
    if (!now) return;
    const bool live = px_exchange_pin(&exchange->base);
    run_callback(aTHX_ exchange, own, argument);
    px_exchange_unpin(aTHX_ &exchange->base, live);
}

static SV *reason_text(pTHX_ const pagi_exchange *exchange) {
    return newSVpv(peregrine_reason_text(exchange->reason), 0);
}

/* The reason of an abnormal end as a mortal string; undef otherwise. */
SV *pagi_connection_reason(pTHX_ const pagi_exchange *exchange) {
    return pagi_exchange_is_left(exchange) ? sv_2mortal(reason_text(aTHX_ exchange)) : &PL_sv_undef;
}

static bool is_cancelled(pTHX_ pagi_exchange *exchange, SV *future) {
    SV *failure = NULL;
    return px_future_look(aTHX_ exchange->base.worker->cx, future, &failure) == PX_FUTURE_CANCELLED;
}

/* A new reference to the Future that resolves with the reason of an abnormal end: the same Future each time,
 * until it is cancelled, as Future->wait_any does with the losers of a race. Then the next caller gets a new
 * Future. */
SV *pagi_connection_disconnect_future(pTHX_ pagi_exchange *exchange) {
    SV *kept = exchange->disconnect_future;
    if (kept && !is_cancelled(aTHX_ exchange, kept)) return newSVsv(kept);
    if (pagi_exchange_is_left(exchange))
        return px_future_done(aTHX_ exchange->base.worker, reason_text(aTHX_ exchange));
    SV *future = px_future_pending(aTHX_ exchange->base.worker);
    exchange->disconnect_future = newSVsv(future);
    SvREFCNT_dec(kept);
    return future;
}

/* A new reference to a Future that resolves when no more output of the application goes out: the response is
 * complete, or the peer has gone, and has not only ended its side. */
SV *pagi_connection_gone_future(pTHX_ pagi_exchange *exchange) {
    if (!pagi_exchange_delivers(exchange)) return px_future_done(aTHX_ exchange->base.worker, NULL);
    SV *future = px_future_pending(aTHX_ exchange->base.worker);
    if (!exchange->feeders) exchange->feeders = newAV();
    av_push(exchange->feeders, newSVsv(future));
    return future;
}

/* Tells the application of an end that the exchange's state shows already: first Future, then callbacks. */
void pagi_connection_disconnected(pTHX_ pagi_exchange *exchange) {
    drop(aTHX_ & exchange->on_complete);
    if (exchange->disconnect_future) {
        SV *future = sv_mortalcopy(exchange->disconnect_future);
        px_future_resolve(aTHX_ &exchange->base, future, reason_text(aTHX_ exchange));
    }
    if (exchange->on_disconnect)
        run_callbacks_once(aTHX_ exchange, &exchange->on_disconnect, pagi_connection_reason(aTHX_ exchange));
}

void pagi_connection_completed(pTHX_ pagi_exchange *exchange) {
    drop(aTHX_ & exchange->on_disconnect);
    if (exchange->on_complete) run_callbacks_once(aTHX_ exchange, &exchange->on_complete, NULL);
}

/* Tells the application, once, that queued output has reached the high-water mark. */
void pagi_transport_high(pTHX_ pagi_exchange *exchange) {
    if (exchange->above) return;
    exchange->above = true;
    run_callbacks(aTHX_ exchange, exchange->on_high_water, NULL);
}

/* Tells the application that queued output has fallen below the low-water mark, after the high-water mark was
 * told. */
void pagi_transport_drained(pTHX_ pagi_exchange *exchange) {
    if (!exchange->above) return;
    exchange->above = false;
    run_callbacks(aTHX_ exchange, exchange->on_drain, NULL);
}
