/* response.c - an HTTP response by events: its start and its body. For the http scope, and for sse and
 * websocket, where such a response may take the place of the stream or the WebSocket.
 *
 * The engine decides the framing of a response, the fields that are added, and which fields are legal. */
#include "pagi/pagi.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* The Future of an event that comes after the response is complete, and does nothing. The log is told once a
 * request, at level debug. */
static SV *too_late(pTHX_ pagi_exchange *exchange, const char *type) {
    if (!exchange->late_told) {
        exchange->late_told = true;
        px_exchange_tell(aTHX_ &exchange->base, "_sent_late", sv_2mortal(newSVpv(type, 0)), "");
    }
    return px_future_done(aTHX_ exchange->base.worker, NULL);
}

/* Starts the response. `instead`: it takes the place of a stream or a WebSocket, so the connection closes. */
SV *pagi_response_start(pTHX_ pagi_exchange *exchange, const char *type, HV *event, bool instead) {
    px_worker *worker = exchange->base.worker;
    pagi_context *cx = exchange->app->cx;
    if (exchange->response == PAGI_RESPONSE_COMPLETE) return too_late(aTHX_ exchange, type);
    if (exchange->response != PAGI_RESPONSE_NONE)
        return px_future_invalid(aTHX_ worker, "%s: the response has already started", type);

    IV status;
    bool found;
    SV *failed = pagi_event_status(aTHX_ exchange->app, type, event, &status, &found);
    if (failed) return failed;
    if (!found) return px_future_invalid(aTHX_ worker, "%s: status is missing", type);
    SV *headers = px_fetch(aTHX_ event, PAGI_KEY(cx, HEADERS));
    const size_t looked_at = 2 + (headers != NULL);
    SV *trailers = !instead && HvTOTALKEYS(event) > looked_at
                   ? px_fetch(aTHX_ event, PAGI_KEY(cx, TRAILERS))
                   : NULL;
    bool promised;
    failed = pagi_event_flag(aTHX_ worker, type, PAGI_KEY(cx, TRAILERS), trailers, &promised);
    if (failed) return failed;
    pagi_fields fields;
    failed = pagi_event_fields(aTHX_ worker, type, headers, &fields);
    if (failed) return failed;
    if (!worker->engine) return px_future_done(aTHX_ worker, NULL);

    const peregrine_response response = {
        .size = sizeof(response),
        .status = (uint16_t)status,
        .flags = instead ? PEREGRINE_CLOSE : promised ? 0 : PEREGRINE_HOLD,
        .fields = fields.list,
        .field_count = fields.count,
    };
    const int code = peregrine_respond(worker->engine, exchange->base.ticket, &response);
    if (code >= 0) px_note_answer(&exchange->base, response.status);
    if (code >= 0) exchange->response = promised ? PAGI_RESPONSE_PROMISED : PAGI_RESPONSE_STARTED;
    return pagi_event_field_outcome(aTHX_ exchange, type, code, &fields);
}

/* NULL if a body event may come now, otherwise the Future to return. */
static SV *body_out_of_order(pTHX_ pagi_exchange *exchange, const char *type) {
    switch (exchange->response) {
    case PAGI_RESPONSE_STARTED:
    case PAGI_RESPONSE_PROMISED: return NULL;
    case PAGI_RESPONSE_NONE:
        return px_future_invalid(aTHX_ exchange->base.worker,
                                 "%s: the response has not been started with %.*sstart", type,
                                 (int)(strrchr(type, '.') + 1 - type), type);
    case PAGI_RESPONSE_TRAILERS_DUE:
        return px_future_invalid(aTHX_ exchange->base.worker,
                                 "%s: the body is complete, only http.response.trailers may follow", type);
    case PAGI_RESPONSE_COMPLETE: break;
    }
    return too_late(aTHX_ exchange, type);
}

static void body_done(pagi_exchange *exchange) {
    PX_ASSERT(pagi_response_takes_body(exchange));
    exchange->response =
        exchange->response == PAGI_RESPONSE_PROMISED ? PAGI_RESPONSE_TRAILERS_DUE : PAGI_RESPONSE_COMPLETE;
}

/* Whether the piece that was sent last takes no memory of its own, because many scalars share its string. An
 * application that waited until the piece has left would keep a share, of which Perl allows 255, and copies
 * the string for the next one: the wait would cost the memory that it is to save. */
static bool is_shared_by_many(const px_worker *worker, const SV *body) {
    const int many = 16;
    return body && px_loan_is_of(worker, body) && SvIsCOW(body) && SvLEN(body) > 0 && CowREFCNT(body) >= many;
}

static SV *send_bytes(pTHX_ pagi_exchange *exchange, const char *type, SV *body, bool more) {
    px_worker *worker = exchange->base.worker;
    const char *bytes = "";
    size_t len = 0;
    if (body) {
        const char *wrong = pagi_event_bytes(aTHX_ body, &bytes, &len);
        if (wrong) return px_future_invalid(aTHX_ worker, "%s: body %s", type, wrong);
    }
    const bool last = !more && exchange->response != PAGI_RESPONSE_PROMISED;
    if (!worker->engine || (len == 0 && !last)) {
        if (!more) body_done(exchange);
        return px_future_done(aTHX_ worker, NULL);
    }
    int code = px_loan_write(aTHX_ &exchange->base, body, bytes, len, last ? PEREGRINE_END : 0);
    if (code >= 0 && !more) body_done(exchange);
    if (code == PEREGRINE_BLOCKED && last && is_shared_by_many(worker, body)) code = PEREGRINE_OK;
    return pagi_event_outcome(aTHX_ exchange, type, code);
}

/* A part of a file; length < 0: to its end. */
typedef struct pagi_range {
    IV offset, length;
    bool from_offset; /* false: from the handle's position */
} pagi_range;

static SV *read_range(pTHX_ const pagi_app *app, const char *type, HV *event, pagi_range *range) {
    px_worker *worker = app->worker;
    pagi_context *cx = app->cx;
    bool bounded;
    SV *failed = pagi_event_integer(aTHX_ worker, type, event, PAGI_KEY(cx, OFFSET), IV_MAX, &range->offset,
                                    &range->from_offset);
    if (failed) return failed;
    failed = pagi_event_integer(aTHX_ worker, type, event, PAGI_KEY(cx, LENGTH), IV_MAX, &range->length,
                                &bounded);
    if (failed) return failed;
    if (!range->from_offset) range->offset = 0;
    if (!bounded) range->length = -1;
    return NULL;
}

/* Whether the kernel may send a file by itself: it is a regular file with a true size (not of /proc). Such a
 * file ends the body, so before promised trailers a file is read and sent as bytes. */
bool pagi_response_kernel_sends(const pagi_exchange *exchange, int fd) {
    struct stat about;
    char probe;
    if (exchange->app->reads_files || exchange->response == PAGI_RESPONSE_PROMISED) return false;
    if (fstat(fd, &about) < 0 || !S_ISREG(about.st_mode)) return false;
    return about.st_size > 0 || pread(fd, &probe, 1, 0) <= 0;
}

/* The Future of a file that the engine took as the rest of the body, or refused with a negative code. */
SV *pagi_response_sent_file(pTHX_ pagi_exchange *exchange, const char *type, int code) {
    if (code == PEREGRINE_E_SYSTEM)
        return px_future_invalid(aTHX_ exchange->base.worker, "%s: the file cannot be sent: %s", type,
                                 Strerror(errno));
    if (code >= 0) body_done(exchange);
    return pagi_event_outcome(aTHX_ exchange, type, code);
}

/* Hands a range of an open file to the engine, which has its own descriptor from then on; length < 0: to its
 * end. */
SV *pagi_response_send_range(pTHX_ pagi_exchange *exchange, const char *type, int fd, IV offset, IV length) {
    px_worker *worker = exchange->base.worker;
    if (!worker->engine) return px_future_done(aTHX_ worker, NULL);
    return pagi_response_sent_file(aTHX_ exchange, type,
                                   peregrine_write_file(worker->engine, exchange->base.ticket, fd,
                                                        (uint64_t)offset, (int64_t)length));
}

/* Has the server read a file that the kernel cannot send (PAGI::Server::HandleBody), and send it by $send as
 * output leaves. */
SV *pagi_response_send_by_reading(pTHX_ pagi_exchange *exchange, HV *event) {
    px_worker *worker = exchange->base.worker;
    if (!worker->engine || !worker->server || !exchange->send) return px_future_done(aTHX_ worker, NULL);
    AV *means = newAV();
    SV *error = NULL;
    av_push(means, newRV_inc((SV *)exchange->send));
    av_push(means, pagi_connection_gone_future(aTHX_ exchange));
    av_push(means, newRV_inc(pagi_exchange_connection(aTHX_ exchange)));
    SV *server = sv_2mortal(newRV_inc(worker->server));
    SV *future = px_call(aTHX_ server, "_send_by_reading", sv_2mortal(newRV_inc((SV *)event)),
                         sv_2mortal(newRV_noinc((SV *)means)), &error);
    return future ? future : px_future_failed(aTHX_ worker, newSVsv(error));
}

static IO *io_of(pTHX_ SV *fh) {
    SV *glob = SvROK(fh) ? SvRV(fh) : fh;
    if (SvTYPE(glob) == SVt_PVIO) return (IO *)glob;
    return isGV_with_GP(glob) ? GvIO((GV *)glob) : NULL;
}

/* Sends a handle's content from its position on, unless `offset` says otherwise. */
static SV *send_handle(pTHX_ pagi_exchange *exchange, const char *type, HV *event, SV *fh,
                       pagi_range *range) {
    px_worker *worker = exchange->base.worker;
    IO *io = io_of(aTHX_ fh);
    const bool tied = io && SvRMAGICAL((SV *)io) && mg_find((SV *)io, PERL_MAGIC_tiedscalar);
    PerlIO *handle = io ? IoIFP(io) : NULL;
    if (!handle && !tied) return px_future_invalid(aTHX_ worker, "%s: fh must be an open file handle", type);
    const int fd = tied ? -1 : PerlIO_fileno(handle);
    if (fd >= 0 && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY)
        return px_future_invalid(aTHX_ worker, "%s: fh must be open for reading, not for writing only", type);
    if (fd < 0 || !pagi_response_kernel_sends(exchange, fd))
        return pagi_response_send_by_reading(aTHX_ exchange, event);
    const Off_t position = range->from_offset ? 0 : PerlIO_tell(handle);
    if (position > 0) range->offset = (IV)position;
    return pagi_response_send_range(aTHX_ exchange, type, fd, range->offset, range->length);
}

/* Sends content of a file or a handle as the last piece of the body. */
static SV *send_content(pTHX_ pagi_exchange *exchange, const char *type, HV *event, SV *file, SV *fh) {
    pagi_range range;
    SV *failed = read_range(aTHX_ exchange->app, type, event, &range);
    if (failed) return failed;
    if (exchange->head_only) return send_bytes(aTHX_ exchange, type, NULL, false);
    return file
           ? pagi_file_send(aTHX_ exchange, type, event, file, range.offset, range.length)
           : send_handle(aTHX_ exchange, type, event, fh, &range);
}

/* Sends the next piece of the body; `files`: the piece may be a file or a file handle. */
SV *pagi_response_body(pTHX_ pagi_exchange *exchange, const char *type, HV *event, bool files) {
    px_worker *worker = exchange->base.worker;
    pagi_context *cx = exchange->app->cx;
    SV *failed = body_out_of_order(aTHX_ exchange, type);
    if (failed) return failed;
    SV *body = px_fetch(aTHX_ event, PAGI_KEY(cx, BODY));
    SV *more = px_fetch(aTHX_ event, PAGI_KEY(cx, MORE));
    bool goes_on;
    failed = pagi_event_flag(aTHX_ worker, type, PAGI_KEY(cx, MORE), more, &goes_on);
    if (failed) return failed;
    const size_t looked_at = 1 + (body != NULL) + (more != NULL);
    if (HvTOTALKEYS(event) > looked_at) {
        SV *file = px_fetch(aTHX_ event, PAGI_KEY(cx, FILE));
        SV *fh = px_fetch(aTHX_ event, PAGI_KEY(cx, FH));
        if (!files && (file || fh))
            return px_future_invalid(aTHX_ worker, "%s: only body can be sent, not %s", type,
                                     file ? "file" : "fh");
        if ((body != NULL) + (file != NULL) + (fh != NULL) > 1)
            return px_future_invalid(aTHX_ worker, "%s: only one of body, file and fh may be given", type);
        if (file || fh) return send_content(aTHX_ exchange, type, event, file, fh);
    }
    return send_bytes(aTHX_ exchange, type, body, goes_on);
}

SV *pagi_response_trailers(pTHX_ pagi_exchange *exchange, HV *event) {
    static const char type[] = "http.response.trailers";
    px_worker *worker = exchange->base.worker;
    if (exchange->response == PAGI_RESPONSE_NONE || exchange->response == PAGI_RESPONSE_COMPLETE)
        return body_out_of_order(aTHX_ exchange, type);
    if (exchange->response == PAGI_RESPONSE_STARTED)
        return px_future_invalid(aTHX_ worker,
                                 "%s: http.response.start did not promise trailers (trailers => 1)", type);
    pagi_fields fields;
    SV *failed = pagi_event_fields(aTHX_ worker, type,
                                   px_fetch(aTHX_ event, PAGI_KEY(exchange->app->cx, HEADERS)), &fields);
    if (failed) return failed;
    if (!worker->engine) return px_future_done(aTHX_ worker, NULL);
    const int code = peregrine_finish(worker->engine, exchange->base.ticket, fields.list, fields.count);
    if (code >= 0) exchange->response = PAGI_RESPONSE_COMPLETE;
    return pagi_event_field_outcome(aTHX_ exchange, type, code, &fields);
}

/* Whether an extension is advertised to the application. */
static bool is_advertised(pTHX_ const pagi_app *app, SV *extension) {
    return app->extensions && hv_exists_ent(app->extensions, extension, 0);
}

/* http.response.informational: an interim response, before the response itself. A client of HTTP/1.0 would
 * take it for the response, and is sent nothing. */
SV *pagi_response_inform(pTHX_ pagi_exchange *exchange, HV *event) {
    static const char type[] = "http.response.informational";
    px_worker *worker = exchange->base.worker;
    pagi_context *cx = exchange->app->cx;
    if (!is_advertised(aTHX_ exchange->app, PAGI_KEY(cx, INFORMATIONAL)))
        return px_future_invalid(aTHX_ worker,
                                 "%s: the server does not advertise the extension informational", type);
    if (exchange->response == PAGI_RESPONSE_COMPLETE) return too_late(aTHX_ exchange, type);
    if (exchange->response != PAGI_RESPONSE_NONE)
        return px_future_invalid(aTHX_ worker, "%s: the response has already started", type);
    IV status = 103;
    bool found;
    SV *failed = pagi_event_interim(aTHX_ exchange->app, type, event, &status, &found);
    if (failed) return failed;
    pagi_fields fields;
    failed = pagi_event_fields(aTHX_ worker, type, px_fetch(aTHX_ event, PAGI_KEY(cx, HEADERS)), &fields);
    if (failed) return failed;
    if (!worker->engine) return px_future_done(aTHX_ worker, NULL);
    const int code = peregrine_inform(worker->engine, exchange->base.ticket, (uint16_t)status, fields.list,
                                      fields.count);
    return pagi_event_field_outcome(aTHX_ exchange, type, code, &fields);
}

/* Cuts the connection, so that the peer sees that the response is truncated. */
void pagi_response_cut(pTHX_ pagi_exchange *exchange) {
    px_worker *worker = exchange->base.worker;
    if (worker->engine && px_exchange_is_live(&exchange->base)) {
        if (exchange->end == PAGI_END_OPEN && !px_exchange_is_lost(&exchange->base))
            px_note_unanswered(&exchange->base);
        (void)peregrine_abort(worker->engine, exchange->base.ticket);
        px_worker_queued(aTHX_ worker);
    }
    pagi_exchange_disconnect(aTHX_ exchange, PEREGRINE_SERVER_ERROR);
    px_exchange_ticket_gone(aTHX_ &exchange->base);
}

/* http.fullflush: queued output goes to the kernel now, or as soon as the kernel has room. */
SV *pagi_response_flush(pTHX_ pagi_exchange *exchange, HV *event) {
    static const char type[] = "http.fullflush";
    px_worker *worker = exchange->base.worker;
    PERL_UNUSED_ARG(event);
    if (!is_advertised(aTHX_ exchange->app, PAGI_KEY(exchange->app->cx, FULLFLUSH)))
        return px_future_invalid(aTHX_ worker, "%s: the server does not advertise the extension fullflush",
                                 type);
    if (!worker->engine) return px_future_done(aTHX_ worker, NULL);
    const int code = peregrine_flush(worker->engine, exchange->base.ticket);
    if (code != PEREGRINE_BLOCKED) return pagi_event_outcome(aTHX_ exchange, type, code);
    SV *future = px_future_pending(aTHX_ worker);
    if (!exchange->flushers) exchange->flushers = newAV();
    av_push(exchange->flushers, newSVsv(future));
    px_worker_wake(worker);
    return future;
}

/* Handles the end of the application: a missing response is made for it, an incomplete one is cut. */
void pagi_response_returned(pTHX_ pagi_exchange *exchange, SV *failure) {
    if (exchange->response == PAGI_RESPONSE_COMPLETE) {
        const bool died = failure && !exchange->let_go;
        if (died)
            px_exchange_tell(aTHX_ &exchange->base, "_app_died", failure, "after its response was complete");
        return;
    }
    const bool lost = px_exchange_is_lost(&exchange->base);
    if (exchange->end != PAGI_END_OPEN || lost) { /* the client left first: no error of the application's */
        if (failure && !exchange->let_go)
            px_exchange_tell(aTHX_ &exchange->base, "_app_left", failure, "after its client had gone");
        if (exchange->end == PAGI_END_HALF_CLOSED && !lost) pagi_response_cut(aTHX_ exchange);
        return;
    }
    const bool started = exchange->response != PAGI_RESPONSE_NONE;
    const char *died = started ? "after its response had started" : "before its response had started";
    const char *ended = started ? "with its response incomplete" : "without a response";
    const char *stage = failure ? died : ended;
    px_exchange_tell(aTHX_ &exchange->base, failure ? "_app_died" : "_app_fell_short",
                     failure ? failure : &PL_sv_undef, stage);
    if (started) {
        px_note_cut(&exchange->base);
        pagi_response_cut(aTHX_ exchange);
    } else pagi_response_backstop(aTHX_ exchange, failure, stage);
}
