# Every examples/c/*.c compiles without a warning against peregrine.h and the static library, serves requests,
# and ends cleanly. Each program takes the port as its only argument.
use v5.36;
use lib 't/lib';
use Test::More;
use TestClient;
use TestServer;
use TestTools qw(free_port wait_for);

my $LIBRARY = '.peregrine/engine';

my @sources = glob 'examples/c/*.c';
ok @sources > 0, 'there is a C example';
mkdir '.peregrine/c';
for my $source (@sources) {
    my ($name) = $source =~ m{(\w+)\.c\z};
    subtest $source => sub { try_example($source, ".peregrine/c/$name") };
}
done_testing;

sub try_example ($source, $program) {
    my @flags = qw(-std=c11 -D_GNU_SOURCE -O1 -g -Wall -Wextra -Werror);
    is
        system('cc', @flags, '-o', $program, '-Iengine/include', $source,
        "$LIBRARY/lib/libperegrine.a", qw(-lssl -lcrypto -lpthread -lm)),
        0, 'compiles without a warning'
        or return;

    my $port   = free_port();
    my $server = TestServer->spawn($program, $port);
    my $client;
    ok wait_for(sub {
        $client = eval { TestClient->new($port) }
        }),
        'listens'
        or return;
    my $answer = sub ($request) { $client->send($request)->response // {} };
    is $answer->("GET / HTTP/1.1\r\nHost: here\r\n\r\n")->{status}, 200, 'answers';
    is $answer->("GET / HTTP/1.1\r\nHost: here\r\n\r\n")->{status}, 200,
        'answers again on the same connection';
    my $seen = $answer->("GET http://target.example/head HTTP/1.1\r\nA: b\r\nHost: other.example\r\n\r\n");
    is $seen->{body}, "path /head\nhost target.example\nA: b\nHost: target.example\n",
        'an absolute-form target takes the place of Host, and brings no query along';
    is TestClient::exchange($port, "GET http://target.example/head?q HTTP/1.0\r\nA: b\r\n\r\n")->{body},
        "path /head\nquery q\nhost target.example\nA: b\nhost: target.example\n",
        'HTTP/1.0 without Host gets one';
    is $answer->("GET / HTTP/1.1\r\n\r\n")->{status}, 400, 'refuses a request without Host';
    is $client->rest,                                 '',  'and closes the connection';
    is $server->stop,                                 0,   'ends with status 0 on TERM';
}
