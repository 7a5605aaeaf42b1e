/* delayed.c - responses that come later: the application returns a function, which is called with a
 * responder; the responder may return a writer (PSGI.pod, Delayed Response and Streaming Body). */
#include "psgi/psgi.h"

/* ---- The responder --------------------------------------------------------------------------- */

static SV *make_writer(pTHX_ psgi_exchange *exchange) {
    return newRV_noinc(px_handle_object(aTHX_ & exchange->base, exchange->app->cx->writer_stash));
}

/* $respond->([ status, headers, body ]), or $respond->([ status, headers ]), which returns a writer. */
static XSPROTO(xs_respond) {
    dXSARGS;
    psgi_exchange *exchange = psgi_exchange_of_function(aTHX_ cv);
    px_keep(aTHX_ (SV *)cv);
    if (items != 1)
        croak("PSGI: the responder takes a response: [ status, headers ] or [ status, headers, body ]");
    SV *response = sv_mortalcopy(ST(0));
    const bool is_list = SvROK(response) && SvTYPE(SvRV(response)) == SVt_PVAV;
    const bool streams = is_list && av_count((AV *)SvRV(response)) == 2;
    if (exchange->responds) croak("PSGI: the responder was called before"); /* by a tied response perhaps */
    const bool live = px_exchange_pin(&exchange->base);
    exchange->responds = true;
    if (live && psgi_delivers(exchange)) psgi_respond(aTHX_ exchange, response, true);
    SV *writer = streams ? sv_2mortal(make_writer(aTHX_ exchange)) : &PL_sv_undef;
    px_exchange_unpin(aTHX_ & exchange->base, live);
    ST(0) = writer;
    XSRETURN(1);
}

/* Answers a request whose responder was freed without a call, in the exchange's next turn: otherwise the
 * client would wait for ever. */
static int responder_free(pTHX_ SV *sv, MAGIC *mg) {
    psgi_exchange *exchange = (psgi_exchange *)(void *)mg->mg_ptr;
    PERL_UNUSED_ARG(sv);
    if (!exchange || px_is_foreign(exchange->base.worker) || PL_dirty) return 0;
    if (!exchange->responds && psgi_delivers(exchange)) px_turn_wait(aTHX_ & exchange->base);
    return 0;
}

static const MGVTBL responder_vtbl = {.svt_free = responder_free, .svt_dup = px_handle_dup};

static SV *make_responder(pTHX_ psgi_exchange *exchange) {
    SV *function = (SV *)px_handle_function(aTHX_ & exchange->base, xs_respond);
    MAGIC *mg = sv_magicext(function, NULL, PERL_MAGIC_ext, &responder_vtbl, (const char *)exchange, 0);
    mg->mg_flags |= MGf_DUP;
    return newRV_noinc(function);
}

/* Calls the function that an application has returned in place of a response. */
void psgi_delayed_call(pTHX_ psgi_exchange *exchange, SV *code) {
    SV *error = NULL;
    SV *responder = make_responder(aTHX_ exchange);
    exchange->delayed = PSGI_DELAYED_RUNS;
    SvREFCNT_dec(px_call(aTHX_ code, NULL, responder, NULL, &error));
    const bool abandoned = exchange->delayed == PSGI_DELAYED_ABANDONED;
    exchange->delayed = PSGI_NOT_DELAYED;
    SvREFCNT_dec_NN(responder);
    if (error) psgi_exchange_fail(aTHX_ exchange, error, "in its delayed response");
    else if (abandoned) psgi_writer_close(aTHX_ exchange);
}

/* Handles a responder that was freed without a call. */
void psgi_delayed_forgotten(pTHX_ psgi_exchange *exchange) {
    if (exchange->has_io) {
        psgi_io_only(aTHX_ exchange);
        return;
    }
    SV *text = newSVpvs_flags("the application has dropped its responder without a response", SVs_TEMP);
    psgi_exchange_reject(aTHX_ exchange, text);
}

/* ---- The writer ------------------------------------------------------------------------------ */

/* $writer->write($bytes). Bytes that the peer does not take at once wait in memory; poll_cb limits them. */
void psgi_writer_write(pTHX_ psgi_exchange *exchange, SV *bytes) {
    const char *wrong = NULL;
    SV *piece = sv_2mortal(newSVsv(bytes));
    if (SvROK(piece)) piece = px_plain_string(aTHX_ piece);
    if (!psgi_delivers(exchange) || exchange->state != PSGI_STARTED) return;
    psgi_response_write(aTHX_ exchange, piece, &wrong);
    if (wrong) {
        if (exchange->held) psgi_exchange_reject(aTHX_ exchange, sv_2mortal(newSVpv(wrong, 0)));
        else psgi_exchange_cut(aTHX_ exchange);
        croak("PSGI: the writer: %s", wrong);
    }
    if (exchange->drains && psgi_delivers(exchange))
        (void)peregrine_flush(exchange->base.worker->engine, exchange->base.ticket);
}

void psgi_writer_close(pTHX_ psgi_exchange *exchange) {
    px_clear(aTHX_ & exchange->poll);
    if (psgi_delivers(exchange) && exchange->state == PSGI_STARTED && !exchange->source)
        psgi_response_end(aTHX_ exchange);
}

/* Closes a response whose writer was freed. While the delayed function runs, its exception may be the reason:
 * then the function's end decides. */
void psgi_writer_gone(pTHX_ psgi_exchange *exchange) {
    if (exchange->delayed == PSGI_DELAYED_RUNS) exchange->delayed = PSGI_DELAYED_ABANDONED;
    else if (exchange->delayed == PSGI_NOT_DELAYED) psgi_writer_close(aTHX_ exchange);
}

/* $writer->poll_cb($code): the function is called with the writer whenever the peer has taken all output. The
 * exchange keeps both until its end. */
void psgi_writer_poll(pTHX_ psgi_exchange *exchange, SV *writer, SV *callback) {
    SV *poll = sv_2mortal(newSVsv(callback)); /* runs Perl code if it is tied */
    px_clear(aTHX_ & exchange->poll);
    px_clear(aTHX_ & exchange->writer);
    if (!psgi_delivers(exchange) || exchange->state != PSGI_STARTED || !SvOK(poll)) return;
    exchange->poll = SvREFCNT_inc_simple_NN(poll);
    exchange->writer = newSVsv(writer);
    if (!exchange->drains) psgi_writer_go_on(aTHX_ exchange);
}

/* Calls the function of poll_cb for more content, for as long as the peer takes output at once. */
void psgi_writer_go_on(pTHX_ psgi_exchange *exchange) {
    px_exchange_hold(&exchange->base);
    exchange->drains = false;
    while (exchange->poll && !exchange->drains && psgi_delivers(exchange)) {
        SV *error = NULL;
        if (px_turn_spend(&exchange->base)) {
            px_turn_wait(aTHX_ & exchange->base);
            break;
        }
        exchange->wrote = false;
        SV *callback = sv_2mortal(newSVsv(exchange->poll));
        SV *writer = sv_2mortal(newSVsv(exchange->writer));
        SvREFCNT_dec(px_call(aTHX_ callback, NULL, writer, NULL, &error));
        if (error) psgi_exchange_fail(aTHX_ exchange, error, "in a callback of its writer");
        if (!exchange->wrote || !psgi_delivers(exchange)) break;
        if (psgi_spool_is_wanted(exchange)) continue;
        const int code = peregrine_flush(exchange->base.worker->engine, exchange->base.ticket);
        if (code == PEREGRINE_BLOCKED) exchange->drains = true;
        else if (code < 0) break;
    }
    px_exchange_unhold(aTHX_ &exchange->base);
}
