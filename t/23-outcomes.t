# How an application can end, and what the peer, the log and pagi.connection then say.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use Future;
use Future::AsyncAwait;
use IO::Async::Loop;
use Test::More;
use TestClient qw(get exchange);
use TestServer;

sub start { return $_[0]->({ type => 'http.response.start', status => 200, headers => [ @_[ 1 .. $#_ ] ] }) }
sub body  { return $_[0]->({ type => 'http.response.body',  body   => $_[1], more => $_[2] }) }
sub later { return IO::Async::Loop->new->delay_future(after => $_[0] || 0.05) }

sub watch {
    my ($scope)    = @_;
    my $connection = $scope->{'pagi.connection'};
    my $path       = $scope->{path};
    $connection->on_disconnect(
        sub { print STDERR "$path disconnected: $_[0] started=@{[ $connection->response_started ]}\n" });
    $connection->on_complete(sub { print STDERR "$path completed\n" });
    return;
}

my %handlers = (
    '/dies'        => sub { die "at once\n" },
    '/dies-async'  => async sub { die "in async\n" },
    '/dies-later'  => async sub { await later(); die "after a while\n" },
    '/dies-object' => async sub { die bless { secret => 1 }, 'My::Error' },
    '/fails'       => sub { return Future->fail('failed', 'category', 'detail') },
    '/started'     => async sub { await start($_[2]); await body($_[2], 'half', 1); die "in the middle\n" },
    '/counted'     => async sub {
        my (undef, undef, $send) = @_;
        await start($send, [ 'content-length', 100 ]);
        await body($send, 'half', 1);
        await later();
        die "in the middle\n";
    },
    '/complete'       => async sub { await start($_[2]); await body($_[2], 'whole'); die "too late\n" },
    '/complete-later' => async
        sub { await start($_[2]); await body($_[2], 'whole'); await later(); die "too late\n" },
    '/nothing'       => async sub { return },
    '/nothing-later' => async sub { await later();      return },
    '/only-start'    => async sub { await start($_[2]); return },
    '/incomplete'    => async sub { await start($_[2]); await body($_[2], 'half', 1); return },
    '/no-trailers'   => async sub {
        my (undef, undef, $send) = @_;
        await $send->({ type => 'http.response.start', status => 200, trailers => 1 });
        await body($send, 'body');
        return;
    },
    '/shrinks' => async sub {
        my (undef, undef, $send) = @_;
        my $file = File::Temp->new;
        truncate $file, 50_000_000;
        await start($send);
        my $sent = $send->({ type => 'http.response.body', file => "$file" });
        await later();
        truncate $file, 0;
        print STDERR "the file has shrunk\n";
        await $sent;
    },
    '/no-future'      => sub { return 42 },
    '/no-future-done' => sub { start($_[2]); body($_[2], 'whole'); return },
    '/object'         => sub { return bless {}, 'My::Thing' },
    '/cancelled'      => sub { my $future = Future->new; $future->cancel; return $future },
    '/lost'           => sub { return Future->new },
    '/left'           => async sub {
        my ($scope, $receive, $send) = @_;
        print STDERR "working\n";
        await $scope->{'pagi.connection'}->disconnect_future;
        my $sent = start($send);
        print STDERR 'send to nobody: ', $sent->state, "\n";
        body($send, 'x', 1)->get;
        print STDERR 'reason: ', $scope->{'pagi.connection'}->disconnect_reason, "\n";
        die "after the client left\n";
    },
    '/left-nothing' => async sub {
        my ($scope) = @_;
        print STDERR "working on nothing\n";
        await $scope->{'pagi.connection'}->disconnect_future;
        print STDERR "nothing done\n";
        return;
    },
    '/fine' => async sub { await start($_[2]); await body($_[2], 'fine'); return },
);

my $server = TestServer->start(
    on_error => sub { print STDERR "on_error: $_[0]\n" },
    app      => sub {
        my ($scope) = @_;
        die "no lifespan\n" if $scope->{type} ne 'http';
        watch($scope);
        return $handlers{ $scope->{path} }->(@_);
    },
);
my $port = $server->port;

sub request { return TestClient->new($port)->send("GET $_[0] HTTP/1.1\r\nHost: h\r\n\r\n") }

subtest 'before its response started' => sub {
    my %says = (
        '/dies'        => qr/died before its response had started: at once/,
        '/dies-async'  => qr/died before its response had started: in async/,
        '/dies-later'  => qr/died before its response had started: after a while/,
        '/dies-object' =>
            qr/died before its response had started: an exception of class My::Error with secret => '1'/,
        '/fails'         => qr/died before its response had started: failed/,
        '/nothing'       => qr/application ended without a response/,
        '/nothing-later' => qr/application ended without a response/,
        '/no-future'     => qr/did not return a Future/,
        '/object'        => qr/did not return a Future/,
        '/cancelled'     => qr/Future was cancelled/,
    );
    for my $path (sort keys %says) {
        my $client   = request($path);
        my $response = $client->response;
        is($response->{status}, 500, "$path is answered with 500");
        like($response->{header}{'content-type'}, qr{\Atext/plain}, '... in plain text');
        unlike($response->{body}, qr/at once|while|secret/, '... that gives nothing away');
        is($client->rest, '', '... and closes its connection');
        ok($server->wait_for_log($says{$path}), '... and is logged');
        ok($server->wait_for_log(qr/^\Q$path\E disconnected: server_error started=1$/m),
            '... as a server error of the request');
    }
    ok($server->wait_for_log(qr/on_error: at once/), 'on_error gets the exception');
};

subtest 'after its response started' => sub {
    my %says = (
        '/started'     => qr/died after its response had started: in the middle/,
        '/counted'     => qr/died after its response had started: in the middle/,
        '/only-start'  => qr/application ended with its response incomplete/,
        '/incomplete'  => qr/application ended with its response incomplete/,
        '/no-trailers' => qr/application ended with its response incomplete/,
    );
    for my $path (sort keys %says) {
        my $client   = request($path);
        my $response = $client->response;
        ok(!$response || !$response->{complete}, "$path: the peer sees that the response is cut");
        ok(defined $client->rest,                '... by the end of the connection');
        ok($server->wait_for_log($says{$path}),  '... and it is logged');
        ok($server->wait_for_log(qr/^\Q$path\E disconnected: server_error/m),
            '... as a server error of the request');
    }
};

subtest 'after its response was complete' => sub {
    for my $path ('/complete', '/complete-later') {
        my $client = request($path);
        is($client->response->{body}, 'whole', "$path: the response arrives");
        ok($server->wait_for_log(qr/^\Q$path\E completed$/m), '... the request is complete');
        is($client->send("GET /fine HTTP/1.1\r\nHost: h\r\n\r\n")->response->{body},
            'fine', '... and the connection goes on');
    }
    ok(
        $server->wait_for_log(
            qr/died after its response was complete: too late.*died after its response was complete: too late/s
        ),
        'both are logged'
    );
    is(request('/no-future-done')->response->{body}, 'whole', 'a sub that returns no Future but answers');
    ok($server->wait_for_log(qr/after its response was complete: the application did not return a Future/),
        '... is told of in the log');
};

subtest 'the client left first' => sub {
    my $before = () = $server->log =~ /application (?:died|ended)/g;
    my $client = request('/left');
    ok($server->wait_for_log(qr/^working$/m), 'the application works');
    $client->reset;
    ok($server->wait_for_log(qr{/left disconnected: \w+ started=0}),
        'the client leaves before anything was sent');
    ok($server->wait_for_log(qr/send to nobody: done/), '... $send is then done without effect');
    ok($server->wait_for_log(qr/reason: (?:client_closed|read_error)/), '... and the reason is known');
    $client = request('/left-nothing');
    ok($server->wait_for_log(qr/^working on nothing$/m), 'another application works');
    $client->reset;
    ok($server->wait_for_log(qr/^nothing done$/m), '... and answers nothing');
    get($port, '/fine');
    my $after = () = $server->log =~ /application (?:died|ended)/g;
    is($after, $before, 'neither is logged as an error');
};

# If the end of the connection ends the response, an incomplete response must not end so: it is reset.
subtest 'in the middle of a response that ends with its connection' => sub {
    my $old =
        sub { return TestClient->new($port, receive_buffer => 65_536)->send("GET $_[0] HTTP/1.0\r\n\r\n") };
    for my $path (qw(/started /incomplete /shrinks)) {
        my $client = $old->($path);
        ok($server->wait_for_log(qr/^the file has shrunk$/m), 'a file is no longer as long as its response')
            if $path eq '/shrinks';
        $client->rest;
        ok($client->was_reset, "$path: the client can tell that it is not complete");
    }
    my $client = $old->('/fine');
    like($client->rest, qr/fine\z/, '... and when it is,');
    ok(!$client->was_reset, '... that too');
};

subtest 'a Future that nobody will settle' => sub {
    my $client = request('/lost');
    is($client->some(0.3),          '',     'no answer comes');
    is(get($port, '/fine')->{body}, 'fine', '... and others are served');
    $client->reset;
    ok($server->wait_for_log(qr{/lost disconnected: (?:client_closed|read_error)}),
        '... until the client leaves');
};

subtest 'a half-closed connection' => sub {
    my $client = request('/complete-later')->half_close;
    is($client->response->{body}, 'whole', 'still gets its answer');
    $client = TestClient->new($port)
        ->send("GET /fine HTTP/1.1\r\nHost: h\r\n\r\nGET /fine HTTP/1.1\r\nHost: h\r\n\r\n")->half_close;
    is(join(' ', map { $client->response->{body} } 1 .. 2), 'fine fine', 'and so do pipelined ones');
    is($client->rest,                                       '',          '... then it is closed');
};

is(get($port, '/fine')->{body}, 'fine', 'after all that, the server serves');
is($server->stop,               0,      'the server ends well') or diag $server->log;

done_testing;
