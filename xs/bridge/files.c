/* files.c - asks the engine for its answer to a request for a file, and makes Perl values of the answer. */
#include "bridge/bridge.h"

static void free_answer(pTHX_ void *answer) {
    PERL_UNUSED_CONTEXT;
    peregrine_file_answer_free((peregrine_file_answer *)answer);
}

/* The value of a hash under a name, as a string of bytes; NULL: none. */
static const char *text_of(pTHX_ HV *hash, const char *name) {
    SV *value = px_setting(aTHX_ hash, name);
    if (!value) return NULL;
    STRLEN len;
    const char *text = SvPVbyte(sv_2mortal(newSVsv(value)), len);
    if (memchr(text, '\0', len)) croak("Peregrine: %s must not have a zero byte", name);
    return text;
}

/* Makes fields of the list of pairs under `headers`, in mortal memory; returns their number. */
static size_t fields_of(pTHX_ HV *hash, peregrine_field **fields) {
    SV *headers = px_setting(aTHX_ hash, "headers");
    *fields = NULL;
    if (!headers) return 0;
    if (!SvROK(headers) || SvTYPE(SvRV(headers)) != SVt_PVAV) croak("Peregrine: headers must be a list");
    AV *list = (AV *)SvRV(headers);
    const SSize_t count = av_len(list) + 1;
    SV *space = sv_2mortal(newSV((STRLEN)count * sizeof(peregrine_field) + 1));
    *fields = (peregrine_field *)SvPVX(space);
    for (SSize_t i = 0; i < count; i++) {
        SV **entry = av_fetch(list, i, 0);
        if (!entry || !SvROK(*entry) || SvTYPE(SvRV(*entry)) != SVt_PVAV)
            croak("Peregrine: a header must be a pair");
        AV *pair = (AV *)SvRV(*entry);
        SV **name = av_fetch(pair, 0, 0), **value = av_fetch(pair, 1, 0);
        if (!name || !value) croak("Peregrine: a header must be a pair");
        peregrine_field *field = *fields + i;
        field->name = SvPVbyte(sv_2mortal(newSVsv(*name)), field->name_len);
        field->value = SvPVbyte(sv_2mortal(newSVsv(*value)), field->value_len);
    }
    return (size_t)count;
}

static AV *header_list(pTHX_ const peregrine_file_answer *answer) {
    AV *list = newAV();
    for (size_t i = 0; i < answer->field_count; i++) {
        const peregrine_field *field = answer->fields + i;
        AV *pair = newAV();
        av_push(pair, newSVpvn(field->name, field->name_len));
        av_push(pair, newSVpvn(field->value, field->value_len));
        av_push(list, newRV_noinc((SV *)pair));
    }
    return list;
}

/* The parts of the answer's body: strings, and for parts of the file pairs of offset and length. */
static AV *part_list(pTHX_ const peregrine_file_answer *answer) {
    AV *list = newAV();
    for (size_t i = 0; i < answer->part_count; i++) {
        const peregrine_file_part *part = answer->parts + i;
        if (part->bytes) {
            av_push(list, newSVpvn(part->bytes, part->len));
            continue;
        }
        AV *pair = newAV();
        av_push(pair, newSVuv((UV)part->offset));
        av_push(pair, newSVuv((UV)part->len));
        av_push(list, newRV_noinc((SV *)pair));
    }
    return list;
}

/* The answer as a reference to a hash, new, whose descriptor is the caller's to close; NULL: there is no such
 * file. Dies if the folder cannot be opened, or a key of `hash` is wrong. */
SV *px_look_up_file(pTHX_ HV *hash) {
    peregrine_file_answer *answer = NULL;
    peregrine_field *fields;
    const size_t count = fields_of(aTHX_ hash, &fields);
    const uint32_t dotfiles = px_setting(aTHX_ hash, "dotfiles") ? PEREGRINE_DOTFILES : 0;
    const uint32_t plain = px_setting(aTHX_ hash, "plain") ? PEREGRINE_PLAIN : 0;
    const peregrine_file_question question = {
        .size = sizeof(question),
        .flags = dotfiles | plain,
        .folder = text_of(aTHX_ hash, "folder"),
        .method = text_of(aTHX_ hash, "method"),
        .path = text_of(aTHX_ hash, "path"),
        .query = text_of(aTHX_ hash, "query"),
        .index = text_of(aTHX_ hash, "index"),
        .default_type = text_of(aTHX_ hash, "default_type"),
        .content_type = text_of(aTHX_ hash, "content_type"),
        .fields = fields,
        .field_count = count,
    };
    const int code = peregrine_look_up_file(&question, &answer);
    const char *folder = question.folder ? question.folder : "";
    if (code == 0) return NULL;
    if (code == PEREGRINE_E_SYSTEM) croak("cannot serve the files of %s: %s", folder, Strerror(errno));
    if (code < 0) croak("cannot serve the files of %s: %s", folder, peregrine_error_text(code));
    ENTER;
    SAVEDESTRUCTOR_X(free_answer, answer);
    HV *found = newHV();
    SV *result = newRV_noinc((SV *)found);
    hv_stores(found, "status", newSVuv(answer->status));
    hv_stores(found, "headers", newRV_noinc((SV *)header_list(aTHX_ answer)));
    hv_stores(found, "parts", newRV_noinc((SV *)part_list(aTHX_ answer)));
    if (answer->fd >= 0) hv_stores(found, "fd", newSViv(answer->fd));
    answer->fd = -1;
    LEAVE;
    return result;
}
