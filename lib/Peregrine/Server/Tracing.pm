package Peregrine::Server::Tracing;

use strict;
use warnings;

our $VERSION = '0.003000';

use Fcntl qw(F_SETFD);
use Peregrine;
use Peregrine::Fork;
use Peregrine::Handover;
use Peregrine::Trace;
use POSIX ();

use constant VARIABLE => 'PEREGRINE_TRACE';

# The trace of this process, which all its servers share.
my $TRACE;

# Makes the trace before threads and children exist, which share its memory.
sub begin {
    my ($class, $log) = @_;
    return $TRACE if $TRACE;
    my $handover   = Peregrine::Handover->from_environment;
    my $given      = $handover      ? $handover->take('trace')      : undef;
    my $descriptor = defined $given ? Peregrine::trace_open($given) : undef;
    my $is_new     = !defined $descriptor;
    $descriptor //= Peregrine::trace_open(-1);
    my $wanted = $ENV{ +VARIABLE } // '';

    if (!defined $descriptor) {
        $log->warn(VARIABLE . ": there is no trace here: $!") if length $wanted;
        return;
    }
    open my $handle, '+<&=', $descriptor or die "the trace: $!\n";
    my $memory = eval { Peregrine::Trace->of_file("/proc/self/fd/$descriptor") };
    return $log->warn("there is no trace of this server: $@" =~ s/\s+\z//r) if !$memory;
    $TRACE = bless { handle => $handle, memory => $memory }, $class;
    return $TRACE                                                                 if !length $wanted;
    return $log->warn(VARIABLE . ": '$wanted' cannot be traced, 'exchanges' can") if $wanted ne 'exchanges';
    # A reader that the old program has started goes on.
    $TRACE->_start_reader if $is_new;
    return $TRACE;
}

sub handle { return $_[0]{handle} }

# Closes the trace in this process: neither it nor its children make records from now on.
sub leave {
    delete @{$TRACE}{qw(handle memory)} if $TRACE;
    Peregrine::trace_close();
    return;
}

# Makes the present process the server of the trace: readers end when it ends.
sub serves {
    my ($self) = @_;
    return $self->{memory} ? $self->{memory}->serves($$) : ();
}

# Starts a reader by a process between the two, so that the server need not wait for the reader.
sub _start_reader {
    my ($self) = @_;
    $self->{memory}->want;
    my $pid = Peregrine::Fork::child() // die "fork: $!\n";
    if (!$pid) {
        my $reader = fork // POSIX::_exit(1);
        $self->_become_reader if !$reader;
        POSIX::_exit(0);
    }
    waitpid $pid, 0;
    return;
}

sub _become_reader {
    my ($self) = @_;
    my $descriptor = fileno $self->{handle};
    fcntl $self->{handle}, F_SETFD, 0;
    if (opendir my $list, '/proc/self/fd') {
        my @others = grep { /\A\d+\z/ && $_ > 2 && $_ != $descriptor } readdir $list;
        closedir $list;
        POSIX::close($_) for @others;
    }
    delete $ENV{ +VARIABLE };
    exec {$^X} $^X, (map { "-I$_" } grep { !ref } @INC), '-MPeregrine::Trace',
        '-e', 'exit Peregrine::Trace->print_from_start(@ARGV)', $descriptor
        or POSIX::_exit(127);
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Server::Tracing - a server's part in the traces of its exchanges

=head1 DESCRIPTION

Makes the memory that all processes of a server write records into while a reader wants them
(L<Peregrine::Trace>). With C<PEREGRINE_TRACE=exchanges> in the environment it starts a reader, which prints
all records on standard error and ends after the server.

=head1 METHODS

=head2 begin

    my $tracing = Peregrine::Server::Tracing->begin($log);

Once in a process, before it has threads and children. A program that takes over (USR2) gets the memory of the
old program, so that a reader sees both. Nothing where the system has no such memory (Linux has).

=head2 handle

The descriptor of the memory, for the program that takes over.

=head2 leave

    Peregrine::Server::Tracing->leave;

In a process that must not see the requests of others: it has no trace from now on.

=head2 serves

    $tracing->serves;

This process is the server from now on.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
