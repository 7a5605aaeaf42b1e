package PAGI::Server::SlowFiles;

# Files that threads open, because their storage may take for ever to answer.

use strict;
use warnings;

our $VERSION = '0.003000';

use Future;
use Peregrine;
use Peregrine::Later qw(weakly);

# Objects are not copied into clones of the interpreter, see Peregrine::Threads.
sub CLONE_SKIP { return 1 }

sub new {
    my ($class, $loop) = @_;
    my $handle = Peregrine::OpenerHandle->new or die "cannot open files by threads: $!\n";
    open my $watched, '<&', $handle->fd or die "cannot open files by threads: $!\n";
    Peregrine::hide_from_forks(fileno $watched, 1);
    return bless { loop => $loop, handle => $handle, watched => $watched, pid => $$, asked => {} }, $class;
}

# Whether the threads are this process's: a forked child has none.
sub is_usable { my ($self) = @_; return $self->{pid} == $$ }

# Has a thread open a file; returns a Future of it.
sub open {    ## no critic
    my ($self, $path) = @_;
    my $number = ++$self->{last};
    $self->{handle}->open($path, $number) or return Future->fail("no thread can be had\n");
    my $future = $self->{loop}->new_future;
    $self->{loop}->watch_io(handle => $self->{watched}, on_read_ready => weakly($self, '_collect'))
        if !%{ $self->{asked} };
    $self->{asked}{$number} = [ $future, $path ];
    return $future;
}

sub _collect {
    my ($self) = @_;
    while (my ($number, $fd, $errno, $bytes, $plain, $local) = $self->{handle}->next) {
        my ($future, $path) = @{ delete $self->{asked}{$number} };
        my $file = bless {
            path   => $path,
            errno  => $errno,
            bytes  => $bytes,
            plain  => $plain,
            local  => $local,
            opener => $self->{handle},
            $fd >= 0 ? (fd => $fd) : (),
            },
            'PAGI::Server::SlowFiles::File';
        $future->done($file) if !$future->is_ready;
    }
    $self->{loop}->unwatch_io(handle => $self->{watched}, on_read_ready => 1) if !%{ $self->{asked} };
    return;
}

sub DESTROY {
    my ($self) = @_;
    return if ${^GLOBAL_PHASE} eq 'DESTRUCT' || $self->{pid} != $$ || !%{ $self->{asked} };
    $self->{loop}->unwatch_io(handle => $self->{watched}, on_read_ready => 1);
    return;
}

# Opens the file of an event's path, and then sends it by `$send`. Returns two Futures: the first is ready
# when the file was opened, the second is the event's.
sub send {
    my ($self, $event, %args)      = @_;
    my ($send, $gone, $by_reading) = @args{qw(send gone by_reading)};
    my ($type, $path)              = @{$event}{qw(type file)};
    my $left   = $gone->without_cancel->then(sub { return Future->done });
    my $opened = Future->wait_any($self->open($path), $left);
    my $sent   = $opened->without_cancel->then(sub {
        my ($file) = @_;
        return Future->done if !$file;    # the client has gone
        if (my $errno = $file->{errno}) {
            $send->({ %$event, file => $file });    # frees the events that wait for the file
            local $! = $errno;
            return Future->fail("$type: file '$path' cannot be opened: $!$args{where}", 'pagi');
        }
        return $by_reading->() if !$file->{plain};
        return $send->({ %$event, file => $file });
    });
    $sent->retain if !$sent->is_ready;
    return [ $opened, $sent ];
}

package PAGI::Server::SlowFiles::File;

sub CLONE_SKIP { return 1 }

# Closes the file by a thread, because that may take long as well.
sub DESTROY {
    my ($self) = @_;
    $self->{opener}->close($self->{fd}) if defined $self->{fd} && $self->{opener};
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::SlowFiles - response bodies from files whose storage may be slow

=head1 SYNOPSIS

    my $files = PAGI::Server::SlowFiles->new($loop);
    my ($opened, $sent) = @{ $files->send(
        $event,
        send       => $send,
        gone       => $gone,
        where      => " at app.pl line 7.\n",
        by_reading => sub { ... },
    ) };

=head1 DESCRIPTION

An application names a file by its path. To open that may wait for a network or another process (NFS, FUSE),
so threads do it, and the event loop goes on. L<PAGI::Server> opens a file by itself when one of the same
folder was found to lie on a file system of this machine, and it is no symbolic link.

=head1 METHODS

=head2 new

    my $files = PAGI::Server::SlowFiles->new($loop);

Its threads are started when there is something to do.

=head2 is_usable

False in a process that was forked from the one it was made in.

=head2 open

    my $file = await $files->open($path);

A hash: C<path>, C<errno> (0 if it was opened), C<fd>, C<bytes>, C<plain> (it is a file that has so many
bytes), C<local> (its file system waits for nothing but this machine). The descriptor is closed with it, by a
thread, unless it was deleted from the hash.

=head2 send

Has the C<file> of an event opened, and then sends it by C<$send>; C<by_reading> sends what is no plain
file. Returns two Futures: one is ready when it was opened, was not, or C<gone> was ready; the other is the
event's, and fails as C<$send> does for files that it opens at once, with C<where> at the end of the message.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
