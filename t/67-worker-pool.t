# A worker pool (PAGI's design document, docs/design/worker-pool.mkdn) wherever the engine and the application
# run: what calls get, what they say when they fail, and that nobody waits for them.
# Not repeated for each PEREGRINE_ENGINE: its servers name their engines.
use strict;
use warnings;

use lib 't/lib';
use JSON::PP   ();
use OnlyInFull qw(crossed only_in_full);
use Test::More;
use TestClient qw(get);
use TestGate;
use TestPool qw(application asked begin calls handlers outcomes pool_processes waits);
use TestServer;
use TestTools qw(refused wait_for);
use TestWebSocket;
use TestWorkers qw(write_file);
use Time::HiRes qw(time);

plan skip_all => 'Linux only' if $^O ne 'linux';

my ($app, $pool) = (application(), handlers());

sub try_values {
    my ($server) = @_;
    my @values = (1, 'a', "\x{20ac}", undef, [ 1, [] ], { k => { l => 2.5 } });
    is_deeply [ calls($server, [ echo => \@values ]) ], [ [ done => \@values ] ],
        'arguments and a result come as they were';
    is_deeply [ calls($server, [ kinds => "perl \"\\xe9\", \"\\x{20ac}\"" ]) ],
        [ [ done => [qw(bytes text)] ] ],
        'bytes stay bytes, characters stay characters';
    is_deeply [ calls($server, ['nothing'], [ number => [41] ]) ], [ [ done => undef ], [ done => 42 ] ],
        'a handler that returns nothing gives undef; numbers are numbers';
    is_deeply [ calls($server, [ length => 'perl "x" x 3_000_000' ]) ], [ [ done => 3_000_000 ] ],
        'arguments of 3 MB';
    is asked($server, '/count', [ [ large => [5000] ] ]), 5000, 'a result of 5 MB';
    return;
}

sub try_failures {
    my ($server) = @_;
    is_deeply [ calls($server, [ die => ["wrong\n"] ], [ die => [ { code => 7 } ] ]) ],
        [ [ HandlerDied => "wrong\n" ], [ HandlerDied => { code => 7 } ] ], 'what a handler dies of';
    my @said = calls(
        $server, ['object'], ['code'], ['ecko'],
        [ echo => 'perl sub { }' ],
        [ echo => 'perl \*STDIN' ],
        [ echo => 'perl qr/x/' ],
        ['exit'], [ length => 'perl "x" x (65 << 20)' ]
    );
    my @expected = (
        [ HandlerDied     => qr/\ASome::Class=HASH/ ],
        [ NotSerializable => qr/\ANotSerializable: the result of 'code': .* not of CODE\z/ ],
        [ UnknownHandler  => qr/\AUnknownHandler: there is no handler 'ecko' \(did you mean 'echo'\?\)\z/ ],
        [ NotSerializable => qr/the arguments of 'echo': .* not of CODE\z/ ],
        [ NotSerializable => qr/not of GLOB\z/ ],
        [ NotSerializable => qr/not of Regexp\z/ ],
        [ WorkerDied      => qr/\AWorkerDied: the process that worked at 'exit' has ended\z/ ],
        [ NotSerializable => qr/at most 67108864 bytes\z/ ],
    );
    for my $i (0 .. $#expected) {
        is $said[$i][0], $expected[$i][0], "the kind of a failure: $expected[$i][0]";
        like $said[$i][1], $expected[$i][1], '... and its text';
    }
    is_deeply [ map { $_->[0] } @{ asked($server, '/wrong') } ], [ ('InvalidCall') x 8 ],
        'calls that are none';
    like asked($server, '/child'), qr/\AInvalidCall: process \d+ was forked/,
        'a process that the application forks has no pool';
    return;
}

# A call that takes a second delays no other client; nor does one that takes its processor.
sub try_blocking {
    my ($server) = @_;
    my $client   = TestClient->new($server->port);
    my $body     = '[["sleep",[3]]]';
    my $began    = time;
    $client->send("POST /calls HTTP/1.1\r\nHost: h\r\nContent-Length: ${\length $body}\r\n\r\n$body");
    my @sockets = map { TestWebSocket->open($server->port, '/') } 1 .. 4;
    for my $socket (@sockets) { $socket->text('hello'); $socket->next }
    $sockets[0]->text('pool');
    is $sockets[0]->next, 'text pool', 'a WebSocket calls while another call goes on';
    cmp_ok time - $began, '<', 3, '... and has not waited for it';
    $_->close for @sockets;
    is JSON::PP::decode_json($client->response->{body})->[0][0], 'done', 'the call ends';
    return;
}

sub try_stats {
    my ($server, $count) = @_;
    my $idle = { workers => 2, busy => 0, idle => 2, queue_depth => 0, queue_limit => 3 };
    is_deeply wait_for(sub { my $stats = asked($server, '/stats'); $stats->{idle} == 2 ? $stats : 0 }), $idle,
        'stats of an idle pool';
    # On a busy machine an idle process may take its call so late that one more call finds no place.
    my @right = (('done') x 5, ('Backpressure') x 2);
    my @said;
    for (1 .. 3) {
        my $gate   = TestGate->new;
        my $client = begin($server, '/together', map { waits($gate) } 1 .. 7);
        wait_for(sub { asked($server, '/stats')->{busy} == 2 });
        $gate->open('open');
        @said = outcomes($client);
        last if "@said" eq "@right";
    }
    is_deeply \@said, \@right, 'two calls are made, three wait, the next are refused';
    my $gate   = TestGate->new;
    my $client = begin($server, '/together', map { waits($gate) } 1 .. 4);
    my $busy   = { workers => 2, busy => 2, idle => 0, queue_depth => 2, queue_limit => 3 };
    my $stats;
    wait_for(sub {
        $stats = asked($server, '/stats');
        return $stats->{busy} == 2 && $stats->{queue_depth} == 2;
    });
    is_deeply $stats, $busy, 'stats of a busy pool, whoever calls';
    $gate->open('open');
    $client->response;
    is_deeply wait_for(sub { my $stats = asked($server, '/stats'); $stats->{busy} ? 0 : $stats }), $idle,
        'and idle again';
    return;
}

for my $how (
    [ 'one process, inline', '--engine', 'inline' ],
    only_in_full(
        [ 'one process, thread', '--engine', 'thread' ],
        [ 'two workers, inline', '--engine', 'inline', '--workers', 2 ]
    ),
    [ 'two workers, thread',       '--engine', 'thread',  '--workers', 2 ],
    [ 'two workers, process',      '--engine', 'process', '--workers', 2 ],
    [ 'two workers of a template', '--engine', 'process', '--workers', 2, '--preload-app' ],
    )
{
    my ($title, @arguments) = @$how;
    subtest $title => sub {
        my $server = TestServer->command(@arguments, '--worker-pool', $pool, '--pool-workers', 2,
            '--pool-queue', 3, $app);
        is_deeply asked($server, '/state'), { extensions => ['worker_pool'], called => ['startup'] },
            'lifespan says that there is a pool, and calls it';
        try_values($server);
        try_failures($server);
        try_blocking($server);
        try_stats($server);
        asked($server, '/forget',
            [ [ note => ['this'] ], [ die => ["in vain\n"] ], [ note => 'perl sub { }' ] ]);
        ok $server->wait_for_log(qr/noted this/), 'call_forget is made';
        ok $server->wait_for_log(qr/the call of 'die', which nobody waits for, failed: in vain/),
            '... and its failure is logged';
        is $server->stop, 0, 'the server stops';
        like $server->log, qr/in shutdown: shutdown/, 'lifespan may call in its shutdown';
        is scalar(() = $server->log =~ /cleans up after/g), 2, 'each process has cleaned up';
    };
}

subtest 'bin/peregrine, beside an application of PSGI' => sub {
    my $psgi = write_file('hello.psgi', 'sub { [ 200, [], ["hello"] ] }');
    my $server =
        TestServer->command_of('peregrine', '--worker-pool', $pool, '--mount', "/=$app", '--mount',
        "/psgi=$psgi");
    is_deeply [ calls($server, [ echo => [1] ]) ], [ [ done => [1] ] ],
        'the application of PAGI has the pool';
    is get($server->port, '/psgi')->{body}, 'hello', 'the application of PSGI answers';
    is $server->stop,                       0,       'the server stops';
};

subtest 'in a program' => sub {
    my $server = TestServer->start(
        app         => do $app,
        worker_pool => {
            workers     => 1,
            queue_limit => 0,
            handlers    => { echo => sub { my ($state, @args) = @_; return [ $state->{word}, @args ] } },
            init        => sub { return { word => 'ready' } },
        },
    );
    is_deeply [ calls($server, [ echo => [1] ]) ], [ [ done => [ 'ready', 1 ] ] ], 'handlers are closures';
    is_deeply asked($server, '/stats'),
        { workers => 1, busy => 0, idle => 1, queue_depth => 0, queue_limit => 0 },
        'the numbers are those of the design document';
    is $server->stop, 0, 'the server stops';
};

subtest 'without a pool' => sub {
    my $bare = write_file('bare.pl', <<'PERL');
use Future::AsyncAwait;
async sub {
    my ($scope, $receive, $send) = @_;
    die "no lifespan\n" if $scope->{type} eq 'lifespan';
    my $body = join ',', sort keys %{ $scope->{pagi} };
    await $send->({ type => 'http.response.start', status => 200, headers => [] });
    await $send->({ type => 'http.response.body', body => $body });
}
PERL
    my $server = TestServer->command($bare);
    is get($server->port, '/')->{body}, 'spec_version,version', 'scopes have no extensions of the pool';
    is $server->stop,                   0,                      'the server stops';
};

# ---- What is refused ----------------------------------------------------------------------------

my $handlers = { echo => sub { } };
for my $wrong (
    [ {},                                            qr/needs 'handlers'/ ],
    [ { handlers => {} },                            qr/needs 'handlers'/ ],
    [ { handlers => { a => 1 } },                    qr/needs a code reference for the handler 'a'/ ],
    [ { handlers => $handlers, init => 1 },          qr/needs a code reference for 'init'/ ],
    [ { handlers => $handlers, innit => 1 },         qr/has no 'innit' \(did you mean 'init'\?\)/ ],
    [ { handlers => $handlers, workers => 0 },       qr/option 'pool_workers' must be an integer from 1/ ],
    [ { handlers => $handlers, queue_limit => 'x' }, qr/option 'pool_queue' must be/ ],
    [ '/nowhere/pool.pl',                            qr/there is no file/ ],
    [ [],                                            qr/must be a hash reference, or the path of a file/ ],
    )
{
    my ($value, $message) = @$wrong;
    like refused(app => sub { }, worker_pool => $value), $message, "refused: $message";
}

my @wrong = (
    [ 'die "bad\n";',                                                            qr/bad/ ],
    [ '+{ handlers => { a => sub { } }, init => sub { die "no database\n" } };', qr/no database/ ],
    [ '1;',                                               qr/must be a hash reference/ ],
    [ '+{ handlers => { a => sub { } }, workers => 2 };', qr/'workers' is the option pool_workers/ ],
);
for my $case (crossed(\@wrong, [ [], [ '--workers', 1 ], [ '--workers', 1, '--preload-app' ] ])) {
    my ($code, $message) = @{ $case->[0] };
    my @arguments = @{ $case->[1] };
    my $file      = write_file('wrong.pl', $code);
    my ($status, undef, $said) = TestServer->finish(@arguments, '--port', 0, '--worker-pool', $file, $app);
    isnt $status, 0, "the start fails: $code (@arguments)";
    like $said, $message, '... for this reason';
}

done_testing;
