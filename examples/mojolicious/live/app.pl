# An application of Mojolicious::Lite, as it would be written for Mojolicious' own daemon.
#
#     peregrine examples/mojolicious/live/app.pl
#     curl http://127.0.0.1:5000/later
#     curl -N http://127.0.0.1:5000/count
#
# `./app.pl daemon` serves it, too. Timers and promises run on the server's loop, beside everything else that
# this process does; pieces leave when the client has room for them.
use strict;
use warnings;
use Mojolicious::Lite -signatures;
use Mojo::Promise;

app->log->level('warn');

get '/' => sub ($c) { $c->render(text => "Hello from Mojolicious!\n") };

# Answers when the slower of two promises is kept.
get '/later' => sub ($c) {
    my @parts = map { Mojo::Promise->timer(0.1 * $_ => "part $_") } 1, 2;
    Mojo::Promise->all(@parts)->then(sub (@kept) {
        $c->render(json => [ map { $_->[0] } @kept ]);
    });
};

get '/count' => sub ($c) {
    my $number = 0;
    my $next;
    $next = sub ($c, @) {
        return $c->finish if $number == 5;
        $number++;
        Mojo::IOLoop->timer(0.1 => sub { $c->write_chunk("$number\n" => $next) });
    };
    $c->write_chunk("counting\n" => $next);
};

# Frames, pings and compression are the engine's.
websocket '/shout' => sub ($c) {
    $c->on(message => sub ($c, $text) { $c->send(uc "$text!") });
};

app->start;
