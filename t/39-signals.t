# Every signal that a server takes, in each way of running one: by itself, with workers, in the background,
# under Server::Starter; and with workers that come from a template.
use strict;
use warnings;

use lib 't/lib';
use OnlyInFull qw(crossed);
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools   qw(content patience program_path wait_for);
use TestWorkers qw(are_gone children directory is_gone pid_in write_file);
use Time::HiRes qw(sleep);

my $starter = program_path('start_server');
my $dir     = directory();

# The application answers with its process; /long takes longer than any test waits.
my $app = write_file('app.pl', <<'APP');
use Future::AsyncAwait;
use IO::Async::Loop;
async sub {
    my ($scope, $receive, $send) = @_;
    die "no lifespan\n" if $scope->{type} eq 'lifespan';
    if ($scope->{path} eq '/long') {
        print STDERR "begun in $$\n";
        await IO::Async::Loop->new->delay_future(after => 1000);
    }
    await $send->({ type => 'http.response.start', status => 200 });
    await $send->({ type => 'http.response.body', body => $$ });
};
APP

my $count = 0;

# Starts a server in a mode: { child, name, mode }; the process is in a pid file.
sub start {
    my ($mode)  = @_;
    my $name    = $mode . ++$count;
    my @command = (
        $^X, (map { "-I$_" } @INC),
        qw(bin/pagi-server -E production --shutdown-timeout 300),
        '--pid'        => "$dir/$name.pid",
        '--error-log'  => "$dir/$name.log",
        '--access-log' => "$dir/$name.access",
        ($mode eq 'single' ? () : qw(--workers 2)), $mode eq 'daemonised' ? '--daemonize' : (),
        $mode eq 'preloaded' ? '--preload-app' : (),
        $mode eq 'starter' ? () : qw(--port 0), $app
    );
    unshift @command, $starter, '--port=127.0.0.1:0', '--' if $mode eq 'starter';
    return { child => TestServer->spawn(@command), name => $name, mode => $mode };
}

sub logged {
    my ($run, $pattern) = @_;
    my $file = "$dir/$run->{name}.log";
    return wait_for(sub { content($file) =~ $pattern });
}

# Waits until the server serves.
sub serves {
    my ($run) = @_;
    # Waits long, because all servers start at the same time, on a machine that may be busy.
    my $started = 0;
    for (1 .. 4) { last if $started = logged($run, qr/listening on/) }
    $started or diag content("$dir/$run->{name}.log"), $run->{child}->log;
    ($run->{port}) = content("$dir/$run->{name}.log") =~ m{listening on http://127\.0\.0\.1:(\d+)/};
    return $run->{pid} = pid_in("$run->{name}.pid");
}

sub signal {
    my ($run, $name) = @_;
    $run->{pid} or return;
    kill $name => $run->{pid};
    return;
}

# The processes that serve: the workers, or the process itself.
sub serving {
    my ($run) = @_;
    my @workers = grep { content("/proc/$_/cmdline") !~ /\(template\)/ } children($run->{pid});
    return @workers ? @workers : $run->{pid};
}

sub are_new {
    my ($run, $wanted, @before) = @_;
    my %before = map { $_ => 1 } @before;
    return wait_for(sub {
        my @now = serving($run);
        return @now == $wanted && !grep { $before{$_} } @now;
    });
}

# Each: what the signal does, by mode. All at one server per mode, in this order.
my @TABLE = (
    [ USR1 => 'opens logs anew',  \&reopens ],
    [ HUP  => 'replaces workers', { single => qr/SIGHUP: nothing to do/, else => \&replaces } ],
    [
        TTIN => 'adds a worker',
        { single => qr/SIGTTIN: nothing to do/, else => sub { becomes($_[0], 'TTIN', 3) } }
    ],
    [
        TTOU => 'removes a worker',
        { single => qr/SIGTTOU: nothing to do/, else => sub { becomes($_[0], 'TTOU', 2) } }
    ],
    [
        USR2 => 'starts the program anew',
        {
            single  => qr/SIGUSR2: nothing to do/,
            starter => qr/SIGUSR2: nothing to do: .*Server::Starter.*HUP/,
            else    => \&takes_over
        }
    ],
);

sub reopens {
    my ($run) = @_;
    my ($access, $errors) = map { "$dir/$run->{name}.$_" } qw(access log);
    get($run->{port}, '/before');
    ok(wait_for(sub { content($access) =~ m{/before} }), 'a request is in the access log');
    rename $_, "$_.1" or die $! for $access, $errors;
    signal($run, 'USR1');
    ok(wait_for(sub { -e $access && -e $errors }), '... there are new files');
    ok(wait_for(sub { get($run->{port}, '/after'); content($access) =~ m{/after} }),
        '... which are written to');
    return;
}

sub replaces {
    my ($run) = @_;
    my @before = serving($run);
    signal($run, 'HUP');
    ok(are_new($run, 2, @before), '... all of them, by as many');
    return;
}

sub becomes {
    my ($run, $signal, $wanted) = @_;
    signal($run, $signal);
    ok(wait_for(sub { serving($run) == $wanted }), "... there are $wanted");
    return;
}

sub takes_over {
    my ($run) = @_;
    my $old = $run->{pid};
    signal($run, 'USR2');
    ok(wait_for(sub { pid_in("$run->{name}.pid") != $old }), '... another process is in the pid file');
    ok(wait_for(sub { is_gone($old) }),                      '... the old one goes');
    $run->{pid} = pid_in("$run->{name}.pid");
    return;
}

sub applies {
    my ($run, $signal, $does) = @_;
    my $mode = $run->{mode};
    $does = $does->{$mode} // $does->{else} if ref $does eq 'HASH';
    if (ref $does eq 'Regexp') {
        my $before = $run->{pid};
        my @before = serving($run);
        signal($run, $signal);
        ok(logged($run, $does), '... says that it has no effect');
        is_deeply([ sort(serving($run)) ], [ sort @before ], '... and all processes are the same');
        return;
    }
    return $does->($run);
}

my @STOP  = qw(TERM INT QUIT);
my @MODES = (qw(single prefork daemonised preloaded), $starter ? 'starter' : ());

# All servers start at the same time.
my %RUN = map { $_ => start($_) } @MODES;
my %STOPS;
$STOPS{ $_->[0] }{ $_->[1] } = start($_->[0]) for crossed(\@MODES, \@STOP);

for my $mode (@MODES) {
    my $run = $RUN{$mode};
    ok(serves($run), "$mode: it serves") or next;
    for my $line (@TABLE) {
        my ($signal, $what, $does) = @$line;
        subtest "$mode: $signal $what" => sub {
            applies($run, $signal, $does);
            is(get($run->{port}, '/')->{status}, 200, '... it serves');
        };
    }
}

# Ends the server; Server::Starter is told, or starts another one.
sub ends {
    my ($run, @processes) = @_;
    ok(wait_for(sub { are_gone(@processes) }), '... no process is left');
    return is($run->{child}->wait, 0, '... it ends well') if $run->{mode} ne 'starter';
    ok(wait_for(sub { my $new = pid_in("$run->{name}.pid"); $new && $new != $run->{pid} }),
        '... Server::Starter starts another one');
    $run->{child}->signal('TERM');
    ok(defined $run->{child}->wait, '... and ends all on TERM');
    return;
}

for my $mode (@MODES) {
    for my $signal (grep { $STOPS{$mode}{$_} } @STOP) {
        my $run = $STOPS{$mode}{$signal};
        subtest "$mode: $signal stops, a second one does not wait" => sub {
            ok(serves($run), 'the server serves') or return;
            my @processes = ($run->{pid}, children($run->{pid}));
            my $client    = TestClient->new($run->{port})->send("GET /long HTTP/1.1\r\nHost: h\r\n\r\n");
            ok(logged($run, qr/begun in/), 'a request is in flight');
            signal($run, $signal);
            ok(logged($run, qr/SIG$signal: the server stops/), 'the log says that it stops');
            ok(!is_gone($run->{pid}),                          '... not before the request is answered');
            signal($run, $signal);
            ends($run, @processes);
            ok(!defined $client->response,  '... the client is cut off');
            ok(!-e "$dir/$run->{name}.pid", '... the pid file is gone') if $mode ne 'starter';
        };
    }
}

for my $run (values %RUN) {
    next if !$run->{pid};
    my $pid = $run->{mode} eq 'starter' ? $run->{child}->pid : $run->{pid};
    kill TERM => $pid;
    ok(wait_for(sub { is_gone($pid) || $run->{child}->wait(0.1) // 0 }),
        "$run->{mode}: TERM ends what is left");
}

# The loop looks for signals only in some turns, in which it also waits; it must not wait for ever.
subtest 'a signal in any turn' => sub {
    local $ENV{IO_ASYNC_LOOP} = 'Peregrine';
    my $signals = 0;
    my $server  = TestServer->start(
        psgi => 1,
        app  => sub {
            IO::Async::Loop->new->attach_signal(USR2 => sub { write_file('signals', $signals) })
                if !$signals++;
            kill USR2 => $$;
            return [ 200, [], [] ];
        }
    );
    my $client = TestClient->new($server->port);
    my $missed;
    for my $number (1 .. 130) {
        $client->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")->response;
        next if wait_for(sub { content("$dir/signals") eq $number }, 10);
        $missed = $number;
        last;
    }
    is $missed,       undef, 'comes to the loop';
    is $server->stop, 0,     'the server stops';
};

done_testing;
