/* message.c - a message of a channel, or the values of a call, as bytes for another interpreter, and back:
 * hashes, lists, strings of bytes or of characters, numbers, truth values and undef.
 *
 * Bytes from another interpreter are not trusted: they are checked as if a stranger had sent them. */
#include "pagi/pagi.h"

/* Levels of values within values. A message that refers to itself fails there. */
#define DEPTH_MAX 64
/* Bytes of a message, as the hub limits them (engine/src/hub/limits.zig). */
#define BYTES_MAX (1 << 20)
/* Bytes of the arguments or the result of a call, which only the two processes of the call have in memory. */
#define CALL_BYTES_MAX (64 << 20)

/* The kinds of values; each tag is followed by the content named beside it. */
enum {
    TAG_UNDEF = 'u',
    TAG_TRUE = 't',
    TAG_FALSE = 'f',
    TAG_INTEGER = 'i',  /* IV */
    TAG_UNSIGNED = 'U', /* UV */
    TAG_NUMBER = 'n',   /* NV */
    TAG_BYTES = 'b',    /* U32, bytes */
    TAG_TEXT = 'c',     /* U32, bytes that are UTF-8 */
    TAG_LIST = 'l',     /* U32, values */
    TAG_HASH = 'h',     /* U32, pairs of a string and a value */
};

/* ---- Writing --------------------------------------------------------------------------------- */

/* `out` is mortal, because reading a value may run code that dies. */
typedef struct writer {
    SV *out;
    const char *noun; /* subject of the messages: "a message" or "a call" */
    STRLEN bytes_max;
    int depth;
    const char *wrong; /* the mistake in the value; NULL: none */
    const char *class; /* class of the wrong value, or NULL */
} writer;

static void put(pTHX_ writer *to, const void *bytes, STRLEN len) {
    if (SvCUR(to->out) + len <= to->bytes_max) sv_catpvn(to->out, (const char *)bytes, len);
    else if (!to->wrong) to->wrong = "MessageTooLarge";
}

static void put_tag(pTHX_ writer *to, char tag) {
    put(aTHX_ to, &tag, 1);
}

static void put_count(pTHX_ writer *to, STRLEN count) {
    const U32 number = (U32)count;
    put(aTHX_ to, &number, sizeof(number));
}

static void put_string(pTHX_ writer *to, const char *bytes, STRLEN len, bool text) {
    if (len > to->bytes_max) {
        to->wrong = "MessageTooLarge";
        return;
    }
    put_tag(aTHX_ to, text ? TAG_TEXT : TAG_BYTES);
    put_count(aTHX_ to, len);
    put(aTHX_ to, bytes, len);
}

static void put_value(pTHX_ writer *to, SV *value);

static void put_list(pTHX_ writer *to, AV *list) {
    put_tag(aTHX_ to, TAG_LIST);
    const STRLEN at = SvCUR(to->out);
    U32 count = 0;
    put_count(aTHX_ to, 0);
    for (SSize_t i = 0; !to->wrong && i <= av_top_index(list); i++, count++) {
        SV **entry = av_fetch(list, i, 0);
        put_value(aTHX_ to, entry ? *entry : &PL_sv_undef);
    }
    if (!to->wrong) Copy(&count, SvPVX(to->out) + at, sizeof(count), char);
}

static void put_hash(pTHX_ writer *to, HV *hash) {
    put_tag(aTHX_ to, TAG_HASH);
    const STRLEN at = SvCUR(to->out);
    U32 count = 0;
    put_count(aTHX_ to, 0);
    hv_iterinit(hash);
    for (HE *entry; !to->wrong && (entry = hv_iternext(hash)); count++) {
        STRLEN len;
        const char *key = HePV(entry, len);
        put_string(aTHX_ to, key, len, HeUTF8(entry));
        put_value(aTHX_ to, hv_iterval(hash, entry));
    }
    if (!to->wrong) Copy(&count, SvPVX(to->out) + at, sizeof(count), char);
}

/* An object that stands for true or false, as those of JSON modules do. */
static bool is_boolean(pTHX_ SV *reference) {
    return sv_derived_from(reference, "JSON::PP::Boolean") ||
           sv_derived_from(reference, "Types::Serialiser::Boolean");
}

static void put_reference(pTHX_ writer *to, SV *reference) {
    SV *target = SvRV(reference);
    if (SvOBJECT(target)) {
        if (is_boolean(aTHX_ reference)) {
            put_tag(aTHX_ to, SvTRUE_nomg(reference) ? TAG_TRUE : TAG_FALSE);
            return;
        }
    } else if (SvTYPE(target) == SVt_PVHV || SvTYPE(target) == SVt_PVAV) {
        if (++to->depth > DEPTH_MAX) {
            to->wrong = "has at most 64 values within each other";
            return;
        }
        sv_2mortal(SvREFCNT_inc_simple_NN(target)); /* code of the message may free it */
        if (SvTYPE(target) == SVt_PVHV) put_hash(aTHX_ to, (HV *)target);
        else put_list(aTHX_ to, (AV *)target);
        to->depth--;
        return;
    }
    to->class = sv_reftype(target, true);
    to->wrong = "is made of hashes, lists, strings and numbers";
}

static void put_number(pTHX_ writer *to, SV *value) {
    if (SvIOK(value) && SvIsUV(value)) {
        const UV number = SvUVX(value);
        put_tag(aTHX_ to, TAG_UNSIGNED);
        put(aTHX_ to, &number, sizeof(number));
    } else if (SvIOK(value)) {
        const IV number = SvIVX(value);
        put_tag(aTHX_ to, TAG_INTEGER);
        put(aTHX_ to, &number, sizeof(number));
    } else {
        const NV number = SvNVX(value);
        put_tag(aTHX_ to, TAG_NUMBER);
        put(aTHX_ to, &number, sizeof(number));
    }
}

static void put_value(pTHX_ writer *to, SV *value) {
    if (SvGMAGICAL(value)) value = sv_mortalcopy(value);
    if (SvROK(value)) {
        put_reference(aTHX_ to, value);
        return;
    }
#ifdef SvIsBOOL
    if (SvIsBOOL(value)) {
        put_tag(aTHX_ to, SvTRUE_nomg(value) ? TAG_TRUE : TAG_FALSE);
        return;
    }
#endif
    if (SvPOK(value)) put_string(aTHX_ to, SvPVX_const(value), SvCUR(value), SvUTF8(value));
    else if (SvIOK(value) || SvNOK(value)) put_number(aTHX_ to, value);
    else if (!SvOK(value)) put_tag(aTHX_ to, TAG_UNDEF);
    else {
        to->class = sv_reftype(value, false);
        to->wrong = "is made of hashes, lists, strings and numbers";
    }
}

/* Whether a message may not have a type, because it is one of PAGI's events or of topics: the message would
 * be a forged event of the server's. */
static bool is_reserved(const char *type, STRLEN len) {
    static const char *const prefixes[] = {"http.", "websocket.", "sse.", "lifespan."};
    for (size_t i = 0; i < C_ARRAY_LENGTH(prefixes); i++)
        if (len >= strlen(prefixes[i]) && memEQ(type, prefixes[i], strlen(prefixes[i]))) return true;
    return len == strlen("topic.reset") && memEQ(type, "topic.reset", len);
}

/* The mistake in a message's type, or NULL. The type is read from the message's bytes, which code of the
 * application cannot change any more. */
static const char *wrong_type(pTHX_ SV *bytes) {
    SV *message = pagi_message_read(aTHX_ SvPVX_const(bytes), SvCUR(bytes));
    if (!message) return "it is not understood";
    sv_2mortal(message);
    SV **type = hv_fetchs((HV *)SvRV(message), "type", 0);
    if (!type || !SvPOK(*type) || SvCUR(*type) == 0) return "it has no type, which has to be a string";
    return is_reserved(SvPVX_const(*type), SvCUR(*type))
               ? "its type is one of the server's events: http., websocket., sse., lifespan. and "
                 "topic.reset are reserved"
               : NULL;
}

/* Says why a value cannot be sent: `failure` is the failure's name, `detail` (mortal) a sentence about the
 * mistake. */
static void explain(pTHX_ const writer *to, const char **failure, SV **detail) {
    const bool is_large = strEQ(to->wrong, "MessageTooLarge");
    *failure = is_large ? "MessageTooLarge" : "InvalidMessage";
    *detail = sv_2mortal(is_large    ? newSVpvf("%s has at most %" UVuf " bytes", to->noun, (UV)to->bytes_max)
                         : to->class ? newSVpvf("%s %s, and not of %s", to->noun, to->wrong, to->class)
                                     : newSVpvf("%s %s", to->noun, to->wrong));
}

/* The bytes of a message, mortal; NULL: it cannot be sent, for the reason in `failure` and `detail`. Dies if
 * code of its values dies. */
SV *pagi_message_write(pTHX_ SV *message, const char **failure, SV **detail) {
    writer to = {.out = newSVpvs_flags("", SVs_TEMP), .noun = "a message", .bytes_max = BYTES_MAX};
    SvGETMAGIC(message);
    if (!SvROK(message) || SvOBJECT(SvRV(message)) || SvTYPE(SvRV(message)) != SVt_PVHV)
        to.wrong = "is a hash reference";
    else put_value(aTHX_ &to, message);
    if (!to.wrong) {
        const char *wrong = wrong_type(aTHX_ to.out);
        if (!wrong) return to.out;
        *failure = "InvalidMessage";
        *detail = newSVpvn_flags(wrong, strlen(wrong), SVs_TEMP);
        return NULL;
    }
    explain(aTHX_ &to, failure, detail);
    return NULL;
}

/* Like pagi_message_write, for the arguments or the result of a call: a list. */
SV *pagi_values_write(pTHX_ AV *values, const char **failure, SV **detail) {
    writer to = {.out = newSVpvs_flags("", SVs_TEMP), .noun = "a call", .bytes_max = CALL_BYTES_MAX};
    put_list(aTHX_ &to, values);
    if (!to.wrong) return to.out;
    explain(aTHX_ &to, failure, detail);
    return NULL;
}

/* ---- Reading --------------------------------------------------------------------------------- */

typedef struct reader {
    const char *at, *end;
    int depth;
} reader;

static bool take(reader *from, void *to, STRLEN len) {
    if ((STRLEN)(from->end - from->at) < len) return false;
    Copy(from->at, to, len, char);
    from->at += len;
    return true;
}

/* The bytes of a string whose tag was read; NULL: fewer bytes are left than its length says. */
static const char *take_string(reader *from, U32 *len) {
    if (!take(from, len, sizeof(*len)) || (STRLEN)(from->end - from->at) < *len) return NULL;
    const char *bytes = from->at;
    from->at += *len;
    return bytes;
}

static bool is_text(const char *bytes, U32 len) {
    return is_utf8_string((const U8 *)bytes, len);
}

static SV *get_value(pTHX_ reader *from);

static SV *get_list(pTHX_ reader *from) {
    U32 count;
    if (!take(from, &count, sizeof(count))) return NULL;
    AV *list = newAV();
    SV *reference = newRV_noinc((SV *)list);
    for (; count > 0; count--) {
        SV *value = get_value(aTHX_ from);
        if (!value) {
            SvREFCNT_dec_NN(reference);
            return NULL;
        }
        av_push(list, value);
    }
    return reference;
}

/* Reads a key and its value into the hash. False: the bytes are no such pair. */
static bool get_pair(pTHX_ reader *from, HV *hash) {
    char tag;
    U32 len;
    if (!take(from, &tag, 1) || (tag != TAG_BYTES && tag != TAG_TEXT)) return false;
    const char *key = take_string(from, &len);
    if (!key || len > I32_MAX || (tag == TAG_TEXT && !is_text(key, len))) return false;
    SV *value = get_value(aTHX_ from);
    if (!value) return false;
    if (!hv_store(hash, key, tag == TAG_TEXT ? -(I32)len : (I32)len, value, 0)) SvREFCNT_dec_NN(value);
    return true;
}

static SV *get_hash(pTHX_ reader *from) {
    U32 count;
    if (!take(from, &count, sizeof(count))) return NULL;
    HV *hash = newHV();
    SV *reference = newRV_noinc((SV *)hash);
    for (; count > 0; count--) {
        if (get_pair(aTHX_ from, hash)) continue;
        SvREFCNT_dec_NN(reference);
        return NULL;
    }
    return reference;
}

static SV *get_string(pTHX_ reader *from, bool text) {
    U32 len;
    const char *bytes = take_string(from, &len);
    if (!bytes || (text && !is_text(bytes, len))) return NULL;
    return newSVpvn_flags(bytes, len, text ? SVf_UTF8 : 0);
}

/* Reads a new value; NULL: the bytes are not one of these values. */
static SV *get_value(pTHX_ reader *from) {
    char tag;
    IV integer;
    UV positive;
    NV number;
    SV *value;
    if (!take(from, &tag, 1)) return NULL;
    switch (tag) {
    case TAG_UNDEF: return newSV(0);
    case TAG_TRUE: return newSVsv(&PL_sv_yes);
    case TAG_FALSE: return newSVsv(&PL_sv_no);
    case TAG_INTEGER: return take(from, &integer, sizeof(integer)) ? newSViv(integer) : NULL;
    case TAG_UNSIGNED: return take(from, &positive, sizeof(positive)) ? newSVuv(positive) : NULL;
    case TAG_NUMBER: return take(from, &number, sizeof(number)) ? newSVnv(number) : NULL;
    case TAG_BYTES:
    case TAG_TEXT: return get_string(aTHX_ from, tag == TAG_TEXT);
    case TAG_LIST:
    case TAG_HASH:
        if (from->depth == DEPTH_MAX) return NULL;
        from->depth++;
        value = tag == TAG_LIST ? get_list(aTHX_ from) : get_hash(aTHX_ from);
        from->depth--;
        return value;
    default: return NULL;
    }
}

/* A new reference to the value that the bytes encode, if it is of this type; NULL: it is not, or bytes are
 * left. */
static SV *read_as(pTHX_ svtype type, const char *bytes, STRLEN len) {
    reader from = {.at = bytes, .end = bytes + len};
    SV *value = get_value(aTHX_ &from);
    if (!value) return NULL;
    if (from.at == from.end && SvROK(value) && SvTYPE(SvRV(value)) == type) return value;
    SvREFCNT_dec_NN(value);
    return NULL;
}

/* A new reference to the hash that the bytes encode; NULL: they are no hash. */
SV *pagi_message_read(pTHX_ const char *bytes, STRLEN len) {
    return read_as(aTHX_ SVt_PVHV, bytes, len);
}

/* A new reference to the list that the bytes encode; NULL: they are no list. */
SV *pagi_values_read(pTHX_ const char *bytes, STRLEN len) {
    return read_as(aTHX_ SVt_PVAV, bytes, len);
}
