package TestMaster;

# Masters in the test's own process: a loop, masters on it, and turns of the loop until a condition is true.

use strict;
use warnings;

use Exporter qw(import);
use PAGI::Server::Log;
use Peregrine::Master;
use Peregrine::Process;
use TestTools   qw(patience);
use Time::HiRes ();

our @EXPORT_OK = qw(loop loop_until master);

my $loop;

# The event loop, which all masters of the process share.
sub loop { return $loop ||= Peregrine::Process->make_loop }

# A quiet master of two children.
sub master {
    my (%arguments) = @_;
    return Peregrine::Master->new(
        loop          => loop(),
        log           => PAGI::Server::Log->new(name => 'Test', quiet => 1),
        count         => 2,
        start_timeout => 0,
        stop_timeout  => sub { 5 },
        %arguments,
    );
}

# Turns the loop until `$is_so` is true, for 20 s at most; returns whether it is.
sub loop_until {
    my ($is_so) = @_;
    my $until = Time::HiRes::time() + patience(20);
    loop()->loop_once(0.2) until $is_so->() || Time::HiRes::time() > $until;
    return $is_so->();
}

1;
