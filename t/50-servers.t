# Servers that come and go leave neither descriptors nor live values behind, however they start and end.
use strict;
use warnings;

use lib 't/lib';
use Future;
use IO::Async::Loop;
use IO::Socket::IP ();
use PAGI::Server;
use Peregrine;
use Test::More;
use TestClient;
use TestSteps;
use TestTools qw(wait_for);

my $loop  = IO::Async::Loop->new;
my $taken = IO::Socket::IP->new(LocalHost => '127.0.0.1', Listen => 1) or die "listen: $@";

my $lifespan = sends(
    takes(), event('lifespan.startup.complete'),
    takes(), event('lifespan.shutdown.complete'),
    later(0.001)
);

sub without_lifespan {
    my ($app) = @_;
    return sub { $_[0]{type} eq 'lifespan' ? die "no\n" : $app->(@_) };
}

# Lets a server run until somebody has asked it for something that does not come to an end.
sub ask {
    my ($server) = @_;
    my $client = TestClient->new($server->port)->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    wait_for(sub { $loop->loop_once(0); $server->{part}->engine->worker->stats->{exchanges} })
        or die "no request came\n";
    return $client;
}

# Name, what happens to a server in a loop before it is taken out of it, options.
my @lives = (
    [ 'one that never starts', sub { } ],
    [ 'one that stops',        sub { my ($server) = @_; $server->listen->get; $server->shutdown->get } ],
    [ 'one that is removed',   sub { my ($server) = @_; $server->listen->get } ],
    [
        'one that cannot listen',
        sub { my ($server) = @_; $server->listen->failure },
        port => $taken->sockport
    ],
    [
        'one with a lifespan',
        sub { my ($server) = @_; $server->listen->get; $server->shutdown->get },
        app => $lifespan
    ],
    [ '... that is removed', sub { my ($server) = @_; $server->listen->get }, app => $lifespan ],
    [
        '... that refuses to start',
        sub { my ($server) = @_; $server->listen->failure },
        app => sends(event('lifespan.startup.failed'))
    ],
    [
        '... that starts too slowly', sub { my ($server) = @_; $server->listen->failure },
        app                      => sub { Future->new },
        lifespan_startup_timeout => 0.01
    ],
    [ 'one removed while it starts', sub { my ($server) = @_; $server->listen }, app => sub { Future->new } ],
    [
        'one removed while it answers',
        sub { my ($server) = @_; $server->listen->get; ask($server) },
        app => without_lifespan(sends(waits_for_end()))
    ],
    [
        'one removed while it stops',
        sub { my ($server) = @_; $server->listen->get; my $client = ask($server); $server->shutdown },
        app => without_lifespan(sends(waits_for_end()))
    ],
);

sub live {
    my ($life, %options) = @_;
    my $server = PAGI::Server->new(
        port       => 0,
        host       => '127.0.0.1',
        quiet      => 1,
        access_log => undef,
        app        => without_lifespan(sends(plain())),
        %options,
    );
    $loop->add($server);
    $life->($server);
    $loop->remove($server);
    $loop->loop_once(0.002);
    return;
}

sub counts { return (Peregrine::sv_count(), scalar(() = glob '/proc/self/fd/*')) }

open my $stderr, '>&', \*STDERR or die "stderr: $!";
for my $case (@lives) {
    my ($name, @life) = @$case;
    open STDERR, '>', '/dev/null' or die "stderr: $!";
    live(@life) for 1 .. 5;
    my ($values, $descriptors) = counts();
    live(@life) for 1 .. 20;
    my ($values_after, $descriptors_after) = counts();
    open STDERR, '>&', $stderr or die "stderr: $!";
    my ($more_values, $more_descriptors) = ($values_after - $values, $descriptors_after - $descriptors);
    ok($more_values < 10 && $more_descriptors <= 0, $name)
        or diag("$more_values values, $more_descriptors descriptors");
}

subtest 'removed while it stops' => sub {
    my @options = (app => without_lifespan(sends(waits_for_end())), shutdown_timeout => 0.05, quiet => 1);
    my $server  = PAGI::Server->new(port => 0, host => '127.0.0.1', access_log => undef, @options);
    $loop->add($server);
    $server->listen->get;
    my $client  = ask($server);
    my $stopped = $server->shutdown;
    $loop->remove($server);
    ok($stopped->is_done,                                  'its shutdown is over');
    ok(eval { $loop->delay_future(after => 0.2)->get; 1 }, 'nothing comes after it') or diag $@;
};

done_testing;
