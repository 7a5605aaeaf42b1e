package PAGI::Server::Exception;

use strict;
use warnings;

our $VERSION = '0.003000';

use Scalar::Util qw(blessed reftype);

# Limits of the text for an exception that has no text of its own.
use constant {
    FIELDS_MAX => 10,
    LENGTH_MAX => 200,
};

sub text {
    my ($exception) = @_;
    return $exception // 'undef' if !ref $exception;
    my ($text, $failure);
    {
        local $@;
        $text    = eval { "$exception" };
        $failure = $@ if !defined $text
    }
    return _described($exception) if defined $text && $text =~ /\A(?:[\w:]+=)?HASH\(0x[0-9a-f]+\)\z/;
    return $text                  if defined $text && length $text;
    return _described($exception) . ', which is empty' if defined $text;
    return
          _described($exception)
        . ' (it cannot be had as a string: '
        . (ref $failure ? _described($failure) : $failure =~ s/\s+\z//r) . ')';
}

# Describes an object by its fields, without calling its methods.
sub _described {
    my ($exception) = @_;
    no overloading;
    my $class = blessed $exception;
    my $text =
        defined $class
        ? "an exception of class $class"
        : 'an exception that is a reference to a ' . lc ref $exception;
    return $text if reftype $exception ne 'HASH' || tied %$exception;
    my @names = grep { defined $exception->{$_} && !ref $exception->{$_} } sort keys %$exception;
    splice @names, FIELDS_MAX if @names > FIELDS_MAX;
    return @names
        ? "$text with " . join ', ',
        map { "$_ => '" . substr($exception->{$_}, 0, LENGTH_MAX) . q{'} } @names
        : $text;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Exception - what an exception says

=head1 SYNOPSIS

    $log->error('the application died: ' . PAGI::Server::Exception::text($exception));

=head1 DESCRIPTION

Exceptions are strings, or objects that can be had as strings. Some die when they are asked, and hashes only
say where they are; what is in them is not lost then.

=head1 FUNCTIONS

=head2 text

    my $text = PAGI::Server::Exception::text($exception);

An exception as a string. Of an object that dies when it is made one, or is an empty string, and of a hash
that has no text of its own: its class and, if it is a hash, the plain values in it, ten of 200 characters
at most. Never dies.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
