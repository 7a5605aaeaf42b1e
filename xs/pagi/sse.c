/* sse.c - the sse scope: an event stream, or an ordinary response in its place (PAGI::Spec::Www,
 * Server-Sent Events).
 *
 * The application's first event decides: sse.start begins a stream, sse.http.response.start a response. A
 * stream ends when the application closes it or returns, or when the server stops. The connection closes
 * after either answer. */
#include "pagi/pagi.h"

/* ---- $receive -------------------------------------------------------------------------------- */

/* The reason for the end of a stream that the application or its return has ended. */
static SV *close_reason(pTHX_ const pagi_exchange *exchange) {
    return exchange->stream.close_reason ? newSVsv(exchange->stream.close_reason) : newSVpvs("x-closed");
}

static bool is_declined(const pagi_exchange *exchange) {
    return exchange->stream.answer == PAGI_STREAM_DECLINED;
}

/* The event sse.disconnect; NULL: not yet, or the request was answered with an ordinary response, after which
 * there is no such event. */
static SV *sse_last_event(pTHX_ pagi_exchange *exchange) {
    pagi_context *cx = exchange->app->cx;
    SV *reason;
    if (pagi_request_goes_on(exchange) && exchange->response != PAGI_RESPONSE_COMPLETE) return NULL;
    if (pagi_exchange_is_left(exchange)) reason = newSVpv(peregrine_reason_text(exchange->reason), 0);
    else if (!is_declined(exchange)) reason = close_reason(aTHX_ exchange);
    else return NULL;
    SV *event = pagi_request_event(aTHX_ exchange, PAGI_KEY_SSE_DISCONNECT);
    px_store(aTHX_(HV *) SvRV(event), PAGI_KEY(cx, REASON), reason);
    return event;
}

/* Whether no event will come, because an ordinary response is complete. A $receive that waits is cancelled
 * then: it would stay for ever, with all that its `await` holds. */
static bool is_mute(const pagi_exchange *exchange) {
    return is_declined(exchange) && exchange->end == PAGI_END_COMPLETED;
}

static SV *sse_next(pTHX_ pagi_exchange *exchange) {
    return is_mute(exchange) ? NULL : pagi_request_next(aTHX_ exchange);
}

static void sse_want(pTHX_ pagi_exchange *exchange) {
    if (is_mute(exchange)) pagi_receive_cancel(aTHX_ exchange);
    else pagi_request_want(aTHX_ exchange);
}

/* ---- The end of a stream --------------------------------------------------------------------- */

static bool is_streaming(const pagi_exchange *exchange) {
    return exchange->stream.answer == PAGI_STREAM_CHOSEN && exchange->response == PAGI_RESPONSE_STARTED;
}

/* Ends the stream's body in the engine; returns the engine's code. */
static int end_stream(pTHX_ pagi_exchange *exchange) {
    px_worker *worker = exchange->base.worker;
    exchange->response = PAGI_RESPONSE_COMPLETE;
    if (!worker->engine || !px_exchange_is_live(&exchange->base)) return PEREGRINE_E_GONE;
    const int code = peregrine_write(worker->engine, exchange->base.ticket, "", 0,
                                     PEREGRINE_END | PEREGRINE_CLOSE);
    px_worker_queued(aTHX_ worker);
    return code;
}

/* Ends a stream that the application has not ended. */
static void hang_up(pTHX_ pagi_exchange *exchange, uint32_t reason) {
    if (!is_streaming(exchange) || !pagi_exchange_delivers(exchange)) return;
    px_exchange_hold(&exchange->base);
    const int code = end_stream(aTHX_ exchange);
    pagi_exchange_disconnect(aTHX_ exchange, reason);
    if (code == PEREGRINE_DONE) px_exchange_ticket_gone(aTHX_ &exchange->base);
    px_exchange_unhold(aTHX_ &exchange->base);
}

static void sse_shut_down(pTHX_ pagi_exchange *exchange) {
    hang_up(aTHX_ exchange, PEREGRINE_SERVER_SHUTDOWN);
}

static void sse_returned(pTHX_ pagi_exchange *exchange, SV *failure) {
    const bool goes_on = is_streaming(exchange) && pagi_exchange_delivers(exchange);
    if (failure || !goes_on || px_exchange_is_lost(&exchange->base)) {
        pagi_response_returned(aTHX_ exchange, failure);
        return;
    }
    if (end_stream(aTHX_ exchange) != PEREGRINE_DONE) return; /* FINISHED follows */
    pagi_exchange_complete(aTHX_ exchange);
    px_exchange_ticket_gone(aTHX_ &exchange->base);
}

/* ---- The event sse.start ----------------------------------------------------------------------- */

static bool has_field(const pagi_fields *fields, const char *name) {
    for (size_t i = 0; i < fields->count; i++)
        if (px_is_text(fields->list[i].name, fields->list[i].name_len, name)) return true;
    return false;
}

static void add_field(pagi_fields *fields, const char *name, const char *value) {
    if (has_field(fields, name)) return;
    const peregrine_field field = {name, strlen(name), value, strlen(value)};
    fields->list[fields->count++] = field;
}

/* NULL if the stream may start now, otherwise a failed Future. */
static SV *start_out_of_order(pTHX_ pagi_exchange *exchange, const char *type) {
    px_worker *worker = exchange->base.worker;
    switch (exchange->stream.answer) {
    case PAGI_STREAM_UNDECIDED: return NULL;
    case PAGI_STREAM_DECLINED:
        return px_future_invalid(aTHX_ worker,
                                 "%s: the request was answered with sse.http.response.start already", type);
    case PAGI_STREAM_CHOSEN: break;
    }
    return px_future_invalid(aTHX_ worker, "%s: the stream has already been started", type);
}

static SV *read_status(pTHX_ pagi_app *app, const char *type, HV *event, IV *status) {
    bool found;
    SV *failed = pagi_event_status(aTHX_ app, type, event, status, &found);
    if (!failed && !found) *status = 200;
    return failed;
}

/* Has the engine repeat the comment: no Perl code runs for that. */
static int repeat_comment(pagi_exchange *exchange, SV *comment, uint32_t interval_ms) {
    return peregrine_repeat(exchange->base.worker->engine, exchange->base.ticket, interval_ms,
                            SvPVX_const(comment), SvCUR(comment));
}

static void stream_started(pTHX_ pagi_exchange *exchange) {
    px_worker *worker = exchange->base.worker;
    pagi_stream *stream = &exchange->stream;
    stream->answer = PAGI_STREAM_CHOSEN;
    exchange->response = PAGI_RESPONSE_STARTED;
    if (exchange->app->stream_idle_ms)
        (void)peregrine_idle_limit(worker->engine, exchange->base.ticket, exchange->app->stream_idle_ms);
    if (!stream->comment) return;
    (void)repeat_comment(exchange, stream->comment, stream->comment_ms);
    SvREFCNT_dec_NN(stream->comment);
    stream->comment = NULL;
}

static SV *send_sse_start(pTHX_ pagi_exchange *exchange, HV *event) {
    static const char type[] = "sse.start";
    px_worker *worker = exchange->base.worker;
    SV *failed = start_out_of_order(aTHX_ exchange, type);
    if (failed) return failed;
    IV status;
    failed = read_status(aTHX_ exchange->app, type, event, &status);
    if (failed) return failed;
    pagi_fields fields;
    failed = pagi_event_fields(aTHX_ worker, type,
                               px_fetch(aTHX_ event, PAGI_KEY(exchange->app->cx, HEADERS)), &fields);
    if (failed) return failed;
    if (has_field(&fields, "content-length"))
        return px_future_invalid(aTHX_ worker,
                                 "%s: headers must not have content-length: a stream has no length", type);
    if (!worker->engine) return px_future_done(aTHX_ worker, NULL);
    const bool encoded = has_field(&fields, "content-encoding");
    add_field(&fields, "content-type", "text/event-stream");
    add_field(&fields, "cache-control", "no-cache");

    const peregrine_response response = {
        .size = sizeof(response),
        .status = (uint16_t)status,
        .flags = PEREGRINE_KEEP_ALIVE,
        .fields = fields.list,
        .field_count = fields.count,
    };
    const int code = peregrine_respond(worker->engine, exchange->base.ticket, &response);
    if (code >= 0) {
        px_note_answer(&exchange->base, response.status);
        px_note_stream(&exchange->base);
    }
    if (code >= 0) stream_started(aTHX_ exchange);
    exchange->stream.encoded = encoded;
    SV *future = pagi_event_field_outcome(aTHX_ exchange, type, code, &fields);
    if (worker->stopping) hang_up(aTHX_ exchange, PEREGRINE_SERVER_SHUTDOWN);
    return future;
}

/* ---- Events on the stream ---------------------------------------------------------------------- */

/* NULL if an event may be sent on the stream now, otherwise a failed Future. */
static SV *stream_out_of_order(pTHX_ pagi_exchange *exchange, const char *type) {
    px_worker *worker = exchange->base.worker;
    switch (exchange->stream.answer) {
    case PAGI_STREAM_UNDECIDED:
        return px_future_invalid(aTHX_ worker, "%s: the stream has not been started with sse.start", type);
    case PAGI_STREAM_DECLINED:
        return px_future_invalid(aTHX_ worker, "%s: there is no stream, "
                                               "the request was answered with sse.http.response.start", type);
    case PAGI_STREAM_CHOSEN: break;
    }
    if (exchange->response == PAGI_RESPONSE_STARTED) return NULL;
    return px_future_invalid(aTHX_ worker, "%s: the stream is closed", type);
}

static SV *write_text(pTHX_ pagi_exchange *exchange, const char *type, SV *text) {
    px_worker *worker = exchange->base.worker;
    if (!worker->engine) return px_future_done(aTHX_ worker, NULL);
    const int code = px_loan_write(aTHX_ &exchange->base, text, SvPVX_const(text), SvCUR(text), 0);
    return pagi_event_outcome(aTHX_ exchange, type, code);
}

/* Reads a field of characters, which may be absent. Returns NULL, or a failed Future. */
static SV *read_text(pTHX_ px_worker *worker, const char *type, HV *event, SV *key, pagi_text *text) {
    SV *value = px_fetch(aTHX_ event, key);
    text->bytes = NULL;
    text->len = 0;
    const char *wrong = value ? pagi_event_text(aTHX_ value, &text->bytes, &text->len) : NULL;
    return wrong ? px_future_invalid(aTHX_ worker, "%s: %s %s", type, SvPVX_const(key), wrong) : NULL;
}

/* Reads the text of a field that has to stay on one line. Returns NULL, or a failed Future. */
static SV *read_line(pTHX_ px_worker *worker, const char *type, HV *event, SV *key, pagi_text *text) {
    SV *failed = read_text(aTHX_ worker, type, event, key, text);
    if (failed || !pagi_event_stream_breaks(text)) return failed;
    return px_future_invalid(aTHX_ worker, "%s: %s must not have a line end or a NUL", type,
                             SvPVX_const(key));
}

static SV *send_sse_message(pTHX_ pagi_exchange *exchange, HV *fields) {
    static const char type[] = "sse.send";
    px_worker *worker = exchange->base.worker;
    pagi_context *cx = exchange->app->cx;
    pagi_text event, id, data;
    IV retry;
    bool has_retry;
    SV *failed = stream_out_of_order(aTHX_ exchange, type);
    if (!failed) failed = read_line(aTHX_ worker, type, fields, PAGI_KEY(cx, EVENT), &event);
    if (!failed) failed = read_line(aTHX_ worker, type, fields, PAGI_KEY(cx, ID), &id);
    if (!failed)
        failed = pagi_event_integer(aTHX_ worker, type, fields, PAGI_KEY(cx, RETRY), IV_MAX, &retry,
                                    &has_retry);
    if (!failed) failed = read_text(aTHX_ worker, type, fields, PAGI_KEY(cx, DATA), &data);
    if (failed) return failed;
    if (!data.bytes) return px_future_invalid(aTHX_ worker, "%s: data is missing", type);
    return write_text(aTHX_ exchange, type,
                      pagi_event_stream_message(aTHX_ & event, &id, has_retry ? retry : -1, &data));
}

static SV *send_comment(pTHX_ pagi_exchange *exchange, HV *event) {
    static const char type[] = "sse.comment";
    px_worker *worker = exchange->base.worker;
    pagi_text comment;
    SV *failed = stream_out_of_order(aTHX_ exchange, type);
    if (!failed)
        failed = read_text(aTHX_ worker, type, event, PAGI_KEY(exchange->app->cx, COMMENT), &comment);
    if (failed) return failed;
    if (!comment.bytes) return px_future_invalid(aTHX_ worker, "%s: comment is missing", type);
    return write_text(aTHX_ exchange, type, pagi_event_stream_comment(aTHX_ & comment));
}

/* sse.keepalive; before sse.start it is kept for the stream. */
static SV *send_sse_keepalive(pTHX_ pagi_exchange *exchange, HV *event) {
    static const char type[] = "sse.keepalive";
    px_worker *worker = exchange->base.worker;
    pagi_stream *stream = &exchange->stream;
    pagi_text comment;
    NV interval;
    bool found;
    SV *failed = stream->answer == PAGI_STREAM_UNDECIDED ? NULL : stream_out_of_order(aTHX_ exchange, type);
    if (!failed)
        failed = pagi_event_number(aTHX_ worker, type, event, PAGI_KEY(exchange->app->cx, INTERVAL),
                                   PAGI_SECONDS_MAX, &interval, &found);
    if (!failed)
        failed = read_text(aTHX_ worker, type, event, PAGI_KEY(exchange->app->cx, COMMENT), &comment);
    if (failed) return failed;
    if (!found)
        return px_future_invalid(aTHX_ worker, "%s: interval is missing (seconds; 0 stops the comments)",
                                 type);
    if (!worker->engine) return px_future_done(aTHX_ worker, NULL);
    if (!comment.bytes) comment.bytes = "";
    SV *text = pagi_event_stream_comment(aTHX_ & comment);
    const uint32_t interval_ms = (uint32_t)Perl_ceil(interval * 1000);
    if (stream->answer == PAGI_STREAM_CHOSEN)
        return pagi_event_outcome(aTHX_ exchange, type, repeat_comment(exchange, text, interval_ms));
    SvREFCNT_dec(stream->comment);
    stream->comment = interval_ms ? SvREFCNT_inc_simple_NN(text) : NULL;
    stream->comment_ms = interval_ms;
    return px_future_done(aTHX_ worker, NULL);
}

static SV *send_sse_close(pTHX_ pagi_exchange *exchange, HV *event) {
    static const char type[] = "sse.close";
    px_worker *worker = exchange->base.worker;
    pagi_text reason;
    if (exchange->stream.answer == PAGI_STREAM_CHOSEN && exchange->response == PAGI_RESPONSE_COMPLETE)
        return px_future_done(aTHX_ worker, NULL);
    SV *failed = stream_out_of_order(aTHX_ exchange, type);
    if (!failed) failed = read_text(aTHX_ worker, type, event, PAGI_KEY(exchange->app->cx, REASON), &reason);
    if (failed) return failed;
    if (reason.bytes) exchange->stream.close_reason = newSVpvn_utf8(reason.bytes, reason.len, true);
    exchange->app_closed = exchange->end == PAGI_END_OPEN;
    return pagi_event_outcome(aTHX_ exchange, type, end_stream(aTHX_ exchange));
}

/* ---- Topics ---------------------------------------------------------------------------------- */

static SV *send_topic(pTHX_ pagi_exchange *exchange, const char *type, HV *event) {
    SV *failed = stream_out_of_order(aTHX_ exchange, type);
    if (failed) return failed;
    if (exchange->stream.encoded)
        return px_future_invalid(aTHX_ exchange->base.worker, "%s: the stream has a Content-Encoding, and "
                                                              "entries of topics have none", type);
    return pagi_topics_send(aTHX_ exchange, type, event);
}

static SV *send_sse_topic_subscribe(pTHX_ pagi_exchange *exchange, HV *event) {
    return send_topic(aTHX_ exchange, "topic.subscribe", event);
}

static SV *send_sse_topic_unsubscribe(pTHX_ pagi_exchange *exchange, HV *event) {
    return send_topic(aTHX_ exchange, "topic.unsubscribe", event);
}

static int sse_entry(pTHX_ pagi_exchange *exchange, const peregrine_node_reading *found) {
    if (!is_streaming(exchange)) return PEREGRINE_E_OUT_OF_ORDER;
    return peregrine_write(exchange->base.worker->engine, exchange->base.ticket, found->bytes, found->len, 0);
}

/* Sends a reset to the client as an event with a position, from which it can go on. */
static int sse_reset(pTHX_ pagi_exchange *exchange, const peregrine_node_reading *found) {
    if (!is_streaming(exchange)) return PEREGRINE_E_OUT_OF_ORDER;
    SV *text = sv_2mortal(Perl_newSVpvf(aTHX_ "id: %.*s\nevent: reset\ndata: %.*s\n\n",
                                        (int)found->position_len, found->position,
                                        (int)found->topic_len, found->topic));
    return peregrine_write(exchange->base.worker->engine, exchange->base.ticket, SvPVX_const(text),
                           SvCUR(text), 0);
}

/* Ends the stream of a client that is too far behind: it comes back with its last position. */
static void sse_behind(pTHX_ pagi_exchange *exchange) {
    hang_up(aTHX_ exchange, PEREGRINE_SERVER_SHUTDOWN);
}

/* ---- An ordinary response instead -------------------------------------------------------------- */

static SV *stream_was_started(pTHX_ pagi_exchange *exchange, const char *type) {
    if (exchange->stream.answer != PAGI_STREAM_CHOSEN) return NULL;
    return px_future_invalid(aTHX_ exchange->base.worker, "%s: the stream has been started with sse.start",
                             type);
}

static SV *send_response_start(pTHX_ pagi_exchange *exchange, HV *event) {
    static const char type[] = "sse.http.response.start";
    SV *failed = stream_was_started(aTHX_ exchange, type);
    if (failed) return failed;
    SV *future = pagi_response_start(aTHX_ exchange, type, event, true);
    if (exchange->response != PAGI_RESPONSE_NONE) exchange->stream.answer = PAGI_STREAM_DECLINED;
    return future;
}

/* The event is "structured exactly like http.response.body" (PAGI::Spec::Www), files and handles included. */
static SV *send_response_body(pTHX_ pagi_exchange *exchange, HV *event) {
    static const char type[] = "sse.http.response.body";
    SV *failed = stream_was_started(aTHX_ exchange, type);
    return failed ? failed : pagi_response_body(aTHX_ exchange, type, event, true);
}

static const pagi_send_event sse_sends[] = {
    PAGI_SEND("sse.send", send_sse_message),
    PAGI_SEND("sse.comment", send_comment),
    PAGI_SEND("sse.start", send_sse_start),
    PAGI_SEND("sse.keepalive", send_sse_keepalive),
    PAGI_SEND("topic.subscribe", send_sse_topic_subscribe),
    PAGI_SEND("topic.unsubscribe", send_sse_topic_unsubscribe),
    PAGI_SEND("sse.close", send_sse_close),
    PAGI_SEND("sse.http.response.start", send_response_start),
    PAGI_SEND("sse.http.response.body", send_response_body),
    PAGI_SEND("http.fullflush", pagi_response_flush),
    {NULL, 0, NULL},
};

const pagi_kind pagi_sse_kind = {
    .name = "sse",
    .type = PAGI_KEY_SSE,
    .scheme = PAGI_KEY_HTTP,
    .secure_scheme = PAGI_KEY_HTTPS,
    .has_method = true,
    .sends = sse_sends,
    .next = sse_next,
    .want = sse_want,
    .body = pagi_request_body,
    .returned = sse_returned,
    .request_event = PAGI_KEY_SSE_REQUEST,
    .last_event = sse_last_event,
    .shut_down = sse_shut_down,
    .entry = sse_entry,
    .reset = sse_reset,
    .behind = sse_behind,
};
