# Plack's middleware and applications in front of a small one.
use strict;
use warnings;

use File::Basename qw(dirname);
use Plack::App::Directory;
use Plack::App::File;
use Plack::App::WrapCGI;
use Plack::Builder;
use Plack::Request;

my $here = dirname(__FILE__);

builder {
    enable $_ for qw(ReverseProxy ContentLength ConditionalGET Head Runtime ContentMD5 Chunked);
    enable 'Deflater', content_type => ['text/plain'];
    enable 'Session';
    mount '/files' => Plack::App::File->new(root => $here)->to_app;
    mount '/dir'   => Plack::App::Directory->new(root => $here)->to_app;
    mount '/cgi'   => Plack::App::WrapCGI->new(script => "$here/echo.cgi", execute => 1)->to_app;
    mount '/count' => sub {
        my ($env) = @_;
        return [ 200, [ 'Content-Type' => 'text/plain' ], [ ++$env->{'psgix.session'}{n} ] ];
    };
    mount '/url' =>
        sub { return [ 200, [ 'Content-Type' => 'text/plain' ], [ Plack::Request->new($_[0])->base ] ] };
    mount '/upload' => sub {
        my $file = Plack::Request->new($_[0])->upload('file');
        return [ 200, [ 'Content-Type' => 'text/plain' ], [ $file->size . ' ' . $file->filename ] ];
    };
    mount '/stream' => sub {
        return sub {
            my $writer = $_[0]->([ 200, [ 'Content-Type' => 'text/plain' ] ]);
            $writer->write($_) for qw(a b c);
            $writer->close;
        };
    };
    mount '/die' => sub { die "the application dies\n" };
    mount '/'    => sub {
        return [
            200,
            [ 'Content-Type' => 'text/plain' ],
            [ 'Hello ' . (Plack::Request->new($_[0])->param('name') // '') ]
        ];
    };
};
