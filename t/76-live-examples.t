# The examples that are about time: a ticker whose streams are continued, and three ways to deal
# with slow clients.
use strict;
use warnings;

use lib 't/lib';
use Test::More;
use TestClient qw(get exchange);
use TestServer;
use TestStream;
use TestTools qw(can_read content patience wait_for);

subtest 'sse-ticker' => sub {
    my $server = TestServer->command('examples/pagi/sse-ticker/app.pl');
    my $port   = $server->port;
    like(get($port, '/')->{body}, qr/new EventSource\("\/ticks"\)/, 'the page');
    is(get($port, '/ticks')->{status},   406, 'the stream is for those who ask for one');
    is(get($port, '/nothing')->{status}, 404, 'nothing else is there');
    is(get($port, '/nothing', 'Accept: text/event-stream')->{status}, 404, '... as a stream neither');
    my $stream = TestStream->open($port, '/ticks', timeout => 30);
    is_deeply($stream->message, { event => 'hello', data => 'from 0 on', retry => 1000 }, 'a stream begins');
    my @seen;

    while (my $tick = $stream->message) {
        push @seen, $tick->{id};
        like($tick->{data}, qr/\A\d\d:\d\d:\d\d\z/, "tick $tick->{id} has the time");
        last if @seen == 4;
    }
    $stream->close;
    select undef, undef, undef, 1.2;
    $stream = TestStream->open($port, '/ticks', fields => ['Last-Event-ID: 2'], timeout => 30);
    is($stream->message->{data}, 'from 2 on', 'somebody comes back');
    push @seen, 'back';
    while (my $tick = $stream->message) { push @seen, $tick->{id} }
    is("@seen", join(' ', 1 .. 4, 'back', 3 .. 22), '... and gets what was missed, then the rest of twenty');
    is($stream->ending, 'terminated',               '... and the end of the stream');

    for my $id ('nonsense', '999999', '-1', '') {
        my $other = TestStream->open($port, '/ticks', fields => ["Last-Event-ID: $id"]);
        like($other->message->{data}, qr/\Afrom (?:2[2-9]|3\d) on\z/, "the id '$id' means from now on");
    }
    is($server->stop, 0, 'the server ends well');
    unlike($server->log, qr/application died|ended/, 'nothing died') or diag $server->log;
};

subtest 'progress, of PSGI' => sub {
    my $server = TestServer->command_of(
        'peregrine',
        qw(--engine process --workers 2 --channels --grip app.),
        'examples/psgi/progress/app.psgi'
    );
    my $port = $server->port;
    like(get($port, '/')->{body}, qr/<progress max="100"/, 'the page');
    my @streams = map { TestStream->open($port, '/progress', timeout => 30) } 1 .. 8;
    is($_->message->{event},                           'open', 'a stream begins') for @streams;
    is(TestClient::post($port, '/work', '')->{status}, 202,    'work begins');
    is(get($port, '/')->{status},                      200,    'another worker serves meanwhile');
    for my $stream (@streams) {
        is_deeply([ map { $stream->message->{data} } 1 .. 100 ], [ 1 .. 100 ], 'each one sees all of it');
    }
    is($server->stop, 0, 'the server ends well');
};

sub lines {
    my ($body)  = @_;
    my @numbers = $body =~ /^(\d+) x+$/mg;
    my ($sent, $of) = $body =~ /^sent (\d+) of (\d+)\n\z/m;
    return (\@numbers, $sent, $of);
}

# Whether a process sleeps longer than the timers of the example would let it.
sub is_at_rest {
    my ($pid) = @_;
    my @looks = map {
        select undef, undef, undef, $_;
        join ' ', content("/proc/$pid/status") =~ /^State:\s+(S).*^voluntary_ctxt_switches:\s+(\d+)/ms;
    } 0, 0.05;
    return $looks[0] ne '' && $looks[0] eq $looks[1];
}

subtest 'backpressure' => sub {
    my $server = TestServer->command('examples/pagi/backpressure/app.pl');
    my $port   = $server->port;
    for my $way (qw(await conflate pause)) {
        my $client = TestClient->new($port, receive_buffer => 65_536, timeout => 60);
        $client->send("GET /$way HTTP/1.1\r\nHost: h\r\n\r\n");
        # A slow client reads when the application does nothing any more but wait for it.
        ok(can_read($client->socket, patience(30)), "/$way begins");
        ok(wait_for(sub { is_at_rest($server->pid) }), '... and waits');
        my ($numbers, $sent, $of) = lines($client->response->{body});
        is($of,              500,   "/$way answers");
        is(scalar @$numbers, $sent, '... with as many updates as it says');
        is($numbers->[-1],   500,   '... the newest is the last');
        if ($way eq 'conflate') { cmp_ok($sent, '<', 500, '... some were left out') }
        else                    { is("@$numbers", join(' ', 1 .. 500), '... all are there, in order') }
    }
    like(get($port, '/')->{body}, qr{\AThere are /await /conflate /pause\.\n\z}, 'other paths tell of these');
    my $client =
        TestClient->new($port, receive_buffer => 65_536)->send("GET /pause HTTP/1.1\r\nHost: h\r\n\r\n");
    $client->some(5);
    $client->reset;
    is(get($port, '/')->{status}, 404, 'a client that leaves hurts nobody');
    is($server->stop,             0,   'the server ends well');
    unlike($server->log, qr/application died|ended/, 'nothing died') or diag $server->log;
};

done_testing;
