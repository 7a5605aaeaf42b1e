package TestVisit;

# Visits of a client to a server, as code for tests that run many of them: each is a function of a server and
# a path, and returns true if the server behaved as expected. A server's `client` has options for TestClient.

use strict;
use warnings;

use Exporter qw(import);
use TestClient;
use TestStream;
use TestWebSocket;

our @EXPORT = qw(asks connected hears is_refused leaves request_for says talks);

# The head of a request. `method`, `version`, `fields`: lines.
sub request_for {
    my ($path, %request) = @_;
    my ($method, $version) = ($request{method} || 'GET', $request{version} || '1.1');
    return join "\r\n", "$method $path HTTP/$version", 'Host: h', @{ $request{fields} || [] }, '', '';
}

sub connected {
    my ($server, %options) = @_;
    return TestClient->new($server->port, %{ $server->{client} || {} }, %options);
}

# Sends a request and reads the whole response. `payload`: bytes after the head; `status`: the expected status
# (200); `cut`: the response has to end too early; `times`: requests on one connection.
sub asks {
    my (%request) = @_;
    my $payload   = delete $request{payload} // '';
    my @length    = length $payload && !$request{framed} ? 'Content-Length: ' . length $payload : ();
    my @fields    = (@{ $request{fields} || [] }, @length);
    return sub {
        my ($server, $path) = @_;
        my $client = connected($server);
        for (1 .. $request{times} || 1) {
            $client->send(request_for($path, %request, fields => \@fields) . $payload);
            my $answer = $client->response(head => ($request{method} || '') eq 'HEAD') or return 0;
            return 0
                if $answer->{status} != ($request{status} || 200) || !!$answer->{complete} == !!$request{cut};
        }
        return 1;
    };
}

# Sends bytes, or a request, and leaves. `until`: a pattern that has to come first; `slow`: a small receive
# buffer; `politely`: without a reset.
sub leaves {
    my ($bytes, %way) = @_;
    return sub {
        my ($server, $path) = @_;
        my $client = connected($server, $way{slow} ? (receive_buffer => 8192) : ());
        $client->send($bytes // request_for($path, %way));
        return 0 if $way{until} && !defined $client->_until(qr/$way{until}/);
        my $how = $way{politely} ? 'close' : 'reset';
        $client->$how;
        return 1;
    };
}

# Sends bytes that have to be refused with a status.
sub is_refused {
    my ($status, $bytes) = @_;
    return sub {
        my ($server) = @_;
        my $answer = connected($server)->send($bytes)->response;
        return $answer && $answer->{status} == $status;
    };
}

# Reads an event stream until it ends in an expected way (TestStream), or leaves after the first message.
sub hears {
    my ($end, %options) = @_;
    return sub {
        my ($server, $path) = @_;
        my $stream = TestStream->open($server->port, $path, %{ $server->{client} || {} }, %options);
        return $stream->ending eq $end if $end ne 'leave';
        my $came = $stream->message;
        $stream->reset;
        return $came;
    };
}

# Runs code with a WebSocket once it is open, or at once. Ends with a reset.
sub talks {
    my ($rest, %options) = @_;
    my $open = delete $options{at_once} ? 'start' : 'open';
    return sub {
        my ($server, $path) = @_;
        my $websocket = TestWebSocket->$open($server->port, $path, %{ $server->{client} || {} }, %options);
        my $well      = $rest->($websocket);
        $websocket->reset;
        return $well;
    };
}

# A function that checks the next frames of a WebSocket (TestWebSocket, next).
sub says {
    my (@expected) = @_;
    return sub {
        my ($websocket) = @_;
        return !grep { $websocket->next ne $_ } @expected;
    }
}

1;
