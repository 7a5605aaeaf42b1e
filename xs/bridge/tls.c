/* tls.c - certificates and policy from Perl to the engine. */
#include "bridge/bridge.h"

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
    if (!list || !SvROK(list) || SvTYPE(SvRV(list)) != SVt_PVAV)
        croak("SSL certificates must be an array reference");
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
    config->cert_dir = text(aTHX_ hash, "cert_dir");
    config->validation_dir = text(aTHX_ hash, "validation_dir");
    config->ca_file = text(aTHX_ hash, "ca_file");
    config->cipher_list = text(aTHX_ hash, "cipher_list");
    config->cipher_suites = text(aTHX_ hash, "cipher_suites");
    config->groups = text(aTHX_ hash, "groups");
    config->verify_client = number(aTHX_ hash, "verify_client");
    config->min_version = number(aTHX_ hash, "min_version");
    config->session_timeout_s = number(aTHX_ hash, "session_timeout");
    SV *keys = entry(aTHX_ hash, "ticket_keys");
    if (keys) {
        STRLEN len;
        config->ticket_keys = (const uint8_t *)SvPVbyte(keys, len);
        if (len != PEREGRINE_TICKET_KEYS_BYTES)
            croak("SSL ticket_keys must be %d bytes, not %zu", PEREGRINE_TICKET_KEYS_BYTES, (size_t)len);
    }
}

#define PX_TLS_ERROR_BYTES 1100

/* Makes a TLS context of the hash's files and values. Croaks with the file or value that is wrong. */
peregrine_tls *px_tls_new(pTHX_ HV *hash) {
    peregrine_tls_config config;
    char error[PX_TLS_ERROR_BYTES] = "";
    read_config(aTHX_ hash, &config);
    peregrine_tls *tls = peregrine_tls_new(&config, error, sizeof(error));
    if (!tls) croak("%s\n", error);
    return tls;
}

/* Loads the files of `hash`, or with NULL the files of the configuration in force again. Croaks when they
 * cannot be used; nothing has changed then. */
void px_tls_reload(pTHX_ peregrine_tls *tls, HV *hash) {
    peregrine_tls_config config;
    char error[PX_TLS_ERROR_BYTES] = "";
    if (hash) read_config(aTHX_ hash, &config);
    if (peregrine_tls_reload(tls, hash ? &config : NULL, error, sizeof(error)) < 0) croak("%s\n", error);
}

/* Takes over certificates: `given` are their names, each with the descriptor of its file behind it. Croaks
 * when one of them cannot be used; nothing has changed then. */
void px_tls_give(pTHX_ peregrine_tls *tls, SV **given, SSize_t count) {
    char error[PX_TLS_ERROR_BYTES] = "";
    if (count % 2) croak("TLS: a certificate has no descriptor");
    if (count / 2 > PX_CERTIFICATES_MAX) croak("TLS: at most %d certificates", PX_CERTIFICATES_MAX);
    count /= 2;
    SV *names_space = sv_2mortal(newSV(((STRLEN)count + 1) * sizeof(char *)));
    SV *fds_space = sv_2mortal(newSV(((STRLEN)count + 1) * sizeof(int)));
    const char **names = (const char **)(void *)SvPVX(names_space);
    int *fds = (int *)(void *)SvPVX(fds_space);
    for (SSize_t i = 0; i < count; i++) {
        names[i] = SvPV_nolen(given[2 * i]);
        fds[i] = (int)SvIV(given[2 * i + 1]);
    }
    if (peregrine_tls_give(tls, names, fds, (uint32_t)count, error, sizeof(error)) < 0) croak("%s\n", error);
}

/* A sentence about a fault of a certificate at the time `now_s`, in seconds of Unix time; empty if there is
 * no fault; undef if there is no certificate of this number. */
SV *px_tls_concern(pTHX_ peregrine_tls *tls, uint32_t number, int64_t now_s) {
    char message[PX_TLS_ERROR_BYTES] = "";
    const int code = peregrine_tls_concern(tls, number, now_s, message, sizeof(message));
    return code < 0 ? newSV(0) : newSVpv(message, 0);
}
