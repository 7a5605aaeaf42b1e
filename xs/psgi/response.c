/* response.c - a response by value: [status, headers, body].
 *
 * Values that run Perl code when they are read (tied, overloaded) are replaced by plain copies first, in
 * Perl: no Perl code runs while a response is read here, so that pointers into its values stay good. The
 * engine decides the framing and which fields are legal. */
#include "psgi/psgi.h"

#define PSGI_FIELDS_ON_STACK 32
/* Pieces of a body that have at most so many bytes in all are sent as one. */
#define PSGI_JOIN_MAX (64 * 1024)

typedef struct {
    UV status;
    peregrine_field *list;
    size_t count;
    const peregrine_field *content_length; /* the application's field, or NULL */
    bool chunked; /* the application has put the content into chunks */
    bool holds;   /* the engine is to hold the response open */
    peregrine_field local[PSGI_FIELDS_ON_STACK];
    char length_text[24];
} psgi_head;

/* ---- Checks for plain values -------------------------------------------------------------------- */

/* The list behind a value, if it has no magic; otherwise NULL. */
static AV *plain_list(const SV *value) {
    if (!value || !SvROK(value) || SvGMAGICAL(value)) return NULL;
    SV *list = SvRV(value);
    return SvTYPE(list) == SVt_PVAV && !SvMAGICAL(list) && !SvOBJECT(list) ? (AV *)list : NULL;
}

static bool plain_entries(AV *list) {
    SV **entries = AvARRAY(list);
    for (SSize_t i = AvFILLp(list); i >= 0; i--)
        if (!entries[i] || !px_is_plain(entries[i]) || SvROK(entries[i])) return false;
    return true;
}

/* Whether a body can be read without running Perl code: a list of plain strings, or no list. */
static bool plain_body(const SV *body) {
    if (!body || SvGMAGICAL(body)) return false;
    if (!SvROK(body) || SvTYPE(SvRV(body)) != SVt_PVAV || SvOBJECT(SvRV(body))) return true;
    AV *list = plain_list(body);
    return list && plain_entries(list);
}

static bool plain_response(const SV *response) {
    AV *list = plain_list(response);
    if (!list || AvFILLp(list) < 1 || AvFILLp(list) > 2) return false;
    SV **parts = AvARRAY(list);
    AV *headers = parts[1] ? plain_list(parts[1]) : NULL;
    return parts[0] && px_is_plain(parts[0]) && !SvROK(parts[0]) && headers && plain_entries(headers) &&
           (AvFILLp(list) == 1 || plain_body(parts[2]));
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* Bytes of a scalar, none for undef; NULL when it holds a wide character. */
static const char *bytes_of(pTHX_ SV *value, STRLEN *len) {
    return SvOK(value) ? px_plain_bytes(aTHX_ value, len) : (*len = 0, "");
}

static bool is_content_length(const peregrine_field *field) {
    return px_is_text(field->name, field->name_len, "content-length");
}

static bool says_chunked(const peregrine_field *field) {
    return px_is_text(field->name, field->name_len, "transfer-encoding") &&
           px_is_text(field->value, field->value_len, "chunked");
}

static bool read_status(pTHX_ SV *status, UV *number) {
    STRLEN len;
    if (!SvOK(status)) return false;
    if (SvIOK(status)) {
        *number = SvIV(status) < 0 ? 0 : SvUV(status);
    } else {
        const char *text = SvPV_const(status, len);
        if (grok_number(text, len, number) != IS_NUMBER_IN_UV) return false;
    }
    return *number >= 100 && *number <= 999;
}

/* Reads status and headers. Returns NULL, or the mistake as a mortal text. Leaves room for one more field. */
static SV *read_head(pTHX_ const psgi_app *app, SV *status, AV *headers, psgi_head *head) {
    const size_t values = (size_t)(AvFILLp(headers) + 1);
    head->count = 0;
    head->content_length = NULL;
    head->chunked = head->holds = false;
    head->list = head->local;
    if (!read_status(aTHX_ status, &head->status))
        return sv_2mortal(newSVpvf("the status must be a number from 200 to 599, not '%.40s'",
                                   SvOK(status) ? SvPV_nolen(status) : "undef"));
    if (values % 2) return sv_2mortal(newSVpvs("the headers have a name without a value"));
    if (values / 2 + 1 > PSGI_FIELDS_ON_STACK) {
        SV *space = sv_2mortal(newSV((values / 2 + 1) * sizeof(peregrine_field)));
        head->list = (peregrine_field *)(void *)SvPVX(space);
    }
    for (size_t i = 0; i < values; i += 2) {
        SV **pair = AvARRAY(headers) + i;
        peregrine_field *field = &head->list[head->count];
        if (!SvOK(pair[0])) return sv_2mortal(newSVpvs("the name of a header is undefined"));
        field->name = bytes_of(aTHX_ pair[0], &field->name_len);
        if (!field->name) return sv_2mortal(newSVpvs("the name of a header has a wide character"));
        if (psgi_grip_is_ours(app, field->name, field->name_len)) {
            if (px_is_text(field->name, field->name_len, "grip-hold")) head->holds = true;
            continue;
        }
        field->value = SvOK(pair[1]) ? bytes_of(aTHX_ pair[1], &field->value_len) : NULL;
        if (!field->value)
            return sv_2mortal(newSVpvf("header %.64s %s", field->name,
                                       SvOK(pair[1]) ? "has a wide character" : "is undefined"));
        if (is_content_length(field)) head->content_length = field;
        if (says_chunked(field)) head->chunked = true;
        else head->count++;
    }
    return NULL;
}

/* The engine's refusal of a head as a mortal text. */
static SV *complaint(pTHX_ const psgi_exchange *exchange, const psgi_head *head, int code) {
    const bool one_field = code == PEREGRINE_E_FIELD_NAME || code == PEREGRINE_E_FIELD_VALUE ||
                           code == PEREGRINE_E_CONTENT_LENGTH;
    const size_t i = one_field ? peregrine_bad_field(exchange->base.worker->engine) : head->count;
    SV *text = newSVpvs_flags("", SVs_TEMP);
    if (i < head->count) {
        SV *name = newSVpvs_flags("", SVs_TEMP);
        pv_pretty(name, head->list[i].name, head->list[i].name_len, 64, NULL, NULL, PERL_PV_PRETTY_DUMP);
        sv_catpvf(text, "header %" SVf ": ", SVfARG(name));
    } else if (code == PEREGRINE_E_STATUS) {
        sv_catpvf(text, "status %" UVuf ": ", head->status);
    }
    sv_catpv(text, peregrine_error_text(code));
    return text;
}

/* ---- Sending --------------------------------------------------------------------------------- */

/* Starts the response. False: it could not be started. */
static bool start(pTHX_ psgi_exchange *exchange, const psgi_head *head, uint16_t flags, const char *body,
                  size_t len) {
    const peregrine_response response = {
        .size = sizeof(response),
        .status = (uint16_t)head->status,
        .flags = flags,
        .fields = head->list,
        .field_count = head->count,
        .body = body,
        .body_len = len,
    };
    px_trace(&exchange->base, PEREGRINE_TRACE_SEND, len, response.status, "response");
    const int code = peregrine_respond(exchange->base.worker->engine, exchange->base.ticket, &response);
    if (code >= 0) px_note_answer(&exchange->base, response.status);
    if (code == PEREGRINE_E_GONE) {
        px_exchange_lost(&exchange->base);
        return false;
    }
    if (code < 0) {
        psgi_exchange_reject(aTHX_ exchange, complaint(aTHX_ exchange, head, code));
        return false;
    }
    exchange->state = PSGI_STARTED;
    exchange->framing = head->chunked ? PSGI_SAYS_CHUNKED : PSGI_PLAIN;
    if (head->chunked) Zero(&exchange->chunks, 1, psgi_chunks);
    if (flags & PEREGRINE_END) psgi_exchange_sent(aTHX_ exchange, code);
    return true;
}

static void write_piece(pTHX_ psgi_exchange *exchange, SV *piece, bool last, const char **wrong);

/* Sends the pieces of a whole body. The last one ends the response where the engine takes it. After a wrong
 * piece was reported the list may be freed. */
static void write_pieces(pTHX_ psgi_exchange *exchange, AV *list) {
    for (SSize_t i = 0; psgi_delivers(exchange) && i <= AvFILLp(list); i++) {
        const char *wrong;
        write_piece(aTHX_ exchange, AvARRAY(list)[i], i == AvFILLp(list), &wrong);
        if (!wrong) continue;
        psgi_exchange_reject(aTHX_ exchange, sv_2mortal(newSVpv(wrong, 0)));
    }
    if (psgi_delivers(exchange)) psgi_response_end(aTHX_ exchange);
}

/* Sends a body of many or long pieces without joining them: the engine takes each piece by itself. */
static void send_pieces(pTHX_ psgi_exchange *exchange, psgi_head *head, AV *list, size_t total) {
    if (!head->content_length && !head->chunked) {
        const int len = my_snprintf(head->length_text, sizeof(head->length_text), "%" UVuf, (UV)total);
        head->list[head->count++] = (peregrine_field){"Content-Length", 14, head->length_text, (size_t)len};
    }
    if (start(aTHX_ exchange, head, PEREGRINE_HOLD, NULL, 0))
        write_pieces(aTHX_ exchange, list);
}

static void send_list(pTHX_ psgi_exchange *exchange, psgi_head *head, AV *list) {
    const SSize_t count = AvFILLp(list) + 1;
    size_t total = 0, longest = 0;
    SV *one = NULL;
    for (SSize_t i = 0; i < count; i++) {
        STRLEN len;
        if (!bytes_of(aTHX_ AvARRAY(list)[i], &len)) {
            SV *text = newSVpvs_flags("the body has a wide character; encode it to bytes first", SVs_TEMP);
            psgi_exchange_reject(aTHX_ exchange, text);
            return;
        }
        total += len;
        if (len == 0) continue;
        one = longest == 0 ? AvARRAY(list)[i] : NULL;
        longest = len > longest ? len : longest;
    }
    if (total > PSGI_JOIN_MAX || head->chunked) {
        send_pieces(aTHX_ exchange, head, list, total);
        return;
    }
    if (!one && total) {
        one = sv_2mortal(newSV(total + 1));
        SvPVCLEAR(one);
        for (SSize_t i = 0; i < count; i++) {
            STRLEN len;
            const char *bytes = bytes_of(aTHX_ AvARRAY(list)[i], &len);
            sv_catpvn_nomg(one, bytes, len);
        }
    }
    STRLEN len = 0;
    const char *bytes = one ? bytes_of(aTHX_ one, &len) : NULL;
    (void)start(aTHX_ exchange, head, PEREGRINE_END, bytes, len);
}

/* Appends content to the temporary file. Returns NULL, or the mistake. */
static const char *spool(pTHX_ psgi_exchange *exchange, const char *bytes, size_t len) {
    const size_t done = psgi_spool_add(exchange, bytes, len);
    if (done == len) {
        exchange->drains = psgi_spool_is_full(exchange);
        return NULL;
    }
    const int code = psgi_spool_give_up(aTHX_ exchange, bytes + done, len - done);
    if (code == PEREGRINE_E_GONE) px_exchange_lost(&exchange->base);
    else if (code == PEREGRINE_E_SYSTEM) return "its temporary file cannot be read";
    else if (code < 0) return peregrine_error_text(code);
    exchange->drains = code == PEREGRINE_BLOCKED;
    return NULL;
}

/* Gives content to the engine, or to the temporary file if there is one or one is needed. `last`: the
 * response ends behind it, and is sent if the engine gets all of it. Returns NULL, or the mistake. */
static const char *send_content(pTHX_ psgi_exchange *exchange, SV *piece, const char *bytes, size_t len,
                                bool last) {
    if (psgi_spool_is_open(exchange)) return spool(aTHX_ exchange, bytes, len);
    const bool spools = psgi_spool_is_wanted(exchange);
    const size_t room = spools ? psgi_spool_room(exchange) : len;
    const size_t now = len <= room || !psgi_spool_open(aTHX_ exchange) ? len : room;
    if (now > 0) {
        const bool ends = last && now == len;
        const int code = px_loan_write(aTHX_ &exchange->base, now == len ? piece : NULL, bytes, now,
                                       ends ? PEREGRINE_END : 0);
        if (code == PEREGRINE_E_GONE) px_exchange_lost(&exchange->base);
        else if (code < 0) return peregrine_error_text(code);
        else if (ends) psgi_exchange_sent(aTHX_ exchange, code);
        else if (code == PEREGRINE_BLOCKED && (!spools || (now == len && psgi_spool_room(exchange) == 0)))
            exchange->drains = !spools || !psgi_spool_open(aTHX_ exchange);
    }
    return now < len && psgi_delivers(exchange) ? spool(aTHX_ exchange, bytes + now, len - now) : NULL;
}

/* Finds out whether content whose head says chunked is in chunks. False: more bytes are needed, and these are
 * kept. */
static bool look_for_chunks(pTHX_ psgi_exchange *exchange, SV **piece, const char **bytes, STRLEN *len) {
    psgi_chunks *chunks = &exchange->chunks;
    if (chunks->held_len) {
        SV *joined = newSVpvn_flags(chunks->held, chunks->held_len, SVs_TEMP);
        sv_catpvn_nomg(joined, *bytes, *len);
        *piece = joined;
        *bytes = SvPV_const(joined, *len);
        chunks->held_len = 0;
    }
    const int begins = psgi_chunked_begins(*bytes, *len);
    if (begins < 0) {
        Copy(*bytes, chunks->held, *len, char);
        chunks->held_len = (uint8_t)*len;
        return false;
    }
    exchange->framing = begins ? PSGI_CHUNKED : PSGI_PLAIN;
    return true;
}

/* Leaves a response to the engine, with its content. `given_head`: status and headers, which nothing has
 * changed since psgi_grip_begin(). */
void psgi_response_hold(pTHX_ psgi_exchange *exchange, SV *given_head, SV *content,
                        const peregrine_held_ask *how) {
    SV *const *parts = AvARRAY((AV *)SvRV(given_head));
    psgi_head head;
    SV *wrong = read_head(aTHX_ exchange->app, parts[0], (AV *)SvRV(parts[1]), &head);
    if (wrong) {
        psgi_exchange_reject(aTHX_ exchange, wrong);
        return;
    }
    /* A stream's Content-Length would be the length of its first part: it is left out. */
    if (how->kind == PEREGRINE_HELD_STREAM) {
        const size_t count = head.count;
        head.count = 0;
        for (size_t i = 0; i < count; i++)
            if (!is_content_length(&head.list[i])) head.list[head.count++] = head.list[i];
    }
    const peregrine_response given = {
        .size = sizeof(given),
        .status = (uint16_t)head.status,
        .fields = head.list,
        .field_count = head.count,
        .body = SvPVX_const(content),
        .body_len = SvCUR(content),
    };
    px_trace(&exchange->base, PEREGRINE_TRACE_SEND, given.body_len, given.status, "held");
    const int code = peregrine_hold(exchange->base.worker->engine, exchange->base.ticket, &given, how);
    if (code >= 0) px_note_answer(&exchange->base, given.status);
    if (code == PEREGRINE_E_GONE) px_exchange_lost(&exchange->base);
    else if (code < 0) psgi_exchange_reject(aTHX_ exchange, complaint(aTHX_ exchange, &head, code));
    else psgi_exchange_sent(aTHX_ exchange, code);
}

/* Sends the next piece of the content. `last`: the response ends behind it, and may be sent by this call;
 * psgi_response_end() ends it otherwise. *wrong: the mistake in the piece, or NULL. */
static void write_piece(pTHX_ psgi_exchange *exchange, SV *piece, bool last, const char **wrong) {
    STRLEN len;
    const char *bytes = bytes_of(aTHX_ piece, &len);
    *wrong = bytes ? NULL : "the body has a wide character; encode it to bytes first";
    if (!bytes || len == 0) return;
    px_trace(&exchange->base, PEREGRINE_TRACE_SEND, len, 0, "content");
    exchange->wrote = true;
    if (exchange->held) {
        *wrong = psgi_grip_add(aTHX_ exchange, bytes, len);
        return;
    }
    if (exchange->framing == PSGI_SAYS_CHUNKED && !look_for_chunks(aTHX_ exchange, &piece, &bytes, &len))
        return;
    if (exchange->framing == PSGI_CHUNKED) {
        piece = newSVpvn_flags(bytes, len, SVs_TEMP);
        if (!psgi_chunked_undo(&exchange->chunks, SvPVX(piece), &len)) {
            *wrong = "Transfer-Encoding says chunked, and the content is not";
            return;
        }
        bytes = SvPVX_const(piece);
        SvCUR_set(piece, len);
        if (len == 0) return;
    }
    *wrong = send_content(aTHX_ exchange, piece, bytes, len, last && exchange->framing == PSGI_PLAIN);
    if (psgi_delivers(exchange)) px_worker_queued(aTHX_ exchange->base.worker);
}

/* Sends the next piece of content that goes on. */
void psgi_response_write(pTHX_ psgi_exchange *exchange, SV *piece, const char **wrong) {
    write_piece(aTHX_ exchange, piece, false, wrong);
}

void psgi_response_end(pTHX_ psgi_exchange *exchange) {
    if (exchange->held) {
        psgi_grip_end(aTHX_ exchange);
        return;
    }
    if (exchange->framing == PSGI_SAYS_CHUNKED && exchange->chunks.held_len) {
        psgi_chunks *chunks = &exchange->chunks;
        SV *held = newSVpvn_flags(chunks->held, chunks->held_len, SVs_TEMP);
        exchange->framing = PSGI_PLAIN;
        const char *wrong = send_content(aTHX_ exchange, held, SvPVX_const(held), SvCUR(held), false);
        if (wrong) psgi_exchange_reject(aTHX_ exchange, sv_2mortal(newSVpv(wrong, 0)));
        if (!psgi_delivers(exchange)) return;
    }
    if (exchange->framing == PSGI_CHUNKED && !psgi_chunked_is_whole(&exchange->chunks)) {
        psgi_exchange_reject(aTHX_ exchange, newSVpvs_flags("its last chunk is missing", SVs_TEMP));
        return;
    }
    const int code = psgi_spool_is_open(exchange)
                         ? psgi_spool_end(exchange)
                         : px_loan_write(aTHX_ &exchange->base, NULL, "", 0, PEREGRINE_END);
    if (code == PEREGRINE_E_GONE) {
        px_exchange_lost(&exchange->base);
    } else if (code < 0) {
        SV *text = sv_2mortal(newSVpv(peregrine_error_text(code), 0));
        psgi_exchange_reject(aTHX_ exchange, text);
    } else {
        psgi_exchange_sent(aTHX_ exchange, code);
    }
}

/* Whether a body that is no list may be a handle, or an object with getline. */
static bool may_be_handle(const SV *body) {
    const SV *target = SvROK(body) ? SvRV(body) : body;
    return isGV_with_GP(target) || SvTYPE(target) == SVt_PVIO || (SvROK(body) && SvOBJECT(target));
}

/* Sends the content of a handle, which may be the rest of a file: as many bytes as Content-Length says. */
static void send_handle(pTHX_ psgi_exchange *exchange, const psgi_head *head, SV *source) {
    UV promised = UV_MAX;
    px_keep(aTHX_ source); /* a wrong head is reported, and a handler for warnings may free the response */
    if (head->content_length)
        (void)grok_number(head->content_length->value, head->content_length->value_len, &promised);
    if (start(aTHX_ exchange, head, PEREGRINE_HOLD, NULL, 0))
        psgi_body_start(aTHX_ exchange, source, promised);
    else psgi_body_drop(aTHX_ exchange, source);
}

/* Collects the content of a response that is to be held: a list, or a handle's content; without either a
 * writer will send it. */
static void hold(pTHX_ psgi_exchange *exchange, SV *response, SV *body, AV *pieces) {
    /* Kept, because psgi_grip_begin() may run Perl code: the environment that it reads may be tied. */
    if (body) px_keep(aTHX_ pieces ? (SV *)pieces : body);
    if (!psgi_grip_begin(aTHX_ exchange, response)) {
        if (body && !pieces) psgi_body_drop(aTHX_ exchange, body);
        return;
    }
    if (pieces) write_pieces(aTHX_ exchange, pieces);
    else if (body) psgi_body_start(aTHX_ exchange, body, UV_MAX);
}

/* The response itself if it is plain, otherwise a plain copy; NULL: it is no response, which was reported. */
static SV *made_plain(pTHX_ psgi_exchange *exchange, SV *response) {
    if (plain_response(response)) return response;
    SV *error = NULL;
    SV *plain = psgi_call_values(aTHX_ "plain", response, NULL, &error);
    if (plain) sv_2mortal(plain);
    if (!error && plain && plain_response(plain)) return plain;
    if (!error) error = newSVpvs_flags("the response is not one of PSGI's", SVs_TEMP);
    psgi_exchange_reject(aTHX_ exchange, error);
    return NULL;
}

/* Sends a response. `may_stream`: it may have no body, because a writer will send that. */
void psgi_respond(pTHX_ psgi_exchange *exchange, SV *response, bool may_stream) {
    response = made_plain(aTHX_ exchange, response);
    if (!response || !psgi_delivers(exchange)) return;
    AV *list = (AV *)SvRV(response);
    SV **parts = AvARRAY(list);
    SV *body = AvFILLp(list) == 2 ? parts[2] : NULL;
    AV *pieces = body ? plain_list(body) : NULL;
    psgi_head head;
    SV *wrong = read_head(aTHX_ exchange->app, parts[0], (AV *)SvRV(parts[1]), &head);
    if (!wrong && !body && !may_stream) wrong = newSVpvs_flags("the response has no body", SVs_TEMP);
    if (!wrong && body && !pieces && !may_be_handle(body))
        wrong = newSVpvs_flags("the body is no list and no handle", SVs_TEMP);
    if (wrong) psgi_exchange_reject(aTHX_ exchange, wrong);
    else if (head.holds) hold(aTHX_ exchange, response, body, pieces);
    else if (!body) (void)start(aTHX_ exchange, &head, PEREGRINE_HOLD, NULL, 0);
    else if (pieces) send_list(aTHX_ exchange, &head, pieces);
    else send_handle(aTHX_ exchange, &head, body);
}

/* ---- Interim responses ----------------------------------------------------------------------- */

/* psgix.informational->(103, [ headers ]) */
XS_EXTERNAL(psgi_xs_inform) {
    dXSARGS;
    psgi_exchange *exchange = psgi_exchange_of_function(aTHX_ cv);
    px_keep(aTHX_ (SV *)cv);
    if (items != 2) croak("PSGI: psgix.informational takes a status and a list of headers");
    AV *given = newAV();
    SV *response = sv_2mortal(newRV_noinc((SV *)given));
    av_push(given, newSVsv(ST(0)));
    av_push(given, newSVsv(ST(1)));
    if (!plain_response(response)) croak("PSGI: psgix.informational takes plain strings");
    if (!psgi_delivers(exchange) || exchange->state != PSGI_CALLED) XSRETURN_EMPTY;
    psgi_head head;
    SV *wrong = read_head(aTHX_ exchange->app, AvARRAY(given)[0], (AV *)SvRV(AvARRAY(given)[1]), &head);
    if (wrong) croak("PSGI: psgix.informational: %" SVf, SVfARG(wrong));
    const int code = peregrine_inform(exchange->base.worker->engine, exchange->base.ticket,
                                      (uint16_t)head.status, head.list, head.count);
    if (code == PEREGRINE_E_GONE) px_exchange_lost(&exchange->base);
    else if (code < 0)
        croak("PSGI: psgix.informational: %" SVf, SVfARG(complaint(aTHX_ exchange, &head, code)));
    XSRETURN_EMPTY;
}
