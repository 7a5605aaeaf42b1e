/* turn.c - fairness: how much one exchange may send before the event loop and all others have their turn.
 *
 * A fast client takes all output at once, so an application that waits for nothing but its sends would never
 * return to the event loop. Each exchange has a budget of events per dispatch: when it is spent, events are
 * still taken, but their Futures become ready in a later dispatch, which the loop makes when all others have
 * had their turn. */
#include <signal.h>

#include "bridge/bridge.h"

/* Exchanges that go on in a turn; the others keep their places for the next turn. */
#define EXCHANGES_MAX 16
/* Signals are looked for once in this many turns. */
#define SIGNAL_TURNS 64

/* Has the exchange's face told when its next turn comes. The exchange must be held, and is so until then. */
void px_turn_wait(pTHX_ px_exchange *exchange) {
    px_worker *worker = exchange->worker;
    if (!exchange->waits_for_turn) {
        exchange->waits_for_turn = true;
        exchange->next_in_turn = NULL;
        if (worker->last_in_turn) worker->last_in_turn->next_in_turn = exchange;
        else worker->first_in_turn = exchange;
        worker->last_in_turn = exchange;
        px_exchange_hold(exchange);
    }
    px_exchange_invariants(exchange);
    px_worker_queued(aTHX_ worker);
}

/* A new reference to a Future that becomes ready when the exchange's next turn comes. */
SV *px_turn_next(pTHX_ px_exchange *exchange) {
    SV *future = px_future_pending(aTHX_ exchange->worker);
    if (!exchange->deferred) exchange->deferred = newAV();
    av_push(exchange->deferred, newSVsv(future));
    px_turn_wait(aTHX_ exchange);
    return future;
}

/* Resumes the exchange that has waited longest. */
static void resume_first(pTHX_ px_worker *worker) {
    px_exchange *exchange = worker->first_in_turn;
    PX_ASSERT(exchange->waits_for_turn);
    worker->first_in_turn = exchange->next_in_turn;
    if (!worker->first_in_turn) worker->last_in_turn = NULL;
    exchange->waits_for_turn = false;
    ENTER;
    SAVETMPS;
    px_future_resolve_all(aTHX_ exchange, &exchange->deferred);
    if (exchange->mount->face->turn) exchange->mount->face->turn(aTHX_ exchange);
    px_exchange_unhold(aTHX_ exchange);
    FREETMPS;
    LEAVE;
}

/* Tells the server of signals that are pending because they are blocked. Event loops block the signals that
 * they watch except while they wait, and a loop that is never idle does not wait. */
static void look_for_signals(pTHX_ px_worker *worker) {
    sigset_t pending;
    if (sigpending(&pending) != 0 || !worker->server) return;
    for (int number = 1; number < NSIG; number++)
        if (sigismember(&pending, number) == 1) {
            px_worker_tell(aTHX_ worker, "_signals_pending", NULL, NULL);
            px_worker_wake(worker); /* nothing else ends the wait that comes now */
            return;
        }
}

/* Begins a turn: exchanges that wait for it go on, in the order in which they came; all of them if the engine
 * is closed. Perl code that runs meanwhile may dispatch again, and may add to the list: exchanges that it
 * adds have their turn later. */
void px_turn_begin(pTHX_ px_worker *worker) {
    const px_exchange *last = worker->last_in_turn;
    worker->turn++;
    if (worker->turn % SIGNAL_TURNS == 0) look_for_signals(aTHX_ worker);
    for (int count = 0; last && worker->first_in_turn; count++) {
        if (count == EXCHANGES_MAX && worker->engine) return;
        if (worker->first_in_turn == last) last = NULL;
        resume_first(aTHX_ worker);
    }
}

/* Makes the loop dispatch again if exchanges wait for the next turn. */
void px_turn_end(px_worker *worker) {
    if (worker->first_in_turn) px_worker_wake(worker);
}
