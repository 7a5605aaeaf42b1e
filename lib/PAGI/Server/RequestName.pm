package PAGI::Server::RequestName;

use strict;
use warnings;

our $VERSION = '0.003000';

# Characters that are kept of texts that a client may make as long as it likes.
use constant {
    METHOD_MAX => 20,
    TARGET_MAX => 200,
    ID_MAX     => 64,
};

sub of {
    my ($scope, $connection, $request) = @_;
    return {} if !$connection;
    my $id = "$connection-$request";
    # Reading a tied hash calls the application. A missing key of a copy can be read, that of a locked hash
    # not.
    return { id => $id } if ref $scope ne 'HASH' || tied %$scope;
    my %copy = %$scope;
    # The scope of a WebSocket has no method.
    my $facts = exists $copy{REQUEST_METHOD} ? _of(_scope_of(\%copy), '') : _of(\%copy, 'GET');
    return { %$facts, id => $id };
}

# The parts of a scope that are needed here, made of the environment of a PSGI application.
sub _scope_of {
    my ($env) = @_;
    return {
        client   => defined $env->{REMOTE_ADDR} ? [ @{$env}{qw(REMOTE_ADDR REMOTE_PORT)} ] : undef,
        method   => $env->{REQUEST_METHOD},
        raw_path => $env->{REQUEST_URI},
        headers  =>
            [ [ 'x-request-id', $env->{HTTP_X_REQUEST_ID} ], [ 'traceparent', $env->{HTTP_TRACEPARENT} ], ],
    };
}

# The facts of a scope, into which an application may have put any values. The ids of the request and of its
# trace are those that the client or a proxy has sent.
sub _of {
    my ($scope,  $method)  = @_;
    my ($client, $headers) = @{$scope}{qw(client headers)};
    my ($path,   $query)   = map { defined && !ref ? "$_" : '' } @{$scope}{qw(raw_path query_string)};
    my %facts = (
        client => ref $client eq 'ARRAY' ? join(':', map { _word($_, TARGET_MAX) } @$client) : 'unix',
        method => _word($scope->{method},                       METHOD_MAX) || $method,
        target => _word(length $query ? "$path?$query" : $path, TARGET_MAX),
    );
    my ($sent)  = sent($headers, 'x-request-id');
    my ($trace) = map { _trace_of($_) } sent($headers, 'traceparent');
    my $id      = length($sent // '') ? _word($sent, ID_MAX) : $trace;
    $facts{request_id} = $id    if defined $id;
    $facts{trace_id}   = $trace if defined $trace;
    return \%facts;
}

# The values of a header field; `headers` may be any value.
sub sent {
    my ($headers, $name) = @_;
    my @pairs = grep { ref eq 'ARRAY' && @$_ == 2 } ref $headers eq 'ARRAY' ? @$headers : ();
    return map { $_->[1] }
        grep { !ref $_->[0] && lc($_->[0] // '') eq $name && defined $_->[1] && !ref $_->[1] } @pairs;
}

sub text {
    my ($facts) = @_;
    my ($id, $client, $method, $target, $other, $trace) =
        @{$facts}{qw(id client method target request_id trace_id)};
    return ''            if !defined $id;
    return "request $id" if !defined $client;
    my $ids = defined $other ? ", id $other" : '';
    $ids .= ", trace $trace" if defined $trace && $trace ne $other;
    return "request $id ($client$ids) $method $target";
}

# The id of a trace by Trace Context, sections 3.2.2 and 4.3: version 00 has four fields, later versions may
# have more; zeros alone are no id, and ff is no version.
sub _trace_of {
    my ($traceparent) = @_;
    my ($version, $trace, $parent, $more) =
        $traceparent =~ /\A([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?\z/s;
    return undef if !defined $version || $version eq 'ff' || $version eq '00' && defined $more;
    return undef if $trace !~ /[^0]/ || $parent !~ /[^0]/;
    return $trace;
}

# A text in visible ASCII, cut at the given length.
sub _word {
    my ($value, $max) = @_;
    return '' if !defined $value || ref $value;
    my $word = substr $value, 0, $max;
    utf8::encode($word) if utf8::is_utf8($word);
    $word =~ s/([^\x21-\x7e])/sprintf '\\x%02x', ord $1/ge;
    return length $value > $max ? "$word..." : $word;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::RequestName - which request a message is about

=head1 SYNOPSIS

    my $facts = PAGI::Server::RequestName::of($scope, 17, 3);
    print PAGI::Server::RequestName::text($facts);    # request 17-3 (192.0.2.1:4711, id 8f14e) GET /x?y=1

=head1 DESCRIPTION

Text of a client is bounded and shown in visible ASCII, everything else as C<\x0a>, so that it can
stand in any log.

=head1 FUNCTIONS

=head2 of

    my $facts = PAGI::Server::RequestName::of($scope, $connection, $request);

A hash reference with C<id> (C<17-3>: the numbers of the connection and of the request in it, C<%L> in the
access log) and, of a scope, C<client>, C<method>, C<target> and, if the client sent C<X-Request-ID> or a
well-formed C<traceparent>, C<request_id>: the first, or the trace's id. C<trace_id> is that of C<traceparent>
(W3C Trace Context). Without a number of the connection it is empty.

=head2 text

    my $text = PAGI::Server::RequestName::text($facts);

The facts in words; an empty string for an empty hash.

=head2 sent

    my @accepted = PAGI::Server::RequestName::sent($scope->{headers}, 'accept');

The values of a header field. Headers that an application has spoiled have none.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
