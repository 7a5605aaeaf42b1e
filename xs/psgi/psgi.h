/* psgi.h - definitions for the files of PSGI's face: keys of the environment, exchanges, prototypes.
 *
 * PSGI.pod and PSGI::Extensions (Debian's libplack-perl) say what applications see. Requests come in through
 * env.c and input.c, responses go out through response.c, body.c and delayed.c; exchange.c calls the
 * application and does the work after the response. Parts that need no speed are in Perl:
 * Plack::Handler::Peregrine::Values. */
#ifndef PEREGRINE_PSGI_H
#define PEREGRINE_PSGI_H

#include "bridge/bridge.h"

/* ---- Names ----------------------------------------------------------------------------------- */

/* Hash keys and constant strings, made once per interpreter as shared scalars with their hash computed. */
#define PSGI_KEYS(X)                                                                                         \
    X(REQUEST_METHOD, "REQUEST_METHOD")                                                                      \
    X(SCRIPT_NAME, "SCRIPT_NAME")                                                                            \
    X(PATH_INFO, "PATH_INFO")                                                                                \
    X(REQUEST_URI, "REQUEST_URI")                                                                            \
    X(QUERY_STRING, "QUERY_STRING")                                                                          \
    X(SERVER_NAME, "SERVER_NAME")                                                                            \
    X(SERVER_PORT, "SERVER_PORT")                                                                            \
    X(SERVER_PROTOCOL, "SERVER_PROTOCOL")                                                                    \
    X(REMOTE_ADDR, "REMOTE_ADDR")                                                                            \
    X(REMOTE_PORT, "REMOTE_PORT")                                                                            \
    X(CONTENT_LENGTH, "CONTENT_LENGTH")                                                                      \
    X(CONTENT_TYPE, "CONTENT_TYPE")                                                                          \
    X(COOKIE, "HTTP_COOKIE")                                                                                 \
    X(VERSION, "psgi.version")                                                                               \
    X(URL_SCHEME, "psgi.url_scheme")                                                                         \
    X(INPUT, "psgi.input")                                                                                   \
    X(ERRORS, "psgi.errors")                                                                                 \
    X(MULTITHREAD, "psgi.multithread")                                                                       \
    X(MULTIPROCESS, "psgi.multiprocess")                                                                     \
    X(RUN_ONCE, "psgi.run_once")                                                                             \
    X(NONBLOCKING, "psgi.nonblocking")                                                                       \
    X(STREAMING, "psgi.streaming")                                                                           \
    X(IO, "psgix.io")                                                                                        \
    X(INPUT_BUFFERED, "psgix.input.buffered")                                                                \
    X(CLEANUP, "psgix.cleanup")                                                                              \
    X(CLEANUP_HANDLERS, "psgix.cleanup.handlers")                                                            \
    X(INFORMATIONAL, "psgix.informational")                                                                  \
    X(HARAKIRI, "psgix.harakiri")                                                                            \
    X(HARAKIRI_COMMIT, "psgix.harakiri.commit")                                                              \
    X(DISCONNECTED, "psgix.peregrine.disconnected")                                                          \
    X(QUEUE_US, "psgix.peregrine.queue_us")                                                                  \
    X(GRIP, "peregrine.grip")                                                                                \
    X(HTTP, "http")                                                                                          \
    X(HTTPS, "https")                                                                                        \
    X(HTTP_1_0, "HTTP/1.0")                                                                                  \
    X(HTTP_1_1, "HTTP/1.1")                                                                                  \
    X(HTTP_2, "HTTP/2")                                                                                      \
    X(EMPTY, "")

#define PSGI_KEY_ENUM(name, text) PSGI_KEY_##name,
enum psgi_key { PSGI_KEYS(PSGI_KEY_ENUM) PSGI_KEY_COUNT };
#undef PSGI_KEY_ENUM

/* Ids of header names and methods below which the engine's names are kept; names with larger ids are copied
 * each time. */
#define PSGI_HEADER_IDS 256
#define PSGI_METHOD_IDS 64

/* State of the PSGI face that each interpreter has once. */
typedef struct psgi_context {
    SV *keys[PSGI_KEY_COUNT];
    /* keys such as HTTP_ACCEPT, learned from the first request that brings the field */
    SV *header_keys[PSGI_HEADER_IDS];
    SV *method_names[PSGI_METHOD_IDS];
    HV *writer_stash;
} psgi_context;

#define PSGI_KEY(cx, name) ((cx)->keys[PSGI_KEY_##name])

psgi_context *psgi_context_get(pTHX);
void psgi_context_init(pTHX);
void psgi_context_clone(pTHX);

/* ---- Application and exchange ---------------------------------------------------------------- */

/* An application, and the worker's data for its requests. */
typedef struct psgi_app {
    px_worker *worker;
    psgi_context *cx;
    SV *code;
    SV *no_input;  /* the handle that all requests without a body share; NULL: it has to be opened */
    AV *version;   /* [1, 1], read-only */
    bool multithread; /* other interpreters of the process serve requests as well */
    bool multiprocess;
    bool harakiri; /* the process is replaced when its application asks for that */
    bool underscores; /* fields whose names have underscores are shown */
    UV spool_max;  /* bytes of a response that may wait in a file; 0: there are no files */
    UV spools_max; /* bytes that the temporary files of all responses may hold */
    UV spooled;    /* bytes in these files */
    SV *folder;    /* the folder of these files */
    SV *grip;      /* prefix of topics' names for responses that are held (GRIP); NULL: no response is held */
} psgi_app;

/* Values that each environment has, or most have, by the names of their keys. */
#define PSGI_KEPT(X)                                                                                         \
    X(REQUEST_METHOD) X(SCRIPT_NAME) X(PATH_INFO) X(REQUEST_URI) X(QUERY_STRING) X(SERVER_NAME)              \
    X(SERVER_PORT) X(SERVER_PROTOCOL) X(REMOTE_ADDR) X(REMOTE_PORT) X(URL_SCHEME) X(VERSION) X(INPUT)        \
    X(ERRORS) X(MULTITHREAD) X(MULTIPROCESS) X(RUN_ONCE) X(NONBLOCKING) X(STREAMING) X(INPUT_BUFFERED)       \
    X(CLEANUP) X(CLEANUP_HANDLERS) X(INFORMATIONAL) X(HARAKIRI) X(DISCONNECTED) X(QUEUE_US) X(GRIP)
#define PSGI_KEPT_ENUM(name) PSGI_KEPT_##name,
enum psgi_kept { PSGI_KEPT(PSGI_KEPT_ENUM) PSGI_KEPT_COUNT };
#undef PSGI_KEPT_ENUM
/* Limits for an environment that is used again: its header fields, and the bytes of a value. */
#define PSGI_KEEP_FIELDS 32
#define PSGI_KEEP_BYTES 1024

typedef enum {
    PSGI_CALLED,  /* the application has the request, and owes a response */
    PSGI_STARTED, /* the response's head is with the engine, and content follows */
    PSGI_SENT,    /* all is with the engine, which may still have to send it */
    PSGI_CLEANS,  /* nothing goes out any more, and the work after the response has yet to run */
    PSGI_OVER,
} psgi_state;

/* Whether the response's content comes in chunks of the application's. */
typedef enum {
    PSGI_PLAIN,
    PSGI_SAYS_CHUNKED, /* the response's head says chunked, and the content has to be checked */
    PSGI_CHUNKED,      /* the content began with the first line of a chunk */
} psgi_framing;

/* The state of the function that the application has returned in place of a response. */
typedef enum {
    PSGI_NOT_DELAYED,
    PSGI_DELAYED_RUNS,
    PSGI_DELAYED_ABANDONED, /* the delayed response runs, and its writer is gone */
} psgi_delayed;

/* Bytes of the first line of a chunk, which has its size, at most. */
#define PSGI_SIZE_LINE_MAX 64

/* The place within content that the application has put into chunks; see chunked.c. All zeros: at its
 * beginning. */
typedef struct psgi_chunks {
    uint8_t state, digits;
    bool begun, extended;
    uint8_t held_len;
    /* the content's first bytes, while it is not known whether they begin a chunk */
    char held[PSGI_SIZE_LINE_MAX];
    size_t left;                   /* bytes of the present chunk that are still to come */
} psgi_chunks;

/* Content in a temporary file; see spool.c. */
typedef struct psgi_spool {
    enum {
        PSGI_SPOOL_NONE,
        PSGI_SPOOL_OPEN,
        PSGI_SPOOL_FAILED, /* the file could not be written: no other one is opened */
    } state;
    int fd;
    UV size, sent; /* bytes in the file, and those of them that the engine has */
} psgi_spool;

/* A request and its response. */
typedef struct psgi_exchange {
    px_exchange base; /* first; base.given is the environment */
    psgi_app *app;
    psgi_state state;
    bool responds;  /* a responder was called */
    bool drains;    /* output waits for the peer, so no more content is asked for */
    bool wrote;     /* whether the application has written since it was asked for content */
    bool has_io;    /* the application was given psgix.io */
    psgi_delayed delayed;
    psgi_framing framing;
    psgi_chunks chunks;
    psgi_spool spool;
    CV *informational, *disconnected; /* references of ours until the exchange is let go */
    /* the list psgix.cleanup.handlers, empty; a reference of ours until the exchange is let go */
    AV *cleanup;
    SV *kept[PSGI_KEPT_COUNT];        /* values of the exchange's last environment, see kept.c */
    U32 shown;   /* bits: the kept values that the environment has */
    /* the environment of the last request, kept if it is used again (reuse.c); or NULL */
    HV *env;
    bool again;  /* the environment is one that is used again, so the kept values are in it */
    /* a number that identifies the environment's keys and values, see reuse.c; 0: not computed */
    UV marks;
    int field_count; /* header fields of the environment; -1: they cannot be used again */
    uint8_t field_ids[PSGI_KEEP_FIELDS];
    /* the values of the fields, of each of which the exchange has a reference */
    SV *fields[PSGI_KEEP_FIELDS];
    /* head, instruction and content of a response that the engine is to hold, see grip.c; or NULL */
    SV *held;
    SV *source;     /* the handle whose lines are the response's content, or NULL */
    SV *poll;       /* the function to call when the peer takes more content, or NULL */
    SV *writer;     /* the writer with which `poll` is called */
} psgi_exchange;

/* The exchange of PSGI's face whose first member is the bridge's exchange. */
static inline psgi_exchange *psgi_exchange_of(px_exchange *exchange) {
    return (psgi_exchange *)exchange;
}

/* Whether output of the application still goes to the peer. */
static inline bool psgi_delivers(const psgi_exchange *exchange) {
    return exchange->state < PSGI_SENT && exchange->base.state == PX_TICKET_OPEN &&
           exchange->base.worker->engine;
}

/* Whether output has ended: nothing goes out any more. */
static inline bool psgi_is_over(const psgi_exchange *exchange) {
    return exchange->state >= PSGI_CLEANS;
}

/* face.c */
extern const px_face psgi_face;
void psgi_attach(pTHX_ px_worker *worker, HV *settings);

/* kept.c */
void psgi_put_number(pTHX_ psgi_exchange *exchange, HV *env, enum psgi_kept which, IV number);
void psgi_put_flag(pTHX_ psgi_exchange *exchange, HV *env, enum psgi_kept which, bool value);
void psgi_put_reference(pTHX_ psgi_exchange *exchange, HV *env, enum psgi_kept which, SV *target);
void psgi_put_shared(pTHX_ psgi_exchange *exchange, HV *env, enum psgi_kept which, SV *shared);
void psgi_put_text(pTHX_ psgi_exchange *exchange, HV *env, enum psgi_kept which, const char *text,
                   STRLEN len);
bool psgi_kept_refers_to(const psgi_exchange *exchange, enum psgi_kept which, const void *target);
SV *psgi_kept_key(const psgi_exchange *exchange, enum psgi_kept which);

/* reuse.c */
void psgi_env_settle(pTHX_ psgi_exchange *exchange);
HV *psgi_env_again(pTHX_ psgi_exchange *exchange, const peregrine_request *request);
void psgi_env_drop(pTHX_ psgi_exchange *exchange);
void psgi_env_forget_fields(pTHX_ psgi_exchange *exchange, int from);
void psgi_env_remember_field(pTHX_ psgi_exchange *exchange, uint8_t id, SV *value);

/* env.c */
HV *psgi_env_build(pTHX_ psgi_exchange *exchange, const peregrine_request *request);

/* input.c */
bool psgi_input_give(pTHX_ psgi_exchange *exchange, const peregrine_event *event);

/* spool.c */
bool psgi_spool_is_open(const psgi_exchange *exchange);
bool psgi_spool_is_wanted(const psgi_exchange *exchange);
bool psgi_spool_open(pTHX_ psgi_exchange *exchange);
size_t psgi_spool_room(const psgi_exchange *exchange);
bool psgi_spool_is_full(const psgi_exchange *exchange);
size_t psgi_spool_add(psgi_exchange *exchange, const char *bytes, size_t len);
void psgi_spool_close(psgi_exchange *exchange);
void psgi_spool_forget(psgi_exchange *exchange);
int psgi_spool_give_up(pTHX_ psgi_exchange *exchange, const char *bytes, size_t len);
int psgi_spool_flow(pTHX_ psgi_exchange *exchange);
int psgi_spool_end(psgi_exchange *exchange);

/* io.c */
void psgi_io_give(pTHX_ psgi_exchange *exchange);
void psgi_io_only(pTHX_ psgi_exchange *exchange);

/* exchange.c */
void psgi_exchange_invariants(const psgi_exchange *exchange);
void psgi_exchange_open(psgi_exchange *exchange);
XS_EXTERNAL(psgi_xs_disconnected);
void psgi_exchange_make(pTHX_ px_exchange *base);
void psgi_exchange_clear(pTHX_ px_exchange *base);
bool psgi_exchange_is_reusable(const px_exchange *base);
void psgi_exchange_let_go(pTHX_ px_exchange *base);
void psgi_exchange_call_app(pTHX_ psgi_exchange *exchange);
void psgi_exchange_sent(pTHX_ psgi_exchange *exchange, int code);
void psgi_exchange_over(pTHX_ psgi_exchange *exchange);
void psgi_exchange_fail(pTHX_ psgi_exchange *exchange, SV *failure, const char *stage);
void psgi_exchange_reject(pTHX_ psgi_exchange *exchange, SV *reason);
void psgi_exchange_refuse(pTHX_ psgi_exchange *exchange);
void psgi_exchange_cut(pTHX_ psgi_exchange *exchange);
void psgi_exchange_clean_up(pTHX_ psgi_exchange *exchange);
SV *psgi_call_values(pTHX_ const char *function, SV *first, SV *second, SV **error);
psgi_exchange *psgi_exchange_of_function(pTHX_ CV *function);
psgi_exchange *psgi_exchange_of_object(pTHX_ SV *object);

/* response.c */
void psgi_response_write(pTHX_ psgi_exchange *exchange, SV *piece, const char **wrong);
void psgi_response_end(pTHX_ psgi_exchange *exchange);
void psgi_respond(pTHX_ psgi_exchange *exchange, SV *response, bool may_stream);
XS_EXTERNAL(psgi_xs_inform);

void psgi_response_hold(pTHX_ psgi_exchange *exchange, SV *given_head, SV *content,
                        const peregrine_held_ask *how);

/* grip.c */
bool psgi_grip_is_ours(const psgi_app *app, const char *name, STRLEN len);
bool psgi_grip_hides(const psgi_app *app, SV *key);
bool psgi_grip_begin(pTHX_ psgi_exchange *exchange, SV *response);
const char *psgi_grip_add(pTHX_ psgi_exchange *exchange, const char *bytes, STRLEN len);
void psgi_grip_end(pTHX_ psgi_exchange *exchange);

/* chunked.c */
int psgi_chunked_begins(const char *bytes, size_t len);
bool psgi_chunked_undo(psgi_chunks *chunks, char *bytes, size_t *len);
bool psgi_chunked_is_whole(const psgi_chunks *chunks);

/* body.c */
void psgi_body_start(pTHX_ psgi_exchange *exchange, SV *source, UV promised);
void psgi_body_drop(pTHX_ psgi_exchange *exchange, SV *source);
void psgi_body_go_on(pTHX_ psgi_exchange *exchange);
void psgi_body_close(pTHX_ psgi_exchange *exchange);

/* delayed.c */
void psgi_delayed_call(pTHX_ psgi_exchange *exchange, SV *code);
void psgi_delayed_forgotten(pTHX_ psgi_exchange *exchange);
void psgi_writer_write(pTHX_ psgi_exchange *exchange, SV *bytes);
void psgi_writer_close(pTHX_ psgi_exchange *exchange);
void psgi_writer_poll(pTHX_ psgi_exchange *exchange, SV *writer, SV *callback);
void psgi_writer_gone(pTHX_ psgi_exchange *exchange);
void psgi_writer_go_on(pTHX_ psgi_exchange *exchange);

#endif
