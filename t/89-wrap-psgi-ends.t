# Processes of PAGI::App::WrapPSGI that end when they should not, or cannot be made; applications that change
# how Perl prints.
use strict;
use warnings;

use lib 't/lib';
use Digest::MD5 qw(md5_hex);
use Future::AsyncAwait;
use IO::Async::Loop;
use PAGI::App::WrapPSGI;
use Test::More;
use TestClient qw(get post);
use TestGate;
use TestServer;
use TestTools   qw(content wait_for);
use TestWorkers qw(descriptors);

my @plain = ('Content-Type' => 'text/plain');
my $gate  = TestGate->new;

my %answers = (
    '/pid'    => sub { [ 200, [@plain], [$$] ] },
    '/prints' => sub {
        ($\, $,) = ("end\n", 'comma');
        [ 200, [@plain], ['set'] ];
    },
    '/input' => sub {
        my $input = $_[0]{'psgi.input'};
        local $/;
        return [ 200, [@plain], [ md5_hex(scalar <$input>) ] ];
    },
    '/waits' => sub {
        my ($name) = $_[0]{QUERY_STRING};
        syswrite STDERR, "waits: $$\n";
        $gate->block($name);
        exit 3 if $name eq 'exits';
        return [ 200, [@plain], ['waited'] ];
    },
    '/stuck' => sub {
        syswrite STDERR, "stuck: $$\n";
        select undef, undef, undef, 1 while 1;
    },
    '/endless' => sub { [ 200, [ @plain, 'X-Process' => $$ ], bless {}, 'Endless' ] },
    '/dies'    => sub {
        push @{ $_[0]{'psgix.cleanup.handlers'} }, sub { syswrite STDERR, "cleaned up\n" };
        die "as asked\n";
    },
);
sub Endless::getline { return 'x' x 65_536 }
sub Endless::close   { return }

my $psgi = sub { my ($env) = @_; return $answers{ $env->{PATH_INFO} }->($env) };

# Beside the application, paths that the server's process answers: what is said to /fork=0 counts for it.
my $can_fork = 1;
my $fork     = IO::Async::Loop->can('fork');
{
    no warnings 'redefine';
    *IO::Async::Loop::fork = sub { $can_fork ? $fork->(@_) : die "Cannot fork() - enough\n" };
}

sub server {
    my (%arguments) = @_;
    my @limit       = map { $_ => delete $arguments{$_} } grep { $arguments{$_} } 'shutdown_timeout';
    my $wrapped     = PAGI::App::WrapPSGI->new(psgi_app => $psgi, %arguments)->to_app;
    my $app         = async sub {
        my ($scope, $receive, $send) = @_;
        my $path = $scope->{path} // '';
        return await $wrapped->($scope, $receive, $send) if $path !~ m{\A/fork=([01])\z};
        $can_fork = $1;
        await $send->({ type => 'http.response.start', status => 200 });
        return await $send->({ type => 'http.response.body', body => 'noted' });
    };
    my $server = TestServer->start(app => $app, access_log => undef, max_body_size => '10M', @limit);
    return ($server, $server->port);
}

sub ask {
    my ($port, $path) = @_;
    return TestClient->new($port)->send("GET $path HTTP/1.1\r\nHost: h\r\n\r\n");
}

for my $way ([ workers => 1 ], [ in_process => 1 ]) {
    subtest "an application that sets how Perl prints: $way->[0]" => sub {
        my ($server, $port) = server(@$way);
        is get($port, '/prints')->{body}, 'set', 'it has set it';
        like get($port, '/pid')->{body}, qr/\A\d+\z/, 'the next request is answered';
        my $bytes = join '', map { "line $_ of a body\n" } 1 .. 20_000;
        is post($port, '/input', $bytes)->{body}, md5_hex($bytes), 'a body that is kept in a file is whole';
        is $server->stop,                         0,               'the server stops';
    };
}

subtest 'a process that ends between two requests' => sub {
    my ($server, $port) = server(workers => 1);
    for my $signal (qw(KILL ALRM)) {
        my $pid = get($port, '/pid')->{body};
        ok kill($signal => $pid),           "$signal ends the process";
        ok wait_for(sub { !kill 0, $pid }), '... of which the server knows';
        get($port, '/fork=1');
        like get($port, '/pid')->{body}, qr/\A(?!$pid\z)\d+\z/, 'another one has the next request';
    }
    is $server->stop, 0, 'the server stops';
};

# The server has pieces of its response that nobody has taken, and answers each of them to the process.
subtest 'a process that ends before its client has read all that it has said' => sub {
    my ($server, $port) = server(workers => 1);
    my $client =
        TestClient->new($port, receive_buffer => 65_536)->send("GET /endless HTTP/1.1\r\nHost: h\r\n\r\n");
    my ($pid) = $client->some(10_000) =~ /^X-Process: (\d+)/mi or return fail 'a response';
    ok wait_for(sub { content("/proc/$pid/stat") =~ /\) S / }), 'the process waits';
    ok kill(KILL => $pid),                                      '... and ends';
    ok wait_for(sub { !kill 0, $pid }),                         '... of which the server knows';
    unlike $client->rest // '',      qr/\r\n0\r\n/,         'the response is cut';
    like get($port, '/pid')->{body}, qr/\A(?!$pid\z)\d+\z/, 'another one has the next request';
    is $server->stop, 0, 'the server stops';
};

subtest 'processes that cannot be made' => sub {
    my ($server, $port) = server(workers => 1);
    my $exits = ask($port, '/waits?exits');
    ok $server->wait_for_log(qr/^waits: /m), 'the only process is at work';
    my $waits = ask($port, '/pid');
    is get($port, '/fork=0')->{body}, 'noted', 'there can be no other';
    $gate->open('exits');
    is $exits->response->{status}, 500, 'its request fails when it ends';
    is $waits->response->{status}, 500, '... and the one that has waited';
    my $pipes = sub {
        my %open = descriptors($server->pid);
        return scalar grep { /pipe/ } values %open;
    };
    my $before = $pipes->();
    is get($port, '/pid')->{status}, 500, 'so does each further one' for 1 .. 5;
    cmp_ok $pipes->(), '<=', $before, '... and leaves no pipe';
    get($port, '/fork=1');
    is get($port, '/pid')->{status}, 200, 'requests are answered when there can be one';
    is $server->stop,                0,   'the server stops';
};

# As service managers do.
subtest 'signals to all processes' => sub {
    my ($server, $port) = server(workers => 1);
    my $client = ask($port, '/waits?signals');
    my ($pid) = $server->wait_for_log(qr/^waits: (\d+)/m) or return fail 'a request is at work';
    ok kill($_ => $pid), "SIG$_" for qw(TERM INT QUIT HUP);
    $server->signal('TERM');
    $gate->open('signals');
    is $client->response->{body}, 'waited', 'the request is answered';
    is $server->wait,             0,        'the server stops';
    ok wait_for(sub { !kill 0, $pid }), '... and the process';
};

subtest 'a process that is stuck when the time for the stop is over' => sub {
    my ($server, $port) = server(workers => 1, shutdown_timeout => 1);
    my $client = ask($port, '/stuck');
    my ($pid) = $server->wait_for_log(qr/^stuck: (\d+)/m) or return fail 'a request is at work';
    $server->signal('TERM');
    ok defined $server->wait,           'the server stops';
    ok wait_for(sub { !kill 0, $pid }), '... and so does the process, which hears no signal';
    kill KILL => $pid;
};

subtest 'clients that have gone while they waited' => sub {
    my $pool = PAGI::App::WrapPSGI::Pool->new(app => $psgi, workers => 0, max_waiting => 1);
    my $turn = $pool->_take;
    ok $pool->is_full, 'one waits';
    $turn->cancel;
    ok !$pool->is_full, 'leave room';
};

for my $way ([ workers => 1 ], [ in_process => 1 ]) {
    subtest "an application that dies: $way->[0]" => sub {
        my ($server, $port) = server(@$way);
        is get($port, '/dies')->{status}, 500, 'status 500';
        ok $server->wait_for_log(qr/^cleaned up$/m), 'its cleanup handlers run';
        is $server->stop, 0, 'the server stops';
    };
}

done_testing;
