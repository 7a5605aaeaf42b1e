/* topics.c - topics with history: an application says once that its connection reads a topic, and the entries
 * go out without Perl. Names and positions are checked by PAGI::Server::Topics. An engine that runs on
 * another thread or in another process delivers the entries itself. Otherwise the node of this interpreter
 * does, and a kind of scope sends each entry. */
#include "pagi/pagi.h"

/* The PAGI::Server::Topics of an application: its node, blessed. A new reference. */
SV *pagi_topics_new(pTHX_ pagi_app *app) {
    AV *topics = newAV();
    av_push(topics, newSVsv(app->node_object));
    return sv_bless(newRV_noinc((SV *)topics), app->cx->topics_stash);
}

/* The field of an event, or undef. */
static SV *field(pTHX_ HV *event, SV *key) {
    SV *value = px_fetch(aTHX_ event, key);
    return value ? value : &PL_sv_undef;
}

/* Calls a method of PAGI::Server::Topics with the mailbox, the kind of scope and the event's fields; returns
 * its Future, or a failed one if it died. */
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

/* ---- Delivery by the engine -------------------------------------------------------------------- */

static bool engine_delivers(const pagi_exchange *exchange) {
    const px_worker *worker = exchange->base.worker;
    return worker->is_one_of_several || worker->engine_delivers;
}

static SV *key_of(pTHX_ uint32_t number) {
    return newSVpvn_flags((const char *)&number, sizeof(number), SVs_TEMP);
}

/* The Future of a command to the engine that has failed, or that needs no answer. */
static SV *outcome(pTHX_ pagi_exchange *exchange, const char *type, int code) {
    if (code == PEREGRINE_E_GONE) return px_future_done(aTHX_ exchange->base.worker, NULL);
    return pagi_event_outcome(aTHX_ exchange, type, code);
}

/* Asks the engine for a topic's entries. `wish`: the list that PAGI::Server::Topics::_wish returns. */
static SV *follow(pTHX_ pagi_exchange *exchange, AV *wish) {
    px_worker *worker = exchange->base.worker;
    peregrine_node_follow_ask ask = {.size = sizeof(ask)};
    SV *const *fields = AvARRAY(wish);
    if (!worker->engine) return px_future_done(aTHX_ worker, NULL);
    ask.mailbox = exchange->mailbox;
    ask.name = SvPVbyte(fields[1], ask.name_len);
    ask.as = (uint32_t)SvUV(fields[2]);
    ask.cuts = SvTRUE(fields[3]) ? 1 : 0;
    ask.since = SvPVbyte(fields[4], ask.since_len);
    const uint32_t number = ++exchange->follow_number;
    const int code =
        peregrine_follow(worker->engine, exchange->base.ticket, number, exchange->app->node, &ask);
    if (code < 0) return outcome(aTHX_ exchange, "topic.subscribe", code);
    if (!exchange->follows) exchange->follows = newHV();
    (void)hv_store_ent(exchange->follows, key_of(aTHX_ number), newSVsv(fields[0]), 0);
    return newSVsv(fields[0]);
}

static SV *unfollow(pTHX_ pagi_exchange *exchange, SV *topic) {
    px_worker *worker = exchange->base.worker;
    STRLEN len;
    const char *name = SvPVbyte(topic, len);
    if (!worker->engine) return px_future_done(aTHX_ worker, NULL);
    return outcome(aTHX_ exchange, "topic.unsubscribe",
                   peregrine_unfollow(worker->engine, exchange->base.ticket, name, len));
}

/* Resolves the Future of a subscription that the engine has answered. */
static void answer(pTHX_ pagi_exchange *exchange, const peregrine_event *event) {
    HV *follows = exchange->follows;
    SV *future = follows ? hv_delete_ent(follows, key_of(aTHX_ event->reason), 0, 0) : NULL;
    if (!future) return;
    AV *told = newAV();
    SV *reference = sv_2mortal(newRV_noinc((SV *)told));
    av_push(told, newSVsv(future));
    av_push(told, newSVuv(event->code));
    av_push(told, newSVpvn(event->bytes, event->len));
    SV *error = NULL;
    SvREFCNT_dec(px_call(aTHX_ exchange->app->topics, "_answered", reference, NULL, &error));
    if (error) px_exchange_tell(aTHX_ & exchange->base, "_callback_died", error, "in a callback");
}

static void tell_reset(pTHX_ pagi_exchange *exchange, const peregrine_event *event) {
    peregrine_node_reading found = {.size = sizeof(found)};
    const char *space = memchr(event->bytes, ' ', event->len);
    if (!space || space - event->bytes > PEREGRINE_NODE_POSITION_BYTES) return;
    found.position_len = (uint32_t)(space - event->bytes);
    memcpy(found.position, event->bytes, found.position_len);
    found.topic = space + 1;
    found.topic_len = event->len - found.position_len - 1;
    (void)exchange->kind->reset(aTHX_ exchange, &found);
}

/* Handles an event about topics. The engine sends further entries only after it has heard that the event was
 * handled. */
void pagi_topics_told(pTHX_ pagi_exchange *exchange, const peregrine_event *event) {
    px_worker *worker = exchange->base.worker;
    px_exchange_hold(&exchange->base);
    if (event->reason) answer(aTHX_ exchange, event);
    else if (event->code == PEREGRINE_NODE_RESET) tell_reset(aTHX_ exchange, event);
    else if (event->code == PEREGRINE_NODE_CUT) exchange->kind->behind(aTHX_ exchange);
    if (worker->engine && px_exchange_is_live(&exchange->base))
        (void)peregrine_topic_heard(worker->engine, exchange->base.ticket);
    px_exchange_unhold(aTHX_ & exchange->base);
}

/* Resolves the Futures of subscriptions when the exchange has ended, as the engine answers no more. */
void pagi_topics_release(pTHX_ pagi_exchange *exchange) {
    HV *follows = exchange->follows;
    if (!follows) return;
    exchange->follows = NULL;
    sv_2mortal((SV *)follows);
    (void)hv_iterinit(follows);
    for (HE *each; (each = hv_iternext(follows));)
        px_future_resolve(aTHX_ & exchange->base, HeVAL(each), newSViv(0));
}

/* ---- The application's events ------------------------------------------------------------------ */

static SV *send_to_engine(pTHX_ pagi_exchange *exchange, bool subscribes, HV *event) {
    SV *read = call_topics(aTHX_ exchange, subscribes ? "_wish" : "_topic", event);
    if (sv_isobject(read)) return read; /* a Future that has failed */
    sv_2mortal(read);
    return subscribes ? follow(aTHX_ exchange, (AV *)SvRV(read)) : unfollow(aTHX_ exchange, read);
}

/* Handles topic.subscribe and topic.unsubscribe. The kind of scope has checked that the connection can take
 * entries. */
SV *pagi_topics_send(pTHX_ pagi_exchange *exchange, const char *type, HV *event) {
    px_worker *worker = exchange->base.worker;
    if (!exchange->app->node)
        return px_future_invalid(aTHX_ worker, "%s: the server has no topics: its option channels is off",
                                 type);
    if (!px_fetch(aTHX_ event, PAGI_KEY(exchange->app->cx, TOPIC)))
        return px_future_invalid(aTHX_ worker, "%s: topic is missing", type);
    if (!exchange->mailbox) return px_future_done(aTHX_ worker, NULL);
    const bool subscribes = strEQ(type, "topic.subscribe");
    if (engine_delivers(exchange)) return send_to_engine(aTHX_ exchange, subscribes, event);
    return call_topics(aTHX_ exchange, subscribes ? "_subscribe" : "_unsubscribe", event);
}

/* ---- Delivery by the node of this interpreter -------------------------------------------------- */

/* Handles the engine's answer to an entry that was sent. False: no more entries are sent now. */
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

/* Sends entries that have come, until none is left or the client does not keep up. */
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
