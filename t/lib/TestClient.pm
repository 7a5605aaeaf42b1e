package TestClient;

# A small HTTP/1.1 client that sends exactly the bytes that a test gives it. In place of a port there may be
# the path of a Unix socket.

use strict;
use warnings;

use Errno            qw(ECONNRESET EINTR EWOULDBLOCK);
use Exporter         qw(import);
use IO::Socket::IP   ();
use IO::Socket::UNIX ();
use POSIX            ();
use Socket           qw(IPPROTO_TCP SOCK_STREAM SOL_SOCKET SO_LINGER SO_RCVBUF SO_RCVTIMEO SO_SNDTIMEO
    TCP_CORK TCP_NODELAY);
use TestTools   qw(can_read patience);
use Time::HiRes qw(time);

our @EXPORT_OK = qw(get post exchange);

# Connects. `first`: bytes before all others, TLS included, such as a PROXY header.
sub new {
    my ($class, $port, %options) = @_;
    my $socket = $port =~ m{/} ? _connected_to_path($port) : _connected_to_port($port, %options);
    syswrite $socket, $options{first} if defined $options{first};
    setsockopt $socket, SOL_SOCKET, SO_RCVBUF, pack('i', $options{receive_buffer})
        if $options{receive_buffer};
    _start_tls($socket, $options{tls}) if $options{tls};
    my $timeout = $options{timeout} || patience(30);
    # A readable socket is not enough: over TLS it may have half a record.
    setsockopt $socket, SOL_SOCKET, $_, pack('l!l!', 1 + int $timeout, 0) for SO_RCVTIMEO, SO_SNDTIMEO;
    my $self = bless { socket => $socket, buffer => '', timeout => $timeout }, $class;
    $self->{tls} = $options{tls} ? 1 : 0;
    return $self;
}

sub _connected_to_port {
    my ($port, %options) = @_;
    my $socket = IO::Socket::IP->new(
        PeerHost => $options{host} || '127.0.0.1',
        PeerPort => $port,
        Timeout  => patience(30),
        $options{local} ? (LocalHost => $options{local}) : (),
    ) or die "connect to port $port: $@";
    $socket->blocking(1);
    setsockopt $socket, IPPROTO_TCP, TCP_NODELAY, pack('i', 1);    # each send leaves at once
    return $socket;
}

sub _connected_to_path {
    my ($path) = @_;
    return IO::Socket::UNIX->new(Type => SOCK_STREAM, Peer => $path) || die "connect to $path: $!";
}

# Begins TLS. `tls`: options of IO::Socket::SSL. By default the certificate is not verified, and the system's
# authorities are not read, which would take long.
sub _start_tls {
    my ($socket, $tls) = @_;
    require IO::Socket::SSL;
    IO::Socket::SSL->start_SSL($socket, SSL_verify_mode => 0, SSL_ca => [], Timeout => patience(30), %$tls)
        or die "TLS: $IO::Socket::SSL::SSL_ERROR\n";
    return;
}

# The IO::Socket::SSL, or the plain socket.
sub socket { return $_[0]{socket} }

# Sends all bytes. Bytes that a closed peer does not take are dropped; dies if a peer takes none in time.
sub send {
    my ($self, $bytes) = @_;
    local $SIG{PIPE} = 'IGNORE';
    my $at = 0;
    while ($at < length $bytes) {
        my $written = syswrite $self->{socket}, $bytes, length($bytes) - $at, $at;
        next                                          if !defined $written && $! == EINTR;
        die "the peer takes no more than $at bytes\n" if !defined $written && $! == EWOULDBLOCK;
        return $self                                  if !defined $written;
        $at += $written;
    }
    return $self;
}

# Reads bytes into the buffer. False at the end of the stream, on an error and when the time is up.
sub _fill {
    my ($self, $end) = @_;
    my $left = $end - time;
    return 0 if $left <= 0;
    my $pending = $self->{tls} && $self->{socket}->pending;
    return 0 if !$pending && !can_read($self->{socket}, $left);
    my $read = sysread $self->{socket}, $self->{buffer}, 65_536, length $self->{buffer};
    return $self->_fill($end) if !defined $read && ($! == EWOULDBLOCK || $! == EINTR);
    $self->{was_reset} = 1 if !defined $read && $! == ECONNRESET;
    $self->{ended}     = 1 if !$read;
    return $read ? 1 : 0;
}

sub _until {
    my ($self, $pattern) = @_;
    my $end = time + $self->{timeout};
    while (1) {
        return substr $self->{buffer}, 0, $+[0], '' if $self->{buffer} =~ $pattern;
        $self->_fill($end) or return;
    }
}

sub _bytes {
    my ($self, $count) = @_;
    my $end = time + $self->{timeout};
    while (length $self->{buffer} < $count) { $self->_fill($end) or return }
    return substr $self->{buffer}, 0, $count, '';
}

# All bytes until the peer closes; undef if it does not.
sub rest {
    my ($self) = @_;
    my $end = time + $self->{timeout};
    1 while $self->_fill($end);
    return $self->{ended} ? substr $self->{buffer}, 0, length $self->{buffer}, '' : undef;
}

# Whether the connection ended with a reset: then bytes may have been lost.
sub was_reset { return $_[0]{was_reset} }

# All bytes that arrive within some seconds.
sub some {
    my ($self, $seconds) = @_;
    $self->_fill(time + $seconds);
    return substr $self->{buffer}, 0, length $self->{buffer}, '';
}

sub _fields {
    my ($block) = @_;
    my (@fields, %by_name);
    for my $line (split /\r\n/, $block) {
        my ($name, $value) = $line =~ /\A([^:]+):[ \t]*(.*?)[ \t]*\z/ or next;
        push @fields, [ lc $name, $value ];
        $by_name{ lc $name } = exists $by_name{ lc $name } ? "$by_name{lc $name}, $value" : $value;
    }
    return (\@fields, \%by_name);
}

sub _chunked {
    my ($self, $response) = @_;
    my $body = '';
    while (1) {
        my $line = $self->_until(qr/\r\n/) // return;
        my ($size) = $line =~ /\A([0-9A-Fa-f]+)/ or return;
        last if hex $size == 0;
        my $chunk = $self->_bytes(hex $size) // return;
        push @{ $response->{chunks} }, $chunk;
        $body .= $chunk;
        $self->_bytes(2);
    }
    my $trailers = '';
    while (1) {
        my $line = $self->_until(qr/\r\n/) // return;
        last if $line eq "\r\n";
        $trailers .= $line;
    }
    $response->{trailers} = (_fields($trailers))[1];
    return $body;
}

# The next response as a hash: status, reason, fields (list), header (hash), body, chunks, trailers, and
# `complete`, false if the connection ended, or the time was up, within the response. undef: no response came.
sub response {
    my ($self, %options) = @_;
    my $head = $self->_until(qr/\r\n\r\n/) // return;
    my ($version, $status, $reason) = $head =~ m{\AHTTP/(1\.[01]) (\d{3}) ?([^\r]*)\r\n}
        or return { head => $head };
    my ($fields, $header) = _fields($head =~ s/\A[^\n]*\n//r);
    my $response = {
        version => $version,
        status  => $status + 0,
        reason  => $reason,
        head    => $head,
        fields  => $fields,
        header  => $header,
    };
    my $body =
          $options{head} || $status < 200 || $status == 204 || $status == 304 ? ''
        : ($header->{'transfer-encoding'} || '') eq 'chunked'                 ? $self->_chunked($response)
        : defined $header->{'content-length'} ? $self->_bytes($header->{'content-length'})
        :                                       $self->rest;
    $response->{complete} = defined $body ? 1     : 0;
    $response->{body}     = defined $body ? $body : substr $self->{buffer}, 0, length $self->{buffer}, '';
    return $response;
}

# Sends bytes over TLS, and after them a record that the server cannot decrypt, in one segment.
sub send_broken {
    my ($self, $bytes) = @_;
    my $socket = $self->{socket};
    setsockopt $socket, IPPROTO_TCP, TCP_CORK, pack('i', 1);
    $self->send($bytes);
    POSIX::write(fileno $socket, "\x17\x03\x03\x00\x20" . 'n' x 32, 5 + 32);
    setsockopt $socket, IPPROTO_TCP, TCP_CORK, pack('i', 0);
    return $self;
}

# Ends this side of the connection; over TLS with close_notify.
sub half_close {
    my ($self) = @_;
    if ($self->{tls}) {
        Net::SSLeay::shutdown($self->{socket}->_get_ssl_object);
        return $self;
    }
    shutdown $self->{socket}, 1;
    return $self;
}

sub close {
    my ($self) = @_;
    CORE::close($self->{socket});
    return;
}

# Closes the connection with a reset.
sub reset {
    my ($self) = @_;
    setsockopt $self->{socket}, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0);
    CORE::close($self->{socket});
    return;
}

# ---- Functions for one request on a connection of its own ----------------------------------------

sub exchange {
    my ($port, $bytes, %options) = @_;
    return TestClient->new($port)->send($bytes)->response(%options);
}

sub get {
    my ($port, $target, @lines) = @_;
    return exchange($port, join("\r\n", "GET $target HTTP/1.1", "Host: localhost:$port", @lines, '', ''));
}

sub post {
    my ($port, $target, $body, @lines) = @_;
    my $length = 'Content-Length: ' . length $body;
    return exchange($port,
        join("\r\n", "POST $target HTTP/1.1", "Host: localhost:$port", $length, @lines, '', $body));
}

1;
