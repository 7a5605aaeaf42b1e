# A ticker: four times a second an event with the time, to everybody who watches. Each stream ends after
# twenty events, and the browser comes back by itself, telling with Last-Event-ID where it was: it misses
# nothing that is still remembered.
#
#     pagi-server examples/pagi/sse-ticker/app.pl
#     xdg-open http://127.0.0.1:5000/        # a page that shows the ticks
#     curl -N -H 'Accept: text/event-stream' http://127.0.0.1:5000/ticks
use strict;
use warnings;

use File::Basename qw(dirname);
use Future;
use Future::AsyncAwait;
use IO::Async::Loop;
use IO::Async::Timer::Periodic;
use POSIX qw(strftime);

my $page       = dirname(__FILE__) . '/index.html';
my $interval   = 0.25;
my $remembered = 100;
my $per_stream = 20;

# ---- The ticks ----------------------------------------------------------------------------------

my @ticks;        # the last events, each [number, text]
my $number = 0;
my $next_tick;    # a Future for streams that wait for the next tick
my $timer;

sub tick {
    push @ticks, [ ++$number, strftime('%H:%M:%S', localtime) ];
    shift @ticks while @ticks > $remembered;
    my $waited_for = $next_tick;
    $next_tick = Future->new;
    $waited_for->done;
    return;
}

sub start_ticking {
    return if $timer;
    $next_tick = Future->new;
    $timer     = IO::Async::Timer::Periodic->new(interval => $interval, on_tick => \&tick);
    $timer->start;
    IO::Async::Loop->new->add($timer);
    return;
}

# ---- Who watches --------------------------------------------------------------------------------

# The number of the last tick that a browser has seen, if it says so. After a restart of ours its number may
# be one of the future.
sub last_seen {
    my ($scope) = @_;
    my ($id)    = map { $_->[1] } grep { $_->[0] eq 'last-event-id' } @{ $scope->{headers} };
    return defined $id && $id =~ /\A[0-9]{1,9}\z/ && $id <= $number ? $id : $number;
}

async sub gone {
    my ($receive) = @_;
    while ((await $receive->())->{type} ne 'sse.disconnect') { }
    return;
}

async sub watch {
    my ($scope, $receive, $send) = @_;
    my $seen = last_seen($scope);
    my $left = $per_stream;
    my $gone = gone($receive);
    await $send->({ type => 'sse.start' });
    await $send->({ type => 'sse.keepalive', interval => 15 });
    await $send->({ type => 'sse.send', event => 'hello', data => "from $seen on", retry => 1000 });
    while ($left > 0 && !$gone->is_ready) {
        for my $tick (grep { $_->[0] > $seen } @ticks) {
            last if $left-- == 0;
            ($seen, my $text) = @$tick;
            await $send->({ type => 'sse.send', event => 'tick', id => $seen, data => $text });
        }
        await Future->wait_any(map { $_->without_cancel } $gone, $next_tick) if $left > 0;
    }
    $gone->cancel;
    return;    # the end of the stream
}

async sub answer {
    my ($prefix, $send, $status, $type, %body) = @_;
    await $send->({ type => "$prefix.start", status => $status, headers => [ [ 'content-type', $type ] ] });
    await $send->({ type => "$prefix.body",  %body });
    return;
}

async sub app {
    my ($scope, $receive, $send) = @_;
    my ($type, $path) = @{$scope}{qw(type path)};
    if ($type eq 'sse') {
        return await answer('sse.http.response', $send, 404, 'text/plain',
            body => "The stream is at /ticks.\n")
            if $path ne '/ticks';
        start_ticking();
        return await watch($scope, $receive, $send);
    }
    die "Unsupported scope type: $type\n" if $type ne 'http';
    return await answer('http.response', $send, 200, 'text/html; charset=utf-8', file => $page)
        if $path eq '/';
    return await answer('http.response', $send, 406, 'text/plain', body => "Ask for text/event-stream.\n")
        if $path eq '/ticks';
    return await answer('http.response', $send, 404, 'text/plain', body => "Not found.\n");
}

\&app;
