/* face.c - PSGI's face: functions that the bridge calls for requests of an application that is a `sub
 * ($env)`. */
#include "psgi/psgi.h"

/* ---- The application ------------------------------------------------------------------------- */

static bool is_set(pTHX_ HV *settings, const char *name) {
    SV *value = px_setting(aTHX_ settings, name);
    return value && SvTRUE(value);
}

static UV number_of(pTHX_ HV *settings, const char *name) {
    SV *value = px_setting(aTHX_ settings, name);
    return value ? SvUV(value) : 0;
}

/* The value of psgi.version, [1, 1], for all environments. */
static AV *make_version(pTHX) {
    AV *version = px_pair(aTHX_ newSViv(1), newSViv(1));
    for (SSize_t i = 0; i < 2; i++) SvREADONLY_on(AvARRAY(version)[i]);
    SvREADONLY_on((SV *)version);
    return version;
}

/* Settings: app, path, root_path, host, server, loop, multithread, multiprocess, harakiri, underscores;
 * response_buffer, max_spool, folder, for spool.c; grip, for grip.c. Dies, with nothing changed, if a setting
 * is wrong. */
void psgi_attach(pTHX_ px_worker *worker, HV *settings) {
    SV *code = px_setting(aTHX_ settings, "app");
    SV *server = px_setting(aTHX_ settings, "server");
    if (!code || !SvROK(code) || SvTYPE(SvRV(code)) != SVt_PVCV)
        croak("Peregrine::Worker: app must be a code reference");
    if (!server || !SvROK(server)) croak("Peregrine::Worker: server must be an object");
    const int route = px_worker_route(aTHX_ worker, settings, PEREGRINE_WHOLE_BODY);
    psgi_app *app;
    Newxz(app, 1, psgi_app);
    app->worker = worker;
    app->cx = psgi_context_get(aTHX);
    app->code = newSVsv(code);
    app->version = make_version(aTHX);
    app->multithread = is_set(aTHX_ settings, "multithread");
    app->multiprocess = is_set(aTHX_ settings, "multiprocess");
    app->harakiri = is_set(aTHX_ settings, "harakiri");
    app->underscores = is_set(aTHX_ settings, "underscores");
    app->spool_max = number_of(aTHX_ settings, "response_buffer");
    app->spools_max = number_of(aTHX_ settings, "max_spool");
    SV *folder = px_setting(aTHX_ settings, "folder");
    app->folder = folder ? newSVsv(folder) : newSVpvs("/tmp");
    SV *grip = px_setting(aTHX_ settings, "grip");
    if (grip) {
        STRLEN length;
        const char *prefix = SvPV(grip, length);
        app->grip = newSVpvn_share(prefix, (I32)length, 0);
    }
    px_worker_attach(aTHX_ worker, route, &psgi_face, app, settings);
}

static void drop_application(pTHX_ void *application) {
    psgi_app *app = (psgi_app *)application;
    SV *owned[] = {app->code, app->no_input, (SV *)app->version, app->folder, app->grip};
    for (size_t i = 0; i < C_ARRAY_LENGTH(owned); i++) SvREFCNT_dec(owned[i]);
    Safefree(app);
}

static void read_limits(const px_worker *worker, void *application) {
    PERL_UNUSED_ARG(worker);
    PERL_UNUSED_ARG(application);
}

/* ---- Events of the engine -------------------------------------------------------------------- */

/* Calls the application for a request, with its whole body. */
static void take_request(pTHX_ px_exchange *base, const peregrine_event *event) {
    psgi_exchange *exchange = psgi_exchange_of(base);
    const bool upgrades = (event->flags & PEREGRINE_HANDSHAKE) && event->request->version == 11;
    /* Temporary values refer to the environment, so the exchange may serve no other request until they are
     * freed. */
    px_exchange_hold(base);
    ENTER;
    SAVETMPS;
    psgi_exchange_open(exchange);
    base->given = psgi_env_build(aTHX_ exchange, event->request);
    if (psgi_input_give(aTHX_ exchange, event)) {
        if (upgrades) psgi_io_give(aTHX_ exchange);
        psgi_exchange_call_app(aTHX_ exchange);
        if (!psgi_is_over(exchange)) px_exchange_name(base);
    } else {
        psgi_exchange_refuse(aTHX_ exchange);
    }
    psgi_exchange_invariants(exchange);
    FREETMPS;
    LEAVE;
    px_exchange_unhold(aTHX_ base);
}

/* Sends more content, because the peer takes more. */
static void go_on(pTHX_ psgi_exchange *exchange) {
    if (psgi_spool_is_open(exchange) && psgi_delivers(exchange)) {
        const int code = psgi_spool_flow(aTHX_ exchange);
        if (code == PEREGRINE_E_GONE) px_exchange_lost(&exchange->base);
        else if (code < 0) {
            const char *why = code == PEREGRINE_E_SYSTEM ? "its temporary file cannot be read"
                                                         : peregrine_error_text(code);
            psgi_exchange_reject(aTHX_ exchange, sv_2mortal(newSVpv(why, 0)));
            return;
        }
        if (psgi_spool_is_open(exchange)) {
            exchange->drains = psgi_spool_is_full(exchange);
            if (exchange->drains) return;
        }
    }
    if (exchange->source) psgi_body_go_on(aTHX_ exchange);
    else psgi_writer_go_on(aTHX_ exchange);
}

static void take_turn(pTHX_ px_exchange *base) {
    psgi_exchange *exchange = psgi_exchange_of(base);
    if (exchange->state == PSGI_CLEANS) psgi_exchange_clean_up(aTHX_ exchange);
    else if (exchange->state == PSGI_CALLED && !exchange->responds && psgi_delivers(exchange))
        psgi_delayed_forgotten(aTHX_ exchange);
    else if (!exchange->drains) go_on(aTHX_ exchange);
    psgi_exchange_invariants(exchange);
}

static void take_event(pTHX_ px_exchange *base, const peregrine_event *event) {
    psgi_exchange *exchange = psgi_exchange_of(base);
    switch (event->kind) {
    case PEREGRINE_DRAINED:
    case PEREGRINE_FLUSHED:
        exchange->drains = false;
        go_on(aTHX_ exchange);
        break;
    case PEREGRINE_ABORTED:
        if (px_is_silence(event->code)) px_note_unanswered(base);
        psgi_exchange_over(aTHX_ exchange);
        break;
    case PEREGRINE_FINISHED: psgi_exchange_over(aTHX_ exchange); break;
    default: break;
    }
    psgi_exchange_invariants(exchange);
}

/* ---- The end of the server ------------------------------------------------------------------- */

static void cut(pTHX_ px_exchange *base) {
    psgi_exchange_over(aTHX_ psgi_exchange_of(base));
}

static void shut_down(pTHX_ px_exchange *base) {
    PERL_UNUSED_CONTEXT;
    PERL_UNUSED_ARG(base);
}

/* An exchange whose client has left does not count: the application might never end it. */
static px_app_state app_state(const px_exchange *base) {
    const psgi_exchange *exchange = (const psgi_exchange *)base;
    const bool busy = exchange->state == PSGI_CALLED || exchange->state == PSGI_STARTED;
    return exchange->state == PSGI_CLEANS || (busy && px_exchange_is_live(base)) ? PX_APP_BUSY : PX_APP_OVER;
}

/* Whether the exchange waits for its client: output has to move before the application goes on. */
static bool is_parked(const px_exchange *base) {
    return ((const psgi_exchange *)base)->drains;
}

/* Only an application on the stack can be left behind: no exception gets past its call, but `exit` does. */
static bool fail_stalled(pTHX_ px_exchange *base, SV *awaited, SV *exception) {
    psgi_exchange *exchange = psgi_exchange_of(base);
    PERL_UNUSED_ARG(awaited);
    if (base->worker->at != base) return false;
    const char *stage = exchange->state == PSGI_CALLED ? "before its response" : "in its response";
    psgi_exchange_fail(aTHX_ exchange, exception, stage);
    return true;
}

const px_face psgi_face = {
    .exchange_size = sizeof(psgi_exchange),
    .drop_application = drop_application,
    .limits = read_limits,
    .request = take_request,
    .event = take_event,
    .turn = take_turn,
    .cut = cut,
    .shut_down = shut_down,
    .app_state = app_state,
    .is_parked = is_parked,
    .fail_stalled = fail_stalled,
    .make = psgi_exchange_make,
    .clear = psgi_exchange_clear,
    .is_reusable = psgi_exchange_is_reusable,
    .let_go = psgi_exchange_let_go,
};
