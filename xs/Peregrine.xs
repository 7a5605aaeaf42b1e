/* Peregrine.xs - the functions that Perl calls. Each calls a function of a C file and returns its values. */
#include "bridge/bridge.h"
#include "pagi/pagi.h"
#ifdef __linux__
#include <sys/prctl.h>
#include <sys/signalfd.h>
#endif
#include "psgi/psgi.h"

/* ---- The worker object ----------------------------------------------------------------------- */

static int worker_free(pTHX_ SV *sv, MAGIC *mg) {
    px_worker *worker = (px_worker *)mg->mg_ptr;
    PERL_UNUSED_ARG(sv);
    if (!worker) return 0;
    worker->server = NULL; /* the server may be freed, too */
    px_worker_stop(aTHX_ worker);
    px_worker_release(aTHX_ worker);
    return 0;
}

/* A worker belongs to the thread that has made it; its copy in another thread is empty. */
static int worker_dup(pTHX_ MAGIC *mg, CLONE_PARAMS *params) {
    PERL_UNUSED_CONTEXT;
    PERL_UNUSED_ARG(params);
    mg->mg_ptr = NULL;
    return 0;
}

static const MGVTBL worker_vtbl = {.svt_free = worker_free, .svt_dup = worker_dup};

/* The C struct behind a Perl object, found by its kind of magic; NULL if the object has no such magic. */
static void *pointer_of(pTHX_ SV *object, const MGVTBL *kind) {
    if (!SvROK(object) || SvTYPE(SvRV(object)) < SVt_PVMG) return NULL;
    const MAGIC *mg = mg_findext(SvRV(object), PERL_MAGIC_ext, kind);
    return mg ? mg->mg_ptr : NULL;
}

static px_worker *any_worker(pTHX_ SV *object) {
    px_worker *worker = (px_worker *)pointer_of(aTHX_ object, &worker_vtbl);
    if (!worker) croak("Peregrine::Worker: not a worker of this thread");
    return worker;
}

static px_worker *open_worker(pTHX_ SV *object) {
    px_worker *worker = any_worker(aTHX_ object);
    if (px_is_foreign(worker)) px_foreign(aTHX_ worker, "the server");
    if (!worker->engine) croak("Peregrine::Worker: the worker is closed");
    return worker;
}

/* A dispatcher keeps the worker's memory allocated, but not the worker open. */
static int dispatcher_free(pTHX_ SV *sv, MAGIC *mg) {
    PERL_UNUSED_ARG(sv);
    if (mg->mg_ptr) px_worker_release(aTHX_ (px_worker *)mg->mg_ptr);
    return 0;
}

static const MGVTBL dispatcher_vtbl = {.svt_free = dispatcher_free, .svt_dup = worker_dup};

/* The function that a host loop calls when the worker's descriptor is readable. */
XS_EXTERNAL(px_xs_dispatch);
XS_EXTERNAL(px_xs_dispatch) {
    dXSARGS;
    PERL_UNUSED_VAR(items);
    const MAGIC *mg = mg_findext((SV *)cv, PERL_MAGIC_ext, &dispatcher_vtbl);
    px_worker *worker = mg ? (px_worker *)mg->mg_ptr : NULL;
    if (worker && px_is_foreign(worker)) px_worker_leave_loop(aTHX_ worker);
    else if (worker && worker->engine) px_worker_dispatch(aTHX_ worker);
    XSRETURN_EMPTY;
}

/* ---- Certificates ---------------------------------------------------------------------------- */

static int tls_free(pTHX_ SV *sv, MAGIC *mg) {
    PERL_UNUSED_CONTEXT;
    PERL_UNUSED_ARG(sv);
    peregrine_tls_free((peregrine_tls *)mg->mg_ptr);
    return 0;
}

static const MGVTBL tls_vtbl = {.svt_free = tls_free, .svt_dup = worker_dup};

static peregrine_tls *tls_of(pTHX_ SV *object) {
    peregrine_tls *tls = (peregrine_tls *)pointer_of(aTHX_ object, &tls_vtbl);
    if (!tls) croak("Peregrine::TLS: not an object of this thread");
    return tls;
}

/* ---- Words ----------------------------------------------------------------------------------- */

static int words_free(pTHX_ SV *sv, MAGIC *mg) {
    PERL_UNUSED_ARG(sv);
    if (mg->mg_ptr) px_words_free(aTHX_ (px_words *)mg->mg_ptr);
    return 0;
}

/* Clones of an interpreter share the words. */
static int words_dup(pTHX_ MAGIC *mg, CLONE_PARAMS *params) {
    PERL_UNUSED_CONTEXT;
    PERL_UNUSED_ARG(params);
    if (mg->mg_ptr) (void)px_words_share((px_words *)mg->mg_ptr);
    return 0;
}

static const MGVTBL words_vtbl = {.svt_free = words_free, .svt_dup = words_dup};

static px_words *words_of(pTHX_ SV *object) {
    px_words *words = (px_words *)pointer_of(aTHX_ object, &words_vtbl);
    if (!words) croak("Peregrine::Words: not an object of this thread");
    return words;
}

static void configure(pTHX_ peregrine_config *config, HV *limits) {
    hv_iterinit(limits);
    for (HE *entry; (entry = hv_iternext(limits));) {
        STRLEN len;
        const char *name = HePV(entry, len);
        SV *value = hv_iterval(limits, entry);
        const int code = peregrine_config_set(config, name, (int64_t)SvIV(value));
        if (code < 0)
            croak("Peregrine::Worker: %s => %" SVf ": %s", name, SVfARG(value), peregrine_error_text(code));
    }
}

static const char *string_argument(pTHX_ SV *argument) {
    return SvOK(argument) ? SvPVbyte_nolen(argument) : NULL;
}

static HV *hash_argument(pTHX_ SV *argument, const char *name) {
    if (!SvROK(argument) || SvTYPE(SvRV(argument)) != SVt_PVHV)
        croak("Peregrine::Worker: %s must be a hash reference", name);
    return (HV *)SvRV(argument);
}

/* Sets a limit that a group of interpreters has in place of the engine's, if it is given. */
static void own_limit(pTHX_ HV *given, const char *name, uint32_t *limit, uint32_t *own, uint32_t flag) {
    SV *value = px_setting(aTHX_ given, name);
    if (!value) return;
    *limit = (uint32_t)SvUV(value);
    *own |= flag;
}

static uint32_t limit_or_none(pTHX_ HV *given, const char *name) {
    SV *value = px_setting(aTHX_ given, name);
    return value ? (uint32_t)SvUV(value) : 0;
}

/* The word in which the engine counts a group's refused requests while the worker lives. Words of all groups
 * are in one memory. */
static uint64_t *refused_word(pTHX_ px_worker *worker, HV *given) {
    SV *words = px_setting(aTHX_ given, "words");
    SV *at = px_setting(aTHX_ given, "refused");
    uint64_t *word;
    if (!words || !at) return NULL;
    word = px_words_at(aTHX_ words_of(aTHX_ words), SvUV(at), 1);
    if (worker->refused_words && worker->refused_words != SvRV(words))
        croak("Peregrine::Worker: the words of all groups are those of one memory");
    if (!worker->refused_words) worker->refused_words = SvREFCNT_inc_NN(SvRV(words));
    return word;
}

/* The settings of a group of interpreters. */
static peregrine_interpreters group_of(pTHX_ px_worker *worker, int join_socket, SV *settings) {
    HV *given = hash_argument(aTHX_ settings, "settings");
    SV *name = px_setting(aTHX_ given, "name");
    peregrine_interpreters wanted = {.size = sizeof(wanted)};
    wanted.join_socket = join_socket;
    wanted.exchanges = limit_or_none(aTHX_ given, "exchanges");
    wanted.handed = limit_or_none(aTHX_ given, "handed");
    wanted.seats = limit_or_none(aTHX_ given, "seats");
    own_limit(aTHX_ given, "queue_max", &wanted.queue_max, &wanted.own, PEREGRINE_OWN_QUEUE_MAX);
    own_limit(aTHX_ given, "queue_ms", &wanted.queue_ms, &wanted.own, PEREGRINE_OWN_QUEUE_MS);
    own_limit(aTHX_ given, "request_idle_ms", &wanted.request_idle_ms, &wanted.own,
              PEREGRINE_OWN_REQUEST_IDLE_MS);
    wanted.no_topics = limit_or_none(aTHX_ given, "no_topics");
    SV *topics = px_setting(aTHX_ given, "topics");
    wanted.topics = topics ? SvPV_nolen(topics) : NULL;
    wanted.name = name ? SvPV_nolen(name) : NULL;
    wanted.refused = refused_word(aTHX_ worker, given);
    return wanted;
}

static SV *worker_object(pTHX_ const char *class, px_worker *worker) {
    SV *object = newSV_type(SVt_PVMG);
    MAGIC *mg = sv_magicext(object, NULL, PERL_MAGIC_ext, &worker_vtbl, (const char *)worker, 0);
    mg->mg_flags |= MGf_DUP;
    return sv_bless(newRV_noinc(object), gv_stashpv(class, GV_ADD));
}

static peregrine_opener *opener_of(pTHX_ SV *object) {
    if (!sv_isobject(object) || !SvIOK(SvRV(object))) croak("Peregrine::OpenerHandle: not of this thread");
    return INT2PTR(peregrine_opener *, SvIV(SvRV(object)));
}

MODULE = Peregrine  PACKAGE = Peregrine

PROTOTYPES: DISABLE

BOOT:
    px_context_init(aTHX);
    px_children_watch(aTHX);
    pagi_context_init(aTHX);
    psgi_context_init(aTHX);

void
CLONE(...)
CODE:
    PERL_UNUSED_VAR(items);
    px_context_clone(aTHX);
    pagi_context_clone(aTHX);
    psgi_context_clone(aTHX);
    px_clone_forget_skipped(aTHX);

SV *
look_up_file(question)
    SV *question
CODE:
    RETVAL = px_look_up_file(aTHX_ hash_argument(aTHX_ question, "a question"));
    if (!RETVAL) XSRETURN_UNDEF;
OUTPUT:
    RETVAL

UV
forks()
CODE:
    RETVAL = (UV)peregrine_forks();
OUTPUT:
    RETVAL

bool
forgo_privileges()
CODE:
#ifdef PR_SET_NO_NEW_PRIVS
    RETVAL = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
#else
    errno = ENOSYS;
    RETVAL = false;
#endif
OUTPUT:
    RETVAL

bool
hide_memory()
CODE:
#ifdef PR_SET_DUMPABLE
    RETVAL = prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0;
#else
    errno = ENOSYS;
    RETVAL = false;
#endif
OUTPUT:
    RETVAL

void
hide_from_forks(fd, hidden)
    int fd
    int hidden
CODE:
    peregrine_hide_from_forks(fd, hidden);

bool
adopt_orphans()
CODE:
#ifdef PR_SET_CHILD_SUBREAPER
    RETVAL = prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0;
#else
    errno = ENOSYS;
    RETVAL = false;
#endif
OUTPUT:
    RETVAL

void
end_with_parent(ends)
    bool ends
CODE:
#ifdef PR_SET_PDEATHSIG
    prctl(PR_SET_PDEATHSIG, ends ? SIGKILL : 0, 0, 0, 0);
#else
    PERL_UNUSED_VAR(ends);
#endif

SV *
send_descriptors(socket, bytes, ...)
    int socket
    SV *bytes
PREINIT:
    int list[PX_DESCRIPTORS_MAX];
    const char *text;
    STRLEN len;
    SSize_t sent;
    I32 i;
CODE:
    if (items - 2 > PX_DESCRIPTORS_MAX)
        croak("Peregrine::send_descriptors: at most %d descriptors in a message", PX_DESCRIPTORS_MAX);
    text = SvPVbyte(bytes, len);
    if (len == 0) croak("Peregrine::send_descriptors: a message has one byte at least");
    for (i = 2; i < items; i++) list[i - 2] = (int)SvIV(ST(i));
    sent = px_send_descriptors(socket, text, len, list, (size_t)(items - 2));
    RETVAL = sent < 0 ? &PL_sv_undef : newSViv((IV)sent);
OUTPUT:
    RETVAL

void
receive_descriptors(socket, max, waits = false)
    int socket
    int max
    bool waits
PREINIT:
    int list[PX_DESCRIPTORS_MAX];
    size_t count, i;
    SSize_t got;
    SV *bytes;
PPCODE:
    if (max < 1) croak("Peregrine::receive_descriptors: at least one byte");
    bytes = sv_2mortal(newSV((STRLEN)max + 1));
    got = px_receive_descriptors(socket, SvPVX(bytes), (size_t)max, list, &count, waits);
    if (got < 0) XSRETURN_EMPTY;
    SvPOK_only(bytes);
    SvCUR_set(bytes, (STRLEN)got);
    *SvEND(bytes) = '\0';
    EXTEND(SP, (SSize_t)count + 1);
    PUSHs(bytes);
    for (i = 0; i < count; i++) mPUSHi(list[i]);

UV
unreceived_bytes(socket)
    int socket
CODE:
    RETVAL = px_unreceived_bytes(socket);
OUTPUT:
    RETVAL

int
signal_descriptor(fd, ...)
    int fd
PREINIT:
    sigset_t set;
    I32 i;
CODE:
    sigemptyset(&set);
    for (i = 1; i < items; i++) sigaddset(&set, (int)SvIV(ST(i)));
#ifdef __linux__
    RETVAL = signalfd(fd, &set, SFD_NONBLOCK | SFD_CLOEXEC);
#else
    PERL_UNUSED_VAR(fd);
    errno = ENOSYS;
    RETVAL = -1;
#endif
OUTPUT:
    RETVAL

void
show_title(title)
    SV *title
PREINIT:
    SV *program;
    SV *before;
CODE:
    program = get_sv("0", GV_ADD);
    before = sv_2mortal(newSVsv(program));
    sv_setsv_mg(program, title);
    sv_setsv(program, before); /* without its magic, which would change the title that `ps` shows */

bool
settle_children(on)
    bool on
CODE:
    RETVAL = px_children_settle(on);
OUTPUT:
    RETVAL

void
prepare_alarms()
CODE:
    px_alarm_prepare(aTHX);

void
begin_clone()
CODE:
    px_alarm_begin(aTHX);
    px_children_of_clone();

void
end_clone()
CODE:
    px_alarm_end();

void
forget_end_blocks()
PREINIT:
    SV *blocks = (SV *)PL_endav;
CODE:
    PL_endav = NULL; /* before its closures are freed, whose destructors may run Perl code */
    SvREFCNT_dec(blocks);

void
leave(status)
    int status
CODE:
    px_leave(aTHX_ status);

void
count_stops(seconds, ...)
    NV seconds
PREINIT:
    int numbers[8];
    int error;
CODE:
    if (items - 1 > (I32)C_ARRAY_LENGTH(numbers)) croak("count_stops: too many signals");
    for (I32 i = 1; i < items; i++) numbers[i - 1] = (int)SvIV(ST(i));
    error = px_stops_watch((double)seconds, numbers, (size_t)items - 1);
    if (error) croak("cannot count signals: %s", Strerror(error));

void
heard_stops()
CODE:
    px_stops_heard();

void
leave_stops()
CODE:
    px_stops_leave();

SV *
exit_place()
CODE:
    RETVAL = px_exit_place() ? newSVpv(px_exit_place(), 0) : &PL_sv_undef;
OUTPUT:
    RETVAL

void
tell_when_stuck(name)
    const char *name
CODE:
    if (px_stuck_watch(aTHX_ NULL, name) != 0) croak("sigaction: %s", Strerror(errno));

int
stuck_signal()
CODE:
    RETVAL = px_stuck_signal();
OUTPUT:
    RETVAL

long
thread_number()
CODE:
    RETVAL = px_stuck_thread();
OUTPUT:
    RETVAL

bool
ask_stuck_thread(thread)
    long thread
CODE:
    RETVAL = px_stuck_ask_thread(thread) == 0;
OUTPUT:
    RETVAL

UV
sv_count()
CODE:
    RETVAL = (UV)PL_sv_count;
OUTPUT:
    RETVAL

SV *
take_buffered(handle)
    PerlIO *handle
PREINIT:
    SSize_t count;
CODE:
    count = handle && PerlIO_fast_gets(handle) ? PerlIO_get_cnt(handle) : 0;
    RETVAL = newSV(count > 0 ? (STRLEN)count + 1 : 1);
    SvPVCLEAR(RETVAL);
    count = count > 0 ? PerlIO_read(handle, SvPVX(RETVAL), (Size_t)count) : 0;
    SvCUR_set(RETVAL, count > 0 ? (STRLEN)count : 0);
    *SvEND(RETVAL) = '\0';
OUTPUT:
    RETVAL

bool
has_kernel_tls()
CODE:
    RETVAL = peregrine_has_kernel_tls() != 0;
OUTPUT:
    RETVAL

bool
has_tls()
CODE:
    RETVAL = peregrine_has_tls() != 0;
OUTPUT:
    RETVAL

UV
abi_version()
CODE:
    RETVAL = PEREGRINE_ABI_VERSION;
OUTPUT:
    RETVAL

const char *
engine_version()
CODE:
    RETVAL = peregrine_version();
OUTPUT:
    RETVAL

const char *
tls_library()
CODE:
    RETVAL = peregrine_tls_library();
OUTPUT:
    RETVAL

void
counters()
PREINIT:
    const peregrine_counter *known;
PPCODE:
    for (size_t i = 0; (known = peregrine_counter_at(i)) != NULL; i++) {
        static const char *const kinds[] = {"", "counter", "gauge", "bucket", "sum"};
        HV *counter = newHV();
        (void)hv_stores(counter, "name", newSVpv(known->name, 0));
        (void)hv_stores(counter, "label", newSVpv(known->label, 0));
        (void)hv_stores(counter, "value", newSVpv(known->value, 0));
        (void)hv_stores(counter, "summary", newSVpv(known->summary, 0));
        (void)hv_stores(counter, "kind",
         newSVpv(known->kind < C_ARRAY_LENGTH(kinds) ? kinds[known->kind] : "", 0));
        mXPUSHs(newRV_noinc((SV *)counter));
    }

SV *
trace_open(descriptor)
    int descriptor
PREINIT:
    int number;
CODE:
    number = peregrine_trace_open(descriptor);
    if (number == PEREGRINE_E_FORMAT) errno = EPROTO;
    RETVAL = number < 0 ? newSV(0) : newSViv(number);
OUTPUT:
    RETVAL

void
trace_close()
CODE:
    peregrine_trace_close();

void
trace_layout()
PREINIT:
    peregrine_trace_memory memory;
    HV *layout;
PPCODE:
    peregrine_trace_layout(&memory);
    layout = newHV();
    (void)hv_stores(layout, "layout", newSVuv(memory.layout));
    (void)hv_stores(layout, "bytes", newSVuv(memory.bytes));
    (void)hv_stores(layout, "until", newSVuv(memory.until));
    (void)hv_stores(layout, "server", newSVuv(memory.server));
    (void)hv_stores(layout, "next", newSVuv(memory.next));
    (void)hv_stores(layout, "records", newSVuv(memory.records));
    (void)hv_stores(layout, "record_bytes", newSVuv(memory.record_bytes));
    (void)hv_stores(layout, "count", newSVuv(memory.count));
    (void)hv_stores(layout, "text_max", newSVuv(memory.text_max));
    mXPUSHs(newRV_noinc((SV *)layout));
    for (uint32_t list = 0; list < 2; list++) {
        AV *names = newAV();
        const char *name;
        for (size_t i = 0; (name = peregrine_trace_name(list, i)) != NULL; i++)
            av_push(names, newSVpv(name, 0));
        mXPUSHs(newRV_noinc((SV *)names));
    }

void
options()
PREINIT:
    const peregrine_option *known;
PPCODE:
    for (size_t i = 0; (known = peregrine_option_at(i)) != NULL; i++) {
        HV *option = newHV();
        (void)hv_stores(option, "name", newSVpv(known->name, 0));
        (void)hv_stores(option, "unit", newSVpv(known->unit, 0));
        (void)hv_stores(option, "summary", newSVpv(known->summary, 0));
        (void)hv_stores(option, "default", newSViv((IV)known->fallback));
        (void)hv_stores(option, "min", newSViv((IV)known->min));
        (void)hv_stores(option, "max", newSViv((IV)known->max));
        mXPUSHs(newRV_noinc((SV *)option));
    }

void
access_log_fault(text)
    const char *text
ALIAS:
    networks_fault = 1
PREINIT:
    size_t at, len;
    const char *reason;
PPCODE:
    reason = ix ? peregrine_networks_fault(text, &at, &len) : peregrine_access_log_fault(text, &at, &len);
    if (!reason) XSRETURN_EMPTY;
    EXTEND(SP, 3);
    mPUSHp(text + at, len);
    mPUSHu(at);
    mPUSHp(reason, strlen(reason));

int
open_unix(path, backlog, mode, uid, gid)
    const char *path
    int backlog
    IV mode
    IV uid
    IV gid
PREINIT:
    peregrine_unix_socket wanted;
CODE:
    wanted.size = sizeof(wanted);
    wanted.backlog = backlog;
    wanted.path = path;
    wanted.mode = mode;
    wanted.uid = uid;
    wanted.gid = gid;
    RETVAL = peregrine_open_unix(&wanted);
OUTPUT:
    RETVAL

INCLUDE: bridge/worker.xsi

INCLUDE: bridge/words.xsi

INCLUDE: bridge/coder.xsi

INCLUDE: bridge/opener.xsi

INCLUDE: bridge/tls.xsi

INCLUDE: bridge/futures.xsi

INCLUDE: pagi/pagi.xsi

INCLUDE: psgi/psgi.xsi
