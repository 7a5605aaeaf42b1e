package Mojo::Server::Peregrine::Connection;

# The common part of a request and a WebSocket: the stream that Mojo::IOLoop shows, and its methods.

use strict;
use warnings;

use Mojo::Server::Peregrine::Stream;

our $VERSION = '0.003000';

# Transactions that are kept after their `finish` died, in one process.
use constant UNFINISHED_MAX => 1000;

# Makes the stream, which Mojo::IOLoop finds by the connection's name until `forget_stream`. Few applications
# ask for it.
sub name_stream {
    my ($self, $name) = @_;
    my $stream = $self->{stream} = Mojo::Server::Peregrine::Stream->new($self);
    $self->{stream_name} = $name;
    $self->{server}->ioloop->{out}{$name}{stream} = $stream;
    return;
}

sub forget_stream {
    my ($self) = @_;
    my $stream = delete $self->{stream} or return;
    delete $self->{server}->ioloop->{out}{ delete $self->{stream_name} };
    $stream->closed;
    return;
}

sub idle_limit {
    my ($self) = @_;
    return $self->{idle_limit} // $self->{server}->inactivity_timeout;
}

sub limit_idle {
    my ($self, @seconds) = @_;
    $self->{idle_limit} = $seconds[0] if @seconds;
    $self->{scope}{'pagi.transport'}->_idle_limit($self->idle_limit) if $self->{scope};
    return;
}

sub note_idle {
    my ($self) = @_;
    $self->{server}->app->log->trace('Inactivity timeout');
    return;
}

sub bytes_waiting {
    my ($self) = @_;
    return $self->{scope} ? $self->{scope}{'pagi.transport'}->buffered_amount : 0;
}

sub is_sending {
    my ($self) = @_;
    return !!$self->{sending};
}

sub pause_reading {
    my ($self) = @_;
    $self->{paused} = 1;
    return;
}

sub read_on {
    my ($self) = @_;
    delete $self->{paused};
    my $read = delete $self->{read_on} or return;
    $read->() if !$self->{ended};
    return;
}

# Closes a transaction. If the application's `finish` dies, code may still use the transaction: as in the
# daemon it is kept for a while, and data that are sent to it are dropped.
sub close_transaction {
    my ($self, $tx) = @_;
    return if eval { $tx->closed; 1 };
    my $server = $self->{server};
    $server->app->log->error("The end of a transaction failed: $@");
    my $kept = $server->{unfinished} //= [];
    push @$kept, $tx;
    shift @$kept if @$kept > UNFINISHED_MAX;
    return;
}

# Cuts the connection, so that the peer sees that the response is incomplete.
sub cut {
    my ($self) = @_;
    return if $self->{ended};
    $self->{scope}{'pagi.transport'}->_cut;
    $self->gone;
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Mojo::Server::Peregrine::Connection - what requests and WebSockets of Mojolicious have in common

=head1 DESCRIPTION

The base class of L<Mojo::Server::Peregrine::Exchange> and L<Mojo::Server::Peregrine::Socket>.

=head1 METHODS

=head2 name_stream

=head2 forget_stream

The L<Mojo::Server::Peregrine::Stream> that L<Mojo::IOLoop> finds by a name.

=head2 idle_limit

=head2 limit_idle

Seconds without a byte in either direction; C<limit_idle> tells the engine.

=head2 note_idle

Logs that they have passed, as the daemon does.

=head2 bytes_waiting

=head2 is_sending

What waits for the client, and whether there is no room for more.

=head2 pause_reading

=head2 read_on

The client waits in between.

=head2 close_transaction

Tells the application of the end, and logs an exception of it.

=head2 cut

Ends it by cutting the connection.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
