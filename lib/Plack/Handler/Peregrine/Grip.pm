package Plack::Handler::Peregrine::Grip;

use strict;
use warnings;

our $VERSION = '0.003000';

use MIME::Base64 ();

# For xs/psgi/grip.c: the numbers of peregrine_hold().
use constant { STREAM => 0, RESPONSE => 1 };
use constant { EVENTS => 0, BYTES    => 1 };

# Seconds of a long poll whose header names none, as in GRIP, and the most that is allowed.
use constant { TIMEOUT_S => 55, TIMEOUT_MAX_S => 86_400 };

# Limits of peregrine.h: bytes of a keep-alive message, topics of a response.
use constant { KEEPALIVE_BYTES => 1024, TOPICS => 32 };

my %KNOWN = map { $_ => 1 } qw(grip-hold grip-channel grip-timeout grip-keep-alive);
my %KINDS = (stream => STREAM, response => RESPONSE);
my %AS    = (events => EVENTS, bytes    => BYTES);

my $NAME = qr/\A[A-Za-z0-9._:-]{1,100}\z/;

# An instruction for xs/psgi/grip.c: [ kind, timeout in ms, keep-alive in ms, its bytes, then name, position
# and form of each topic ]. Dies if the response cannot be held. `request`: the prefix of topics, and the
# environment.
sub instruction {
    my ($headers, $request) = @_;
    my %values = _values($headers);
    my ($unknown) = grep { /\Agrip-/ && !$KNOWN{$_} } sort keys %values;
    die "header $unknown: the server knows " . join(', ', sort keys %KNOWN) . "\n" if defined $unknown;
    my $word = _one('Grip-Hold', $values{'grip-hold'});
    my $kind = $KINDS{ lc $word } // die "Grip-Hold is stream or response, not '$word'\n";
    _check_content(\%values);
    my ($type)  = @{ $values{'content-type'} || [] };
    my $default = ($type // '') =~ m{\A\s*text/event-stream\s*(?:;|\z)}i ? 'events' : 'bytes';
    my @topics  = _topics($values{'grip-channel'}, $request, $default);
    # GRIP's libraries send both fields, whatever the kind is.
    my $timeout =
        $kind == RESPONSE ? _seconds('Grip-Timeout', _one('Grip-Timeout', $values{'grip-timeout'})) : 0;
    my ($every, $bytes) =
        $kind == STREAM ? _keepalive(_one('Grip-Keep-Alive', $values{'grip-keep-alive'})) : (0, '');
    return [ $kind, 1000 * $timeout, 1000 * $every, $bytes, @topics ];
}

# Values of header fields by name in lower case.
sub _values {
    my ($headers) = @_;
    my %values;
    for (my $i = 0; $i < $#$headers; $i += 2) {
        my ($name, $value) = @{$headers}[ $i, $i + 1 ];
        die "header $name has a wide character\n" if !utf8::downgrade($value //= '', 1);
        push @{ $values{ lc $name } }, $value =~ s/\A\s+|\s+\z//gr;
    }
    return %values;
}

sub _one {
    my ($name, $values) = @_;
    die "header $name came twice\n" if $values && @$values > 1;
    return $values ? $values->[0] : undef;
}

# Dies if the content has a coding, because entries that follow it have none.
sub _check_content {
    my ($values) = @_;
    for my $name (qw(Content-Encoding Transfer-Encoding)) {
        my ($other) = grep { lc ne 'identity' } @{ $values->{ lc $name } || [] } or next;
        die "a response with $name: $other cannot be held: entries of topics have none\n";
    }
    return;
}

sub _topics {
    my ($values, $request, $default) = @_;
    my ($prefix, $env) = @$request;
    my (@topics, %seen, $is_client);
    for my $text (map { split /,/ } @{ $values || [] }) {
        my ($name, @parameters) = map { s/\A\s+|\s+\z//gr } split /;/, $text, -1;
        next if !length($name // '') && !@parameters;
        die "Grip-Channel: '$name' is no name of a topic (letters, digits, and . - _ :)\n" if $name !~ $NAME;
        die "Grip-Channel: '$name' does not begin with '$prefix'\n" if index($name, $prefix) != 0;
        my %given = _parameters('Grip-Channel', 'prev-id, as', @parameters);
        my $as    = $AS{ $given{as} // $default };
        die "Grip-Channel: as is events or bytes, not '$given{as}'\n" if !defined $as;
        my $since = $given{'prev-id'} // '';
        ($is_client, $since) = (1, _since($env)) if $since eq 'client';
        push @topics, $name, $since, $as if !$seen{$name}++;
    }
    die "Grip-Hold needs a Grip-Channel\n"                                             if !@topics;
    die "a response may wait for ${\TOPICS} channels, not for ${\scalar keys %seen}\n" if keys %seen > TOPICS;
    # Each topic has an epoch of its own, and the client sends one position without a topic's name.
    die "Grip-Channel: a response with prev-id=client names one topic, not ${\scalar keys %seen}\n"
        if $is_client && keys %seen > 1;
    return @topics;
}

# The position that the client has seen last; '': it has seen none.
sub _since {
    my ($env) = @_;
    my ($id, $tag) = map { "${\($_ // '')}" } @{ $env || {} }{qw(HTTP_LAST_EVENT_ID HTTP_IF_NONE_MATCH)};
    my $since = length $id ? $id : $tag =~ m{\A(?:W/)?"([^"]*)"\z} ? $1 : '';
    # A position has no wide character, but an application may have put one into its environment.
    return utf8::downgrade($since, 1) ? $since : 'none';
}

sub _parameters {
    my ($header, $known, @texts) = @_;
    my %is_known = map { $_ => 1 } split /, /, $known;
    my %given;
    for my $text (@texts) {
        my ($name, $value) = $text =~ /\A([A-Za-z-]+)\s*=\s*"?([^"]*?)"?\z/
            or die "$header: '$text' is no parameter\n";
        die "$header: there is no parameter '$name'; these are: $known\n" if !$is_known{ lc $name };
        $given{ lc $name } = $value;
    }
    return %given;
}

sub _seconds {
    my ($header, $text) = @_;
    $text //= TIMEOUT_S;
    die "$header is a number of seconds from 1 to ${\TIMEOUT_MAX_S}, not '$text'\n"
        if $text !~ /\A[0-9]{1,5}\z/ || $text < 1 || $text > TIMEOUT_MAX_S;
    return 0 + $text;
}

my %FORMATS = (raw => sub { return $_[0] }, cstring => \&_cstring, base64 => \&_base64);

# Seconds and bytes of a keep-alive. Its text may have semicolons: only the end of the value is parsed as
# parameters.
sub _keepalive {
    my ($text) = @_;
    return (0, '') if !defined $text;
    my @parameters;
    unshift @parameters, $1 while $text =~ s/\s*;\s*([A-Za-z-]+\s*=\s*(?:"[^"]*"|[^;"\s]*))\s*\z//;
    my %given  = _parameters('Grip-Keep-Alive', 'format, timeout', @parameters);
    my $format = $given{format} // 'raw';
    my $decode = $FORMATS{ lc $format };
    die "Grip-Keep-Alive: format is raw, cstring or base64, not '$format'\n" if !$decode;
    my $bytes = $decode->($text);
    die "Grip-Keep-Alive: it has no bytes\n"                            if !length $bytes;
    die "Grip-Keep-Alive: it has more than ${\KEEPALIVE_BYTES} bytes\n" if length $bytes > KEEPALIVE_BYTES;
    return (_seconds('Grip-Keep-Alive: timeout', $given{timeout}), $bytes);
}

my %ESCAPES = (n => "\n", r => "\r", t => "\t", 0 => "\0", '\\' => '\\', q(") => q("));

sub _cstring {
    my ($text) = @_;
    $text =~ s{\\(?:x([0-9A-Fa-f]{2})|(.?))}{
        defined $1 ? chr hex $1 : $ESCAPES{$2} // die "Grip-Keep-Alive: '\\$2' is no escape of a C string\n"
    }ge;
    return $text;
}

sub _base64 {
    my ($text) = @_;
    die "Grip-Keep-Alive: '$text' is no base64\n"
        if length($text) % 4 || $text !~ m{\A[A-Za-z0-9+/]*={0,2}\z};
    return MIME::Base64::decode_base64($text);
}

1;

__END__

=encoding UTF-8

=head1 NAME

Plack::Handler::Peregrine::Grip - responses of PSGI that the engine holds open

=head1 SYNOPSIS

    # peregrine --engine process --workers 2 --channels --grip app. app.psgi
    sub {
        my ($env) = @_;
        return [ 200, [
            'Content-Type'    => 'text/event-stream',
            'Grip-Hold'       => 'stream',
            'Grip-Channel'    => 'app.news',
            'Grip-Keep-Alive' => ':\n\n; format=cstring; timeout=20',
        ], [ "event: open\ndata:\n\n" ] ];
    };

    # anywhere in the server
    Peregrine::Publisher->of_server->publish('app.news', 'Something has happened');

=head1 DESCRIPTION

An application of PSGI that sends an event stream has a worker for as long as the stream is open. With the
option C<grip> it says by header fields what its client waits for, and returns. The engine has the
connection, and sends the client what is published to a topic (L<PAGI::Server::Topics>); the worker has its
next request meanwhile. The fields are those of GRIP (L<https://pushpin.org/docs/protocols/grip/>), for
which there are libraries and frameworks: an application that was written for Pushpin or Fastly needs no proxy
of that kind in front.

Publishing is ours, not that of GRIP's control port: L<Peregrine::Publisher> from PSGI and from other
programs, C<peregrine publish> from a shell, C<pagi.topics> from PAGI. An entry is a string of bytes.

=head2 Header fields of a response

=over

=item Grip-Hold: stream

The response begins, with the body that the application gave, and stays open: entries are its further content.
In a response of the type C<text/event-stream> each entry becomes an event's data, with its position as C<id>,
so that a topic may have readers of PAGI, too; in any other response the entries' bytes follow one another.
C<Content-Length> is that of the first part, and does not go out.

=item Grip-Hold: response

The client waits (long polling). The first entry becomes its response's body, with status 200, the
application's fields, and the entry's position as C<ETag>. If none comes in time the client gets the
application's response as it is.

=item Grip-Channel: app.news

A topic whose name begins with the option's prefix; several in fields of their own, or with commas between
them, 32 at most. Parameters: C<prev-id=POSITION>, entries behind that position come first (C<position> of
L<Peregrine::Publisher> tells one, before a page is made); C<prev-id=client>, the position that the client has
seen last, by C<Last-Event-ID> or C<If-None-Match>, in a response that names one topic, because the client
does not say of which topic its position is; C<as=bytes> in an event stream: the entries are events already,
as GRIP's own libraries make them. A client's own text does not belong into this field: with a comma it would
name further topics.

    'Grip-Channel' => 'app.news; prev-id=client'

=item Grip-Keep-Alive: TEXT; format=cstring; timeout=20

Bytes that a stream gets after so many seconds (55) without an entry. C<format> is C<raw>, C<cstring> or
C<base64>.

=item Grip-Timeout: 30

Seconds (55) that C<Grip-Hold: response> waits.

=back

=head2 What is promised

Nothing is sent before the engine reads the topics. So what is published after a client has seen its stream's
beginning reaches that client, in the topic's order, each entry once. Held responses outlive the interpreter
that gave them, and a HUP. They end in an orderly way when the server stops or gets new code by USR2: event
streams come back by themselves, with C<Last-Event-ID>. A client that reads too slowly gets what follows from
the history; beyond that a stream of events gets a C<reset>, as does one whose C<prev-id> is no position any
more (L<PAGI::Server::Topics/Positions>), a stream of bytes is cut, and a response that waits is sent as it
is.

=head2 What is refused

A response that cannot be held as it asks is answered with 500, and the log says why: a topic outside of the
prefix, C<prev-id=client> beside further topics, a word of GRIP that is not listed here, C<Content-Encoding>
(entries are not compressed; L<Plack::Middleware::Deflater> leaves a response alone whose application sets C<<
$env->{'plack.skip-deflater'} >>), a body of more than 64 KiB. One more than C<max_held_responses> is answered
with 503, as are all while there is no hub; a mount with workers of its own has a share of that number, which
no other mount takes. A request for the head alone is answered at once.

=head2 Who may say so

The option is off, then all these fields pass as any others: a proxy that speaks GRIP may be in front. When it
is on, fields of responses that begin with C<Grip-> never go out, and requests of clients lose C<Grip-Sig> and
all others that begin with C<Grip->, C<Connection-Id>, and those that begin with C<Meta->: an application that
trusts those would trust its clients. C<< $env->{'peregrine.grip'} >> has the prefix, and says what a valid
C<Grip-Sig> says elsewhere. An application that passes on responses of other servers should remove
C<Grip-Hold> from these, or else they subscribe its clients. WebSockets over HTTP, of which GRIP has commands
within messages, are not supported: applications of PAGI have WebSockets.

=head1 FUNCTIONS

=head2 instruction

Reads the header fields of a response, for the server. Dies with a sentence.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
