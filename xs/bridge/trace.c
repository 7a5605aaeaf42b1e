/* trace.c - records of what applications do, for readers who follow exchanges (peregrine_trace()). */
#include "bridge/bridge.h"

/* Kind, size and code: see peregrine_trace(). */
void px_trace_write(const px_exchange *exchange, uint32_t kind, uint64_t size, uint32_t code,
                    const char *text, STRLEN len) {
    const px_worker *worker = exchange->worker;
    if (worker->engine) peregrine_trace(worker->engine, exchange->ticket, kind, size, code, text, len);
}
