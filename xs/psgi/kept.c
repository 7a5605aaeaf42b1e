/* kept.c - scalars of an environment that serve the next one again, while its exchange does: most values are
 * the same for all requests, and to make and free a scalar costs three times what it costs to count its
 * references. One that somebody keeps, or has changed, is theirs, and another one takes its place. */
#include "psgi/psgi.h"

#define NUMBER_FLAGS (SVt_IV | SVf_IOK | SVp_IOK)
#define REFERENCE_FLAGS (SVt_IV | SVf_ROK)
#define TEXT_FLAGS (SVt_PV | SVf_POK | SVp_POK)
#define SHARED_FLAGS (TEXT_FLAGS | SVf_IsCOW)

/* Whether a scalar is there and nobody else has it. */
static inline bool is_free(const SV *sv, U32 flags) {
    return sv && SvREFCNT(sv) == 1 && SvFLAGS(sv) == flags;
}

static SV *renew(pTHX_ SV **place, SV *fresh) {
    SV *old = *place;
    *place = fresh;
    SvREFCNT_dec(old);
    return SvREFCNT_inc_simple_NN(fresh);
}

/* A number, which may be another one each time. */
SV *psgi_kept_number(pTHX_ psgi_exchange *exchange, enum psgi_kept which, IV number) {
    SV *sv = exchange->kept[which];
    if (!is_free(sv, NUMBER_FLAGS)) return renew(aTHX_ &exchange->kept[which], newSViv(number));
    SvIV_set(sv, number);
    return SvREFCNT_inc_simple_NN(sv);
}

/* True or false. */
SV *psgi_kept_flag(pTHX_ psgi_exchange *exchange, enum psgi_kept which, bool value) {
    SV *sv = exchange->kept[which];
    const bool is_same = sv && SvREFCNT(sv) == 1 && SvPOK(sv) && SvIOK(sv) && !SvREADONLY(sv) &&
                         !SvMAGICAL(sv) && SvIVX(sv) == (IV)value && SvCUR(sv) == (STRLEN)value;
    return is_same ? SvREFCNT_inc_simple_NN(sv)
                   : renew(aTHX_ &exchange->kept[which], newSVsv(boolSV(value)));
}

/* A reference to what lives longer than the exchange, or goes with it. */
SV *psgi_kept_reference(pTHX_ psgi_exchange *exchange, enum psgi_kept which, SV *target) {
    SV *sv = exchange->kept[which];
    if (is_free(sv, REFERENCE_FLAGS) && SvRV(sv) == target) return SvREFCNT_inc_simple_NN(sv);
    return renew(aTHX_ &exchange->kept[which], newRV_inc(target));
}

/* A string of which there is a shared scalar. */
SV *psgi_kept_shared(pTHX_ psgi_exchange *exchange, enum psgi_kept which, SV *shared) {
    SV *sv = exchange->kept[which];
    if (is_free(sv, SHARED_FLAGS) && SvPVX_const(sv) == SvPVX_const(shared))
        return SvREFCNT_inc_simple_NN(sv);
    return renew(aTHX_ &exchange->kept[which], px_copy(aTHX_ shared));
}

/* Any string. One that Perl shares with a copy of it does not change either. */
SV *psgi_kept_text(pTHX_ psgi_exchange *exchange, enum psgi_kept which, const char *text, STRLEN len) {
    SV *sv = exchange->kept[which];
    if ((is_free(sv, TEXT_FLAGS) || is_free(sv, SHARED_FLAGS)) && SvCUR(sv) == len &&
        memEQ(SvPVX_const(sv), text, len))
        return SvREFCNT_inc_simple_NN(sv);
    return renew(aTHX_ &exchange->kept[which], newSVpvn(text, len));
}

/* Whether nobody has kept or changed the references to what is the exchange's own. */
bool psgi_kept_is_whole(const psgi_exchange *exchange) {
    const struct {
        const SV *reference;
        const void *target;
    } own[] = {
        {exchange->kept[PSGI_KEPT_INFORMATIONAL], exchange->informational},
        {exchange->kept[PSGI_KEPT_DISCONNECTED], exchange->disconnected},
        {exchange->kept[PSGI_KEPT_CLEANUP_HANDLERS], exchange->cleanup},
    };
    for (size_t i = 0; i < C_ARRAY_LENGTH(own); i++)
        if (!is_free(own[i].reference, REFERENCE_FLAGS) || SvRV(own[i].reference) != own[i].target)
            return false;
    return true;
}
