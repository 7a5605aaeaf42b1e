package Peregrine::File;

use strict;
use warnings;

our $VERSION = '0.003000';

# -r and its like ask the kernel, which knows of read-only file systems and of access lists.
use filetest 'access';

use Errno      qw(EISDIR ENOTDIR);
use File::Spec ();

sub text {
    my ($path) = @_;
    open my $in, '<', $path or return undef;    ## no critic
    local $/ = undef;
    return scalar readline $in;
}

sub problem {
    my ($path) = @_;
    my $reason = reason($path);
    return defined $reason ? "cannot write to '$path': $reason" : undef;
}

sub reason {
    my ($path) = @_;
    return -e $path ? _of_file($path) : _of_folder($path);
}

sub _of_file {
    my ($path) = @_;
    return _text(EISDIR) if -d $path;
    return -w $path ? undef : "$!";
}

sub _of_folder {
    my ($path) = @_;
    my ($volume, $folders) = File::Spec->splitpath(File::Spec->rel2abs($path));
    my $folder = File::Spec->catpath($volume, $folders, '');
    return "$!"           if !-e $folder;
    return _text(ENOTDIR) if !-d $folder;
    return -w $folder && -x $folder ? undef : "$!";
}

sub _text {
    my ($errno) = @_;
    local $! = $errno;
    return "$!";
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::File - the text of a file, and whether it could be written

=head1 SYNOPSIS

    my $problem = Peregrine::File::problem('/var/log/app.log');

=head1 FUNCTIONS

=head2 text

    my $status = Peregrine::File::text('/proc/self/status') // '';

All of a file, whatever C<$/> is; undef if it cannot be read.

=head2 problem

    die "$problem\n" if defined(my $problem = Peregrine::File::problem($path));

Why this process could not write to the file, or make it: a text that names it, or undef. Nothing
is opened or made.

=head2 reason

    my $reason = Peregrine::File::reason($path);

The end of that text alone.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
