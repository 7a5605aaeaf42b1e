/* face.c - PAGI's face: functions that the bridge calls for requests of an application that is an `async sub
 * ($scope, $receive, $send)`. */
#include "pagi/pagi.h"

/* ---- The application ------------------------------------------------------------------------- */

/* A hash that is optional, borrowed. */
static HV *hash_setting(pTHX_ HV *settings, const char *name) {
    SV *value = px_setting(aTHX_ settings, name);
    if (!value) return NULL;
    if (!SvROK(value) || SvTYPE(SvRV(value)) != SVt_PVHV)
        croak("Peregrine::Worker: %s must be a hash reference", name);
    return (HV *)SvRV(value);
}

/* The Peregrine::NodeHandle that a Peregrine::Node keeps: a new reference. */
static SV *handle_of(pTHX_ SV *node) {
    SV *handle = SvROK(node) ? px_call(aTHX_ node, "handle", NULL, NULL, NULL) : NULL;
    if (!handle) croak("Peregrine::Worker: channels must be a Peregrine::Node");
    (void)pagi_node_of(aTHX_ handle);
    return handle;
}

/* Settings: app, path, root_path, host, server, loop, state, extensions, check, error_page, reads_files,
 * channels (a Peregrine::Node), pool (a PAGI::Server::WorkerPool), worker_state, sync (where handlers that
 * block run: `over` or `here`), passes_on (all requests are for such a handler). Dies, with nothing changed,
 * if a setting is wrong. */
void pagi_attach(pTHX_ px_worker *worker, HV *settings) {
    SV *code = px_setting(aTHX_ settings, "app");
    SV *server = px_setting(aTHX_ settings, "server");
    SV *check = px_setting(aTHX_ settings, "check");
    SV *error_page = px_setting(aTHX_ settings, "error_page");
    SV *reads_files = px_setting(aTHX_ settings, "reads_files");
    SV *channels = px_setting(aTHX_ settings, "channels");
    SV *pool = px_setting(aTHX_ settings, "pool");
    SV *worker_state = pool ? px_setting(aTHX_ settings, "worker_state") : NULL;
    HV *state = hash_setting(aTHX_ settings, "state");
    HV *extensions = hash_setting(aTHX_ settings, "extensions");
    if (!code || !SvROK(code) || SvTYPE(SvRV(code)) != SVt_PVCV)
        croak("Peregrine::Worker: app must be a code reference");
    if (!server || !SvROK(server)) croak("Peregrine::Worker: server must be an object");
    SV *node_handle = channels ? sv_2mortal(handle_of(aTHX_ channels)) : NULL;
    const int route = px_worker_route(aTHX_ worker, settings, 0);
    pagi_app *app;
    Newxz(app, 1, pagi_app);
    app->worker = worker;
    app->cx = pagi_context_get(aTHX);
    app->code = newSVsv(code);
    app->state = (HV *)SvREFCNT_inc((SV *)state);
    app->extensions = (HV *)SvREFCNT_inc((SV *)extensions);
    app->pool = pool ? newSVsv(pool) : NULL;
    SV *sync = px_setting(aTHX_ settings, "sync");
    if (sync) app->sync = strEQ(SvPV_nolen_const(sync), "here") ? PAGI_SYNC_HERE : PAGI_SYNC_OVER;
    app->worker_state = worker_state ? newSVsv(worker_state) : NULL;
    app->check = check ? newSVsv(check) : NULL;
    app->error_page = error_page ? newSVsv(error_page) : NULL;
    app->reads_files = reads_files && SvTRUE(reads_files);
    if (channels) {
        app->node = pagi_node_of(aTHX_ node_handle);
        app->node_object = newSVsv(channels);
        app->topics = pagi_topics_new(aTHX_ app);
    }
    px_worker_attach(aTHX_ worker, route, channels ? &pagi_channels_face : &pagi_face, app, settings);
}

static void drop_application(pTHX_ void *application) {
    pagi_app *app = (pagi_app *)application;
    SV *owned[] = {app->code, (SV *)app->state, (SV *)app->extensions, app->check, app->error_page,
                   (SV *)app->local_folders, app->node_object, app->topics, app->pool, app->worker_state};
    for (size_t i = 0; i < C_ARRAY_LENGTH(owned); i++) SvREFCNT_dec(owned[i]);
    pagi_tls_forget(aTHX_ app);
    Safefree(app);
}

static size_t limit(const px_worker *worker, const char *name) {
    int64_t value = 0;
    (void)peregrine_worker_get(worker->engine, name, &value);
    return (size_t)value;
}

static void read_limits(const px_worker *worker, void *application) {
    pagi_app *app = (pagi_app *)application;
    app->queue_messages_max = limit(worker, "queue_messages_max");
    app->queue_bytes_max = limit(worker, "queue_bytes_max");
    app->high_water = limit(worker, "write_high_bytes");
    app->low_water = limit(worker, "write_low_bytes");
    app->stream_idle_ms = (uint32_t)limit(worker, "stream_idle_ms");
}

/* ---- Events of the engine -------------------------------------------------------------------- */

static const pagi_kind *kind_of(const peregrine_event *event) {
    if (event->flags & PEREGRINE_HANDSHAKE) return &pagi_websocket_kind;
    return event->flags & PEREGRINE_EVENT_STREAM ? &pagi_sse_kind : &pagi_http_kind;
}

static bool is_head(const peregrine_request *request) {
    return request->method.len == 4 && memcmp(request->text + request->method.at, "HEAD", 4) == 0;
}

/* Opens an exchange for a request and builds its scope. */
static inline HV *open_request(pTHX_ pagi_exchange *exchange, const peregrine_event *event) {
    pagi_exchange_open(aTHX_ exchange, kind_of(event));
    if (event->len) exchange->body = newSVpvn(event->bytes, event->len);
    if (event->flags & PEREGRINE_LAST) exchange->request = PAGI_REQUEST_LAST;
    exchange->head_only = is_head(event->request);
    return pagi_scope_build(aTHX_ exchange, event->request);
}

static void take_request(pTHX_ px_exchange *base, const peregrine_event *event) {
    pagi_exchange *exchange = pagi_exchange_of(base);
    HV *scope = open_request(aTHX_ exchange, event);
    pagi_exchange_call_app(aTHX_ exchange, scope);
    pagi_exchange_invariants(exchange);
}

/* Like take_request, for an application with channels. */
static void take_request_with_channel(pTHX_ px_exchange *base, const peregrine_event *event) {
    pagi_exchange *exchange = pagi_exchange_of(base);
    HV *scope = open_request(aTHX_ exchange, event);
    pagi_channels_open(aTHX_ exchange, scope);
    pagi_exchange_call_app(aTHX_ exchange, scope);
    pagi_exchange_invariants(exchange);
}

static void clear_with_channel(pTHX_ px_exchange *base) {
    pagi_channels_close(aTHX_ pagi_exchange_of(base));
    pagi_exchange_clear(aTHX_ base);
}

static void take_event(pTHX_ px_exchange *base, const peregrine_event *event) {
    pagi_exchange *exchange = pagi_exchange_of(base);
    const uint32_t code = event->code;
    switch (event->kind) {
    case PEREGRINE_BODY:
    case PEREGRINE_MESSAGE: exchange->kind->body(aTHX_ exchange, event); break;
    case PEREGRINE_CLOSED: exchange->kind->closed(aTHX_ exchange, event); break;
    case PEREGRINE_DRAINED:
        pagi_transport_drained(aTHX_ exchange);
        px_future_resolve_all(aTHX_ base, &exchange->senders);
        if (exchange->mailbox) pagi_topics_pump(aTHX_ exchange);
        break;
    case PEREGRINE_FLUSHED: px_future_resolve_all(aTHX_ base, &exchange->flushers); break;
    case PEREGRINE_FINISHED:
        pagi_exchange_complete(aTHX_ exchange);
        px_exchange_ticket_gone(aTHX_ base);
        break;
    case PEREGRINE_ABORTED:
        /* A peer that has gone is no failure of `$send`; a file that ended early or cannot be read is one. */
        if (code == PEREGRINE_SERVER_ERROR && !pagi_exchange_is_left(exchange))
            px_future_fail_all(aTHX_ base, &exchange->senders,
                               "the response could not be sent to its end; the server's log says why");
        if (px_is_silence(code) && (exchange->request == PAGI_REQUEST_LAST ||
                                    exchange->request == PAGI_REQUEST_DELIVERED))
            px_note_unanswered(base);
        pagi_exchange_disconnect(aTHX_ exchange, code);
        px_exchange_ticket_gone(aTHX_ base);
        break;
    case PEREGRINE_HALF_CLOSED: pagi_exchange_half_closed(aTHX_ exchange); break;
    default: break;
    }
    pagi_exchange_invariants(exchange);
}

/* Like take_event, for an application with channels. */
static void take_event_with_channel(pTHX_ px_exchange *base, const peregrine_event *event) {
    if (event->kind == PEREGRINE_TOPIC) {
        pagi_topics_told(aTHX_ pagi_exchange_of(base), event);
        return;
    }
    if (event->kind == PEREGRINE_FINISHED) pagi_topics_release(aTHX_ pagi_exchange_of(base));
    take_event(aTHX_ base, event);
}

/* ---- The end of the server ------------------------------------------------------------------- */

static void cut(pTHX_ px_exchange *base) {
    pagi_exchange_disconnect(aTHX_ pagi_exchange_of(base), PEREGRINE_SERVER_SHUTDOWN);
}

static void shut_down(pTHX_ px_exchange *base) {
    pagi_exchange *exchange = pagi_exchange_of(base);
    if (exchange->kind->shut_down) exchange->kind->shut_down(aTHX_ exchange);
}

/* An exchange whose client has left does not count: the application might never end it. */
static px_app_state app_state(const px_exchange *base) {
    const pagi_exchange *exchange = (const pagi_exchange *)base;
    if (!exchange->app_running) return PX_APP_OVER;
    if (exchange->end != PAGI_END_DISCONNECTED) return PX_APP_BUSY;
    return exchange->reason == PEREGRINE_SERVER_SHUTDOWN ? PX_APP_LEAVING : PX_APP_OVER;
}

/* Waiting: in $receive, for output that has to move, or with an accepted WebSocket or event stream. */
static bool is_parked(const px_exchange *base) {
    const pagi_exchange *exchange = (const pagi_exchange *)base;
    return exchange->receiver || exchange->senders || exchange->flushers || exchange->feeders ||
           exchange->socket.state == PAGI_SOCKET_OPEN || exchange->socket.state == PAGI_SOCKET_CLOSING ||
           exchange->stream.answer == PAGI_STREAM_CHOSEN;
}

static bool is_unanswered(const px_exchange *base) {
    const pagi_exchange *exchange = (const pagi_exchange *)base;
    return pagi_exchange_delivers(exchange) && exchange->response != PAGI_RESPONSE_COMPLETE;
}

/* Two tables, so that requests of applications without channels cost no check for a channel. */
#define PAGI_FACE(take, hear, forget)            \
    {                                            \
        .exchange_size = sizeof(pagi_exchange),  \
        .drop_application = drop_application,    \
        .limits = read_limits,                   \
        .request = take,                         \
        .event = hear,                           \
        .cut = cut,                              \
        .shut_down = shut_down,                  \
        .app_state = app_state,                  \
        .is_parked = is_parked,                  \
        .is_unanswered = is_unanswered,          \
        .fail_stalled = pagi_exchange_fail_stalled, \
        .make = pagi_exchange_make,              \
        .clear = forget,                         \
        .is_reusable = pagi_exchange_is_reusable, \
        .let_go = pagi_exchange_let_go,          \
    }

const px_face pagi_face = PAGI_FACE(take_request, take_event, pagi_exchange_clear);
const px_face pagi_channels_face =
    PAGI_FACE(take_request_with_channel, take_event_with_channel, clear_with_channel);
