/* clone.c - corrects an interpreter that was cloned for a new thread.
 *
 * An object whose class has a CLONE_SKIP becomes an undefined value in the clone. Perl (5.36) leaves pointers
 * to it that do not count as references: weak references, and the list that each package has of its globs.
 * These pointers would lead to a freed value; Perl panics when they go (`magic_killbackrefs`). */
#include "bridge/bridge.h"

#ifndef HvHasAUX
#define HvHasAUX(hv) SvOOK(hv)
#endif

/* Whether a value is all that is left of an object that was not cloned. Other targets of weak references have
 * a body, which lists those references. */
static bool is_skipped(const SV *sv) {
    return SvTYPE(sv) == SVt_NULL;
}

static void forget_target(SV *reference) {
    if (!is_skipped(SvRV(reference))) return;
    SvRV_set(reference, NULL);
    SvROK_off(reference);
    SvWEAKREF_off(reference);
}

/* Removes such objects from the list of values that point to a package: a single value, or a list. */
static void forget_members(HV *hv) {
    AV **list = &HvAUX(hv)->xhv_backreferences;
    if (!*list) return;
    if (SvTYPE((SV *)*list) != SVt_PVAV) {
        if (is_skipped((SV *)*list)) *list = NULL;
        return;
    }
    for (SSize_t i = AvFILLp(*list); i >= 0; i--) {
        if (AvARRAY(*list)[i] && is_skipped(AvARRAY(*list)[i]))
            AvARRAY(*list)[i] = AvARRAY(*list)[AvFILLp(*list)--];
    }
}

/* Forgets objects that were not cloned. To be called before anything else uses them: in CLONE. */
void px_clone_forget_skipped(pTHX) {
    for (SV *arena = PL_sv_arenaroot; arena; arena = (SV *)SvANY(arena)) {
        const SV *end = &arena[SvREFCNT(arena)];
        for (SV *sv = arena + 1; sv < end; sv++) {
            if (SvIS_FREED(sv)) continue;
            if (SvROK(sv) && SvWEAKREF(sv)) forget_target(sv);
            else if (SvTYPE(sv) == SVt_PVHV && HvHasAUX((HV *)sv)) forget_members((HV *)sv);
        }
    }
}
