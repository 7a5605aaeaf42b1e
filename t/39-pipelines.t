# Pipelined requests whose application is in another thread or process: answers leave together where they can,
# in order, and none waits for a request behind it that takes its time.
# Not repeated for each PEREGRINE_ENGINE: its servers name their engines.
use strict;
use warnings;

use lib 't/lib';
use Certificates;
use File::Temp ();
use PAGI::Server;
use Test::More;
use TestClient;
use TestServer;
use TestTools   qw(patience);
use Time::HiRes qw(sleep time);

my $folder = File::Temp->newdir;

# Answers with the path, and with a long body where the query asks for one; /wait waits for a file.
my $app = sub {
    my ($env)  = @_;
    my ($name) = $env->{PATH_INFO} =~ m{\A/wait/(\w+)\z};
    my $end    = time + patience(60);
    sleep 0.01 while $name && !-e "$folder/$name" && time < $end;
    return [ 500, [], ['nobody has made the file'] ] if $name && !-e "$folder/$name";
    my $body = "$env->{PATH_INFO} " . 'x' x ($env->{QUERY_STRING} || 0);
    return [ 200, [ 'Content-Type' => 'text/plain', 'Content-Length' => length $body ], [$body] ];
};

sub requests {
    return join '', map { "GET $_ HTTP/1.1\r\nHost: h\r\n\r\n" } @_;
}

sub check {
    my ($server, %with) = @_;
    my $client = TestClient->new($server->port, %with);
    my $paths  = [ map { "/$_" . ($_ % 7 ? '' : '?20000') } 1 .. 200 ];
    $client->send(requests(@$paths));
    my @wrong = grep { ($client->response->{body} =~ /\A(\S+)/)[0] ne (split /[?]/, $_)[0] } @$paths;
    is("@wrong", '', 'two hundred answers come in order');

    my $name = 'w' . $server->pid;
    $client->send(requests('/first', "/wait/$name", '/last'));
    like($client->response->{body}, qr{\A/first}, 'an answer comes while the request behind it waits');
    open my $file, '>', "$folder/$name" or die $!;
    like($client->response->{body}, qr{\A/wait}, '... whose answer comes when there is one');
    like($client->response->{body}, qr{\A/last}, '... and so does the last');

    $client->send(requests('/one') . "POST /two HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n");
    like($client->response->{body}, qr{\A/one}, 'an answer comes while the body behind it is not there');
    $client->send('ab');
    like($client->response->{body}, qr{\A/two}, '... whose request is answered, too');

    $client->send(requests('/a', '/b') . "GET /c HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    is(($client->response->{body} =~ /\A(\S+)/)[0], $_, "$_ before the end") for qw(/a /b /c);
    is($client->rest,                               '', '... which comes behind the last answer');
    return;
}

for my $engine (qw(process thread)) {
    for my $tls (0, PAGI::Server->has_tls ? 1 : ()) {
        subtest "engine $engine, TLS $tls" => sub {
            my $certificates = $tls && Certificates->new->authority('ca')->issue('localhost');
            my %workers      = $engine eq 'process' ? (workers => 2) : ();
            my $server       = TestServer->start(
                psgi       => 1,
                app        => $app,
                access_log => undef,
                engine     => $engine,
                %workers, ($tls ? (ssl => { $certificates->pair('localhost') }) : ()),
            );
            check($server, $tls ? (tls => {}) : ());
            is($server->stop, 0, 'the server ends well');
        };
    }
}

done_testing;
