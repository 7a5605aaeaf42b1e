# The hello example through the command: the four endpoints of the benchmark, keep-alive and pipelining.
use strict;
use warnings;

use lib 't/lib';
use HTTP::Tiny ();
use JSON::PP   ();
use Test::More;
use TestClient qw(get exchange);
use TestServer;

my $server = TestServer->command('examples/pagi/hello/app.pl');
my $port   = $server->port;

my $text = get($port, '/');
is($text->{status},                 200,             '/ answers');
is($text->{body},                   'Hello, World!', '... 13 bytes');
is($text->{header}{'content-type'}, 'text/plain',    '... as text');
is(length $text->{header}{date},    29,              '... with the date');

my $html = get($port, '/html');
like($html->{header}{'content-type'}, qr{\Atext/html}, '/html is a page');
like($html->{body},                   qr/<h1>/,        '... with a heading');

my $json = get($port, '/json');
is($json->{header}{'content-type'}, 'application/json', '/json is JSON');
ok(eval { JSON::PP::decode_json($json->{body})->{message} }, '... that decodes');

is(get($port, '/greet/World')->{body},       "Hello, World!\n",         '/greet/:name greets');
is(get($port, '/greet/J%C3%BCrgen')->{body}, "Hello, J\xc3\xbcrgen!\n", '... in UTF-8');
is(get($port, '/nowhere')->{status},         404,                       'any other path is not found');
is(
    HTTP::Tiny->new->get("http://127.0.0.1:$port/")->{content},
    'Hello, World!',
    'an ordinary client is content'
);

my $client = TestClient->new($port);
for my $round (1 .. 5) {
    $client->send("GET /greet/$round HTTP/1.1\r\nHost: a\r\n\r\n");
    is($client->response->{body}, "Hello, $round!\n", "request $round on one connection");
}
$client->send(join '', map { "GET /greet/$_ HTTP/1.1\r\nHost: a\r\n\r\n" } 1 .. 40);
is(
    join(' ', map { $client->response->{body} =~ /(\d+)/ } 1 .. 40),
    join(' ', 1 .. 40),
    'pipelined answers come in order'
);

my $old = TestClient->new($port)->send("GET / HTTP/1.0\r\n\r\n");
is($old->rest =~ s/\A.*\r\n\r\n//sr, 'Hello, World!', 'HTTP/1.0 is answered and closed');

is($server->stop, 0, 'TERM ends the server with status 0');
unlike($server->log, qr/application died|error/i, 'the log has no complaint') or diag $server->log;

done_testing;
