#!/bin/sh
# Makes the certificates for the TLS tests and the bench: sh make-certificates.sh DIRECTORY
# Everything is thrown away afterwards; nothing secret belongs into the repository.
set -eu
umask 077
cd "$1"

# key NAME: an ECDSA key (fast to make).
key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1.key"; }

# authority NAME SUBJECT: a self-signed authority.
authority() {
    key "$1"
    openssl req -new -x509 -key "$1.key" -subj "$2" -days 2 -out "$1.pem" \
        -addext basicConstraints=critical,CA:TRUE
}

# sign NAME SUBJECT AUTHORITY EXTENSION...: a certificate for NAME.key.
sign() {
    name=$1 subject=$2 ca=$3
    shift 3
    printf '%s\n' "$@" >"$name.ext"
    openssl req -new -key "$name.key" -utf8 -subj "$subject" -out "$name.csr"
    openssl x509 -req -in "$name.csr" -CA "$ca.pem" -CAkey "$ca.key" -CAcreateserial -days 2 \
        -extfile "$name.ext" -out "$name.pem"
}

authority ca "/CN=Test Authority"
authority other-ca "/CN=Other Authority"

key server
sign server "/CN=localhost" ca "subjectAltName=DNS:localhost,DNS:Two.Example,IP:127.0.0.1"
key wild
sign wild "/CN=ignored.example" ca "subjectAltName=DNS:*.wild.example,DNS:wild.example"
key cn
sign cn "/CN=cn.example" ca "keyUsage=digitalSignature"

# A certificate whose length, and that of its signatures, never varies: for simulations.
openssl genpkey -algorithm ed25519 -out even.key
openssl req -new -x509 -key even.key -subj "/CN=localhost" -set_serial 1 -days 2 -out even.pem

# Certificates for the same names with an RSA key, and with a key that is too weak.
openssl genrsa -out rsa.key 2048
sign rsa "/CN=localhost" ca "subjectAltName=DNS:localhost,DNS:Two.Example,IP:127.0.0.1"
openssl genrsa -out weak.key 1024
sign weak "/CN=localhost" ca "subjectAltName=DNS:localhost"

# Clients: one behind an intermediate, one of an authority that nobody trusts.
key intermediate
sign intermediate "/CN=Intermediate" ca "basicConstraints=critical,CA:TRUE"
key client
sign client "/C=DE/O=Falcon, Inc./CN=Zoë" intermediate "extendedKeyUsage=clientAuth"
cat intermediate.pem >>client.pem
key stranger
sign stranger "/CN=Stranger" other-ca "extendedKeyUsage=clientAuth"

# Keys with the password "secret", in both of PEM's notations.
openssl pkcs8 -topk8 -in server.key -passout pass:secret -out encrypted.key
openssl ec -in server.key -aes128 -passout pass:secret -out encrypted-old.key

# Damage: cut in the middle of the base64, and a good certificate followed by garbage between PEM's markers.
head -c 300 server.pem >cut.pem
{ cat server.pem; printf -- '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n'; } >rubbish.pem
echo "plain text" >text.pem
cat server.pem server.key >both.pem
