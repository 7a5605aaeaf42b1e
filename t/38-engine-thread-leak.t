# engine => 'thread': clients that leave before the answer, in the middle of their body or of the response,
# leave nothing behind. script/bench-thread growth does the same with a million requests.
# Not repeated for each PEREGRINE_ENGINE: its servers name their engines.
use strict;
use warnings;

use lib 't/lib';
use Future::AsyncAwait;
use IO::Async::Loop;
use Test::More;
use TestClient qw(get);
use TestServer;
use TestUsage qw(report settled);

my $piece = 'x' x 65536;

async sub answer {
    my ($send, $body) = @_;
    await $send->({ type => 'http.response.start', status => 200, headers => [] });
    await $send->({ type => 'http.response.body', body => $body });
    return;
}

# Includes the memory of both ends of the ring pair.
sub usage {
    my $stats = TestServer::worker_of(TestServer::running())->stats;
    return join ' ', report(), map { "$_=$stats->{$_}" } qw(exchanges ledger memory_bytes);
}

my %handlers = (
    '/hello' => async sub { await answer($_[2], 'hello') },
    '/usage' => async sub { await answer($_[2], usage()) },
    '/later' => async sub {
        my ($scope, $receive, $send) = @_;
        await IO::Async::Loop->new->delay_future(after => 0.02);
        await answer($send, 'later');
    },
    '/stream' => async sub {
        my ($scope, $receive, $send) = @_;
        my $left = 64;
        await $send->({ type => 'http.response.start', status => 200, headers => [] });
        await $send->({ type => 'http.response.body', body => $piece, more => $left }) while $left--;
    },
    '/upload' => async sub {
        my ($scope, $receive, $send) = @_;
        my $event = await $receive->();
        $event = await $receive->() while $event->{more};
        await answer($send, 'took it');
    },
);

my $server = TestServer->start(
    quiet      => 1,
    access_log => undef,
    engine     => 'thread',
    app        => sub { $_[0]{type} eq 'http' ? $handlers{ $_[0]{path} }->(@_) : die "no\n" },
);
my $port = $server->port;

# Bytes of a request, and how many of the answer its client reads before it leaves.
my @ways = (
    [ "GET /later HTTP/1.1\r\nHost: h\r\n\r\n",                                                       0 ],
    [ "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n" x 20,                                                  0 ],
    [ "POST /upload HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n" . substr($piece, 0, 5000), 0 ],
    [ "GET /stream HTTP/1.1\r\nHost: h\r\n\r\n",                                                      1000 ],
);

sub abandon {
    my ($count) = @_;
    for my $number (1 .. $count) {
        for my $way (@ways) {
            my ($request, $enough) = @$way;
            my $client = TestClient->new($port)->send($request);
            $client->some($enough) if $enough;
            $client->reset;
        }
    }
    return;
}

sub ask {
    my ($count) = @_;
    my $client  = TestClient->new($port);
    my $right   = 0;
    for (1 .. $count) {
        $client->send("GET /hello HTTP/1.1\r\nHost: h\r\n\r\n" x 50);
        $right += $client->response->{body} eq 'hello' for 1 .. 50;
    }
    return $right;
}

sub used {
    return settled(sub { get($port, '/usage')->{body} });
}

# Memory that is kept for later requests grows with the number of requests at a time, which can be higher in
# the second round on a busy machine. A leak grows in each round.
my ($before, $after, $grown);
abandon(40);
ask(40);
for (1 .. 5) {
    $before = used();
    abandon(100);
    is(ask(200), 10_000, 'requests are answered');
    $after = used();
    note(join ', ', map { "$_ $before->{$_} -> $after->{$_}" } sort keys %$after);
    my %allowed = (values => 50, memory_bytes => 128 * 1024, kib => 1024);
    $grown = join ', ', grep { $after->{$_} - $before->{$_} >= $allowed{$_} } sort keys %allowed;
    last if !$grown;
}
is($grown,                '',                     'Perl values, buffers, slots and the process do not grow');
is($after->{exchanges},   1,                      'the engine has no exchange but the one that asks');
is($after->{ledger},      1,                      'nor has the application\'s end of the ring pair');
is($after->{descriptors}, $before->{descriptors}, 'no descriptor is left open');
is($server->stop,         0,                      'the server ends well');

done_testing;
