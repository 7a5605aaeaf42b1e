/* tally.c - counts the answers of an interpreter, by time and outcome, in words that its master reads to
 * compare old and new code. The engine's counters do not tell one interpreter from another. */
#include "bridge/bridge.h"

/* Indices of the words. TIMES: answers by the time until they began; LENGTHS: by the time until their end. */
enum { ASKED, ANSWERED, FAILED, UNANSWERED, ENDED, TIMES, TIMES_COUNT = 16, LENGTHS = TIMES + TIMES_COUNT };

const size_t px_tally_words = LENGTHS + TIMES_COUNT;

static void bump(uint64_t *word) {
    __atomic_store_n(word, *word + 1, __ATOMIC_RELAXED);
}

/* Makes the worker count at `place`, in memory that `words` owns. All counts begin at 0. */
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

/* Counts a request that ended without an answer. Requests that are at work, or whose clients have left, do
 * not count here: they say nothing about the code. */
void px_tally_note_unanswered(px_exchange *exchange) {
    bump(&exchange->worker->tally[UNANSWERED]);
    exchange->owes_answer = false;
}

/* Takes a request back out of the count of requests: another interpreter counts it, or its client left. */
void px_tally_note_left(px_exchange *exchange) {
    uint64_t *asked = &exchange->worker->tally[ASKED];
    __atomic_store_n(asked, *asked - 1, __ATOMIC_RELAXED);
    exchange->owes_answer = false;
}

/* Counts a response that the application's failure has cut short. */
void px_tally_note_cut(const px_exchange *exchange) {
    bump(&exchange->worker->tally[FAILED]);
}

/* Counts the time since the request came by the number of binary digits of its milliseconds. */
static void note_time(const px_exchange *exchange, uint64_t *times) {
    if (!exchange->since) return;
    const uint64_t ms = px_busy_now() - exchange->since;
    int digits = 0;
    while (digits < TIMES_COUNT - 1 && ms >> digits > 0) digits++;
    bump(&times[digits]);
}

void px_tally_note_answer(px_exchange *exchange, uint16_t status) {
    uint64_t *tally = exchange->worker->tally;
    bump(&tally[ANSWERED]);
    exchange->owes_answer = false;
    exchange->owes_end = true;
    if (status >= 500) bump(&tally[FAILED]);
    note_time(exchange, &tally[TIMES]);
}

/* Counts the end of a response, or of its client. */
void px_tally_note_end(px_exchange *exchange) {
    uint64_t *tally = exchange->worker->tally;
    exchange->owes_end = false;
    bump(&tally[ENDED]);
    note_time(exchange, &tally[LENGTHS]);
}

/* Counts an event stream as ended, because it goes on for as long as its client likes. */
void px_tally_note_stream(px_exchange *exchange) {
    exchange->owes_end = false;
    bump(&exchange->worker->tally[ENDED]);
}
