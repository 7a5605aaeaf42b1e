/* tls.c - certificates and policy from Perl to the engine, and what a scope shows of a TLS connection (PAGI::Spec::Tls). */
#include "peregrine_xs.h"

/* ---- Configuration ------------------------------------------------------------------------------------------------------------------ */

#define PX_CERTIFICATES_MAX 10000

static SV *entry(pTHX_ HV *hash, const char *name) {
    SV **value = hv_fetch(hash, name, (I32)strlen(name), 0);
    return value && SvOK(*value) ? *value : NULL;
}

/* A string without NUL, or NULL when it is not given; lives as long as the hash. */
static const char *text(pTHX_ HV *hash, const char *name) {
    SV *value = entry(aTHX_ hash, name);
    if (!value) return NULL;
    STRLEN len;
    const char *bytes = SvPV(value, len);
    if (memchr(bytes, '\0', len)) croak("SSL %s must not hold a NUL byte", name);
    return bytes;
}

static uint32_t number(pTHX_ HV *hash, const char *name) {
    SV *value = entry(aTHX_ hash, name);
    return value ? (uint32_t)SvUV(value) : 0;
}

static void certificate(pTHX_ SV *from, peregrine_certificate *to) {
    if (!SvROK(from) || SvTYPE(SvRV(from)) != SVt_PVHV) croak("SSL certificates must be hash references");
    HV *hash = (HV *)SvRV(from);
    to->cert_file = text(aTHX_ hash, "cert_file");
    to->key_file = text(aTHX_ hash, "key_file");
    to->chain_file = text(aTHX_ hash, "chain_file");
    to->key_password = text(aTHX_ hash, "key_password");
}

/* Reads the hash into `config`; all of it lives until the caller's FREETMPS. */
static void read_config(pTHX_ HV *hash, peregrine_tls_config *config) {
    SV *list = entry(aTHX_ hash, "certificates");
    if (!list || !SvROK(list) || SvTYPE(SvRV(list)) != SVt_PVAV) croak("SSL certificates must be an array reference");
    AV *from = (AV *)SvRV(list);
    const SSize_t count = av_top_index(from) + 1;
    if (count > PX_CERTIFICATES_MAX) croak("SSL certificates: at most %d", PX_CERTIFICATES_MAX);
    SV *space = sv_2mortal(newSV(((STRLEN)count + 1) * sizeof(peregrine_certificate)));
    peregrine_certificate *certificates = (peregrine_certificate *)(void *)SvPVX(space);
    for (SSize_t i = 0; i < count; i++) {
        SV **item = av_fetch(from, i, 0);
        certificate(aTHX_ item ? *item : &PL_sv_undef, &certificates[i]);
    }
    Zero(config, 1, peregrine_tls_config);
    config->size = sizeof(*config);
    config->certificates = certificates;
    config->certificate_count = (uint32_t)count;
    config->ca_file = text(aTHX_ hash, "ca_file");
    config->cipher_list = text(aTHX_ hash, "cipher_list");
    config->cipher_suites = text(aTHX_ hash, "cipher_suites");
    config->verify_client = number(aTHX_ hash, "verify_client");
    config->min_version = number(aTHX_ hash, "min_version");
    config->session_timeout_s = number(aTHX_ hash, "session_timeout");
    SV *keys = entry(aTHX_ hash, "ticket_keys");
    if (keys) {
        STRLEN len;
        config->ticket_keys = (const uint8_t *)SvPVbyte(keys, len);
        if (len != PEREGRINE_TICKET_KEYS_BYTES) croak("SSL ticket_keys must be %d bytes, not %zu", PEREGRINE_TICKET_KEYS_BYTES, (size_t)len);
    }
}

#define PX_TLS_ERROR_BYTES 1100

/* Croaks with the file or value that is wrong. */
peregrine_tls *px_tls_new(pTHX_ HV *hash) {
    peregrine_tls_config config;
    char error[PX_TLS_ERROR_BYTES] = "";
    read_config(aTHX_ hash, &config);
    peregrine_tls *tls = peregrine_tls_new(&config, error, sizeof(error));
    if (!tls) croak("%s\n", error);
    return tls;
}

/* Loads other files, or with NULL the same ones again. Croaks when they cannot be used; nothing has changed then. */
void px_tls_reload(pTHX_ peregrine_tls *tls, HV *hash) {
    peregrine_tls_config config;
    char error[PX_TLS_ERROR_BYTES] = "";
    if (hash) read_config(aTHX_ hash, &config);
    if (peregrine_tls_reload(tls, hash ? &config : NULL, error, sizeof(error)) < 0) croak("%s\n", error);
}

/* ---- Scope ---------------------------------------------------------------------------------------------------------------------------- */

static SV *value_of(pTHX_ peregrine_text value) {
    return value.bytes ? newSVpvn(value.bytes, value.len) : newSV(0);
}

static bool same_text(const SV *sv, peregrine_text value) {
    if (!value.bytes) return !SvOK(sv);
    return SvPOK(sv) && SvCUR(sv) == value.len && memcmp(SvPVX_const(sv), value.bytes, value.len) == 0;
}

/* What most connections of a server have in common is made once and copied: copies share the certificate's text. */
static HV *common_fields(pTHX_ px_worker *worker, const peregrine_tls_info *info) {
    px_context *cx = worker->cx;
    px_tls_fields *kept = &worker->tls;
    if (!kept->fields || kept->version != info->version || kept->cipher_suite != info->cipher_suite ||
        !same_text(kept->server_cert, info->server_cert)) {
        SvREFCNT_dec((SV *)kept->fields);
        kept->fields = newHV();
        kept->version = info->version;
        kept->cipher_suite = info->cipher_suite;
        kept->server_cert = value_of(aTHX_ info->server_cert);
        px_store(aTHX_ kept->fields, PX_KEY(cx, SERVER_CERT), kept->server_cert);
        px_store(aTHX_ kept->fields, PX_KEY(cx, CLIENT_CERT_NAME), newSV(0));
        px_store(aTHX_ kept->fields, PX_KEY(cx, CLIENT_CERT_ERROR), newSV(0));
        px_store(aTHX_ kept->fields, PX_KEY(cx, TLS_VERSION), info->version ? newSVuv(info->version) : newSV(0));
        px_store(aTHX_ kept->fields, PX_KEY(cx, CIPHER_SUITE), info->version ? newSVuv(info->cipher_suite) : newSV(0));
    }
    return newHVhv(kept->fields);
}

/* The value of `tls` among the extensions of a request that came over TLS. */
SV *px_tls_extension(pTHX_ const px_exchange *exchange) {
    px_worker *worker = exchange->worker;
    px_context *cx = worker->cx;
    peregrine_tls_info info;
    Zero(&info, 1, peregrine_tls_info);
    info.size = sizeof(info);
    /* The peer may be gone already, then nothing is known any more: zeros, which become undef. */
    (void)peregrine_tls_info_of(worker->engine, exchange->ticket, &info);
    HV *fields = common_fields(aTHX_ worker, &info);
    AV *chain = newAV();
    for (size_t i = 0; i < info.client_chain_len; i++) av_push(chain, value_of(aTHX_ info.client_chain[i]));
    px_store(aTHX_ fields, PX_KEY(cx, CLIENT_CERT_CHAIN), newRV_noinc((SV *)chain));
    if (info.client_chain_len) {
        px_store(aTHX_ fields, PX_KEY(cx, CLIENT_CERT_NAME), value_of(aTHX_ info.client_name));
        px_store(aTHX_ fields, PX_KEY(cx, CLIENT_CERT_ERROR), value_of(aTHX_ info.client_error));
    }
    return newRV_noinc((SV *)fields);
}
