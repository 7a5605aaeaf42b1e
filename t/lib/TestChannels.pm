package TestChannels;

# The application of the tests of channels, and the functions that send it requests. It is small, and made of
# the examples in PAGI's design document (docs/design/channel-layer.mkdn): a chat room, a pool of workers, a
# push from a request.

use strict;
use warnings;

use Exporter qw(import);
use JSON::PP ();
use Test::More;
use TestClient  qw(get post);
use TestTools   qw(wait_for);
use TestWorkers qw(write_file);
use TestWebSocket;

our @EXPORT_OK = qw(application asked on_both chat);

my $json = JSON::PP->new->utf8->canonical->allow_nonref;

sub application {
    return write_file('channels.pl', <<'PERL');
use strict;
use warnings;
use lib 't/lib';
use Future::AsyncAwait;
use JSON::PP ();
use POSIX ();
use TestLoad;

my $json = JSON::PP->new->utf8->canonical->allow_nonref;

# A worker pool: one process of all gets a task.
async sub lifespan {
    my ($scope, $receive, $send) = @_;
    my $channels = $scope->{'pagi.channels'};
    while (1) {
        my $event = await $receive->();
        if ($event->{type} eq 'lifespan.startup') {
            await $channels->subscribe('worker.pool') if $channels;
            await $send->({ type => 'lifespan.startup.complete' });
        }
        elsif ($event->{type} eq 'task.execute') {
            my %result = (type => 'task.result', result => "$event->{task} by $$");
            await $channels->send($event->{reply_to}, \%result);
        }
        elsif ($event->{type} eq 'lifespan.shutdown') {
            await $send->({ type => 'lifespan.shutdown.complete' });
            return;
        }
    }
}

# A chat room. The first text names the process and its channel.
async sub chat {
    my ($scope, $receive, $send) = @_;
    my $channels   = $scope->{'pagi.channels'};
    my $my_channel = $scope->{'pagi.channel'};
    my ($room)     = $scope->{path} =~ m{\A/chat/(.+)};
    await $send->({ type => 'websocket.accept' });
    await $channels->subscribe("chat.$room");
    await $send->({ type => 'websocket.send', text => "$$ $my_channel" });
    while (1) {
        my $event = await $receive->();
        if ($event->{type} eq 'websocket.receive') {
            my $said = eval {
                await $channels->publish("chat.$room", {
                    type => 'chat.message',
                    text => $event->{text},
                }, exclude => $my_channel);
            };
            warn "not said: $@" if !$said;
        }
        elsif ($event->{type} eq 'chat.message') {
            await $send->({ type => 'websocket.send', text => $event->{text} });
        }
        elsif ($event->{type} eq 'websocket.disconnect') {
            last;
        }
    }
}

# A push by the server, as an event stream.
async sub events {
    my ($scope, $receive, $send) = @_;
    await $scope->{'pagi.channels'}->subscribe('notifications.user.1');
    await $send->({ type => 'sse.start' });
    await $send->({ type => 'sse.send', data => $$ });
    while (1) {
        my $event = await $receive->();
        last if $event->{type} eq 'sse.disconnect';
        await $send->({ type => 'sse.send', data => $event->{title} }) if $event->{type} eq 'notification';
    }
}

async sub answer {
    my ($send, $body) = @_;
    my @headers = ([ 'x-process', $$ ], [ 'content-length', length $body ]);
    await $send->({ type => 'http.response.start', status => 200, headers => \@headers });
    await $send->({ type => 'http.response.body', body => $body });
}

# Waits for a message of the channel, after the request's body has come.
async sub message {
    my ($receive) = @_;
    while (1) {
        my $event = await $receive->();
        return $event if $event->{type} !~ /\Ahttp\.request\z/;
    }
}

my %DO = (
    '/pid'  => async sub { return $$ },
    '/keys' => async sub { return [ grep { /\Apagi\.channel/ } sort keys %{ $_[0] } ] },
    '/push' => async sub {
        my ($scope) = @_;
        await $scope->{'pagi.channels'}->publish('notifications.user.1',
            { type => 'notification', title => $scope->{query_string} });
        return 'OK';
    },
    '/task' => async sub {
        my ($scope, $receive) = @_;
        await $scope->{'pagi.channels'}->send('worker.pool',
            { type => 'task.execute', task => 'send_email', reply_to => $scope->{'pagi.channel'} });
        return (await message($receive))->{result};
    },
    '/wait' => async sub {
        my ($scope, $receive) = @_;
        await $scope->{'pagi.channels'}->subscribe($scope->{query_string});
        return await message($receive);
    },
    # Calls in a process that the application forks.
    '/child' => async sub {
        my ($scope) = @_;
        my $channels = $scope->{'pagi.channels'};
        my $pid = open(my $out, '-|') // die "fork: $!";
        return readline $out if $pid;
        my @said = ($channels->subscribe('t'), $channels->publish('t', { type => 'x' }));
        syswrite STDOUT, join ' ', map { $_->failure // 'done' } @said;
        POSIX::_exit(0);
    },
    # The body is a list of calls: [method, arguments]. `me` returns the channel, `mail` the messages that
    # have come; `sleep` blocks for some seconds. A message gets a text of `filled` bytes, which would take
    # JSON::PP long.
    '/calls' => async sub {
        my ($scope, $receive) = @_;
        my $channels = $scope->{'pagi.channels'};
        my $body     = '';
        while (1) {
            my $event = await $receive->();
            $body .= $event->{body};
            last if !$event->{more};
        }
        my @results;
        for my $call (@{ $json->decode($body) }) {
            my ($method, @arguments) = map { $_ eq 'me' ? $scope->{'pagi.channel'} : $_ } @$call;
            for (grep { ref eq 'HASH' && $_->{filled} } @arguments) { $_->{text} = 'x' x delete $_->{filled} }
            push @results,
                $method eq 'mail' ? (await message($receive)) : await call($channels, $method, @arguments);
        }
        return \@results;
    },
);

async sub call {
    my ($channels, $method, @arguments) = @_;
    return select(undef, undef, undef, $arguments[0]) if $method eq 'sleep';
    my @result = eval { await $channels->$method(@arguments) };
    return $@ ? "$@" =~ s/ at .*//sr : $result[0];
}

async sub {
    my ($scope, $receive, $send) = @_;
    return await lifespan(@_) if $scope->{type} eq 'lifespan';
    return await chat(@_)     if $scope->{type} eq 'websocket';
    return await events(@_)   if $scope->{type} eq 'sse';
    my ($first, $size) = $scope->{path} =~ m{\A/(\d+)/(\d+)\z};
    return await answer($send, TestLoad::body_of($first, $size)) if defined $size;
    await answer($send, $json->encode(await $DO{ $scope->{path} }->($scope, $receive)));
}
PERL
}

# The decoded answer to a request.
sub asked {
    my ($server, $path, $calls) = @_;
    my $response =
        $calls ? post($server->port, $path, $json->encode($calls)) : get($server->port, $path);
    return $json->decode($response->{body} || 'null');
}

# Opens connections until two are with different processes, and returns these two. `open` returns a connection
# and its process.
sub on_both {
    my ($open) = @_;
    my %by_pid;
    wait_for(sub {
        my ($connection, $pid) = $open->();
        $by_pid{$pid} //= $connection;
        return keys %by_pid == 2;
    });
    return map { $by_pid{$_} } sort keys %by_pid;
}

# A WebSocket in a room, with its process and its channel.
sub chat {
    my ($server, $room) = @_;
    my $socket = TestWebSocket->open($server->port, "/chat/$room");
    my ($pid, $channel) = ($socket->next // '') =~ /\Atext (\d+) (\S+)\z/;
    return ($socket, $pid, $channel);
}

1;
