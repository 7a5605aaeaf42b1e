/* fork.c - processes that an application forks.
 *
 * A child has copies of everything here, and none of it is its own: the engine has closed its descriptors
 * there (peregrine.h), and each call into the engine answers GONE. The child may use Perl as it likes and
 * end. What it calls of ours dies, and when it comes back from Perl code that its parent has called, it
 * dies, too: past that point it would answer its parent's requests. */
#include "bridge/bridge.h"

/* Whether the worker belongs to a process that this one was forked from. */
bool px_is_foreign(const px_worker *worker) {
    return worker->forks != peregrine_forks();
}

/* Dies for a call that only the worker's process may make; `what` is not this one's. */
void px_foreign(pTHX_ const px_worker *worker, const char *what) {
    croak("PAGI: %s belongs to process %d, from which this one (%d) was forked", what, (int)worker->pid,
          (int)PerlProc_getpid());
}

/* Dies when Perl code that was called in another process returns in this one; `failure`: what it died of,
 * or NULL. */
void px_came_back(pTHX_ SV *failure) {
    const int pid = (int)PerlProc_getpid();
    if (failure)
        croak("process %d, which the application has forked, died: %" SVf, pid, SVfARG(failure));
    croak("process %d, which the application has forked, returned from it; "
          "a child has to end by exit or exec\n", pid);
}

/* Ends a process that was forked for good: its END blocks run, and what is buffered is written. The Perl code
 * that it was forked in does not go on, for it is its parent's; nor is the heap torn down, which would touch,
 * and so copy, each page that it shares. */
void px_leave(pTHX_ int status) {
    int jump;
    dJMPENV;
    STATUS_EXIT_SET(status);
    /* An END block that dies or calls exit comes back here, and the next one runs. */
    JMPENV_PUSH(jump);
    PERL_UNUSED_VAR(jump);
    PL_phase = PERL_PHASE_END;
    if (PL_endav) call_list(PL_scopestack_ix, PL_endav);
    JMPENV_POP;
    PERL_FLUSHALL_FOR_CHILD;
    _exit(STATUS_EXIT);
}
