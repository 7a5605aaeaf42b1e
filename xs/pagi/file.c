/* file.c - a file that an application sends by its path. Storage may take for ever to answer (that of a
 * network or of another process), so a path is opened at once only where a file of the same folder was found
 * on storage of this machine. A thread opens other files, and events that are sent meanwhile wait
 * (PAGI::Server::SlowFiles). */
#include "pagi/pagi.h"

#include <fcntl.h>
#include <unistd.h>

#define LOCAL_FOLDERS_MAX 1000

/* The length of a path's folder; 0: the path names none. */
static STRLEN folder_len(const char *path, STRLEN len) {
    while (len > 0 && path[len - 1] != '/') len--;
    return len;
}

static bool is_local(pTHX_ const pagi_app *app, const char *path, STRLEN len) {
    return app->local_folders && hv_exists(app->local_folders, path, (I32)folder_len(path, len));
}

static void note_local(pTHX_ pagi_app *app, const char *path, STRLEN len) {
    if (!app->local_folders) app->local_folders = newHV();
    if (HvUSEDKEYS(app->local_folders) >= LOCAL_FOLDERS_MAX) hv_clear(app->local_folders);
    (void)hv_store(app->local_folders, path, (I32)folder_len(path, len), newSV(0), 0);
}

/* The file that a thread has opened in place of a path: a PAGI::Server::SlowFiles object, or NULL. */
static HV *opened(pTHX_ SV *file) {
    return file && SvROK(file) && SvTYPE(SvRV(file)) == SVt_PVHV &&
                   sv_derived_from(file, "PAGI::Server::SlowFiles::File")
           ? (HV *)SvRV(file)
           : NULL;
}

static UV number_of(pTHX_ HV *hash, const char *name) {
    SV **value = hv_fetch(hash, name, (I32)strlen(name), 0);
    return value && SvOK(*value) ? SvUV(*value) : 0;
}

/* Whether an event is the server's own: it sends a file that was opened for an event of the application. */
bool pagi_file_is_opened(pTHX_ pagi_exchange *exchange, HV *event) {
    return opened(aTHX_ px_fetch(aTHX_ event, PAGI_KEY(exchange->app->cx, FILE))) != NULL;
}

/* Whether events have to wait for a file that is being opened. */
bool pagi_file_is_opening(pTHX_ pagi_exchange *exchange) {
    SV *failure = NULL;
    if (!exchange->opening) return false;
    if (px_future_look(aTHX_ exchange->base.worker->cx, exchange->opening, &failure) == PX_FUTURE_PENDING)
        return true;
    px_clear(aTHX_ & exchange->opening);
    return false;
}

static SV *ask_server(pTHX_ pagi_exchange *exchange, const char *method, HV *event, SV *last) {
    SV *error = NULL;
    AV *means = newAV();
    av_push(means, newRV_inc((SV *)exchange->send));
    av_push(means, last);
    SV *server = sv_2mortal(newRV_inc(exchange->base.worker->server));
    SV *answer = px_call(aTHX_ server, method, sv_2mortal(newRV_inc((SV *)event)),
                         sv_2mortal(newRV_noinc((SV *)means)), &error);
    return answer ? answer : px_future_failed(aTHX_ exchange->base.worker, newSVsv(error));
}

/* The Future of an event that has to wait until the file before it was sent. */
SV *pagi_file_after(pTHX_ pagi_exchange *exchange, HV *event) {
    return ask_server(aTHX_ exchange, "_send_after", event, newSVsv(exchange->opening));
}

/* Sets whether the response's head waits for the file, so that it can say the file's length. */
static void keep_head(const pagi_exchange *exchange, bool keep) {
    const px_exchange *base = &exchange->base;
    if (base->worker->engine) (void)peregrine_keep_head(base->worker->engine, base->ticket, keep);
}

/* Has a thread open the file of an event. */
static SV *open_aside(pTHX_ pagi_exchange *exchange, HV *event) {
    AV *more = newAV();
    av_push(more, pagi_connection_gone_future(aTHX_ exchange));
    av_push(more, newRV_inc(pagi_exchange_connection(aTHX_ exchange)));
    av_push(more, newSVsv(mess_sv(newSVpvs_flags("", SVs_TEMP), 0)));
    SV *answer = ask_server(aTHX_ exchange, "_open_aside", event, newRV_noinc((SV *)more));
    if (!SvROK(answer) || SvTYPE(SvRV(answer)) != SVt_PVAV || sv_isobject(answer)) return answer;
    SV **futures = AvARRAY((AV *)SvRV(answer));
    px_clear(aTHX_ & exchange->opening);
    exchange->opening = newSVsv(futures[0]);
    keep_head(exchange, true);
    SV *future = newSVsv(futures[1]);
    SvREFCNT_dec_NN(answer);
    return future;
}

static SV *cannot_open(pTHX_ pagi_exchange *exchange, const char *type, SV *file) {
    return px_future_invalid(aTHX_ exchange->base.worker, "%s: file '%" SVf "' cannot be opened: %s", type,
                             SVfARG(file), Strerror(errno));
}

/* Sends a file that a thread has opened, with a known length, or could not open (no fd). The descriptor
 * becomes the engine's, unless it stays the object's. */
static SV *send_opened(pTHX_ pagi_exchange *exchange, const char *type, HV *event, HV *file, IV offset,
                       IV length) {
    px_worker *worker = exchange->base.worker;
    STRLEN len;
    SV **path = hv_fetchs(file, "path", 0);
    const char *text = path ? SvPV_const(*path, len) : (len = 0, "");
    const bool local = number_of(aTHX_ file, "local") != 0;
    const int fd = hv_exists(file, "fd", 2) ? (int)number_of(aTHX_ file, "fd") : -1;
    const UV bytes = number_of(aTHX_ file, "bytes");
    if (local) note_local(aTHX_ exchange->app, text, len);
    if (!worker->engine) return px_future_done(aTHX_ worker, NULL);
    if (fd < 0) {
        keep_head(exchange, false);
        return px_future_done(aTHX_ worker, NULL);
    }
    /* promised trailers: the file is read by its path */
    if (exchange->response == PAGI_RESPONSE_PROMISED && path) {
        px_store(aTHX_ event, PAGI_KEY(exchange->app->cx, FILE), newSVsv(*path));
        return pagi_response_send_by_reading(aTHX_ exchange, event);
    }
    if (local) return pagi_response_send_range(aTHX_ exchange, type, fd, offset, length);
    const UV available = bytes > (UV)offset ? bytes - (UV)offset : 0;
    const UV wanted = length >= 0 && (UV)length < available ? (UV)length : available;
    const int code = peregrine_write_slow_file(worker->engine, exchange->base.ticket, fd, (uint64_t)offset,
                                               (uint64_t)wanted);
    if (code >= 0) (void)hv_delete(file, "fd", 2, G_DISCARD);
    return pagi_response_sent_file(aTHX_ exchange, type, code);
}

/* Sends a file, or a part of it (`length` < 0: to its end), as the last piece of the body. */
SV *pagi_file_send(pTHX_ pagi_exchange *exchange, const char *type, HV *event, SV *file, IV offset,
                   IV length) {
    px_worker *worker = exchange->base.worker;
    pagi_app *app = exchange->app;
    HV *ready = opened(aTHX_ file);
    if (ready) return send_opened(aTHX_ exchange, type, event, ready, offset, length);
    if (SvROK(file)) return px_future_invalid(aTHX_ worker, "%s: file must be a path", type);
    STRLEN len;
    const char *path = SvPV_nomg_const(file, len);
    if (memchr(path, 0, len)) {
        errno = ENOENT;
        return cannot_open(aTHX_ exchange, type, file);
    }
    const bool may_wait = worker->engine && worker->server && exchange->send && !app->reads_files;
    const bool local = is_local(aTHX_ app, path, len);
    if (may_wait && !local) return open_aside(aTHX_ exchange, event);
    /* A symbolic link may lead to other storage. */
    const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | (may_wait ? O_NOFOLLOW : 0);
    const int fd = open(path, flags);
    if (fd < 0 && errno == ELOOP && may_wait) return open_aside(aTHX_ exchange, event);
    if (fd < 0) return cannot_open(aTHX_ exchange, type, file);
    SV *future = pagi_response_kernel_sends(exchange, fd)
                 ? pagi_response_send_range(aTHX_ exchange, type, fd, offset, length)
                 : pagi_response_send_by_reading(aTHX_ exchange, event);
    close(fd);
    return future;
}
