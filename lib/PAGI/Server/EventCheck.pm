package PAGI::Server::EventCheck;

use strict;
use warnings;

our $VERSION = '0.003000';

use overload     ();
use Scalar::Util qw(blessed looks_like_number);

# A check returns nothing for a good value, otherwise what is allowed: the end of "field must be ...". For a list also the part that is not,
# and its index.

sub _is_string { return !ref $_[0] || blessed $_[0] && overload::Method($_[0], '""') }

sub _bytes {
    my ($value) = @_;
    return 'a byte string' if !_is_string($value);
    my $copy = "$value";
    return utf8::downgrade($copy, 1) ? () : 'a byte string: encode it, it has a wide character';
}

sub _text { return _is_string($_[0])                              ? () : 'a string' }
sub _line { return _is_string($_[0]) && $_[0] !~ /[\x00\x0a\x0d]/ ? () : 'a string without line ends and NULs' }
sub _path { return _is_string($_[0]) && $_[0] =~ m{\A/}           ? () : 'an absolute path' }

# Those of JSON modules, which can be had as numbers, are flags as well.
sub _flag {
    my ($value)  = @_;
    my $is_plain = !ref $value || blessed $value && overload::Overloaded($value);
    return $is_plain && $value =~ /\A[01]?\z/ ? () : '0 or 1';
}

sub _handle {
    my ($handle) = @_;
    return defined eval { tied *$handle || fileno $handle } ? () : 'an open file handle';
}

sub _seconds {
    return looks_like_number($_[0]) && $_[0] >= 0 && $_[0] <= 1_000_000 ? () : 'a number of seconds from 0 to 1000000';
}

# The longest integer that a signed 64-bit one holds for sure has 18 digits.
sub _integer { return !ref $_[0]      && $_[0] =~ /\A-?(?:0|[1-9][0-9]{0,17})\z/ }
sub _count   { return _integer($_[0]) && $_[0] >= 0 ? () : 'an integer that is not negative' }
sub _status  { return _integer($_[0]) && $_[0] >= 200 && $_[0] < 600 ? () : 'an integer from 200 to 599' }

# RFC 6455 section 7.4: 1005, 1006 and 1015 stand for something and are never sent.
sub _close_code {
    my ($code) = @_;
    my $known = _integer($code) && $code =~ /\A(?:100[0-37-9]|101[0-4]|[34][0-9]{3})\z/;
    return $known ? () : '1000 to 1003, 1007 to 1014 or 3000 to 4999';
}

sub _headers {
    my ($list) = @_;
    return 'an array reference of [name, value] pairs' if ref $list ne 'ARRAY';
    for my $index (0 .. $#$list) {
        my $pair = $list->[$index];
        return ('an array reference of [name, value] pairs, each an array reference of two', $pair, $index)
            if ref $pair ne 'ARRAY' || @$pair != 2;
        my ($name, $value) = @$pair;
        return ('a list whose names are strings in lower case', $name, $index)
            if !defined $name || ref $name || $name !~ /\A[^A-Z\x00-\x20\x7f-\x{10ffff}]+\z/;
        return ("a list whose values are byte strings without CR, LF and NUL (that of $name is not)", $value, $index)
            if !defined $value || _bytes($value) || $value =~ /[\x00\x0a\x0d]/;
    }
    return;
}

my %BODY = (
    body   => \&_bytes,
    file   => \&_path,
    fh     => \&_handle,
    offset => \&_count,
    length => \&_count,
    more   => \&_flag,
);

# The fields of each event. Others are let through, as PAGI::Spec asks for. An undefined one counts as absent.
my %EVENTS = (
    'http.response.start'           => { status => \&_status, headers => \&_headers, trailers => \&_flag },
    'http.response.body'            => \%BODY,
    'http.response.trailers'        => { headers => \&_headers },
    'http.fullflush'                => {},
    'sse.start'                     => { status   => \&_status, headers => \&_headers },
    'sse.send'                      => { data     => \&_text,   event   => \&_line, id => \&_line, retry => \&_count },
    'sse.comment'                   => { comment  => \&_text },
    'sse.keepalive'                 => { interval => \&_seconds, comment => \&_text },
    'sse.close'                     => { reason   => \&_text },
    'sse.http.response.start'       => { status   => \&_status, headers => \&_headers },
    'sse.http.response.body'        => \%BODY,
    'websocket.accept'              => { subprotocol => \&_bytes,      headers => \&_headers },
    'websocket.send'                => { text        => \&_text,       bytes   => \&_bytes },
    'websocket.close'               => { code        => \&_close_code, reason  => \&_text },
    'websocket.keepalive'           => { interval    => \&_seconds,    timeout => \&_seconds },
    'websocket.http.response.start' => { status      => \&_status,     headers => \&_headers },
    'websocket.http.response.body'  => { body        => \&_bytes,      more    => \&_flag },
    'lifespan.startup.complete'     => {},
    'lifespan.startup.failed'       => { message => \&_text },
    'lifespan.shutdown.complete'    => {},
    'lifespan.shutdown.failed'      => { message => \&_text },
);

my %REQUIRED = (
    'http.response.start'           => ['status'],
    'sse.send'                      => ['data'],
    'sse.comment'                   => ['comment'],
    'sse.keepalive'                 => ['interval'],
    'sse.http.response.start'       => ['status'],
    'websocket.keepalive'           => ['interval'],
    'websocket.http.response.start' => ['status'],
);

# Of these, an event has one at most.
my %EXCLUSIVE = (
    'http.response.body'     => [qw(body file fh)],
    'sse.http.response.body' => [qw(body file fh)],
    'websocket.send'         => [qw(text bytes)],
);

sub problem {
    my ($event) = @_;
    my $type    = $event->{type};
    my $fields  = $EVENTS{$type} or return;
    for my $name (@{ $REQUIRED{$type} || [] }) {
        return "$type: $name is missing" if !defined $event->{$name};
    }
    my @given = grep { defined $event->{$_} } @{ $EXCLUSIVE{$type} || [] };
    return "$type: only one of @given may be given"     if @given > 1;
    return "$type: one of text and bytes must be given" if !@given && $type eq 'websocket.send';
    for my $name (sort grep { defined $event->{$_} } keys %$fields) {
        my ($allowed, $part, $index) = $fields->{$name}->($event->{$name});
        next                                                                   if !defined $allowed;
        return "$type: $name must be $allowed, not " . _shown($event->{$name}) if !defined $index;
        return "$type: $name must be $allowed, not " . _shown($part) . " in ${name}[$index]";
    }
    return;
}

sub _shown {
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

One table of all events that an application may send, with a check for each field. The server always
refuses what it cannot act on; with the option C<validate_events> it asks here as well, so that mistakes
which would go unnoticed, or would matter only to another server, fail while the application is written.

=head1 FUNCTIONS

=head2 problem

    my $problem = PAGI::Server::EventCheck::problem($event);

What is wrong with an event, with its type, the field and what is allowed. Nothing if it is all right, or
of a type that is not known here. Fields that the specification does not name are let through.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
