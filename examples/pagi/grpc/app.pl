# A gRPC service without a library: calls are HTTP/2 requests, messages are framed, and how a call went is in
# trailers. The service, as a .proto file would say it:
#
#     service Greeter {
#         rpc SayHello (Text) returns (Text);                  // unary
#         rpc Countdown (Text) returns (stream Text);          // the server streams
#         rpc Join (stream Text) returns (Text);               // the client streams
#         rpc Shout (stream Text) returns (stream Text);       // both do
#     }
#     message Text { string text = 1; }
#
#     pagi-server --http2 examples/pagi/grpc/app.pl
#     python3 examples/pagi/grpc/client.py 127.0.0.1:5000
use strict;
use warnings;

use Future::AsyncAwait;

use constant { OK => 0, INVALID_ARGUMENT => 3, UNIMPLEMENTED => 12 };

my %METHODS = (
    SayHello => async sub {
        my ($call) = @_;
        my $name = await $call->next;
        await $call->say("Hello, $name!");
        return OK;
    },
    Countdown => async sub {
        my ($call) = @_;
        my $from = await $call->next;
        return (INVALID_ARGUMENT, "not a small number: $from") if $from !~ /\A[0-9]{1,3}\z/;
        for my $number (reverse 1 .. $from) { await $call->say($number) }
        return OK;
    },
    Join => async sub {
        my ($call) = @_;
        my @texts;
        while (defined(my $text = await $call->next)) { push @texts, $text }
        await $call->say(join ' ', @texts);
        return OK;
    },
    Shout => async sub {
        my ($call) = @_;
        while (defined(my $text = await $call->next)) { await $call->say(uc $text) }
        return OK;
    },
);

my $app = async sub {
    my ($scope, $receive, $send) = @_;
    die "Unsupported scope type: $scope->{type}\n" if $scope->{type} ne 'http';

    my ($method) = $scope->{path} =~ m{\A/Greeter/(\w+)\z};
    my $call = Call->new($receive, $send);
    my ($status, $message) =
        $METHODS{ $method // '' } ? await $METHODS{$method}->($call) : (UNIMPLEMENTED, 'no such method');
    await $call->end($status, $message);
};

package Call;

use Future::AsyncAwait;

sub new {
    my ($class, $receive, $send) = @_;
    return bless { receive => $receive, send => $send, input => '', more => 1 }, $class;
}

# The text of the client's next message; undef when there is none. Five bytes stand before each: whether it is
# compressed, and its length.
async sub next {
    my ($self) = @_;
    my $length;
    while (1) {
        (my $compressed, $length) = unpack 'CN', $self->{input};
        die "compressed messages were not asked for\n" if $compressed;
        last   if defined $length && length $self->{input} >= 5 + $length;
        return if !$self->{more};
        my $event = await $self->{receive}->();
        return if $event->{type} eq 'http.disconnect';
        $self->{input} .= $event->{body};
        $self->{more} = $event->{more};
    }
    my $message = substr $self->{input}, 0, 5 + $length, '';
    return _text(substr $message, 5);
}

async sub say {
    my ($self, $text) = @_;
    await $self->_start;
    my $message = _message($text);
    my $body    = pack('CN', 0, length $message) . $message;
    await $self->{send}->({ type => 'http.response.body', body => $body, more => 1 });
}

async sub _start {
    my ($self) = @_;
    return if $self->{started}++;
    await $self->{send}->({
        type     => 'http.response.start',
        status   => 200,
        headers  => [ [ 'content-type', 'application/grpc' ] ],
        trailers => 1,
    });
}

async sub end {
    my ($self, $status, $message) = @_;
    await $self->_start;
    await $self->{send}->({ type => 'http.response.body', body => '', more => 0 });
    my @fields = ([ 'grpc-status', $status ], defined $message ? [ 'grpc-message', $message ] : ());
    await $self->{send}->({ type => 'http.response.trailers', headers => \@fields });
}

# A message of one field of text, as protocol buffers write it: its number and kind, its length, its bytes.
sub _message {
    my ($text) = @_;
    return length $text ? "\x0a" . _number(length $text) . $text : '';
}

sub _number {
    my ($number) = @_;
    my $bytes = '';
    for (; $number > 127; $number >>= 7) { $bytes .= chr($number & 127 | 128) }
    return $bytes . chr $number;
}

sub _text {
    my ($message) = @_;
    return '' if $message eq '';
    my ($length, $shift, $at) = (0, 0, 1);
    while ($at < length $message) {
        my $byte = ord substr $message, $at++, 1;
        $length |= ($byte & 127) << $shift;
        last if $byte < 128;
        $shift += 7;
    }
    die "not a message of one text\n" if ord($message) != 10 || length $message != $at + $length;
    return substr $message, $at;
}

$app;
