package Mojolicious::Plugin::Peregrine;

use strict;
use warnings;

use Mojo::Base 'Mojolicious::Plugin';

use Carp qw(croak);
use Mojo::Server::Peregrine::Channels;
use Mojo::Server::Peregrine::Subscription;
use Scalar::Util qw(weaken);

our $VERSION = '0.003000';

sub register {
    my ($self, $app) = @_;
    my $server;
    $app->hook(before_server_start => sub { weaken($server = $_[0]) });
    $app->helper(
        channels => sub {
            return Mojo::Server::Peregrine::Channels->new(_channels_of($server));
        }
    );
    $app->helper(
        subscribe_to => sub {
            my ($c, $topic, $callback) = @_;
            croak 'subscribe_to: needs a topic and a function' if !defined $topic || ref $callback ne 'CODE';
            my $subscription = Mojo::Server::Peregrine::Subscription->new($c, $callback);
            return $subscription->begin(_channels_of($server), $topic);
        }
    );
    return;
}

# The channels of the interpreter; dies without them.
sub _channels_of {
    my ($server) = @_;
    croak 'Mojolicious::Plugin::Peregrine: channels are there where peregrine serves the application'
        if !$server || !$server->isa('Mojo::Server::Peregrine');
    return $server->channels // croak 'Mojolicious::Plugin::Peregrine: the server needs --channels';
}

1;

__END__

=encoding UTF-8

=head1 NAME

Mojolicious::Plugin::Peregrine - messages between the clients of all workers

=head1 SYNOPSIS

    # peregrine --channels --workers 4 chat.pl
    use Mojolicious::Lite -signatures;
    plugin 'Peregrine';

    websocket '/room/:room' => sub ($c) {
        my $topic = 'room.' . $c->param('room');
        $c->subscribe_to($topic => sub ($c, $message) { $c->send({ json => $message }) });
        $c->on(message => sub ($c, $text) {
            $c->channels->publish($topic => { type => 'chat.said', text => $text });
        });
    };

    post '/room/:room' => sub ($c) {
        $c->render_later;
        my $message = { type => 'chat.said', text => $c->param('text') };
        $c->channels->publish('room.' . $c->param('room') => $message)->then(
            sub { $c->render(text => "said\n") },
            sub ($why, @) { $c->render(text => "not said: $why\n", status => 503) },
        );
    };

    app->start;

=head1 DESCRIPTION

Brings the channels of L<PAGI::Server::Channels> to applications of Mojolicious that C<peregrine> serves with
the option C<channels>: a message that one action publishes comes to all clients that have subscribed,
whichever worker they are connected to.

=head1 HELPERS

=head2 channels

    my $promise = $c->channels->publish($topic => $message, %options);
    my $promise = $c->channels->send($channel => $message);
    my $promise = $c->channels->flush;

The methods of L<PAGI::Server::Channels> with these names, with a L<Mojo::Promise> in place of a Future. A
message is a hash reference with a C<type>. A promise is broken with the name of the failure. The helper can
be called from timers and hooks of a worker, too: C<< $app->channels >>. Dies where there are no channels.

=head2 subscribe_to

    my $promise = $c->subscribe_to($topic => sub ($c, $message) { ... });

Calls the function with each message that is published under the topic, until the transaction is over: a
WebSocket, or a response that comes bit by bit (C<write_sse>, C<write_chunk>). The promise is kept when
messages come from then on.

While the client takes nothing, messages wait, 100 of them for each subscription; later messages do not come
to this client. An error of the function is logged.

=head1 METHODS

=head2 register

    $plugin->register($app);

=head1 SEE ALSO

L<Mojo::Server::Peregrine>, L<PAGI::Server::Channels>.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
