/* bytes.c - the bytes of an event as a Perl string. */
#include "bridge/bridge.h"

/* The fewest bytes whose memory is taken over: to copy fewer costs no more than to use fresh memory. */
#define PX_KEEP_MIN (64 * 1024)

/* 1: Perl frees strings with free(), so a string may own memory of malloc(). */
#if defined(MYMALLOC) || defined(PERL_TRACK_MEMPOOL) || defined(PERL_IMPLICIT_SYS)
#define PX_HEAP_IS_LIBC 0
#else
#define PX_HEAP_IS_LIBC 1
#endif

/* The bytes of an event as a new string. From PX_KEEP_MIN bytes on it is no copy: the string takes over the
 * memory that they were received in. Only for an event of the batch that was polled last. */
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
