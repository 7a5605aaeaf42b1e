/* worker.c - the Perl side of an engine worker: polls batches, hands each event to the exchange that it is
 * about.
 *
 * Re-entrancy. An application may run a nested event loop, which may dispatch again. The cursor over the
 * batch is in the worker, so that the inner dispatch first finishes the outer one's batch and only then
 * polls; the outer one finds its batch done. No event is looked at after Perl code has run. */
#include "bridge/bridge.h"

/* Polls per dispatch, so that the host loop's timers and other watchers get their turn under load. */
#define PX_ROUNDS_MAX 8
/* Exchanges kept for the next requests when a dispatch ends. */
#define PX_POOL_KEEP 256

static px_worker *worker_of(pTHX_ peregrine_worker *engine) {
    if (!engine) return NULL;
    px_worker *worker;
    Newxz(worker, 1, px_worker);
    worker->engine = engine;
    worker->cx = px_context_get(aTHX);
    worker->pid = PerlProc_getpid();
    worker->forks = peregrine_forks();
    worker->trace_wanted = peregrine_trace_wanted();
    worker->refs = 1;
    return worker;
}

/* Makes an engine, and the worker that polls it; NULL with errno. */
px_worker *px_worker_new(pTHX_ const peregrine_config *config) {
    return worker_of(aTHX_ peregrine_worker_new(config));
}

/* The worker of one of several interpreters, which joins its engine; NULL with errno. `handed`: it gets the
 * requests that others hand over. */
px_worker *px_worker_join(pTHX_ int join_socket, int timeout_ms, bool handed) {
    px_worker *worker = worker_of(aTHX_ handed ? peregrine_join_for_handed(join_socket, timeout_ms)
                                               : peregrine_join(join_socket, timeout_ms));
    if (!worker) return NULL;
    worker->is_one_of_several = true;
    worker->one_at_a_time = handed;
    return worker;
}

/* Tells the faces that the engine's limits have changed, because a face keeps copies of some. */
void px_worker_limits(px_worker *worker) {
    for (int i = 0; i < PX_MOUNTS_MAX; i++) {
        const px_mount *mount = worker->mounts[i];
        if (mount) mount->face->limits(worker, mount->application);
    }
}

/* The value of a hash of settings under a name, borrowed; NULL: none. */
SV *px_setting(pTHX_ HV *settings, const char *name) {
    SV **value = hv_fetch(settings, name, (I32)strlen(name), 0);
    return value && SvOK(*value) ? *value : NULL;
}

/* A setting that is a string, mortal; NULL: there is none, or it is empty. Dies if it has a zero byte. */
static SV *text_setting(pTHX_ HV *settings, const char *name) {
    SV *given = px_setting(aTHX_ settings, name);
    if (!given) return NULL;
    SV *text = sv_2mortal(newSVsv(given));
    STRLEN len;
    const char *bytes = SvPV(text, len);
    if (memchr(bytes, '\0', len)) croak("Peregrine::Worker: %s must not have a zero byte", name);
    return len ? text : NULL;
}

/* A setting that is a path, mortal, without slashes at its end; NULL: the root. */
static SV *path_setting(pTHX_ HV *settings, const char *name) {
    SV *path = text_setting(aTHX_ settings, name);
    if (!path) return NULL;
    STRLEN len = SvCUR(path);
    while (len > 0 && SvPVX_const(path)[len - 1] == '/') len--;
    return len ? newSVpvn_flags(SvPVX_const(path), len, SVs_TEMP) : NULL;
}

/* The settings `root_path` and `path`, joined: the path at which clients see the application. */
static SV *new_root(pTHX_ HV *settings) {
    SV *root = newSVpvs("");
    for (int i = 0; i < 2; i++) {
        SV *part = path_setting(aTHX_ settings, i == 0 ? "root_path" : "path");
        if (part) sv_catpvn(root, SvPVX_const(part), SvCUR(part));
    }
    return root;
}

/* The number of a route for an application whose settings have `path` and `host`, or neither: then the
 * application gets all requests that match no other route. `flags` are the route's. Dies if a setting is
 * wrong, or the worker has such an application already. */
int px_worker_route(pTHX_ px_worker *worker, HV *settings, uint32_t flags) {
    SV *path = path_setting(aTHX_ settings, "path");
    (void)path_setting(aTHX_ settings, "root_path"); /* dies here if the setting is wrong */
    SV *host = text_setting(aTHX_ settings, "host");
    if (worker->is_complete) croak("Peregrine::Worker: the worker has an application already");
    SV *group = px_setting(aTHX_ settings, "group");
    const bool is_last = !path && !host;
    int number = 0;
    if (!is_last || flags || group) {
        const peregrine_route route = {
            .size = sizeof(route),
            .flags = flags,
            .path = path ? SvPVX_const(path) : NULL,
            .host = host ? SvPVX_const(host) : NULL,
            .group = group ? (uint32_t)SvUV(group) : 0,
        };
        number = peregrine_add_route(worker->engine, &route);
        if (number < 0) croak("Peregrine::Worker: path and host: %s", peregrine_error_text(number));
    }
    worker->is_complete = is_last;
    return number;
}

/* Has the engine serve the files of a folder: `path`, `folder`, and perhaps `host` and `cache_control`. Dies
 * if the folder cannot be served. */
void px_worker_folder(pTHX_ px_worker *worker, HV *settings) {
    SV *texts[4];
    static const char *const names[] = {"path", "folder", "host", "cache_control"};
    for (int i = 0; i < 4; i++) texts[i] = text_setting(aTHX_ settings, names[i]);
    if (!texts[0] || !texts[1]) croak("Peregrine::Worker: path and folder are required");
    const peregrine_folder folder = {
        .size = sizeof(folder),
        .path = SvPVX_const(texts[0]),
        .folder = SvPVX_const(texts[1]),
        .host = texts[2] ? SvPVX_const(texts[2]) : NULL,
        .cache_control = texts[3] ? SvPVX_const(texts[3]) : NULL,
    };
    const int code = peregrine_add_folder(worker->engine, &folder);
    if (code == PEREGRINE_E_SYSTEM) croak("cannot serve %s: %s", folder.folder, Strerror(errno));
    if (code < 0) croak("cannot serve %s: %s", folder.folder, peregrine_error_text(code));
}

/* Gives a route, by the number from px_worker_route(), its application, with the face that serves it. */
void px_worker_attach(pTHX_ px_worker *worker, int route, const px_face *face, void *application,
                      HV *settings) {
    px_mount *mount;
    Newxz(mount, 1, px_mount);
    mount->face = face;
    mount->application = application;
    mount->prefix = SvREFCNT_inc(path_setting(aTHX_ settings, "path"));
    mount->root = new_root(aTHX_ settings);
    SV *loop = px_setting(aTHX_ settings, "loop");
    worker->server = SvRV(px_setting(aTHX_ settings, "server"));
    if (!worker->loop) worker->loop = loop ? newSVsv(loop) : newSV(0);
    worker->mounts[route] = mount;
    worker->mount_count++;
    SV *passes_on = px_setting(aTHX_ settings, "passes_on");
    if (passes_on && SvTRUE(passes_on)) peregrine_pass_on(worker->engine, route);
    face->limits(worker, application);
}

static void trim_mount(pTHX_ px_mount *mount, int keep) {
    while (mount->pool_count > keep) {
        px_exchange *exchange = mount->pool;
        mount->pool = exchange->next;
        mount->pool_count--;
        px_exchange_discard(aTHX_ exchange);
    }
}

static void trim_pool(pTHX_ px_worker *worker, int keep) {
    int left = worker->mount_count;
    for (int i = 0; left > 0; i++) {
        if (!worker->mounts[i]) continue;
        trim_mount(aTHX_ worker->mounts[i], keep);
        left--;
    }
}

/* Frees the exchanges that are kept for further requests; returns the number of those that are not over. */
int px_worker_trim(pTHX_ px_worker *worker) {
    int count = 0;
    trim_pool(aTHX_ worker, 0);
    for (const px_exchange *exchange = worker->live; exchange; exchange = exchange->next) count++;
    return count;
}

/* Closes the engine and everything that it has open. Requests in flight learn that the server went away. */
void px_worker_stop(pTHX_ px_worker *worker) {
    peregrine_worker *engine = worker->engine;
    if (!engine) return;
    worker->refs++;
    px_stuck_forget(worker);
    worker->engine = NULL;
    worker->batch_left = 0;
    if (px_is_foreign(worker)) {
        /* In a fork the worker and its requests are the parent's, where they go on. */
        worker->server = NULL;
        px_clear(aTHX_ & worker->words);
        px_busy_forget(aTHX_ worker);
        px_tally_forget(aTHX_ worker);
        px_worker_release(aTHX_ worker);
        return;
    }
    peregrine_worker_free(engine);
    px_clear(aTHX_ & worker->words);
    px_clear(aTHX_ & worker->places);
    px_clear(aTHX_ & worker->refused_words);
    px_busy_forget(aTHX_ worker);
    px_tally_forget(aTHX_ worker);
    px_loan_end_all(aTHX_ worker);
    while (!PL_dirty && worker->live) {
        px_exchange *exchange = worker->live;
        while (exchange && !px_exchange_is_live(exchange)) exchange = exchange->next;
        if (!exchange) break;
        px_exchange_hold(exchange);
        exchange->mount->face->cut(aTHX_ exchange);
        px_exchange_ticket_gone(aTHX_ exchange);
        px_exchange_unhold(aTHX_ exchange);
    }
    if (!PL_dirty) px_turn_begin(aTHX_ worker);
    trim_pool(aTHX_ worker, 0);
    worker->server = NULL;
    px_future_forget(aTHX_ & worker->cx->own_done); /* the kept Future holds the loop */
    px_worker_release(aTHX_ worker);
}

/* The exchanges that are live now, each held, in mortal memory, for callers that run Perl code on each: that
 * code may change the worker's list. */
static px_exchange **hold_live(pTHX_ px_worker *worker, size_t *count) {
    size_t room = 1;
    for (const px_exchange *exchange = worker->live; exchange; exchange = exchange->next) room++;
    px_exchange **held = (px_exchange **)(void *)SvPVX(sv_2mortal(newSV(room * sizeof(px_exchange *))));
    *count = 0;
    for (px_exchange *exchange = worker->live; exchange; exchange = exchange->next) {
        px_exchange_hold(exchange);
        held[(*count)++] = exchange;
    }
    return held;
}

/* Has the faces end event streams, of which the engine does not know, now and as soon as they begin. */
static void shut_down_all(pTHX_ px_worker *worker) {
    worker->stopping = true;
    size_t count;
    px_exchange **held = hold_live(aTHX_ worker, &count);
    px_exchange *outer = worker->at;
    for (size_t i = 0; i < count; i++) {
        worker->at = held[i];
        if (px_exchange_is_live(held[i])) held[i]->mount->face->shut_down(aTHX_ held[i]);
        worker->at = outer;
        px_exchange_unhold(aTHX_ held[i]);
    }
}

/* Ends WebSockets by the engine's function `end`, and event streams, which would not end by themselves. */
static void end_streams(pTHX_ px_worker *worker, void (*end)(peregrine_worker *)) {
    end(worker->engine);
    shut_down_all(aTHX_ worker);
    px_worker_wake(worker);
}

/* Stops accepting and lets exchanges come to their end; WebSockets and event streams are ended. */
void px_worker_drain(pTHX_ px_worker *worker) {
    end_streams(aTHX_ worker, peregrine_drain);
}

/* Retires the worker, whose place another process takes. No exchange is ended yet. */
void px_worker_retire(pTHX_ px_worker *worker) {
    peregrine_retire(worker->engine);
    px_worker_wake(worker);
}

/* Ends WebSockets and event streams of a worker that has retired, when they have had time enough to end. */
void px_worker_end_streams(pTHX_ px_worker *worker) {
    end_streams(aTHX_ worker, peregrine_end_websockets);
}

/* Counts the applications that run: busy ones, which may have completed their response, and those that are
 * leaving because the server has told them that it stops. Applications whose client has left do not count: no
 * client waits for them, and they might never end. */
void px_worker_applications(const px_worker *worker, int *busy, int *leaving) {
    *busy = *leaving = 0;
    for (const px_exchange *exchange = worker->live; exchange; exchange = exchange->next) {
        const px_app_state state = exchange->mount->face->app_state(exchange);
        *busy += state == PX_APP_BUSY;
        *leaving += state == PX_APP_LEAVING;
    }
}

/* To be called when an application has ended. When all connections are gone, the server waits for nothing
 * else. */
void px_worker_app_ended(pTHX_ px_worker *worker) {
    if (worker->drained) px_worker_tell(aTHX_ worker, "_stopped", NULL, NULL);
}

/* Fails the async subs that an exception in the event loop has left pending (px_await_stalled); to be called
 * when no application is on the stack. Returns the number of applications that have ended so. */
int px_worker_fail_stalled(pTHX_ px_worker *worker, SV *exception) {
    size_t count;
    int failed = 0;
    px_exchange **held = hold_live(aTHX_ worker, &count);
    for (size_t i = 0; i < count; i++) {
        failed += held[i]->mount->face->fail_stalled(aTHX_ held[i], NULL, exception);
        px_exchange_unhold(aTHX_ held[i]);
    }
    return failed;
}

/* Cleans up after an `exit` that has unwound the stack past a call of the application: its request fails, and
 * holds of the unwound C functions are given back. False: no application was being called. */
bool px_worker_left_behind(pTHX_ px_worker *worker, SV *exception) {
    px_exchange *exchange = worker->at;
    for (; worker->depth > 0; worker->depth--) worker->refs--;
    if (!exchange) return false;
    exchange->mount->face->fail_stalled(aTHX_ exchange, NULL, exception);
    worker->at = NULL;
    worker->at_head = NULL;
    px_exchange_unhold(aTHX_ exchange);
    return true;
}

/* Frees exchanges that were kept because events of the batch could name them. */
static void free_exchanges(px_worker *worker) {
    while (worker->freed) {
        px_exchange *exchange = worker->freed;
        worker->freed = exchange->next;
        Safefree(exchange);
    }
}

/* Drops one reference; the last one frees the worker. */
void px_worker_release(pTHX_ px_worker *worker) {
    if (--worker->refs > 0) return;
    assert(!worker->engine);
    for (int i = 0; i < PX_MOUNTS_MAX; i++) {
        px_mount *mount = worker->mounts[i];
        if (!mount) continue;
        mount->face->drop_application(aTHX_ mount->application);
        SvREFCNT_dec(mount->prefix);
        SvREFCNT_dec(mount->root);
        Safefree(mount);
    }
    SvREFCNT_dec(worker->loop);
    free_exchanges(worker);
    Safefree(worker);
}

/* Calls a method of the Perl server; when that is gone, or dies, Peregrine::_warn_lost warns in its place. */
void px_worker_tell(pTHX_ px_worker *worker, const char *method, SV *first, SV *second) {
    SV *error = NULL;
    if (worker->server) {
        SV *server = sv_2mortal(newRV_inc(worker->server));
        SV *result = px_call(aTHX_ server, method, first, second, &error);
        if (result) {
            SvREFCNT_dec_NN(result);
            return;
        }
    }
    SV *warn_lost = sv_2mortal(newRV_inc((SV *)get_cv("Peregrine::_warn_lost", 0)));
    SvREFCNT_dec(px_call(aTHX_ warn_lost, NULL, first ? first : &PL_sv_undef, error ? error : &PL_sv_undef,
                         NULL));
}

/* Tells the server, once, to leave its event loop: this process is a child forked from the server's. */
void px_worker_leave_loop(pTHX_ px_worker *worker) {
    if (worker->left_loop) return;
    worker->left_loop = true;
    px_worker_tell(aTHX_ worker, "_leave_loop", NULL, NULL);
}

/* To be called when a command has been given to the engine. Outside of a dispatch no poll is due soon, so the
 * host's loop is made to poll. */
void px_worker_queued(pTHX_ px_worker *worker) {
    PERL_UNUSED_CONTEXT;
    if (worker->depth == 0) px_worker_wake(worker);
}

/* Makes the next poll come soon: the engine's descriptor becomes readable, or the next wait in the engine
 * ends at once. Does so once per poll. */
void px_worker_wake(px_worker *worker) {
    if (worker->woken || !worker->engine) return;
    worker->woken = true;
    if (!worker->host_loop) peregrine_wake(worker->engine);
}

/* The exchange of a ticket in the worker's list; NULL: it is over. */
static px_exchange *live_exchange(const px_worker *worker, peregrine_ticket ticket) {
    px_exchange *exchange = worker->live;
    while (exchange && exchange->ticket != ticket) exchange = exchange->next;
    return exchange;
}

/* The exchange that an event is about, or NULL. An event in one batch with the exchange's REQUEST was made
 * before the ticket could get our pointer; and if that event is the exchange's last, the engine has forgotten
 * the ticket by now. */
static px_exchange *exchange_of(const px_worker *worker, const peregrine_event *event) {
    if (event->user) return (px_exchange *)event->user;
    px_exchange *exchange = (px_exchange *)peregrine_user(worker->engine, event->ticket);
    if (exchange || !worker->lost) return exchange;
    return live_exchange(worker, event->ticket);
}

static void exchange_event(pTHX_ px_worker *worker, const peregrine_event *event) {
    px_exchange *exchange = exchange_of(worker, event);
    /* An exchange that was let go within this batch may still be named by it, and may serve another ticket
     * by now. */
    if (!exchange || !px_exchange_is_live(exchange) || exchange->ticket != event->ticket) return;
    px_exchange_hold(exchange);
    px_exchange *outer = worker->at;
    worker->at = exchange;
    exchange->mount->face->event(aTHX_ exchange, event);
    px_exchange_note_parked(exchange);
    px_exchange_invariants(exchange);
    worker->at = outer;
    px_exchange_unhold(aTHX_ exchange);
}

/* Passes a line of the engine for the log to the server, with its request while the application of that
 * runs. */
static void notice(pTHX_ px_worker *worker, const peregrine_event *event) {
    SV *text = newSVpvn_flags(event->bytes, event->len, SVs_TEMP);
    SV *level = sv_2mortal(newSVuv(event->code));
    px_exchange *exchange = event->ticket ? live_exchange(worker, event->ticket) : NULL;
    if (!exchange || (!exchange->given && !exchange->packed)) {
        px_worker_tell(aTHX_ worker, "_notice", level, text);
        return;
    }
    px_exchange_hold(exchange);
    px_exchange_tell(aTHX_ exchange, "_request_notice", text, SvPV_nolen_const(level));
    px_exchange_unhold(aTHX_ exchange);
}

/* Answers a request for which there is no application. */
static void turn_away(px_worker *worker, peregrine_ticket ticket) {
    const peregrine_field type = {"Content-Type", 12, "text/plain", 10};
    const peregrine_response response = {
        .size = sizeof(response),
        .status = 404,
        .flags = PEREGRINE_END,
        .fields = &type,
        .field_count = 1,
        .body = "Not Found",
        .body_len = 9,
    };
    (void)peregrine_respond(worker->engine, ticket, &response);
}

/* Whether the worker handles one request at a time, and has one without a complete answer. */
static bool is_at_one(const px_worker *worker) {
    if (!worker->one_at_a_time) return false;
    const px_exchange *exchange = worker->live;
    for (; exchange; exchange = exchange->next) {
        const px_face *face = exchange->mount->face;
        if (face->is_unanswered && face->is_unanswered(exchange)) return true;
    }
    return false;
}

/* Opens an exchange, for which the face calls the application; not if its client has left meanwhile. */
static void request(pTHX_ px_worker *worker, const peregrine_event *event) {
    if (peregrine_take(worker->engine, event->ticket) != PEREGRINE_OK) return;
    if (is_at_one(worker)) {
        (void)peregrine_give_back(worker->engine, event->ticket);
        return;
    }
    px_mount *mount = worker->mounts[event->request->route];
    if (!mount) {
        turn_away(worker, event->ticket);
        return;
    }
    px_exchange *exchange = px_exchange_open(aTHX_ worker, mount, event->ticket);
    px_exchange_hold(exchange);
    exchange->connection_number = event->request->connection;
    exchange->request_number = event->request->number;
    exchange->since = worker->busy || worker->tally ? px_busy_now() : 0;
    if (worker->tally && !(event->flags & PEREGRINE_HANDSHAKE)) px_tally_note_asked(exchange);
    px_exchange *outer = worker->at;
    const peregrine_request *outer_head = worker->at_head;
    worker->at = exchange;
    worker->at_head = event->request;
    mount->face->request(aTHX_ exchange, event);
    px_exchange_note_parked(exchange);
    worker->at = outer;
    worker->at_head = outer_head;
    px_exchange_unhold(aTHX_ exchange);
    if (worker->requests_left && --worker->requests_left == 0)
        px_worker_tell(aTHX_ worker, "_requests_reached", NULL, NULL);
}

/* Ends exchanges that the engine gives up for want of memory, before further events of the batch are handled:
 * their memory is free when their applications have let go of it. */
static void end_shed(pTHX_ px_worker *worker) {
    peregrine_event event;
    while (worker->engine && peregrine_next_shed(worker->engine, &event)) {
        ENTER;
        SAVETMPS;
        exchange_event(aTHX_ worker, &event);
        FREETMPS;
        LEAVE;
    }
}

static void run_batch(pTHX_ px_worker *worker) {
    while (worker->batch_left > 0) {
        const peregrine_event *event = worker->batch;
        worker->batch = peregrine_next_event(event);
        worker->batch_left--;
        px_busy_begin(worker);
        ENTER;
        SAVETMPS;
        switch (event->kind) {
        case PEREGRINE_REQUEST: request(aTHX_ worker, event); break;
        case PEREGRINE_STOPPED:
            worker->drained = true;
            px_worker_tell(aTHX_ worker, "_stopped", NULL, NULL);
            break;
        case PEREGRINE_NOTICE: notice(aTHX_ worker, event); break;
        case PEREGRINE_ENDING: shut_down_all(aTHX_ worker); break;
        case PEREGRINE_LINES: {
            SV *lines = newSVpvn_flags(event->bytes, event->len, SVs_TEMP);
            px_worker_tell(aTHX_ worker, "_access_lines", lines, NULL);
            break;
        }
        default: exchange_event(aTHX_ worker, event); break;
        }
        FREETMPS;
        LEAVE;
        end_shed(aTHX_ worker);
    }
    free_exchanges(worker);
}

/* To be called before a nested dispatch polls: requests whose applications are on the stack have to be found
 * by the events about them. */
static void name_all(px_worker *worker) {
    for (px_exchange *exchange = worker->live; exchange; exchange = exchange->next)
        px_exchange_name(exchange);
}

/* Whether a dispatch that has made its polls makes another one. If not, the output gets sent. */
static bool goes_on(px_worker *worker, int polls) {
    if (worker->host_loop && polls <= PX_ROUNDS_MAX && peregrine_goes_on(worker->engine)) return true;
    if (worker->host_loop) peregrine_send_all(worker->engine);
    else px_worker_wake(worker);
    return false;
}

/* Notes the top frame of Perl's stack: it and all frames below it are the server's own. */
static void note_frame(pTHX_ px_worker *worker) {
    worker->server_stack = PL_curstackinfo;
    worker->server_frame = cxstack_ix;
}

/* Handles the events of the engine in `rounds` polls and one before them, of which the first waits up to
 * `timeout_ms`. The engine sends answers when it is polled again. For a loop that waits in the engine it
 * sends them before the loop handles its own descriptors; requests that came behind others are handled first,
 * up to a bound. */
static void dispatch(pTHX_ px_worker *worker, int rounds, int timeout_ms) {
    int polls = 0;
    worker->refs++;
    if (worker->depth++ == 0) note_frame(aTHX_ worker);
    ENTER;
    save_scalar(PL_errgv);
    CLEAR_ERRSV(); /* so that calls need not keep $@, see px_call() */
    px_busy_begin(worker);
    px_turn_begin(aTHX_ worker);
    for (;;) {
        run_batch(aTHX_ worker);
        if (!worker->engine) break;
        if (polls++ >= rounds && !goes_on(worker, polls)) break;
        if (worker->depth > 1) name_all(worker);
        if (worker->woken) timeout_ms = 0;
        worker->woken = false;
        worker->batch_left = 0;
        const bool waits = timeout_ms != 0;
        if (waits) px_busy_end(worker);
        if (waits && worker->in_loop) peregrine_loop_works(worker->engine, false);
        const int count = peregrine_poll(worker->engine, timeout_ms, &worker->batch);
        if (waits && worker->in_loop) peregrine_loop_works(worker->engine, true);
        timeout_ms = 0;
        if (worker->loans) px_loan_collect(aTHX_ worker);
        if (count <= 0) {
            if (count < 0)
                px_worker_tell(aTHX_ worker, "_poll_failed", sv_2mortal(newSVpv(Strerror(errno), 0)), NULL);
            break;
        }
        worker->batch_left = count;
    }
    px_turn_end(worker);
    LEAVE;
    px_busy_end(worker);
    worker->depth--;
    if (worker->depth == 0) trim_pool(aTHX_ worker, PX_POOL_KEEP);
    px_worker_release(aTHX_ worker);
}

/* Handles the events of the engine, for a loop that watches the engine's descriptor. Never waits. */
void px_worker_dispatch(pTHX_ px_worker *worker) { dispatch(aTHX_ worker, PX_ROUNDS_MAX, 0); }

/* For a loop that waits in the engine: handles events that come within `timeout_ms` (-1: waits for ever).
 * True: a descriptor that the loop watches is ready, or a signal came. */
bool px_worker_wait(pTHX_ px_worker *worker, int timeout_ms) {
    if (worker->batch_left > 0) timeout_ms = 0; /* a nested call: there is something to do */
    worker->refs++;
    dispatch(aTHX_ worker, 1, timeout_ms);
    const bool due = worker->engine && peregrine_host_loop_due(worker->engine);
    px_worker_release(aTHX_ worker);
    return due;
}

/* Notes that the loop handles its own descriptors and timers (`works`), or has done so. Meanwhile it handles
 * no events of the engine, which may give requests to other interpreters. */
void px_worker_in_loop(pTHX_ px_worker *worker, bool works) {
    if (worker->depth == 0) note_frame(aTHX_ worker);
    worker->in_loop = works;
    if (works) px_busy_begin(worker);
    else px_busy_end(worker);
    if (worker->engine) peregrine_loop_works(worker->engine, works);
}

/* Makes a loop wait in px_worker_wait(), where readable `fd`, a descriptor of the loop's, ends the wait, and
 * no signal is blocked; -1: no longer. In a clone signals stay blocked, because they are for the process's
 * own interpreter. Returns a code of the engine's. */
int px_worker_host_loop(px_worker *worker, int fd) {
    const uint64_t blocked = 0;
    const int code = peregrine_host_loop(worker->engine, fd, px_children_is_clone() ? NULL : &blocked);
    worker->host_loop = code == PEREGRINE_OK && fd >= 0;
    /* The last wait may have ended with events: a poll has to follow before the loop waits for the
     * descriptor. */
    if (!worker->host_loop && worker->mount_count) {
        worker->woken = false;
        px_worker_wake(worker);
    }
    return code;
}
