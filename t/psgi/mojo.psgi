# A small application of Mojolicious.
use strict;
use warnings;
use experimental 'signatures';

use Mojolicious::Lite -signatures;

get '/'       => sub ($c) { $c->render(text => 'Hello ' . ($c->param('name') // '')) };
get '/count'  => sub ($c) { $c->session->{n}++; $c->render(text => $c->session->{n}) };
get '/stream' => sub ($c) {
    $c->write_chunk(
        'a' => sub ($c, @) {
            $c->write_chunk('b' => sub ($c, @) { $c->finish('c') });
        }
    );
};
get '/url' => sub ($c) { $c->render(text => $c->url_for('/x')->to_abs) };
get '/die' => sub { die "the application dies\n" };
post '/upload' =>
    sub ($c) { my $file = $c->param('file'); $c->render(text => $file->size . ' ' . $file->filename) };

app->secrets(['test']);
app->start;
