/* peregrine.h - the C API of the Peregrine HTTP engine.
 *
 * The contract in one paragraph. A worker owns listeners and connections. peregrine_poll() reads sockets,
 * runs deadlines and fills a batch of events; it returns before code of the host runs, so a host may longjmp
 * (a Perl `die`) while it handles the batch. Answers go in by ticket, at once or at any later time. Nothing
 * calls back. Everything that an event points to stays valid until the next peregrine_poll() on the same
 * worker. A worker belongs to one thread at a time; only peregrine_wake() may be called from another thread.
 * Other threads answer by peregrine_post().
 *
 * A process with workers may fork. Before fork() returns in the child, all descriptors of engines are closed
 * there (pthread_atfork), and workers of the parent do nothing in the child: functions that return int answer
 * PEREGRINE_E_GONE, the others 0, NULL or nothing. The memory of the workers stays as it is. The parent
 * notices nothing. A child that wants to serve makes workers of its own; peregrine_tls may be used by both.
 *
 * Structs grow at their ends only, so that a program runs with later versions of the library than it was
 * compiled for. Structs that the caller fills or has filled begin with `size` = sizeof(the struct): fields
 * beyond it have their defaults, and are not written. Events come with their size: peregrine_next_event()
 * steps over fields that the caller does not know. peregrine_field, peregrine_field_span, peregrine_loan,
 * peregrine_span and peregrine_text never change.
 *
 * Functions that return int give PEREGRINE_OK or a positive outcome, or one of the negative PEREGRINE_E_*
 * codes; on a negative code nothing has changed, neither on the wire nor in the state of the exchange.
 */
#ifndef PEREGRINE_H
#define PEREGRINE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PEREGRINE_ABI_VERSION 2

typedef struct peregrine_config peregrine_config;
typedef struct peregrine_worker peregrine_worker;

/* The name of an exchange (one request and its response), or of the WebSocket that it became. Tickets are
 * never reused; the ticket of an ended exchange answers PEREGRINE_E_GONE. */
typedef uint64_t peregrine_ticket;

/* Outcomes and errors */
enum {
    PEREGRINE_OK = 0,
    PEREGRINE_DONE = 1,    /* the response is complete and leaves with the next poll at the latest: the ticket
                            * is gone, no event follows */
    PEREGRINE_BLOCKED = 2, /* accepted, but the queued output reached the high-water mark:
                            * PEREGRINE_DRAINED will follow */

    PEREGRINE_E_GONE = -1,              /* the exchange has ended and its output is dropped; or the worker
                                         * belongs to another process */
    PEREGRINE_E_OUT_OF_ORDER = -2,      /* a body before its start, a second start, anything after the end */
    PEREGRINE_E_STATUS = -3,            /* status outside 200..599 (100..199 for peregrine_inform) */
    PEREGRINE_E_FIELD_NAME = -4,        /* not a token; peregrine_bad_field() tells which one */
    PEREGRINE_E_FIELD_VALUE = -5,       /* CR, LF, NUL or another control byte; peregrine_bad_field() tells
                                         * which one */
    PEREGRINE_E_CONTENT_LENGTH = -6,    /* Content-Length is not a number or is there twice */
    PEREGRINE_E_TOO_LONG = -7,          /* more body than Content-Length promised */
    PEREGRINE_E_TOO_SHORT = -8,         /* less body than Content-Length promised */
    PEREGRINE_E_TRAILERS = -9,          /* trailers need chunked framing */
    PEREGRINE_E_MEMORY = -10,
    PEREGRINE_E_UNKNOWN = -11,          /* no option of that name */
    PEREGRINE_E_RANGE = -12,            /* value out of the option's range */
    PEREGRINE_E_SYSTEM = -13,           /* a system call failed; errno is set */
    PEREGRINE_E_ADDRESS = -14,          /* not a numeric address, not a path, or not a list of networks */
    PEREGRINE_E_CLOSE_CODE = -15,       /* not a close code that may be sent (RFC 6455 7.4) */
    PEREGRINE_E_UTF8 = -16,             /* text that is not UTF-8 */
    PEREGRINE_E_NOT_WEBSOCKET = -17,    /* the exchange is not an open WebSocket, or not a WebSocket
                                         * handshake */
    PEREGRINE_E_RESERVED = -18,         /* a field that the WebSocket handshake sets itself;
                                         * peregrine_bad_field() tells which one */
    PEREGRINE_E_CLOSE_REASON = -19,     /* the reason of a close is over 123 bytes */
    PEREGRINE_E_TLS = -20,              /* certificates or policy cannot be used, or the connection does
                                         * not speak TLS */
    PEREGRINE_E_FORMAT = -21,           /* not a format of the access log; peregrine_access_log_fault()
                                         * tells what is wrong */
    PEREGRINE_E_HEAD_TOO_LARGE = -22,   /* the head of a response, or its trailers, are longer than 256 KiB */
    PEREGRINE_E_FULL = -23              /* too many bytes that were posted wait for the worker */
};

/* The version of the library, "0.3.0". Static. */
const char *peregrine_version(void);

/* ---- Configuration --------------------------------------------------------------------------- */

/* A limit, as the engine's config file states it. All names, units, ranges and defaults come from there. */
typedef struct peregrine_option {
    const char *name;    /* "head_bytes_max" */
    const char *unit;    /* "bytes", "milliseconds", "count", "boolean" (0 or 1), ... */
    const char *summary; /* one line for a manual */
    int64_t fallback;    /* the default */
    int64_t min, max;
} peregrine_option;

/* The option with this number, from 0 on; NULL behind the last one. Valid for ever. */
const peregrine_option *peregrine_option_at(size_t index);
peregrine_config *peregrine_config_new(void); /* NULL: out of memory */
void peregrine_config_free(peregrine_config *config);
int peregrine_config_set(peregrine_config *config, const char *name, int64_t value);
int peregrine_config_get(const peregrine_config *config, const char *name, int64_t *value);

/* ---- Workers and listeners ------------------------------------------------------------------- */

peregrine_worker *peregrine_worker_new(const peregrine_config *config); /* copies config; NULL with errno */
void peregrine_worker_free(peregrine_worker *worker);                   /* closes all connections at once */
/* Changes a limit while the worker runs. */
int peregrine_worker_set(peregrine_worker *worker, const char *name, int64_t value);
int peregrine_worker_get(const peregrine_worker *worker, const char *name, int64_t *value);

/* From the first peregrine_poll() on, the engine runs on a thread of its own: it accepts, reads, writes
 * and keeps deadlines whatever the caller does between two polls. Nothing changes for the caller, but that
 * more responses are PEREGRINE_BLOCKED for a moment. To be called before the first poll and before
 * peregrine_fd(), in the process that polls. PEREGRINE_E_OUT_OF_ORDER: the worker was polled already. */
int peregrine_use_thread(peregrine_worker *worker);

enum { PEREGRINE_REUSE_PORT = 1, PEREGRINE_V6_ONLY = 2 };

/* Listens on a numeric IPv4 or IPv6 address, or on a Unix path when `address` starts with '/' (a stale file
 * is replaced, the caller removes the file in the end). Returns the listener's number >= 0. */
int peregrine_listen(peregrine_worker *worker, const char *address, uint16_t port, int backlog,
                     uint32_t flags);

/* A Unix socket that is to listen */
typedef struct peregrine_unix_socket {
    uint32_t size;
    int32_t backlog;  /* default: 1024 */
    const char *path;
    int64_t mode;     /* permission bits of the file; -1 (default): what the umask leaves */
    int64_t uid, gid; /* owner and group of the file; -1 (default): those of the process */
} peregrine_unix_socket;

/* Makes a listening Unix socket for peregrine_listen_fd(), for processes that share it or give up rights
 * before they serve. A socket file at which no process listens is replaced; errno EADDRINUSE: a process
 * listens there, or the file is no socket. Returns the descriptor. The caller removes the file in the end. */
int peregrine_open_unix(const peregrine_unix_socket *wanted);
/* Takes over a listening socket (inherited, or shared with other processes) and its descriptor. */
int peregrine_listen_fd(peregrine_worker *worker, int fd);
/* Connections that come in at this listener from now on begin with a header of the PROXY protocol (version 1
 * or 2), which names the client; it precedes TLS. `proxies` are the networks of the proxies, separated by
 * commas or blanks ("10.0.0.0/8, fd00::/8, unix"); other peers are cut. NULL: no header. PEREGRINE_E_ADDRESS:
 * see peregrine_networks_fault(). */
int peregrine_listener_proxies(peregrine_worker *worker, int listener, const char *proxies);
/* The header fields in which trusted proxies name the client of a request */
enum {
    PEREGRINE_X_FORWARDED = 0, /* X-Forwarded-For and X-Forwarded-Proto */
    PEREGRINE_FORWARDED = 1    /* Forwarded (RFC 7239) */
};
/* Requests on connections that come in from these networks from now on have the client (peer, peer_port,
 * secure) that their fields name: the rightmost address that is in none of the networks. NULL (default): no
 * proxy is believed. PEREGRINE_E_ADDRESS: see peregrine_networks_fault(). */
int peregrine_trusted_proxies(peregrine_worker *worker, const char *proxies, int header);
/* The mistake in a list of networks, as the end of a sentence about its `len` bytes from `at` on; NULL: there
 * is none. */
const char *peregrine_networks_fault(const char *networks, size_t *at, size_t *len);
/* The bound address ("127.0.0.1", "::1", "/path") and port (0 for Unix) of a listener; returns the text's
 * length. PEREGRINE_E_RANGE: no such listener, or `capacity` is too small. */
int peregrine_listener_address(peregrine_worker *worker, int listener, char *text, size_t capacity,
                               uint16_t *port);

/* ---- Routes ---------------------------------------------------------------------------------- */

/* Flags of a route */
enum {
    PEREGRINE_WHOLE_BODY = 1 /* the event of a request comes when its body is complete, and has all of it: see
                              * peregrine_request.body_fd. A request that ends before makes no event */
};

/* A kind of requests, which match both path and host, and how they come. */
typedef struct peregrine_route {
    uint32_t size;
    uint32_t flags;
    const char *path; /* this path and what is below it: "/api" stands for /api and /api/x, not for /apis;
                       * compared percent-decoded. NULL or "": every path */
    const char *host; /* the name or address that the request is for, without a port, in any case of letters.
                       * NULL or "": every host */
    uint32_t group;   /* the interpreters that get these requests: a number of peregrine_add_group(); default:
                       * 0, those of peregrine_use_interpreters() */
} peregrine_route;

/* Adds a route behind the routes that are there. The first route that matches a request says how the request
 * comes, and its number is peregrine_request.route; 0: none matches, and the body comes in pieces. To be
 * called before the first peregrine_poll(). Returns the number, from 1 on; PEREGRINE_E_ADDRESS: the path does
 * not begin with '/', or has a '?' in it; PEREGRINE_E_RANGE: an unknown flag, too high a group, or there are
 * 255 routes; PEREGRINE_E_OUT_OF_ORDER: the worker was polled. */
int peregrine_add_route(peregrine_worker *worker, const peregrine_route *route);
/* ---- Files that the engine answers with by itself ---------------------------------------------- */

/* A folder whose files answer requests that match both path and host. */
typedef struct peregrine_folder {
    uint32_t size;
    uint32_t flags;            /* 0 */
    const char *path;          /* this path and all paths below it; begins with '/' */
    const char *host;          /* as in peregrine_route */
    const char *folder;        /* an absolute path; opened now, so that the folder may be moved afterwards */
    const char *cache_control; /* value of Cache-Control of every answer; NULL: none */
} peregrine_folder;

/* Serves the files of a folder: with validators, conditions, ranges, precompressed siblings and index.html,
 * see DirServer in engine/README.md. A request that the first folder with such a file answers makes no event;
 * other requests come as ever. Before the first peregrine_poll(). Returns PEREGRINE_OK; PEREGRINE_E_ADDRESS:
 * `path` does not begin with '/', or `folder` is not absolute; PEREGRINE_E_SYSTEM with errno: the folder is
 * not there, or may not be opened; PEREGRINE_E_RANGE: an unknown flag, or there are 255;
 * PEREGRINE_E_OUT_OF_ORDER: the worker was polled. A worker that has joined an engine leaves folders to it
 * (PEREGRINE_OK). */
int peregrine_add_folder(peregrine_worker *worker, const peregrine_folder *folder);

/* Answers requests that came in the clear with 308 and the same URL under https, unless a folder that was
 * added before has the file. `port`: of https, for clients whose Host names another port than 80; other
 * clients are sent to 443. Not for peers on Unix sockets, nor where a proxy says that its client has https.
 * Before the first peregrine_poll(). Returns PEREGRINE_OK; PEREGRINE_E_RANGE: no port, or there are 255
 * folders; PEREGRINE_E_OUT_OF_ORDER: the worker was polled. A worker that has joined an engine leaves this to
 * it. */
int peregrine_redirect_to_https(peregrine_worker *worker, unsigned port);

/* Sets the folder for whole bodies that are longer than body_memory_bytes_max, in files without names; "/tmp"
 * by default. To be called before the first peregrine_poll(). */
int peregrine_body_folder(peregrine_worker *worker, const char *path);

/* The number of forks between this process and the process that made the first worker: a child has another
 * number than its parent. */
uint32_t peregrine_forks(void);
/* Hides a descriptor of the host from forked children (1): there it becomes the end of a pipe into which no
 * process writes, since the host may still watch the descriptor by its number. 0: no longer; to be called
 * before the descriptor is closed. */
void peregrine_hide_from_forks(int fd, int hidden);

/* A descriptor for any event loop: readable when peregrine_poll() has something to do, deadlines included. */
int peregrine_fd(peregrine_worker *worker);
/* In place of peregrine_fd(), for a host whose own loop waits in peregrine_poll(). The wait ends, too, when
 * `fd` is readable (an epoll descriptor of the host's, say), or when a signal comes; the signals that are
 * blocked meanwhile are those of `*blocked`, bit n - 1 for signal n (NULL: those that are blocked anyway). To
 * be called with -1 before `fd` is closed, or to go back to peregrine_fd(). PEREGRINE_E_SYSTEM with
 * EOPNOTSUPP: this system has no epoll. */
int peregrine_host_loop(peregrine_worker *worker, int fd, const uint64_t *blocked);
/* 1: since the last call `fd` of peregrine_host_loop() or a signal has ended a wait; 0: neither has. */
int peregrine_host_loop_due(peregrine_worker *worker);
/* The host's loop begins to handle events of its own (1), or is done with them (0), wherever it waits.
 * Meanwhile an engine on a thread or in another process leaves new connections and requests to others, and it
 * counts the worker as stuck when that takes too long. */
void peregrine_loop_works(peregrine_worker *worker, int works);
/* Sends the answers given since the last peregrine_poll(), for a host that does something else before the
 * next peregrine_poll(). */
void peregrine_send_all(peregrine_worker *worker);
/* 1: requests have come behind those that were answered since the last peregrine_poll(): the next
 * peregrine_poll() gives them without a wait, and all answers leave together after that; 0: none have. */
int peregrine_goes_on(peregrine_worker *worker);
/* Makes peregrine_fd() readable, or ends a wait in peregrine_poll(); from any thread. */
void peregrine_wake(peregrine_worker *worker);

/* Stops accepting, closes idle connections, lets exchanges finish (answered with `Connection: close`).
 * PEREGRINE_STOPPED follows when the last connection is gone. */
void peregrine_drain(peregrine_worker *worker);
/* Another worker, of another process perhaps, takes the place of this one and accepts at the same sockets:
 * this worker accepts nothing more. Each connection is answered once more (`Connection: close`), and closes
 * without a word after retire_idle_ms without a request; WebSockets and responses that have begun go on.
 * PEREGRINE_STOPPED follows when the last connection is gone; peregrine_end_websockets(), peregrine_drain()
 * and peregrine_cut() hasten its end. */
void peregrine_retire(peregrine_worker *worker);
/* Closes the WebSockets of a worker that retires (1012, the client may connect again at once), and refuses
 * new ones. */
void peregrine_end_websockets(peregrine_worker *worker);
/* Refuses (503) requests that wait for an interpreter, and from now on each request that gets none at once:
 * for the end of a stop. Returns the number of requests that have waited; 0 without several interpreters. */
int peregrine_refuse_waiting(peregrine_worker *worker);
/* The same for requests of one group (peregrine_add_group(); 0: the first one), whose interpreters have gone
 * and do not come again. */
int peregrine_refuse_group(peregrine_worker *worker, int group);
/* Cuts every connection now: an ABORTED event (server_shutdown) each, then PEREGRINE_STOPPED. */
void peregrine_cut(peregrine_worker *worker);

/* Leaves connections in the kernel's queues (1), or accepts them (0; default). Holds also for listeners that
 * are added while the worker is paused, and when it drains. */
void peregrine_pause_accepting(peregrine_worker *worker, int paused);

/* Requests with GET or HEAD for this path are answered by the engine (200, "ok", and the connection closes),
 * also when the limit of connections is reached; after peregrine_use_thread() also while the host is busy
 * with the last batch. They are in no log. "" (default): no path is; PEREGRINE_E_ADDRESS: the path does not
 * begin with '/', or has a '?' in it. */
int peregrine_health_path(peregrine_worker *worker, const char *path);

typedef struct peregrine_stats {
    uint32_t size;
    uint32_t connections;        /* open now */
    uint32_t exchanges;          /* open now, WebSockets included */
    uint32_t connections_max;    /* the limit in force */
    uint64_t accepted, rejected; /* connections, ever */
    uint64_t requests;           /* ever */
    uint64_t refused;            /* requests answered by the engine because they were malformed or too
                                  * large */
    uint64_t memory_bytes;       /* held by connections, exchanges and buffers, pools included */
    uint64_t allocations;        /* heap allocations ever made by the worker */
    uint64_t shed;               /* requests refused or cut for want of memory, ever */
    uint64_t memory_max;         /* bytes from which on requests are shed; 0: no limit */
    uint64_t ledger;             /* exchanges of which the caller's side of a ring pair (a thread, an
                                  * interpreter) keeps a record; 0 without one */
    uint32_t interpreters;       /* interpreters that have joined, see peregrine_use_interpreters() */
    uint32_t waiting;            /* requests that wait for an interpreter now */
} peregrine_stats;
void peregrine_worker_stats(const peregrine_worker *worker, peregrine_stats *stats);

/* A word in which a worker counts. */
typedef struct peregrine_counter {
    const char *name;    /* "requests" */
    const char *label;   /* tells words of one name apart: "status"; "": no other word has the name */
    const char *value;   /* "2xx" */
    const char *summary; /* one line for a manual */
    uint32_t kind;       /* one of peregrine_counter_kind */
    uint32_t reserved;
} peregrine_counter;

enum peregrine_counter_kind {
    PEREGRINE_COUNTER = 1, /* grows as long as the worker lives */
    PEREGRINE_GAUGE = 2,   /* a present number, updated once a second at most */
    PEREGRINE_BUCKET = 3,  /* of a histogram: the events that took longer than the bucket before, and no
                            * longer than `value` seconds */
    PEREGRINE_SUM = 4      /* of a histogram: the sum of all its times in microseconds */
};

/* The word with this number, from 0 on; NULL behind the last one. Valid for ever. */
const peregrine_counter *peregrine_counter_at(size_t index);
/* Has the worker count in these words from now on, one for each peregrine_counter_at(), adding to their
 * present values; no other worker may write them. Processes that share the memory, for instance, may read
 * them at any time, each word with an atomic load. `count`: the number of words, PEREGRINE_E_RANGE if they
 * are too few. NULL: the worker counts no longer; before that, and before peregrine_worker_free() has
 * returned, the memory must stay. Times are measured by peregrine_take(). */
int peregrine_use_counters(peregrine_worker *worker, uint64_t *words, size_t count);
/* A trace: records of what happens to each exchange, in memory that the processes of a server share. It is a
 * ring; a reader, perhaps in another process, says until when records are wanted, and counts those that were
 * overwritten before it has read them. No process waits for a reader. The layout is that of one version: a
 * reader compares `layout` with the first word. A record has eight-byte words and smaller parts, in the order
 * of trace.zig's `Record`. Places are offsets in bytes. */
typedef struct peregrine_trace_memory {
    uint64_t layout;       /* the first word of memory of this version */
    uint64_t bytes;        /* the size of the memory */
    uint64_t until;        /* the place of the word that says until when records are wanted, in nanoseconds of
                            * the monotonic clock; 0: they are not wanted */
    uint64_t server;       /* the place of the process id of the server, with which readers end */
    uint64_t next;         /* the place of a word with the number of the next record, from 0 on */
    uint64_t records;      /* the place of the first record */
    uint64_t record_bytes; /* the size of each record */
    uint64_t count;        /* the number of records in the ring; a record lies at its number modulo this */
    uint64_t text_max;     /* bytes of a text that a record has room for */
} peregrine_trace_memory;

enum peregrine_trace_kind {
    PEREGRINE_TRACE_CALL = 1,     /* an application is called */
    PEREGRINE_TRACE_RECEIVE = 2,  /* the application gets an event */
    PEREGRINE_TRACE_SEND = 3,     /* the application sends an event */
    PEREGRINE_TRACE_RETURNED = 4, /* the application has returned, and its Future is ready */
    PEREGRINE_TRACE_DIED = 5
};

/* Makes the memory of a trace (`descriptor` -1), or maps that of another process of the server
 * (PEREGRINE_E_FORMAT: it is of another version). To be called once, before there are other threads; children
 * of this process have the memory, too. Returns the descriptor, which stays open and is closed on exec.
 * PEREGRINE_E_SYSTEM: errno says why there is no memory. */
int peregrine_trace_open(int descriptor);
/* This process, and children of it, have no trace from now on. Only while there are no workers and no other
 * threads. The descriptor is the caller's to close. */
void peregrine_trace_close(void);
/* The word that is not 0 while records are wanted, to be looked at before each peregrine_trace(). Valid until
 * peregrine_trace_open() or peregrine_trace_close(). */
const uint64_t *peregrine_trace_wanted(void);
/* Records what a caller of the C API does with an exchange (one of peregrine_trace_kind). */
void peregrine_trace(peregrine_worker *worker, peregrine_ticket ticket, uint32_t kind, uint64_t size,
                     uint32_t code, const char *text, size_t len);
/* For readers: the layout, and the names of places (list 0) and kinds (1) by their numbers in a record; NULL
 * behind the last one. */
void peregrine_trace_layout(peregrine_trace_memory *layout);
const char *peregrine_trace_name(uint32_t list, size_t index);
/* Has workers that accept at the same sockets get as many connections each: a worker that has more than
 * another one leaves the next connections to that. `table`: zeroed memory that all of them map. Its first
 * word says how many places follow; `number` is this worker's place, from 1 on, PEREGRINE_E_RANGE if it is
 * not among `count` words. The worker writes there how many connections it has, in a form that is never 0,
 * and 0 when it stops; a process that sees it die writes that 0. To be called once, before the first
 * connection; the memory must stay until peregrine_worker_free() has returned. Not for sockets of the
 * worker's own (SO_REUSEPORT), at which no other worker accepts. */
int peregrine_share_sockets(peregrine_worker *worker, uint64_t *table, size_t count, size_t number);
/* The caller begins to work on a request. PEREGRINE_E_GONE, after peregrine_use_thread(): the client has left
 * meanwhile; no answer would go out, and no event of the request comes but one that this batch has. The
 * request's wait until now is counted as `queue_time`, the time from now to its answer as `application_time`;
 * without this call all of it is `application_time`. */
int peregrine_take(peregrine_worker *worker, peregrine_ticket ticket);
/* The caller, which works on a request, will never come back to it, because the process is about to be
 * killed, or the thread is left alone. An engine on another thread, or one that the caller has joined,
 * answers the request soon, with 504, or cuts its connection if a response has begun. An engine that was
 * joined hears nothing more from the caller: other requests of the caller are answered with 502, or cut, and
 * for the caller it looks as if the engine had gone. Returns at once; may be called in a signal handler.
 * PEREGRINE_E_OUT_OF_ORDER: the engine runs on the caller's thread. */
int peregrine_give_up(peregrine_worker *worker, peregrine_ticket ticket);

/* ---- Interpreters ---------------------------------------------------------------------------- */

/* How several interpreters share the requests of one engine */
typedef struct peregrine_interpreters {
    uint32_t size;
    int32_t join_socket; /* one of a pair of Unix sockets that keep messages apart (SOCK_SEQPACKET); the
                          * engine has a copy of its own. The other one is for peregrine_join(), any
                          * number of times, in any process that has inherited it */
    uint32_t exchanges;  /* exchanges that may wait for one interpreter at once; default: 0, no limit */
    uint32_t handed;     /* requests that may wait after peregrine_hand_over(); default: 0, none may be
                          * handed over */
    uint32_t seats;      /* interpreters that may have joined at the same time; default: 0, as many as the
                          * engine has places for */
    uint32_t own;        /* the limits below that hold for these interpreters: PEREGRINE_OWN_...; in place of
                          * other limits the engine's hold */
    uint32_t queue_max;  /* requests that may wait */
    uint32_t queue_ms;   /* milliseconds for which requests may wait */
    uint32_t request_idle_ms; /* milliseconds in which nothing may move on a request, from the time on when it
                               * may be offered; 0: no limit */
    uint32_t no_topics;  /* 1: the engine delivers no topics to exchanges of these interpreters */
    const char *name;    /* for logs: %M of the access log, and refusals; copied; default: NULL, none */
    uint64_t *refused;   /* the engine adds 1 for each request that finds no room in the queue, or has waited
                          * there for too long; memory that outlives the worker; default: NULL */
    const char *topics;  /* the beginning of the names of topics that exchanges of these interpreters may
                          * read; copied; default: NULL, all topics */
} peregrine_interpreters;

enum {
    PEREGRINE_OWN_QUEUE_MAX = 1,
    PEREGRINE_OWN_QUEUE_MS = 2,
    PEREGRINE_OWN_REQUEST_IDLE_MS = 4,
};

/* From the first peregrine_poll() on, the engine runs on a thread of its own (peregrine_use_thread()), and
 * requests are for interpreters: threads or processes that have joined. peregrine_poll() of this worker gives
 * notices, access log lines and PEREGRINE_STOPPED only. Routes (peregrine_add_route()) are this worker's; an
 * interpreter that adds the same routes in the same order gets the same numbers. Whole bodies may come as
 * files.
 *
 * Each exchange belongs to one interpreter until its end. Requests wait in one queue, first come, first
 * served: `queue_max` of them, `queue_ms` long, then they are refused (503). The least busy interpreter gets
 * the next request: the one for which the fewest exchanges wait, see peregrine_note_parked(). An interpreter
 * that has been offered a request and has not called peregrine_take(), or answered, loses it to another one
 * after 2 ms in which it did nothing else.
 *
 * When an interpreter ends, by peregrine_worker_free() or by its death, requests that it had not taken go to
 * others. Its other requests are answered with 502 before the head of a response, and cut after it;
 * WebSockets are closed (1011). Connections stay open. PEREGRINE_E_OUT_OF_ORDER: the worker was polled
 * already, or has interpreters. */
int peregrine_use_interpreters(peregrine_worker *worker, const peregrine_interpreters *wanted);

/* Adds a group of interpreters, which join through a socket of their own and get the requests of the routes
 * that name the group (peregrine_route), and no others. Requests for a group wait in a queue of their own, so
 * that a group without interpreters, or one that is stuck, keeps back no request of others. `handed` has no
 * meaning here. After peregrine_use_interpreters() and before the first peregrine_poll(). Returns the number,
 * from 1 on; PEREGRINE_E_RANGE: there are 15; PEREGRINE_E_OUT_OF_ORDER; PEREGRINE_E_SYSTEM: see errno. */
int peregrine_add_group(peregrine_worker *worker, const peregrine_interpreters *interpreters);

/* Becomes an interpreter of the engine at the other end of `join_socket`, which stays the caller's. Waits for
 * the engine, at most timeout_ms (-1: without bound). NULL with errno: ECONNREFUSED (there is none),
 * ETIMEDOUT, EPROTO (it is another version of this library), EOPNOTSUPP (Linux only).
 *
 * The worker that it returns is polled, answered and freed like any other. Listeners, limits, TLS and logs
 * are the engine's: functions about them answer PEREGRINE_E_GONE. peregrine_worker_get() gives the limits as
 * they were at this time. peregrine_drain() and peregrine_retire() say that no further requests are wanted;
 * PEREGRINE_STOPPED follows when the worker's exchanges are over, or when the engine has gone, with an
 * ABORTED (server_shutdown) before it for each exchange. */
peregrine_worker *peregrine_join(int join_socket, int timeout_ms);

/* Like peregrine_join(), for an interpreter that gets only requests that others hand over, and answers one
 * after another: its application may block. Some requests are offered ahead; a request that waits for 2 ms
 * behind another one goes back to the queue, and a request that the interpreter reads of meanwhile is for
 * peregrine_give_back(). It cannot hand requests over. Not at a join socket of peregrine_add_group(). */
peregrine_worker *peregrine_join_for_handed(int join_socket, int timeout_ms);

/* Leaves a request to an interpreter of peregrine_join_for_handed(), which gets it like a new one. The ticket
 * is gone. Where as many requests wait as `handed` allows, or the request has waited for `queue_ms`, the
 * engine refuses it (503). PEREGRINE_E_OUT_OF_ORDER: a command about the request was given before, be it
 * peregrine_read() alone; no requests may be handed over; or the worker has not joined an engine, or has
 * joined at a group's socket. */
int peregrine_hand_over(peregrine_worker *worker, peregrine_ticket ticket);

/* Has the engine hand over all requests of a route by itself (0: requests without a route) as if this
 * interpreter did so for each. Does nothing where peregrine_hand_over() would fail. */
void peregrine_pass_on(peregrine_worker *worker, int route);

/* Gives a request back that has come to an interpreter of peregrine_join_for_handed() while its application
 * works on another request, for instance in a nested loop: requests are offered ahead. To be called after
 * peregrine_take(), before any other command about the request; the ticket is gone. PEREGRINE_E_OUT_OF_ORDER:
 * another command was given, or the interpreter is of another kind. */
int peregrine_give_back(peregrine_worker *worker, peregrine_ticket ticket);

/* An interpreter says how many of its exchanges wait for their clients, and not for itself: open WebSockets
 * and event streams, requests whose body it waits for, responses whose output waits. The engine reads the
 * number when it looks for the least busy interpreter. Costs no system call; does nothing on other workers.
 * */
void peregrine_note_parked(peregrine_worker *worker, uint32_t count);

/* An interpreter says that all interpreters of its engine are to get requests in turns where they have
 * equally little to do, so that it gets its share of few requests, too; 0: no more. By default the first one
 * gets them, and the others can sleep. Does nothing on other workers. */
void peregrine_take_turns(peregrine_worker *worker, int on);

/* ---- Access log ------------------------------------------------------------------------------ */

/* A line for each request that was answered, refused ones included, when it ends. Lines are written by a
 * thread of the log's own, within a second; a file that takes none costs lines (a NOTICE counts them), never
 * time. */
typedef struct peregrine_access_log {
    uint32_t size;
    int32_t fd;         /* without a path: an open descriptor, which is duplicated; -1 (default): lines
                         * come as PEREGRINE_LINES events */
    const char *path;   /* appended to; NULL: use fd */
    const char *format; /* "clf", "combined", "common", "tiny", "json", or percent atoms
                         * (access_log/format.zig); NULL: "clf" */
} peregrine_access_log;

/* Starts the access log of a worker, in place of the one before; NULL ends it. Open requests have their lines
 * in the new log, in the format of the log under which they began. On an error nothing has changed. */
int peregrine_access_log_open(peregrine_worker *worker, const peregrine_access_log *log);
/* Opens the file at the log's path anew, after the old file was moved away. */
void peregrine_access_log_reopen(peregrine_worker *worker);
/* The mistake in a format, as the end of a sentence about its `len` bytes from `at` on; NULL: none. */
const char *peregrine_access_log_fault(const char *format, size_t *at, size_t *len);
/* ---- TLS ------------------------------------------------------------------------------------- */

/* Certificates and policy of TLS. Any number of workers may share one peregrine_tls; all its functions may be
 * called from any thread. */
typedef struct peregrine_tls peregrine_tls;

/* A certificate and its key; all files are PEM. An OCSP response (DER) beside cert_file, called like it but
 * for the ending ".ocsp", is shown to clients that ask for one. */
typedef struct peregrine_certificate {
    uint32_t size;
    const char *cert_file;    /* the certificate, perhaps followed by its intermediates */
    const char *key_file;     /* may be the same file */
    const char *chain_file;   /* intermediates that are not in cert_file, or NULL */
    const char *key_password; /* of an encrypted key, or NULL */
} peregrine_certificate;

enum {
    PEREGRINE_VERIFY_NONE = 0,    /* no client certificate is asked for */
    PEREGRINE_VERIFY_REQUEST = 1, /* asked for; without a good one the request comes all the same, and
                                   * peregrine_tls_info_of() tells */
    PEREGRINE_VERIFY_REQUIRE = 2  /* without one that verifies against ca_file there is no connection */
};

#define PEREGRINE_TICKET_KEYS_BYTES 80

typedef struct peregrine_tls_config {
    uint32_t size;
    uint32_t certificate_count;                /* at least 1, a cert_dir or a validation_dir: the first
                                                * certificate is the default, the others are chosen by SNI
                                                * from their names */
    const peregrine_certificate *certificates;
    const char *ca_file;                       /* authorities that client certificates are verified
                                                * against, or NULL */
    const char *cipher_list;                   /* TLS 1.2, in OpenSSL's notation; NULL: forward secrecy and
                                                * AEAD only */
    const char *cipher_suites;                 /* TLS 1.3; NULL: all three suites */
    const uint8_t *ticket_keys;                /* PEREGRINE_TICKET_KEYS_BYTES random bytes that all processes
                                                * share; NULL: drawn here */
    uint32_t verify_client;                    /* PEREGRINE_VERIFY_* */
    uint32_t min_version;                      /* 0x0303 (TLS 1.2; also 0) or 0x0304 */
    uint32_t session_timeout_s;                /* life of a ticket in seconds; 0: two hours */
    const char *cert_dir;                      /* a directory with further certificates, or NULL: NAME.pem and
                                                * NAME.key, or NAME/fullchain.pem and NAME/privkey.pem. They
                                                * may come, change and go. A certificate that cannot be used
                                                * is an error of peregrine_tls_new(); later the one before it
                                                * stays, and peregrine_tls_concern() tells */
    const char *groups;                        /* groups of the key exchange, in OpenSSL's notation, in order
                                                * of preference; NULL: X25519MLKEM768 where the library knows
                                                * it, X25519, P-256, P-384 */
    const char *validation_dir;                /* certificates are ordered from an authority, and come by
                                                * peregrine_tls_give(): handshakes are refused until one has
                                                * come. An authority that asks for a name by TLS (RFC 8737)
                                                * gets the certificate in NAME.alpn of this directory, with
                                                * its key behind it. Or NULL */
} peregrine_tls_config;

/* Whether this library was built with OpenSSL. Without it peregrine_tls_new() fails and says so. */
int peregrine_has_tls(void);
/* Name, version and date of the OpenSSL that is loaded, "OpenSSL 3.0.19 27 Jan 2026"; empty without TLS.
 * Static. */
const char *peregrine_tls_library(void);
/* Whether the kernel makes TLS records, so that the option `ktls` has an effect. */
int peregrine_has_kernel_tls(void);
/* Loads certificates and keys now. NULL: `error` (of `capacity` bytes) says which file or value is wrong and
 * why, NUL-terminated. */
peregrine_tls *peregrine_tls_new(const peregrine_tls_config *config, char *error, size_t capacity);
/* Replaces certificates and policy for the connections that come from now on; `config` NULL: the same files
 * are read again. On PEREGRINE_E_TLS nothing has changed. Not needed when the files change: the next
 * connection that comes, at most a second later, notices that, and a PEREGRINE_NOTICE tells. */
int peregrine_tls_reload(peregrine_tls *tls, const peregrine_tls_config *config, char *error,
                         size_t capacity);
/* Takes certificates over for the connections that come from now on, each in place of one that came under the
 * same name: a descriptor is that of a PEM file with the certificate, its intermediates and its key, which is
 * read here and stays the caller's. Clients that ask for a name, in lower case, get its certificate, too.
 * Certificates stay over peregrine_tls_reload(). On PEREGRINE_E_TLS nothing has changed. */
int peregrine_tls_give(peregrine_tls *tls, const char *const *names, const int *fds, uint32_t count,
                       char *error, size_t capacity);
/* Problems of the certificates in use, by numbers from 0 on. 1: at that time, in seconds since 1970, a
 * certificate has expired, is not good yet or expires soon, or a file could not be used, and `message` (of
 * `capacity` bytes) says so, NUL-terminated; 0: there is no problem with this number; PEREGRINE_E_RANGE:
 * there are no more numbers. For the start and for peregrine_tls_reload(): a PEREGRINE_NOTICE tells of files
 * that are loaded because they have changed. */
int peregrine_tls_concern(peregrine_tls *tls, uint32_t number, int64_t now_s, char *message, size_t capacity);
/* Gives `tls` back. Workers whose listeners use it keep it for as long as they live. */
void peregrine_tls_free(peregrine_tls *tls);
/* Connections that come in at this listener from now on speak TLS. */
int peregrine_listener_tls(peregrine_worker *worker, int listener, peregrine_tls *tls);

/* A text; `bytes` is NULL if there is none. */
typedef struct peregrine_text {
    const char *bytes;
    size_t len;
} peregrine_text;

/* Facts of a request's TLS connection. Valid until the next call of peregrine_tls_info_of() or
 * peregrine_poll() on the worker. */
typedef struct peregrine_tls_info {
    uint32_t size;
    uint16_t version;                   /* 0x0303, 0x0304 */
    uint16_t cipher_suite;              /* IANA's number */
    peregrine_text server_cert;         /* PEM */
    const peregrine_text *client_chain; /* PEM, the client's own certificate first; only that one after a
                                         * resumed handshake, and after peregrine_use_thread() if all take
                                         * more than 32 KiB */
    size_t client_chain_len;            /* 0: the client showed none */
    peregrine_text client_name;         /* the certificate's subject by RFC 4514 */
    peregrine_text client_error;        /* why the certificate does not verify */
    peregrine_text server_name;         /* SNI */
    peregrine_text alpn;
    uint32_t resumed;                   /* 1: a ticket shortened the handshake */
} peregrine_tls_info;

/* Fills `info`; PEREGRINE_E_TLS if the connection does not speak TLS. After peregrine_use_thread(), and where
 * the engine is elsewhere, the facts are known until the poll after the one that told of the request; then
 * PEREGRINE_E_GONE. */
int peregrine_tls_info_of(peregrine_worker *worker, peregrine_ticket ticket, peregrine_tls_info *info);

/* ---- Events ---------------------------------------------------------------------------------- */

enum peregrine_event_kind {
    PEREGRINE_REQUEST = 1,      /* a request head; `bytes` is the part of its body that has come */
    PEREGRINE_BODY = 2,         /* the next piece of a request body, after peregrine_read() */
    PEREGRINE_DRAINED = 3,      /* queued output fell below the low-water mark after having reached the
                                 * high one */
    PEREGRINE_FINISHED = 4,     /* the response is complete and with the kernel; the ticket is gone */
    PEREGRINE_ABORTED = 5,      /* the exchange ended before its response did: `code` is a
                                 * peregrine_reason; the ticket is gone */
    PEREGRINE_HALF_CLOSED = 6,  /* the peer has ended its sending side; see below. Comes at most once */
    PEREGRINE_MESSAGE = 7,      /* a whole WebSocket message; PEREGRINE_TEXT in flags if it is text (valid
                                 * UTF-8) */
    PEREGRINE_CLOSED = 8,       /* the WebSocket ended: `code` is its close code, `bytes` the peer's
                                 * reason, `reason` ours; ticket gone */
    PEREGRINE_STOPPED = 9,      /* after peregrine_drain()/peregrine_cut(): no connection is left */
    PEREGRINE_NOTICE = 10,      /* something for the log: `code` is a peregrine_level, `bytes` the text. About
                                 * a request it has its ticket, which may be gone, and begins with "request
                                 * 17-3 (192.0.2.1): ", see peregrine_request.number, with method and target
                                 * behind the address while the batch that brought the request is read;
                                 * `user` is NULL */
    PEREGRINE_LINES = 11,       /* `bytes` are whole lines of an access log that has neither path nor
                                 * descriptor */
    PEREGRINE_FLUSHED = 12,     /* all queued output is with the kernel, after peregrine_flush() said
                                 * PEREGRINE_BLOCKED */
    PEREGRINE_TOPIC = 13,       /* to be answered with peregrine_topic_heard(). `reason` is the number of a
                                 * peregrine_follow(), `code` its result (PEREGRINE_NODE_OK or another), and
                                 * `bytes` the position where it begins; or `reason` is 0 and `code`
                                 * PEREGRINE_NODE_RESET, with a position, a space and the topic's name, or
                                 * PEREGRINE_NODE_CUT */
    PEREGRINE_ENDING = 14       /* after peregrine_join() only: the engine closes WebSockets, because its
                                 * server stops or another one has taken its place, and waits for other
                                 * responses: event streams are to be ended */
};

/* PEREGRINE_HALF_CLOSED. A peer that has ended its sending side has mostly gone, and may as well wait for its
 * answer: the engine cannot tell, and leaves the choice to the host. The exchange goes on as before. Bytes
 * that were sent before the end can still be read; a request that turns out to be cut short by it ends with
 * PEREGRINE_ABORTED and PEREGRINE_CLIENT_CLOSED. Answers go out, under the limits of every response, and the
 * connection closes after the last answer; a peer that has gone resets it then. A host that rather gives up
 * calls peregrine_abort(). The event does not come for WebSockets, which end with it. */

/* Event flags */
enum {
    PEREGRINE_LAST = 1,      /* REQUEST, BODY: the request is complete with these bytes */
    PEREGRINE_TEXT = 2,      /* MESSAGE */
    PEREGRINE_TRAILERS = 4,  /* BODY with LAST: `request` points to a head that holds the trailer fields
                              * only */
    PEREGRINE_HANDSHAKE = 8, /* REQUEST: a well-formed WebSocket handshake; accept or answer it */
    PEREGRINE_EVENT_STREAM = 16 /* REQUEST: Accept lists text/event-stream, and the answer may have content
                                 * (the method is not HEAD) */
};

/* The reasons for the end of an exchange; PAGI's names are these in lower case */
enum peregrine_reason {
    PEREGRINE_CLIENT_CLOSED = 1,
    PEREGRINE_CLIENT_TIMEOUT = 2,
    PEREGRINE_IDLE_TIMEOUT = 3,
    PEREGRINE_KEEPALIVE_TIMEOUT = 4,
    PEREGRINE_WRITE_TIMEOUT = 5,
    PEREGRINE_WRITE_ERROR = 6,
    PEREGRINE_READ_ERROR = 7,
    PEREGRINE_PROTOCOL_ERROR = 8,
    PEREGRINE_SERVER_SHUTDOWN = 9,
    PEREGRINE_SERVER_ERROR = 10,
    PEREGRINE_BODY_TOO_LARGE = 11,
    PEREGRINE_QUEUE_OVERFLOW = 12
};

enum peregrine_level { PEREGRINE_ERROR = 1, PEREGRINE_WARN = 2, PEREGRINE_INFO = 3, PEREGRINE_DEBUG = 4 };

/* `len` bytes of a request head's text, from `at` on */
typedef struct peregrine_span {
    uint32_t at, len;
} peregrine_span;

/* A received field; `id` is one of the numbers in header.zig (0: any other name) */
typedef struct peregrine_field_span {
    uint32_t name_at;
    uint32_t value_at;
    uint32_t value_len;
    uint16_t name_len;
    uint16_t id;
} peregrine_field_span;

typedef struct peregrine_request {
    const char *text; /* the head as received; all spans index it */
    uint32_t text_len;
    uint32_t field_count;
    /* In the order of arrival. The Host field of an absolute-form target ("GET http://a/b") says what the
     * target says, not what the client said there (RFC 9112 3.2.2); if the client sent none (HTTP/1.0),
     * one stands last. Content-Length is there once, with one number. */
    const peregrine_field_span *fields;
    peregrine_span method, target;
    peregrine_span path, query; /* of the target; percent-encoded as it came, and the path well-formed so and
                                 * never empty */
    peregrine_span authority;   /* the host that the request is for: the value of the Host field, or empty */
    uint8_t method_id; /* 0: any other token without lower-case letters; CONNECT and others are refused
                        * (501) */
    uint8_t version;   /* 10, 11, 20 */
    uint8_t secure;    /* the client speaks TLS: with us, or with a trusted proxy that says so */
    uint8_t has_query; /* the target has a '?' (the query itself may be empty) */
    uint16_t peer_port, local_port;
    uint32_t connection; /* the connection's number, for logs */
    uint8_t tls;         /* the connection speaks TLS: see peregrine_tls_info_of() */
    uint8_t reserved[3];
    const char *peer;    /* the client's numeric address without a port; "" for Unix sockets, and with
                          * trailers. NUL-terminated, like `local` */
    const char *local;   /* the address or Unix path ("@name": an abstract one) that the client connected to;
                          * local_port is 0 with a path */
    int64_t body_length; /* Content-Length; -1: chunked; 0: none. With PEREGRINE_WHOLE_BODY what came */
    uint32_t number;     /* of the request in its connection, from 1 on: with `connection` what %L of the
                          * access log says, "17-3" */
    uint32_t route;      /* the number of the route that it came by; 0: none, see peregrine_add_route() */
    int32_t body_fd;     /* a file that is the whole body, from its beginning on; the engine closes it with
                          * the next peregrine_poll(). -1: the body is the bytes of the event */
    uint32_t reserved2;
    uint64_t complete_us; /* when the request was given to the host: microseconds of CLOCK_MONOTONIC */
} peregrine_request;

/* Replaces each "%xx" of a path by the byte that it stands for, in place; returns the number of bytes left.
 * All other bytes stay, a "+" too. */
size_t peregrine_percent_decode(char *text, size_t len);

typedef struct peregrine_event {
    uint16_t kind;
    uint16_t flags;
    uint32_t code;
    peregrine_ticket ticket;
    void *user; /* the pointer that peregrine_set_user() stored, NULL before */
    const char *bytes;
    size_t len;
    const peregrine_request *request; /* REQUEST; BODY with TRAILERS */
    uint32_t reason;                  /* CLOSED: a peregrine_reason when the engine ended it, 0 when the
                                       * peer or the host closed */
    uint32_t size;                    /* of this event, in bytes; the next one lies behind them */
} peregrine_event;

/* The event behind this one in its batch. */
static inline const peregrine_event *peregrine_next_event(const peregrine_event *event) {
    return (const peregrine_event *)(const void *)((const char *)event + event->size);
}

/* Reads sockets, runs deadlines, sends what is due, and gives the next batch. Waits up to timeout_ms (-1:
 * without bound, 0: not at all) when there is nothing to do. Returns the number of events (0 is normal), or
 * PEREGRINE_E_SYSTEM. `events` is the first one; from there on, peregrine_next_event(). After a batch with
 * events, poll again before waiting on peregrine_fd(): the answers to that batch leave with the next poll. A
 * host that wants to do something else first calls peregrine_wake(). */
int peregrine_poll(peregrine_worker *worker, int timeout_ms, const peregrine_event **events);

/* 1: `event` is the last event of a request that the engine has given up for want of memory while the caller
 * reads a batch; 0: there is none. To be asked between two events, because the memory that the caller frees
 * then may be needed by all others. The event comes again in a later peregrine_poll(). */
int peregrine_next_shed(peregrine_worker *worker, peregrine_event *event);

/* The memory that the bytes of this event lie in becomes the caller's, who frees it with free(): `capacity`
 * bytes, of which those behind event->len, 16 at least, may be written to. NULL: the bytes have to be copied,
 * because their memory is shared with other events, mostly unused, or not of this process's heap. Only for
 * the pieces of long bodies in the batch that was polled last. */
char *peregrine_keep_bytes(peregrine_worker *worker, const peregrine_event *event, size_t *capacity);

/* ---- Answers --------------------------------------------------------------------------------- */

/* A field on its way out; bytes are read during the call only */
typedef struct peregrine_field {
    const char *name;
    size_t name_len;
    const char *value;
    size_t value_len;
} peregrine_field;

/* Flags of peregrine_respond() and peregrine_write() */
enum {
    PEREGRINE_END = 1,           /* the response is complete with this */
    PEREGRINE_KEEP_ALIVE = 2,    /* respond: says `Connection: keep-alive` even where HTTP/1.1 takes it for
                                  * granted */
    PEREGRINE_FLUSH = 4,         /* hand the output to the kernel now, not at the next poll */
    PEREGRINE_CLOSE = 8,         /* respond, or write with END: the connection closes after this response */
    PEREGRINE_HOLD = 16          /* respond: the head waits for the first piece of the body, a flush, or the
                                  * next poll: a body of one piece is sent with its Content-Length instead of
                                  * chunked. After peregrine_use_thread() a call about another request may
                                  * also end the wait */
};

typedef struct peregrine_response {
    uint32_t size;
    uint16_t status;
    uint16_t flags;
    const peregrine_field *fields;
    size_t field_count;
    const char *body; /* may be NULL */
    size_t body_len;
} peregrine_response;

/* Remembers a pointer for all later events of this ticket, the last one of a response that is complete and
 * not yet sent included. */
int peregrine_set_user(peregrine_worker *worker, peregrine_ticket ticket, void *user);
/* The pointer that peregrine_set_user() stored; NULL if none, or if the ticket is gone. Events of the batch
 * in which a ticket was born carry no pointer yet: this finds it. */
void *peregrine_user(peregrine_worker *worker, peregrine_ticket ticket);
/* Starts the response, with as much of its body as is at hand. A Content-Length is added where END says that
 * this is the whole body. */
int peregrine_respond(peregrine_worker *worker, peregrine_ticket ticket, const peregrine_response *response);
/* Sends the next piece of the body. */
int peregrine_write(peregrine_worker *worker, peregrine_ticket ticket, const char *bytes, size_t len,
                    uint32_t flags);
/* The caller's mark for bytes that it lends: in the caller's memory, but the engine's until it comes back, or
 * until peregrine_worker_free() returns */
typedef struct peregrine_loan {
    struct peregrine_loan *next;
} peregrine_loan;

/* As peregrine_write(), without a copy: the bytes must stay where they are, as they are, until `loan` comes
 * back by peregrine_returned(). On a negative code they are not lent. Useful for 16 KiB or more to peers that
 * may be slow: a copy of fewer bytes costs no more than a loan. Lent bytes count as queued, for
 * PEREGRINE_BLOCKED for instance. loan NULL: the bytes are copied. */
int peregrine_lend(peregrine_worker *worker, peregrine_ticket ticket, const char *bytes, size_t len,
                   uint32_t flags, peregrine_loan *loan);
/* The loans that have come back since the last call, linked by `next`; NULL: none. To be asked after each
 * call that lends, whose loan comes back at once if all was sent or had to be copied, and after each
 * peregrine_poll(). peregrine_worker_free() ends those that are out without naming them. Some time after
 * much queued output has gone, peregrine_poll() asks glibc to give free memory back to the system
 * (malloc_trim), once a second at most. */
peregrine_loan *peregrine_returned(peregrine_worker *worker);
/* Sends a range of an open file as the last piece of the body. The engine duplicates fd. length < 0: to
 * the end of the file. */
int peregrine_write_file(peregrine_worker *worker, peregrine_ticket ticket, int fd, uint64_t offset,
                         int64_t length);
/* Like peregrine_write_file(), for a file that peregrine_opened() gave and whose storage may be slow: the
 * engine does not ask for the file's size, `length` bytes from `offset` on have to be there. The descriptor
 * belongs to the engine from then on, unless the answer is negative: PEREGRINE_E_RANGE where the range ends
 * behind INT64_MAX. */
int peregrine_write_slow_file(peregrine_worker *worker, peregrine_ticket ticket, int fd, uint64_t offset,
                              uint64_t length);
/* Gives the caller the connection of a WebSocket handshake (PEREGRINE_HANDSHAKE) to speak on it as it likes:
 * one end of a stream socket, blocking unless the caller changes that, which the caller closes. When the
 * caller writes its first byte there, PEREGRINE_FINISHED comes, and commands for the exchange do nothing any
 * more: the client gets what the caller writes, and the caller reads what the client sends. Until then the
 * exchange can be answered as any other, which ends the stream. The caller can read the end of the client's
 * sending side; the end of the caller's closes the connection when all is sent. The deadlines are those of a
 * WebSocket (write_ms, websocket_idle_ms), and the relay counts as one connection more. Returns the
 * descriptor, or a negative code: PEREGRINE_E_NOT_WEBSOCKET, PEREGRINE_E_OUT_OF_ORDER after a response or a
 * relay, PEREGRINE_E_MEMORY if there are too many connections, PEREGRINE_E_SYSTEM. With an engine on another
 * thread or in another process the caller may get a closed stream in place of the last two. */
int peregrine_relay(peregrine_worker *worker, peregrine_ticket ticket);
/* The exchange will be answered by its stream alone: if the stream is closed and nothing was written, the
 * client gets a 500, and PEREGRINE_ABORTED comes. */
int peregrine_relay_only(peregrine_worker *worker, peregrine_ticket ticket);
/* Ends the body with a trailer section, which may be empty. PEREGRINE_E_TRAILERS when the response has no
 * room for one: it has a Content-Length, or the client speaks HTTP/1.0. */
int peregrine_finish(peregrine_worker *worker, peregrine_ticket ticket, const peregrine_field *trailers,
                     size_t count);
/* Sends a copy of these bytes as a piece of the body every interval_ms (0: no longer) until the response
 * ends, as long as the peer takes what is sent. The response must have been started, without a
 * Content-Length. */
int peregrine_repeat(peregrine_worker *worker, peregrine_ticket ticket, uint32_t interval_ms,
                     const char *bytes, size_t len);
/* Sends an interim response (103 Early Hints). */
int peregrine_inform(peregrine_worker *worker, peregrine_ticket ticket, uint16_t status,
                     const peregrine_field *fields, size_t count);
/* Asks for the next piece of the request body: one PEREGRINE_BODY event follows (soon if bytes are there).
 * Sends `100 Continue` when due. For a WebSocket with PEREGRINE_FLOW_ON_DEMAND: asks for the next message. */
int peregrine_read(peregrine_worker *worker, peregrine_ticket ticket);
/* Hands queued output to the kernel now. PEREGRINE_BLOCKED if the kernel does not take everything:
 * PEREGRINE_FLUSHED will follow, or the exchange's end. */
int peregrine_flush(peregrine_worker *worker, peregrine_ticket ticket);
/* Ends the exchange by cutting its connection, so that the peer sees a truncated response. No event
 * follows. */
int peregrine_abort(peregrine_worker *worker, peregrine_ticket ticket);
/* Bytes queued for this exchange and not yet with the kernel; 0 for a stale ticket. */
size_t peregrine_buffered(peregrine_worker *worker, peregrine_ticket ticket);
/* 1: the client does not wait for the response any more, as far as can be known now: it has closed its
 * connection, or its sending side at least, or the exchange is over. 0: it does. For hosts that are at work
 * for long, and do not poll meanwhile. */
int peregrine_has_left(peregrine_worker *worker, peregrine_ticket ticket);
/* Index of the field that the last negative PEREGRINE_E_FIELD_* or _CONTENT_LENGTH answer is about. */
size_t peregrine_bad_field(const peregrine_worker *worker);
/* The meaning of a negative code, as a phrase for a message: "header value holds a control byte". */
const char *peregrine_error_text(int code);
/* The name of a reason: "client_closed" for PEREGRINE_CLIENT_CLOSED; "" for 0. */
const char *peregrine_reason_text(uint32_t reason);

/* ---- Answers from other threads ---------------------------------------------------------------- */

/* The mailbox through which other threads reach a worker. It may outlive the worker: then each post returns
 * PEREGRINE_E_GONE. */
typedef struct peregrine_mailbox peregrine_mailbox;

/* Makes a mailbox of this worker, on the thread that polls it; NULL: out of memory. Any number of threads may
 * share a mailbox. Freed from any thread, when no other thread uses it any more. */
peregrine_mailbox *peregrine_mailbox_new(peregrine_worker *worker);
void peregrine_mailbox_free(peregrine_mailbox *mailbox);
/* Posts a whole answer to a request, or, with status 0, a message to a WebSocket (flags: PEREGRINE_TEXT, or 0
 * for binary), from any thread. All is copied, the worker wakes, and the next peregrine_poll() sends it; if
 * the ticket is gone by then, nothing is sent. Answers have at most 256 fields; an answer that cannot be
 * sent, because of a field's value for instance, becomes a 500. PEREGRINE_OK; PEREGRINE_E_STATUS,
 * PEREGRINE_E_RANGE (too many fields), PEREGRINE_E_UTF8; PEREGRINE_E_FULL: 64 MiB wait already;
 * PEREGRINE_E_MEMORY; PEREGRINE_E_GONE: the worker was freed, or is another process's. */
int peregrine_post(peregrine_mailbox *mailbox, peregrine_ticket ticket, const peregrine_response *response);

/* ---- WebSocket ------------------------------------------------------------------------------- */

/* Completes the handshake. `subprotocol` may be NULL. Messages are compressed if the client offers it and
 * the option `deflate` is not 0. While the worker drains, the WebSocket is closed again at once (1001). */
int peregrine_accept_websocket(peregrine_worker *worker, peregrine_ticket ticket, const char *subprotocol,
                               size_t subprotocol_len, const peregrine_field *fields, size_t count);
/* Like peregrine_accept_websocket(); `compression`, one of peregrine_compression, says whether messages are
 * compressed if the client offers it. PEREGRINE_E_RANGE: another number. */
int peregrine_accept_websocket_as(peregrine_worker *worker, peregrine_ticket ticket, int compression,
                                  const char *subprotocol, size_t subprotocol_len,
                                  const peregrine_field *fields, size_t count);
enum peregrine_compression {
    PEREGRINE_COMPRESSION_CONFIGURED = 0, /* as the option `deflate` says */
    PEREGRINE_COMPRESSION_OFF = 1,
    PEREGRINE_COMPRESSION_ON = 2
};
/* Sends one message: flags PEREGRINE_TEXT (checked to be UTF-8) or 0 for binary. */
int peregrine_send_message(peregrine_worker *worker, peregrine_ticket ticket, const char *bytes, size_t len,
                           uint32_t flags);
/* Like peregrine_send_message(), without a copy unless the message is compressed: see peregrine_lend(). */
int peregrine_lend_message(peregrine_worker *worker, peregrine_ticket ticket, const char *bytes, size_t len,
                           uint32_t flags, peregrine_loan *loan);
/* Starts the close handshake; PEREGRINE_CLOSED follows when it is done or times out. Code 1005: no code is
 * sent. */
int peregrine_close_websocket(peregrine_worker *worker, peregrine_ticket ticket, uint16_t code,
                              const char *reason, size_t reason_len);
/* Pings every interval_ms (0: no longer); a pong that is not there after timeout_ms (0: no limit) ends the
 * WebSocket: 1006, keepalive_timeout. */
int peregrine_keepalive(peregrine_worker *worker, peregrine_ticket ticket, uint32_t interval_ms,
                        uint32_t timeout_ms);
/* Says which messages come, by one of peregrine_flow. Other messages are kept as the peer sent them, perhaps
 * compressed, and the peer waits. */
int peregrine_pause(peregrine_worker *worker, peregrine_ticket ticket, int flow);
enum peregrine_flow {
    PEREGRINE_FLOW_ALL = 0,      /* every message; the default */
    PEREGRINE_FLOW_NONE = 1,     /* none: the peer is not read */
    PEREGRINE_FLOW_ON_DEMAND = 2 /* one of any size after each peregrine_read(), and small ones ahead of
                                  * that: of at most 64 KiB, and compressed ones of 16 KiB in all */
};
/* Sets this exchange's idle limit in milliseconds (0: none): this time without bytes in either direction ends
 * it with idle_timeout. */
int peregrine_idle_limit(peregrine_worker *worker, peregrine_ticket ticket, uint32_t idle_ms);

/* Whether a head that was held (PEREGRINE_HOLD) waits beyond the next poll as well: until the first piece of
 * the body comes, or a flush, or keep is 0. For a file whose length is not yet known. */
int peregrine_keep_head(peregrine_worker *worker, peregrine_ticket ticket, int keep);

/* ---- Answers for files ----------------------------------------------------------------------------- */

/* Flags of a peregrine_file_question */
enum {
    PEREGRINE_DOTFILES = 1, /* files whose names begin with a dot are found as well */
    PEREGRINE_PLAIN = 2     /* no precompressed files */
};

/* A request for a file of a folder. Texts may be NULL but for folder, method and path. */
typedef struct peregrine_file_question {
    uint32_t size;
    uint32_t flags;
    const char *folder;       /* absolute */
    const char *method;
    const char *path;         /* below the folder, percent-encoded; begins with '/' */
    const char *query;
    const char *index;        /* the file that answers for a folder; NULL: none does */
    const char *default_type; /* of files whose extension says nothing */
    const char *content_type; /* of this file, whatever its name says */
    const peregrine_field *fields; /* of the request: conditions, ranges, Accept-Encoding */
    size_t field_count;
} peregrine_file_question;

/* A piece of the body of an answer. */
typedef struct peregrine_file_part {
    const char *bytes; /* NULL: a range of the file */
    uint64_t offset;   /* the start of the range in the file */
    uint64_t len;
} peregrine_file_part;

/* The answer for a file. */
typedef struct peregrine_file_answer {
    uint32_t size;
    uint16_t status;
    uint16_t reserved;
    int32_t fd; /* the file of ranges; -1: there are none. A caller that sets it to -1 has to close it */
    uint32_t reserved2;
    const peregrine_field *fields;
    size_t field_count;
    const peregrine_file_part *parts;
    size_t part_count;
} peregrine_file_answer;

/* Finds the answer that the engine would give if the folder was one of its own (peregrine_add_folder()), for
 * applications that answer themselves. Needs no worker; any thread may ask. Returns 1, and an answer to be
 * freed; 0: there is no such file; PEREGRINE_E_ADDRESS: a wrong path, name or field; PEREGRINE_E_SYSTEM with
 * errno: the folder is not there; PEREGRINE_E_RANGE; PEREGRINE_E_MEMORY. */
int peregrine_look_up_file(const peregrine_file_question *question, peregrine_file_answer **answer);
void peregrine_file_answer_free(peregrine_file_answer *answer);

/* Opens files by threads, for a caller that must not wait for storage that may never answer (NFS, FUSE). An
 * opener belongs to one thread. */
typedef struct peregrine_opener peregrine_opener;

/* Flags of a file that was opened */
enum {
    PEREGRINE_PLAIN_FILE = 1, /* has as many bytes as its size says; no folder, pipe or file of /proc */
    PEREGRINE_LOCAL_FILE = 2  /* its file system, or its folder's, waits for nothing but this machine */
};

typedef struct peregrine_opened_file {
    uint32_t size;
    uint32_t flags;
    uint64_t user;        /* the number given to peregrine_open_aside() */
    uint64_t bytes;
    int32_t fd;           /* the caller's to close, with peregrine_close_aside(); -1: it was not opened */
    int32_t system_error; /* errno, if it was not opened */
} peregrine_opened_file;

/* Makes an opener: PEREGRINE_OK, PEREGRINE_E_MEMORY, PEREGRINE_E_SYSTEM. To free an opener waits for no
 * thread; descriptors that were not fetched are closed. */
int peregrine_opener_new(peregrine_opener **opener);
void peregrine_opener_free(peregrine_opener *opener);
/* A descriptor that is readable when peregrine_opened() has a file. */
int peregrine_opener_fd(const peregrine_opener *opener);
/* Has a file opened for reading. The path is copied. PEREGRINE_E_GONE: in a process that was forked from the
 * opener's. */
int peregrine_open_aside(peregrine_opener *opener, const char *path, uint64_t user);
/* 1: `file`, whose `size` is set before, has the next file that was opened or could not be; 0: none. */
int peregrine_opened(peregrine_opener *opener, peregrine_opened_file *file);
/* Has a thread close a descriptor: some file systems ask their storage then, too. */
void peregrine_close_aside(peregrine_opener *opener, int fd);

/* ---- Channels ------------------------------------------------------------------------------
 *
 * Messages between interpreters. Each interpreter is a node with mailboxes; a hub, on a thread of its own,
 * brings messages from one node to the others. Linux only. */

/* Limits of the history of each topic; 0: the default */
typedef struct peregrine_history {
    uint32_t size;
    uint32_t entries; /* 16 at least; 1000 by default */
    uint64_t bytes; /* of the entries; 4 MiB by default, 64 MiB at most */
    uint64_t age_ms; /* five minutes by default */
} peregrine_history;

/* A hub. Nodes send one end of a pair of stream sockets through a SOCK_SEQPACKET socket, whose other end is
 * `join_socket`, with a message of one byte. Where several processes have that end, `lock` is a file that all
 * of them have inherited: the first process is the hub until it ends, then another one; -1: there is one
 * process. If `lock` is a file of peregrine_hub_file(), a hub that is freed leaves the histories of its
 * topics there, and the next one goes on with them.
 * Both descriptors stay the caller's, and must be open until the hub is freed, which ends its thread. `redis`
 * is the URL of a Redis, by which the hubs of several machines are one; "": there is none. `prefixes` are
 * those of topics to which nodes will be confined, with a space between two of them: the hub keeps room for
 * these nodes from the start. PEREGRINE_OK, PEREGRINE_E_MEMORY, PEREGRINE_E_SYSTEM, PEREGRINE_E_RANGE:
 * peregrine_redis_problem() finds a fault, a prefix is no name, or there are more than 31. */
typedef struct peregrine_hub peregrine_hub;
int peregrine_hub_new(int join_socket, int lock, const char *redis, size_t redis_len,
                      const char *prefixes, size_t prefixes_len,
                      const peregrine_history *history, peregrine_hub **hub);
void peregrine_hub_free(peregrine_hub *hub);
/* Makes a file in memory for `lock`; returns its descriptor, which is closed on exec. PEREGRINE_E_SYSTEM. */
int peregrine_hub_file(void);
/* A number that grows at least every second while the hub's thread lives. */
uint32_t peregrine_hub_beats(const peregrine_hub *hub);
/* Why the hub does not reach its Redis, in words; NULL: the hub does, or has none. */
const char *peregrine_hub_trouble(const peregrine_hub *hub);
/* How many nodes could not join, because the process had no descriptor left for them. Each of them tries
 * again. */
uint32_t peregrine_hub_lacked(const peregrine_hub *hub);
/* How many entries of streams in Redis the hub has passed over, because no hub has written them. Entries that
 * are read again are counted again. */
uint32_t peregrine_hub_foreign(const peregrine_hub *hub);
/* The fault of a URL of a Redis, in words that are valid until this thread's next call; NULL: there is none.
 * Files for TLS that the URL names are read. */
const char *peregrine_redis_problem(const char *url, size_t len);

/* A node, which belongs to one thread. PEREGRINE_OK, PEREGRINE_E_MEMORY. */
typedef struct peregrine_node peregrine_node;
int peregrine_node_new(peregrine_node **node);
void peregrine_node_free(peregrine_node *node);

/* Limits of a node's mailboxes, in place of those of PAGI's design. */
typedef struct peregrine_node_bounds {
    uint32_t size;
    uint32_t capacity; /* messages that may wait in one mailbox, at least 1 */
    uint64_t expiry_ms; /* milliseconds for which they may wait */
    uint64_t message_bytes; /* bytes of one message that this node sends; 1 MiB at most */
} peregrine_node_bounds;
void peregrine_node_limit(peregrine_node *node, const peregrine_node_bounds *bounds);
/* Limits of the histories that the node copies; to be called before it reads the first topic. */
void peregrine_node_limit_history(peregrine_node *node, const peregrine_history *history);

/* Gives the node a connection to a hub: this side's end of the pair, which stays the caller's. */
int peregrine_node_connected(peregrine_node *node, int fd);

/* Flags of peregrine_node_poll() */
enum {
    PEREGRINE_NODE_CONNECTED = 1, /* otherwise the connection is gone: close it, make another one */
    PEREGRINE_NODE_WRITES = 2,    /* poll when the socket is writable, too */
    PEREGRINE_NODE_DEADLINES = 4  /* poll within a second: a request or a message may be too old */
};
/* Receives and sends; afterwards peregrine_node_next() may have events. */
uint32_t peregrine_node_poll(peregrine_node *node);

/* Results of a request to the hub */
enum {
    PEREGRINE_NODE_OK = 0,
    PEREGRINE_NODE_GONE = 1,        /* there is no such channel any more: the message is lost */
    PEREGRINE_NODE_FULL = 2,        /* the channel's mailbox is full */
    PEREGRINE_NODE_TOO_MANY = 3,    /* too many requests, topics or mailboxes */
    PEREGRINE_NODE_UNAVAILABLE = 4, /* the hub cannot be reached, and has not got the request */
    PEREGRINE_NODE_UNKNOWN = 5,     /* the connection was lost, and the hub may have got the request */
    PEREGRINE_NODE_NAME = 6,        /* not the name of a channel or topic */
    PEREGRINE_NODE_TOO_LARGE = 7,
    PEREGRINE_NODE_FORBIDDEN = 8    /* a topic or channel outside of those to which the node is confined */
};

/* The longest text of a position in a topic with history */
enum { PEREGRINE_NODE_POSITION_BYTES = 48 };

typedef struct peregrine_node_event {
    uint32_t size;
    uint32_t number;  /* of the request that is over; 0: the event is about a mailbox */
    uint32_t result;
    uint64_t mailbox; /* has mail, which nobody found there before */
    uint64_t user;    /* the number given to peregrine_node_open() */
    uint32_t readable; /* 1: no mail, but something for peregrine_node_read() */
    uint32_t position_len; /* of a request about a topic with history: the position in it; 0: there is none */
    char position[PEREGRINE_NODE_POSITION_BYTES];
    /* The reply to PEREGRINE_NODE_WHO, valid until the next event: 8 bytes of the count, little-endian, 1
     * byte that is 1 if all have answered in time, and at most 100 names of channels, each with a space
     * behind it; NULL: none */
    const char *present;
    size_t present_len;
} peregrine_node_event;
/* 1: `event`, whose `size` is set before, is the next event; 0: there is none. */
int peregrine_node_next(peregrine_node *node, peregrine_node_event *event);

/* Makes a mailbox; 0: no memory. Closing a mailbox ends its subscriptions. */
uint64_t peregrine_node_open(peregrine_node *node, uint64_t user);
void peregrine_node_close(peregrine_node *node, uint64_t mailbox);
/* Bytes of the name of a mailbox's channel */
enum { PEREGRINE_NODE_NAME_BYTES = 38 };
/* Writes the name of a mailbox's channel without a zero at its end; returns its length. */
size_t peregrine_node_name(const peregrine_node *node, uint64_t mailbox, char *buffer);

typedef struct peregrine_node_message {
    uint32_t size;
    const char *bytes;
    size_t len;
    void *handle; /* for peregrine_node_release() */
} peregrine_node_message;
/* 1: `message` is the oldest one, valid until it is released; 0: none, and an event tells of the next one. */
int peregrine_node_take(peregrine_node *node, uint64_t mailbox, peregrine_node_message *message);
void peregrine_node_release(peregrine_node *node, void *handle);

/* Requests */
enum {
    PEREGRINE_NODE_SUBSCRIBE = 1, /* mailbox; name: topic */
    PEREGRINE_NODE_PUBLISH = 2,   /* name: topic; bytes; extra: channels that do not get it, between spaces */
    PEREGRINE_NODE_SEND = 3,      /* name: channel, or a topic of which one channel gets it; bytes */
    PEREGRINE_NODE_ADD = 4,       /* name: channel, of any node; extra: topic */
    PEREGRINE_NODE_DISCARD = 5,   /* like PEREGRINE_NODE_ADD */
    PEREGRINE_NODE_FLUSH = 6,     /* ends all subscriptions and drops all messages of all nodes */
    PEREGRINE_NODE_APPEND = 7,    /* name: topic with history, which gets an entry; bytes: at least one */
    PEREGRINE_NODE_LOOK = 8,      /* name: topic; tells the position of its newest entry */
    PEREGRINE_NODE_WHO = 9        /* name: topic; extra: not "" if it has a history; who is subscribed */
};
typedef struct peregrine_node_ask {
    uint32_t size;
    int32_t request;
    uint64_t mailbox;
    const char *name;
    size_t name_len;
    const char *extra;
    size_t extra_len;
    const char *bytes;
    size_t bytes_len;
} peregrine_node_ask;
/* Returns the number of the request, of which an event will tell; or one of the results above, negative. */
int64_t peregrine_node_request(peregrine_node *node, const peregrine_node_ask *ask);
/* 1: bytes wait that the socket did not take: poll when it is writable. */
int peregrine_node_is_behind(const peregrine_node *node);
/* Ends a subscription at once. */
void peregrine_node_unsubscribe(peregrine_node *node, uint64_t mailbox, const char *name, size_t len);

/* The forms in which a reader of a topic with history gets its entries */
enum {
    PEREGRINE_NODE_AS_TEXT = 0,   /* one by one; bytes that are no UTF-8 are replaced */
    PEREGRINE_NODE_AS_BINARY = 1, /* one by one */
    PEREGRINE_NODE_AS_EVENTS = 2  /* messages of an event stream, with positions as ids; or several */
};
typedef struct peregrine_node_follow_ask {
    uint32_t size;
    uint32_t as;
    uint32_t cuts; /* 1: a reader behind the history is cut; 0: it gets a reset and goes on */
    uint64_t mailbox;
    const char *name;
    size_t name_len;
    const char *since; /* a position: entries behind it come; "" or "now": entries from now on */
    size_t since_len;
} peregrine_node_follow_ask;
/* Has a mailbox read a topic with history. Returns as peregrine_node_request(); the event tells the position
 * where the reading begins, and a readable event follows. An unknown position makes a reset. */
int64_t peregrine_node_follow(peregrine_node *node, const peregrine_node_follow_ask *ask);
/* Ends the reading of a topic at once. */
void peregrine_node_unfollow(peregrine_node *node, uint64_t mailbox, const char *name, size_t len);

/* Results of a read */
enum {
    PEREGRINE_NODE_NOTHING = 0, /* an event tells when there is more */
    PEREGRINE_NODE_BYTES = 1,   /* send them, then say peregrine_node_sent() */
    PEREGRINE_NODE_RESET = 2,   /* entries may be missing: the reader goes on behind `position` */
    PEREGRINE_NODE_CUT = 3      /* the reader was too far behind, and reads nothing any more */
};
typedef struct peregrine_node_reading {
    uint32_t size;
    uint32_t as;
    const char *bytes; /* valid until the next call about the node */
    size_t len;
    const char *topic;
    size_t topic_len;
    uint32_t position_len;
    char position[PEREGRINE_NODE_POSITION_BYTES];
} peregrine_node_reading;
/* Returns the result of a read; its bytes or position are in `reading`, whose `size` is set before. */
int peregrine_node_read(peregrine_node *node, uint64_t mailbox, peregrine_node_reading *reading);
void peregrine_node_sent(peregrine_node *node, uint64_t mailbox, size_t count);

/* ---- Topics that the engine delivers ------------------------------------------------------------- */

/* Has the engine deliver topics with history to its exchanges. After peregrine_use_thread() or
 * peregrine_use_interpreters(), before the first poll. `join_socket` leads to the hub; a copy of it is used.
 * */
int peregrine_deliver_topics(peregrine_worker *worker, int join_socket, const peregrine_history *history);
/* Has an exchange read a topic, where the engine delivers topics: its response has begun, or its WebSocket is
 * open. The engine sends the entries, and on an event stream resets, too. `ask->mailbox`: of `node`, for
 * PEREGRINE_NODE_WHO. PEREGRINE_TOPIC with `number` tells the result. A connection that gets nothing else
 * goes on when its interpreter dies. */
int peregrine_follow(peregrine_worker *worker, peregrine_ticket ticket, uint32_t number,
                     const peregrine_node *node, const peregrine_node_follow_ask *ask);
/* Ends the reading of a topic, after earlier commands. */
int peregrine_unfollow(peregrine_worker *worker, peregrine_ticket ticket, const char *name, size_t len);
/* Confirms a PEREGRINE_TOPIC, after the output that follows from it: entries go on. */
int peregrine_topic_heard(peregrine_worker *worker, peregrine_ticket ticket);

/* ---- Held responses -------------------------------------------------------------------------------- */

/* The kinds of held responses */
enum {
    PEREGRINE_HELD_STREAM = 0,  /* the response begins, and entries of topics are its further content */
    PEREGRINE_HELD_RESPONSE = 1 /* the first entry becomes the content, with status 200 and the entry's
                                 * position as ETag; or the response is sent as it is when its time is over */
};
/* The form of entries in a stream. A stream that is further behind than the history, or begins at an unknown
 * position, gets a reset as an event; a stream of bytes is cut, as it has no place for a reset. */
enum {
    PEREGRINE_HELD_EVENTS = 0, /* messages of an event stream, with positions as ids */
    PEREGRINE_HELD_BYTES = 1   /* the bytes of the entries alone */
};
/* Limits of a held response */
enum {
    PEREGRINE_HELD_CONTENT_BYTES = 65536, /* bytes of its own content */
    PEREGRINE_HELD_KEEPALIVE_BYTES = 1024,
    PEREGRINE_HELD_TOPICS = 32
};
typedef struct peregrine_held_topic {
    uint32_t size;
    uint32_t as;
    const char *name;
    size_t name_len;
    const char *since; /* as in peregrine_node_follow_ask */
    size_t since_len;
} peregrine_held_topic;
typedef struct peregrine_held_ask {
    uint32_t size;
    uint32_t kind;
    uint32_t timeout_ms;   /* of PEREGRINE_HELD_RESPONSE: when it is sent without an entry */
    uint32_t keepalive_ms; /* a stream gets `keepalive` after this time without an entry; 0: nothing */
    const char *keepalive;
    size_t keepalive_len;
    const peregrine_held_topic *topics; /* no two of the same name */
    size_t topic_count;
} peregrine_held_ask;
/* For interpreters that have joined an engine that delivers topics: gives a response, in place of
 * peregrine_respond(), and leaves it to the engine, which holds it open for topics. The ticket is gone: a
 * held response outlives its interpreter, and ends when its client leaves or the engine stops. Of the
 * response's flags PEREGRINE_CLOSE and PEREGRINE_KEEP_ALIVE count. Nothing is sent before the engine reads
 * all topics: what is published after a client has seen the beginning of its stream reaches that client. A
 * request for the head alone is answered at once. The engine refuses a response (503) if it holds `held_max`
 * already, if the share of its group is taken (each group with topics has an equal one), or if the hub cannot
 * be asked.
 * PEREGRINE_DONE or PEREGRINE_BLOCKED as for a whole response; PEREGRINE_E_RANGE: a limit above, or a topic
 * with a wrong name or with that of another; PEREGRINE_E_STATUS: also a stream without content; and the codes
 * of peregrine_respond(). */
int peregrine_hold(peregrine_worker *worker, peregrine_ticket ticket, const peregrine_response *response,
                   const peregrine_held_ask *how);

#ifdef __cplusplus
}
#endif
#endif
