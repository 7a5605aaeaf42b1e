# A server that stops while a mount has no interpreter: requests for the mount wait as long as others that are
# in flight, and are refused when the time is over, not cut.
use strict;
use warnings;

use lib 't/lib';
use OnlyInFull qw(only_in_full);
use Peregrine::Server::Stop;
use Test::More;
use TestClient;
use TestGate;
use Peregrine::Threads;
use TestServer;
use TestTools   qw(content patience wait_for);
use TestWorkers qw(directory is_gone stop_master write_file);

my $dir  = directory();
my $site = write_file('site.psgi', "sub { [ 200, [ 'Content-Length' => 4 ], ['site'] ] }\n");

# The workers of the mount wait at a gate before they have loaded it.
sub started {
    my ($gate, @arguments) = @_;
    my $shop = write_file('shop.pl', <<"PERL");
use Future::AsyncAwait;
use lib 't/lib';
use TestGate;
bless({ folder => '$gate->{folder}' }, 'TestGate')->block('load');
async sub {
    my (\$scope, \$receive, \$send) = \@_;
    die "no\n" if \$scope->{type} ne 'http';
    await \$send->({ type => 'http.response.start', status => 200, headers => [] });
    await \$send->({ type => 'http.response.body', body => 'shop' });
}
PERL
    return TestServer->command_of('peregrine', qw(-E production --engine process --no-access-log --workers 1),
        '--mount', "/=$site", '--mount', "/shop=$shop,workers=1,queue_timeout=600", @arguments);
}

my %REQUESTS = (
    'a request'       => "GET /shop HTTP/1.1\r\nHost: h\r\n\r\n",
    'an event stream' => "GET /shop HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n",
    'a request whose body is incomplete' => "POST /shop HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nsome",
    'a WebSocket' => "GET /shop HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        . "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
);

# Connections that this server has, whatever takes its place, with a request each.
sub asked {
    my ($server) = @_;
    my %clients;
    for my $what (sort keys %REQUESTS) {
        my $client = $clients{$what} = TestClient->new($server->port);
        $client->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")->response->{status} == 200 or die 'no site';
        $client->send($REQUESTS{$what});
    }
    return \%clients;
}

for my $signal (qw(TERM QUIT USR2)) {
    subtest $signal => sub {
        my $gate    = TestGate->new;
        my $server  = started($gate, '--shutdown-timeout', 2, '--pid', "$dir/$signal");
        my $clients = asked($server);
        $server->signal($signal);
        for my $what (sort keys %$clients) {
            is(($clients->{$what}->response || {})->{status}, 503, "$what is refused");
            is $clients->{$what}->rest, '', '... and the connection ends';
        }
        ok $server->wait_for_log(qr/refusing requests that still wait for an interpreter \(503\): [34]$/m),
            'the log counts them';
        ok wait_for(sub { is_gone($server->pid) }), 'the server ends';
        $gate->open('load');
        ok stop_master($signal), 'the new one, too' if $signal eq 'USR2';
        $server->stop;
    };
}

subtest 'workers that come in time' => sub {
    my $gate    = TestGate->new;
    my $server  = started($gate, '--shutdown-timeout', 300);
    my $clients = asked($server);
    $server->signal('TERM');
    ok $server->wait_for_log(qr/requests in flight/), 'the server waits for requests in flight';
    $gate->open('load');
    is(($clients->{'a request'}->response || {})->{status}, 200, 'a request is answered');
    $_->close for values %$clients;
    is $server->wait, 0, 'the server ends';
};

# The request that an interpreter is at is cut, as ever: its application may have done something.
for my $engine (qw(process thread)) {
    subtest "workers that are at work: $engine" => sub {
        plan skip_all => 'this Perl has no threads'
            if $engine eq 'thread' && !Peregrine::Threads::are_possible();
        my $gate = TestGate->new;
        my $busy = write_file('busy.psgi', <<"PERL");
use lib 't/lib';
use TestGate;
sub {
    print {*STDERR} "a request is there\n";
    bless({ folder => '$gate->{folder}' }, 'TestGate')->block('answer');
    return [ 200, [ 'Content-Length' => 2 ], ['no'] ];
}
PERL
        my $server =
            TestServer->command_of('peregrine', qw(-E production --no-access-log --workers 1 --engine),
            $engine, '--shutdown-timeout', 2, $busy);
        my @clients = map { TestClient->new($server->port) } 1 .. 4;
        $_->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n") for @clients;
        $server->wait_for_log(qr/a request is there/);
        $server->signal('TERM');
        my @statuses = sort map { ($_->response || {})->{status} // 0 } @clients;
        is_deeply \@statuses, [ 0, 503, 503, 503 ], 'one is cut, and the others are refused';
        $gate->open('answer');
        $server->stop;
    };
}

# Requests that an asynchronous worker has left to processes for handlers wait in a queue of their own.
subtest 'requests that were handed over' => sub {
    my $gate = TestGate->new;
    my $busy = write_file('sync.pl', <<"PERL");
use lib 't/lib';
use Future::AsyncAwait;
use PAGI::Sync qw(sync);
use TestGate;
my \$handler = sync(sub { bless({ folder => '$gate->{folder}' }, 'TestGate')->block('answer') });
my \$count = 0;
async sub {
    my (\$scope, \$receive, \$send) = \@_;
    die "no\n" if \$scope->{type} ne 'http';
    \$count++;
    print {*STDERR} "handed over: \$count\n";
    await \$handler->(\@_);
}
PERL
    # The last request is handed over behind its line in the log: the stop leaves time for that.
    my $server = TestServer->command(
        qw(-E production --no-access-log --workers 1 --engine process),
        qw(--sync-workers 1 --queue-timeout 600 --shutdown-timeout),
        int patience(2), $busy
    );
    my @clients = map { TestClient->new($server->port) } 1 .. 4;
    $_->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n") for @clients;
    ok $server->wait_for_log(qr/handed over: 4/), 'all requests are handed over';
    $server->signal('TERM');
    my @statuses = sort map { ($_->response || {})->{status} // 0 } @clients;
    is_deeply \@statuses, [ 0, 503, 503, 503 ], 'one is cut, and the others are refused';
    $gate->open('answer');
    $server->stop;
};

# Whether the server has read all that a client has sent: neither end has bytes that wait.
sub has_read {
    my ($server, $client) = @_;
    my @ports = map { sprintf '%04X', $_ } $server->port, $client->socket->sockport;
    my $pair  = qr/\S+:$ports[0] \S+:$ports[1]|\S+:$ports[1] \S+:$ports[0]/;
    my @waits = content('/proc/net/tcp') =~ /^ *\d+: $pair \w\w (\w+:\w+) /mg;
    return @waits == 2 && !grep { $_ ne '00000000:00000000' } @waits;
}

# The workers of the mount, or those of the site, die while they load.
for my $row (
    [ 'a mount', '/shop' ],
    only_in_full([ 'the site', '' ]),
    [ 'the site with a template', '', '--preload-app' ]
    )
{
    my ($what, $path, @options) = @$row;
    subtest "no worker of $what can start" => sub {
        my $flag   = "$dir/broken " . $what =~ tr{ }{-}r;
        my $breaks = write_file('breaks.psgi', <<"PERL");
die "no database\n" if -e '$flag';
my \$loaded = \$\$;
sub {
    if (\$_[0]{PATH_INFO} =~ /exit/) {
        kill KILL => \$loaded if \$loaded != \$\$;    # the template
        exit 0;
    }
    return [ 200, [ 'Content-Length' => 4 ], ['here'] ];
}
PERL
        my ($shop, $main) = length $path ? ($breaks, $site) : ($site, $breaks);
        my $server = TestServer->command_of(
            'peregrine',
            qw(-E production --engine process --no-access-log --workers 1),
            @options,
            '--queue-timeout',
            600,
            '--shutdown-timeout',
            600,
            '--mount',
            "/=$main",
            '--mount',
            "/shop=$shop,workers=1,queue_timeout=600"
        );
        my $ask = sub { TestClient->new($server->port)->send("GET $_[0] HTTP/1.1\r\nHost: h\r\n\r\n") };
        ok wait_for(sub { (($ask->("$path/")->response || {})->{body} // '') eq 'here' }), 'it serves';
        open my $out, '>', $flag or die "$flag: $!";
        close $out or die "$flag: $!";
        $ask->("$path/exit")->response;
        my $client = $ask->("$path/");
        ok $server->wait_for_log(qr/failed \d times in a row|no template, and no new workers/),
            'then the next ones cannot start';
        ok wait_for(sub { has_read($server, $client) }), 'the engine has a request';
        $server->signal('TERM');
        is(($client->response || {})->{status}, 503, 'a request is refused long before the time is over');
        is $server->wait, 0, '... and the server ends';
        like $server->log, qr/no worker serves, refusing requests that wait for one \(503\): 1/,
            '... the log tells of it';
    };
}

# The worker dies twice, and the third one takes the request.
subtest 'a pause between two starts of a worker' => sub {
    my $dies = write_file('dies.psgi', <<'PERL');
sub { exit 0 if $_[0]{PATH_INFO} =~ /exit/; return [ 200, [ 'Content-Length' => 4 ], ['here'] ] }
PERL
    my $server = TestServer->command_of(
        'peregrine',
        qw(-E production --engine process --no-access-log --workers 1),
        qw(--queue-timeout 600 --shutdown-timeout 600), $dies
    );
    my $ask = sub { TestClient->new($server->port)->send("GET $_[0] HTTP/1.1\r\nHost: h\r\n\r\n") };
    $ask->('/exit')->response for 1 .. 2;
    my $client = $ask->('/');
    ok $server->wait_for_log(qr/failed 2 times in a row.* starts in 0\.5 s/), 'the next one starts soon';
    $server->signal('TERM');
    is(($client->response || {})->{status}, 200, 'a request waits for it during the stop');
    is $server->wait, 0, '... and the server ends';
};

# An instance of a server without time, whose worker always has a request that waits.
package Instance {
    sub new              { return bless { refusals => 0, cuts => 0, timers => [] }, shift }
    sub log              { return $_[0] }
    sub loop             { return $_[0] }
    sub engine           { return $_[0] }
    sub worker           { return $_[0] }
    sub warn             { return }
    sub connection_count { return 1 }
    sub time_to_stop     { return 0 }
    sub refuse_waiting   { return ++$_[0]{refusals} }
    sub cut              { return ++$_[0]{cuts} }
    sub watch_time       { my ($self, %timer) = @_; push @{ $self->{timers} }, \%timer; return 1 }
    sub unwatch_time     { return }
}

subtest 'no time for the stop' => sub {
    my $instance = Instance->new;
    my $stop     = Peregrine::Server::Stop->new($instance);
    $stop->_cut('Shutdown timeout');
    is $instance->{refusals}, 1, 'requests that wait are refused';
    is $instance->{cuts},     0, '... and not cut at once';
    cmp_ok $instance->{timers}[0]{after}, '>=', 0.05, 'there is time to send that';
    $instance->{timers}[0]{code}->();
    is $instance->{cuts},               1, 'then connections are cut';
    is $instance->{refusals},           1, '... whether further requests wait or not';
    is scalar @{ $instance->{timers} }, 1, '... and no further time passes';
};

done_testing;
