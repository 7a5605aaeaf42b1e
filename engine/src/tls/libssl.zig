//! OpenSSL (3.0 or newer), as far as this layer calls it: functions, opaque structs and constants under their
//! C names. Written by hand, because translating OpenSSL's headers takes minutes; script/openssl compares
//! with the headers of a version. Does not know: how they are used.

pub const ASN1_STRING = opaque {};
pub const BIO = opaque {};
pub const BIO_METHOD = opaque {};
pub const EVP_MD = opaque {};
pub const EVP_PKEY = opaque {};
pub const GENERAL_NAME = opaque {};
pub const GENERAL_NAMES = opaque {};
pub const OCSP_BASICRESP = opaque {};
pub const OCSP_CERTID = opaque {};
pub const OCSP_RESPONSE = opaque {};
pub const OCSP_SINGLERESP = opaque {};
pub const OPENSSL_STACK = opaque {};
pub const SSL = opaque {};
pub const SSL_CIPHER = opaque {};
pub const SSL_CTX = opaque {};
pub const SSL_METHOD = opaque {};
pub const SSL_SESSION = opaque {};
pub const X509 = opaque {};
pub const X509_NAME = opaque {};
pub const X509_NAME_ENTRY = opaque {};
pub const X509_STORE = opaque {};
pub const X509_STORE_CTX = opaque {};
pub const X509_VERIFY_PARAM = opaque {};
/// STACK_OF(X509), which the functions for OPENSSL_STACK take after a cast.
pub const X509_STACK = opaque {};

// ---- The library

pub const OPENSSL_VERSION = 0;

pub extern fn OpenSSL_version(what: c_int) [*:0]const u8;

// ---- Errors

/// The bit of error codes whose reason is an errno.
pub const ERR_SYSTEM_FLAG: c_ulong = 0x8000_0000;
pub const ERR_SYSTEM_MASK: c_ulong = 0x7fff_ffff;
pub const PEM_R_NO_START_LINE = 108;

pub extern fn ERR_clear_error() void;
pub extern fn ERR_peek_error() c_ulong;
pub extern fn ERR_peek_last_error() c_ulong;
pub extern fn ERR_reason_error_string(code: c_ulong) ?[*:0]const u8;

/// Does the work of `ERR_clear_error` at a fraction of its price where the queue is usually empty.
pub fn clearErrors() void {
    if (ERR_peek_error() != 0) ERR_clear_error();
}

/// The reason number of an error code.
pub fn ERR_GET_REASON(code: c_ulong) c_ulong {
    return if (code & ERR_SYSTEM_FLAG != 0) code & ERR_SYSTEM_MASK else code & 0x7f_ffff;
}

// ---- BIO

pub const BIO_TYPE_SOURCE_SINK = 0x400;
pub const BIO_FLAGS_READ = 1;
pub const BIO_FLAGS_RWS = 7;
pub const BIO_FLAGS_SHOULD_RETRY = 8;
pub const BIO_CTRL_INFO = 3;
pub const BIO_CTRL_FLUSH = 11;
pub const BIO_CTRL_GET_KTLS_SEND = 73;
// bio.h names these in a comment only: the calls behind them are OpenSSL's own.
pub const BIO_CTRL_SET_KTLS_SEND = 72;
pub const BIO_CTRL_SET_KTLS_SEND_CTRL_MSG = 74;
pub const BIO_CTRL_CLEAR_KTLS_CTRL_MSG = 75;

pub const BioRead = fn (bio: *BIO, buffer: [*]u8, len: c_int) callconv(.c) c_int;
pub const BioWrite = fn (bio: *BIO, bytes: [*]const u8, len: c_int) callconv(.c) c_int;
pub const BioControl = fn (
    bio: *BIO,
    command: c_int,
    number: c_long,
    pointer: ?*anyopaque,
) callconv(.c) c_long;

pub extern fn BIO_meth_new(type: c_int, name: [*:0]const u8) ?*BIO_METHOD;
pub extern fn BIO_meth_free(method: ?*BIO_METHOD) void;
pub extern fn BIO_meth_set_read(method: *BIO_METHOD, call: *const BioRead) c_int;
pub extern fn BIO_meth_set_write(method: *BIO_METHOD, call: *const BioWrite) c_int;
pub extern fn BIO_meth_set_ctrl(method: *BIO_METHOD, call: *const BioControl) c_int;
pub extern fn BIO_new(method: *const BIO_METHOD) ?*BIO;
pub extern fn BIO_new_file(path: [*:0]const u8, mode: [*:0]const u8) ?*BIO;
pub extern fn BIO_new_mem_buf(bytes: [*]const u8, len: c_int) ?*BIO;
pub extern fn BIO_s_mem() *const BIO_METHOD;
pub extern fn BIO_free(bio: ?*BIO) c_int;
pub extern fn BIO_set_init(bio: *BIO, init: c_int) void;
pub extern fn BIO_set_data(bio: *BIO, data: ?*anyopaque) void;
pub extern fn BIO_get_data(bio: *BIO) ?*anyopaque;
pub extern fn BIO_set_flags(bio: *BIO, flags: c_int) void;
pub extern fn BIO_clear_flags(bio: *BIO, flags: c_int) void;
pub extern fn BIO_test_flags(bio: *const BIO, flags: c_int) c_int;
pub extern fn BIO_ctrl(bio: *BIO, command: c_int, number: c_long, pointer: ?*anyopaque) c_long;
pub extern fn BIO_read(bio: *BIO, buffer: [*]u8, len: c_int) c_int;
pub extern fn BIO_write(bio: *BIO, bytes: [*]const u8, len: c_int) c_int;

// ---- Locks, stacks, keys

pub extern fn CRYPTO_THREAD_lock_new() ?*anyopaque;
pub extern fn CRYPTO_THREAD_lock_free(lock: ?*anyopaque) void;
pub extern fn CRYPTO_THREAD_read_lock(lock: *anyopaque) c_int;
pub extern fn CRYPTO_THREAD_write_lock(lock: *anyopaque) c_int;
pub extern fn CRYPTO_THREAD_unlock(lock: *anyopaque) c_int;

pub extern fn OPENSSL_sk_new_null() ?*OPENSSL_STACK;
pub extern fn OPENSSL_sk_free(stack: ?*OPENSSL_STACK) void;
pub extern fn OPENSSL_sk_num(stack: *const OPENSSL_STACK) c_int;
pub extern fn OPENSSL_sk_value(stack: *const OPENSSL_STACK, index: c_int) ?*anyopaque;
pub extern fn OPENSSL_sk_push(stack: *OPENSSL_STACK, item: *const anyopaque) c_int;
pub extern fn OPENSSL_sk_shift(stack: *OPENSSL_STACK) ?*anyopaque;

pub const EVP_MAX_MD_SIZE = 64;

pub extern fn EVP_PKEY_free(key: ?*EVP_PKEY) void;
pub extern fn EVP_PKEY_up_ref(key: *EVP_PKEY) c_int;
pub extern fn EVP_sha256() *const EVP_MD;
pub extern fn RAND_bytes(buffer: [*]u8, len: c_int) c_int;

// ---- Certificates

pub const NID_commonName = 13;
pub const NID_subject_alt_name = 85;
pub const GEN_DNS = 2;
pub const X509_V_OK = 0;
pub const X509_V_ERR_CERT_NOT_YET_VALID = 9;
pub const X509_V_ERR_CERT_HAS_EXPIRED = 10;
pub const X509_V_ERR_HOSTNAME_MISMATCH = 62;
pub const X509_V_ERR_IP_ADDRESS_MISMATCH = 64;
pub const XN_FLAG_RFC2253: c_ulong = 0x111_0317;

/// Fills the buffer with a password and returns its length, or -1.
pub const PasswordCallback = fn (
    buffer: [*]u8,
    buffer_len: c_int,
    writing: c_int,
    context: ?*anyopaque,
) callconv(.c) c_int;

pub extern fn PEM_read_bio_X509(
    bio: *BIO,
    into: ?*?*X509,
    password: ?*const PasswordCallback,
    context: ?*anyopaque,
) ?*X509;
pub extern fn PEM_read_bio_PrivateKey(
    bio: *BIO,
    into: ?*?*EVP_PKEY,
    password: ?*const PasswordCallback,
    context: ?*anyopaque,
) ?*EVP_PKEY;
pub extern fn PEM_write_bio_X509(bio: *BIO, certificate: *const X509) c_int;

pub extern fn X509_free(certificate: ?*X509) void;
pub extern fn X509_up_ref(certificate: *X509) c_int;
pub extern fn X509_chain_up_ref(chain: *X509_STACK) ?*X509_STACK;
pub extern fn X509_get0_serialNumber(certificate: *const X509) *const ASN1_STRING;
pub extern fn X509_get0_notAfter(certificate: *const X509) *const ASN1_STRING;
pub extern fn X509_get0_notBefore(certificate: *const X509) *const ASN1_STRING;
pub extern fn X509_check_private_key(certificate: *const X509, key: *const EVP_PKEY) c_int;
pub extern fn X509_digest(certificate: *const X509, kind: *const EVP_MD, out: [*]u8, out_len: *c_uint) c_int;
pub extern fn X509_get_ext_d2i(
    certificate: *const X509,
    nid: c_int,
    critical: ?*c_int,
    index: ?*c_int,
) ?*anyopaque;
pub extern fn X509_get_subject_name(certificate: *const X509) *X509_NAME;
pub extern fn X509_NAME_get_index_by_NID(name: *const X509_NAME, nid: c_int, after: c_int) c_int;
pub extern fn X509_NAME_get_entry(name: *const X509_NAME, index: c_int) *X509_NAME_ENTRY;
pub extern fn X509_NAME_ENTRY_get_data(entry: *const X509_NAME_ENTRY) ?*ASN1_STRING;
pub extern fn X509_NAME_print_ex(bio: *BIO, name: *const X509_NAME, indent: c_int, flags: c_ulong) c_int;
pub extern fn X509_verify_cert_error_string(code: c_long) [*:0]const u8;
pub extern fn X509_STORE_add_cert(store: *X509_STORE, certificate: *X509) c_int;
pub extern fn X509_VERIFY_PARAM_set1_host(
    param: *X509_VERIFY_PARAM,
    name: [*]const u8,
    len: usize,
) c_int;
pub extern fn X509_VERIFY_PARAM_set1_ip_asc(param: *X509_VERIFY_PARAM, address: [*:0]const u8) c_int;

pub extern fn GENERAL_NAMES_free(names: ?*GENERAL_NAMES) void;
pub extern fn GENERAL_NAME_get0_value(name: *const GENERAL_NAME, kind: *c_int) ?*anyopaque;
pub extern fn ASN1_STRING_free(string: *ASN1_STRING) void;
/// OpenSSL's type of a time is a string, too.
pub extern fn ASN1_TIME_set(into: ?*ASN1_STRING, seconds: c_long) ?*ASN1_STRING;
pub extern fn ASN1_TIME_diff(
    days: *c_int,
    seconds: *c_int,
    from: *const ASN1_STRING,
    to: *const ASN1_STRING,
) c_int;
pub extern fn ASN1_STRING_get0_data(string: *const ASN1_STRING) [*]const u8;
pub extern fn ASN1_STRING_length(string: *const ASN1_STRING) c_int;

// ---- OCSP

pub extern fn d2i_OCSP_RESPONSE(into: ?*?*OCSP_RESPONSE, from: *[*]const u8, len: c_long) ?*OCSP_RESPONSE;
pub extern fn OCSP_RESPONSE_free(response: ?*OCSP_RESPONSE) void;
pub extern fn OCSP_BASICRESP_free(basic: ?*OCSP_BASICRESP) void;
pub extern fn OCSP_response_status(response: *OCSP_RESPONSE) c_int;
pub extern fn OCSP_response_get1_basic(response: *OCSP_RESPONSE) ?*OCSP_BASICRESP;
pub extern fn OCSP_resp_count(basic: *OCSP_BASICRESP) c_int;
pub extern fn OCSP_resp_get0(basic: *OCSP_BASICRESP, index: c_int) ?*OCSP_SINGLERESP;
pub extern fn OCSP_SINGLERESP_get0_id(single: *const OCSP_SINGLERESP) ?*const OCSP_CERTID;
pub extern fn OCSP_id_get0_info(
    name_hash: ?*?*ASN1_STRING,
    digest: ?*?*anyopaque,
    key_hash: ?*?*ASN1_STRING,
    serial: ?*?*ASN1_STRING,
    id: *const OCSP_CERTID,
) c_int;
/// Returns the status of a certificate; 0: good.
pub extern fn OCSP_single_get0_status(
    single: *OCSP_SINGLERESP,
    reason: ?*c_int,
    revoked_at: ?*?*ASN1_STRING,
    this_update: ?*?*ASN1_STRING,
    next_update: ?*?*ASN1_STRING,
) c_int;
pub extern fn ASN1_INTEGER_cmp(a: *const ASN1_STRING, b: *const ASN1_STRING) c_int;

extern fn time(into: ?*c_long) c_long;

/// Seconds since 1970, by the clock that OpenSSL itself looks at.
pub fn wallSeconds() i64 {
    return time(null);
}

// ---- Contexts

pub const SSL_OP_ENABLE_KTLS: u64 = 1 << 3;
pub const SSL_OP_IGNORE_UNEXPECTED_EOF: u64 = 1 << 7;
pub const SSL_OP_NO_COMPRESSION: u64 = 1 << 17;
pub const SSL_OP_ALLOW_UNSAFE_LEGACY_RENEGOTIATION: u64 = 1 << 18;
pub const SSL_OP_PRIORITIZE_CHACHA: u64 = 1 << 21;
pub const SSL_OP_CIPHER_SERVER_PREFERENCE: u64 = 1 << 22;
pub const SSL_OP_NO_RENEGOTIATION: u64 = 1 << 30;

pub const SSL_MODE_ENABLE_PARTIAL_WRITE = 1;
pub const SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER = 2;
pub const SSL_MODE_RELEASE_BUFFERS = 16;
pub const SSL_SESS_CACHE_OFF = 0;
pub const SSL_VERIFY_PEER = 1;
pub const SSL_VERIFY_FAIL_IF_NO_PEER_CERT = 2;
pub const SSL_TLSEXT_ERR_OK = 0;
pub const SSL_TLSEXT_ERR_ALERT_FATAL = 2;
pub const SSL_TLSEXT_ERR_NOACK = 3;
pub const SSL_AD_INTERNAL_ERROR = 80;
pub const SSL_AD_NO_APPLICATION_PROTOCOL = 120;
pub const SSL_CLIENT_HELLO_SUCCESS = 1;
pub const SSL_CLIENT_HELLO_ERROR = 0;
pub const TLSEXT_TYPE_server_name = 0;
pub const TLSEXT_TYPE_application_layer_protocol_negotiation = 16;
pub const TLSEXT_NAMETYPE_host_name = 0;
pub const NID_kx_ecdhe = 1038;
pub const NID_kx_dhe = 1039;
pub const NID_kx_any = 1063;
pub const NID_auth_null = 1053;

pub const VerifyCallback = fn (verified: c_int, store: ?*X509_STORE_CTX) callconv(.c) c_int;
pub const ServerNameCallback = fn (ssl: *SSL, alert: *c_int, argument: ?*anyopaque) callconv(.c) c_int;
/// Called when a client asks for an OCSP response: SSL_TLSEXT_ERR_OK if it gets one.
pub const StatusCallback = fn (ssl: *SSL, argument: ?*anyopaque) callconv(.c) c_int;
pub const ClientHelloCallback = fn (ssl: *SSL, alert: *c_int, argument: ?*anyopaque) callconv(.c) c_int;

pub const AlpnCallback = fn (
    ssl: *SSL,
    chosen: *[*]const u8,
    chosen_len: *u8,
    offered: [*]const u8,
    offered_len: c_uint,
    argument: ?*anyopaque,
) callconv(.c) c_int;

pub extern fn TLS_server_method() *const SSL_METHOD;
pub extern fn TLS_client_method() *const SSL_METHOD;
pub extern fn SSL_CTX_new(method: *const SSL_METHOD) ?*SSL_CTX;
pub extern fn SSL_CTX_free(context: ?*SSL_CTX) void;
pub extern fn SSL_CTX_set_options(context: *SSL_CTX, options: u64) u64;
pub extern fn SSL_CTX_clear_options(context: *SSL_CTX, options: u64) u64;
pub extern fn SSL_CTX_set_security_level(context: *SSL_CTX, level: c_int) void;
pub extern fn SSL_CTX_set_cipher_list(context: *SSL_CTX, list: [*:0]const u8) c_int;
pub extern fn SSL_CTX_set_ciphersuites(context: *SSL_CTX, list: [*:0]const u8) c_int;
pub extern fn SSL_CTX_get_ciphers(context: *const SSL_CTX) ?*const OPENSSL_STACK;
pub extern fn SSL_CTX_set_timeout(context: *SSL_CTX, seconds: c_long) c_long;
pub extern fn SSL_CTX_set_session_id_context(context: *SSL_CTX, id: [*]const u8, len: c_uint) c_int;
pub extern fn SSL_CTX_set_verify(context: *SSL_CTX, mode: c_int, callback: ?*const VerifyCallback) void;
pub extern fn SSL_CTX_add_client_CA(context: *SSL_CTX, authority: *X509) c_int;
pub extern fn SSL_CTX_get_cert_store(context: *SSL_CTX) *X509_STORE;
pub extern fn SSL_CTX_set_default_verify_paths(context: *SSL_CTX) c_int;
pub extern fn X509_get_default_cert_file() [*:0]const u8;
pub extern fn X509_get_default_cert_file_env() [*:0]const u8;
pub extern fn X509_get_default_cert_dir() [*:0]const u8;
pub extern fn X509_get_default_cert_dir_env() [*:0]const u8;
pub extern fn SSL_CTX_use_cert_and_key(
    context: *SSL_CTX,
    leaf: *X509,
    key: *EVP_PKEY,
    chain: ?*X509_STACK,
    override: c_int,
) c_int;
pub extern fn SSL_CTX_set_client_hello_cb(
    context: *SSL_CTX,
    callback: *const ClientHelloCallback,
    argument: ?*anyopaque,
) void;
pub extern fn SSL_CTX_set_alpn_protos(context: *SSL_CTX, protocols: [*]const u8, len: c_uint) c_int;
pub extern fn SSL_CTX_set_alpn_select_cb(
    context: *SSL_CTX,
    callback: *const AlpnCallback,
    argument: ?*anyopaque,
) void;

pub extern fn SSL_CTX_ctrl(context: *SSL_CTX, command: c_int, number: c_long, pointer: ?*anyopaque) c_long;
pub extern fn SSL_CTX_callback_ctrl(
    context: *SSL_CTX,
    command: c_int,
    callback: *const fn () callconv(.c) void,
) c_long;

// The C headers have macros for the functions below.

pub const SSL_CTRL_MODE = 33;
pub const SSL_CTRL_SET_READ_AHEAD = 41;
pub const SSL_CTRL_SET_SESS_CACHE_MODE = 44;
pub const SSL_CTRL_SET_TLSEXT_SERVERNAME_CB = 53;
pub const SSL_CTRL_SET_TLSEXT_SERVERNAME_ARG = 54;
pub const SSL_CTRL_SET_TLSEXT_HOSTNAME = 55;
pub const SSL_CTRL_SET_TLSEXT_TICKET_KEYS = 59;
pub const SSL_CTRL_SET_TLSEXT_STATUS_REQ_CB = 63;
pub const SSL_CTRL_SET_TLSEXT_STATUS_REQ_CB_ARG = 64;
pub const SSL_CTRL_SET_TLSEXT_STATUS_REQ_OCSP_RESP = 71;
pub const SSL_CTRL_CLEAR_MODE = 78;
pub const SSL_CTRL_SET_GROUPS_LIST = 92;
pub const SSL_CTRL_SET_DH_AUTO = 118;
pub const SSL_CTRL_SET_MIN_PROTO_VERSION = 123;
pub const SSL_CTRL_SET_MAX_PROTO_VERSION = 124;

pub fn SSL_CTX_set_mode(context: *SSL_CTX, mode: c_long) void {
    _ = SSL_CTX_ctrl(context, SSL_CTRL_MODE, mode, null);
}

pub fn SSL_CTX_set_read_ahead(context: *SSL_CTX, on: bool) void {
    _ = SSL_CTX_ctrl(context, SSL_CTRL_SET_READ_AHEAD, @intFromBool(on), null);
}

pub fn SSL_clear_mode(ssl: *SSL, mode: c_long) void {
    _ = SSL_ctrl(ssl, SSL_CTRL_CLEAR_MODE, mode, null);
}

pub fn SSL_CTX_set_session_cache_mode(context: *SSL_CTX, mode: c_long) void {
    _ = SSL_CTX_ctrl(context, SSL_CTRL_SET_SESS_CACHE_MODE, mode, null);
}

pub fn SSL_CTX_set_tlsext_servername_callback(
    context: *SSL_CTX,
    callback: *const ServerNameCallback,
    argument: *anyopaque,
) void {
    _ = SSL_CTX_callback_ctrl(context, SSL_CTRL_SET_TLSEXT_SERVERNAME_CB, @ptrCast(callback));
    _ = SSL_CTX_ctrl(context, SSL_CTRL_SET_TLSEXT_SERVERNAME_ARG, 0, argument);
}

pub fn SSL_CTX_set_tlsext_status_cb(
    context: *SSL_CTX,
    callback: *const StatusCallback,
    argument: *anyopaque,
) void {
    _ = SSL_CTX_callback_ctrl(context, SSL_CTRL_SET_TLSEXT_STATUS_REQ_CB, @ptrCast(callback));
    _ = SSL_CTX_ctrl(context, SSL_CTRL_SET_TLSEXT_STATUS_REQ_CB_ARG, 0, argument);
}

pub fn SSL_CTX_set_tlsext_ticket_keys(context: *SSL_CTX, keys: []const u8) c_long {
    return SSL_CTX_ctrl(context, SSL_CTRL_SET_TLSEXT_TICKET_KEYS, @intCast(keys.len), @constCast(keys.ptr));
}

pub fn SSL_CTX_set1_groups_list(context: *SSL_CTX, list: [*:0]const u8) c_long {
    return SSL_CTX_ctrl(context, SSL_CTRL_SET_GROUPS_LIST, 0, @constCast(list));
}

pub fn SSL_CTX_set_dh_auto(context: *SSL_CTX, on: bool) void {
    _ = SSL_CTX_ctrl(context, SSL_CTRL_SET_DH_AUTO, @intFromBool(on), null);
}

pub fn SSL_CTX_set_min_proto_version(context: *SSL_CTX, version: u16) c_long {
    return SSL_CTX_ctrl(context, SSL_CTRL_SET_MIN_PROTO_VERSION, version, null);
}

/// The newest protocol version that is allowed; 0: the library's newest.
pub fn SSL_CTX_set_max_proto_version(context: *SSL_CTX, version: u16) c_long {
    return SSL_CTX_ctrl(context, SSL_CTRL_SET_MAX_PROTO_VERSION, version, null);
}

// ---- Sessions

pub const SSL_ERROR_WANT_READ = 2;
pub const SSL_ERROR_ZERO_RETURN = 6;
pub const SSL_KEY_UPDATE_NONE = -1;
pub const SSL_SENT_SHUTDOWN = 1;
pub const SSL_RECEIVED_SHUTDOWN = 2;

pub extern fn SSL_new(context: *SSL_CTX) ?*SSL;
pub extern fn SSL_set_options(ssl: *SSL, options: u64) u64;
pub extern fn SSL_free(ssl: ?*SSL) void;
pub extern fn SSL_set_bio(ssl: *SSL, reading: *BIO, writing: *BIO) void;
pub extern fn SSL_get_rbio(ssl: *const SSL) *BIO;
pub extern fn SSL_set_accept_state(ssl: *SSL) void;
pub extern fn SSL_set_connect_state(ssl: *SSL) void;
pub extern fn SSL_do_handshake(ssl: *SSL) c_int;
pub extern fn SSL_read_ex(ssl: *SSL, buffer: [*]u8, len: usize, read: *usize) c_int;
pub extern fn SSL_write_ex(ssl: *SSL, bytes: [*]const u8, len: usize, written: *usize) c_int;
pub extern fn SSL_has_pending(ssl: *const SSL) c_int;
pub extern fn SSL_get_key_update_type(ssl: *const SSL) c_int;
pub extern fn SSL_shutdown(ssl: *SSL) c_int;
pub extern fn SSL_set_shutdown(ssl: *SSL, mode: c_int) void;
pub extern fn SSL_get_shutdown(ssl: *const SSL) c_int;
pub extern fn SSL_get_error(ssl: *const SSL, result: c_int) c_int;
pub extern fn SSL_version(ssl: *const SSL) c_int;
pub extern fn SSL_get_current_cipher(ssl: *const SSL) *const SSL_CIPHER;
pub extern fn SSL_CIPHER_get_name(cipher: *const SSL_CIPHER) [*:0]const u8;
pub extern fn SSL_get_pending_cipher(ssl: *const SSL) ?*const SSL_CIPHER;
pub extern fn SSL_CIPHER_is_aead(cipher: *const SSL_CIPHER) c_int;
pub extern fn SSL_CIPHER_get_kx_nid(cipher: *const SSL_CIPHER) c_int;
pub extern fn SSL_CIPHER_get_auth_nid(cipher: *const SSL_CIPHER) c_int;
pub extern fn SSL_CIPHER_get_protocol_id(cipher: *const SSL_CIPHER) u16;
pub extern fn SSL_get0_alpn_selected(ssl: *const SSL, protocol: *?[*]const u8, len: *c_uint) void;
/// An extension of a client's hello as it came, for use within a ClientHelloCallback.
pub extern fn SSL_client_hello_get0_ext(
    ssl: *SSL,
    kind: c_uint,
    bytes: *[*]const u8,
    len: *usize,
) c_int;
/// Removes the certificates of this connection alone.
pub extern fn SSL_certs_clear(ssl: *SSL) void;
pub extern fn SSL_use_cert_and_key(
    ssl: *SSL,
    leaf: *X509,
    key: *EVP_PKEY,
    chain: ?*X509_STACK,
    override: c_int,
) c_int;
pub extern fn SSL_get_servername(ssl: *const SSL, kind: c_int) ?[*:0]const u8;
pub extern fn SSL_get_SSL_CTX(ssl: *const SSL) ?*SSL_CTX;
pub extern fn SSL_set_SSL_CTX(ssl: *SSL, context: *SSL_CTX) ?*SSL_CTX;
pub extern fn SSL_get_certificate(ssl: *const SSL) ?*X509;
pub extern fn SSL_get0_peer_certificate(ssl: *const SSL) ?*X509;
pub extern fn SSL_get_peer_cert_chain(ssl: *const SSL) ?*X509_STACK;
pub extern fn SSL_get_verify_result(ssl: *const SSL) c_long;
pub extern fn SSL_get0_param(ssl: *SSL) *X509_VERIFY_PARAM;
pub extern fn SSL_session_reused(ssl: *const SSL) c_int;
pub extern fn SSL_set_session(ssl: *SSL, session: *SSL_SESSION) c_int;
pub extern fn SSL_get1_session(ssl: *SSL) ?*SSL_SESSION;
pub extern fn SSL_SESSION_free(session: ?*SSL_SESSION) void;
pub extern fn SSL_SESSION_is_resumable(session: *const SSL_SESSION) c_int;

pub extern fn SSL_ctrl(ssl: *SSL, command: c_int, number: c_long, pointer: ?*anyopaque) c_long;

/// In the C headers this function is a macro.
pub fn SSL_set_tlsext_host_name(ssl: *SSL, name: [*:0]const u8) c_long {
    return SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, @constCast(name));
}

pub extern fn CRYPTO_malloc(len: usize, file: [*:0]const u8, line: c_int) ?*anyopaque;

/// Copies `der`, which OpenSSL frees with the session. False: there is no memory.
pub fn setOcspResponse(ssl: *SSL, der: []const u8) bool {
    const copy: [*]u8 = @ptrCast(CRYPTO_malloc(der.len, "", 0) orelse return false);
    @memcpy(copy[0..der.len], der);
    _ = SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_STATUS_REQ_OCSP_RESP, @intCast(der.len), copy);
    return true;
}
