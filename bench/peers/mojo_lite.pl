# A small application of Mojolicious::Lite, by any server.
use v5.36;
use Mojolicious::Lite -signatures;

app->log->level('fatal');
get '/'         => sub ($c) { $c->render(text     => "Hello, World!\n") };
get '/json'     => sub ($c) { $c->render(json     => { message => 'Hello, World!' }) };
get '/template' => sub ($c) { $c->render(template => 'table', rows => [ 1 .. 10 ]) };
websocket '/ws' => sub ($c) {
    $c->inactivity_timeout(300);
    $c->on(text => sub ($c, $text) { $c->send({ text => $text }) });
};
app->start;

__DATA__
@@ table.html.ep
% layout 'page', title => 'Hello';
<table>
% for my $row (@$rows) {
  <tr><td><%= $row %></td><td><%= link_to "Row $row" => "/rows/$row" %></td></tr>
% }
</table>
@@ layouts/page.html.ep
<!DOCTYPE html>
<html>
  <head><title><%= title %></title></head>
  <body><%= content %></body>
</html>
