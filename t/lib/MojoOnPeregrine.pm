package MojoOnPeregrine;

# For Mojolicious' own tests, with -MMojoOnPeregrine: the server of Mojo::UserAgent, and thus of Test::Mojo,
# is a PAGI::Server in this process, on a loop that waits in its engine. Test::Mojo runs that loop; other user
# agents that block have a loop of their own, in whose turns the server has its own, too.

use strict;
use warnings;

my $loop;

# A reactor whose tick is one turn of the loop, and which never lacks work, because the server's own work is
# on the loop, too.
{

    package MojoOnPeregrine::Reactor;
    use Mojo::Base 'Mojo::Reactor::Peregrine';

    sub _tick {
        my ($self) = @_;
        $self->{peregrine_loop}->loop_once;
        return;
    }
}

{

    package MojoOnPeregrine::Blocking;
    use Mojo::Base 'Mojo::Reactor::Poll';

    sub one_tick {
        my ($self) = @_;
        local $self->{running} = 1 if !$self->{running};
        $loop->loop_once(0);
        my $limit = $self->timer(0.002 => sub { });
        $self->SUPER::one_tick;
        $self->remove($limit);
        return;
    }
}

BEGIN { $ENV{MOJO_REACTOR} = 'MojoOnPeregrine::Reactor' }

use Mojo::Server::Peregrine;
use IO::Async::Loop::Peregrine;
use Mojo::File qw(path);
use Mojo::UserAgent;
use Mojo::UserAgent::Server;
use PAGI::Server;

our $VERSION = '0.003000';

$loop = IO::Async::Loop::Peregrine->new;
my $reactor = Mojo::IOLoop->singleton->reactor->attach($loop);

# The port of the server for a user agent, which keeps it until it calls `restart`.
sub port_of {
    my ($self, $scheme) = @_;
    return $self->{peregrine_port}{$scheme} //= do {
        my $app    = $self->app;
        my $mojo   = Mojo::Server::Peregrine->new(app => $app);
        my $server = PAGI::Server->new(
            app                 => $mojo->to_pagi_app,
            port                => 0,
            quiet               => 1,
            access_log          => undef,
            lifespan_mode       => 'off',
            max_ws_message_size => 262_144,              # as Mojo::Transaction::WebSocket
            max_ws_frame_size   => 262_144,
            $scheme eq 'https' ? (ssl => certificate()) : (),
            engine => $ENV{PEREGRINE_ENGINE} || 'inline',
        );
        $loop->add($server);
        $server->listen->get;
        $server->port;
    };
}

sub certificate {
    my $folder = path($INC{'Mojo/IOLoop.pm'})->sibling('IOLoop', 'resources');
    return { cert_file => "$folder/server.crt", key_file => "$folder/server.key" };
}

sub url_of {
    my ($self, $scheme) = @_;
    $scheme = $self->{peregrine_scheme} = $scheme // $self->{peregrine_scheme} // 'http';
    return Mojo::URL->new("$scheme://127.0.0.1:" . port_of($self, $scheme) . '/');
}

{
    no warnings 'redefine';
    *Mojo::UserAgent::Server::restart = sub { delete $_[0]{peregrine_port} };
    *Mojo::UserAgent::Server::url     = \&url_of;
    *Mojo::UserAgent::Server::nb_url  = \&url_of;
    Mojo::UserAgent->attr(ioloop => sub { Mojo::IOLoop->new(reactor => MojoOnPeregrine::Blocking->new) });
}

1;
