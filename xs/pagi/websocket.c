/* websocket.c - the websocket scope (PAGI::Spec::Www, WebSocket): its events both ways, the queue of messages
 * that the application has not asked for yet, and the effect of its application's end.
 *
 * The handshake, frames, pings and the closing handshake are the engine's. An idle WebSocket has no memory
 * here beside its exchange. */
#include "pagi/pagi.h"

#define PAGI_CLOSE_NORMAL 1000
#define PAGI_CLOSE_ABSENT 1005
#define PAGI_CLOSE_ABNORMAL 1006
#define PAGI_CLOSE_POLICY 1008
#define PAGI_CLOSE_INTERNAL 1011
#define PAGI_CLOSE_TRY_AGAIN 1013

/* ---- Events for $receive ----------------------------------------------------------------------- */

static HV *new_event(pTHX_ pagi_context *cx, SV *type) {
    HV *event = newHV();
    px_store(aTHX_ event, PAGI_KEY(cx, TYPE), px_copy(aTHX_ type));
    return event;
}

static SV *connect_event(pTHX_ pagi_exchange *exchange) {
    pagi_context *cx = exchange->app->cx;
    exchange->socket.connect_told = true;
    return newRV_noinc((SV *)new_event(aTHX_ cx, PAGI_KEY(cx, WEBSOCKET_CONNECT)));
}

/* Makes websocket.receive of a message, which it takes over. Text of ASCII only loses the UTF-8 flag, which
 * would make Perl slower with it. */
static SV *receive_event(pTHX_ pagi_context *cx, SV *message, bool text) {
    HV *event = new_event(aTHX_ cx, PAGI_KEY(cx, WEBSOCKET_RECEIVE));
    if (text && is_utf8_invariant_string((const U8 *)SvPVX_const(message), SvCUR(message)))
        SvUTF8_off(message);
    px_store(aTHX_ event, text ? PAGI_KEY(cx, TEXT) : PAGI_KEY(cx, BYTES), message);
    return newRV_noinc((SV *)event);
}

static SV *disconnect_event(pTHX_ const pagi_exchange *exchange) {
    pagi_context *cx = exchange->app->cx;
    const pagi_socket *socket = &exchange->socket;
    HV *event = new_event(aTHX_ cx, PAGI_KEY(cx, WEBSOCKET_DISCONNECT));
    px_store(aTHX_ event, PAGI_KEY(cx, CODE),
             newSVuv(socket->close_code ? socket->close_code : PAGI_CLOSE_ABNORMAL));
    px_store(aTHX_ event, PAGI_KEY(cx, REASON),
             socket->close_reason
             ? newSVsv(socket->close_reason)
             : newSVpv(peregrine_reason_text(exchange->reason), 0));
    return newRV_noinc((SV *)event);
}

/* Remembers how the WebSocket ended, unless that is known already. Takes over `reason`. */
static void note_close(pTHX_ pagi_exchange *exchange, uint16_t code, SV *reason) {
    pagi_socket *socket = &exchange->socket;
    if (socket->close_code) {
        SvREFCNT_dec_NN(reason);
        return;
    }
    socket->close_code = code;
    socket->close_reason = reason;
}

/* ---- Messages before $receive is called -------------------------------------------------------- */

/* Sets whether the peer is not read, because many bytes are queued. Otherwise the engine sends small messages
 * before $receive asks for them. */
static void set_paused(pagi_exchange *exchange, bool paused) {
    px_worker *worker = exchange->base.worker;
    exchange->socket.paused = paused;
    if (!worker->engine || !px_exchange_is_live(&exchange->base)) return;
    (void)peregrine_pause(worker->engine, exchange->base.ticket,
                          paused ? PEREGRINE_FLOW_NONE : PEREGRINE_FLOW_ON_DEMAND);
}

/* Closes a WebSocket whose application has fallen further behind than is allowed: the peer is told, the
 * application still gets the queued messages. */
static void overflow(pTHX_ pagi_exchange *exchange) {
    static const char reason[] = "Message queue overflow";
    px_worker *worker = exchange->base.worker;
    note_close(aTHX_ exchange, PAGI_CLOSE_POLICY,
               newSVpv(peregrine_reason_text(PEREGRINE_QUEUE_OVERFLOW), 0));
    exchange->socket.state = PAGI_SOCKET_CLOSING;
    if (!worker->engine) return;
    (void)peregrine_close_websocket(worker->engine, exchange->base.ticket, PAGI_CLOSE_POLICY, reason,
                                    sizeof(reason) - 1);
    px_worker_queued(aTHX_ worker);
}

/* Queues a message. The UTF-8 flag tells text from binary messages: every text in the queue has it. */
static void queue_message(pTHX_ pagi_exchange *exchange, SV *message) {
    pagi_socket *socket = &exchange->socket;
    if (!socket->queue) socket->queue = newAV();
    if (av_count(socket->queue) >= exchange->app->queue_messages_max) {
        SvREFCNT_dec_NN(message);
        overflow(aTHX_ exchange);
        return;
    }
    socket->queued_bytes += SvCUR(message);
    av_push(socket->queue, message);
    if (!socket->paused && socket->queued_bytes >= exchange->app->queue_bytes_max) set_paused(exchange, true);
}

static SV *take_message(pTHX_ pagi_exchange *exchange) {
    pagi_socket *socket = &exchange->socket;
    AV *queue = socket->queue;
    SV *message = av_shift(queue);
    socket->queued_bytes -= SvCUR(message);
    if (av_count(queue) == 0) {
        socket->queue = NULL;
        SvREFCNT_dec_NN((SV *)queue);
    }
    if (socket->paused && socket->queued_bytes <= exchange->app->queue_bytes_max / 2) {
        set_paused(exchange, false);
        px_worker_queued(aTHX_ exchange->base.worker);
    }
    return message;
}

static void drop_messages(pTHX_ pagi_exchange *exchange) {
    SV *queue = (SV *)exchange->socket.queue;
    exchange->socket.queue = NULL;
    exchange->socket.queued_bytes = 0;
    SvREFCNT_dec(queue);
}

/* Whether no further message will come. */
static bool over(const pagi_exchange *exchange) {
    return exchange->end == PAGI_END_DISCONNECTED || exchange->socket.close_code != 0;
}

static SV *websocket_next(pTHX_ pagi_exchange *exchange) {
    if (!exchange->socket.connect_told) return connect_event(aTHX_ exchange);
    if (exchange->socket.queue) {
        SV *message = take_message(aTHX_ exchange);
        return receive_event(aTHX_ exchange->app->cx, message, SvUTF8(message));
    }
    if (!over(exchange)) return NULL;
    exchange->last_told = true;
    return disconnect_event(aTHX_ exchange);
}

/* To be called when $receive waits for a message: asks the engine, because it gives large ones only then.
 * After a denial response the waiting $receive is cancelled: there was no WebSocket, and no
 * websocket.disconnect comes. */
static void websocket_want(pTHX_ pagi_exchange *exchange) {
    px_worker *worker = exchange->base.worker;
    if (exchange->end == PAGI_END_COMPLETED) pagi_receive_cancel(aTHX_ exchange);
    else if (exchange->socket.state == PAGI_SOCKET_OPEN && worker->engine &&
             px_exchange_is_live(&exchange->base))
        (void)peregrine_read(worker->engine, exchange->base.ticket);
}

static void websocket_message(pTHX_ pagi_exchange *exchange, const peregrine_event *event) {
    if (exchange->socket.state != PAGI_SOCKET_OPEN || !exchange->app_running) return;
    const bool text = (event->flags & PEREGRINE_TEXT) != 0;
    SV *message = px_bytes(aTHX_ exchange->base.worker, event);
    if (text) SvUTF8_on(message);
    SV *future = exchange->socket.queue ? NULL : pagi_receive_take(aTHX_ exchange);
    if (!future) {
        queue_message(aTHX_ exchange, message);
        return;
    }
    /* A $receive that is called meanwhile asks the engine itself. */
    const bool others_wait = exchange->receiver != NULL;
    pagi_receive_resolve(aTHX_ exchange, future, receive_event(aTHX_ exchange->app->cx, message, text));
    if (others_wait && pagi_receive_waits(aTHX_ exchange)) websocket_want(aTHX_ exchange);
}

static void websocket_closed(pTHX_ pagi_exchange *exchange, const peregrine_event *event) {
    const uint32_t reason = event->reason;
    /* the process may have no memory for the messages */
    if (reason == PEREGRINE_SERVER_ERROR) drop_messages(aTHX_ exchange);
    note_close(aTHX_ exchange, (uint16_t)event->code,
               reason
               ? newSVpv(peregrine_reason_text(reason), 0)
               : newSVpvn_utf8(event->bytes, event->len, 1));
    pagi_exchange_disconnect(aTHX_ exchange, reason);
    px_exchange_ticket_gone(aTHX_ &exchange->base);
}

/* ---- $send ----------------------------------------------------------------------------------- */

/* Refuses an event on a connection that the application has closed itself, which is no race (PAGI::Spec::Www,
 * sending after disconnect). */
static SV *closed_by_app(pTHX_ pagi_exchange *exchange, const char *type) {
    if (!exchange->app_closed) return NULL;
    return px_future_invalid(aTHX_ exchange->base.worker,
                             "%s: the application has closed the WebSocket with websocket.close", type);
}

/* NULL if the WebSocket is open, otherwise the Future to return. An event after an end by the peer or the
 * server does nothing. */
static SV *not_open(pTHX_ pagi_exchange *exchange, const char *type) {
    px_worker *worker = exchange->base.worker;
    SV *failed = closed_by_app(aTHX_ exchange, type);
    if (failed) return failed;
    switch (exchange->socket.state) {
    case PAGI_SOCKET_CONNECTING:
        return px_future_invalid(aTHX_ worker,
                                 "%s: the WebSocket has not been accepted; send websocket.accept first",
                                     type);
    case PAGI_SOCKET_DENYING:
        return px_future_invalid(aTHX_ worker, "%s: the handshake is being answered with a response", type);
    case PAGI_SOCKET_CLOSING: break;
    case PAGI_SOCKET_OPEN:
        if (worker->engine) return NULL;
    }
    return px_future_done(aTHX_ worker, NULL);
}

/* NULL if the handshake is not answered yet, otherwise the Future to return. */
static SV *not_connecting(pTHX_ pagi_exchange *exchange, const char *type) {
    px_worker *worker = exchange->base.worker;
    SV *failed = closed_by_app(aTHX_ exchange, type);
    if (failed) return failed;
    switch (exchange->socket.state) {
    case PAGI_SOCKET_CONNECTING: return NULL;
    case PAGI_SOCKET_DENYING:
        return px_future_invalid(aTHX_ worker, "%s: the handshake is being answered with a response", type);
    case PAGI_SOCKET_OPEN:
    case PAGI_SOCKET_CLOSING: break;
    }
    return px_future_invalid(aTHX_ worker, "%s: the WebSocket has already been accepted", type);
}

/* The Future of a command to an open WebSocket. The engine may be closing it already: then the event counts
 * as one that came too late. */
static SV *late_outcome(pTHX_ pagi_exchange *exchange, const char *type, int code) {
    if (code == PEREGRINE_E_OUT_OF_ORDER || code == PEREGRINE_E_NOT_WEBSOCKET)
        return px_future_done(aTHX_ exchange->base.worker, NULL);
    return pagi_event_outcome(aTHX_ exchange, type, code);
}

/* Checks that a subprotocol is among those that the client has offered; NULL: it is. */
static SV *not_offered(pTHX_ pagi_exchange *exchange, const char *type, const char *name, size_t len) {
    px_worker *worker = exchange->base.worker;
    AV *offered = exchange->socket.offered;
    SV *list = newSVpvs_flags("", SVs_TEMP);
    for (SSize_t i = 0; offered && i <= AvFILLp(offered); i++) {
        SV *other = AvARRAY(offered)[i];
        if (SvCUR(other) == len && memcmp(SvPVX_const(other), name, len) == 0) return NULL;
        sv_catpvf(list, "%s'%" SVf "'", i ? ", " : "", SVfARG(other));
    }
    SV *shown = newSVpvs_flags("", SVs_TEMP);
    pv_pretty(shown, name, len, 64, NULL, NULL, PERL_PV_PRETTY_DUMP);
    if (!offered)
        return px_future_invalid(aTHX_ worker,
                                 "%s: subprotocol %" SVf " was not offered by the client, which offered none",
                                     type,
                                 SVfARG(shown));
    return px_future_invalid(aTHX_ worker,
                             "%s: subprotocol %" SVf " was not offered by the client, which offered %" SVf,
                                 type,
                             SVfARG(shown), SVfARG(list));
}

static SV *send_accept(pTHX_ pagi_exchange *exchange, HV *event) {
    static const char type[] = "websocket.accept";
    px_worker *worker = exchange->base.worker;
    pagi_context *cx = exchange->app->cx;
    SV *failed = not_connecting(aTHX_ exchange, type);
    if (failed) return failed;
    SV *subprotocol = px_fetch(aTHX_ event, PAGI_KEY(cx, SUBPROTOCOL));
    const char *name = NULL;
    size_t name_len = 0;
    if (subprotocol) {
        const char *wrong = pagi_event_bytes(aTHX_ subprotocol, &name, &name_len);
        if (wrong) return px_future_invalid(aTHX_ worker, "%s: subprotocol %s", type, wrong);
        failed = not_offered(aTHX_ exchange, type, name, name_len);
        if (failed) return failed;
    }
    SV *compress = px_fetch(aTHX_ event, PAGI_KEY(cx, COMPRESS));
    int compression = PEREGRINE_COMPRESSION_CONFIGURED;
    if (compress) {
        bool wanted;
        failed = pagi_event_flag(aTHX_ worker, type, PAGI_KEY(cx, COMPRESS), compress, &wanted);
        if (failed) return failed;
        compression = wanted ? PEREGRINE_COMPRESSION_ON : PEREGRINE_COMPRESSION_OFF;
    }
    pagi_fields fields;
    failed = pagi_event_fields(aTHX_ worker, type, px_fetch(aTHX_ event, PAGI_KEY(cx, HEADERS)), &fields);
    if (failed) return failed;
    if (!worker->engine) return px_future_done(aTHX_ worker, NULL);
    const int code = peregrine_accept_websocket_as(worker->engine, exchange->base.ticket, compression, name,
                                                   name_len, fields.list, fields.count);
    if (code >= 0) {
        pagi_socket *socket = &exchange->socket;
        SV *offered = (SV *)socket->offered;
        socket->offered = NULL;
        socket->state = PAGI_SOCKET_OPEN;
        SvREFCNT_dec(offered);
        if (socket->ping_ms)
            (void)peregrine_keepalive(worker->engine, exchange->base.ticket, socket->ping_ms,
                                      socket->pong_ms);
        set_paused(exchange, false);
        if (pagi_receive_waits(aTHX_ exchange)) websocket_want(aTHX_ exchange);
    }
    return pagi_event_field_outcome(aTHX_ exchange, type, code, &fields);
}

static SV *send_message(pTHX_ pagi_exchange *exchange, HV *event) {
    static const char type[] = "websocket.send";
    px_worker *worker = exchange->base.worker;
    pagi_context *cx = exchange->app->cx;
    SV *failed = not_open(aTHX_ exchange, type);
    if (failed) return failed;
    SV *text = px_fetch(aTHX_ event, PAGI_KEY(cx, TEXT));
    SV *binary = text && HvTOTALKEYS(event) == 2 ? NULL : px_fetch(aTHX_ event, PAGI_KEY(cx, BYTES));
    if (!text == !binary)
        return px_future_invalid(aTHX_ worker, "%s: exactly one of text and bytes must be given", type);
    const char *bytes;
    size_t len;
    const char *wrong = text
                        ? pagi_event_text(aTHX_ text, &bytes, &len)
                        : pagi_event_bytes(aTHX_ binary, &bytes, &len);
    if (wrong) return px_future_invalid(aTHX_ worker, "%s: %s %s", type, text ? "text" : "bytes", wrong);
    SV *message = text ? text : binary;
    const int code = px_loan_message(aTHX_ &exchange->base, message, bytes, len, text ? PEREGRINE_TEXT : 0);
    return late_outcome(aTHX_ exchange, type, code);
}

/* websocket.keepalive; before websocket.accept it is kept for the open WebSocket. */
static SV *send_keepalive(pTHX_ pagi_exchange *exchange, HV *event) {
    static const char type[] = "websocket.keepalive";
    px_worker *worker = exchange->base.worker;
    pagi_context *cx = exchange->app->cx;
    pagi_socket *socket = &exchange->socket;
    SV *failed = socket->state == PAGI_SOCKET_CONNECTING ? NULL : not_open(aTHX_ exchange, type);
    if (failed) return failed;
    NV interval = 0, timeout = 0;
    bool found;
    failed = pagi_event_number(aTHX_ worker, type, event, PAGI_KEY(cx, TIMEOUT), PAGI_SECONDS_MAX, &timeout,
                               &found);
    if (failed) return failed;
    failed = pagi_event_number(aTHX_ worker, type, event, PAGI_KEY(cx, INTERVAL), PAGI_SECONDS_MAX, &interval,
                               &found);
    if (failed) return failed;
    if (!found)
        return px_future_invalid(aTHX_ worker, "%s: interval is missing (seconds; 0 stops the pings)", type);
    const uint32_t interval_ms = (uint32_t)Perl_ceil(interval * 1000);
    const uint32_t timeout_ms = (uint32_t)Perl_ceil(timeout * 1000);
    if (socket->state != PAGI_SOCKET_CONNECTING)
        return late_outcome(aTHX_ exchange, type,
                       peregrine_keepalive(worker->engine, exchange->base.ticket, interval_ms, timeout_ms));
    socket->ping_ms = interval_ms;
    socket->pong_ms = timeout_ms;
    return px_future_done(aTHX_ worker, NULL);
}

static SV *send_close(pTHX_ pagi_exchange *exchange, HV *event) {
    static const char type[] = "websocket.close";
    px_worker *worker = exchange->base.worker;
    pagi_context *cx = exchange->app->cx;
    IV code = 0;
    bool found;
    SV *failed = pagi_event_integer(aTHX_ worker, type, event, PAGI_KEY(cx, CODE), 4999, &code, &found);
    if (failed) return failed;
    SV *given = px_fetch(aTHX_ event, PAGI_KEY(cx, REASON));
    const char *reason = "";
    size_t reason_len = 0;
    const char *wrong = given ? pagi_event_text(aTHX_ given, &reason, &reason_len) : NULL;
    if (wrong) return px_future_invalid(aTHX_ worker, "%s: reason %s", type, wrong);
    if (exchange->socket.state == PAGI_SOCKET_CONNECTING) {
        exchange->socket.state = PAGI_SOCKET_CLOSING;
        exchange->app_closed = true;
        pagi_response_refuse(aTHX_ exchange, 403, "Forbidden\n", 0);
        return px_future_done(aTHX_ worker, NULL);
    }
    failed = not_open(aTHX_ exchange, type);
    if (failed) return failed;
    if (!found) code = PAGI_CLOSE_NORMAL;
    const int result = code == PAGI_CLOSE_ABSENT
                           /* for peregrine_close_websocket this number means a close without a code */
                           ? PEREGRINE_E_CLOSE_CODE
                           : peregrine_close_websocket(worker->engine, exchange->base.ticket, (uint16_t)code,
                                                       reason, reason_len);
    if (result == PEREGRINE_E_CLOSE_CODE)
        return px_future_invalid(aTHX_ worker,
                                 "%s: code must be 1000 to 1003, 1007 to 1014 or 3000 to 4999, not %" IVdf,
                                     type, code);
    if (result == PEREGRINE_E_CLOSE_REASON)
        return px_future_invalid(aTHX_ worker, "%s: reason must have at most 123 bytes as UTF-8, not %lu",
                                 type, (unsigned long)reason_len);
    if (result >= 0) {
        exchange->socket.state = PAGI_SOCKET_CLOSING;
        exchange->app_closed = true;
    }
    return late_outcome(aTHX_ exchange, type, result);
}

/* Closes the WebSocket without a code, for which PAGI has no event. */
void pagi_websocket_close_plainly(pTHX_ pagi_exchange *exchange) {
    px_worker *worker = exchange->base.worker;
    if (exchange->kind != &pagi_websocket_kind || exchange->socket.state != PAGI_SOCKET_OPEN) return;
    if (!worker->engine || !px_exchange_is_live(&exchange->base)) return;
    const peregrine_ticket ticket = exchange->base.ticket;
    if (peregrine_close_websocket(worker->engine, ticket, PAGI_CLOSE_ABSENT, "", 0) < 0) return;
    exchange->socket.state = PAGI_SOCKET_CLOSING;
    exchange->app_closed = true;
    px_worker_queued(aTHX_ worker);
}

static SV *send_denial_start(pTHX_ pagi_exchange *exchange, HV *event) {
    static const char type[] = "websocket.http.response.start";
    SV *failed = exchange->socket.state == PAGI_SOCKET_DENYING ? NULL : not_connecting(aTHX_ exchange, type);
    if (failed) return failed;
    SV *future = pagi_response_start(aTHX_ exchange, type, event, true);
    if (exchange->response != PAGI_RESPONSE_NONE) exchange->socket.state = PAGI_SOCKET_DENYING;
    return future;
}

/* "Only the body form applies" (PAGI::Spec::Www): no file and no handle. */
static SV *send_denial_body(pTHX_ pagi_exchange *exchange, HV *event) {
    static const char type[] = "websocket.http.response.body";
    SV *failed = exchange->socket.state == PAGI_SOCKET_DENYING ? NULL : not_connecting(aTHX_ exchange, type);
    return failed ? failed : pagi_response_body(aTHX_ exchange, type, event, false);
}

/* ---- Topics ---------------------------------------------------------------------------------- */

static SV *send_topic_subscribe(pTHX_ pagi_exchange *exchange, HV *event) {
    SV *failed = not_open(aTHX_ exchange, "topic.subscribe");
    return failed ? failed : pagi_topics_send(aTHX_ exchange, "topic.subscribe", event);
}

static SV *send_topic_unsubscribe(pTHX_ pagi_exchange *exchange, HV *event) {
    SV *failed = not_open(aTHX_ exchange, "topic.unsubscribe");
    return failed ? failed : pagi_topics_send(aTHX_ exchange, "topic.unsubscribe", event);
}

static int websocket_entry(pTHX_ pagi_exchange *exchange, const peregrine_node_reading *found) {
    if (exchange->socket.state != PAGI_SOCKET_OPEN) return PEREGRINE_E_OUT_OF_ORDER;
    return peregrine_send_message(exchange->base.worker->engine, exchange->base.ticket, found->bytes,
                                  found->len, found->as == PEREGRINE_NODE_AS_TEXT ? PEREGRINE_TEXT : 0);
}

/* Tells the application of a reset by an event, because no form of message for its client is defined. */
static int websocket_reset(pTHX_ pagi_exchange *exchange, const peregrine_node_reading *found) {
    pagi_context *cx = exchange->app->cx;
    HV *event = new_event(aTHX_ cx, PAGI_KEY(cx, TOPIC_RESET));
    px_store(aTHX_ event, PAGI_KEY(cx, TOPIC), newSVpvn(found->topic, found->topic_len));
    px_store(aTHX_ event, PAGI_KEY(cx, POSITION), newSVpvn(found->position, found->position_len));
    if (!exchange->resets) exchange->resets = newAV();
    av_push(exchange->resets, newRV_noinc((SV *)event));
    pagi_receive_serve(aTHX_ exchange);
    return PEREGRINE_OK;
}

static void websocket_behind(pTHX_ pagi_exchange *exchange) {
    static const char reason[] = "too far behind a topic";
    note_close(aTHX_ exchange, PAGI_CLOSE_TRY_AGAIN,
               newSVpv(peregrine_reason_text(PEREGRINE_QUEUE_OVERFLOW), 0));
    exchange->socket.state = PAGI_SOCKET_CLOSING;
    (void)peregrine_close_websocket(exchange->base.worker->engine, exchange->base.ticket,
                                    PAGI_CLOSE_TRY_AGAIN, reason, sizeof(reason) - 1);
    px_worker_queued(aTHX_ exchange->base.worker);
}

static const pagi_send_event websocket_sends[] = {
    PAGI_SEND("websocket.send", send_message),
    PAGI_SEND("websocket.accept", send_accept),
    PAGI_SEND("websocket.close", send_close),
    PAGI_SEND("websocket.keepalive", send_keepalive),
    PAGI_SEND("topic.subscribe", send_topic_subscribe),
    PAGI_SEND("topic.unsubscribe", send_topic_unsubscribe),
    PAGI_SEND("websocket.http.response.start", send_denial_start),
    PAGI_SEND("websocket.http.response.body", send_denial_body),
    {NULL, 0, NULL},
};

/* ---- The end of the application ---------------------------------------------------------------- */

/* Tells the server how the application ended; no text: that end is not worth a message. */
static void report(pTHX_ pagi_exchange *exchange, SV *failure, const char *died, const char *returned) {
    const char *stage = failure ? died : returned;
    if (!stage) return;
    px_exchange_tell(aTHX_ &exchange->base, failure ? "_app_died" : "_app_fell_short",
                     failure ? failure : &PL_sv_undef, stage);
}

static void close_for_app(pTHX_ pagi_exchange *exchange, uint16_t code) {
    px_worker *worker = exchange->base.worker;
    exchange->socket.state = PAGI_SOCKET_CLOSING;
    if (!worker->engine) return;
    (void)peregrine_close_websocket(worker->engine, exchange->base.ticket, code, "", 0);
    px_worker_queued(aTHX_ worker);
}

static void websocket_returned(pTHX_ pagi_exchange *exchange, SV *failure) {
    static const char before_accept[] = "before its WebSocket was accepted";
    static const char without_accept[] = "without accepting or closing its WebSocket";
    drop_messages(aTHX_ exchange);
    if (exchange->end != PAGI_END_OPEN || px_exchange_is_lost(&exchange->base)) {
        if (!exchange->let_go) report(aTHX_ exchange, failure, "after its WebSocket had ended", NULL);
        return;
    }
    switch (exchange->socket.state) {
    case PAGI_SOCKET_CONNECTING:
        report(aTHX_ exchange, failure, before_accept, without_accept);
        pagi_response_backstop(aTHX_ exchange, failure, failure ? before_accept : without_accept);
        break;
    case PAGI_SOCKET_DENYING: {
        const bool complete = exchange->response == PAGI_RESPONSE_COMPLETE;
        report(aTHX_ exchange, failure, "after it had denied its WebSocket",
               complete ? NULL : "with its denial response incomplete");
        if (!complete) pagi_response_cut(aTHX_ exchange);
        break;
    }
    case PAGI_SOCKET_OPEN:
        report(aTHX_ exchange, failure, "with its WebSocket open", NULL);
        close_for_app(aTHX_ exchange, failure ? PAGI_CLOSE_INTERNAL : PAGI_CLOSE_NORMAL);
        break;
    case PAGI_SOCKET_CLOSING: report(aTHX_ exchange, failure, "while its WebSocket was closing", NULL); break;
    }
}

/* ---- The scope ------------------------------------------------------------------------------- */

static void push_trimmed(pTHX_ AV *list, const char *from, const char *to) {
    while (from < to && isBLANK_A(*from)) from++;
    while (to > from && isBLANK_A(to[-1])) to--;
    if (to > from) av_push(list, newSVpvn(from, (STRLEN)(to - from)));
}

/* The subprotocols in all Sec-WebSocket-Protocol fields. */
static AV *subprotocols(pTHX_ const peregrine_request *request) {
    AV *list = newAV();
    for (uint32_t i = 0; i < request->field_count; i++) {
        const peregrine_field_span *field = &request->fields[i];
        if (!px_is_text(request->text + field->name_at, field->name_len, "sec-websocket-protocol")) continue;
        const char *at = request->text + field->value_at;
        const char *end = at + field->value_len;
        while (at < end) {
            const char *comma = (const char *)memchr(at, ',', (size_t)(end - at));
            push_trimmed(aTHX_ list, at, comma ? comma : end);
            at = comma ? comma + 1 : end;
        }
    }
    return list;
}

/* Adds the keys of a websocket scope. The application may change its list of subprotocols; websocket.accept
 * is checked against a copy. */
static void extend_scope(pTHX_ pagi_exchange *exchange, const peregrine_request *request) {
    pagi_context *cx = exchange->app->cx;
    AV *list = subprotocols(aTHX_ request);
    if (av_count(list)) exchange->socket.offered = av_make(av_count(list), AvARRAY(list));
    px_store(aTHX_ exchange->scope->hash, PAGI_KEY(cx, SUBPROTOCOLS), newRV_noinc((SV *)list));
    HV *extensions = (HV *)SvRV(exchange->scope->slots[PAGI_SLOT_EXTENSIONS]);
    px_store(aTHX_ extensions, PAGI_KEY(cx, WEBSOCKET_HTTP_RESPONSE), newRV_inc((SV *)cx->no_data));
}

const pagi_kind pagi_websocket_kind = {
    .name = "websocket",
    .type = PAGI_KEY_WEBSOCKET,
    .scheme = PAGI_KEY_WS,
    .secure_scheme = PAGI_KEY_WSS,
    .extend = extend_scope,
    .sends = websocket_sends,
    .next = websocket_next,
    .want = websocket_want,
    .body = websocket_message,
    .closed = websocket_closed,
    .returned = websocket_returned,
    .entry = websocket_entry,
    .reset = websocket_reset,
    .behind = websocket_behind,
};
