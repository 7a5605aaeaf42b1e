/* input.c - psgi.input: a handle that can seek on the whole body of a request, which the engine has gathered
 * in memory or in a file. */
#include "psgi/psgi.h"

#include <fcntl.h>
#include "perliol.h"

/* Whether a handle on a string is as it was opened: an application may have closed, blessed or tied it,
 * undefined its glob, opened a file by it, or given it layers, to which each request would add. */
static bool is_as_opened(const SV *handle) {
    const SV *glob = SvRV(handle);
    const IO *io = isGV_with_GP(glob) && !SvOBJECT(glob) ? GvIO((const GV *)glob) : NULL;
    const PerlIO *file = io && !SvMAGICAL(io) ? IoIFP(io) : NULL;
    const PerlIOl *layer = file ? *file : NULL;
    return layer && !layer->next && !(layer->flags & (PERLIO_F_UTF8 | PERLIO_F_CRLF));
}

/* Puts the one handle that all requests without a body share into the environment. */
static void give_no_input(pTHX_ psgi_exchange *exchange) {
    psgi_app *app = exchange->app;
    HV *env = exchange->base.given;
    if (!app->no_input || !is_as_opened(app->no_input)) {
        px_clear(aTHX_ & app->no_input);
        app->no_input = psgi_call_values(aTHX_ "input", NULL, NULL, NULL);
    }
    if (app->no_input)
        psgi_put_reference(aTHX_ exchange, env, PSGI_KEPT_INPUT, SvRV(app->no_input));
    else px_store(aTHX_ env, PSGI_KEY(app->cx, INPUT), newSV(0));
}

/* A handle on the engine's file, with a descriptor of its own. NULL: it cannot be opened, see *error. */
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

/* Puts a handle on the body into the environment. False: it cannot be opened, which was reported. The event
 * is not read after Perl code has run. */
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
