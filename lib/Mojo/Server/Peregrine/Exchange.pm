package Mojo::Server::Peregrine::Exchange;

# An HTTP request and its response: a Mojo::Transaction::HTTP on the handles of PAGI.

use strict;
use warnings;

use parent qw(Mojo::Server::Peregrine::Connection);

use Future;
use Mojo::Server::Peregrine::Content;

our $VERSION = '0.003000';

# Bytes from which on a file's handle is sent; smaller files are read.
use constant FILE_MIN => 65_536;

# Response fields that the engine sets.
my %FRAMING = map { $_ => 1 } qw(connection transfer-encoding keep-alive upgrade);

sub new {
    my ($class, $server, $scope, $receive, $send) = @_;
    my $self = bless { server => $server, scope => $scope, receive => $receive, send => $send }, $class;
    # A request for an event stream gets an ordinary response here.
    $self->{prefix} = $scope->{type} eq 'sse' ? 'sse.http' : 'http';
    my $tx      = $self->{tx} = $server->transaction($self, $scope);
    my $content = $tx->res->content;
    bless $content, 'Mojo::Server::Peregrine::Content' if ref $content eq 'Mojo::Content::Single';
    return $self;
}

# Returns a Future of the exchange's end.
sub run {
    my ($self) = @_;
    if (!eval { $self->_read; 1 }) {
        my $why = $@;
        $self->_end;
        return Future->fail($why);
    }
    return Future->done if $self->{ended};
    my $connection = $self->{scope}{'pagi.connection'};
    $connection->on_disconnect(sub { $self->gone(@_) }) if $connection;
    $self->limit_idle;
    return $self->{done} = Future->new;
}

# ---- The request --------------------------------------------------------------------------------

sub _read {
    my ($self) = @_;
    while (!$self->{ended} && !$self->{handled}) {
        if ($self->{paused}) {
            $self->{read_on} = sub { $self->_read };
            return;
        }
        my $future = $self->{receive}->();
        if (!$future->is_ready) {
            $self->{waiting} = $future->on_ready(sub {
                eval { $self->_arrived($_[0]) && $self->_read; 1 } or $self->_end($@);
            });
            return;
        }
        $self->_arrived($future) or return;
    }
    return;
}

# Handles an event of $receive. False: no further one is needed.
sub _arrived {
    my ($self, $future) = @_;
    delete $self->{waiting};
    return 0 if $self->{ended};
    my $event = $future->is_done ? $future->get : { type => 'gone' };
    if ($event->{type} !~ /\.request\z/) {
        $self->gone;
        return 0;
    }
    my $req = $self->{tx}->req;
    my ($body, $more) = @{$event}{qw(body more)};
    # The engine knows the end of a body, also without Content-Length.
    $self->{relaxed} ||= $req->content->relaxed(1)
        if $more || length $body && !defined $req->headers->content_length;
    $req->parse($body) if length $body || !$more && !$self->{relaxed};
    if (!$more && !$req->is_finished) { $self->_end_body($req, $event->{trailers}) }
    return 1 if !$req->is_finished;
    $self->_handle;
    return 0;
}

sub _end_body {
    my ($self, $req, $trailers) = @_;
    my $content = $req->content;
    $content->{state} = 'finished';
    $req->headers->add(@$_) for @{ $trailers || [] };
    $req->headers->content_length($content->progress) if !defined $req->headers->content_length;
    $req->{state} = 'trailers';    # all content is parsed
    $req->parse('');
    return;
}

sub _handle {
    my ($self) = @_;
    $self->{handled} = 1;
    my $tx = $self->{tx};
    if (my $error = $tx->req->error) { $self->{server}->app->log->trace($error->{message}) }
    $self->{server}->emit(request => $tx);
    return if $self->{ended};
    $tx->on(resume => sub { $self->_write });
    $self->_write;
    return;
}

# ---- The response -------------------------------------------------------------------------------

# Sends parts of the response. The application may call this again meanwhile, in a `drain` for instance.
sub _write {
    my ($self) = @_;
    my $tx = $self->{tx};
    return if $self->{writing} || $self->{ended};
    local $self->{writing} = 1;
    while ($tx->{writing} && !$self->{sending} && !$self->{ended}) {
        my $event = $self->{started} ? $self->_body : $self->_start;
        if (!$event) {
            $tx->{writing} = 0;
            last;
        }
        $self->_send($event);
    }
    return;
}

sub _send {
    my ($self, $event) = @_;
    my $type   = $event->{type} = "$self->{prefix}.response.$event->{type}";
    my $is_end = $type =~ /body\z/ && !$event->{more};
    my $future = $self->{send}->($event);
    if ($future->is_ready) {
        $self->_sent($future, $is_end);
        return;
    }
    $self->{sending} = $future->on_ready(sub {
        delete $self->{sending};
        $self->_sent($_[0], $is_end);
        eval { $self->_write; 1 } or return $self->_end($@);
        $self->{stream}->drained if $self->{stream} && !$self->{sending};
    });
    return;
}

sub _sent {
    my ($self, $future, $is_end) = @_;
    return if $self->{ended};
    if ($future->is_failed) {
        $self->{server}->app->log->error('Response failed: ' . ($future->failure)[0]);
        return $self->_end($future->failure);
    }
    $self->_end if $is_end;
    return;
}

sub _start {
    my ($self) = @_;
    $self->{started} = 1;
    $self->{offset}  = 0;
    my $res = $self->{tx}->res;
    $res->get_start_line_chunk(0) if $res->has_subscribers('progress');
    $res->fix_headers;
    my $all = $res->headers->{headers};
    my @headers;

    for my $name (sort keys %$all) {
        next if $FRAMING{$name};
        push @headers, map { [ $name, $_ ] } @{ $all->{$name} };
    }
    return { type => 'start', status => $res->code // 404, headers => \@headers };
}

sub inform {
    my ($self, $status, $headers) = @_;
    return if $self->{started} || $self->{ended} || !$self->{scope}{extensions}{informational};
    my @headers;
    for my $name (sort keys %$headers) {
        my $values = $headers->{$name};
        push @headers, map { [ lc $name, $_ ] } ref $values ? @$values : $values;
    }
    $self->{send}->({ type => 'http.response.informational', status => $status, headers => \@headers });
    return;
}

# The next event of the body; nothing: the application will resume. A body of known length ends with its last
# byte.
sub _body {
    my ($self) = @_;
    my $res = $self->{tx}->res;
    if ($self->{tx}->is_empty) {
        $res->finish;
        return { type => 'body' };
    }
    my $content  = $res->content;
    my $is_whole = !$content->is_dynamic && !$content->is_multipart;
    return $self->_file($content->asset)
        if $is_whole && !$self->{offset} && $content->asset->is_file && $content->asset->size >= FILE_MIN;
    my $chunk = $res->get_body_chunk($self->{offset}) // return;
    return { type => 'body' } if !length $chunk;
    $self->{offset} += length $chunk;
    my $is_last = $is_whole && $self->{offset} >= $content->body_size;
    $res->finish if $is_last;
    return { type => 'body', body => $chunk, more => $is_last ? 0 : 1 };
}

sub _file {
    my ($self, $asset) = @_;
    $self->{tx}->res->finish;
    my ($start, $end) = ($asset->start_range // 0, $asset->end_range // $asset->size - 1);
    return { type => 'body', fh => $asset->handle, offset => $start, length => $end - $start + 1 };
}

# ---- The end ------------------------------------------------------------------------------------

# Ends the exchange. The rest of a large file may still be on its way.
sub gone {
    my ($self, $reason) = @_;
    return           if $self->{ended};
    $self->note_idle if ($reason // '') eq 'idle_timeout';
    $self->_end;
    return;
}

sub _end {
    my ($self, @failure) = @_;
    return if $self->{ended}++;
    my $tx = $self->{tx};
    $tx->unsubscribe('resume');
    my ($sending, $waiting) = delete @{$self}{qw(sending waiting)};
    $waiting->cancel if $waiting && !$waiting->is_ready;
    $self->close_transaction($tx);
    delete $tx->{peregrine};
    $self->forget_stream if $self->{stream};
    my $done = delete $self->{done};
    delete @{$self}{qw(send receive scope read_on)};
    return                if !$done || $done->is_ready;
    $done->fail(@failure) if @failure;
    $done->done           if !@failure;
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Mojo::Server::Peregrine::Exchange - a request of Mojolicious and its response

=head1 DESCRIPTION

For L<Mojo::Server::Peregrine>.

=head1 METHODS

=head2 new

    my $exchange = Mojo::Server::Peregrine::Exchange->new($server, $scope, $receive, $send);

=head2 inform

Sends an interim response.

=head2 gone

The client has left.

=head2 run

Reads the request, has the application answer it, and gives a Future of its end.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
