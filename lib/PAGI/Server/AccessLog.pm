package PAGI::Server::AccessLog;

use strict;
use warnings;

our $VERSION = '0.003000';

use Fcntl qw(O_NOCTTY O_NONBLOCK O_WRONLY);
use File::Spec;
use Peregrine;
use Peregrine::Daemon;
use Peregrine::File;
use Scalar::Util qw(blessed openhandle);

# The engine's name for "no descriptor".
use constant NO_DESCRIPTOR => -1;

sub is_target {
    my ($target) = @_;
    return 1 if !defined $target;
    return length $target ? 1 : 0 if !ref $target && ref \$target ne 'GLOB';
    return defined openhandle($target) || blessed $target && $target->can('print') ? 1 : 0;
}

sub located {
    my ($target) = @_;
    return _is_path($target) ? File::Spec->rel2abs($target) : $target;
}

sub _is_path {
    my ($target) = @_;
    return defined $target && !ref $target && ref \$target ne 'GLOB' && $target ne '-';
}

sub format_problem {
    my ($format) = @_;
    my ($atom, $at, $reason) = Peregrine::access_log_fault($format) or return;
    return length $atom ? "'$atom' at $at $reason" : "it $reason";
}

sub start {
    my ($class, $worker, %args) = @_;
    my $target = $args{target};
    return $worker->close_access_log       if !defined $target;
    $class->prepare($target, $args{owner}) if defined $args{owner};
    my ($path, $descriptor) = (undef, NO_DESCRIPTOR);
    if    (ref $target || ref \$target eq 'GLOB') { $descriptor = _descriptor($target) }
    elsif ($target eq '-')                        { $descriptor = fileno STDOUT }
    else                                          { $path       = $target }
    my $code  = $worker->open_access_log($path, $descriptor, $args{format});
    my $takes = !defined $path && $descriptor == NO_DESCRIPTOR;
    return $takes ? $target : () if $code >= 0;
    return _refuse(defined $path ? "'$path'" : 'the handle');
}

sub prepare {
    my ($class, $target, $owner) = @_;
    return if !_is_path($target);
    open my $file, '>>', $target or return _refuse("'$target'");
    Peregrine::Daemon->give($file, $owner) if defined $owner;
    return;
}

sub _refuse {
    my ($name) = @_;
    die PAGI::Server::Options::exception("option 'access_log': cannot write to $name: $!");
}

sub problem {
    my ($target) = @_;
    return _is_path($target) ? Peregrine::File::problem($target) : ();
}

# The descriptor of a handle. A scalar, a tied handle or a logger has none, and gets its lines by Perl code.
sub _descriptor {
    my ($handle) = @_;
    return (defined openhandle($handle) ? fileno $handle : undef) // NO_DESCRIPTOR;
}

sub describe {
    my ($target) = @_;
    return 'off'    if !defined $target;
    return 'stdout' if !ref $target && $target eq '-';
    return $target  if !ref $target && ref \$target ne 'GLOB';
    my $descriptor = _descriptor($target);
    return $descriptor == 2 ? 'stderr' : $descriptor == 1 ? 'stdout' : 'handle';
}

sub is_terminal {
    my ($target) = @_;
    return 0 if !defined $target;
    return -t STDOUT  ? 1 : 0 if !ref $target && $target eq '-';
    return -t $target ? 1 : 0 if defined openhandle($target);
    return 0 if ref $target || !-c $target || !sysopen my $handle, $target, O_WRONLY | O_NOCTTY | O_NONBLOCK;
    return -t $handle ? 1 : 0;
}

sub take {
    my ($target, $lines) = @_;
    local ($\, $,);    # which an application may have set for its own output
    if   (blessed $target && $target->can('print')) { $target->print($lines) }
    else                                            { print {$target} $lines }
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::AccessLog - where the access log goes

=head1 SYNOPSIS

    PAGI::Server::AccessLog->start($worker, target => '/var/log/app.log', format => 'combined');

=head1 DESCRIPTION

The engine writes the access log (L<PAGI::Server/ACCESS LOG>); here is decided where to.

=head1 FUNCTIONS

=head2 is_target

    my $ok = PAGI::Server::AccessLog::is_target($value);

Whether a value can be a log: a path, C<->, a file handle, an object with C<print>, or undef for none.

=head2 located

    my $target = PAGI::Server::AccessLog::located('app.log');

A path as an absolute one, whatever the working directory will be when the log is opened; any
other target as it is.

=head2 format_problem

    my $problem = PAGI::Server::AccessLog::format_problem('%h %z');

The mistake in a format, in words; undef if there is none.

=head2 start

    PAGI::Server::AccessLog->start($worker, target => \*STDERR, format => 'clf');

Makes an engine worker write its log, in place of the one that it has; without a target it writes none. Dies
with a readable message when the file cannot be opened. Returns the target if it is one that has its lines
from L</take>, otherwise nothing.

=head2 problem

    my $problem = PAGI::Server::AccessLog::problem('/var/log/app.log');

Why a target cannot be written to, in words; undef if it can.

=head2 describe

    my $word = PAGI::Server::AccessLog::describe(\*STDERR);    # 'stderr'

The log's place, in a word.

=head2 is_terminal

    warn 'slow' if PAGI::Server::AccessLog::is_terminal(\*STDERR);

Whether a target is a terminal, under whatever name.

=head2 take

    PAGI::Server::AccessLog::take($handle, $lines);

Prints lines to a handle that has no descriptor.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
