package PAGI::Server::Banner;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future;
use Peregrine;
use POSIX ();

use PAGI::Server::AccessLog;

use constant CONNECTIONS_FEW => 100;

# Facts: title (the server's name in the line about each listener), loop, options, listeners, connections_max,
# memory_max, reserved (descriptors), shows_errors, is_async.
sub tell {
    my ($class, $log, %facts) = @_;
    my $details = join ', ', _details(%facts);
    for my $listener (@{ $facts{listeners} }) {
        $log->plain(info => "$facts{title} listening on " . $class->place($listener) . " ($details)");
    }
    _check_descriptors($log, @facts{qw(options reserved)});
    $log->warn('the access log goes to a terminal, which is slow: under load it costs time, and lines'
            . ' (--access-log FILE, --no-access-log)')
        if PAGI::Server::AccessLog::is_terminal($facts{options}{access_log});
    _check_audience($log, $facts{listeners}) if $facts{shows_errors};
    _check_async($log)                       if $facts{is_async};
    return;
}

# Logs a fault of Future::AsyncAwait before 0.65: it frees the @_ of a suspended async sub although the caller
# may still use it.
sub _check_async {
    my ($log) = @_;
    my $version = $INC{'Future/AsyncAwait.pm'} ? Future::AsyncAwait->VERSION : undef;
    $log->info("Future::AsyncAwait $version breaks the heap where an async sub that waits was called as"
            . ' &$app, without a list; 0.65 does not (PAGI::Middleware, CALLING THE APPLICATION)')
        if defined $version && $version < 0.65;
    return;
}

sub is_public {
    my (undef, $listener) = @_;
    return $listener->{type} eq 'tcp' && $listener->{host} !~ /\A(?:127\.[0-9.]+|::1|localhost)\z/;
}

# Warns if stack traces are shown to clients of other machines.
sub _check_audience {
    my ($log, $listeners) = @_;
    my @public = grep { is_public(undef, $_) } @$listeners;
    $log->warn('in development whoever can connect to '
            . join(', ', map { $_->url('tcp') } @public)
            . ' is shown exceptions and stack traces (-E production shows none)')
        if @public;
    return;
}

sub place {
    my ($class, $listener) = @_;
    my $url = $listener->url($listener->{tls} ? 'https' : 'http');
    $url .= ' with TLS'              if $listener->{tls} && $listener->{type} eq 'unix';
    $url .= ' behind PROXY protocol' if $listener->{place}{proxies};
    return $url;
}

sub _details {
    my (%facts) = @_;
    my $options = $facts{options};
    my $loop    = ref $facts{loop};
    $loop =~ s/\AIO::Async::Loop:://;
    return (
        $facts{workers} ? "workers: $facts{workers}" : (),
        "loop: $loop",
        "engine: $options->{engine}",
        "max_conn: $facts{connections_max}",
        'memory_max: ' . memory($facts{memory_max}),
        'http2: ' . _http2_state($options, $facts{listeners}),
        'tls: ' . _tls_state($options, $facts{listeners}),
        'ktls: ' . _ktls_state($options, $facts{listeners}),
        'future_xs: ' . (Future->isa('Future::XS') || $INC{'Future/XS.pm'} ? 'on'       : 'off'),
        'sendfile: ' .  ($options->{disable_sendfile}                      ? 'disabled' : 'on'),
        'access_log: ' . PAGI::Server::AccessLog::describe($options->{access_log}),
        versions(),
    );
}

# Text for a limit in bytes.
sub memory {
    my ($bytes) = @_;
    return $bytes ? sprintf '%.0f MB', $bytes / 1e6 : 'none';
}

# Versions for the banner; that of the TLS library without its date.
sub versions {
    my ($library) = Peregrine::tls_library() =~ /\A(\S+ \S+)/;
    return (
        "PAGI::Server $VERSION",
        'Peregrine ' . Peregrine::engine_version(),
        $library // 'no OpenSSL',
        sprintf('Perl %vd', $^V),
    );
}

# The state of HTTP/2: over TLS unless an option says otherwise, without TLS only if an option asks for it.
sub _http2_state {
    my ($options, $listeners) = @_;
    return $options->{http2}                ? 'on'       : 'off' if defined $options->{http2};
    return (grep { $_->{tls} } @$listeners) ? 'over TLS' : 'off';
}

sub _tls_state {
    my ($options, $listeners) = @_;
    return 'on' if grep { $_->{tls} } @$listeners;
    return $options->{ssl} ? 'disabled' : Peregrine::has_tls() ? 'off' : 'not built in';
}

# Whether the kernel encrypts what is sent.
sub _ktls_state {
    my ($options, $listeners) = @_;
    return 'off' if !$options->{ktls} || !grep { $_->{tls} } @$listeners;
    return Peregrine::has_kernel_tls() ? 'on' : 'not offered';
}

# Warns of a low limit on open files. At that limit connections wait, and no message says why.
sub _check_descriptors {
    my ($log, $options, $reserved) = @_;
    my $wanted = $options->{max_connections};
    my $files  = POSIX::sysconf(POSIX::_SC_OPEN_MAX()) // return;
    my $room   = $files > $reserved ? $files - $reserved : 1;
    my $limit  = "the limit on open files (ulimit -n: $files)";
    $log->warn("max_connections is $wanted, but $limit leaves room for $room") if $wanted > $room;
    $log->warn("$limit leaves room for $room connections") if !$wanted && $room < CONNECTIONS_FEW;
    return;
}

1;

__END__

=encoding utf-8

=head1 NAME

PAGI::Server::Banner - what a server says of itself when it starts

=head1 DESCRIPTION

Part of L<PAGI::Server>: a line for each listener with what is on and off, and a warning if the limit on open
files is short of what the server is to hold, or if others than this machine can read what is shown to whoever
writes the application.

=head1 METHODS

=head2 tell

    PAGI::Server::Banner->tell($log, loop => $loop, options => \%options, listeners => \@listeners,
        connections_max => $count, memory_max => $bytes, reserved => $descriptors,
        shows_errors => $is_development, is_async => 1);

C<$log> is a L<PAGI::Server::Log>, the listeners are L<Peregrine::Listener>s.

=head2 memory

    my $text = PAGI::Server::Banner::memory(97_500_000);    # '98 MB'

A limit of memory in words; 0 is C<none>.

=head2 versions

    my @versions = PAGI::Server::Banner::versions();
    # 'PAGI::Server 0.003000', 'Peregrine 0.3.0', 'OpenSSL 3.0.19', 'Perl 5.36.0'

Of the server, its engine, the TLS library that is loaded, and Perl.

=head2 is_public

    warn 'take care' if PAGI::Server::Banner->is_public($listener);

Whether other machines may connect there.

=head2 place

    print PAGI::Server::Banner->place($listener);    # https://127.0.0.1:5000/ behind PROXY protocol

A listener in words.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
