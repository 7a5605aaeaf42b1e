# Request bodies of many clients that come at the same time, piece by piece: each is given to the application
# whole, whatever the engine does with the memory of those that are done.
# Not repeated for each PEREGRINE_ENGINE: it names its engines.
use strict;
use warnings;

use lib 't/lib';
use Digest::MD5 qw(md5_hex);
use Test::More;
use TestClient;
use TestServer;
use TestTools;

use constant { CLIENTS => 60, PIECES => 30, PIECE => 10_000 };

my $app = sub {
    my ($env) = @_;
    my $input = $env->{'psgi.input'};
    my $body  = do { local $/; readline $input };
    my $type  = [ 'Content-Type' => 'text/plain' ];
    return [ 200, $type, [ md5_hex("$env->{HTTP_X_NAME} $body") ] ];
};

sub upload {
    my ($port, $name) = @_;
    my $length = PIECES * PIECE;
    return TestClient->new($port)
        ->send(
        "POST / HTTP/1.1\r\nHost: h\r\nX-Name: $name\r\nAccept: text/html\r\nContent-Length: $length\r\n\r\n"
        );
}

my %placements = (
    inline  => { engine => 'inline' },
    thread  => { engine => 'thread' },
    process => { engine => 'process', workers => 2 },
);

for my $placement (sort keys %placements) {
    subtest $placement => sub {
        my $server =
            TestServer->start(psgi => 1, app => $app, access_log => undef, %{ $placements{$placement} });
        my @clients = map { upload($server->port, $_) } 1 .. CLIENTS;
        for my $piece (1 .. PIECES) {
            $clients[ $_ - 1 ]->send(chr(64 + ($_ + $piece) % 60) x PIECE) for 1 .. CLIENTS;
        }
        my $right = 0;
        for my $name (1 .. CLIENTS) {
            my $body     = join '', map { chr(64 + ($name + $_) % 60) x PIECE } 1 .. PIECES;
            my $response = $clients[ $name - 1 ]->response;
            $right++ if $response && $response->{body} eq md5_hex("$name $body");
        }
        is($right,        CLIENTS, 'all bodies are whole');
        is($server->stop, 0,       'the server ends well');
    };
}

done_testing;
