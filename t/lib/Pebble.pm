package Pebble;

# An ACME authority for tests, with a name server that knows every name as 127.0.0.1: the pebble that
# `script/conformance acme` has built, or that of Debian, which cannot be told when to renew (RFC 9773). The
# challenges of http-01 are asked at `http_port`.

use strict;
use warnings;

use Certificates;
use HTTP::Tiny;
use IO::Socket::SSL ();
use JSON::PP        qw(encode_json);
use Peregrine::Acme::Store;
use TestServer;
use TestTools qw(free_port wait_for);

use constant BUILT => '.peregrine/pebble/pebble';

my $OWNER = $$;    # a fork of the test does not end what the test has started

sub new {
    my ($class, %args) = @_;
    my $files = Certificates->new->authority('pebble-ca');
    $files->issue(
        'pebble',
        by         => 'pebble-ca',
        subject    => '/CN=localhost',
        extensions => ['subjectAltName=DNS:localhost']
    );
    my %port   = map { $_ => free_port() } qw(listen manage dns dns_manage tls);
    my %config = (
        listenAddress           => "127.0.0.1:$port{listen}",
        managementListenAddress => "127.0.0.1:$port{manage}",
        certificate             => $files->path('pebble.pem'),
        privateKey              => $files->path('pebble.key'),
        httpPort                => 0 + $args{http_port},
        # Older versions know the first key, newer ones the second.
        $args{validity}
        ? (
            certificateValidityPeriod => 0 + $args{validity},
            profiles => { default => { description => 'short', validityPeriod => 0 + $args{validity} } }
            )
        : (),
        tlsPort => 0 + ($args{tls_port} // $port{tls}),
    );
    $files->write('pebble.json', encode_json({ pebble => \%config }));
    my @names = ('-http01', '', '-https01', '', '-tlsalpn01', '', '-defaultIPv6', '');
    # Newer versions know the first flag, older ones the second.
    my ($serve) = `pebble-challtestsrv -help 2>&1` =~ /^ +(-dnsserver|-dns01)\b/m
        or die 'pebble-challtestsrv has no flag for the address of its name server';
    my $resolve = TestServer->spawn('pebble-challtestsrv', @names, '-defaultIPv4', '127.0.0.1', $serve,
        "127.0.0.1:$port{dns}", '-management', "127.0.0.1:$port{dns_manage}");
    # `sleep`: pebble waits up to so many seconds before it asks for a challenge.
    local @ENV{qw(PEBBLE_VA_NOSLEEP PEBBLE_VA_SLEEPTIME)} =
        $args{sleep} ? (0, $args{sleep}) : (1, '');
    local $ENV{PEBBLE_WFE_NONCEREJECT} = $args{nonce_reject} // 0;
    # A challenge is asked for at each order.
    local $ENV{PEBBLE_AUTHZREUSE} = 0;
    my $authority = TestServer->spawn(
        -x BUILT ? BUILT : 'pebble', '-config', $files->path('pebble.json'), '-dnsserver',
        "127.0.0.1:$port{dns}",      '-strict'
    );
    my $self = bless { files => $files, port => \%port, processes => [ $authority, $resolve ] }, $class;
    $self->{roots} = wait_for(sub { $self->_root }) or die 'pebble does not start: ', $authority->log;
    $files->write('roots.pem', join "\n", $files->read('pebble-ca.pem'), $self->{roots});
    return $self;
}

# The root of the certificates that the authority issues.
sub _root {
    my ($self) = @_;
    my $got = HTTP::Tiny->new(timeout => 5, verify_SSL => 0)
        ->get("https://127.0.0.1:$self->{port}{manage}/roots/0");
    return $got->{success} ? $got->{content} : undef;
}

# Makes all names lead to 127.0.0.1, or to the address at which no server listens.
sub _resolve_to {
    my ($self, $address) = @_;
    my $done =
        HTTP::Tiny->new(timeout => 10)->post("http://127.0.0.1:$self->{port}{dns_manage}/set-default-ipv4",
        { content => encode_json({ ip => $address }) });
    die "pebble-challtestsrv: $done->{content}" if !$done->{success};
    return $self;
}
sub forget_challenges { return $_[0]->_resolve_to('127.0.0.2') }
sub know_challenges   { return $_[0]->_resolve_to('127.0.0.1') }

# Whether the authority suggests when to renew.
sub advises {
    my ($self) = @_;
    my $got = HTTP::Tiny->new(timeout => 10, verify_SSL => 0)->get($self->directory);
    return $got->{content} =~ /"renewalInfo"/ ? 1 : 0;
}

# Whether a test can set the suggestion: Debian 13's pebble suggests, but cannot be told what.
sub takes_advice {
    my ($self) = @_;
    my $got = HTTP::Tiny->new(timeout => 10, verify_SSL => 0)
        ->post("https://127.0.0.1:$self->{port}{manage}/set-renewal-info/", { content => '' });
    return $got->{content} =~ /\A404 page not found/ ? 0 : 1;
}

# Sets the answer, a text, to questions when to renew a certificate.
sub advise {
    my ($self, $pem, $answer) = @_;
    my ($leaf) = $pem =~ /(-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----)/s;
    my $done =
        HTTP::Tiny->new(timeout => 10, verify_SSL => 0)
        ->post("https://127.0.0.1:$self->{port}{manage}/set-renewal-info/",
        { content => encode_json({ Certificate => $leaf, ARIResponse => $answer }) });
    die "pebble: $done->{content}" if !$done->{success};
    return $self;
}

sub log { return $_[0]{processes}[0]->log }

sub directory { return "https://localhost:$_[0]{port}{listen}/dir" }

# The path of a file with the roots of the authority's own certificate and of those that it issues.
sub roots { return $_[0]{files}->path('roots.pem') }

# The certificate of example.org that the server at a port serves, as PEM; '' if it serves none of this
# authority.
sub served {
    my ($self, $tls_port) = @_;
    my $socket = IO::Socket::SSL->new(
        PeerAddr            => '127.0.0.1',
        PeerPort            => $tls_port,
        SSL_hostname        => 'example.org',
        SSL_verifycn_name   => 'example.org',
        SSL_verifycn_scheme => 'http',
        SSL_ca_file         => $self->roots,
        Timeout             => 20,
    ) or return '';
    return Net::SSLeay::PEM_get_string_X509($socket->peer_certificate);
}

# Asks for a renewal of the certificates of a folder, and waits until the server at a port serves another one.
sub renewed {
    my ($self, $tls_port, $folder) = @_;
    my $before = $self->served($tls_port);
    Peregrine::Acme::Store->new($folder)->ask('example.org');
    return wait_for(sub { my $now = $self->served($tls_port); $now && $now ne $before });
}

sub stop {
    my ($self) = @_;
    $_->signal('TERM')->wait(10) for grep { defined } @{ delete $self->{processes} || [] };
    return;
}

sub DESTROY {
    my ($self) = @_;
    return $$ == $OWNER ? $self->stop : undef;
}

1;
