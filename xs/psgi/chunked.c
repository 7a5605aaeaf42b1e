/* chunked.c - content with a field `Transfer-Encoding: chunked` of the application. Mojolicious has put such
 * content into chunks, which are undone here (RFC 9112 7.1), because the engine frames responses. Other
 * applications leave chunks to the server: content that does not begin with a chunk's line stays as it is. */
#include "psgi/psgi.h"

enum { SIZE, EXTENSION, SIZE_LF, DATA, DATA_CR, DATA_LF, TRAILER, TRAILER_LF, LINE, END };

/* Hexadecimal digits of a chunk's size at most. */
#define PSGI_SIZE_DIGITS_MAX 15

/* Whether content that begins with these bytes begins with the first line of a chunk: 1 or 0, or -1: more
 * bytes are needed to know, up to PSGI_SIZE_LINE_MAX. */
int psgi_chunked_begins(const char *bytes, size_t len) {
    size_t digits = 0;
    while (digits < len && isXDIGIT_A(bytes[digits])) digits++;
    if (digits > PSGI_SIZE_DIGITS_MAX) return 0;
    if (digits == len) return -1;
    const char next = bytes[digits];
    if (digits == 0 || (next != ';' && next != ' ' && next != '\t' && next != '\r')) return 0;
    for (size_t i = digits; i < len && i < PSGI_SIZE_LINE_MAX; i++) {
        if (bytes[i] == '\n') return bytes[i - 1] == '\r';
        if (i > digits && bytes[i - 1] == '\r') return 0;
    }
    return len < PSGI_SIZE_LINE_MAX ? -1 : 0;
}

/* Undoes the chunks in place, in `len` bytes (at least one), which may be any part of the content; `len`
 * becomes the number of bytes that are left. False: the bytes are no chunks. */
bool psgi_chunked_undo(psgi_chunks *chunks, char *bytes, size_t *len) {
    char *to = bytes;
    const char *end = bytes + *len;
    chunks->begun = true;
    for (const char *at = bytes; at < end;) {
        const char c = *at;
        switch (chunks->state) {
        case SIZE:
            if (isXDIGIT_A(c) && chunks->digits < PSGI_SIZE_DIGITS_MAX) {
                chunks->left = chunks->left * 16 + XDIGIT_VALUE(c);
                chunks->digits++;
                at++;
                break;
            }
            if (chunks->digits == 0) return false;
            chunks->state = EXTENSION;
            break;
        case EXTENSION:
            if (c == '\n') return false;
            if (c == '\r') chunks->state = SIZE_LF;
            else if (c != ';' && c != ' ' && c != '\t' && !chunks->extended) return false;
            else chunks->extended = true;
            at++;
            break;
        case SIZE_LF:
            if (c != '\n') return false;
            chunks->state = chunks->left ? DATA : TRAILER;
            chunks->digits = 0;
            chunks->extended = false;
            at++;
            break;
        case DATA: {
            const size_t some = (size_t)(end - at) < chunks->left ? (size_t)(end - at) : chunks->left;
            Move(at, to, some, char);
            to += some;
            at += some;
            chunks->left -= some;
            if (chunks->left == 0) chunks->state = DATA_CR;
            break;
        }
        case DATA_CR:
        case DATA_LF:
            if (c != (chunks->state == DATA_CR ? '\r' : '\n')) return false;
            chunks->state = chunks->state == DATA_CR ? DATA_LF : SIZE;
            at++;
            break;
        case TRAILER: /* at the beginning of a line; trailer fields are dropped */
            chunks->state = c == '\r' ? TRAILER_LF : LINE;
            at++;
            break;
        case LINE:
            if (c == '\n') chunks->state = TRAILER;
            at++;
            break;
        case TRAILER_LF:
            if (c != '\n') return false;
            chunks->state = END;
            at++;
            break;
        default: return false;
        }
    }
    *len = (size_t)(to - bytes);
    return true;
}

/* Whether the last chunk has come, or no content at all, as for HEAD. */
bool psgi_chunked_is_whole(const psgi_chunks *chunks) {
    if (!chunks->begun) return true;
    return chunks->state == END || chunks->state == TRAILER || chunks->state == TRAILER_LF;
}
