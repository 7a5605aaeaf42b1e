/* refusal.c - answers of the server's own to a request that has an application: a refused handshake, and the 500 for an application that ended
 * without a response. In development that has a page for whoever writes the application (PAGI::Server::ErrorPage). */
#include "peregrine_xs.h"

/* Ends the request with a response after which the connection closes. `reason`: why it has failed for the application, even if the peer
 * gets this. */
static void refuse(pTHX_ px_exchange *exchange, uint16_t status, const px_fields *fields, const px_text *body, uint32_t reason) {
    px_worker *worker = exchange->worker;
    exchange->response = PX_RESPONSE_COMPLETE;
    if (!worker->engine || !exchange->ticket_live) return;
    const peregrine_response response = {
        .size = sizeof(response),
        .status = status,
        .flags = PEREGRINE_END | PEREGRINE_CLOSE,
        .fields = fields->list,
        .field_count = fields->count,
        .body = body->bytes,
        .body_len = body->len,
    };
    const int code = peregrine_respond(worker->engine, exchange->ticket, &response);
    px_worker_queued(aTHX_ worker);
    if (code < 0) px_response_cut(aTHX_ exchange); /* the code of an exception has begun an answer meanwhile */
    px_exchange_disconnect(aTHX_ exchange, reason);
    if (code == PEREGRINE_DONE) px_exchange_ticket_gone(aTHX_ exchange);
}

/* An answer of a few words. */
void px_response_refuse(pTHX_ px_exchange *exchange, uint16_t status, const char *text, uint32_t reason) {
    static const peregrine_field type = {"content-type", 12, "text/plain; charset=utf-8", 25};
    px_fields fields = {.list = fields.local, .count = 1, .local = {type}};
    const px_text body = {text, strlen(text)};
    refuse(aTHX_ exchange, status, &fields, &body, reason);
}

/* Asks the server for its page about the end of an application: a mortal [headers, body], or NULL. Runs Perl code, of the exception's class
 * perhaps. */
static AV *page_about(pTHX_ px_exchange *exchange, SV *failure, const char *stage) {
    SV *context = sv_2mortal(px_exchange_context(aTHX_ exchange, stage));
    SV *page = px_call(aTHX_ exchange->worker->error_page, NULL, failure ? failure : &PL_sv_undef, context, NULL);
    if (!page) return NULL;
    sv_2mortal(page);
    return SvROK(page) && SvTYPE(SvRV(page)) == SVt_PVAV && av_count((AV *)SvRV(page)) == 2 ? (AV *)SvRV(page) : NULL;
}

/* Answers with that page. False: there is none that could be sent. */
static bool show_page(pTHX_ px_exchange *exchange, AV *page) {
    px_fields fields;
    px_text body;
    SV *failed = px_event_fields(aTHX_ exchange->worker, "error page", AvARRAY(page)[0], &fields);
    SvREFCNT_dec(failed);
    if (failed || px_event_bytes(aTHX_ AvARRAY(page)[1], &body.bytes, &body.len)) return false;
    refuse(aTHX_ exchange, 500, &fields, &body, PEREGRINE_SERVER_ERROR);
    return true;
}

/* The answer of last resort, to a request whose application ended as `stage` says, with an exception or without one (NULL). */
void px_response_backstop(pTHX_ px_exchange *exchange, SV *failure, const char *stage) {
    AV *page = exchange->worker->error_page ? page_about(aTHX_ exchange, failure, stage) : NULL;
    if (exchange->response == PX_RESPONSE_COMPLETE || (page && show_page(aTHX_ exchange, page))) return;
    px_response_refuse(aTHX_ exchange, 500, "Internal Server Error\n", PEREGRINE_SERVER_ERROR);
}
