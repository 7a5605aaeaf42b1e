# Code of an application of Mojolicious that dies where Mojolicious itself does not catch it: subscribers of a
# connection's stream and of a handshake, and a hook of the error page. Nothing stays behind, and WebSockets
# go on.
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

my $TIMES = 5;

my $app = write_file('app.pl', <<'END');
use Mojolicious::Lite -signatures;
use Scalar::Util qw(weaken);
app->log->level('fatal');
my @live;
sub watch ($object) { push @live, $object; weaken $live[-1] }
hook after_build_tx  => sub ($tx, $app) { watch($tx) };
hook around_dispatch => sub ($next, $c) { watch($c); $next->() };
hook before_render   => sub ($c, $args) { die "no page\n" if $c->req->url->path =~ m{\A/dies} };
get '/live' => sub ($c) {
    @live = grep { defined } @live;
    weaken $_ for @live;
    $c->render(text => scalar @live);
};
sub stream_of ($c) {
    my $stream = Mojo::IOLoop->stream($c->tx->connection);
    $stream->on($_ => sub { die "a subscriber dies\n" }) for qw(drain close);
}
get '/answered' => sub ($c) { stream_of($c); $c->render(text => 'answered') };
get '/left'     => sub ($c) { stream_of($c); $c->render_later; print STDERR "waits\n" };
get '/dies'     => sub ($c) { die "on purpose\n" };
websocket '/dies-ws' => sub ($c) { die "on purpose\n" };
websocket '/echo'    => sub ($c) {
    $c->tx->handshake->on(finish => sub { die "a subscriber dies\n" });
    $c->on(message => sub ($c, $text) { $c->send($text) });
};
app->start;
END

my $server = TestServer->command_of(qw(peregrine --no-access-log), $app);
my $port   = $server->port;
my $live   = sub { return (get($port, '/live') || { body => 'no answer' })->{body} };
my $none   = $live->();

my %CASES = (
    'a stream whose response is sent' => sub { is get($port, '/answered')->{body}, 'answered', 'a response' },
    'a stream whose client leaves'    => sub {
        my $client = TestClient->new($port)->send("GET /left HTTP/1.1\r\nHost: h\r\n\r\n");
        ok $server->wait_for_log(qr/^waits$/m), 'a request waits';
    },
    'an error page'                 => sub { is get($port, '/dies')->{status}, 500, 'status 500' },
    'the error page of a handshake' =>
        sub { is((TestWebSocket->start($port, '/dies-ws')->answer || {})->{status}, 500, 'status 500') },
);

for my $name (sort keys %CASES) {
    subtest $name => sub {
        $CASES{$name}->() for 1 .. $TIMES;
        my $left;
        ok wait_for(sub { ($left = $live->()) eq $none }), 'nothing stays behind' or diag "$left, not $none";
    };
}

subtest 'a handshake' => sub {
    my $socket = TestWebSocket->open($port, '/echo')->text('hello');
    is $socket->next, 'text hello', 'the WebSocket is open all the same';
    $socket->close_frame(1000);
    $socket->next;
};

# The hook waits as applications do that prepare a database.
my $hook = sub {
    my ($what) = @_;
    return write_file('hook.pl', <<"END");
use Mojolicious::Lite -signatures;
use Mojo::Promise;
hook before_server_start => sub (\$server, \$app) { Mojo::Promise->timer(0.01)->wait; $what };
get '/' => sub (\$c) { \$c->render_later; Mojo::IOLoop->timer(0.01 => sub { \$c->render(text => 'later') }) };
app->log->level('fatal');
app->start;
END
};
subtest 'before_server_start' => sub {
    for my $case (only_in_full([], [qw(--workers 1)]), [qw(--workers 1 --engine process)]) {
        my ($status, undef, $error) =
            TestServer->finish_at('bin/peregrine', '--port', 0, @$case, $hook->('die "no database\n"'));
        is $status, 1, "no server starts: @$case";
        like $error, qr/no database/, '... and the log says why';
    }
    my $other = TestServer->command_of(qw(peregrine --no-access-log), $hook->('1'));
    is get($other->port, '/')->{body}, 'later', 'a hook that does not die';
    is $other->stop,                   0,       'the server ends well';
};

is $server->stop, 0, 'the server ends well';
unlike $server->log, qr/the server shuts down|requests in flight/, '... and at once';

done_testing;
