/* kept.c - scalars of an environment that the next request's environment uses again. Most values are equal
 * for all requests, and to make and free a scalar costs three times as much as to count its references. A
 * scalar to which other code refers, or which was changed, is given up, and a new one takes its place.
 *
 * An environment may be used again as a whole (reuse.c). Then the scalars are in it already. */
#include "psgi/psgi.h"

#define NUMBER_FLAGS (SVt_IV | SVf_IOK | SVp_IOK)
#define REFERENCE_FLAGS (SVt_IV | SVf_ROK)
#define TEXT_FLAGS (SVt_PV | SVf_POK | SVp_POK)
#define SHARED_FLAGS (TEXT_FLAGS | SVf_IsCOW)

/* The key of a kept value in the environment. */
SV *psgi_kept_key(const psgi_exchange *exchange, enum psgi_kept which) {
#define PSGI_KEPT_KEY(name) PSGI_KEY_##name,
    static const uint8_t keys[] = {PSGI_KEPT(PSGI_KEPT_KEY)};
#undef PSGI_KEPT_KEY
    return exchange->app->cx->keys[keys[which]];
}

/* Whether there is a scalar to which only the exchange, and an environment that is used again, refer. */
static inline bool is_ours(const psgi_exchange *exchange, const SV *sv) {
    return sv && SvREFCNT(sv) == (exchange->again ? 2 : 1);
}

static inline bool is_free(const psgi_exchange *exchange, const SV *sv, U32 flags) {
    return is_ours(exchange, sv) && SvFLAGS(sv) == flags;
}

/* Shows the kept scalar in the environment. */
static inline void put(pTHX_ psgi_exchange *exchange, HV *env, enum psgi_kept which) {
    exchange->shown |= (U32)1 << which;
    if (!exchange->again)
        px_store(aTHX_ env, psgi_kept_key(exchange, which), SvREFCNT_inc_simple_NN(exchange->kept[which]));
}

/* Replaces the kept scalar by a new one (taken over), and shows that in the environment. */
static void renew(pTHX_ psgi_exchange *exchange, HV *env, enum psgi_kept which, SV *fresh) {
    SV *old = exchange->kept[which];
    exchange->kept[which] = fresh;
    exchange->marks = 0;
    exchange->shown |= (U32)1 << which;
    px_store(aTHX_ env, psgi_kept_key(exchange, which), SvREFCNT_inc_simple_NN(fresh));
    SvREFCNT_dec(old);
}

void psgi_put_number(pTHX_ psgi_exchange *exchange, HV *env, enum psgi_kept which, IV number) {
    SV *sv = exchange->kept[which];
    if (!is_free(exchange, sv, NUMBER_FLAGS)) {
        renew(aTHX_ exchange, env, which, newSViv(number));
        return;
    }
    SvIV_set(sv, number);
    put(aTHX_ exchange, env, which);
}

/* Puts a flag, Perl's true or false, into the environment. */
void psgi_put_flag(pTHX_ psgi_exchange *exchange, HV *env, enum psgi_kept which, bool value) {
    const SV *sv = exchange->kept[which];
    const bool is_same = is_ours(exchange, sv) && SvPOK(sv) && SvIOK(sv) && !SvREADONLY(sv) &&
                         !SvMAGICAL(sv) && SvIVX(sv) == (IV)value && SvCUR(sv) == (STRLEN)value;
    if (is_same) put(aTHX_ exchange, env, which);
    else renew(aTHX_ exchange, env, which, newSVsv(boolSV(value)));
}

/* Puts a reference into the environment. Its target has to live as long as the exchange. */
void psgi_put_reference(pTHX_ psgi_exchange *exchange, HV *env, enum psgi_kept which, SV *target) {
    if (psgi_kept_refers_to(exchange, which, target)) put(aTHX_ exchange, env, which);
    else renew(aTHX_ exchange, env, which, newRV_inc(target));
}

/* Puts a string into the environment of which there is a shared scalar. */
void psgi_put_shared(pTHX_ psgi_exchange *exchange, HV *env, enum psgi_kept which, SV *shared) {
    const SV *sv = exchange->kept[which];
    if (is_free(exchange, sv, SHARED_FLAGS) && SvPVX_const(sv) == SvPVX_const(shared))
        put(aTHX_ exchange, env, which);
    else renew(aTHX_ exchange, env, which, px_copy(aTHX_ shared));
}

/* Puts a string, kept or made anew, into the environment. */
void psgi_put_text(pTHX_ psgi_exchange *exchange, HV *env, enum psgi_kept which, const char *text,
                   STRLEN len) {
    SV *sv = exchange->kept[which];
    if (!is_free(exchange, sv, TEXT_FLAGS) && !is_free(exchange, sv, SHARED_FLAGS)) {
        renew(aTHX_ exchange, env, which, newSVpvn(text, len));
        return;
    }
    if (SvCUR(sv) != len || memNE(SvPVX_const(sv), text, len)) sv_setpvn(sv, text, len);
    put(aTHX_ exchange, env, which);
}

/* Whether a kept reference still refers to its target. */
bool psgi_kept_refers_to(const psgi_exchange *exchange, enum psgi_kept which, const void *target) {
    const SV *sv = exchange->kept[which];
    return is_free(exchange, sv, REFERENCE_FLAGS) && (const void *)SvRV(sv) == target;
}
