/* spool.c - content of a response that its client has yet to take, in a temporary file, where the engine is
 * on a thread or in a process of its own: the application is done with a response when all of it is in the
 * file or with the engine, however slow the client is. The file has no name. Its content is sent in order as
 * the client takes it; once the content is complete the kernel sends the rest from the file. If the file
 * cannot be written (no space, no quota, a disk that fails) the engine keeps the content in memory, and the
 * application waits for the client. */
#include "psgi/psgi.h"

#include <fcntl.h>
#include <unistd.h>

/* Bytes of a response that stay in memory; further ones go to a file. */
#define MEMORY_MAX (1024 * 1024)
/* Bytes that are read back at once. */
#define PIECE_BYTES (64 * 1024)

bool psgi_spool_is_open(const psgi_exchange *exchange) {
    return exchange->spool.state == PSGI_SPOOL_OPEN;
}

/* Whether content may go to a file. */
bool psgi_spool_is_wanted(const psgi_exchange *exchange) {
    return exchange->app->spool_max > 0 && exchange->spool.state != PSGI_SPOOL_FAILED;
}

static int new_file(pTHX_ const char *folder) {
#ifdef O_TMPFILE
    const int fd = PerlLIO_open3(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0) return fd;
#endif
    SV *name = sv_2mortal(newSVpvf("%s/peregrine-XXXXXX", folder));
    const int other = mkstemp(SvPVX(name));
    if (other < 0) return -1;
    (void)unlink(SvPVX(name));
    (void)fcntl(other, F_SETFD, FD_CLOEXEC);
    return other;
}

/* Opens a file, to which content goes from now on. False: there is none, because it cannot be opened or all
 * files have too many bytes. */
bool psgi_spool_open(pTHX_ psgi_exchange *exchange) {
    psgi_app *app = exchange->app;
    PX_ASSERT(exchange->spool.state == PSGI_SPOOL_NONE && exchange->spool.size == 0);
    if (app->spooled >= app->spools_max) return false;
    const int fd = new_file(aTHX_ SvPV_nolen_const(app->folder));
    if (fd < 0) return false;
    exchange->spool = (psgi_spool){.state = PSGI_SPOOL_OPEN, .fd = fd};
    return true;
}

/* Bytes that the engine takes before a file is opened. */
size_t psgi_spool_room(const psgi_exchange *exchange) {
    const size_t buffered = peregrine_buffered(exchange->base.worker->engine, exchange->base.ticket);
    return buffered < MEMORY_MAX ? MEMORY_MAX - buffered : 0;
}

/* Whether the application is asked for no more content, because the file or all files are at their limit. */
bool psgi_spool_is_full(const psgi_exchange *exchange) {
    const psgi_app *app = exchange->app;
    return exchange->spool.size - exchange->spool.sent >= app->spool_max || app->spooled >= app->spools_max;
}

/* Appends content to the file; returns the bytes that were written. Fewer than `len`: it takes no more. */
size_t psgi_spool_add(psgi_exchange *exchange, const char *bytes, size_t len) {
    size_t done = 0;
    while (done < len) {
        const ssize_t written =
            pwrite(exchange->spool.fd, bytes + done, len - done, (off_t)exchange->spool.size);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) break;
        exchange->spool.size += (UV)written;
        exchange->app->spooled += (UV)written;
        done += (size_t)written;
    }
    return done;
}

/* Closes the file, which is not needed any more; the engine may have a descriptor of its own. */
void psgi_spool_close(psgi_exchange *exchange) {
    if (!psgi_spool_is_open(exchange)) return;
    (void)close(exchange->spool.fd);
    exchange->spool.state = PSGI_SPOOL_NONE;
}

/* Closes the file and takes its bytes out of the count of all files. */
void psgi_spool_forget(psgi_exchange *exchange) {
    psgi_spool_close(exchange);
    PX_ASSERT(exchange->app->spooled >= exchange->spool.size);
    exchange->app->spooled -= exchange->spool.size;
    exchange->spool.size = 0;
}

/* Gives the engine the next content of the file: as much as the client takes, or `all` of it. */
static int flow(pTHX_ psgi_exchange *exchange, bool all) {
    psgi_spool *spool = &exchange->spool;
    int code = PEREGRINE_OK;
    char *piece;
    Newx(piece, PIECE_BYTES, char);
    while (spool->sent < spool->size && (code == PEREGRINE_OK || (all && code == PEREGRINE_BLOCKED))) {
        const UV left = spool->size - spool->sent;
        const ssize_t got = pread(spool->fd, piece, left < PIECE_BYTES ? left : PIECE_BYTES,
                                  (off_t)spool->sent);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            code = PEREGRINE_E_SYSTEM;
            break;
        }
        code = peregrine_write(exchange->base.worker->engine, exchange->base.ticket, piece, (size_t)got, 0);
        if (code >= 0) spool->sent += (UV)got;
    }
    Safefree(piece);
    if (code >= 0 && spool->sent == spool->size) psgi_spool_forget(exchange);
    return code;
}

/* Sends the next content of the file, as the client takes more. When all was sent the file is closed, and
 * further content goes to the engine. Returns the engine's code; PEREGRINE_E_SYSTEM: it cannot be read. */
int psgi_spool_flow(pTHX_ psgi_exchange *exchange) { return flow(aTHX_ exchange, false); }

/* Gives up a file that takes no more: the engine gets its content, and these bytes after it. No other file
 * will be opened for this response. Returns a code like psgi_spool_flow(). */
int psgi_spool_give_up(pTHX_ psgi_exchange *exchange, const char *bytes, size_t len) {
    const int code = flow(aTHX_ exchange, true);
    if (code < 0) return code;
    psgi_spool_forget(exchange);
    exchange->spool.state = PSGI_SPOOL_FAILED;
    return peregrine_write(exchange->base.worker->engine, exchange->base.ticket, bytes, len, 0);
}

/* Has the kernel send the rest of the file, as the content is complete. Returns a code of the engine's. */
int psgi_spool_end(psgi_exchange *exchange) {
    psgi_spool *spool = &exchange->spool;
    const int code = peregrine_write_file(exchange->base.worker->engine, exchange->base.ticket, spool->fd,
                                          spool->sent, (int64_t)(spool->size - spool->sent));
    psgi_spool_close(exchange);
    return code;
}
