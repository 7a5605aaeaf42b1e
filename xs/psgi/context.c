/* context.c - the data of one interpreter: shared key scalars, stashes and learned names.
 *
 * my_cxt_index is a variable of the process, because MY_CXT of Perl needs it. */
#include "psgi/psgi.h"

#define MY_CXT_KEY "Plack::Handler::Peregrine::_guts" XS_VERSION
typedef struct {
    psgi_context context;
} my_cxt_t;
START_MY_CXT

static const struct {
    const char *text;
    I32 len;
} key_texts[PSGI_KEY_COUNT] = {
#define PSGI_KEY_TEXT(name, text) {text, sizeof(text) - 1},
    PSGI_KEYS(PSGI_KEY_TEXT)
#undef PSGI_KEY_TEXT
};

static void fill(pTHX_ psgi_context *cx) {
    Zero(cx, 1, psgi_context);
    for (int i = 0; i < PSGI_KEY_COUNT; i++)
        cx->keys[i] = newSVpvn_share(key_texts[i].text, key_texts[i].len, 0);
    cx->writer_stash = gv_stashpvs("Plack::Handler::Peregrine::Writer", GV_ADD);
}

void psgi_context_init(pTHX) {
    MY_CXT_INIT;
    fill(aTHX_ &MY_CXT.context);
}

/* A new thread starts with names of its own: scalars must not be shared between interpreters. */
void psgi_context_clone(pTHX) {
    MY_CXT_CLONE;
    fill(aTHX_ &MY_CXT.context);
}

psgi_context *psgi_context_get(pTHX) {
    dMY_CXT;
    return &MY_CXT.context;
}
