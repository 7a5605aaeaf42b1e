/* future.c - Futures made, looked at and resolved from C.
 *
 * Future.pm's pure-Perl objects are hashes; where PAGI::Server::Future has found at load time that they have
 * the layout that is known here, they are built and read directly. Any other Future (Future::XS,
 * PERL_FUTURE_DEBUG, an unknown subclass) is used through its methods. */
#include "bridge/bridge.h"

/* Called by PAGI::Server::Future when Futures have the known layout. */
void px_future_boot(pTHX_ px_context *cx) {
    if (!cx->loop_key) cx->loop_key = newSVpvs_share("u_loop");
}

/* A resolved Future of a class whose objects are plain hashes. Takes over `result`. */
SV *px_future_new_done(pTHX_ px_context *cx, HV *stash, AV *result) {
    HV *future = newHV();
    px_store(aTHX_ future, PX_KEY(cx, READY), &PL_sv_yes);
    px_store(aTHX_ future, PX_KEY(cx, RESULT), newRV_noinc((SV *)result));
    return sv_bless(newRV_noinc((SV *)future), stash);
}

static SV *new_own_done(pTHX_ px_worker *worker, AV *result) {
    px_context *cx = worker->cx;
    SV *future = px_future_new_done(aTHX_ cx, cx->own_future_stash, result);
    px_store(aTHX_ (HV *)SvRV(future), cx->loop_key, newSVsv(worker->loop));
    return future;
}

/* A pending Future that knows its loop, so that it can be waited for with ->get. Never NULL: without memory
 * Perl dies. */
SV *px_future_pending(pTHX_ px_worker *worker) {
    px_context *cx = worker->cx;
    if (cx->loop_key) {
        HV *future = newHV();
        px_store(aTHX_ future, PX_KEY(cx, READY), newSViv(0));
        px_store(aTHX_ future, cx->loop_key, newSVsv(worker->loop));
        return sv_bless(newRV_noinc((SV *)future), cx->own_future_stash);
    }
    SV *class = newSVpvs_flags("PAGI::Server::Future", SVs_TEMP);
    SV *error = NULL;
    SV *future = px_call(aTHX_ class, "new", worker->loop, NULL, &error);
    if (!future) croak_sv(error);
    return future;
}

/* Whether a kept Future, resolved and empty, can be handed out again: no other code refers to it, and no code
 * has changed it. */
static bool reusable(const px_done *done, STRLEN keys) {
    const HV *hash = done->future;
    return hash && SvREFCNT(hash) == 1 && !SvOOK(hash) && HvTOTALKEYS(hash) == keys &&
           SvREFCNT(done->result) == 2 &&
           AvFILLp(done->result) < 0;
}

static SV *keep_done(pTHX_ px_done *done, SV *future, AV *result) {
    px_future_forget(aTHX_ done);
    done->future = (HV *)SvREFCNT_inc_simple_NN(SvRV(future));
    done->result = (AV *)SvREFCNT_inc_simple_NN((SV *)result);
    return future;
}

void px_future_forget(pTHX_ px_done *done) {
    SV *future = (SV *)done->future;
    SV *result = (SV *)done->result;
    done->future = NULL;
    done->result = NULL;
    SvREFCNT_dec(future);
    SvREFCNT_dec(result);
}

/* The empty Future that $send returns. It knows its loop, so only the servers of one loop share it. */
static SV *shared_done(pTHX_ px_worker *worker) {
    px_context *cx = worker->cx;
    const bool same_loop = cx->own_done_loop == (SvROK(worker->loop) ? SvRV(worker->loop) : NULL);
    if (same_loop && reusable(&cx->own_done, 3)) return newRV_inc((SV *)cx->own_done.future);
    AV *result = newAV();
    cx->own_done_loop = SvROK(worker->loop) ? SvRV(worker->loop) : NULL;
    return keep_done(aTHX_ & cx->own_done, new_own_done(aTHX_ worker, result), result);
}

/* A resolved Future of the base class, as an `async sub` returns it, with copies of `count` values of Perl's
 * stack from the index `first` on (an index, because copying a value may move the stack). */
SV *px_future_base_done(pTHX_ px_context *cx, SSize_t first, SSize_t count) {
    if (count == 0 && reusable(&cx->done, 2)) return newRV_inc((SV *)cx->done.future);
    AV *result = newAV();
    if (count > 0) {
        av_extend(result, count - 1);
        for (SSize_t i = 0; i < count; i++) av_push(result, newSVsv(PL_stack_base[first + i]));
        return px_future_new_done(aTHX_ cx, cx->future_stash, result);
    }
    return keep_done(aTHX_ & cx->done, px_future_new_done(aTHX_ cx, cx->future_stash, result), result);
}

/* A resolved Future with one value (taken over), or with none. */
SV *px_future_done(pTHX_ px_worker *worker, SV *value) {
    if (worker->cx->loop_key) {
        if (!value) return shared_done(aTHX_ worker);
        AV *result = newAV();
        av_push(result, value);
        return new_own_done(aTHX_ worker, result);
    }
    SV *pending = px_future_pending(aTHX_ worker);
    if (value) sv_2mortal(value);
    SvREFCNT_dec(px_call(aTHX_ pending, "done", value, NULL, NULL));
    return pending;
}

/* A failed Future; takes over `message`. Future.pm takes no exception object that is false, or dies when it
 * is tested: a text with its class takes its place. */
SV *px_future_failed(pTHX_ px_worker *worker, SV *message) {
    SV *future = px_future_pending(aTHX_ worker);
    SV *category = newSVpvs_flags("pagi", SVs_TEMP);
    SV *failed = px_call(aTHX_ future, "fail", sv_2mortal(message), category, NULL);
    if (!failed) {
        const char *class = SvROK(message) ? sv_reftype(SvRV(message), true) : "?";
        SV *instead = sv_2mortal(newSVpvf("an exception of class %s that is not true", class));
        failed = px_call(aTHX_ future, "fail", instead, category, NULL);
    }
    SvREFCNT_dec(failed);
    return future;
}

/* A failed Future whose message ends with the place of the application's call. */
SV *px_future_invalid(pTHX_ px_worker *worker, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    SV *text = vmess(format, &arguments);
    va_end(arguments);
    return px_future_failed(aTHX_ worker, newSVsv(text));
}

/* Whether a Future is a hash with the layout that is known here. A tied hash is not: reading it runs code. */
bool px_future_is_plain(const px_context *cx, const SV *object) {
    if (!cx->loop_key || SvTYPE(object) != SVt_PVHV || SvMAGICAL(object)) return false;
    const HV *stash = SvSTASH(object);
    return stash == cx->future_stash || stash == cx->own_future_stash || stash == cx->loop_future_stash;
}

static bool true_key(pTHX_ HV *hash, SV *key) {
    SV *value = px_fetch(aTHX_ hash, key);
    return value && SvTRUE_nomg(value);
}

static bool true_method(pTHX_ SV *future, const char *method) {
    SV *value = px_call(aTHX_ future, method, NULL, NULL, NULL);
    const bool yes = value && (SvROK(value) || SvTRUE_nomg(value));
    SvREFCNT_dec(value);
    return yes;
}

/* Whether a Future is ready, for the AWAIT_* methods; -1 when its own methods have to say so. */
int px_future_plain_ready(pTHX_ SV *future) {
    px_context *cx = px_context_get(aTHX);
    if (SvROK(future) && SvRV(future) == (SV *)cx->own_done.future) return 1;
    if (!SvROK(future) || !px_future_is_plain(cx, SvRV(future))) return -1;
    return true_key(aTHX_ (HV *)SvRV(future), PX_KEY(cx, READY));
}

/* The values of a plain Future that is done; NULL for any other Future. */
AV *px_future_plain_result(pTHX_ SV *future) {
    px_context *cx = px_context_get(aTHX);
    if (SvROK(future) && SvRV(future) == (SV *)cx->own_done.future) return cx->own_done.result;
    if (!SvROK(future) || !px_future_is_plain(cx, SvRV(future))) return NULL;
    HV *hash = (HV *)SvRV(future);
    SV *result = px_fetch(aTHX_ hash, PX_KEY(cx, RESULT));
    return result && SvROK(result) && SvTYPE(SvRV(result)) == SVt_PVAV ? (AV *)SvRV(result) : NULL;
}

/* Puts copies of a Future's values on Perl's stack: all for a list, else the first or undef. */
void px_future_push(pTHX_ AV *values, U8 context) {
    dSP;
    const SSize_t count = context == G_LIST ? av_top_index(values) + 1 : 1;
    EXTEND(SP, count);
    for (SSize_t i = 0; i < count; i++) {
        PUTBACK; /* copying a value may run Perl code */
        SV **value = av_fetch(values, i, 0);
        SV *copy = value ? sv_mortalcopy(*value) : &PL_sv_undef;
        SPAGAIN;
        XPUSHs(copy);
    }
    PUTBACK;
}

/* Whether a class method was called on Future itself, whose objects are built here, and not on a subclass. */
bool px_future_is_base_class(pTHX_ SV *class) {
    const px_context *cx = px_context_get(aTHX);
    return cx->loop_key && SvPOK(class) && SvCUR(class) == 6 && memcmp(SvPVX_const(class), "Future", 6) == 0;
}

/* The state of a Future. If it has failed, `failure` gets a mortal copy of the exception. */
px_future_state px_future_look(pTHX_ px_context *cx, SV *future, SV **failure) {
    if (!future || !SvROK(future) || !SvOBJECT(SvRV(future))) return PX_FUTURE_NONE;
    SV *object = SvRV(future);
    if (object == (SV *)cx->done.future) return PX_FUTURE_DONE; /* resolved for good */
    if (px_future_is_plain(cx, object)) {
        HV *hash = (HV *)object;
        if (!true_key(aTHX_ hash, PX_KEY(cx, READY))) return PX_FUTURE_PENDING;
        SV *list = px_fetch(aTHX_ hash, PX_KEY(cx, FAILURE));
        if (list && SvROK(list) && SvTYPE(SvRV(list)) == SVt_PVAV) {
            SV **first = av_fetch((AV *)SvRV(list), 0, 0);
            *failure = first ? sv_mortalcopy(*first) : sv_2mortal(newSVpvs("failed without a message"));
            return PX_FUTURE_FAILED;
        }
        return true_key(aTHX_ hash, PX_KEY(cx, CANCELLED)) ? PX_FUTURE_CANCELLED : PX_FUTURE_DONE;
    }
    if (!sv_derived_from(future, "Future")) return PX_FUTURE_NONE;
    if (!true_method(aTHX_ future, "is_ready")) return PX_FUTURE_PENDING;
    if (true_method(aTHX_ future, "is_cancelled")) return PX_FUTURE_CANCELLED;
    SV *exception = px_call(aTHX_ future, "failure", NULL, NULL, NULL);
    if (exception && px_thrown(aTHX_ exception)) {
        *failure = sv_2mortal(exception);
        return PX_FUTURE_FAILED;
    }
    SvREFCNT_dec(exception);
    return PX_FUTURE_DONE;
}

/* Calls a method of a Future, and lets an exception of the method through. */
static void call_plainly(pTHX_ SV *future, const char *method) {
    dSP;
    PUSHMARK(SP);
    XPUSHs(future);
    PUTBACK;
    call_method(method, G_VOID | G_DISCARD);
}

/* Waits in nested turns of the loop until a Future is ready; dies with its failure. */
void px_future_wait(pTHX_ px_context *cx, SV *future) {
    SV *failure = NULL;
    px_future_state state = px_future_look(aTHX_ cx, future, &failure);
    if (state == PX_FUTURE_PENDING) {
        call_plainly(aTHX_ future, "await");
        state = px_future_look(aTHX_ cx, future, &failure);
    }
    if (state == PX_FUTURE_FAILED) call_plainly(aTHX_ future, "get");
}

/* Resolves a Future of ours, unless its holder has cancelled or settled it. Takes over `value` (may be NULL).
 * Exceptions of its callbacks are reported, never passed on. */
void px_future_resolve(pTHX_ px_exchange *exchange, SV *future, SV *value) {
    if (value) sv_2mortal(value);
    SV *failure = NULL;
    if (px_future_look(aTHX_ exchange->worker->cx, future, &failure) != PX_FUTURE_PENDING) return;
    SV *error = NULL;
    if (!px_await_resolve(aTHX_ future, SvREFCNT_inc(value), &error)) {
        SvREFCNT_dec(value);
        SvREFCNT_dec(px_call(aTHX_ future, "done", value, NULL, &error));
    }
    if (error && !exchange->mount->face->fail_stalled(aTHX_ exchange, future, error))
        px_exchange_tell(aTHX_ exchange, "_callback_died", error, "in a callback");
}

/* Resolves a list of Futures without a value, oldest first, and empties it. */
void px_future_resolve_all(pTHX_ px_exchange *exchange, AV **futures) {
    AV *list = *futures;
    if (!list) return;
    *futures = NULL; /* a callback that is added meanwhile starts a new list */
    for (SSize_t i = 0; i <= av_top_index(list); i++) {
        SV **future = av_fetch(list, i, 0);
        if (future) px_future_resolve(aTHX_ exchange, *future, NULL);
    }
    SvREFCNT_dec((SV *)list);
}

/* Fails a list of Futures with the same message, oldest first, and empties it. */
void px_future_fail_all(pTHX_ px_exchange *exchange, AV **futures, const char *message) {
    AV *list = *futures;
    if (!list) return;
    *futures = NULL;
    sv_2mortal((SV *)list);
    for (SSize_t i = 0; i <= av_top_index(list); i++) {
        SV **future = av_fetch(list, i, 0);
        SV *failure = NULL, *error = NULL;
        if (!future || px_future_look(aTHX_ exchange->worker->cx, *future, &failure) != PX_FUTURE_PENDING)
            continue;
        SV *text = newSVpvn_flags(message, strlen(message), SVs_TEMP);
        SvREFCNT_dec(px_call(aTHX_ *future, "fail", text, newSVpvs_flags("pagi", SVs_TEMP), &error));
        if (error) px_exchange_tell(aTHX_ exchange, "_callback_died", error, "in a callback");
    }
}

/* Drops the callbacks of a Future of ours that will never be resolved: an async sub that awaits it holds the
 * Future, and its callback holds the sub, so both would stay for ever. Changes nothing on a Future that is
 * ready. */
void px_future_abandon(pTHX_ const px_context *cx, SV *future) {
    if (px_future_is_plain(cx, SvRV(future)))
        (void)hv_delete_ent((HV *)SvRV(future), PX_KEY(cx, CALLBACKS), G_DISCARD, 0);
}
