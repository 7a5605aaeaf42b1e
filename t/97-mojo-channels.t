# Channels in applications of Mojolicious: what one action publishes comes to WebSockets and event streams of
# all workers, in each placement.
use strict;
use warnings;

use lib 't/lib';
use OnlyInFull qw(only_in_full);
use Test::More;
use TestClient;
use TestServer;
use TestTools qw(can_read patience wait_for);
use TestWebSocket;
use TestWorkers qw(write_file);

BEGIN {
    for my $module (qw(Mojolicious Linux::Epoll IO::Async::Loop::Epoll)) {
        plan skip_all => "needs $module" if !TestTools::has_module($module);
    }
}

my $app = write_file('app.pl', <<'END');
use Mojolicious::Lite -signatures;
plugin 'Peregrine';
app->log->level('error');
my $subscriptions = my $heard = 0;
websocket '/room/:room' => sub ($c) {
    my $said = sub ($c, $message) {
        $heard++;
        die "told to\n" if $message->{text} eq 'die';
        $c->send("$message->{text} to $$");
    };
    $c->inactivity_timeout(300);
    $c->subscribe_to($c->param('room') => $said)->then(sub { $subscriptions++; $c->send("joined $$") });
    $c->on(message => sub ($c, $text) {
        $c->channels->publish($c->param('room') => { type => 'said', text => $text });
    });
    $c->on(finish => sub { $subscriptions-- });
};
get '/stream/:room' => sub ($c) {
    $c->inactivity_timeout(300)->res->headers->content_type('text/event-stream');
    $c->write("data: begun\n\n");
    $c->subscribe_to($c->param('room') => sub ($c, $message) { $c->write("data: $message->{text}\n\n") });
};
post '/room/:room' => sub ($c) {
    $c->render_later;
    my $message = { type => $c->param('type') // 'said', text => $c->req->body };
    $c->channels->publish($c->param('room') => $message)->then(
        sub { $c->render(text => 'said') },
        sub ($why, @) { $c->render(text => $why, status => 400) },
    );
};
get '/facts' => sub ($c) { $c->render(json => { process => $$, count => $subscriptions, heard => $heard }) };
my $node;
hook before_server_start => sub ($server, $app) { $node = $server->channels && $server->channels->node };
get '/node' => sub ($c) { $c->render(text => scalar keys %{ $node->{mail} }) };
app->start;
END

sub started {
    my (@options) = @_;
    my $server = TestServer->spawn(
        $^X, (map { "-I$_" } @INC),
        'bin/peregrine',
        qw(--no-access-log -E production),
        qw(--listen 127.0.0.1:0),
        @options, $app
    );
    $server->wait_for_log(qr{listening on http://\S+?:(\d+)}) or die $server->log;
    my ($port) = $server->log =~ m{listening on http://[^:]+:(\d+)};
    return ($server, $port);
}

sub ask {
    my ($port, $request, $body) = @_;
    my $length = defined $body ? 'Content-Length: ' . length($body) . "\r\n" : '';
    my $client = TestClient->new($port);
    return $client->send("$request HTTP/1.1\r\nHost: h\r\n$length\r\n" . ($body // ''))->response || {};
}

sub read_until {
    my ($client, $wanted) = @_;
    my $seen = '';
    while ($seen !~ $wanted && can_read($client->socket, 20)) {
        last if !$client->socket->sysread($seen, 4096, length $seen);
    }
    return $seen;
}

for my $placement ([qw(--engine process --workers 2)],
    only_in_full([qw(--engine inline)], [qw(--engine inline --workers 2)], [qw(--engine thread --workers 2)]))
{
    subtest "@$placement" => sub {
        my ($server, $port) = started('--channels', @$placement);
        my $workers = "@$placement" =~ /workers/ ? 2 : 1;
        my (@sockets, %processes);
        while (@sockets < 6 || @sockets < 60 && keys %processes < $workers) {
            push @sockets, TestWebSocket->open($port, '/room/blue');
            my ($process) = $sockets[-1]->next =~ /\Atext joined (\d+)\z/;
            $processes{ $process // '' } = 1;
        }
        is scalar(keys %processes), $workers, 'all workers have clients';
        my $other = TestWebSocket->open($port, '/room/green');
        $other->next;
        my $stream = TestClient->new($port)->send("GET /stream/blue HTTP/1.1\r\nHost: h\r\n\r\n");
        my $seen   = read_until($stream, qr/begun/);
        ok wait_for(sub { ask($port, 'GET /node')->{body} =~ /\A[1-9]/ }), 'subscriptions are open';

        $sockets[0]->text('hello');
        my @heard = map { $_->next } @sockets;
        is grep({ /\Atext hello to \d+\z/ } @heard), scalar @sockets,
            'a message of a WebSocket comes to all of the room';
        is ask($port, 'POST /room/blue', 'from an action')->{body}, 'said',          'an action publishes';
        is grep({ $_->next =~ /\Atext from an action/ } @sockets),  scalar @sockets, '... to all of the room';
        $other->text('mine');
        like $other->next, qr/\Atext mine to/, 'another room has its own messages only';
        $seen .= read_until($stream, qr/action/);
        like $seen, qr/data: hello\n.*data: from an action\n/s, 'and so does an event stream';

        is ask($port, 'POST /room/b%20d', 'x')->{body}, 'InvalidTopicName', 'a failure breaks the promise';
        is ask($port, 'POST /room/blue?type=http.request', 'x')->{body}, 'InvalidMessage', 'any failure';
        $sockets[0]->text('die');
        ok $server->wait_for_log(qr/A subscriber of blue failed: told to/),
            'what a subscriber dies of is told';
        $sockets[0]->text('goes on');
        is grep({ $_->next =~ /\Atext goes on/ } @sockets), scalar @sockets, '... and it hears what follows';
        undef $stream;
        $_->close for @sockets, $other;
        @sockets = ();
        undef $other;
        my @counts;
        my $are_closed = sub {
            @counts = map { ask($port, 'GET /node')->{body} } 1 .. 8;
            return !grep { $_ ne '1' } @counts;    # the lifespan's
        };
        ok wait_for($are_closed), 'subscriptions end with their clients' or diag "@counts";
        is $server->stop, 0, 'the server ends well';
    };
}

subtest 'a client that takes nothing' => sub {
    # The messages may take longer than a client may take nothing.
    my ($server, $port) = started(qw(--channels --engine inline --write-timeout), patience(300));
    my $socket = TestWebSocket->open($port, '/room/blue', receive_buffer => 65_536);
    $socket->next;
    my $large    = 'x' x 60_000;
    my $messages = only_in_full(400) || 250;
    is ask($port, 'POST /room/blue', $large)->{body}, 'said', 'publishing goes on' for 1 .. $messages;
    my ($heard) = ask($port, 'GET /facts')->{body} =~ /"heard":(\d+)/;
    cmp_ok $heard, '<', $messages - 40, 'messages that it has no room for do not gather in the application';
    my $count = 0;
    $count++ while $count < $heard && $socket->next =~ /\Atext x/;
    is $count, $heard, '... and when it takes them, all that were kept come';
    ok wait_for(sub { ask($port, 'GET /facts')->{body} =~ /"heard":(\d+)/ && $1 > $heard }),
        '... those too that waited';
    is $server->stop, 0, 'the server ends well';
};

subtest 'where there are no channels' => sub {
    my ($server, $port) = started(qw(--engine inline));
    is ask($port, 'POST /room/blue', 'x')->{status}, 500, 'an action that publishes dies';
    ok $server->wait_for_log(qr/the server needs --channels/), '... and the log says why';
    is $server->stop, 0, 'the server ends well';
};

done_testing;
