package PAGI::Server::ErrorLog;

use strict;
use warnings;

our $VERSION = '0.003000';

use Fcntl qw(O_APPEND O_CREAT O_NOCTTY O_WRONLY);
use File::Spec;

sub create {
    my ($class, $path) = @_;
    my $self = bless { path => File::Spec->rel2abs($path) }, $class;
    $self->{handle} = $self->_append or die "Error: Cannot write the error log $path: $!\n";
    return $self;
}

sub _append {
    my ($self) = @_;
    sysopen my $handle, $self->{path}, O_WRONLY | O_APPEND | O_CREAT | O_NOCTTY, oct 666 or return;
    return $handle;
}

sub path   { return $_[0]{path} }
sub handle { return $_[0]{handle} }

sub take_over {
    my ($self) = @_;
    open my $before, '>&', \*STDERR or die "Error: Cannot keep the standard error: $!\n";
    $self->{before} = $before;
    return $self->_replace;
}

sub _replace {
    my ($self) = @_;
    open STDERR, '>&', $self->{handle} or die "Error: Cannot write the error log $self->{path}: $!\n";
    return;
}

sub let_go {
    my ($self) = @_;
    my $before = delete $self->{before} or return;
    open STDERR, '>&', $before or die "Error: Cannot go back to the standard error: $!\n";
    return;
}

sub settle {
    my ($self) = @_;
    delete $self->{before};
    return;
}

# Opens the log anew. `descriptor`: the new file, opened by another process that has the rights.
sub reopen {
    my ($self, $descriptor) = @_;
    my $handle = (defined $descriptor ? _copy($descriptor) : $self->_append)
        or return "the error log $self->{path} cannot be opened again, the old file goes on: $!";
    $self->{handle} = $handle;
    $self->_replace;
    return;
}

sub _copy {
    my ($descriptor) = @_;
    open my $handle, '>>&', $descriptor or return;
    return $handle;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::ErrorLog - a file in place of standard error

=head1 SYNOPSIS

    my $errors = PAGI::Server::ErrorLog->create('/var/log/app.error.log');
    $errors->take_over;
    $errors->settle;    # when the server has started

=head1 DESCRIPTION

All that a process writes to its standard error goes to a file: what the server logs, what the
application warns, what programs say that it runs. It is a file of whole lines only as far as their
writers write whole lines.

=head1 METHODS

=head2 create

    my $errors = PAGI::Server::ErrorLog->create($path);

Opens the file for appending, creates it if need be. Dies with a text that names it.

=head2 take_over

    $errors->take_over;

From now on it is the standard error. The standard error before that is kept.

=head2 let_go

    $errors->let_go;

Gives the standard error back what it was before L</take_over>; nothing after L</settle>.

=head2 settle

    $errors->settle;

Closes the standard error from before, so that no process waits for its end.

=head2 reopen

    my $problem = $errors->reopen;
    my $problem = $errors->reopen($descriptor);

Opens the path anew: somebody has moved the file away. A process that may not do that gets the descriptor from
one that may. Returns a text if that fails; then the old one goes on.

=head2 path, handle

    print $errors->path;

The absolute path, and the file that is open.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
