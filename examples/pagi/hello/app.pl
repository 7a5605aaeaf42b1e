# Four small answers: the endpoints that benchmarks of web servers ask for.
#
#     pagi-server examples/pagi/hello/app.pl
#     curl http://127.0.0.1:5000/greet/World
use strict;
use warnings;

use Future::AsyncAwait;
use JSON::PP ();

my $json = JSON::PP->new->utf8->canonical;

my %pages = (
    '/'     => { status => 200, type => 'text/plain',               body => 'Hello, World!' },
    '/html' => { status => 200, type => 'text/html; charset=utf-8', body => <<'HTML' },
<!DOCTYPE html>
<html lang="en">
<head><title>Hello</title></head>
<body><h1>Hello from PAGI!</h1><p>Served by Peregrine.</p></body>
</html>
HTML
);

# The pages that are made for each request.
sub make_page {
    my ($path) = @_;
    if ($path eq '/json') {
        my $body = $json->encode({ message => 'Hello from PAGI!', time => time });
        return { status => 200, type => 'application/json', body => $body };
    }
    if ($path =~ m{\A/greet/([^/]+)\z}) {
        my $body = "Hello, $1!\n";
        utf8::encode($body);
        return { status => 200, type => 'text/plain; charset=utf-8', body => $body };
    }
    return { status => 404, type => 'text/plain', body => "Not found\n" };
}

async sub app {
    my ($scope, $receive, $send) = @_;
    die "Unsupported scope type: $scope->{type}\n" if $scope->{type} ne 'http';

    my $path = $scope->{path};
    my $page = $pages{$path} || make_page($path);
    await $send->({
        type    => 'http.response.start',
        status  => $page->{status},
        headers => [ [ 'content-type', $page->{type} ], [ 'content-length', length $page->{body} ] ],
    });
    await $send->({ type => 'http.response.body', body => $page->{body} });
}

\&app;
