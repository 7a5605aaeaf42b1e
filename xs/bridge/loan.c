/* loan.c - large strings that are sent from Perl's own memory.
 *
 * Bytes that a client does not take at once have to wait somewhere. The engine copies small pieces. A large
 * string would be in memory twice, for as long as the client likes, so the engine borrows it. The bridge
 * holds a scalar of its own that shares the string with the application's (copy on write), or has a copy if
 * Perl cannot share it: whatever the application does with its scalar, the bytes stay as they are until the
 * loan comes back. */
#include "bridge/bridge.h"

/* The fewest bytes that are lent: a copy of fewer costs no more than a loan. CPU time of a whole response,
 * lent divided by copied: 1.0 at 16 KiB, 0.96 at 32, 0.85 at 64, 0.65 at 256, 0.55 at 1 MiB. */
#define PX_LEND_MIN (16 * 1024)
/* Bytes behind a string: its NUL, and Perl's count of the scalars that share it. */
#define PX_STRING_ROOM 10

/* Flags for sv_setsv_flags() that make a copy share its string. Perl's own assignments set them, those of
 * extensions do not. */
#define PX_SHARE (SV_COW_SHARED_HASH_KEYS | SV_COW_OTHER_PVS)

struct px_loan {
    peregrine_loan mark; /* the first member, because the engine gives back a pointer to it */
    SV *string;
    px_loan *next, *previous; /* neighbours in the list of loans that are out */
};

/* Shrinks the memory of a string that grew piece by piece to its length: Perl shares a string only if little
 * of its memory is unused. */
static void fit(pTHX_ SV *string) {
    if (SvTHINKFIRST(string) || SvOOK(string) || SvLEN(string) <= SvCUR(string) + PX_STRING_ROOM) return;
    SvPV_renew(string, SvCUR(string) + PX_STRING_ROOM);
}

/* A scalar of ours that shares the string. Loans in a row are often of one string, which Perl lets 256
 * scalars share: such loans have one scalar. */
static SV *hold(pTHX_ const px_worker *worker, SV *string) {
    const px_loan *last = worker->loans;
    if (last && SvPVX_const(last->string) == SvPVX_const(string)) return SvREFCNT_inc_simple_NN(last->string);
    fit(aTHX_ string);
    SV *held = newSV(0);
    sv_setsv_flags(held, string, SV_NOSTEAL | PX_SHARE);
    return held;
}

static px_loan *lend(pTHX_ px_worker *worker, SV *string) {
    px_loan *loan;
    Newxz(loan, 1, px_loan);
    loan->string = hold(aTHX_ worker, string);
    loan->next = worker->loans;
    if (worker->loans) worker->loans->previous = loan;
    worker->loans = loan;
    return loan;
}

static void end(pTHX_ px_worker *worker, px_loan *loan) {
    if (loan->previous) loan->previous->next = loan->next;
    else worker->loans = loan->next;
    if (loan->next) loan->next->previous = loan->previous;
    SvREFCNT_dec_NN(loan->string);
    Safefree(loan);
}

/* Whether the newest loan that is out shares its string with this scalar. */
bool px_loan_is_of(const px_worker *worker, const SV *value) {
    return worker->loans && SvPVX_const(worker->loans->string) == SvPVX_const(value);
}

/* Ends the loans of strings that the engine needs no more. */
void px_loan_collect(pTHX_ px_worker *worker) {
    peregrine_loan *mark = peregrine_returned(worker->engine);
    while (mark) {
        px_loan *loan = (px_loan *)mark;
        mark = mark->next;
        end(aTHX_ worker, loan);
    }
}

/* Ends all loans, because the engine that had borrowed the strings is freed. */
void px_loan_end_all(pTHX_ px_worker *worker) {
    while (worker->loans) end(aTHX_ worker, worker->loans);
}

/* Whether the bytes are the plain string of `value` itself, and many enough for a loan. Bytes that were
 * converted lie elsewhere, and a regular expression or a glob has no string of its own. */
static bool is_worth_lending(const SV *value, const char *bytes, size_t len) {
    if (len < PX_LEND_MIN || !value || !SvPOK(value) || SvTYPE(value) > SVt_PVMG) return false;
    return SvPVX_const(value) == bytes && SvCUR(value) == len;
}

static int outcome(pTHX_ px_worker *worker, px_loan *loan, int code) {
    if (code < 0) end(aTHX_ worker, loan);
    else px_loan_collect(aTHX_ worker);
    return code;
}

typedef int lending(peregrine_worker *, peregrine_ticket, const char *, size_t, uint32_t, peregrine_loan *);

/* Sends bytes that `value` holds or that were made from it; lends its string if that is worth it. */
static inline int send_by(pTHX_ lending *way, px_exchange *exchange, SV *value, const char *bytes, size_t len,
                          uint32_t flags) {
    px_worker *worker = exchange->worker;
    if (!is_worth_lending(value, bytes, len))
        return way(worker->engine, exchange->ticket, bytes, len, flags, NULL);
    px_loan *loan = lend(aTHX_ worker, value);
    const char *lent = SvPVX_const(loan->string);
    return outcome(aTHX_ worker, loan, way(worker->engine, exchange->ticket, lent, len, flags, &loan->mark));
}

/* Sends a piece of a body. */
int px_loan_write(pTHX_ px_exchange *exchange, SV *value, const char *bytes, size_t len, uint32_t flags) {
    return send_by(aTHX_ peregrine_lend, exchange, value, bytes, len, flags);
}

int px_loan_message(pTHX_ px_exchange *exchange, SV *value, const char *bytes, size_t len, uint32_t flags) {
    return send_by(aTHX_ peregrine_lend_message, exchange, value, bytes, len, flags);
}
