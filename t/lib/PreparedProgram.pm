package PreparedProgram;

# The process of a TestPrepared: `perl -MPreparedProgram=DESCRIPTOR,MODULE,... PROGRAM` loads the modules with
# which PROGRAM begins, and waits for orders at a socket. For each order it forks a child of the test, in
# which perl goes on with PROGRAM, from the first line.

use strict;
use warnings;

use Config;
use POSIX ();

# The numbers of system calls, and the argument of `clone` that is the place of the thread's number.
my %NUMBERS = (
    x86_64  => { clone => 56,  place => 3, prctl => 157 },
    aarch64 => { clone => 220, place => 4, prctl => 167 }
);
my ($MACHINE) = $Config{archname} =~ /\A(x86_64|aarch64)-linux/;
my $NUMBER = $MACHINE && $NUMBERS{$MACHINE};

use constant {
    CLONE_PARENT         => 0x8000,
    CLONE_CHILD_CLEARTID => 0x20_0000,
    CLONE_CHILD_SETTID   => 0x100_0000,
    PR_GET_TID_ADDRESS   => 40,
    F_SETFD              => 2,
    FD_CLOEXEC           => 1,
};

# This module remembers how its program was started, so that each child loads it anew.
my $STARTED = 'Peregrine/Handover.pm';

# Whether children of this process's parent can be made here.
sub is_possible { return defined $NUMBER }

sub import {
    my (undef, $descriptor, @modules) = @_;
    open my $orders, '+<&=', $descriptor or die "orders: $!";
    {
        local $INC{$STARTED} = $STARTED;
        # The program's log has them otherwise. Code in an `eval` would take an exception for its own.
        my @warnings;
        local $SIG{__WARN__} = sub { push @warnings, @_ };
        for my $module (@modules) { require $module =~ s{::}{/}gr . '.pm' }
        die "a warning of a module: @warnings" if @warnings;
    }
    my $fork = _fork_of_parent();
    while (defined(my $order = _order($orders))) {
        my $pid = $fork->();
        if (!$pid) {
            close $orders;
            return _begin(unpack '(N/a*)*', $order);
        }
        syswrite $orders, pack 'l', $pid;
    }
    POSIX::_exit(0);
}

# The next order; undef when the test has closed the socket.
sub _order {
    my ($orders) = @_;
    my $length   = unpack 'N', _bytes($orders, 4) // return;
    return _bytes($orders, $length);
}

sub _bytes {
    my ($from, $count) = @_;
    my $bytes = '';
    while (length $bytes < $count) {
        sysread $from, $bytes, $count - length $bytes, length $bytes or return;
    }
    return $bytes;
}

# A function like `fork`, which returns -1 when it fails, and whose children are children of this process's
# parent: the test waits for them. The C library keeps the number of its thread in a variable, which `fork`
# has the kernel set in the child.
sub _fork_of_parent {
    my @arguments = (CLONE_PARENT | POSIX::SIGCHLD(), 0, 0, 0, 0);
    my $address   = pack 'J', 0;
    if (syscall($NUMBER->{prctl}, PR_GET_TID_ADDRESS, $address, 0, 0, 0) == 0) {
        $arguments[0] |= CLONE_CHILD_CLEARTID | CLONE_CHILD_SETTID;
        $arguments[ $NUMBER->{place} ] = unpack 'J', $address;
    }
    return sub { return syscall $NUMBER->{clone}, @arguments };
}

# In the child: what a program that has just been executed has for itself.
sub _begin {
    my ($out, $err, $seconds, $count, @words) = @_;
    _write_to($err, 2);
    $out eq $err ? POSIX::dup2(2, 1) : _write_to($out, 1);
    _read_from_its_begin();
    @ARGV = splice @words, 0, $count;
    %ENV  = @words;
    $^T   = time;
    srand;
    alarm $seconds;
    # Changes the command line in /proc, which has words for perl: Peregrine::Handover makes one anew then.
    { my $name = $0; $0 = $name; }
    require $STARTED if $INC{'Peregrine.pm'};
    return;
}

sub _write_to {
    my ($path, $descriptor) = @_;
    my $file = POSIX::open($path, POSIX::O_WRONLY() | POSIX::O_APPEND()) // die "$path: $!";
    POSIX::dup2($file, $descriptor) // die "$path: $!";
    POSIX::close($file);
    return;
}

# Opens the program again, at the descriptor from which perl reads it: children would have the position in the
# file in common.
sub _read_from_its_begin {
    my @program = (stat $0)[ 0, 1 ];
    my ($read)  = grep { my @open = stat "/proc/self/fd/$_"; @open && "@open[ 0, 1 ]" eq "@program" }
        map { m{(\d+)\z} } glob '/proc/self/fd/*';
    my $again = POSIX::open($0, POSIX::O_RDONLY()) // die "$0: $!";
    POSIX::dup2($again, $read) // die "$0: $!";
    POSIX::close($again);
    open my $handle, '<&=', $read or die "$0: $!";
    fcntl $handle, F_SETFD, FD_CLOEXEC or die "$0: $!";
    return;
}

1;
