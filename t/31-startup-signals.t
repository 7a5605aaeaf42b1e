# Signals that come while the application starts: the addresses are bound, nothing is served yet.
use strict;
use warnings;

use lib 't/lib';
use File::Temp qw(tempdir);
use Test::More;
use TestClient qw(get);
use TestServer;

my $dir = tempdir(CLEANUP => 1);
my $app = "$dir/app.pl";

# The application's startup lasts until a file exists; with BLOCK the startup then blocks for a moment.
open my $out, '>', $app or die "$app: $!";
print {$out} <<'APP';
use Future::AsyncAwait;
use IO::Async::Loop;
async sub {
    my ($scope, $receive, $send) = @_;
    if ($scope->{type} eq 'http') {
        await $send->({ type => 'http.response.start', status => 200 });
        return await $send->({ type => 'http.response.body', body => 'served' });
    }
    await $receive->();
    print STDERR "starting\n";
    if ($ENV{BLOCK}) {
        my $end = time + 1;
        select undef, undef, undef, 0.1 while time <= $end;
    }
    until (-e $ENV{GO}) { await IO::Async::Loop->new->delay_future(after => 0.02) }
    await $send->({ type => 'lifespan.startup.complete' });
    my $event = await $receive->();
    print STDERR "got $event->{type}\n";
    await $send->({ type => 'lifespan.shutdown.complete' });
};
APP
close $out or die "$app: $!";

sub go {
    my ($file) = @_;
    open my $handle, '>', $file or die "$file: $!";
    return;
}

sub starting {
    my (@arguments) = @_;
    my $server = TestServer->spawn(
        $^X,
        (map { "-I$_" } @INC),
        qw(bin/pagi-server -E production --port 0),
        @arguments, $app
    );
    ok($server->wait_for_log(qr/^starting$/m), 'the application is starting');
    return $server;
}

for my $loop (qw(Peregrine Poll Select)) {
    for my $name (qw(TERM INT QUIT)) {
        subtest "$name with $loop" => sub {
            local $ENV{GO} = "$dir/never";
            my $server = starting('--loop', $loop);
            is($server->signal($name)->wait, 0, 'the server ends with status 0');
            like($server->log, qr/SIG$name: the server stops\n.*startup is cancelled/, '... and says why');
            unlike(
                $server->log,
                qr/listening|got|Error|error|lost its/,
                '... without having served, and without a complaint'
            );
        };
    }
}

subtest 'signals that stop nothing' => sub {
    local $ENV{GO} = "$dir/go";
    my $log    = "$dir/access.log";
    my $server = starting('--access-log', $log);
    my %says   = (
        HUP  => qr/SIGHUP: .*no listener speaks TLS/,
        USR2 => qr/SIGUSR2: .*has no workers/,
        TTIN => qr/SIGTTIN: .*add a worker/,
        TTOU => qr/SIGTTOU: .*remove a worker/,
    );
    for my $name (sort keys %says) {
        ok($server->signal($name)->wait_for_log($says{$name}), "$name says what it is for");
    }
    rename $log, "$log.1" or die "$log: $!";
    $server->signal('USR1');
    my $end = time + 20;
    select undef, undef, undef, 0.02 while !-e $log && time < $end && $server->is_running;
    ok(-e $log, 'USR1 opens the access log anew');
    go($ENV{GO});
    my $port = $server->wait_for_log(qr/listening on \S+:(\d+)/);
    is(get($port, '/')->{body}, 'served', 'the server starts');
    is($server->stop,           0,        '... and stops as ever');
    like($server->log, qr/got lifespan\.shutdown/, '... with its shutdown');
};

subtest 'while the startup blocks' => sub {
    local $ENV{GO}    = "$dir/go";
    local $ENV{BLOCK} = 1;
    my $server = starting();
    is($server->signal('TERM')->wait, 0, 'a stop waits for the end of what blocks');
    like($server->log, qr/SIGTERM: the server stops/, '... and is carried out then');
};

subtest 'shutdown in a program that runs the loop itself' => sub {
    require IO::Async::Loop;
    require PAGI::Server;
    my $loop    = IO::Async::Loop->new;
    my $started = 0;
    my $startup;
    my $server = PAGI::Server->new(
        port  => 0,
        quiet => 1,
        app   => sub {
            my ($scope, $receive) = @_;
            return $receive->()->then(sub { $started++; $startup = $loop->new_future });
        }
    );
    $loop->add($server);
    my $listening = $server->listen;
    is($started, 1, 'the application is starting');
    my $stopping = $server->shutdown;
    ok(!$stopping->is_ready, 'a shutdown waits for the end of the startup');
    is($server->shutdown, $stopping, '... and is the same one for whoever asks again');
    $_->await for $stopping, $listening;
    is(($listening->failure)[1], 'stopped', 'listen fails with a category of its own');
    ok($startup->is_cancelled, 'the application is cancelled');
    ok(!$server->is_running,   'nothing is served');
    $loop->later(sub { $server->shutdown });
    ok(!$server->start, 'start is false then');
    $loop->remove($server);
};

# Each worker says who it is, and loads for longer than anybody would wait.
subtest 'TERM while workers load' => sub {
    my $slow = "$dir/slow.pl";
    open my $code, '>', $slow or die "$slow: $!";
    print {$code} q{print STDERR "loading in $$\n"; sleep 100; sub { die "no\n" }};
    close $code or die "$slow: $!";
    my $server = TestServer->spawn(
        $^X,
        (map { "-I$_" } @INC),
        qw(bin/pagi-server -E production --port 0 --workers 2), $slow
    );
    ok($server->wait_for_log(qr/^loading in \d+\n.*^loading in \d+\n/ms), 'two workers are loading');
    my @pids = $server->log =~ /^loading in (\d+)$/mg;
    is($server->stop,                       0, 'the master stops at once');
    is(scalar(grep { kill 0 => $_ } @pids), 0, '... and no worker is left');
    unlike($server->log, qr/the master has gone/, '... or noticed that too late');
};

done_testing;
