# The engine in a process of its own, and workers that join it (--engine process): what one of them does, or
# what becomes of it, costs its own requests at most, and no connection.
# Not repeated for each PEREGRINE_ENGINE: its servers name their engines.
use strict;
use warnings;

use lib 't/lib';
use Certificates;
use Fcntl qw(F_SETFD);
use IO::Select;
use IO::Socket::INET;
use List::Util qw(max);
use OnlyInFull qw(only_in_full);
use Peregrine;
use MIME::Base64 qw(decode_base64);
use Test::More;
use TestClient qw(get);
use TestHTTP2;
use TestServer;
use TestTools qw(content is_emulated patience wait_for);
use TestWebSocket;
use TestWorkers qw(are_gone children directory write_file);

plan skip_all => 'Linux only' if $^O ne 'linux';

my $dir = directory();

# The application answers with its process. /wait takes until a file exists.
my $psgi = write_file('app.psgi', <<"APP");
my %DO = (
    '/wait' => sub { select undef, undef, undef, 0.02 until -e '$dir/go' },
    '/kill' => sub { kill KILL => \$\$; sleep 5 },
    '/die'  => sub { die "on purpose\\n" },
    '/echo' => sub { local \$/; my \$in = \$_[0]{'psgi.input'}; return length readline \$in },
);
sub {
    my (\$env) = \@_;
    my \$do = \$DO{ \$env->{PATH_INFO} };
    if (\$env->{PATH_INFO} eq '/file') {
        open my \$in, '<', __FILE__ or die;
        return [ 200, [ 'Content-Length' => -s \$in ], \$in ];
    }
    return [ 200, [ 'Content-Type' => 'text/plain' ], [ "\$\$ ", \$do ? \$do->(\$env) : '' ] ];
};
APP

my $ask = "GET %s HTTP/1.1\r\nHost: h\r\n\r\n";

# The response to a request on a connection that stays.
sub asked {
    my ($client, $path) = @_;
    $client->send(sprintf $ask, $path);
    return $client->response || { status => 'none', body => '' };
}

sub is_served {
    my ($client) = @_;
    my $response = asked($client, '/');
    return 1 if $response->{status} eq '200';
    fail("a request on a connection that stays: $response->{status}");
    return 0;
}

subtest 'the names of processes in ps' => sub {
    plan skip_all => '/proc shows the emulator of this processor' if is_emulated();
    my $server = TestServer->spawn(
        $^X,
        (map { "-I$_" } @INC),
        qw(bin/peregrine --engine process --workers 1 --listen 127.0.0.1:0 --status),
        "$dir/status", $psgi
    );
    my %shown;
    wait_for(sub {
        %shown = map { ((content("/proc/$_/cmdline") // '') =~ /\((\w+(?: \d+)?)\)\0*\z/)[0] // 'bare' => 1 }
            children($server->pid);
        return keys %shown == 3 && !$shown{bare};
    });
    is_deeply([ sort keys %shown ], [ 'engine', 'status', 'worker 1' ], 'which process is which');
    $server->stop;
};

# Code that each worker loads is memory of its own.
subtest 'workers of a template load nothing more' => sub {
    my $app = write_file('loads.psgi', <<'APP');
my %before = %INC;
sub { return [ 200, [], [ join ' ', 'later:', grep { !$before{$_} } sort keys %INC ] ] };
APP
    my $server = TestServer->spawn(
        $^X,
        (map { "-I$_" } @INC),
        qw(bin/peregrine --engine process --workers 1 --preload-app --listen 127.0.0.1:0), $app
    );
    my $port = $server->wait_for_log(qr{listening on http://127\.0\.0\.1:(\d+)/}) or die $server->log;
    is(get($port, '/')->{body}, 'later:', 'all that it needs to answer is loaded before');
    $server->stop;
};

subtest 'PSGI' => sub {
    my $server = TestServer->spawn(
        $^X,
        (map { "-I$_" } @INC),
        qw(-S plackup -s Peregrine -E deployment --engine process --workers 2 --listen 127.0.0.1:0), $psgi
    );
    my $port = $server->wait_for_log(qr{listening on http://127\.0\.0\.1:(\d+)/}) or die $server->log;
    my $kept = TestClient->new($port);
    my $busy = TestClient->new($port)->send(sprintf $ask, '/wait');
    is(asked($kept, '/')->{status}, 200, 'while one worker is busy') for 1 .. 20;
    my ($idle) = split ' ', asked($kept, '/')->{body};
    write_file('go', '');
    my ($other) = split ' ', ($busy->response || {})->{body} // '';
    ok($other && $other ne $idle, '... all requests go to the other one');

    is(asked($kept, '/kill')->{status}, 502, 'a worker that dies: the request that it had has failed');
    is(asked($kept, '/')->{status},     200, '... and its connection is served on');
    is(asked($kept, '/die')->{status},  500, 'an application that dies');
    for my $bytes (0, 10, 100_000, 3_000_000) {
        $kept->send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: $bytes\r\n\r\n" . 'x' x $bytes);
        like(($kept->response || {})->{body}, qr/\A\d+ $bytes\z/, "a body of $bytes bytes");
    }
    like(asked($kept, '/file')->{body}, qr/\Amy %DO/, 'a file');

    my @old;
    ok(wait_for(sub { @old = children($server->pid); @old == 3 }), 'an engine and two workers');
    $server->signal('HUP');
    my @all;
    my $renewed = sub {
        is_served($kept) or return;
        @all = children($server->pid);
        my %is_old = map { $_ => 1 } @old;
        return @all == 3 && 1 == grep { $is_old{$_} } @all;
    };
    ok(wait_for($renewed), 'HUP replaces the workers, not the engine, nor its connections');
    $server->signal('TERM');
    is($server->wait, 0, 'TERM ends all');
    ok(are_gone(@all), '... and nobody is left');
    like($server->log, qr/the server has stopped\n\z/, '... the master goes last');
};

subtest 'a request that waits for too long' => sub {
    unlink "$dir/go";
    my $server = TestServer->spawn(
        $^X,
        (map { "-I$_" } @INC),
        qw(bin/peregrine -E production --engine process --workers 1 --queue-timeout 3 --listen 127.0.0.1:0),
        '--access-log', "$dir/queue.log", '--access-log-format', '%U %s %Q', $psgi
    );
    my $port = $server->wait_for_log(qr{listening on http://127\.0\.0\.1:(\d+)/}) or die $server->log;
    my $busy = TestClient->new($port);
    is(asked($busy, '/')->{status}, 200, 'the worker serves');
    $busy->send(sprintf $ask, '/wait');
    my $kept   = TestClient->new($port);
    my $answer = asked($kept, '/');
    is($answer->{status},                503, 'while it is busy, another one waits');
    is($answer->{header}{'retry-after'}, 5,   '... and is asked to come again');
    write_file('go', '');
    is(($busy->response || {})->{status}, 200, 'the one at work is answered');
    is(asked($kept, '/')->{status},       200, '... and the next one on the other connection');
    is($server->stop,                     0,   'the server stops');
    like(
        content("$dir/queue.log"),
        qr{\A/ 200 \d+\n/ 503 -\n/wait 200 \d+\n/ 200 \d+\n\z},
        'the log says how long each has waited for the worker'
    );
};

subtest 'a request that takes too long, and limits of addresses' => sub {
    unlink "$dir/go";
    my $server = TestServer->spawn(
        $^X,
        (map { "-I$_" } @INC),
        qw(-S plackup -s Peregrine -E deployment --engine process --workers 2 --request-kill-timeout 2),
        qw(--max-connections-per-address 3 --listen 127.0.0.1:0), $psgi
    );
    my $port = $server->wait_for_log(qr{listening on http://127\.0\.0\.1:(\d+)/}) or die $server->log;
    my $kept = TestClient->new($port);
    is(asked($kept, '/wait')->{status}, 504, 'the client is told');
    is(asked($kept, '/')->{status},     200, '... and its connection is served on');
    ok($server->wait_for_log(qr{is stuck in request 1-1 GET /wait.* at \S+app\.psgi line \d+}),
        '... and the log says where');
    my @more = map { TestClient->new($port) } 1, 2;
    is(asked($_, '/')->{status}, 200, 'as many connections of an address as are allowed') for @more;
    is(asked(TestClient->new($port), '/')->{status}, 429, '... and not one more');
    is($server->stop, 0, 'the server stops');
};

my $pagi = write_file('app.pl', <<'APP');
use Future::AsyncAwait;
async sub {
    my ($scope, $receive, $send) = @_;
    if ($scope->{type} eq 'lifespan') {
        await $receive->();
        await $send->({ type => 'lifespan.startup.complete' });
        await $receive->();
        print STDERR "shutdown\n";
        return await $send->({ type => 'lifespan.shutdown.complete' });
    }
    if ($scope->{type} eq 'websocket') {
        await $receive->();
        await $send->({ type => 'websocket.accept' });
        my $message = await $receive->();
        await $send->({ type => 'websocket.send', text => "$$ $message->{text}" });
        return await $receive->();
    }
    my $length = 0;
    while (1) {
        my $event = await $receive->();
        $length += length($event->{body} // '');
        last if !$event->{more};
    }
    kill KILL => $$ if $scope->{path} eq '/kill';
    await $send->({ type => 'http.response.start', status => 200, headers => [] });
    await $send->({ type => 'http.response.body', body => "$$ ", more => 1 });
    await $send->({ type => 'http.response.body', body => $length });
};
APP

subtest 'PAGI, with a template' => sub {
    plan skip_all => 'the emulator of this processor has a thread, which a template may not have'
        if is_emulated();
    my $server =
        TestServer->command(qw(-E production --engine process --workers 2 --preload-app --no-access-log),
        $pagi);
    my $port = $server->port;
    my $kept = TestClient->new($port);
    like(asked($kept, '/')->{body}, qr/\A\d+ 0\z/, 'a request');
    $kept->send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 300000\r\n\r\n" . 'x' x 300_000);
    like(($kept->response || {})->{body}, qr/\A\d+ 300000\z/, '... with a body, in pieces');
    my $socket = TestWebSocket->open($port, '/');
    $socket->text('hello');
    like($socket->next, qr/\Atext \d+ hello\z/, 'a WebSocket');
    is(asked($kept, '/kill')->{status}, 502, 'a worker that dies');
    is(asked($kept, '/')->{status},     200, '... closes no connection');

    # The engine is the only child that is neither a worker nor the template.
    my ($engine) = grep { (readlink "/proc/$_/exe" // '') && listens($_) } children($server->pid);
    ok($engine, 'the engine has the socket') or return;
    kill KILL => $engine;
    ok(
        wait_for(sub {
            ((eval { get($port, '/') } || {})->{status} // 0) == 200;
        }),
        'an engine that dies is replaced, and workers join the new one'
    );
    $server->signal('TERM');
    is($server->wait, 0, 'TERM ends all');
    like($server->log, qr/^shutdown$/m, '... after the end of the application\'s life');
};

sub listens {
    my ($pid) = @_;
    my %sockets =
        map { (readlink($_) // '') =~ /\Asocket:\[(\d+)\]/ ? ($1 => 1) : () } glob "/proc/$pid/fd/*";
    open my $in, '<', '/proc/net/tcp' or die $!;
    return grep { my @field = split; $field[3] eq '0A' && $sockets{ $field[9] } } <$in>;
}

# /hold ends when its client leaves; /later is at work until there is a file, and then waits for its client.
# All of /later share one timer: hundreds of timers would leave no time to serve others on a busy machine.
my $holds = write_file('holds.pl', <<"APP");
use Future::AsyncAwait;
use IO::Async::Loop;
my \$file;

async sub file_exists {
    await IO::Async::Loop->new->delay_future(after => 0.02) until -e '$dir/go';
}
async sub {
    my (\$scope, \$receive, \$send) = \@_;
    die "no lifespan\\n" if \$scope->{type} eq 'lifespan';
    if (\$scope->{type} eq 'websocket') {
        await \$receive->();
        await \$send->({ type => 'websocket.accept' });
        await \$send->({ type => 'websocket.send', text => "\$\$" });
    }
    elsif (\$scope->{path} eq '/block') {
        my \$block = sub { print STDERR "blocks\\n"; select undef, undef, undef, 0.7 };
        IO::Async::Loop->new->watch_time(after => 0.05, code => \$block);
        \$scope->{path} = '/';
    }
    elsif (\$scope->{path} eq '/later') {
        print STDERR "at work\\n";
        await +(\$file ||= file_exists())->without_cancel;
        await \$receive->();
    }
    if (\$scope->{type} eq 'websocket' || \$scope->{path} ne '/') {
        1 while (await \$receive->())->{type} !~ /disconnect/;
        return;
    }
    await \$send->({ type => 'http.response.start', status => 200, headers => [] });
    await \$send->({ type => 'http.response.body', body => \$\$ });
};
APP

sub holding {
    my @options = @_;
    unlink "$dir/go";
    my $server =
        TestServer->command(qw(-E production --engine process --http2 --no-access-log --shutdown-timeout 2),
        @options, $holds);
    return ($server, $server->port);
}

subtest 'requests and WebSockets that wait for their clients' => sub {
    my ($server, $port) = holding('--workers', 1, '--queue-timeout', 15);
    my @open = map { TestHTTP2->new($port) } 1 .. 12;
    for my $client (@open) { $client->request($_ % 2 ? '/hold' : '/later') for 1 .. 100 }
    # Each connection's are with the worker when the engine has read on.
    $_->get('/') for @open;
    is(get($port, '/')->{status}, 200,
        'beside 1,200 requests that are not answered another client is served');
    @open = ();
    write_file('go', '');
    is($server->stop, 0, 'the server stops');
};

subtest 'a new worker beside one that has WebSockets' => sub {
    my ($server, $port) = holding('--workers', 2);
    my %by;
    my $open = sub {
        my $socket = TestWebSocket->open($port, '/');
        my ($pid) = $socket->next =~ /\Atext (\d+)/ or die 'no message';
        push @{ $by{$pid} }, $socket;
        return $pid;
    };
    ok(wait_for(sub { $open->(); keys %by == 2 }), 'both workers have WebSockets') or return;
    my $first = max(map { scalar @$_ } values %by);
    # The first requests may have gone to one worker, before the other had joined. A worker that the machine
    # does not run for 2 ms loses its turn, so that a busy machine takes more turns.
    my $more    = 0;
    my $in_turn = sub {
        $open->();
        my ($most, $least) = sort { $b <=> $a } map { scalar @$_ } values %by;
        return ++$more >= 20 && $most - $least <= $first + 1;
    };
    ok(wait_for($in_turn), '... and get more in turn');
    my ($gone, $stays) = keys %by;
    kill KILL => $gone;
    my %answered;
    my $both = sub {
        my $answer = get($port, '/');
        $answered{ $answer->{body} }++ if $answer->{status} == 200;
        return keys %answered == ($answered{$gone} ? 3 : 2);
    };
    ok(wait_for($both), 'the worker that has died is replaced') or return;
    %answered = ();
    my $asked  = 0;
    my $shared = sub {
        $answered{ get($port, '/')->{body} }++;
        return ++$asked >= 40 && 4 * ($answered{$stays} // 0) >= $asked;
    };
    ok(wait_for($shared), '... and leaves requests to the one that has WebSockets');
    $server->stop;
};

subtest 'a request that comes while its only worker is in its own loop' => sub {
    my ($server, $port) = holding(qw(--workers 1 --queue-timeout 60));
    is(get($port, '/block')->{status}, 200, 'a timer is set');
    ok($server->wait_for_log(qr/^blocks$/m), 'the worker blocks') or return;
    select undef, undef, undef, 0.1;
    my $client = TestClient->new($port)->send(sprintf $ask, '/');
    is(($client->response || {})->{status}, 200, 'the request is served when the worker has left the loop');
    $server->stop;
};

subtest 'max_concurrency' => sub {
    my ($server, $port) = holding(qw(--workers 1 --max-concurrency 2 --queue-timeout 4));
    my @parked = map { TestClient->new($port)->send(sprintf $ask, '/hold') } 1 .. 3;
    push @parked, map { TestWebSocket->open($port, '/') } 1 .. 3;
    is(get($port, '/')->{status}, 200, 'requests and WebSockets that wait for their clients do not count');
    my $client = TestHTTP2->new($port);
    $client->request('/later') for 1 .. 2;
    $server->wait_for_log(qr/^at work\n(?s:.*)^at work\n/m) or die $server->log;
    is(get($port, '/')->{status}, 503, 'the limit is reached: another request waits, and is refused');
    my $waits = TestClient->new($port)->send(sprintf $ask, '/');
    write_file('go', '');
    is(($waits->response || {})->{status}, 200, 'one that waits is served when another one is parked');
    is(get($port, '/')->{status},          200, '... and so are all that come');
    $server->stop;
};

# /counters does to each event counter what holds all who write to it; /garbage writes over a ring that it
# shares with the engine: that of its commands, or of its events (`Shared.of` in engine/src/abi/shared.zig).
my $hostile = write_file('hostile.psgi', <<'APP');
use Fcntl qw(F_SETFL);
my %RINGS = (commands => 1, events => 66);

sub counters {
    for my $path (glob '/proc/self/fd/*') {
        next if (readlink $path // '') ne 'anon_inode:[eventfd]';
        my ($fd) = $path =~ /(\d+)\z/;
        open my $counter, '+<&=', $fd or die;
        fcntl $counter, F_SETFL, 0;
        local $SIG{ALRM} = sub { die };
        syswrite $counter, pack 'Q', ~1;
        push our @kept, $counter;
    }
}

sub garbage {
    my ($ring) = @_;
    open my $maps, '<', '/proc/self/maps' or die;
    # The depot of bodies is shared too, and read only.
    my ($start) = map { /\A([0-9a-f]+)-\S+ rw.*memfd:peregrine/ ? hex $1 : () } <$maps>;
    open my $memory, '+<', '/proc/self/mem' or die;
    seek $memory, $start + 4096 * $RINGS{$ring}, 0;
    syswrite $memory, "\xAA" x 512;
    sleep 1;    # until the engine has looked: what is said next would mend it
}

sub stay {
    $SIG{TERM} = 'IGNORE';
    garbage('commands');
    sleep 60 while 1;
}
sub {
    my ($env) = @_;
    print STDERR "begins $env->{REQUEST_URI}\n";
    counters()                   if $env->{PATH_INFO} eq '/counters';
    garbage($env->{QUERY_STRING}) if $env->{PATH_INFO} eq '/garbage';
    stay()                       if $env->{PATH_INFO} eq '/stay';
    return [ 200, [], [$$] ];
};
APP

subtest 'a worker that is hostile' => sub {
    my $server = TestServer->spawn(
        $^X,
        (map { "-I$_" } @INC),
        qw(bin/peregrine -E production --engine process --workers 2 --no-access-log --listen 127.0.0.1:0),
        $hostile
    );
    my $port = $server->wait_for_log(qr{listening on http://127\.0\.0\.1:(\d+)/}) or die $server->log;
    my ($kept, $ready) = TestClient->new($port);
    ok(wait_for(sub { @{ [ children($server->pid) ] } == 3 && is_served($kept) }), 'two workers') or return;
    for my $path ('/garbage?commands', '/garbage?events', '/stay') {
        my @before = children($server->pid);
        my %before = map { $_ => 1 } @before;
        my $rogue  = TestClient->new($port)->send(sprintf $ask, $path);
        $server->wait_for_log(qr/begins \Q$path/);    # other requests fail with it if it takes them before
        my $renewed = sub {
            is_served($kept) or return;
            my @now = children($server->pid);
            return @now == 3 && 1 == grep { !$before{$_} } @now;
        };
        ok(wait_for($renewed), "$path: others are served, the worker is replaced");
        $rogue->response;
    }
    unlike($server->log, qr/cannot wait for events/, '... and leaves at once');
    my $rogue = TestClient->new($port)->send(sprintf $ask, '/counters');
    my $all   = grep { is_served($kept) } 1 .. 200;
    is($all, 200, 'counters that are full hold neither the engine nor the other worker');
    kill KILL => children($server->pid);
    $server->stop;
};

subtest 'certificates' => sub {
    plan skip_all => 'built without TLS' if !Peregrine::has_tls();
    my $files   = Certificates->new->authority('ca');
    my $install = sub {
        my ($name) = @_;
        $files->replace("live.$_", "$name.$_") for qw(key pem);
    };
    $files->issue($_, subject => "/CN=$_") for qw(first second);
    $install->('first');
    my $server = TestServer->command(
        qw(-E production --engine process --workers 1 --no-access-log --lifespan off),
        '--ssl-cert' => $files->path('live.pem'),
        '--ssl-key'  => $files->path('live.key'),
        $pagi
    );
    my $port = $server->port;
    my $seen = sub {
        return `printf 'GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n' |
            openssl s_client -ign_eof -connect 127.0.0.1:$port 2>&1`;
    };
    like($seen->(), qr{CN ?= ?first.*^HTTP/1.1 200}ms, 'the engine speaks TLS');
    $install->('second');
    $server->signal('HUP');
    ok(wait_for(sub { $seen->() =~ /CN ?= ?second/ }), '... and loads certificates again on HUP');
    is($server->stop, 0, 'the server ends well');
};

subtest 'an engine that stands still' => sub {
    my $server = TestServer->spawn(
        $^X,
        (map { "-I$_" } @INC),
        qw(bin/peregrine -E production --engine process --workers 1 --heartbeat-timeout 2 --no-access-log),
        qw(--listen 127.0.0.1:0), $psgi
    );
    my $port = $server->wait_for_log(qr{listening on http://127\.0\.0\.1:(\d+)/}) or die $server->log;
    my ($engine) = grep { listens($_) } children($server->pid);
    ok($engine, 'the engine has the socket') or return;
    kill STOP => $engine;
    my $late = qr/has not answered for 2 s \(heartbeat_timeout\) and was killed/;
    ok($server->wait_for_log(qr/engine: worker 1 \(\d+\) $late/), 'it is missed');
    ok(
        wait_for(sub {
            (eval { get($port, '/') } || { status => 0 })->{status} == 200;
        }),
        '... and replaced'
    );
    is($server->stop, 0, 'the server ends well');
};

# Whether a process has these bytes in its memory.
sub has_in_memory {
    my ($pid, $bytes) = @_;
    open my $maps,   '<',     "/proc/$pid/maps" or return 0;
    open my $memory, '<:raw', "/proc/$pid/mem"  or return 0;
    no warnings qw(portable);
    while (my $line = readline $maps) {
        my ($from, $to, $what) = $line =~ /\A([0-9a-f]+)-([0-9a-f]+) rw.. \S+ \S+ \S+ *(.*)/ or next;
        next if $what =~ m{\A/};
        sysseek $memory, hex $from, 0 or next;
        sysread $memory, my $block, hex($to) - hex $from or next;
        return 1 if index($block, $bytes) >= 0;
    }
    return 0;
}

subtest 'keys' => sub {
    plan skip_all => 'built without TLS' if !Peregrine::has_tls();
    my $files   = Certificates->new->authority('ca')->issue('one', subject => '/CN=one');
    my ($der)   = $files->read('one.key') =~ /-----BEGIN EC PRIVATE KEY-----\n(.*?)-----END/s;
    my ($key)   = decode_base64($der)     =~ /\x02\x01\x01\x04\x20(.{32})/s or die 'not such a key';
    my $tickets = join '', map { chr int rand 256 } 1 .. 80;
    $files->write('tickets', $tickets);
    my %secrets = ('private key' => scalar reverse($key), 'keys of tickets' => substr $tickets, 16);

    for my $preload (is_emulated() ? () : '--preload-app', only_in_full('--no-preload-app')) {
        my $server = TestServer->command(
            qw(-E production --engine process --workers 1 --no-access-log --lifespan off), $preload,
            '--ssl-cert'        => $files->path('one.pem'),
            '--ssl-key'         => $files->path('one.key'),
            '--ssl-ticket-keys' => $files->path('tickets'),
            $pagi
        );
        my ($engine, @others);
        wait_for(sub {
            my @children = children($server->pid);
            ($engine) = grep { listens($_) } @children;
            @others = grep { $_ != $engine } @children;
            return $engine && @others == ($preload eq '--preload-app' ? 2 : 1);
        });
        for my $what (sort keys %secrets) {
            ok(has_in_memory($engine, $secrets{$what}), "$preload: the engine has the $what");
            is((grep { has_in_memory($_, $secrets{$what}) } @others),
                0, '... but no process with applications');
        }
        is($server->stop, 0, 'the server ends well');
    }
};

subtest 'an engine before its first worker' => sub {
    my $slow = write_file('slow.psgi', <<"APP");
open my \$out, '>', '$dir/loads' or die;
close \$out;
select undef, undef, undef, 0.02 until -e '$dir/may-load';
sub { [ 200, [ 'Content-Type' => 'text/plain' ], ['loaded'] ] };
APP
    my $socket = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 30) or die $@;
    fcntl $socket, F_SETFD, 0 or die "fcntl: $!\n";
    my $server = TestServer->spawn(
        $^X,
        (map { "-I$_" } @INC),
        qw(bin/peregrine --engine process --workers 1 --listen),
        'fd:' . fileno $socket, $slow
    );
    ok(wait_for(sub { -e "$dir/loads" }), 'a worker loads its application');
    my @clients = map { TestClient->new($socket->sockport) } 1 .. 20;
    my $select  = IO::Select->new($socket);
    my $taken   = grep { $select->can_read(patience(2)) && $socket->accept } @clients;
    is($taken, 20, 'meanwhile connections wait for whoever has the socket');
    write_file('may-load', '');
    my $client = TestClient->new($socket->sockport);
    $client->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    is($client->response->{body}, 'loaded', '... and then for the worker');
    is($server->stop,             0,        'the server ends well');
};

# A third one would end the wait for that.
subtest 'a second TERM leaves the application its shutdown' => sub {
    my $app = write_file('life.pl', <<"APP");
use Future::AsyncAwait;
async sub {
    my (\$scope, \$receive, \$send) = \@_;
    if (\$scope->{type} ne 'lifespan') {
        open my \$came, '>', '$dir/came' or die \$!;
        return await Future->new;
    }
    await \$receive->();
    await \$send->({ type => 'lifespan.startup.complete' });
    await \$receive->();
    open my \$out, '>', '$dir/ended' or die \$!;
    await \$send->({ type => 'lifespan.shutdown.complete' });
}
APP
    my $server = TestServer->command(qw(-E production --engine process --workers 1), $app);
    my $client = TestClient->new($server->port);
    $client->send(sprintf $ask, '/');
    ok(wait_for(sub { -e "$dir/came" }), 'a request without an answer');
    $server->signal('TERM');
    ok($server->wait_for_log(qr/requests in flight: 1/), 'TERM');
    $server->signal('TERM');
    is($server->wait, 0, 'TERM again');
    ok(-e "$dir/ended", "... and the application's shutdown has run");
    like($server->log, qr/not waiting for applications that run on: 1/, '... while the request ran on');
    unlike($server->log, qr/all connections are closed, applications still running/, '... without a wait');
};

subtest 'settings that cannot be combined' => sub {
    my ($status, undef, $error) = TestServer->finish('--engine', 'process', $pagi);
    isnt($status, 0, 'a process without workers');
    like($error, qr/process needs workers/, '... says why it does not start');
};

done_testing;
