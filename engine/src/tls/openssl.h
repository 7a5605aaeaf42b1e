/* What the room `tls` sees of OpenSSL (3.0 or newer); translated to Zig by build.zig as module "openssl_c". */
#define OPENSSL_NO_DEPRECATED
#include <openssl/ssl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <openssl/evp.h>
