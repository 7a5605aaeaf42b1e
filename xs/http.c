/* http.c - the http scope: what makes it one. Its request is read in request.c, its response sent in response.c. */
#include "peregrine_xs.h"

static SV *http_last_event(pTHX_ px_exchange *exchange) {
    if (px_request_goes_on(exchange) && exchange->response != PX_RESPONSE_COMPLETE) return NULL;
    return px_request_event(aTHX_ exchange, PX_KEY_HTTP_DISCONNECT);
}

static SV *send_start(pTHX_ px_exchange *exchange, HV *event) {
    return px_response_start(aTHX_ exchange, "http.response.start", event, false);
}

static SV *send_body(pTHX_ px_exchange *exchange, HV *event) {
    return px_response_body(aTHX_ exchange, "http.response.body", event, true);
}

static const px_send_event http_sends[] = {
    PX_SEND("http.response.start", send_start),
    PX_SEND("http.response.body", send_body),
    PX_SEND("http.response.trailers", px_response_trailers),
    PX_SEND("http.fullflush", px_response_flush),
    {NULL, 0, NULL},
};

const px_kind px_http_kind = {
    .name = "http",
    .type = PX_KEY_HTTP,
    .scheme = PX_KEY_HTTP,
    .secure_scheme = PX_KEY_HTTPS,
    .has_method = true,
    .has_connection = true,
    .keeps_scope = true,
    .sends = http_sends,
    .next = px_request_next,
    .want = px_request_want,
    .body = px_request_body,
    .returned = px_response_returned,
    .request_event = PX_KEY_HTTP_REQUEST,
    .last_event = http_last_event,
};
