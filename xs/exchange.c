/* exchange.c - the life of one request on the Perl side: who holds it, when its handles are used again, how it ends.
 *
 * An exchange is held by the engine's ticket, by its running application and by C frames that need it (`holds`), and it is pointed at by
 * Perl values that an application may keep for ever (`handles`). When the last hold goes and nobody but us has the Perl values, the whole
 * thing goes back to the pool with them: the next request costs no allocation for $receive, $send and the two objects in its scope. */
#include "peregrine_xs.h"

#define PX_POOL_MAX 1024

XS_EXTERNAL(px_xs_receive);
XS_EXTERNAL(px_xs_send);
XS_EXTERNAL(px_xs_app_ready);

/* ---- Handles: Perl values that point to an exchange ------------------------------------------------------------------------------ */

static void drop_handle(pTHX_ px_exchange *exchange) {
    exchange->handles--;
    if (exchange->handles == 0 && exchange->holds == 0 && !exchange->receive) px_exchange_free(aTHX_ exchange);
}

static int handle_free(pTHX_ SV *sv, MAGIC *mg) {
    px_exchange *exchange = (px_exchange *)mg->mg_ptr;
    PERL_UNUSED_ARG(sv);
    if (exchange) drop_handle(aTHX_ exchange);
    return 0;
}

/* A new thread's copy of a handle points nowhere: an exchange belongs to the thread of its worker. */
static int handle_dup(pTHX_ MAGIC *mg, CLONE_PARAMS *params) {
    PERL_UNUSED_CONTEXT;
    PERL_UNUSED_ARG(params);
    mg->mg_ptr = NULL;
    return 0;
}

static const MGVTBL handle_vtbl = {.svt_free = handle_free, .svt_dup = handle_dup};

static void make_handle(pTHX_ SV *sv, px_exchange *exchange) {
    MAGIC *mg = sv_magicext(sv, NULL, PERL_MAGIC_ext, &handle_vtbl, (const char *)exchange, 0);
    mg->mg_flags |= MGf_DUP;
    exchange->handles++;
}

static px_exchange *of_handle(pTHX_ SV *sv) {
    if (SvTYPE(sv) < SVt_PVMG) return NULL;
    const MAGIC *mg = mg_findext(sv, PERL_MAGIC_ext, &handle_vtbl);
    return mg ? (px_exchange *)mg->mg_ptr : NULL;
}

/* The exchange behind a handle; dies in another process. */
static px_exchange *of_this_process(pTHX_ px_exchange *exchange) {
    if (px_is_foreign(exchange->worker)) px_foreign(aTHX_ exchange->worker, "the request");
    return exchange;
}

/* The exchange behind $receive, $send or the callback on the application's Future. */
px_exchange *px_exchange_of_cv(pTHX_ CV *cv) {
    px_exchange *exchange = of_handle(aTHX_ (SV *)cv);
    if (!exchange) croak("PAGI: this function belongs to another thread");
    return of_this_process(aTHX_ exchange);
}

/* The exchange behind a pagi.connection or pagi.transport object. */
px_exchange *px_exchange_of_object(pTHX_ SV *object) {
    px_exchange *exchange = SvROK(object) ? of_handle(aTHX_ SvRV(object)) : NULL;
    if (!exchange) croak("PAGI: not an object of this server and thread");
    return of_this_process(aTHX_ exchange);
}

static CV *make_function(pTHX_ px_exchange *exchange, XSUBADDR_t function) {
    CV *cv = (CV *)newSV_type(SVt_PVCV);
    CvISXSUB_on(cv);
    CvANON_on(cv);
    CvXSUB(cv) = function;
    CvFILE(cv) = (char *)__FILE__;
    make_handle(aTHX_ (SV *)cv, exchange);
    return cv;
}

/* Returns a reference to a new object, which the reference owns. */
static SV *make_object(pTHX_ px_exchange *exchange, HV *stash) {
    SV *object = newSV_type(SVt_PVMG);
    SV *reference = newRV_noinc(object);
    make_handle(aTHX_ object, exchange);
    sv_bless(reference, stash);
    SvREFCNT_inc_simple_void_NN(object);
    SvREFCNT_dec_NN(reference);
    return object;
}

static bool only_ours(const SV *sv, const HV *stash, U32 references) {
    const MAGIC *mg = SvMAGIC(sv);
    return SvREFCNT(sv) == references && mg && mg->mg_virtual == &handle_vtbl && !mg->mg_moremagic && (!stash || SvSTASH(sv) == stash);
}

/* Whether nobody else could tell if the handles served another request: no reference, no weak reference, no magic of others. */
static bool recyclable(const px_exchange *exchange) {
    const px_context *cx = exchange->worker->cx;
    const U32 references = exchange->scope.hash ? 2 : 1; /* a scope that was kept refers to the objects */
    return only_ours((const SV *)exchange->receive, NULL, 1) && only_ours((const SV *)exchange->send, NULL, 1) &&
           (!exchange->connection || only_ours(exchange->connection, cx->connection_stash, references)) &&
           only_ours(exchange->transport, cx->transport_stash, references) &&
           (!exchange->app_ready || only_ours((const SV *)exchange->app_ready, NULL, 1));
}

/* ---- Opening, holding, letting go ---------------------------------------------------------------------------------------------- */

static px_exchange *take(pTHX_ px_worker *worker) {
    px_exchange *exchange = worker->pool;
    if (exchange) {
        worker->pool = exchange->next;
        worker->pool_count--;
        return exchange;
    }
    Newxz(exchange, 1, px_exchange);
    exchange->worker = worker;
    exchange->receive = make_function(aTHX_ exchange, px_xs_receive);
    exchange->send = make_function(aTHX_ exchange, px_xs_send);
    exchange->transport = make_object(aTHX_ exchange, worker->cx->transport_stash);
    return exchange;
}

/* The object for `pagi.connection`; not all kinds of scope have one. */
SV *px_exchange_connection(pTHX_ px_exchange *exchange) {
    if (!exchange->connection) exchange->connection = make_object(aTHX_ exchange, exchange->worker->cx->connection_stash);
    return exchange->connection;
}

/* A fresh exchange for a ticket, held once for it. */
px_exchange *px_exchange_open(pTHX_ px_worker *worker, const px_kind *kind, peregrine_ticket ticket) {
    px_exchange *exchange = take(aTHX_ worker);
    exchange->kind = kind;
    exchange->ticket = ticket;
    exchange->holds = 1;
    exchange->ticket_live = true;
    exchange->named = false;
    exchange->gone = false;
    exchange->app_running = false;
    exchange->reading = false;
    exchange->trailers_due = false;
    exchange->late_told = false;
    exchange->app_closed = false;
    exchange->above = false;
    exchange->let_go = false;
    exchange->request = PX_REQUEST_MORE;
    exchange->response = PX_RESPONSE_NONE;
    exchange->end = PX_END_OPEN;
    exchange->reason = 0;
    Zero(&exchange->socket, 1, px_socket);
    Zero(&exchange->stream, 1, px_stream);
    exchange->previous = NULL;
    exchange->next = worker->live;
    if (worker->live) worker->live->previous = exchange;
    worker->live = exchange;
    worker->refs++;
    return exchange;
}

static void clear(pTHX_ SV **slot) {
    SV *sv = *slot;
    *slot = NULL;
    SvREFCNT_dec(sv);
}

/* Drops what belongs to the finished request. Destructors may run Perl code, so each slot is emptied before its value goes. */
static void clear_request(pTHX_ px_exchange *exchange) {
    clear(aTHX_ & exchange->body);
    clear(aTHX_ (SV **)&exchange->trailers);
    clear(aTHX_ & exchange->socket.close_reason);
    clear(aTHX_ (SV **)&exchange->socket.offered);
    clear(aTHX_ (SV **)&exchange->socket.queue);
    clear(aTHX_ & exchange->stream.close_reason);
    clear(aTHX_ & exchange->stream.comment);
    clear(aTHX_ & exchange->receiver);
    clear(aTHX_ (SV **)&exchange->receivers);
    clear(aTHX_ (SV **)&exchange->senders);
    clear(aTHX_ (SV **)&exchange->flushers);
    clear(aTHX_ (SV **)&exchange->feeders);
    clear(aTHX_ & exchange->app_future);
    clear(aTHX_ (SV **)&exchange->app_scope);
    if (exchange->disconnect_future) px_future_abandon(aTHX_ exchange->worker->cx, exchange->disconnect_future);
    clear(aTHX_ & exchange->disconnect_future);
    clear(aTHX_ (SV **)&exchange->on_disconnect);
    clear(aTHX_ (SV **)&exchange->on_complete);
    clear(aTHX_ (SV **)&exchange->on_high_water);
    clear(aTHX_ (SV **)&exchange->on_drain);
}

/* Lets the handles go their own way; the exchange lives on while somebody keeps one of them. */
static void detach(pTHX_ px_exchange *exchange) {
    SV *handles[] = {(SV *)exchange->receive, (SV *)exchange->send, (SV *)exchange->app_ready, exchange->connection,
                     exchange->transport};
    px_scope_drop(aTHX_ & exchange->scope);
    exchange->holds++; /* until all are dropped, so that the last of them does not free what we look at */
    exchange->receive = exchange->send = exchange->app_ready = NULL;
    exchange->connection = exchange->transport = NULL;
    for (size_t i = 0; i < C_ARRAY_LENGTH(handles); i++) SvREFCNT_dec(handles[i]);
    exchange->holds--;
    if (exchange->handles == 0 && exchange->holds == 0) px_exchange_free(aTHX_ exchange);
}

static void retire(pTHX_ px_exchange *exchange) {
    px_worker *worker = exchange->worker;
    exchange->holds = 1; /* destructors below must not find it idle */
    clear_request(aTHX_ exchange);
    if (exchange->previous) exchange->previous->next = exchange->next;
    else worker->live = exchange->next;
    if (exchange->next) exchange->next->previous = exchange->previous;
    exchange->next = exchange->previous = NULL;
    exchange->holds = 0;
    if (worker->engine && worker->pool_count < PX_POOL_MAX && recyclable(exchange)) {
        exchange->next = worker->pool;
        worker->pool = exchange;
        worker->pool_count++;
        px_worker_release(aTHX_ worker);
        return;
    }
    detach(aTHX_ exchange);
}

/* Frees an exchange that no Perl value points to any more: at once, or when the batch is done whose events may still name it. */
void px_exchange_free(pTHX_ px_exchange *exchange) {
    px_worker *worker = exchange->worker;
    clear_request(aTHX_ exchange);
    if (worker->batch_left > 0) {
        exchange->next = worker->freed;
        worker->freed = exchange;
    } else {
        Safefree(exchange);
    }
    px_worker_release(aTHX_ worker);
}

/* Frees an exchange of the pool, which counts for nothing in its worker. */
void px_exchange_discard(pTHX_ px_exchange *exchange) {
    exchange->worker->refs++;
    detach(aTHX_ exchange);
}

void px_exchange_hold(px_exchange *exchange) {
    exchange->holds++;
}

void px_exchange_unhold(pTHX_ px_exchange *exchange) {
    if (--exchange->holds == 0) retire(aTHX_ exchange);
}

/* Keeps an exchange, which may be over already, while a function that was called on one of its handles runs Perl code: it is neither
 * freed nor does it serve another request. The result is for px_exchange_unpin(). */
bool px_exchange_pin(px_exchange *exchange) {
    const bool live = exchange->holds > 0;
    if (live) exchange->holds++;
    else exchange->handles++;
    return live;
}

void px_exchange_unpin(pTHX_ px_exchange *exchange, bool live) {
    if (live) px_exchange_unhold(aTHX_ exchange);
    else drop_handle(aTHX_ exchange);
}

/* ---- The application ------------------------------------------------------------------------------------------------------------ */

/* What a message about a request needs: [text, scope, number of the connection, number of the request in it]. A new reference. */
SV *px_exchange_context(pTHX_ px_exchange *exchange, const char *text) {
    AV *context = newAV();
    av_push(context, newSVpv(text, 0));
    av_push(context, exchange->app_scope ? newRV_inc((SV *)exchange->app_scope) : newSV(0));
    av_push(context, newSVuv(exchange->connection_number));
    av_push(context, newSVuv(exchange->request_number));
    return newRV_noinc((SV *)context);
}

/* Tells the Perl server of something that happened to a request. */
void px_exchange_tell(pTHX_ px_exchange *exchange, const char *method, SV *first, const char *text) {
    px_worker_tell(aTHX_ exchange->worker, method, first, sv_2mortal(px_exchange_context(aTHX_ exchange, text)));
}

static void app_done(pTHX_ px_exchange *exchange, SV *failure) {
    px_worker *worker = exchange->worker;
    if (!exchange->app_running) return;
    exchange->app_running = false;
    exchange->kind->returned(aTHX_ exchange, failure);
    clear(aTHX_ & exchange->app_future);
    /* A callback that dies later is reported with its request. */
    if (!exchange->on_disconnect && !exchange->on_complete && !exchange->on_drain) clear(aTHX_ (SV **)&exchange->app_scope);
    worker->refs++;
    px_exchange_unhold(aTHX_ exchange);
    px_worker_app_ended(aTHX_ worker);
    px_worker_release(aTHX_ worker);
}

/* The application's Future is in a final state, or is something that cannot be waited for. */
static void app_settled(pTHX_ px_exchange *exchange, px_future_state state, SV *failure) {
    switch (state) {
    case PX_FUTURE_PENDING: return;
    case PX_FUTURE_DONE: failure = NULL; break;
    case PX_FUTURE_FAILED: break;
    case PX_FUTURE_CANCELLED: failure = newSVpvs_flags("the application's Future was cancelled\n", SVs_TEMP); break;
    case PX_FUTURE_NONE: failure = newSVpvs_flags("the application did not return a Future\n", SVs_TEMP); break;
    }
    app_done(aTHX_ exchange, failure);
}

/* The callback on the application's Future, in `function`. */
void px_exchange_app_ready(pTHX_ CV *function, SV *future) {
    px_exchange *exchange = of_handle(aTHX_ (SV *)function);
    if (!exchange) exchange = px_exchange_of_cv(aTHX_ function); /* it dies */
    SV *failure = NULL;
    const px_future_state state = px_future_look(aTHX_ exchange->worker->cx, future, &failure);
    if (px_is_foreign(exchange->worker)) px_came_back(aTHX_ state == PX_FUTURE_FAILED ? failure : NULL);
    app_settled(aTHX_ exchange, state, failure);
}

/* Fails an async sub of the application that a lost exception has left behind, so that the application ends as by any exception; `exception` is
 * what the lost one died of. False: there is no such async sub. See px_await_stalled. */
bool px_exchange_fail_stalled(pTHX_ px_exchange *exchange, SV *awaited, SV *exception) {
    SV *stalled = exchange->app_running && exchange->app_future ? px_await_stalled(aTHX_ exchange->app_future, awaited) : NULL;
    if (!stalled) return false;
    stalled = sv_mortalcopy(stalled);
    SV *function = sv_2mortal(newRV_inc((SV *)get_cv("PAGI::Server::Reports::_lost", GV_ADD)));
    SV *text = px_call(aTHX_ function, NULL, exception, NULL, NULL);
    SV *reason = text ? sv_2mortal(text) : newSVpvs_flags("an exception was lost", SVs_TEMP);
    SV *error = NULL;
    px_exchange_hold(exchange);
    SvREFCNT_dec(px_call(aTHX_ stalled, "fail", reason, newSVpvs_flags("pagi", SVs_TEMP), &error));
    if (error) px_exchange_tell(aTHX_ exchange, "_callback_died", error, "in a callback");
    px_exchange_unhold(aTHX_ exchange);
    return true;
}

/* Keeps a pending Future of the application and asks to be called when it settles. */
static void wait_for_app(pTHX_ px_exchange *exchange, SV *future) {
    SV *error = NULL;
    exchange->app_future = newSVsv(future);
    if (!exchange->app_ready) exchange->app_ready = make_function(aTHX_ exchange, px_xs_app_ready);
    SV *callback = sv_2mortal(newRV_inc((SV *)exchange->app_ready));
    SV *result = px_call(aTHX_ future, "on_ready", callback, NULL, &error);
    if (!result) app_done(aTHX_ exchange, error);
    SvREFCNT_dec(result);
}

/* Whether nobody could tell if the exchange ended now: the application is done, the response is with the engine, and nobody waits for
 * anything or keeps a handle. Then its parts serve the next request of the batch while they are still in the processor's cache. */
static bool unobserved(const px_exchange *exchange) {
    return !exchange->app_running && exchange->ticket_live && !exchange->named && exchange->response == PX_RESPONSE_COMPLETE &&
           exchange->end == PX_END_OPEN && !exchange->senders && !exchange->flushers && !exchange->feeders &&
           !exchange->receiver && !exchange->disconnect_future && !exchange->on_complete && !exchange->on_disconnect && !exchange->on_high_water &&
           !exchange->on_drain && recyclable(exchange);
}

/* What is wrong with an application that returned something else than a Future, in words: a mortal. */
static SV *complaint_about(pTHX_ px_exchange *exchange, SV *returned) {
    SV *const server = exchange->worker->server;
    SV *text = server && returned ? px_call(aTHX_ sv_2mortal(newRV_inc(server)), "_no_future", returned, NULL, NULL) : NULL;
    return text ? sv_2mortal(text) : newSVpvs_flags("the application did not return a Future\n", SVs_TEMP);
}

/* Calls the application with its scope, $receive and $send, and looks at the Future that it returns. The caller holds the exchange. */
void px_exchange_call_app(pTHX_ px_exchange *exchange, HV *scope) {
    px_worker *worker = exchange->worker;
    dSP;
    exchange->app_running = true;
    px_exchange_hold(exchange); /* for the application */
    exchange->app_scope = (HV *)SvREFCNT_inc_simple_NN((SV *)scope);
    ENTER;
    SAVETMPS;
    PUSHMARK(SP);
    EXTEND(SP, 3);
    PUSHs(sv_2mortal(newRV_inc((SV *)scope)));
    PUSHs(sv_2mortal(newRV_inc((SV *)exchange->receive)));
    PUSHs(sv_2mortal(newRV_inc((SV *)exchange->send)));
    PUTBACK;
    /* In list context, so that an `async sub` that ends without a value resolves to the empty list, which costs less than undef. */
    const int count = call_sv(worker->app, G_LIST | G_EVAL);
    SPAGAIN;
    SV *returned = count > 0 ? TOPs : NULL;
    SP -= count;
    PUTBACK;
    const bool died = px_thrown(aTHX_ ERRSV);
    if (px_is_foreign(worker)) px_came_back(aTHX_ died ? sv_mortalcopy(ERRSV) : NULL);
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
    px_scope_settle(aTHX_ exchange, !exchange->app_running);
    if (unobserved(exchange)) px_exchange_ticket_gone(aTHX_ exchange);
    else px_exchange_name(exchange);
}

/* What the check of the server says against an event: a failed Future, or NULL. */
static SV *refusal_of_check(pTHX_ px_worker *worker, HV *event) {
    SV *error = NULL;
    SV *problem = px_call(aTHX_ worker->check, NULL, sv_2mortal(newRV_inc((SV *)event)), NULL, &error);
    if (!problem) return px_future_invalid(aTHX_ worker, "$send: the check of the event died: %" SVf, SVfARG(error));
    sv_2mortal(problem);
    return SvOK(problem) ? px_future_invalid(aTHX_ worker, "%" SVf, SVfARG(problem)) : NULL;
}

/* A type that the scope does not know: a failed Future, which suggests the nearest one. */
static SV *unknown_type(pTHX_ px_exchange *exchange, SV *type) {
    AV *types = newAV();
    SV *list = sv_2mortal(newRV_noinc((SV *)types));
    for (const px_send_event *known = exchange->kind->sends; known->type; known++)
        av_push(types, newSVpvn(known->type, known->type_len));
    SV *function = sv_2mortal(newRV_inc((SV *)get_cv("PAGI::Server::Reports::_nearest_type", GV_ADD)));
    SV *hint = px_call(aTHX_ function, NULL, type, list, NULL);
    return px_future_invalid(aTHX_ exchange->worker, "$send: unknown event type '%" SVf "' in a scope of type %s%" SVf,
                             SVfARG(px_event_shown(aTHX_ type)), exchange->kind->name, SVfARG(hint ? sv_2mortal(hint) : &PL_sv_no));
}

/* Finds the handler of an event's type and runs it. */
static SV *send_event(pTHX_ px_exchange *exchange, HV *event) {
    px_worker *worker = exchange->worker;
    SV *type = px_fetch(aTHX_ event, PX_KEY(worker->cx, TYPE));
    if (!type || SvROK(type)) return px_future_invalid(aTHX_ worker, "$send: the event has no type (a string is required)");
    STRLEN len;
    const char *text = SvPV_const(type, len);
    for (const px_send_event *known = exchange->kind->sends; known->type; known++) {
        if (known->type_len != len || memcmp(known->type, text, len) != 0) continue;
        SV *refusal = worker->check ? refusal_of_check(aTHX_ worker, event) : NULL;
        return refusal ? refusal : known->send(aTHX_ exchange, event);
    }
    return unknown_type(aTHX_ exchange, type);
}

/* Whether an event does nothing because the peer is gone. An application that closed before that knows better than to send. */
static bool is_in_vain(const px_exchange *exchange) {
    return exchange->end == PX_END_DISCONNECTED && !exchange->app_closed;
}

/* Reads an event, which may run Perl code, and hands it to its handler. */
static SV *take_event(pTHX_ px_exchange *exchange, SV *event) {
    SV *failed = NULL;
    HV *plain = px_plain_event(aTHX_ exchange->worker, event, &failed);
    if (!plain) return failed;
    if (is_in_vain(exchange)) return px_future_done(aTHX_ exchange->worker, NULL);
    return send_event(aTHX_ exchange, plain);
}

/* $send: a new reference to a Future. Once the peer is gone nothing is done, not even read; and an application that races the end of its
 * peer is told of nothing that it does wrong after that. */
SV *px_exchange_send(pTHX_ px_exchange *exchange, SV *event) {
    px_worker *worker = exchange->worker;
    if (is_in_vain(exchange)) return px_future_done(aTHX_ worker, NULL);
    const bool live = px_exchange_pin(exchange);
    SV *future = take_event(aTHX_ exchange, event);
    SV *failure = NULL;
    if (px_exchange_is_left(exchange) && !exchange->app_closed && px_future_look(aTHX_ worker->cx, future, &failure) == PX_FUTURE_FAILED) {
        SvREFCNT_dec_NN(future);
        future = px_future_done(aTHX_ worker, NULL);
    }
    px_exchange_unpin(aTHX_ exchange, live);
    return future;
}

/* ---- Ends ------------------------------------------------------------------------------------------------------------------------ */

/* The engine will name this exchange no more. */
void px_exchange_ticket_gone(pTHX_ px_exchange *exchange) {
    if (!exchange->ticket_live) return;
    exchange->ticket_live = false;
    if (exchange->gone && !exchange->named) exchange->worker->lost--;
    exchange->reading = false;
    px_exchange_unhold(aTHX_ exchange);
}

/* Makes the engine's events about the ticket bring the exchange along. Most requests are over before they need that. */
void px_exchange_name(px_exchange *exchange) {
    if (exchange->named || exchange->gone || !exchange->ticket_live || !exchange->worker->engine) return;
    if (peregrine_set_user(exchange->worker->engine, exchange->ticket, exchange) == PEREGRINE_E_GONE) px_exchange_lost(exchange);
    else exchange->named = true;
}

/* The engine does not know the ticket any more: an event that tells why is in this batch or will be in the next one. */
void px_exchange_lost(px_exchange *exchange) {
    if (exchange->gone || !exchange->ticket_live) return;
    exchange->gone = true;
    if (!exchange->named) exchange->worker->lost++;
}

/* A stream or WebSocket was quiet for too long: that is worth a line in the log, as long as the application is there with its scope. */
static void report_idle(pTHX_ px_exchange *exchange) {
    px_exchange_tell(aTHX_ exchange, "_idle_timeout", &PL_sv_undef, exchange->kind->name);
}

/* Nothing that the application sends goes out any more: those who wait for that go on. */
static void release_waiting(pTHX_ px_exchange *exchange) {
    px_worker *worker = exchange->worker;
    px_future_resolve_all(aTHX_ exchange, &exchange->senders);
    px_future_resolve_all(aTHX_ exchange, &exchange->flushers);
    px_future_resolve_all(aTHX_ exchange, &exchange->feeders);
    px_receive_serve(aTHX_ exchange);
}

/* The request ended before its response was delivered. Order of effects: PAGI::Spec::Www, State Transition Order. */
void px_exchange_disconnect(pTHX_ px_exchange *exchange, uint32_t reason) {
    const bool told = px_exchange_is_left(exchange);
    if (!px_exchange_delivers(exchange)) return;
    px_exchange_hold(exchange);
    exchange->end = PX_END_DISCONNECTED;
    if (!told) exchange->reason = reason;
    if (reason == PEREGRINE_IDLE_TIMEOUT) report_idle(aTHX_ exchange);
    if (!told) px_connection_disconnected(aTHX_ exchange);
    release_waiting(aTHX_ exchange);
    px_exchange_unhold(aTHX_ exchange);
}

/* The peer has ended its side in the middle of the request. Whether it still reads nobody can tell. */
void px_exchange_half_closed(pTHX_ px_exchange *exchange) {
    if (exchange->end != PX_END_OPEN) return;
    px_exchange_hold(exchange);
    exchange->end = PX_END_HALF_CLOSED;
    exchange->reason = PEREGRINE_CLIENT_CLOSED;
    px_connection_disconnected(aTHX_ exchange);
    px_receive_serve(aTHX_ exchange);
    px_exchange_unhold(aTHX_ exchange);
}

/* The response is complete and with the kernel. */
void px_exchange_complete(pTHX_ px_exchange *exchange) {
    if (exchange->end != PX_END_OPEN) {
        px_exchange_disconnect(aTHX_ exchange, exchange->reason);
        return;
    }
    px_exchange_hold(exchange);
    exchange->end = PX_END_COMPLETED;
    px_connection_completed(aTHX_ exchange);
    release_waiting(aTHX_ exchange);
    px_exchange_unhold(aTHX_ exchange);
}
