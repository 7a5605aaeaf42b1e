package Peregrine::Acme::Certificate;

use strict;
use warnings;

our $VERSION = '0.003000';

use Crypt::Misc qw(encode_b64u);
use Net::SSLeay;
use Time::Local qw(timegm_modern);

# The facts of the first certificate of a PEM: { from, to, names, issuer, ari }; nothing if there is none.
sub facts {
    my ($pem) = @_;
    my $bio = Net::SSLeay::BIO_new(Net::SSLeay::BIO_s_mem());
    Net::SSLeay::BIO_write($bio, $pem);
    my $x509 = Net::SSLeay::PEM_read_bio_X509($bio);
    Net::SSLeay::BIO_free($bio);
    return if !$x509;
    my @names = Net::SSLeay::X509_get_subjectAltNames($x509);
    my %facts = (
        from   => _time(Net::SSLeay::X509_get_notBefore($x509)),
        to     => _time(Net::SSLeay::X509_get_notAfter($x509)),
        names  => [ map { $names[ 2 * $_ + 1 ] } grep { $names[ 2 * $_ ] == 2 } 0 .. $#names / 2 ],
        issuer => _issuer($x509),
        ari    => _ari_name($x509),
    );
    Net::SSLeay::X509_free($x509);
    return \%facts;
}

sub _time {
    my ($asn1) = @_;
    my ($year, $month, $day, $hour, $minute, $second) =
        Net::SSLeay::P_ASN1_TIME_get_isotime($asn1) =~ /\A(\d+)-(\d+)-(\d+)T(\d+):(\d+):(\d+)/;
    return timegm_modern($second, $minute, $hour, $day, $month - 1, $year);
}

# The issuer's name, or its organization where it has none.
sub _issuer {
    my ($x509) = @_;
    my $issuer = Net::SSLeay::X509_get_issuer_name($x509);
    my ($text) = grep { length }
        map { Net::SSLeay::X509_NAME_get_text_by_NID($issuer, $_) // '' } Net::SSLeay::NID_commonName(),
        Net::SSLeay::NID_organizationName();
    return ($text // '?') =~ s/[^\x20-\x7E]/?/gr;
}

# The ARI name: key identifier of the issuer and serial number (RFC 9773 section 4.1).
sub _ari_name {
    my ($x509) = @_;
    my $at = Net::SSLeay::X509_get_ext_by_NID($x509, Net::SSLeay::NID_authority_key_identifier(), -1);
    return if $at < 0;
    my $text   = Net::SSLeay::X509V3_EXT_print(Net::SSLeay::X509_get_ext($x509, $at));
    my ($key)  = $text =~ /((?:[0-9A-F]{2}:){3,}[0-9A-F]{2})/ or return;
    my $serial = Net::SSLeay::P_ASN1_INTEGER_get_hex(Net::SSLeay::X509_get_serialNumber($x509));
    $serial = "0$serial"  if length($serial) % 2;
    $serial = "00$serial" if hex(substr $serial, 0, 2) > 127;
    return join '.', map { encode_b64u(pack 'H*', $_) } $key =~ tr/://dr, $serial;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Acme::Certificate - facts of a certificate

=head1 FUNCTIONS

=head2 facts

    my $facts = Peregrine::Acme::Certificate::facts($pem);

Of the first certificate: C<from> and C<to> in seconds since 1970, C<names>, C<issuer> (its name), and C<ari>,
its name in RFC 9773 (undef if it does not say which key has signed it). Nothing if there is no certificate.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
