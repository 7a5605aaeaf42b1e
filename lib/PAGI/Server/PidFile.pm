package PAGI::Server::PidFile;

use strict;
use warnings;

our $VERSION = '0.003000';

use Errno qw(EACCES);
use Fcntl qw(:flock F_SETFD FD_CLOEXEC O_CREAT O_NOFOLLOW O_RDWR);
use File::Spec;
use Peregrine;
use Peregrine::Handover;

# Attempts to make the file: another process may remove it after it was opened here and before it is locked.
use constant ATTEMPTS => 10;

sub create {
    my ($class, $path) = @_;
    my $absolute = File::Spec->rel2abs($path);
    my $before   = $class->_taken_over($absolute);
    return $before if $before;
    for (1 .. ATTEMPTS) {
        sysopen my $handle, $absolute, O_RDWR | O_CREAT | O_NOFOLLOW, oct 644
            or die "Error: Cannot write the pid file $path: $!\n";
        if (!flock $handle, LOCK_EX | LOCK_NB) {
            my $pid = readline $handle;
            $pid = defined $pid && $pid =~ /\A([0-9]+)/ ? "process $1" : 'another process';
            die "Error: $path belongs to $pid, which is running\n";
        }
        next if !_is_same($handle, $absolute);
        my $self = bless { path => $absolute, handle => $handle, pid => $$ }, $class;
        # The lock belongs to each copy of the descriptor: a child that outlives this process would keep it.
        Peregrine::hide_from_forks(fileno $handle, 1);
        $self->_write("$$\n") or die "Error: Cannot write the pid file $path: $!\n";
        return $self;
    }
    die "Error: Cannot lock the pid file $path\n";
}

# Takes over the old program's file with its lock.
sub _taken_over {
    my ($class, $path) = @_;
    my $handover   = Peregrine::Handover->from_environment or return;
    my $descriptor = $handover->take('pid_file') // return;
    open my $handle, '+<&=', $descriptor or return;
    fcntl $handle, F_SETFD, FD_CLOEXEC;
    return if !_is_same($handle, $path);
    Peregrine::hide_from_forks(fileno $handle, 1);
    return bless { path => $path, handle => $handle, waits => 1, pid => $$ }, $class;
}

# Writes the number of this process. False, with the reason in $!: the file cannot be written.
sub take_over {
    my ($self) = @_;
    return !delete $self->{waits} || $self->_write("$$\n");
}

sub handle { return $_[0]{handle} }

# Gives up the file without removing it, because another process has it now.
sub let_go {
    my ($self) = @_;
    my $handle = delete $self->{handle} or return;
    Peregrine::hide_from_forks(fileno $handle, 0);
    return;
}

sub _is_same {
    my ($handle, $path) = @_;
    my @here  = stat $handle;
    my @there = stat $path or return 0;
    return $here[0] == $there[0] && $here[1] == $there[1];
}

sub _write {
    my ($self, $text) = @_;
    my $handle = $self->{handle};
    sysseek $handle, 0, 0 or return 0;
    # On a full disk the write is short, if the new text is longer than the old one.
    return 0 if length $text && (syswrite($handle, $text) // -1) != length $text;
    return truncate $handle, length $text;
}

# Removes the file, in the process that has made it, while that has the lock. A file that the process may not
# remove is emptied.
sub remove {
    my ($self) = @_;
    my $handle = $self->{handle} or return;
    return if $self->{pid} != $$ || $self->{waits};
    # A process without the rights to look at the path still has the lock, so the file is its own.
    my $hidden = !stat $self->{path} && $! == EACCES;
    if ($hidden || _is_same($handle, $self->{path})) { unlink $self->{path} or $self->_write('') }
    Peregrine::hide_from_forks(fileno $handle, 0);
    delete $self->{handle};
    return;
}

sub DESTROY {
    my ($self) = @_;
    local ($!, $@, $?);
    $self->remove;
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::PidFile - a locked file with the process id

=head1 SYNOPSIS

    my $file = PAGI::Server::PidFile->create('/run/app.pid');

=head1 DESCRIPTION

The file is locked as long as the object lives, and removed with it, by the process that made it and by no
fork of it. A file that a dead process left behind has no lock and is taken over.

=head1 METHODS

=head2 create

    my $file = PAGI::Server::PidFile->create($path);

Dies with a readable message when the file cannot be written, or belongs to a process that runs.

=head2 take_over

    $file->take_over or die "the pid file: $!\n";

Writes the process id into a file that L<Peregrine::Handover> has brought, which has that of the old program
until then. False if the file cannot be written, with the reason in C<$!>.

=head2 handle, let_go

    $file->let_go;

The open file; and gives it up to the process that has taken it over, which goes on holding the lock.

=head2 remove

    $file->remove;

Removes the file. If the process may no longer write to the folder, the file is emptied instead.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
