package Mojo::Server::Peregrine;

use strict;
use warnings;

# Mojo::IOLoop makes its reactor when it is loaded.
BEGIN { $ENV{MOJO_REACTOR} //= 'Mojo::Reactor::Peregrine' if !$INC{'Mojo/IOLoop.pm'} }

use Mojo::Base 'Mojo::Server';

use Carp qw(croak);
use Future;
use IO::Async::Loop;
use Mojo::IOLoop;
use Mojo::Server::Peregrine::Exchange;
use Mojo::Server::Peregrine::Hypnotoad;
use Mojo::Server::Peregrine::Socket;
use Mojo::Server::Peregrine::Transaction;
use PAGI::Server::Channels;
use Scalar::Util qw(refaddr);

our $VERSION = '0.003000';

has inactivity_timeout => sub { $ENV{MOJO_INACTIVITY_TIMEOUT} // 30 };
has ioloop             => sub { Mojo::IOLoop->singleton };
has 'channels';

# Loads the application, and runs nothing: a process that is forked afterwards begins with its lifespan.
sub to_pagi_app {
    my ($self) = @_;
    $self->app;
    return sub { return $self->serve(@_) };
}

sub load {
    my ($self, $file) = @_;
    $self->load_app($file);
    $self->_adopt_hypnotoad;
    return $self->to_pagi_app;
}

sub load_class {
    my ($self, $name) = @_;
    $self->build_app($name);
    $self->_adopt_hypnotoad;
    return $self->to_pagi_app;
}

sub _adopt_hypnotoad {
    my ($self) = @_;
    my %attributes = Mojo::Server::Peregrine::Hypnotoad->attributes($self->app);
    $self->$_($attributes{$_}) for keys %attributes;
    return;
}

sub serve {
    my ($self, $scope, $receive, $send) = @_;
    my $type = $scope->{type};
    return $self->_live(@_[ 1 .. 3 ])      if $type eq 'lifespan';
    return $self->app->config('hypnotoad') if $type eq 'settings';    # the command asks before the start
    $self->begin($scope)                   if ($self->{process} // 0) != $$;
    return Mojo::Server::Peregrine::Exchange->new($self, $scope, $receive, $send)->run
        if $type eq 'http' || $type eq 'sse';
    return Mojo::Server::Peregrine::Socket->new($self, $scope, $receive, $send)->run if $type eq 'websocket';
    die "Unsupported scope type: $type\n";
}

# ---- The life of a process ----------------------------------------------------------------------

sub _live {
    my ($self, $scope, $receive, $send) = @_;
    return $receive->()->then(sub {
        my $has_begun = eval { $self->begin($scope); 1 };
        # As in the daemon, no server starts if the hook dies.
        return $send->({ type => 'lifespan.startup.failed', message => "$@" }) if !$has_begun;
        return $send->({ type => 'lifespan.startup.complete' })->then(sub { return $receive->() })->then(sub {
            $self->end;
            return $send->({ type => 'lifespan.shutdown.complete' });
        });
    });
}

# Servers, by process and address, that share the loop: the last one ends it.
my %serving;

# Begins to serve in a process. The hook comes first, because waits in it run a loop of their own. If it dies,
# nothing has begun.
sub begin {
    my ($self, $scope) = @_;
    my $channels = $scope->{'pagi.channels'};
    $self->channels($channels && PAGI::Server::Channels->new($channels->node));
    $self->app->server($self);
    my $reactor = $self->ioloop->reactor;
    croak 'Mojo::Server::Peregrine: Mojo::IOLoop was loaded before MOJO_REACTOR named'
        . ' Mojo::Reactor::Peregrine, and runs on '
        . ref($reactor)
        if !$reactor->isa('Mojo::Reactor::Peregrine');
    # Several applications of a process share the reactor.
    $reactor->attach(IO::Async::Loop->new, on_stop => sub { kill TERM => $$ }) if !$reactor->is_attached;
    $self->{process} = $$;
    $serving{$$}{ refaddr $self } = 1;
    return;
}

sub end {
    my ($self) = @_;
    delete $serving{$$}{ refaddr $self } or return;
    return if %{ $serving{$$} };
    $self->ioloop->emit('finish');
    $self->ioloop->reactor->detach;
    return;
}

# ---- Requests -----------------------------------------------------------------------------------

# A transaction with the whole request except its body.
sub transaction {
    my ($self, $exchange, $scope) = @_;
    my $tx = $self->build_tx;
    $tx->{peregrine} = $exchange;
    if (ref $tx eq 'Mojo::Transaction::HTTP') { bless $tx, 'Mojo::Server::Peregrine::Transaction' }
    else                                      { $self->_name_connection($tx) }
    if (my $client = $scope->{client}) { $tx->remote_address($client->[0])->remote_port($client->[1]) }
    my $server = $scope->{server};
    $tx->local_address($server->[0])->local_port($server->[1]) if $server && defined $server->[1];
    $tx->res->headers->server('Mojolicious (Perl)');
    my $req = $tx->req;
    $req->method($scope->{method} // 'GET');
    $req->version($scope->{http_version});
    my $headers = $req->headers;

    for my $field (@{ $scope->{headers} }) {
        $headers->add(@$field) if $field->[0] ne 'transfer-encoding';
    }
    _set_url($req->url, $scope);
    my $tls = $scope->{extensions}{tls};
    $req->env({ 'pagi.tls' => $tls }) if $tls;
    # Only the body is left to be parsed.
    $req->{state} = 'content';
    @{ $req->content }{qw(state header_size raw_size)} = ('body', 0, 0);
    return $tx;
}

# A number for names of streams, which are unique in the event loop that a process's applications share.
my $named = 0;

# Names the connection of a transaction whose class is the application's own.
sub _name_connection {
    my ($self, $tx) = @_;
    my $name = 'peregrine-own-' . ++$named;
    $tx->{peregrine}->name_stream($name);
    $tx->connection($name);
    return;
}

sub _set_url {
    my ($url, $scope) = @_;
    my ($path, $query, $root) = @{$scope}{qw(raw_path query_string root_path)};
    my $base = $url->base;
    $base->scheme($scope->{scheme} =~ /\A(?:https|wss)\z/ ? 'https' : 'http');
    if (length($root // '')) {
        $path =~ s{\A\Q$root\E(?=/|\z)}{};
        $base->path->parse("$root/");
    }
    $url->path_query(length $query ? "$path?$query" : $path);
    return;
}

sub run { croak 'Mojo::Server::Peregrine: `peregrine` runs it; to_pagi_app makes it an application of PAGI' }

1;

__END__

=encoding UTF-8

=head1 NAME

Mojo::Server::Peregrine - Mojolicious applications on a Peregrine server, natively

=head1 SYNOPSIS

    peregrine script/my_app
    peregrine -E production --workers 4 --listen :8080 lite_app.pl
    ./lite_app.pl peregrine -l http://*:8080

    # an application of PAGI
    use Mojo::Server::Peregrine;
    Mojo::Server::Peregrine->new->load('script/my_app');

=head1 DESCRIPTION

A server of L<Mojolicious> in place of its daemon: the engine reads requests, frames responses and WebSockets,
and has HTTP/2, TLS, limits and slow clients; the application gets a L<Mojo::Transaction::HTTP> or
L<Mojo::Transaction::WebSocket>. C<render_later>, promises, C<write>, C<write_chunk>, C<write_sse> with their
C<drain>, uploads in memory, in files and by C<on read>, and WebSockets work as with the daemon.

L<Mojo::IOLoop> runs on the server's loop (L<Mojo::Reactor::Peregrine>). This module chooses that reactor if
it is loaded before L<Mojo::IOLoop>; otherwise the environment variable MOJO_REACTOR has to.

L<peregrine> finds a reactor and settings by itself: it recognises scripts of L<Mojolicious> and
L<Mojolicious::Lite>, takes C<MOJO_MODE> for a mode, and reads hypnotoad's settings
(L<Mojo::Server::Peregrine::Hypnotoad>). Placements are those of other applications; workers with
C<--engine thread> are processes, since an event loop cannot be cloned.

t/97-mojo-suite-apps.t runs Mojolicious' own tests about applications and its server. What they see otherwise
is listed there and below.

This module is new: try it with your application before you depend on it.

=head2 Differences from the daemon

=over

=item *

The hook C<before_server_start> runs once in each process that serves, with this server. C<finish> of the loop
comes before the process ends. C<< Mojo::IOLoop->stop >> outside of a nested start is a TERM to the process.

=item *

Connections are the engine's: C<< $tx->connection >> names the exchange, and C<< Mojo::IOLoop->stream >> finds
a L<Mojo::Server::Peregrine::Stream> by that name, which has no handle and neither reads nor writes.
C<< $tx->kept_alive >> is never set.

=item *

A request of HTTP/1.1 without a Host field is answered with 400 (RFC 9112, section 3.2) and not seen by the
application. A response with status 205 has no body (RFC 9110, section 15.3.6).

=item *

C<write> without a Content-Length is chunked for clients of HTTP/1.1, and the connection is kept.

=item *

Messages of WebSockets are compressed and decompressed, pings answered and frames joined by the engine: an
C<on frame> sees one frame for each message, and frames that are sent as arrays can be text, binary or close.
C<< $tx->max_websocket_size >> holds for whole messages: one that is never finished meets the server's
C<max_ws_message_size> alone, which has to be as large as the application's limit.

=item *

C<< $tx->req->env >> has C<pagi.tls>, which L<PAGI::Server::Protocol/The extension tls> describes, on
connections with TLS.

=item *

The C<Connection> field of a response is the engine's, and so is the text behind a status. Other interim
responses than those of C<< $c->tx->early_hints >> there are none.

=item *

C<with_compression> decides as with the daemon, whatever the option C<ws_per_message_deflate> says; messages
of fewer bytes than C<ws_deflate_min_size> go out as they are. A ping that the action sends has the engine
send pings, at the pace of the action's first two.

=back

=head1 ATTRIBUTES

Those of L<Mojo::Server>, and

=head2 inactivity_timeout

Seconds without a byte in either direction after which a response that is still to come, or a WebSocket, is
ended: as with the daemon 30, unless the environment variable MOJO_INACTIVITY_TIMEOUT names another number; 0:
no limit. C<< $c->inactivity_timeout >> changes it for one exchange.

=head2 channels

With the option C<channels> the L<PAGI::Server::Channels> of the interpreter, from C<begin> on. See
L<Mojolicious::Plugin::Peregrine>.

=head2 ioloop

The L<Mojo::IOLoop>: its singleton.

=head1 METHODS

Those of L<Mojo::Server>, and

=head2 to_pagi_app

The application as a code reference, for L<PAGI::Server>.

=head2 load

    my $app = Mojo::Server::Peregrine->new->load($file);

Loads an application from its script, and gives what C<to_pagi_app> does.

=head2 load_class

    my $app = Mojo::Server::Peregrine->new->load_class('MyApp');

The same for the class of an application.

=head2 serve

The application that C<to_pagi_app> returns calls this for each scope.

=head2 begin

=head2 end

The life of a process: the reactor gets the server's loop, and gives it back.

=head2 transaction

A L<Mojo::Transaction::HTTP> for a scope, without a body.

=head2 run

Dies: this is no program.

=head1 SEE ALSO

L<Mojolicious::Plugin::Peregrine>: messages between the clients of all workers.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
