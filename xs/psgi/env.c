/* env.c - a request head becomes the environment that an application is called with (PSGI.pod, The
 * Environment). */
#include "psgi/psgi.h"

#include <time.h>

/* ---- Header fields --------------------------------------------------------------------------- */

static bool is_named(const char *name, STRLEN len, const char *text, STRLEN text_len) {
    return len == text_len && foldEQ(name, text, (I32)len);
}

static bool is_chunked(const char *name, STRLEN len) {
    return is_named(name, len, "transfer-encoding", 17);
}

/* The key of a field: a mortal or shared scalar. NULL: applications are not shown it. Of a body that came in
 * chunks they are told the length, for it is whole. A name with an underscore would be taken for one with a
 * dash, which a proxy may have checked; and a program that the application runs would take HTTP_PROXY for its
 * own proxy (CVE-2016-5387). */
static SV *make_key(pTHX_ const psgi_app *app, const char *name, STRLEN len) {
    psgi_context *cx = app->cx;
    if (!app->underscores && memchr(name, '_', len)) return NULL;
    if (is_named(name, len, "proxy", 5) || is_chunked(name, len)) return NULL;
    if (is_named(name, len, "content-type", 12)) return PSGI_KEY(cx, CONTENT_TYPE);
    if (is_named(name, len, "content-length", 14)) return PSGI_KEY(cx, CONTENT_LENGTH);
    if (is_named(name, len, "cookie", 6)) return PSGI_KEY(cx, COOKIE);
    SV *key = newSVpvs_flags("HTTP_", SVs_TEMP);
    char *to = SvGROW(key, len + 6) + 5;
    for (STRLEN i = 0; i < len; i++) to[i] = name[i] == '-' ? '_' : (char)toUPPER_A(name[i]);
    to[len] = '\0';
    SvCUR_set(key, len + 5);
    return key;
}

/* The same for names that the engine numbers, made once. */
static SV *key_of(pTHX_ const psgi_app *app, const char *text, const peregrine_field_span *field) {
    const char *name = text + field->name_at;
    if (field->id == 0 || field->id >= PSGI_HEADER_IDS) return make_key(aTHX_ app, name, field->name_len);
    SV **known = &app->cx->header_keys[field->id];
    if (!*known) {
        SV *key = make_key(aTHX_ app, name, field->name_len);
        if (!key) return NULL;
        *known = newSVpvn_share(SvPVX_const(key), (I32)SvCUR(key), 0);
    }
    return *known;
}

/* A field that came before has its values joined: cookies as RFC 6265 has them, others as RFC 9110 5.3. */
static void add_field(pTHX_ psgi_context *cx, HV *env, SV *key, const char *value, STRLEN len) {
    HE *entry = hv_fetch_ent(env, key, 1, SvIsCOW_shared_hash(key) ? SvSHARED_HASH(key) : 0);
    SV *slot = HeVAL(entry);
    if (!SvOK(slot)) {
        sv_setpvn(slot, value, len);
        return;
    }
    const bool cookie = SvCUR(key) == SvCUR(PSGI_KEY(cx, COOKIE)) &&
                        memcmp(SvPVX_const(key), "HTTP_COOKIE", SvCUR(key)) == 0;
    if (cookie) sv_catpvs(slot, "; ");
    else sv_catpvs(slot, ", ");
    sv_catpvn(slot, value, len);
}

static void add_fields(pTHX_ psgi_exchange *exchange, HV *env, const peregrine_request *request) {
    psgi_context *cx = exchange->app->cx;
    for (uint32_t i = 0; i < request->field_count; i++) {
        const peregrine_field_span *field = &request->fields[i];
        SV *key = key_of(aTHX_ exchange->app, request->text, field);
        if (key)
            add_field(aTHX_ cx, env, key, request->text + field->value_at, field->value_len);
        else if (is_chunked(request->text + field->name_at, field->name_len))
            px_store(aTHX_ env, PSGI_KEY(cx, CONTENT_LENGTH), newSVpvf("%" IVdf, (IV)request->body_length));
    }
}

/* ---- The request line ------------------------------------------------------------------------ */

static SV *method(pTHX_ psgi_exchange *exchange, const peregrine_request *request) {
    const char *text = request->text + request->method.at;
    const STRLEN len = request->method.len;
    const uint8_t id = request->method_id;
    if (id == 0 || id >= PSGI_METHOD_IDS) return newSVpvn(text, len);
    SV **known = &exchange->app->cx->method_names[id];
    if (!*known) *known = newSVpvn_share(text, (I32)len, 0);
    return psgi_kept_shared(aTHX_ exchange, PSGI_KEPT_METHOD, *known);
}

static SV *protocol(pTHX_ psgi_exchange *exchange, uint8_t version) {
    psgi_context *cx = exchange->app->cx;
    SV *name = version == 20   ? PSGI_KEY(cx, HTTP_2)
               : version == 10 ? PSGI_KEY(cx, HTTP_1_0)
                               : PSGI_KEY(cx, HTTP_1_1);
    return psgi_kept_shared(aTHX_ exchange, PSGI_KEPT_PROTOCOL, name);
}

/* What is behind the application's own part of the path, which the engine has compared: percent-decoded
 * bytes. Empty for the target "*", which is no path. */
static SV *path_info(pTHX_ const psgi_exchange *exchange, const peregrine_request *request) {
    const char *raw = request->text + request->path.at;
    const STRLEN own = px_prefix_len(&exchange->base);
    if (request->path.len == 0 || raw[0] != '/') return newSVpvs("");
    SV *path = newSVpvn(raw, request->path.len);
    if (memchr(raw, '%', request->path.len)) {
        const STRLEN decoded = peregrine_percent_decode(SvPVX(path), SvCUR(path));
        SvPVX(path)[decoded] = '\0';
        SvCUR_set(path, decoded);
    }
    if (own) sv_chop(path, SvPVX(path) + own);
    return path;
}

/* Where clients see the application. */
static SV *script_name(pTHX_ psgi_exchange *exchange) {
    STRLEN len;
    const char *root = px_root(&exchange->base, &len);
    return psgi_kept_text(aTHX_ exchange, PSGI_KEPT_SCRIPT_NAME, root, len);
}

/* Path and query as they came, without a scheme and a host. */
static SV *request_uri(pTHX_ const peregrine_request *request) {
    SV *uri = newSVpvn(request->text + request->path.at, request->path.len);
    if (!request->has_query) return uri;
    sv_catpvs(uri, "?");
    sv_catpvn(uri, request->text + request->query.at, request->query.len);
    return uri;
}

/* ---- The environment ------------------------------------------------------------------------- */

static SV *number(pTHX_ psgi_exchange *exchange, enum psgi_kept which, uint16_t port) {
    char text[8];
    char *at = text + sizeof(text);
    unsigned rest = port;
    do *--at = (char)('0' + rest % 10);
    while (rest /= 10);
    return psgi_kept_text(aTHX_ exchange, which, at, (STRLEN)(text + sizeof(text) - at));
}

static SV *text(pTHX_ psgi_exchange *exchange, enum psgi_kept which, const char *bytes) {
    return psgi_kept_text(aTHX_ exchange, which, bytes, strlen(bytes));
}

static void add_line(pTHX_ psgi_exchange *exchange, HV *env, const peregrine_request *request) {
    psgi_context *cx = exchange->app->cx;
    px_store(aTHX_ env, PSGI_KEY(cx, REQUEST_METHOD), method(aTHX_ exchange, request));
    px_store(aTHX_ env, PSGI_KEY(cx, SCRIPT_NAME), script_name(aTHX_ exchange));
    px_store(aTHX_ env, PSGI_KEY(cx, PATH_INFO), path_info(aTHX_ exchange, request));
    px_store(aTHX_ env, PSGI_KEY(cx, REQUEST_URI), request_uri(aTHX_ request));
    px_store(aTHX_ env, PSGI_KEY(cx, QUERY_STRING),
             request->query.len ? newSVpvn(request->text + request->query.at, request->query.len)
                                : px_copy(aTHX_ PSGI_KEY(cx, EMPTY)));
    px_store(aTHX_ env, PSGI_KEY(cx, SERVER_PROTOCOL), protocol(aTHX_ exchange, request->version));
    px_store(aTHX_ env, PSGI_KEY(cx, URL_SCHEME),
             psgi_kept_shared(aTHX_ exchange, PSGI_KEPT_URL_SCHEME,
                              request->secure ? PSGI_KEY(cx, HTTPS) : PSGI_KEY(cx, HTTP)));
}

/* A Unix socket has no name and no port of the kind that these keys have, which may not be empty. */
static void add_addresses(pTHX_ psgi_exchange *exchange, HV *env, const peregrine_request *request) {
    psgi_context *cx = exchange->app->cx;
    const bool tcp = request->local_port != 0;
    px_store(aTHX_ env, PSGI_KEY(cx, SERVER_NAME),
             text(aTHX_ exchange, PSGI_KEPT_SERVER_NAME, tcp ? request->local : "localhost"));
    px_store(aTHX_ env, PSGI_KEY(cx, SERVER_PORT),
             number(aTHX_ exchange, PSGI_KEPT_SERVER_PORT, request->local_port));
    if (!request->peer[0]) return;
    px_store(aTHX_ env, PSGI_KEY(cx, REMOTE_ADDR),
             text(aTHX_ exchange, PSGI_KEPT_REMOTE_ADDR, request->peer));
    px_store(aTHX_ env, PSGI_KEY(cx, REMOTE_PORT),
             number(aTHX_ exchange, PSGI_KEPT_REMOTE_PORT, request->peer_port));
}

static void add_server(pTHX_ psgi_exchange *exchange, HV *env) {
    const psgi_app *app = exchange->app;
    psgi_context *cx = app->cx;
#define STORE_FLAG(name, value)                                                                              \
    px_store(aTHX_ env, cx->keys[PSGI_KEY_##name],                                                           \
             psgi_kept_flag(aTHX_ exchange, PSGI_KEPT_##name, value))
#define STORE_REFERENCE(name, target)                                                                        \
    px_store(aTHX_ env, cx->keys[PSGI_KEY_##name],                                                           \
             psgi_kept_reference(aTHX_ exchange, PSGI_KEPT_##name, (SV *)(target)))
    STORE_REFERENCE(VERSION, app->version);
    STORE_REFERENCE(ERRORS, PL_stderrgv);
    STORE_FLAG(MULTITHREAD, app->multithread);
    STORE_FLAG(MULTIPROCESS, app->multiprocess);
    STORE_FLAG(RUN_ONCE, false);
    STORE_FLAG(NONBLOCKING, true);
    STORE_FLAG(STREAMING, true);
    STORE_FLAG(INPUT_BUFFERED, true);
    STORE_FLAG(CLEANUP, true);
    STORE_FLAG(HARAKIRI, app->harakiri);
    STORE_REFERENCE(CLEANUP_HANDLERS, exchange->cleanup);
    STORE_REFERENCE(INFORMATIONAL, exchange->informational);
    STORE_REFERENCE(DISCONNECTED, exchange->disconnected);
#undef STORE_FLAG
#undef STORE_REFERENCE
}

/* Microseconds for which the request has waited since it was complete. */
static IV queue_us(const peregrine_request *request) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    const uint64_t now_us = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
    return now_us > request->complete_us ? (IV)(now_us - request->complete_us) : 0;
}

/* A new environment, but for psgi.input. */
HV *psgi_env_build(pTHX_ psgi_exchange *exchange, const peregrine_request *request) {
    HV *env = newHV();
    HvMAX(env) = 63; /* one less than its buckets, of which there are none yet: enough for most */
    add_fields(aTHX_ exchange, env, request);
    add_line(aTHX_ exchange, env, request);
    add_addresses(aTHX_ exchange, env, request);
    add_server(aTHX_ exchange, env);
    px_store(aTHX_ env, PSGI_KEY(exchange->app->cx, QUEUE_US),
             psgi_kept_number(aTHX_ exchange, PSGI_KEPT_QUEUE_US, queue_us(request)));
    return env;
}
