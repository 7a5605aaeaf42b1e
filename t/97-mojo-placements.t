# Applications of Mojolicious in each placement: HTTP/1.1, HTTP/2 and WebSockets over TLS and without,
# restarts by HUP under load, which lose no request and close WebSockets with 1012. PEREGRINE_RESTARTS is
# how many.
use strict;
use warnings;

use lib 't/lib';
use Certificates;
use OnlyInFull qw(only_in_full);
use Peregrine;
use Test::More;
use TestClient qw(get);
use TestLoad;
use TestServer;
use TestTools qw(content wait_for);
use TestWebSocket;
use TestWorkers qw(directory write_file);

BEGIN {
    for my $module (qw(Mojolicious Linux::Epoll IO::Async::Loop::Epoll)) {
        plan skip_all => "needs $module" if !TestTools::has_module($module);
    }
}
plan skip_all => 'built without TLS' if !Peregrine::has_tls();

my $RESTARTS     = $ENV{PEREGRINE_RESTARTS} || only_in_full(2) || 1;
my $certificates = Certificates->new->authority('server');

my $app = write_file('app.pl', <<'END');
use Mojolicious::Lite -signatures;
use lib 't/lib';
use TestLoad;
app->log->level('fatal');
app->renderer->compress(0);
my $version = 0;
get '/who' => sub ($c) { $c->render(text => "$$ " . app->mode) };
get '/later' => sub ($c) {
    $c->render_later;
    Mojo::IOLoop->timer(0.02 => sub { $c->render(text => 'later') });
};
get '/:first/:size' => sub ($c) {
    my $body = TestLoad::body_of($c->param('first'), $c->param('size'));
    $c->res->headers->header('x-process' => $$);
    $c->res->headers->header('x-version' => $version);
    # Half of the answers come from the loop.
    return $c->render(data => $body) if $c->param('size') % 2;
    $c->render_later;
    Mojo::IOLoop->next_tick(sub { $c->render(data => $body) });
};
websocket '/ws' => sub ($c) {
    $c->inactivity_timeout(300)->on(message => sub ($c, $text) { $c->send($text) });
};
app->start;
END

sub started {
    my (@options) = @_;
    my $server = TestServer->spawn(
        $^X,
        (map { "-I$_" } @INC),
        'bin/peregrine',
        qw(--no-access-log -E production --listen 127.0.0.1:0),
        '--listen',
        '127.0.0.1:0,'
            . join(',',
            map { "$_->[0]=" . $certificates->path("server.$_->[1]") }[ cert => 'pem' ],
            [ key => 'key' ]),
        @options, $app
    );
    $server->wait_for_log(qr{listening on https://\S+?:\d+}) or die $server->log;
    my %ports = reverse $server->log =~ m{listening on (https?)://[^:]+:(\d+)}g;
    return ($server, reverse %ports);
}

sub check_protocols {
    my ($http, $https) = @_;
    is get($http, '/later')->{body}, 'later', 'HTTP/1.1';
    my $curl = "curl -sk --max-time 60 -w ' %{http_version}'";
    is `$curl --http2 https://127.0.0.1:$https/later`, 'later 2', 'HTTP/2, over TLS';
    is `$curl --http2-prior-knowledge http://127.0.0.1:$http/5/10`, TestLoad::body_of(5, 10) . ' 2',
        'and without';
    my $socket = TestWebSocket->open($https, '/ws', tls => { SSL_verify_mode => 0 });
    $socket->text('hello');
    is $socket->next, 'text hello', 'a WebSocket over TLS';
    return;
}

sub workers {
    my ($server) = @_;
    return split ' ', content("/proc/$server->{pid}/task/$server->{pid}/children");
}

sub check_restarts {
    my ($http, $https, $server) = @_;
    my @clients =
        map { TestLoad->start($http, fresh => $_), TestLoad->start($https, fresh => $_, tls => 1) } 0, 1;
    my @codes;
    for (1 .. $RESTARTS) {
        my $socket = TestWebSocket->open($http, '/ws');
        $socket->text('before');
        $socket->next;
        my ($process) = get($http, '/who')->{body} =~ /(\d+)/;
        $server->signal('HUP');
        push @codes, $socket->next;
        wait_for(sub { !-e "/proc/$process" }) or die "the worker stays\n";
    }
    my $asked = 0;
    my @failures;
    for my $client (@clients) {
        my ($count, $failures) = $client->finish;
        $asked += $count;
        push @failures, map { $_->[3] } @$failures;
    }
    is_deeply \@failures, [], "$asked requests during $RESTARTS restarts: none is lost";
    is_deeply [ grep { $_ !~ /\Aclose 1012/ } @codes ], [], 'WebSockets are closed with 1012';
    return;
}

for my $placement (only_in_full([qw(inline 0)], [qw(inline 2)], [qw(thread 0)]), [qw(thread 2)],
    [qw(process 2)])
{
    my ($engine, $workers) = @$placement;
    subtest "--engine $engine --workers $workers" => sub {
        my ($server, %port) = started('--http2', '--engine' => $engine, '--workers' => $workers);
        check_protocols(@port{qw(http https)});
        check_restarts(@port{qw(http https)}, $server) if $workers;
        is $server->stop, 0, 'the server stops';
    };
}

done_testing;
