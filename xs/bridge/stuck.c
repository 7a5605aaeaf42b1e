/* stuck.c - writes where an interpreter is that does not come back to its event loop, and has its request
 * answered.
 *
 * Perl's own signal handlers do not run while Perl waits inside a library, for a database for instance. So a
 * signal handler in C does it: it reads the state of the interpreter, allocates nothing, calls no function of
 * Perl's, and writes to the standard error. Then the engine answers the request. A process kills itself after
 * that. A thread cannot be killed: it goes on, and the engine hears no commands from it any more.
 *
 * Perl may be in the middle of a call when the signal comes. So each part of the text is read as faults.c
 * does, and a part that cannot be read is left out. */
#include "bridge/bridge.h"
#include <poll.h>
#include <signal.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* The longest text in bytes, and the most Perl frames in it. */
#define PX_STUCK_TEXT 4096
#define PX_STUCK_FRAMES 40
/* The time that the engine has to send its answer before the process ends. */
#define PX_STUCK_ANSWER_MS 300

/* The interpreter, worker and name of this thread. A thread has one worker, made before the signal comes. */
#ifdef MULTIPLICITY
static __thread tTHX stuck_perl;
#endif
static __thread px_worker *stuck_worker;
static __thread char stuck_name[48];

typedef struct stuck_text {
    char bytes[PX_STUCK_TEXT];
    size_t len;
} stuck_text;

static void add(stuck_text *text, const char *bytes, size_t len) {
    for (size_t i = 0; i < len && text->len < PX_STUCK_TEXT - 1; i++) {
        const unsigned char byte = (unsigned char)bytes[i];
        text->bytes[text->len++] = byte < 0x20 || byte == 0x7f ? '?' : (char)byte;
    }
}

static void add_words(stuck_text *text, const char *words) {
    add(text, words ? words : "?", words ? strlen(words) : 1);
}

static void add_number(stuck_text *text, unsigned long number) {
    char digits[24];
    size_t at = sizeof(digits);
    do digits[--at] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    add(text, digits + at, sizeof(digits) - at);
}

static void end_line(stuck_text *text) {
    if (text->len < PX_STUCK_TEXT) text->bytes[text->len++] = '\n';
}

static void add_place(stuck_text *text, const COP *cop) {
    add_words(text, " at ");
    add_words(text, cop ? CopFILE(cop) : NULL);
    add_words(text, " line ");
    add_number(text, cop ? (unsigned long)CopLINE(cop) : 0);
}

/* Adds the name of a function. Does not call Perl's CvGV, which may allocate a glob. */
static void add_function(stuck_text *text, const CV *cv) {
    const HV *stash = NULL;
    const HEK *name = NULL;
    if (CvNAMED(cv)) {
        name = CvNAME_HEK((CV *)cv);
        stash = CvSTASH(cv);
    } else {
        const GV *gv = ((XPVCV *)MUTABLE_PTR(SvANY(cv)))->xcv_gv_u.xcv_gv;
        if (gv && isGV_with_GP(gv)) {
            name = GvNAME_HEK(gv);
            stash = GvSTASH(gv);
        }
    }
    const HEK *package = stash ? HvNAME_HEK((HV *)stash) : NULL;
    if (package) {
        add(text, HEK_KEY(package), (size_t)HEK_LEN(package));
        add_words(text, "::");
    }
    if (name) add(text, HEK_KEY(name), (size_t)HEK_LEN(name));
    else add_words(text, "a function");
}

/* Whether code is the server's, which is in packages below Peregrine. Those below Peregrine::App are not. */
static bool is_of_server(pTHX_ const COP *cop) {
    const HV *stash = cop ? CopSTASH(cop) : NULL;
    const HEK *package = stash ? HvNAME_HEK((HV *)stash) : NULL;
    const char *name = package ? HEK_KEY(package) : "";
    return strncmp(name, "Peregrine::", 11) == 0 && strncmp(name, "Peregrine::App::", 16) != 0;
}

/* A part of the text, and the state that it is read from. */
typedef struct stuck_part {
#ifdef MULTIPLICITY
    tTHX perl;
#endif
    stuck_text *text;
    const px_worker *worker;
    const COP *place;
    const PERL_CONTEXT *frame;
    /* `is_added`: a frame was added; `is_last`: the server's code comes next. */
    bool is_added, is_last;
} stuck_part;

/* Calls `read`, which adds text. False: it met a fault, and its text was removed. */
static bool add_part(stuck_part *part, void (*read)(void *)) {
    const size_t before = part->text->len;
    if (px_faults_survive(read, part)) return true;
    part->text->len = before;
    return false;
}

static void read_frame(void *argument) {
    stuck_part *part = (stuck_part *)argument;
    dTHXa(part->perl);
    const PERL_CONTEXT *cx = part->frame;
    if (CxTYPE(cx) != CXt_SUB || !cx->blk_sub.cv) return;
    add_words(part->text, "    ");
    add_function(part->text, cx->blk_sub.cv);
    add_words(part->text, " called");
    add_place(part->text, cx->blk_oldcop);
    end_line(part->text);
    part->is_added = true;
    /* An END block of an application, which has no worker, is called by the server's code. */
    part->is_last = !part->worker && is_of_server(aTHX_ cx->blk_oldcop);
}

/* Adds the application's frames, or all frames if no event is being dispatched. */
static void add_stack(pTHX_ stuck_part *part) {
    const px_worker *worker = part->worker;
    const PERL_SI *server = worker && (worker->depth > 0 || worker->in_loop) ? worker->server_stack : NULL;
    int frames = 0;
    if (PL_dirty) return;
    for (const PERL_SI *si = PL_curstackinfo; si; si = si->si_prev) {
        for (I32 i = si->si_cxix; i >= 0 && frames < PX_STUCK_FRAMES; i--) {
            if (si == server && i <= worker->server_frame) return;
            part->frame = &si->si_cxstack[i];
            part->is_added = part->is_last = false;
            if (!add_part(part, read_frame)) continue;
            if (part->is_last) return;
            frames += part->is_added;
        }
    }
}

/* The string under a key of the scope or environment; NULL if there is none. Walks the hash itself, because
 * Perl's functions may allocate. */
static const SV *string_of(const HV *given, const char *key) {
    const size_t len = strlen(key);
    if (!HvARRAY(given)) return NULL;
    for (STRLEN i = 0; i <= HvMAX(given); i++) {
        for (const HE *entry = HvARRAY(given)[i]; entry; entry = HeNEXT(entry)) {
            if (HeKLEN(entry) != (I32)len || memcmp(HeKEY(entry), key, len) != 0) continue;
            return SvPOK(HeVAL(entry)) ? HeVAL(entry) : NULL;
        }
    }
    return NULL;
}

/* Adds the string under a key of an exchange's scope or environment, which may be packed. False: none. */
static bool add_value(stuck_text *text, const px_exchange *exchange, const char *key) {
    size_t len = 0;
    const SV *value = exchange->given ? string_of(exchange->given, key) : NULL;
    const char *bytes = value ? SvPVX_const(value)
                        : exchange->packed ? px_packed_string(exchange->packed, key, &len) : NULL;
    if (bytes) add(text, bytes, value ? SvCUR(value) : len);
    return bytes != NULL;
}

static void add_string(stuck_text *text, const px_exchange *exchange, const char *key, const char *other) {
    add_words(text, " ");
    if (!add_value(text, exchange, key) && !add_value(text, exchange, other)) add_words(text, "?");
}

/* Adds seconds with one digit behind the point. */
static void add_seconds(stuck_text *text, uint64_t ms) {
    add_number(text, (unsigned long)(ms / 1000));
    add_words(text, ".");
    add_number(text, (unsigned long)(ms / 100 % 10));
    add_words(text, " s");
}

/* Adds the request whose event is being handled. Callbacks of timers, for instance, have none. */
static void add_request(stuck_text *text, const px_worker *worker) {
    if (!worker || !worker->at) return;
    const px_exchange *exchange = worker->at;
    add_words(text, " in request ");
    add_number(text, exchange->connection_number);
    add_words(text, "-");
    add_number(text, exchange->request_number);
    if (worker->at_head) {
        const peregrine_request *head = worker->at_head;
        add_words(text, " ");
        add(text, head->text + head->method.at, head->method.len);
        add_words(text, " ");
        add(text, head->text + head->target.at, head->target.len);
    } else if (exchange->given || exchange->packed) {
        add_string(text, exchange, "method", "REQUEST_METHOD");
        add_string(text, exchange, "path", "PATH_INFO");
    }
    if (exchange->since) {
        add_words(text, ", which came ");
        add_seconds(text, px_busy_now() - exchange->since);
        add_words(text, " ago,");
    }
}

static void read_request(void *argument) {
    const stuck_part *part = (const stuck_part *)argument;
    add_request(part->text, part->worker);
}

static void read_place(void *argument) {
    const stuck_part *part = (const stuck_part *)argument;
    add_place(part->text, part->place);
}

/* Has the engine answer the client. False: the engine has no thread that could. */
static bool give_up(const px_worker *worker) {
    if (!worker || !worker->engine || !worker->at || !px_exchange_is_live(worker->at)) return false;
    return peregrine_give_up(worker->engine, worker->at->ticket) == PEREGRINE_OK;
}

/* Writes the place and the stack of this thread's interpreter. */
static void tell(const char *who, unsigned long number) {
#ifdef MULTIPLICITY
    if (!stuck_perl) return;
#endif
    dTHXa(stuck_perl);
    stuck_text text = {.len = 0};
    add_words(&text, stuck_name);
    add_words(&text, who);
    if (number) add_number(&text, number);
    add_words(&text, " is stuck");
    stuck_part part = {.text = &text, .worker = stuck_worker, .place = PL_curcop};
#ifdef MULTIPLICITY
    part.perl = aTHX;
#endif
    if (!add_part(&part, read_request)) add_words(&text, " in a request");
    if (!add_part(&part, read_place)) add_words(&text, " at ? line ?");
    end_line(&text);
    add_stack(aTHX_ &part);
    const ssize_t written = write(STDERR_FILENO, text.bytes, text.len);
    PERL_UNUSED_VAR(written);
}

/* Handles the signal for the process: writes its place, has its request answered and kills it. Without a
 * worker an END block of the application does not return. */
static void on_signal(int number) {
    PERL_UNUSED_VAR(number);
    tell(": process ", (unsigned long)getpid());
    if (give_up(stuck_worker)) (void)poll(NULL, 0, PX_STUCK_ANSWER_MS);
    /* An interrupted call, a sleep for instance, would go on and answer the request that was given up. */
    (void)kill(getpid(), SIGKILL);
}

/* Handles the signal for one thread, which may be back in its loop: then there is nothing to tell. */
static void on_thread_signal(int number) {
    PERL_UNUSED_VAR(number);
    if (!stuck_worker || !stuck_worker->at) return;
    const int error = errno;
    tell("", 0);
    (void)give_up(stuck_worker);
    errno = error;
}

/* The signal by which a master or a watchdog asks a process. */
int px_stuck_signal(void) {
    return SIGRTMIN + 5;
}

/* The signal for one thread. It is another one, so that the signal for a process, which any thread may get,
 * does not ask the wrong worker. */
static int thread_signal(void) {
    return SIGRTMIN + 6;
}

static int watch(pTHX_ px_worker *worker, const char *name, int number, void (*handler)(int)) {
    struct sigaction action;
    Zero(&action, 1, struct sigaction);
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    /* Each of the two handlers is blocked while the other one runs. */
    (void)sigaddset(&action.sa_mask, px_stuck_signal());
    (void)sigaddset(&action.sa_mask, thread_signal());
    my_strlcpy(stuck_name, name, sizeof(stuck_name));
    stuck_worker = worker;
#ifdef MULTIPLICITY
    stuck_perl = aTHX;
#endif
    return sigaction(number, &action, NULL);
}

/* From now on the process ends at px_stuck_signal() with a message, which begins with `name`. */
int px_stuck_watch(pTHX_ px_worker *worker, const char *name) {
    return watch(aTHX_ worker, name, px_stuck_signal(), on_signal);
}

/* From now on this thread answers px_stuck_ask_thread(). All other signals may be blocked in it. */
int px_stuck_watch_thread(pTHX_ px_worker *worker, const char *name) {
    sigset_t one;
    if (watch(aTHX_ worker, name, thread_signal(), on_thread_signal) != 0) return -1;
    (void)sigemptyset(&one);
    (void)sigaddset(&one, thread_signal());
    return pthread_sigmask(SIG_UNBLOCK, &one, NULL);
}

/* Forgets a worker that ends, if it is the one of this thread. */
void px_stuck_forget(const px_worker *worker) {
    if (stuck_worker != worker) return;
    stuck_worker = NULL;
}

/* The id of this thread, for signals from other threads; 0 on systems where there is none. */
long px_stuck_thread(void) {
#ifdef __linux__
    return syscall(SYS_gettid);
#else
    return 0;
#endif
}

/* Makes a thread of this process write where it is, and give its request up. Returns -1 if the process has
 * no such thread. */
int px_stuck_ask_thread(long thread) {
#ifdef __linux__
    return thread > 0 && syscall(SYS_tgkill, getpid(), thread, thread_signal()) == 0 ? 0 : -1;
#else
    PERL_UNUSED_VAR(thread);
    return -1;
#endif
}
