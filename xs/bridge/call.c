/* call.c - the one guarded way from C into Perl: no exception comes back through it, and the caller's $@
 * stays as it was. In a process that the called code has forked, a return from that code dies (fork.c). */
#include "bridge/bridge.h"

/* Whether a value, such as $@, is an exception. An object is one even if it is overloaded to be false. */
bool px_thrown(pTHX_ SV *exception) {
    return SvROK(exception) || SvTRUE_nomg(exception);
}

/* Whether $@ is a plain empty string, as a successful call leaves it: then it need not be saved. */
bool px_is_clear(const SV *error) {
    return SvPOK(error) && SvCUR(error) == 0 && !SvROK(error) && !SvMAGICAL(error);
}

/* Calls `callee` (a code reference), or its method of that name when `method` is given (then `callee` is the
 * invocant). The call has a stack of its own, so that a `last` or `next` without a loop dies, instead of
 * leaving a loop of our callers. Returns a new reference to its value in scalar context; NULL when it died,
 * and then *error, if asked for, is a mortal copy of the exception. */
SV *px_call(pTHX_ SV *callee, const char *method, SV *first, SV *second, SV **error) {
    dSP;
    SV *value = NULL;
    SV *exception = NULL;
    const uint32_t forks = peregrine_forks();
    const bool keeps_error = !px_is_clear(ERRSV);
    ENTER;
    SAVETMPS;
    if (keeps_error) save_scalar(PL_errgv);
    PUSHSTACKi(PERLSI_UNKNOWN);
    PUSHMARK(SP);
    EXTEND(SP, 3);
    if (method) PUSHs(callee);
    if (first) PUSHs(first);
    if (second) PUSHs(second);
    PUTBACK;
    const int count = method ? call_method(method, G_SCALAR | G_EVAL) : call_sv(callee, G_SCALAR | G_EVAL);
    SPAGAIN;
    if (count > 0) value = POPs;
    if (px_thrown(aTHX_ ERRSV)) {
        value = NULL;
        exception = newSVsv(ERRSV);
        if (!keeps_error) CLEAR_ERRSV();
    } else {
        value = value ? newSVsv(value) : newSV(0);
    }
    PUTBACK;
    POPSTACK;
    FREETMPS;
    LEAVE;
    if (forks != peregrine_forks()) px_came_back(aTHX_ exception);
    if (exception) {
        sv_2mortal(exception);
        if (error) *error = exception;
    }
    return value;
}
