# A connection of HTTP/1 or HTTP/2, over TCP or a Unix socket, with or without TLS and a PROXY header. Each
# kind has these methods, so that every row of script/pairs holds one and the same conversation.
package Pairs::Client;
use v5.36;
use List::Util qw(pairmap);
use TestClient;
use TestHPACK qw(block);
use TestHTTP2;
use TestStream;
use TestTools qw(patience);
use TestWebSocket;
use Time::HiRes qw(sleep);

use constant {
    FRAME   => 16_384,
    WINDOW  => 65_535,    # bytes that a stream and a connection may send before they get credit
    PAUSE_S => 0.1,       # so that the server reads two pieces separately
    PROXY   => "PROXY TCP4 192.0.2.7 192.0.2.8 4711 443\r\n",
};

# `place`: how to connect (Pairs::Launch). Options: `timeout`, `settings` (HTTP/2), `receive_buffer`.
sub new ($class, $place, %options) {
    my @known = qw(timeout receive_buffer settings manual);
    my %how   = map { $_ => $options{$_} } grep { defined $options{$_} } @known;
    $how{first} = PROXY if $place->{proxy};
    $how{tls}   = {}    if $place->{tls};
    my $self = bless { place => $place }, $class;
    if ($place->{h2}) { $self->{h2} = TestHTTP2->new($place->{at}, %how) }
    else {
        delete @how{qw(settings manual)};
        $self->{h1} = TestClient->new($place->{at}, %how);
    }
    return $self;
}

# The TestClient of this connection.
sub wire ($self) { return $self->{h1} // $self->{h2}{client} }

sub close ($self) { return $self->wire->close }

# Sends a request. `method`, `fields` (pairs), `body`, `pieces` (a body of an unknown length), `two` (a body
# of two pieces with a pause), `open`: with HTTP/2 the request does not end here, as if content followed.
sub send ($self, $path, %request) {
    my $method = $request{method}
        // (defined($request{body} // $request{pieces} // $request{two}) ? 'POST' : 'GET');
    return $self->_send_h2($path, $method, %request) if $self->{h2};
    my @fields = @{ $request{fields} // [] };
    my @lines  = ("$method $path HTTP/1.1", 'Host: localhost');
    while (my ($name, $value) = splice @fields, 0, 2) { push @lines, "$name: $value" }
    my $two = $request{two};
    push @lines, 'Content-Length: ' . length($request{body} // join '', @$two)
        if defined $request{body} || $two;
    push @lines, 'Transfer-Encoding: chunked' if $request{pieces};
    my $h1 = $self->{h1};
    $h1->send(join("\r\n", @lines, '', '') . ($request{body} // ($two ? $two->[0] : '')));

    if ($two) {
        sleep PAUSE_S;
        $h1->send($two->[1]);
    }
    return 0 if !$request{pieces};
    $h1->send(sprintf "%x\r\n%s\r\n", length, $_) for @{ $request{pieces} };
    $h1->send("0\r\n\r\n");
    return 0;
}

sub _send_h2 ($self, $path, $method, %request) {
    my $h2     = $self->{h2};
    my $body   = $request{body} // ($request{pieces} ? join('', @{ $request{pieces} }) : undef);
    my @fields = pairmap { (lc $a, $b) } @{ $request{fields} // [] };
    push @fields, 'content-length' => length $request{body} if defined $request{body};
    my $two = $request{two};
    my $id  = $h2->request(
        $path,
        method => $method,
        fields => \@fields,
        scheme => $self->{place}{tls} ? 'https' : 'http',
        open   => $request{open} || $two || defined $body
    );
    $self->_pour($id, $body) if defined $body;
    if ($two) {
        $self->_pour($id, $two->[0], 1);
        sleep PAUSE_S;
        $self->_pour($id, $two->[1]);
    }
    return $id;
}

# Sends as many bytes as the windows allow, again and again, until all are sent or the stream has ended.
sub _pour ($self, $id, $bytes, $goes_on = 0) {
    my $h2     = $self->{h2};
    my $stream = $h2->stream($id);
    my $at     = 0;
    while ($at < length $bytes) {
        $h2->until(sub { defined $h2->{settings} || $h2->{client}{ended} }) or return;
        my $own =
            ($h2->{settings}{INITIAL_WINDOW_SIZE} // WINDOW) +
            ($stream->{window}                    // 0) -
            ($stream->{poured}                    // 0);
        my $all  = WINDOW + ($h2->{window} // 0) - ($self->{poured} // 0);
        my $size = (sort { $a <=> $b } $own, $all, FRAME, length($bytes) - $at)[0];
        if ($size <= 0) {
            $h2->next_frame or return;
            return if $stream->{ended} || defined $stream->{reset};
            next;
        }
        $h2->data($id, substr($bytes, $at, $size), !$goes_on && $at + $size == length $bytes);
        $at               += $size;
        $self->{poured}   += $size;
        $stream->{poured} += $size;
    }
    $h2->data($id, '', 1) if !length $bytes && !$goes_on;
    return;
}

# The answer: `status` (0: none; 'reset'), `header` (by name), `lines` (as received), `body`, `complete`.
sub answer ($self, $id = 0) {
    if (my $h1 = $self->{h1}) {
        my $response = $h1->response or return { status => 0, header => {}, body => '' };
        $self->{over} = 1 if ($response->{header}{connection} // '') =~ /close/ || !$response->{complete};
        return {
            header => {},
            body   => '',
            %$response,
            status => $response->{status} // 0,
            lines  => _lines($response)
        };
    }
    my $stream = $self->{h2}->response($id);
    $self->{over} = 1 if $self->{h2}{goaways};
    return { status => 0, header => {}, body => '', again => $self->_is_refused($id) } if !$stream;
    my %header = %{ $stream->{header} // {} };
    delete $header{':status'};
    my $status = $stream->{status} // (defined $stream->{reset} ? 'reset' : 0);
    return {
        again    => $self->_is_refused($id),
        status   => $status,
        reset    => $stream->{reset},
        header   => \%header,
        lines    => _lines($stream),
        body     => $stream->{body},
        complete => $stream->{ended} && !defined $stream->{reset} ? 1 : 0,
    };
}

# The fields of a response of TestClient or of a stream of TestHTTP2, as received.
sub _lines ($response) {
    if (defined $response->{head}) {
        my (undef, @lines) = split /\r\n/, $response->{head};
        return \@lines;
    }
    return [ map { "$_->[0]: $_->[1]" } grep { $_->[0] ne ':status' } @{ $response->{fields} // [] } ];
}

# Whether HTTP/2 says that the application has not seen a request, so that it may be sent again.
sub _is_refused ($self, $id) {
    my $h2 = $self->{h2};
    return 1 if ($h2->stream($id)->{reset} // '') eq 'REFUSED_STREAM';
    return 1 if grep { $id > $_->{last} } @{ $h2->{goaways} // [] };
    return 0;
}

# Reads a response that stays open until its content matches; returns the content, or undef if it ends before.
sub reads_until ($self, $id, $pattern) {
    my $text = sub { ($self->{h2} ? $self->{h2}->stream($id)->{body} : $self->{h1}{text}) // '' };
    if (my $h2 = $self->{h2}) {
        my $stream = $h2->stream($id);
        $h2->until(sub { $text->() =~ $pattern || $stream->{ended} || defined $stream->{reset} });
    }
    else {
        my $stream = bless $self->{h1}, 'TestStream';
        $stream->{text} //= '';
        while ($text->() !~ $pattern) { $stream->_more or last }
    }
    return $text->() =~ $pattern ? $text->() : undef;
}

# Whether the response that stayed open has ended completely.
sub has_ended_well ($self, $id) {
    return $self->{h1}{terminated} ? 1 : 0 if $self->{h1};
    my $stream = $self->{h2}->stream($id);
    return $stream->{ended} && !defined $stream->{reset} ? 1 : 0;
}

sub ask ($self, $path, %request) { return $self->answer($self->send($path, %request)) }

# Whether the connection can take another request.
sub goes_on ($self) { return !$self->{over} && !$self->wire->{ended} }

# Opens a WebSocket, sends messages, and returns words: the result of the handshake (`handshake` has its whole
# answer), then the reply to each message.
sub converse ($self, $path, @messages) {
    my $talk = $self->{h2} ? $self->_open_stream($path) : $self->_open_upgrade($path);
    my @said = ($talk->{status});
    $self->{handshake} = $talk->{answer};
    return @said if $talk->{status} !~ /\A(?:101|200)\z/ || !$talk->{is_websocket};
    for my $message (@messages) {
        my ($opcode, $payload) = @$message;
        $talk->{send}->(TestWebSocket::frame($opcode, $payload));
        push @said, $talk->{next}->();
    }
    return ('open', @said[ 1 .. $#said ]);
}

sub handshake ($self) { return $self->{handshake} }

sub _open_upgrade ($self, $path) {
    my $h1 = $self->{h1};
    $h1->send(TestWebSocket::handshake($path));
    my $answer    = $h1->response or return { status => 0 };
    my $websocket = bless { client => $h1, answer => $answer }, 'TestWebSocket';
    return {
        status       => $answer->{status},
        is_websocket => $answer->{status} == 101,
        answer       => { body => '', %$answer, lines => _lines($answer) },
        send         => sub ($bytes) { $h1->send($bytes) },
        next         => sub { $websocket->next },
    };
}

# Opens a WebSocket on a stream (RFC 8441). A TestWebSocket reads the stream's bytes.
sub _open_stream ($self, $path) {
    my $h2 = $self->{h2};
    my $id = $h2->next_id;
    my ($method, $value, @others) = TestHTTP2::request_fields(
        $path,
        method => 'CONNECT',
        scheme => $self->{place}{tls} ? 'https' : 'http'
    );
    $h2->send_frame(TestHTTP2::HEADERS, TestHTTP2::END_HEADERS, $id,
        block($method, $value, ':protocol' => 'websocket', @others, 'sec-websocket-version' => 13));
    my $stream = $h2->stream($id);
    $h2->until(sub { defined $stream->{status} || defined $stream->{reset} });
    $h2->response($id) if ($stream->{status} // 200) != 200;    # reads the response with its content
    my $reader    = bless { h2 => $h2, stream => $stream, timeout => patience(30) }, 'Pairs::Client::Stream';
    my $websocket = bless { client => $reader, answer => {} }, 'TestWebSocket';
    return {
        status       => $stream->{status} // ($self->_is_refused($id) ? 'again' : $stream->{reset} // 0),
        is_websocket => ($stream->{status} // 0) == 200,
        answer       => { body => $stream->{body}, lines => _lines($stream) },
        send         => sub ($bytes) { $self->_pour($id, $bytes, 1) },
        next         => sub { $websocket->next },
    };
}

# The content of a stream, for TestWebSocket.
package Pairs::Client::Stream;

sub _bytes ($self, $count) {
    my $stream = $self->{stream};
    my $there  = sub { length($stream->{body} // '') >= $count };
    $self->{h2}->until(sub { $there->() || $stream->{ended} || defined $stream->{reset} });
    $self->{ended} = 1 if $stream->{ended} || defined $stream->{reset};
    return             if !$there->();
    return substr $stream->{body}, 0, $count, '';
}

1;
