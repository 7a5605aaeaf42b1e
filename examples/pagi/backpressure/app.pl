# Three ways to be fast for fast clients and to keep nothing in memory for slow ones. Each answers with 500
# updates of 40 KB and a last line that tells how many of them were sent.
#
#     pagi-server examples/pagi/backpressure/app.pl
#     curl -sN http://127.0.0.1:5000/await | tail -n 1
#     curl -sN --limit-rate 1M http://127.0.0.1:5000/conflate | tail -n 1
use strict;
use warnings;

use Future;
use Future::AsyncAwait;
use IO::Async::Loop;
use IO::Async::Timer::Periodic;

my $updates  = 500;
my $interval = 0.002;

# A number in front, so that one can see which ones came; a line each.
my $padding = 'x' x 40_000;

sub update {
    my ($send, $number) = @_;
    return $send->({ type => 'http.response.body', body => "$number $padding\n", more => 1 });
}

# Waits for each $send: a slow client slows the application down and gets everything.
async sub await_each {
    my ($scope, $send) = @_;
    for my $number (1 .. $updates) { await update($send, $number) }
    return $updates;
}

# The newest update is what counts: those that a slow client would get late are left out.
async sub conflate {
    my ($scope, $send) = @_;
    my $transport = $scope->{'pagi.transport'};
    my $loop      = IO::Async::Loop->new;
    my $sent      = 0;
    for my $number (1 .. $updates) {
        await $loop->delay_future(after => $interval);
        last if !$scope->{'pagi.connection'}->is_connected;
        next if $transport->buffered_amount > $transport->high_water_mark / 2 && $number < $updates;
        await update($send, $number);
        $sent++;
    }
    return $sent;
}

# A source that pushes and cannot wait is told when to pause and when to go on.
async sub pause_source {
    my ($scope, $send) = @_;
    my $loop   = IO::Async::Loop->new;
    my $over   = $loop->new_future;
    my $number = 0;
    my $source = IO::Async::Timer::Periodic->new(
        interval => $interval,
        on_tick  => sub {
            update($send, ++$number);
            $over->done if $number == $updates && !$over->is_ready;
        },
    );
    my $transport = $scope->{'pagi.transport'};
    $transport->on_high_water(sub { $source->stop });
    $transport->on_drain(sub { $source->start if !$over->is_ready });
    $scope->{'pagi.connection'}->on_disconnect(sub { $over->done if !$over->is_ready });
    $source->start;
    $loop->add($source);
    await $over;
    $loop->remove($source);
    return $number;
}

my %ways = ('/await' => \&await_each, '/conflate' => \&conflate, '/pause' => \&pause_source);

async sub app {
    my ($scope, $receive, $send) = @_;
    die "Unsupported scope type: $scope->{type}\n" if $scope->{type} ne 'http';
    my $way = $ways{ $scope->{path} };
    await $send->({
        type    => 'http.response.start',
        status  => $way ? 200 : 404,
        headers => [ [ 'content-type', 'text/plain' ] ],
    });
    my $line =
        $way
        ? 'sent ' . (await $way->($scope, $send)) . " of $updates\n"
        : "There are @{[sort keys %ways]}.\n";
    await $send->({ type => 'http.response.body', body => $line });
    return;
}

\&app;
