# PAGI::App::File and PAGI::App::Directory, for PAGI and for PSGI; pagi-server without an application; and
# X-Sendfile.
use strict;
use warnings;

use lib 't/lib';
use Cwd        qw(getcwd);
use File::Path qw(make_path);
use File::Temp ();
use JSON::PP   qw(decode_json);
use OnlyInFull qw(only_in_full);
use PAGI::App::Directory;
use PAGI::App::File;
use PAGI::Middleware::Builder;
use Test::More;
use TestClient qw(exchange get post);
use TestServer;
use TestTools qw(write_old_file);

my $dir = File::Temp->newdir;
make_path("$dir/site/sub", "$dir/site/.git", "$dir/site/htm", "$dir/site/a b");

sub spew {
    my ($name, $text) = @_;
    return write_old_file("$dir/$name", $text);
}

my $large = join '', map { pack 'N', $_ } 1 .. 50_000;
spew('site/sub/index.html',  '<p>sub');
spew('site/htm/index.htm',   '<p>htm');
spew('site/large.bin',       $large);
spew('site/small.txt',       'small');
spew('site/strange.unknown', '?');
spew('site/a b/<x>&".txt',   'named');
spew('site/.git/config',     'secret');
spew('site/style.css',       'plain');
spew('site/style.css.gz',    'zip');
spew('secret',               'secret');
symlink '../secret', "$dir/site/out" or die $!;
symlink '..',        "$dir/site/up"  or die $!;

sub check_files {
    my ($port, $at) = @_;
    my $got = get($port, "$at/small.txt");
    is "$got->{status} $got->{body} $got->{header}{'content-type'}", '200 small text/plain; charset=utf-8',
        'a file';
    is get($port, "$at/small.txt", "If-None-Match: $got->{header}{etag}")->{status}, 304, 'its tag';
    is get($port, "$at/large.bin")->{body}, $large, 'a large one';
    $got = get($port, "$at/large.bin", 'Range: bytes=100000-149999');
    is $got->{status}, 206,                             'a range';
    is $got->{body},   substr($large, 100_000, 50_000), '... with its bytes';
    $got = get($port, "$at/large.bin", 'Range: bytes=0-99999,150000-');
    like $got->{header}{'content-type'}, qr{\Amultipart/byteranges}, 'several ranges';
    ok index($got->{body}, substr $large, 0, 100_000) > 0, '... the first';
    ok index($got->{body}, substr $large, 150_000) > 100_000, '... the second';
    is length $got->{body}, $got->{header}{'content-length'},              '... and the length';
    is get($port, "$at/large.bin", 'Range: bytes=200000-')->{status}, 416, 'a range beyond the end';
    $got = exchange($port, "HEAD $at/large.bin HTTP/1.1\r\nHost: h\r\n\r\n", head => 1);
    is "$got->{status} $got->{header}{'content-length'}",            '200 200000', 'HEAD';
    is get($port, "$at/style.css", 'Accept-Encoding: gzip')->{body}, 'zip',        'a precompressed file';
    is get($port, "$at/htm/")->{body},                '<p>htm',     'a second name of the index';
    is get($port, "$at/sub?x=1")->{header}{location}, './sub/?x=1', 'a folder without its slash';
    is post($port, "$at/small.txt", 'x')->{status},   405,          'another method';
    is get($port, "$at/$_")->{status}, 404, "nothing at $_"
        for qw(none out up/secret .git/config ..%2fsecret small.txt/ %00);
    return;
}

sub check_listing {
    my ($port, $at) = @_;
    my $got = get($port, "$at/");
    is $got->{status}, 200, 'a listing';
    like $got->{body},   qr{<a href="./sub/">sub/</a>},                     '... with folders';
    like $got->{body},   qr{<a href="./large.bin">large.bin</a><td>200000}, '... and files with sizes';
    unlike $got->{body}, qr{\.git|"./out|"./up}, '... without what is hidden, and links';
    like get($port, "$at/a%20b/")->{body}, qr{href="./%3Cx%3E%26%22.txt">&lt;x&gt;&amp;&quot;.txt</a>},
        '... of names that could be markup';
    is get($port, "$at/a%20b/%3Cx%3E%26%22.txt")->{body}, 'named', '... which lead there';
    my $list = decode_json(get($port, "$at/", 'Accept: application/json')->{body});
    my ($file) = grep { $_->{name} eq 'small.txt' } @$list;
    is_deeply [ sort keys %$file ], [qw(is_dir mtime name size)], 'as JSON';
    is "$file->{size} $file->{is_dir}", '5 0', '... with what it is';
    is get($port, "$at/a%20b")->{header}{location}, './a%20b/', 'a listing without its slash';
    is get($port, "$at/up/")->{status},             404,        'no listing behind a link';
    is get($port, "$at/..%2f")->{status},           404,        '... nor above';
    return;
}

my $file   = PAGI::App::File->new(root => "$dir/site");
my $listed = PAGI::App::Directory->new(root => "$dir/site");
my %quiet  = (quiet => 1, access_log => undef);

subtest "PAGI, $_" => sub {
    my $app = builder {
        mount '/files' => $file->to_app;
        mount '/list'  => $listed->to_app;
        mount '/typed' =>
            PAGI::App::File->new(root => "$dir/site", default_type => 'text/strange', handle_ranges => 0)
            ->to_app;
        $file->to_app;
    };
    my $server = TestServer->start(%quiet, app => $app, engine => $_);
    my $port   = $server->port;
    check_files($port, '/files');
    is get($port, '/files/')->{status}, 404, 'no listing';
    check_listing($port, '/list');
    is get($port, '/list')->{header}{location}, './list/', 'the root without its slash';
    is get($port, '/typed/strange.unknown')->{header}{'content-type'}, 'text/strange', 'default_type';
    is get($port, '/typed/small.txt', 'Range: bytes=0-1')->{status}, 200, 'handle_ranges';
    $server->stop;
    }
    for only_in_full('inline'), 'thread';

subtest 'PSGI' => sub {
    my %apps = (files => $file->to_psgi_app, list => $listed->to_psgi_app);
    my $app  = sub {
        my ($env) = @_;
        my ($name, $rest) = $env->{PATH_INFO} =~ m{\A/(\w+)(.*)\z}s;
        return $apps{$name}->({ %$env, SCRIPT_NAME => "/$name", PATH_INFO => $rest });
    };
    my $server = TestServer->start(%quiet, app => $app, psgi => 1);
    check_files($server->port, '/files');
    check_listing($server->port, '/list');
    is get($server->port, '/list')->{header}{location}, './list/', 'the root without its slash';
    $server->stop;
};

subtest 'pagi-server without an application' => sub {
    my $server = TestServer->command('--chdir', "$dir/site", '--no-access-log');
    like $server->log,   qr{serving the files of \Q$dir\E/site$}m,  'says what it serves';
    like $server->log,   qr{listening on http://127\.0\.0\.1:\d+/}, '... and where';
    unlike $server->log, qr/lifespan/, '... and nothing of an application that there is not';
    check_files($server->port, '');
    check_listing($server->port, '');
    $server->stop;
    $server = TestServer->command('--static', "/s=$dir/site", '--no-access-log');
    is get($server->port, '/s/small.txt')->{body}, 'small', 'with --static only that';
    is get($server->port, '/')->{status},          404,     '... and nothing else';
    $server->stop;
    my $apps = File::Temp->newdir;
    open my $out, '>', "$apps/app.psgi" or die $!;
    close $out or die $!;
    my ($status, undef, $said) = TestServer->finish('--check', '--chdir', "$apps");
    is $status, 0, 'a folder with an application in it';
    like $said, qr/clients can read the text of app\.psgi there; 'pagi-server app\.psgi' runs it/,
        '... of which nobody asks for the text';
};

sub named {
    my ($what, $path) = @_;
    return (200, 'report.pdf', 'x-who' => 'me') if $path eq '/relative';
    return (200, "$dir/site/large.bin", 'content-type' => 'x/y', 'content-length' => 0) if $path eq '/large';
    return (404, 'small.txt')     if $path eq '/404';
    return (200, '../secret')     if $path eq '/above';
    return (200, "$dir/secret")   if $path eq '/outside';
    return (200, 'out')           if $path eq '/link';
    return (200, '.git/config')   if $path eq '/dot';
    return (200, 'a b/<x>&".txt') if $path eq '/strange';
    return (200, 'none');
}

sub check_sendfile {
    my ($port) = @_;
    my $got = get($port, '/relative');
    is "$got->{status} $got->{body} $got->{header}{'content-type'} $got->{header}{'x-who'}",
        '200 report application/pdf me', 'a file, with the headers of the application';
    is $got->{header}{'x-sendfile'}, undef, '... but that one';
    is get($port, '/relative', "If-None-Match: $got->{header}{etag}")->{status}, 304,  'a condition';
    is get($port, '/relative', 'Range: bytes=1-2')->{body},                      'ep', 'a range';
    $got = get($port, '/large');
    is $got->{body},                                            $large, 'a large file, by its whole path';
    is $got->{header}{'content-type'},                          'x/y',  "... of the application's type";
    is get($port, '/large', 'Range: bytes=100-199999')->{body}, substr($large, 100), '... a part of it';
    $got = exchange($port, "HEAD /large HTTP/1.1\r\nHost: h\r\n\r\n", head => 1);
    is "$got->{status} $got->{header}{'content-length'}", '200 200000', '... HEAD';
    $got = get($port, '/404', 'Range: bytes=1-2');
    is "$got->{status} $got->{body}", '404 small', 'with another status';
    is get($port, '/dot')->{body},     'secret', 'a hidden file';
    is get($port, '/strange')->{body}, 'named',  'a name that is no URL';
    is get($port, $_)->{status},       500,      "none of ours: $_" for qw(/above /outside);
    is get($port, $_)->{status},       404,      "not there: $_"    for qw(/link /none);
    return;
}

spew('site/report.pdf', 'report');

subtest "X-Sendfile, PAGI, $_" => sub {
    my $app = sub {
        my ($scope, $receive, $send) = @_;
        return Future->fail('no') if $scope->{type} ne 'http';
        my ($status, $path, @headers) = named(pagi => $scope->{path});
        my @pairs = map { [ @headers[ 2 * $_, 2 * $_ + 1 ] ] } 0 .. @headers / 2 - 1;
        my %event = (
            type    => 'http.response.start',
            status  => $status,
            headers => [ [ 'X-Sendfile', $path ], @pairs ]
        );
        my $say = sub { %event = (type => 'http.response.body', @_); return $send->(\%event) };
        return $send->(\%event)->then(sub { $say->(body => 'dropped', more => 1) })
            ->then(sub { $say->(body => '') });
    };
    my $server = TestServer->start(%quiet, app => $app, engine => $_, x_sendfile => "$dir/site");
    check_sendfile($server->port);
    ok $server->wait_for_log(
        qr/X-Sendfile: '\.\.\/secret' is not below .*site, which is what x_sendfile allows/),
        'the log says why';
    $server->stop;
    }
    for only_in_full('inline'), 'thread';

subtest 'X-Sendfile, PAGI, in a scope of an event stream' => sub {
    my $app = sub {
        my ($scope, $receive, $send) = @_;
        return Future->fail('no') if $scope->{type} ne 'sse';
        my @headers = ([ 'X-Sendfile', $scope->{path} eq '/none' ? 'none' : 'large.bin' ]);
        return $send->({ type => 'sse.http.response.start', status => 200, headers => \@headers })
            ->then(sub { $send->({ type => 'sse.http.response.body', body => 'dropped' }) });
    };
    my $server = TestServer->start(%quiet, app => $app, x_sendfile => "$dir/site");
    my @accept = ('Accept: text/event-stream');
    my $got    = get($server->port, '/', @accept);
    is $got->{status},                                 200,    'the response';
    is $got->{body},                                   $large, '... has the file';
    is $got->{header}{'x-sendfile'},                   undef,  '... and not its name';
    is get($server->port, '/none', @accept)->{status}, 404,    'no such file';
    $server->stop;
};

subtest 'X-Sendfile, PSGI' => sub {
    my $app = sub {
        my ($env) = @_;
        my ($status, $path, @headers) = named(psgi => $env->{PATH_INFO});
        my $response = [ $status, [ 'X-Sendfile', $path, @headers ], ['dropped'] ];
        return $response if $path eq 'report.pdf' || $status != 200;
        return sub { $_[0]->($response) }
            if $path ne "$dir/site/large.bin";
        return sub {
            my $writer = $_[0]->([ @{$response}[ 0, 1 ] ]);
            $writer->write('dropped');
            $writer->close;
        };
    };
    my $server = TestServer->start(%quiet, app => $app, psgi => 1, x_sendfile => "$dir/site");
    check_sendfile($server->port);
    $server->stop;
    $server = TestServer->start(%quiet, app => $app, psgi => 1, x_sendfile => "$dir/site/sub/..");
    is get($server->port, '/relative')->{body}, 'report', 'a directory that is named by way of another';
    is get($server->port, '/above')->{status},  500,      '... has no way out either';
    $server->stop;
    $server = TestServer->start(%quiet, app => $app, psgi => 1);
    my $got = get($server->port, '/relative');
    is "$got->{body} $got->{header}{'x-sendfile'}", 'dropped report.pdf', 'without the option it goes on';
    $server->stop;
};

subtest 'arguments that are refused' => sub {
    ok !eval { PAGI::App::File->new(root => "$dir/none") }, 'no directory';
    like $@, qr/there is no directory '.*none'/, '... and says so';
    ok !eval { PAGI::App::Directory->new }, 'no root';
    like $@, qr/root is required/, '... and says so';
    ok !eval { PAGI::App::File->new(root => "$dir", colour => 'red') }, 'an unknown option';
    like $@, qr/there is no option 'colour'/, '... and says so';
};

done_testing;
