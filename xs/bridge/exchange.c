/* exchange.c - the life of one request on the Perl side: its holders, when its handles serve another request,
 * when its memory is freed.
 *
 * An exchange is held by the engine's ticket, by its running application and by C frames that need it
 * (`holds`), and it is pointed at by Perl values that an application may keep for ever (`handles`). When the
 * last hold goes and only the bridge has the Perl values, the exchange goes back to the pool with them: the
 * next request costs no allocation for the arguments of its application. */
#include "bridge/bridge.h"

#define PX_POOL_MAX 1024

/* ---- Invariants -------------------------------------------------------------------------------- */

#ifdef PX_CHECKS
/* Reports an assertion that failed, and ends the process. */
void px_assertion_failed(const char *condition, const char *file, int line) {
    fprintf(stderr, "%s:%d: it does not hold that %s\n", file, line, condition);
    abort();
}
#endif

/* Asserts the invariants that hold between two calls into Perl. */
void px_exchange_invariants(const px_exchange *exchange) {
    PX_ASSERT(exchange->holds >= 0 && exchange->handles >= 0);
    PX_ASSERT(!px_exchange_is_live(exchange) || exchange->holds > 0);
    PX_ASSERT(!exchange->waits_for_turn || exchange->holds > 0);
    PX_ASSERT(!exchange->parked || px_exchange_is_live(exchange));
    PX_ASSERT(!exchange->packed || !exchange->given);
    PERL_UNUSED_VAR(exchange);
}

/* ---- Opening, holding, letting go ------------------------------------------------------------ */

static px_exchange *take(pTHX_ px_worker *worker, px_mount *mount) {
    px_exchange *exchange = mount->pool;
    if (exchange) {
        mount->pool = exchange->next;
        mount->pool_count--;
        return exchange;
    }
    char *memory;
    Newxz(memory, mount->face->exchange_size, char);
    exchange = (px_exchange *)(void *)memory;
    exchange->worker = worker;
    exchange->mount = mount;
    exchange->kept = true;
    mount->face->make(aTHX_ exchange);
    return exchange;
}

/* Opens an exchange for a ticket, which holds it once. */
px_exchange *px_exchange_open(pTHX_ px_worker *worker, px_mount *mount, peregrine_ticket ticket) {
    px_exchange *exchange = take(aTHX_ worker, mount);
    exchange->ticket = ticket;
    exchange->holds = 1;
    exchange->state = PX_TICKET_OPEN;
    exchange->named = false;
    exchange->spent = 0;
    exchange->owes_answer = false;
    exchange->owes_end = false;
    exchange->previous = NULL;
    exchange->next = worker->live;
    if (worker->live) worker->live->previous = exchange;
    worker->live = exchange;
    worker->refs++;
    px_exchange_invariants(exchange);
    return exchange;
}

static void clear_request(pTHX_ px_exchange *exchange) {
    exchange->mount->face->clear(aTHX_ exchange);
    px_exchange_forget_given(aTHX_ exchange);
    px_clear(aTHX_ (SV **)&exchange->deferred);
}

/* Gives up the bridge's references to the handles; the exchange lives on while the application has a
 * handle. */
static void detach(pTHX_ px_exchange *exchange) {
    exchange->holds++; /* so that the last handle that is dropped does not free the exchange here */
    exchange->kept = false;
    exchange->mount->face->let_go(aTHX_ exchange);
    exchange->holds--;
    if (exchange->handles == 0 && exchange->holds == 0) px_exchange_free(aTHX_ exchange);
}

static void retire(pTHX_ px_exchange *exchange) {
    px_worker *worker = exchange->worker;
    PX_ASSERT(!px_exchange_is_live(exchange) && !exchange->waits_for_turn);
    exchange->holds = 1; /* destructors below must not find the exchange idle */
    clear_request(aTHX_ exchange);
    PX_ASSERT(exchange->holds == 1 && !exchange->waits_for_turn);
    if (exchange->previous) exchange->previous->next = exchange->next;
    else worker->live = exchange->next;
    if (exchange->next) exchange->next->previous = exchange->previous;
    exchange->next = exchange->previous = NULL;
    exchange->holds = 0;
    px_mount *mount = exchange->mount;
    if (worker->engine && mount->pool_count < PX_POOL_MAX && mount->face->is_reusable(exchange)) {
        exchange->next = mount->pool;
        mount->pool = exchange;
        mount->pool_count++;
        px_worker_release(aTHX_ worker);
        return;
    }
    detach(aTHX_ exchange);
}

/* Frees an exchange that no Perl value points to any more: at once, or when the batch is done whose events
 * may still name it. */
void px_exchange_free(pTHX_ px_exchange *exchange) {
    px_worker *worker = exchange->worker;
    clear_request(aTHX_ exchange);
    if (worker->batch_left > 0) {
        exchange->next = worker->freed;
        worker->freed = exchange;
    } else {
        Safefree(exchange);
    }
    px_worker_release(aTHX_ worker);
}

/* Frees an exchange of the pool. The worker's `refs` do not count it there, so it is counted before. */
void px_exchange_discard(pTHX_ px_exchange *exchange) {
    exchange->worker->refs++;
    detach(aTHX_ exchange);
}

void px_exchange_hold(px_exchange *exchange) {
    exchange->holds++;
}

void px_exchange_unhold(pTHX_ px_exchange *exchange) {
    PX_ASSERT(exchange->holds > 0);
    if (--exchange->holds == 0) retire(aTHX_ exchange);
}

/* Keeps an exchange, which may be over already, while a function that was called on one of its handles
 * runs Perl code: it is neither freed nor does it serve another request. The result is for
 * px_exchange_unpin(). */
bool px_exchange_pin(px_exchange *exchange) {
    const bool live = exchange->holds > 0;
    if (live) exchange->holds++;
    else exchange->handles++;
    return live;
}

void px_exchange_unpin(pTHX_ px_exchange *exchange, bool live) {
    if (live) {
        px_exchange_unhold(aTHX_ exchange);
        return;
    }
    PX_ASSERT(exchange->handles > 0);
    exchange->handles--;
    if (exchange->handles == 0 && exchange->holds == 0 && !exchange->kept) px_exchange_free(aTHX_ exchange);
}

/* ---- The application's scope or environment ---------------------------------------------------- */

/* Packs the scope if only the bridge refers to it. For exchanges whose applications run long. */
void px_exchange_pack(pTHX_ px_exchange *exchange) {
    exchange->packed = exchange->given ? px_pack(aTHX_ exchange->given) : NULL;
    if (exchange->packed) px_clear(aTHX_ (SV **)&exchange->given);
}

/* Unpacks the hash that the application was called with. It stays unpacked, because code that gets it may
 * keep or change it. NULL: the application is done. */
static HV *given(pTHX_ px_exchange *exchange) {
    px_packed *packed = exchange->packed;
    if (packed) {
        exchange->given = px_unpack(aTHX_ packed);
        exchange->packed = NULL;
        px_packed_free(aTHX_ packed);
    }
    return exchange->given;
}

void px_exchange_forget_given(pTHX_ px_exchange *exchange) {
    px_packed *packed = exchange->packed;
    exchange->packed = NULL;
    if (packed) px_packed_free(aTHX_ packed);
    px_clear(aTHX_ (SV **)&exchange->given);
}

/* ---- The ticket ------------------------------------------------------------------------------ */

/* To be called after each event of an exchange and each call of its application. Tells the engine, when it
 * has changed, how many exchanges wait for their clients: by that number it chooses among interpreters. */
void px_exchange_note_parked(px_exchange *exchange) {
    px_worker *worker = exchange->worker;
    if (!worker->is_one_of_several || !worker->engine) return;
    const bool parked = px_exchange_is_live(exchange) && exchange->mount->face->is_parked(exchange);
    if (parked == exchange->parked) return;
    exchange->parked = parked;
    PX_ASSERT(parked || worker->parked > 0);
    worker->parked += parked ? 1 : -1U;
    peregrine_note_parked(worker->engine, worker->parked);
}

/* Ends the ticket of an exchange, which no event of the engine will name any more. */
void px_exchange_ticket_gone(pTHX_ px_exchange *exchange) {
    if (!px_exchange_is_live(exchange)) return;
    if (px_exchange_is_lost(exchange) && !exchange->named) {
        PX_ASSERT(exchange->worker->lost > 0);
        exchange->worker->lost--;
    }
    exchange->state = PX_TICKET_OVER;
    px_note_left(exchange);
    px_note_end(exchange);
    px_exchange_note_parked(exchange);
    px_exchange_unhold(aTHX_ exchange);
}

/* Gives the engine a pointer to the exchange, which the events about its ticket bring from now on. Most
 * requests are over before they need that. */
void px_exchange_name(px_exchange *exchange) {
    if (exchange->named || !px_exchange_is_open(exchange)) return;
    if (peregrine_set_user(exchange->worker->engine, exchange->ticket, exchange) == PEREGRINE_E_GONE)
        px_exchange_lost(exchange);
    else exchange->named = true;
}

/* Notes that the engine does not know the ticket any more. The event that tells why is in this batch or will
 * be in the next one. */
void px_exchange_lost(px_exchange *exchange) {
    if (exchange->state != PX_TICKET_OPEN) return;
    exchange->state = PX_TICKET_LOST;
    if (!exchange->named) exchange->worker->lost++;
    px_exchange_invariants(exchange);
}

/* The facts for a message about a request: [text, the hash that its application was called with, number of
 * the connection, number of the request in it]. A new reference. */
SV *px_exchange_context(pTHX_ px_exchange *exchange, const char *text) {
    AV *context = newAV();
    HV *hash = given(aTHX_ exchange);
    av_push(context, newSVpv(text, 0));
    av_push(context, hash ? newRV_inc((SV *)hash) : newSV(0));
    av_push(context, newSVuv(exchange->connection_number));
    av_push(context, newSVuv(exchange->request_number));
    return newRV_noinc((SV *)context);
}

/* Tells the Perl server of something that happened to a request. */
void px_exchange_tell(pTHX_ px_exchange *exchange, const char *method, SV *first, const char *text) {
    px_worker_tell(aTHX_ exchange->worker, method, first,
                   sv_2mortal(px_exchange_context(aTHX_ exchange, text)));
}
