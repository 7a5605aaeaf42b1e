package PAGI::Server::Subcommand;

use strict;
use warnings;

our $VERSION = '0.003000';

use File::Spec ();
use PAGI::Server::CommandLine;
use PAGI::Server::ConfigFile;

sub refuse_others {
    my ($command, $own, $given) = @_;
    my ($other) = grep { $_ ne $own && !/\A(?:chdir|config)\z/ } sort keys %$given;
    die \("$command takes --" . $own =~ tr/_/-/r . ', --config and --chdir, not --' . $other =~ tr/_/-/r)
        if defined $other;
    return;
}

sub path {
    my ($given, $own, $default) = @_;
    my $typed   = PAGI::Server::CommandLine->values_of($given);
    my $file    = defined $typed->{config} ? PAGI::Server::ConfigFile->read($typed->{config}, []) : {};
    my %options = (%$file, %$typed);
    my $path    = $options{$own} // ($default ? $default->() : undef);
    return if !defined $path;
    return File::Spec->rel2abs($path, defined $options{chdir} ? File::Spec->rel2abs($options{chdir}) : ());
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Subcommand - options of the commands for a server that runs

=head1 DESCRIPTION

C<peregrine certificates>, C<renew>, C<publish>, C<reload> and C<status> take one option of the server, a
path, and beside it C<--config> and C<--chdir>, by which they find the same path as the server.

=head1 FUNCTIONS

=head2 refuse_others

    my ($given, @words) = PAGI::Server::CommandLine->parse(@arguments);
    PAGI::Server::Subcommand::refuse_others('reload', 'pid', $given);

Throws a reference to a text about an option that the command does not take.

=head2 path

    my $path = PAGI::Server::Subcommand::path($given, 'pid');
    my $path = PAGI::Server::Subcommand::path($given, 'acme_folder', sub { '/var/lib/acme' });

The option's absolute path: as typed, as in the configuration file, or the default; undef if there is none.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
