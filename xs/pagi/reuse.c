/* reuse.c - uses the scope of a finished request again for the next one.
 *
 * Building and freeing a scope costs as much as everything else that the bridge does for a small request.
 * Most applications only read it and let it go, so that it can serve again with other strings in it. That
 * must not be observable: a scope is kept only if the application has finished, nobody refers to the hash or
 * to anything in it, weakly or not, and its shape is as it was built. A scope in which an application has
 * stored, replaced, removed or blessed a value, or attached magic to one, is freed as usual. */
#include "pagi/pagi.h"

/* Strings with more bytes, and lists with more fields, are freed with their scope, so that one large request
 * does not occupy memory for ever. */
#define PAGI_KEEP_BYTES 1024
#define PAGI_KEEP_FIELDS 64

/* ---- Conditions for keeping a scope ------------------------------------------------------------ */

#define PAGI_UNUSUAL (SVf_READONLY | SVf_PROTECT | SVs_OBJECT | SVs_GMG | SVs_SMG | SVs_RMG)

static bool plain_scalar(const SV *sv, U32 references) {
    return SvREFCNT(sv) == references && SvTYPE(sv) < SVt_PVMG && !(SvFLAGS(sv) & (PAGI_UNUSUAL | SVf_ROK)) &&
           (SvTYPE(sv) < SVt_PV || SvLEN(sv) <= PAGI_KEEP_BYTES);
}

/* Whether a value is a strong reference to which so many `references` point. */
static bool plain_reference(const SV *sv, U32 references) {
    return SvREFCNT(sv) == references && SvROK(sv) && SvTYPE(sv) < SVt_PVMG &&
           !(SvFLAGS(sv) & PAGI_UNUSUAL) && !SvWEAKREF(sv);
}

/* Whether a value is this number, and was never used as anything else. */
static bool plain_number(const SV *sv, IV value) {
    return SvTYPE(sv) == SVt_IV && SvIOK(sv) && !(SvFLAGS(sv) & (PAGI_UNUSUAL | SVf_ROK)) &&
           SvIVX(sv) == value;
}

/* Whether a value is a copy that still shares the string of `original`, or undef where `original` is NULL. */
static bool plain_text(const SV *sv, const SV *original) {
    if (!original) return !SvOK(sv);
    return SvPOK(sv) && !SvUTF8(sv) && SvTYPE(sv) < SVt_PVMG && !(SvFLAGS(sv) & (PAGI_UNUSUAL | SVf_ROK)) &&
           SvPVX_const(sv) == SvPVX_const(original);
}

static bool plain_container(const SV *sv, svtype type) {
    return SvTYPE(sv) == type && SvREFCNT(sv) == 1 && !(SvFLAGS(sv) & PAGI_UNUSUAL) && !SvMAGIC(sv);
}

static AV *plain_list(const SV *reference, U32 references) {
    return plain_reference(reference, references) && plain_container(SvRV(reference), SVt_PVAV)
           ? (AV *)SvRV(reference)
           : NULL;
}

static bool weakly_referred(HV *hash) {
    return SvOOK(hash) && HvAUX(hash)->xhv_backreferences;
}

static HV *plain_hash(const SV *reference) {
    if (!plain_reference(reference, 2) || !plain_container(SvRV(reference), SVt_PVHV)) return NULL;
    HV *hash = (HV *)SvRV(reference);
    return weakly_referred(hash) ? NULL : hash;
}

/* A number that changes when a key, or the scalar under it, is another one; 0: a value has other references
 * than those of the hash and its slot. */
UV pagi_fingerprint(HV *hash) {
    UV sum = 1;
    HE **buckets = HvARRAY(hash);
    if (!buckets) return 0;
    for (STRLEN i = 0; i <= HvMAX(hash); i++) {
        for (const HE *entry = buckets[i]; entry; entry = HeNEXT(entry)) {
            if (SvREFCNT(HeVAL(entry)) != 2) return 0;
            sum += PTR2UV(HeKEY_hek(entry)) ^ (PTR2UV(HeVAL(entry)) << 1);
        }
    }
    return sum;
}

/* Remembers the shape of a scope that has just been built. */
void pagi_scope_seal(pagi_scope *scope) {
    scope->fingerprint = pagi_fingerprint(scope->hash);
}

static inline bool plain_pair(const AV *list) {
    SV **slots = AvARRAY(list);
    return AvFILLp(list) == 1 && slots[0] && slots[1] && plain_scalar(slots[0], 1) &&
           plain_scalar(slots[1], 1);
}

/* Whether an entry of a list is a plain field. Inline: called for each field of each request. */
static inline bool plain_field(const SV *entry) {
    if (!entry || SvREFCNT(entry) != 1 || SvFLAGS(entry) != (SVt_IV | SVf_ROK)) return false;
    const SV *list = SvRV(entry);
    return SvTYPE(list) == SVt_PVAV && SvREFCNT(list) == 1 && !(SvFLAGS(list) & PAGI_UNUSUAL) &&
           !SvMAGIC(list) && plain_pair((const AV *)list);
}

static bool plain_headers(const SV *reference) {
    const AV *list = plain_list(reference, 2);
    if (!list || AvFILLp(list) >= PAGI_KEEP_FIELDS) return false;
    SV **entry = AvARRAY(list), **end = entry + AvFILLp(list) + 1;
    for (; entry < end; entry++)
        if (!plain_field(*entry)) return false;
    return true;
}

static bool plain_address(const SV *reference) {
    const AV *list = plain_list(reference, 2);
    return list && plain_pair(list);
}

/* Whether the hash `extensions` below `pagi` is as it was made: it has the pool alone. */
static bool plain_pool(const pagi_app *app, const SV *reference) {
    if (!plain_reference(reference, 1) || !plain_container(SvRV(reference), SVt_PVHV)) return false;
    HV *hash = (HV *)SvRV(reference);
    if (weakly_referred(hash) || HvTOTALKEYS(hash) != 1) return false;
    HE **bucket = HvARRAY(hash);
    while (!*bucket) bucket++;
    const SV *pool = HeVAL(*bucket);
    return HeKEY(*bucket) == SvPVX_const(PAGI_KEY(app->cx, WORKER_POOL)) && plain_reference(pool, 1) &&
           SvRV(pool) == SvRV(app->pool);
}

/* Whether `pagi` in the scope has the two versions alone, as the server has made them. */
static bool plain_versions(const pagi_context *cx, const SV *reference) {
    HV *hash = plain_hash(reference);
    if (!hash || HvTOTALKEYS(hash) != 2) return false;
    const char *version = SvPVX_const(PAGI_KEY(cx, PAGI_VERSION));
    HE **buckets = HvARRAY(hash);
    for (STRLEN i = 0; i <= HvMAX(hash); i++) {
        for (const HE *entry = buckets[i]; entry; entry = HeNEXT(entry)) {
            const char *key = HeKEY(entry);
            if (key != SvPVX_const(PAGI_KEY(cx, VERSION)) && key != SvPVX_const(PAGI_KEY(cx, SPEC_VERSION)))
                return false;
            if (!plain_scalar(HeVAL(entry), 1) || !SvPOK(HeVAL(entry)) ||
                SvPVX_const(HeVAL(entry)) != version)
                return false;
        }
    }
    return true;
}

/* Whether the state of the pool's handlers is as it was made. */
static bool plain_worker_state(pTHX_ const pagi_app *app, HV *hash) {
    const SV *state = px_fetch(aTHX_ hash, PAGI_KEY(app->cx, WORKER_STATE));
    return state && plain_reference(state, 1) && SvROK(app->worker_state) &&
           SvRV(state) == SvRV(app->worker_state);
}

/* Like plain_versions, for an application with a worker pool. Looks the versions up by key, which servers
 * without a pool do not pay for. */
static bool plain_with_pool(pTHX_ const pagi_app *app, const SV *reference) {
    const pagi_context *cx = app->cx;
    HV *hash = plain_hash(reference);
    if (!hash || HvTOTALKEYS(hash) != (app->worker_state ? 4 : 3)) return false;
    if (app->worker_state && !plain_worker_state(aTHX_ app, hash)) return false;
    const SV *extensions = px_fetch(aTHX_ hash, PAGI_KEY(cx, EXTENSIONS));
    if (!extensions || !plain_pool(app, extensions)) return false;
    SV *const keys[] = {PAGI_KEY(cx, VERSION), PAGI_KEY(cx, SPEC_VERSION)};
    for (size_t i = 0; i < C_ARRAY_LENGTH(keys); i++) {
        const SV *value = px_fetch(aTHX_ hash, keys[i]);
        if (!value || !plain_scalar(value, 1) || !plain_text(value, PAGI_KEY(cx, PAGI_VERSION))) return false;
    }
    return true;
}

/* Whether hashes that are filled for each request can be kept: if the references to them are as they were. */
static bool emptied(const pagi_app *app, const pagi_scope *scope) {
    SV *const *slots = scope->slots;
    const HV *extensions = plain_hash(slots[PAGI_SLOT_EXTENSIONS]);
    if (!extensions || (!app->extensions && !scope->secure && HvTOTALKEYS(extensions) != 0)) return false;
    return !slots[PAGI_SLOT_STATE] || plain_hash(slots[PAGI_SLOT_STATE]);
}

/* Whether the tls extension of a finished request is as it was made, so that the next request can have it. */
bool pagi_tls_untouched(pTHX_ const pagi_exchange *exchange) {
    const pagi_tls_kept *kept = &exchange->scope->tls;
    HV *extensions = (HV *)SvRV(exchange->scope->slots[PAGI_SLOT_EXTENSIONS]);
    const SV *reference = px_fetch(aTHX_ extensions, PAGI_KEY(exchange->app->cx, TLS));
    SV *const *values = kept->values;
    /* Two references are expected: ours and the extensions'. */
    if (!kept->serial || !reference || !plain_reference(reference, 1) || SvRV(reference) != (SV *)kept->hash)
        return false;
    if (SvREFCNT(kept->hash) != 2 || (SvFLAGS(kept->hash) & PAGI_UNUSUAL) || weakly_referred(kept->hash))
        return false;
    if (pagi_fingerprint(kept->hash) != kept->fingerprint) return false;
    const AV *chain = plain_list(values[PAGI_TLS_CLIENT_CERT_CHAIN], 2);
    if (!chain || AvFILLp(chain) >= 0 || SvOK(values[PAGI_TLS_CLIENT_CERT_NAME]) ||
        SvOK(values[PAGI_TLS_CLIENT_CERT_ERROR]))
        return false;
    for (int i = 0; i < PAGI_TLS_COMMON_MAX; i++) {
        const pagi_tls_common *common = &exchange->app->tls[i];
        if (common->serial != kept->serial) continue;
        return plain_text(values[PAGI_TLS_SERVER_CERT], common->server_cert) &&
               plain_number(values[PAGI_TLS_VERSION], common->version) &&
               plain_number(values[PAGI_TLS_CIPHER_SUITE], common->cipher_suite);
    }
    return false;
}

static bool keepable(pTHX_ const pagi_exchange *exchange) {
    const pagi_scope *scope = exchange->scope;
    SV *const *slots = scope->slots;
    HV *hash = scope->hash;
    if (!plain_container((SV *)hash, SVt_PVHV) || weakly_referred(hash) ||
        pagi_fingerprint(hash) != scope->fingerprint)
        return false;
    for (int i = 0; i < PAGI_SLOT_STRINGS; i++)
        if (!plain_scalar(slots[i], 2)) return false;
    const SV *pagi = slots[PAGI_SLOT_PAGI];
    /* The check with a pool comes second, so that servers without one do not pay for it. */
    return (plain_versions(exchange->app->cx, pagi) ||
            (exchange->app->pool && plain_with_pool(aTHX_ exchange->app, pagi))) &&
           plain_headers(slots[PAGI_SLOT_HEADERS]) &&
           (!slots[PAGI_SLOT_CLIENT] || plain_address(slots[PAGI_SLOT_CLIENT])) &&
           plain_address(slots[PAGI_SLOT_SERVER]) &&
           emptied(exchange->app, scope) && plain_reference(slots[PAGI_SLOT_CONNECTION], 2) &&
           SvRV(slots[PAGI_SLOT_CONNECTION]) == exchange->connection &&
           plain_reference(slots[PAGI_SLOT_TRANSPORT], 2) &&
           SvRV(slots[PAGI_SLOT_TRANSPORT]) == exchange->transport;
}

/* Keeps the scope of an application that has returned, if it cannot notice that; else drops it. */
void pagi_scope_settle(pTHX_ pagi_exchange *exchange, bool finished) {
    pagi_scope *scope = exchange->scope;
    if (!scope) return;
    if (finished && exchange->kind->keeps_scope && keepable(aTHX_ exchange)) {
        SV **slots = scope->slots;
        if (SvOOK(scope->hash)) hv_iterinit(scope->hash);
        /* Values that the application put there must not live longer than its request. */
        if (slots[PAGI_SLOT_STATE]) hv_clear((HV *)SvRV(slots[PAGI_SLOT_STATE]));
        if (scope->secure && !pagi_tls_untouched(aTHX_ exchange)) pagi_tls_drop(aTHX_ & scope->tls);
        if (exchange->app->extensions || scope->secure) hv_clear((HV *)SvRV(slots[PAGI_SLOT_EXTENSIONS]));
        scope->secure = false;
        return;
    }
    pagi_scope_drop(aTHX_ exchange);
}

/* Gives up the bridge's references to a scope; an application that has the scope keeps it. */
void pagi_scope_drop(pTHX_ pagi_exchange *exchange) {
    pagi_scope *scope = exchange->scope;
    if (!scope) return;
    exchange->scope = NULL;
    pagi_tls_drop(aTHX_ & scope->tls);
    for (int i = 0; i < PAGI_SLOT_COUNT; i++) SvREFCNT_dec(scope->slots[i]);
    SvREFCNT_dec_NN((SV *)scope->hash);
    Safefree(scope);
}

/* ---- New strings for the next request ---------------------------------------------------------- */

static inline void set_if_other(pTHX_ SV *sv, const char *bytes, STRLEN len) {
    if (SvPOK(sv) && !SvUTF8(sv) && SvCUR(sv) == len && memcmp(SvPVX_const(sv), bytes, len) == 0) return;
    pagi_scope_set_bytes(aTHX_ sv, bytes, len);
}

static void refresh_address(pTHX_ SV *reference, const char *host, uint16_t port) {
    SV **slots = AvARRAY((AV *)SvRV(reference));
    set_if_other(aTHX_ slots[0], host, strlen(host));
    sv_setiv(slots[1], port);
}

/* Sets the pairs of the list anew. False: the list has to be built anew, as its length differs or fields are
 * merged. */
static bool refresh_headers(pTHX_ pagi_context *cx, SV *reference, const peregrine_request *request) {
    AV *list = (AV *)SvRV(reference);
    const SSize_t count = (SSize_t)request->field_count;
    bool cookie_seen = false;
    if (AvFILLp(list) + 1 != count) return false;
    for (SSize_t i = 0; i < count; i++) {
        const peregrine_field_span *field = &request->fields[i];
        /* id 0 never has a name */
        SV *known = field->id < PAGI_HEADER_IDS ? cx->header_names[field->id] : NULL;
        if (!known) known = pagi_scope_known_name(aTHX_ cx, request->text, field);
        SV **slots = AvARRAY((AV *)SvRV(AvARRAY(list)[i]));
        if (!known) return false;
        if (SvCUR(known) == 6 && memcmp(SvPVX_const(known), "cookie", 6) == 0) {
            if (cookie_seen) return false;
            cookie_seen = true;
        }
        if (!SvPOK(slots[0]) || SvPVX_const(slots[0]) != SvPVX_const(known))
            pagi_scope_set_constant(aTHX_ slots[0], known);
        set_if_other(aTHX_ slots[1], request->text + field->value_at, field->value_len);
    }
    return true;
}

/* Fills the kept scope for another request, except the state. False: the scope has to be built anew. */
bool pagi_scope_refresh(pTHX_ pagi_exchange *exchange, const peregrine_request *request) {
    const pagi_app *app = exchange->app;
    pagi_context *cx = app->cx;
    SV **slots = exchange->scope->slots;
    const bool has_client = request->peer[0] != '\0';
    if (has_client != (slots[PAGI_SLOT_CLIENT] != NULL) || request->local_port == 0) return false;
    if ((app->state != NULL) != (slots[PAGI_SLOT_STATE] != NULL)) return false;
    if (app->extensions || request->tls)
        pagi_scope_refer_to(aTHX_ slots[PAGI_SLOT_EXTENSIONS],
                            (SV *)pagi_scope_extensions(aTHX_ exchange, request));
    if (!refresh_headers(aTHX_ cx, slots[PAGI_SLOT_HEADERS], request))
        pagi_scope_refer_to(aTHX_ slots[PAGI_SLOT_HEADERS],
                            (SV *)pagi_scope_headers(aTHX_ cx, request, false));
    if (has_client) refresh_address(aTHX_ slots[PAGI_SLOT_CLIENT], request->peer, request->peer_port);
    refresh_address(aTHX_ slots[PAGI_SLOT_SERVER], request->local, request->local_port);
    pagi_scope_fill(aTHX_ exchange, request);
    return true;
}
