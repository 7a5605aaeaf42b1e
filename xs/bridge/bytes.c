/* bytes.c - the bytes of an event as a Perl string. */
#include "bridge/bridge.h"

/* The least bytes that are kept: a copy of fewer costs no more than memory that has never been used. */
#define PX_KEEP_MIN (64 * 1024)

/* Whether Perl frees what malloc() has given. */
#if defined(MYMALLOC) || defined(PERL_TRACK_MEMPOOL) || defined(PERL_IMPLICIT_SYS)
#define PX_HEAP_IS_LIBC 0
#else
#define PX_HEAP_IS_LIBC 1
#endif

/* A new string. Many bytes are not copied: it takes over the memory that they were received to. Only for an
 * event of the batch that was polled last. */
SV *px_bytes(pTHX_ const px_worker *worker, const peregrine_event *event) {
    size_t capacity;
    char *memory = PX_HEAP_IS_LIBC && event->len >= PX_KEEP_MIN && worker->engine
                       ? peregrine_keep_bytes(worker->engine, event, &capacity)
                       : NULL;
    if (!memory) return newSVpvn(event->bytes, event->len);
    SV *string = newSV_type(SVt_PV);
    memory[event->len] = '\0';
    SvPV_set(string, memory);
    SvCUR_set(string, event->len);
    SvLEN_set(string, capacity);
    SvPOK_on(string);
    return string;
}
