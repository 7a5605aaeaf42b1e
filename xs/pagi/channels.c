/* channels.c - the channel of a request: a mailbox, whose messages $receive gives beside the events of the
 * scope. The hub and its nodes are the engine's; requests to hub and nodes are made in Perl, by
 * PAGI::Server::Channels. */
#include "pagi/pagi.h"

/* The node behind a Peregrine::NodeHandle. */
peregrine_node *pagi_node_of(pTHX_ SV *handle) {
    if (!sv_isobject(handle) || !SvIOK(SvRV(handle))) croak("Peregrine::NodeHandle: not of this thread");
    return INT2PTR(peregrine_node *, SvIV(SvRV(handle)));
}

/* Opens a mailbox for a request, and adds the keys `pagi.channels` and `pagi.channel` to its scope. */
void pagi_channels_open(pTHX_ pagi_exchange *exchange, HV *scope) {
    const pagi_app *app = exchange->app;
    pagi_context *cx = app->cx;
    char name[PEREGRINE_NODE_NAME_BYTES];
    exchange->mailbox = peregrine_node_open(app->node, (uint64_t)PTR2UV(exchange));
    exchange->mail_given = false;
    const size_t len = peregrine_node_name(app->node, exchange->mailbox, name);
    AV *channels = newAV();
    SV *reference = newRV_noinc((SV *)channels);
    av_push(channels, newSVsv(app->node_object));
    av_push(channels, newSVuv((UV)exchange->mailbox));
    av_push(channels, newSVpvn(name, len));
    px_store(aTHX_ scope, PAGI_KEY(cx, CHANNELS), sv_bless(reference, cx->channels_stash));
    px_store(aTHX_ scope, PAGI_KEY(cx, CHANNEL), newSVpvn(name, len));
    px_store(aTHX_ scope, PAGI_KEY(cx, TOPICS), newSVsv(app->topics));
}

/* Ends the channel of a request that is over. */
void pagi_channels_close(pTHX_ pagi_exchange *exchange) {
    if (!exchange->mailbox) return;
    peregrine_node_close(exchange->app->node, exchange->mailbox);
    exchange->mailbox = 0;
    px_clear(aTHX_(SV **)&exchange->resets);
    pagi_topics_release(aTHX_ exchange);
}

/* The next message, a new reference; NULL: there is none, and an event of the node tells of the next one. */
SV *pagi_channels_take(pTHX_ peregrine_node *node, uint64_t mailbox) {
    SV *message = NULL;
    peregrine_node_message found = {.size = sizeof(found)};
    while (!message && peregrine_node_take(node, mailbox, &found)) {
        message = pagi_message_read(aTHX_ found.bytes, found.len);
        peregrine_node_release(node, found.handle);
    }
    return message;
}

SV *pagi_channels_next(pTHX_ pagi_exchange *exchange) {
    if (exchange->resets && AvFILLp(exchange->resets) >= 0) return av_shift(exchange->resets);
    return pagi_channels_take(aTHX_ exchange->app->node, exchange->mailbox);
}

/* Serves a request after mail has come to its empty mailbox, or, if `readable`, entries of topics. */
static void serve(pTHX_ pagi_exchange *exchange, bool readable) {
    px_exchange *base = &exchange->base;
    px_worker *worker = base->worker;
    px_exchange *outer = worker->at;
    const bool outermost = worker->depth == 0;
    px_exchange_hold(base);
    worker->at = base;
    if (outermost) px_busy_begin(worker);
    if (readable) pagi_topics_pump(aTHX_ exchange);
    else pagi_receive_serve(aTHX_ exchange);
    if (outermost) px_busy_end(worker);
    worker->at = outer;
    px_exchange_note_parked(base);
    px_exchange_invariants(base);
    pagi_exchange_invariants(exchange);
    px_exchange_unhold(aTHX_ base);
}

/* The next answer for Perl: to a request that Perl code has made, or about mail in a mailbox that Perl code
 * has opened. Mail for exchanges is given to them here. False: there is nothing more. */
bool pagi_channels_event(pTHX_ peregrine_node *node, peregrine_node_event *event) {
    event->size = sizeof(*event);
    while (peregrine_node_next(node, event)) {
        if (event->number || !event->user) return true;
        ENTER;
        SAVETMPS;
        save_scalar(PL_errgv);
        CLEAR_ERRSV(); /* so that calls need not keep $@, see px_call() */
        serve(aTHX_ INT2PTR(pagi_exchange *, (UV)event->user), event->readable);
        FREETMPS;
        LEAVE;
    }
    return false;
}
