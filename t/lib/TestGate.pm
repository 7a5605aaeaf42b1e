package TestGate;

# Gates with names, at which an application waits until its test opens them: files in a folder of the test. A
# pause would be too short on a busy machine, and too long on any other.

use strict;
use warnings;

use File::Temp ();
use Future::AsyncAwait;
use IO::Async::Loop;
use TestTools   qw(patience wait_for);
use Time::HiRes qw(time);

sub new {
    my ($class) = @_;
    return bless { folder => File::Temp->newdir }, $class;
}

# Opens a gate, in the test: applications that wait there, or come later, pass.
sub open {
    my ($self, $name) = @_;
    CORE::open my $file, '>', "$self->{folder}/$name" or die "$name: $!";
    return;
}

sub is_open {
    my ($self, $name) = @_;
    return -e "$self->{folder}/$name";
}

# A Future in the application that waits in the event loop until a gate is open.
async sub passed {
    my ($self, $name) = @_;
    my $end = time + patience(60);
    until ($self->is_open($name) || time > $end) { await IO::Async::Loop->new->delay_future(after => 0.01) }
    return;
}

# Waits like `passed`, but blocks the process.
sub block {
    my ($self, $name) = @_;
    wait_for(sub { $self->is_open($name) }, 60);
    return;
}

1;
