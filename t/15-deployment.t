# PAGI::Server::Deployment, typed from its beginning to its end.
use strict;
use warnings;
use experimental 'signatures';

use lib 't/lib';
use OnlyInFull qw(only_in_full);
use PAGI::Server;
use Pebble;
use Test::More;
use TestTools;
use TestWebSocket;
use Walkthrough;

plan skip_all => 'left to script/test --all' if !only_in_full(1);
plan skip_all => 'built without TLS'         if !PAGI::Server->has_tls;
for my $program (qw(curl dehydrated haproxy lacme lacme-accountd logrotate nginx openssl pebble start_server))
{
    my @folders = ('/usr/sbin', split /:/, $ENV{PATH});
    plan skip_all => "$program is not installed" if !grep { -x "$_/$program" } @folders;
}

sub through ($port) {
    my $socket = TestWebSocket->open($port, '/');
    $socket->text('hello');
    is($socket->next, 'text hello', 'a WebSocket through the proxy');
    $socket->close_frame(1000);
    is($socket->next, 'close 1000', '... and its end');
}

my $walk   = Walkthrough->new('lib/PAGI/Server/Deployment.pod');
my $pebble = Pebble->new(http_port => $walk->port(8080));
# lacme hands no environment on; it checks certificates by its own list. A pebble that is strict refuses the
# empty update by which lacme looks at the account that it has made; the order shows that it has.
my $lacme =
      "sed -i -e 's|^.client.|&\\nserver = @{[ $pebble->directory ]}\\n"
    . "command = /usr/bin/env PERL_LWP_SSL_CA_FILE=@{[ $pebble->roots ]} /usr/libexec/lacme/client|'"
    . " lacme.conf\nsed -i -e '2i CAfile =' lacme-certs.conf\n"
    . "/usr/sbin/lacme \"\$@\" || test \"\$2\" = account";
# An authority that everybody knows in place of pebble.
local $ENV{CURL_CA_BUNDLE} = $pebble->roots;
$walk->tool('dehydrated', "exec /usr/bin/dehydrated \"\$@\" --ca @{[ $pebble->directory ]}")
    ->tool('lacme', $lacme)->run(
    qr/event-stream/ => sub ($walk) { through($walk->port(8080)) },
    qr{:8081/}       => sub ($walk) { through($walk->port(8081)) },
    );

done_testing;
