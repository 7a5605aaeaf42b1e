package PAGI::Server::Options::Command;

use strict;
use warnings;

our $VERSION = '0.003000';

# The flags of pagi-server that are no keys of the constructor; the columns are those of
# PAGI::Server::Options::Table.
my @SECTIONS = (
    [
        'Application' => (
            {
                name  => 'code',
                flag  => 'e',
                type  => 'string',
                arg   => 'CODE',
                about => 'Code that gives the application.',
            },
            {
                name  => 'mount',
                type  => 'string',
                many  => 1,
                arg   => 'PATH=FILE|MODULE[,host=NAME][,pagi|,psgi]',
                about => 'Several applications in place of one: each gets the requests for its path and for'
                    . ' the paths below it, C</api=api.pl> for instance, and for its host if one is named.'
                    . ' Mounts with a host are tried first, then long paths; a request that matches none'
                    . ' is answered with 404. A file whose name ends in C<.psgi>, or that looks like it,'
                    . ' is an application of PSGI; C<,pagi> or C<,psgi> says which kind it is. Each file'
                    . ' has a package of its own, see L<peregrine/APPLICATIONS IN ONE PROCESS>.',
            },
            {
                name  => 'module',
                flag  => 'M',
                type  => 'string',
                many  => 1,
                arg   => 'MODULE',
                about => 'Load a module first; C<-MModule=a,b> imports.',
            },
            {
                name  => 'lib',
                short => 'I',
                type  => 'string',
                many  => 1,
                arg   => 'DIRECTORY',
                about => 'Look for modules there first.',
            },
            {
                name     => 'env',
                variable => 'PAGI_ENV',
                short    => 'E',
                type     => 'word',
                arg      => 'MODE',
                offer    => [qw(development production none)],
                shown    => 'PAGI_ENV; else development on a terminal, production otherwise',
                about    =>
                    'Becomes C<PAGI_ENV>. C<development> checks events, shows the exception and the stack'
                    . ' trace of an application that dies to its client, and wraps the application in'
                    . ' C<PAGI::Middleware::Lint> if that is installed; C<production> writes no access'
                    . ' log unless C<--access-log> is given; C<none> does neither, and its access log'
                    . ' goes to standard error.',
            },
            {
                name  => 'env_file',
                type  => 'string',
                many  => 1,
                arg   => 'FILE',
                about => 'Set the environment variables that the file names, one C<NAME=value> a line (see'
                    . ' L<PAGI::Server::EnvFile>), before the application is loaded; new workers read it'
                    . ' again. Variables that the environment has already keep their values. The file may'
                    . ' set C<PAGI_ENV>, but not variables that Perl looks at when it starts'
                    . ' (C<PERL5LIB>).',
            },
            {
                name    => 'default_middleware',
                type    => 'boolean',
                default => 1,
                about   => 'Whether C<development> may wrap the application.',
            },
            {
                name  => 'server',
                short => 's',
                type  => 'class',
                arg   => 'CLASS',
                shown => 'PAGI::Server',
                about => 'Another server class: its constructor gets C<app>, C<host>, C<port>, C<quiet> and'
                    . ' the other options that were given, and its C<run> is called.',
            },
            {
                name  => 'extension',
                type  => 'string',
                many  => 1,
                arg   => 'NAME',
                offer => [qw(fullflush informational)],
                about => 'Advertise an extension to the application: C<fullflush> makes C<http.fullflush>'
                    . ' events work, C<informational> events that send interim responses such as 103'
                    . ' (Early Hints).',
            },
            {
                name  => 'reload',
                short => 'r',
                type  => 'flag',
                about =>
                    'For development: load the application again when files change, see L<pagi-server/RELOADING>.'
                    . ' Makes C<development> the default of C<--env>.',
            },
            {
                name  => 'reload_dir',
                type  => 'string',
                many  => 1,
                arg   => 'DIRECTORY',
                shown => q{the application's, lib, and those of -I},
                about => 'With C<--reload>: watch the files below this directory.',
            },
            {
                name  => 'future_xs',
                type  => 'flag',
                about => 'Insist on L<Future::XS>: fail if it is not installed.',
            },
        )
    ],
    [
        'Encryption' => (
            {
                name  => 'ssl_cert',
                type  => 'string',
                arg   => 'FILE',
                about =>
                    'Speak TLS with this certificate (PEM). Files are loaded again when they change, and on'
                    . ' HUP.',
            },
            {
                name  => 'ssl_key',
                type  => 'string',
                arg   => 'FILE',
                about => 'The private key of C<--ssl-cert> (PEM).',
            },
            {
                name  => 'ssl_cert_dir',
                type  => 'string',
                arg   => 'DIRECTORY',
                about => 'Speak TLS with the certificates of this directory, chosen by the name that a'
                    . ' client asks for, see L<PAGI::Server/Certificates of a directory>. Certificates may'
                    . ' be added, changed and removed while the server runs.',
            },
            {
                name  => 'ssl_chain',
                type  => 'string',
                arg   => 'FILE',
                about => "Intermediate certificates that are not in the certificate's file.",
            },
            {
                name  => 'ssl_key_password_file',
                type  => 'string',
                arg   => 'FILE',
                about => 'The first line opens an encrypted key.',
            },
            {
                name  => 'ssl_sni',
                type  => 'string',
                many  => 1,
                arg   => 'CERT,KEY[,CHAIN]',
                about => 'A further certificate, for clients that ask for one of its names.',
            },
            {
                name  => 'ssl_ca',
                type  => 'string',
                arg   => 'FILE',
                about => 'Authorities that client certificates are verified against.',
            },
            {
                name  => 'ssl_verify_client',
                type  => 'flag',
                about => 'Clients have to show a certificate that C<--ssl-ca> verifies.',
            },
            {
                name  => 'ssl_request_client',
                type  => 'flag',
                about => 'Clients are asked for a certificate and may come without.',
            },
            {
                name  => 'ssl_min_version',
                type  => 'choice',
                of    => [qw(TLSv1_2 TLSv1_3)],
                arg   => 'VERSION',
                shown => 'TLSv1_2',
                about => 'The oldest version that is spoken.',
            },
            {
                name  => 'ssl_ciphers',
                type  => 'string',
                arg   => 'LIST',
                about => "Ciphers of TLS 1.2, in OpenSSL's notation.",
            },
            {
                name  => 'ssl_ciphersuites',
                type  => 'string',
                arg   => 'LIST',
                about => 'Ciphers of TLS 1.3.',
            },
            {
                name  => 'ssl_groups',
                type  => 'string',
                arg   => 'LIST',
                shown => 'X25519MLKEM768 where OpenSSL has it (3.5), X25519, P-256, P-384',
                about => 'Groups of the key exchange, in order of preference.',
            },
            {
                name  => 'ssl_session_timeout',
                type  => 'string',
                arg   => 'SECONDS',
                shown => '7200',
                about => 'How long a session ticket lets a client shorten its handshakes.',
            },
            {
                name  => 'ssl_ticket_keys',
                type  => 'string',
                arg   => 'FILE',
                shown => 'made up',
                about => 'A file of 80 random bytes that encrypt session tickets: servers that share it'
                    . ' accept one another\'s tickets.',
            },
        )
    ],
    [
        'Logs' => (
            {
                name  => 'error_log',
                type  => 'string',
                arg   => 'FILE',
                about => 'The file for messages of the server and warnings of the application, in place of'
                    . ' standard error, once the server starts. It is opened anew on USR1. A server in the'
                    . ' background has no other place for messages.',
            },
        )
    ],
    [
        'Processes' => (
            {
                name  => 'daemonize',
                short => 'D',
                type  => 'flag',
                about =>
                    'Go on in the background once the server listens. Relative paths keep their meaning.',
            },
            {
                name  => 'pid',
                type  => 'string',
                arg   => 'FILE',
                about => 'Keep the process id in this file. The file is locked, so that a second start'
                    . ' fails, and it is removed at the end.',
            },
            {
                name  => 'user',
                type  => 'string',
                arg   => 'USER',
                about => 'Become this user after the addresses are bound and the log is opened;'
                    . ' supplementary groups are dropped.',
            },
            {
                name  => 'group',
                type  => 'string',
                arg   => 'GROUP',
                shown => q{the user's},
                about => 'Become a member of this group at the same time.',
            },
            {
                name  => 'no_new_privs',
                type  => 'flag',
                about => 'The server, and the programs that it starts, cannot get more rights than the'
                    . ' server has now, by a program with the set-user-ID bit for instance'
                    . ' (C<PR_SET_NO_NEW_PRIVS>). C<sendmail> needs such a program on many systems. Linux'
                    . ' only.',
            },
            {
                name  => 'umask',
                type  => 'mode',
                arg   => 'MODE',
                shown => q{the shell's},
                about => 'Permissions that new files of the server and of the application do not get:'
                    . ' C<0027>.',
            },
            {
                name  => 'chdir',
                type  => 'string',
                arg   => 'DIRECTORY',
                about => 'Change to this directory first. Relative paths of all other options, and of the'
                    . ' application, begin there; only the path of C<--config> begins where the command'
                    . ' was started.',
            },
        )
    ],
    [
        'Other' => (
            {
                name  => 'config',
                short => 'c',
                type  => 'string',
                arg   => 'FILE',
                about => 'Read options from a file, see L<pagi-server/CONFIGURATION FILE>. The command line'
                    . ' wins.',
            },
            {
                name  => 'check',
                type  => 'flag',
                about => 'Load the application and the configuration, print what would run and where it'
                    . ' would listen, and exit. The status is 1, with a line for each reason, if the event'
                    . ' loop cannot be loaded, a host cannot be resolved, an inherited socket is missing,'
                    . ' or the access log, the error log, the pid file or a Unix socket could not be made.'
                    . ' The check binds and makes nothing, so it works while the server runs. A warning'
                    . ' names an application that looks as if it was written for another kind of server'
                    . ' (PSGI, Mojolicious).',
            },
            {
                name  => 'completion',
                type  => 'choice',
                of    => [qw(bash zsh)],
                about =>
                    'Print a completion script for that shell: C<eval "$(pagi-server --completion bash)">.',
            },
            {
                name  => 'version',
                short => 'v',
                type  => 'flag',
                about => 'Print versions.',
            },
            {
                name  => 'help',
                short => 'h',
                type  => 'flag',
                about => 'Print this text.',
            },
        )
    ],
);

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
