/* stuck.c - says where a worker is that does not come back to its event loop.
 *
 * Perl's own signal handlers do not run while Perl waits inside a library, for a database for instance. So
 * this one is a handler in C: it reads what the interpreter has, allocates nothing, calls nothing of Perl's,
 * writes to the standard error, and gives up what the worker is at. A process kills itself then. A thread
 * cannot be killed: it goes on, and the engine hears nothing from it any more. */
#include "bridge/bridge.h"
#include <poll.h>
#include <signal.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* Bytes of the text, and Perl frames in it. */
#define PX_STUCK_TEXT 4096
#define PX_STUCK_FRAMES 40
/* For an answer to go out before the process ends. */
#define PX_STUCK_ANSWER_MS 300

/* The interpreter and the worker of the process, or of the thread. The worker is made before the signal can
 * come, and there is only one. */
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

/* The name of a function, without making a glob for it. */
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

/* Whether code is of the packages that run processes. Applications have packages below Peregrine::App. */
static bool is_of_server(pTHX_ const COP *cop) {
    const HV *stash = cop ? CopSTASH(cop) : NULL;
    const HEK *package = stash ? HvNAME_HEK((HV *)stash) : NULL;
    const char *name = package ? HEK_KEY(package) : "";
    return strncmp(name, "Peregrine::", 11) == 0 && strncmp(name, "Peregrine::App::", 16) != 0;
}

/* The application's frames; all of them where nothing is being dispatched. */
static void add_stack(pTHX_ stuck_text *text, const px_worker *worker) {
    const PERL_SI *server = worker && worker->depth > 0 ? worker->server_stack : NULL;
    int frames = 0;
    if (PL_dirty) return;
    for (const PERL_SI *si = PL_curstackinfo; si; si = si->si_prev) {
        for (I32 i = si->si_cxix; i >= 0 && frames < PX_STUCK_FRAMES; i--) {
            if (si == server && i <= worker->server_frame) return;
            const PERL_CONTEXT *cx = &si->si_cxstack[i];
            if (CxTYPE(cx) != CXt_SUB) continue;
            frames++;
            add_words(text, "    ");
            add_function(text, cx->blk_sub.cv);
            add_words(text, " called");
            add_place(text, cx->blk_oldcop);
            end_line(text);
            /* The END block of an application is called from there. */
            if (!worker && is_of_server(aTHX_ cx->blk_oldcop)) return;
        }
    }
}

/* The string under a key of what an application was called with; NULL if there is none. Walks the hash by
 * itself: Perl's functions may allocate. */
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

/* Adds a value of the hash that an exchange's application was called with, packed or not. */
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

/* Seconds, with one digit behind the point. */
static void add_seconds(stuck_text *text, uint64_t ms) {
    add_number(text, (unsigned long)(ms / 1000));
    add_words(text, ".");
    add_number(text, (unsigned long)(ms / 100 % 10));
    add_words(text, " s");
}

/* The request whose event is being handled; none if a timer, say, has called. */
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

/* The client is answered by the engine if that has a thread of its own, which is given a moment. */
static bool give_up(const px_worker *worker) {
    if (!worker || !worker->engine || !worker->at || !worker->at->ticket_live) return false;
    return peregrine_give_up(worker->engine, worker->at->ticket) == PEREGRINE_OK;
}

/* Writes where the interpreter of this thread is. */
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
    add_request(&text, stuck_worker);
    add_place(&text, PL_curcop);
    end_line(&text);
    add_stack(aTHX_ & text, stuck_worker);
    const ssize_t written = write(STDERR_FILENO, text.bytes, text.len);
    PERL_UNUSED_VAR(written);
}

/* Without a worker the process is at its end: an END block of the application does not return. */
static void on_signal(int number) {
    PERL_UNUSED_VAR(number);
    tell(": process ", (unsigned long)getpid());
    if (give_up(stuck_worker)) (void)poll(NULL, 0, PX_STUCK_ANSWER_MS);
    /* Otherwise an interrupted sleep would go on, and its code answer a request that is given up. */
    (void)kill(getpid(), SIGKILL);
}

/* Tells where a thread is, unless it has come back meanwhile. */
static void on_thread_signal(int number) {
    PERL_UNUSED_VAR(number);
    if (!stuck_worker || !stuck_worker->at) return;
    const int error = errno;
    tell("", 0);
    (void)give_up(stuck_worker);
    errno = error;
}

/* The signal that asks; sent by whoever watches the process. */
int px_stuck_signal(void) {
    return SIGRTMIN + 5;
}

/* The signal that asks a single thread. It is another one, because the kernel may give a signal for the
 * process to any of its threads. */
static int thread_signal(void) {
    return SIGRTMIN + 6;
}

static int watch(pTHX_ px_worker *worker, const char *name, int number, void (*handler)(int)) {
    struct sigaction action;
    Zero(&action, 1, struct sigaction);
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    my_strlcpy(stuck_name, name, sizeof(stuck_name));
    stuck_worker = worker;
#ifdef MULTIPLICITY
    stuck_perl = aTHX;
#endif
    return sigaction(number, &action, NULL);
}

/* From now on the process answers that signal, and ends; `name` begins the message. */
int px_stuck_watch(pTHX_ px_worker *worker, const char *name) {
    return watch(aTHX_ worker, name, px_stuck_signal(), on_signal);
}

/* From now on this thread answers px_stuck_ask_thread. All other signals may be blocked here. */
int px_stuck_watch_thread(pTHX_ px_worker *worker, const char *name) {
    sigset_t one;
    if (watch(aTHX_ worker, name, thread_signal(), on_thread_signal) != 0) return -1;
    (void)sigemptyset(&one);
    (void)sigaddset(&one, thread_signal());
    return pthread_sigmask(SIG_UNBLOCK, &one, NULL);
}

/* A worker ends. */
void px_stuck_forget(const px_worker *worker) {
    if (stuck_worker != worker) return;
    stuck_worker = NULL;
}

/* The thread's id, for signals from other threads; 0 if the system has none. */
long px_stuck_thread(void) {
#ifdef __linux__
    return syscall(SYS_gettid);
#else
    return 0;
#endif
}

/* Makes a thread of this process say where it is, and give up the request that it is at. Not 0: there is none
 * of this number. */
int px_stuck_ask_thread(long thread) {
#ifdef __linux__
    return thread > 0 && syscall(SYS_tgkill, getpid(), thread, thread_signal()) == 0 ? 0 : -1;
#else
    PERL_UNUSED_VAR(thread);
    return -1;
#endif
}
