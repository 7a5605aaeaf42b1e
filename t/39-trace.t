# Traces of exchanges: each event and command, in the order in which they happened, whichever process they
# happened in; started with PEREGRINE_TRACE, and by `peregrine trace PID`.
# Not repeated for each PEREGRINE_ENGINE: its servers name their engines.
use strict;
use warnings;

use lib 't/lib';
use OnlyInFull qw(only_in_full);
use Peregrine::Fork;
use Peregrine::Threads;
use Peregrine::Trace;
use POSIX ();
use Test::More;
use TestClient qw(get);
use TestHTTP2;
use TestServer;
use TestTools qw(content program_path wait_for);
use TestTrace;
use TestWebSocket;
use TestWorkers qw(directory is_gone pid_in stop_master write_file);
use Time::HiRes ();

plan skip_all => 'there are traces on Linux only' if $^O ne 'linux';
delete @ENV{qw(PEREGRINE_ENGINE PEREGRINE_TRACE)};

my $pagi = write_file('app.pl', <<'APP');
use Future::AsyncAwait;
use IO::Async::Loop;
my %does = (
    http => async sub {
        my ($scope, $receive, $send) = @_;
        my $event = await $receive->();
        await IO::Async::Loop->new->delay_future(after => 2) if $scope->{path} eq '/slow';
        die "asked to\n" if $scope->{path} eq '/die';
        await $send->({ type => 'http.response.start', status => 201, headers => [[ 'x-secret', 'value' ]] });
        await $send->({ type => 'http.response.body', body => "process $$" });
    },
    websocket => async sub {
        my ($scope, $receive, $send) = @_;
        await $receive->();
        await $send->({ type => 'websocket.accept' });
        while ((my $event = await $receive->())->{type} eq 'websocket.receive') {
            await $send->({ type => 'websocket.send', text => "$event->{text}$event->{text}" });
        }
    },
);
async sub {
    my ($scope, $receive, $send) = @_;
    my $do = $does{ $scope->{type} } or die "no $scope->{type}\n";
    await $do->($scope, $receive, $send);
};
APP
my $psgi = write_file('app.psgi', <<'APP');
sub { [ 201, [ 'X-Secret' => 'value' ], [ $_[0]{PATH_INFO} eq '/long' ? 'x' x 100_000 : "process $$" ] ] }
APP

# Steps of an exchange, in their order in each layer.
my @IN  = ('session -> request');
my @OUT = ('exchange <- start', 'exchange -> over', 'lane <- sent');

my %FACE = (
    pagi => [ 'face -> call', 'face -> receive',  'face <- send', 'face <- send', 'face <- returned' ],
    psgi => [ 'face -> call', 'face <- returned', 'face <- send' ],
);
my @RING = ('ring/engine -> request', 'ring/app -> request', 'ring/app <- start', 'ring/engine <- start');

# Whether steps are among others in this order.
sub in_order {
    my ($steps, @wanted) = @_;
    my @rest = @$steps;
    for my $step (@wanted) {
        shift @rest while @rest && $rest[0] ne $step;
        return 0 if !@rest;
        shift @rest;
    }
    return 1;
}

# The records of a GET request that was answered by process `$by`.
sub check_request {
    my ($kind, $has_ring, $by, @records) = @_;
    my @steps = map { TestTrace::step($_) } @records;
    my $all   = join "\n", @steps;
    is_deeply([ grep { /\Aface/ } @steps ], $FACE{$kind}, 'the face sees each step once') or diag $all;
    ok(in_order(\@steps, @IN, $FACE{$kind}[0], @OUT), 'session, face, exchange and lane are in order')
        or diag $all;
    my @rings = grep { m{\Aring/} } @steps;
    if ($has_ring) {
        ok(in_order(\@steps, @IN, @RING, @OUT), 'the rings come in between, each end in its place')
            or diag $all;
        ok(in_order(\@steps, $RING[1], $FACE{$kind}[0], 'face <- send', $RING[2]), '... the face, too')
            or diag $all;
    }
    else { is("@rings", '', 'there is no ring') }
    my ($call) = grep { $_->{what} eq 'call' } @records;
    is($call->{process}, $by, 'the face is in the process of the application');
    my %threads = map { ($_->{thread} // $_->{process}) => 1 } @records;
    is(scalar keys %threads, $has_ring ? 2 : 1, 'engine and application are told apart');
    return;
}

sub check_server {
    my ($server, $kind, $has_ring) = @_;
    my $port = $server->{port} // $server->wait_for_log(qr{listening on http://127\.0\.0\.1:(\d+)/});
    my ($by) = get($port, '/one?token=hidden')->{body} =~ /process (\d+)/;
    # The client has its answer before the engine and the application have done with it.
    my $is_over = sub {
        my %seen = map { $_->{what} => 1 } TestTrace::of_path($server->log, '/one');
        return $seen{sent} && $seen{returned};
    };
    ok(wait_for($is_over), 'a request is traced') or return;
    check_request($kind, $has_ring, $by, TestTrace::of_path($server->log, '/one'));
    my @lines = grep { / (?:->|<-) / } split /\n/, $server->log;
    is((grep { /hidden|secret|value/i } @lines), 0, 'neither the query nor header fields are shown');
    return;
}

# ---- From the start -----------------------------------------------------------------------------

my @clones  = Peregrine::Threads::are_possible() ? qw(clones) : ();
my %SERVERS = (
    'PAGI inline'  => [ 'pagi', 0, 'pagi-server', $pagi ],
    'PAGI prefork' => [ 'pagi', 0, 'pagi-server', '--workers',                      2, $pagi ],
    'PAGI thread'  => [ 'pagi', 1, 'pagi-server', qw(--engine thread),              $pagi ],
    'PAGI process' => [ 'pagi', 1, 'pagi-server', qw(--engine process --workers 2), $pagi ],
    'PSGI inline'  => [ 'psgi', 0, 'peregrine',   $psgi ],
    'PSGI process' => [ 'psgi', 1, 'peregrine',   qw(--engine process --workers 2), $psgi ],
    ('PSGI clones' => [ 'psgi', 1, 'peregrine', qw(--engine thread --workers 2), $psgi ]) x @clones,
);
my @most = only_in_full('PAGI inline', 'PAGI prefork', 'PAGI thread', 'PSGI process');
for my $name ('PAGI process', 'PSGI inline', ('PSGI clones') x @clones, @most) {
    my ($kind, $has_ring, $program, @arguments) = @{ $SERVERS{$name} };
    subtest "$name, from the start" => sub {
        local $ENV{PEREGRINE_TRACE} = 'exchanges';
        my $server = TestServer->command_of($program, '-E', 'production', @arguments);
        check_server($server, $kind, $has_ring);
        is($server->stop, 0, 'the server ends well');
    };
}

subtest 'a long body that ends a response of PSGI causes no event' => sub {
    local $ENV{PEREGRINE_TRACE} = 'exchanges';
    my $server = TestServer->command_of('peregrine', qw(-E production --engine process --workers 1), $psgi);
    is(length get($server->{port}, '/long')->{body}, 100_000, 'the body is whole');
    my @records;
    my $is_over = sub {
        @records = TestTrace::of_path($server->log, '/long');
        return scalar grep { $_->{what} eq 'over' } @records;
    };
    ok(wait_for($is_over), 'the request is traced to its end');
    is($server->stop, 0, 'the server ends well');
    my @rings = grep { m{\Aring/} } map { TestTrace::step($_) } TestTrace::of_path($server->log, '/long');
    my @said  = map  { ("ring/app <- $_", "ring/engine <- $_") } qw(start body);
    is_deeply([ sort @rings ], [ sort @RING[ 0, 1 ], @said ], 'a head and a body go through the rings');
};

subtest 'plackup, from the start' => sub {
    program_path('plackup') or plan skip_all => 'there is no plackup';
    local $ENV{PEREGRINE_TRACE} = 'exchanges';
    my $server = TestServer->spawn(
        $^X, (map { "-I$_" } @INC),
        '-S',          qw(plackup -E deployment -s Peregrine -l),
        '127.0.0.1:0', $psgi
    );
    check_server($server, 'psgi', 0);
};

subtest 'the reader goes on at signals for its server, and ends after the server' => sub {
    local $ENV{PEREGRINE_TRACE} = 'exchanges';
    # In a group of processes without a parent outside of it, TTIN and TTOU stop no process.
    my $server = TestServer->spawn(
        $^X, '-e', 'setpgrp 0, 0; exec @ARGV',
        $^X, (map { "-I$_" } @INC),
        'bin/pagi-server', qw(-E production --port 0), $pagi
    );
    my $port = $server->wait_for_log(qr{listening on http://127\.0\.0\.1:(\d+)/});
    get($port, '/');
    my $reader;
    my $is_there = sub {
        ($reader) = grep { content("/proc/$_/cmdline") =~ /peregrine trace/ } _holders();
    };
    ok(wait_for($is_there), 'there is one') or return;
    kill $_ => $reader for Peregrine::Fork::MASTERS_SIGNALS;
    get($port, '/signalled');
    my $goes_on = sub { return scalar TestTrace::of_path($server->log, '/signalled') };
    ok(wait_for($goes_on), 'it goes on') or kill KILL => $reader;
    $server->stop;
    ok(wait_for(sub { is_gone($reader) }), 'it has gone');
};

# The processes that have the descriptor of a trace.
sub _holders {
    my @found;
    for my $folder (glob '/proc/[0-9]*/fd') {
        my ($pid) = $folder =~ /(\d+)/;
        push @found, $pid
            if grep { (readlink($_) // '') eq Peregrine::Trace::NAME() } glob "$folder/*";
    }
    return @found;
}

subtest 'a word that says nothing' => sub {
    local $ENV{PEREGRINE_TRACE} = 'all';
    my $server = TestServer->command('-E', 'production', $pagi);
    like($server->log, qr/PEREGRINE_TRACE: 'all' cannot be traced, 'exchanges' can/, 'is told');
};

# ---- In the middle ------------------------------------------------------------------------------

sub traced {
    my ($reader, $path) = @_;
    my @found;
    wait_for(sub {
        @found = TestTrace::of_path($reader->text, $path);
        return scalar grep { $_->{what} eq 'sent' } @found;
    });
    return @found;
}

# Sends requests until the reader of the trace has seen one: it begins with the first that it comes to.
sub begin {
    my ($server) = @_;
    my $reader   = TestTrace->follow($server->pid);
    my $count    = 0;
    wait_for(sub { get($server->port, '/begin' . $count++); $reader->text ne '' }) or diag $reader->errors;
    return $reader;
}

for my $placement ([], only_in_full([qw(--engine thread)]), [qw(--engine process --workers 2)]) {
    my $has_ring = @$placement;
    subtest "in the middle, @{[ @$placement ? $placement->[1] : 'inline' ]}" => sub {
        my $server    = TestServer->command('-E', 'production', '--http2', @$placement, $pagi);
        my $websocket = TestWebSocket->open($server->port, '/socket');
        my $slow      = TestClient->new($server->port);
        $slow->send("GET /slow HTTP/1.1\r\nHost: h\r\n\r\n");
        my $reader = begin($server);
        is($slow->response->{status}, 201, 'a request that was under way is answered');

        $websocket->text('twice');
        is($websocket->next, 'text twicetwice', 'a WebSocket that was open goes on');
        my @steps;
        wait_for(sub {
            my ($message) =
                grep { $_->{place} eq 'session' && $_->{what} eq 'message' }
                TestTrace::records($reader->text);
            my $ticket = $message ? $message->{ticket} : '';
            @steps = map { TestTrace::step($_) }
                grep { $_->{ticket} eq $ticket } TestTrace::records($reader->text);
            return scalar grep { $_ eq 'lane <- sent' } @steps;
        });
        my @rings = $has_ring ? ('ring/engine -> message', 'ring/app -> message') : ();
        ok(
            in_order(
                \@steps, 'session -> message',
                @rings,  'face -> receive',
                'face <- send',
                ($has_ring ? ('ring/app <- message', 'ring/engine <- message') : ()),
                'exchange <- message',
                'lane <- sent'
            ),
            '... and its messages are traced'
        ) or diag join "\n", @steps;

        my $client = TestHTTP2->new($server->port);
        my @ids    = map { $client->request($_) } qw(/first /second);
        is($client->response($_)->{status}, 201, 'a stream of HTTP/2') for @ids;
        my %tickets;
        for my $path (qw(/first /second)) {
            my @records;
            wait_for(sub {
                @records = TestTrace::of_path($reader->text, $path);
                return scalar grep { $_->{what} eq 'over' } @records;
            });
            ok(in_order([ map { TestTrace::step($_) } @records ], @IN, 'face -> call', @OUT[ 0, 1 ]),
                '... is traced as other requests are');
            $tickets{ $records[0]{ticket} } = 1;
        }
        is(keys %tickets, 2, '... under a ticket of its own');

        is($reader->end, 0, 'the reader ends');
        $client->close;
    };
}

subtest 'an application that dies' => sub {
    my $server = TestServer->command('-E', 'production', $pagi);
    my $reader = begin($server);
    get($server->port, '/die');
    my @records = traced($reader, '/die');
    ok((grep { TestTrace::step($_) eq 'face <- died' } @records), 'is seen to die');
    ok((grep { $_->{what} eq 'start' && $_->{rest} =~ /\A500 / } @records),
        'and the answer is the server\'s');
};

subtest 'processes that come later' => sub {
    my $dir = directory();
    my $server =
        TestServer->command('-E', 'production', qw(--engine process --workers 1 --pid), "$dir/pid", $pagi);
    my $port     = $server->port;
    my $reader   = begin($server);
    my ($before) = get($port, '/before')->{body} =~ /(\d+)/;
    $server->signal('HUP');
    my $after;
    ok(wait_for(sub { ($after) = get($port, '/after')->{body} =~ /(\d+)/; $after != $before }),
        'HUP: another interpreter');
    ok(
        wait_for(sub {
            grep { $_->{process} == $after } TestTrace::records($reader->text);
        }),
        '... is traced'
    );
    my @old    = traced($reader, '/before');
    my $engine = $old[0]{process};

    my $master = pid_in('pid');
    $server->signal('USR2');
    ok(wait_for(sub { (pid_in('pid') || 0) != $master && pid_in('pid') }), 'USR2: another program');
    ok(wait_for(sub { is_gone($master) }),                                 '... takes over');
    ok(get($port, '/new'),                                                 '... and serves');
    my @new = traced($reader, '/new');
    ok(in_order([ map { TestTrace::step($_) } @new ], @IN, @RING, @OUT),
        '... and is traced by the same reader');
    isnt($new[0]{process}, $engine, '... with an engine of its own');
    is((split /:/, $new[0]{ticket})[0], $new[0]{process}, '... which tickets name');
    ok(stop_master('pid'), 'the new program stops');
    is($reader->status, 0, 'and the reader with it');
};

# ---- Readers ------------------------------------------------------------------------------------

subtest 'a reader that is killed' => sub {
    my $server = TestServer->command('-E', 'production', qw(--workers 2), $pagi);
    my $reader = begin($server);
    my $memory = Peregrine::Trace->of_process($server->pid);
    ok($memory->is_on, 'records are wanted');
    $reader->end('KILL');
    ok(wait_for(sub { get($server->port, '/'); !$memory->is_on }), 'they are no longer, after a while');
    my $number = $memory->made;
    is(get($server->port, '/')->{status}, 201,     'the server serves');
    is($memory->made,                     $number, '... and makes no records');
};

subtest 'two readers' => sub {
    my $server = TestServer->command('-E', 'production', $pagi);
    my ($first, $second) = map { begin($server) } 1 .. 2;
    is($first->end, 0, 'one ends');
    for my $turn (1 .. 20) {
        get($server->port, "/turn$turn");
        Time::HiRes::sleep(0.1);
    }
    ok((traced($second, "/turn$_") ? 1 : 0), "the other one sees request $_") for 1, 10, 20;
};

subtest 'a reader that is too slow' => sub {
    my $server = TestServer->command_of('peregrine', '-E', 'production', $psgi);
    my $memory = Peregrine::Trace->of_process($server->pid)->begin;
    my $count  = (Peregrine::trace_layout())[0]{count};
    my $client = TestClient->new($server->port);
    while ($memory->made < $count + 1000) {
        $memory->want;
        $client->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n" x 50);
        $client->response for 1 .. 50;
    }
    my @lines;
    while (my @more = $memory->lines) { push @lines, @more }
    my ($lost) = $lines[0] =~ /\A-- (\d+) records are lost: they came faster than they were read\z/;
    cmp_ok($lost // 0, '>', 1000, 'is told how many records it has lost');
    is($memory->lost,      $lost,         '... and knows the number');
    is($lost + @lines - 1, $memory->made, '... and has read all others');
    like($lines[-1], qr/ lane .* <- sent /, '... up to the last one');
};

subtest 'who may read' => sub {
    my $server = TestServer->command('-E', 'production', $pagi);
    my $none   = TestTrace->follow($$);
    is($none->status >> 8, 1, 'a process that serves nothing');
    like($none->errors, qr/\Aprocess \d+ is none of a server that can be traced\n\z/, '... is refused');
    plan skip_all => 'only root can be another user' if $>;
    my $nobody = getpwnam 'nobody' // die 'nobody';
    my $other =
        TestTrace->follow($server->pid, before => sub { POSIX::setgid(65534); POSIX::setuid($nobody) });
    isnt($other->status, 0, 'another user');
    like(
        $other->errors,
        qr/is not this user's: only the user who has started a server, and root, may trace it/,
        '... is refused'
    );
};

subtest 'words of the command' => sub {
    my ($status, $out, $error) = TestServer->finish_at('bin/peregrine', 'trace');
    is($status, 2, 'no process');
    like($error, qr/\Aperegrine: a trace is of one process: peregrine trace PID\n/, '... is told');
    ($status, $out, $error) = TestServer->finish_at('bin/pagi-server', qw(trace 999999999));
    is($status, 1,                                 'a process that is not there');
    is($error,  "there is no process 999999999\n", '... is told');
};

done_testing;
