/* body.c - content from a handle: the rest of a file, which the kernel sends, or lines of getline, as fast as
 * the peer takes them. */
#include "psgi/psgi.h"

#include <sys/stat.h>
#include "perliol.h"

/* ---- Files ----------------------------------------------------------------------------------- */

/* Whether a handle gives the bytes of its descriptor unchanged, as no layer of it changes them. */
static bool raw_layers(PerlIO *file) {
    for (const PerlIOl *layer = *file; layer; layer = layer->next) {
        const char *name = layer->tab->name;
        if (strNE(name, "unix") && strNE(name, "perlio") && strNE(name, "stdio")) return false;
        if (layer->flags & (PERLIO_F_UTF8 | PERLIO_F_CRLF)) return false;
    }
    return true;
}

/* Whether getline is the method of Perl's handles, and not one of the object's own class. */
static bool plain_class(const SV *object) {
    if (!SvOBJECT(object)) return true;
    const char *name = HvNAME_get(SvSTASH(object));
    return name && (strEQ(name, "IO::File") || strEQ(name, "IO::Handle") || strEQ(name, "FileHandle"));
}

/* The open file behind a handle that the kernel can send, or NULL. */
static PerlIO *file_of(pTHX_ SV *source) {
    SV *glob = SvROK(source) ? SvRV(source) : source;
    struct stat about;
    if (!isGV_with_GP(glob) || !plain_class(glob)) return NULL;
    IO *io = GvIO((GV *)glob);
    if (!io || !IoIFP(io) || SvRMAGICAL((SV *)io)) return NULL;
    const int fd = PerlIO_fileno(IoIFP(io));
    if (fd < 0 || fstat(fd, &about) < 0 || !S_ISREG(about.st_mode) || about.st_size == 0) return NULL;
    return raw_layers(IoIFP(io)) ? IoIFP(io) : NULL;
}

/* Sends a file from its handle's position on. */
static void send_file(pTHX_ psgi_exchange *exchange, PerlIO *file, UV promised) {
    px_worker *worker = exchange->base.worker;
    const Off_t position = PerlIO_tell(file);
    const int64_t length = promised <= INT64_MAX ? (int64_t)promised : -1;
    const int code = peregrine_write_file(worker->engine, exchange->base.ticket, PerlIO_fileno(file),
                                          position > 0 ? (uint64_t)position : 0, length);
    if (code == PEREGRINE_E_GONE) {
        px_exchange_lost(&exchange->base);
    } else if (code < 0) {
        const char *why = code == PEREGRINE_E_SYSTEM ? Strerror(errno) : peregrine_error_text(code);
        SV *text = sv_2mortal(newSVpvf("its file cannot be sent: %s", why));
        psgi_exchange_reject(aTHX_ exchange, text);
    } else {
        psgi_exchange_sent(aTHX_ exchange, code);
    }
}

/* ---- Lines ----------------------------------------------------------------------------------- */

/* Sends the content of a handle, after the head. `promised`: the most bytes to send; UV_MAX: no limit. */
void psgi_body_start(pTHX_ psgi_exchange *exchange, SV *source, UV promised) {
    PerlIO *file = exchange->held ? NULL : file_of(aTHX_ source);
    px_exchange_hold(&exchange->base);
    exchange->source = newSVsv(source);
    if (file) {
        send_file(aTHX_ exchange, file, promised);
        psgi_body_close(aTHX_ exchange);
    } else {
        psgi_body_go_on(aTHX_ exchange);
    }
    px_exchange_unhold(aTHX_ &exchange->base);
}

/* Calls getline and sends the lines, until the peer has to take output first. */
void psgi_body_go_on(pTHX_ psgi_exchange *exchange) {
    const char *wrong = NULL;
    px_exchange_hold(&exchange->base);
    exchange->drains = false;
    while (exchange->source && !exchange->drains && psgi_delivers(exchange)) {
        SV *error = NULL;
        if (px_turn_spend(&exchange->base)) {
            px_turn_wait(aTHX_ & exchange->base);
            break;
        }
        px_keep(aTHX_ exchange->source); /* an event loop in the handle may see the client leave */
        SV *line = psgi_call_values(aTHX_ "line", exchange->source, NULL, &error);
        if (!line) {
            psgi_exchange_fail(aTHX_ exchange, error, "in its body");
            break;
        }
        sv_2mortal(line);
        if (!psgi_delivers(exchange)) break;
        if (!SvOK(line)) {
            psgi_response_end(aTHX_ exchange);
            break;
        }
        psgi_response_write(aTHX_ exchange, line, &wrong);
        if (!wrong) continue;
        psgi_exchange_reject(aTHX_ exchange, sv_2mortal(newSVpv(wrong, 0)));
        break;
    }
    if (!psgi_delivers(exchange)) psgi_body_close(aTHX_ exchange);
    px_exchange_unhold(aTHX_ &exchange->base);
}

/* Closes a handle whose content is not sent. */
void psgi_body_drop(pTHX_ psgi_exchange *exchange, SV *source) {
    SV *error = NULL;
    SV *done = psgi_call_values(aTHX_ "close", source, NULL, &error);
    if (error) px_exchange_tell(aTHX_ & exchange->base, "_callback_died", error, "when its body was closed");
    SvREFCNT_dec(done);
}

/* Closes the handle of the content, which was sent, or has no receiver any more. */
void psgi_body_close(pTHX_ psgi_exchange *exchange) {
    SV *source = exchange->source;
    if (!source) return;
    exchange->source = NULL;
    psgi_body_drop(aTHX_ exchange, sv_2mortal(source));
}
