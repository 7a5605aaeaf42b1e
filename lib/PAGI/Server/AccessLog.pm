package PAGI::Server::AccessLog;

use strict;
use warnings;

use POSIX ();

# Bytes that would break a line, or a terminal, are shown as \xHH.
sub _escaped {
    my ($text) = @_;
    $text =~ s/([\x00-\x1f\x7f-\xff"\\])/sprintf '\\x%02x', ord $1/ge;
    return $text;
}

sub line {
    my ($request, $time) = @_;
    my ($peer, $method, $target, $version, $status, $bytes) = @$request;
    my $when = POSIX::strftime('%d/%b/%Y:%H:%M:%S %z', localtime $time);
    my $what = _escaped("$method $target HTTP/$version");
    return sprintf qq{%s - - [%s] "%s" %s %s\n}, length $peer ? $peer : 'unix', $when, $what, $status || '-',
        $bytes || '-';
}

sub write_line {
    my ($handle, $request) = @_;
    print {$handle} line($request, time);
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::AccessLog - one line per request

=head1 SYNOPSIS

    PAGI::Server::AccessLog::write_line(\*STDERR, ['127.0.0.1', 'GET', '/', '1.1', 200, 13]);

=head1 FUNCTIONS

=head2 line

    my $line = PAGI::Server::AccessLog::line($request, time);

A line in the common log format from a list of peer, method, target, version, status and body bytes.

=head2 write_line

    PAGI::Server::AccessLog::write_line($handle, $request);

Prints it.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
