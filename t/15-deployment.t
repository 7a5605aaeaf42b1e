# PAGI::Server::Deployment, typed from its beginning to its end.
use strict;
use warnings;
use experimental 'signatures';

use lib 't/lib';
use PAGI::Server;
use Test::More;
use TestTools;
use TestWebSocket;
use Walkthrough;

plan skip_all => 'built without TLS' if !PAGI::Server->has_tls;
for my $program (qw(curl haproxy logrotate nginx openssl start_server)) {
    plan skip_all => "$program is not installed" if !grep { -x "$_/$program" } split /:/, $ENV{PATH};
}

sub through ($port) {
    my $socket = TestWebSocket->open($port, '/');
    $socket->text('hello');
    is($socket->next, 'text hello', 'a WebSocket through the proxy');
    $socket->close_frame(1000);
    is($socket->next, 'close 1000', '... and its end');
}

Walkthrough->new('lib/PAGI/Server/Deployment.pod')->run(
    qr/event-stream/ => sub ($walk) { through($walk->port(8080)) },
    qr{:8081/}       => sub ($walk) { through($walk->port(8081)) },
);

done_testing;
