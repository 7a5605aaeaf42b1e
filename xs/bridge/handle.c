/* handle.c - Perl values that point to an exchange: functions such as $send, and objects. An application
 * may keep them for ever. */
#include "bridge/bridge.h"

static int handle_free(pTHX_ SV *sv, MAGIC *mg) {
    px_exchange *exchange = (px_exchange *)mg->mg_ptr;
    PERL_UNUSED_ARG(sv);
    if (exchange) px_exchange_unpin(aTHX_ exchange, false);
    return 0;
}

/* A new thread's copy of a handle points nowhere: an exchange belongs to the thread of its worker. */
int px_handle_dup(pTHX_ MAGIC *mg, CLONE_PARAMS *params) {
    PERL_UNUSED_CONTEXT;
    PERL_UNUSED_ARG(params);
    mg->mg_ptr = NULL;
    return 0;
}

const MGVTBL px_handle_vtbl = {.svt_free = handle_free, .svt_dup = px_handle_dup};

static void make_handle(pTHX_ SV *sv, px_exchange *exchange) {
    MAGIC *mg = sv_magicext(sv, NULL, PERL_MAGIC_ext, &px_handle_vtbl, (const char *)exchange, 0);
    mg->mg_flags |= MGf_DUP;
    exchange->handles++;
}

/* A new function that finds its exchange in the CV that it is called as. newXS gives it a glob, which
 * profilers use without checking that there is one. */
CV *px_handle_function(pTHX_ px_exchange *exchange, XSUBADDR_t function) {
    CV *cv = newXS(NULL, function, __FILE__);
    make_handle(aTHX_ (SV *)cv, exchange);
    return cv;
}

/* A new object of a class, which the caller owns; no Perl reference points to it yet. */
SV *px_handle_object(pTHX_ px_exchange *exchange, HV *stash) {
    SV *object = newSV_type(SVt_PVMG);
    SV *reference = newRV_noinc(object);
    make_handle(aTHX_ object, exchange);
    sv_bless(reference, stash);
    SvREFCNT_inc_simple_void_NN(object);
    SvREFCNT_dec_NN(reference);
    return object;
}

/* The exchange behind a handle; NULL if it is no handle, or another thread's. */
px_exchange *px_handle_exchange(pTHX_ SV *handle) {
    if (SvTYPE(handle) < SVt_PVMG) return NULL;
    const MAGIC *mg = mg_findext(handle, PERL_MAGIC_ext, &px_handle_vtbl);
    return mg ? (px_exchange *)mg->mg_ptr : NULL;
}

/* Like px_handle_exchange, for code that will use the exchange: dies in a process other than its worker's. */
px_exchange *px_handle_exchange_here(pTHX_ SV *handle) {
    px_exchange *exchange = px_handle_exchange(aTHX_ handle);
    if (exchange && px_is_foreign(exchange->worker)) px_foreign(aTHX_ exchange->worker, "the request");
    return exchange;
}
