/* send.c - $send: finds the function for an event of the application, and answers with a Future. The events
 * themselves are the business of a kind of scope. */
#include "pagi/pagi.h"

/* The refusal of an event by the server's check: a failed Future, or NULL. */
static SV *refusal_of_check(pTHX_ const pagi_app *app, HV *event) {
    px_worker *worker = app->worker;
    SV *error = NULL;
    SV *problem = px_call(aTHX_ app->check, NULL, sv_2mortal(newRV_inc((SV *)event)), NULL, &error);
    if (!problem)
        return px_future_invalid(aTHX_ worker, "$send: the check of the event died: %" SVf, SVfARG(error));
    sv_2mortal(problem);
    return SvOK(problem) ? px_future_invalid(aTHX_ worker, "%" SVf, SVfARG(problem)) : NULL;
}

/* A failed Future about an event type that the scope does not know; suggests the nearest type. */
static SV *unknown_type(pTHX_ pagi_exchange *exchange, SV *type) {
    AV *types = newAV();
    SV *list = sv_2mortal(newRV_noinc((SV *)types));
    for (const pagi_send_event *known = exchange->kind->sends; known->type; known++)
        av_push(types, newSVpvn(known->type, known->type_len));
    SV *function = sv_2mortal(newRV_inc((SV *)get_cv("PAGI::Server::Reports::_nearest_type", GV_ADD)));
    SV *hint = px_call(aTHX_ function, NULL, type, list, NULL);
    return px_future_invalid(aTHX_ exchange->base.worker,
                             "$send: unknown event type '%" SVf "' in a scope of type %s%" SVf,
                             SVfARG(pagi_event_shown(aTHX_ type)), exchange->kind->name,
                                 SVfARG(hint ? sv_2mortal(hint) : &PL_sv_no));
}

/* Whether an event does nothing because the peer is gone. Not if the application has closed before that: then
 * sending is its mistake. */
static bool is_in_vain(const pagi_exchange *exchange) {
    return exchange->end == PAGI_END_DISCONNECTED && !exchange->app_closed;
}

/* Reads an event, which may run Perl code, finds the handler of its type and runs it. */
static SV *send_event(pTHX_ pagi_exchange *exchange, SV *given) {
    px_worker *worker = exchange->base.worker;
    SV *failed = NULL;
    HV *event = pagi_plain_event(aTHX_ worker, given, &failed);
    if (!event) return failed;
    if (is_in_vain(exchange)) return pagi_in_vain(aTHX_ exchange, NULL);
    SV *type = px_fetch(aTHX_ event, PAGI_KEY(exchange->app->cx, TYPE));
    if (!type || SvROK(type))
        return px_future_invalid(aTHX_ worker, "$send: the event has no type (a string is required)");
    STRLEN len;
    const char *text = SvPV_const(type, len);
    for (const pagi_send_event *known = exchange->kind->sends; known->type; known++) {
        if (known->type_len != len || memcmp(known->type, text, len) != 0) continue;
        SV *refusal = exchange->app->check && !pagi_file_is_opened(aTHX_ exchange, event)
                      ? refusal_of_check(aTHX_ exchange->app, event)
                      : NULL;
        if (refusal) return refusal;
        pagi_trace(aTHX_ exchange, PEREGRINE_TRACE_SEND, event);
        if (pagi_file_is_opening(aTHX_ exchange)) return pagi_file_after(aTHX_ exchange, event);
        return known->send(aTHX_ exchange, event);
    }
    return unknown_type(aTHX_ exchange, type);
}

/* Takes over the Future of an event. If it is done, returns one that waits for the exchange's next turn. */
static SV *not_before_next_turn(pTHX_ pagi_exchange *exchange, SV *future) {
    SV *failure = NULL;
    if (px_future_look(aTHX_ exchange->base.worker->cx, future, &failure) != PX_FUTURE_DONE) return future;
    SvREFCNT_dec_NN(future);
    /* A worker without an engine has no next turn. A request that is over has no next turn, either: a
     * destructor may send while its exchange is given up. */
    if (!exchange->base.worker->engine || !px_exchange_is_live(&exchange->base))
        return pagi_in_vain(aTHX_ exchange, NULL);
    return px_turn_next(aTHX_ &exchange->base);
}

/* Empties an event that only this call can see. An application in `await` keeps the event of its call until
 * it goes on, and in the event a share of a body that the engine has borrowed: Perl lets 255 scalars share a
 * string, and copies it for the next one. */
static void empty_event(pTHX_ const px_worker *worker, SV *event) {
    if (!worker->loans || !SvTEMP(event) || SvREFCNT(event) != 1 || !SvROK(event)) return;
    SV *hash = SvRV(event);
    if (SvTYPE(hash) != SVt_PVHV || SvREFCNT(hash) != 1 || SvOBJECT(hash) || SvMAGICAL(hash)) return;
    hv_clear((HV *)hash);
}

/* Whether an event did nothing, because its peer is gone by now: then its Future is replaced. */
static bool was_in_vain(pTHX_ pagi_exchange *exchange, SV **future) {
    const bool left = pagi_exchange_is_left(exchange) && !exchange->app_closed;
    /* `gone`: the engine knows, and the event that tells the application waits for the loop */
    const bool gone = px_exchange_is_lost(&exchange->base);
    if (!left && !gone) return false;
    SV *failure = NULL;
    const px_future_state state = px_future_look(aTHX_ exchange->base.worker->cx, *future, &failure);
    /* This event may have failed only because the event before it did nothing. */
    const bool follows = state == PX_FUTURE_FAILED && !exchange->app_closed;
    if (!follows && !(gone && state == PX_FUTURE_DONE)) return false;
    SvREFCNT_dec_NN(*future);
    *future = pagi_in_vain(aTHX_ exchange, NULL);
    return true;
}

/* The function $send. Once the peer is gone an event does nothing, and is not even read. An application whose
 * event races with the end of its peer is not told of mistakes that follow from that end. */
XS_EXTERNAL(pagi_xs_send) {
    dXSARGS;
    pagi_exchange *exchange = pagi_exchange_of_function(aTHX_ cv);
    SV *event = items > 0 ? ST(0) : &PL_sv_undef;
    SV *future;
    if (is_in_vain(exchange)) {
        future = pagi_in_vain(aTHX_ exchange, NULL);
    } else {
        const bool live = px_exchange_pin(&exchange->base);
        const bool was_complete = exchange->response == PAGI_RESPONSE_COMPLETE;
        const bool had_turn = px_turn_spend(&exchange->base);
        future = send_event(aTHX_ exchange, event);
        empty_event(aTHX_ exchange->base.worker, event);
        const bool in_vain = was_in_vain(aTHX_ exchange, &future);
        /* An event that completes a response waits for no turn: its application usually ends after it. */
        const bool completes = !was_complete && exchange->response == PAGI_RESPONSE_COMPLETE;
        if (had_turn && live && !in_vain && !completes) future = not_before_next_turn(aTHX_ exchange, future);
        px_exchange_note_parked(&exchange->base);
        px_exchange_unpin(aTHX_ &exchange->base, live);
    }
    sv_2mortal(future);
    SPAGAIN;
    EXTEND(SP, 1);
    ST(0) = future;
    XSRETURN(1);
}

/* The function $send of an exchange that a sync handler has used (pagi_sync). */
XS_EXTERNAL(pagi_xs_send_sync) {
    const pagi_exchange *exchange = pagi_exchange_of_function(aTHX_ cv);
    const bool blocks = exchange->blocks;
    px_context *cx = exchange->base.worker->cx;
    pagi_xs_send(aTHX_ cv);
    if (blocks) px_future_wait(aTHX_ cx, *PL_stack_sp);
}
