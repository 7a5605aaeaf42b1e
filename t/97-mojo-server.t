# Mojolicious applications on Mojo::Server::Peregrine: requests, bodies, responses that are streamed or come
# later, files, event streams, WebSockets, the event loop within handlers, mounts, HTTP/2 and workers.
use strict;
use warnings;

use lib 't/lib';
use Test::More;
use TestClient qw(get post);
use TestServer;
use TestTools ();
use TestWebSocket;
use TestWorkers qw(directory write_file);

BEGIN {
    for my $module (qw(Mojolicious Linux::Epoll IO::Async::Loop::Epoll)) {
        plan skip_all => "needs $module" if !TestTools::has_module($module);
    }
}

my $dir = directory();
my $app = write_file('app.pl', <<'END');
use Mojo::Server::Peregrine;
use Mojolicious::Lite -signatures;
use Mojo::Promise;
use Mojo::UserAgent;

app->log->level('fatal');
app->max_request_size(100_000);
my $started = 0;
my ($ticks, $finished) = (0, 0);
app->hook(before_server_start => sub { Mojo::Promise->timer(0.01)->then(sub { $started++ })->wait });
Mojo::IOLoop->recurring(0.01 => sub { $ticks++ });

get '/'        => sub ($c) { $c->render(text => "Hello $started") };
get '/facts'   => sub ($c) {
    $c->render(json => {
        method => $c->req->method, url => $c->req->url->to_abs->path->to_string,
        query => $c->param('q'), agent => $c->req->headers->user_agent,
        remote => $c->tx->remote_address, secure => $c->req->is_secure ? 1 : 0,
        base => $c->url_for('/x')->to_string,
    });
};
post '/echo'   => sub ($c) {
    return $c->render(text => 'too large', status => 413) if $c->req->is_limit_exceeded;
    $c->render(data => $c->req->body);
};
post '/upload' => sub ($c) {
    my $file = $c->req->upload('file');
    $c->render(text => join ' ', $file->filename, $file->size, $c->param('name'));
};
get '/later'   => sub ($c) {
    $c->render_later;
    Mojo::IOLoop->timer(0.01 => sub { $c->render(text => $ticks > 0 ? 'later' : 'no ticks') });
};
get '/promise' => sub ($c) {
    Mojo::Promise->timer(0.01, 'kept')->then(sub ($text) { $c->render(text => $text) });
};
get '/chunks'  => sub ($c) {
    my $left = 3;
    my $next;
    $next = sub ($c, @) { $left-- ? $c->write_chunk("part $left;" => $next) : $c->finish };
    $c->$next;
};
get '/write'   => sub ($c) {
    $c->write('one ' => sub ($c, @) { $c->write('two' => sub ($c, @) { $c->finish }) })
};
get '/large'   => sub ($c) { $c->reply->asset(Mojo::Asset::File->new->add_chunk('abcdefgh' x 50_000)) };
get '/head'    => sub ($c) { $c->res->headers->header('X-Two' => 1); $c->rendered(204) };
get '/die'     => sub ($c) { die "on purpose\n" };
get '/agent'   => sub ($c) {
    my $agent = Mojo::UserAgent->new;
    $agent->server->app(Mojolicious->new);
    $agent->server->app->log->level('fatal');
    $agent->server->app->routes->get('/in' => sub ($c) { $c->render(text => 'inner') });
    my $blocking = $agent->get('/in')->res->body;
    $agent->get_p('/in')->then(sub ($tx) { $c->render(text => "$blocking " . $tx->res->body); undef $agent });
};
get '/child'   => sub ($c) {
    Mojo::IOLoop->subprocess->run_p(sub { 6 * 7 })->then(sub ($n) { $c->render(text => $n) });
};
get '/tick'    => sub ($c) {
    my $done;
    Mojo::IOLoop->timer(0.01 => sub { $done = 1 });
    Mojo::IOLoop->singleton->reactor->one_tick until $done;
    $c->render(text => 'ticked ' . (Mojo::IOLoop->is_running ? 'running' : 'idle'));
};
get '/hang'    => sub ($c) { $c->render_later; $c->tx->on(finish => sub { $finished++ }) };
get '/idle'    => sub ($c) { $c->render_later; $c->inactivity_timeout($c->param('seconds')) };
get '/hints'   => sub ($c) {
    $c->tx->early_hints({ Link => ['</a.css>; rel=preload', '</b.js>; rel=preload'] });
    $c->render(text => 'hinted');
};
get '/cut'     => sub ($c) { $c->render_later; Mojo::IOLoop->stream($c->tx->connection)->close };
websocket '/quiet' => sub ($c) { $c->inactivity_timeout($c->param('seconds'))->on(message => sub { }) };
websocket '/pings' => sub ($c) {
    $c->on(message => sub ($c, $text) { $c->send([ 1, 0, 0, 0, 9, '' ]) for 1, 2 });
};
websocket '/bytes' => sub ($c) {
    $c->on(text => sub ($c, $bytes) { $c->send({ text => $bytes }) });
};
websocket '/plain-end' => sub ($c) { $c->on(message => sub ($c, $text) { $c->finish }) };
get '/gone'    => sub ($c) { $c->render(text => "gone $finished") };
get '/stop'    => sub ($c) { $c->tx->on(finish => sub { Mojo::IOLoop->stop }); $c->render(text => "pid $$") };
get '/events'  => sub ($c) {
    $c->res->headers->content_type('text/event-stream');
    $c->write("data: one\n\n" => sub ($c, @) { $c->write("data: two\n\n" => sub ($c, @) { $c->finish }) });
};
websocket '/ws' => sub ($c) {
    $c->tx->with_protocols('chat');
    $c->send('welcome');
    $c->on(message => sub ($c, $text) {
        return $c->finish(4001 => 'enough') if $text eq 'close';
        $c->send({ json => { said => $text } } => sub ($c) { $c->send({ binary => "\xff" }) });
    });
};
websocket '/denied' => sub ($c) {
    $c->on(finish => sub { $finished++ });
    $c->render(text => 'denied', status => 403);
};
websocket '/url' => sub ($c) { $c->send($c->url_for->to_abs->to_string) };
my @listening;
websocket '/all' => sub ($c) {
    push @listening, $c;
    $c->on(message => sub ($, $text) { $_->send($text) for @listening });
    $c->on(finish  => sub { die "the end dies\n" });
};
get '/end-dies' => sub ($c) {
    $c->tx->on(finish => sub { die "the end dies\n" });
    $c->render(text => 'whole');
};
websocket '/refused' => sub ($c) { $c->render(text => 'no', status => 403) };

Mojo::Server::Peregrine->new(app => app)->to_pagi_app;
END

sub body { return ($_[0] || { body => 'no answer' })->{body} }

sub check_server {
    my ($server) = @_;
    my $port = $server->port;
    is body(get($port, '/')), 'Hello 1', 'a response; the hook has waited before the server began';
    like body(get($port, '/facts?q=%E2%82%AC')), qr{"method":"GET".*"query":"\xe2\x82\xac"},
        'facts of the request';
    is body(post($port, '/echo', 'x' x 90_000)),      'x' x 90_000, 'a body there and back';
    is post($port, '/echo', 'x' x 120_000)->{status}, 413,          'but not one beyond max_request_size';
    my $kept = TestClient->new($port);
    is body($kept->send("GET /end-dies HTTP/1.1\r\nHost: h\r\n\r\n")->response), 'whole',
        'a request whose `finish` dies, on a connection that is kept'
        for 1, 2;
    is get($port, $_), undef, "$_ has no response" for '/idle?seconds=0.05', '/cut';
    is body(get($port, "/$_->[0]")), $_->[1], $_->[0]
        for [ later => 'later' ], [ promise => 'kept' ], [ chunks => 'part 2;part 1;part 0;' ],
        [ write => 'one two' ], [ large => 'abcdefgh' x 50_000 ], [ agent => 'inner inner' ], [ child => 42 ],
        [ tick => 'ticked running' ];
    is get($port, '/head')->{status},    204, 'a response without body';
    is get($port, '/die')->{status},     500, 'an exception';
    is get($port, '/nothing')->{status}, 404, 'nothing';
    my $form = join "\r\n", '--b', 'Content-Disposition: form-data; name="name"', '', 'n', '--b',
        'Content-Disposition: form-data; name="file"; filename="f.txt"', '', 'y' x 5000, '--b--', '';
    my $upload =
        TestClient->new($port)
        ->send("POST /upload HTTP/1.1\r\nHost: h\r\n"
            . "Content-Type: multipart/form-data; boundary=b\r\nTransfer-Encoding: chunked\r\n\r\n"
            . sprintf("%x\r\n%s\r\n0\r\n\r\n", length $form, $form));
    is body($upload->response), 'f.txt 5000 n', 'an upload of unknown length';
    my $events =
        TestClient->new($port)->send("GET /events HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n");
    is body($events->response), "data: one\n\ndata: two\n\n", 'an event stream';
    return;
}

sub check_websocket {
    my ($server) = @_;
    my $socket = TestWebSocket->open($server->port, '/ws', lines => ['Sec-WebSocket-Protocol: other, chat']);
    my ($protocol) =
        map { $_->[1] } grep { lc $_->[0] eq 'sec-websocket-protocol' } @{ $socket->answer->{fields} };
    is $protocol,     'chat',         'the protocol of a WebSocket';
    is $socket->next, 'text welcome', 'what was sent before the handshake was answered';
    $socket->text("\xe2\x82\xac");
    is $socket->next, qq(text {"said":"\xe2\x82\xac"}), 'a message, and the answer';
    is $socket->next, "binary \xff",                    'then that of the drain';
    $socket->text('close');
    is $socket->next, 'close 4001 enough', 'its end';
    my $pinged = TestWebSocket->open($server->port, '/pings');
    $pinged->text('now');
    like $pinged->next, qr/\Aping/, 'an application that sends pings has the engine send them';
    my $bytes = TestWebSocket->open($server->port, '/bytes');
    $bytes->text("\xe2\x82\xac \xef\xbf\xbe");
    is $bytes->next, "text \xe2\x82\xac \xef\xbf\xbe", 'bytes of text, noncharacters among them';
    my $ended = TestWebSocket->open($server->port, '/plain-end');
    $ended->text('end');
    is $ended->next, 'close', 'an end without a code';
    my @pair = map { TestWebSocket->open($server->port, '/all') } 1, 2;
    $pair[0]->close_frame(1000);
    is $pair[0]->next, 'close 1000', 'a WebSocket whose `finish` dies';
    $pair[1]->text('still');
    is $pair[1]->next, 'text still', 'does not keep others from what is sent to all';
    my $idle = TestWebSocket->open($server->port, '/quiet?seconds=0.5');
    is $idle->next, 'end', 'inactivity_timeout ends a WebSocket';
    my $url = TestWebSocket->open($server->port, '/url');
    like $url->next, qr{\Atext ws://.*/url\z}, 'the scheme of a WebSocket without TLS is ws';
    my $refused = TestWebSocket->start($server->port, '/refused')->answer;
    is "$refused->{status} $refused->{body}", '403 no', 'a handshake that is refused';
    my $denied = TestWebSocket->start($server->port, '/denied')->answer;
    is "$denied->{status} $denied->{body}", '403 denied', 'a handshake that is refused after `on`';
    return;
}

subtest 'a server of one process' => sub {
    my $server = TestServer->command('--no-access-log', $app);
    check_server($server);
    check_websocket($server);
    ok $server->wait_for_log(qr{GET /idle\S*: request idle timeout of the application's - closing}),
        'the log says of a request that its time was up';
    ok $server->wait_for_log(qr{GET /quiet\S*: WebSocket idle timeout of the application's - closing}),
        'and of a WebSocket';
    subtest 'a client that leaves ends its transaction' => sub {
        my $client = TestClient->new($server->port)->send("GET /hang HTTP/1.1\r\nHost: h\r\n\r\n");
        get($server->port, '/');
        undef $client;
        ok TestTools::wait_for(sub { body(get($server->port, '/gone')) eq 'gone 2' }), 'finish';
    };
    get($server->port, '/stop');
    is $server->wait, 0, 'Mojo::IOLoop->stop stops the server';
};

subtest 'workers, preloaded' => sub {
    my $server = TestServer->command(qw(--no-access-log --workers 2 --preload-app), $app);
    check_server($server);
    check_websocket($server);
    my ($pid) = body(get($server->port, '/stop')) =~ /(\d+)/;
    ok TestTools::wait_for(sub { TestWorkers::is_gone($pid) }), 'Mojo::IOLoop->stop ends the worker';
    is body(get($server->port, '/')), 'Hello 1', 'and another one serves';
};

subtest 'HTTP/2' => sub {
    my $server = TestServer->command(qw(--no-access-log --http2 --extension informational), $app);
    my @curl   = (qw(curl -s --max-time 30 --http2-prior-knowledge), '-w', ' %{http_version}');
    my $url    = 'http://127.0.0.1:' . $server->port;
    is `@curl[0 .. 4] -w ' %{http_version}' $url/chunks`, 'part 2;part 1;part 0; 2', 'a response in pieces';
    is `@curl[0 .. 4] -d body $url/echo`,                 'body',                    'a body there and back';
    like `@curl[0 .. 4] -i $url/hints`, qr{\AHTTP/2 103 \r\nlink: </a.css>.*\r\nlink: </b.js>.*hinted\z}s,
        'early hints';
};

subtest 'a mount' => sub {
    my $server = TestServer->spawn(
        $^X, (map { "-I$_" } @INC),
        'bin/peregrine', qw(--no-access-log --port 0 --mount),
        "/in=$app,pagi"
    );
    $server->{port} = $server->wait_for_log(qr{listening on http://\S+:(\d+)}) or die $server->log;
    my $facts = body(get($server->port, '/in/facts'));
    like $facts, qr{"base":"\\/in\\/x"}, 'URLs begin with the path of the mount';
    like $facts, qr{"url":"\\/facts"},   'which routes do not see';
};

done_testing;
