/* topics.c - topics with history: an application says once that its connection reads one, and the entries go
 * out without Perl. Names and positions are checked by PAGI::Server::Topics, how an entry goes out is the
 * business of a kind of scope. */
#include "pagi/pagi.h"

/* The PAGI::Server::Topics of an application: its node, blessed. A new reference. */
SV *pagi_topics_new(pTHX_ pagi_app *app) {
    AV *topics = newAV();
    av_push(topics, newSVsv(app->node_object));
    return sv_bless(newRV_noinc((SV *)topics), app->cx->topics_stash);
}

/* A field, or undef. */
static SV *field(pTHX_ HV *event, SV *key) {
    SV *value = px_fetch(aTHX_ event, key);
    return value ? value : &PL_sv_undef;
}

/* Calls a method of PAGI::Server::Topics with the mailbox, the kind of scope and the event's fields; its
 * Future, or a failed one. */
static SV *call_topics(pTHX_ pagi_exchange *exchange, const char *method, HV *event) {
    pagi_context *cx = exchange->app->cx;
    px_worker *worker = exchange->base.worker;
    AV *wish = newAV();
    SV *reference = sv_2mortal(newRV_noinc((SV *)wish));
    av_push(wish, newSVuv((UV)exchange->mailbox));
    av_push(wish, newSVpv(exchange->kind->name, 0));
    av_push(wish, newSVsv(field(aTHX_ event, PAGI_KEY(cx, TOPIC))));
    av_push(wish, newSVsv(field(aTHX_ event, PAGI_KEY(cx, AS))));
    av_push(wish, newSVsv(field(aTHX_ event, PAGI_KEY(cx, SINCE))));
    av_push(wish, newSVsv(field(aTHX_ event, PAGI_KEY(cx, BEHIND))));
    SV *error = NULL;
    SV *future = px_call(aTHX_ exchange->app->topics, method, reference, NULL, &error);
    return future ? future : px_future_failed(aTHX_ worker, newSVsv(error));
}

/* topic.subscribe and topic.unsubscribe. The kind has checked that the connection can take entries. */
SV *pagi_topics_send(pTHX_ pagi_exchange *exchange, const char *type, HV *event) {
    px_worker *worker = exchange->base.worker;
    if (!exchange->app->node)
        return px_future_invalid(aTHX_ worker, "%s: the server has no topics: its option channels is off",
                                 type);
    if (!px_fetch(aTHX_ event, PAGI_KEY(exchange->app->cx, TOPIC)))
        return px_future_invalid(aTHX_ worker, "%s: topic is missing", type);
    if (!exchange->mailbox) return px_future_done(aTHX_ worker, NULL);
    return call_topics(aTHX_ exchange, strEQ(type, "topic.subscribe") ? "_subscribe" : "_unsubscribe", event);
}

/* Takes the engine's answer to an entry. False: nothing more goes out now. */
static bool goes_on(pTHX_ pagi_exchange *exchange, int code) {
    if (code < 0 && code != PEREGRINE_E_GONE) return false;
    SvREFCNT_dec(pagi_event_outcome(aTHX_ exchange, "topic.subscribe", code));
    return code == PEREGRINE_OK;
}

/* Whether the connection takes entries now: it is there, and its client has read what was sent before. */
static bool takes_entries(const pagi_exchange *exchange) {
    return exchange->mailbox && exchange->kind->entry && exchange->base.worker->engine &&
           !exchange->senders && px_exchange_is_live(&exchange->base) && pagi_exchange_delivers(exchange);
}

/* Sends what there is, until the client is behind. */
void pagi_topics_pump(pTHX_ pagi_exchange *exchange) {
    peregrine_node *node = exchange->app->node;
    while (takes_entries(exchange)) {
        peregrine_node_reading found = {.size = sizeof(found)};
        const uint64_t mailbox = exchange->mailbox;
        const int kind = peregrine_node_read(node, mailbox, &found);
        if (kind == PEREGRINE_NODE_NOTHING) return;
        if (kind == PEREGRINE_NODE_CUT) {
            exchange->kind->behind(aTHX_ exchange);
            return;
        }
        if (kind == PEREGRINE_NODE_RESET) {
            const int code = exchange->kind->reset(aTHX_ exchange, &found);
            if (!goes_on(aTHX_ exchange, code)) return;
            continue;
        }
        const int code = exchange->kind->entry(aTHX_ exchange, &found);
        peregrine_node_sent(node, mailbox, found.len);
        if (!goes_on(aTHX_ exchange, code)) return;
    }
}
