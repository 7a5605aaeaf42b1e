# Requests to stop in the turn in which a server ends, as timeout(1) sends two: they do not kill it.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use POSIX      ();
use Test::More;
use TestServer;

my $directory = File::Temp->newdir;

sub write_file {
    my ($name, $text) = @_;
    my $path = "$directory/$name";
    open my $out, '>', $path or die "$path: $!";
    print {$out} $text;
    close $out or die "$path: $!";
    return $path;
}

# The signal comes while the loop blocks it, in the turn in which the server lets go of its signals.
my $in_turn = write_file('turn.pl', <<'APP');
use Future::AsyncAwait;
use IO::Async::Loop;
async sub {
    my ($scope, $receive, $send) = @_;
    die "no $scope->{type}\n" if $scope->{type} ne 'lifespan';
    await $receive->();
    await $send->({ type => 'lifespan.startup.complete' });
    await $receive->();
    my $kill = sub { kill TERM => $$ };
    my $later = $kill;
    for (1 .. 5) { my $next = $later; $later = sub { $kill->(); IO::Async::Loop->new->later($next) } }
    $later->();
    await $send->({ type => 'lifespan.shutdown.complete' });
};
APP
for my $way ([], [qw(--engine thread)]) {
    my $server = TestServer->command('-E', 'production', @$way, $in_turn);
    is($server->stop, 0, "@$way: the status is that of a stop");
    like($server->log, qr/the server has stopped/, '... of which the log tells');
}

# The program stops its server, and would go on.
my $goes_on = write_file('goes_on.pl', <<'PROGRAM');
use strict;
use warnings;
use Future::AsyncAwait;
use IO::Async::Loop;
use PAGI::Server;
my $app = async sub {
    my ($scope, $receive, $send) = @_;
    die "no $scope->{type}\n" if $scope->{type} ne 'lifespan';
    await $receive->();
    await $send->({ type => 'lifespan.startup.complete' });
    await $receive->();
    kill TERM => $$;
    await $send->({ type => 'lifespan.shutdown.complete' });
};
my $server = PAGI::Server->new(app => $app, port => 0);
$server->own_loop;
$server->listen->get;
$server->shutdown->get;
PROGRAM
is(
    TestServer->spawn($^X, (map { "-I$_" } @INC), $goes_on)->wait,
    POSIX::SIGTERM,
    'a first TERM to a program that has stopped its server itself ends the program'
);

done_testing;
