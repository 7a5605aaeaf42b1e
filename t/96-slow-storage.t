# Files on storage that does not answer for a while: whoever asks for them waits, and nobody else. Their file
# system is one of the test's own, which answers a read when it is told to: after the others have been served.
use strict;
use warnings;

use lib 't/lib';
use Certificates ();
use File::Temp   ();
use HeldFiles;
use Future;
use OnlyInFull qw(only_in_full);
use PAGI::Server;
use Test::More;
use TestClient qw(exchange get post);
use TestHTTP2;
use TestServer;
use TestTools qw(patience wait_for write_old_file);

my $large = join '', map { sprintf "%015d\n", $_ } 1 .. 25_000;
my $small = 'small' x 1000;
my $files = HeldFiles->mount({ 'large.bin' => $large, 'small.txt' => $small })
    or plan skip_all => "no file system of our own: $HeldFiles::why";
my $dir   = "$files->{dir}";
my %quiet = (access_log => undef);
my $count = 0;

# A file of which the kernel has nothing yet.
sub large { return 'large.bin-' . ++$count }
sub small { return 'small.txt-' . ++$count }

sub opened { my ($path) = @_; open my $fh, '<:raw', $path or die "$path: $!"; return $fh }

sub pagi {
    my ($scope, $receive, $send) = @_;
    return Future->fail('no') if $scope->{type} ne 'http';
    my ($verb, $name) = $scope->{path} =~ m{\A/(\w+)/?(.*)};
    my %body =
          $verb eq 'file'   ? (file => "$dir/$name")
        : $verb eq 'part'   ? (file => "$dir/$name", offset => 100_000, length => 200_000)
        : $verb eq 'handle' ? (fh => opened("$dir/$name"))
        :                     (body => 'quick');
    return $send->({ type => 'http.response.start', status => 200 })
        ->then(sub { $send->({ type => 'http.response.body', %body }) });
}

sub psgi {
    my ($env) = @_;
    my ($verb, $name) = $env->{PATH_INFO} =~ m{\A/(\w+)/?(.*)};
    my @type = ('Content-Type' => 'application/octet-stream');
    return [ 200, [ @type, 'X-Sendfile' => "$dir/$name" ], [] ] if $verb eq 'send';
    return [ 200, \@type, $verb eq 'handle' ? opened("$dir/$name") : ['quick'] ];
}

# Asks for a file whose storage does not answer, and meanwhile for something else.
sub check_held {
    my ($server, $path, $expected, $says, %client) = @_;
    $files->hold(delete $client{hold} // 'read');
    my $has_length = delete $client{has_length};
    my $client     = TestClient->new($server->port, timeout => patience(60), %client);
    $client->send("GET $path HTTP/1.1\r\nHost: h\r\n\r\n");
    my $held = $files->wait_held;
    ok $held, "$says waits for its storage";
    my $other = TestClient->new($server->port, timeout => patience(60), %client);

    for (1 .. 2) {
        $other->send("GET /quick HTTP/1.1\r\nHost: h\r\n\r\n");
        is(($other->response // {})->{body}, 'quick', '... another client does not');
    }
    cmp_ok $files->held, '>=', $held, '... and it waits yet';
    $files->let_go;
    my $got = $client->response // {};
    ok(($got->{body} // '') eq $expected, '... and gets all of it') or diag length $got->{body};
    is($got->{header}{'content-length'}, length $expected, '... with its length') if $has_length;
    return;
}

my @kinds = qw(inline thread);

for my $engine (@kinds) {
    my %how = (%quiet, engine => $engine);
    subtest "PAGI, $engine" => sub {
        my $server = TestServer->start(%how, app => \&pagi, static => ["/s=$dir"]);
        check_held($server, '/file/' . large(),   $large,                           'a file');
        check_held($server, '/handle/' . large(), $large,                           'a handle');
        check_held($server, '/part/' . large(),   substr($large, 100_000, 200_000), 'a part of a file');
        check_held($server, '/s/' . large(),      $large,                           'a static file');
        $server->stop;
    };
    subtest "PSGI, $engine" => sub {
        my $server = TestServer->start(%how, app => \&psgi, psgi => 1, x_sendfile => $dir);
        check_held($server, '/handle/' . large(), $large, 'a handle');
        check_held($server, '/send/' . large(),   $large, 'X-Sendfile');
        $server->stop;
    };
}

# Applications that use a file on storage that does not answer, by the path of the request.
sub pagi_paths {
    my ($scope, $receive, $send) = @_;
    return pagi(@_) if $scope->{path} !~ m{\A/(unawaited|trailers|missing)/?(.*)};
    my ($verb, $name) = ($1, $2);
    my %body  = (type => 'http.response.body', file => "$dir/$name");
    my %start = (type => 'http.response.start', status => 200, trailers => $verb eq 'trailers');
    return $send->(\%start)->then(sub {
        my $future = $send->(\%body);
        return $future->else(sub {
            my ($error) = @_;
            return $send->({ type => 'http.response.body', body => "failed: $error" });
        }) if $verb eq 'missing';
        return $future->then(
            sub { $send->({ type => 'http.response.trailers', headers => [ [ 'x-last', 'yes' ] ] }) })
            if $verb eq 'trailers';
        $send->({ type => 'http.response.body', body => 'too late' })->retain;
        return Future->done($future->is_ready ? die 'it is ready' : ());
    });
}

# An application's files are not opened where others would have to wait for it.
for my $how (
    only_in_full([ engine => 'inline' ]),
    [ engine => 'thread' ],
    [ engine => 'inline', validate_events => 1 ]
    )
{
    subtest "an application's path, @$how" => sub {
        my $server = TestServer->start(%quiet, @$how, app => \&pagi_paths);
        my $port   = $server->port;
        my %client = (timeout => patience(60));
        for my $kind (qw(lookup open)) {
            check_held(
                $server, '/file/' . small(), $small, "a small file ($kind)",
                hold       => $kind,
                has_length => 1
            );
            check_held(
                $server,
                '/part/' . large(),
                substr($large, 100_000, 200_000),
                "a part of a file ($kind)",
                hold       => $kind,
                has_length => 1
            );
        }
        check_held($server, '/unawaited/' . large(), $large, 'a file that is not awaited', hold => 'open');
        $files->hold('lookup');
        my $client = TestClient->new($port, %client);
        $client->send("GET /missing/none HTTP/1.1\r\nHost: h\r\n\r\n"
                . "GET /trailers/${\small} HTTP/1.1\r\nHost: h\r\nTE: trailers\r\n\r\n");
        ok $files->wait_held, 'what is not there waits';
        is get($port, '/quick')->{body}, 'quick', '... another client does not';
        $files->let_go;
        my $got = $client->response // {};
        like $got->{body}, qr{\Afailed: http\.response\.body: file '\Q$dir\E/none' cannot be opened: \S.*},
            '... and fails as ever';
        like $got->{body}, qr{ at \S*96-slow-storage\.t line \d+\.$}m, '... with the place of the call';
        $got = $client->response // {};
        is $got->{body},                       $small, 'a file is sent with trailers';
        is $got->{trailers}{'x-last'},         'yes',  '... and they are';
        is get($port, "/file/$_")->{complete}, 0,      "no file: '$_'" for '', '../nonexistent';
        $server->stop;
    };
}

my $beside = File::Temp->newdir;
mkdir "$beside/s" or die $!;
write_old_file("$beside/s/other.txt", 'other');

# The application answers with the body that has come.
sub pagi_echo {
    my ($scope, $receive, $send) = @_;
    return Future->fail('no') if $scope->{type} ne 'http';
    return pagi(@_)           if $scope->{path} eq '/quick';
    my $body = '';
    my $read;
    $read = sub {
        return $receive->()->then(sub {
            my ($event) = @_;
            $body .= $event->{body} // '';
            return $read->() if $event->{more};
            undef $read;
            my $text = "app $scope->{method} " . length $body;
            return $send->({ type => 'http.response.start', status => 200 })
                ->then(sub { $send->({ type => 'http.response.body', body => $text }) });
        });
    };
    return $read->();
}

sub psgi_echo {
    my ($env) = @_;
    return psgi($env) if $env->{PATH_INFO} eq '/quick';
    local $/;
    my $body = readline($env->{'psgi.input'}) // '';
    return [ 200, [ 'Content-Type' => 'text/plain' ], [ "app $env->{REQUEST_METHOD} " . length $body ] ];
}

# Not even to look for a file may stop others: for its name, its attributes, to open it.
for my $engine (@kinds) {
    for my $face (qw(PAGI PSGI)) {
        subtest "to find a file, $face, $engine" => sub {
            my @app    = $face eq 'PAGI' ? (app => \&pagi_echo) : (app => \&psgi_echo, psgi => 1);
            my $server = TestServer->start(
                %quiet, @app,
                engine => $engine,
                static => [ "/s=$dir", "/=$beside" ]
            );
            my $port = $server->port;
            for my $kind (qw(lookup getattr open read)) {
                my %hold = (hold => $kind);
                check_held($server, '/s/' . small(), $small, "a small file ($kind)", %hold);
                check_held($server, '/s/' . large(), $large, "a large file ($kind)", %hold);
                check_held($server, '/s/none', 'app GET 0',  'what is not there', %hold) if $kind eq 'lookup';
            }
            check_answers($port);
            $server->stop;
        };
    }
}

subtest 'to find a file, the engine in a process of its own' => sub {
    my $server = TestServer->command(qw(--engine process --workers 1 --no-access-log --static),
        "/s=$dir", 'examples/pagi/echo/app.pl');
    for my $kind (qw(lookup getattr open read)) {
        $files->hold($kind);
        my $client = TestClient->new($server->port, timeout => patience(60));
        $client->send("GET /s/${\large} HTTP/1.1\r\nHost: h\r\n\r\n");
        ok $files->wait_held, "a file waits ($kind)";
        is post($server->port, '/', 'abc')->{body}, 'abc', '... the application answers';
        $files->let_go;
        ok $client->response->{body} eq $large, '... and gets all of it';
    }
    is length post($server->port, '/s/none', 'x' x 300_000)->{body}, 300_000, 'what is not there is its own';
    is $server->stop,                                                0,       'the server stops';
};

# Each answer that a folder of files gives, here by way of a thread.
sub check_answers {
    my ($port) = @_;
    my $path   = '/s/' . large();
    my $got    = get($port, $path);
    my $tag    = $got->{header}{etag};
    ok $got->{body} eq $large, 'whole';
    is get($port, $path, "If-None-Match: $tag")->{status},  304,                  'not again';
    is get($port, $path, 'If-Match: "x"')->{status},        412,                  'only if';
    is get($port, $path, 'Range: bytes=7-11')->{body},      substr($large, 7, 5), 'a few bytes';
    is get($port, $path, 'Range: bytes=400000-')->{status}, 416,                  'behind the end';
    $got = get($port, $path, 'Range: bytes=0-99,200000-399999');
    my ($boundary) = ($got->{header}{'content-type'} // '') =~ m{\Amultipart/byteranges; boundary=(\w+)\z};
    my @parts      = split /\r\n--\Q$boundary\E(?:\r\n|--\r\n)/, "\r\n$got->{body}";
    is scalar @parts, 3, 'several ranges';
    ok substr($parts[1], -100) eq substr($large, 0, 100)
        && substr($parts[2], -200_000) eq substr($large, 200_000),
        '... with their bytes';
    $got = exchange($port, "HEAD $path HTTP/1.1\r\nHost: h\r\n\r\n", head => 1);
    is "$got->{status} $got->{header}{'content-length'}", '200 400000', 'HEAD';
    is post($port, $path, 'x' x 100_000)->{status},       405,          'another method, with a body';
    is get($port, '/s/none')->{body},                 'app GET 0', 'what is not there is the application\'s';
    is post($port, '/s/none', 'x' x 300_000)->{body}, 'app POST 300000', '... with its body';
    is get($port, '/s/other.txt')->{body},            'other',           '... or another folder\'s';
    my $client = TestClient->new($port);
    $client->send(join '', map { "GET /s/$_ HTTP/1.1\r\nHost: h\r\n\r\n" } 'small.txt', 'none', 'small.txt');
    is join(' ', map { length $client->response->{body} } 1 .. 3), '5000 9 5000', 'one behind the other';
    return;
}

subtest 'over TLS' => sub {
    my $certificates = Certificates->new;
    $certificates->authority('ca');
    $certificates->issue('localhost');
    for my $ktls (0, 1) {
        my $server = TestServer->start(
            %quiet,
            app  => \&pagi,
            ktls => $ktls,
            ssl  => { $certificates->pair('localhost') }
        );
        check_held($server, '/file/' . large(), $large, "a file, ktls $ktls", tls => {});
        $server->stop;
    }
};

subtest 'HTTP/2' => sub {
    my $server = TestServer->start(%quiet, app => \&pagi, http2 => 1, static => ["/s=$dir"]);
    # On streams of the same connection the quick response overtakes the others.
    $files->hold('read');
    my $client = TestHTTP2->new($server->port, timeout => patience(60));
    my %stream = map { $_ => $client->request("/$_/" . large()) } qw(file part handle s);
    ok $files->wait_held, 'streams wait for storage';
    is(($client->get('/quick') // {})->{body}, 'quick', 'another one is answered') for 1 .. 2;
    is get($server->port, '/quick')->{body}, 'quick', '... and so is another connection';
    is length($client->stream($stream{$_})->{body} // ''), 0, "... $_ has got nothing yet"
        for sort keys %stream;
    my $leaves = $client->request('/file/' . large());
    $client->reset($leaves);
    ok $client->is_alive, 'one leaves';
    $files->let_go;
    my %part = (part => substr $large, 100_000, 200_000);

    for my $name (sort keys %stream) {
        my $got = $client->response($stream{$name}) // {};
        ok(($got->{body} // '') eq ($part{$name} // $large), "$name is whole") or diag explain $got->{reset};
    }
    $files->hold('lookup');
    %stream = map { $_ => $client->request("/s/$_") } small(), large(), 'none';
    my $gone = $client->request('/s/' . large());
    ok $files->wait_held, 'streams wait for a look into a folder';
    is(($client->get('/quick') // {})->{body}, 'quick', 'another one is answered');
    $client->reset($gone);
    ok $client->is_alive, 'one leaves';
    $files->let_go;
    my %length = map { $_ => length(($client->response($stream{$_}) // {})->{body} // '') } keys %stream;
    is_deeply [ sort { $a <=> $b } values %length ], [ 5, 5000, 400_000 ], 'they get what they asked for'
        or diag explain \%length;
    $server->stop;
};

subtest 'clients that leave' => sub {
    my $server = TestServer->start(%quiet, app => \&pagi);
    my $open   = sub {
        scalar grep { (readlink($_) // '') =~ m{/large\.bin-\d+\z} } glob "/proc/${\$server->pid}/fd/*";
    };
    $files->hold('read');
    my @gone = map { TestClient->new($server->port) } 1 .. 12;
    $_->send("GET /file/${\large} HTTP/1.1\r\nHost: h\r\n\r\n") for @gone;
    ok $files->wait_held,                     'clients wait for storage';
    ok wait_for(sub { $open->() >= 12 }, 60), '... with open files';
    $_->reset for @gone;
    is get($server->port, '/quick')->{body}, 'quick', 'when they leave the server goes on';
    $files->hold('open');
    push @gone, map { TestClient->new($server->port) } 1 .. 12;
    $_->send("GET /file/${\large} HTTP/1.1\r\nHost: h\r\n\r\n") for @gone[ -12 .. -1 ];
    ok wait_for(sub { $files->count('open') > 0 }, 60), 'others wait for their files to be opened';
    $_->reset for @gone[ -12 .. -1 ];
    is get($server->port, '/quick')->{body}, 'quick', '... and leave as well';
    $files->let_go;
    ok wait_for(sub { $open->() == 0 }, 60), '... and closes their files' or diag $open->();
    is get($server->port, '/file/' . large())->{body}, $large, '... and sends them to others';
    $server->stop;
};

subtest 'ends' => sub {
    my $server = TestServer->start(%quiet, app => \&pagi, write_timeout => 1);
    $files->hold('read');
    my $client = TestClient->new($server->port, timeout => patience(60));
    $client->send("GET /file/${\large} HTTP/1.1\r\nHost: h\r\n\r\n");
    my $got = $client->response // {};
    is $got->{complete}, 0, 'storage that does not answer ends a response';
    like $server->wait_for_log(qr/(was not read within.*)/), qr/within write_ms: 400000 bytes are missing/,
        '... with a line';
    is get($server->port, '/quick')->{body}, 'quick', '... and nothing else';
    $files->let_go;
    $server->stop;

    $server = TestServer->start(%quiet, app => \&pagi, write_timeout => 1, static => ["/s=$dir"]);
    $files->hold('lookup');
    $client = TestClient->new($server->port, timeout => patience(60));
    $client->send("GET /s/${\large} HTTP/1.1\r\nHost: h\r\n\r\n");
    is $client->response, undef, 'nor does it keep a request for ever whose file it does not find';
    is get($server->port, '/quick')->{body}, 'quick', '... others go on';
    is $server->stop,                        0, '... and the server stops though a thread does not come back';
    $files->let_go;

    for my $engine (@kinds) {
        $server = TestServer->start(%quiet, app => \&pagi, engine => $engine, shutdown_timeout => 0.2);
        $files->hold('read');
        $client = TestClient->new($server->port, timeout => patience(60));
        $client->send("GET /file/${\large} HTTP/1.1\r\nHost: h\r\n\r\n");
        ok $files->wait_held, "a file is being read, $engine";
        is $server->stop, 0, '... and its server stops without it';
        is(($client->response // {})->{complete}, 0, '... so that its client has a part');
        $files->let_go;
    }
};

subtest 'a fork' => sub {
    my $app = sub {
        my ($scope, $receive, $send) = @_;
        if ($scope->{type} eq 'http' && $scope->{path} eq '/fork') {
            my $pid = fork // die "fork: $!";
            POSIX::_exit(7) if !$pid;
            waitpid $pid, 0;
            return $send->({ type => 'http.response.start', status => 200 })
                ->then(sub { $send->({ type => 'http.response.body', body => 'child: ' . ($? >> 8) }) });
        }
        return pagi(@_);
    };
    my $server = TestServer->start(%quiet, app => $app);
    $files->hold('read');
    my $client = TestClient->new($server->port, timeout => patience(60));
    $client->send("GET /file/${\large} HTTP/1.1\r\nHost: h\r\n\r\n");
    ok $files->wait_held, 'a file is being read';
    is get($server->port, '/fork')->{body}, 'child: 7', '... when the application forks';
    $files->let_go;
    ok $client->response->{body} eq $large, '... and goes on';
    $server->stop;
};

# The child has copies of its parent's data, but not the threads that open files.
subtest 'a fork that ends as a program does' => sub {
    my $app = File::Temp->new(SUFFIX => '.pl');
    print {$app} <<'APP';
use Future::AsyncAwait;
async sub {
    my ($scope, $receive, $send) = @_;
    die "none\n" if $scope->{type} ne 'http';
    my %body = (file => __FILE__);
    if ($scope->{path} eq '/fork') {
        my $pid = fork // die "fork: $!";
        exit 7 if !$pid;
        waitpid $pid, 0;
        %body = (body => "child: $?");
    }
    await $send->({ type => 'http.response.start', status => 200 });
    await $send->({ type => 'http.response.body', %body });
}
APP
    close $app;
    my $server = TestServer->command($app->filename);
    like get($server->port, '/')->{body}, qr/__FILE__/, 'a thread has opened a file';
    is get($server->port, '/fork')->{body}, 'child: ' . (7 << 8), 'a child ends with its status';
    like get($server->port, '/')->{body}, qr/__FILE__/, 'files are sent';
    is $server->stop, 0, 'the server ends well';
};

subtest 'the threshold' => sub {
    my $server = TestServer->start(%quiet, app => \&pagi, sync_file_threshold => 0);
    check_held($server, '/file/' . small(), $small, 'with 0 a small file');
    $server->stop;
};

done_testing;
