/* pagi.h - definitions for the files of PAGI's face: keys of scopes and events, kinds of scopes, exchanges,
 * prototypes.
 *
 * Each rule of PAGI::Spec about what applications see is in one file here. A kind of scope has its own file
 * (http.c, sse.c, websocket.c); events come in through scope.c, request.c and receive.c, and go out through
 * event.c and response.c. */
#ifndef PEREGRINE_PAGI_H
#define PEREGRINE_PAGI_H

#include "bridge/bridge.h"

/* ---- Names ----------------------------------------------------------------------------------- */

/* Hash keys and constant strings, made once per interpreter as shared scalars with their hash computed. */
#define PAGI_KEYS(X)                                      \
    X(TYPE, "type")                                       \
    X(PAGI, "pagi")                                       \
    X(VERSION, "version")                                 \
    X(SPEC_VERSION, "spec_version")                       \
    X(HTTP_VERSION, "http_version")                       \
    X(METHOD, "method")                                   \
    X(SCHEME, "scheme")                                   \
    X(PATH, "path")                                       \
    X(RAW_PATH, "raw_path")                               \
    X(QUERY_STRING, "query_string")                       \
    X(ROOT_PATH, "root_path")                             \
    X(HEADERS, "headers")                                 \
    X(CLIENT, "client")                                   \
    X(SERVER, "server")                                   \
    X(STATE, "state")                                     \
    X(EXTENSIONS, "extensions")                           \
    X(WORKER_POOL, "worker_pool")                         \
    X(WORKER_STATE, "worker_state")                       \
    X(CONNECTION, "pagi.connection")                      \
    X(TRANSPORT, "pagi.transport")                        \
    X(STATUS, "status")                                   \
    X(TRAILERS, "trailers")                               \
    X(BODY, "body")                                       \
    X(MORE, "more")                                       \
    X(FILE, "file")                                       \
    X(FH, "fh")                                           \
    X(OFFSET, "offset")                                   \
    X(LENGTH, "length")                                   \
    X(FULLFLUSH, "fullflush")                             \
    X(INFORMATIONAL, "informational")                     \
    X(HTTP, "http")                                       \
    X(HTTPS, "https")                                     \
    X(HTTP_1_0, "1.0")                                    \
    X(HTTP_1_1, "1.1")                                    \
    X(HTTP_2, "2")                                        \
    X(PAGI_VERSION, "0.3")                                \
    X(HTTP_REQUEST, "http.request")                       \
    X(HTTP_DISCONNECT, "http.disconnect")                 \
    X(SSE, "sse")                                         \
    X(SSE_REQUEST, "sse.request")                         \
    X(SSE_DISCONNECT, "sse.disconnect")                   \
    X(REASON, "reason")                                   \
    X(EVENT, "event")                                     \
    X(DATA, "data")                                       \
    X(ID, "id")                                           \
    X(RETRY, "retry")                                     \
    X(COMMENT, "comment")                                 \
    X(INTERVAL, "interval")                               \
    X(EMPTY, "")                                          \
    X(TLS, "tls")                                         \
    X(SERVER_CERT, "server_cert")                         \
    X(CLIENT_CERT_CHAIN, "client_cert_chain")             \
    X(CLIENT_CERT_NAME, "client_cert_name")               \
    X(CLIENT_CERT_ERROR, "client_cert_error")             \
    X(TLS_VERSION, "tls_version")                         \
    X(CIPHER_SUITE, "cipher_suite")                       \
    X(COOKIE, "cookie")                                   \
    X(WEBSOCKET, "websocket")                             \
    X(WS, "ws")                                           \
    X(WSS, "wss")                                         \
    X(SUBPROTOCOL, "subprotocol")                         \
    X(SUBPROTOCOLS, "subprotocols")                       \
    X(COMPRESS, "compress")                               \
    X(WEBSOCKET_HTTP_RESPONSE, "websocket.http.response") \
    X(WEBSOCKET_CONNECT, "websocket.connect")             \
    X(WEBSOCKET_RECEIVE, "websocket.receive")             \
    X(WEBSOCKET_DISCONNECT, "websocket.disconnect")       \
    X(TEXT, "text")                                       \
    X(BYTES, "bytes")                                     \
    X(CODE, "code")                                       \
    X(CHANNELS, "pagi.channels")                          \
    X(CHANNEL, "pagi.channel")                            \
    X(TOPICS, "pagi.topics")                              \
    X(TOPIC, "topic")                                     \
    X(AS, "as")                                           \
    X(SINCE, "since")                                     \
    X(BEHIND, "behind")                                   \
    X(POSITION, "position")                               \
    X(TOPIC_RESET, "topic.reset")                         \
    X(TIMEOUT, "timeout")

#define PAGI_KEY_ENUM(name, text) PAGI_KEY_##name,
enum pagi_key { PAGI_KEYS(PAGI_KEY_ENUM) PAGI_KEY_COUNT };
#undef PAGI_KEY_ENUM

/* Ids of header names and methods below which the engine's names are kept; names with larger ids are copied
 * each time. */
#define PAGI_HEADER_IDS 256
#define PAGI_METHOD_IDS 64

/* State of the PAGI face that each interpreter has once. */
typedef struct pagi_context {
    SV *keys[PAGI_KEY_COUNT];
    SV *header_names[PAGI_HEADER_IDS]; /* lower-case names, learned from the first request that brings one */
    SV *method_names[PAGI_METHOD_IDS];
    HV *connection_stash;
    HV *transport_stash;
    HV *channels_stash;
    HV *topics_stash;
    HV *no_data; /* the value of an extension that has no data */
} pagi_context;

#define PAGI_KEY(cx, name) ((cx)->keys[PAGI_KEY_##name])

pagi_context *pagi_context_get(pTHX);
void pagi_context_init(pTHX);
void pagi_context_clone(pTHX);

/* ---- Application and exchange ---------------------------------------------------------------- */

typedef struct pagi_app pagi_app;
typedef struct pagi_exchange pagi_exchange;

/* A type of event that an application may $send, and its function, which returns a new reference to a
 * Future. */
typedef struct pagi_send_event {
    const char *type;
    STRLEN type_len;
    SV *(*send)(pTHX_ pagi_exchange *exchange, HV *event);
} pagi_send_event;

#define PAGI_SEND(text, function) {text, sizeof(text) - 1, function}

/* A type of scope: how it reads, which events it sends, and the effect of its application's end. */
typedef struct pagi_kind {
    const char *name;
    enum pagi_key type, scheme, secure_scheme; /* type and schemes in its scopes */
    bool has_method, has_connection;         /* whether its scopes have `method` and `pagi.connection` */
    bool keeps_scope;                        /* scopes of this type serve further requests */
    /* more keys for its scopes, or NULL */
    void (*extend)(pTHX_ pagi_exchange *exchange, const peregrine_request *request);
    const pagi_send_event *sends; /* ends with a NULL type */
    /* the next event for $receive, a new reference; NULL: no event is there yet */
    SV *(*next)(pTHX_ pagi_exchange *exchange);
    /* called when a `$receive` waits and no event is there; may be NULL */
    void (*want)(pTHX_ pagi_exchange *exchange);
    /* handles BODY and MESSAGE events: content from the peer */
    void (*body)(pTHX_ pagi_exchange *exchange, const peregrine_event *event);
    void (*closed)(pTHX_ pagi_exchange *exchange, const peregrine_event *event); /* CLOSED */
    /* handles the end of the application; `failure`: its exception, or NULL */
    void (*returned)(pTHX_ pagi_exchange *exchange, SV *failure);
    /* For request.c: the type of events with the request's body; and the last event, after which there is
     * none (NULL: it has not come yet). */
    enum pagi_key request_event;
    SV *(*last_event)(pTHX_ pagi_exchange *exchange);
    /* ends the exchange because the server stops; NULL: the exchange may go on to its end */
    void (*shut_down)(pTHX_ pagi_exchange *exchange);
    /* For topics.c, NULL where no topic can be read: sends an entry, sends a reset, ends an exchange whose
     * client is too far behind. The first two return the engine's code. */
    int (*entry)(pTHX_ pagi_exchange *exchange, const peregrine_node_reading *found);
    int (*reset)(pTHX_ pagi_exchange *exchange, const peregrine_node_reading *found);
    void (*behind)(pTHX_ pagi_exchange *exchange);
} pagi_kind;

extern const pagi_kind pagi_http_kind;
extern const pagi_kind pagi_websocket_kind;
extern const pagi_kind pagi_sse_kind;

/* The fields of a `tls` extension. */
enum pagi_tls_field {
    PAGI_TLS_SERVER_CERT,
    PAGI_TLS_CLIENT_CERT_CHAIN,
    PAGI_TLS_CLIENT_CERT_NAME,
    PAGI_TLS_CLIENT_CERT_ERROR,
    PAGI_TLS_VERSION,
    PAGI_TLS_CIPHER_SUITE,
    PAGI_TLS_FIELDS
};

/* TLS facts that requests without a client certificate share, made once. */
typedef struct pagi_tls_common {
    UV serial;       /* 0: not made yet */
    SV *server_cert; /* a shared string, or NULL */
    uint16_t version, cipher_suite;
} pagi_tls_common;

/* Kinds of TLS connections whose facts are kept. A kind is a version with a cipher suite and a certificate;
 * servers rarely have more. */
#define PAGI_TLS_COMMON_MAX 4

/* The hash `tls` that a scope shows, kept for the next request, with the scalars under its keys, of each of
 * which the bridge has a reference. */
typedef struct pagi_tls_kept {
    HV *hash; /* NULL: none */
    SV *values[PAGI_TLS_FIELDS];
    UV fingerprint;
    /* `serial` of the facts in the hash; 0: they are about a client certificate, and not used again */
    UV serial;
} pagi_tls_kept;

/* An application, and the worker's data for its requests. */
struct pagi_app {
    px_worker *worker;
    pagi_context *cx;
    SV *code;
    HV *state;      /* the application's lifespan state, or NULL */
    HV *extensions; /* extensions that scopes advertise, or NULL */
    SV *pool;       /* the PAGI::Server::WorkerPool of its scopes, or NULL */
    enum {
        PAGI_SYNC_NONE,
        PAGI_SYNC_OVER, /* handlers that block leave their requests to other interpreters */
        PAGI_SYNC_HERE, /* handlers that block run here */
    } sync;
    SV *worker_state; /* beside a pool: the state that the pool's handlers share in this process, or NULL */
    /* function that checks events in development, or NULL: events are only checked as far as is necessary */
    SV *check;
    /* function that makes the page about an end without a response, or NULL: the answer is a plain 500 */
    SV *error_page;
    bool reads_files; /* whether files are read and sent as bytes, in place of sendfile(2) */
    /* the hub's node in this interpreter, which node_object owns; NULL: there are no channels */
    peregrine_node *node;
    SV *node_object;
    SV *topics; /* the application's PAGI::Server::Topics, or NULL */
    HV *local_folders; /* folders on storage of this machine, whose files are opened at once */
    pagi_tls_common tls[PAGI_TLS_COMMON_MAX];
    UV tls_serial;
    size_t high_water, low_water;
    size_t queue_messages_max, queue_bytes_max; /* limits of one WebSocket; see config.zig */
    uint32_t stream_idle_ms;
};

/* The values of a scope: first the strings, then values that have parts. */
enum pagi_slot {
    PAGI_SLOT_TYPE,
    PAGI_SLOT_HTTP_VERSION,
    PAGI_SLOT_METHOD,
    PAGI_SLOT_SCHEME,
    PAGI_SLOT_PATH,
    PAGI_SLOT_RAW_PATH,
    PAGI_SLOT_QUERY_STRING,
    PAGI_SLOT_ROOT_PATH,
    PAGI_SLOT_STRINGS,
    PAGI_SLOT_PAGI = PAGI_SLOT_STRINGS,
    PAGI_SLOT_HEADERS,
    PAGI_SLOT_CLIENT,
    PAGI_SLOT_SERVER,
    PAGI_SLOT_STATE,
    PAGI_SLOT_EXTENSIONS,
    PAGI_SLOT_CONNECTION,
    PAGI_SLOT_TRANSPORT,
    PAGI_SLOT_COUNT
};

/* A scope's hash and the scalars under its keys, of each of which the bridge has a reference (NULL: no such
 * key). */
typedef struct pagi_scope {
    HV *hash;
    bool secure;     /* the scope has the tls extension */
    pagi_tls_kept tls; /* the values of the tls extension */
    UV fingerprint;
    SV *slots[PAGI_SLOT_COUNT];
} pagi_scope;

/* The state of the request's body. */
typedef enum {
    PAGI_REQUEST_MORE,      /* more of the body comes; the engine was not asked for it */
    PAGI_REQUEST_ASKED,     /* a peregrine_read() is unanswered */
    PAGI_REQUEST_LAST,      /* the whole body is here */
    PAGI_REQUEST_DELIVERED, /* the application has the whole body */
} pagi_request_state;

/* The state of the response, by the application's events. */
typedef enum {
    PAGI_RESPONSE_NONE,
    PAGI_RESPONSE_STARTED,
    PAGI_RESPONSE_PROMISED,     /* started, and trailers were promised */
    PAGI_RESPONSE_TRAILERS_DUE, /* the body is complete, the promised trailers are not there */
    PAGI_RESPONSE_COMPLETE,
} pagi_response_state;

/* The end of a request, as its application sees it. */
typedef enum {
    PAGI_END_OPEN,
    PAGI_END_COMPLETED,    /* the response was delivered */
    /* the peer sends no more: for the application it is gone, but output goes out, as it may read */
    PAGI_END_HALF_CLOSED,
    PAGI_END_DISCONNECTED, /* the connection is gone: output goes nowhere */
} pagi_end_state;

typedef enum {
    PAGI_SOCKET_CONNECTING, /* the handshake is not answered */
    PAGI_SOCKET_DENYING,    /* the handshake is being answered with an HTTP response */
    PAGI_SOCKET_OPEN,
    PAGI_SOCKET_CLOSING /* this side closes; the engine tells when the WebSocket has ended */
} pagi_socket_state;

/* Additional state of an exchange of the websocket kind. */
typedef struct pagi_socket {
    pagi_socket_state state;
    bool connect_told; /* websocket.connect was given */
    bool paused;       /* the peer is not read */
    uint16_t close_code; /* the code with which the WebSocket has ended; 0: not known, or not yet */
    uint32_t ping_ms, pong_ms; /* ms of a websocket.keepalive that came before websocket.accept; 0: none */
    SV *close_reason;
    AV *offered; /* subprotocols that the client offers, until the handshake is answered; NULL: none */
    AV *queue;   /* messages that the application has not asked for; NULL: none */
    size_t queued_bytes;
} pagi_socket;

/* Additional state of an exchange of the sse kind. */
typedef struct pagi_stream {
    /* the application's choice: a stream, or an ordinary response */
    enum { PAGI_STREAM_UNDECIDED, PAGI_STREAM_CHOSEN, PAGI_STREAM_DECLINED } answer;
    /* text of an sse.keepalive that came before sse.start, as it is sent, or NULL */
    SV *comment;
    uint32_t comment_ms;
    SV *close_reason; /* the application's reason for closing, or NULL */
    bool encoded; /* the stream has a Content-Encoding, which comments by the engine would not have */
} pagi_stream;

/* A request and its response. */
struct pagi_exchange {
    px_exchange base; /* first */
    pagi_app *app;
    const pagi_kind *kind;
    bool app_running;
    bool blocks;       /* $receive and $send wait until their Future is ready, for a handler that blocks */
    bool head_only;    /* the method is HEAD: no content is sent */
    bool late_told;    /* the log was told that an event came after the response was complete */
    bool body_told;    /* $receive has given a part of the request's body */
    bool last_told;    /* $receive has given the last event, after which there is none */
    uint32_t in_vain;  /* calls that came after the end of the request, see in_vain.c */
    /* websocket.close or sse.close was sent while the peer was there: further events are mistakes */
    bool app_closed;
    bool mail_given;   /* the last event of $receive was a message of the request's channel */
    bool above;        /* queued output reached the high-water mark */
    /* a $receive was cancelled because no event will come: an `await` of it dies, without a report */
    bool let_go;
    pagi_request_state request;
    pagi_response_state response;
    pagi_end_state end;
    uint32_t reason;
    pagi_socket socket; /* of the websocket kind */
    pagi_stream stream; /* of the sse kind */
    pagi_scope *scope; /* the scope of the present request, or one that the next request may use, or NULL */
    uint64_t mailbox;  /* mailbox of the request's channel; 0: there is no channel */
    AV *resets;        /* topic.reset events that $receive has not given yet, or NULL */
    HV *follows;       /* Futures of subscriptions without answer, by their numbers, or NULL */
    uint32_t follow_number; /* number of the last subscription */
    CV *receive, *send, *app_ready; /* references of ours until the exchange is let go */
    SV *connection; /* the object `pagi.connection`; NULL until a scope has it */
    SV *transport;
    SV *body;       /* body bytes that no $receive has given yet, or NULL */
    AV *trailers;   /* request trailers, or NULL */
    SV *receiver;   /* the pending Future of $receive that has waited longest (the object itself), or NULL */
    AV *receivers;  /* the Futures of further `$receive` calls, oldest first, or NULL */
    AV *senders;    /* pending Futures of $send, or NULL */
    AV *flushers;   /* the Futures of http.fullflush, or NULL */
    /* Futures of code that reads a file to send it, resolved when no more output goes out; or NULL */
    AV *feeders;
    SV *app_future; /* the application's pending Future, or NULL */
    /* becomes ready when a thread has opened a file for `$send`, on which later events wait; or NULL */
    SV *opening;
    SV *disconnect_future;
    AV *on_disconnect, *on_complete, *on_high_water, *on_drain;
};

/* The exchange of PAGI's face whose first member is the bridge's exchange. */
static inline pagi_exchange *pagi_exchange_of(px_exchange *exchange) {
    return (pagi_exchange *)exchange;
}

/* Whether the application has been told that its peer is gone. */
static inline bool pagi_exchange_is_left(const pagi_exchange *exchange) {
    return exchange->end == PAGI_END_HALF_CLOSED || exchange->end == PAGI_END_DISCONNECTED;
}

/* Whether output of the application still goes to the peer. */
static inline bool pagi_exchange_delivers(const pagi_exchange *exchange) {
    return exchange->end == PAGI_END_OPEN || exchange->end == PAGI_END_HALF_CLOSED;
}

/* Whether the response has begun and may have more body. */
static inline bool pagi_response_takes_body(const pagi_exchange *exchange) {
    return exchange->response == PAGI_RESPONSE_STARTED || exchange->response == PAGI_RESPONSE_PROMISED;
}

/* face.c */
extern const px_face pagi_face, pagi_channels_face;
void pagi_attach(pTHX_ px_worker *worker, HV *settings);

/* exchange.c */
void pagi_exchange_invariants(const pagi_exchange *exchange);
void pagi_exchange_open(pTHX_ pagi_exchange *exchange, const pagi_kind *kind);
void pagi_exchange_make(pTHX_ px_exchange *exchange);
void pagi_exchange_clear(pTHX_ px_exchange *exchange);
bool pagi_exchange_is_reusable(const px_exchange *exchange);
void pagi_exchange_let_go(pTHX_ px_exchange *exchange);
bool pagi_exchange_fail_stalled(pTHX_ px_exchange *exchange, SV *awaited, SV *exception);
SV *pagi_exchange_connection(pTHX_ pagi_exchange *exchange);
void pagi_exchange_call_app(pTHX_ pagi_exchange *exchange, HV *scope);
void pagi_exchange_disconnect(pTHX_ pagi_exchange *exchange, uint32_t reason);
void pagi_exchange_half_closed(pTHX_ pagi_exchange *exchange);
void pagi_exchange_complete(pTHX_ pagi_exchange *exchange);
bool pagi_exchange_hand_over(pTHX_ pagi_exchange *exchange);
SV *pagi_sync(pTHX_ pagi_exchange *exchange, SV *code, SV *scope, SV *receive, SV *send);
pagi_exchange *pagi_exchange_of_function(pTHX_ CV *function);
pagi_exchange *pagi_exchange_of_object(pTHX_ SV *object);

/* scope.c */
HV *pagi_scope_build(pTHX_ pagi_exchange *exchange, const peregrine_request *request);
void pagi_scope_fill(pTHX_ pagi_exchange *exchange, const peregrine_request *request);
AV *pagi_scope_headers(pTHX_ pagi_context *cx, const peregrine_request *request, bool lasting);
AV *pagi_scope_trailers(pTHX_ pagi_context *cx, const peregrine_request *request);
HV *pagi_scope_extensions(pTHX_ pagi_exchange *exchange, const peregrine_request *request);
SV *pagi_scope_known_name(pTHX_ pagi_context *cx, const char *text, const peregrine_field_span *field);
void pagi_scope_refer_to(pTHX_ SV *reference, SV *container);
void pagi_scope_set_bytes(pTHX_ SV *sv, const char *bytes, STRLEN len);
void pagi_scope_set_constant(pTHX_ SV *sv, SV *shared);

/* reuse.c */
bool pagi_tls_untouched(pTHX_ const pagi_exchange *exchange);
UV pagi_fingerprint(HV *hash);
void pagi_scope_seal(pagi_scope *scope);
void pagi_scope_settle(pTHX_ pagi_exchange *exchange, bool finished);
void pagi_scope_drop(pTHX_ pagi_exchange *exchange);
bool pagi_scope_refresh(pTHX_ pagi_exchange *exchange, const peregrine_request *request);

/* tls.c */
void pagi_tls_extend(pTHX_ pagi_exchange *exchange, HV *extensions);
void pagi_tls_drop(pTHX_ pagi_tls_kept *kept);
void pagi_tls_forget(pTHX_ pagi_app *app);

/* connection.c */
void pagi_connection_disconnected(pTHX_ pagi_exchange *exchange);
void pagi_connection_completed(pTHX_ pagi_exchange *exchange);
void pagi_transport_high(pTHX_ pagi_exchange *exchange);
void pagi_transport_drained(pTHX_ pagi_exchange *exchange);
void pagi_connection_subscribe(pTHX_ pagi_exchange *exchange, AV **list, SV *callback, bool now, bool keep,
                               SV *argument);
SV *pagi_connection_reason(pTHX_ const pagi_exchange *exchange);
SV *pagi_connection_disconnect_future(pTHX_ pagi_exchange *exchange);
SV *pagi_connection_gone_future(pTHX_ pagi_exchange *exchange);

/* plain_event.c */
HV *pagi_plain_event(pTHX_ px_worker *worker, SV *event, SV **failed);
SV *pagi_plain_copy(pTHX_ SV *event);

/* event.c */
#define PAGI_FIELDS_ON_STACK 32
#define PAGI_FIELDS_SPARE 2 /* fields that the server may add to a list */
typedef struct pagi_fields {
    peregrine_field *list;
    size_t count;
    AV *given; /* the array that the fields were read from, valid until Perl code runs; NULL: none */
    peregrine_field local[PAGI_FIELDS_ON_STACK];
} pagi_fields;
const char *pagi_event_bytes(pTHX_ SV *value, const char **bytes, size_t *len);
SV *pagi_event_fields(pTHX_ px_worker *worker, const char *type, SV *headers, pagi_fields *fields);
SV *pagi_event_shown(pTHX_ SV *value);
SV *pagi_event_flag(pTHX_ px_worker *worker, const char *type, SV *key, SV *value, bool *flag);
SV *pagi_event_integer(pTHX_ px_worker *worker, const char *type, HV *event, SV *key, IV max, IV *number,
                       bool *found);
SV *pagi_event_status(pTHX_ pagi_app *app, const char *type, HV *event, IV *status, bool *found);
SV *pagi_event_interim(pTHX_ pagi_app *app, const char *type, HV *event, IV *status, bool *found);
const char *pagi_event_text(pTHX_ SV *value, const char **bytes, size_t *len);
#define PAGI_SECONDS_MAX 1000000 /* seconds, so that intervals fit into the engine's milliseconds */
SV *pagi_event_number(pTHX_ px_worker *worker, const char *type, HV *event, SV *key, IV max, NV *number,
                      bool *found);
SV *pagi_event_outcome(pTHX_ pagi_exchange *exchange, const char *type, int code);
SV *pagi_event_field_outcome(pTHX_ pagi_exchange *exchange, const char *type, int code,
                             const pagi_fields *fields);

/* receive.c */
XS_EXTERNAL(pagi_xs_receive);
XS_EXTERNAL(pagi_xs_receive_sync);
bool pagi_receive_waits(pTHX_ pagi_exchange *exchange);
SV *pagi_receive_take(pTHX_ pagi_exchange *exchange);
void pagi_receive_resolve(pTHX_ pagi_exchange *exchange, SV *future, SV *event);
void pagi_receive_serve(pTHX_ pagi_exchange *exchange);
void pagi_receive_cancel(pTHX_ pagi_exchange *exchange);

/* channels.c */
peregrine_node *pagi_node_of(pTHX_ SV *handle);
SV *pagi_channels_take(pTHX_ peregrine_node *node, uint64_t mailbox);
void pagi_channels_open(pTHX_ pagi_exchange *exchange, HV *scope);
void pagi_channels_close(pTHX_ pagi_exchange *exchange);
SV *pagi_channels_next(pTHX_ pagi_exchange *exchange);
bool pagi_channels_event(pTHX_ peregrine_node *node, peregrine_node_event *event);

/* topics.c */
SV *pagi_topics_new(pTHX_ pagi_app *app);
SV *pagi_topics_send(pTHX_ pagi_exchange *exchange, const char *type, HV *event);
void pagi_topics_pump(pTHX_ pagi_exchange *exchange);
void pagi_topics_told(pTHX_ pagi_exchange *exchange, const peregrine_event *event);
void pagi_topics_release(pTHX_ pagi_exchange *exchange);

/* message.c */
SV *pagi_message_write(pTHX_ SV *message, const char **failure, SV **detail);
SV *pagi_message_read(pTHX_ const char *bytes, STRLEN len);
SV *pagi_values_write(pTHX_ AV *values, const char **failure, SV **detail);
SV *pagi_values_read(pTHX_ const char *bytes, STRLEN len);

/* in_vain.c */
SV *pagi_in_vain(pTHX_ pagi_exchange *exchange, SV *event);

/* trace.c */
void pagi_trace_write(pTHX_ pagi_exchange *exchange, uint32_t kind, HV *event);

/* Records an event between application and server, if a reader wants that. */
static inline void pagi_trace(pTHX_ pagi_exchange *exchange, uint32_t kind, HV *event) {
    if (px_is_traced(&exchange->base)) pagi_trace_write(aTHX_ exchange, kind, event);
}

/* send.c */
XS_EXTERNAL(pagi_xs_send);
XS_EXTERNAL(pagi_xs_send_sync);

/* response.c */
SV *pagi_response_start(pTHX_ pagi_exchange *exchange, const char *type, HV *event, bool instead);
SV *pagi_response_body(pTHX_ pagi_exchange *exchange, const char *type, HV *event, bool files);

/* file.c */
SV *pagi_file_send(pTHX_ pagi_exchange *exchange, const char *type, HV *event, SV *file, IV offset,
                   IV length);
bool pagi_file_is_opening(pTHX_ pagi_exchange *exchange);
bool pagi_file_is_opened(pTHX_ pagi_exchange *exchange, HV *event);
SV *pagi_file_after(pTHX_ pagi_exchange *exchange, HV *event);
/* functions of response.c for file.c */
SV *pagi_response_send_range(pTHX_ pagi_exchange *exchange, const char *type, int fd, IV offset, IV length);
SV *pagi_response_send_by_reading(pTHX_ pagi_exchange *exchange, HV *event);
SV *pagi_response_sent_file(pTHX_ pagi_exchange *exchange, const char *type, int code);
bool pagi_response_kernel_sends(const pagi_exchange *exchange, int fd);
SV *pagi_response_trailers(pTHX_ pagi_exchange *exchange, HV *event);
SV *pagi_response_inform(pTHX_ pagi_exchange *exchange, HV *event);
void pagi_response_cut(pTHX_ pagi_exchange *exchange);
void pagi_websocket_close_plainly(pTHX_ pagi_exchange *exchange);
SV *pagi_response_flush(pTHX_ pagi_exchange *exchange, HV *event);
void pagi_response_returned(pTHX_ pagi_exchange *exchange, SV *failure);

/* refusal.c */
void pagi_response_refuse(pTHX_ pagi_exchange *exchange, uint16_t status, const char *text, uint32_t reason);
void pagi_response_backstop(pTHX_ pagi_exchange *exchange, SV *failure, const char *stage);

/* request.c */
SV *pagi_request_event(pTHX_ pagi_exchange *exchange, enum pagi_key type);
bool pagi_request_goes_on(const pagi_exchange *exchange);
SV *pagi_request_next(pTHX_ pagi_exchange *exchange);
void pagi_request_want(pTHX_ pagi_exchange *exchange);
void pagi_request_body(pTHX_ pagi_exchange *exchange, const peregrine_event *event);

/* event_stream.c */
typedef struct pagi_text {
    const char *bytes; /* UTF-8, borrowed or mortal; NULL: there is none */
    size_t len;
} pagi_text;
SV *pagi_event_stream_message(pTHX_ const pagi_text *event, const pagi_text *id, IV retry,
                              const pagi_text *data);
SV *pagi_event_stream_comment(pTHX_ const pagi_text *comment);
bool pagi_event_stream_breaks(const pagi_text *text);

#endif
