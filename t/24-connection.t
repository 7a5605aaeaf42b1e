# pagi.connection and pagi.transport: the order of effects, late registration, objects that
# outlive their request.
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

sub start    { return $_[0]->({ type => 'http.response.start', status => 200 }) }
sub body     { return $_[0]->({ type => 'http.response.body',  body   => $_[1], more => $_[2] }) }
sub later    { return IO::Async::Loop->new->delay_future(after => $_[0] || 0.05) }
sub say_line { print STDERR @_, "\n"; return }

my ($kept, @kept_all);

my %handlers = (
    '/states' => async sub {
        my ($scope, $receive, $send) = @_;
        my $connection = $scope->{'pagi.connection'};
        my $states     = sub {
            join ' ', map { defined $_ ? $_ ? 1 : 0 : 'undef' }
                map { $connection->$_ } qw(is_connected response_started response_complete disconnect_reason);
        };
        my @seen = $states->();
        await start($send);
        push @seen, $states->();
        await body($send, '',  1);
        await body($send, 'x', 1);
        push @seen, $states->();
        $connection->on_complete(sub { say_line('at completion: ', $states->()) });
        await body($send, join ', ', @seen);
    },
    '/complete' => async sub {
        my ($scope, $receive, $send) = @_;
        my $connection = $kept = $scope->{'pagi.connection'};
        $connection->on_complete(sub { say_line("complete 1 args=@_") });
        $connection->on_disconnect(sub { say_line('must not happen') });
        $connection->on_complete(sub { say_line('complete 2'); die "in a callback\n" });
        $connection->on_complete(sub { say_line('complete 3') });
        $connection->disconnect_future->on_ready(sub { say_line('must not happen either') });
        await start($send);
        await body($send, 'x');
        await later();
        $connection->on_complete(sub { say_line('registered late, called') });
        $connection->on_disconnect(sub { say_line('must not happen as well') });
    },
    '/disconnect' => async sub {
        my ($scope, $receive, $send) = @_;
        my $connection = $scope->{'pagi.connection'};
        my $future     = $connection->disconnect_future;
        $future->on_done(sub { say_line("order: future $_[0] connected=", $connection->is_connected ? 1 : 0) }
        );
        $connection->on_disconnect(sub { say_line("order: first $_[0] ready=", $future->is_ready ? 1 : 0) });
        $connection->on_disconnect(sub { say_line("order: second $_[0]"); die "in a callback\n" });
        $connection->on_disconnect(sub { say_line("order: third $_[0]") });
        $connection->on_complete(sub { say_line('must not happen') });
        await $receive->();    # the empty body
        my $received = $receive->()->then(sub { say_line("order: receive $_[0]{type}"); Future->done });
        say_line('ready to be left');
        await $received;
        $connection->on_disconnect(sub { say_line("late: $_[0]") });
        $connection->on_complete(sub { say_line('must not happen as well') });
        say_line('late future: ', await $connection->disconnect_future);
        say_line('same future: ', $future == $connection->disconnect_future ? 1 : 0);
    },
    '/race' => async sub {
        my ($scope, $receive, $send) = @_;
        my $connection = $scope->{'pagi.connection'};
        say_line('ready for a race');
        await Future->wait_any($connection->disconnect_future, later(60));
        say_line('the race is over, connected=', $connection->is_connected ? 1 : 0);
    },
    '/races' => async sub {
        my ($scope, $receive, $send) = @_;
        my $connection = $scope->{'pagi.connection'};
        for my $round (1 .. 3) {
            await Future->wait_any($connection->disconnect_future, later(0.01));
        }
        say_line('ready for the fourth race');
        my $future = $connection->disconnect_future;
        say_line('the fourth race is won by ',
            await Future->wait_any($future, later(60)->then(sub { Future->done('the timer') })));
        $future = $connection->disconnect_future;
        say_line('a fifth one would be won by ', $future->get, ' at once');
    },
    '/cancelled' => async sub {
        my ($scope, $receive, $send) = @_;
        my $connection = $scope->{'pagi.connection'};
        await Future->wait_any($connection->disconnect_future, later(0.01));
        my $left = Future->new;
        $connection->on_disconnect(sub { $left->done });
        say_line('ready to leave a cancelled one');
        await $left;
        say_line('after a cancelled one: ', $connection->disconnect_future->get);
    },
    '/keep' => async sub {
        my ($scope, $receive, $send) = @_;
        push @kept_all, [ @{$scope}{qw(pagi.connection pagi.transport path)}, $receive, $send ];
        await start($send);
        await body($send, 'kept');
    },
    '/kept' => async sub {
        my ($scope, $receive, $send) = @_;
        my @lines;
        for my $kept (@kept_all) {
            my ($connection, $transport, $path, $old_receive, $old_send) = @$kept;
            my $event = await $old_receive->();
            push @lines, join ' ', $connection->is_connected ? 1 : 0, $connection->response_complete,
                $event->{type},
                $transport->buffered_amount,
                $old_send->({ type => 'http.response.start', status => 200 })->is_failed ? 'failed' : 'done';
        }
        @kept_all = ();
        await start($send);
        await body($send, join "\n", @lines);
    },
    # A file waits for the client, and none of it is in memory.
    '/transport-file' => async sub {
        my ($scope, $receive, $send) = @_;
        my $transport = $scope->{'pagi.transport'};
        $transport->on_high_water(sub { say_line('file: high') });
        $transport->on_drain(sub { say_line('file: drain') });
        my $file = File::Temp->new;
        truncate $file, 9_000_000 or die "truncate: $!";
        await start($send);
        my $sent = $send->({ type => 'http.response.body', file => "$file" });
        say_line('file: pending ', $sent->is_ready ? 0 : 1);
        await $sent;
        say_line('file: sent');
    },
    '/transport' => async sub {
        my ($scope, $receive, $send) = @_;
        my $transport = $scope->{'pagi.transport'};
        say_line('marks: ', $transport->low_water_mark, ' ', $transport->high_water_mark);
        $transport->on_drain(sub {
            say_line("drain args=@_ below=",
                $transport->buffered_amount < $transport->low_water_mark ? 1 : 0);
        });
        $transport->on_high_water(sub {
            say_line("high args=@_ above=",
                $transport->buffered_amount >= $transport->high_water_mark ? 1 : 0);
        });
        my $piece = 'x' x 16_000_000;
        await start($send);
        my $future;

        for my $round (1 .. 50) {
            $future = body($send, $piece, 1);
            last if !$future->is_ready;
        }
        body($send, 'above', 1)->retain for 1 .. 3;
        $transport->on_high_water(sub { say_line('registered above, called') });
        await $future;
        say_line('resumed');
        await body($send, 'end');
    },
    '/bad' => async sub {
        my ($scope, $receive, $send) = @_;
        my $failure = eval { $scope->{'pagi.connection'}->on_complete('word'); 1 } ? 'none' : $@;
        await start($send);
        await body($send, $failure);
    },
    '/fine' => async sub { await start($_[2]); await body($_[2], 'fine'); return },
);

my $server = TestServer->start(
    write_high_watermark => 100_000,
    write_low_watermark  => 10_000,
    app                  => sub { $_[0]{type} eq 'http' ? $handlers{ $_[0]{path} }->(@_) : die "no\n" },
);
my $port = $server->port;

sub request {
    my ($path, @options) = @_;
    return TestClient->new($port, @options)->send("GET $path HTTP/1.1\r\nHost: h\r\n\r\n");
}

is(
    get($port, '/states')->{body},
    'x1 0 0 undef, 1 1 0 undef, 1 1 0 undef',
    'states before and while responding'
);
ok($server->wait_for_log(qr/^at completion: 0 1 1 undef$/m), '... and at completion');

subtest 'completion' => sub {
    get($port, '/complete');
    ok($server->wait_for_log(qr/^complete 1 args=\ncomplete 2\n.*complete 3\n/ms),
        'callbacks run in order, without arguments');
    like($server->log, qr/a callback died: in a callback/, '... one that dies is logged');
    ok(
        $server->wait_for_log(qr/^registered late, called$/m),
        'a callback that is registered late is called at once'
    );
};

subtest 'disconnect' => sub {
    my $client = request('/disconnect');
    ok($server->wait_for_log(qr/^ready to be left$/m), 'the application waits');
    $client->reset;
    ok($server->wait_for_log(qr/^same future: 1$/m), 'the application learns of the disconnect');
    my ($reason) = $server->log =~ /^order: first (\w+)/m;
    like($reason, qr/\A(?:client_closed|read_error)\z/, 'the reason is a standard one');
    my @order = $server->log =~ /^order: (.*)$/mg;
    is_deeply(
        \@order,
        [
            "future $reason connected=0",
            "first $reason ready=1",
            "second $reason",
            "third $reason",
            'receive http.disconnect'
        ],
        'state, Future, callbacks, event: in this order'
    );
    like($server->log, qr/^late: $reason$/m,        'a late callback is called at once');
    like($server->log, qr/^late future: $reason$/m, 'a late Future is ready');
    $client = request('/race');
    ok($server->wait_for_log(qr/^ready for a race$/m), 'another application waits');
    $client->reset;
    ok($server->wait_for_log(qr/^the race is over, connected=0$/m), 'the Future can be raced against');
    $client = request('/races');
    $server->wait_for_log(qr/^ready for the fourth race$/m);
    $client->reset;
    ok($server->wait_for_log(qr/^the fourth race is won by (?:client_closed|read_error)$/m),
        '... again after it has lost');
    ok($server->wait_for_log(qr/^a fifth one would be won by (?:client_closed|read_error) at once$/m),
        '... and when it has won');
    $client = request('/cancelled');
    $server->wait_for_log(qr/^ready to leave a cancelled one$/m);
    $client->reset;
    ok(
        $server->wait_for_log(qr/^after a cancelled one: (?:client_closed|read_error)$/m),
        'the Future after the disconnect is resolved, even if the one before it was cancelled'
    );
};

unlike($server->log, qr/must not happen/, 'never both kinds of callback');

subtest 'objects that are kept' => sub {
    get($port, '/keep') for 1 .. 3;
    my @lines = split /\n/, get($port, '/kept')->{body};
    is(scalar @lines, 3,                            'three were kept');
    is($_,            '0 1 http.disconnect 0 done', 'a kept one tells of its own request') for @lines;
};

subtest 'transport' => sub {
    my $client = request('/transport', receive_buffer => 65_536);
    ok($server->wait_for_log(qr/^marks: 10000 100000$/m),      'the marks are those of the options');
    ok($server->wait_for_log(qr/^high args= above=1$/m),       'on_high_water fires, without arguments');
    ok($server->wait_for_log(qr/^registered above, called$/m), '... at once if it comes late');
    unlike($server->log, qr/^drain/m, 'on_drain waits');
    is(scalar(() = $server->log =~ /^high/mg), 1, '... and on_high_water is not called again');
    ok($client->response->{body} =~ /x(?:above){3}end\z/,              'the client takes it all');
    ok($server->wait_for_log(qr/^drain args= below=1\n.*^resumed$/ms), 'on_drain fires before $send resumes');
};

subtest 'a file that waits is no memory' => sub {
    my $client = request('/transport-file', receive_buffer => 65_536);
    ok($server->wait_for_log(qr/^file: pending 1$/m), 'the client is slow');
    is(length $client->response->{body}, 9_000_000, '... and gets everything');
    ok($server->wait_for_log(qr/^file: sent$/m), '... which the application is told');
    unlike($server->log, qr/^file: (?:high|drain)$/m, 'no mark was passed');
};

like(get($port, '/bad')->{body}, qr/a callback must be a code reference/, 'a callback must be code');
is($server->stop, 0, 'the server ends well');
unlike($server->log, qr/application (?:died|ended)/, 'nothing died') or diag $server->log;

done_testing;
