/* reuse.c - uses the scope of a finished request again for the next one.
 *
 * Building and freeing a scope costs as much as everything else that the bridge does for a small request. Most applications only read it
 * and let it go, so that it can serve again with other strings in it. That must not be observable: a scope is kept only if the
 * application has finished, nobody refers to the hash or to anything in it, weakly or not, and its shape is as it was built. What an
 * application stored in it, replaced, removed, blessed or attached magic to sends it to be freed as usual. */
#include "peregrine_xs.h"

/* Longer strings and lists are freed with their scope, so that one large request does not occupy memory for ever. */
#define PX_KEEP_BYTES 1024
#define PX_KEEP_FIELDS 64

/* ---- What may be kept ------------------------------------------------------------------------------------------------------------ */

#define PX_UNUSUAL (SVf_READONLY | SVf_PROTECT | SVs_OBJECT | SVs_GMG | SVs_SMG | SVs_RMG)

static bool plain_scalar(const SV *sv, U32 references) {
    return SvREFCNT(sv) == references && SvTYPE(sv) < SVt_PVMG && !(SvFLAGS(sv) & (PX_UNUSUAL | SVf_ROK)) &&
           (SvTYPE(sv) < SVt_PV || SvLEN(sv) <= PX_KEEP_BYTES);
}

/* A strong reference that nobody else has. */
static bool plain_reference(const SV *sv, U32 references) {
    return SvREFCNT(sv) == references && SvROK(sv) && SvTYPE(sv) < SVt_PVMG && !(SvFLAGS(sv) & PX_UNUSUAL) && !SvWEAKREF(sv);
}

/* A number that was never used as anything else. */
static bool plain_number(const SV *sv, IV value) {
    return SvTYPE(sv) == SVt_IV && SvIOK(sv) && !(SvFLAGS(sv) & (PX_UNUSUAL | SVf_ROK)) && SvIVX(sv) == value;
}

/* A copy that still shares its string, or nothing of nothing. */
static bool plain_text(const SV *sv, const SV *original) {
    if (!original) return !SvOK(sv);
    return SvPOK(sv) && !SvUTF8(sv) && SvTYPE(sv) < SVt_PVMG && !(SvFLAGS(sv) & (PX_UNUSUAL | SVf_ROK)) && SvPVX_const(sv) == SvPVX_const(original);
}

static bool plain_container(const SV *sv, svtype type) {
    return SvTYPE(sv) == type && SvREFCNT(sv) == 1 && !(SvFLAGS(sv) & PX_UNUSUAL) && !SvMAGIC(sv);
}

static AV *plain_list(const SV *reference, U32 references) {
    return plain_reference(reference, references) && plain_container(SvRV(reference), SVt_PVAV) ? (AV *)SvRV(reference) : NULL;
}

static bool weakly_referred(HV *hash) {
    return SvOOK(hash) && HvAUX(hash)->xhv_backreferences;
}

static HV *plain_hash(const SV *reference) {
    if (!plain_reference(reference, 2) || !plain_container(SvRV(reference), SVt_PVHV)) return NULL;
    HV *hash = (HV *)SvRV(reference);
    return weakly_referred(hash) ? NULL : hash;
}

/* A number that changes when a key or the scalar under it does; 0 when a value is referred to by others than the hash and its slot. */
UV px_fingerprint(HV *hash) {
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
void px_scope_seal(px_scope *scope) {
    scope->fingerprint = px_fingerprint(scope->hash);
}

static bool plain_pair(const AV *list) {
    SV **slots = AvARRAY(list);
    return AvFILLp(list) == 1 && slots[0] && slots[1] && plain_scalar(slots[0], 1) && plain_scalar(slots[1], 1);
}

static bool plain_headers(const SV *reference) {
    const AV *list = plain_list(reference, 2);
    if (!list || AvFILLp(list) >= PX_KEEP_FIELDS) return false;
    for (SSize_t i = 0; i <= AvFILLp(list); i++) {
        const SV *entry = AvARRAY(list)[i];
        const AV *field = entry ? plain_list(entry, 1) : NULL;
        if (!field || !plain_pair(field)) return false;
    }
    return true;
}

static bool plain_address(const SV *reference) {
    const AV *list = plain_list(reference, 2);
    return list && plain_pair(list);
}

/* The two versions, untouched. */
static bool plain_versions(const px_context *cx, const SV *reference) {
    HV *hash = plain_hash(reference);
    if (!hash || HvTOTALKEYS(hash) != 2) return false;
    const char *version = SvPVX_const(PX_KEY(cx, PAGI_VERSION));
    HE **buckets = HvARRAY(hash);
    for (STRLEN i = 0; i <= HvMAX(hash); i++) {
        for (const HE *entry = buckets[i]; entry; entry = HeNEXT(entry)) {
            const char *key = HeKEY(entry);
            if (key != SvPVX_const(PX_KEY(cx, VERSION)) && key != SvPVX_const(PX_KEY(cx, SPEC_VERSION))) return false;
            if (!plain_scalar(HeVAL(entry), 1) || !SvPOK(HeVAL(entry)) || SvPVX_const(HeVAL(entry)) != version) return false;
        }
    }
    return true;
}

/* Hashes that are copied anew for each request: only the reference itself has to be as it was. */
static bool emptied(const px_worker *worker, const px_scope *scope) {
    SV *const *slots = scope->slots;
    const HV *extensions = plain_hash(slots[PX_SLOT_EXTENSIONS]);
    if (!extensions || (!worker->extensions && !scope->secure && HvTOTALKEYS(extensions) != 0)) return false;
    return !slots[PX_SLOT_STATE] || plain_hash(slots[PX_SLOT_STATE]);
}

/* Whether the tls extension of a finished request is as it was made, so that the next one may be shown the same hash. */
bool px_tls_untouched(pTHX_ const px_exchange *exchange) {
    const px_tls_kept *kept = &exchange->scope.tls;
    HV *extensions = (HV *)SvRV(exchange->scope.slots[PX_SLOT_EXTENSIONS]);
    const SV *reference = px_fetch(aTHX_ extensions, PX_KEY(exchange->worker->cx, TLS));
    SV *const *values = kept->values;
    /* One reference is ours, one the extensions'. */
    if (!kept->serial || !reference || !plain_reference(reference, 1) || SvRV(reference) != (SV *)kept->hash) return false;
    if (SvREFCNT(kept->hash) != 2 || (SvFLAGS(kept->hash) & PX_UNUSUAL) || weakly_referred(kept->hash)) return false;
    if (px_fingerprint(kept->hash) != kept->fingerprint) return false;
    const AV *chain = plain_list(values[PX_TLS_CLIENT_CERT_CHAIN], 2);
    if (!chain || AvFILLp(chain) >= 0 || SvOK(values[PX_TLS_CLIENT_CERT_NAME]) || SvOK(values[PX_TLS_CLIENT_CERT_ERROR])) return false;
    for (int i = 0; i < PX_TLS_COMMON_MAX; i++) {
        const px_tls_common *common = &exchange->worker->tls[i];
        if (common->serial != kept->serial) continue;
        return plain_text(values[PX_TLS_SERVER_CERT], common->server_cert) && plain_number(values[PX_TLS_VERSION], common->version) &&
               plain_number(values[PX_TLS_CIPHER_SUITE], common->cipher_suite);
    }
    return false;
}

static bool keepable(const px_exchange *exchange) {
    const px_scope *scope = &exchange->scope;
    SV *const *slots = scope->slots;
    HV *hash = scope->hash;
    if (!plain_container((SV *)hash, SVt_PVHV) || weakly_referred(hash) || px_fingerprint(hash) != scope->fingerprint) return false;
    for (int i = 0; i < PX_SLOT_STRINGS; i++)
        if (!plain_scalar(slots[i], 2)) return false;
    return plain_versions(exchange->worker->cx, slots[PX_SLOT_PAGI]) && plain_headers(slots[PX_SLOT_HEADERS]) &&
           (!slots[PX_SLOT_CLIENT] || plain_address(slots[PX_SLOT_CLIENT])) && plain_address(slots[PX_SLOT_SERVER]) &&
           emptied(exchange->worker, scope) && plain_reference(slots[PX_SLOT_CONNECTION], 2) &&
           SvRV(slots[PX_SLOT_CONNECTION]) == exchange->connection && plain_reference(slots[PX_SLOT_TRANSPORT], 2) &&
           SvRV(slots[PX_SLOT_TRANSPORT]) == exchange->transport;
}

/* The application has returned: keeps its scope if that cannot be noticed, lets it go otherwise. */
void px_scope_settle(pTHX_ px_exchange *exchange, bool finished) {
    px_scope *scope = &exchange->scope;
    if (!scope->hash) return;
    if (finished && exchange->kind->keeps_scope && keepable(exchange)) {
        SV **slots = scope->slots;
        if (SvOOK(scope->hash)) hv_iterinit(scope->hash);
        /* What the application put there must not live longer than its request. */
        if (slots[PX_SLOT_STATE]) hv_clear((HV *)SvRV(slots[PX_SLOT_STATE]));
        if (scope->secure && !px_tls_untouched(aTHX_ exchange)) px_tls_drop(aTHX_ & scope->tls);
        if (exchange->worker->extensions || scope->secure) hv_clear((HV *)SvRV(slots[PX_SLOT_EXTENSIONS]));
        scope->secure = false;
        return;
    }
    px_scope_drop(aTHX_ scope);
}

/* Gives up our part of a scope; an application that has it keeps it. */
void px_scope_drop(pTHX_ px_scope *scope) {
    HV *hash = scope->hash;
    px_tls_drop(aTHX_ & scope->tls);
    if (!hash) return;
    scope->hash = NULL;
    for (int i = 0; i < PX_SLOT_COUNT; i++) {
        SV *value = scope->slots[i];
        scope->slots[i] = NULL;
        SvREFCNT_dec(value);
    }
    SvREFCNT_dec_NN((SV *)hash);
}

/* ---- Other strings for the next request ------------------------------------------------------------------------------------------ */

static void set_if_other(pTHX_ SV *sv, const char *bytes, STRLEN len) {
    if (SvPOK(sv) && !SvUTF8(sv) && SvCUR(sv) == len && memcmp(SvPVX_const(sv), bytes, len) == 0) return;
    px_scope_set_bytes(aTHX_ sv, bytes, len);
}

static void refresh_address(pTHX_ SV *reference, const char *host, uint16_t port) {
    SV **slots = AvARRAY((AV *)SvRV(reference));
    set_if_other(aTHX_ slots[0], host, strlen(host));
    sv_setiv(slots[1], port);
}

/* Reuses the pairs that are there. False when the fields need what only building anew does: merging. */
static bool refresh_headers(pTHX_ px_context *cx, SV *reference, const peregrine_request *request) {
    AV *list = (AV *)SvRV(reference);
    const SSize_t count = (SSize_t)request->field_count;
    bool cookie_seen = false;
    if (AvFILLp(list) + 1 != count) return false;
    for (SSize_t i = 0; i < count; i++) {
        const peregrine_field_span *field = &request->fields[i];
        SV *known = px_scope_known_name(aTHX_ cx, request->text, field);
        SV **slots = AvARRAY((AV *)SvRV(AvARRAY(list)[i]));
        if (!known) return false;
        if (SvCUR(known) == 6 && memcmp(SvPVX_const(known), "cookie", 6) == 0) {
            if (cookie_seen) return false;
            cookie_seen = true;
        }
        px_scope_set_constant(aTHX_ slots[0], known);
        set_if_other(aTHX_ slots[1], request->text + field->value_at, field->value_len);
    }
    return true;
}

/* Makes the kept scope that of another request, but for the state. False: it has to be built anew. */
bool px_scope_refresh(pTHX_ px_exchange *exchange, const peregrine_request *request) {
    const px_worker *worker = exchange->worker;
    px_context *cx = worker->cx;
    SV **slots = exchange->scope.slots;
    const bool has_client = request->peer[0] != '\0';
    if (has_client != (slots[PX_SLOT_CLIENT] != NULL) || request->local_port == 0) return false;
    if ((worker->state != NULL) != (slots[PX_SLOT_STATE] != NULL)) return false;
    if (worker->extensions || request->tls)
        px_scope_refer_to(aTHX_ slots[PX_SLOT_EXTENSIONS], (SV *)px_scope_extensions(aTHX_ exchange, request));
    if (!refresh_headers(aTHX_ cx, slots[PX_SLOT_HEADERS], request))
        px_scope_refer_to(aTHX_ slots[PX_SLOT_HEADERS], (SV *)px_scope_headers(aTHX_ cx, request, false));
    if (has_client) refresh_address(aTHX_ slots[PX_SLOT_CLIENT], request->peer, request->peer_port);
    refresh_address(aTHX_ slots[PX_SLOT_SERVER], request->local, request->local_port);
    px_scope_fill(aTHX_ exchange, request);
    return true;
}
