package PAGI::Server::EventCheck;

use strict;
use warnings;

our $VERSION = '0.003000';

use overload     ();
use Scalar::Util qw(blessed looks_like_number reftype);

# A check returns nothing for a good value, otherwise the allowed values, as the end of "field must be ...";
# for a list also the wrong part and its index. Allowed is what PAGI::Spec and PAGI::Spec::Www say and what
# the server takes in production: no event may fail in development only because it could be written better
# (see advice).

sub _bytes {
    my ($value) = @_;
    return 'a byte string' if ref $value;
    my $copy = "$value";
    return utf8::downgrade($copy, 1) ? () : 'a byte string: encode it, it has a wide character';
}

sub _text { return !ref $_[0] ? () : 'a string' }

# A line end would begin another field. A NUL counts as a line end, as in header fields.
sub _line { return !ref $_[0] && $_[0] !~ /[\x00\x0a\x0d]/ ? () : 'a string without line ends and NULs' }

# Any integer is a flag, and so is the empty string of Perl's own comparisons.
sub _flag { return !ref $_[0] && $_[0] eq '' || _is_integer($_[0]) ? () : '0 or 1' }

sub _handle {
    my ($handle) = @_;
    my $type = reftype(ref $handle ? $handle : \$handle);
    return 'an open file handle'
        if $type ne 'GLOB' && $type ne 'IO' && !overload::Method($handle, '*{}');
    return defined(tied *$handle || fileno $handle) ? () : 'an open file handle';
}

# Seconds of an event; infinity and NaN are refused.
sub _seconds {
    return
           looks_like_number($_[0])
        && $_[0] >= 0
        && $_[0] <= 1_000_000 ? () : 'a number of seconds from 0 to 1000000';
}

# Whether a value is a signed integer of 64 bits, however it is written: Perl makes 1e15 of a large product.
sub _is_integer {
    my ($value) = @_;
    return !ref $value && looks_like_number($value) && $value == int $value && abs $value <= 2**63;
}
sub _integer { return _is_integer($_[0])               ? () : 'an integer' }
sub _count   { return _is_integer($_[0]) && $_[0] >= 0 ? () : 'an integer that is not negative' }
sub _status  { return _is_integer($_[0]) && $_[0] >= 200 && $_[0] < 600 ? () : 'an integer from 200 to 599' }
sub _interim { return _is_integer($_[0]) && $_[0] >= 102 && $_[0] < 200 ? () : 'an integer from 102 to 199' }

# Pairs of a name and a value. The server lowers the letter case of names.
sub _headers {
    my ($list) = @_;
    return 'an array reference of [name, value] pairs' if (reftype($list) // '') ne 'ARRAY';
    for my $index (0 .. $#$list) {
        my $pair = $list->[$index];
        return ('an array reference of [name, value] pairs, each an array reference of two', $pair, $index)
            if (reftype($pair) // '') ne 'ARRAY' || @$pair != 2;
        my ($name, $value) = map { _plain($_) } @$pair;
        return ('a list whose names are strings without spaces and control characters', $name, $index)
            if !defined $name || ref $name || $name !~ /\A[^\x00-\x20\x7f-\x{10ffff}]+\z/;
        return ("a list whose values are byte strings without CR, LF and NUL (that of $name is not)",
            $value, $index)
            if !defined $value || _bytes($value) || $value =~ /[\x00\x0a\x0d]/;
    }
    return;
}

# The string of an object that stands for a string, a number or a boolean; any other value is unchanged.
sub _plain {
    my ($value) = @_;
    return blessed $value && (grep { overload::Method($value, $_) } '""', '0+', 'bool') ? "$value" : $value;
}

# Fields whose values are not converted to strings: objects in them are checked as they are.
my %IS_WHOLE = (fh => 1, headers => 1);

my %BODY = (
    body   => \&_bytes,
    file   => \&_text,
    fh     => \&_handle,
    offset => \&_count,
    length => \&_count,
    more   => \&_flag,
);

# The fields of each event. Other fields are let through, as PAGI::Spec demands. An undefined field is absent.
my %EVENTS = (
    'http.response.start'         => { status => \&_status, headers => \&_headers, trailers => \&_flag },
    'http.response.body'          => \%BODY,
    'http.response.trailers'      => { headers => \&_headers },
    'http.response.informational' => { status  => \&_interim, headers => \&_headers },
    'http.fullflush'              => {},
    'sse.start'                   => { status => \&_status, headers => \&_headers },
    'sse.send'                    => { data => \&_text, event => \&_line, id => \&_line, retry => \&_count },
    'sse.comment'                 => { comment  => \&_text },
    'sse.keepalive'               => { interval => \&_seconds, comment => \&_text },
    'sse.close'                   => { reason   => \&_text },
    'sse.http.response.start'     => { status   => \&_status, headers => \&_headers },
    'sse.http.response.body'      => \%BODY,
    'websocket.accept'            => { subprotocol => \&_bytes, headers => \&_headers, compress => \&_flag },
    'websocket.send'                => { text     => \&_text,    bytes   => \&_bytes },
    'websocket.close'               => { code     => \&_integer, reason  => \&_text },
    'websocket.keepalive'           => { interval => \&_seconds, timeout => \&_seconds },
    'websocket.http.response.start' => { status   => \&_status,  headers => \&_headers },
    'websocket.http.response.body'  => { body     => \&_bytes,   more    => \&_flag },
    'topic.subscribe'            => { topic => \&_text, as => \&_text, since => \&_text, behind => \&_text },
    'topic.unsubscribe'          => { topic => \&_text },
    'lifespan.startup.complete'  => {},
    'lifespan.startup.failed'    => { message => \&_text },
    'lifespan.shutdown.complete' => {},
    'lifespan.shutdown.failed'   => { message => \&_text },
);

# The required field of each event.
my %REQUIRED = qw(
    http.response.start           status
    sse.send                      data
    sse.comment                   comment
    sse.keepalive                 interval
    sse.http.response.start       status
    websocket.keepalive           interval
    topic.subscribe               topic
    topic.unsubscribe             topic
    websocket.http.response.start status
);

# Fields that exclude each other in an event.
my %EXCLUSIVE = (
    'http.response.body'     => [qw(body file fh)],
    'sse.http.response.body' => [qw(body file fh)],
    'websocket.send'         => [qw(text bytes)],
);

sub events {
    return map { $_ => [ sort keys %{ $EVENTS{$_} } ] } keys %EVENTS;
}

sub problem {
    my ($event)  = @_;
    my $type     = $event->{type};
    my $fields   = $EVENTS{$type} or return;
    my $required = $REQUIRED{$type};
    return "$type: $required is missing" if defined $required && !defined $event->{$required};
    my @given = grep { defined $event->{$_} } @{ $EXCLUSIVE{$type} || [] };
    return "$type: only one of @given may be given"     if @given > 1;
    return "$type: one of text and bytes must be given" if !@given && $type eq 'websocket.send';

    for my $name (sort grep { defined $event->{$_} } keys %$fields) {
        my $value = $IS_WHOLE{$name} ? $event->{$name} : _plain($event->{$name});
        my ($allowed, $part, $index) = $fields->{$name}->($value);
        next                                                         if !defined $allowed;
        return "$type: $name must be $allowed, not " . shown($value) if !defined $index;
        return "$type: $name must be $allowed, not " . shown($part) . " in ${name}[$index]";
    }
    return;
}

sub advice {
    my ($event) = @_;
    my $headers = $event->{headers} // [];
    for my $name (map { $_->[0] } @$headers) {
        next if $name !~ /[A-Z]/;
        return
            "$event->{type}: names of headers are lower case in PAGI; '$name' goes out as '"
            . lc($name) . q{'};
    }
    return;
}

sub shown {
    my ($value) = @_;
    return 'undef'                      if !defined $value;
    return 'an object of ' . ref $value if blessed $value;
    return ref($value) . ' reference'   if ref $value;
    my $text = length $value > 64 ? substr($value, 0, 64) . '...' : "$value";
    $text =~ s/([^\x20-\x7e])/sprintf '\\x{%x}', ord $1/ge;
    return "'$text'";
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::EventCheck - whether an event is what the specification says

=head1 SYNOPSIS

    my $problem = PAGI::Server::EventCheck::problem({ type => 'http.response.body', more => 'yes' });
    # http.response.body: more must be 0 or 1, not 'yes'

=head1 DESCRIPTION

A table of all events that an application may send, with a check for each field. The server always refuses
what it cannot act on; with the option C<validate_events> it asks here as well, so that fields of a wrong
type, which would go unnoticed otherwise, fail while the application is written, as L<PAGI::Spec/Error
Handling> demands. All values that the specification allows are allowed here.

=head1 FUNCTIONS

=head2 events

    my %fields = PAGI::Server::EventCheck::events();

The types of events that an application may send, each with an array reference of its fields' names.
L<PAGI::Server::Protocol> explains them.

=head2 problem

    my $problem = PAGI::Server::EventCheck::problem($event);

Returns the mistake in an event in words: its type, the field and the allowed values. Nothing if it is
all right, or of a type that is not known here. Fields that the specification does not name are let
through.

=head2 advice

    my $advice = PAGI::Server::EventCheck::advice($event);

What the server mends in an event without a L</problem>, and the application could write as the specification
has it: names of headers with capitals. Nothing if there is none.

=head2 shown

    my $text = PAGI::Server::EventCheck::shown({});    # HASH reference

A value in words, for a message.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
