package MojoOnPeregrine;

# For Mojolicious' own tests, with -MMojoOnPeregrine: the server of Mojo::UserAgent, so that of Test::Mojo, is
# a PAGI::Server in this process, on a loop that waits in its engine. User agents that block run the same
# loop, where the server is.

use strict;
use warnings;

# The server's own work is on the loop, too: a tick is one turn of it, and it never lacks work.
{

    package MojoOnPeregrine::Reactor;
    use Mojo::Base 'Mojo::Reactor::Peregrine';

    sub _tick {
        my ($self) = @_;
        $self->{peregrine_loop}->loop_once;
        return;
    }
}

BEGIN { $ENV{MOJO_REACTOR} = 'MojoOnPeregrine::Reactor' }

use Mojo::Server::Peregrine;
use IO::Async::Loop::Peregrine;
use Mojo::UserAgent;
use Mojo::UserAgent::Server;
use PAGI::Server;

our $VERSION = '0.003000';

my $loop    = IO::Async::Loop::Peregrine->new;
my $reactor = Mojo::IOLoop->singleton->reactor->attach($loop);

# A server for each user agent, until it asks for another by `restart`.
sub port_of {
    my ($self) = @_;
    return $self->{peregrine_port} //= do {
        my $app    = $self->app;
        my $mojo   = Mojo::Server::Peregrine->new(app => $app);
        my $server = PAGI::Server->new(
            app                 => $mojo->to_pagi_app,
            port                => 0,
            quiet               => 1,
            access_log          => undef,
            lifespan_mode       => 'off',
            max_ws_message_size => 262_144,                              # as Mojo::Transaction::WebSocket
            engine              => $ENV{PEREGRINE_ENGINE} || 'inline',
        );
        $loop->add($server);
        $server->listen->get;
        $server->port;
    };
}

sub url_of {
    my ($self) = @_;
    return Mojo::URL->new('http://127.0.0.1:' . port_of($self) . '/');
}

{
    no warnings 'redefine';
    *Mojo::UserAgent::Server::restart = sub { delete $_[0]{peregrine_port} };
    *Mojo::UserAgent::Server::url     = \&url_of;
    *Mojo::UserAgent::Server::nb_url  = \&url_of;
    Mojo::UserAgent->attr(ioloop => sub { Mojo::IOLoop->singleton });
}

1;
