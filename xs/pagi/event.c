/* event.c - reads the events that applications $send, and makes the Futures that answer them.
 *
 * The events are plain (plain.c): no Perl code runs while one is read, so that pointers into its values
 * stay good. A malformed event fails its own $send with a text that names the event, the field and what is
 * allowed; nothing else changes. */
#include "pagi/pagi.h"

/* A phrase that says why a value is no string; NULL for a string. */
static const char *no_string(const SV *value) {
    if (!value) return "is missing";
    if (!SvOK(value)) return "is undefined";
    return SvROK(value) ? "is a reference, not a string" : NULL;
}

/* The bytes of a value. Returns NULL, or a phrase that says why the value is no byte string. */
const char *pagi_event_bytes(pTHX_ SV *value, const char **bytes, size_t *len) {
    if (value && SvPOK(value) && !SvUTF8(value)) {
        *bytes = SvPVX_const(value);
        *len = SvCUR(value);
        return NULL;
    }
    const char *wrong = no_string(value);
    if (wrong) return wrong;
    STRLEN got;
    *bytes = px_plain_bytes(aTHX_ value, &got);
    *len = got;
    return *bytes ? NULL : "has a wide character; encode it to bytes first";
}

/* The UTF-8 of a character string. Returns NULL, or a phrase that says why the value is no string. */
const char *pagi_event_text(pTHX_ SV *value, const char **bytes, size_t *len) {
    const char *wrong = no_string(value);
    if (wrong) return wrong;
    STRLEN got;
    *bytes = SvPV_const(value, got);
    if (!SvUTF8(value) && !is_utf8_invariant_string((const U8 *)*bytes, got)) {
        SV *copy = newSVpvn_flags(*bytes, got, SVs_TEMP);
        *bytes = SvPVutf8(copy, got);
    } else if (SvUTF8(value) && !is_c9strict_utf8_string((const U8 *)*bytes, got)) {
        return "has a surrogate or another code point that UTF-8 cannot carry";
    }
    *len = got;
    return NULL;
}

/* Whether a name may have capitals. Looks at eight bytes at a time for characters from @ to _, of which names
 * have few beside capitals. */
static bool may_have_capitals(const char *name, size_t len) {
    const uint64_t bit = 0x4040404040404040;
    uint64_t found = 0;
    for (; len >= sizeof(found); name += sizeof(found), len -= sizeof(found)) {
        uint64_t part;
        memcpy(&part, name, sizeof(part));
        found |= part & ~(part << 1) & bit;
    }
    for (size_t i = 0; i < len; i++) found |= (uint8_t)name[i] & ~((uint32_t)name[i] << 1) & 0x40;
    return found != 0;
}

/* Writes the name of a field in lower case, as PAGI has it: applications that write "Content-Type" mean it,
 * too. */
static void lower_name(pTHX_ peregrine_field *field) {
    if (!may_have_capitals(field->name, field->name_len)) return;
    SV *lower = newSVpvn_flags(field->name, field->name_len, SVs_TEMP);
    for (char *at = SvPVX(lower), *end = SvEND(lower); at < end; at++) *at = toLOWER_A(*at);
    field->name = SvPVX_const(lower);
}

/* The two values of an entry, each of which may be NULL; NULL if it is no list of two. */
static SV **pair_of(const SV *entry) {
    if (!entry || !SvROK(entry) || SvTYPE(SvRV(entry)) != SVt_PVAV) return NULL;
    AV *pair = (AV *)SvRV(entry);
    return AvFILLp(pair) == 1 ? AvARRAY(pair) : NULL;
}

/* Reads a list of [name, value] pairs. Returns NULL, or a failed Future that says which pair is wrong. */
SV *pagi_event_fields(pTHX_ px_worker *worker, const char *type, SV *headers, pagi_fields *fields) {
    fields->list = fields->local;
    fields->count = 0;
    fields->given = NULL;
    if (!headers) return NULL;
    if (!SvROK(headers) || SvTYPE(SvRV(headers)) != SVt_PVAV)
        return px_future_invalid(aTHX_ worker,
                                 "%s: headers must be an array reference of [name, value] pairs", type);
    AV *list = (AV *)SvRV(headers);
    SV **entries = AvARRAY(list);
    const size_t count = (size_t)(AvFILLp(list) + 1);
    if (count + PAGI_FIELDS_SPARE > PAGI_FIELDS_ON_STACK) {
        SV *space = newSV((count + PAGI_FIELDS_SPARE) * sizeof(peregrine_field));
        fields->list = (peregrine_field *)SvPVX(sv_2mortal(space));
    }
    for (size_t i = 0; i < count; i++) {
        SV **pair = pair_of(entries[i]);
        if (!pair)
            return px_future_invalid(aTHX_ worker, "%s: headers[%lu] must be a [name, value] pair", type,
                                     (unsigned long)i);
        peregrine_field *out = &fields->list[i];
        const char *wrong = pagi_event_bytes(aTHX_ pair[0], &out->name, &out->name_len);
        if (wrong)
            return px_future_invalid(aTHX_ worker, "%s: the name of headers[%lu] %s", type, (unsigned long)i,
                                     wrong);
        lower_name(aTHX_ out);
        wrong = pagi_event_bytes(aTHX_ pair[1], &out->value, &out->value_len);
        if (wrong)
            return px_future_invalid(aTHX_ worker, "%s: the value of headers[%lu] (%.*s) %s", type,
                                     (unsigned long)i,
                                     (int)(out->name_len > 64 ? 64 : out->name_len), out->name, wrong);
    }
    fields->count = count;
    fields->given = list;
    return NULL;
}

/* The name of a field for a message, as the application has spelled it, if the application has sent it. */
static SV *shown_name(pTHX_ const pagi_fields *fields, size_t i) {
    SV *shown = newSVpvs_flags("", SVs_TEMP);
    if (i >= fields->count) return shown;
    peregrine_field field = fields->list[i];
    if (fields->given && (SSize_t)i <= AvFILLp(fields->given))
        (void)pagi_event_bytes(aTHX_ pair_of(AvARRAY(fields->given)[i])[0], &field.name, &field.name_len);
    pv_pretty(shown, field.name, field.name_len, 64, NULL, NULL, PERL_PV_PRETTY_DUMP);
    return shown;
}

/* The Future of an event that the engine took, or refused with a negative code. */
SV *pagi_event_outcome(pTHX_ pagi_exchange *exchange, const char *type, int code) {
    px_worker *worker = exchange->base.worker;
    switch (code) {
    case PEREGRINE_OK: px_worker_queued(aTHX_ worker); return px_future_done(aTHX_ worker, NULL);
    case PEREGRINE_DONE:
        pagi_exchange_complete(aTHX_ exchange);
        px_exchange_ticket_gone(aTHX_ &exchange->base);
        return px_future_done(aTHX_ worker, NULL);
    case PEREGRINE_BLOCKED: {
        SV *future = px_future_pending(aTHX_ worker);
        if (!exchange->senders) exchange->senders = newAV();
        av_push(exchange->senders, newSVsv(future));
        if (!worker->engine) return future;
        /* Output that waits may be a file, which takes no memory. */
        if (peregrine_buffered(worker->engine, exchange->base.ticket) >= exchange->app->high_water)
            pagi_transport_high(aTHX_ exchange);
        if (worker->engine) (void)peregrine_flush(worker->engine, exchange->base.ticket);
        px_worker_wake(worker);
        return future;
    }
    case PEREGRINE_E_GONE: px_exchange_lost(&exchange->base); return px_future_done(aTHX_ worker, NULL);
    default: return px_future_invalid(aTHX_ worker, "%s: %s", type, peregrine_error_text(code));
    }
}

/* The Future of an event with fields; its failure names the field that is wrong. */
SV *pagi_event_field_outcome(pTHX_ pagi_exchange *exchange, const char *type, int code,
                             const pagi_fields *fields) {
    px_worker *worker = exchange->base.worker;
    if (code != PEREGRINE_E_RESERVED && code != PEREGRINE_E_FIELD_NAME && code != PEREGRINE_E_FIELD_VALUE &&
        code != PEREGRINE_E_CONTENT_LENGTH)
        return pagi_event_outcome(aTHX_ exchange, type, code);
    const size_t i = peregrine_bad_field(worker->engine);
    return px_future_invalid(aTHX_ worker, "%s: headers[%lu] (%" SVf "): %s", type, (unsigned long)i,
                             SVfARG(shown_name(aTHX_ fields, i)), peregrine_error_text(code));
}

#define PAGI_SHOWN_MAX 64 /* characters of a value in a message */

/* A value as a message shows it: a mortal string, cut if it is long. */
SV *pagi_event_shown(pTHX_ SV *value) {
    SV *shown = sv_mortalcopy(value);
    STRLEN len;
    const char *text = SvPV_const(shown, len);
    const STRLEN chars = SvUTF8(shown) ? utf8_length((const U8 *)text, (const U8 *)text + len) : len;
    if (SvROK(shown) || chars <= PAGI_SHOWN_MAX) return shown;
    const char *end = SvUTF8(shown)
                      ? (const char *)utf8_hop((const U8 *)text, PAGI_SHOWN_MAX)
                      : text + PAGI_SHOWN_MAX;
    SV *cut = newSVpvn_flags(text, (STRLEN)(end - text), SVs_TEMP | SvUTF8(shown));
    sv_catpvs(cut, "...");
    return cut;
}

/* Reads a field with a number from 0 to `max`, not necessarily an integer; *found says whether the field is
 * there. Returns NULL or a failed Future. */
SV *pagi_event_number(pTHX_ px_worker *worker, const char *type, HV *event, SV *key, IV max, NV *number,
                      bool *found) {
    SV *value = px_fetch(aTHX_ event, key);
    *found = value != NULL;
    if (!value) return NULL;
    const bool is_number = !SvROK(value) && looks_like_number(value);
    *number = is_number ? SvNV_nomg(value) : -1;
    if (!(*number >= 0 && *number <= (NV)max))
        return px_future_invalid(aTHX_ worker, "%s: %s must be a number from 0 to %" IVdf ", not '%" SVf "'",
                                 type, SvPVX_const(key), max,
                                 SVfARG(pagi_event_shown(aTHX_ value)));
    return NULL;
}

/* Reads the value of a flag; NULL, a missing value, is false. Returns NULL or a failed Future. */
SV *pagi_event_flag(pTHX_ px_worker *worker, const char *type, SV *key, SV *value, bool *flag) {
    *flag = value && SvTRUE_nomg(value);
    if (!value || !SvROK(value)) return NULL;
    return px_future_invalid(aTHX_ worker, "%s: %s must be 0 or 1, not a reference", type, SvPVX_const(key));
}

static SV *read_integer(pTHX_ px_worker *worker, const char *type, HV *event, SV *key, IV min, IV max,
                        IV *number, bool *found) {
    SV *value = px_fetch(aTHX_ event, key);
    *found = value != NULL;
    if (!value) return NULL;
    if (SvIOK(value) && !SvIsUV(value) && SvIVX(value) >= min && SvIVX(value) <= max && !SvNOK(value)) {
        *number = SvIVX(value);
        return NULL;
    }
    const I32 looks = SvROK(value) ? 0 : looks_like_number(value);
    *number = looks ? SvIV_nomg(value) : -1;
    if (!looks || *number < min || *number > max || (NV)*number != SvNV_nomg(value))
        return px_future_invalid(aTHX_ worker,
                                 "%s: %s must be an integer from %" IVdf " to %" IVdf ", not '%" SVf "'",
                                     type,
                                 SvPVX_const(key), min, max, SVfARG(pagi_event_shown(aTHX_ value)));
    return NULL;
}

/* Reads an integer field from 0 to `max`; *found: it is there. Returns NULL or a failed Future. */
SV *pagi_event_integer(pTHX_ px_worker *worker, const char *type, HV *event, SV *key, IV max, IV *number,
                       bool *found) {
    return read_integer(aTHX_ worker, type, event, key, 0, max, number, found);
}

/* Reads the status of a final response. Returns NULL, or a failed Future. */
SV *pagi_event_status(pTHX_ pagi_app *app, const char *type, HV *event, IV *status, bool *found) {
    return read_integer(aTHX_ app->worker, type, event, PAGI_KEY(app->cx, STATUS), 200, 599, status, found);
}

/* Reads the status of an interim response: 100 and 101 belong to the engine. Returns NULL, or a failed
 * Future. */
SV *pagi_event_interim(pTHX_ pagi_app *app, const char *type, HV *event, IV *status, bool *found) {
    return read_integer(aTHX_ app->worker, type, event, PAGI_KEY(app->cx, STATUS), 102, 199, status, found);
}
