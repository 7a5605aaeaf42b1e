/* coder.c - content codings that libraries of the system know: br and zstd, where they are installed. A
 * library is opened when its coding is asked for, so that this one does not depend on it. (gzip is
 * Compress::Raw::Zlib's, which comes with Perl.) */
#include "bridge/bridge.h"
#include <dlfcn.h>

struct px_coder {
    const px_coding *coding;
    void *state;
};

/* A way to code: `step` takes all of `bytes`, appends the coded bytes to `out`, and returns false if the
 * library fails. */
struct px_coding {
    const char *name, *library;
    bool (*find)(void *library);
    void *(*begin)(void);
    bool (*step)(pTHX_ void *state, const char *bytes, STRLEN len, bool last, SV *out);
    void (*end)(void *state);
};

/* ---- br -------------------------------------------------------------------------------------- */

static struct {
    void *(*create)(void *, void *, void *);
    int (*set)(void *, int, uint32_t);
    int (*compress)(void *, int, size_t *, const uint8_t **, size_t *, uint8_t **, size_t *);
    const uint8_t *(*take)(void *, size_t *);
    int (*has_more)(void *);
    void (*destroy)(void *);
} brotli;

/* From <brotli/encode.h>. Quality and window keep an encoder below 2 MB, and about as fast as gzip. */
enum { BR_QUALITY = 1, BR_WINDOW = 2, BR_FLUSH = 1, BR_FINISH = 2 };

static bool find_brotli(void *library) {
    *(void **)&brotli.create = dlsym(library, "BrotliEncoderCreateInstance");
    *(void **)&brotli.set = dlsym(library, "BrotliEncoderSetParameter");
    *(void **)&brotli.compress = dlsym(library, "BrotliEncoderCompressStream");
    *(void **)&brotli.take = dlsym(library, "BrotliEncoderTakeOutput");
    *(void **)&brotli.has_more = dlsym(library, "BrotliEncoderHasMoreOutput");
    *(void **)&brotli.destroy = dlsym(library, "BrotliEncoderDestroyInstance");
    return brotli.create && brotli.set && brotli.compress && brotli.take && brotli.has_more &&
           brotli.destroy;
}

static void *begin_brotli(void) {
    void *state = brotli.create(NULL, NULL, NULL);
    if (state && (!brotli.set(state, BR_QUALITY, 4) || !brotli.set(state, BR_WINDOW, 18))) {
        brotli.destroy(state);
        return NULL;
    }
    return state;
}

static bool step_brotli(pTHX_ void *state, const char *bytes, STRLEN len, bool last, SV *out) {
    size_t left = len, room = 0;
    const uint8_t *next = (const uint8_t *)bytes;
    do {
        const int how = last ? BR_FINISH : BR_FLUSH;
        if (!brotli.compress(state, how, &left, &next, &room, NULL, NULL)) return false;
        size_t size = 0;
        const uint8_t *made = brotli.take(state, &size);
        sv_catpvn(out, (const char *)made, size);
    } while (left > 0 || brotli.has_more(state));
    return true;
}

static void end_brotli(void *state) {
    brotli.destroy(state);
}

/* ---- zstd ------------------------------------------------------------------------------------ */

typedef struct zstd_out {
    void *bytes;
    size_t size, at;
} zstd_out;

typedef struct zstd_in {
    const void *bytes;
    size_t size, at;
} zstd_in;

static struct {
    void *(*create)(void);
    size_t (*set)(void *, int, int);
    size_t (*compress)(void *, zstd_out *, zstd_in *, int);
    unsigned (*is_error)(size_t);
    size_t (*destroy)(void *);
} zstd;

/* From <zstd.h>. Clients need not take a window above 8 MB (RFC 9659). */
enum { ZS_LEVEL = 100, ZS_WINDOW = 101, ZS_FLUSH = 1, ZS_END = 2 };

static bool find_zstd(void *library) {
    *(void **)&zstd.create = dlsym(library, "ZSTD_createCCtx");
    *(void **)&zstd.set = dlsym(library, "ZSTD_CCtx_setParameter");
    *(void **)&zstd.compress = dlsym(library, "ZSTD_compressStream2");
    *(void **)&zstd.is_error = dlsym(library, "ZSTD_isError");
    *(void **)&zstd.destroy = dlsym(library, "ZSTD_freeCCtx");
    return zstd.create && zstd.set && zstd.compress && zstd.is_error && zstd.destroy;
}

static void *begin_zstd(void) {
    void *state = zstd.create();
    if (!state) return NULL;
    if (zstd.is_error(zstd.set(state, ZS_LEVEL, 3)) || zstd.is_error(zstd.set(state, ZS_WINDOW, 18))) {
        zstd.destroy(state);
        return NULL;
    }
    return state;
}

static bool step_zstd(pTHX_ void *state, const char *bytes, STRLEN len, bool last, SV *out) {
    zstd_in in = {bytes, len, 0};
    size_t left;
    do {
        char room[16 * 1024];
        zstd_out made = {room, sizeof(room), 0};
        left = zstd.compress(state, &made, &in, last ? ZS_END : ZS_FLUSH);
        if (zstd.is_error(left)) return false;
        sv_catpvn(out, room, made.at);
    } while (left > 0 || in.at < in.size);
    return true;
}

static void end_zstd(void *state) {
    zstd.destroy(state);
}

/* ---- Both codings ------------------------------------------------------------------------------ */

static const px_coding codings[] = {
    {"br", "libbrotlienc.so.1", find_brotli, begin_brotli, step_brotli, end_brotli},
    {"zstd", "libzstd.so.1", find_zstd, begin_zstd, step_zstd, end_zstd},
};

/* The coding of a name; NULL: the system has no library for it. Not for several threads: options ask, before
 * a server starts. */
static const px_coding *coding_of(const char *name) {
    static int known[2]; /* for each coder 1: the library is installed, -1: it is not */
    for (int i = 0; i < 2; i++) {
        if (strNE(codings[i].name, name)) continue;
        if (!known[i]) {
            void *library = dlopen(codings[i].library, RTLD_NOW | RTLD_LOCAL);
            known[i] = library && codings[i].find(library) ? 1 : -1;
        }
        return known[i] > 0 ? codings + i : NULL;
    }
    return NULL;
}

/* A new coder for the coding of this name; NULL: the system has no library for it, or there is no memory. */
px_coder *px_coder_new(const char *name) {
    const px_coding *coding = coding_of(name);
    if (!coding) return NULL;
    void *state = coding->begin();
    if (!state) return NULL;
    px_coder *coder;
    Newx(coder, 1, px_coder);
    coder->coding = coding;
    coder->state = state;
    return coder;
}

void px_coder_free(px_coder *coder) {
    coder->coding->end(coder->state);
    Safefree(coder);
}

/* Codes bytes, together with earlier bytes that waited in the coder; `last`: no more follow. Returns a new
 * scalar; dies if the library fails. */
SV *px_coder_code(pTHX_ px_coder *coder, const char *bytes, STRLEN len, bool last) {
    SV *out = sv_2mortal(newSVpvs(""));
    if (!coder->coding->step(aTHX_ coder->state, bytes, len, last, out))
        croak("Peregrine: %s cannot code a response", coder->coding->name);
    return SvREFCNT_inc_simple_NN(out);
}
