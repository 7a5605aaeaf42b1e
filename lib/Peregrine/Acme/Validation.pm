package Peregrine::Acme::Validation;

use strict;
use warnings;

our $VERSION = '0.003000';

use Crypt::Digest::SHA256 qw(sha256);
use Crypt::Misc           qw(der_to_pem);
use Crypt::PK::ECC;
use Crypt::PRNG qw(random_bytes);
use POSIX       qw(strftime);

# Tags of ASN.1 (X.690), the last ones those that RFC 5280 numbers.
use constant {
    BOOLEAN      => 0x01,
    INTEGER      => 0x02,
    BIT_STRING   => 0x03,
    OCTET_STRING => 0x04,
    UTF8_STRING  => 0x0C,
    UTC_TIME     => 0x17,
    SEQUENCE     => 0x30,
    SET          => 0x31,
    CERT_VERSION => 0xA0,
    EXTENSIONS   => 0xA3,
    DNS_NAME     => 0x82,
};

# Object identifiers, encoded.
my %OID = map { $_->[0] => pack 'H*', $_->[1] } (
    [ ecdsa_with_sha256 => '06082A8648CE3D040302' ],
    [ common_name       => '0603550403' ],
    [ subject_alt_name  => '0603551D11' ],
    [ acme_identifier   => '06082B0601050507011F' ],
);

# Seconds before and after now for which the certificate is valid.
use constant GOOD_S => 7 * 24 * 3600;

# The certificate for a name that answers a challenge, with its key behind it, as PEM (RFC 8737 section 3).
sub certificate {
    my ($name, $authorization) = @_;
    my $key = Crypt::PK::ECC->new;
    $key->generate_key('secp256r1');
    my $algorithm = _der(SEQUENCE, $OID{ecdsa_with_sha256});
    my $issuer =
        _der(SEQUENCE, _der(SET, _der(SEQUENCE, $OID{common_name}, _der(UTF8_STRING, 'ACME validation'))));
    my $content = _der(
        SEQUENCE,
        _der(CERT_VERSION, _der(INTEGER, "\2")),
        _der(INTEGER,      "\1" . random_bytes(15)),
        $algorithm,
        $issuer,
        _der(SEQUENCE, map { _der(UTC_TIME, strftime('%y%m%d%H%M%SZ', gmtime time + $_)) } -GOOD_S, GOOD_S),
        $issuer,
        $key->export_key_der('public_short'),
        _der(
            EXTENSIONS,
            _der(
                SEQUENCE,
                _extension($OID{subject_alt_name}, '', _der(SEQUENCE, _der(DNS_NAME, $name))),
                _extension(
                    $OID{acme_identifier},
                    _der(BOOLEAN,      "\xFF"),
                    _der(OCTET_STRING, sha256($authorization))
                ),
            )
        ),
    );
    my $signature = _der(BIT_STRING, "\0" . $key->sign_message($content, 'SHA256'));
    return der_to_pem(_der(SEQUENCE, $content, $algorithm, $signature), 'CERTIFICATE')
        . $key->export_key_pem('private_short');
}

sub _extension {
    my ($oid, $critical, $value) = @_;
    return _der(SEQUENCE, $oid, $critical, _der(OCTET_STRING, $value));
}

sub _der {
    my ($tag, @content) = @_;
    my $content = join '', @content;
    my $length  = length $content;
    my $head =
          $length < 128 ? pack 'C2',  $tag, $length
        : $length < 256 ? pack 'C3',  $tag, 0x81, $length
        :                 pack 'CCn', $tag, 0x82, $length;
    return $head . $content;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Acme::Validation - the certificate that answers an authority's question by TLS

=head1 FUNCTIONS

=head2 certificate

    my $pem = Peregrine::Acme::Validation::certificate('example.org', $key_authorization);

Signed by itself, with the hash of the key authorization in its extension (C<tls-alpn-01>, RFC 8737), and its
key behind it.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
