# PSGI applications inside PAGI ones: PAGI::App::WrapPSGI, in processes of its own and in the event loop.
use strict;
use warnings;

use lib 't/lib';
use Digest::MD5 qw(md5_hex);
use Future::AsyncAwait;
use IO::Async::Loop;
use PAGI::App::WrapPSGI;
use Test::More;
use TestClient qw(exchange get post);
use TestGate;
use TestServer;
use TestTools   qw(content wait_for);
use Time::HiRes qw(sleep time);

my @plain = ('Content-Type' => 'text/plain');
my $gate  = TestGate->new;
my $kept;    # the writer of a response

sub lines            { my @lines = @_; return bless \@lines, 'Lines' }
sub Lines::getline   { return shift @{ $_[0] } }
sub Endless::getline { return $_[0]{line} }
sub Endless::close   { return }
sub Lines::close     { warn "body closed\n"; return }

my %answers = (
    '/env' => sub {
        my ($env) = @_;
        return [ 200, [@plain], [ map { "$_=" . ($env->{$_} // 'undef') . "\n" } sort keys %$env ] ];
    },
    '/input' => sub {
        my ($env) = @_;
        my @sums = map {
            seek $env->{'psgi.input'}, 0, 0;
            Digest::MD5->new->addfile($env->{'psgi.input'})->hexdigest
        } 1, 2;
        return [ 200, [@plain], ["@sums $env->{CONTENT_LENGTH}"] ];
    },
    '/sleep' => sub {
        my ($name) = $_[0]{QUERY_STRING};
        warn "sleeps: $name\n";
        $gate->block($name);
        [ 200, [@plain], ['slept'] ];
    },
    '/large'   => sub { [ 200, [@plain], [ ('x' x 100_000) x 30 ] ] },
    '/lines'   => sub { [ 200, [@plain], lines('a', '', 'b', "c\n") ] },
    '/endless' => sub { [ 200, [@plain], bless { line => 'x' x 65_536 }, 'Endless' ] },
    '/file'    => sub { open my $in, '<', 't/89-wrap-psgi.t' or die; [ 200, [@plain], $in ] },
    '/stream'  => sub {
        sub { my $writer = $_[0]->([ 200, [@plain] ]); $writer->write($_) for 'a' .. 'c'; $writer->close }
    },
    '/delayed' => sub {
        sub { $_[0]->([ 201, [ @plain, 'X-A' => 1 ], ['delayed'] ]) }
    },
    '/keeps' => sub {
        sub { $kept = $_[0]->([ 200, [@plain] ]); $kept->write('kept') }
    },
    '/goes-on' => sub { $kept->write('more'); [ 200, [@plain], ['its own'] ] },
    '/dies'    => sub { die "as asked\n" },
    '/half'    => sub {
        sub { $_[0]->([ 200, [@plain] ])->write('half'); die "in the middle\n" }
    },
    '/wide'    => sub { [ 200, [@plain], ["\x{263a}"] ] },
    '/wrong'   => sub { {} },
    '/newline' => sub { [ 200, [ 'X-A' => "a\nb" ], ['x'] ] },
    '/later'   => sub {
        sub {
            my ($respond) = @_;
            IO::Async::Loop->new->watch_time(
                after => 0.05,
                code  => sub { $respond->([ 200, [@plain], ['later'] ]) }
            );
        }
    },
    '/drops' => sub {
        sub { return }
    },
    '/exit'    => sub { exit 3 },
    '/pid'     => sub { [ 200, [@plain], [$$] ] },
    '/leave'   => sub { $_[0]{'psgix.harakiri.commit'} = 1; [ 200, [@plain], [$$] ] },
    '/cleanup' => sub {
        my ($env) = @_;
        push @{ $env->{'psgix.cleanup.handlers'} }, sub { warn "cleaned up\n" };
        return [ 200, [@plain], ['c'] ];
    },
);
my $psgi = sub { my ($env) = @_; return $answers{ $env->{PATH_INFO} }->($env) };

sub kib { my ($server) = @_; return content("/proc/$server->{pid}/status") =~ /^VmRSS:\s+(\d+)/m ? $1 : 0 }

sub server {
    my (%arguments) = @_;
    my $wrapped     = PAGI::App::WrapPSGI->new(psgi_app => $psgi, %arguments)->to_app;
    my $app         = async sub {
        my ($scope, $receive, $send) = @_;
        return await $wrapped->($scope, $receive, $send) if ($scope->{path} // '') ne '/pagi';
        await $send->({ type => 'http.response.start', status => 200 });
        return await $send->({ type => 'http.response.body', body => 'pagi' });
    };
    return TestServer->start(app => $app, access_log => undef, max_body_size => '100M');
}

sub check_all {
    my ($server, %expected) = @_;
    my $port = $server->port;
    my %env  = exchange($port,
        "GET /env?a=%20b HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nX-A: 2\r\nX_B: 3\r\nProxy: p\r\nCookie: c\r\n\r\n")
        ->{body} =~ /^(\S+?)=(.*)$/mg;
    my %wanted = (
        REQUEST_METHOD    => 'GET',
        SCRIPT_NAME       => '',
        PATH_INFO         => '/env',
        REQUEST_URI       => '/env?a=%20b',
        QUERY_STRING      => 'a=%20b',
        SERVER_PORT       => $port,
        SERVER_PROTOCOL   => 'HTTP/1.1',
        REMOTE_ADDR       => '127.0.0.1',
        HTTP_HOST         => 'h',
        HTTP_X_A          => '1, 2',
        HTTP_COOKIE       => 'c',
        'psgi.url_scheme' => 'http',
        'psgi.streaming'  => 1,
        %{ $expected{env} },
    );
    is $env{$_}, $wanted{$_}, $_ for sort keys %wanted;
    ok !exists $env{$_}, "no $_" for qw(HTTP_X_B HTTP_PROXY CONTENT_LENGTH);
    for my $length (0, 10, 70_000, 3_000_000) {
        my $bytes = substr join('', 'a' .. 'z') x (1 + $length / 26), 0, $length;
        my $sum   = md5_hex($bytes);
        is post($port, '/input', $bytes)->{body}, "$sum $sum $length", "$length bytes";
    }
    is md5_hex(get($port, '/large')->{body}), md5_hex('x' x 3_000_000), 'a long list';
    is get($port, '/lines')->{body},          "abc\n",                  'lines of an object';
    ok $server->wait_for_log(qr/^body closed/m), '... which is closed';
    is get($port, '/file')->{body},   content('t/89-wrap-psgi.t'), 'a file';
    is get($port, '/stream')->{body}, 'abc',                       'a writer';
    my $delayed = get($port, '/delayed');
    is "@{$delayed}{qw(status body)} $delayed->{header}{'x-a'}", '201 delayed 1', 'a delayed response';

    for my $path (qw(/dies /wide /wrong /newline /drops)) {
        is get($port, $path)->{status}, 500, "$path: 500";
    }
    ok $server->wait_for_log(qr/died before its response had started: as asked/), '... and the log says why';
    ok !(get($port, '/half') || {})->{complete}, 'a response that dies in the middle is cut';
    is get($port, '/cleanup')->{body}, 'c', 'cleanup handlers';
    ok $server->wait_for_log(qr/^cleaned up/m), '... run';
    is exchange($port, "HEAD /large HTTP/1.1\r\nHost: h\r\n\r\n", head => 1)->{status}, 200, 'HEAD';
    is exchange($port, "GET /lines HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n")->{body},
        "abc\n",
        'a client that wants an event stream';
    is get($port, '/pagi')->{body}, 'pagi', 'the server goes on';
    return;
}

subtest 'in processes' => sub {
    my $server = server(workers => 2);
    my $port   = $server->port;
    check_all($server, env => { 'psgi.multiprocess' => 1, 'psgi.nonblocking' => '', 'psgix.harakiri' => 1 });
    is get($port, '/later')->{status}, 500, 'a response that needs the event loop';
    my @slow = map { TestClient->new($port)->send("GET /sleep?all HTTP/1.1\r\nHost: h\r\n\r\n") } 1 .. 3;
    ok wait_for(sub { 2 == (() = $server->log =~ /^sleeps: all/mg) }), 'all processes sleep';
    is get($port, '/pagi')->{body}, 'pagi', '... and others are served';
    $gate->open('all');
    is $_->response->{body}, 'slept', 'one that slept' for @slow;
    my %pids = map { get($port, '/pid')->{body} => 1 } 1 .. 10;
    cmp_ok scalar(keys %pids), '<=', 2, 'two processes at most';
    is get($port, '/exit')->{status}, 500, 'one that exits';
    is get($port, '/exit')->{status}, 500, '... and another one';
    like get($port, '/pid')->{body}, qr/\A\d+\z/, '... are replaced';
    my $last = get($port, '/leave')->{body};
    ok wait_for(sub { !kill 0, $last }), 'one that wants to go is gone';
    like get($port, '/pid')->{body}, qr/\A(?!$last\z)\d+\z/, '... and replaced';
    my $reads_little =
        TestClient->new($port, receive_buffer => 65_536)->send("GET /endless HTTP/1.1\r\nHost: h\r\n\r\n");
    $reads_little->some(100_000);
    my $before = kib($server);
    sleep 0.5;
    cmp_ok kib($server) - $before, '<', 20_000, 'an application waits for a client that reads little';
    $reads_little->reset;
    my $gone = TestClient->new($port)->send("GET /sleep?all HTTP/1.1\r\nHost: h\r\n\r\n");
    $gone->reset;
    is get($port, '/pid')->{status}, 200, 'a client that goes';
    my @alive = map { get($port, '/pid')->{body} } 1 .. 4;
    is $server->stop, 0, 'the server stops';
    ok wait_for(sub {
        !grep { kill 0, $_ } @alive;
        }),
        '... and no process is left';
};

subtest 'in the event loop' => sub {
    my $server = server(in_process => 1);
    my $port   = $server->port;
    check_all($server, env => { 'psgi.multiprocess' => '', 'psgi.nonblocking' => 1 });
    is get($port, '/later')->{body}, 'later', 'a response that comes later';
    is $server->stop,                0,       'the server stops';
};

subtest 'no room' => sub {
    my $server = server(workers => 1, max_waiting => 1);
    my $port   = $server->port;
    is get($port, '/keeps')->{body},   'kept',    'a writer that the application keeps';
    is get($port, '/goes-on')->{body}, 'its own', '... writes nothing to the next response';
    my @slow = map { TestClient->new($port)->send("GET /sleep?room HTTP/1.1\r\nHost: h\r\n\r\n") } 1, 2;
    ok $server->wait_for_log(qr/^sleeps: room/m), 'the only process sleeps';
    is get($port, '/pid')->{status}, 503, 'requests may wait up to the limit, a further one is refused';
    $gate->open('room');
    is $_->response->{body},         'slept', 'one that has waited' for @slow;
    is get($port, '/pid')->{status}, 200,     '... and there is room again';
    is $server->stop,                0,       'the server stops';
};

subtest 'mistakes' => sub {
    for my $case (
        [ [],                                        qr/psgi_app is required/ ],
        [ [ psgi_app => 1 ],                         qr/psgi_app must be a code reference/ ],
        [ [ psgi_app => $psgi, workers => 0 ],       qr/workers must be a whole number/ ],
        [ [ psgi_app => $psgi, max_waiting => 'x' ], qr/max_waiting must be/ ],
        [ [ psgi_app => $psgi, worker => 1 ], qr/no argument 'worker'; these are: in_process max_waiting/ ],
        )
    {
        my ($arguments, $problem) = @$case;
        ok !eval { PAGI::App::WrapPSGI->new(@$arguments) }, 'refused';
        like $@, $problem, '... and says why';
    }
};

done_testing;
