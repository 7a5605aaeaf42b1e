# An echo server of Mojolicious for script/conformance: it sends the bytes of each text back unchanged.
use v5.36;
use Mojolicious::Lite -signatures;

app->log->level('fatal');
websocket '/' => sub ($c) {
    $c->inactivity_timeout(0);
    $c->tx->with_compression;
    $c->tx->max_websocket_size(16 * 2**20);
    $c->on(text   => sub ($, $bytes) { $c->send({ text   => $bytes }) });
    $c->on(binary => sub ($, $bytes) { $c->send({ binary => $bytes }) });
};
app->start;
