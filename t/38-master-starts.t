# Restarts that Peregrine::Master is asked for before a child of its serves.
use strict;
use warnings;

use lib 't/lib';
use PAGI::Server::Log;
use Peregrine::Master;
use Peregrine::Process;
use Test::More;
use TestTools qw(patience);

my $loop = Peregrine::Process->make_loop;

sub master {
    my (%arguments) = @_;
    return Peregrine::Master->new(
        loop          => $loop,
        log           => PAGI::Server::Log->new(name => 'Test', quiet => 1),
        count         => 2,
        start_timeout => 0,
        stop_timeout  => sub { 5 },
        %arguments,
    );
}

# Dies in its child, after the time in which a restart comes.
sub broken { select undef, undef, undef, 0.3; die "broken\n" }

for my $way ([ 'children', run => \&broken ], [ 'a template', load => \&broken, run => sub { 0 } ]) {
    my ($what, @arguments) = @$way;
    subtest "$what that cannot start" => sub {
        my $master  = master(@arguments);
        my $start   = $master->start;
        my $restart = $master->restart;
        my $timeout = $loop->timeout_future(after => patience(20));
        Future->wait_any($timeout, Future->wait_all($start->without_cancel, $restart->without_cancel))->await;
        ok $start->is_failed, 'the start fails';
        ok $restart->is_done, '... the restart is over';
        is(($restart->is_done ? $restart->get : undef), 0, '... and was given up');
    };
}

done_testing;
