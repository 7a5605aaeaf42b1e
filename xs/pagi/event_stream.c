/* event_stream.c - the text/event-stream format (HTML standard, 9.2.5 and 9.2.6): messages and comments as
 * bytes.
 *
 * No text of an application can break out of its line: texts that may have line ends are split there, and the
 * caller (sse.c) has refused line ends in other texts. This file knows nothing of exchanges, nor of the order
 * of events. */
#include "pagi/pagi.h"

/* Room for the names of a message's fields and for its last line end. */
#define PAGI_MESSAGE_OVERHEAD 64

static const char *line_end(const char *at, const char *end) {
    while (at < end && *at != '\n' && *at != '\r') at++;
    return at;
}

/* The start of the next line; CR LF is one line end. */
static const char *next_line(const char *at, const char *end) {
    return at + (at[0] == '\r' && at + 1 < end && at[1] == '\n' ? 2 : 1);
}

/* Writes a line with the field's name for each line of the text, an empty last line included: clients join
 * the lines with newlines, and so get the text again. Clients remove the space behind the colon. */
static void put_field(pTHX_ SV *out, const char *name, const pagi_text *text) {
    const char *at = text->bytes;
    const char *end = at + text->len;
    const STRLEN name_len = strlen(name);
    for (;;) {
        const char *stop = line_end(at, end);
        sv_catpvn(out, name, name_len);
        sv_catpvs(out, ": ");
        sv_catpvn(out, at, (STRLEN)(stop - at));
        sv_catpvs(out, "\n");
        if (stop == end) return;
        at = next_line(stop, end);
    }
}

/* A message as a mortal string. `event` and `id` hold no line ends; they may be absent, as may `retry`
 * (negative). */
SV *pagi_event_stream_message(pTHX_ const pagi_text *event, const pagi_text *id, IV retry,
                              const pagi_text *data) {
    SV *out = newSV(event->len + id->len + data->len + PAGI_MESSAGE_OVERHEAD);
    SvPVCLEAR(out);
    if (event->bytes) put_field(aTHX_ out, "event", event);
    if (id->bytes) put_field(aTHX_ out, "id", id);
    if (retry >= 0) sv_catpvf(out, "retry: %" IVdf "\n", retry);
    put_field(aTHX_ out, "data", data);
    sv_catpvs(out, "\n");
    return sv_2mortal(out);
}

/* A comment as a mortal string: each line of the text gets a colon at its beginning, if it has none. */
SV *pagi_event_stream_comment(pTHX_ const pagi_text *comment) {
    const char *at = comment->bytes;
    const char *end = at + comment->len;
    SV *out = newSV(comment->len + PAGI_MESSAGE_OVERHEAD);
    SvPVCLEAR(out);
    for (;;) {
        const char *stop = line_end(at, end);
        if (at == stop || *at != ':') sv_catpvs(out, ":");
        sv_catpvn(out, at, (STRLEN)(stop - at));
        sv_catpvs(out, "\n");
        if (stop == end) break;
        at = next_line(stop, end);
    }
    sv_catpvs(out, "\n");
    return sv_2mortal(out);
}

/* Whether a text has a line end, or a NUL, which makes clients ignore an id. */
bool pagi_event_stream_breaks(const pagi_text *text) {
    for (STRLEN i = 0; i < text->len; i++)
        if (text->bytes[i] == '\n' || text->bytes[i] == '\r' || text->bytes[i] == '\0') return true;
    return false;
}
