package PAGI::Server::Compression;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future;
use Future::AsyncAwait;
use List::Util qw(pairs sum0);
use PAGI::Server::Compression::Coder;
use PAGI::Server::PSGIResponse;
use Scalar::Util qw(blessed reftype);

use constant {
    SLICE_BYTES => 262_144,      # coded at a time
    LIST_BYTES  => 1_048_576,    # of a list in a response of PSGI that is coded at once
};

# Types that compression makes shorter, besides text/*, *+json and *+xml.
my %SHRINKS = map { $_ => 1 } qw(
    application/javascript application/json application/manifest+json application/postscript application/rtf
    application/sql application/toml application/vnd.ms-fontobject application/wasm
    application/x-javascript application/x-ndjson application/xml font/otf font/ttf image/bmp image/svg+xml
    image/vnd.microsoft.icon image/x-icon model/obj
);

# Header fields that forbid compression: the response is coded, is a part of a file, or is signed, or will be
# continued by the engine.
my %FORBIDS = map { $_ => 1 } qw(
    content-encoding content-range content-md5 digest content-digest repr-digest transfer-encoding grip-hold
);

sub new {
    my ($class, %options) = @_;
    return bless {
        min_size      => $options{compress_min_size},
        authenticated => $options{compress_authenticated},
        loop          => $options{loop},
        codings       => [ PAGI::Server::Compression::Coder->names ],
    }, $class;
}

# ---- Decisions about coding ----------------------------------------------------------------------

# Whether a response may be coded at all, for whatever client.
sub _is_fit {
    my ($self, $status, $pairs) = @_;
    return 0 if $status !~ /\A[2-5][0-9]{2}\z/ || $status =~ /\A(?:204|205|206|304)\z/;
    my $type = '';
    for my $pair (@$pairs) {
        my ($name, $value) = (lc $pair->[0], $pair->[1] // '');
        return 0       if $FORBIDS{$name} || ($name eq 'cache-control' && $value =~ /\bno-transform\b/i);
        return 0       if $name eq 'content-length' && ($value !~ /\A[0-9]+\z/ || $value < $self->{min_size});
        return 0       if $name eq 'set-cookie'     && !$self->{authenticated};
        $type = $value if $name eq 'content-type';
    }
    $type = lc $type =~ s/\s*;.*//sr;
    return 0 if $type eq 'text/event-stream';
    return $type =~ m{\Atext/|\+(?:json|xml)\z} || $SHRINKS{$type} ? 1 : 0;
}

# The coding that a client likes best, of those that exist here; nothing: it likes none. Requests with
# credentials are excluded by default: an attacker may make a client ask for a page with the attacker's text
# in it, and the length of the response would tell of the rest (BREACH).
sub _wanted {
    my ($self, %request) = @_;
    return if !length($request{accept} // '');
    return if !$self->{authenticated} && ($request{cookie} || $request{authorization});
    my %weight;
    for my $item (split /,/, lc $request{accept}) {
        my ($name, $weight) = $item =~ /\A\s*([^\s;]+)\s*(?:;\s*q=([01](?:\.[0-9]{0,3})?))?\s*\z/ or next;
        $weight{ $name eq 'x-gzip' ? 'gzip' : $name } = $weight // 1;
    }
    my ($best, $most) = (undef, 0);
    for my $name (@{ $self->{codings} }) {
        my $weight = $weight{$name} // $weight{'*'} // 0;
        ($best, $most) = ($name, $weight) if $weight > $most;
    }
    return $best;
}

# The headers of a response that could be coded; with a coding, the headers of the coded response.
sub _headers {
    my ($pairs, $coding, $length) = @_;
    my ($vary, @kept);
    for my $pair (@$pairs) {
        my ($name, $value) = (lc $pair->[0], $pair->[1]);
        if ($name eq 'vary') {
            $vary = defined $vary ? "$vary, $value" : $value;
            next;
        }
        next if defined $coding && $name =~ /\A(?:content-length|accept-ranges)\z/;
        my $is_strong = defined $coding && $name eq 'etag' && $value =~ /\A"/;
        push @kept, $is_strong ? [ $pair->[0], "W/$value" ] : $pair;
    }
    $vary = defined $vary ? "$vary, Accept-Encoding" : 'Accept-Encoding'
        if ($vary // '') !~ /(?:\A|[\s,])(?:\*|accept-encoding)(?:[\s,]|\z)/i;
    push @kept, [ vary               => $vary ];
    push @kept, [ 'content-encoding' => $coding ] if defined $coding;
    push @kept, [ 'content-length'   => $length ] if defined $length;
    return \@kept;
}

# Headers and bytes of a whole body, which is coded if that makes it shorter.
sub _whole {
    my ($self, $pairs, $coding, $bytes) = @_;
    if (defined $coding && length $bytes >= $self->{min_size}) {
        my $coded = PAGI::Server::Compression::Coder->new($coding)->code($bytes, 1);
        return (_headers($pairs, $coding, length $coded), $coded) if length $coded < length $bytes;
    }
    return (_headers($pairs), $bytes);
}

# ---- PAGI ----------------------------------------------------------------------------------------

sub pagi {
    my ($self, $app) = @_;
    return sub {
        my ($scope, $receive, $send, @more) = @_;
        return $app->(@_) if $scope->{type} ne 'http';
        my $coding = $self->_wanted(_of_scope($scope));
        my ($start, $coder, $passes);
        my $say = sub {
            my ($event) = @_;
            return $send->(@_) if $passes || !ref $event || reftype $event ne 'HASH';
            my $type = $event->{type} // '';
            if ($type eq 'http.response.start') {
                my $fits = !$start && ref $event->{headers} eq 'ARRAY' && !grep { ref ne 'ARRAY' }
                    @{ $event->{headers} };
                if (!$fits || !$self->_is_fit($event->{status} // 0, $event->{headers})) {
                    $passes = 1;
                    return $send->(@_);
                }
                # The application may use its hash for another event before this one is sent.
                $start = { %$event, headers => [ map { [@$_] } @{ $event->{headers} } ] };
                return Future->done;
            }
            my $is_body = $type eq 'http.response.body';
            return $self->_piece($send, $coder, @{$event}{qw(body more)}) if $coder && $is_body;
            return $send->(@_)
                if $coder || !$start || $type !~ /\Ahttp\.(?:response\.(?:body|trailers)|fullflush)\z/;
            # The first event after the start decides how the response is sent.
            $passes = 1;
            my %first      = %$event;
            my $headers    = $start->{headers};
            my ($promised) = map { $_->[1] } grep { lc $_->[0] eq 'content-length' } @$headers;
            my $codes    = defined $coding && $type !~ /trailers\z/ && !grep { defined } @first{qw(file fh)};
            my $is_whole = $is_body && !$first{more} && length($first{body} // '') <= SLICE_BYTES;
            my $next     = sub { return $send->(\%first) };

            if ($codes && (!$is_whole || $scope->{method} eq 'HEAD' && $promised)) {
                $passes  = 0;
                $coder   = PAGI::Server::Compression::Coder->new($coding);
                $headers = _headers($headers, $coding);
                $next    = sub { return $self->_piece($send, $coder, @first{qw(body more)}) }
                    if $is_body;
            }
            elsif (!$codes || $start->{trailers}) {
                $headers = _headers($headers);
            }
            else {
                ($headers, $first{body}) = eval { $self->_whole($headers, $coding, $first{body} // '') }
                    or return Future->fail($@);
            }
            return $send->({ %$start, headers => $headers })->then($next);
        };
        # An application need not wait for an event: the next one follows when the first was sent completely.
        my $queue = { say => $say, events => [] };
        my $own   = sub {
            return _queue($queue, @_) if _is_busy($queue);
            my $passed = $passes;
            my $sent   = $say->(@_);
            return $sent if $passed || $sent->is_ready;
            $queue->{all_sent} = $sent->new;
            return _follow($queue, $sent, [])->without_cancel;
        };
        my $done = $app->($scope, $receive, $own, @more);
        return $done if !blessed $done || !$done->can('followed_by');
        return $done if $done->is_ready && !_is_busy($queue);
        # Nor must it wait for its last event. The server cuts a response that is not complete when the
        # application has ended, so the application's Future is done when all of its events are sent.
        return $done->followed_by(sub {
            my ($ended) = @_;
            return $ended if $ended->is_failed || !_is_busy($queue);
            return $queue->{all_sent}->without_cancel->followed_by(sub { return $ended });
        });
    };
}

# ---- Events that wait for earlier ones -----------------------------------------------------------

# Whether events wait: then the Future `all_sent` is pending.
sub _is_busy {
    my ($queue) = @_;
    return $queue->{all_sent} && !$queue->{all_sent}->is_ready ? 1 : 0;
}

# Keeps an event; returns its Future. Pieces of a body that wait are joined: they take little more memory than
# their bytes, however many there are.
sub _queue {
    my ($queue, $event, @rest) = @_;
    my $future   = $queue->{all_sent}->new;
    my $waiting  = $queue->{events}[-1];
    my $is_piece = !@rest && _is_piece($event);
    if (   $waiting
        && $is_piece
        && $waiting->{is_piece}
        && $waiting->{event}{more}
        && length $waiting->{event}{body} < SLICE_BYTES)
    {
        $waiting->{event}{body} .= $event->{body};
        $waiting->{event}{more} = $event->{more};
        push @{ $waiting->{futures} }, $future;
        return $future;
    }
    my $kept = ref $event && reftype $event eq 'HASH' ? {%$event} : $event;
    push @{ $queue->{events} },
        { event => $kept, rest => \@rest, is_piece => $is_piece, futures => [$future] };
    return $future;
}

# Whether an event is bytes of a body, and nothing else.
sub _is_piece {
    my ($event) = @_;
    return 0 if !ref $event || reftype $event ne 'HASH' || ($event->{type} // '') ne 'http.response.body';
    return 0 if grep { !/\A(?:body|more|type)\z/ } keys %$event;
    return defined $event->{body} && !ref $event->{body} && !utf8::is_utf8($event->{body}) ? 1 : 0;
}

# Settles the Futures of an event that has ended, and sends the next one. A failure fails all waiting events.
sub _follow {
    my ($queue, $sent, $futures) = @_;
    while ($sent->is_ready) {
        _settle($futures, $sent);
        if ($sent->is_failed || $sent->is_cancelled) {
            my @waiting = map { @{ $_->{futures} } } splice @{ $queue->{events} };
            _settle([ @waiting, $queue->{all_sent} ], $sent);
            return $sent;
        }
        my $next = shift @{ $queue->{events} };
        if (!$next) {
            $queue->{all_sent}->done;
            return $sent;
        }
        $futures = $next->{futures};
        $sent    = Future->call(sub { return $queue->{say}->($next->{event}, @{ $next->{rest} }) });
    }
    $sent->on_ready(sub { _follow($queue, $_[0], $futures) });
    return $sent->retain;
}

# Settles Futures like `ended`, except those that the application has cancelled.
sub _settle {
    my ($futures, $ended) = @_;
    for my $future (@$futures) {
        next if $future->is_ready;
        if    ($ended->is_cancelled) { $future->cancel }
        elsif ($ended->is_failed)    { $future->fail($ended->failure) }
        else                         { $future->done($ended->result) }
    }
    return;
}

# The descriptor of a body that is a file handle. A tied handle may have none.
sub _descriptor {
    my ($body) = @_;
    return if !ref $body || reftype $body ne 'GLOB';
    my $tied = tied *$body;
    # Expected: FILENO of a class that has no descriptor dies. The body is read as any other object.
    return eval { !$tied || $tied->can('FILENO') ? fileno $body : undef };
}

sub _of_scope {
    my ($scope) = @_;
    my %about;
    for my $pair (@{ $scope->{headers} }) {
        my ($name, $value) = @$pair;
        if    ($name eq 'accept-encoding') { $about{accept} = join ', ', $about{accept} // (), $value }
        elsif ($name eq 'cookie' || $name eq 'authorization') { $about{$name} = 1 }
    }
    return %about;
}

# Codes and sends a piece of a body in slices, between which the loop has its turn.
async sub _piece {
    my ($self, $send, $coder, $bytes, $more) = @_;
    $bytes //= '';
    die "http.response.body: body must be a string of bytes\n" if ref $bytes || !utf8::downgrade($bytes, 1);
    my $at = 0;
    do {
        my $slice = substr $bytes, $at, SLICE_BYTES;
        $at += SLICE_BYTES;
        my $goes_on = $at < length $bytes;
        my $coded   = $coder->code($slice, !$goes_on && !$more);
        await $send->({ type => 'http.response.body', body => $coded, more => $goes_on || $more ? 1 : 0 });
        await $self->{loop}->later if $goes_on && $self->{loop};
    } while ($at < length $bytes);
    return;
}

# ---- PSGI ----------------------------------------------------------------------------------------

sub psgi {
    my ($self, $app) = @_;
    return sub {
        my ($env) = @_;
        return PAGI::Server::PSGIResponse::replaced(
            $app->($env),
            sub {
                my ($given) = @_;
                return $self->_response($env, $given) if @$given != 2;
                my ($coding, $pairs) = $self->_coding($env, $given);
                return $given if !$pairs;
                my $new = [ $given->[0], _flat($pairs, $coding) ];
                return $new if !defined $coding;
                return ($new, sub { return PAGI::Server::Compression::Writer->new($_[0], $coding) });
            }
        );
    };
}

# The coding that a response gets, if it gets one, and its headers as pairs; nothing if it is not fit.
sub _coding {
    my ($self, $env, $response) = @_;
    my ($status, $headers) = @$response;
    return if ref $headers ne 'ARRAY' || @$headers % 2;
    my @pairs = pairs @$headers;
    return if !$self->_is_fit($status, \@pairs);
    my $coding = $self->_wanted(
        accept        => $env->{HTTP_ACCEPT_ENCODING},
        cookie        => $env->{HTTP_COOKIE},
        authorization => $env->{HTTP_AUTHORIZATION},
    );
    return ($coding, \@pairs);
}

sub _response {
    my ($self,   $env,     $response) = @_;
    my ($status, $headers, $body)     = @$response;
    my ($coding, $pairs) = $self->_coding($env, $response);
    return $response if !$pairs;
    my $plain = [ $status, _flat($pairs), $body ];
    return $plain if !defined $coding;
    my @coded = ($status, _flat($pairs, $coding));
    if (ref $body eq 'ARRAY') {
        my $length = sum0(map { length($_ // '') } @$body);
        return $plain if $length < $self->{min_size};
        if ($length <= LIST_BYTES) {
            my ($new, $bytes) = $self->_whole($pairs, $coding, join '', map { $_ // '' } @$body);
            return [ $status, [ map { @$_ } @$new ], [$bytes] ];
        }
        my @pieces = @$body;
        return [ @coded, PAGI::Server::Compression::Body->new($coding, sub { return shift @pieces }) ];
    }
    # The kernel sends a file.
    my $fd = _descriptor($body);
    return $plain
        if defined $fd && $fd >= 0 || !PAGI::Server::PSGIResponse::body_can($body, 'getline');
    my $next = sub { local $/ = \65_536; return $body->getline };
    return [ @coded, PAGI::Server::Compression::Body->new($coding, $next, $body) ];
}

sub _flat {
    my ($pairs, $coding) = @_;
    return [ map { @$_ } @{ _headers($pairs, $coding) } ];
}

package PAGI::Server::Compression::Body;

sub new {
    my ($class, $coding, $next, $body) = @_;
    my $coder = PAGI::Server::Compression::Coder->new($coding);
    return bless { coder => $coder, next => $next, body => $body }, $class;
}

sub getline {
    my ($self) = @_;
    my $coder  = $self->{coder} or return;
    my $piece  = $self->{next}->();
    return $coder->code($piece) if defined $piece;
    delete $self->{coder};
    return $coder->code('', 1);
}

sub close {    ## no critic
    my ($self) = @_;
    return $self->{body} ? $self->{body}->close : ();
}

package PAGI::Server::Compression::Writer;

sub new {
    my ($class, $writer, $coding) = @_;
    return bless { writer => $writer, coder => PAGI::Server::Compression::Coder->new($coding) }, $class;
}

sub write {    ## no critic
    my ($self, $bytes) = @_;
    my $coder = $self->{coder} or return;    # closed
    return $self->{writer}->write($coder->code($bytes));
}

sub close {    ## no critic
    my ($self) = @_;
    return $self->_end ? $self->{writer}->close : ();
}

# Writes the end of the coded content; false: it was written before.
sub _end {
    my ($self) = @_;
    my $coder = delete $self->{coder} or return 0;
    $self->{writer}->write($coder->code('', 1));
    return 1;
}

# Writes the end if no reference to the writer is left. The server closes its own writer, because it knows
# whether the application has died.
sub DESTROY {
    my ($self) = @_;
    return if ${^GLOBAL_PHASE} eq 'DESTRUCT';
    local $@;
    # Expected: a writer that dies because there are more bytes than Content-Length says, or for another
    # reason.
    eval { $self->_end; 1 } or return;
    return;
}

sub poll_cb {
    my ($self, $callback) = @_;
    return $self->{writer}->poll_cb($callback && sub { return $callback->($self) });
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Compression - compresses responses

=head1 SYNOPSIS

    pagi-server --compress app.pl

=head1 DESCRIPTION

Implements the option C<compress> of L<PAGI::Server>. The option is off by default, and then costs nothing.

=over

=item How

C<gzip>; C<br> and C<zstd> where the system has libbrotlienc and libzstd
(C<PAGI::Server::Compression::Coder>). The client decides (C<Accept-Encoding> with its weights); of what it
likes as well C<br> comes before C<zstd>, and that before C<gzip>. A response that is sent in pieces is
compressed in pieces, and each is flushed, so that it arrives when it was sent; the head leaves with the
first of them. A response has one encoder of at most 2 MB, and a large body is compressed 256 KiB at a time,
between which others have their turn (PAGI).

=item What

Text, JSON, XML, JavaScript, SVG and other types that shrink, from C<compress_min_size> on. A body that does
not get shorter goes out uncompressed. Never event streams; parts (206); what has a C<Content-Encoding>, a
digest or C<Cache-Control: no-transform>; files that the kernel sends (precompressed ones:
L<PAGI::Server::Folders>).

=item BREACH

An attacker who can put text into a page and see its compressed length can find out other text of it. So
requests with C<Cookie> or C<Authorization>, and responses with C<Set-Cookie>, are not compressed unless
C<compress_authenticated> says so.

=item Headers

C<Vary: Accept-Encoding> for all that could be compressed; a strong C<ETag> becomes a weak one;
C<Accept-Ranges> goes, and C<Content-Length> says the new length where that is known.

=back

=head1 METHODS

=head2 new

    my $compression = PAGI::Server::Compression->new(%options, loop => $loop);

=head2 pagi, psgi

    my $wrapped = $compression->pagi($app);

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
