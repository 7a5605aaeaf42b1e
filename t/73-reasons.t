# The end of a request, as pagi.connection tells it: exactly one of disconnect and complete, with the reason
# of each kind of abnormal end.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use Future;
use Future::AsyncAwait;
use IO::Async::Loop;
use Test::More;
use TestClient qw(get);
use TestServer;

sub start { return $_[0]->({ type => 'http.response.start', status => 200, headers => [ @_[ 1 .. $#_ ] ] }) }
sub body  { return $_[0]->({ type => 'http.response.body',  body   => $_[1], more => $_[2] }) }
sub later    { return IO::Async::Loop->new->delay_future(after => $_[0] || 0.05) }
sub say_line { print STDERR @_, "\n"; return }

# Not written where it is used: Future::AsyncAwait 0.63 loses a folded constant in a loop that it has resumed.
my $piece = 'x' x 100_000;

# Files in this folder let busy applications go on.
my $signals = File::Temp->newdir;

sub touch { open my $file, '>', "$signals/$_[0]" or die "$_[0]: $!"; return }

# Tells of each way in which the request named by the query ends; the counts show that there is one.
sub watch {
    my ($scope)    = @_;
    my $connection = $scope->{'pagi.connection'};
    my $name       = $scope->{query_string};
    $connection->on_disconnect(
        sub { say_line("$name disconnected: $_[0] ", $connection->is_connected ? 'connected' : 'gone') });
    $connection->on_complete(
        sub { say_line("$name completed: ", $connection->disconnect_reason // 'no reason') });
    $connection->disconnect_future->on_done(sub { say_line("$name future: $_[0]") });
    return;
}

async sub read_all {
    my ($receive) = @_;
    my $event;
    do { $event = await $receive->() } while $event->{type} eq 'http.request' && $event->{more};
    return $event;
}

my $on_thread = ($ENV{PEREGRINE_ENGINE} // '') eq 'thread';

my %handlers = (
    '/answer' => async sub { await start($_[2]); await body($_[2], 'answer') },
    '/wait'   => async sub {
        my ($scope, $receive, $send) = @_;
        await read_all($receive);
        say_line("$scope->{query_string} waits");
        my $event = await $receive->();
        say_line("$scope->{query_string} woke: $event->{type}");
    },
    # Asks for the body and nothing else.
    '/read' => async sub {
        my ($scope, $receive, $send) = @_;
        say_line("$scope->{query_string} reads");
        my $event = await read_all($receive);
        say_line("$scope->{query_string} woke: $event->{type}");
        await start($send);
        await body($send, 'read');
    },
    # Answers while the client has gone already, which nobody has been told of.
    '/busy' => async sub {
        my ($scope, $receive, $send) = @_;
        await start($send);
        await body($send, 'first', 1);
        await later();
        say_line("$scope->{query_string} is busy");
        select undef, undef, undef, 0.01 while !-e "$signals/$scope->{query_string}" && getppid != 1;
        my $sent = body($send, $piece, 1);
        await $sent if $on_thread;    # which may not have heard of the client's end yet
        say_line("$scope->{query_string} sent: ", $sent->state);
        await $sent;
        await later();
    },
    '/flood' => async sub {
        my ($scope, $receive, $send) = @_;
        my $more_than_a_kernel_takes = $piece x 160;
        await start($send);
        for my $round (1 .. 200) {
            my $sent = body($send, $more_than_a_kernel_takes, 1);
            next if $sent->is_ready;
            say_line("$scope->{query_string} is held up");
            await $sent;
            say_line("$scope->{query_string} goes on");
            return;
        }
    },
    # The whole response is handed over before the client takes it.
    '/handed-over' => async sub {
        my ($scope, $receive, $send) = @_;
        my $whole = $piece x 100;
        await start($send);
        my $sent = body($send, $whole);
        say_line("$scope->{query_string} handed over: ",
            $sent->state, ' complete=', $scope->{'pagi.connection'}->response_complete);
        await $sent;
        say_line("$scope->{query_string} is done");
    },
    '/dies' => async sub { await start($_[2]); die "oh\n" },
    '/incomplete' => async sub { await start($_[2]); await body($_[2], 'half', 1); return },
);

my $app = sub {
    my ($scope) = @_;
    die "no\n" if $scope->{type} ne 'http';
    watch($scope);
    return $handlers{ $scope->{path} }->(@_);
};
my ($server, $port);

sub serve {
    $server = TestServer->start(app => $app, max_body_size => 1000, @_);
    $port   = $server->port;
    return;
}
serve();

sub request {
    return TestClient->new($port, receive_buffer => 65_536)
        ->send("GET /$_[0]?$_[1] HTTP/1.1\r\nHost: h\r\n\r\n");
}

sub upload {
    my ($path, $name, $framing, $bytes) = @_;
    return TestClient->new($port)->send("POST /$path?$name HTTP/1.1\r\nHost: h\r\n$framing\r\n\r\n$bytes");
}

# The request of that name ended once, abnormally, for the reason.
sub ends {
    my ($name, $reason) = @_;
    ok($server->wait_for_log(qr/^$name disconnected: $reason gone$/m), "$name: $reason") or diag $server->log;
    my @ends = $server->log =~ /^$name (disconnected|completed|future)/mg;
    is("@ends", 'future disconnected',            '... the Future, then the callback, and no completion');
    is(get($port, '/answer?next')->{status}, 200, '... and the next client is served') if $server->is_running;
    return;
}

subtest 'complete' => sub {
    is(get($port, '/answer?complete')->{body}, 'answer', 'an answer arrives');
    ok($server->wait_for_log(qr/^complete completed: no reason$/m), '... and its request is complete');
    unlike($server->log, qr/^complete (?:disconnected|future)/m, '... and nothing else');
};

subtest 'client_closed' => sub {
    my $client = upload('read', 'half-body', 'Content-Length: 10', 'half');
    ok($server->wait_for_log(qr/^half-body reads$/m), 'an application waits for the rest of a body');
    $client->close;
    ends('half-body', 'client_closed');
    ok($server->wait_for_log(qr/^half-body woke: http\.disconnect$/m), '... and its $receive wakes');
};

subtest 'a client that stops sending' => sub {
    my $client = request('busy', 'half-closed')->half_close;
    ok($server->wait_for_log(qr/^half-closed is busy$/m), 'an application is busy');
    touch('half-closed');
    ok($server->wait_for_log(qr/^half-closed sent: /m), '... and goes on sending');
    ends('half-closed', 'client_closed');
    like($client->rest // '', qr/first/, '... what it sent arrives');
};

subtest 'read_error' => sub {
    my $client = request('wait', 'reset');
    ok($server->wait_for_log(qr/^reset waits$/m), 'an application waits');
    $client->reset;
    ends('reset', 'read_error');
    ok($server->wait_for_log(qr/^reset woke: http\.disconnect$/m), '... and its $receive wakes');
};

subtest 'write_error' => sub {
    my $client = request('busy', 'written');
    ok($server->wait_for_log(qr/^written is busy$/m), 'an application keeps the process busy');
    $client->reset;
    touch('written');
    ok($server->wait_for_log(qr/^written sent: done$/m),
        '... and sends to a client that is gone: that is done, to no effect');
    # An engine on a thread of its own has seen the reset before that.
    ends('written', $on_thread ? 'read_error' : 'write_error');
};

# Clients of the other tests have the time that a busy machine may need.
subtest 'write_timeout' => sub {
    serve(limits => { write_ms => 400 });
    my $client = request('flood', 'deaf');
    ok($server->wait_for_log(qr/^deaf is held up$/m), 'a client does not read');
    ends('deaf', 'write_timeout');
    ok($server->wait_for_log(qr/^deaf goes on$/m), '... and the pending $send resolves');
    # A plain close would leave megabytes in the kernel for as long as the client likes.
    my $ends = sprintf ':%04X 0100007F:%04X', $port, $client->socket->sockport;
    open my $sockets, '<', '/proc/net/tcp' or die "/proc/net/tcp: $!";
    is(scalar(grep { /\Q$ends\E/ } <$sockets>), 0, '... and the kernel keeps nothing of it');
};

subtest 'client_timeout' => sub {
    serve(limits => { body_ms => 300 });
    my $client = upload('read', 'slow', 'Content-Length: 10', 'half');
    ends('slow', 'client_timeout');
    is($client->response->{status}, 408, '... the client is told');
    ok($server->wait_for_log(qr/^slow woke: http\.disconnect$/m), '... and the application as well');
};

subtest 'protocol_error' => sub {
    serve();
    my $client = upload('read', 'broken', 'Transfer-Encoding: chunked', "3\r\nabc\r\nnonsense\r\n");
    ends('broken', 'protocol_error');
    is($client->response->{status}, 400, '... the client is told');
    ok($server->wait_for_log(qr/^broken woke: http\.disconnect$/m), '... and the application as well');
};

subtest 'body_too_large' => sub {
    my $client = upload(
        'read', 'large',
        'Transfer-Encoding: chunked',
        "3e8\r\n" . ('x' x 1000) . "\r\n3e8\r\n" . ('x' x 1000) . "\r\n"
    );
    ends('large', 'body_too_large');
    is($client->response->{status}, 413, '... the client is told');
    is(upload('read', 'too-large', 'Content-Length: 1001', '')->response->{status},
        413, 'a length beyond the limit');
    unlike($server->log, qr/^too-large/m, '... does not reach the application');
};

subtest 'server_error' => sub {
    for my $path (qw(dies incomplete)) {
        my $response = request($path, $path)->response;
        ok(!$response || !$response->{complete}, "$path: the client sees half a response");
        ends($path, 'server_error');
    }
};

subtest 'a response that was handed over and does not arrive' => sub {
    my $client = request('handed-over', 'lost');
    ok($server->wait_for_log(qr/^lost handed over: pending complete=1$/m),
        'the response is complete, $send is pending');
    unlike($server->log, qr/^lost completed/m, '... and the request is not');
    $client->reset;
    ends('lost', '(?:read|write)_error');
    ok($server->wait_for_log(qr/^lost is done$/m), '... $send resolves');
    $client = request('handed-over', 'arrived');
    ok($server->wait_for_log(qr/^arrived handed over: pending/m), 'another one');
    is(length $client->response->{body}, 10_000_000, '... that arrives');
    ok($server->wait_for_log(qr/^arrived completed: no reason$/m), '... is complete then');
};

subtest 'server_shutdown' => sub {
    serve(shutdown_timeout => 0.2);
    my $client = request('wait', 'cut');
    ok($server->wait_for_log(qr/^cut waits$/m), 'an application waits');
    is($server->stop, 0, 'the server ends after its time');
    ends('cut', 'server_shutdown');
    ok($server->wait_for_log(qr/^cut woke: http\.disconnect$/m), '... and the application learns of it');
};

done_testing;
