package PAGI::Server::PublishCommand;

use strict;
use warnings;

our $VERSION = '0.003000';

use PAGI::Server::CommandLine;
use PAGI::Server::Subcommand;
use Peregrine::Publisher;

# Whether words of a command line mean the command `publish`, and no application of that name.
sub is_meant {
    my (@words) = @_;
    return @words && $words[0] eq 'publish' && !-f $words[0] ? 1 : 0;
}

# Runs the command; returns its exit status.
sub command {
    my ($class, @words) = @_;
    my ($given, @rest)  = PAGI::Server::CommandLine->parse(@words);
    PAGI::Server::Subcommand::refuse_others('publish', 'channels_socket', $given);
    die \'publish needs a topic, and perhaps a text' if !@rest || @rest > 2;
    my ($topic, $text) = @rest;
    my $socket = PAGI::Server::Subcommand::path($given, 'channels_socket')
        // die \'publish needs --channels-socket, or --config with one';
    my $publisher = Peregrine::Publisher->new(socket => $socket);
    return _publish($publisher, $topic, $text) if defined $text;

    while (defined(my $line = readline STDIN)) {
        chomp $line;
        next if !length $line;
        my $status = _publish($publisher, $topic, $line);
        return $status if $status;
    }
    return 0;
}

sub _publish {
    my ($publisher, $topic, $bytes) = @_;
    my $position = eval { $publisher->publish($topic, $bytes) };
    if (!defined $position) {
        print STDERR "publish: $@";
        return 1;
    }
    print "$position\n";
    return 0;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::PublishCommand - peregrine publish

=head1 SYNOPSIS

    peregrine --channels --channels-socket /run/app/channels.sock app.pl

    peregrine publish --channels-socket /run/app/channels.sock news 'Something has happened'
    tail -f log | peregrine publish --channels-socket /run/app/channels.sock log

=head1 DESCRIPTION

Adds an entry to a topic of a running server (L<PAGI::Server::Topics>): the text, or without one each line of
the standard input that is not empty. Each entry's position is printed. The exit status is 1 if one could not
be published, with the name of the failure (L<Peregrine::Publisher/FAILURES>).

The socket's path may come from the server's configuration file: C<--config FILE>.

=head1 FUNCTIONS

=head2 is_meant

Whether words of a command line mean this command, and no file of that name.

=head1 METHODS

=head2 command

    exit PAGI::Server::PublishCommand->command(@words);

Dies with a reference to a sentence if the words are wrong.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
