/* plain_event.c - makes a sent event one that can be read without running Perl code (bridge/plain.c): nearly
 * always the event itself, but a copy of its fields if one of them is tied, magical or overloaded. A new
 * field of events has to be in the table. */
#include "pagi/pagi.h"

/* The fields of events. Values under other keys are neither read nor copied. */
static const struct {
    enum pagi_key key;
    px_copy_function copy;
} event_fields[] = {
    {PAGI_KEY_TYPE, px_plain_string},             {PAGI_KEY_STATUS, px_plain_string},
    {PAGI_KEY_HEADERS, px_plain_headers},         {PAGI_KEY_TRAILERS, px_plain_flag},
    {PAGI_KEY_BODY, px_plain_string},             {PAGI_KEY_MORE, px_plain_flag},
    {PAGI_KEY_FILE, px_plain_string},             {PAGI_KEY_FH, px_plain_handle},
    {PAGI_KEY_OFFSET, px_plain_string},           {PAGI_KEY_LENGTH, px_plain_string},
    {PAGI_KEY_EVENT, px_plain_string},            {PAGI_KEY_DATA, px_plain_string},
    {PAGI_KEY_ID, px_plain_string},               {PAGI_KEY_RETRY, px_plain_string},
    {PAGI_KEY_COMMENT, px_plain_string},          {PAGI_KEY_INTERVAL, px_plain_string},
    {PAGI_KEY_REASON, px_plain_string},           {PAGI_KEY_SUBPROTOCOL, px_plain_string},
    {PAGI_KEY_TEXT, px_plain_string},             {PAGI_KEY_BYTES, px_plain_string},
    {PAGI_KEY_CODE, px_plain_string},             {PAGI_KEY_TIMEOUT, px_plain_string},
    {PAGI_KEY_TOPIC, px_plain_string},            {PAGI_KEY_AS, px_plain_string},
    {PAGI_KEY_SINCE, px_plain_string},            {PAGI_KEY_BEHIND, px_plain_string},
    {PAGI_KEY_COMPRESS, px_plain_flag},
};

/* For Peregrine::_plain_event, which is called guarded: a new reference to a copy of the event, or a copy of
 * a value that is no hash. */
SV *pagi_plain_copy(pTHX_ SV *event) {
    pagi_context *cx = pagi_context_get(aTHX);
    px_plain_field fields[C_ARRAY_LENGTH(event_fields)];
    for (size_t i = 0; i < C_ARRAY_LENGTH(event_fields); i++) {
        fields[i].key = cx->keys[event_fields[i].key];
        fields[i].copy = event_fields[i].copy;
    }
    return px_plain_copy(aTHX_ event, fields, C_ARRAY_LENGTH(fields));
}

/* The hash to read an event from: plain, and good until the caller's FREETMPS. NULL: it cannot be read, and
 * *failed is a Future that says why. */
HV *pagi_plain_event(pTHX_ px_worker *worker, SV *event, SV **failed) {
    HV *hash = px_plain_hash(event);
    if (hash) return hash;
    if (SvGMAGICAL(event) || (SvROK(event) && SvTYPE(SvRV(event)) == SVt_PVHV)) {
        SV *function = sv_2mortal(newRV_inc((SV *)get_cv("Peregrine::_plain_event", 0)));
        SV *error = NULL;
        SV *copy = px_call(aTHX_ function, NULL, event, NULL, &error);
        if (!copy) {
            *failed = px_future_failed(aTHX_ worker, newSVsv(error));
            return NULL;
        }
        sv_2mortal(copy);
        if (SvROK(copy) && SvTYPE(SvRV(copy)) == SVt_PVHV) return (HV *)SvRV(copy);
    }
    *failed = px_future_invalid(aTHX_ worker, "$send: an event must be a hash reference");
    return NULL;
}
