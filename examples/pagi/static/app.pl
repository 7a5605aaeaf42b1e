# Static files: served by the engine, served by an application, and named by one (X-Sendfile).
#
#     script/server examples/pagi/static
#
#     GET /site/               by the engine, no Perl code runs: static in server.conf
#     GET /files/              by an application: listings, behind whatever middleware
#     GET /report?key=sesame   Perl decides who may have it: x-sendfile in server.conf
#
#     curl -i --compressed http://127.0.0.1:5000/site/story.txt
#     curl -i -r 0-19,-20 http://127.0.0.1:5000/files/story.txt
#     curl -i 'http://127.0.0.1:5000/report?key=sesame'
#
# For PSGI: examples/psgi/static/app.psgi.
use strict;
use warnings;
use experimental 'signatures';

use File::Basename qw(dirname);
use Future::AsyncAwait;
use PAGI::App::Directory;
use PAGI::Middleware::Builder;

async sub app ($scope, $receive, $send) {
    die "Unsupported scope type: $scope->{type}\n" if $scope->{type} ne 'http';
    my ($status, $header, $body) = (404, [ 'content-type', 'text/plain' ], "Not found\n");
    if ($scope->{path} eq '/') {
        ($status, $header, $body) = (303, [ 'location', "$scope->{root_path}/site/" ], '');
    }
    elsif ($scope->{path} eq '/report' && $scope->{query_string} eq 'key=sesame') {
        ($status, $header, $body) = (200, [ 'x-sendfile', 'report.txt' ], '');
    }
    elsif ($scope->{path} eq '/report') { ($status, $body) = (403, "Who knows the key may have it\n") }
    await $send->({ type => 'http.response.start', status => $status, headers => [$header] });
    await $send->({ type => 'http.response.body', body => $body });
}

builder {
    mount '/files' => PAGI::App::Directory->new(root => dirname(__FILE__) . '/site')->to_app;
    \&app;
};
