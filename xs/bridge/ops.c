/* ops.c - gives all ops of one kind another function, those that are compiled already included. */
#include "bridge/bridge.h"

/* Replaces the function in an op and in all ops below it: an op has its function since it was compiled. */
static void change(OP *op, OPCODE type, Perl_ppaddr_t before, Perl_ppaddr_t now) {
    if (op->op_type == type && op->op_ppaddr == before) op->op_ppaddr = now;
    if (op->op_type == OP_SUBST && cPMOPx(op)->op_pmreplrootu.op_pmreplroot)
        change(cPMOPx(op)->op_pmreplrootu.op_pmreplroot, type, before, now);
    if (!(op->op_flags & OPf_KIDS)) return;
    for (OP *kid = cUNOPx(op)->op_first; kid; kid = OpSIBLING(kid)) change(kid, type, before, now);
}

/* Makes `now` the function of all ops of this kind: ops that any interpreter compiles later, and ops of this
 * interpreter whose function is `before` (NULL: the present one). Returns the function before, which `now`
 * may call. */
Perl_ppaddr_t px_ops_replace(pTHX_ OPCODE type, Perl_ppaddr_t now, Perl_ppaddr_t before) {
    if (!before) before = PL_ppaddr[type];
    PL_ppaddr[type] = now;
    for (SV *arena = PL_sv_arenaroot; arena; arena = (SV *)SvANY(arena)) {
        const SV *end = &arena[SvREFCNT(arena)];
        for (SV *sv = arena + 1; sv < end; sv++) {
            if (SvIS_FREED(sv) || SvTYPE(sv) != SVt_PVCV) continue;
            if (!CvISXSUB((CV *)sv) && CvROOT((CV *)sv)) change(CvROOT((CV *)sv), type, before, now);
        }
    }
    if (PL_main_root) change(PL_main_root, type, before, now);
    return before;
}
