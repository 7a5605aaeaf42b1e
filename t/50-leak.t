# 100,000 requests of every kind leave neither live values nor memory behind.
use strict;
use warnings;

use lib 't/lib';
use Future;
use Future::AsyncAwait;
use IO::Async::Loop;
use OnlyInFull qw(only_in_full);
use Test::More;
use TestClient qw(get);
use TestServer;
use TestUsage qw(growth report settled);

my $requests  = $ENV{PEREGRINE_LEAK_REQUESTS} || only_in_full(100_000) || 10_000;
my $in_flight = 50;

async sub respond {
    my ($send, $body) = @_;
    await $send->(
        { type => 'http.response.start', status => 200, headers => [ [ 'content-length', length $body ] ] });
    await $send->({ type => 'http.response.body', body => $body });
}

my %handlers = (
    '/plain'     => async sub { await respond($_[2], 'plain') },
    '/body'      => async sub { my $event = await $_[1]->(); await respond($_[2], $event->{body}) },
    '/registers' => async sub {
        my ($scope, $receive, $send) = @_;
        my $connection = $scope->{'pagi.connection'};
        $connection->on_complete(sub { $connection->response_complete });
        $connection->on_disconnect(sub { });
        $connection->disconnect_future;
        $scope->{'pagi.transport'}->on_drain(sub { });
        $scope->{mine} = { $scope->{path} => $receive };
        await respond($send, 'registered');
    },
    '/later' => async sub {
        my ($scope, $receive, $send) = @_;
        my $later = Future->new;
        IO::Async::Loop->new->later(sub { $later->done });
        await $later;
        await respond($send, 'later');
    },
    '/chain' => sub {
        my ($scope, $receive, $send) = @_;
        $receive->()->then(sub { respond($send, 'chain') });
    },
    '/invalid' => async sub {
        my ($scope, $receive, $send) = @_;
        $send->({ type => 'http.response.start', status => 'x' })->failure;
        $send->({ type => 'nonsense' })->failure;
        await respond($send, 'invalid');
    },
    '/cancel' => async sub {
        my ($scope, $receive, $send) = @_;
        await $receive->();
        $receive->()->cancel;
        await respond($send, 'cancel');
    },
    '/usage' => async sub { await respond($_[2], report()) },
);

my $server = TestServer->start(
    quiet => 1,
    app   => sub { $_[0]{type} eq 'http' ? $handlers{ $_[0]{path} }->(@_) : die "no\n" },
);
my $port = $server->port;

sub request {
    my ($kind) = @_;
    return "POST /body HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nCookie: a=b\r\n\r\nbody"
        if $kind eq 'body';
    return "GET /$kind HTTP/1.1\r\nHost: h\r\nUser-Agent: test\r\nX-Own: $kind\r\n\r\n";
}

# Sends requests of all kinds in pipelined groups and checks each answer.
sub run_requests {
    my ($count, @kinds) = @_;
    my %body = (
        registers => 'registered',
        plain     => 'plain',
        body      => 'body',
        map { $_ => $_ } qw(later chain invalid cancel)
    );
    my $client = TestClient->new($port, timeout => 60);
    my $wrong  = 0;
    my $number = 0;
    while ($number < $count) {
        my @group = map { $kinds[ ($number + $_) % @kinds ] } 1 .. $in_flight;
        $client->send(join '', map { request($_) } @group);
        for my $kind (@group) {
            my $response = $client->response;
            $wrong++ if !$response || $response->{body} ne $body{$kind};
        }
        return $wrong if $wrong;
        $number += $in_flight;
    }
    return $wrong;
}

sub ask { return get($port, '/usage')->{body} }

my %ALLOWED = (values => 50, kib => 1024);

# Whether no more is held than before.
sub no_more {
    my ($before, $after) = @_;
    note("live values $before->{values} -> $after->{values}, RSS $before->{kib} -> $after->{kib} KiB");
    cmp_ok($after->{values} - $before->{values}, '<', $ALLOWED{values}, 'live values did not grow');
    cmp_ok($after->{kib} - $before->{kib},       '<', $ALLOWED{kib},    'memory did not grow');
    return;
}

my @kinds = qw(plain body registers later chain invalid cancel);
is(run_requests(7_000, @kinds), 0, 'every kind of request is answered, for warming up');
my $before = settled(\&ask);
is(run_requests($requests, @kinds), 0, "$requests requests are answered");
no_more($before, settled(\&ask));

subtest 'clients that vanish' => sub {
    my $vanish = sub {
        my ($kind, $bytes) = @_;
        my $client = TestClient->new($port);
        $client->send($bytes);
        select undef, undef, undef, 0.0005;
        return $client->reset;
    };
    my @ways = (
        "GET /plain HTTP/1.1\r\nHost: h",
        "POST /body HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf",
        "POST /chain HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n",
        request('plain') x 20,
        request('later') x 20,
    );
    $vanish->(way => $_) for (@ways) x 20;
    no_more(growth(\&ask, sub { $vanish->(way => $_) for (@ways) x 200 }, %ALLOWED));
};

is($server->stop, 0, 'the server ends well');

done_testing;
