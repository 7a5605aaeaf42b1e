/* await_op.c - an `await` on a Future that is ready, and the end of an async sub, without a method call.
 *
 * Future::AsyncAwait asks a Future by two methods, AWAIT_IS_READY and AWAIT_GET, and makes the Future of an
 * async sub by a third, AWAIT_NEW_DONE. The calls cost far more than the methods do (await.c). Perl calls the
 * function `xop_peep` of a custom op for each such op that it compiles: ours puts a function in place of
 * Future::AsyncAwait's. That function answers where the result is certain, and calls Future::AsyncAwait's in
 * all other cases: an async sub that is being resumed, or whose Future is lost or cancelled, a Future that is
 * not ready or has failed, a class with other methods than ours. */
#include "bridge/bridge.h"

/* Key of PL_modglobal in an interpreter that has the methods which these functions need. The descriptions of
 * the ops do not tell, because all interpreters of the process share them. */
#define PX_AWAIT_HERE "Peregrine/await"

/* Whether an async sub is, or was, suspended: then Future::AsyncAwait keeps its state in magic. */
static bool was_suspended(CV *sub) {
    return mg_find((SV *)sub, PERL_MAGIC_ext) != NULL;
}

static bool is_ours(const px_await_method *method) {
    return method->gv && GvCV(method->gv) == method->ours;
}

/* Whether the class of a plain Future answers both questions of `await` with our functions. */
static bool has_our_methods(const px_context *cx, const SV *object) {
    const HV *stash = SvSTASH(object);
    if (stash == cx->own_future_stash) return is_ours(&cx->await.own_ready) && is_ours(&cx->await.own_get);
    return stash == cx->future_stash && is_ours(&cx->await.ready) && is_ours(&cx->await.get);
}

/* The values of a Future that is done; NULL: its methods have to be asked. */
static AV *values_of(pTHX_ px_context *cx, SV *future) {
    if (!SvROK(future) || !SvOBJECT(SvRV(future)) || !has_our_methods(cx, SvRV(future))) return NULL;
    return px_future_plain_ready(aTHX_ future) == 1 ? px_future_plain_result(aTHX_ future) : NULL;
}

/* ---- An async sub that goes on after it was suspended ------------------------------------------ */

/* Future::AsyncAwait's `await` is called to suspend a sub and, when the awaited Future is ready, once more to
 * resume the sub. It first asks whether the Future that the sub has returned is cancelled, which ends the sub
 * there. When it then gets the values of the awaited Future, the sub goes on; until the next call of
 * Future::AsyncAwait, an `await` of a Future that is ready needs no more than the same question. */

static void forget_sub(pTHX_ px_await_ops *ops) {
    SV *asked = ops->asked, *returned = ops->returned;
    ops->called = ops->resumed = NULL;
    ops->asked = ops->returned = NULL;
    SvREFCNT_dec(asked);
    SvREFCNT_dec(returned);
}

/* To be called when Future::AsyncAwait asks whether a plain Future is cancelled. */
void px_await_op_asks(pTHX_ SV *future) {
    px_await_ops *ops = &px_context_get(aTHX)->await;
    if (!ops->called || ops->asked || find_runcv(NULL) != ops->called) return;
    ops->asked = SvREFCNT_inc_simple_NN(SvRV(future));
}

/* To be called when Future::AsyncAwait gets the values of a plain Future, so that the sub goes on. */
void px_await_op_gets(pTHX) {
    px_await_ops *ops = &px_context_get(aTHX)->await;
    if (!ops->asked || find_runcv(NULL) != ops->called) return;
    SV *before = ops->returned;
    ops->resumed = ops->called;
    ops->returned = ops->asked;
    ops->called = NULL;
    ops->asked = NULL;
    SvREFCNT_dec(before);
}

/* Whether the running sub was resumed, and its Future is neither lost nor cancelled. */
static bool runs_on(pTHX_ const px_await_ops *ops, const CV *sub) {
    if (ops->resumed != sub || SvREFCNT(ops->returned) == 1) return false;
    return px_await_is_cancelled(aTHX_ ops->returned) == 0;
}

/* Calls Future::AsyncAwait's function. Our reference to the Future of a sub goes before, because a sub whose
 * Future has no other reference is lost. */
static OP *call_replaced(pTHX_ px_await_ops *ops, CV *sub) {
    forget_sub(aTHX_ ops);
    if (!was_suspended(sub)) return ops->await(aTHX);
    ops->called = sub;
    OP *next = ops->await(aTHX);
    SV *asked = ops->asked;
    ops->called = NULL;
    ops->asked = NULL;
    SvREFCNT_dec(asked);
    return next;
}

static OP *await(pTHX) {
    dSP;
    px_context *cx = px_context_get(aTHX);
    px_await_ops *ops = &cx->await;
    if (PL_op->op_flags & OPf_SPECIAL) return ops->await(aTHX);
    CV *sub = find_runcv(NULL);
    AV *values = was_suspended(sub) && !runs_on(aTHX_ ops, sub) ? NULL : values_of(aTHX_ cx, TOPs);
    if (!values) return call_replaced(aTHX_ ops, sub);
    SP--;
    PUTBACK;
    px_future_push(aTHX_ values, GIMME_V);
    ops->at_once++;
    return NORMAL;
}

/* Whether the async sub that ends returns a done Future of class Future, as most async subs do. */
static bool ends_done(pTHX_ const px_context *cx) {
    return cx->loop_key && px_is_clear(ERRSV) && is_ours(&cx->await.new_done) &&
           !was_suspended(find_runcv(NULL)) &&
           cop_hints_fetch_sv(PL_curcop, cx->await.class_hint, SvSHARED_HASH(cx->await.class_hint), 0) ==
               &PL_sv_placeholder;
}

static OP *leave(pTHX) {
    px_context *cx = px_context_get(aTHX);
    if (!ends_done(aTHX_ cx)) {
        forget_sub(aTHX_ & cx->await);
        return cx->await.leave(aTHX);
    }
    const SSize_t mark = POPMARK;
    SV *future = px_future_base_done(aTHX_ cx, mark + 1, PL_stack_sp - PL_stack_base - mark);
    dSP;
    SP = PL_stack_base + CX_CUR()->blk_oldsp;
    EXTEND(SP, 1);
    mPUSHs(future);
    PUTBACK;
    cx->await.at_once++;
    return NORMAL;
}

static bool is_here(pTHX) {
    return hv_exists(PL_modglobal, PX_AWAIT_HERE, sizeof(PX_AWAIT_HERE) - 1);
}

static void optimize_await(pTHX_ OP *op, OP *before) {
    PERL_UNUSED_ARG(before);
    if (!is_here(aTHX) || op->op_ppaddr == await) return;
    px_context_get(aTHX)->await.await = op->op_ppaddr;
    op->op_ppaddr = await;
}

static void optimize_leave(pTHX_ OP *op, OP *before) {
    PERL_UNUSED_ARG(before);
    if (!is_here(aTHX) || op->op_ppaddr == leave) return;
    px_context_get(aTHX)->await.leave = op->op_ppaddr;
    op->op_ppaddr = leave;
}

/* The custom op of this name and description that has no `xop_peep` yet; NULL: there is none. */
static XOP *find_op(pTHX_ const char *name, const char *text) {
    if (!PL_custom_ops) return NULL;
    XOP *found = NULL;
    hv_iterinit(PL_custom_ops);
    for (HE *entry; (entry = hv_iternext(PL_custom_ops));) {
        XOP *op = INT2PTR(XOP *, SvIV(HeVAL(entry)));
        if (strEQ(XopENTRY(op, xop_name), name) && strEQ(XopENTRY(op, xop_desc), text)) found = op;
    }
    return found && !XopENTRY(found, xop_peep) ? found : NULL;
}

/* Sets the `xop_peep` of an op. Our function is registered under the op's description, too, for tools that
 * show ops. */
static void optimize(pTHX_ const char *name, const char *text, Perl_cpeep_t peep, Perl_ppaddr_t function) {
    XOP *op = find_op(aTHX_ name, text);
    if (!op) return;
    Perl_custom_op_register(aTHX_ function, op);
    XopENTRY_set(op, xop_peep, peep);
}

static px_await_method method(pTHX_ const char *name, const char *ours) {
    px_await_method method = {gv_fetchpv(name, 0, SVt_PVCV), get_cv(ours, 0)};
    SvREFCNT_inc_simple_void(method.gv);
    SvREFCNT_inc_simple_void(method.ours);
    return method;
}

/* Finds the methods that the functions above need, in an interpreter that has our methods. */
static void look_up_methods(pTHX_ px_context *cx) {
#define PX_OWN "PAGI::Server::Future::"
    px_await_ops *ops = &cx->await;
    ops->own_ready = method(aTHX_ PX_OWN "AWAIT_IS_READY", PX_OWN "_await_is_ready");
    ops->own_get = method(aTHX_ PX_OWN "AWAIT_GET", PX_OWN "_await_get");
    ops->ready = method(aTHX_ "Future::AWAIT_IS_READY", PX_OWN "_await_is_ready");
    ops->get = method(aTHX_ "Future::AWAIT_GET", PX_OWN "_await_get");
    ops->new_done = method(aTHX_ "Future::AWAIT_NEW_DONE", PX_OWN "_await_new_done");
    ops->class_hint = newSVpvs_share("Future::AsyncAwait/future");
#undef PX_OWN
}

/* Fills the context of a cloned interpreter, which runs ops that its original has compiled. */
void px_await_op_clone(pTHX_ px_context *cx, const px_await_ops *before) {
    look_up_methods(aTHX_ cx);
    cx->await.await = before->await;
    cx->await.leave = before->leave;
}

/* Makes async subs faster that this interpreter compiles from now on. */
void px_await_op_install(pTHX) {
    look_up_methods(aTHX_ px_context_get(aTHX));
    (void)hv_stores(PL_modglobal, PX_AWAIT_HERE, newSViv(1));
    optimize(aTHX_ "await", "await()", optimize_await, await);
    optimize(aTHX_ "leaveasync", "leaveasync()", optimize_leave, leave);
}
