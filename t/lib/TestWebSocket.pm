package TestWebSocket;

# A small RFC 6455 client on TestClient: it sends exactly the frames that a test gives it, right or wrong.

use strict;
use warnings;

use Compress::Raw::Zlib qw(MAX_WBITS Z_SYNC_FLUSH);
use Digest::SHA         qw(sha1_base64);
use MIME::Base64        qw(encode_base64);
use TestClient;

use constant {
    CONTINUATION => 0,
    TEXT         => 1,
    BINARY       => 2,
    CLOSE        => 8,
    PING         => 9,
    PONG         => 10,
};

my $KEY  = encode_base64('peregrine tester', '');
my $MASK = "\x37\xfa\x21\x3d";
my $TAIL = "\x00\x00\xff\xff";

# The request of a handshake. `lines`: further fields.
sub handshake {
    my ($target, @lines) = @_;
    return join "\r\n", "GET $target HTTP/1.1", 'Host: localhost', 'Upgrade: websocket',
        'Connection: Upgrade',
        "Sec-WebSocket-Key: $KEY", 'Sec-WebSocket-Version: 13', @lines, '', '';
}

# Connects and sends the handshake, followed by the bytes `more`; does not wait for the answer.
sub start {
    my ($class, $port, $target, %options) = @_;
    my $lines  = delete $options{lines} || [];
    my $more   = delete $options{more};
    my $client = TestClient->new($port, %options);
    $client->send(handshake($target, @$lines) . (defined $more ? $more : ''));
    return bless { client => $client }, $class;
}

# Sends the handshake over an existing connection.
sub on {
    my ($class, $client, $target) = @_;
    $client->send(handshake($target));
    return bless { client => $client }, $class;
}

# Connects and completes the handshake; dies unless it is answered with 101.
sub open {
    my ($class, $port, $target, %options) = @_;
    my $self   = $class->start($port, $target, %options);
    my $answer = $self->answer or die "no answer to the handshake for $target\n";
    die "the handshake for $target was answered with $answer->{status}: $answer->{body}\n"
        if $answer->{status} != 101;
    return $self;
}

sub answer {
    my ($self) = @_;
    return $self->{answer} ||= $self->{client}->response;
}

# The value that Sec-WebSocket-Accept must have.
sub accept_key { return sha1_base64($KEY . '258EAFA5-E914-47DA-95CA-C5AB0DC85B11') . '=' }

# The bytes of a masked frame. Options: fin (1), rsv (0), masked (1), length (a wrong length of the payload).
sub frame {
    my ($opcode, $payload, %options) = @_;
    my $fin    = defined $options{fin}    ? $options{fin}    : 1;
    my $masked = defined $options{masked} ? $options{masked} : 1;
    my $length = defined $options{length} ? $options{length} : length $payload;
    my $first  = $opcode | ($fin ? 0x80 : 0) | (($options{rsv} || 0) << 4);
    my $bit    = $masked ? 0x80 : 0;
    my $head =
          $length < 126    ? pack('CC', $first, $bit | $length)
        : $length < 65_536 ? pack('CCn', $first, $bit | 126, $length)
        :                    pack('CCQ>', $first, $bit | 127, $length);
    return $head . $payload if !$masked;
    my $key = $MASK x (length($payload) / 4 + 1);
    return $head . $MASK . ($payload ^ substr $key, 0, length $payload);
}

sub send_frame {
    my ($self, @frame) = @_;
    $self->{client}->send(frame(@frame));
    return $self;
}

# Sends text, given as the bytes that are sent.
sub text   { my ($self, $bytes) = @_; return $self->send_frame(TEXT,   $bytes) }
sub binary { my ($self, $bytes) = @_; return $self->send_frame(BINARY, $bytes) }

sub close_frame {
    my ($self, $code, $reason) = @_;
    return $self->send_frame(CLOSE, defined $code ? pack('n', $code) . (defined $reason ? $reason : '') : '');
}

# The next frame as [opcode, payload, fin, rsv]; undef at the end of the stream or when the time is up.
sub next_frame {
    my ($self) = @_;
    my $client = $self->{client};
    my ($first, $length) = unpack 'CC', $client->_bytes(2) // return;
    die "a frame of the server is masked\n" if $length & 0x80;
    $length = unpack 'n',  $client->_bytes(2) // return if $length == 126;
    $length = unpack 'Q>', $client->_bytes(8) // return if $length == 127;
    my $payload = $client->_bytes($length);
    return defined $payload ? [ $first & 0x0f, $payload, $first >> 7, $first >> 4 & 7 ] : undef;
}

# The next frame after the answer to the handshake, as a word and its payload: "text hello", "close 1000 bye",
# "ping x"; 'end' if none comes.
sub next {
    my ($self) = @_;
    $self->answer;
    my $frame = $self->next_frame or return $self->{client}{ended} ? 'end' : 'nothing';
    my ($opcode, $payload) = @$frame;
    return "text $payload"   if $opcode == TEXT;
    return "binary $payload" if $opcode == BINARY;
    return "ping $payload"   if $opcode == PING;
    return "pong $payload"   if $opcode == PONG;
    return "frame $opcode"   if $opcode != CLOSE;
    return 'close'           if !length $payload;
    my ($code, $reason) = unpack 'n a*', $payload;
    return length $reason ? "close $code $reason" : "close $code";
}

# The payload of a compressed message without context takeover (RFC 7692); and the reverse.
sub deflated {
    my ($plain)   = @_;
    my ($deflate) = Compress::Raw::Zlib::Deflate->new(-WindowBits => -MAX_WBITS(), -AppendOutput => 1);
    my $bytes     = '';
    $deflate->deflate($plain, $bytes);
    $deflate->flush($bytes, Z_SYNC_FLUSH);
    return substr $bytes, 0, -length $TAIL;
}

sub inflated {
    my ($bytes)   = @_;
    my ($inflate) = Compress::Raw::Zlib::Inflate->new(-WindowBits => -MAX_WBITS());
    my $plain     = '';
    $inflate->inflate($bytes .= $TAIL, $plain);
    return $plain;
}

sub half_close { $_[0]{client}->half_close; return $_[0] }
sub close      { $_[0]{client}->close;      return }
sub reset      { $_[0]{client}->reset;      return }

1;
