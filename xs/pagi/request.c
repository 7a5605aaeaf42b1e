/* request.c - the events of scopes whose client sends a request body, http and sse: the body in pieces,
 * then the last event.
 *
 * A piece is read from the peer when $receive is called, so that an application which does not call it makes
 * the peer wait. */
#include "pagi/pagi.h"

/* Whether a part of the body, or its end, was told by no event yet. */
static bool has_news(const pagi_exchange *exchange) {
    return exchange->body || exchange->request == PAGI_REQUEST_LAST;
}

/* A new event that has only its type. */
SV *pagi_request_event(pTHX_ pagi_exchange *exchange, enum pagi_key type) {
    pagi_context *cx = exchange->app->cx;
    HV *event = newHV();
    px_store(aTHX_ event, PAGI_KEY(cx, TYPE), px_copy(aTHX_ cx->keys[type]));
    return newRV_noinc((SV *)event);
}

/* The next piece of the request's body. Trailer fields, if the request had any, come with the last one
 * under the key `trailers`. */
static SV *body_event(pTHX_ pagi_exchange *exchange) {
    pagi_context *cx = exchange->app->cx;
    const bool last = exchange->request == PAGI_REQUEST_LAST;
    SV *reference = pagi_request_event(aTHX_ exchange, exchange->kind->request_event);
    HV *event = (HV *)SvRV(reference);
    px_store(aTHX_ event, PAGI_KEY(cx, BODY), exchange->body ? exchange->body : newSVpvs(""));
    px_store(aTHX_ event, PAGI_KEY(cx, MORE), newSViv(!last));
    exchange->body = NULL;
    exchange->body_told = true;
    if (last) {
        exchange->request = PAGI_REQUEST_DELIVERED;
        if (exchange->trailers)
            px_store(aTHX_ event, PAGI_KEY(cx, TRAILERS), newRV_noinc((SV *)exchange->trailers));
        exchange->trailers = NULL;
    }
    return reference;
}

/* Whether the application may still ask for content of its peer. A peer that has ended its side after a whole
 * request counts as gone when the application has the request. */
bool pagi_request_goes_on(const pagi_exchange *exchange) {
    return exchange->end == PAGI_END_OPEN ||
           (exchange->end == PAGI_END_HALF_CLOSED && exchange->request != PAGI_REQUEST_DELIVERED);
}

/* The next event for $receive: the last one, or a piece of the body; NULL: neither is there yet. */
SV *pagi_request_next(pTHX_ pagi_exchange *exchange) {
    SV *last = exchange->kind->last_event(aTHX_ exchange);
    if (last) {
        exchange->last_told = true;
        return last;
    }
    return has_news(exchange) ? body_event(aTHX_ exchange) : NULL;
}

/* Asks the engine for more body, unless it was asked already. */
void pagi_request_want(pTHX_ pagi_exchange *exchange) {
    px_worker *worker = exchange->base.worker;
    if (exchange->request != PAGI_REQUEST_MORE || !worker->engine) return;
    if (peregrine_read(worker->engine, exchange->base.ticket) < 0) {
        px_exchange_lost(&exchange->base);
        return;
    }
    exchange->request = PAGI_REQUEST_ASKED;
    px_worker_wake(worker);
}

/* Handles a BODY event: bytes for which no $receive waits any more are kept for the next one. */
void pagi_request_body(pTHX_ pagi_exchange *exchange, const peregrine_event *event) {
    if (exchange->request == PAGI_REQUEST_LAST || exchange->request == PAGI_REQUEST_DELIVERED) return;
    exchange->request = PAGI_REQUEST_MORE;
    if (event->len) {
        if (exchange->body) sv_catpvn(exchange->body, event->bytes, event->len);
        else exchange->body = px_bytes(aTHX_ exchange->base.worker, event);
    }
    if (event->flags & PEREGRINE_LAST) exchange->request = PAGI_REQUEST_LAST;
    if ((event->flags & PEREGRINE_TRAILERS) && event->request)
        exchange->trailers = pagi_scope_trailers(aTHX_ exchange->app->cx, event->request);
    pagi_receive_serve(aTHX_ exchange);
}
