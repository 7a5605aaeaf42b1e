/* exchange.c - one request of a PSGI application: its call, its failures, and work after its response. */
#include "psgi/psgi.h"

/* ---- Handles: functions and objects for the application ---------------------------------------- */

/* The exchange behind the function that is running, which only PSGI's face makes. */
psgi_exchange *psgi_exchange_of_function(pTHX_ CV *function) {
    px_exchange *exchange = px_handle_exchange_here(aTHX_ (SV *)function);
    if (!exchange) croak("PSGI: this function belongs to another thread");
    return psgi_exchange_of(exchange);
}

/* The exchange behind a writer. */
psgi_exchange *psgi_exchange_of_object(pTHX_ SV *object) {
    px_exchange *exchange = SvROK(object) ? px_handle_exchange_here(aTHX_ SvRV(object)) : NULL;
    if (!exchange || exchange->mount->face != &psgi_face)
        croak("PSGI: not an object of this server and thread");
    return psgi_exchange_of(exchange);
}

/* ---- Functions of the face --------------------------------------------------------------------- */

void psgi_exchange_make(pTHX_ px_exchange *base) {
    psgi_exchange *exchange = psgi_exchange_of(base);
    exchange->app = (psgi_app *)base->mount->application;
    exchange->informational = px_handle_function(aTHX_ base, psgi_xs_inform);
    exchange->disconnected = px_handle_function(aTHX_ base, psgi_xs_disconnected);
    exchange->cleanup = newAV();
}

/* Whether the handles can serve another request: the two functions, of which only the exchange and its
 * environment have had references, and the list of cleanup handlers, which must be empty. */
bool psgi_exchange_is_reusable(const px_exchange *base) {
    const psgi_exchange *exchange = (const psgi_exchange *)base;
    const AV *list = exchange->cleanup;
    return base->handles == 2 && px_handle_is_only_ours((const SV *)exchange->informational, NULL, 2) &&
           px_handle_is_only_ours((const SV *)exchange->disconnected, NULL, 2) && SvREFCNT(list) == 2 &&
           AvFILLp(list) < 0 && !SvMAGICAL(list) && !SvOBJECT(list) &&
           psgi_kept_refers_to(exchange, PSGI_KEPT_INFORMATIONAL, exchange->informational) &&
           psgi_kept_refers_to(exchange, PSGI_KEPT_DISCONNECTED, exchange->disconnected) &&
           psgi_kept_refers_to(exchange, PSGI_KEPT_CLEANUP_HANDLERS, list);
}

/* Asserts the invariants that hold between two events. */
void psgi_exchange_invariants(const psgi_exchange *exchange) {
    PX_ASSERT(!exchange->poll || exchange->writer);
    PX_ASSERT(!psgi_is_over(exchange) || (!exchange->source && !psgi_spool_is_open(exchange)));
    PX_ASSERT(!psgi_is_over(exchange) || !px_exchange_is_live(&exchange->base));
    PX_ASSERT(exchange->spool.sent <= exchange->spool.size || !psgi_spool_is_open(exchange));
    PX_ASSERT(exchange->framing != PSGI_CHUNKED || !exchange->chunks.held_len);
    PERL_UNUSED_VAR(exchange);
}

/* Sets the state of an exchange whose request begins. */
void psgi_exchange_open(psgi_exchange *exchange) {
    exchange->state = PSGI_CALLED;
    exchange->responds = false;
    exchange->drains = false;
    exchange->has_io = false;
    exchange->delayed = PSGI_NOT_DELAYED;
    exchange->framing = PSGI_PLAIN;
    exchange->spool = (psgi_spool){.state = PSGI_SPOOL_NONE};
}

void psgi_exchange_clear(pTHX_ px_exchange *base) {
    psgi_exchange *exchange = psgi_exchange_of(base);
    px_clear(aTHX_ & exchange->held);
    px_clear(aTHX_ & exchange->source);
    px_clear(aTHX_ & exchange->poll);
    px_clear(aTHX_ & exchange->writer);
    psgi_env_settle(aTHX_ exchange);
}

void psgi_exchange_let_go(pTHX_ px_exchange *base) {
    psgi_exchange *exchange = psgi_exchange_of(base);
    psgi_env_drop(aTHX_ exchange);
    for (int i = 0; i < PSGI_KEPT_COUNT; i++) px_clear(aTHX_ & exchange->kept[i]);
    px_clear(aTHX_ (SV **)&exchange->cleanup);
    px_clear(aTHX_ (SV **)&exchange->informational);
    px_clear(aTHX_ (SV **)&exchange->disconnected);
}

/* Calls a function of Plack::Handler::Peregrine::Values, guarded. */
SV *psgi_call_values(pTHX_ const char *function, SV *first, SV *second, SV **error) {
    char name[64];
    my_snprintf(name, sizeof(name), "Plack::Handler::Peregrine::Values::%s", function);
    SV *code = sv_2mortal(newRV_inc((SV *)get_cv(name, GV_ADD)));
    return px_call(aTHX_ code, NULL, first, second, error);
}

/* ---- The application ------------------------------------------------------------------------- */

static bool is_code(const SV *value) {
    return SvROK(value) && SvTYPE(SvRV(value)) == SVt_PVCV;
}

/* Whether a return value, undef or an empty list, is from an application that answered on psgix.io. */
static bool is_nothing(pTHX_ SV *value) {
    if (!SvOK(value)) return true;
    return SvROK(value) && SvTYPE(SvRV(value)) == SVt_PVAV && !SvOBJECT(SvRV(value)) &&
           av_count((AV *)SvRV(value)) == 0;
}

/* The application's return value, a mortal; NULL: it died, and *error has the exception. Differs from
 * px_call() in two points: $@ need not be saved, because the dispatch has saved it, and temporary values live
 * as long as the request. */
static SV *value_of_app(pTHX_ psgi_exchange *exchange, SV **error) {
    dSP;
    PUSHSTACKi(PERLSI_UNKNOWN);
    PUSHMARK(SP);
    EXTEND(SP, 1);
    PUSHs(sv_2mortal(newRV_inc((SV *)exchange->base.given)));
    PUTBACK;
    const int count = call_sv(exchange->app->code, G_SCALAR | G_EVAL);
    SPAGAIN;
    SV *value = count > 0 ? POPs : &PL_sv_undef;
    PUTBACK;
    POPSTACK;
    if (px_thrown(aTHX_ ERRSV)) {
        value = NULL;
        *error = sv_mortalcopy(ERRSV);
    }
    if (px_is_foreign(exchange->base.worker)) px_came_back(aTHX_ *error);
    /* A function in C may return a value that another scalar owns. */
    return !value || SvTEMP(value) ? value : sv_mortalcopy(value);
}

void psgi_exchange_call_app(pTHX_ psgi_exchange *exchange) {
    SV *error = NULL;
    px_exchange_taken(&exchange->base);
    px_trace(&exchange->base, PEREGRINE_TRACE_CALL, 0, 0, "psgi");
    SV *response = value_of_app(aTHX_ exchange, &error);
    px_trace(&exchange->base, response ? PEREGRINE_TRACE_RETURNED : PEREGRINE_TRACE_DIED, 0, 0, "");
    if (!response) {
        psgi_exchange_fail(aTHX_ exchange, error, "before its response");
        return;
    }
    if (is_code(response)) {
        psgi_delayed_call(aTHX_ exchange, response);
        return;
    }
    if (exchange->responds) return;
    if (exchange->has_io && psgi_delivers(exchange) && is_nothing(aTHX_ response)) {
        px_turn_wait(aTHX_ & exchange->base);
        return;
    }
    exchange->responds = true;
    if (psgi_delivers(exchange)) psgi_respond(aTHX_ exchange, response, false);
}

/* psgix.peregrine.disconnected->(): whether the client has left, so that no one waits for the response. */
XS_EXTERNAL(psgi_xs_disconnected) {
    dXSARGS;
    PERL_UNUSED_VAR(items);
    psgi_exchange *exchange = psgi_exchange_of_function(aTHX_ cv);
    const px_exchange *base = &exchange->base;
    const bool left = base->state != PX_TICKET_OPEN || !base->worker->engine ||
                      peregrine_has_left(base->worker->engine, base->ticket);
    ST(0) = boolSV(left);
    XSRETURN(1);
}

/* ---- The end --------------------------------------------------------------------------------- */

/* The value under a key of the environment; NULL: there is none, or reading it would run Perl code. */
static SV *value_of(pTHX_ const psgi_exchange *exchange, enum psgi_key key) {
    HV *env = exchange->base.given;
    SV *name = exchange->app->cx->keys[key];
    if (!env || SvMAGICAL(env)) return NULL;
    HE *entry = hv_fetch_ent(env, name, 0, SvSHARED_HASH(name));
    return entry && !SvGMAGICAL(HeVAL(entry)) && SvOK(HeVAL(entry)) ? HeVAL(entry) : NULL;
}

/* The functions that run after the response, or NULL. */
static AV *cleanup_of(pTHX_ const psgi_exchange *exchange) {
    SV *list = value_of(aTHX_ exchange, PSGI_KEY_CLEANUP_HANDLERS);
    if (!list || !SvROK(list) || SvTYPE(SvRV(list)) != SVt_PVAV) return NULL;
    AV *handlers = (AV *)SvRV(list);
    return !SvMAGICAL(handlers) && AvFILLp(handlers) >= 0 ? handlers : NULL;
}

static bool wants_harakiri(pTHX_ const psgi_exchange *exchange) {
    SV *commit = exchange->app->harakiri ? value_of(aTHX_ exchange, PSGI_KEY_HARAKIRI_COMMIT) : NULL;
    return commit && (SvROK(commit) || SvTRUE_nomg(commit));
}

/* Work after the response: psgix.cleanup.handlers, psgix.harakiri. */
void psgi_exchange_clean_up(pTHX_ psgi_exchange *exchange) {
    px_worker *worker = exchange->base.worker;
    AV *handlers = cleanup_of(aTHX_ exchange);
    if (handlers) {
        SV *env = sv_2mortal(newRV_inc((SV *)exchange->base.given));
        SV *list = sv_2mortal(newRV_inc((SV *)handlers));
        SV *error = NULL;
        SvREFCNT_dec(psgi_call_values(aTHX_ "clean_up", list, env, &error));
        if (error) px_exchange_tell(aTHX_ & exchange->base, "_callback_died", error, "in a cleanup handler");
    }
    if (wants_harakiri(aTHX_ exchange)) px_worker_tell(aTHX_ worker, "_harakiri", NULL, NULL);
    PX_ASSERT(exchange->state == PSGI_CLEANS);
    exchange->state = PSGI_OVER;
    px_worker_app_ended(aTHX_ worker);
}

/* Handles the end of output: the handle of the content is closed, and the ticket ends. Work after the
 * response waits for the next turn, because the kernel has the response then. */
void psgi_exchange_over(pTHX_ psgi_exchange *exchange) {
    if (psgi_is_over(exchange)) return;
    px_worker *worker = exchange->base.worker;
    px_exchange_hold(&exchange->base);
    worker->refs++;
    exchange->state = PSGI_OVER;
    psgi_spool_forget(exchange);
    psgi_body_close(aTHX_ exchange);
    px_clear(aTHX_ & exchange->poll);
    px_clear(aTHX_ & exchange->writer);
    const bool cleans = cleanup_of(aTHX_ exchange) || wants_harakiri(aTHX_ exchange);
    if (cleans) {
        exchange->state = PSGI_CLEANS;
        px_turn_wait(aTHX_ & exchange->base);
    }
    px_exchange_ticket_gone(aTHX_ & exchange->base);
    if (!cleans) px_worker_app_ended(aTHX_ worker);
    px_exchange_unhold(aTHX_ & exchange->base);
    px_worker_release(aTHX_ worker);
}

/* Notes that the engine has the whole response, and has answered with `code`. */
void psgi_exchange_sent(pTHX_ psgi_exchange *exchange, int code) {
    PX_ASSERT(exchange->state < PSGI_SENT);
    exchange->state = PSGI_SENT;
    if (code == PEREGRINE_DONE) psgi_exchange_over(aTHX_ exchange);
    else px_worker_queued(aTHX_ exchange->base.worker);
}

/* Cuts the connection, so that the peer sees that the response is truncated. */
void psgi_exchange_cut(pTHX_ psgi_exchange *exchange) {
    px_worker *worker = exchange->base.worker;
    if (psgi_delivers(exchange)) {
        px_note_unanswered(&exchange->base);
        (void)peregrine_abort(worker->engine, exchange->base.ticket);
        px_worker_queued(aTHX_ worker);
        psgi_exchange_over(aTHX_ exchange);
    }
}

static void answer_for(pTHX_ psgi_exchange *exchange, uint16_t status, const char *text) {
    const peregrine_field type = {"Content-Type", 12, "text/plain", 10};
    const peregrine_response response = {
        .size = sizeof(response),
        .status = status,
        .flags = PEREGRINE_END,
        .fields = &type,
        .field_count = 1,
        .body = text,
        .body_len = strlen(text),
    };
    const int code = peregrine_respond(exchange->base.worker->engine, exchange->base.ticket, &response);
    if (code >= 0) px_note_answer(&exchange->base, response.status);
    if (code == PEREGRINE_E_GONE) px_exchange_lost(&exchange->base);
    else if (code < 0) psgi_exchange_cut(aTHX_ exchange);
    else psgi_exchange_sent(aTHX_ exchange, code);
}

/* Answers 503 to a request for whose body no handle can be opened. */
void psgi_exchange_refuse(pTHX_ psgi_exchange *exchange) {
    if (psgi_delivers(exchange)) answer_for(aTHX_ exchange, 503, "Service Unavailable");
}

/* Answers 500 if no part of the response was sent, otherwise cuts the connection. */
static void fail(pTHX_ psgi_exchange *exchange, const char *method, SV *failure, const char *stage) {
    px_exchange_hold(&exchange->base);
    px_exchange_tell(aTHX_ & exchange->base, method, failure ? failure : &PL_sv_undef, stage);
    if (psgi_delivers(exchange)) {
        if (exchange->state == PSGI_STARTED && !exchange->held) {
            px_note_cut(&exchange->base);
            psgi_exchange_cut(aTHX_ exchange);
        } else answer_for(aTHX_ exchange, 500, "Internal Server Error");
    }
    px_exchange_unhold(aTHX_ & exchange->base);
}

/* Handles the death of the application. */
void psgi_exchange_fail(pTHX_ psgi_exchange *exchange, SV *failure, const char *stage) {
    fail(aTHX_ exchange, psgi_delivers(exchange) ? "_app_died" : "_app_left", failure, stage);
}

/* Refuses a value that is no response, or not the response that its head promised. */
void psgi_exchange_reject(pTHX_ psgi_exchange *exchange, SV *reason) {
    fail(aTHX_ exchange, "_bad_response", reason, "");
}
