# Handlers that block, in processes of their own: response, upload and backpressure go between the client and
# that process; nobody else waits. What ends a handler, its client or its process ends nothing else.
# Not repeated for each PEREGRINE_ENGINE: its servers name their engines.
use strict;
use warnings;

use lib 't/lib';
use OnlyInFull qw(only_in_full);
use Test::More;
use TestClient qw(get post);
use TestGate;
use TestServer;
use TestStream;
use TestTools qw(content wait_for);
use TestWebSocket;
use TestWorkers qw(is_gone write_file);

plan skip_all => 'Linux only' if $^O ne 'linux';

my $gate = TestGate->new;

# The application's file. `@VERSION@`: what /version says.
sub application {
    my ($version) = @_;
    my $code = <<'PERL';
use strict;
use warnings;
use Future::AsyncAwait;
use IO::Async::Loop;
use PAGI::App::WrapPSGI;
use PAGI::Sync qw(sync);
use TestGate;

my $gate = bless { folder => '@FOLDER@' }, 'TestGate';

package Exception::False { use overload bool => sub { 0 }, '""' => sub { '' }, fallback => 1 }

sub answer {
    my ($send, $body, @headers) = @_;
    my $headers = [ [ 'x-process', $$ ], [ 'content-length', length $body ], @headers ];
    $send->({ type => 'http.response.start', status => 200, headers => $headers });
    return $send->({ type => 'http.response.body', body => $body });
}

sub note {
    my ($name, $text) = @_;
    open my $out, '>>', '@FOLDER@/' . $name or die "$name: $!";
    syswrite $out, $text;
}

my $turns = 0;
my %SYNC = (
    version => sub { my (undef, undef, $send) = @_; answer($send, '@VERSION@') },
    state   => sub {
        my ($scope, undef, $send) = @_;
        my $state = $scope->{pagi}{worker_state};
        my @parts = map { "$_ " . ($state->{$_} eq $$ ? 'own' : $state->{$_}++) } sort keys %$state;
        answer($send, "@parts");
    },
    upload => sub {
        my (undef, $receive, $send) = @_;
        my ($length, $event, $pieces) = (0, undef, 0);
        do {
            $event = $receive->()->get;
            $length += length $event->{body} // '';
            $pieces++;
        } while $event->{more};
        note(left => $event->{type}) if $event->{type} ne 'http.request';
        answer($send, "$length bytes in " . ($pieces > 1 ? 'pieces' : 'one'));
    },
    stream => sub {
        my (undef, undef, $send) = @_;
        $send->({ type => 'http.response.start', status => 200, headers => [ [ 'x-process', $$ ] ] });
        for (1 .. 64) {
            $send->({ type => 'http.response.body', body => 'x' x 1_000_000, more => 1 });
            note(pieces => 'x');
        }
        $send->({ type => 'http.response.body', body => '' });
    },
    block => sub {
        my ($scope, undef, $send) = @_;
        note($scope->{query_string} . '-pid', "$$\n");
        $gate->block($scope->{query_string});
        answer($send, 'blocked');
    },
    async => async sub {
        my ($scope, $receive, $send) = @_;
        my $event = await $receive->();
        await answer($send, "awaited $event->{body}");
    },
    turns => sub {
        my (undef, undef, $send) = @_;
        note(turns => $$ . ($turns++ ? ' together' : ' alone') . "\n");
        IO::Async::Loop->new->delay_future(after => 0.001)->await;
        $turns--;
        answer($send, 'turned');
    },
    dies  => sub { die "the handler has died\n" },
    dies_of_false => sub { die bless {}, 'Exception::False' },
    leaves_loops => sub { no warnings 'exiting'; last },
    wrong => sub {
        my (undef, undef, $send) = @_;
        my $ok = eval { $send->({ type => 'http.response.body', body => 'x' }); 1 };
        answer($send, $ok ? 'no failure' : 'failed');
    },
    nothing => sub { return },
    socket  => sub {
        my (undef, $receive, $send) = @_;
        $receive->();
        $send->({ type => 'websocket.accept' });
        while (1) {
            my $event = $receive->()->get;
            last if $event->{type} eq 'websocket.disconnect';
            $send->({ type => 'websocket.send', text => "$$ $event->{text}" });
        }
        note('socket-over', "$$\n");
    },
    events => sub {
        my (undef, undef, $send) = @_;
        $send->({ type => 'sse.start' });
        $send->({ type => 'sse.send', data => "$$ $_" }) for 1 .. 3;
    },
);
my %handlers = map { $_ => sync($SYNC{$_}) } keys %SYNC;
my $marked   = bless sub { my (undef, undef, $send) = @_; answer($send, 'marked') }, 'PAGI::Sync';
my $psgi     = PAGI::App::WrapPSGI->new(psgi_app => sub {
    my ($env) = @_;
    read $env->{'psgi.input'}, my $body, 20;
    my $type = join ',', map { $env->{"psgi.$_"} ? 1 : 0 } qw(nonblocking multiprocess);
    return [ 200, [ 'X-Process' => $$ ], ["psgi $type $body"] ] if $env->{PATH_INFO} eq '/psgi';
    return sub {
        my $writer = $_[0]->([ 200, [ 'X-Process' => $$ ] ]);
        $writer->write("$_ ") for 1 .. 3;
        $writer->close;
    };
})->to_app;

async sub late {
    my ($scope, $receive, $send) = @_;
    await $receive->();
    my $ok = eval { await $handlers{version}->(@_); 1 };
    answer($send, $ok ? 'handed over' : "$@");
}

async sub middleware {
    my ($scope, $receive, $send) = @_;
    my $wrapped = async sub {
        my ($event) = @_;
        push @{ $event->{headers} }, [ 'x-wrapped', $$ ] if $event->{type} eq 'http.response.start';
        await $send->($event);
    };
    await $handlers{async}->($scope, $receive, $wrapped);
}

async sub {
    my ($scope, $receive, $send) = @_;
    my $pool = ref $scope->{pagi}{extensions} eq 'HASH' ? $scope->{pagi}{extensions}{worker_pool} : undef;
    if ($scope->{type} eq 'lifespan') {
        my $event = await $receive->();
        await $send->({ type => 'lifespan.startup.complete' });
        $event = await $receive->();
        return await $send->({ type => 'lifespan.shutdown.complete' });
    }
    my ($name) = $scope->{path} =~ m{\A/(\w*)};
    return await late(@_)       if $name eq 'late';
    return await middleware(@_) if $name eq 'middleware';
    return await $psgi->(@_)    if $name =~ /\Apsgi/;
    return await $handlers{$name}->(@_) if $handlers{$name};
    if ($name eq 'marked') {
        my $ok = eval { await $pool->call($marked, args => [@_]); 1 };
        answer($send, "$@") if !$ok;
        return;
    }
    if ($name eq 'stats') {
        my $stats = $pool->stats;
        return await answer($send, join ' ', map { "$_ $stats->{$_}" } sort keys %$stats);
    }
    if ($name eq 'named') {
        my $got = eval { await $pool->call('echo', args => [7]) };
        return await answer($send, $got ? "got $got->[0]" : "$@");
    }
    await answer($send, 'async');
};
PERL
    return $code =~ s/\@VERSION\@/$version/r =~ s/\@FOLDER\@/$gate->{folder}/gr;
}

our $app = write_file('sync.pl', application('first'));
my $pool = write_file('sync-pool.pl', <<'PERL');
+{
    init     => sub { return { made => 0, pid => $$ } },
    cleanup  => sub { warn "cleaned up after $_[0]{made}\n" },
    handlers => { echo => sub { my ($state, @args) = @_; return \@args } },
};
PERL

sub server {
    my ($sync, @arguments) = @_;
    local $ENV{PERL5LIB} = join ':', 't/lib', $ENV{PERL5LIB} // ();
    return TestServer->command(qw(--engine process --workers 1 --sync-workers), $sync, @arguments, $app);
}

# An application whose handlers block: marked as a whole if `$is_marked`. Notes the process that each request
# came to.
sub whole {
    my ($is_marked) = @_;
    my $code = <<'PERL';
use strict;
use warnings;
use Future::AsyncAwait;
use PAGI::Sync qw(sync);

my $way = PAGI::Server::Transport->can('_sync');
no warnings 'redefine';
*PAGI::Server::Transport::_sync = sub {
    open my $out, '>>', '@FOLDER@/asked' or die $!;
    syswrite $out, "$$\n";
    return $way->(@_);
};

async sub answer {
    my ($scope, $receive, $send) = @_;
    die "no lifespan\n" if $scope->{type} eq 'lifespan';
    my $body = '@MARKED@ ' . (exists $scope->{pagi}{worker_state} ? 'there' : 'here');
    my @headers = ([ 'content-length', length $body ], [ 'x-process', $$ ]);
    await $send->({ type => 'http.response.start', status => 200, headers => \@headers });
    await $send->({ type => 'http.response.body', body => $body });
}
my $app = @MARKED@ ? sync(\&answer) : \&answer;
PERL
    return $code =~ s/\@MARKED\@/$is_marked/gr =~ s/\@FOLDER\@/$gate->{folder}/gr;
}

# A request that is sent and not answered yet.
sub begin {
    my ($server, $target) = @_;
    my $client = TestClient->new($server->port);
    $client->send("GET $target HTTP/1.1\r\nHost: h\r\n\r\n");
    return $client;
}

sub noted {
    my ($name) = @_;
    return content("$gate->{folder}/$name") // '';
}

# The process of a handler that blocks at a gate.
sub pid_at {
    my ($name) = @_;
    return wait_for(sub { noted("$name-pid") =~ /\A(\d+)\n/ ? $1 : 0 });
}

sub said {
    my ($response) = @_;
    return "$response->{status} $response->{body}";
}

for my $how (only_in_full([ 'without a template' => () ]), [ 'from a template' => '--preload-app' ]) {
    my ($title, @arguments) = @$how;

    subtest "handlers in their process, $title" => sub {
        my $server = server(1, '--worker-pool', $pool, @arguments);
        my $port   = $server->port;
        my $async  = get($port, '/')->{header}{'x-process'};
        my $sync   = get($port, '/version');
        isnt $sync->{header}{'x-process'}, $async,                'a handler runs in another process';
        is said($sync),                    '200 first',           '... and answers from there';
        is said(get($port, '/state')),     "200 made $_ pid own", 'its state is that of init' for 0, 1;
        is said(post($port, '/upload', 'x' x 10_000_000)), '200 10000000 bytes in pieces',
            'an upload of 10 MB';
        my $awaited = post($port, '/async', 'body');
        is said($awaited),                  '200 awaited body',           'an async sub';
        is $awaited->{header}{'x-process'}, $sync->{header}{'x-process'}, '... in the same process';
        is said(get($port, '/marked')), '200 marked',
            'a handler that other code has marked, called by the pool';
        is said(get($port, '/named')), '200 got 7', 'calls by name go to the pool';
        is get($port, '/middleware')->{header}{'x-wrapped'}, $sync->{header}{'x-process'},
            'a wrap around $send is there';
        is said(get($port, '/late')) =~ s/ at \S+ line.*//sr,
            '200 InvalidCall: a sync handler gets a request of which nothing was read or answered',
            'a request that was read is not handed over';
        is said(get($port, '/wrong')),    '200 failed', 'an event that is wrong kills its $send';
        is get($port, '/dies')->{status}, 500,          'a handler that dies';
        ok $server->wait_for_log(qr/the handler has died/), '... is told of';
        is get($port, '/dies_of_false')->{status}, 500, '... of an object that is false';
        is get($port, '/leaves_loops')->{status},  500, 'a handler that leaves a loop of its caller';
        is get($port, '/nothing')->{status},       500, 'a handler that does not answer';
        my $psgi = post($port, '/psgi', 'to PSGI');
        is said($psgi),                           '200 psgi 0,1 to PSGI',       'an application of PSGI';
        is $psgi->{header}{'x-process'},          $sync->{header}{'x-process'}, '... in the same process';
        is said(get($port, '/psgi2')),            '200 1 2 3 ',                 '... which streams';
        is scalar(TestWorkers::children($async)), 0, '... and has no processes of its own';
        my $socket = TestWebSocket->open($port, '/socket');
        $socket->text('hello');
        is $socket->next, "text $sync->{header}{'x-process'} hello", 'a WebSocket';
        $socket->close;
        ok wait_for(sub { noted('socket-over') }), '... whose handler hears of the end';
        my $stream = TestStream->open($port, '/events');
        is $stream->message->{data}, "$sync->{header}{'x-process'} $_", 'an event stream' for 1 .. 3;
        unlink "$gate->{folder}/socket-over";
        is $server->stop, 0, 'the server stops';
        like $server->log,   qr/cleaned up after \d/, 'and cleans up';
        unlike $server->log, qr/shut out|rules/,      'no interpreter breaks the rules';
    };
}

subtest 'clients that are slow, and that leave' => sub {
    my $server = server(1);
    my $port   = $server->port;
    my $slow   = begin($server, '/stream');
    wait_for(sub { length noted('pieces') });
    my $before = -1;
    wait_for(sub {
        my $was = $before;
        select undef, undef, undef, 0.5;
        $before = length noted('pieces');
        $was == $before;
    });
    cmp_ok $before, '<', 64, 'a handler waits for its client';
    is said(get($port, '/')),          '200 async', '... and the application for nobody';
    is length $slow->response->{body}, 64_000_000,  'the client gets all of it';
    my $gone = begin($server, '/stream');
    wait_for(sub { length noted('pieces') > 64 });
    $gone->close;
    is said(get($port, '/version')), '200 first', 'a stream whose client has left ends, and makes room';
    my $leaver = TestClient->new($port);
    $leaver->send("POST /upload HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\nabc");
    select undef, undef, undef, 0.2;
    $leaver->reset;
    ok wait_for(sub { noted('left') =~ /http\.disconnect/ }),
        'a handler hears of a client that leaves in an upload';
    is said(get($port, '/version')), '200 first', '... and the next one has the process';
    is $server->stop,                0,           'the server stops';
};

subtest 'a process that is killed, and too many requests' => sub {
    my $server = server(1, '--pool-queue', 1, '--heartbeat-timeout', 1);
    my $port   = $server->port;
    my $first  = begin($server, '/block?killed');
    my $pid    = pid_at('killed');
    my $waits  = begin($server, '/version');
    my $full   = wait_for(sub { my $got = get($port, '/version'); $got->{status} == 503 ? $got : 0 });
    is $full->{status}, 503, 'a request for which there is no room';
    ok $full->{header}{'retry-after'}, '... with Retry-After';
    is said(get($port, '/')), '200 async', '... and others have room';
    select undef, undef, undef, 3;
    ok !is_gone($pid), 'a handler may block for longer than heartbeat_timeout';
    kill KILL => $pid;
    is $first->response->{status}, 502,         'the request of a process that is killed';
    is said($waits->response),     '200 first', '... and the next one waits for another process';
    is $server->stop,              0,           'the server stops';
};

subtest 'requests that come ahead' => sub {
    for my $workers (only_in_full(1), 2) {
        unlink "$gate->{folder}/turns";
        my $server  = server($workers);
        my @clients = map { TestClient->new($server->port) } 1 .. 8;
        my $rounds  = 12;
        $_->send("GET /turns HTTP/1.1\r\nHost: h\r\n\r\n" x $rounds) for @clients;
        my %statuses;
        for my $round (1 .. $rounds) { $statuses{ said($_->response) }++ for @clients }
        is_deeply \%statuses, { '200 turned' => 96 }, "$workers: all are answered";
        unlike noted('turns'), qr/together/, '... and none is begun while another one waits in its loop';
        my $blocked = begin($server, "/block?ahead$workers");
        pid_at("ahead$workers");
        my @behind = map { begin($server, '/version') } 1 .. 4;
        is said(get($server->port, '/')), '200 async', 'one that blocks keeps none back';
        if ($workers > 1) { is said($_->response), '200 first', '... of those behind it' for @behind }
        $gate->open("ahead$workers");
        is said($blocked->response), '200 blocked', 'the one that blocks';
        if ($workers == 1) { is said($_->response), '200 first', '... and those behind it' for @behind }
        is $server->stop, 0, 'the server stops';
        unlike $server->log, qr/shut out|rules/, 'no interpreter breaks the rules';
    }
};

subtest 'an application that is marked as a whole' => sub {
    my $file    = write_file('sync-whole.pl', whole(1));
    my $server  = do { local $app = $file; server(1) };
    my $port    = $server->port;
    my $process = get($port, '/')->{header}{'x-process'};
    unlink "$gate->{folder}/asked";    # the first request may have come before the engine knew
    is said(get($port, '/')), '200 1 there',    'it runs in the process for handlers' for 1 .. 3;
    is noted('asked'),        "$process\n" x 3, '... and no other one hears of its requests';
    write_file('sync-whole.pl', whole(0));
    $server->signal('HUP');
    ok wait_for(sub { said(get($port, '/')) eq '200 0 here' }), 'new code is not marked';
    is said(get($port, '/')), '200 0 here', '... and runs in the other interpreter' for 1 .. 3;
    write_file('sync-whole.pl', whole(1));
    $server->signal('HUP');
    ok wait_for(sub { said(get($port, '/')) eq '200 1 there' }), 'newer code is marked again';
    is $server->stop, 0, 'the server stops';
};

subtest 'stats' => sub {
    my $server = server(2, '--pool-queue', 7);
    is said(get($server->port, '/stats')), '200 busy 0 idle 2 queue_depth 0 queue_limit 7 workers 2',
        'without a worker pool they tell of the processes for handlers, and that more requests may wait';
    is $server->stop, 0, 'the server stops';
};

subtest 'warm-up' => sub {
    my $server = server(1, '--worker-pool', $pool, '--warm-up', '/state,/version');
    is said(get($server->port, '/state')), '200 made 1 pid own', 'a process has answered what warms it up';
    is $server->stop,                      0,                    'the server stops';
};

subtest 'HUP' => sub {
    my $file   = write_file('sync-hup.pl', application('first'));
    my $server = do { local $app = $file; server(1) };
    my $port   = $server->port;
    is said(get($port, '/version')), '200 first', 'before';
    my $client = begin($server, '/block?hup');
    pid_at('hup');
    write_file('sync-hup.pl', application('second'));
    $server->signal('HUP');
    ok wait_for(sub { said(get($port, '/version')) eq '200 second' }), 'new code after HUP';
    $gate->open('hup');
    is said($client->response), '200 blocked', 'a handler that was at work ends its request';
    is $server->stop,           0,             'the server stops';
};

subtest 'a canary' => sub {
    my $server = server(1, '--canary', 2);
    my $port   = $server->port;
    is said(get($port, '/version')), '200 first', 'before';
    $server->signal('HUP');
    ok $server->wait_for_log(qr/worker 2 \(\d+\) has the new code, and serves beside/),
        'an asynchronous interpreter is the one that is tried';
    ok $server->wait_for_log(qr/worker 2 \(\d+\) with the new code is not clearly worse/), '... and stays';
    is said(get($port, '/version')), '200 first', 'after';
    is $server->stop,                0,           'the server stops';
};

subtest 'without processes for handlers' => sub {
    local $ENV{PERL5LIB} = join ':', 't/lib', $ENV{PERL5LIB} // ();
    my $server = TestServer->command('--engine', 'inline', '--worker-pool', $pool, $app);
    my $port   = $server->port;
    is said(get($port, '/marked')) =~ s/ at \S+ line.*//sr,
        '200 InvalidCall: sync handlers need processes of their own: use --engine process and --sync-workers',
        'the pool refuses a handler';
    is said(post($port, '/upload', 'x' x 100)), '200 100 bytes in one',
        'a handler that is called runs, and blocks';
    is $server->stop, 0, 'the server stops';
    my ($status, undef, $error) = TestServer->finish(qw(--sync-workers 1 --workers 1), $app);
    isnt $status, 0, 'without an engine in a process there are none';
    like $error, qr/sync_workers.*set 'engine' to process/, '... and the message says so';
};

done_testing;
