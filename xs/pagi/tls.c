/* tls.c - the `tls` extension of a scope (PAGI::Spec::Tls). */
#include "pagi/pagi.h"

static SV *text_sv(pTHX_ peregrine_text value) {
    return value.bytes ? newSVpvn(value.bytes, value.len) : newSV(0);
}

static SV *number_or_undef(pTHX_ uint16_t value, bool known) {
    return known ? newSViv(value) : newSV(0);
}

static bool same_certificate(const pagi_tls_common *common, peregrine_text cert) {
    if (!common->server_cert || !cert.bytes) return !common->server_cert && !cert.bytes;
    return SvCUR(common->server_cert) == cert.len &&
           memcmp(SvPVX_const(common->server_cert), cert.bytes, cert.len) == 0;
}

/* The facts that this connection shares with others of its kind. A new kind replaces the oldest one. */
static const pagi_tls_common *common_of(pTHX_ pagi_app *app, const peregrine_tls_info *info) {
    pagi_tls_common *oldest = &app->tls[0];
    for (pagi_tls_common *common = app->tls; common < app->tls + PAGI_TLS_COMMON_MAX; common++) {
        if (common->serial && common->version == info->version &&
            common->cipher_suite == info->cipher_suite &&
            same_certificate(common, info->server_cert))
            return common;
        if (common->serial < oldest->serial) oldest = common;
    }
    SvREFCNT_dec(oldest->server_cert);
    oldest->serial = ++app->tls_serial;
    oldest->version = info->version;
    oldest->cipher_suite = info->cipher_suite;
    oldest->server_cert = info->server_cert.bytes
        ? newSVpvn_share(info->server_cert.bytes, (I32)info->server_cert.len, 0)
        : NULL;
    return oldest;
}

static void make(pTHX_ pagi_exchange *exchange, const peregrine_tls_info *info,
                 const pagi_tls_common *common) {
    pagi_context *cx = exchange->app->cx;
    pagi_tls_kept *kept = &exchange->scope->tls;
    const bool has_client = info->client_chain_len != 0;
    AV *chain = newAV();
    for (size_t i = 0; i < info->client_chain_len; i++) av_push(chain, text_sv(aTHX_ info->client_chain[i]));
    SV *const keys[PAGI_TLS_FIELDS] = {PAGI_KEY(cx, SERVER_CERT),       PAGI_KEY(cx, CLIENT_CERT_CHAIN),
                                       PAGI_KEY(cx, CLIENT_CERT_NAME),
                                     PAGI_KEY(cx, CLIENT_CERT_ERROR), PAGI_KEY(cx, TLS_VERSION),
                                               PAGI_KEY(cx, CIPHER_SUITE)};
    kept->values[PAGI_TLS_SERVER_CERT] = common->server_cert ? px_copy(aTHX_ common->server_cert) : newSV(0);
    kept->values[PAGI_TLS_CLIENT_CERT_CHAIN] = newRV_noinc((SV *)chain);
    kept->values[PAGI_TLS_CLIENT_CERT_NAME] = has_client ? text_sv(aTHX_ info->client_name) : newSV(0);
    kept->values[PAGI_TLS_CLIENT_CERT_ERROR] = has_client ? text_sv(aTHX_ info->client_error) : newSV(0);
    kept->values[PAGI_TLS_VERSION] = number_or_undef(aTHX_ info->version, info->version != 0);
    kept->values[PAGI_TLS_CIPHER_SUITE] = number_or_undef(aTHX_ info->cipher_suite, info->version != 0);
    kept->hash = newHV();
    for (int i = 0; i < PAGI_TLS_FIELDS; i++)
        px_store(aTHX_ kept->hash, keys[i], SvREFCNT_inc_simple_NN(kept->values[i]));
    kept->fingerprint = pagi_fingerprint(kept->hash);
    kept->serial = has_client ? 0 : common->serial;
}

/* Puts `tls` into the extensions of a request that came over TLS: a hash that the exchange's last request
 * had, if it can be used again. */
void pagi_tls_extend(pTHX_ pagi_exchange *exchange, HV *extensions) {
    px_worker *worker = exchange->base.worker;
    pagi_tls_kept *kept = &exchange->scope->tls;
    peregrine_tls_info info;
    Zero(&info, 1, peregrine_tls_info);
    info.size = sizeof(info);
    /* The peer may be gone already: then nothing is known any more, and the zeros become undef. */
    (void)peregrine_tls_info_of(worker->engine, exchange->base.ticket, &info);
    const pagi_tls_common *common = common_of(aTHX_ exchange->app, &info);
    if (!kept->hash || info.client_chain_len || kept->serial != common->serial) {
        pagi_tls_drop(aTHX_ kept);
        make(aTHX_ exchange, &info, common);
    }
    px_store(aTHX_ extensions, PAGI_KEY(exchange->app->cx, TLS), newRV_inc((SV *)kept->hash));
}

/* Gives up the bridge's references to the hash; an application that has the hash keeps it. */
void pagi_tls_drop(pTHX_ pagi_tls_kept *kept) {
    if (!kept->hash) return;
    for (int i = 0; i < PAGI_TLS_FIELDS; i++) SvREFCNT_dec_NN(kept->values[i]);
    SvREFCNT_dec_NN((SV *)kept->hash);
    Zero(kept, 1, pagi_tls_kept);
}

/* Frees the kept TLS facts of an application that is dropped. */
void pagi_tls_forget(pTHX_ pagi_app *app) {
    for (int i = 0; i < PAGI_TLS_COMMON_MAX; i++) SvREFCNT_dec(app->tls[i].server_cert);
}
