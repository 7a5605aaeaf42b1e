package PAGI::App::WrapPSGI::Response;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future;
use Future::AsyncAwait;
use List::Util qw(pairmap);
use PAGI::App::WrapPSGI::Environment;
use Scalar::Util qw(blessed reftype);

# Bytes of a piece of a body from a handle, and of a list that is sent as one piece.
use constant PIECE_BYTES => 65_536;

# ---- Output to the client ------------------------------------------------------------------------

# A function that sends an application's response in the words [ whole => status, headers, body ], [ start =>
# status, headers ], [ body => bytes ] and [ 'end' ], which can come from another process; returns a Future.
sub sink {
    my ($send, $type) = @_;
    my $event = $type eq 'sse' ? 'sse.http.response' : 'http.response';
    return async sub {
        my ($kind, @values) = @_;
        if ($kind eq 'whole' || $kind eq 'start') {
            my ($status, $headers, $bytes) = @values;
            await $send->({ type => "$event.start", status => $status, headers => _pairs($headers) });
            await $send->({ type => "$event.body", body => $bytes }) if $kind eq 'whole';
            return;
        }
        return await $send->({ type => "$event.body", body => $values[0], more => 1 })
            if $kind eq 'body';
        return await $send->({ type => "$event.body", body => '' });
    };
}

# Headers as pairs. The server checks Content-Length, and makes chunks itself.
sub _pairs {
    my ($headers) = @_;
    return [ grep { $_->[0] ne 'transfer-encoding' } pairmap { [ lc $a, $b ] } @$headers ];
}

# ---- From the application -----------------------------------------------------------------------

# A response as plain data and its body; dies if it is no response of PSGI.
sub _parts {
    my ($response, $may_stream) = @_;
    die "the application returned no response\n" if !_is_list($response);
    my ($status, $headers, @rest) = @$response;
    die "the response has no body\n" if !@rest && !$may_stream;
    die "the status must be a number from 200 to 599\n"
        if !defined $status || "$status" !~ /\A[2-5][0-9][0-9]\z/;
    die "the headers are no list of pairs\n" if !_is_list($headers) || @$headers % 2;
    return (0 + $status, [ map { bytes_of($_, 'a header') } @$headers ], @rest);
}

sub _is_list {
    my ($value) = @_;
    return ref $value && (reftype($value) // '') eq 'ARRAY';
}

sub bytes_of {
    my ($text, $what) = @_;
    $text = defined $text ? "$text" : '';
    utf8::downgrade($text, 1) or die "$what has a wide character; encode it to bytes first\n";
    return $text;
}

# Calls an application, and passes its response on, now or later. `say` returns a Future; its calls follow
# each other. `state` has a function that ends the response while the application has a writer.
async sub _respond {
    my ($app, $env, $say, $state) = @_;
    my $response = $app->($env);
    return await _say($say, _parts($response)) if !ref $response || reftype($response) ne 'CODE';
    my $done = Future->new;
    $state->{calling} = 1;
    my $ok    = eval { $response->(_responder($say, $done, $state)); 1 };
    my $error = $@;
    $state->{calling} = 0;
    die $error if !$ok;
    # A writer that was freed meanwhile was kept by nobody, so the response ends.
    $state->{abandoned}->() if $state->{abandoned};
    return await $done;
}

# Passes on a response with a body, piece by piece, as fast as the client takes it.
async sub _say {
    my ($say, $status, $headers, $body) = @_;
    if (ref $body eq 'ARRAY') {
        my $bytes = join '', map { bytes_of($_, 'the body') } @$body;
        return await $say->(whole => $status, $headers, $bytes) if length $bytes <= PIECE_BYTES;
        open my $pieces, '<:raw', \$bytes or die "cannot read the response's body: $!\n";
        $body = $pieces;
    }
    $say->(start => $status, $headers);
    while (defined(my $line = _next_line($body))) {
        await $say->(body => bytes_of($line, 'the body'));
    }
    $body->close if !blessed $body || $body->can('close');
    return await $say->('end');
}

sub _next_line {
    my ($body) = @_;
    local $/ = \PIECE_BYTES;
    return scalar $body->getline;
}

# Calls an application that may block, and passes its response on. For a process of its own.
sub blocking {
    my ($app, $env, $say) = @_;
    my %state;
    my $response = _respond($app, $env, sub { $say->(@_); return Future->done }, \%state);
    # A writer that the application keeps must write nothing to the next response.
    my $close = delete $state{close};
    $close->()            if $close && !$response->is_ready;
    return $response->get if $response->is_ready;
    $response->cancel;
    die "the application responds later, for which it has to run in the event loop (in_process)\n";
}

# Calls an application that does not block, and sends its response, now or later. When that ends, in whatever
# way, cleanup handlers run.
sub here {
    my ($app, $env, $body, $sink) = @_;
    my $whole = PAGI::App::WrapPSGI::Environment::complete($env, $body, 'psgi.nonblocking' => !!1);
    my $last  = Future->done;
    # Each event waits until the events before it were sent.
    my $say = sub {
        my @words = @_;
        return $last = $last->then(sub { $sink->(@words) });
    };
    return _respond($app, $whole, $say, {})->then(sub { return $last })
        ->on_ready(sub { PAGI::App::WrapPSGI::Environment::clean_up($whole) });
}

# Makes a responder, to which only the application refers, so that its end is noticed.
sub _responder {
    my ($say, $done, $state) = @_;
    my $end = sub {
        my ($problem) = @_;
        return if $done->is_ready;
        return defined $problem ? $done->fail($problem) : $done->done;
    };
    my $guard = PAGI::App::WrapPSGI::Response::Guard->new(
        sub { $end->("the application has dropped its responder without a response\n") });
    my $responds;
    return sub {
        my ($given) = @_;
        die "the responder was called before\n" if $responds++;
        $guard->dismiss;
        my ($status, $headers, @body) = eval { _parts($given, 1) };
        if (!defined $status) {
            $end->($@);
            die $@;
        }
        return _say($say, $status, $headers, @body)->on_ready(sub { $end->($_[0]->failure) })->retain && ()
            if @body;
        $say->(start => $status, $headers);
        $state->{close} = sub { $say->('end'); $end->() };
        return PAGI::App::WrapPSGI::Response::Writer->new($say, $state);
    };
}

package PAGI::App::WrapPSGI::Response::Writer;

sub new {
    my ($class, $say, $state) = @_;
    return bless { say => $say, state => $state }, $class;
}

sub write {
    my ($self, $bytes) = @_;
    return if !$self->{state}{close};
    $bytes = PAGI::App::WrapPSGI::Response::bytes_of($bytes, 'the body');
    $self->{say}->(body => $bytes) if length $bytes;
    return;
}

sub close {
    my ($self) = @_;
    my $close = delete $self->{state}{close} or return;
    $close->();
    return;
}

# Handles the end of the responder. While the function that got it still runs, the reason may be that the
# function dies.
sub DESTROY {
    my ($self) = @_;
    my $state = $self->{state};
    return $self->close if !$state->{calling};
    $state->{abandoned} = delete $state->{close};
    return;
}

package PAGI::App::WrapPSGI::Response::Guard;

sub new { my ($class, $code) = @_; return bless [$code], $class }

sub dismiss {
    my ($self) = @_;
    $self->[0] = sub { };
    return;
}
sub DESTROY { my ($self) = @_; $self->[0]->(); return }

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::App::WrapPSGI::Response - what a PSGI application responds with, as PAGI's events

=head1 DESCRIPTION

Part of L<PAGI::App::WrapPSGI>. What an application gives is said in words that can come from another process:
C<whole> with status, headers and body; or C<start> with status and headers, C<body> with bytes, and C<end>.

=head1 FUNCTIONS

=head2 sink

    await $sink->(start => 200, [ 'Content-Type' => 'text/plain' ]);

Sends what it is told.

=head2 blocking

    blocking($app, $env, sub { my ($word, @values) = @_; ... });

Calls an application, and says what it responds with before it returns. Dies of what is no response.

=head2 here

    await here($app, $env, $body, $send);

Calls an application in the event loop, and waits for its response, which may come later.

=head2 bytes_of

    my $bytes = bytes_of($text, 'the body');

A string as bytes; undef is the empty one. Dies of wide characters.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
