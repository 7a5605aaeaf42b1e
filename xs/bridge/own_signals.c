/* own_signals.c - replaces, in a clone, functions of Perl's modules that change signals of the process.
 *
 * Perl itself lets no other interpreter than the first one change what the process does at a signal; these
 * functions do not check that. In a clone, Time::HiRes' alarms are those of alarm.c, and POSIX::sigaction
 * sets %SIG. */
#include "bridge/bridge.h"

#ifdef USE_ITHREADS
static XSUBADDR_t process_alarm, process_ualarm, process_sigaction;

static NV argument(pTHX_ SV **first, I32 items, I32 number) {
    return number < items ? SvNV(first[number]) : 0;
}

XS(px_hires_alarm);
XS(px_hires_alarm) {
    if (!px_alarm_is_own()) {
        process_alarm(aTHX_ cv);
        return;
    }
    dXSARGS;
    if (items < 1) croak_xs_usage(cv, "seconds, interval=0");
    const NV left = px_alarm_set(argument(aTHX_ & ST(0), items, 0), argument(aTHX_ & ST(0), items, 1));
    ST(0) = left < 0 ? &PL_sv_undef : sv_2mortal(newSVnv(left));
    XSRETURN(1);
}

XS(px_hires_ualarm);
XS(px_hires_ualarm) {
    if (!px_alarm_is_own()) {
        process_ualarm(aTHX_ cv);
        return;
    }
    dXSARGS;
    if (items < 1) croak_xs_usage(cv, "useconds, uinterval=0");
    const NV left =
        px_alarm_set(argument(aTHX_ & ST(0), items, 0) / 1e6, argument(aTHX_ & ST(0), items, 1) / 1e6);
    ST(0) = left < 0 ? &PL_sv_undef : sv_2mortal(newSViv((IV)(left * 1e6)));
    XSRETURN(1);
}

static HV *hash_of(SV *object) {
    return SvROK(object) && SvTYPE(SvRV(object)) == SVt_PVHV ? (HV *)SvRV(object) : NULL;
}

XS(px_posix_sigaction);
XS(px_posix_sigaction) {
    if (!px_alarm_is_own()) {
        process_sigaction(aTHX_ cv);
        return;
    }
    dXSARGS;
    const IV number = items > 0 ? SvIV(ST(0)) : 0;
    if (number < 1 || number >= SIG_SIZE) croak("POSIX::sigaction: no such signal");
    HV *action = items > 1 ? hash_of(ST(1)) : NULL;
    HV *before = items > 2 ? hash_of(ST(2)) : NULL;
    const char *name = PL_sig_name[number];
    SV **said = hv_fetch(get_hv("SIG", GV_ADD), name, (I32)strlen(name), 1);
    if (before) {
        SvGETMAGIC(*said);
        SV *value = SvOK(*said) ? newSVsv_nomg(*said) : newSVpvs("DEFAULT");
        (void)hv_stores(before, "HANDLER", value);
    }
    SV **handler = action ? hv_fetchs(action, "HANDLER", 0) : NULL;
    if (handler) sv_setsv_mg(*said, *handler);
    ST(0) = sv_2mortal(newSVpvs("0 but true"));
    XSRETURN(1);
}

static void replace(pTHX_ const char *name, XSUBADDR_t now, XSUBADDR_t *before) {
    CV *cv = get_cv(name, 0);
    if (!cv || !CvISXSUB(cv) || CvXSUB(cv) == now) return;
    *before = CvXSUB(cv);
    CvXSUB(cv) = now;
}

/* Replaces the functions. To be called in the interpreter that will be cloned. */
void px_own_signals_prepare(pTHX) {
    replace(aTHX_ "Time::HiRes::alarm", px_hires_alarm, &process_alarm);
    replace(aTHX_ "Time::HiRes::ualarm", px_hires_ualarm, &process_ualarm);
    replace(aTHX_ "POSIX::sigaction", px_posix_sigaction, &process_sigaction);
}
#else
void px_own_signals_prepare(pTHX) {
    PERL_UNUSED_CONTEXT;
}
#endif
