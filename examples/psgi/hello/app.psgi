# The smallest PSGI application.
#
#     plackup -s Peregrine -E production examples/psgi/hello/app.psgi
#     curl http://127.0.0.1:5000/
use strict;
use warnings;

sub {
    my ($env) = @_;
    return [ 404, [ 'Content-Type' => 'text/plain' ], ["Not found\n"] ] if $env->{PATH_INFO} ne '/';
    return [ 200, [ 'Content-Type' => 'text/plain' ], ['Hello, World!'] ];
};
