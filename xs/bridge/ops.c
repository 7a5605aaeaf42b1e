/* ops.c - gives all ops of some kinds other functions, those that are compiled already included. */
#include "bridge/bridge.h"

/* Replaces functions in an op and in all ops below it: an op has its function since it was compiled. */
static void change(OP *op, const px_op_change *changes, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (op->op_type == changes[i].type && op->op_ppaddr == *changes[i].before)
            op->op_ppaddr = changes[i].now;
    if (op->op_type == OP_SUBST && cPMOPx(op)->op_pmreplrootu.op_pmreplroot)
        change(cPMOPx(op)->op_pmreplrootu.op_pmreplroot, changes, count);
    if (!(op->op_flags & OPf_KIDS)) return;
    for (OP *kid = cUNOPx(op)->op_first; kid; kid = OpSIBLING(kid)) change(kid, changes, count);
}

/* Makes `now` the function of all ops of each change's `type`: ops that any interpreter compiles later,
 * and ops of this interpreter whose function is `*before`. Where that is NULL the present function is
 * noted there, which `now` may call. All changes need one walk, whose cost is a part of each start. */
void px_ops_replace(pTHX_ const px_op_change *changes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (!*changes[i].before) *changes[i].before = PL_ppaddr[changes[i].type];
        PL_ppaddr[changes[i].type] = changes[i].now;
    }
    for (SV *arena = PL_sv_arenaroot; arena; arena = (SV *)SvANY(arena)) {
        const SV *end = &arena[SvREFCNT(arena)];
        for (SV *sv = arena + 1; sv < end; sv++) {
            if (SvIS_FREED(sv) || SvTYPE(sv) != SVt_PVCV) continue;
            if (!CvISXSUB((CV *)sv) && CvROOT((CV *)sv)) change(CvROOT((CV *)sv), changes, count);
        }
    }
    if (PL_main_root) change(PL_main_root, changes, count);
}
