/* refusal.c - answers of the server's own to a request that has an application: a refused handshake, and the
 * 500 for an application that ended without a response. In development the 500 has a page for the
 * application's author (PAGI::Server::ErrorPage). */
#include "pagi/pagi.h"

/* Ends the request with a response after which the connection closes. `reason`: why the request has failed
 * for the application, even if the peer gets the response. */
static void refuse(pTHX_ pagi_exchange *exchange, uint16_t status, const pagi_fields *fields,
                   const pagi_text *body, uint32_t reason) {
    px_worker *worker = exchange->base.worker;
    exchange->response = PAGI_RESPONSE_COMPLETE;
    if (!worker->engine || !px_exchange_is_live(&exchange->base)) return;
    const peregrine_response response = {
        .size = sizeof(response),
        .status = status,
        .flags = PEREGRINE_END | PEREGRINE_CLOSE,
        .fields = fields->list,
        .field_count = fields->count,
        .body = body->bytes,
        .body_len = body->len,
    };
    const int code = peregrine_respond(worker->engine, exchange->base.ticket, &response);
    if (code >= 0) px_note_answer(&exchange->base, response.status);
    px_worker_queued(aTHX_ worker);
    /* code of the exception's class has begun an answer meanwhile */
    if (code < 0) pagi_response_cut(aTHX_ exchange);
    pagi_exchange_disconnect(aTHX_ exchange, reason);
    if (code == PEREGRINE_DONE) px_exchange_ticket_gone(aTHX_ &exchange->base);
}

/* Ends the request with a response of a few words. */
void pagi_response_refuse(pTHX_ pagi_exchange *exchange, uint16_t status, const char *text, uint32_t reason) {
    static const peregrine_field type = {"content-type", 12, "text/plain; charset=utf-8", 25};
    pagi_fields fields = {.list = fields.local, .count = 1, .local = {type}};
    const pagi_text body = {text, strlen(text)};
    refuse(aTHX_ exchange, status, &fields, &body, reason);
}

/* Asks the server for its page about the end of an application: a mortal [headers, body], or NULL. Runs
 * Perl code, of the exception's class perhaps. */
static AV *page_about(pTHX_ pagi_exchange *exchange, SV *failure, const char *stage) {
    SV *context = sv_2mortal(px_exchange_context(aTHX_ &exchange->base, stage));
    SV *page = px_call(aTHX_ exchange->app->error_page, NULL, failure ? failure : &PL_sv_undef, context,
                       NULL);
    if (!page) return NULL;
    sv_2mortal(page);
    return SvROK(page) && SvTYPE(SvRV(page)) == SVt_PVAV && av_count((AV *)SvRV(page)) == 2
           ? (AV *)SvRV(page)
           : NULL;
}

/* Answers with the page of page_about(). False: the page cannot be sent. */
static bool show_page(pTHX_ pagi_exchange *exchange, AV *page) {
    pagi_fields fields;
    pagi_text body;
    SV *failed = pagi_event_fields(aTHX_ exchange->base.worker, "error page", AvARRAY(page)[0], &fields);
    SvREFCNT_dec(failed);
    if (failed || pagi_event_bytes(aTHX_ AvARRAY(page)[1], &body.bytes, &body.len)) return false;
    refuse(aTHX_ exchange, 500, &fields, &body, PEREGRINE_SERVER_ERROR);
    return true;
}

/* Answers a request with 500, because its application ended as `stage` says, with an exception or without one
 * (NULL). */
void pagi_response_backstop(pTHX_ pagi_exchange *exchange, SV *failure, const char *stage) {
    AV *page = exchange->app->error_page ? page_about(aTHX_ exchange, failure, stage) : NULL;
    if (exchange->response == PAGI_RESPONSE_COMPLETE || (page && show_page(aTHX_ exchange, page))) return;
    pagi_response_refuse(aTHX_ exchange, 500, "Internal Server Error\n", PEREGRINE_SERVER_ERROR);
}
