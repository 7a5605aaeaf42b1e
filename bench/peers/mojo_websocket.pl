# The WebSocket echo of Mojolicious::Lite.
use v5.36;
use Mojolicious::Lite -signatures;
use Mojo::Server::Daemon;

my ($port) = @ARGV;
app->log->level('fatal');
get '/' => { text => "Hello, World!\n" };
websocket '/ws' => sub ($c) {
    $c->on(text => sub ($, $text) { $c->send({ text => $text }) });
};
Mojo::Server::Daemon->new(app => app, listen => ["http://127.0.0.1:$port"], silent => 1)->run;
