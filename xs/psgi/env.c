/* env.c - makes the environment, with which an application is called, of a request head (PSGI.pod, The
 * Environment). */
#include "psgi/psgi.h"

#include <time.h>

/* ---- Header fields --------------------------------------------------------------------------- */

static bool is_chunked(const char *name, STRLEN len) {
    return px_is_text(name, len, "transfer-encoding");
}

/* The key of a field in the environment: a mortal or shared scalar. NULL: the field is hidden from
 * applications. Transfer-Encoding is: the whole body is here, so its length is shown. A name with an
 * underscore would be taken for one with a dash, which a proxy may have checked; and a program that the
 * application runs would take HTTP_PROXY for its own proxy (CVE-2016-5387). */
static SV *make_key(pTHX_ const psgi_app *app, const char *name, STRLEN len) {
    psgi_context *cx = app->cx;
    if (!app->underscores && memchr(name, '_', len)) return NULL;
    if (px_is_text(name, len, "proxy") || is_chunked(name, len)) return NULL;
    if (px_is_text(name, len, "content-type")) return PSGI_KEY(cx, CONTENT_TYPE);
    if (px_is_text(name, len, "content-length")) return PSGI_KEY(cx, CONTENT_LENGTH);
    if (px_is_text(name, len, "cookie")) return PSGI_KEY(cx, COOKIE);
    SV *key = newSVpvs_flags("HTTP_", SVs_TEMP);
    char *to = SvGROW(key, len + 6) + 5;
    for (STRLEN i = 0; i < len; i++) to[i] = name[i] == '-' ? '_' : (char)toUPPER_A(name[i]);
    to[len] = '\0';
    SvCUR_set(key, len + 5);
    return psgi_grip_hides(app, key) ? NULL : key;
}

/* The key of a field whose name the engine numbers, made once. */
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

/* Joins the value of a repeated field to the values before: cookies by RFC 6265, others by RFC 9110 5.3. */
static void join(pTHX_ const psgi_context *cx, const SV *key, SV *slot, const char *value, STRLEN len) {
    const bool cookie = SvCUR(key) == SvCUR(PSGI_KEY(cx, COOKIE)) &&
                        memcmp(SvPVX_const(key), "HTTP_COOKIE", SvCUR(key)) == 0;
    if (cookie) sv_catpvs(slot, "; ");
    else sv_catpvs(slot, ", ");
    sv_catpvn(slot, value, len);
}

static void add_field(pTHX_ psgi_exchange *exchange, HV *env, const peregrine_request *request,
                      const peregrine_field_span *field) {
    psgi_context *cx = exchange->app->cx;
    const char *value = request->text + field->value_at;
    SV *key = key_of(aTHX_ exchange->app, request->text, field);
    if (!key) {
        if (is_chunked(request->text + field->name_at, field->name_len))
            px_store(aTHX_ env, PSGI_KEY(cx, CONTENT_LENGTH), newSVpvf("%" IVdf, (IV)request->body_length));
        psgi_env_remember_field(aTHX_ exchange, 0, NULL);
        return;
    }
    const bool known = field->id != 0 && field->id < PSGI_HEADER_IDS;
    SV *slot = HeVAL(hv_fetch_ent(env, key, 1, SvIsCOW_shared_hash(key) ? SvSHARED_HASH(key) : 0));
    if (SvOK(slot)) {
        join(aTHX_ cx, key, slot, value, field->value_len);
        psgi_env_remember_field(aTHX_ exchange, 0, NULL);
        return;
    }
    sv_setpvn(slot, value, field->value_len);
    psgi_env_remember_field(aTHX_ exchange, known ? (uint8_t)field->id : 0, slot);
}

/* Whether a scalar is this string, and was never used as another type. */
static bool is_same(const SV *sv, const char *text, STRLEN len) {
    return (SvFLAGS(sv) & ~(U32)(SVTYPEMASK | SVf_IsCOW)) == (SVf_POK | SVp_POK) && SvCUR(sv) == len &&
           memEQ(SvPVX_const(sv), text, len);
}

/* Sets the fields of an environment that has the fields of the request before: most clients send equal fields
 * in the same order. */
static void add_fields(pTHX_ psgi_exchange *exchange, HV *env, const peregrine_request *request) {
    int i = 0;
    for (; i < exchange->field_count && i < (int)request->field_count; i++) {
        const peregrine_field_span *field = &request->fields[i];
        const char *value = request->text + field->value_at;
        SV *slot = exchange->fields[i];
        if (exchange->field_ids[i] != field->id) break;
        if (is_same(slot, value, field->value_len)) continue;
        SvUTF8_off(slot);
        sv_setpvn(slot, value, field->value_len);
    }
    for (int old = i; old < exchange->field_count; old++) {
        SV *key = exchange->app->cx->header_keys[exchange->field_ids[old]];
        (void)hv_delete_ent(env, key, G_DISCARD, SvSHARED_HASH(key));
    }
    psgi_env_forget_fields(aTHX_ exchange, i);
    for (; i < (int)request->field_count; i++) add_field(aTHX_ exchange, env, request, &request->fields[i]);
}

/* ---- The request line ------------------------------------------------------------------------ */

static void put_method(pTHX_ psgi_exchange *exchange, HV *env, const peregrine_request *request) {
    const char *text = request->text + request->method.at;
    const STRLEN len = request->method.len;
    const uint8_t id = request->method_id;
    if (id == 0 || id >= PSGI_METHOD_IDS) {
        psgi_put_text(aTHX_ exchange, env, PSGI_KEPT_REQUEST_METHOD, text, len);
        return;
    }
    SV **known = &exchange->app->cx->method_names[id];
    if (!*known) *known = newSVpvn_share(text, (I32)len, 0);
    psgi_put_shared(aTHX_ exchange, env, PSGI_KEPT_REQUEST_METHOD, *known);
}

static SV *protocol(const psgi_context *cx, uint8_t version) {
    return version == 20   ? PSGI_KEY(cx, HTTP_2)
           : version == 10 ? PSGI_KEY(cx, HTTP_1_0)
                           : PSGI_KEY(cx, HTTP_1_1);
}

/* PATH_INFO: the path behind the mount's part, which the engine has compared, as percent-decoded bytes. Empty
 * for the target "*", which is no path. */
static void put_path_info(pTHX_ psgi_exchange *exchange, HV *env, const peregrine_request *request) {
    const char *raw = request->text + request->path.at;
    STRLEN len = request->path.len;
    const STRLEN own = px_prefix_len(&exchange->base);
    if (len == 0 || raw[0] != '/') {
        psgi_put_text(aTHX_ exchange, env, PSGI_KEPT_PATH_INFO, "", 0);
        return;
    }
    if (memchr(raw, '%', len)) {
        char *path = SvPVX(newSVpvn_flags(raw, len, SVs_TEMP));
        len = peregrine_percent_decode(path, len);
        raw = path;
    }
    psgi_put_text(aTHX_ exchange, env, PSGI_KEPT_PATH_INFO, raw + own, len - own);
}

/* REQUEST_URI: path and query as they came, without a scheme and a host. */
static void put_request_uri(pTHX_ psgi_exchange *exchange, HV *env, const peregrine_request *request) {
    const char *path = request->text + request->path.at;
    const STRLEN len = request->path.len;
    if (!request->has_query) {
        psgi_put_text(aTHX_ exchange, env, PSGI_KEPT_REQUEST_URI, path, len);
        return;
    }
    SV *uri = newSVpvn_flags(path, len, SVs_TEMP);
    sv_catpvs(uri, "?");
    sv_catpvn(uri, request->text + request->query.at, request->query.len);
    psgi_put_text(aTHX_ exchange, env, PSGI_KEPT_REQUEST_URI, SvPVX_const(uri), SvCUR(uri));
}

/* ---- The environment ------------------------------------------------------------------------- */

static void put_port(pTHX_ psgi_exchange *exchange, HV *env, enum psgi_kept which, uint16_t port) {
    char text[8];
    char *at = text + sizeof(text);
    unsigned rest = port;
    do *--at = (char)('0' + rest % 10);
    while (rest /= 10);
    psgi_put_text(aTHX_ exchange, env, which, at, (STRLEN)(text + sizeof(text) - at));
}

static void put_string(pTHX_ psgi_exchange *exchange, HV *env, enum psgi_kept which, const char *text) {
    psgi_put_text(aTHX_ exchange, env, which, text, strlen(text));
}

static void add_line(pTHX_ psgi_exchange *exchange, HV *env, const peregrine_request *request) {
    const psgi_context *cx = exchange->app->cx;
    STRLEN root_len;
    const char *root = px_root(&exchange->base, &root_len); /* the path that clients see */
    put_method(aTHX_ exchange, env, request);
    psgi_put_text(aTHX_ exchange, env, PSGI_KEPT_SCRIPT_NAME, root, root_len);
    put_path_info(aTHX_ exchange, env, request);
    put_request_uri(aTHX_ exchange, env, request);
    psgi_put_text(aTHX_ exchange, env, PSGI_KEPT_QUERY_STRING, request->text + request->query.at,
                  request->query.len);
    psgi_put_shared(aTHX_ exchange, env, PSGI_KEPT_SERVER_PROTOCOL, protocol(cx, request->version));
    psgi_put_shared(aTHX_ exchange, env, PSGI_KEPT_URL_SCHEME,
                    request->secure ? PSGI_KEY(cx, HTTPS) : PSGI_KEY(cx, HTTP));
}

/* Adds the addresses. A Unix socket has neither host nor port, but SERVER_NAME and SERVER_PORT may not be
 * empty. */
static void add_addresses(pTHX_ psgi_exchange *exchange, HV *env, const peregrine_request *request) {
    const bool tcp = request->local_port != 0;
    put_string(aTHX_ exchange, env, PSGI_KEPT_SERVER_NAME, tcp ? request->local : "localhost");
    put_port(aTHX_ exchange, env, PSGI_KEPT_SERVER_PORT, request->local_port);
    if (!request->peer[0]) return;
    put_string(aTHX_ exchange, env, PSGI_KEPT_REMOTE_ADDR, request->peer);
    put_port(aTHX_ exchange, env, PSGI_KEPT_REMOTE_PORT, request->peer_port);
}

static void add_server(pTHX_ psgi_exchange *exchange, HV *env) {
    const psgi_app *app = exchange->app;
#define PUT_FLAG(name, value) psgi_put_flag(aTHX_ exchange, env, PSGI_KEPT_##name, value)
#define PUT_REFERENCE(name, target)                                                                          \
    psgi_put_reference(aTHX_ exchange, env, PSGI_KEPT_##name, (SV *)(target))
    PUT_REFERENCE(VERSION, app->version);
    PUT_REFERENCE(ERRORS, PL_stderrgv);
    PUT_FLAG(MULTITHREAD, app->multithread);
    PUT_FLAG(MULTIPROCESS, app->multiprocess);
    PUT_FLAG(RUN_ONCE, false);
    PUT_FLAG(NONBLOCKING, true);
    PUT_FLAG(STREAMING, true);
    PUT_FLAG(INPUT_BUFFERED, true);
    PUT_FLAG(CLEANUP, true);
    PUT_FLAG(HARAKIRI, app->harakiri);
    PUT_REFERENCE(CLEANUP_HANDLERS, exchange->cleanup);
    PUT_REFERENCE(INFORMATIONAL, exchange->informational);
    PUT_REFERENCE(DISCONNECTED, exchange->disconnected);
    if (app->grip) psgi_put_shared(aTHX_ exchange, env, PSGI_KEPT_GRIP, app->grip);
#undef PUT_FLAG
#undef PUT_REFERENCE
}

/* Microseconds for which the request has waited since it was complete. */
static IV queue_us(const peregrine_request *request) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    const uint64_t now_us = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
    return now_us > request->complete_us ? (IV)(now_us - request->complete_us) : 0;
}

/* The environment of a request, without psgi.input: the one of the exchange's last request if it can be used
 * again, or a new one. */
HV *psgi_env_build(pTHX_ psgi_exchange *exchange, const peregrine_request *request) {
    HV *env = psgi_env_again(aTHX_ exchange, request);
    exchange->shown = 0;
    if (!env) {
        env = newHV();
        /* the number of buckets less one, for a hash without buckets yet: enough for most requests */
        HvMAX(env) = 63;
        exchange->field_count = 0;
        exchange->marks = 0;
    }
    add_fields(aTHX_ exchange, env, request);
    add_line(aTHX_ exchange, env, request);
    add_addresses(aTHX_ exchange, env, request);
    add_server(aTHX_ exchange, env);
    psgi_put_number(aTHX_ exchange, env, PSGI_KEPT_QUEUE_US, queue_us(request));
    return env;
}
