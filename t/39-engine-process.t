# The engine in a process of its own, and workers that join it (--engine process): what one of them does, or
# what becomes of it, costs its own requests at most, and no connection.
# The same for each PEREGRINE_ENGINE: its servers name their engines.
use strict;
use warnings;

use lib 't/lib';
use Certificates;
use Peregrine;
use MIME::Base64 qw(decode_base64);
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools qw(content wait_for);
use TestWebSocket;
use TestWorkers qw(are_gone children directory write_file);

plan skip_all => 'Linux only' if $^O ne 'linux';

my $dir = directory();

# Answers with its process. /wait takes until there is a file.
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
        qw(bin/peregrine -E production --engine process --workers 1 --queue-timeout 1 --listen 127.0.0.1:0),
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
    is($server->stop,                     0,   'it stops');
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
    like(
        $server->log,
        qr{is stuck in request 1-1 GET /wait.* at \S+app\.psgi line \d+},
        '... and the log says where'
    );
    my @more = map { TestClient->new($port) } 1, 2;
    is(asked($_, '/')->{status}, 200, 'as many connections of an address as are allowed') for @more;
    is(asked(TestClient->new($port), '/')->{status}, 429, '... and not one more');
    is($server->stop, 0, 'it stops');
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
    ok($server->wait_for_log(qr/engine: worker 1 \(\d+\) has not answered for 2 s and was killed/),
        'it is missed');
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

    for my $preload (qw(--no-preload-app --preload-app)) {
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

subtest 'what cannot be' => sub {
    my ($status, undef, $error) = TestServer->finish('--engine', 'process', $pagi);
    isnt($status, 0, 'a process without workers');
    like($error, qr/process needs workers/, '... says why it does not start');
};

done_testing;
