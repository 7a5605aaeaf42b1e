/* exits.c - remembers where `exit` was called.
 *
 * `exit` unwinds all functions before END blocks and destructors run, so these cannot find its caller. */
#include "bridge/bridge.h"

#define PX_EXIT_PLACE 512

/* Perl's own function for `exit`. */
static Perl_ppaddr_t process_exit;

/* The place of this interpreter's call of `exit`; empty while it has not called it. */
static __thread char exit_place[PX_EXIT_PLACE];

static OP *exit_op(pTHX) {
    const char *file = CopFILE(PL_curcop);
    (void)my_snprintf(exit_place, sizeof(exit_place), "%.480s line %lu", file ? file : "?",
                      (unsigned long)CopLINE(PL_curcop));
    return process_exit(aTHX);
}

/* The change of the op `exit`, by which each call notes its place. */
px_op_change px_exits_change(void) {
    return (px_op_change){OP_EXIT, exit_op, &process_exit};
}

/* The place of the call of `exit`, such as `app.pl line 7`; NULL if Perl code has not called it. */
const char *px_exit_place(void) {
    return exit_place[0] ? exit_place : NULL;
}
