/* program.c - a program as somebody compiled it against version 2 of peregrine.h, which lies frozen beside it.
 *
 * script/lib/frozen.t links it with the library of today and with one whose structs have grown. It uses every struct that may grow.
 *
 *     program PORT CERT KEY: serves TLS; /echo sends the body back, anything else says what it was asked.
 *     Access log lines and the statistics go to standard output; TERM ends it. */
#include "peregrine.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static peregrine_worker *worker;
static volatile sig_atomic_t stop_asked;
static int batch_max;

static void on_signal(int number) {
    (void)number;
    stop_asked = 1;
    peregrine_wake(worker);
}

/* The path, how many fields came, and with what TLS. */
static void tell(const peregrine_event *event) {
    const peregrine_request *request = event->request;
    struct {
        peregrine_tls_info info;
        char guard[64];
    } tls;
    memset(&tls, 0x5a, sizeof tls);
    tls.info.size = sizeof tls.info;
    if (peregrine_tls_info_of(worker, event->ticket, &tls.info) != PEREGRINE_OK) abort();
    for (size_t i = 0; i < sizeof tls.guard; i++)
        if (tls.guard[i] != 0x5a) abort();
    char body[256];
    const int len = snprintf(body, sizeof body, "%.*s %u %04x %s\n", (int)request->path.len, request->text + request->path.at,
                             request->field_count, tls.info.version, request->peer);
    const peregrine_field type = {"content-type", 12, "text/plain", 10};
    const peregrine_response response = {sizeof response, 200, PEREGRINE_END, &type, 1, body, (size_t)len};
    if (peregrine_respond(worker, event->ticket, &response) < 0) abort();
}

static void echo(const peregrine_event *event) {
    const int last = (event->flags & PEREGRINE_LAST) != 0;
    if (event->kind == PEREGRINE_REQUEST) {
        const peregrine_response response = {sizeof response, 200, 0, NULL, 0, NULL, 0};
        if (peregrine_respond(worker, event->ticket, &response) < 0) abort();
    }
    if (peregrine_write(worker, event->ticket, event->bytes, event->len, last ? PEREGRINE_END : 0) < 0) abort();
    if (!last) peregrine_read(worker, event->ticket);
}

static int on_event(const peregrine_event *event) {
    switch (event->kind) {
    case PEREGRINE_REQUEST:
        if (event->flags & PEREGRINE_HANDSHAKE) peregrine_accept_websocket(worker, event->ticket, NULL, 0, NULL, 0);
        else if (event->request->path.len == 5) echo(event);
        else tell(event);
        break;
    case PEREGRINE_BODY: echo(event); break;
    case PEREGRINE_MESSAGE:
        peregrine_send_message(worker, event->ticket, event->bytes, event->len, event->flags & PEREGRINE_TEXT);
        break;
    case PEREGRINE_LINES: printf("%.*s", (int)event->len, event->bytes); break;
    case PEREGRINE_STOPPED: return 0;
    default: break;
    }
    return 1;
}

static void print_statistics(void) {
    struct {
        peregrine_stats stats;
        char guard[64];
    } known;
    memset(&known, 0x5a, sizeof known);
    known.stats.size = sizeof known.stats;
    peregrine_worker_stats(worker, &known.stats);
    for (size_t i = 0; i < sizeof known.guard; i++)
        if (known.guard[i] != 0x5a) abort();
    printf("requests %llu, %s\n", (unsigned long long)known.stats.requests, batch_max > 1 ? "events in batches" : "single events");
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    int options = 0;
    const peregrine_option *option;
    for (; (option = peregrine_option_at((size_t)options)) != NULL; options++)
        if (!*option->name || !*option->unit || option->min > option->fallback || option->fallback > option->max) abort();
    if (options < 40) abort();

    peregrine_config *config = peregrine_config_new();
    if (peregrine_config_set(config, "body_bytes_max", 100000) != PEREGRINE_OK) abort();
    worker = peregrine_worker_new(config);
    peregrine_config_free(config);

    const peregrine_certificate certificates[2] = {
        {sizeof certificates[0], argv[2], argv[3], NULL, NULL}, {sizeof certificates[0], argv[2], argv[3], NULL, NULL}};
    peregrine_tls_config wanted;
    memset(&wanted, 0, sizeof wanted);
    wanted.size = sizeof wanted;
    wanted.certificate_count = 2;
    wanted.certificates = certificates;
    char error[256] = "";
    peregrine_tls *tls = peregrine_tls_new(&wanted, error, sizeof error);
    if (!tls) fprintf(stderr, "%s\n", error);
    const int listener = peregrine_listen(worker, "127.0.0.1", (uint16_t)atoi(argv[1]), 16, 0);
    if (!tls || listener < 0 || peregrine_listener_tls(worker, listener, tls) != PEREGRINE_OK) return 1;

    const peregrine_access_log log = {sizeof log, -1, NULL, "%m %U %s"};
    if (peregrine_access_log_open(worker, &log) != PEREGRINE_OK) abort();
    signal(SIGTERM, on_signal);
    signal(SIGPIPE, SIG_IGN);

    for (int running = 1; running;) {
        const peregrine_event *event;
        const int count = peregrine_poll(worker, -1, &event);
        if (count < 0) return 1;
        if (count > batch_max) batch_max = count;
        for (int i = 0; i < count; i++, event = peregrine_next_event(event)) running = on_event(event) && running;
        if (stop_asked) peregrine_drain(worker);
    }
    print_statistics();
    peregrine_worker_free(worker);
    peregrine_tls_free(tls);
    return 0;
}
