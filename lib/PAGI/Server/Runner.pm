package PAGI::Server::Runner;

use strict;
use warnings;

use Errno        qw(EACCES EADDRINUSE);
use Getopt::Long ();
use Pod::Usage   ();
use Scalar::Util qw(blessed);

use PAGI::Server;
use PAGI::Server::AppLoader;
use PAGI::Server::TLS;

# Exit statuses
use constant {
    OK      => 0,
    FAILED  => 1,
    MISUSED => 2,
    PROGRAM => 'pagi-server',
};

# Flags that are options of PAGI::Server with another spelling.
my %SERVER_FLAGS = (
    'host|o=s'                => 'host',
    'port|p=s'                => 'port',
    'loop|l=s'                => 'loop_type',
    'quiet|q'                 => 'quiet',
    'log-level=s'             => 'log_level',
    'ws-per-message-deflate!' => 'ws_per_message_deflate',
);

sub run {
    my ($class, @arguments) = @_;
    my $self   = bless { server => {}, ssl => {}, modules => [], libs => [] }, $class;
    my $status = eval { $self->_run(@arguments) };
    return $status if defined $status;
    my $error = $@;
    return $self->_misused($$error) if ref $error eq 'SCALAR';
    return $self->_failed($error);
}

sub _failed {
    my ($self, $error) = @_;
    $error =~ s/\s+\z//;
    print STDERR "$error\n";
    return FAILED;
}

sub _misused {
    my ($self, $problem) = @_;
    $problem =~ s/\s+\z//;
    print STDERR "${\PROGRAM}: $problem\nTry '${\PROGRAM} --help'.\n";
    return MISUSED;
}

# ---- Command line -------------------------------------------------------------------------------

# Dies with a reference to a message when the command line is wrong.
sub _parse {
    my ($self, @arguments) = @_;
    my @problems;
    my $parser = Getopt::Long::Parser->new(config => [qw(bundling no_auto_abbrev no_ignore_case permute)]);
    local $SIG{__WARN__} = sub { push @problems, $_[0] };
    my %flags = map { $_ => \$self->{server}{ $SERVER_FLAGS{$_} } } keys %SERVER_FLAGS;
    $parser->getoptionsfromarray(
        \@arguments,
        %flags, PAGI::Server::TLS::flags($self->{ssl}),
        'disable-tls'   => \$self->{server}{disable_tls},
        'app|a=s'       => \$self->{app},
        'e=s'           => \$self->{code},
        'M=s'           => $self->{modules},
        'lib|I=s'       => $self->{libs},
        'env|E=s'       => \$self->{env},
        'access-log=s'  => \$self->{access_log},
        'no-access-log' => \$self->{no_access_log},
        'version|v'     => \$self->{version},
        'help|h'        => \$self->{help},
    ) or die \_readable(@problems, 'wrong command line');
    $self->{server}{ssl} = eval { PAGI::Server::TLS::from_flags($self->{ssl}) };
    die \_readable($@) if $@;
    delete $self->{server}{$_} for grep { !defined $self->{server}{$_} } keys %{ $self->{server} };
    return @arguments;
}

sub _readable {
    my ($problem) = @_;
    $problem =~ s/\s+\z//;
    return "unknown option '" . (length $1 > 1 ? '--' : '-') . "$1'" if $problem =~ /\AUnknown option: (.+)\z/;
    $problem =~ s/\AOption (\S+)/'option ' . (length $1 > 1 ? '--' : '-') . $1/e;
    return lcfirst $problem;
}

sub _choose_app {
    my ($self, @words) = @_;
    if (!defined $self->{app} && !defined $self->{code} && @words && $words[0] !~ /=/) {
        $self->{app} = shift @words;
    }
    die \'both -e and --app are given' if defined $self->{app} && defined $self->{code};
    die \'no application: name a file or a module, or give code with -e'
        if !defined $self->{app} && !defined $self->{code};
    for my $word (@words) {
        die \"unexpected argument '$word'" if $word !~ /\A(\w+)=(.*)\z/s;
        push @{ $self->{arguments} }, $1 => $2;
    }
    return;
}

# ---- Running ------------------------------------------------------------------------------------

sub _run {
    my ($self, @arguments) = @_;
    my @words = $self->_parse(@arguments);
    return $self->_help    if $self->{help};
    return $self->_version if $self->{version};
    $self->_choose_app(@words);
    $ENV{PAGI_ENV} = $self->{env} if defined $self->{env};
    unshift @INC, @{ $self->{libs} };
    PAGI::Server::prefer_own_loop() if !defined $self->{server}{loop_type};
    my $app = PAGI::Server::AppLoader->load(
        map  { $_ => $self->{$_} }
        grep { defined $self->{$_} } qw(app code modules arguments)
    );
    my $server = $self->_server($app);
    return $self->_serve($server);
}

sub _server {
    my ($self, $app) = @_;
    my %options = (%{ $self->{server} }, app => $app);
    $options{access_log} = $self->_open_access_log if defined $self->{access_log} && !$self->{no_access_log};
    my $server = eval { PAGI::Server->new(%options) };
    return $server if $server;
    my $problem = $@;
    $problem =~ s/\APAGI::Server: //;
    $problem =~ s/ at \S+ line \d+\.?\s*\z//;
    die \$problem;
}

sub _open_access_log {
    my ($self) = @_;
    return \*STDOUT if $self->{access_log} eq '-';
    open my $handle, '>>', $self->{access_log} or die "Error: Cannot open access log $self->{access_log}: $!\n";
    $handle->autoflush(1);
    return $handle;
}

sub _serve {
    my ($self, $server) = @_;
    _load_future_io();
    return OK if eval { $server->run; 1 };
    my $error = $@;
    die 'Error: ' . _start_problem($server, $error) . "\n";
}

sub _start_problem {
    my ($server, $error) = @_;
    if (blessed $error && $error->isa('Future::Exception') && $error->category eq 'listen') {
        my ($errno, $host, $port) = $error->details;
        return "Port $port is already in use"            if $errno == EADDRINUSE;
        return "Permission denied to bind to port $port" if $errno == EACCES;
        return _line($error->message);
    }
    return _line("starting server: $error");
}

sub _line {
    my ($text) = @_;
    $text =~ s/\s+\z//;
    return $text;
}

# So that applications can use Future::IO without knowing which loop they run in.
sub _load_future_io {
    return eval { require Future::IO::Impl::IOAsync; 1 };
}

sub _version {
    print "${\PROGRAM} (PAGI 0.3, PAGI::Server ", PAGI::Server->VERSION, ", Perl $^V)\n";
    return OK;
}

sub _help {
    Pod::Usage::pod2usage(
        -input    => $0,
        -exitval  => 'NOEXIT',
        -verbose  => 99,
        -sections => [qw(NAME SYNOPSIS OPTIONS)],
        -output   => \*STDOUT,
    );
    return OK;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Runner - what the pagi-server command does

=head1 SYNOPSIS

    use PAGI::Server::Runner;
    exit PAGI::Server::Runner->run(@ARGV);

=head1 DESCRIPTION

Reads the command line, loads the application, runs a L<PAGI::Server> until it is stopped by a signal.

=head1 METHODS

=head2 run

    my $status = PAGI::Server::Runner->run('app.pl', '--port', 8080);

Returns the exit status: 0 after a stop by TERM or INT, 1 when the application cannot be loaded or the server
cannot start, 2 when the command line is wrong. Problems are written to standard error.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
