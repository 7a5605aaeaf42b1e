/* plain.c - values that run Perl code when they are read: tied hashes and lists, magical scalars,
 * overloaded objects.
 *
 * Such code may free or change what has been read already, send an event of its own, or die. So an event is
 * checked before it is read. Most events are plain and are read in place, as no Perl code runs meanwhile:
 * pointers into their values are good until the engine has taken the event. Of any other event a plain copy
 * is made in a guarded call, and the copy is read instead. */
#include "bridge/bridge.h"

/* ---- Checks for plain values ----------------------------------------------------------------- */

static inline AV *list_of(const SV *value) {
    return value && SvROK(value) && SvTYPE(SvRV(value)) == SVt_PVAV ? (AV *)SvRV(value) : NULL;
}

static inline bool plain_pair(AV *pair) {
    SV **entries = AvARRAY(pair);
    if (SvMAGICAL(pair)) return false;
    for (SSize_t i = AvFILLp(pair); i >= 0; i--)
        if (!px_is_plain(entries[i])) return false;
    return true;
}

static bool plain_list(AV *list) {
    SV **entries = AvARRAY(list);
    if (SvMAGICAL(list)) return false;
    for (SSize_t i = AvFILLp(list); i >= 0; i--) {
        AV *pair = list_of(entries[i]);
        if (!px_is_plain(entries[i]) || (pair && !plain_pair(pair))) return false;
    }
    return true;
}

/* Whether a value of an event can be read, and copied, without running Perl code. */
static inline bool plain_field(const SV *value) {
    AV *list = list_of(value);
    return px_is_plain(value) && (!list || plain_list(list));
}

/* Whether all values of an event are plain. Values under keys that no event defines are checked, too: at
 * worst an event is copied without need. */
static bool is_plain_event(HV *event) {
    HE **buckets = HvARRAY(event);
    STRLEN left = HvTOTALKEYS(event);
    if (SvMAGICAL(event)) return false;
    for (STRLEN i = 0; left > 0 && i <= HvMAX(event); i++)
        for (const HE *entry = buckets[i]; entry; entry = HeNEXT(entry), left--)
            if (!plain_field(HeVAL(entry))) return false;
    return true;
}

static HV *hash_behind(const SV *event) {
    return SvROK(event) && SvTYPE(SvRV(event)) == SVt_PVHV ? (HV *)SvRV(event) : NULL;
}

/* Bytes of a scalar; NULL when it holds a wide character. The application's scalar is left as it is. */
const char *px_plain_bytes(pTHX_ SV *value, STRLEN *len) {
    const char *bytes = SvPV_const(value, *len);
    if (!SvUTF8(value)) return bytes;
    SV *copy = newSVpvn_flags(bytes, *len, SVs_TEMP | SVf_UTF8);
    if (!sv_utf8_downgrade(copy, TRUE)) return NULL;
    return SvPV_const(copy, *len);
}

/* ---- A plain copy ---------------------------------------------------------------------------- */

/* Each of these functions may die, so all values that they make are mortal. The values that they read are
 * held, as Perl code that runs meanwhile may drop them. */

/* A tied list may be endless, so reading stops at a limit. A third element shows that a list is no pair. */
#define PX_LIST_MAX 10000
#define PX_PAIR_MAX 3
/* Objects that are converted one after the other: an object may give another object as its string. */
#define PX_OBJECTS_MAX 10

/* A mortal copy of a value. An object that can be converted to a string becomes the string. */
SV *px_plain_string(pTHX_ SV *value) {
    SV *copy = sv_2mortal(newSVsv(value));
    for (int i = 0; i < PX_OBJECTS_MAX && SvROK(copy) && SvAMAGIC(copy); i++) {
        SV *string = AMG_CALLunary(copy, string_amg);
        if (!string || (SvROK(string) && SvRV(string) == SvRV(copy))) break;
        copy = sv_2mortal(newSVsv(string));
    }
    return copy;
}

/* A mortal copy of a flag. An overloaded object becomes 1 or 0 by its truth, whatever its string is. */
SV *px_plain_flag(pTHX_ SV *value) {
    SV *copy = sv_2mortal(newSVsv(value));
    return SvROK(copy) && SvAMAGIC(copy) ? sv_2mortal(newSViv(SvTRUE_nomg(copy))) : copy;
}

/* An entry of a list, held, or NULL. */
static SV *entry_of(pTHX_ AV *list, SSize_t i) {
    SV **slot = av_fetch(list, i, 0);
    if (!slot) return NULL;
    SvREFCNT_inc_simple_void_NN(*slot);
    return sv_2mortal(*slot);
}

/* Copies a list; a value that is no list stays as it is. Code of tied lists and of overloaded entries runs
 * meanwhile and may change the list, so the length is read before each entry. */
static SV *copy_of_list(pTHX_ SV *value, SSize_t max, px_copy_function copy_of_entry) {
    SV *reference = sv_2mortal(newSVsv(value));
    AV *list = list_of(reference);
    if (!list) return reference;
    AV *copy = newAV();
    SV *result = sv_2mortal(newRV_noinc((SV *)copy));
    for (SSize_t i = 0; i < max && i <= av_top_index(list); i++) {
        SV *entry = entry_of(aTHX_ list, i);
        av_push(copy, newSVsv(entry ? copy_of_entry(aTHX_ entry) : &PL_sv_undef));
    }
    return result;
}

static SV *copy_of_pair(pTHX_ SV *value) {
    return copy_of_list(aTHX_ value, PX_PAIR_MAX, px_plain_string);
}

SV *px_plain_headers(pTHX_ SV *value) {
    SV *copy = copy_of_list(aTHX_ value, PX_LIST_MAX + 1, copy_of_pair);
    AV *list = list_of(copy);
    if (list && av_count(list) > PX_LIST_MAX)
        croak("$send: headers is a tied list of more than %d entries", PX_LIST_MAX);
    return copy;
}

SV *px_plain_handle(pTHX_ SV *value) {
    return sv_2mortal(newSVsv(value));
}

/* A new reference to a hash with copies of those values behind `value` that `fields` name, or a copy of a
 * value that is no hash. Dies if code of a value dies. Plain values are copied before any such code runs. */
SV *px_plain_copy(pTHX_ SV *value, const px_plain_field *fields, size_t count) {
    SV *reference = sv_2mortal(newSVsv(value));
    HV *from = hash_behind(reference);
    if (!from) return newSVsv(reference);
    HV *to = newHV();
    SV *result = sv_2mortal(newRV_noinc((SV *)to));
    SV **values = (SV **)(void *)SvPVX(sv_2mortal(newSV(2 * count * sizeof(SV *))));
    SV **copies = values + count;
    for (size_t i = 0; i < count; i++) {
        HE *entry = hv_fetch_ent(from, fields[i].key, 0, SvSHARED_HASH(fields[i].key));
        values[i] = entry ? sv_2mortal(SvREFCNT_inc_simple_NN(HeVAL(entry))) : NULL;
        copies[i] = entry && plain_field(values[i]) ? fields[i].copy(aTHX_ values[i]) : NULL;
    }
    for (size_t i = 0; i < count; i++) {
        SV *copy = values[i] && !copies[i] ? fields[i].copy(aTHX_ values[i]) : copies[i];
        if (copy && SvOK(copy)) px_store(aTHX_ to, fields[i].key, newSVsv(copy));
    }
    return SvREFCNT_inc_simple_NN(result);
}

/* The hash behind a reference if it and its values can be read without running Perl code; NULL if not. */
HV *px_plain_hash(SV *value) {
    HV *hash = SvGMAGICAL(value) ? NULL : hash_behind(value);
    return hash && is_plain_event(hash) ? hash : NULL;
}
