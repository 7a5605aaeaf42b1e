/* input.c - the request's body: gathered before the application is called, in memory, then in an unlinked
 * temporary file; `psgi.input` is a handle on it that can seek. */
#include "psgi/psgi.h"

/* What is kept in memory. */
#define PSGI_MEMORY_MAX (1024 * 1024)

/* Moves what is in memory into a file. False: there is no room for one. */
static bool spill(pTHX_ psgi_exchange *exchange) {
    SV *error = NULL;
    SV *handle = psgi_call_values(aTHX_ "temporary", NULL, NULL, &error);
    if (!handle || !SvROK(handle)) {
        SvREFCNT_dec(handle);
        px_exchange_tell(aTHX_ & exchange->base, "_no_room", error ? error : &PL_sv_undef, "");
        return false;
    }
    exchange->spool = handle;
    return true;
}

static PerlIO *file_of(SV *handle) {
    return IoIFP(GvIOp((GV *)SvRV(handle)));
}

static bool write_out(pTHX_ psgi_exchange *exchange, const char *bytes, size_t len) {
    PerlIO *file = file_of(exchange->spool);
    if (PerlIO_write(file, bytes, len) == (SSize_t)len) return true;
    px_exchange_tell(aTHX_ & exchange->base, "_no_room", sv_2mortal(newSVpv(Strerror(errno), 0)), "");
    return false;
}

/* Takes the next piece of the body. False: it cannot be kept. */
bool psgi_input_take(pTHX_ psgi_exchange *exchange, const char *bytes, size_t len) {
    if (len == 0) return true;
    exchange->received += len;
    if (!exchange->spool && exchange->received > PSGI_MEMORY_MAX) {
        if (!spill(aTHX_ exchange)) return false;
        SV *content = exchange->content;
        if (content && !write_out(aTHX_ exchange, SvPVX_const(content), SvCUR(content))) return false;
        px_clear(aTHX_ & exchange->content);
    }
    if (exchange->spool) return write_out(aTHX_ exchange, bytes, len);
    if (exchange->content) sv_catpvn(exchange->content, bytes, len);
    else exchange->content = newSVpvn(bytes, len);
    return true;
}

/* The handle of all requests without a body. An application may have closed it. */
static SV *no_input(pTHX_ psgi_app *app) {
    if (app->no_input && SvREFCNT(SvRV(app->no_input)) && file_of(app->no_input))
        return newSVsv(app->no_input);
    SvREFCNT_dec(app->no_input);
    app->no_input = psgi_call_values(aTHX_ "input", NULL, NULL, NULL);
    return app->no_input ? newSVsv(app->no_input) : newSV(0);
}

static SV *handle_of(pTHX_ psgi_exchange *exchange) {
    if (exchange->spool) {
        SV *handle = exchange->spool;
        exchange->spool = NULL;
        return handle;
    }
    if (!exchange->content) return no_input(aTHX_ exchange->app);
    SV *handle = psgi_call_values(aTHX_ "input", exchange->content, NULL, NULL);
    px_clear(aTHX_ & exchange->content);
    return handle;
}

/* The body is complete: the environment gets its handle. False: what was written is not all there. */
bool psgi_input_give(pTHX_ psgi_exchange *exchange) {
    psgi_context *cx = exchange->app->cx;
    HV *env = exchange->base.given;
    if (exchange->spool) {
        PerlIO *file = file_of(exchange->spool);
        if (PerlIO_flush(file) != 0 || PerlIO_seek(file, 0, SEEK_SET) != 0) {
            px_exchange_tell(aTHX_ & exchange->base, "_no_room", sv_2mortal(newSVpv(Strerror(errno), 0)), "");
            return false;
        }
    }
    if (exchange->chunked) {
        (void)hv_delete_ent(env, PSGI_KEY(cx, TRANSFER_ENCODING), G_DISCARD, 0);
        px_store(aTHX_ env, PSGI_KEY(cx, CONTENT_LENGTH), newSVpvf("%" UVuf, (UV)exchange->received));
    }
    SV *handle = handle_of(aTHX_ exchange);
    if (handle) px_store(aTHX_ env, PSGI_KEY(cx, INPUT), handle);
    return handle != NULL;
}
