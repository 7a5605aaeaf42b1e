/* input.c - psgi.input: a handle that can seek on the whole body of a request, which the engine has gathered
 * in memory or in a file. */
#include "psgi/psgi.h"

#include <fcntl.h>

/* Gives the handle of all requests without a body. An application may have closed it. */
static void give_no_input(pTHX_ psgi_exchange *exchange) {
    psgi_app *app = exchange->app;
    HV *env = exchange->base.given;
    if (!app->no_input || !IoIFP(GvIOp((GV *)SvRV(app->no_input)))) {
        SvREFCNT_dec(app->no_input);
        app->no_input = psgi_call_values(aTHX_ "input", NULL, NULL, NULL);
    }
    if (app->no_input)
        psgi_put_reference(aTHX_ exchange, env, PSGI_KEPT_INPUT, SvRV(app->no_input));
    else px_store(aTHX_ env, PSGI_KEY(app->cx, INPUT), newSV(0));
}

/* A handle on a file that is the engine's: with a descriptor of our own. NULL: there is none, see *error. */
static SV *file_input(pTHX_ int fd, SV **error) {
    const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0) {
        *error = sv_2mortal(newSVpv(Strerror(errno), 0));
        return NULL;
    }
    SV *handle = psgi_call_values(aTHX_ "file", sv_2mortal(newSViv(own)), NULL, error);
    if (!handle) PerlLIO_close(own);
    return handle;
}

/* Puts the handle into the environment. False: there is none, which has been told. The event is not looked at
 * once Perl code has run. */
bool psgi_input_give(pTHX_ psgi_exchange *exchange, const peregrine_event *event) {
    SV *error = NULL;
    SV *handle;
    if (event->request->body_fd >= 0) {
        handle = file_input(aTHX_ event->request->body_fd, &error);
    } else if (event->len > 0) {
        SV *content = sv_2mortal(px_bytes(aTHX_ exchange->base.worker, event));
        handle = psgi_call_values(aTHX_ "input", content, NULL, &error);
    } else {
        give_no_input(aTHX_ exchange);
        return true;
    }
    if (!handle) {
        px_exchange_tell(aTHX_ & exchange->base, "_no_input", error ? error : &PL_sv_undef, "");
        return false;
    }
    px_store(aTHX_ exchange->base.given, PSGI_KEY(exchange->app->cx, INPUT), handle);
    return true;
}
