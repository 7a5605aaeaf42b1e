/* exchange.c - one request of a PAGI application: the Perl values that it gets, its call, its end. */
#include "pagi/pagi.h"

/* ---- Handles: functions and objects for the application ---------------------------------------- */

/* The exchange behind the function that is running, which only PAGI's face makes. */
pagi_exchange *pagi_exchange_of_function(pTHX_ CV *function) {
    px_exchange *exchange = px_handle_exchange_here(aTHX_ (SV *)function);
    if (!exchange) croak("PAGI: this function belongs to another thread");
    return pagi_exchange_of(exchange);
}

/* The exchange behind a pagi.connection or pagi.transport object. */
pagi_exchange *pagi_exchange_of_object(pTHX_ SV *object) {
    px_exchange *exchange = SvROK(object) ? px_handle_exchange_here(aTHX_ SvRV(object)) : NULL;
    if (!exchange || exchange->mount->face->make != pagi_exchange_make)
        croak("PAGI: not an object of this server and thread");
    return pagi_exchange_of(exchange);
}

/* ---- Functions of the face --------------------------------------------------------------------- */

void pagi_exchange_make(pTHX_ px_exchange *base) {
    pagi_exchange *exchange = pagi_exchange_of(base);
    exchange->app = (pagi_app *)base->mount->application;
    exchange->receive = px_handle_function(aTHX_ base, pagi_xs_receive);
    exchange->send = px_handle_function(aTHX_ base, pagi_xs_send);
    exchange->transport = px_handle_object(aTHX_ base, exchange->app->cx->transport_stash);
}

/* Whether the handles can serve another request. Not if a destructor that ran while the exchange was cleared
 * has asked for a Future: no other request may get that. */
bool pagi_exchange_is_reusable(const px_exchange *base) {
    const pagi_exchange *exchange = (const pagi_exchange *)base;
    const pagi_context *cx = exchange->app->cx;
    const U32 references = exchange->scope ? 2 : 1; /* a scope that was kept refers to the objects */
    return !exchange->receiver && !exchange->disconnect_future &&
           px_handle_is_only_ours((const SV *)exchange->receive, NULL, 1) &&
           px_handle_is_only_ours((const SV *)exchange->send, NULL, 1) &&
           (!exchange->connection ||
            px_handle_is_only_ours(exchange->connection, cx->connection_stash, references)) &&
           px_handle_is_only_ours(exchange->transport, cx->transport_stash, references) &&
           (!exchange->app_ready || px_handle_is_only_ours((const SV *)exchange->app_ready, NULL, 1));
}

/* The object for `pagi.connection`; not all kinds of scope have one. */
SV *pagi_exchange_connection(pTHX_ pagi_exchange *exchange) {
    if (!exchange->connection)
        exchange->connection = px_handle_object(aTHX_ & exchange->base, exchange->app->cx->connection_stash);
    return exchange->connection;
}

/* Asserts the invariants that hold between two events. */
void pagi_exchange_invariants(const pagi_exchange *exchange) {
    PX_ASSERT(exchange->end != PAGI_END_COMPLETED || exchange->response == PAGI_RESPONSE_COMPLETE);
    PX_ASSERT(exchange->app_running || !exchange->app_future);
    PX_ASSERT(!exchange->receivers || exchange->receiver);
    PX_ASSERT(exchange->request != PAGI_REQUEST_DELIVERED || !exchange->trailers);
    PX_ASSERT(exchange->kind == &pagi_websocket_kind || !exchange->socket.queue);
    PX_ASSERT(exchange->kind == &pagi_sse_kind || exchange->stream.answer == PAGI_STREAM_UNDECIDED);
    PERL_UNUSED_VAR(exchange);
}

/* Sets the state of an exchange whose request begins. */
void pagi_exchange_open(pTHX_ pagi_exchange *exchange, const pagi_kind *kind) {
    exchange->kind = kind;
    exchange->app_running = false;
    exchange->blocks = false;
    exchange->late_told = false;
    exchange->body_told = false;
    exchange->last_told = false;
    exchange->in_vain = 0;
    exchange->app_closed = false;
    exchange->above = false;
    exchange->let_go = false;
    exchange->request = PAGI_REQUEST_MORE;
    exchange->response = PAGI_RESPONSE_NONE;
    exchange->end = PAGI_END_OPEN;
    exchange->reason = 0;
    Zero(&exchange->socket, 1, pagi_socket);
    Zero(&exchange->stream, 1, pagi_stream);
}

void pagi_exchange_clear(pTHX_ px_exchange *base) {
    pagi_exchange *exchange = pagi_exchange_of(base);
    px_clear(aTHX_ & exchange->body);
    px_clear(aTHX_ (SV **)&exchange->trailers);
    px_clear(aTHX_ & exchange->socket.close_reason);
    px_clear(aTHX_ (SV **)&exchange->socket.offered);
    px_clear(aTHX_ (SV **)&exchange->socket.queue);
    px_clear(aTHX_ & exchange->stream.close_reason);
    px_clear(aTHX_ & exchange->stream.comment);
    px_clear(aTHX_ & exchange->receiver);
    px_clear(aTHX_ (SV **)&exchange->receivers);
    px_clear(aTHX_ (SV **)&exchange->senders);
    px_clear(aTHX_ (SV **)&exchange->flushers);
    px_clear(aTHX_ (SV **)&exchange->feeders);
    px_clear(aTHX_ & exchange->app_future);
    px_clear(aTHX_ & exchange->opening);
    if (exchange->disconnect_future) px_future_abandon(aTHX_ base->worker->cx, exchange->disconnect_future);
    px_clear(aTHX_ & exchange->disconnect_future);
    px_clear(aTHX_ (SV **)&exchange->on_disconnect);
    px_clear(aTHX_ (SV **)&exchange->on_complete);
    px_clear(aTHX_ (SV **)&exchange->on_high_water);
    px_clear(aTHX_ (SV **)&exchange->on_drain);
}

void pagi_exchange_let_go(pTHX_ px_exchange *base) {
    pagi_exchange *exchange = pagi_exchange_of(base);
    SV *handles[] = {(SV *)exchange->receive, (SV *)exchange->send, (SV *)exchange->app_ready,
                     exchange->connection,
                     exchange->transport};
    pagi_scope_drop(aTHX_ exchange);
    exchange->receive = exchange->send = exchange->app_ready = NULL;
    exchange->connection = exchange->transport = NULL;
    for (size_t i = 0; i < C_ARRAY_LENGTH(handles); i++) SvREFCNT_dec(handles[i]);
}

/* ---- The application ------------------------------------------------------------------------- */

static void app_done(pTHX_ pagi_exchange *exchange, SV *failure) {
    px_worker *worker = exchange->base.worker;
    if (!exchange->app_running) return;
    exchange->app_running = false;
    px_trace(&exchange->base, failure ? PEREGRINE_TRACE_DIED : PEREGRINE_TRACE_RETURNED, 0, 0, "");
    exchange->kind->returned(aTHX_ exchange, failure);
    px_clear(aTHX_ & exchange->app_future);
    /* A callback that dies later is reported with its request. */
    if (!exchange->on_disconnect && !exchange->on_complete && !exchange->on_drain)
        px_exchange_forget_given(aTHX_ &exchange->base);
    worker->refs++;
    px_exchange_unhold(aTHX_ &exchange->base);
    px_worker_app_ended(aTHX_ worker);
    px_worker_release(aTHX_ worker);
}

static void wait_for_app(pTHX_ pagi_exchange *exchange, SV *future);

/* Handles the state of the application's Future. An application whose Future is done while a file is opened
 * for it ends when the file was sent. */
static void app_settled(pTHX_ pagi_exchange *exchange, px_future_state state, SV *failure) {
    if (!exchange->app_running) return; /* a Future of a class of the application's may call more than once */
    switch (state) {
    case PX_FUTURE_PENDING: return;
    case PX_FUTURE_DONE:
        failure = NULL;
        if (!pagi_file_is_opening(aTHX_ exchange)) break;
        px_clear(aTHX_ & exchange->app_future);
        wait_for_app(aTHX_ exchange, exchange->opening);
        return;
    case PX_FUTURE_FAILED: break;
    case PX_FUTURE_CANCELLED:
        failure = newSVpvs_flags("the application's Future was cancelled\n", SVs_TEMP);
        break;
    case PX_FUTURE_NONE:
        failure = newSVpvs_flags("the application did not return a Future\n", SVs_TEMP);
        break;
    }
    app_done(aTHX_ exchange, failure);
}

/* The function that the application's Future calls when it is ready. */
static XSPROTO(xs_app_ready) {
    dXSARGS;
    px_exchange *base = px_handle_exchange(aTHX_ (SV *)cv);
    if (!base) croak("PAGI: this function belongs to another thread");
    pagi_exchange *exchange = pagi_exchange_of(base);
    SV *failure = NULL;
    const px_future_state state = px_future_look(aTHX_ exchange->base.worker->cx,
                                                 items > 0 ? ST(0) : &PL_sv_undef, &failure);
    if (px_is_foreign(exchange->base.worker)) px_came_back(aTHX_ state == PX_FUTURE_FAILED ? failure : NULL);
    app_settled(aTHX_ exchange, state, failure);
    XSRETURN_EMPTY;
}

/* Fails an async sub of the application that a lost exception has left behind, so that the application ends
 * as by any exception; `exception` is the error that replaced the lost one. False: there is no such async
 * sub. See px_await_stalled. */
bool pagi_exchange_fail_stalled(pTHX_ px_exchange *base, SV *awaited, SV *exception) {
    pagi_exchange *exchange = pagi_exchange_of(base);
    SV *stalled = exchange->app_running && exchange->app_future
                  ? px_await_stalled(aTHX_ exchange->app_future, awaited)
                  : NULL;
    if (!stalled) return false;
    stalled = sv_mortalcopy(stalled);
    SV *function = sv_2mortal(newRV_inc((SV *)get_cv("PAGI::Server::Reports::_lost", GV_ADD)));
    SV *text = px_call(aTHX_ function, NULL, exception, NULL, NULL);
    SV *reason = text ? sv_2mortal(text) : newSVpvs_flags("an exception was lost", SVs_TEMP);
    SV *error = NULL;
    px_exchange_hold(base);
    SvREFCNT_dec(px_call(aTHX_ stalled, "fail", reason, newSVpvs_flags("pagi", SVs_TEMP), &error));
    if (error) px_exchange_tell(aTHX_ base, "_callback_died", error, "in a callback");
    px_exchange_unhold(aTHX_ base);
    return true;
}

/* Keeps a pending Future of the application and asks to be called when it settles. */
static void wait_for_app(pTHX_ pagi_exchange *exchange, SV *future) {
    SV *error = NULL;
    exchange->app_future = newSVsv(future);
    if (!exchange->app_ready) exchange->app_ready = px_handle_function(aTHX_ &exchange->base, xs_app_ready);
    SV *callback = sv_2mortal(newRV_inc((SV *)exchange->app_ready));
    if (px_await_on_ready(aTHX_ future, callback)) return;
    SV *result = px_call(aTHX_ future, "on_ready", callback, NULL, &error);
    if (!result) app_done(aTHX_ exchange, error);
    SvREFCNT_dec(result);
}

/* Whether the exchange can end unnoticed before the engine says so: the application is done, the engine has
 * the response, and no callback, Future or handle is left. Then its memory serves the next request of the
 * batch while it is still in the processor's cache. */
static bool unobserved(const pagi_exchange *exchange) {
    return !exchange->app_running && px_exchange_is_live(&exchange->base) && !exchange->base.named &&
           exchange->response == PAGI_RESPONSE_COMPLETE && exchange->end == PAGI_END_OPEN &&
           !exchange->senders && !exchange->flushers && !exchange->base.deferred && !exchange->feeders &&
           !exchange->on_complete && !exchange->on_disconnect && !exchange->on_high_water &&
           !exchange->on_drain && pagi_exchange_is_reusable(&exchange->base);
}

/* A mortal message about an application that has returned no Future. */
static SV *complaint_about(pTHX_ pagi_exchange *exchange, SV *returned) {
    SV *const server = exchange->base.worker->server;
    SV *text = server && returned
               ? px_call(aTHX_ sv_2mortal(newRV_inc(server)), "_no_future", returned, NULL, NULL)
               : NULL;
    return text ? sv_2mortal(text) : newSVpvs_flags("the application did not return a Future\n", SVs_TEMP);
}

/* Calls the application with its scope, $receive and $send, and looks at the Future that it returns. The
 * caller holds the exchange. */
void pagi_exchange_call_app(pTHX_ pagi_exchange *exchange, HV *scope) {
    px_worker *worker = exchange->base.worker;
    dSP;
    exchange->app_running = true;
    px_exchange_taken(&exchange->base);
    px_trace(&exchange->base, PEREGRINE_TRACE_CALL, 0, 0, "pagi");
    px_exchange_hold(&exchange->base); /* for the application */
    exchange->base.given = (HV *)SvREFCNT_inc_simple_NN((SV *)scope);
    ENTER;
    SAVETMPS;
    PUSHSTACKi(PERLSI_UNKNOWN); /* see px_call() */
    PUSHMARK(SP);
    EXTEND(SP, 3);
    PUSHs(sv_2mortal(newRV_inc((SV *)scope)));
    PUSHs(sv_2mortal(newRV_inc((SV *)exchange->receive)));
    PUSHs(sv_2mortal(newRV_inc((SV *)exchange->send)));
    PUTBACK;
    /* In list context, so that an `async sub` that ends without a value resolves to the empty list, which
     * costs less than undef. */
    const int count = call_sv(exchange->app->code, G_LIST | G_EVAL);
    SPAGAIN;
    SV *returned = count > 0 ? TOPs : NULL;
    SP -= count;
    PUTBACK;
    POPSTACK;
    const bool died = px_thrown(aTHX_ ERRSV);
    if (px_is_foreign(worker)) {
        SV *failure = died ? sv_mortalcopy(ERRSV) : NULL;
        if (!died) px_future_look(aTHX_ worker->cx, returned, &failure);
        px_came_back(aTHX_ failure);
    }
    if (died) {
        app_done(aTHX_ exchange, sv_mortalcopy(ERRSV));
    } else {
        SV *failure = NULL;
        const px_future_state state = px_future_look(aTHX_ worker->cx, returned, &failure);
        if (state == PX_FUTURE_PENDING) wait_for_app(aTHX_ exchange, sv_mortalcopy(returned));
        else if (state == PX_FUTURE_NONE) app_done(aTHX_ exchange, complaint_about(aTHX_ exchange, returned));
        else app_settled(aTHX_ exchange, state, failure);
    }
    FREETMPS;
    LEAVE;
    pagi_scope_settle(aTHX_ exchange, !exchange->app_running);
    if (!exchange->kind->keeps_scope) px_exchange_pack(aTHX_ &exchange->base);
    if (unobserved(exchange)) px_exchange_ticket_gone(aTHX_ &exchange->base);
    else px_exchange_name(&exchange->base);
}

/* ---- Ends ------------------------------------------------------------------------------------ */

/* Tells the server's log that a stream or WebSocket was quiet for too long, while the application is there
 * with its scope. */
static void report_idle(pTHX_ pagi_exchange *exchange) {
    px_exchange_tell(aTHX_ &exchange->base, "_idle_timeout", &PL_sv_undef, exchange->kind->name);
}

/* Resolves all Futures that wait for output, because output of the application goes nowhere from now on. */
static void release_waiting(pTHX_ pagi_exchange *exchange) {
    px_future_resolve_all(aTHX_ &exchange->base, &exchange->senders);
    px_future_resolve_all(aTHX_ &exchange->base, &exchange->flushers);
    px_future_resolve_all(aTHX_ &exchange->base, &exchange->base.deferred);
    px_future_resolve_all(aTHX_ &exchange->base, &exchange->feeders);
    pagi_receive_serve(aTHX_ exchange);
}

/* Ends a request before its response was delivered. Order of effects: PAGI::Spec::Www, State Transition
 * Order. */
void pagi_exchange_disconnect(pTHX_ pagi_exchange *exchange, uint32_t reason) {
    const bool told = pagi_exchange_is_left(exchange);
    if (!pagi_exchange_delivers(exchange)) return;
    px_exchange_hold(&exchange->base);
    exchange->end = PAGI_END_DISCONNECTED;
    pagi_channels_close(aTHX_ exchange);
    if (!told) exchange->reason = reason;
    px_clear(aTHX_ & exchange->body); /* no event will bring the body to the application */
    if (reason == PEREGRINE_IDLE_TIMEOUT) report_idle(aTHX_ exchange);
    if (!told) pagi_connection_disconnected(aTHX_ exchange);
    release_waiting(aTHX_ exchange);
    px_exchange_unhold(aTHX_ &exchange->base);
}

/* Notes that the peer has ended its side in the middle of the request. It may still read the response. */
void pagi_exchange_half_closed(pTHX_ pagi_exchange *exchange) {
    if (exchange->end != PAGI_END_OPEN) return;
    px_exchange_hold(&exchange->base);
    exchange->end = PAGI_END_HALF_CLOSED;
    exchange->reason = PEREGRINE_CLIENT_CLOSED;
    pagi_connection_disconnected(aTHX_ exchange);
    pagi_receive_serve(aTHX_ exchange);
    px_exchange_unhold(aTHX_ &exchange->base);
}

/* Ends a request whose response is complete and with the kernel. */
void pagi_exchange_complete(pTHX_ pagi_exchange *exchange) {
    if (exchange->end != PAGI_END_OPEN) {
        pagi_exchange_disconnect(aTHX_ exchange, exchange->reason);
        return;
    }
    px_exchange_hold(&exchange->base);
    exchange->end = PAGI_END_COMPLETED;
    pagi_connection_completed(aTHX_ exchange);
    release_waiting(aTHX_ exchange);
    px_exchange_unhold(aTHX_ &exchange->base);
}

/* Calls a handler that blocks. Returns a Future: a failed one if it died, the handler's own, or one that is
 * done. A stack of its own keeps a `last` within the handler, as in px_call. */
static SV *call_handler(pTHX_ px_worker *worker, SV *code, SV *scope, SV *receive, SV *send) {
    dSP;
    SV *failure = NULL;
    ENTER;
    SAVETMPS;
    PUSHSTACKi(PERLSI_UNKNOWN);
    PUSHMARK(SP);
    EXTEND(SP, 3);
    PUSHs(scope);
    PUSHs(receive);
    PUSHs(send);
    PUTBACK;
    const int count = call_sv(code, G_SCALAR | G_EVAL);
    SPAGAIN;
    SV *value = count > 0 ? POPs : &PL_sv_undef;
    PUTBACK;
    if (px_thrown(aTHX_ ERRSV)) {
        SV *class = newSVpvs_flags("Future", SVs_TEMP);
        value = px_call(aTHX_ class, "fail", sv_mortalcopy(ERRSV), NULL, NULL);
        /* Future.pm takes no exception object that is false */
        if (!value) value = px_call(aTHX_ class, "fail", newSVpvs_flags("died\n", SVs_TEMP), NULL, NULL);
    } else if (px_future_look(aTHX_ worker->cx, value, &failure) == PX_FUTURE_NONE) {
        value = px_future_done(aTHX_ worker, NULL);
    } else {
        value = newSVsv(value);
    }
    POPSTACK;
    FREETMPS;
    LEAVE;
    return value;
}

/* Handles a call of PAGI::Sync's handler: see _sync in pagi.xsi. */
SV *pagi_sync(pTHX_ pagi_exchange *exchange, SV *code, SV *scope, SV *receive, SV *send) {
    px_worker *worker = exchange->base.worker;
    if (exchange->app->sync == PAGI_SYNC_OVER && worker->is_one_of_several) {
        const bool live = px_exchange_pin(&exchange->base);
        const bool over = pagi_exchange_hand_over(aTHX_ exchange);
        px_exchange_unpin(aTHX_ &exchange->base, live);
        if (over) return px_future_done(aTHX_ worker, NULL);
    }
    exchange->blocks |= exchange->app->sync == PAGI_SYNC_HERE && SvROK(receive) &&
                        SvRV(receive) == (SV *)exchange->receive && SvROK(send) &&
                        SvRV(send) == (SV *)exchange->send;
    if (!exchange->blocks) return NULL;
    /* Only the functions of this exchange are replaced, so servers without sync handlers do not pay for the
     * wait. */
    if (exchange->receive) CvXSUB(exchange->receive) = pagi_xs_receive_sync;
    if (exchange->send) CvXSUB(exchange->send) = pagi_xs_send_sync;
    return call_handler(aTHX_ worker, code, scope, receive, send);
}

/* Leaves the request to an interpreter that may block. The request is over here, but no callback is told,
 * because nothing has ended for the client. False: it stays here, as $receive has given a part of its body,
 * or the engine refuses. */
bool pagi_exchange_hand_over(pTHX_ pagi_exchange *exchange) {
    px_worker *worker = exchange->base.worker;
    if (exchange->body_told) return false;
    if (!worker->engine || !px_exchange_is_live(&exchange->base)) return exchange->end != PAGI_END_OPEN;
    const int code = peregrine_hand_over(worker->engine, exchange->base.ticket);
    if (code == PEREGRINE_E_GONE) px_exchange_lost(&exchange->base);
    if (code != PEREGRINE_OK) return code == PEREGRINE_E_GONE;
    exchange->end = PAGI_END_DISCONNECTED;
    exchange->reason = PEREGRINE_SERVER_SHUTDOWN;
    pagi_channels_close(aTHX_ exchange);
    px_clear(aTHX_ (SV **)&exchange->on_disconnect);
    px_clear(aTHX_ (SV **)&exchange->on_complete);
    px_exchange_ticket_gone(aTHX_ &exchange->base);
    return true;
}
