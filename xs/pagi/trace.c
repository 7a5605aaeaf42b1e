/* trace.c - records of PAGI's events: type, bytes of content, and a status or close code. */
#include "pagi/pagi.h"

/* The value under a key of a plain event; NULL: there is none, or it is a reference. */
static SV *value_of(pTHX_ const pagi_exchange *exchange, HV *event, enum pagi_key key) {
    SV *value = px_fetch(aTHX_ event, exchange->app->cx->keys[key]);
    return value && !SvROK(value) ? value : NULL;
}

void pagi_trace_write(pTHX_ pagi_exchange *exchange, uint32_t kind, HV *event) {
    static const enum pagi_key content[] = {PAGI_KEY_BODY, PAGI_KEY_TEXT, PAGI_KEY_BYTES, PAGI_KEY_DATA};
    static const enum pagi_key numbers[] = {PAGI_KEY_STATUS, PAGI_KEY_CODE};
    SV *type = value_of(aTHX_ exchange, event, PAGI_KEY_TYPE);
    uint64_t size = 0;
    uint32_t code = 0;
    STRLEN len = 0;
    const char *text = type ? SvPV_const(type, len) : "";
    for (size_t i = 0; i < C_ARRAY_LENGTH(content); i++) {
        const SV *value = value_of(aTHX_ exchange, event, content[i]);
        if (value && SvPOK(value)) size += SvCUR(value);
    }
    for (size_t i = 0; i < C_ARRAY_LENGTH(numbers); i++) {
        SV *value = value_of(aTHX_ exchange, event, numbers[i]);
        if (value && SvIOK(value)) code = (uint32_t)SvIV(value);
    }
    px_trace_write(&exchange->base, kind, size, code, text, len);
}
