/* What the room `tls` sees of OpenSSL (3.0 or newer); translated to Zig by build.zig as module "openssl_c". */
#define OPENSSL_NO_DEPRECATED
#include <openssl/ssl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <openssl/evp.h>

/* SSL_OP_BIT shifts by 64 bits of count, which Zig refuses in a macro; as constants they translate. */
static const uint64_t peregrine_op_no_compression = SSL_OP_NO_COMPRESSION;
static const uint64_t peregrine_op_no_renegotiation = SSL_OP_NO_RENEGOTIATION;
static const uint64_t peregrine_op_server_preference = SSL_OP_CIPHER_SERVER_PREFERENCE;
static const uint64_t peregrine_op_prioritize_chacha = SSL_OP_PRIORITIZE_CHACHA;
static const uint64_t peregrine_op_ignore_unexpected_eof = SSL_OP_IGNORE_UNEXPECTED_EOF;
static const uint64_t peregrine_op_unsafe_renegotiation = SSL_OP_ALLOW_UNSAFE_LEGACY_RENEGOTIATION;
