package TestGate;

# Gates with names, at which an application waits until its test opens them: files in a folder of the test. A
# time would be too short on a busy machine, and too long on any other.

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

# In the test: lets whoever waits, or comes, pass.
sub open {
    my ($self, $name) = @_;
    CORE::open my $file, '>', "$self->{folder}/$name" or die "$name: $!";
    return;
}

sub is_open {
    my ($self, $name) = @_;
    return -e "$self->{folder}/$name";
}

# In the application: a Future that waits in the event loop.
async sub passed {
    my ($self, $name) = @_;
    my $end = time + patience(60);
    until ($self->is_open($name) || time > $end) { await IO::Async::Loop->new->delay_future(after => 0.01) }
    return;
}

# Like `wait`, but blocks the process meanwhile.
sub block {
    my ($self, $name) = @_;
    wait_for(sub { $self->is_open($name) }, 60);
    return;
}

1;
