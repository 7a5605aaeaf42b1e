/* peregrine_xs.h - what the C files of the Perl bridge share: names, structs and prototypes.
 *
 * The bridge converts between engine events and Perl values and decides as little as it can. Rules that keep it safe:
 *   - Perl code runs only when no engine call is on the stack; every call into Perl is guarded (G_EVAL), so a `die` never unwinds us;
 *   - an engine event is copied into Perl values before any Perl code runs, and never looked at afterwards: a nested event loop may
 *     have polled meanwhile;
 *   - nothing is static but constants: what an interpreter needs lives in px_context, found by MY_CXT. */
#ifndef PEREGRINE_XS_H
#define PEREGRINE_XS_H

#ifndef PERL_NO_GET_CONTEXT
#define PERL_NO_GET_CONTEXT
#endif
#include "EXTERN.h"
#include "perl.h"
#include "XSUB.h"

#include "peregrine.h"

/* ---- Names -------------------------------------------------------------------------------------------------------------------- */

/* Hash keys and constant strings, made once per interpreter as shared scalars with their hash computed. */
#define PX_KEYS(X)                                                                                                                     \
    X(TYPE, "type")                                                                                                                    \
    X(PAGI, "pagi")                                                                                                                    \
    X(VERSION, "version")                                                                                                              \
    X(SPEC_VERSION, "spec_version")                                                                                                    \
    X(HTTP_VERSION, "http_version")                                                                                                    \
    X(METHOD, "method")                                                                                                                \
    X(SCHEME, "scheme")                                                                                                                \
    X(PATH, "path")                                                                                                                    \
    X(RAW_PATH, "raw_path")                                                                                                            \
    X(QUERY_STRING, "query_string")                                                                                                    \
    X(ROOT_PATH, "root_path")                                                                                                          \
    X(HEADERS, "headers")                                                                                                              \
    X(CLIENT, "client")                                                                                                                \
    X(SERVER, "server")                                                                                                                \
    X(STATE, "state")                                                                                                                  \
    X(EXTENSIONS, "extensions")                                                                                                        \
    X(CONNECTION, "pagi.connection")                                                                                                   \
    X(TRANSPORT, "pagi.transport")                                                                                                     \
    X(STATUS, "status")                                                                                                                \
    X(TRAILERS, "trailers")                                                                                                            \
    X(BODY, "body")                                                                                                                    \
    X(MORE, "more")                                                                                                                    \
    X(FILE, "file")                                                                                                                    \
    X(FH, "fh")                                                                                                                        \
    X(OFFSET, "offset")                                                                                                                \
    X(LENGTH, "length")                                                                                                                \
    X(FULLFLUSH, "fullflush")                                                                                                          \
    X(READY, "ready")                                                                                                                  \
    X(RESULT, "result")                                                                                                                \
    X(FAILURE, "failure")                                                                                                              \
    X(CALLBACKS, "callbacks")                                                                                                          \
    X(ON_CANCEL, "on_cancel")                                                                                                          \
    X(SUBS, "subs")                                                                                                                    \
    X(CANCELLED, "cancelled")                                                                                                          \
    X(HTTP, "http")                                                                                                                    \
    X(HTTPS, "https")                                                                                                                  \
    X(HTTP_1_0, "1.0")                                                                                                                 \
    X(HTTP_1_1, "1.1")                                                                                                                 \
    X(HTTP_2, "2")                                                                                                                     \
    X(PAGI_VERSION, "0.3")                                                                                                             \
    X(HTTP_REQUEST, "http.request")                                                                                                    \
    X(HTTP_DISCONNECT, "http.disconnect")                                                                                              \
    X(SSE, "sse")                                                                                                                      \
    X(SSE_REQUEST, "sse.request")                                                                                                      \
    X(SSE_DISCONNECT, "sse.disconnect")                                                                                                \
    X(REASON, "reason")                                                                                                                \
    X(EVENT, "event")                                                                                                                  \
    X(DATA, "data")                                                                                                                    \
    X(ID, "id")                                                                                                                        \
    X(RETRY, "retry")                                                                                                                  \
    X(COMMENT, "comment")                                                                                                              \
    X(INTERVAL, "interval")                                                                                                            \
    X(EMPTY, "")                                                                                                                       \
    X(TLS, "tls")                                                                                                                      \
    X(SERVER_CERT, "server_cert")                                                                                                      \
    X(CLIENT_CERT_CHAIN, "client_cert_chain")                                                                                          \
    X(CLIENT_CERT_NAME, "client_cert_name")                                                                                            \
    X(CLIENT_CERT_ERROR, "client_cert_error")                                                                                          \
    X(TLS_VERSION, "tls_version")                                                                                                      \
    X(CIPHER_SUITE, "cipher_suite")                                                                                                    \
    X(COOKIE, "cookie")                                                                                                                \
    X(WEBSOCKET, "websocket")                                                                                                          \
    X(WS, "ws")                                                                                                                        \
    X(WSS, "wss")                                                                                                                      \
    X(SUBPROTOCOL, "subprotocol")                                                                                                      \
    X(SUBPROTOCOLS, "subprotocols")                                                                                                    \
    X(WEBSOCKET_HTTP_RESPONSE, "websocket.http.response")                                                                              \
    X(WEBSOCKET_CONNECT, "websocket.connect")                                                                                          \
    X(WEBSOCKET_RECEIVE, "websocket.receive")                                                                                          \
    X(WEBSOCKET_DISCONNECT, "websocket.disconnect")                                                                                    \
    X(TEXT, "text")                                                                                                                    \
    X(BYTES, "bytes")                                                                                                                  \
    X(CODE, "code")                                                                                                                    \
    X(TIMEOUT, "timeout")

#define PX_KEY_ENUM(name, text) PX_KEY_##name,
enum px_key { PX_KEYS(PX_KEY_ENUM) PX_KEY_COUNT };
#undef PX_KEY_ENUM

/* Ids of header names and methods that the engine numbers; larger ids are spelled out each time. */
#define PX_HEADER_IDS 256
#define PX_METHOD_IDS 64

/* An empty, resolved Future and its list of results, kept for the next one who needs such a Future. */
typedef struct px_done {
    HV *future;
    AV *result;
} px_done;

/* What one interpreter needs. */
typedef struct px_context {
    SV *keys[PX_KEY_COUNT];
    SV *header_names[PX_HEADER_IDS]; /* lower-case names, learned from the first request that brings one */
    SV *method_names[PX_METHOD_IDS];
    HV *connection_stash;
    HV *transport_stash;
    HV *future_stash;   /* Future */
    HV *loop_future_stash; /* IO::Async::Future */
    HV *own_future_stash;  /* PAGI::Server::Future */
    px_done done;          /* of class Future: what an `async sub` without a result returns */
    px_done own_done;      /* of class PAGI::Server::Future: what $send returns when there is nothing to wait for */
    SV *own_done_loop;     /* the loop of own_done; compared, never looked into */
    HV *no_data;        /* what an extension is mapped to that has no data */
    SV *loop_key;       /* the key under which IO::Async::Future keeps its loop; NULL: futures are not plain hashes that we know */
} px_context;

#define PX_KEY(cx, name) ((cx)->keys[PX_KEY_##name])

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

/* A copy of a shared scalar that shares its string. */
static inline SV *px_copy(pTHX_ SV *shared) {
    return newSVhek(SvSHARED_HEK_FROM_PV(SvPVX_const(shared)));
}

/* ---- Worker and exchange ------------------------------------------------------------------------------------------------------ */

typedef struct px_worker px_worker;
typedef struct px_exchange px_exchange;

/* One event that an application may $send. Returns a new reference to a Future. */
typedef struct px_send_event {
    const char *type;
    STRLEN type_len;
    SV *(*send)(pTHX_ px_exchange *exchange, HV *event);
} px_send_event;

#define PX_SEND(text, function) {text, sizeof(text) - 1, function}

/* A type of scope: how it reads, which events it sends, what its application's end means. */
typedef struct px_kind {
    const char *name;
    enum px_key type, scheme, secure_scheme; /* of its scopes */
    bool has_method, has_connection;         /* whether its scopes have `method` and `pagi.connection` */
    bool keeps_scope;                        /* its scopes serve again */
    void (*extend)(pTHX_ px_exchange *exchange, const peregrine_request *request); /* more keys for its scopes, or NULL */
    const px_send_event *sends; /* ends with a NULL type */
    SV *(*next)(pTHX_ px_exchange *exchange);  /* the next event for $receive, a new reference; NULL: there is none yet */
    void (*want)(pTHX_ px_exchange *exchange); /* somebody waits and there is none; may be NULL */
    void (*body)(pTHX_ px_exchange *exchange, const peregrine_event *event); /* BODY, MESSAGE: what the peer sent */
    void (*closed)(pTHX_ px_exchange *exchange, const peregrine_event *event); /* CLOSED */
    void (*returned)(pTHX_ px_exchange *exchange, SV *failure); /* the application is done; failure: its exception, or NULL */
    /* For request.c: the type of events with the request's body, and the event after which there is none (NULL: not yet). */
    enum px_key request_event;
    SV *(*last_event)(pTHX_ px_exchange *exchange);
    void (*shut_down)(pTHX_ px_exchange *exchange);   /* the server stops; NULL: the exchange may go on to its end */
} px_kind;

extern const px_kind px_http_kind;
extern const px_kind px_websocket_kind;
extern const px_kind px_sse_kind;

/* The fields of a `tls` extension. */
enum px_tls_field {
    PX_TLS_SERVER_CERT,
    PX_TLS_CLIENT_CERT_CHAIN,
    PX_TLS_CLIENT_CERT_NAME,
    PX_TLS_CLIENT_CERT_ERROR,
    PX_TLS_VERSION,
    PX_TLS_CIPHER_SUITE,
    PX_TLS_FIELDS
};

/* What requests without a client certificate have in common, made once. */
typedef struct px_tls_common {
    UV serial;          /* 0: not made yet */
    SV *server_cert;    /* a shared string, or NULL */
    const char *source; /* where the engine had it */
    uint16_t version, cipher_suite;
} px_tls_common;

/* As many kinds of connections as a server usually has: versions by cipher suites. */
#define PX_TLS_COMMON_MAX 4

/* The hash that a scope shows, kept for the next request: with the scalars under its keys, each with a reference of ours. */
typedef struct px_tls_kept {
    HV *hash; /* NULL: none */
    SV *values[PX_TLS_FIELDS];
    UV fingerprint;
    UV serial; /* of what it was made of; 0: of a client certificate */
} px_tls_kept;

struct px_worker {
    peregrine_worker *engine; /* NULL after px_worker_stop() */
    px_context *cx;
    Pid_t pid;      /* whose it is */
    uint32_t forks; /* peregrine_forks() there */
    bool left_loop; /* in a child: the server was told to leave the event loop */
    int refs; /* the Perl object, and each exchange that is not in the pool */
    /* The cursor over the current batch lives here, so that a nested event loop goes on where the outer one stands. */
    const peregrine_event *batch; /* the next event */
    int batch_left;
    int depth;  /* dispatch calls on the stack */
    bool woken; /* the engine's descriptor has been made readable since the last poll */
    SV *app;
    /* The Perl object that is told of what C does not decide. No reference is held: it closes the worker before it goes. (A weak
     * reference that only C knows would not survive the cloning of the interpreter for a new thread.) */
    SV *server;
    HV *state;      /* lifespan state, or NULL */
    HV *extensions; /* advertised, or NULL */
    SV *check;      /* function that says what is wrong with an event, or NULL: no check beyond what is needed */
    SV *error_page; /* function that makes the page about an application's end without a response, or NULL: a plain 500 */
    SV *loop;       /* for our Futures */
    bool reads_files; /* and sends what it read, in place of sendfile(2) */
    px_tls_common tls[PX_TLS_COMMON_MAX];
    UV tls_serial;
    size_t high_water, low_water;
    size_t queue_messages_max, queue_bytes_max; /* of one WebSocket; see config.zig */
    uint32_t stream_idle_ms;
    bool stopping; /* peregrine_drain() has been called */
    bool drained;  /* its last connection is gone */
    int lost;      /* live exchanges that are gone and were never named */
    px_exchange *live;
    px_exchange *pool;
    px_exchange *freed; /* those that events of the batch may still name */
    int pool_count;
};

/* The values of a scope: first the strings, then what has parts. */
enum px_slot {
    PX_SLOT_TYPE,
    PX_SLOT_HTTP_VERSION,
    PX_SLOT_METHOD,
    PX_SLOT_SCHEME,
    PX_SLOT_PATH,
    PX_SLOT_RAW_PATH,
    PX_SLOT_QUERY_STRING,
    PX_SLOT_ROOT_PATH,
    PX_SLOT_STRINGS,
    PX_SLOT_PAGI = PX_SLOT_STRINGS,
    PX_SLOT_HEADERS,
    PX_SLOT_CLIENT,
    PX_SLOT_SERVER,
    PX_SLOT_STATE,
    PX_SLOT_EXTENSIONS,
    PX_SLOT_CONNECTION,
    PX_SLOT_TRANSPORT,
    PX_SLOT_COUNT
};

/* A scope hash and the scalars under its keys, each with a reference of ours (NULL: the key is not there). */
typedef struct px_scope {
    HV *hash; /* NULL: none */
    bool secure;     /* it shows the tls extension */
    px_tls_kept tls; /* what it shows there */
    UV fingerprint;
    SV *slots[PX_SLOT_COUNT];
} px_scope;

typedef enum { PX_REQUEST_MORE, PX_REQUEST_LAST, PX_REQUEST_DELIVERED } px_request_state;
typedef enum { PX_RESPONSE_NONE, PX_RESPONSE_STARTED, PX_RESPONSE_TRAILERS_DUE, PX_RESPONSE_COMPLETE } px_response_state;

/* How a request ended for its application. */
typedef enum {
    PX_END_OPEN,
    PX_END_COMPLETED,    /* its response was delivered */
    PX_END_HALF_CLOSED,  /* the peer sends no more: disconnected for the application, but the peer may read, so what is sent goes out */
    PX_END_DISCONNECTED, /* and nothing goes out any more */
} px_end_state;

typedef enum {
    PX_SOCKET_CONNECTING, /* the handshake is not answered */
    PX_SOCKET_DENYING,    /* it is being answered with an HTTP response */
    PX_SOCKET_OPEN,
    PX_SOCKET_CLOSING /* from this side; the engine tells when it is over */
} px_socket_state;

/* What an exchange of the websocket kind has besides. */
typedef struct px_socket {
    px_socket_state state;
    bool connect_told; /* websocket.connect was given */
    bool paused;       /* the peer is not read */
    uint16_t close_code; /* how it ended; 0: not known, or not yet */
    uint32_t ping_ms, pong_ms; /* of a websocket.keepalive that came before websocket.accept; 0: none */
    SV *close_reason;
    AV *offered; /* subprotocols, until the handshake is answered; NULL: none */
    AV *queue;   /* messages that the application has not asked for; NULL: none */
    size_t queued_bytes;
} px_socket;

/* What an exchange of the sse kind has besides. */
typedef struct px_stream {
    enum { PX_STREAM_UNDECIDED, PX_STREAM_CHOSEN, PX_STREAM_DECLINED } answer; /* with a stream, or with an ordinary response */
    SV *comment;      /* of an sse.keepalive that came before sse.start, as it goes out, or NULL */
    uint32_t comment_ms;
    SV *close_reason; /* what the application gave as the reason for closing, or NULL */
} px_stream;

/* One request and its response, seen from Perl. It is held by the engine's ticket, by the application while that runs, and by each
 * Perl-side handle (`handles`): $receive, $send, pagi.connection, pagi.transport and the callback on the application's Future. */
struct px_exchange {
    px_worker *worker;
    const px_kind *kind;
    peregrine_ticket ticket;
    px_exchange *next, *previous;
    int holds;   /* ticket, application and C frames that need it */
    int handles; /* Perl values that point here */
    bool ticket_live;
    bool named;        /* the engine's events about the ticket bring our pointer along */
    bool gone;         /* the engine has said that the ticket is gone; the event that tells why will still come */
    bool app_running;
    bool reading;      /* a peregrine_read() is unanswered */
    bool trailers_due; /* the response promised trailers */
    bool head_only;    /* the method is HEAD: no content is sent */
    bool late_told;    /* the log has it that an event came after the response was complete */
    bool app_closed;   /* by websocket.close or sse.close, while the peer was there: to send after that is a mistake */
    bool above;        /* queued output reached the high-water mark */
    bool let_go;       /* a $receive was cancelled because nothing will come: an `await` of it dies, which is nobody's error */
    px_request_state request;
    px_response_state response;
    px_end_state end;
    uint32_t reason;
    px_socket socket; /* of the websocket kind */
    px_stream stream; /* of the sse kind */
    px_scope scope; /* of the request that is on, or of a finished one for the next */
    CV *receive, *send, *app_ready; /* ours until the exchange is let go */
    SV *connection; /* likewise; NULL until a scope has it */
    SV *transport;
    SV *body;       /* body bytes that nobody has asked for yet, or NULL */
    AV *trailers;   /* request trailers, or NULL */
    SV *receiver;   /* the pending Future of $receive that has waited longest (the object itself), or NULL */
    AV *receivers;  /* the others, oldest first, or NULL */
    AV *senders;    /* pending Futures of $send, or NULL */
    AV *flushers;   /* those of http.fullflush, or NULL */
    AV *feeders;    /* those of who reads a body to send it: resolved when nothing goes out any more; or NULL */
    SV *app_future; /* the application's pending Future, or NULL */
    HV *app_scope;  /* what the application was called with, until it is done */
    uint32_t connection_number, request_number; /* for messages */
    SV *disconnect_future;
    AV *on_disconnect, *on_complete, *on_high_water, *on_drain;
};

/* Whether the application has been told that its peer is gone. */
static inline bool px_exchange_is_left(const px_exchange *exchange) {
    return exchange->end == PX_END_HALF_CLOSED || exchange->end == PX_END_DISCONNECTED;
}

/* Whether what the application sends goes out. */
static inline bool px_exchange_delivers(const px_exchange *exchange) {
    return exchange->end == PX_END_OPEN || exchange->end == PX_END_HALF_CLOSED;
}

/* worker.c */
px_worker *px_worker_new(pTHX_ const peregrine_config *config);
void px_worker_release(pTHX_ px_worker *worker);
void px_worker_stop(pTHX_ px_worker *worker);
void px_worker_limits(px_worker *worker);
void px_worker_attach(pTHX_ px_worker *worker, HV *settings);
void px_worker_dispatch(pTHX_ px_worker *worker);
void px_worker_drain(pTHX_ px_worker *worker);
void px_worker_app_ended(pTHX_ px_worker *worker);
void px_worker_applications(const px_worker *worker, int *busy, int *leaving);
int px_worker_trim(pTHX_ px_worker *worker);
int px_worker_fail_stalled(pTHX_ px_worker *worker, SV *exception);
void px_worker_queued(pTHX_ px_worker *worker);
void px_worker_wake(px_worker *worker);
void px_worker_leave_loop(pTHX_ px_worker *worker);
void px_worker_tell(pTHX_ px_worker *worker, const char *method, SV *first, SV *second);

/* fork.c */
bool px_is_foreign(const px_worker *worker);
void px_foreign(pTHX_ const px_worker *worker, const char *what) __attribute__noreturn__;
void px_came_back(pTHX_ SV *failure) __attribute__noreturn__;

/* exchange.c */
px_exchange *px_exchange_open(pTHX_ px_worker *worker, const px_kind *kind, peregrine_ticket ticket);
SV *px_exchange_connection(pTHX_ px_exchange *exchange);
void px_exchange_hold(px_exchange *exchange);
void px_exchange_unhold(pTHX_ px_exchange *exchange);
bool px_exchange_pin(px_exchange *exchange);
void px_exchange_unpin(pTHX_ px_exchange *exchange, bool live);
void px_exchange_call_app(pTHX_ px_exchange *exchange, HV *scope);
SV *px_exchange_context(pTHX_ px_exchange *exchange, const char *text);
void px_exchange_tell(pTHX_ px_exchange *exchange, const char *method, SV *first, const char *text);
void px_exchange_app_ready(pTHX_ CV *function, SV *future);
bool px_exchange_fail_stalled(pTHX_ px_exchange *exchange, SV *awaited, SV *exception);
void px_exchange_ticket_gone(pTHX_ px_exchange *exchange);
void px_exchange_name(px_exchange *exchange);
void px_exchange_lost(px_exchange *exchange);
void px_exchange_disconnect(pTHX_ px_exchange *exchange, uint32_t reason);
void px_exchange_half_closed(pTHX_ px_exchange *exchange);
void px_exchange_complete(pTHX_ px_exchange *exchange);
void px_exchange_free(pTHX_ px_exchange *exchange);
void px_exchange_discard(pTHX_ px_exchange *exchange);
px_exchange *px_exchange_of_cv(pTHX_ CV *cv);
SV *px_exchange_send(pTHX_ px_exchange *exchange, SV *event);

/* scope.c */
HV *px_scope_build(pTHX_ px_exchange *exchange, const peregrine_request *request);
void px_scope_fill(pTHX_ px_exchange *exchange, const peregrine_request *request);
AV *px_scope_headers(pTHX_ px_context *cx, const peregrine_request *request, bool lasting);
AV *px_scope_trailers(pTHX_ px_context *cx, const peregrine_request *request);
HV *px_scope_extensions(pTHX_ px_exchange *exchange, const peregrine_request *request);
AV *px_scope_pair(pTHX_ SV *first, SV *second);
SV *px_scope_known_name(pTHX_ px_context *cx, const char *text, const peregrine_field_span *field);
void px_scope_refer_to(pTHX_ SV *reference, SV *container);
void px_scope_set_bytes(pTHX_ SV *sv, const char *bytes, STRLEN len);
void px_scope_set_constant(pTHX_ SV *sv, SV *shared);
void px_scope_set_path(pTHX_ SV *path, const char *raw, STRLEN len);

/* reuse.c */
bool px_tls_untouched(pTHX_ const px_exchange *exchange);
UV px_fingerprint(HV *hash);
void px_scope_seal(px_scope *scope);
void px_scope_settle(pTHX_ px_exchange *exchange, bool finished);
void px_scope_drop(pTHX_ px_scope *scope);
bool px_scope_refresh(pTHX_ px_exchange *exchange, const peregrine_request *request);

/* tls.c */
peregrine_tls *px_tls_new(pTHX_ HV *hash);
void px_tls_reload(pTHX_ peregrine_tls *tls, HV *hash);
SV *px_tls_concern(pTHX_ peregrine_tls *tls, uint32_t number, int64_t now_s);
void px_tls_extend(pTHX_ px_exchange *exchange, HV *extensions);
void px_tls_drop(pTHX_ px_tls_kept *kept);
void px_tls_forget(pTHX_ px_worker *worker);

/* call.c */
bool px_thrown(pTHX_ SV *exception);
SV *px_call(pTHX_ SV *callee, const char *method, SV *first, SV *second, SV **error);

/* future.c */
typedef enum { PX_FUTURE_NONE, PX_FUTURE_PENDING, PX_FUTURE_DONE, PX_FUTURE_FAILED, PX_FUTURE_CANCELLED } px_future_state;
void px_future_boot(pTHX_ px_context *cx);
bool px_future_is_plain(const px_context *cx, const SV *object);
SV *px_future_done(pTHX_ px_worker *worker, SV *value);
SV *px_future_pending(pTHX_ px_worker *worker);
SV *px_future_failed(pTHX_ px_worker *worker, SV *message);
void px_future_fail_all(pTHX_ px_exchange *exchange, AV **futures, const char *message);
SV *px_future_invalid(pTHX_ px_worker *worker, const char *format, ...);
px_future_state px_future_look(pTHX_ px_context *cx, SV *future, SV **failure);
void px_future_resolve(pTHX_ px_exchange *exchange, SV *future, SV *value);
void px_future_resolve_all(pTHX_ px_exchange *exchange, AV **futures);
int px_future_plain_ready(pTHX_ SV *future);
AV *px_future_plain_result(pTHX_ SV *future);
bool px_future_is_base_class(pTHX_ SV *class);
SV *px_future_base_done(pTHX_ px_context *cx);
void px_future_forget(pTHX_ px_done *done);
void px_future_abandon(pTHX_ const px_context *cx, SV *future);
SV *px_future_new_done(pTHX_ px_context *cx, HV *stash, AV *result);

/* await.c */
bool px_await_on_ready(pTHX_ SV *future, SV *code);
bool px_await_chain_cancel(pTHX_ SV *future, SV *awaited);
int px_await_is_cancelled(pTHX_ SV *future);
SV *px_await_stalled(pTHX_ SV *future, SV *awaited);
bool px_await_resolve(pTHX_ SV *future, SV *value, SV **error);

/* connection.c */
void px_connection_disconnected(pTHX_ px_exchange *exchange);
void px_connection_completed(pTHX_ px_exchange *exchange);
void px_transport_high(pTHX_ px_exchange *exchange);
void px_transport_drained(pTHX_ px_exchange *exchange);
void px_connection_subscribe(pTHX_ px_exchange *exchange, AV **list, SV *callback, bool now, bool keep, SV *argument);
SV *px_connection_reason(pTHX_ const px_exchange *exchange);
SV *px_connection_disconnect_future(pTHX_ px_exchange *exchange);
SV *px_connection_gone_future(pTHX_ px_exchange *exchange);
px_exchange *px_exchange_of_object(pTHX_ SV *object);

/* plain.c */
HV *px_plain_event(pTHX_ px_worker *worker, SV *event, SV **failed);
SV *px_plain_copy(pTHX_ SV *event);

/* event.c */
#define PX_FIELDS_ON_STACK 32
#define PX_FIELDS_SPARE 2 /* more that always find room in a list */
typedef struct px_fields {
    peregrine_field *list;
    size_t count;
    AV *given; /* where they come from, valid until Perl code runs; NULL: from nowhere */
    peregrine_field local[PX_FIELDS_ON_STACK];
} px_fields;
const char *px_event_bytes(pTHX_ SV *value, const char **bytes, size_t *len);
SV *px_event_fields(pTHX_ px_worker *worker, const char *type, SV *headers, px_fields *fields);
SV *px_event_shown(pTHX_ SV *value);
SV *px_event_flag(pTHX_ px_worker *worker, const char *type, SV *key, SV *value, bool *flag);
SV *px_event_integer(pTHX_ px_worker *worker, const char *type, HV *event, SV *key, IV max, IV *number, bool *found);
SV *px_event_status(pTHX_ px_worker *worker, const char *type, HV *event, IV *status, bool *found);
const char *px_event_text(pTHX_ SV *value, const char **bytes, size_t *len);
#define PX_SECONDS_MAX 1000000 /* intervals that fit into the engine's milliseconds */
SV *px_event_number(pTHX_ px_worker *worker, const char *type, HV *event, SV *key, IV max, NV *number, bool *found);
SV *px_event_outcome(pTHX_ px_exchange *exchange, const char *type, int code);
SV *px_event_field_outcome(pTHX_ px_exchange *exchange, const char *type, int code, const px_fields *fields);

/* receive.c */
SV *px_receive(pTHX_ px_exchange *exchange);
bool px_receive_waits(pTHX_ px_exchange *exchange);
bool px_receive_give(pTHX_ px_exchange *exchange, SV *event);
void px_receive_serve(pTHX_ px_exchange *exchange);
void px_receive_cancel(pTHX_ px_exchange *exchange);

/* response.c */
SV *px_response_start(pTHX_ px_exchange *exchange, const char *type, HV *event, bool instead);
SV *px_response_body(pTHX_ px_exchange *exchange, const char *type, HV *event, bool files);
SV *px_response_trailers(pTHX_ px_exchange *exchange, HV *event);
void px_response_cut(pTHX_ px_exchange *exchange);
SV *px_response_flush(pTHX_ px_exchange *exchange, HV *event);
void px_response_returned(pTHX_ px_exchange *exchange, SV *failure);

/* refusal.c */
void px_response_refuse(pTHX_ px_exchange *exchange, uint16_t status, const char *text, uint32_t reason);
void px_response_backstop(pTHX_ px_exchange *exchange, SV *failure, const char *stage);

/* request.c */
SV *px_request_event(pTHX_ px_exchange *exchange, enum px_key type);
bool px_request_goes_on(const px_exchange *exchange);
SV *px_request_next(pTHX_ px_exchange *exchange);
void px_request_want(pTHX_ px_exchange *exchange);
void px_request_body(pTHX_ px_exchange *exchange, const peregrine_event *event);

/* event_stream.c */
typedef struct px_text {
    const char *bytes; /* UTF-8, borrowed or mortal; NULL: there is none */
    size_t len;
} px_text;
SV *px_event_stream_message(pTHX_ const px_text *event, const px_text *id, IV retry, const px_text *data);
SV *px_event_stream_comment(pTHX_ const px_text *comment);
bool px_event_stream_breaks(const px_text *text);

#endif
