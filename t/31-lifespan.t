# The lifespan protocol: startup with state, declining, failing, hanging, crashing later, shutdown.
use strict;
use warnings;

use lib 't/lib';
use Future;
use Future::AsyncAwait;
use IO::Async::Loop;
use JSON::PP ();
use PAGI::Server;
use PAGI::Server::Lifespan;
use PAGI::Server::Log;
use Test::More;
use TestClient qw(get);
use TestServer;

my $json = JSON::PP->new->canonical;

async sub respond {
    my ($send, $body) = @_;
    await $send->({ type => 'http.response.start', status => 200 });
    await $send->({ type => 'http.response.body',  body   => $body });
}

# An application with a lifespan half, given as code, and an http half that shows its state.
sub app_with {
    my ($lifespan) = @_;
    return async sub {
        my ($scope, $receive, $send) = @_;
        return await $lifespan->(@_) if $scope->{type} eq 'lifespan';
        my $state = exists $scope->{state} ? $json->encode($scope->{state}) : 'no state';
        $scope->{state}{private} = 1;
        await respond($send, $state);
    };
}

sub started_log {
    my ($lifespan, %options) = @_;
    my $server = TestServer->start(app => app_with($lifespan), %options);
    my $body   = get($server->port, '/')->{body};
    my $status = $server->stop;
    return ($body, $server->log, $status);
}

# Starts in this process and returns the message that listen failed with, and what was logged.
sub failed_start {
    my ($lifespan, %options) = @_;
    my $loop   = IO::Async::Loop->new;
    my $server = PAGI::Server->new(app => app_with($lifespan), port => 0, %options);
    my @warnings;
    local $SIG{__WARN__} = sub { push @warnings, @_ };
    $loop->add($server);
    my $message = eval { $server->listen->get; 1 } ? undef : "$@";
    my $running = $server->is_running;
    $server->shutdown->get if $running;
    $loop->remove($server);
    return ($message, join('', @warnings), $running);
}

subtest 'startup and shutdown' => sub {
    my ($body, $log, $status) = started_log(
        async sub {
            my ($scope, $receive, $send) = @_;
            print STDERR 'scope: ', $json->encode($scope),             "\n";
            print STDERR 'event: ', $json->encode(await $receive->()), "\n";
            $scope->{state}{answer} = 42;
            await $send->({ type => 'lifespan.startup.complete' });
            print STDERR 'event: ', $json->encode(await $receive->()), "\n";
            await $send->({ type => 'lifespan.shutdown.complete' });
            print STDERR "cleaned up\n";
        }
    );
    is($body, '{"answer":42}', 'requests see the state');
    like(
        $log,
        qr/^scope: \{"pagi":\{"is_worker":0,"spec_version":"0\.3","version":"0\.3"\},"state":\{\},"type":"lifespan"\}$/m,
        'the scope'
    );
    like(
        $log,
        qr/^event: \{"type":"lifespan\.startup"\}\n.*^event: \{"type":"lifespan\.shutdown"\}\ncleaned up$/ms,
        'the events in order'
    );
    is($status, 0, 'the server ends well');
};

subtest 'state is copied' => sub {
    my $server = TestServer->start(
        app => app_with(
            async sub {
                my ($scope, $receive, $send) = @_;
                $scope->{state}{shared} = { list => [] };
                await $send->({ type => 'lifespan.startup.complete' });
                await $receive->();
            }
        )
    );
    get($server->port, '/') for 1 .. 3;
    is(get($server->port, '/')->{body}, '{"shared":{"list":[]}}',
        'a key that one request adds no other sees');
    is($server->stop, 0, 'an application that returned before shutdown is not waited for');
};

subtest 'declined' => sub {
    for my $case (
        [ 'by dying', sub { die "not for me\n" }, qr/does not support lifespan \(it died: not for me\)/ ],
        [
            'by dying in async',
            async sub { die "not for me\n" },
            qr/does not support lifespan \(it died: not for me\)/
        ],
        [ 'by returning', async sub { return }, qr/does not support lifespan \(it returned\)/ ],
        [
            'as the README does',
            async sub { die "Unsupported protocol type: $_[0]{type}" },
            qr/^PAGI: the application does not support lifespan, and gets requests only$/m
        ],
        )
    {
        my ($name, $lifespan, $says)   = @$case;
        my ($body, $log,      $status) = started_log($lifespan);
        is($body, 'no state', "$name: the server starts, without state");
        like($log, $says, '... and says so');
        is($status, 0, '... and ends well');
        my ($message) = failed_start($lifespan, lifespan_mode => 'on');
        like($message, qr/Lifespan is required/, '... but not where lifespan is required');
    }
    my ($body, $log) = started_log(sub { print STDERR "asked\n"; die }, lifespan_mode => 'off');
    unlike($log, qr/asked/, 'with mode off it is not asked');
};

# An application that asks for the event knows lifespan, so its death is no refusal of the protocol.
subtest 'died during startup' => sub {
    my $lifespan = async sub { my (undef, $receive) = @_; await $receive->(); die "no database" };
    for my $options (
        [],
        [ quiet   => 1 ],
        [ workers => 2 ],
        [ workers => 2, quiet  => 1 ],
        [ workers => 1, engine => 'process' ]
        )
    {
        my ($body, $log, $status) = started_log($lifespan, @$options);
        is($body, 'no state', "@$options: the server starts, without state");
        like(
            $log,
            qr/the application died during lifespan startup, .*: no database at \S+31-lifespan\.t line \d+/,
            '... and the log has the error'
        );
        is($status, 0, '... and ends well');
    }
    my ($message) = failed_start($lifespan, lifespan_mode => 'on');
    like($message, qr/Lifespan is required .*: no database at \S+ line \d+/,
        'with mode on it does not start');
};

subtest 'failed' => sub {
    my ($message, $log, $running) = failed_start(
        async sub {
            my ($scope, $receive, $send) = @_;
            await $receive->();
            await $send->({ type => 'lifespan.startup.failed', message => 'no database' });
        }
    );
    like($message, qr/Lifespan startup failed: no database/, 'listen fails with the message');
    like($log,     qr/Lifespan startup failed: no database/, '... which is logged');
    ok(!$running, '... and nothing runs');
    ($message) = failed_start(async sub { await $_[2]->({ type => 'lifespan.startup.failed' }) });
    like($message, qr/Lifespan startup failed$/, 'a failure without a message');
    my $began = time;
    ($message) = failed_start(
        sub {
            $_[1]->()->then(sub { Future->new });
        },
        lifespan_startup_timeout => 0.1,
        shutdown_timeout         => 120
    );
    my $late = qr/Lifespan startup timed out after 0\.1s \(lifespan_startup_timeout\)/;
    like($message, $late, 'a startup that hangs times out');
    cmp_ok(time - $began, '<', 60, '... and has no more time after that');
};

subtest 'exit' => sub {
    my ($status, undef, $said) = TestServer->finish(qw(-E production --port 0 -e), 'sub { exit 7 }');
    is($status, 7, 'an application that calls exit ends the program');
    like(
        $said,
        qr/PAGI: the application has called exit at \S+ line 1: the server does not start$/m,
        '... and the log says so'
    );
};

subtest 'mistakes' => sub {
    my ($body, $log) = started_log(
        async sub {
            my ($scope, $receive, $send) = @_;
            for my $event ({ type => 'http.response.start' },
                {}, 'word', { type => 'lifespan.shutdown.complete' })
            {
                print STDERR 'failed: ' . $send->($event)->failure;
            }
            await $send->({ type => 'lifespan.startup.complete' });
            print STDERR 'failed: ' . $send->({ type => 'lifespan.startup.complete' })->failure;
            await $receive->();
            await $receive->();
            await $send->({ type => 'lifespan.shutdown.complete' });
        }
    );
    my @failed = $log =~ /^failed: (.*)$/mg;
    is(scalar @failed, 5, 'each fails its $send');
    like($failed[0], qr/unknown event type 'http\.response\.start'/,  'an event of another scope');
    like($failed[1], qr/no type/,                                     'an event without a type');
    like($failed[2], qr/hash reference/,                              'something else');
    like($failed[3], qr/lifespan\.shutdown\.complete: nothing waits/, 'an answer that nobody waits for');
    like($failed[4], qr/lifespan\.startup\.complete: nothing waits/,  '... or not any more');
    is($body, '{}', 'the server starts all the same');
};

subtest 'later' => sub {
    my ($body, $log, $status) = started_log(
        async sub {
            my ($scope, $receive, $send) = @_;
            await $send->({ type => 'lifespan.startup.complete' });
            await IO::Async::Loop->new->delay_future(after => 0.01);
            die "a background task\n";
        }
    );
    ok(defined $body, 'a crash after startup leaves the server running');
    is($status, 0, '... and ending well');
    for my $case (
        [
            'a failed shutdown',
            async sub { await $_[2]->({ type => 'lifespan.shutdown.failed', message => 'stuck' }) },
            qr/lifespan shutdown failed: stuck/
        ],
        [ 'a dying shutdown', async sub { die "at last\n" }, qr/died during lifespan shutdown: at last/ ],
        [
            'a hanging shutdown',
            sub { Future->new },
            qr/lifespan shutdown timed out after [12][.\d]*s \(shutdown_timeout\)/
        ],
        )
    {
        my ($name, $end,  $says) = @$case;
        my (undef, $text, $exit) = started_log(
            async sub {
                my ($scope, $receive, $send) = @_;
                await $receive->();
                await $send->({ type => 'lifespan.startup.complete' });
                await $receive->();
                await $end->($scope, $receive, $send);
            },
            shutdown_timeout => 2,
        );
        like($text, $says, "$name is logged");
        is($exit, 0, '... and the server ends');
    }
};

subtest 'an exception in the event loop' => sub {
    my $code = <<'CODE';
async sub {
    my ($scope, $receive, $send) = @_;
    my $loop = IO::Async::Loop->new;
    $loop->watch_time(after => 0.1, code => sub { die "a timer dies\n" });
    await $receive->();
    await $send->({ type => 'lifespan.startup.complete' });
    await $receive->();
    $loop->watch_time(after => 0, code => sub { die "another one\n" });
    await $loop->delay_future(after => 0.1);
    print STDERR "shutdown seen\n";
    await $send->({ type => 'lifespan.shutdown.complete' });
}
CODE
    my ($status, undef, $error) =
        TestServer->finish('--port', 0, '-MFuture::AsyncAwait', '-MIO::Async::Loop', '-e', $code);
    is($status, 1, 'it ends the process with status 1');
    like(
        $error,
        qr/^\S+ PAGI: an exception in the event loop, the server shuts down: a timer dies$/m,
        '... and is logged'
    );
    like(
        $error,
        qr/^\S+ PAGI: an exception in the event loop while the server shuts down: another one$/m,
        '... as others are'
    );
    like($error, qr/^shutdown seen$/m, '... after the lifespan shutdown');
    unlike($error, qr/starting server/, '... not as a failed start');
    my $endless = <<'CODE';
async sub {
    my ($scope, $receive, $send) = @_;
    my $loop = IO::Async::Loop->new;
    my $again; $again = sub { $loop->watch_time(after => 0.01, code => $again); die "again\n" };
    await $receive->();
    $loop->watch_time(after => 0, code => $again);
    await $send->({ type => 'lifespan.startup.complete' });
    await Future->new;
}
CODE
    ($status, undef, $error) =
        TestServer->finish('--port', 0, '-MFuture::AsyncAwait', '-MIO::Async::Loop', '-e', $endless);
    is($status, 1,
        'exceptions without end, and an application that does not answer: the process ends all the same');
};

# A timer, and what it needs, would have each forked interpreter copy pages of its template.
subtest 'a timer limits the startup of an application that has not answered at once' => sub {
    my $loop  = IO::Async::Loop->new;
    my $gate  = $loop->new_future;
    my $watch = $loop->can('watch_time');
    my $timed = 0;
    no strict 'refs';    ## no critic
    no warnings 'redefine';
    local *{ ref($loop) . '::watch_time' } = sub { $timed++; return $watch->(@_) };
    my $starting = sub {
        my ($waits_for) = @_;
        my $app = async sub {
            my ($scope, $receive, $send) = @_;
            await $receive->();
            await $waits_for if $waits_for;
            await $send->({ type => 'lifespan.startup.complete' });
        };
        my $log      = PAGI::Server::Log->new;
        my $lifespan = PAGI::Server::Lifespan->new(app => $app, loop => $loop, log => $log, mode => 'on');
        return ($lifespan, $lifespan->startup(30, 30));
    };
    my ($quick, $started) = $starting->();
    is($started->get, 1, 'the application that answers at once has started');
    is($timed,        0, '... without a timer');
    my ($slow, $waits) = $starting->($gate);
    is($timed, 1, 'the other one has a timer');
    ok(!$waits->is_ready, '... and has not started');
    $gate->done;
    is($waits->get, 1, '... before its answer comes');
};

done_testing;
