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
    to->size = sizeof(*to);
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

/* A sentence, which is empty if all is well; undef if there is no such certificate. */
SV *px_tls_concern(pTHX_ peregrine_tls *tls, uint32_t number, int64_t now_s) {
    char message[PX_TLS_ERROR_BYTES] = "";
    const int code = peregrine_tls_concern(tls, number, now_s, message, sizeof(message));
    return code < 0 ? newSV(0) : newSVpv(message, 0);
}

/* ---- Scope ---------------------------------------------------------------------------------------------------------------------------- */

static SV *value_of(pTHX_ peregrine_text value) {
    return value.bytes ? newSVpvn(value.bytes, value.len) : newSV(0);
}

static SV *number_of(pTHX_ uint16_t value, bool known) {
    return known ? newSViv(value) : newSV(0);
}

/* Where the signature's last bytes are, seen from the end of the text: in front of the line that ends it. */
#define PX_SIGNATURE_AT 48
#define PX_SIGNATURE_BYTES 16

/* Whether it is the certificate that was kept: the engine's text of the same place, length and signature. (After a reload another certificate
 * may lie where the old one was.) */
static bool same_certificate(const px_tls_common *common, peregrine_text cert) {
    if (common->source != cert.bytes || !cert.bytes) return common->source == cert.bytes;
    if (SvCUR(common->server_cert) != cert.len || cert.len < PX_SIGNATURE_AT) return false;
    return memcmp(SvEND(common->server_cert) - PX_SIGNATURE_AT, cert.bytes + cert.len - PX_SIGNATURE_AT, PX_SIGNATURE_BYTES) == 0;
}

/* What this connection has in common with others; takes the place of the oldest if it is the first of its kind. */
static const px_tls_common *common_of(pTHX_ px_worker *worker, const peregrine_tls_info *info) {
    px_tls_common *oldest = &worker->tls[0];
    for (px_tls_common *common = worker->tls; common < worker->tls + PX_TLS_COMMON_MAX; common++) {
        if (common->serial && common->version == info->version && common->cipher_suite == info->cipher_suite &&
            same_certificate(common, info->server_cert))
            return common;
        if (common->serial < oldest->serial) oldest = common;
    }
    SvREFCNT_dec(oldest->server_cert);
    oldest->serial = ++worker->tls_serial;
    oldest->version = info->version;
    oldest->cipher_suite = info->cipher_suite;
    oldest->source = info->server_cert.bytes;
    oldest->server_cert = info->server_cert.bytes ? newSVpvn_share(info->server_cert.bytes, (I32)info->server_cert.len, 0) : NULL;
    return oldest;
}

static void make(pTHX_ px_exchange *exchange, const peregrine_tls_info *info, const px_tls_common *common) {
    px_context *cx = exchange->worker->cx;
    px_tls_kept *kept = &exchange->scope.tls;
    const bool has_client = info->client_chain_len != 0;
    AV *chain = newAV();
    for (size_t i = 0; i < info->client_chain_len; i++) av_push(chain, value_of(aTHX_ info->client_chain[i]));
    SV *const keys[PX_TLS_FIELDS] = {PX_KEY(cx, SERVER_CERT),       PX_KEY(cx, CLIENT_CERT_CHAIN), PX_KEY(cx, CLIENT_CERT_NAME),
                                     PX_KEY(cx, CLIENT_CERT_ERROR), PX_KEY(cx, TLS_VERSION),       PX_KEY(cx, CIPHER_SUITE)};
    kept->values[PX_TLS_SERVER_CERT] = common->server_cert ? px_copy(aTHX_ common->server_cert) : newSV(0);
    kept->values[PX_TLS_CLIENT_CERT_CHAIN] = newRV_noinc((SV *)chain);
    kept->values[PX_TLS_CLIENT_CERT_NAME] = has_client ? value_of(aTHX_ info->client_name) : newSV(0);
    kept->values[PX_TLS_CLIENT_CERT_ERROR] = has_client ? value_of(aTHX_ info->client_error) : newSV(0);
    kept->values[PX_TLS_VERSION] = number_of(aTHX_ info->version, info->version != 0);
    kept->values[PX_TLS_CIPHER_SUITE] = number_of(aTHX_ info->cipher_suite, info->version != 0);
    kept->hash = newHV();
    for (int i = 0; i < PX_TLS_FIELDS; i++) px_store(aTHX_ kept->hash, keys[i], SvREFCNT_inc_simple_NN(kept->values[i]));
    kept->fingerprint = px_fingerprint(kept->hash);
    kept->serial = has_client ? 0 : common->serial;
}

/* Puts `tls` into the extensions of a request that came over TLS: the hash of the exchange's last request if that can be used again. */
void px_tls_extend(pTHX_ px_exchange *exchange, HV *extensions) {
    px_worker *worker = exchange->worker;
    px_tls_kept *kept = &exchange->scope.tls;
    peregrine_tls_info info;
    Zero(&info, 1, peregrine_tls_info);
    info.size = sizeof(info);
    /* The peer may be gone already, then nothing is known any more: zeros, which become undef. */
    (void)peregrine_tls_info_of(worker->engine, exchange->ticket, &info);
    const px_tls_common *common = common_of(aTHX_ worker, &info);
    if (!kept->hash || info.client_chain_len || kept->serial != common->serial) {
        px_tls_drop(aTHX_ kept);
        make(aTHX_ exchange, &info, common);
    }
    px_store(aTHX_ extensions, PX_KEY(worker->cx, TLS), newRV_inc((SV *)kept->hash));
}

/* Gives up our part of the hash; an application that has it keeps it. */
void px_tls_drop(pTHX_ px_tls_kept *kept) {
    if (!kept->hash) return;
    for (int i = 0; i < PX_TLS_FIELDS; i++) SvREFCNT_dec_NN(kept->values[i]);
    SvREFCNT_dec_NN((SV *)kept->hash);
    Zero(kept, 1, px_tls_kept);
}

/* The worker is on its way out. */
void px_tls_forget(pTHX_ px_worker *worker) {
    for (int i = 0; i < PX_TLS_COMMON_MAX; i++) SvREFCNT_dec(worker->tls[i].server_cert);
}
