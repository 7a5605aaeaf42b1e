/* scope.c - makes the scope hash, with which an application is called, of a request head (PAGI::Spec::Www,
 * HTTP Connection Scope). */
#include "pagi/pagi.h"

static char ascii_lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

static SV *lowered_name(pTHX_ const char *name, STRLEN len) {
    SV *lower = newSV(len + 1);
    char *to = SvPVX(lower);
    for (STRLEN i = 0; i < len; i++) to[i] = ascii_lower(name[i]);
    to[len] = '\0';
    SvCUR_set(lower, len);
    SvPOK_only(lower);
    return lower;
}

/* The shared lower-case name of a field that the engine numbers, learned from the first field with that
 * number; NULL: the engine does not number it. */
SV *pagi_scope_known_name(pTHX_ pagi_context *cx, const char *text, const peregrine_field_span *field) {
    if (field->id == 0 || field->id >= PAGI_HEADER_IDS) return NULL;
    SV **known = &cx->header_names[field->id];
    if (!*known) {
        SV *lower = lowered_name(aTHX_ text + field->name_at, field->name_len);
        *known = newSVpvn_share(SvPVX_const(lower), (I32)SvCUR(lower), 0);
        SvREFCNT_dec_NN(lower);
    }
    return *known;
}

static SV *field_name(pTHX_ pagi_context *cx, const char *text, const peregrine_field_span *field) {
    SV *known = pagi_scope_known_name(aTHX_ cx, text, field);
    return known ? px_copy(aTHX_ known) : lowered_name(aTHX_ text + field->name_at, field->name_len);
}

static bool is_named(SV *name, const char *text, STRLEN len) {
    return SvCUR(name) == len && memcmp(SvPVX_const(name), text, len) == 0;
}

/* A string of a scope. In a scope that lasts as long as its connection the string shares its bytes with all
 * equal strings: ten thousand open WebSockets have few different hosts, origins and user agents. */
static SV *new_string(pTHX_ const char *bytes, STRLEN len, bool lasting) {
    return lasting ? newSVpvn_share(bytes, (I32)len, 0) : newSVpvn(bytes, len);
}

static void push_pair(pTHX_ AV *list, SV *first, SV *second) {
    av_push(list, newRV_noinc((SV *)px_pair(aTHX_ first, second)));
}

/* The fields as [lower-case name, value] pairs in the order of arrival; several Cookie fields become one.
 * For trailers nothing is merged. */
static AV *fields(pTHX_ pagi_context *cx, const peregrine_request *request, bool trailers, bool lasting) {
    AV *list = newAV();
    SV *cookie = NULL;
    if (request->field_count) av_extend(list, (SSize_t)request->field_count - 1);
    for (uint32_t i = 0; i < request->field_count; i++) {
        const peregrine_field_span *field = &request->fields[i];
        const char *value = request->text + field->value_at;
        SV *name = field_name(aTHX_ cx, request->text, field);
        if (!trailers && field->name_len == 6 && is_named(name, "cookie", 6)) {
            if (cookie) {
                sv_catpvs(cookie, "; ");
                sv_catpvn(cookie, value, field->value_len);
                SvREFCNT_dec_NN(name);
                continue;
            }
            cookie = newSVpvn(value, field->value_len);
            push_pair(aTHX_ list, name, cookie);
            continue;
        }
        push_pair(aTHX_ list, name, new_string(aTHX_ value, field->value_len, lasting));
    }
    return list;
}

/* The trailer fields behind a request's body. */
AV *pagi_scope_trailers(pTHX_ pagi_context *cx, const peregrine_request *request) {
    return fields(aTHX_ cx, request, true, false);
}

/* The fields of a request head, as the scope shows them. */
AV *pagi_scope_headers(pTHX_ pagi_context *cx, const peregrine_request *request, bool lasting) {
    return fields(aTHX_ cx, request, false, lasting);
}

/* Makes a reference point to another value, which it takes over. */
void pagi_scope_refer_to(pTHX_ SV *reference, SV *container) {
    SV *old = SvRV(reference);
    SvRV_set(reference, container);
    SvREFCNT_dec_NN(old);
}

/* Sets a scalar to bytes; keeps its buffer if that is large enough. */
void pagi_scope_set_bytes(pTHX_ SV *sv, const char *bytes, STRLEN len) {
    SvUTF8_off(sv);
    sv_setpvn(sv, bytes, len);
}

/* Sets a scalar to a shared string; does nothing if it has that string already. Called by extensions,
 * sv_setsv() would copy the bytes. */
void pagi_scope_set_constant(pTHX_ SV *sv, SV *shared) {
    if (SvPOK(sv) && SvPVX_const(sv) == SvPVX_const(shared)) return;
    SvUTF8_off(sv);
    sv_setsv_flags(sv, shared, SV_COW_SHARED_HASH_KEYS);
}

/* Turns bytes into characters, if they are valid UTF-8. */
static void decode_utf8(SV *sv) {
    const U8 *bytes = (const U8 *)SvPVX_const(sv);
    if (is_utf8_invariant_string(bytes, SvCUR(sv))) return;
    if (is_c9strict_utf8_string(bytes, SvCUR(sv))) SvUTF8_on(sv);
}

/* Sets the path: percent-decoded, without its first `own` bytes (the mount's), then decoded as UTF-8 if it is
 * valid UTF-8, else left as bytes. */
static void set_path(pTHX_ SV *path, const char *raw, STRLEN len, STRLEN own) {
    pagi_scope_set_bytes(aTHX_ path, raw, len);
    char *text = SvPVX(path);
    const STRLEN decoded = peregrine_percent_decode(text, len) - own;
    if (own) Move(text + own, text, decoded, char);
    text[decoded] = '\0';
    SvCUR_set(path, decoded);
    decode_utf8(path);
}

/* Sets the path at which clients see the application. */
static void set_root_path(pTHX_ const pagi_exchange *exchange, SV *root_path) {
    STRLEN len;
    const char *root = px_root(&exchange->base, &len);
    if (len == 0) {
        pagi_scope_set_constant(aTHX_ root_path, PAGI_KEY(exchange->app->cx, EMPTY));
        return;
    }
    pagi_scope_set_bytes(aTHX_ root_path, root, len);
    decode_utf8(root_path);
}

/* Sets the method. Names of methods that the engine numbers are learned and shared, other names are copied.
 * PAGI's methods are upper case, and so are the engine's. */
static void set_method(pTHX_ pagi_context *cx, SV *method, const peregrine_request *request) {
    const char *text = request->text + request->method.at;
    const STRLEN len = request->method.len;
    const uint8_t id = request->method_id;
    if (id != 0 && id < PAGI_METHOD_IDS) {
        SV **known = &cx->method_names[id];
        if (!*known) *known = newSVpvn_share(text, (I32)len, 0);
        pagi_scope_set_constant(aTHX_ method, *known);
        return;
    }
    pagi_scope_set_bytes(aTHX_ method, text, len);
}

static SV *http_version(pagi_context *cx, uint8_t version) {
    if (version == 20) return PAGI_KEY(cx, HTTP_2);
    return version == 10 ? PAGI_KEY(cx, HTTP_1_0) : PAGI_KEY(cx, HTTP_1_1);
}

/* Sets the scalars of a scope whose containers are there already. */
void pagi_scope_fill(pTHX_ pagi_exchange *exchange, const peregrine_request *request) {
    pagi_context *cx = exchange->app->cx;
    const pagi_kind *kind = exchange->kind;
    SV **slots = exchange->scope->slots;
    const char *text = request->text;
    const char *path = text + request->path.at;

    pagi_scope_set_constant(aTHX_ slots[PAGI_SLOT_TYPE], cx->keys[kind->type]);
    pagi_scope_set_constant(aTHX_ slots[PAGI_SLOT_HTTP_VERSION], http_version(cx, request->version));
    if (kind->has_method) set_method(aTHX_ cx, slots[PAGI_SLOT_METHOD], request);
    pagi_scope_set_constant(aTHX_ slots[PAGI_SLOT_SCHEME],
                            cx->keys[request->secure ? kind->secure_scheme : kind->scheme]);
    set_path(aTHX_ slots[PAGI_SLOT_PATH], path, request->path.len, px_prefix_len(&exchange->base));
    pagi_scope_set_bytes(aTHX_ slots[PAGI_SLOT_RAW_PATH], path, request->path.len);
    if (request->query.len)
        pagi_scope_set_bytes(aTHX_ slots[PAGI_SLOT_QUERY_STRING], text + request->query.at,
                             request->query.len);
    else pagi_scope_set_constant(aTHX_ slots[PAGI_SLOT_QUERY_STRING], PAGI_KEY(cx, EMPTY));
    set_root_path(aTHX_ exchange, slots[PAGI_SLOT_ROOT_PATH]);
}

/* Gives a slot of a new scope its value; the slot holds a reference beside the hash's. */
static void add(pTHX_ pagi_exchange *exchange, enum pagi_slot slot, SV *key, SV *value) {
    exchange->scope->slots[slot] = SvREFCNT_inc_simple_NN(value);
    px_store(aTHX_ exchange->scope->hash, key, value);
}

static SV *address(pTHX_ const char *host, SV *port, bool lasting) {
    return newRV_noinc((SV *)px_pair(aTHX_ new_string(aTHX_ host, strlen(host), lasting), port));
}

/* Makes a string of a lasting scope share its bytes; see new_string(). */
static void share(pTHX_ SV *sv) {
    if (SvLEN(sv) == 0) return;
    SV *shared = newSVpvn_share(SvPVX_const(sv), SvUTF8(sv) ? -(I32)SvCUR(sv) : (I32)SvCUR(sv), 0);
    pagi_scope_set_constant(aTHX_ sv, shared);
    SvREFCNT_dec_NN(shared);
}

static void add_containers(pTHX_ pagi_exchange *exchange, const peregrine_request *request) {
    const pagi_app *app = exchange->app;
    const bool lasting = !exchange->kind->keeps_scope;
    pagi_context *cx = exchange->app->cx;
    HV *pagi = newHV();
    px_store(aTHX_ pagi, PAGI_KEY(cx, VERSION), px_copy(aTHX_ PAGI_KEY(cx, PAGI_VERSION)));
    px_store(aTHX_ pagi, PAGI_KEY(cx, SPEC_VERSION), px_copy(aTHX_ PAGI_KEY(cx, PAGI_VERSION)));
    if (app->pool) {
        HV *extensions = newHV();
        px_store(aTHX_ extensions, PAGI_KEY(cx, WORKER_POOL), newSVsv(app->pool));
        px_store(aTHX_ pagi, PAGI_KEY(cx, EXTENSIONS), newRV_noinc((SV *)extensions));
        if (app->worker_state) px_store(aTHX_ pagi, PAGI_KEY(cx, WORKER_STATE), newSVsv(app->worker_state));
    }
    add(aTHX_ exchange, PAGI_SLOT_PAGI, PAGI_KEY(cx, PAGI), newRV_noinc((SV *)pagi));
    add(aTHX_ exchange, PAGI_SLOT_HEADERS, PAGI_KEY(cx, HEADERS),
        newRV_noinc((SV *)pagi_scope_headers(aTHX_ cx, request, lasting)));
    if (request->peer[0])
        add(aTHX_ exchange, PAGI_SLOT_CLIENT, PAGI_KEY(cx, CLIENT),
            address(aTHX_ request->peer, newSViv(request->peer_port), lasting));
    SV *port = request->local_port ? newSViv(request->local_port) : newSV(0); /* a Unix socket has none */
    add(aTHX_ exchange, PAGI_SLOT_SERVER, PAGI_KEY(cx, SERVER), address(aTHX_ request->local, port, lasting));
    if (app->state) add(aTHX_ exchange, PAGI_SLOT_STATE, PAGI_KEY(cx, STATE), newRV_noinc((SV *)newHV()));
    add(aTHX_ exchange, PAGI_SLOT_EXTENSIONS, PAGI_KEY(cx, EXTENSIONS),
        newRV_noinc((SV *)pagi_scope_extensions(aTHX_ exchange, request)));
    if (exchange->kind->has_connection)
        add(aTHX_ exchange, PAGI_SLOT_CONNECTION, PAGI_KEY(cx, CONNECTION),
            newRV_inc(pagi_exchange_connection(aTHX_ exchange)));
    add(aTHX_ exchange, PAGI_SLOT_TRANSPORT, PAGI_KEY(cx, TRANSPORT), newRV_inc(exchange->transport));
}

static bool plain_state(HV *state) {
    HE **buckets = HvARRAY(state);
    if (SvMAGICAL(state)) return false;
    for (STRLEN i = 0; buckets && i <= HvMAX(state); i++)
        for (const HE *entry = buckets[i]; entry; entry = HeNEXT(entry))
            if (SvGMAGICAL(HeVAL(entry))) return false;
    return true;
}

/* A copy of the lifespan state without magic. */
static HV *copy_of_state(pTHX_ const pagi_app *app) {
    if (plain_state(app->state)) return newHVhv(app->state);
    SV *function = sv_2mortal(newRV_inc((SV *)get_cv("Peregrine::_copy_hash", 0)));
    SV *error = NULL;
    SV *copy = px_call(aTHX_ function, NULL, sv_2mortal(newRV_inc((SV *)app->state)), NULL, &error);
    if (!copy) {
        px_worker_tell(aTHX_ app->worker, "_state_lost", error, NULL);
        return newHV();
    }
    SvREFCNT_inc_simple_void_NN(SvRV(copy));
    HV *hash = (HV *)SvRV(copy);
    SvREFCNT_dec_NN(copy);
    return hash;
}

/* Gives a scope its copy of the lifespan state. This is the last step of building it: a tied state runs Perl
 * code, after which the request's memory may not be read. */
static void give_state(pTHX_ pagi_exchange *exchange) {
    const pagi_app *app = exchange->app;
    if (app->state)
        pagi_scope_refer_to(aTHX_ exchange->scope->slots[PAGI_SLOT_STATE], (SV *)copy_of_state(aTHX_ app));
}

/* The extensions that the server advertises: each request has a hash of its own, and shares the data of each
 * extension; over TLS there is one extension more. */
HV *pagi_scope_extensions(pTHX_ pagi_exchange *exchange, const peregrine_request *request) {
    const pagi_app *app = exchange->app;
    HV *extensions = app->extensions ? newHVhv(app->extensions) : newHV();
    exchange->scope->secure = request->tls;
    if (request->tls) pagi_tls_extend(aTHX_ exchange, extensions);
    return extensions;
}

/* The scope of a request: the one of the exchange's last request if that can be used again, or a new one. */
HV *pagi_scope_build(pTHX_ pagi_exchange *exchange, const peregrine_request *request) {
    const pagi_kind *kind = exchange->kind;
    pagi_context *cx = exchange->app->cx;
    if (exchange->scope && kind->keeps_scope && pagi_scope_refresh(aTHX_ exchange, request)) {
        give_state(aTHX_ exchange);
        return exchange->scope->hash;
    }
    pagi_scope_drop(aTHX_ exchange);
    pagi_scope *scope;
    Newxz(scope, 1, pagi_scope);
    exchange->scope = scope;
    scope->hash = newHV();
    hv_ksplit(scope->hash, PAGI_SLOT_COUNT);
    SV *const keys[] = {PAGI_KEY(cx, TYPE),     PAGI_KEY(cx, HTTP_VERSION), PAGI_KEY(cx, METHOD),
                              PAGI_KEY(cx, SCHEME),
                        PAGI_KEY(cx, PATH),     PAGI_KEY(cx, RAW_PATH),     PAGI_KEY(cx, QUERY_STRING),
                            PAGI_KEY(cx, ROOT_PATH)};
    for (size_t i = 0; i < C_ARRAY_LENGTH(keys); i++)
        if (i != PAGI_SLOT_METHOD || kind->has_method)
            add(aTHX_ exchange, (enum pagi_slot)i, keys[i], newSV_type(SVt_PV));
    add_containers(aTHX_ exchange, request);
    pagi_scope_fill(aTHX_ exchange, request);
    if (kind->keeps_scope) pagi_scope_seal(scope);
    else for (int i = PAGI_SLOT_PATH; i <= PAGI_SLOT_QUERY_STRING; i++) share(aTHX_ scope->slots[i]);
    if (kind->extend) kind->extend(aTHX_ exchange, request);
    give_state(aTHX_ exchange);
    return scope->hash;
}
