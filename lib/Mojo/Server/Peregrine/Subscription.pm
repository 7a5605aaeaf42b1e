package Mojo::Server::Peregrine::Subscription;

# A transaction's subscription to a topic, with its own mailbox, because messages do not name topics.

use strict;
use warnings;

use Mojo::IOLoop;
use Mojo::Server::Peregrine::Channels;
use PAGI::Server::Channels;
use Peregrine::Later qw(weakly);

our $VERSION = '0.003000';

sub new {
    my ($class, $c, $callback) = @_;
    return bless { c => $c, callback => $callback }, $class;
}

# Begins the subscription, which the mailbox keeps until the transaction is over.
sub begin {
    my ($self, $channels, $topic) = @_;
    my $node = $self->{node} = $channels->node;
    ($self->{mailbox}, my $name) = $node->open_mailbox(sub { $self->_hear });
    $self->{topic} = $topic;
    my $end = weakly($self, '_end');
    $self->{c}->tx->on(finish => sub { $end->() });
    my $subscribed = PAGI::Server::Channels->new($node, $self->{mailbox}, $name)->subscribe($topic);
    $self->_hear;    # the mailbox calls only after it was found empty
    return Mojo::Server::Peregrine::Channels::promise_of($subscribed);
}

# Passes messages on. Those for which the client has no room wait in the mailbox, which has a limit.
sub _hear {
    my ($self) = @_;
    return if $self->{waits};
    while (defined $self->{mailbox}) {
        return $self->_wait if $self->_is_full;
        my $message = $self->{node}->take($self->{mailbox}) or return;
        my $c       = $self->{c};
        eval { $self->{callback}->($c, $message); 1 }
            or $c->app->log->error("A subscriber of $self->{topic} failed: $@");
    }
    return;
}

sub _is_full {
    my ($self) = @_;
    my $exchange = $self->_exchange or return 0;
    return $exchange->is_sending;
}

sub _exchange {
    my ($self) = @_;
    return $self->{c}->tx->{peregrine};
}

sub _wait {
    my ($self) = @_;
    $self->{waits} = 1;
    my $stream = Mojo::IOLoop->stream($self->{c}->tx->connection) or return;
    my $go_on  = weakly($self, '_go_on');
    $stream->once(drain => sub { $go_on->() });
    return;
}

sub _go_on {
    my ($self) = @_;
    delete $self->{waits};
    return $self->_hear;
}

sub _end {
    my ($self)  = @_;
    my $mailbox = delete $self->{mailbox} // return;
    my $node    = delete $self->{node};
    delete @{$self}{qw(c callback)};
    $node->close_mailbox($mailbox);
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Mojo::Server::Peregrine::Subscription - a topic that a client of Mojolicious hears

=head1 DESCRIPTION

For the helper C<subscribe_to> of L<Mojolicious::Plugin::Peregrine>.

=head1 METHODS

=head2 new

    my $subscription = Mojo::Server::Peregrine::Subscription->new($c, $callback);

=head2 begin

    my $promise = $subscription->begin($channels, $topic);

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
