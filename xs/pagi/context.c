/* context.c - the data of one interpreter: shared key scalars, stashes and learned names.
 *
 * my_cxt_index is a variable of the process, because MY_CXT of Perl needs it. */
#include "pagi/pagi.h"

#define MY_CXT_KEY "PAGI::Server::_guts" XS_VERSION
typedef struct {
    pagi_context context;
} my_cxt_t;
START_MY_CXT

static const struct {
    const char *text;
    I32 len;
} key_texts[PAGI_KEY_COUNT] = {
#define PAGI_KEY_TEXT(name, text) {text, sizeof(text) - 1},
    PAGI_KEYS(PAGI_KEY_TEXT)
#undef PAGI_KEY_TEXT
};

static void fill(pTHX_ pagi_context *cx) {
    Zero(cx, 1, pagi_context);
    for (int i = 0; i < PAGI_KEY_COUNT; i++)
        cx->keys[i] = newSVpvn_share(key_texts[i].text, key_texts[i].len, 0);
    cx->no_data = newHV();
    cx->connection_stash = gv_stashpvs("PAGI::Server::Connection", GV_ADD);
    cx->topics_stash = gv_stashpvs("PAGI::Server::Topics", GV_ADD);
    cx->channels_stash = gv_stashpvs("PAGI::Server::Channels", GV_ADD);
    cx->transport_stash = gv_stashpvs("PAGI::Server::Transport", GV_ADD);
}

void pagi_context_init(pTHX) {
    MY_CXT_INIT;
    fill(aTHX_ &MY_CXT.context);
}

/* A new thread starts with names of its own: scalars must not be shared between interpreters. */
void pagi_context_clone(pTHX) {
    MY_CXT_CLONE;
    fill(aTHX_ &MY_CXT.context);
}

pagi_context *pagi_context_get(pTHX) {
    dMY_CXT;
    return &MY_CXT.context;
}
