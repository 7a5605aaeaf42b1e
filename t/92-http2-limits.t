# Limits of connections and requests hold for clients of HTTP/2: streams do not count as connections, and a
# client that is told to leave is disconnected, whatever it answers.
use strict;
use warnings;

use lib 't/lib';
use Future::AsyncAwait;
use OnlyInFull qw(only_in_full);
use PAGI::Server;
use Test::More;

use Certificates;
use TestHTTP2;
use TestServer;
use TestTools   qw(patience wait_for);
use Time::HiRes qw(sleep time);

# /wait: answers nobody. An event stream begins, and says no more.
async sub app {
    my ($scope, $receive, $send) = @_;
    if ($scope->{type} eq 'sse') {
        await $send->({ type => 'sse.start', status => 200 });
        1 while (await $receive->())->{type} ne 'sse.disconnect';
        return;
    }
    die "no $scope->{type}\n" if $scope->{type} ne 'http';
    if ($scope->{path} eq '/wait') {
        1 while (await $receive->())->{type} ne 'http.disconnect';
        return;
    }
    await $send->({ type => 'http.response.start', status => 200, headers => [] });
    await $send->({ type => 'http.response.body', body => 'answered' });
}

# Asks again and again until the server has ended the connection; the statuses of all answers, by number.
sub ask_until_end {
    my ($h2, $path) = @_;
    my (%statuses, $end);
    $end = time + patience(30);
    while (time < $end) {
        my $stream = eval { $h2->get($path) } or return \%statuses;
        $statuses{ $stream->{status} // $stream->{reset} }++;
        sleep 0.05;
    }
    return;
}

for my $engine (only_in_full('inline'), 'thread') {
    my @common = (app => \&app, access_log => undef, engine => $engine);

    subtest "max_keepalive_requests, $engine" => sub {
        my $server = TestServer->start(@common, http2 => 1, max_keepalive_requests => 3);
        my $h2     = TestHTTP2->new($server->port);
        is $h2->get('/')->{status}, 200,        'an answer' for 1 .. 3;
        is $h2->end->{code},        'NO_ERROR', '... the third is the last one';

        my $deaf = TestHTTP2->new($server->port, manual => 1);
        ok ask_until_end($deaf, '/'), 'a client that answers nothing has to leave as well';
        is $deaf->{goaways}[-1]{code}, 'NO_ERROR', '... in peace';

        my $eager = TestHTTP2->new($server->port);
        my @ids   = map { $eager->request('/') } 1 .. 20;
        is_deeply [ map { $eager->response($_)->{body} } @ids ], [ ('answered') x 20 ],
            'requests that were on their way are answered';
    };

    subtest "deadlines of streams, $engine" => sub {
        my $server = TestServer->start(
            @common,
            http2            => 1,
            request_timeout  => 0.2,
            sse_idle_timeout => 0.3,
        );
        my $h2 = TestHTTP2->new($server->port);
        ok $h2->get('/wait')->{reset}, 'a request on which nothing moves is reset';
        ok $server->wait_for_log(qr{GET /wait: Request stall timeout \(200 ms\) - resetting stream$}m),
            '... which is logged';
        my $quiet = $h2->stream($h2->request('/', fields => [ accept => 'text/event-stream' ]));
        ok $h2->until(sub { $quiet->{reset} }), 'so is an event stream';
        ok $server->wait_for_log(qr{GET /: SSE idle timeout \(0\.3s\) - resetting stream$}m),
            '... which is logged';
        is $h2->get('/')->{body}, 'answered', 'their connection goes on';
        unlike $server->log, qr/closing connection/, '... and nothing says otherwise';
        is $server->stop, 0, 'the server ends well';
    };

    subtest "max_connections, $engine" => sub {
        plan skip_all => 'built without TLS' if !PAGI::Server->has_tls;
        my $files = Certificates->new;
        $files->authority('ca');
        $files->issue('localhost', extensions => ['subjectAltName=DNS:localhost,IP:127.0.0.1']);
        my $server = TestServer->start(
            @common,
            max_connections => 2,
            health_path     => '/health',
            listen          => [ { host => '127.0.0.1', port => 0, ssl => { $files->pair('localhost') } } ],
        );
        my ($port)    = $server->log =~ m{listening on https://127\.0\.0\.1:(\d+)/};
        my $connected = sub { return TestHTTP2->new($port, tls => {}, @_) };
        my @within    = map { $connected->() } 1 .. 2;
        for my $h2 (@within) { $h2->request('/wait') for 1 .. 30 }
        ok $_->is_alive, 'requests are no connections' for @within;

        for my $path (qw(/ /health)) {
            my $h2       = $connected->(manual => 1);
            my $statuses = ask_until_end($h2, $path);
            is_deeply [ sort keys %{ $statuses || {} } ], [ $path eq '/' ? 503 : 200 ],
                "$path of one too many";
            is $h2->{goaways}[-1]{code}, 'NO_ERROR', '... which does not stay, however often it asks';
        }
        (shift @within)->close;
        ok wait_for(sub {
            eval { $connected->()->get('/')->{status} == 200 }
            }),
            'there is room again';
    };
}

subtest 'max_connections_per_address' => sub {
    my $server = TestServer->start(
        app                         => \&app,
        access_log                  => undef,
        http2                       => 1,
        max_connections_per_address => 1,
    );
    my $h2  = TestHTTP2->new($server->port);
    my @ids = map { $h2->request('/') } 1 .. 50;
    is_deeply [ map { $h2->response($_)->{body} } @ids ], [ ('answered') x 50 ],
        'requests are no connections';
    ok !eval { TestHTTP2->new($server->port)->get('/') }, 'a second connection is refused';
    $h2->close;
    ok wait_for(sub {
        eval { TestHTTP2->new($server->port)->get('/')->{status} == 200 }
        }),
        'there is room again';
};

done_testing;
