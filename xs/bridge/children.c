/* children.c - signals and environment of processes that an application forks, and of programs that it
 * starts.
 *
 * The event loop blocks the signals that it watches, and a clone has all of them blocked. A child, and each
 * program after it, would inherit that, and could be ended by SIGKILL only. So in a child no signal is
 * blocked, and handlers of the server and its loop are removed: no loop runs there that would look for
 * signals.
 *
 * In a clone %SIG and %ENV are Perl's own: only the main interpreter of Perl changes those of the process. A
 * child that a clone forks has no other interpreter, so its %SIG and %ENV come into force. */
#include "bridge/bridge.h"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

/* `is_settling`: processes forked by this thread are the application's, so their signals are settled.
 * `is_clone`: the thread's interpreter is a clone. */
static __thread bool is_settling;
static __thread bool is_clone;

/* Set in a child when its signals are settled: Perl's `fork` and `system` block them again, see fork_op(). */
static __thread bool is_blocked;

/* The arguments of a `system` that is about to fork. */
static __thread struct {
    bool is_due;
    SSize_t sp, mark;
} program;

static Perl_ppaddr_t process_fork, process_system;

/* The kinds of a signal's value in %SIG. */
typedef enum said { SAYS_NOTHING, SAYS_DEFAULT, SAYS_IGNORE, SAYS_HANDLER } said;

static said says(const SV *value) {
    if (!value) return SAYS_NOTHING;
    if (SvROK(value) || isGV_with_GP(value)) return SAYS_HANDLER;
    if (!SvPOK(value) || SvCUR(value) == 0) return SAYS_NOTHING;
    if (strEQ(SvPVX_const(value), "IGNORE")) return SAYS_IGNORE;
    return strEQ(SvPVX_const(value), "DEFAULT") ? SAYS_DEFAULT : SAYS_HANDLER;
}

/* Whether the interpreter has a handler for a signal. Allocates nothing. */
bool px_has_handler(pTHX_ int number) {
    return PL_psig_ptr && says(PL_psig_ptr[number]) == SAYS_HANDLER;
}

/* Whether a function was compiled in a package of the server's, or of the event loop's. Applications have
 * packages below Peregrine::App. */
static bool is_own_handler(const SV *handler) {
    static const char *const prefixes[] = {"IO::Async::", "PAGI::Server::", "Peregrine::",
                                           "Plack::Handler::"};
    if (!handler || !SvROK(handler) || SvTYPE(SvRV(handler)) != SVt_PVCV) return false;
    const HV *stash = CvSTASH((CV *)SvRV(handler));
    const char *name = stash ? HvNAME_get(stash) : NULL;
    if (!name || strnEQ(name, "Peregrine::App::", 16)) return false;
    for (size_t i = 0; i < C_ARRAY_LENGTH(prefixes); i++) {
        if (strnEQ(name, prefixes[i], strlen(prefixes[i]))) return true;
    }
    return false;
}

/* Whether the process handles a signal by one of Perl's C handlers: the one for %SIG, or the one of
 * POSIX::sigaction that calls Perl at once. */
static bool has_perls_handler(pTHX_ int number) {
    struct sigaction now;
    if (sigaction(number, NULL, &now) != 0) return false;
    const Sighandler_t handler = (Sighandler_t)now.sa_handler;
#if PERL_VERSION >= 32
    if (handler == (Sighandler_t)PL_sighandler1p || handler == (Sighandler_t)PL_sighandler3p) return true;
    if (handler == (Sighandler_t)PL_csighandler1p || handler == (Sighandler_t)PL_csighandler3p) return true;
#endif
    return handler == PL_sighandlerp || handler == PL_csighandlerp;
}

/* Removes a handler of the server's, and in a clone puts %SIG into force. The server's handler for SIGPIPE,
 * which does nothing, stays: so a write to a closed pipe fails in a child, too, and does not end it. */
static void settle_signal(pTHX_ int number) {
    SV *handler = PL_psig_ptr[number];
    if (is_own_handler(handler)) {
        if (number == SIGPIPE) return;
        PL_psig_ptr[number] = NULL;
        handler = NULL;
        if (has_perls_handler(aTHX_ number)) (void)rsignal(number, (Sighandler_t)SIG_DFL);
    }
    if (!is_clone) return;
    switch (says(handler)) {
        case SAYS_HANDLER: (void)rsignal(number, PL_csighandlerp); break;
        case SAYS_IGNORE: (void)rsignal(number, (Sighandler_t)SIG_IGN); break;
        case SAYS_DEFAULT: (void)rsignal(number, (Sighandler_t)SIG_DFL); break;
        case SAYS_NOTHING:
            if (has_perls_handler(aTHX_ number)) (void)rsignal(number, (Sighandler_t)SIG_DFL);
            break;
    }
}

static void unblock_signals(void) {
    sigset_t none;
    is_blocked = false;
    (void)sigemptyset(&none);
    (void)pthread_sigmask(SIG_SETMASK, &none, NULL);
}

static void settle_signals(pTHX) {
    for (int number = 1; PL_psig_ptr && number < SIGRTMIN && number < SIG_SIZE; number++)
        settle_signal(aTHX_ number);
    unblock_signals();
    is_blocked = true;
}

/* Whether %ENV lacks a variable of the process. */
static bool is_gone(pTHX_ HV *variables, const char *variable) {
    const char *end = strchr(variable, '=');
    return end && !hv_exists(variables, variable, (I32)(end - variable));
}

/* Makes the environment of the process equal to %ENV. Uses my_setenv, because Perl manages the memory of
 * these strings, which setenv() would mix with its own. */
static void settle_environment(pTHX) {
    HV *variables = GvHVn(PL_envgv);
    HE *entry;
    for (size_t i = 0; environ && environ[i];) {
        if (!is_gone(aTHX_ variables, environ[i])) {
            i++;
            continue;
        }
        SV *name = newSVpvn(environ[i], (STRLEN)(strchr(environ[i], '=') - environ[i]));
        my_setenv(SvPVX_const(name), NULL);
        SvREFCNT_dec_NN(name);
    }
    (void)hv_iterinit(variables);
    while ((entry = hv_iternext(variables))) {
        const char *now = getenv(HePV(entry, PL_na));
        const SV *value = HeVAL(entry);
        if (SvPOK(value) && (!now || strNE(now, SvPVX_const(value))))
            my_setenv(HePV(entry, PL_na), SvPVX_const(value));
    }
}

/* Starts the program of `system` in the child, before Perl's `system` blocks the parent's signals there
 * again. If exec fails, `system` tries once more, and tells its parent why. */
static void begin_program(pTHX) {
    COP quiet = *PL_curcop;
    COP *const before = PL_curcop;
    SV **const first = PL_stack_base + program.mark + 1;
    SV *const argument = *first;
    quiet.cop_warnings = pWARN_NONE;
    PL_curcop = &quiet;
    PL_stack_sp = PL_stack_base + program.sp;
    PUSHMARK(PL_stack_base + program.mark);
    (void)PL_ppaddr[OP_EXEC](aTHX);
    *first = argument;
    PL_curcop = before;
}

static void in_child(void) {
#ifdef MULTIPLICITY
    tTHX my_perl = (tTHX)PERL_GET_THX;
    if (!my_perl) return;
    PERL_SET_INTERP(my_perl);
#endif
    if (!is_settling) return;
    is_settling = false;
    settle_signals(aTHX);
    if (is_clone) settle_environment(aTHX);
    if (program.is_due) begin_program(aTHX);
}

static void in_parent(void) {
    program.is_due = false;
}

/* Perl's `fork` blocks the parent's signals in the child again, so they are unblocked after it. */
static OP *fork_op(pTHX) {
    OP *next = process_fork(aTHX);
    if (is_blocked) unblock_signals();
    return next;
}

static OP *system_op(pTHX) {
    program.is_due = is_settling && !TAINTING_get;
    program.sp = PL_stack_sp - PL_stack_base;
    program.mark = *PL_markstack_ptr;
    OP *next = process_system(aTHX);
    program.is_due = false;
    return next;
}

/* Replaces the ops `fork` and `system`, and `exit` by the same walk. To be called when the library is loaded:
 * px_ops_replace() walks all code that is compiled already, which is little then; in a worker it would be the
 * whole application. */
void px_children_watch(pTHX) {
    if (process_fork) return;
    const px_op_change changes[] = {
        {OP_FORK, fork_op, &process_fork},
        {OP_SYSTEM, system_op, &process_system},
        px_exits_change(),
    };
    px_ops_replace(aTHX_ changes, C_ARRAY_LENGTH(changes));
}

/* Sets whether processes that this thread forks are the application's, whose signals are settled. Returns the
 * setting before. */
bool px_children_settle(bool on) {
    const bool before = is_settling;
    static bool is_prepared;
    if (on && !is_prepared) is_prepared = pthread_atfork(NULL, in_parent, in_child) == 0;
    is_settling = on && is_prepared;
    return before;
}

bool px_children_is_clone(void) { return is_clone; }

/* Notes that the interpreter of this thread is a clone, and never the process's own. */
void px_children_of_clone(void) {
    is_settling = true;
    is_clone = true;
}
