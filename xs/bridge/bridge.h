/* bridge.h - the part between the engine and Perl that serves applications of all kinds: a worker that is
 * polled, exchanges and the Perl values that point to them, calls into Perl, Futures.
 *
 * The bridge converts between engine events and Perl values and decides as little as it can. How an
 * application sees a request is decided by a face (px_face below; PAGI's is in pagi/): the bridge includes
 * none of a face's headers. Rules that keep both safe:
 *   - Perl code runs only when no engine call is on the stack; every call into Perl is guarded (G_EVAL), so a
 *     `die` never unwinds C frames of ours;
 *   - an engine event is copied into Perl values before any Perl code runs, and never looked at
 *     afterwards: a nested event loop may have polled meanwhile;
 *   - the data of an interpreter lie in px_context, found by MY_CXT; static variables are constants, or
 *     belong to the process or a thread (signals). */
#ifndef PEREGRINE_BRIDGE_H
#define PEREGRINE_BRIDGE_H

#ifndef PERL_NO_GET_CONTEXT
#define PERL_NO_GET_CONTEXT
#endif
#include "EXTERN.h"
#include "perl.h"
#include "XSUB.h"

/* Macros that Perl 5.32 and 5.34 lack. */
#ifndef av_count
#define av_count(av) ((Size_t)(AvFILL(av) + 1))
#endif
#ifndef G_LIST
#define G_LIST G_ARRAY
#endif

#include "peregrine.h"

/* ---- Assertions ------------------------------------------------------------------------------ */

/* Asserts a condition that must hold whatever peers and applications do: a build for users leaves it out,
 * `script/build` and the sanitized tests have it (-DPX_CHECKS). */
#ifdef PX_CHECKS
#define PX_ASSERT(condition) \
    ((condition) ? (void)0 : px_assertion_failed(#condition, __FILE__, __LINE__))
void px_assertion_failed(const char *condition, const char *file, int line) __attribute__noreturn__;
#else
#define PX_ASSERT(condition) ((void)0)
#endif

/* ---- Names ----------------------------------------------------------------------------------- */

/* Hash keys, made once per interpreter as shared scalars with their hash computed. */
#define PX_KEYS(X)            \
    X(READY, "ready")         \
    X(RESULT, "result")       \
    X(FAILURE, "failure")     \
    X(CALLBACKS, "callbacks") \
    X(ON_CANCEL, "on_cancel") \
    X(SUBS, "subs")           \
    X(CANCELLED, "cancelled")

#define PX_KEY_ENUM(name, text) PX_KEY_##name,
enum px_key { PX_KEYS(PX_KEY_ENUM) PX_KEY_COUNT };
#undef PX_KEY_ENUM

/* An empty, resolved Future and its list of results, kept to be returned again. */
typedef struct px_done {
    HV *future;
    AV *result;
} px_done;

/* A method that Future::AsyncAwait calls, and our function that may be behind it. */
typedef struct px_await_method {
    GV *gv;
    CV *ours;
} px_await_method;

/* The functions that replace two ops of Future::AsyncAwait, see await_op.c. */
typedef struct px_await_ops {
    Perl_ppaddr_t await, leave; /* the functions that were replaced */
    px_await_method own_ready, own_get, ready, get, new_done;
    SV *class_hint; /* the key of %^H with the class of an async sub's Future */
    /* the suspended async sub for which Future::AsyncAwait's `await` runs, or NULL; only compared */
    const CV *called;
    SV *asked;         /* a reference to the Future that `called` has returned, or NULL */
    const CV *resumed; /* the async sub that runs since it was resumed, or NULL; only compared */
    SV *returned;      /* a reference to the Future that `resumed` has returned */
    UV at_once;     /* calls of the two functions that needed no method, counted for tests */
} px_await_ops;

/* The bridge's data of an interpreter. */
typedef struct px_context {
    SV *own_keys[PX_KEY_COUNT];
    HV *future_stash;      /* Future */
    HV *loop_future_stash; /* IO::Async::Future */
    HV *own_future_stash;  /* PAGI::Server::Future */
    px_done done;          /* of class Future; an `async sub` without a result returns it */
    /* a Future of our class: $send returns it when the application has nothing to wait for */
    px_done own_done;
    SV *own_done_loop;     /* the loop of own_done; only the address is compared */
    SV *loop_key;          /* the key of the loop in an IO::Async::Future; NULL: no Future is a plain hash */
    SV *on_ready_flags; /* see px_await_on_ready; NULL: no callback was registered yet */
    px_await_ops await;
} px_context;

#define PX_KEY(cx, name) ((cx)->own_keys[PX_KEY_##name])

px_context *px_context_get(pTHX);
void px_context_init(pTHX);
void px_context_clone(pTHX);

static inline void px_store(pTHX_ HV *hv, SV *key, SV *value) {
    (void)hv_store_ent(hv, key, value, SvSHARED_HASH(key));
}

/* The value under a key, or NULL when there is none or it is undef. */
static inline SV *px_fetch(pTHX_ HV *hv, SV *key) {
    HE *entry = hv_fetch_ent(hv, key, 0, SvSHARED_HASH(key));
    if (!entry) return NULL;
    SV *value = HeVAL(entry);
    SvGETMAGIC(value);
    return SvOK(value) ? value : NULL;
}

/* Gives up a reference. Destructors may run Perl code, so the slot is emptied before its value goes. */
static inline void px_clear(pTHX_ SV **slot) {
    SV *sv = *slot;
    *slot = NULL;
    SvREFCNT_dec(sv);
}

/* Keeps an argument of a function of ours until the calling Perl statement ends. Perl's stack holds no
 * reference to it, and Perl code that runs meanwhile may drop the only one. */
static inline void px_keep(pTHX_ SV *sv) {
    sv_2mortal(SvREFCNT_inc_simple_NN(sv));
}

/* A copy of a shared scalar that shares its string. */
static inline SV *px_copy(pTHX_ SV *shared) {
    return newSVhek(SvSHARED_HEK_FROM_PV(SvPVX_const(shared)));
}

/* A list of two elements without spare room: there are many such lists, and some live long. */
static inline AV *px_pair(pTHX_ SV *first, SV *second) {
    AV *av = newAV();
    SV **slots;
    Newx(slots, 2, SV *);
    slots[0] = first;
    slots[1] = second;
    AvALLOC(av) = AvARRAY(av) = slots;
    AvFILLp(av) = AvMAX(av) = 1;
    return av;
}

/* ---- Worker, exchange, face ------------------------------------------------------------------ */

typedef struct px_face px_face;
typedef struct px_mount px_mount;
typedef struct px_worker px_worker;
typedef struct px_exchange px_exchange;
typedef struct px_loan px_loan;
typedef struct px_packed px_packed;

/* 64-bit words that processes share, see words.c. */
typedef struct px_words {
    uint64_t *list;
    size_t count;
    size_t owners;
} px_words;

/* How many numbers of routes there are, 0 (no route) included. */
#define PX_MOUNTS_MAX 256

/* An application. It gets the requests of one route of the engine's. */
struct px_mount {
    const px_face *face;
    void *application; /* the face's data for requests of this mount */
    SV *prefix;        /* path of the mount, bytes without a slash at the end; NULL: the root */
    SV *root;          /* path that clients see: the part that a proxy has removed, and the prefix */
    px_exchange *pool; /* exchanges kept for the next requests */
    int pool_count;
};

struct px_worker {
    peregrine_worker *engine; /* NULL after px_worker_stop() */
    px_mount *mounts[PX_MOUNTS_MAX]; /* by number of the route; 0: for requests that match no route */
    int mount_count;
    /* a mount takes all requests that match no other route, so it is the last one */
    bool is_complete;
    px_context *cx;
    const uint64_t *trace_wanted; /* the engine's word: not 0 while a reader wants traces, see px_trace() */
    Pid_t pid;      /* the process that has made the worker */
    uint32_t forks; /* peregrine_forks() in that process */
    bool left_loop; /* in a forked child: the server was told to leave the event loop */
    int refs; /* the Perl object, and each exchange that is not in the pool */
    /* The cursor over the current batch lives here, so that a nested event loop goes on where the outer
     * one stands. */
    const peregrine_event *batch; /* the next event */
    int batch_left;
    int depth;  /* dispatch calls on the stack */
    /* The innermost Perl frame of the server when the outermost dispatch began: the application's frames are
     * within it. */
    const PERL_SI *server_stack;
    I32 server_frame;
    bool woken; /* the engine's descriptor has been made readable since the last poll */
    bool in_loop;   /* the host's loop handles its own descriptors, see px_worker_in_loop() */
    bool host_loop; /* the loop waits in the engine and does not watch its descriptor */
    /* The Perl server, whose methods are called where C does not decide. No reference is held: the server
     * closes the worker before it is freed. (A weak reference that only C knows would not survive the cloning
     * of the interpreter for a new thread.) */
    SV *server;
    SV *loop;      /* the event loop of our Futures */
    UV requests_left; /* requests until the server's `_requests_reached` is called; 0: never */
    bool is_one_of_several; /* shares its engine with other interpreters; the engine asks how busy each is */
    bool one_at_a_time;     /* gets only requests that other interpreters hand over, one at a time */
    bool engine_delivers;   /* the engine, on a thread of its own, delivers topics */
    uint32_t parked;        /* exchanges that wait for their clients, as last told to the engine */
    bool stopping; /* the server stops, so WebSockets and event streams are ended */
    bool drained;  /* the last connection is gone */
    int lost;      /* exchanges of state PX_TICKET_LOST that are not `named` */
    px_loan *loans; /* strings that the engine has borrowed */
    SV *words;      /* the memory of the engine's counters; NULL: it does not count */
    SV *places;     /* the table of workers at the same sockets; NULL: this worker is the only one there */
    SV *refused_words; /* the memory in which the engine counts refused requests of groups; NULL: none */
    SV *busy_words; /* the memory that `busy` points into */
    /* ms at which the present event began, 0: none is handled; NULL: no process asks. See busy.c */
    uint64_t *busy;
    SV *tally_words; /* the memory that `tally` points into */
    uint64_t *tally; /* counts of answers of this interpreter; NULL: no process asks. See tally.c */
    px_exchange *at;                  /* the exchange whose event is being handled, or NULL */
    const peregrine_request *at_head; /* the head that the event of `at` brings, or NULL */
    px_exchange *live;
    px_exchange *freed; /* ended exchanges that events of the batch may still name */
    uint32_t turn; /* counts dispatches */
    px_exchange *first_in_turn, *last_in_turn; /* exchanges that wait for their next turn */
};

/* The engine's state of an exchange's ticket. */
typedef enum {
    PX_TICKET_OVER, /* the engine has ended the exchange, and no event will name it */
    PX_TICKET_OPEN,
    PX_TICKET_LOST, /* the engine has forgotten the ticket; the event that tells why will still come */
} px_ticket_state;

/* A request and its response, seen from Perl: the part that is alike for all faces, at the head of a face's
 * own struct. An exchange is held by the engine's ticket, by the application while that runs, by C frames
 * that need it (`holds`), and by each Perl value that points to the exchange (`handles`). */
struct px_exchange {
    px_worker *worker;
    px_mount *mount;
    peregrine_ticket ticket;
    px_exchange *next, *previous;
    int holds;
    int handles;
    /* the bridge has references to the handles, too, so that they can serve another request */
    bool kept;
    px_ticket_state state;
    bool named;       /* the engine's events about the ticket bring a pointer to the exchange */
    uint32_t connection_number, request_number; /* for log messages */
    uint64_t since;   /* ms at which the request came; 0: neither `busy.c` nor `tally.c` reads the time */
    HV *given;        /* the hash that the application was called with, until it is done, or NULL */
    px_packed *packed; /* `given` packed, while only the bridge refers to it; or NULL */
    /* the last turn in which the exchange sent events, and their number: see PX_TURN_EVENTS */
    uint32_t turn, spent;
    bool waits_for_turn;
    bool parked; /* see px_exchange_note_parked */
    bool owes_answer; /* tally.c has counted the request, and neither its answer nor its end */
    bool owes_end;    /* tally.c has counted the answer, and not its end */
    px_exchange *next_in_turn;
    AV *deferred; /* Futures that become ready in the exchange's next turn; NULL: none */
};

/* The state of an exchange's application while the server stops. */
typedef enum {
    PX_APP_OVER,    /* the server does not wait: the application has ended, or its client has left */
    PX_APP_BUSY,    /* the application runs, and its client waits */
    PX_APP_LEAVING, /* the application runs, and was told that the server stops */
} px_app_state;

/* A face: functions that make calls of applications of one kind out of requests, and responses out of their
 * answers. All exchanges of a mount have one table. */
struct px_face {
    size_t exchange_size; /* bytes of the face's exchanges, which begin with a px_exchange */

    /* Frees a mount's `application`; takes over limits of the engine that have changed. */
    void (*drop_application)(pTHX_ void *application);
    void (*limits)(const px_worker *worker, void *application);

    /* Calls the application for a request. The exchange is held. */
    void (*request)(pTHX_ px_exchange *exchange, const peregrine_event *event);
    /* Called for any later event about the exchange. */
    void (*event)(pTHX_ px_exchange *exchange, const peregrine_event *event);
    /* The exchange's turn has come, see px_turn_wait(); may be NULL. */
    void (*turn)(pTHX_ px_exchange *exchange);
    /* Ends an exchange whose engine is closed: nothing goes out any more. */
    void (*cut)(pTHX_ px_exchange *exchange);
    /* Ends a WebSocket or an event stream, which would not end by itself, because the server stops. */
    void (*shut_down)(pTHX_ px_exchange *exchange);
    px_app_state (*app_state)(const px_exchange *exchange);
    /* Whether a live exchange waits for its client, and not for its application. */
    bool (*is_parked)(const px_exchange *exchange);
    /* Whether a live exchange has no complete response yet; NULL: this face hands none over. */
    bool (*is_unanswered)(const px_exchange *exchange);

    /* Fails an async sub of the application that a lost exception has left behind (px_await_stalled), so that
     * the application ends as by any exception; `exception` is the error that replaced the lost one. False:
     * there is no such sub. */
    bool (*fail_stalled)(pTHX_ px_exchange *exchange, SV *awaited, SV *exception);

    /* Makes the handles of a new exchange (zeros but for worker and mount), which serve one request after the
     * other. */
    void (*make)(pTHX_ px_exchange *exchange);
    /* Drops the data of a request that is over. */
    void (*clear)(pTHX_ px_exchange *exchange);
    /* Whether the application has kept no handle, so that the handles can serve another request unnoticed. */
    bool (*is_reusable)(const px_exchange *exchange);
    /* Gives up the handles, of which the application may keep some. */
    void (*let_go)(pTHX_ px_exchange *exchange);
};

/* coder.c */
typedef struct px_coder px_coder;
typedef struct px_coding px_coding;
px_coder *px_coder_new(const char *name);
void px_coder_free(px_coder *coder);
SV *px_coder_code(pTHX_ px_coder *coder, const char *bytes, STRLEN len, bool last);

/* files.c */
SV *px_look_up_file(pTHX_ HV *hash);

/* worker.c */
px_worker *px_worker_new(pTHX_ const peregrine_config *config);
px_worker *px_worker_join(pTHX_ int join_socket, int timeout_ms, bool handed);
void px_worker_release(pTHX_ px_worker *worker);
void px_worker_stop(pTHX_ px_worker *worker);
void px_worker_limits(px_worker *worker);
SV *px_setting(pTHX_ HV *settings, const char *name);
int px_worker_route(pTHX_ px_worker *worker, HV *settings, uint32_t flags);
void px_worker_folder(pTHX_ px_worker *worker, HV *settings);
void px_worker_attach(pTHX_ px_worker *worker, int route, const px_face *face, void *application,
                      HV *settings);
void px_worker_dispatch(pTHX_ px_worker *worker);
bool px_worker_wait(pTHX_ px_worker *worker, int timeout_ms);
int px_worker_host_loop(px_worker *worker, int fd);
void px_worker_in_loop(pTHX_ px_worker *worker, bool works);
void px_worker_drain(pTHX_ px_worker *worker);
void px_worker_retire(pTHX_ px_worker *worker);
void px_worker_end_streams(pTHX_ px_worker *worker);
void px_worker_app_ended(pTHX_ px_worker *worker);
void px_worker_applications(const px_worker *worker, int *busy, int *leaving);
int px_worker_trim(pTHX_ px_worker *worker);
int px_worker_fail_stalled(pTHX_ px_worker *worker, SV *exception);
bool px_worker_left_behind(pTHX_ px_worker *worker, SV *exception);
void px_worker_queued(pTHX_ px_worker *worker);
void px_worker_wake(px_worker *worker);
void px_worker_leave_loop(pTHX_ px_worker *worker);
void px_worker_tell(pTHX_ px_worker *worker, const char *method, SV *first, SV *second);

/* loop.c */
bool px_loop_turns(pTHX_ px_worker *worker, HV *loop);

/* trace.c */
void px_trace_write(const px_exchange *exchange, uint32_t kind, uint64_t size, uint32_t code,
                    const char *text, STRLEN len);

/* Whether a reader wants records of what happens to exchanges. */
static inline bool px_is_traced(const px_exchange *exchange) {
    return UNLIKELY(*(const volatile uint64_t *)exchange->worker->trace_wanted != 0);
}

/* Records a step of an exchange's application, if a reader wants that; `text`: a string literal. */
#define px_trace(exchange, kind, size, code, text) \
    (px_is_traced(exchange) ? px_trace_write((exchange), (kind), (size), (code), text, sizeof(text) - 1) \
                            : (void)0)

/* turn.c */
/* Events that an exchange may send in a dispatch before it has to wait for the next dispatch. Bytes have a
 * limit of their own: the exchange waits for bytes that the kernel does not take at once. */
#define PX_TURN_EVENTS 64
void px_turn_wait(pTHX_ px_exchange *exchange);
SV *px_turn_next(pTHX_ px_exchange *exchange);
void px_turn_begin(pTHX_ px_worker *worker);
void px_turn_end(px_worker *worker);

/* Tells an engine that counts that the application is about to be called for a request, which has waited
 * until now. */
static inline void px_exchange_taken(const px_exchange *exchange) {
    const px_worker *worker = exchange->worker;
    if (worker->words && worker->engine) peregrine_take(worker->engine, exchange->ticket);
}

/* Counts an event that an exchange sends; true: it has sent enough in this turn. */
static inline bool px_turn_spend(px_exchange *exchange) {
    const px_worker *worker = exchange->worker;
    if (exchange->turn != worker->turn) {
        exchange->turn = worker->turn;
        exchange->spent = 0;
    }
    return ++exchange->spent > PX_TURN_EVENTS;
}

/* clone.c */
void px_clone_forget_skipped(pTHX);

/* fork.c */
bool px_is_foreign(const px_worker *worker);
void px_foreign(pTHX_ const px_worker *worker, const char *what) __attribute__noreturn__;
void px_came_back(pTHX_ SV *failure) __attribute__noreturn__;
void px_leave(pTHX_ int status) __attribute__noreturn__;

/* children.c */
bool px_has_handler(pTHX_ int number);
void px_children_watch(pTHX);
bool px_children_settle(bool on);
void px_children_of_clone(void);
bool px_children_is_clone(void);

/* ops.c */
/* Another function for one kind of op, and the place for the function before. */
typedef struct px_op_change {
    OPCODE type;
    Perl_ppaddr_t now;
    Perl_ppaddr_t *before;
} px_op_change;
void px_ops_replace(pTHX_ const px_op_change *changes, size_t count);

/* exits.c */
px_op_change px_exits_change(void);
const char *px_exit_place(void);

/* words.c */
px_words *px_words_new(pTHX_ size_t count);
px_words *px_words_share(px_words *words);
void px_words_free(pTHX_ px_words *words);
void px_words_leave(px_words *words);
uint64_t *px_words_at(pTHX_ px_words *words, size_t from, size_t count);

/* descriptors.c */
/* Descriptors that one message may carry; Linux allows 253. */
#define PX_DESCRIPTORS_MAX 250
SSize_t px_send_descriptors(int socket, const char *bytes, size_t len, const int *list, size_t count);
SSize_t px_receive_descriptors(int socket, char *bytes, size_t len, int *list, size_t *count, bool waits);
size_t px_unreceived_bytes(int socket);

/* busy.c */
uint64_t px_busy_now(void);
void px_busy_watch(pTHX_ px_worker *worker, SV *words, uint64_t *word);
void px_busy_forget(pTHX_ px_worker *worker);

/* tally.c */
extern const size_t px_tally_words;
void px_tally_use(pTHX_ px_worker *worker, SV *words, uint64_t *place);
void px_tally_forget(pTHX_ px_worker *worker);
void px_tally_note_asked(px_exchange *exchange);
void px_tally_note_answer(px_exchange *exchange, uint16_t status);
void px_tally_note_end(px_exchange *exchange);
void px_tally_note_stream(px_exchange *exchange);
void px_tally_note_unanswered(px_exchange *exchange);
void px_tally_note_left(px_exchange *exchange);
void px_tally_note_cut(const px_exchange *exchange);

/* Counts a response that the application, or the face in its place, has begun. */
static inline void px_note_answer(px_exchange *exchange, uint16_t status) {
    if (UNLIKELY(exchange->worker->tally != NULL)) px_tally_note_answer(exchange, status);
}

static inline bool px_owes_counted_answer(const px_exchange *exchange) {
    return UNLIKELY(exchange->worker->tally != NULL) && exchange->owes_answer;
}

/* Whether `reason`, why an exchange ended, is a timeout. Before the whole body is here the client may have
 * been silent, and not the application. */
static inline bool px_is_silence(uint32_t reason) {
    return reason == PEREGRINE_CLIENT_TIMEOUT || reason == PEREGRINE_IDLE_TIMEOUT;
}

/* Counts a request that the application has ended, by its return or silence, before an answer has begun. */
static inline void px_note_unanswered(px_exchange *exchange) {
    if (px_owes_counted_answer(exchange)) px_tally_note_unanswered(exchange);
}

/* Takes a request out of the count: another interpreter gets it, or its client has left. */
static inline void px_note_left(px_exchange *exchange) {
    if (px_owes_counted_answer(exchange)) px_tally_note_left(exchange);
}

/* Takes an event stream that has begun out of the count of responses under way. */
static inline void px_note_stream(px_exchange *exchange) {
    if (UNLIKELY(exchange->worker->tally != NULL) && exchange->owes_end) px_tally_note_stream(exchange);
}

/* Counts the end of a response that was counted. */
static inline void px_note_end(px_exchange *exchange) {
    if (UNLIKELY(exchange->worker->tally != NULL) && exchange->owes_end) px_tally_note_end(exchange);
}

/* Counts a failure of the application after the beginning of its response. */
static inline void px_note_cut(const px_exchange *exchange) {
    if (UNLIKELY(exchange->worker->tally != NULL)) px_tally_note_cut(exchange);
}

/* Notes when the application's next event begins, for a process that watches how long it takes. */
static inline void px_busy_begin(const px_worker *worker) {
    if (worker->busy) __atomic_store_n(worker->busy, px_busy_now(), __ATOMIC_RELAXED);
}

/* Notes that the event has ended. In a nested event loop the time of the outer event is counted from now. */
static inline void px_busy_end(const px_worker *worker) {
    const bool goes_on = worker->depth > 1 || worker->in_loop;
    if (worker->busy) __atomic_store_n(worker->busy, goes_on ? px_busy_now() : 0, __ATOMIC_RELAXED);
}

/* alarm.c */
void px_alarm_prepare(pTHX);
void px_alarm_begin(pTHX);
void px_alarm_end(void);
bool px_alarm_is_own(void);
NV px_alarm_set(NV seconds, NV interval);

/* own_signals.c */
void px_own_signals_prepare(pTHX);

/* stops.c */
int px_stops_watch(double seconds, const int *numbers, size_t count);
void px_stops_heard(void);
void px_stops_leave(void);

/* faults.c */
bool px_faults_survive(void (*read)(void *), void *argument);

/* stuck.c */
int px_stuck_signal(void);
int px_stuck_watch(pTHX_ px_worker *worker, const char *name);
int px_stuck_watch_thread(pTHX_ px_worker *worker, const char *name);
void px_stuck_forget(const px_worker *worker);
long px_stuck_thread(void);
int px_stuck_ask_thread(long thread);

/* Whether events about the exchange may still come. */
static inline bool px_exchange_is_live(const px_exchange *exchange) {
    return exchange->state != PX_TICKET_OVER;
}

/* Whether the engine has let the exchange go, and its application has not been told why. */
static inline bool px_exchange_is_lost(const px_exchange *exchange) {
    return exchange->state == PX_TICKET_LOST;
}

/* Whether the engine takes commands for the exchange, as far as is known. */
static inline bool px_exchange_is_open(const px_exchange *exchange) {
    return exchange->state == PX_TICKET_OPEN && exchange->worker->engine;
}

/* exchange.c */
void px_exchange_invariants(const px_exchange *exchange);
px_exchange *px_exchange_open(pTHX_ px_worker *worker, px_mount *mount, peregrine_ticket ticket);
void px_exchange_hold(px_exchange *exchange);
void px_exchange_note_parked(px_exchange *exchange);
void px_exchange_unhold(pTHX_ px_exchange *exchange);
bool px_exchange_pin(px_exchange *exchange);
void px_exchange_unpin(pTHX_ px_exchange *exchange, bool live);
void px_exchange_pack(pTHX_ px_exchange *exchange);
void px_exchange_forget_given(pTHX_ px_exchange *exchange);
SV *px_exchange_context(pTHX_ px_exchange *exchange, const char *text);
void px_exchange_tell(pTHX_ px_exchange *exchange, const char *method, SV *first, const char *text);
void px_exchange_ticket_gone(pTHX_ px_exchange *exchange);
void px_exchange_name(px_exchange *exchange);
void px_exchange_lost(px_exchange *exchange);
void px_exchange_free(pTHX_ px_exchange *exchange);
void px_exchange_discard(pTHX_ px_exchange *exchange);

/* packed.c */
px_packed *px_pack(pTHX_ HV *hash);
HV *px_unpack(pTHX_ const px_packed *packed);
void px_packed_free(pTHX_ px_packed *packed);
const char *px_packed_string(const px_packed *packed, const char *key, size_t *len);

/* bytes.c */
SV *px_bytes(pTHX_ const px_worker *worker, const peregrine_event *event);

/* loan.c */
void px_loan_collect(pTHX_ px_worker *worker);
void px_loan_end_all(pTHX_ px_worker *worker);
bool px_loan_is_of(const px_worker *worker, const SV *value);
int px_loan_write(pTHX_ px_exchange *exchange, SV *value, const char *bytes, size_t len, uint32_t flags);
int px_loan_message(pTHX_ px_exchange *exchange, SV *value, const char *bytes, size_t len, uint32_t flags);

/* Bytes at the beginning of a decoded path that say where the application of an exchange is mounted. */
static inline STRLEN px_prefix_len(const px_exchange *exchange) {
    const SV *prefix = exchange->mount->prefix;
    return prefix ? SvCUR(prefix) : 0;
}

/* The path at which clients see the application of an exchange, as bytes. */
static inline const char *px_root(const px_exchange *exchange, STRLEN *len) {
    const SV *root = exchange->mount->root;
    *len = SvCUR(root);
    return SvPVX_const(root);
}

/* handle.c */
CV *px_handle_function(pTHX_ px_exchange *exchange, XSUBADDR_t function);
SV *px_handle_object(pTHX_ px_exchange *exchange, HV *stash);
px_exchange *px_handle_exchange(pTHX_ SV *handle);
px_exchange *px_handle_exchange_here(pTHX_ SV *handle);
extern const MGVTBL px_handle_vtbl;
int px_handle_dup(pTHX_ MAGIC *mg, CLONE_PARAMS *params);

/* Whether only the bridge has a handle: it has so many `references`, no weak one, no magic of other code, and
 * still its class (NULL: the handle is a function that is still defined). */
static inline bool px_handle_is_only_ours(const SV *handle, const HV *stash, U32 references) {
    const MAGIC *mg = SvMAGIC(handle);
    return SvREFCNT(handle) == references && mg && mg->mg_virtual == &px_handle_vtbl && !mg->mg_moremagic &&
           (stash ? SvSTASH(handle) == stash : CvXSUB((const CV *)handle) != NULL);
}

/* tls.c */
peregrine_tls *px_tls_new(pTHX_ HV *hash);
void px_tls_reload(pTHX_ peregrine_tls *tls, HV *hash);
void px_tls_give(pTHX_ peregrine_tls *tls, SV **given, SSize_t count);
SV *px_tls_concern(pTHX_ peregrine_tls *tls, uint32_t number, int64_t now_s);

/* call.c */
bool px_thrown(pTHX_ SV *exception);
bool px_is_clear(const SV *error);
SV *px_call(pTHX_ SV *callee, const char *method, SV *first, SV *second, SV **error);

/* future.c */
typedef enum { PX_FUTURE_NONE, PX_FUTURE_PENDING, PX_FUTURE_DONE, PX_FUTURE_FAILED,
              PX_FUTURE_CANCELLED } px_future_state;
void px_future_boot(pTHX_ px_context *cx);
bool px_future_is_plain(const px_context *cx, const SV *object);
SV *px_future_done(pTHX_ px_worker *worker, SV *value);
SV *px_future_pending(pTHX_ px_worker *worker);
SV *px_future_failed(pTHX_ px_worker *worker, SV *message);
void px_future_wait(pTHX_ px_context *cx, SV *future);
void px_future_fail_all(pTHX_ px_exchange *exchange, AV **futures, const char *message);
SV *px_future_invalid(pTHX_ px_worker *worker, const char *format, ...);
px_future_state px_future_look(pTHX_ px_context *cx, SV *future, SV **failure);
void px_future_resolve(pTHX_ px_exchange *exchange, SV *future, SV *value);
void px_future_resolve_all(pTHX_ px_exchange *exchange, AV **futures);
int px_future_plain_ready(pTHX_ SV *future);
AV *px_future_plain_result(pTHX_ SV *future);
bool px_future_is_base_class(pTHX_ SV *class);
SV *px_future_base_done(pTHX_ px_context *cx, SSize_t first, SSize_t count);
void px_future_push(pTHX_ AV *values, U8 context);
void px_future_forget(pTHX_ px_done *done);
void px_future_abandon(pTHX_ const px_context *cx, SV *future);
SV *px_future_new_done(pTHX_ px_context *cx, HV *stash, AV *result);

/* await_op.c */
void px_await_op_install(pTHX);
void px_await_op_asks(pTHX_ SV *future);
void px_await_op_gets(pTHX);
void px_await_op_clone(pTHX_ px_context *cx, const px_await_ops *before);

/* await.c */
bool px_await_on_ready(pTHX_ SV *future, SV *code);
bool px_await_chain_cancel(pTHX_ SV *future, SV *awaited);
int px_await_is_cancelled(pTHX_ SV *object);
SV *px_await_stalled(pTHX_ SV *future, SV *awaited);
bool px_await_resolve(pTHX_ SV *future, SV *value, SV **error);
bool px_await_done(pTHX_ SV *future, SSize_t first, SSize_t count);
SV *px_await_clone(pTHX_ SV *future);

/* Whether the bytes are `text`, which is in lower case; the case of ASCII letters does not matter. foldEQ
 * wants an interpreter since Perl 5.38, and strncasecmp depends on the locale. */
static inline bool px_is_text(const char *bytes, size_t len, const char *text) {
    if (len != strlen(text)) return false;
    for (size_t i = 0; i < len; i++)
        if (toLOWER_A(bytes[i]) != text[i]) return false;
    return true;
}

/* plain.c */
typedef SV *(*px_copy_function)(pTHX_ SV *value);
typedef struct px_plain_field {
    SV *key;
    px_copy_function copy; /* a copying function, one of the four below */
} px_plain_field;
HV *px_plain_hash(SV *value);
const char *px_plain_bytes(pTHX_ SV *value, STRLEN *len);

/* Whether a value can be read without running Perl code. Called for all values that applications send, so
 * that most are found plain by one look at their flags. */
static inline bool px_is_plain(const SV *value) {
    if (!value || !(SvFLAGS(value) & (SVs_GMG | SVf_ROK))) return true;
    return !SvGMAGICAL(value) && !SvAMAGIC(value);
}

SV *px_plain_copy(pTHX_ SV *value, const px_plain_field *fields, size_t count);
SV *px_plain_string(pTHX_ SV *value);
SV *px_plain_flag(pTHX_ SV *value);
SV *px_plain_headers(pTHX_ SV *value);
SV *px_plain_handle(pTHX_ SV *value);

#endif
