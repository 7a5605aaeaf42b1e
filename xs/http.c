/* http.c - the http scope: its request events, its response events, and what the end of its application means. */
#include "peregrine_xs.h"

/* ---- $receive ------------------------------------------------------------------------------------------------------------------- */

static SV *disconnect_event(pTHX_ px_context *cx) {
    HV *event = newHV();
    px_store(aTHX_ event, PX_KEY(cx, TYPE), px_copy(aTHX_ PX_KEY(cx, HTTP_DISCONNECT)));
    return newRV_noinc((SV *)event);
}

/* Whether there is body, or the end of it, that no http.request event has told of. */
static bool has_news(const px_exchange *exchange) {
    return exchange->body || exchange->request == PX_REQUEST_LAST;
}

/* The next http.request event. Trailer fields, if the request had any, come with the last one under the key `trailers`. */
static SV *request_event(pTHX_ px_exchange *exchange) {
    px_context *cx = exchange->worker->cx;
    const bool last = exchange->request == PX_REQUEST_LAST;
    HV *event = newHV();
    px_store(aTHX_ event, PX_KEY(cx, TYPE), px_copy(aTHX_ PX_KEY(cx, HTTP_REQUEST)));
    px_store(aTHX_ event, PX_KEY(cx, BODY), exchange->body ? exchange->body : newSVpvs(""));
    px_store(aTHX_ event, PX_KEY(cx, MORE), newSViv(!last));
    exchange->body = NULL;
    if (last) {
        exchange->request = PX_REQUEST_DELIVERED;
        if (exchange->trailers) px_store(aTHX_ event, PX_KEY(cx, TRAILERS), newRV_noinc((SV *)exchange->trailers));
        exchange->trailers = NULL;
    }
    return newRV_noinc((SV *)event);
}

static bool over(const px_exchange *exchange) {
    return exchange->end != PX_END_OPEN || exchange->response == PX_RESPONSE_COMPLETE;
}

/* Asks the engine for more body, once at a time. */
static void want_body(pTHX_ px_exchange *exchange) {
    px_worker *worker = exchange->worker;
    if (exchange->reading || exchange->request != PX_REQUEST_MORE || !worker->engine) return;
    if (peregrine_read(worker->engine, exchange->ticket) < 0) {
        px_exchange_lost(aTHX_ exchange);
        return;
    }
    exchange->reading = true;
    px_worker_wake(worker);
}

static SV *http_next(pTHX_ px_exchange *exchange) {
    if (over(exchange)) return disconnect_event(aTHX_ exchange->worker->cx);
    return has_news(exchange) ? request_event(aTHX_ exchange) : NULL;
}

/* BODY: bytes that arrived although nobody waits any more are kept for the next $receive. */
static void http_body(pTHX_ px_exchange *exchange, const peregrine_event *event) {
    exchange->reading = false;
    if (exchange->request != PX_REQUEST_MORE) return;
    if (event->len) {
        if (exchange->body) sv_catpvn(exchange->body, event->bytes, event->len);
        else exchange->body = newSVpvn(event->bytes, event->len);
    }
    if (event->flags & PEREGRINE_LAST) exchange->request = PX_REQUEST_LAST;
    if ((event->flags & PEREGRINE_TRAILERS) && event->request)
        exchange->trailers = px_scope_fields(aTHX_ exchange->worker->cx, event->request, true);
    px_receive_serve(aTHX_ exchange);
}

/* ---- $send ---------------------------------------------------------------------------------------------------------------------- */

static SV *send_start(pTHX_ px_exchange *exchange, HV *event) {
    return px_response_start(aTHX_ exchange, "http.response.start", event, false);
}

static SV *send_body(pTHX_ px_exchange *exchange, HV *event) {
    return px_response_body(aTHX_ exchange, "http.response.body", event, false);
}

static SV *send_flush(pTHX_ px_exchange *exchange, HV *event) {
    static const char type[] = "http.fullflush";
    px_worker *worker = exchange->worker;
    PERL_UNUSED_ARG(event);
    if (!worker->extensions || !hv_exists_ent(worker->extensions, PX_KEY(worker->cx, FULLFLUSH), 0))
        return px_future_invalid(aTHX_ worker, "%s: the server does not advertise the extension fullflush", type);
    if (!worker->engine) return px_future_done(aTHX_ worker, NULL);
    return px_event_outcome(aTHX_ exchange, type, peregrine_flush(worker->engine, exchange->ticket));
}

static const px_send_event http_sends[] = {
    PX_SEND("http.response.start", send_start),
    PX_SEND("http.response.body", send_body),
    PX_SEND("http.response.trailers", px_response_trailers),
    PX_SEND("http.fullflush", send_flush),
    {NULL, 0, NULL},
};

/* ---- The application's end ------------------------------------------------------------------------------------------------------- */

static void http_returned(pTHX_ px_exchange *exchange, SV *failure) {
    px_worker *worker = exchange->worker;
    if (exchange->response == PX_RESPONSE_COMPLETE) {
        if (failure) px_worker_tell(aTHX_ worker, "_app_died", failure, newSVpvs_flags("after its response was complete", SVs_TEMP));
        return;
    }
    if (exchange->end != PX_END_OPEN || exchange->gone) return; /* the client left first: nobody's error */
    const bool started = exchange->response != PX_RESPONSE_NONE;
    const char *stage = failure ? (started ? "after its response had started" : "before its response had started")
                                : (started ? "with its response incomplete" : "without a response");
    px_worker_tell(aTHX_ worker, failure ? "_app_died" : "_app_fell_short", failure ? failure : &PL_sv_undef,
                   newSVpvn_flags(stage, strlen(stage), SVs_TEMP));
    if (started) px_response_cut(aTHX_ exchange);
    else px_response_backstop(aTHX_ exchange);
}

const px_kind px_http_kind = {
    .name = "http",
    .type = PX_KEY_HTTP,
    .scheme = PX_KEY_HTTP,
    .secure_scheme = PX_KEY_HTTPS,
    .has_method = true,
    .has_connection = true,
    .keeps_scope = true,
    .sends = http_sends,
    .next = http_next,
    .want = want_body,
    .body = http_body,
    .returned = http_returned,
};
