/* await.c - the questions and requests of Future::AsyncAwait to a Future for each `await`, and the return
 * into the async sub when that Future resolves, without Perl code.
 *
 * Only plain Futures (future.c) are handled here. Their hashes stay as Future.pm would have made them, with
 * one difference: Future.pm has an awaited Future that is ready remove itself from the on_cancel list of the
 * awaiting Future. Here its entry stays until the next `await` overwrites it. That saves two weak references
 * with their back references per `await`, which cost more than all other work. */
#include "bridge/bridge.h"

/* The value of CB_ALWAYS|CB_SELF in Future::PP; PAGI::Server::Future compares it at load time. */
#define PX_CALLBACK_ON_READY 15

static HV *plain_hash(pTHX_ const px_context *cx, SV *future) {
    return SvROK(future) && px_future_is_plain(cx, SvRV(future)) ? (HV *)SvRV(future) : NULL;
}

static AV *list_under(pTHX_ HV *hash, SV *key, bool make) {
    SV *list = px_fetch(aTHX_ hash, key);
    if (list) return SvROK(list) && SvTYPE(SvRV(list)) == SVt_PVAV ? (AV *)SvRV(list) : NULL;
    if (!make) return NULL;
    AV *made = newAV();
    px_store(aTHX_ hash, key, newRV_noinc((SV *)made));
    return made;
}

/* Whether a value is a strong reference that no code but its holder can change. */
static bool is_own_reference(const SV *value) {
    return SvROK(value) && SvREFCNT(value) == 1 && !SvMAGICAL(value) && !SvWEAKREF(value) &&
           !SvREADONLY(value);
}

/* The first value of a callback, which all callbacks share because no code can change it. */
static SV *on_ready_flags(pTHX_ px_context *cx) {
    if (!cx->on_ready_flags) {
        cx->on_ready_flags = newSViv(PX_CALLBACK_ON_READY);
        SvREADONLY_on(cx->on_ready_flags);
    }
    return SvREFCNT_inc_simple_NN(cx->on_ready_flags);
}

/* Registers `code`, which continues the async sub, as a callback of the Future. False: the Future is not
 * plain, so its own method has to do it. */
bool px_await_on_ready(pTHX_ SV *future, SV *code) {
    px_context *cx = px_context_get(aTHX);
    HV *hash = plain_hash(aTHX_ cx, future);
    AV *callbacks = hash ? list_under(aTHX_ hash, PX_KEY(cx, CALLBACKS), true) : NULL;
    if (!callbacks) return false;
    /* Future::AsyncAwait passes a mortal reference that it forgets. */
    SV *kept = SvTEMP(code) && is_own_reference(code) ? SvREFCNT_inc_simple_NN(code) : newSVsv(code);
    av_push(callbacks, newRV_noinc((SV *)px_pair(aTHX_ on_ready_flags(aTHX_ cx), kept)));
    return true;
}

/* Whether an entry of an on_cancel list is of no use any more: revoked, or a Future that is ready, whose
 * cancellation would do nothing. */
static bool obsolete(pTHX_ SV *entry) {
    return !SvOK(entry) || px_future_plain_ready(aTHX_ entry) == 1;
}

/* Makes the cancellation of `future` cancel `awaited`. False: one of both is not plain, so the Future's own
 * method has to do it. */
bool px_await_chain_cancel(pTHX_ SV *future, SV *awaited) {
    const px_context *cx = px_context_get(aTHX);
    HV *hash = plain_hash(aTHX_ cx, future);
    if (!hash || !plain_hash(aTHX_ cx, awaited)) return false;
    AV *list = list_under(aTHX_ hash, PX_KEY(cx, ON_CANCEL), true);
    if (!list) return false;
    const SSize_t last = AvFILLp(list);
    SV *entry = last >= 0 ? AvARRAY(list)[last] : NULL;
    if (!entry || !obsolete(aTHX_ entry)) {
        av_push(list, newSVsv(awaited));
    } else if (is_own_reference(entry)) {
        SV *before = SvRV(entry);
        SvRV_set(entry, SvREFCNT_inc_simple_NN(SvRV(awaited)));
        SvREFCNT_dec_NN(before);
    } else {
        av_store(list, last, newSVsv(awaited));
    }
    return true;
}

/* Whether a Future, of which this is the object, is cancelled; -1 when its own methods have to say so. */
int px_await_is_cancelled(pTHX_ SV *object) {
    if (!px_future_is_plain(px_context_get(aTHX), object)) return -1;
    SV *cancelled = px_fetch(aTHX_ (HV *)object, PX_KEY(px_context_get(aTHX), CANCELLED));
    return cancelled && SvTRUE_nomg(cancelled);
}

/* Futures that are followed along one chain of `await`; programs have far shorter chains. */
#define PX_AWAITS_MAX 1000

/* The plain Future that an async sub's pending Future waits for: the last one that its cancellation would
 * cancel. NULL: it waits for none, or for one that is not plain. */
static SV *awaited_by(pTHX_ const px_context *cx, SV *future) {
    HV *hash = plain_hash(aTHX_ cx, future);
    AV *list = hash ? list_under(aTHX_ hash, PX_KEY(cx, ON_CANCEL), false) : NULL;
    SV *last = list && AvFILLp(list) >= 0 ? AvARRAY(list)[AvFILLp(list)] : NULL;
    return last && plain_hash(aTHX_ cx, last) ? last : NULL;
}

static SV *stalled(pTHX_ const px_context *cx, SV *future, SV *awaited, int steps);

static SV *stalled_among(pTHX_ const px_context *cx, AV *futures, SV *awaited, int steps) {
    SV *found = NULL;
    for (SSize_t i = 0; i <= AvFILLp(futures) && !found; i++)
        if (AvARRAY(futures)[i]) found = stalled(aTHX_ cx, AvARRAY(futures)[i], awaited, steps);
    return found;
}

static SV *stalled(pTHX_ const px_context *cx, SV *future, SV *awaited, int steps) {
    if (steps == 0 || px_future_plain_ready(aTHX_ future) != 0) return NULL;
    HV *hash = plain_hash(aTHX_ cx, future);
    AV *subs = hash ? list_under(aTHX_ hash, PX_KEY(cx, SUBS), false) : NULL;
    /* the Futures that wait_all, needs_any or the like has combined */
    if (subs) return stalled_among(aTHX_ cx, subs, awaited, steps - 1);
    SV *next = awaited_by(aTHX_ cx, future);
    if (!next) return NULL;
    if (px_future_plain_ready(aTHX_ next) == 0) return stalled(aTHX_ cx, next, awaited, steps - 1);
    return !awaited || SvRV(next) == SvRV(awaited) ? future : NULL;
}

/* Among `future` and the Futures that it waits for, finds an async sub's Future that is pending although the
 * Future awaited by the sub is ready; NULL: there is none. Such a Future would stay pending for ever:
 * Future::AsyncAwait tests whether an exception is true while it unwinds an async sub, and if the exception's
 * class dies in that test, the error goes to the code that resolved the awaited Future. An async sub that is
 * on the stack looks alike; so the caller names the `awaited` Future, or passes NULL when no async sub is on
 * the stack. */
SV *px_await_stalled(pTHX_ SV *future, SV *awaited) {
    return stalled(aTHX_ px_context_get(aTHX), future, awaited, PX_AWAITS_MAX);
}

/* The code of a callback that is called with the Future alone; NULL for any other kind of callback. */
static SV *simple_callback(SV *entry) {
    if (!entry || !SvROK(entry) || SvTYPE(SvRV(entry)) != SVt_PVAV) return NULL;
    const AV *pair = (AV *)SvRV(entry);
    if (AvFILLp(pair) != 1 || !AvARRAY(pair)[0] || !AvARRAY(pair)[1]) return NULL;
    SV *flags = AvARRAY(pair)[0];
    SV *code = AvARRAY(pair)[1];
    const bool plain = SvIOK(flags) && SvIVX(flags) == PX_CALLBACK_ON_READY && SvROK(code) &&
                       SvTYPE(SvRV(code)) == SVt_PVCV &&
                       !SvOBJECT(SvRV(code));
    return plain ? code : NULL;
}

static bool all_simple(AV *callbacks) {
    for (SSize_t i = 0; i <= AvFILLp(callbacks); i++)
        if (!simple_callback(AvARRAY(callbacks)[i])) return false;
    return true;
}

/* Whether a pending Future has only simple callbacks and a list of cancellations, which are dropped when it
 * is done. `callbacks` gets the list of callbacks, or NULL. */
static bool hangs_simply(pTHX_ const px_context *cx, HV *hash, AV **callbacks) {
    *callbacks = list_under(aTHX_ hash, PX_KEY(cx, CALLBACKS), false);
    if (*callbacks && !all_simple(*callbacks)) return false;
    /* Keys that each Future has: `ready`, and the loop unless its class is Future itself. */
    const STRLEN keys = (SvSTASH((SV *)hash) == cx->future_stash ? 1 : 2) + (*callbacks ? 1 : 0);
    return HvTOTALKEYS(hash) == keys ||
           (HvTOTALKEYS(hash) == keys + 1 && hv_exists_ent(hash, PX_KEY(cx, ON_CANCEL), 0));
}

/* Makes a Future done as Future.pm does: takes over its result. Its callbacks are left for the caller. */
static void settle(pTHX_ const px_context *cx, HV *hash, AV *callbacks, AV *result) {
    const STRLEN keys = HvTOTALKEYS(hash);
    SV *ready = px_fetch(aTHX_ hash, PX_KEY(cx, READY));
    px_store(aTHX_ hash, PX_KEY(cx, RESULT), newRV_noinc((SV *)result));
    /* The number is set where it is, unless other code refers to it. */
    if (ready && SvREFCNT(ready) == 1 && SvTYPE(ready) == SVt_IV && SvIOK(ready) && !SvREADONLY(ready))
        SvIV_set(ready, 1);
    else px_store(aTHX_ hash, PX_KEY(cx, READY), newSViv(1));
    if (callbacks) (void)hv_delete_ent(hash, PX_KEY(cx, CALLBACKS), G_DISCARD, 0);
    if (keys > 2) (void)hv_delete_ent(hash, PX_KEY(cx, ON_CANCEL), G_DISCARD, 0);
}

/* Resolves a pending Future of ours as `done` would, if nothing but simple callbacks hangs on it. Takes over
 * `value` (may be NULL) and returns true, or changes nothing. An exception of a callback goes to `error`, as
 * a mortal; the other callbacks run all the same. */
bool px_await_resolve(pTHX_ SV *future, SV *value, SV **error) {
    const px_context *cx = px_context_get(aTHX);
    HV *hash = plain_hash(aTHX_ cx, future);
    AV *callbacks;
    if (!hash || SvSTASH((SV *)hash) != cx->own_future_stash) return false;
    if (!hangs_simply(aTHX_ cx, hash, &callbacks)) return false;
    AV *result = newAV();
    if (value) av_push(result, value);
    if (callbacks) sv_2mortal(SvREFCNT_inc_simple_NN((SV *)callbacks));
    settle(aTHX_ cx, hash, callbacks, result);
    for (SSize_t i = 0; callbacks && i <= AvFILLp(callbacks); i++) {
        SV *callback = simple_callback(AvARRAY(callbacks)[i]);
        if (callback) SvREFCNT_dec(px_call(aTHX_ callback, NULL, future, NULL, error));
    }
    return true;
}

/* Calls a function with a Future, and lets an exception of the function through. */
static void call_with(pTHX_ SV *callback, SV *future) {
    dSP;
    ENTER;
    SAVETMPS;
    PUSHMARK(SP);
    XPUSHs(future);
    PUTBACK;
    call_sv(callback, G_VOID | G_DISCARD);
    FREETMPS;
    LEAVE;
}

/* Resolves the Future of an async sub that ends after it was suspended, with `count` values of Perl's stack
 * from the index `first` on (an index, because copying a value may move the stack). False: the Future's own
 * methods have to do it. */
bool px_await_done(pTHX_ SV *future, SSize_t first, SSize_t count) {
    const px_context *cx = px_context_get(aTHX);
    HV *hash = plain_hash(aTHX_ cx, future);
    AV *callbacks;
    if (!hash || px_future_plain_ready(aTHX_ future) != 0) return false;
    if (!hangs_simply(aTHX_ cx, hash, &callbacks)) return false;
    AV *result = (AV *)sv_2mortal((SV *)newAV());
    for (SSize_t i = 0; i < count; i++) av_push(result, newSVsv(PL_stack_base[first + i]));
    /* A value that runs code when it is copied may have changed the Future. */
    if (px_future_plain_ready(aTHX_ future) != 0 || !hangs_simply(aTHX_ cx, hash, &callbacks)) return false;
    sv_2mortal(SvREFCNT_inc_simple_NN((SV *)hash));
    if (callbacks) sv_2mortal(SvREFCNT_inc_simple_NN((SV *)callbacks));
    settle(aTHX_ cx, hash, callbacks, (AV *)SvREFCNT_inc_simple_NN((SV *)result));
    for (SSize_t i = 0; callbacks && i <= AvFILLp(callbacks); i++) {
        SV *callback = simple_callback(AvARRAY(callbacks)[i]);
        if (callback) call_with(aTHX_ callback, future);
    }
    return true;
}

/* A pending Future with the class and the loop of `future`, for an async sub that waits for `future` and
 * returns the new one. NULL: `future` is not plain, so its own methods have to make it. */
SV *px_await_clone(pTHX_ SV *future) {
    const px_context *cx = px_context_get(aTHX);
    HV *hash = plain_hash(aTHX_ cx, future);
    if (!hash) return NULL;
    HV *made = newHV();
    SV *reference = sv_2mortal(newRV_noinc((SV *)made));
    px_store(aTHX_ made, PX_KEY(cx, READY), newSViv(0));
    if (SvSTASH((SV *)hash) != cx->future_stash) {
        SV *loop = px_fetch(aTHX_ hash, cx->loop_key);
        px_store(aTHX_ made, cx->loop_key, loop ? newSVsv(loop) : newSV(0));
    }
    return SvREFCNT_inc_simple_NN(sv_bless(reference, SvSTASH((SV *)hash)));
}
