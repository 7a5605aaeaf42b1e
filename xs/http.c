/* http.c - the http scope: its request events, its response events, and what the end of its application means.
 *
 * Which framing an answer gets, which fields the server adds and what a legal field is, the engine knows. */
#include "peregrine_xs.h"

#include <fcntl.h>
#include <unistd.h>

/* ---- $receive ------------------------------------------------------------------------------------------------------------------- */

static SV *disconnect_event(pTHX_ px_context *cx) {
    HV *event = newHV();
    px_store(aTHX_ event, PX_KEY(cx, TYPE), px_copy(aTHX_ PX_KEY(cx, HTTP_DISCONNECT)));
    return newRV_noinc((SV *)event);
}

/* Whether there is body, or the end of it, that no http.request event has told of. */
static bool has_news(const px_exchange *exchange) {
    return exchange->body || exchange->request == PX_REQUEST_LAST;
}

/* The next http.request event. Trailer fields, if the request had any, come with the last one under the key `trailers`. */
static SV *request_event(pTHX_ px_exchange *exchange) {
    px_context *cx = exchange->worker->cx;
    const bool last = exchange->request == PX_REQUEST_LAST;
    HV *event = newHV();
    px_store(aTHX_ event, PX_KEY(cx, TYPE), px_copy(aTHX_ PX_KEY(cx, HTTP_REQUEST)));
    px_store(aTHX_ event, PX_KEY(cx, BODY), exchange->body ? exchange->body : newSVpvs(""));
    px_store(aTHX_ event, PX_KEY(cx, MORE), newSViv(!last));
    exchange->body = NULL;
    if (last) {
        exchange->request = PX_REQUEST_DELIVERED;
        if (exchange->trailers) px_store(aTHX_ event, PX_KEY(cx, TRAILERS), newRV_noinc((SV *)exchange->trailers));
        exchange->trailers = NULL;
    }
    return newRV_noinc((SV *)event);
}

static bool over(const px_exchange *exchange) {
    return exchange->end != PX_END_OPEN || exchange->response == PX_RESPONSE_COMPLETE;
}

/* Asks the engine for more body, once at a time. */
static void want_body(pTHX_ px_exchange *exchange) {
    px_worker *worker = exchange->worker;
    if (exchange->reading || exchange->request != PX_REQUEST_MORE || !worker->engine) return;
    if (peregrine_read(worker->engine, exchange->ticket) < 0) {
        px_exchange_lost(aTHX_ exchange);
        return;
    }
    exchange->reading = true;
    px_worker_wake(worker);
}

/* Hands events to those who wait, oldest first. A Future that was cancelled gets nothing and costs nothing. */
static void serve_receivers(pTHX_ px_exchange *exchange) {
    px_worker *worker = exchange->worker;
    AV *waiting = exchange->receivers;
    while (waiting && av_top_index(waiting) >= 0) {
        SV *first = AvARRAY(waiting)[0];
        SV *failure = NULL;
        if (px_future_look(aTHX_ worker->cx, first, &failure) != PX_FUTURE_PENDING) {
            SvREFCNT_dec(av_shift(waiting));
            continue;
        }
        SV *event;
        if (over(exchange)) event = disconnect_event(aTHX_ worker->cx);
        else if (has_news(exchange)) event = request_event(aTHX_ exchange);
        else break;
        px_future_resolve(aTHX_ worker, sv_2mortal(av_shift(waiting)), event);
        waiting = exchange->receivers;
    }
    if (waiting && av_top_index(waiting) >= 0) want_body(aTHX_ exchange);
}

static SV *http_receive(pTHX_ px_exchange *exchange) {
    px_worker *worker = exchange->worker;
    const bool queue = exchange->receivers && av_top_index(exchange->receivers) >= 0;
    if (over(exchange)) return px_future_done(aTHX_ worker, disconnect_event(aTHX_ worker->cx));
    if (queue) serve_receivers(aTHX_ exchange); /* those that were cancelled go */
    if (!exchange->receivers || av_top_index(exchange->receivers) < 0) {
        if (has_news(exchange)) return px_future_done(aTHX_ worker, request_event(aTHX_ exchange));
    }
    SV *future = px_future_pending(aTHX_ worker);
    if (!exchange->receivers) exchange->receivers = newAV();
    av_push(exchange->receivers, newSVsv(future));
    want_body(aTHX_ exchange);
    return future;
}

/* BODY: bytes that arrived although nobody waits any more are kept for the next $receive. */
static void http_body(pTHX_ px_exchange *exchange, const peregrine_event *event) {
    exchange->reading = false;
    if (exchange->request != PX_REQUEST_MORE) return;
    if (event->len) {
        if (exchange->body) sv_catpvn(exchange->body, event->bytes, event->len);
        else exchange->body = newSVpvn(event->bytes, event->len);
    }
    if (event->flags & PEREGRINE_LAST) exchange->request = PX_REQUEST_LAST;
    if ((event->flags & PEREGRINE_TRAILERS) && event->request)
        exchange->trailers = px_scope_fields(aTHX_ exchange->worker->cx, event->request, true);
    serve_receivers(aTHX_ exchange);
}

/* ---- Field lists ---------------------------------------------------------------------------------------------------------------- */

#define PX_FIELDS_ON_STACK 32

typedef struct px_fields {
    peregrine_field *list;
    size_t count;
    peregrine_field local[PX_FIELDS_ON_STACK];
} px_fields;

/* Bytes of a scalar; NULL when it holds a wide character. The application's scalar is left as it is. */
static const char *bytes_of(pTHX_ SV *value, STRLEN *len) {
    const char *bytes = SvPV_const(value, *len);
    if (!SvUTF8(value)) return bytes;
    SV *copy = newSVpvn_flags(bytes, *len, SVs_TEMP | SVf_UTF8);
    if (!sv_utf8_downgrade(copy, TRUE)) return NULL;
    return SvPV_const(copy, *len);
}

/* What is wrong with a value that should be a byte string, as a phrase; NULL if nothing is. */
static const char *read_bytes(pTHX_ SV **slot, const char **bytes, size_t *len) {
    if (!slot || !*slot) return "is missing";
    if (SvPOK(*slot) && !SvUTF8(*slot) && !SvGMAGICAL(*slot)) {
        *bytes = SvPVX_const(*slot);
        *len = SvCUR(*slot);
        return NULL;
    }
    SvGETMAGIC(*slot);
    if (!SvOK(*slot)) return "is undefined";
    if (SvROK(*slot) && !SvAMAGIC(*slot)) return "is a reference, not a string";
    STRLEN got;
    *bytes = bytes_of(aTHX_ *slot, &got);
    *len = got;
    return *bytes ? NULL : "has a wide character; encode it to bytes first";
}

/* Reads a list of [name, value] pairs. Returns NULL, or a failed Future that says which pair is wrong. */
static SV *read_fields(pTHX_ px_worker *worker, const char *type, SV *headers, px_fields *fields) {
    fields->list = fields->local;
    fields->count = 0;
    if (!headers) return NULL;
    if (!SvROK(headers) || SvTYPE(SvRV(headers)) != SVt_PVAV)
        return px_future_invalid(aTHX_ worker, "%s: headers must be an array reference of [name, value] pairs", type);
    AV *list = (AV *)SvRV(headers);
    const size_t count = (size_t)(av_top_index(list) + 1);
    if (count > PX_FIELDS_ON_STACK) {
        SV *space = newSV(count * sizeof(peregrine_field));
        fields->list = (peregrine_field *)SvPVX(sv_2mortal(space));
    }
    for (size_t i = 0; i < count; i++) {
        SV **entry = av_fetch(list, (SSize_t)i, 0);
        if (!entry || !SvROK(*entry) || SvTYPE(SvRV(*entry)) != SVt_PVAV || av_top_index((AV *)SvRV(*entry)) != 1)
            return px_future_invalid(aTHX_ worker, "%s: headers[%lu] must be a [name, value] pair", type, (unsigned long)i);
        AV *field = (AV *)SvRV(*entry);
        peregrine_field *out = &fields->list[i];
        const char *wrong = read_bytes(aTHX_ av_fetch(field, 0, 0), &out->name, &out->name_len);
        if (wrong) return px_future_invalid(aTHX_ worker, "%s: the name of headers[%lu] %s", type, (unsigned long)i, wrong);
        wrong = read_bytes(aTHX_ av_fetch(field, 1, 0), &out->value, &out->value_len);
        if (wrong)
            return px_future_invalid(aTHX_ worker, "%s: the value of headers[%lu] (%.*s) %s", type, (unsigned long)i,
                                     (int)(out->name_len > 64 ? 64 : out->name_len), out->name, wrong);
    }
    fields->count = count;
    return NULL;
}

/* ---- $send ---------------------------------------------------------------------------------------------------------------------- */

static void set_complete(px_exchange *exchange) {
    exchange->response = PX_RESPONSE_COMPLETE;
}

/* The Future of an event that the engine took, or refused with a negative code. */
static SV *outcome(pTHX_ px_exchange *exchange, const char *type, int code) {
    px_worker *worker = exchange->worker;
    switch (code) {
    case PEREGRINE_OK: px_worker_queued(aTHX_ worker); return px_future_done(aTHX_ worker, NULL);
    case PEREGRINE_DONE:
        px_exchange_complete(aTHX_ exchange);
        px_exchange_ticket_gone(aTHX_ exchange);
        return px_future_done(aTHX_ worker, NULL);
    case PEREGRINE_BLOCKED: {
        SV *future = px_future_pending(aTHX_ worker);
        if (!exchange->senders) exchange->senders = newAV();
        av_push(exchange->senders, newSVsv(future));
        px_transport_high(aTHX_ exchange);
        if (worker->engine) (void)peregrine_flush(worker->engine, exchange->ticket);
        px_worker_wake(worker);
        return future;
    }
    case PEREGRINE_E_GONE: px_exchange_lost(aTHX_ exchange); return px_future_done(aTHX_ worker, NULL);
    default: return px_future_invalid(aTHX_ worker, "%s: %s", type, peregrine_error_text(code));
    }
}

/* The same for an event with fields: names the one that is wrong. */
static SV *field_outcome(pTHX_ px_exchange *exchange, const char *type, int code, const px_fields *fields) {
    px_worker *worker = exchange->worker;
    if (code != PEREGRINE_E_FIELD_NAME && code != PEREGRINE_E_FIELD_VALUE && code != PEREGRINE_E_CONTENT_LENGTH)
        return outcome(aTHX_ exchange, type, code);
    const size_t i = peregrine_bad_field(worker->engine);
    SV *name = newSVpvs_flags("", SVs_TEMP);
    if (i < fields->count)
        pv_pretty(name, fields->list[i].name, fields->list[i].name_len, 64, NULL, NULL, PERL_PV_PRETTY_DUMP);
    return px_future_invalid(aTHX_ worker, "%s: headers[%lu] (%" SVf "): %s", type, (unsigned long)i, SVfARG(name),
                             peregrine_error_text(code));
}

/* Reads an integer field within a range; *found says whether it is there. Returns NULL or a failed Future. */
static SV *read_integer(pTHX_ px_worker *worker, const char *type, HV *event, SV *key, IV max, IV *number, bool *found) {
    SV *value = px_fetch(aTHX_ event, key);
    *found = value != NULL;
    if (!value) return NULL;
    if (SvIOK(value) && !SvIsUV(value) && SvIVX(value) >= 0 && SvIVX(value) <= max && !SvNOK(value)) {
        *number = SvIVX(value);
        return NULL;
    }
    const bool reference = SvROK(value) && !SvAMAGIC(value);
    const I32 looks = reference ? 0 : looks_like_number(value);
    *number = looks ? SvIV_nomg(value) : -1;
    if (!looks || *number < 0 || *number > max || (NV)*number != SvNV_nomg(value))
        return px_future_invalid(aTHX_ worker, "%s: %s must be an integer from 0 to %" IVdf ", not '%" SVf "'", type, SvPVX_const(key), max,
                                 SVfARG(value));
    return NULL;
}

static SV *send_start(pTHX_ px_exchange *exchange, HV *event) {
    static const char type[] = "http.response.start";
    px_worker *worker = exchange->worker;
    px_context *cx = worker->cx;
    if (exchange->response != PX_RESPONSE_NONE) return px_future_invalid(aTHX_ worker, "%s: the response has already started", type);

    IV status;
    bool found;
    SV *failed = read_integer(aTHX_ worker, type, event, PX_KEY(cx, STATUS), 999, &status, &found);
    if (failed) return failed;
    if (!found) return px_future_invalid(aTHX_ worker, "%s: status is missing", type);
    SV *headers = px_fetch(aTHX_ event, PX_KEY(cx, HEADERS));
    const size_t looked_at = 2 + (headers != NULL);
    SV *trailers = HvTOTALKEYS(event) > looked_at ? px_fetch(aTHX_ event, PX_KEY(cx, TRAILERS)) : NULL;
    const bool promised = trailers && SvTRUE_nomg(trailers);
    px_fields fields;
    failed = read_fields(aTHX_ worker, type, headers, &fields);
    if (failed) return failed;
    if (!worker->engine) return px_future_done(aTHX_ worker, NULL);

    const peregrine_response response = {
        .size = sizeof(response),
        .status = (uint16_t)status,
        .flags = promised ? PEREGRINE_WITH_TRAILERS : 0,
        .fields = fields.list,
        .field_count = fields.count,
    };
    const int code = peregrine_respond(worker->engine, exchange->ticket, &response);
    if (code == PEREGRINE_E_STATUS)
        return px_future_invalid(aTHX_ worker, "%s: status must be from 200 to 599, not %" IVdf, type, status);
    if (code >= 0) {
        exchange->response = PX_RESPONSE_STARTED;
        exchange->trailers_due = promised;
        px_exchange_note(aTHX_ exchange, (int)status, 0);
    }
    return field_outcome(aTHX_ exchange, type, code, &fields);
}

/* Checks that a body event may come now. */
static SV *body_out_of_order(pTHX_ px_exchange *exchange, const char *type) {
    switch (exchange->response) {
    case PX_RESPONSE_STARTED: return NULL;
    case PX_RESPONSE_NONE:
        return px_future_invalid(aTHX_ exchange->worker, "%s: the response has not been started with http.response.start", type);
    case PX_RESPONSE_TRAILERS_DUE:
        return px_future_invalid(aTHX_ exchange->worker, "%s: the body is complete, only http.response.trailers may follow", type);
    case PX_RESPONSE_COMPLETE: break;
    }
    return px_future_invalid(aTHX_ exchange->worker, "%s: the response is already complete", type);
}

static SV *send_bytes(pTHX_ px_exchange *exchange, const char *type, SV *body, bool more) {
    px_worker *worker = exchange->worker;
    const char *bytes = "";
    size_t len = 0;
    if (body) {
        const char *wrong = read_bytes(aTHX_ & body, &bytes, &len);
        if (wrong) return px_future_invalid(aTHX_ worker, "%s: body %s", type, wrong);
    }
    const bool last = !more && !exchange->trailers_due;
    if (!worker->engine || (len == 0 && !last)) {
        if (!more) exchange->response = PX_RESPONSE_TRAILERS_DUE;
        return px_future_done(aTHX_ worker, NULL);
    }
    const int code = peregrine_write(worker->engine, exchange->ticket, bytes, len, last ? PEREGRINE_END : 0);
    if (code >= 0) px_exchange_note(aTHX_ exchange, 0, len);
    if (code >= 0 && !more) exchange->response = last ? PX_RESPONSE_COMPLETE : PX_RESPONSE_TRAILERS_DUE;
    return outcome(aTHX_ exchange, type, code);
}

/* Hands a range of an open file to the engine, which has its own descriptor from then on. */
static SV *send_range(pTHX_ px_exchange *exchange, const char *type, HV *event, int fd, IV from) {
    px_worker *worker = exchange->worker;
    px_context *cx = worker->cx;
    IV offset = 0, length = -1;
    bool given, bounded;
    SV *failed = read_integer(aTHX_ worker, type, event, PX_KEY(cx, OFFSET), IV_MAX, &offset, &given);
    if (failed) return failed;
    failed = read_integer(aTHX_ worker, type, event, PX_KEY(cx, LENGTH), IV_MAX, &length, &bounded);
    if (failed) return failed;
    if (!given) offset = from;
    if (!bounded) length = -1;
    if (!worker->engine) return px_future_done(aTHX_ worker, NULL);
    const int code = peregrine_write_file(worker->engine, exchange->ticket, fd, (uint64_t)offset, (int64_t)length);
    if (code == PEREGRINE_E_SYSTEM) return px_future_invalid(aTHX_ worker, "%s: the file cannot be sent: %s", type, Strerror(errno));
    if (code >= 0) exchange->response = exchange->trailers_due ? PX_RESPONSE_TRAILERS_DUE : PX_RESPONSE_COMPLETE;
    return outcome(aTHX_ exchange, type, code);
}

static SV *send_file(pTHX_ px_exchange *exchange, const char *type, HV *event, SV *file) {
    px_worker *worker = exchange->worker;
    if (SvROK(file) && !SvAMAGIC(file)) return px_future_invalid(aTHX_ worker, "%s: file must be a path", type);
    STRLEN len;
    const char *path = SvPV_nomg_const(file, len);
    const int fd = memchr(path, 0, len) ? (errno = ENOENT, -1) : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return px_future_invalid(aTHX_ worker, "%s: file '%" SVf "' cannot be opened: %s", type, SVfARG(file), Strerror(errno));
    SV *future = send_range(aTHX_ exchange, type, event, fd, 0);
    close(fd);
    return future;
}

/* A handle is read from where it stands unless `offset` says otherwise; it must be backed by a descriptor that can seek. */
static SV *send_handle(pTHX_ px_exchange *exchange, const char *type, HV *event, SV *fh) {
    px_worker *worker = exchange->worker;
    IO *io = SvROK(fh) || isGV_with_GP(fh) ? sv_2io(fh) : NULL;
    PerlIO *handle = io ? IoIFP(io) : NULL;
    const int fd = handle ? PerlIO_fileno(handle) : -1;
    if (fd < 0) return px_future_invalid(aTHX_ worker, "%s: fh must be an open file handle", type);
    const Off_t position = PerlIO_tell(handle);
    return send_range(aTHX_ exchange, type, event, fd, position > 0 ? (IV)position : 0);
}

static SV *send_body(pTHX_ px_exchange *exchange, HV *event) {
    static const char type[] = "http.response.body";
    px_worker *worker = exchange->worker;
    px_context *cx = worker->cx;
    SV *failed = body_out_of_order(aTHX_ exchange, type);
    if (failed) return failed;
    SV *body = px_fetch(aTHX_ event, PX_KEY(cx, BODY));
    SV *more = px_fetch(aTHX_ event, PX_KEY(cx, MORE));
    const size_t looked_at = 1 + (body != NULL) + (more != NULL);
    if (HvTOTALKEYS(event) > looked_at) {
        SV *file = px_fetch(aTHX_ event, PX_KEY(cx, FILE));
        SV *fh = px_fetch(aTHX_ event, PX_KEY(cx, FH));
        if ((body != NULL) + (file != NULL) + (fh != NULL) > 1)
            return px_future_invalid(aTHX_ worker, "%s: only one of body, file and fh may be given", type);
        if (file) return send_file(aTHX_ exchange, type, event, file);
        if (fh) return send_handle(aTHX_ exchange, type, event, fh);
    }
    return send_bytes(aTHX_ exchange, type, body, more && SvTRUE_nomg(more));
}

static SV *send_trailers(pTHX_ px_exchange *exchange, HV *event) {
    static const char type[] = "http.response.trailers";
    px_worker *worker = exchange->worker;
    if (exchange->response == PX_RESPONSE_NONE || exchange->response == PX_RESPONSE_COMPLETE)
        return body_out_of_order(aTHX_ exchange, type);
    if (!exchange->trailers_due)
        return px_future_invalid(aTHX_ worker, "%s: http.response.start did not promise trailers (trailers => 1)", type);
    px_fields fields;
    SV *failed = read_fields(aTHX_ worker, type, px_fetch(aTHX_ event, PX_KEY(worker->cx, HEADERS)), &fields);
    if (failed) return failed;
    if (!worker->engine) return px_future_done(aTHX_ worker, NULL);
    const int code = peregrine_finish(worker->engine, exchange->ticket, fields.list, fields.count);
    if (code >= 0) set_complete(exchange);
    return field_outcome(aTHX_ exchange, type, code, &fields);
}

static SV *send_flush(pTHX_ px_exchange *exchange, HV *event) {
    static const char type[] = "http.fullflush";
    px_worker *worker = exchange->worker;
    PERL_UNUSED_ARG(event);
    if (!worker->extensions || !hv_exists_ent(worker->extensions, PX_KEY(worker->cx, FULLFLUSH), 0))
        return px_future_invalid(aTHX_ worker, "%s: the server does not advertise the extension fullflush", type);
    if (!worker->engine) return px_future_done(aTHX_ worker, NULL);
    return outcome(aTHX_ exchange, type, peregrine_flush(worker->engine, exchange->ticket));
}

#define PX_SEND(text, function) {text, sizeof(text) - 1, function}
static const px_send_event http_sends[] = {
    PX_SEND("http.response.start", send_start),
    PX_SEND("http.response.body", send_body),
    PX_SEND("http.response.trailers", send_trailers),
    PX_SEND("http.fullflush", send_flush),
    {NULL, 0, NULL},
};

/* ---- The application's end ------------------------------------------------------------------------------------------------------- */

/* The answer of last resort. The request has failed for pagi.connection even if the peer gets this. */
static void backstop(pTHX_ px_exchange *exchange) {
    static const char body[] = "Internal Server Error\n";
    static const peregrine_field fields[] = {
        {"content-type", 12, "text/plain; charset=utf-8", 25},
    };
    px_worker *worker = exchange->worker;
    exchange->response = PX_RESPONSE_COMPLETE;
    if (worker->engine && exchange->ticket_live) {
        const peregrine_response response = {
            .size = sizeof(response),
            .status = 500,
            .flags = PEREGRINE_END | PEREGRINE_CLOSE,
            .fields = fields,
            .field_count = C_ARRAY_LENGTH(fields),
            .body = body,
            .body_len = sizeof(body) - 1,
        };
        const int code = peregrine_respond(worker->engine, exchange->ticket, &response);
        px_exchange_note(aTHX_ exchange, 500, response.body_len);
        px_worker_queued(aTHX_ worker);
        px_exchange_disconnect(aTHX_ exchange, PEREGRINE_SERVER_ERROR);
        if (code == PEREGRINE_DONE) px_exchange_ticket_gone(aTHX_ exchange);
    }
}

/* Cuts the connection, so that the peer sees that the response is truncated. */
static void cut(pTHX_ px_exchange *exchange) {
    px_worker *worker = exchange->worker;
    if (worker->engine && exchange->ticket_live) {
        (void)peregrine_abort(worker->engine, exchange->ticket);
        px_worker_queued(aTHX_ worker);
    }
    px_exchange_disconnect(aTHX_ exchange, PEREGRINE_SERVER_ERROR);
    px_exchange_ticket_gone(aTHX_ exchange);
}

static void http_returned(pTHX_ px_exchange *exchange, SV *failure) {
    px_worker *worker = exchange->worker;
    if (exchange->response == PX_RESPONSE_COMPLETE) {
        if (failure) px_worker_tell(aTHX_ worker, "_app_died", failure, newSVpvs_flags("after its response was complete", SVs_TEMP));
        return;
    }
    if (exchange->end != PX_END_OPEN || exchange->gone) return; /* the client left first: nobody's error */
    const bool started = exchange->response != PX_RESPONSE_NONE;
    const char *stage = failure ? (started ? "after its response had started" : "before its response had started")
                                : (started ? "with its response incomplete" : "without a response");
    px_worker_tell(aTHX_ worker, failure ? "_app_died" : "_app_fell_short", failure ? failure : &PL_sv_undef,
                   newSVpvn_flags(stage, strlen(stage), SVs_TEMP));
    if (started) cut(aTHX_ exchange);
    else backstop(aTHX_ exchange);
}

const px_kind px_http_kind = {
    .name = "http",
    .sends = http_sends,
    .receive = http_receive,
    .body = http_body,
    .ended = serve_receivers,
    .returned = http_returned,
};

/* REQUEST: opens an exchange and calls the application. */
void px_http_request(pTHX_ px_worker *worker, const peregrine_event *event) {
    px_exchange *exchange = px_exchange_open(aTHX_ worker, &px_http_kind, event->ticket);
    if (event->len) exchange->body = newSVpvn(event->bytes, event->len);
    if (event->flags & PEREGRINE_LAST) exchange->request = PX_REQUEST_LAST;
    if (worker->access_log) exchange->log = px_scope_log(aTHX_ event->request);
    HV *scope = px_scope_http(aTHX_ exchange, event->request);
    px_exchange_call_app(aTHX_ exchange, scope);
}
