/* receive.c - $receive: the Futures that wait for events, and their order. The events themselves are the
 * business of a kind of scope. */
#include "pagi/pagi.h"

/* Takes the oldest Future out of the list; the next one becomes the oldest. */
static void forget_first(pTHX_ pagi_exchange *exchange) {
    SV *oldest = exchange->receiver;
    AV *others = exchange->receivers;
    exchange->receiver = others ? av_shift(others) : NULL;
    if (others && AvFILLp(others) < 0) {
        exchange->receivers = NULL;
        SvREFCNT_dec_NN((SV *)others);
    }
    SvREFCNT_dec(oldest);
}

/* The oldest Future that still waits, as a mortal reference, or NULL. Cancelled Futures are dropped. */
static SV *first_waiting(pTHX_ pagi_exchange *exchange) {
    while (exchange->receiver) {
        SV *future = sv_2mortal(newRV_inc(exchange->receiver));
        SV *failure = NULL;
        if (px_future_look(aTHX_ exchange->base.worker->cx, future, &failure) == PX_FUTURE_PENDING)
            return future;
        forget_first(aTHX_ exchange);
    }
    return NULL;
}

static void wait_for_event(pTHX_ pagi_exchange *exchange, SV *future) {
    SV *object = SvREFCNT_inc_simple_NN(SvRV(future));
    if (!exchange->receiver) {
        exchange->receiver = object;
        return;
    }
    if (!exchange->receivers) exchange->receivers = newAV();
    av_push(exchange->receivers, object);
}

bool pagi_receive_waits(pTHX_ pagi_exchange *exchange) {
    return first_waiting(aTHX_ exchange) != NULL;
}

/* Takes the Future that has waited longest out of the list, as a mortal reference; NULL: none waits. */
SV *pagi_receive_take(pTHX_ pagi_exchange *exchange) {
    SV *future = first_waiting(aTHX_ exchange);
    if (future) forget_first(aTHX_ exchange);
    return future;
}

/* Gives an event, which is taken over, to a Future from pagi_receive_take(). */
void pagi_receive_resolve(pTHX_ pagi_exchange *exchange, SV *future, SV *event) {
    pagi_trace(aTHX_ exchange, PEREGRINE_TRACE_RECEIVE, (HV *)SvRV(event));
    px_future_resolve(aTHX_ &exchange->base, future, event);
}

/* The next event of the scope, or message of the request's channel: by turns where both have one, so that
 * neither delays the other. */
static SV *next_of_both(pTHX_ pagi_exchange *exchange) {
    const bool mail_first = !exchange->mail_given;
    SV *event = mail_first ? pagi_channels_next(aTHX_ exchange) : exchange->kind->next(aTHX_ exchange);
    exchange->mail_given = mail_first && event;
    if (!event && mail_first) {
        event = exchange->kind->next(aTHX_ exchange);
    } else if (!event) {
        event = pagi_channels_next(aTHX_ exchange);
        exchange->mail_given = event != NULL;
    }
    if (exchange->last_told) pagi_channels_close(aTHX_ exchange);
    return event;
}

/* The next event for $receive, a new reference; NULL: there is none yet. */
static inline SV *next_of(pTHX_ pagi_exchange *exchange) {
    return exchange->mailbox ? next_of_both(aTHX_ exchange) : exchange->kind->next(aTHX_ exchange);
}

/* To be called when events have come or a limit has changed: gives events to the Futures of $receive that
 * wait, oldest first. */
void pagi_receive_serve(pTHX_ pagi_exchange *exchange) {
    const pagi_kind *kind = exchange->kind;
    while (first_waiting(aTHX_ exchange)) {
        SV *event = next_of(aTHX_ exchange);
        if (!event) {
            if (kind->want) kind->want(aTHX_ exchange);
            return;
        }
        /* The last event closes the channel, and a callback about that may cancel the Future that has waited.
         * The event is not lost: it is made again. */
        SV *future = pagi_receive_take(aTHX_ exchange);
        if (future) pagi_receive_resolve(aTHX_ exchange, future, event);
        else SvREFCNT_dec_NN(event);
    }
}

/* Cancels the Futures that wait for events which will never come. */
void pagi_receive_cancel(pTHX_ pagi_exchange *exchange) {
    SV *future;
    exchange->let_go = true;
    while ((future = first_waiting(aTHX_ exchange))) {
        SV *error = NULL;
        forget_first(aTHX_ exchange);
        SvREFCNT_dec(px_call(aTHX_ future, "cancel", NULL, NULL, &error));
        if (error) px_exchange_tell(aTHX_ &exchange->base, "_callback_died", error, "in a callback");
    }
}

/* A new reference to a Future with the next event. */
static SV *next_event(pTHX_ pagi_exchange *exchange) {
    const pagi_kind *kind = exchange->kind;
    SV *event = first_waiting(aTHX_ exchange) ? NULL : next_of(aTHX_ exchange);
    if (event && exchange->last_told) return pagi_in_vain(aTHX_ exchange, event);
    if (event) {
        pagi_trace(aTHX_ exchange, PEREGRINE_TRACE_RECEIVE, (HV *)SvRV(event));
        return px_future_done(aTHX_ exchange->base.worker, event);
    }
    SV *future = px_future_pending(aTHX_ exchange->base.worker);
    wait_for_event(aTHX_ exchange, future);
    if (kind->want) kind->want(aTHX_ exchange);
    return future;
}

XS_EXTERNAL(pagi_xs_receive) {
    dXSARGS;
    PERL_UNUSED_VAR(items);
    pagi_exchange *exchange = pagi_exchange_of_function(aTHX_ cv);
    const bool live = px_exchange_pin(&exchange->base);
    SV *future = sv_2mortal(next_event(aTHX_ exchange));
    px_exchange_note_parked(&exchange->base);
    px_exchange_unpin(aTHX_ & exchange->base, live);
    SPAGAIN;
    EXTEND(SP, 1);
    ST(0) = future;
    XSRETURN(1);
}

/* The function $receive of an exchange that a sync handler has used (pagi_sync). */
XS_EXTERNAL(pagi_xs_receive_sync) {
    const pagi_exchange *exchange = pagi_exchange_of_function(aTHX_ cv);
    const bool blocks = exchange->blocks;
    px_context *cx = exchange->base.worker->cx;
    pagi_xs_receive(aTHX_ cv);
    if (blocks) px_future_wait(aTHX_ cx, *PL_stack_sp);
}
