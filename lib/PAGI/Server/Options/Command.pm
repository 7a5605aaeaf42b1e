package PAGI::Server::Options::Command;

use strict;
use warnings;

our $VERSION = '0.003000';

# The flags of pagi-server that are no keys of the constructor; the columns are those of
# PAGI::Server::Options::Table.
#<<<  a row for each option
my @SECTIONS = (
    [
        'Application' => (
            { name => 'code', flag => 'e', type => 'string', arg => 'CODE' },
            { name => 'mount', type => 'string', many => 1,
              arg => 'PATH=FILE|MODULE[,host=NAME][,workers=N[,OPTION=VALUE...]][,grip=PREFIX]'
                  . '[,pagi|,psgi|,mojo]' },
            { name => 'module', flag => 'M', type => 'string', many => 1, arg => 'MODULE' },
            { name => 'lib', short => 'I', type => 'string', many => 1, arg => 'DIRECTORY' },
            { name => 'env', variable => 'PAGI_ENV', short => 'E', type => 'word', arg => 'MODE',
              offer => [qw(development production none)],
              shown => 'PAGI_ENV; else development on a terminal, production otherwise' },
            { name => 'env_file', type => 'string', many => 1, arg => 'FILE' },
            { name => 'default_middleware', type => 'boolean', default => 1 },
            { name => 'server', short => 's', type => 'class', arg => 'CLASS', shown => 'PAGI::Server' },
            { name => 'extension', type => 'string', many => 1, arg => 'NAME',
              offer => [qw(fullflush informational)] },
            { name => 'reload', short => 'r', type => 'flag' },
            { name => 'reload_dir', type => 'string', many => 1, arg => 'DIRECTORY',
              shown => q{the application's, lib, and those of -I} },
            { name => 'future_xs', type => 'flag' },
        )
    ],
    [
        'Encryption' => (
            { name => 'ssl_cert', type => 'string', arg => 'FILE' },
            { name => 'ssl_key', type => 'string', arg => 'FILE' },
            { name => 'ssl_cert_dir', type => 'string', arg => 'DIRECTORY' },
            { name => 'ssl_chain', type => 'string', arg => 'FILE' },
            { name => 'ssl_key_password_file', type => 'string', arg => 'FILE' },
            { name => 'ssl_sni', type => 'string', many => 1, arg => 'CERT,KEY[,CHAIN]' },
            { name => 'ssl_ca', type => 'string', arg => 'FILE' },
            { name => 'ssl_verify_client', type => 'flag' },
            { name => 'ssl_request_client', type => 'flag' },
            { name => 'ssl_min_version', type => 'choice', of => [qw(TLSv1_2 TLSv1_3)], arg => 'VERSION',
              shown => 'TLSv1_2' },
            { name => 'ssl_ciphers', type => 'string', arg => 'LIST' },
            { name => 'ssl_ciphersuites', type => 'string', arg => 'LIST' },
            { name => 'ssl_groups', type => 'string', arg => 'LIST',
              shown => 'X25519MLKEM768 where OpenSSL has it (3.5), X25519, P-256, P-384' },
            { name => 'ssl_session_timeout', type => 'string', arg => 'SECONDS', shown => '7200' },
            { name => 'ssl_ticket_keys', type => 'string', arg => 'FILE', shown => 'made up' },
        )
    ],
    [
        'Logs' => (
            { name => 'error_log', type => 'string', arg => 'FILE' },
        )
    ],
    [
        'Processes' => (
            { name => 'daemonize', short => 'D', type => 'flag' },
            { name => 'pid', type => 'string', arg => 'FILE' },
            { name => 'user', type => 'string', arg => 'USER' },
            { name => 'group', type => 'string', arg => 'GROUP', shown => q{the user's} },
            { name => 'no_new_privs', type => 'flag' },
            { name => 'umask', type => 'mode', arg => 'MODE', shown => q{the shell's} },
            { name => 'chdir', type => 'string', arg => 'DIRECTORY' },
        )
    ],
    [
        'Other' => (
            { name => 'config', short => 'c', type => 'string', arg => 'FILE' },
            { name => 'check', type => 'flag' },
            { name => 'completion', type => 'choice', of => [qw(bash zsh)] },
            { name => 'version', short => 'v', type => 'flag' },
            { name => 'help', short => 'h', type => 'flag' },
        )
    ],
);
#>>>

sub sections { return @SECTIONS }

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Options::Command - the options of pagi-server alone as data

=head1 SYNOPSIS

    for my $section (PAGI::Server::Options::Command::sections()) {
        my ($title, @options) = @$section;
        print "$title: @{[ map { $_->{name} } @options ]}\n";
    }

=head1 DESCRIPTION

L<PAGI::Server::Options> joins this table with L<PAGI::Server::Options::Table>, section by section.

=head1 FUNCTIONS

=head2 sections

    my @sections = PAGI::Server::Options::Command::sections();

Array references with a title and the options that belong under it.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
