/* busy.c - the time since which an interpreter has been at one event, for a process that watches it: a word
 * in memory that both processes map. The watcher sees it even if the event never ends. */
#include "bridge/bridge.h"

#include <time.h>

#ifndef CLOCK_MONOTONIC_COARSE
#define CLOCK_MONOTONIC_COARSE CLOCK_MONOTONIC
#endif

/* Milliseconds of the monotonic clock, up to a tick of the kernel late; never 0. For signal handlers, too. */
uint64_t px_busy_now(void) {
    struct timespec now = {0};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000 + 1;
}

/* From now on `*word` has the time since which the application has been at one event. `words` is the Perl
 * value that owns the word's memory. */
void px_busy_watch(pTHX_ px_worker *worker, SV *words, uint64_t *word) {
    px_busy_forget(aTHX_ worker);
    worker->busy_words = SvREFCNT_inc_NN(words);
    worker->busy = word;
    *word = 0;
}

void px_busy_forget(pTHX_ px_worker *worker) {
    worker->busy = NULL;
    px_clear(aTHX_ & worker->busy_words);
}
