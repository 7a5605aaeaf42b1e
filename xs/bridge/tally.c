/* tally.c - what an interpreter answers and how long it takes, in words that its master reads: old and new
 * code are compared by them. The engine's counters do not tell one interpreter from another. */
#include "bridge/bridge.h"

enum { ASKED, ANSWERED, FAILED, UNANSWERED, TIMES, TIMES_COUNT = 16 };

const size_t px_tally_words = TIMES + TIMES_COUNT;

static void bump(uint64_t *word) {
    __atomic_store_n(word, *word + 1, __ATOMIC_RELAXED);
}

/* From now on the worker counts there; `words` owns the memory. */
void px_tally_use(pTHX_ px_worker *worker, SV *words, uint64_t *place) {
    px_tally_forget(aTHX_ worker);
    worker->tally_words = SvREFCNT_inc_NN(words);
    worker->tally = place;
    Zero(place, px_tally_words, uint64_t);
}

void px_tally_forget(pTHX_ px_worker *worker) {
    worker->tally = NULL;
    px_clear(aTHX_ & worker->tally_words);
}

void px_tally_note_asked(px_exchange *exchange) {
    bump(&exchange->worker->tally[ASKED]);
    exchange->owes_answer = true;
}

/* A request that is at work, or whose client has left, is not counted: it says nothing about the code. */
void px_tally_note_unanswered(px_exchange *exchange) {
    bump(&exchange->worker->tally[UNANSWERED]);
    exchange->owes_answer = false;
}

/* Another interpreter counts the request, or nobody does. */
void px_tally_note_left(px_exchange *exchange) {
    uint64_t *asked = &exchange->worker->tally[ASKED];
    __atomic_store_n(asked, *asked - 1, __ATOMIC_RELAXED);
    exchange->owes_answer = false;
}

/* The response is not what the application wanted to say. */
void px_tally_note_cut(const px_exchange *exchange) {
    bump(&exchange->worker->tally[FAILED]);
}

/* Times are counted by the number of binary digits of their milliseconds. */
void px_tally_note_answer(px_exchange *exchange, uint16_t status) {
    uint64_t *tally = exchange->worker->tally;
    bump(&tally[ANSWERED]);
    exchange->owes_answer = false;
    if (status >= 500) bump(&tally[FAILED]);
    if (!exchange->since) return;
    const uint64_t ms = px_busy_now() - exchange->since;
    int digits = 0;
    while (digits < TIMES_COUNT - 1 && ms >> digits > 0) digits++;
    bump(&tally[TIMES + digits]);
}
