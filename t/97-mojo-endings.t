# How requests and WebSockets of Mojolicious may end, each of them many times: none leaves a transaction or a
# controller behind, in no placement. Event streams wait for slow clients.
# Not repeated for each PEREGRINE_ENGINE.
use strict;
use warnings;

use lib 't/lib';
use OnlyInFull qw(only_in_full);
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools qw(wait_for);
use TestWebSocket;
use TestWorkers qw(write_file);

BEGIN {
    for my $module (qw(Mojolicious Linux::Epoll IO::Async::Loop::Epoll)) {
        plan skip_all => "needs $module" if !TestTools::has_module($module);
    }
}

# A single object that is left tells already.
my $TIMES = only_in_full(20) || 5;

my $app = write_file('app.pl', <<'END');
use Mojolicious::Lite -signatures, -async_await;
use Mojo::Promise;
use Scalar::Util qw(weaken);
app->log->level('fatal');
app->max_request_size(100_000);
my (@live, %finished);
my $sent = 0;
# Objects that live on are counted by their class.
sub watch ($object) { push @live, $object; weaken $live[-1] }
hook after_build_tx  => sub ($tx, $app) { watch($tx) };
hook around_dispatch => sub ($next, $c) { watch($c); $next->() };
get '/live' => sub ($c) {
    @live = grep { defined } @live;
    weaken $_ for @live;
    my %count;
    $count{ ref $_ =~ s/\AMojo::Server::Peregrine::Transaction\z/request/r }++ for @live;
    $c->render(json => \%count);
};
get '/sent' => sub ($c) { $c->render(text => $sent) };
get '/finished/:what' => sub ($c) { $c->render(text => $finished{ $c->param('what') } // 0) };

get '/whole'   => sub ($c) { $c->render(text => 'whole') };
get '/later'   => sub ($c) { $c->render_later; Mojo::IOLoop->timer(0.01 => sub { $c->render(text => 'x') }) };
get '/await'   => async sub ($c) { await Mojo::Promise->timer(0.01); $c->render(text => 'x') };
get '/dies'    => sub ($c) { die "on purpose\n" };
get '/rejects' => async sub ($c) { await Mojo::Promise->timer(0.01); die "on purpose\n" };
get '/pieces'  => sub ($c) {
    my $left = 5;
    my $next = sub ($c, @) { $left-- ? $c->write_chunk('piece' => __SUB__) : $c->finish };
    $c->$next;
};
get '/dies-between' => sub ($c) { $c->write_chunk('piece' => sub ($c, @) { die "on purpose\n" }) };
get '/never'   => sub ($c) { $c->render_later; $c->on(finish => sub { $finished{never}++ }) };
get '/idle'    => sub ($c) { $c->render_later->inactivity_timeout(0.1) };
get '/cut'     => sub ($c) { $c->render_later; Mojo::IOLoop->stream($c->tx->connection)->close };
get '/events'  => sub ($c) {
    $c->inactivity_timeout(300)->res->headers->content_type('text/event-stream');
    my $event = "data: " . 'x' x 10_000 . "\n\n";
    my $next = sub ($c, @) { $sent++; $c->write($event => __SUB__) };
    $c->$next;
    $c->on(finish => sub { $finished{events}++ });
};
post '/upload' => sub ($c) { $c->render(text => length $c->req->body) };
websocket '/ws' => sub ($c) {
    $c->tx->max_websocket_size(1000)->with_compression;
    $c->on(message => sub ($c, $text) {
        return $c->finish(4001 => 'enough') if $text eq 'close';
        die "on purpose\n"                  if $text eq 'die';
        $c->send($text => sub ($c) { $c->send('drained') });
    });
    $c->on(finish => sub ($c, $code, $reason) { $finished{"ws$code"}++ });
};
websocket '/idle-ws' => sub ($c) { $c->inactivity_timeout(0.1)->on(message => sub { }) };
websocket '/refused' => sub ($c) { $c->render(text => 'no', status => 403) };
websocket '/flood'   => sub ($c) {
    my $next = sub ($c, @) { $sent++; $c->send({ binary => 'x' x 10_000 } => __SUB__) };
    $c->$next;
    $c->on(finish => sub { $finished{flood}++ });
};
app->start;
END

sub ask { return TestClient->new($_[0])->send("$_[1] HTTP/1.1\r\nHost: h\r\n\r\n") }

sub socket_at { return TestWebSocket->open(@_, lines => ['Sec-WebSocket-Extensions: permessage-deflate']) }

my %seen;    # by port: that WebSockets hear on

# Each gets the port.
my %ENDINGS = (
    (
        map {
            my $path = $_;
            ("GET /$path" => sub { get($_[0], "/$path") })
        } qw(whole later await dies rejects pieces dies-between idle cut missing)
    ),
    'a client that leaves while its answer is awaited' => sub { ask($_[0], 'GET /never') },
    'a client that leaves a stream of events'          => sub {
        my $client = ask($_[0], 'GET /events');
        $client->socket->sysread(my $some, 1000);
    },
    'an upload' => sub {
        TestClient->new($_[0])->send("POST /upload HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello")
            ->response;
    },
    'an upload that is too large' => sub {
        TestClient->new($_[0])
            ->send("POST /upload HTTP/1.1\r\nHost: h\r\nContent-Length: 120000\r\n\r\n" . 'x' x 120_000)
            ->response;
    },
    'half an upload' => sub {
        TestClient->new($_[0])->send("POST /upload HTTP/1.1\r\nHost: h\r\nContent-Length: 50\r\n\r\nhello");
    },
    'a WebSocket that the client closes' => sub {
        my $socket = socket_at($_[0], '/ws');
        $socket->text('hello');
        $socket->next for 1, 2;
        $socket->close_frame(1000);
        $socket->next;
    },
    'a WebSocket that the action closes'         => sub { socket_at($_[0], '/ws')->text('close')->next },
    'a WebSocket whose action dies of a message' => sub {
        my $socket = socket_at($_[0], '/ws')->text('die')->text('hello');
        is $socket->next, 'text hello', 'hears the next one' if !$seen{ $_[0] }++;
    },
    'a WebSocket whose client vanishes' => sub { socket_at($_[0], '/ws')->text('hello')->reset },
    'a message that is too large'       => sub { socket_at($_[0], '/ws')->text('x' x 1001)->next },
    'one that inflates to too much'     => sub {
        socket_at($_[0], '/ws')
            ->send_frame(TestWebSocket::TEXT, TestWebSocket::deflated('x' x 1001), rsv => 4)->next;
    },
    # On a busy machine its time may be up before the handshake is answered.
    'a WebSocket whose time is up' => sub {
        my $socket = TestWebSocket->start($_[0], '/idle-ws');
        $socket->next if $socket->answer;
    },
    'a handshake that is refused'  => sub { TestWebSocket->start($_[0], '/refused')->answer },
    'a client that leaves a flood' => sub { TestWebSocket->open($_[0], '/flood')->next_frame },
);

for my $placement (only_in_full([qw(inline 0)], [qw(thread 0)]), [qw(process 1)]) {
    my ($engine, $workers) = @$placement;
    subtest "--engine $engine" => sub {
        my $server = TestServer->command_of(qw(peregrine --no-access-log --workers),
            $workers, '--engine', $engine, $app);
        my $port = $server->port;
        my $text = sub { return (get($port, $_[0]) || { body => 'no answer' })->{body} };
        # The request that asks is alive.
        my $none = $text->('/live');
        for my $name (sort keys %ENDINGS) {
            $ENDINGS{$name}->($port) for 1 .. $TIMES;
            my $left;
            ok wait_for(sub { ($left = $text->('/live')) eq $none }), $name or diag "$left and not $none";
        }
        is $text->('/finished/never'),  $TIMES, 'the application has heard of each client that left';
        is $text->('/finished/ws1000'), $TIMES, '... of each WebSocket that was closed';
        is $text->('/finished/ws4001'), $TIMES, '... of those that it has closed itself';
        is $text->("/finished/$_"),     $TIMES, "... and of those that left $_" for qw(events flood);

        for my $case ([ 'a stream of events', sub { ask($port, 'GET /events') } ],
            [ 'messages of a WebSocket', sub { TestWebSocket->open($port, '/flood')->{client} } ])
        {
            my ($what, $open) = @$case;
            my $client = $open->();
            my ($before, $now) = (-1, 0);
            wait_for(sub {
                ($before, $now) = ($now, $text->('/sent'));
                select undef, undef, undef, 0.3;
                $now == $before;
            });
            my $begun = $now;
            select undef, undef, undef, 0.5;
            is $text->('/sent'), $begun, "$what: the action waits for a client that takes nothing";
            $client->_bytes(20_000_000);
            ok wait_for(sub { $text->('/sent') > $begun + 500 }), '... and goes on when it takes something';
        }
        is $server->stop, 0, 'the server ends well';
    };
}

done_testing;
