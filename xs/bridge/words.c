/* words.c - 64-bit words in memory that a process shares with those that it forks, and an interpreter with
 * its clones: for the counters of workers. Each word is read and written whole; all processes see what Perl
 * reads and writes there in one order. */
#include "bridge/bridge.h"

#include <sys/mman.h>

#ifndef MAP_ANONYMOUS
#define MAP_ANONYMOUS MAP_ANON
#endif

/* Makes `count` shared words, all 0; NULL with errno if there is no memory. */
px_words *px_words_new(pTHX_ size_t count) {
    PERL_UNUSED_CONTEXT;
    const int access = PROT_READ | PROT_WRITE, kind = MAP_SHARED | MAP_ANONYMOUS;
    void *memory = mmap(NULL, count * sizeof(uint64_t), access, kind, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    px_words *words;
    Newx(words, 1, px_words);
    words->list = (uint64_t *)memory;
    words->count = count;
    words->owners = 1;
    return words;
}

/* Counts another interpreter of this process that uses the words. */
px_words *px_words_share(px_words *words) {
    __atomic_fetch_add(&words->owners, 1, __ATOMIC_RELAXED);
    return words;
}

/* Drops a reference; the last one frees the memory. */
void px_words_free(pTHX_ px_words *words) {
    PERL_UNUSED_CONTEXT;
    if (__atomic_sub_fetch(&words->owners, 1, __ATOMIC_ACQ_REL) > 0) return;
    px_words_leave(words);
    Safefree(words);
}

/* Unmaps the words in this process, which neither reads nor writes them from then on. */
void px_words_leave(px_words *words) {
    if (words->count > 0) munmap(words->list, words->count * sizeof(uint64_t));
    words->list = NULL;
    words->count = 0;
}

/* Finds `count` words from the index `from` on; dies if the memory does not have them. */
uint64_t *px_words_at(pTHX_ px_words *words, size_t from, size_t count) {
    if (from > words->count || count > words->count - from)
        croak("Peregrine::Words: there are %" UVuf " words: not %" UVuf " from %" UVuf " on",
              (UV)words->count, (UV)count, (UV)from);
    return words->list + from;
}
