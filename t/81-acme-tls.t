# Authorities that ask by TLS (tls-alpn-01, RFC 8737), which a server without a listener for HTTP answers:
# with a certificate of its own for each question, on connections that carry nothing else.
use strict;
use warnings;
use experimental 'signatures';

use lib 't/lib';
use File::Temp      ();
use IO::Socket::SSL ();
use MIME::Base64    qw(decode_base64);
use OnlyInFull      qw(only_in_full);
use PAGI::Server;
use Test::More;

use TestServer;
use TestTools qw(free_port program_path wait_for);

plan skip_all => 'built without TLS'       if !PAGI::Server->has_tls;
plan skip_all => 'pebble is not installed' if !program_path('pebble');
plan skip_all => 'CryptX is not installed' if !eval { require CryptX; 1 };
require Crypt::Digest::SHA256;
require Pebble;
require Peregrine::Acme::Store;
require Peregrine::Acme::Validation;

my $dir       = File::Temp->newdir;
my $port      = free_port();
my $app       = 'examples/pagi/hello/app.pl';
my $authority = Pebble->new(http_port => free_port(), tls_port => $port);

sub serve ($folder, @more) {
    return TestServer->command(
        '--listen' => "127.0.0.1:$port",
        '--acme-agree',
        '--acme'           => 'example.org,www.example.org',
        '--acme-directory' => $authority->directory,
        '--acme-ca'        => $authority->roots,
        '--acme-folder'    => $folder,
        @more, $app
    );
}

# A connection whose client offers these protocols; undef if the handshake fails, and $! has the reason.
sub connected ($protocols, %more) {
    return IO::Socket::SSL->new(
        PeerAddr           => '127.0.0.1',
        PeerPort           => $port,
        SSL_hostname       => 'example.org',
        SSL_alpn_protocols => $protocols,
        SSL_verify_mode    => IO::Socket::SSL::SSL_VERIFY_NONE(),
        Timeout            => 20,
        %more,
    );
}

# The certificate that is shown, as PEM.
sub shown ($socket) { return Net::SSLeay::PEM_get_string_X509($socket->peer_certificate) }

sub der_of ($socket) { return decode_base64(shown($socket) =~ s/-----[^-]+-----//gr) }

my %PLACEMENTS = (
    inline  => [],
    prefork => [ '--workers', 2 ],
    process => [ '--workers', 2, '--engine', 'process' ],
);
for my $name ('process', only_in_full('inline', 'prefork')) {
    subtest $name => sub {
        my $folder = "$dir/$name";
        my $server = serve($folder, @{ $PLACEMENTS{$name} });
        ok $server->wait_for_log(qr/certificate for example\.org www\.example\.org has come/),
            'a certificate comes without a listener for HTTP';
        my $socket = wait_for(sub {
            connected(
                [ 'h2', 'http/1.1' ],
                SSL_ca_file     => $authority->roots,
                SSL_verify_mode => IO::Socket::SSL::SSL_VERIFY_PEER()
            );
        });
        is $socket->alpn_selected, 'h2', '... and is served, over HTTP/2';
        is_deeply [ glob "$folder/validations/*" ], [], 'no answer is left behind';

        ok !connected(['acme-tls/1']), 'without an order nobody who asks gets a handshake';
        like $IO::Socket::SSL::SSL_ERROR, qr/no application protocol/, '... but the alert for that';

        my $store = Peregrine::Acme::Store->new($folder);
        my $pem   = Peregrine::Acme::Validation::certificate('example.org', 'token.thumbprint');
        $store->present_certificate('example.org', $pem);
        $socket = connected(['acme-tls/1']);
        ok $socket, 'with an order there is an answer' or return diag $IO::Socket::SSL::SSL_ERROR;
        is $socket->alpn_selected, 'acme-tls/1', '... by its protocol';
        like $pem, qr/\A\Q${\shown($socket)}\E/, '... which is the certificate of the order';
        my $digest = Crypt::Digest::SHA256::sha256('token.thumbprint');
        cmp_ok index(der_of($socket), "\x04\x22\x04\x20$digest"), '>', 0,
            '... with the hash in its extension';
        print {$socket} "GET / HTTP/1.1\r\nHost: example.org\r\n\r\n";
        is join('', readline $socket), '', '... and the connection ends: it carries no requests';

        for my $protocols ([ 'acme-tls/1', 'h2' ], ['http/1.1'], [ 'h2', 'acme-tls/1' ]) {
            my $other = connected($protocols);
            isnt $other->alpn_selected, 'acme-tls/1', "who offers @$protocols is another client";
            unlike $pem, qr/\A\Q${\shown($other)}\E/, '... and gets the usual certificate';
        }
        ok !connected(['acme-tls/1'], SSL_hostname => $_), "$_ has no answer"
            for 'www.example.org', 'other.example', '../certificates/example.org';
        ok connected(['acme-tls/1'], SSL_hostname => 'EXAMPLE.org'), 'names are names in capitals, too';
        ok connected(['acme-tls/1'], SSL_version => $_), "over $_" for 'TLSv1_2', 'TLSv1_3';
        $store->remove_certificate('example.org');
        ok !connected(['acme-tls/1']), 'after the order there is no answer any more';
        is $server->stop, 0, 'the server ends well';
    };
}

done_testing;
