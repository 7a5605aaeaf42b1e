/* fork.c - processes that an application forks.
 *
 * A child has copies of all exchanges and workers, which stay its parent's: the engine has closed its
 * descriptors there (peregrine.h), and each call into the engine answers GONE. The child may use Perl as it
 * likes and end. Functions of ours that it calls die. A return from Perl code that its parent has called
 * dies, too: after that the child would answer its parent's requests. */
#include "bridge/bridge.h"

/* Whether the worker belongs to a process that this one was forked from. */
bool px_is_foreign(const px_worker *worker) {
    return worker->forks != peregrine_forks();
}

/* Dies because only the worker's process may make a call; `what`: the noun for that which belongs to it. */
void px_foreign(pTHX_ const px_worker *worker, const char *what) {
    croak("PAGI: %s belongs to process %d, from which this one (%d) was forked", what, (int)worker->pid,
          (int)PerlProc_getpid());
}

/* Dies when Perl code that was called in another process returns in this one; `failure`: the exception in
 * which it ended, or NULL. */
void px_came_back(pTHX_ SV *failure) {
    const int pid = (int)PerlProc_getpid();
    if (failure)
        croak("process %d, which the application has forked, died: %" SVf, pid, SVfARG(failure));
    croak("process %d, which the application has forked, returned from it; "
          "a child has to end by exit or exec\n", pid);
}

/* Ends a forked process at once: its END blocks run, and buffered output is written. The Perl code around the
 * fork does not go on, because it is the parent's. The heap is not torn down: that would write to, and so
 * copy, each page that the child shares. */
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
