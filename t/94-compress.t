# Responses that the server compresses: `compress`, for PAGI and for PSGI.
use strict;
use warnings;

use lib 't/lib';
use Compress::Raw::Zlib qw(WANT_GZIP_OR_ZLIB Z_BUF_ERROR Z_OK Z_STREAM_END);
use File::Temp          ();
use Future::AsyncAwait;
use IO::Handle ();
use OnlyInFull qw(only_in_full);
use PAGI::Server::Compression::Coder;
use Test::More;
use TestClient qw(exchange get);
use TestServer;
use TestTools qw(content);

my $text   = join '', map { "line $_ of a text that shrinks\n" } 1 .. 2000;
my $long   = join '', map { chr(32 + $_ * $_ % 90) . ($_ % 70 ? '' : "\n") } 1 .. 900_000;
my $random = join '', map { chr int rand 256 } 1 .. 5000;

# Status, type, headers, and pieces of the body.
my %RESPONSES = (
    '/text'   => [ 200, 'text/plain; charset=utf-8', [ ETag => '"tag"', Vary => 'Origin' ], $text ],
    '/long'   => [ 200, 'application/json',          [],                                    $long ],
    '/length' =>
        [ 200, 'text/html', [ 'Content-Length' => length $text, 'Accept-Ranges' => 'bytes' ], $text ],
    '/pieces' => [ 200, 'application/problem+json', [], "first\n", "second\n", "third\n" ],
    '/small'  => [ 200, 'text/plain', [], 'small' ],
    '/random' => [ 200, 'text/plain', [], $random ],
    '/image'  => [ 200, 'image/png',  [], $text ],
    '/events' => [ 200, 'text/event-stream', [], "data: 1\n\n", "data: 2\n\n" ],
    '/coded'  => [ 200, 'text/plain', [ 'Content-Encoding' => 'x-mine' ], $text ],
    '/part'   => [ 206, 'text/plain', [ 'Content-Range' => 'bytes 0-1/9' ], $text ],
    '/kept'   => [ 200, 'text/plain', [ 'Cache-Control' => 'private, no-transform' ], $text ],
    '/login'  => [ 200, 'text/plain', [ 'Set-Cookie' => 'a=b' ], $text ],
    '/error'  => [ 404, 'text/plain', [], $text ],
    '/none'   => [ 204, 'text/plain', [] ],
);

async sub pagi {
    my ($scope, $receive, $send) = @_;
    die "no\n" if $scope->{type} ne 'http';
    my ($status, $type, $headers, @pieces) = @{ $RESPONSES{ $scope->{path} } };
    my @pairs = map { [ @{$headers}[ 2 * $_, 2 * $_ + 1 ] ] } 0 .. @$headers / 2 - 1;
    await $send->({
        type    => 'http.response.start',
        status  => $status,
        headers => [ [ 'content-type' => $type ], @pairs ]
    });
    my $last = pop @pieces // '';
    for my $piece (@pieces) { await $send->({ type => 'http.response.body', body => $piece, more => 1 }) }
    await $send->({ type => 'http.response.body', body => $last });
}

# Answers by path: with a list, a writer, or an object.
sub psgi {
    my ($env) = @_;
    my ($status, $type, $headers, @pieces) = @{ $RESPONSES{ $env->{PATH_INFO} } };
    my @head = ($status, [ 'Content-Type' => $type, @$headers ]);
    return [ @head, [@pieces] ]                   if $env->{QUERY_STRING} eq '' && @pieces < 2;
    return [ @head, tied_handle(@pieces) ]        if $env->{QUERY_STRING} eq 'fileno';
    return [ @head, PiecesOfABody->new(@pieces) ] if $env->{QUERY_STRING} eq 'object';
    return sub {
        my $writer = $_[0]->([@head]);
        $writer->write($_) for @pieces;
        $writer->close                                             if $env->{QUERY_STRING} ne 'drops';
        eval { $writer->write('x'); 1 } or print STDERR "died: $@" if $env->{QUERY_STRING} eq 'late';
    };
}

sub PiecesOfABody::new     { my ($class, @pieces) = @_; return bless [@pieces], $class }
sub PiecesOfABody::getline { return shift @{ $_[0] } }
sub PiecesOfABody::close   { return }

# Tied, with a FILENO that dies, as Tie::Handle's does.
sub DiesOfFileno::TIEHANDLE { my ($class, @pieces) = @_; return bless [@pieces], $class }
sub DiesOfFileno::FILENO    { die "there is no descriptor\n" }
sub DiesOfFileno::READLINE  { return shift @{ $_[0] } }
sub DiesOfFileno::CLOSE     { return 1 }

sub tied_handle {
    my @pieces = @_;
    my $handle = IO::Handle->new;
    tie *$handle, 'DiesOfFileno', @pieces;
    return $handle;
}

sub gunzip {
    my ($bytes) = @_;
    my $inflate = Compress::Raw::Zlib::Inflate->new(-WindowBits => WANT_GZIP_OR_ZLIB);
    my $status  = $inflate->inflate($bytes, my $out);
    return $status == Z_STREAM_END ? $out : "not whole: $status";
}

sub ask { my ($port, $path, @lines) = @_; return get($port, $path, 'Accept-Encoding: gzip', @lines) }

sub check_all {
    my ($port) = @_;
    my $got = ask($port, '/text');
    is $got->{header}{'content-encoding'}, 'gzip', 'text is compressed';
    is gunzip($got->{body}),               $text,  '... and comes out as it was';
    ok length $got->{body} < length($text) / 5, '... shorter';
    is "$got->{header}{etag} $got->{header}{vary}", 'W/"tag" Origin, Accept-Encoding', '... tag and Vary';
    is gunzip(ask($port, '/long')->{body}),         $long,                             'a long body';
    $got = ask($port, '/length');
    is gunzip($got->{body}),            $text, 'a body with its length';
    is $got->{header}{'accept-ranges'}, undef, '... of which no part can be had';
    $got = get($port, '/text');
    is $got->{body},         $text,                     'for a client that says nothing';
    is $got->{header}{vary}, 'Origin, Accept-Encoding', '... with Vary';
    is get($port, '/text', 'Accept-Encoding: gzip;q=0, identity')->{body}, $text,  'for one that declines';
    is ask($port, '/error')->{header}{'content-encoding'},                 'gzip', 'an error page';
    is ask($port, $_)->{header}{'content-encoding'}, undef, "not $_"
        for qw(/small /random /image /events /part /kept /login /none);
    is ask($port, '/random')->{body},                      $random,  'what does not shrink is as it was';
    is ask($port, '/coded')->{header}{'content-encoding'}, 'x-mine', 'what is coded stays as it is';
    is ask($port, '/events')->{body},                      "data: 1\n\ndata: 2\n\n", 'an event stream';
    is ask($port, '/text', $_)->{body}, $text, "not with $_" for 'Cookie: a=b', 'Authorization: Basic eDp5';
    $got = exchange($port, "HEAD /length HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\n\r\n", head => 1);
    is $got->{header}{'content-encoding'}, 'gzip', 'HEAD';
    my %names = map { $_ => 1 } PAGI::Server::Compression::Coder->names;
    is join(' ', sort keys %names), 'br gzip zstd', 'all codings are here';

    for my $name (qw(br zstd gzip)) {
        for my $path ('/text', '/long', '/pieces') {
            my $out = File::Temp->new;
            system(
                qw(curl -sS --max-time 60 --compressed -H),
                "Accept-Encoding: $name",
                '-o', $out->filename, "http://127.0.0.1:$port$path"
                ) == 0
                or diag 'curl failed';
            open my $in, '<:raw', $out->filename or die $!;
            my $body = do { local $/; <$in> };
            my $all  = join '', @{ $RESPONSES{$path} }[ 3 .. $#{ $RESPONSES{$path} } ];
            ok $body eq $all, "$name, $path";
        }
        is get($port, '/text', "Accept-Encoding: *;q=0.1, $name")->{header}{'content-encoding'}, $name,
            "... $name liked best";
    }
    return;
}

my %quiet = (quiet => 1, access_log => undef, compress => 1);

subtest "PAGI, $_" => sub {
    my $server = TestServer->start(%quiet, app => \&pagi, engine => $_);
    check_all($server->port);
    $server->stop;
    }
    for only_in_full('inline'), 'thread';

subtest 'PAGI: each piece arrives when it was sent' => sub {
    my $go;
    my $app = async sub {
        my ($scope, $receive, $send) = @_;
        die "no\n" if $scope->{type} ne 'http';
        if ($scope->{path} eq '/go') {
            $go->done;
            await $send->({ type => 'http.response.start', status => 204 });
            return await $send->({ type => 'http.response.body', body => '' });
        }
        $go = Future->new;
        await $send->({
            type    => 'http.response.start',
            status  => 200,
            headers => [ [ 'content-type', 'text/plain' ] ]
        });
        await $send->({ type => 'http.response.body', body => 'first piece', more => 1 });
        await $go;
        await $send->({ type => 'http.response.body', body => ', the rest' });
    };
    my $server = TestServer->start(%quiet, app => $app);
    my $client = TestClient->new($server->port);
    $client->send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nAccept-Encoding: gzip\r\n\r\n");
    my $inflate = Compress::Raw::Zlib::Inflate->new(-WindowBits => WANT_GZIP_OR_ZLIB, -AppendOutput => 1);
    my ($seen, $out) = ('', '');
    while ($seen !~ /\r\n\r\n[0-9a-f]+\r\n.+\r\n\z/s) { $seen .= $client->some(5) || last }
    my ($chunk) = $seen =~ /\r\n\r\n[0-9a-f]+\r\n(.+)\r\n\z/s;
    my $status = $inflate->inflate($chunk, $out);
    is $out,                                'first piece', 'before the second one was made';
    is get($server->port, '/go')->{status}, 204,           'the application goes on';
    like $client->rest // 'open', qr/open|\r\n0\r\n\r\n\z/, '... to the end';
    $server->stop;
};

# The first body has more bytes than are coded at a time.
subtest 'PAGI: an application that waits for none of its events' => sub {
    my @pieces = ($long, 'then this', ', and the end');
    my $app    = async sub {
        my ($scope, $receive, $send) = @_;
        die "no\n" if $scope->{type} ne 'http';
        my %event = (type => 'http.response.body', more => 1);
        $send->({
            type    => 'http.response.start',
            status  => 200,
            headers => [ [ 'content-type', 'text/plain' ] ]
        });
        for my $piece (@pieces) {
            $event{body} = $piece;
            $send->(\%event);
        }
        my $last = $send->({ type => 'http.response.body', body => '' });
        await $last if $scope->{path} ne '/none';
    };
    for my $engine (qw(inline thread)) {
        my $server = TestServer->start(app => $app, access_log => undef, compress => 1, engine => $engine);
        for my $coding (qw(gzip identity)) {
            my $got  = get($server->port, '/', "Accept-Encoding: $coding");
            my $body = $coding eq 'gzip' ? gunzip($got->{body}) : $got->{body};
            ok $body eq join('', @pieces), "$engine, $coding: the client gets them in their order"
                or diag length($body), ' bytes: ', substr $body, 0, 80;
            $got  = get($server->port, '/none', "Accept-Encoding: $coding") || { body => '' };
            $body = $coding eq 'gzip' ? gunzip($got->{body}) : $got->{body};
            ok $body eq join('', @pieces), '... also of an application that does not wait for the last one';
        }
        is $server->stop, 0, 'the server stops';
        unlike $server->log, qr/lost/, '... and says nothing of lost Futures';
    }
};

subtest 'PAGI: an application that uses one hash for its events' => sub {
    my $app = async sub {
        my ($scope, $receive, $send) = @_;
        die "no\n" if $scope->{type} ne 'http';
        my @headers = ([ 'content-type', 'text/plain' ], [ 'x-sent', 'yes' ]);
        my %event   = (type => 'http.response.start', status => 200, headers => \@headers);
        await $send->(\%event);
        $headers[1][1] = 'no';
        @headers       = ();
        %event         = (type => 'http.response.body', body => $text);
        await $send->(\%event);
    };
    my $server = TestServer->start(%quiet, app => $app);
    for my $coding (qw(gzip identity)) {
        my $got = get($server->port, '/', "Accept-Encoding: $coding") || { body => '', header => {} };
        is $coding eq 'gzip' ? gunzip($got->{body}) : $got->{body}, $text, "$coding: the body";
        is $got->{header}{'x-sent'}, 'yes', '... and the headers, as they were when they were sent';
    }
    $server->stop;
};

# Bytes that the process holds more when an application has sent many small pieces behind a large one.
my $heavy = async sub {
    my ($scope, $receive, $send) = @_;
    die "no\n" if $scope->{type} ne 'http';
    my $held = sub {
        my ($pages) = (split ' ', content('/proc/self/statm'))[1];
        return 4096 * $pages;
    };
    my $body = sub { return $send->({ type => 'http.response.body', body => $_[0], more => 1 }) };
    my @type = ('content-type', 'text/plain');
    await $send->({ type => 'http.response.start', status => 200, headers => [ \@type ] });
    $body->('x' x 3_000_000);
    my $before = $held->();
    $body->("piece $_\n") for 1 .. 20_000;
    my $more = $held->() - $before;
    await $send->({ type => 'http.response.body', body => "$more bytes" });
};

subtest 'PAGI: memory of pieces that wait' => sub {
    plan skip_all => 'Linux only' if $^O ne 'linux';
    my %bytes;
    for my $coding (qw(identity gzip)) {
        my $server = TestServer->start(app => $heavy, access_log => undef, compress => 1);
        my $got    = get($server->port, '/', "Accept-Encoding: $coding");
        my $body   = $coding eq 'gzip' ? gunzip($got->{body}) : $got->{body};
        ($bytes{$coding}) = $body =~ /piece 19999\npiece 20000\n(\d+) bytes\z/;
        ok defined $bytes{$coding}, "$coding: all pieces come";
        $server->stop;
    }
    cmp_ok $bytes{gzip}, '<', 4 * $bytes{identity} + 4_000_000,
        "they take $bytes{gzip} bytes, and $bytes{identity} where nothing is compressed";
};

subtest 'PSGI' => sub {
    my $server = TestServer->start(%quiet, app => \&psgi, psgi => 1);
    my $port   = $server->port;
    check_all($port);
    is gunzip(ask($port, '/text?fileno')->{body}), $text, 'a tied handle whose FILENO dies';
    for my $how (qw(object writer)) {
        is gunzip(ask($port, "/$_?$how")->{body}),
            join('', @{ $RESPONSES{"/$_"} }[ 3 .. $#{ $RESPONSES{"/$_"} } ]), "$how, $_"
            for qw(text long pieces);
    }
    is gunzip(ask($port, '/pieces?drops')->{body}), "first\nsecond\nthird\n", 'a writer that is not closed';
    is gunzip(ask($port, '/pieces?late')->{body}),  "first\nsecond\nthird\n", 'a writer that is closed';
    unlike $server->log, qr/died/, '... takes nothing any more';
    $server->stop;
};

subtest 'with cookies if told' => sub {
    my $server =
        TestServer->start(%quiet, app => \&pagi, compress_authenticated => 1, compress_min_size => 3);
    my $got = ask($server->port, '/login', 'Cookie: a=b');
    is "$got->{header}{'content-encoding'} $got->{header}{'set-cookie'}", 'gzip a=b', 'compressed';
    is ask($server->port, '/small')->{body}, 'small', 'what would get longer is not';
    $server->stop;
    $server = TestServer->start(%quiet, app => \&pagi, compress => 0);
    $got    = ask($server->port, '/text');
    is $got->{header}{'content-encoding'}, undef,    'not unless the option says so';
    is $got->{header}{vary},               'Origin', '... nor Vary';
    $server->stop;
};

done_testing;
