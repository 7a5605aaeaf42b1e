package TestHTTP2;

# A small HTTP/2 client on TestClient (RFC 9113): it sends exactly the frames that a test gives it, right or
# wrong, and collects what comes by stream. It acknowledges settings and pings, and gives credit for content,
# unless a test wants that otherwise.

use strict;
use warnings;

use Errno    qw(EWOULDBLOCK);
use Exporter qw(import);
use Socket   qw(MSG_DONTWAIT);
use TestClient;
use TestHPACK   qw(block);
use TestTools   qw(patience);
use Time::HiRes qw(time);

our @EXPORT_OK = qw(frame settings request_fields);

use constant {
    DATA            => 0,
    HEADERS         => 1,
    PRIORITY        => 2,
    RST_STREAM      => 3,
    SETTINGS        => 4,
    PUSH_PROMISE    => 5,
    PING            => 6,
    GOAWAY          => 7,
    WINDOW_UPDATE   => 8,
    CONTINUATION    => 9,
    PRIORITY_UPDATE => 16,

    END_STREAM  => 1,
    ACK         => 1,
    END_HEADERS => 4,
    PADDED      => 8,
    PRIORITIZED => 32,

    PREFACE => "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
};

my @CODES = qw(
    NO_ERROR PROTOCOL_ERROR INTERNAL_ERROR FLOW_CONTROL_ERROR SETTINGS_TIMEOUT STREAM_CLOSED
    FRAME_SIZE_ERROR REFUSED_STREAM CANCEL COMPRESSION_ERROR CONNECT_ERROR ENHANCE_YOUR_CALM
    INADEQUATE_SECURITY HTTP_1_1_REQUIRED
);
my @SETTINGS = qw(
    - HEADER_TABLE_SIZE ENABLE_PUSH MAX_CONCURRENT_STREAMS INITIAL_WINDOW_SIZE MAX_FRAME_SIZE
    MAX_HEADER_LIST_SIZE - ENABLE_CONNECT_PROTOCOL NO_RFC7540_PRIORITIES
);

# ---- Sending --------------------------------------------------------------------------------------

# The bytes of a frame; `length` is a wrong length of the payload.
sub frame {
    my ($type, $flags, $stream, $payload, %options) = @_;
    $payload = '' if !defined $payload;
    my $length = defined $options{length} ? $options{length} : length $payload;
    return pack('CnCCN', $length >> 16, $length & 0xffff, $type, $flags, $stream) . $payload;
}

# The bytes of SETTINGS: pairs of a number and a value.
sub settings {
    my (@pairs) = @_;
    my $payload = '';
    while (my ($number, $value) = splice @pairs, 0, 2) { $payload .= pack 'nN', $number, $value }
    return frame(SETTINGS, 0, 0, $payload);
}

# The fields of a request. Options: method (GET), scheme (http), authority (localhost), and `fields`, pairs.
sub request_fields {
    my ($path, %options) = @_;
    return (
        ':method'    => $options{method} || 'GET',
        ':scheme'    => $options{scheme} || 'http',
        ':path'      => $path,
        ':authority' => $options{authority} || 'localhost',
        @{ $options{fields} || [] },
    );
}

# Connects, and sends preface and settings. Options are those of TestClient, and `settings`, pairs; `window`:
# additional credit for the connection; `manual`: nothing is acknowledged or credited; `silent`: nothing is
# sent. With `tls` ALPN offers h2, unless `tls` says otherwise.
sub new {
    my ($class, $port, %options) = @_;
    my %own  = map { $_ => delete $options{$_} } qw(settings window manual silent);
    my $tls  = $options{tls} && { SSL_alpn_protocols => ['h2'], %{ $options{tls} } };
    my $self = bless {
        client  => TestClient->new($port, %options, $tls ? (tls => $tls) : ()),
        decoder => TestHPACK->new,
        manual  => $own{manual},
        next_id => 1,
        streams => {},
    }, $class;
    return $self if $own{silent};
    my $hello = PREFACE . settings(@{ $own{settings} || [] });
    $hello .= frame(WINDOW_UPDATE, 0, 0, pack 'N', $own{window}) if $own{window};
    return $self->send($hello);
}

# Sends bytes. Bytes that a closed peer does not take are dropped.
sub send {
    my ($self, @bytes) = @_;
    $self->{client}->send(join '', @bytes);
    return $self;
}

sub send_frame {
    my ($self, @frame) = @_;
    return $self->send(frame(@frame));
}

sub next_id {
    my ($self) = @_;
    my $id = $self->{next_id};
    $self->{next_id} += 2;
    return $id;
}

# Sends a request; returns its stream. Options: those of request_fields; `body`: content; `open`: further
# content will be sent; `trailers`, pairs.
sub request {
    my ($self, $path, %options) = @_;
    my $id   = $self->next_id;
    my $body = $options{body};
    my $ends = !defined $body && !$options{open} && !$options{trailers};
    $self->send_frame(HEADERS, END_HEADERS | ($ends ? END_STREAM : 0),
        $id, block(request_fields($path, %options)));
    my $data_ends = $options{open} || $options{trailers} ? 0 : END_STREAM;
    $self->send_frame(DATA,    $data_ends,               $id, $body) if defined $body;
    $self->send_frame(HEADERS, END_HEADERS | END_STREAM, $id, block(@{ $options{trailers} }))
        if $options{trailers};
    return $id;
}

# Sends content of a stream; `last` ends the stream.
sub data {
    my ($self, $id, $bytes, $last) = @_;
    return $self->send_frame(DATA, $last ? END_STREAM : 0, $id, $bytes);
}

sub reset {
    my ($self, $id, $code) = @_;
    return $self->send_frame(RST_STREAM, 0, $id, pack 'N', $code || 8);
}

sub credit {
    my ($self, $id, $bytes) = @_;
    return $self->send_frame(WINDOW_UPDATE, 0, $id, pack 'N', $bytes);
}

# ---- Receiving ------------------------------------------------------------------------------------

# The next frame as a hash: type, flags, stream, payload. Nothing at the end of the connection or when the
# time is up. The frame is added to the stream's state.
sub next_frame {
    my ($self) = @_;
    my $client = $self->{client};
    my $head   = $client->_bytes(9) // return;
    my ($high, $low, $type, $flags, $stream) = unpack 'CnCCN', $head;
    my $payload = $client->_bytes($high << 16 | $low) // return;
    my $frame   = { type => $type, flags => $flags, stream => $stream & 0x7fffffff, payload => $payload };
    $self->_note($frame);
    return $frame;
}

sub _note {
    my ($self, $frame) = @_;
    my ($type, $flags, $id, $payload) = @{$frame}{qw(type flags stream payload)};
    if ($type == SETTINGS) {
        return $self->{acknowledged} = 1 if $flags & ACK;
        my @pairs = unpack '(nN)*', $payload;
        while (my ($number, $value) = splice @pairs, 0, 2) {
            $self->{settings}{ $SETTINGS[$number] || $number } = $value;
        }
        return $self->{manual} ? 0 : $self->send_frame(SETTINGS, ACK, 0);
    }
    if ($type == PING) {
        return push @{ $self->{pongs} }, $payload if $flags & ACK;
        return $self->{manual} ? 0 : $self->send_frame(PING, ACK, 0, $payload);
    }
    if ($type == GOAWAY) {
        my ($last, $code, $text) = unpack 'NNa*', $payload;
        return push @{ $self->{goaways} }, { last => $last, code => _code($code), text => $text };
    }
    my $owner = $id ? $self->{streams}{$id} ||= {} : $self;
    if    ($type == WINDOW_UPDATE) { $owner->{window} += unpack 'N', $payload }
    elsif ($type == RST_STREAM)    { $owner->{reset} = _code(unpack 'N', $payload) }
    elsif ($type == DATA)          { $self->_take_content($id, $flags, $payload) }
    elsif ($type == HEADERS || $type == CONTINUATION) {
        $self->_take_block($id, $flags, $payload, $type == CONTINUATION);
    }
    return;
}

sub _code {
    my ($number) = @_;
    return $CODES[$number] || $number;
}

sub _take_content {
    my ($self, $id, $flags, $payload) = @_;
    my $stream = $self->{streams}{$id} ||= {};
    if (length $payload && !$self->{manual}) {
        $self->credit(0,   length $payload);
        $self->credit($id, length $payload) if !($flags & END_STREAM);
    }
    $stream->{body} .= $payload;
    $stream->{frames}++;
    $stream->{ended} = 1 if $flags & END_STREAM;
    return;
}

sub _take_block {
    my ($self, $id, $flags, $payload, $goes_on) = @_;
    $self->{block} = $goes_on ? $self->{block} . $payload : $payload;
    $self->{ends}  = $flags & END_STREAM if !$goes_on;
    return if !($flags & END_HEADERS);
    my @fields = $self->{decoder}->decode($self->{block});
    my $stream = $self->{streams}{$id} ||= {};
    my %header;
    for my $field (@fields) {
        my ($name, $value) = @$field;
        $header{$name} = exists $header{$name} ? "$header{$name}, $value" : $value;
    }
    if (defined $stream->{status}) {
        $stream->{trailers} = \%header;
    }
    elsif ($header{':status'} =~ /\A1/) {
        push @{ $stream->{interim} }, \%header;
    }
    else {
        @{$stream}{qw(status header fields)} = ($header{':status'}, \%header, \@fields);
    }
    $stream->{ended} = 1 if $self->{ends};
    return;
}

# Reads until a condition holds; false: the connection ended, or the time was up, before.
sub until {
    my ($self, $condition) = @_;
    my $end = time + $self->{client}{timeout};
    while (1) {
        my $answer = $condition->();
        return $answer if $answer;
        return         if time > $end;
        $self->next_frame or return $condition->();
    }
}

# Sends bytes and reads frames meanwhile, so that neither side waits for the other for ever. False: the server
# has ended the connection, or has said that it will.
sub pour {
    my ($self, $bytes) = @_;
    my ($client, $at, $end) = ($self->{client}, 0, time + patience(30));
    my $socket = $client->socket;
    local $SIG{PIPE} = 'IGNORE';
    while ($at < length $bytes) {
        my ($reads, $writes) = ('', '');
        vec($_, fileno $socket, 1) = 1 for $reads, $writes;
        my $found = select $reads, $writes, undef, $end - time
            or die "the server takes nothing any more\n";
        next if $found < 0;    # the alarm of TestTools interrupts, too
        if (vec $reads, fileno $socket, 1) {
            $client->_fill($end);
            $self->_take_complete;
            return 0 if $client->{ended} || $self->{goaways};
        }
        next if !vec $writes, fileno $socket, 1;
        my $sent = CORE::send $socket, substr($bytes, $at, 65_536), MSG_DONTWAIT;
        $at += $sent || 0;
        return 0 if !defined $sent && $! != EWOULDBLOCK;
    }
    return 1;
}

# Reads the frames that are complete in the client's buffer.
sub _take_complete {
    my ($self) = @_;
    my $client = $self->{client};
    while (length $client->{buffer} >= 9) {
        my ($high, $low) = unpack 'Cn', $client->{buffer};
        last if length $client->{buffer} < 9 + ($high << 16 | $low);
        $self->next_frame;
    }
    return;
}

# A stream's state so far: a hash with status, header (by name), fields, body, trailers, interim, reset (a
# code's name), window (credit from the server), ended.
sub stream {
    my ($self, $id) = @_;
    return $self->{streams}{$id} ||= {};
}

# A stream's state when its response is complete, or the stream was reset; undef: neither happens in time.
sub response {
    my ($self, $id) = @_;
    my $stream = $self->stream($id);
    $self->until(sub { $stream->{ended} || defined $stream->{reset} }) or return;
    $stream->{body} = '' if !defined $stream->{body};
    return $stream;
}

sub get {
    my ($self, $path, %options) = @_;
    return $self->response($self->request($path, %options));
}

# The last GOAWAY as a hash, once the server has ended the connection; undef if it does not. `code` is
# 'closed' if there was none.
sub end {
    my ($self) = @_;
    my $end = time + patience(30);
    while (time < $end) { $self->next_frame or last }
    return if !$self->{client}{ended};
    return { %{ $self->{goaways} ? $self->{goaways}[-1] : { code => 'closed' } } };
}

# Whether the server has read everything that was sent, and goes on: it answers a ping.
sub is_alive {
    my ($self) = @_;
    my $mark   = sprintf '%08d', ++$self->{pings};
    $self->send_frame(PING, 0, 0, $mark);
    $self->until(sub {
        $self->{goaways} || grep { $_ eq $mark } @{ $self->{pongs} || [] };
    }) or return 0;
    return $self->{goaways} ? 0 : 1;
}

sub close {
    my ($self) = @_;
    $self->{client}->close;
    return;
}

1;
