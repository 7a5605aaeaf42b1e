# Applications that use what they got at odd moments: in destructors, in callbacks that add callbacks, while
# the server reads a value of theirs. Each case is one request; the server goes on, and no later request hears
# of it.
# Not repeated for each PEREGRINE_ENGINE: it names its engines.
use strict;
use warnings;

use lib 't/lib';
use Future;
use Future::AsyncAwait;
use Test::More;
use TestClient qw(get);
use TestServer;
use TestWebSocket;

{

    package Moment::Guard;
    sub new     { my ($class, $code) = @_; return bless { code => $code }, $class }
    sub DESTROY { $_[0]{code}->();         return }

    package Moment::Scalar;
    sub TIESCALAR { my ($class, $code) = @_; return bless { code => $code }, $class }
    sub FETCH     { return $_[0]{code}->() }

    package Moment::Hash;
    sub TIEHASH { my ($class) = @_; return bless {}, $class }
    sub FETCH   { die "asked for $_[1]\n" }
    sub EXISTS  { return 1 }
}

sub say_line { my ($line) = @_; print STDERR "$line\n"; return }

sub start { my ($send) = @_; return $send->({ type => 'http.response.start', status => 200 }) }

sub body {
    my ($send, $text, $more) = @_;
    return $send->({ type => 'http.response.body', body => $text, more => $more ? 1 : 0 });
}

sub answer {
    my ($send, $text) = @_;
    return Future->needs_all(start($send), body($send, $text));
}

my $kept;

my %apps = (
    # More events than one exchange may send in a turn, when its request is over.
    '/sends-at-its-end' => async sub {
        my ($scope, $receive, $send) = @_;
        my $guard = Moment::Guard->new(sub {
            body($send, 'late')->retain for 1 .. 200;
            $receive->()->retain for 1 .. 3;
            say_line('sent at its end');
        });
        $scope->{'pagi.transport'}->on_drain(sub { $guard });
        await answer($send, 'sent');
    },
    '/asks-at-its-end' => async sub {
        my ($scope, $receive, $send) = @_;
        my $connection = $scope->{'pagi.connection'};
        my $guard      = Moment::Guard->new(sub {
            $connection->disconnect_future->on_done(sub { say_line('told of another request') });
            say_line('asked at its end');
        });
        $connection->disconnect_future->set_udata(guard => $guard);
        await answer($send, 'asked');
    },
    '/waits' => async sub {
        my ($scope, $receive, $send) = @_;
        $scope->{'pagi.connection'}->on_disconnect(sub { say_line('left') });
        say_line('waits');
        1 while (await $receive->())->{type} ne 'http.disconnect';
    },
    # A callback for a drained queue that takes itself for one that is called once.
    '/drains' => async sub {
        my ($scope, $receive, $send) = @_;
        my $transport = $scope->{'pagi.transport'};
        my ($drained, $again) = (0);
        $again = sub { $transport->on_drain($again) if ++$drained < 1000 };
        $transport->on_drain($again);
        await start($send);
        my $future;
        for my $count (1 .. 50) {
            $future = body($send, 'x' x 16_000_000, 1);
            last if !$future->is_ready;
        }
        await $future;
        say_line("drained $drained times");
        undef $again;
        await body($send, 'end');
    },
    '/keeps' => async sub {
        my ($scope, $receive, $send) = @_;
        $kept = $scope->{'pagi.connection'};
        await answer($send, 'kept');
    },
    # The callback is a value that drops the object whose method gets it.
    '/drops' => async sub {
        my ($scope, $receive, $send) = @_;
        tie my $callback, 'Moment::Scalar', sub {
            undef $kept;
            my @junk = map { 'J' x $_ } 1 .. 400;
            return sub { say_line("called with $_[0]") };
        };
        $kept->on_complete($callback);
        await answer($send, 'dropped');
    },
    '/undefines' => sub {
        my ($scope, $receive, $send) = @_;
        undef &$receive;
        undef &$send;
        die "undefined\n";
    },
    '/future-is-tied' => sub {
        my $future = Future->new;
        tie %$future, 'Moment::Hash';
        return $future;
    },
);

# After a denial no event comes: the Future that waits for one is cancelled.
async sub deny {
    my ($scope, $receive, $send) = @_;
    await $receive->();
    $receive->()->on_cancel(sub { die "nothing comes\n" });
    await $send->({ type => 'websocket.http.response.start', status => 403 });
    await $send->({ type => 'websocket.http.response.body',  body   => 'denied' });
}

sub app {
    my ($scope, $receive, $send) = @_;
    die "no lifespan\n"                  if $scope->{type} eq 'lifespan';
    return deny($scope, $receive, $send) if $scope->{type} eq 'websocket';
    my $app = $apps{ $scope->{path} } || async sub { await answer($_[2], 'fine') };
    return $app->($scope, $receive, $send);
}

for my $engine (qw(inline thread)) {
    subtest $engine => sub {
        my $server = TestServer->start(
            app                  => \&app,
            engine               => $engine,
            access_log           => undef,
            write_low_watermark  => 10_000,
            write_high_watermark => 100_000,
        );
        my $port = $server->port;

        is get($port, '/sends-at-its-end')->{body}, 'sent', 'a destructor sends at the end of its request';
        ok $server->wait_for_log(qr/^sent at its end$/m), '... which it does';
        is get($port, '/')->{body}, 'fine', '... and the server goes on' for 1 .. 3;

        is get($port, '/asks-at-its-end')->{body}, 'asked', 'a destructor asks for a Future at the end';
        ok $server->wait_for_log(qr/^asked at its end$/m), '... which it does';
        my $client = TestClient->new($port);
        $client->send("GET /waits HTTP/1.1\r\nHost: h\r\n\r\n");
        ok $server->wait_for_log(qr/^waits$/m), 'the next request waits';
        $client->reset;
        ok $server->wait_for_log(qr/^left$/m), '... and is told that its client has left';
        unlike $server->log, qr/told of another/, '... which the request before is not';

        $client = TestClient->new($port, receive_buffer => 65_536);
        $client->send("GET /drains HTTP/1.1\r\nHost: h\r\n\r\n");
        like $client->response->{body}, qr/x end\z|xend\z/, 'a callback of a drained queue adds itself';
        is $server->wait_for_log(qr/^drained (\d+) times$/m), 1, '... and is called once for each time';

        is get($port, '/keeps')->{body}, 'kept',    'a connection is kept';
        is get($port, '/drops')->{body}, 'dropped', '... and dropped by a callback that is read';

        is get($port, '/undefines')->{status}, 500,    'functions are undefined';
        is get($port, '/')->{body},            'fine', '... and not those of the next request';

        is get($port, '/future-is-tied')->{status}, 500, 'a Future that is a tied hash is none';

        is(TestWebSocket->start($port, '/')->answer->{status}, 403, 'a WebSocket is denied');
        ok $server->wait_for_log(qr/a callback died: nothing comes/), '... and a callback of that dies';

        is get($port, '/')->{body}, 'fine', 'the server goes on';
        is $server->stop,           0,      '... and ends well';
        unlike $server->log, qr/panic|segfault|Attempt to free|Bizarre|does not hold/,
            'nothing strange in the log';
    };
}

done_testing;
