/* hello.c - the engine from C: one worker, one loop, no thread, no callback.
 *
 * With an installed library (`make install`, `zig build library`, Debian's libperegrine-dev):
 *
 *     cc hello.c -o hello $(pkg-config --cflags --libs peregrine)
 *
 * In a clone, after script/build, at its top:
 *
 *     cc -Iengine/include examples/c/hello.c -o hello .peregrine/engine/lib/libperegrine.a -lssl -lcrypto -lm
 *
 * without -lssl -lcrypto if the engine was built without TLS. Limits are given by name:
 *
 *     ./hello 8080 body_bytes_max=1000 frame_bytes_max=1000000
 *
 * - /: a greeting
 *
 * - /echo: the request's body, sent back piece by piece as it comes, and its trailers
 *
 * - /head: what was asked: path, query, host and all fields
 *
 * - /stream: a megabyte in pieces, no faster than the client reads
 *
 * - a WebSocket handshake anywhere: every message comes back
 *
 * TERM and INT stop accepting, let requests finish, and end with status 0. */
#include "peregrine.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static peregrine_worker *worker;
static volatile sig_atomic_t stop_asked;

static void on_signal(int number) {
    (void)number;
    stop_asked = 1;
    peregrine_wake(worker); /* poll() returns; any thread may call this, and a signal's handler */
}

static peregrine_field field(const char *name, const char *value) {
    peregrine_field f = {name, strlen(name), value, strlen(value)};
    return f;
}

static int path_is(const peregrine_request *request, const char *path) {
    const size_t len = strlen(path);
    return request->path.len == len && memcmp(request->text + request->path.at, path, len) == 0;
}

static void greet(peregrine_ticket ticket) {
    static const char text[] = "Hello from C\n";
    const peregrine_field fields[] = {field("content-type", "text/plain"), field("content-length", "13")};
    const peregrine_response response = {sizeof response, 200, PEREGRINE_END, fields, 2,
                                         text, sizeof text - 1};
    peregrine_respond(worker, ticket, &response);
}

/* The kinds of tickets; peregrine_set_user() keeps the address of one of these. */
static char ECHO, STREAM[1024 * 1024 + 1];

static void send_echo(peregrine_ticket ticket, const peregrine_event *event) {
    const int last = (event->flags & PEREGRINE_LAST) != 0;
    if (last && (event->flags & PEREGRINE_TRAILERS)) {
        const peregrine_request *head = event->request;
        peregrine_field *trailers = calloc(head->field_count + 1, sizeof *trailers);
        for (uint32_t i = 0; i < head->field_count; i++) {
            const peregrine_field_span *span = &head->fields[i];
            trailers[i] = (peregrine_field){head->text + span->name_at, span->name_len,
                                            head->text + span->value_at, span->value_len};
        }
        peregrine_finish(worker, ticket, trailers, head->field_count);
        free(trailers);
        return;
    }
    const int outcome = peregrine_write(worker, ticket, event->bytes, event->len, last ? PEREGRINE_END : 0);
    if (!last && outcome == PEREGRINE_OK) peregrine_read(worker, ticket);
    /* PEREGRINE_BLOCKED: DRAINED will follow, and we read on then */
}

static void start_echo(const peregrine_event *event) {
    const peregrine_response response = {sizeof response, 200, 0, NULL, 0, NULL, 0};
    peregrine_set_user(worker, event->ticket, &ECHO);
    if (peregrine_respond(worker, event->ticket, &response) >= 0) send_echo(event->ticket, event);
}

/* Each ticket's progress is how much is left; it lives in the pointer itself: STREAM + bytes left. */
static void go_on_streaming(peregrine_ticket ticket, size_t left) {
    static char piece[4096];
    memset(piece, '.', sizeof piece);
    while (left > 0) {
        left -= sizeof piece;
        peregrine_set_user(worker, ticket, STREAM + left);
        const uint32_t flags = left == 0 ? PEREGRINE_END : 0;
        if (peregrine_write(worker, ticket, piece, sizeof piece, flags) != PEREGRINE_OK) return;
    }
}

static void start_stream(peregrine_ticket ticket) {
    const peregrine_field length = field("content-length", "1048576");
    const peregrine_response response = {sizeof response, 200, 0, &length, 1, NULL, 0};
    if (peregrine_respond(worker, ticket, &response) >= 0) go_on_streaming(ticket, sizeof STREAM - 1);
}

/* A piece of a head as printf's "%.*s" wants it. */
#define TEXT(head, start, length) (int)(length), (head)->text + (start)

static void describe(peregrine_ticket ticket, const peregrine_request *head) {
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    fprintf(out, "path %.*s\n", TEXT(head, head->path.at, head->path.len));
    if (head->has_query) fprintf(out, "query %.*s\n", TEXT(head, head->query.at, head->query.len));
    fprintf(out, "host %.*s\n", TEXT(head, head->authority.at, head->authority.len));
    for (uint32_t i = 0; i < head->field_count; i++) {
        const peregrine_field_span *span = &head->fields[i];
        fprintf(out, "%.*s: ", TEXT(head, span->name_at, span->name_len));
        fprintf(out, "%.*s\n", TEXT(head, span->value_at, span->value_len));
    }
    fclose(out);
    char length[24];
    snprintf(length, sizeof length, "%zu", len);
    const peregrine_field fields[] = {field("content-type", "text/plain"), field("content-length", length)};
    const peregrine_response response = {sizeof response, 200, PEREGRINE_END, fields, 2, text, len};
    peregrine_respond(worker, ticket, &response);
    free(text);
}

static void not_found(peregrine_ticket ticket) {
    const peregrine_field length = field("content-length", "10");
    const peregrine_response response = {sizeof response, 404, PEREGRINE_END, &length, 1, "not found\n", 10};
    peregrine_respond(worker, ticket, &response);
}

static void on_request(const peregrine_event *event) {
    if (event->flags & PEREGRINE_HANDSHAKE)
        peregrine_accept_websocket(worker, event->ticket, NULL, 0, NULL, 0);
    else if (path_is(event->request, "/"))
        greet(event->ticket);
    else if (path_is(event->request, "/echo"))
        start_echo(event);
    else if (path_is(event->request, "/head"))
        describe(event->ticket, event->request);
    else if (path_is(event->request, "/stream"))
        start_stream(event->ticket);
    else
        not_found(event->ticket);
}

static void *user_of(const peregrine_event *event) {
    return event->user ? event->user : peregrine_user(worker, event->ticket);
}

/* 0 when the worker has stopped. */
static int on_event(const peregrine_event *event) {
    char *user;
    switch (event->kind) {
    case PEREGRINE_REQUEST: on_request(event); break;
    case PEREGRINE_BODY: send_echo(event->ticket, event); break;
    case PEREGRINE_DRAINED:
        user = user_of(event);
        if (user == &ECHO) peregrine_read(worker, event->ticket);
        else if (user) go_on_streaming(event->ticket, (size_t)(user - STREAM));
        break;
    case PEREGRINE_MESSAGE:
        peregrine_send_message(worker, event->ticket, event->bytes, event->len,
                               event->flags & PEREGRINE_TEXT);
        break;
    case PEREGRINE_NOTICE: fprintf(stderr, "%.*s\n", (int)event->len, event->bytes); break;
    case PEREGRINE_STOPPED: return 0;
    default: break;
    }
    return 1;
}

/* Sets a limit given as NAME=VALUE. */
static int set_limit(peregrine_config *config, const char *setting) {
    char name[64];
    long long value;
    if (sscanf(setting, "%63[a-z_]=%lld", name, &value) != 2) {
        fprintf(stderr, "hello: '%s' is not NAME=NUMBER\n", setting);
        return 0;
    }
    const int outcome = peregrine_config_set(config, name, value);
    if (outcome < 0) fprintf(stderr, "hello: %s: %s\n", setting, peregrine_error_text(outcome));
    return outcome == PEREGRINE_OK;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: hello PORT [LIMIT=VALUE ...]\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    peregrine_config *config = peregrine_config_new();
    for (int i = 2; i < argc; i++) {
        if (!set_limit(config, argv[i])) return 2;
    }
    worker = peregrine_worker_new(config);
    peregrine_config_free(config);
    const int listener = peregrine_listen(worker, "127.0.0.1", (uint16_t)atoi(argv[1]), 1024, 0);
    if (listener < 0) {
        fprintf(stderr, "hello: cannot listen on port %s: %s\n", argv[1], peregrine_error_text(listener));
        return 1;
    }
    uint16_t port;
    char host[64];
    peregrine_listener_address(worker, listener, host, sizeof host, &port);
    printf("listening on http://%s:%u/\n", host, port);
    fflush(stdout);
    signal(SIGTERM, on_signal);
    signal(SIGINT, on_signal);

    for (int running = 1; running;) {
        const peregrine_event *event;
        const int count = peregrine_poll(worker, -1, &event);
        if (count < 0) return 1;
        for (int i = 0; i < count; i++, event = peregrine_next_event(event))
            running = on_event(event) && running;
        if (stop_asked) peregrine_drain(worker);
    }
    peregrine_worker_free(worker);
    return 0;
}
