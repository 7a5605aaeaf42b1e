/* context.c - the data of one interpreter: shared key scalars and stashes.
 *
 * my_cxt_index is a variable of the process, because MY_CXT of Perl needs it. */
#include "bridge/bridge.h"

#define MY_CXT_KEY "Peregrine::_guts" XS_VERSION
typedef struct {
    px_context context;
} my_cxt_t;
START_MY_CXT

static const struct {
    const char *text;
    I32 len;
} key_texts[PX_KEY_COUNT] = {
#define PX_KEY_TEXT(name, text) {text, sizeof(text) - 1},
    PX_KEYS(PX_KEY_TEXT)
#undef PX_KEY_TEXT
};

static void fill(pTHX_ px_context *cx) {
    Zero(cx, 1, px_context);
    for (int i = 0; i < PX_KEY_COUNT; i++)
        cx->own_keys[i] = newSVpvn_share(key_texts[i].text, key_texts[i].len, 0);
    cx->future_stash = gv_stashpvs("Future", GV_ADD);
    cx->loop_future_stash = gv_stashpvs("IO::Async::Future", GV_ADD);
    cx->own_future_stash = gv_stashpvs("PAGI::Server::Future", GV_ADD);
}

void px_context_init(pTHX) {
    MY_CXT_INIT;
    fill(aTHX_ &MY_CXT.context);
}

/* A new thread starts with names of its own: scalars must not be shared between interpreters. */
void px_context_clone(pTHX) {
    MY_CXT_CLONE;
    const px_context before = MY_CXT.context;
    fill(aTHX_ &MY_CXT.context);
    if (before.loop_key) px_future_boot(aTHX_ &MY_CXT.context);
    if (before.await.class_hint) px_await_op_clone(aTHX_ &MY_CXT.context, &before.await);
}

px_context *px_context_get(pTHX) {
    dMY_CXT;
    return &MY_CXT.context;
}
