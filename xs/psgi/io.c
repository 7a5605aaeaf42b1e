/* io.c - psgix.io: the connection of a WebSocket handshake, for an application that speaks on it itself. The
 * engine has the socket, and relays (peregrine_relay). */
#include "psgi/psgi.h"

/* Puts a socket into the environment, unless the engine cannot make one. */
void psgi_io_give(pTHX_ psgi_exchange *exchange) {
    const int fd = peregrine_relay(exchange->base.worker->engine, exchange->base.ticket);
    if (fd < 0) return;
    SV *error = NULL;
    SV *handle = psgi_call_values(aTHX_ "socket", sv_2mortal(newSViv(fd)), NULL, &error);
    if (!handle) {
        PerlLIO_close(fd);
        px_exchange_tell(aTHX_ & exchange->base, "_no_input", error ? error : &PL_sv_undef, "");
        return;
    }
    px_store(aTHX_ exchange->base.given, PSGI_KEY(exchange->app->cx, IO), handle);
    exchange->has_io = true;
}

/* Ends an exchange whose application gives no response, because it has answered on the socket, or will if it
 * still has it. To be called in a later turn than the application. */
void psgi_io_only(pTHX_ psgi_exchange *exchange) {
    HV *env = exchange->base.given;
    if (SvREFCNT(env) == 1 && !SvMAGICAL(env)) (void)hv_deletes(env, "psgix.io", G_DISCARD);
    exchange->responds = true;
    exchange->state = PSGI_SENT;
    const int code = peregrine_relay_only(exchange->base.worker->engine, exchange->base.ticket);
    if (code == PEREGRINE_E_GONE) px_exchange_lost(&exchange->base);
    px_worker_queued(aTHX_ exchange->base.worker);
}
