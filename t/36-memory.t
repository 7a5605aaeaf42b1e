# A process that may not take more memory: partial heads and bodies of hundreds of connections are refused
# before it runs out of it.
use strict;
use warnings;

use lib 't/lib';
use Errno      qw(EAGAIN);
use File::Temp ();
use IO::Socket::IP;
use OnlyInFull qw(only_in_full);
use POSIX      qw(WNOHANG);
use Test::More;
use Time::HiRes qw(sleep time);

use TestClient;
use TestHPACK    ();
use TestHTTP2    ();
use TestPrepared ();
use TestServer;
use TestTools qw(not_repeated patience wait_for);

# Memory that is common to processes counts, and a program that was forked has it with others.
TestPrepared::leave_out();

# The number of connections fits the usual limit on open files, together with the files of a test.
my ($CONNECTIONS, $BODY, $HEAD) = (900, 300_000, 7_000);

# /collect puts the whole body together, /wait never looks at it, /stats tells the engine's counters.
my $app = File::Temp->new(SUFFIX => '.pl');
print {$app} <<'APP';
use strict;
use warnings;
use Future::AsyncAwait;
use PAGI::Server;
my ($server, $listen) = (undef, PAGI::Server->can('listen'));
{ no warnings 'redefine'; *PAGI::Server::listen = sub { $server = $_[0]; $listen->(@_) } }
async sub {
    my ($scope, $receive, $send) = @_;
    die "unsupported\n" if $scope->{type} ne 'http';
    my $body = '';
    if ($scope->{path} eq '/collect') {
        while (1) {
            my $event = await $receive->();
            return if $event->{type} ne 'http.request';
            $body .= $event->{body};
            last if !$event->{more};
        }
        $body = length $body;
    }
    await Future->new if $scope->{path} eq '/wait';
    if ($scope->{path} eq '/stats') {
        my $stats = $server->{part}->engine->worker->stats;
        $body = "$stats->{shed} $stats->{memory_max}";
    }
    await $send->({ type => 'http.response.start', status => 200, headers => [] });
    await $send->({ type => 'http.response.body', body => $body });
}
APP
close $app;

# The command under a limit of address space, in KiB.
sub start {
    my ($limit, @options) = @_;
    my $server = TestServer->spawn(
        'sh',              '-c', qq{ulimit -v $limit; exec "\$@"},
        'sh',              $^X, (map { "-I$_" } @INC),
        'bin/pagi-server', qw(--port 0 --env production --no-access-log --shutdown-timeout 1),
        @options,          $app->filename
    );
    $server->{port} = $server->wait_for_log(qr{listening on http://\S+:(\d+)}) or die $server->log;
    return $server;
}

# Opens connections that send partial heads and bodies, in turn, and asks for something else meanwhile.
# Returns the number of connections that ended in each way.
sub attack {
    my ($server, $path) = @_;
    local $SIG{PIPE} = 'IGNORE';
    my %part = (
        head => "GET / HTTP/1.1\r\nHost: h\r\nX: " . 'h' x $HEAD,
        body => "POST $path HTTP/1.1\r\nHost: h\r\nContent-Length: 9000000\r\n\r\n" . 'b' x $BODY,
    );
    my @clients;
    for my $number (1 .. $CONNECTIONS) {
        my $socket = IO::Socket::IP->new(PeerHost => '127.0.0.1', PeerPort => $server->port) or last;
        $socket->blocking(0);
        my $kind = $number % 2 ? 'head' : 'body';
        push @clients, { socket => $socket, kind => $kind, left => $part{$kind}, got => '' };
    }
    my %others = (asked => 0, served => 0);
    my ($end, $ask_at, $still) = (time + patience(60), 0, 0);
    while (time < $end) {
        my $moved = grep { _go_on($_) } @clients;
        if (time >= $ask_at) {
            $others{asked}++;
            my $answer = eval { TestClient::get($server->port, '/') };
            $others{served}++ if $answer && $answer->{status} == 200;
            $ask_at = time + 0.1;
        }
        $still = $moved ? 0 : $still + 1;
        last       if $still > 50;
        sleep 0.01 if !$moved;
    }
    my %became = (open => 0, cut => 0);
    for my $client (@clients) {
        my ($status) = $client->{got} =~ m{\AHTTP/1\.1 (\d+) };
        $became{ $status || ($client->{ended} ? 'cut' : 'open') }++;
    }
    return (\%became, \%others, \@clients);
}

# Sends and reads as much as goes without waiting; returns whether any byte moved.
sub _go_on {
    my ($client) = @_;
    return 0 if $client->{ended};
    my $written = length $client->{left} ? syswrite $client->{socket}, $client->{left}, 65_536 : 0;
    substr $client->{left}, 0, $written, '' if $written;
    my $read = sysread $client->{socket}, $client->{got}, 4096, length $client->{got};
    if (defined $read ? $read == 0 : $! != EAGAIN) {
        $client->{ended} = 1;
        close $client->{socket};
    }
    return $written || $read || $client->{ended};
}

# Threads would reserve address space of their own for what they allocate, which may be more than the room
# that is left here.
local $ENV{MALLOC_ARENA_MAX} = 1;

# The address space of an idle server, in KiB. It has all its threads once it has answered a request.
my $idle = start('unlimited');
TestClient::get($idle->port, '/stats');
my ($base) = TestTools::content('/proc/' . $idle->pid . '/status') =~ /^VmSize:\s+(\d+) kB/m;
undef $idle;

# Less room below the limit than the bodies need that the application collects, or the engine holds, in KiB.
for my $case ([ '/collect' => 50_000 ], [ '/wait' => 12_000 ]) {
    my ($path, $below) = @$case;
    my $room = int(($base + $below) / 0.75) - $base;
    subtest "partial heads and bodies, for $path" => sub {
        my $server = start($base + $room);
        my $limit  = 768 * ($base + $room);
        like(
            $server->log,
            qr/memory_max: ${\sprintf '%.0f', $limit \/ 1e6} MB,/,
            'three quarters of the address space'
        );
        my ($became, $others, $clients) = attack($server, $path);
        note join ', ', map { "$_: $became->{$_}" } sort keys %$became;
        is(waitpid($server->pid, WNOHANG), 0, 'the process lives');
        cmp_ok($others->{asked}, '>', 3, 'other clients asked meanwhile');
        is($others->{served}, $others->{asked}, '... and were served');
        my $refused = ($became->{413} // 0) + ($became->{503} // 0);
        cmp_ok($refused,        '>', 50, 'requests were refused');
        cmp_ok($became->{open}, '>', 50, '... and not all of them');
        is($became->{cut}, 0, '... with a word');
        my ($stats) = map { $_->{body} } grep { $_ } eval { TestClient::get($server->port, '/stats') };
        my ($shed, $max) = split / /, $stats // '';
        is($shed, $refused, 'statistics have them');
        is($max,  $limit,   '... and the limit');
        close $_->{socket} for @$clients;
        my $answer;

        for (my $end = time + patience(60); time < $end; sleep 0.02) {
            $answer = TestClient::post($server->port, '/collect', 'x' x 1_000_000);
            last if $answer->{status} == 200;
        }
        is($answer->{body}, 1_000_000, 'when they are gone a larger body is taken');

        # Until the server has seen that they are gone, it refuses the new body, or cuts some of them.
        my ($all) = split / /, TestClient::get($server->port, '/stats')->{body};
        $server->stop;
        my ($told, %seconds) = (0);
        $told += $_
            for $server->log =~ /refused or cut: (\d+)$/mg,
            $server->log =~ /(\d+) more requests were refused/g;
        is($told, $all, 'the log tells of each');
        $seconds{$_}++ for $server->raw_log =~ /^(\S+) .*refused or cut: /mg;
        cmp_ok((sort { $b <=> $a } values %seconds)[0], '<=', 2, '... once a second');
        unlike($server->log, qr/Out of memory/, 'memory did not run out');
    };
}

subtest 'the limit is shown, given, or none' => sub {
    my ($status, $out) = TestServer->finish('--check', '--memory-max', '500M', $app->filename);
    like($out, qr/^.*memory: at most 524 MB$/m, '--check tells of it');
    my $server = TestServer->command('--env', 'production', '--memory-max', '1G', $app->filename);
    like($server->log, qr/memory_max: 1074 MB,/, 'a given one');
    is((split / /, TestClient::get($server->port, '/stats')->{body})[1], 1 << 30, '... is in force');
    $server = start($base + 1_000_000, '--memory-max', '0');
    like($server->log, qr/memory_max: none,/, '0: none');
};

subtest 'workers with an engine each have a part of the limit' => sub {
    my @options = qw(--env production --engine inline --workers 2 --memory-max 34M);
    my $server  = TestServer->command(@options, '-e', 'my $data; sub { $data = "x" x 40_000_000; die }');
    like($server->log, qr/memory_max: 18 MB,/, 'it is shown');
    ok(
        wait_for(sub {
            TestClient::get($server->port, '/');
            return $server->log =~ / MB are in use, memory_max is 17 MB/;
        }),
        '... and in force'
    );
    $server->stop;
};

# A part of 64 MB, of which connections get 8 MB wherever the process holds more.
subtest 'memory that a process shares with others counts as theirs, too' => sub {
    plan skip_all => 'the kernel does not tell' if !-r '/proc/self/smaps_rollup';
    my $large = File::Temp->new(SUFFIX => '.pl');
    print {$large} "our \$data = 'x' x 100_000_000;\n", TestTools::content($app->filename);
    close $large;
    my @options = qw(--env production --engine inline --workers 4 --memory-max 256M --preload-app);
    my $server  = TestServer->command(@options, $large->filename);
    ok(
        wait_for(sub {
            4 == grep { /\(worker \d\)/ }
                map { TestTools::content("/proc/$_/cmdline") // '' } $server->family;
        }),
        'all workers are there'
    );
    # A worker may have asked the kernel when it was alone, and asks again after a while.
    my $upload = sub {
        my $answer = TestClient::post($server->port, '/collect', 'x' x 9_500_000);
        return "$answer->{status} $answer->{body}" eq '200 9500000';
    };
    ok(wait_for($upload), 'an upload has room beside a shared application');
    $server->stop;
};

# Clients of HTTP/2 whose windows are empty: what all streams of a connection hold counts, and those that ask
# for little are served as ever. `$app`: what makes a body of its own of 4 MB for each request.
sub hold_with_streams {
    my ($name, $program, $app, @options) = @_;
    subtest "windows of nothing: $name" => sub {
        my $limit  = 300;
        my $server = TestServer->command_of($program, '--http2', '--env', 'production', '--no-access-log',
            '--memory-max', "${limit}M", '--shutdown-timeout', 1, @options, $app);
        my (@holders, %status);
        for (1 .. 4) {
            my $h2 = TestHTTP2->new($server->port, settings => [ 4, 0 ], manual => 1);
            $h2->pour(join '', map { _request_frame($h2, '/large') } 1 .. 50);
            push @holders, $h2;
            my $answer = TestClient::get($server->port, '/');
            $status{ $answer->{status} }++;
        }
        is_deeply(\%status, { 200 => 4 }, 'a client that holds nothing is served');
        ok(
            wait_for(sub { $server->log =~ /memory_max is \d+ MB: requests that were refused or cut: \d+/ }),
            'the log says so'
        ) or diag $server->log;
        unlike($server->log, qr/at capacity/, '... and not another reason');
        my @peaks = map { TestTools::content("/proc/$_/status") =~ /^VmHWM:\s+(\d+) kB/m } $server->family;
        cmp_ok($_, '<', 1.25 * 1024 * $limit, 'memory stays at the limit') for @peaks;
        my %reset;
        for my $h2 (@holders) {
            $h2->{client}{timeout} = patience(1);
            1 while $h2->next_frame;
            $reset{ $_->{reset} // 'none' }++ for values %{ $h2->{streams} };
        }
        note join ', ', map { "$_: $reset{$_}" } sort keys %reset;
        cmp_ok($reset{ENHANCE_YOUR_CALM} // 0, '>', 50, 'streams are reset');
        is(delete($reset{INTERNAL_ERROR}), undef, '... for that reason');
        $server->stop;
    };
    return;
}

sub _request_frame {
    my ($h2, $path) = @_;
    return TestHTTP2::frame(
        TestHTTP2::HEADERS, TestHTTP2::END_HEADERS | TestHTTP2::END_STREAM,
        $h2->next_id,       TestHPACK::block(TestHTTP2::request_fields($path))
    );
}

my $large_pagi = File::Temp->new(SUFFIX => '.pl');
print {$large_pagi} <<'APP';
use Future::AsyncAwait;
my $count = 0;
async sub {
    my ($scope, $receive, $send) = @_;
    die "unsupported\n" if $scope->{type} ne 'http';
    my $body = $scope->{path} eq '/large' ? chr(65 + $count++ % 26) x 4_000_000 : 'small';
    await $send->({ type => 'http.response.start', status => 200, headers => [] });
    await $send->({ type => 'http.response.body',  body   => $body, more => 1 });
    await $send->({ type => 'http.response.body',  body   => '' });
};
APP
close $large_pagi;
my $large_psgi = File::Temp->new(SUFFIX => '.psgi');
print {$large_psgi} <<'APP';
my $count = 0;
sub {
    my ($env) = @_;
    [ 200, [], [ $env->{PATH_INFO} eq '/large' ? chr(65 + $count++ % 26) x 4_000_000 : 'small' ] ];
};
APP
close $large_psgi;

hold_with_streams(@$_)
    for not_repeated(
    only_in_full(
        [ 'PAGI',                     'pagi-server', $large_pagi->filename, qw(--engine inline) ],
        [ 'PAGI, engine on a thread', 'pagi-server', $large_pagi->filename, qw(--engine thread) ],
    ),
    [ 'PSGI',                      'peregrine',   $large_psgi->filename, qw(--engine inline) ],
    [ 'PAGI, engine in a process', 'pagi-server', $large_pagi->filename, qw(--engine process --workers 2) ],
    );

done_testing;
