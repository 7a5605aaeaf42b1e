/* http.c - the http scope. Its request is read in request.c, its response sent in response.c. */
#include "pagi/pagi.h"

static SV *http_last_event(pTHX_ pagi_exchange *exchange) {
    if (pagi_request_goes_on(exchange) && exchange->response != PAGI_RESPONSE_COMPLETE) return NULL;
    return pagi_request_event(aTHX_ exchange, PAGI_KEY_HTTP_DISCONNECT);
}

static SV *send_start(pTHX_ pagi_exchange *exchange, HV *event) {
    return pagi_response_start(aTHX_ exchange, "http.response.start", event, false);
}

static SV *send_body(pTHX_ pagi_exchange *exchange, HV *event) {
    return pagi_response_body(aTHX_ exchange, "http.response.body", event, true);
}

static const pagi_send_event http_sends[] = {
    PAGI_SEND("http.response.start", send_start),
    PAGI_SEND("http.response.body", send_body),
    PAGI_SEND("http.response.trailers", pagi_response_trailers),
    PAGI_SEND("http.response.informational", pagi_response_inform),
    PAGI_SEND("http.fullflush", pagi_response_flush),
    {NULL, 0, NULL},
};

const pagi_kind pagi_http_kind = {
    .name = "http",
    .type = PAGI_KEY_HTTP,
    .scheme = PAGI_KEY_HTTP,
    .secure_scheme = PAGI_KEY_HTTPS,
    .has_method = true,
    .has_connection = true,
    .keeps_scope = true,
    .sends = http_sends,
    .next = pagi_request_next,
    .want = pagi_request_want,
    .body = pagi_request_body,
    .returned = pagi_response_returned,
    .request_event = PAGI_KEY_HTTP_REQUEST,
    .last_event = http_last_event,
};
