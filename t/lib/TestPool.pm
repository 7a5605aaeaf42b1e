package TestPool;

# The application of the tests of worker pools, its handlers, and functions that send it requests.

use strict;
use warnings;

use Exporter qw(import);
use JSON::PP ();
use Test::More;
use TestClient  qw(get post);
use TestTools   qw(wait_for);
use TestWorkers qw(write_file);

our @EXPORT_OK = qw(
    application asked begin calls handlers outcomes pool_processes wait_for_stats waits
);

my $json = JSON::PP->new->utf8->canonical->allow_nonref;

# The application's file. The body of a request is a list of calls: [ name, [arguments], timeout ].
sub application {
    return write_file('pool-app.pl', <<'PERL');
use strict;
use warnings;
use Future::AsyncAwait;
use JSON::PP ();
use POSIX ();
use Time::HiRes ();

my $json = JSON::PP->new->utf8->canonical->allow_nonref;
my $state;

async sub lifespan {
    my ($scope, $receive, $send) = @_;
    while (1) {
        my $event = await $receive->();
        if ($event->{type} eq 'lifespan.startup') {
            $scope->{state}{extensions} = $scope->{pagi}{extensions};
            $scope->{state}{called} = await $scope->{'pagi.worker_pool'}->call('echo', args => ['startup']);
        }
        else {
            my $said = await $scope->{'pagi.worker_pool'}->call('echo', args => ['shutdown']);
            warn "in shutdown: $said->[0]\n";
        }
        await $send->({ type => "$event->{type}.complete" });
        return if $event->{type} eq 'lifespan.shutdown';
    }
}

async sub echo {
    my ($scope, $receive, $send) = @_;
    my $pool = $scope->{pagi}{extensions}{worker_pool};
    await $send->({ type => 'websocket.accept' });
    while (1) {
        my $event = await $receive->();
        last if $event->{type} eq 'websocket.disconnect';
        my $text = $event->{text} // '';
        if ($text eq 'pool') { my $said = await $pool->call('echo', args => ['pool']); $text = $said->[0] }
        await $send->({ type => 'websocket.send', text => $text }) if $event->{type} eq 'websocket.receive';
    }
}

async sub body {
    my ($receive) = @_;
    my $body = '';
    while (1) {
        my $event = await $receive->();
        $body .= $event->{body} // '';
        return $json->decode($body) if !$event->{more};
    }
}

# The outcome of a call: `done` and the result, or the kind of the failure and its message.
async sub outcome {
    my ($future) = @_;
    my $result = eval { [ done => await $future ] };
    return $result // [ ($@->details)[0], ref $@->message ? $@->message : "$@" =~ s/ at \S+ line \d+.*//sr ];
}

sub begin {
    my ($pool, $name, $args, $timeout) = @_;
    $args = [ eval $1 ] if !ref $args && ($args // '') =~ /\Aperl (.*)/s;
    return $pool->call($name, args => $args // [], defined $timeout ? (timeout => $timeout) : ());
}

my %DO = (
    '/pid'   => async sub { return $$ },
    '/state' => async sub { return $_[0]{state} },
    '/stats' => async sub { return $_[1]->stats },
    '/calls' => async sub {
        my ($scope, $pool, $calls) = @_;
        my @results;
        for my $call (@$calls) { push @results, await outcome(begin($pool, @$call)) }
        return \@results;
    },
    # The length of a list that is too long for JSON::PP.
    '/count' => async sub {
        my ($scope, $pool, $calls) = @_;
        my $list = await begin($pool, @{ $calls->[0] });
        return scalar @$list;
    },
    # Begins all calls at the same time, in one turn of the loop.
    '/together' => async sub {
        my ($scope, $pool, $calls) = @_;
        my @futures = map { begin($pool, @$_) } @$calls;
        my @results;
        for my $future (@futures) { push @results, await outcome($future) }
        return \@results;
    },
    '/forget' => async sub {
        my ($scope, $pool, $calls) = @_;
        return [ map { scalar(my @nothing = $pool->call_forget($_->[0], args => $_->[1])) } @$calls ];
    },
    '/wrong' => async sub {
        my ($scope, $pool) = @_;
        my @wrong = ([''], [ {} ], [ 'echo', args => 1 ], [ 'echo', arg => [] ]);
        push @wrong, map { [ 'echo', timeout => $_ ] } qw(x -1 inf nan);
        my @results;
        for my $call (@wrong) { push @results, await outcome($pool->call(@$call)) }
        return \@results;
    },
    # Cancels calls when the first one is at a gate, and the others wait. A busy process would prove nothing:
    # it may be at the end of an earlier call, or at a call of another interpreter.
    '/cancel' => async sub {
        my ($scope, $pool, $calls) = @_;
        my @futures = map { begin($pool, @$_) } @$calls;
        my $gate = $calls->[0][1][0];
        await IO::Async::Loop->new->delay_future(after => 0.02) until -e "$gate.reached";
        $_->cancel for @futures;
        return scalar @futures;
    },
    # The application blocks until the time of a call is over.
    '/late' => async sub {
        my ($scope, $pool, $calls) = @_;
        my $future = begin($pool, @{ $calls->[0] });
        select undef, undef, undef, 3;
        return await outcome($future);
    },
    # A call in a process that the application forks.
    '/child' => async sub {
        my ($scope, $pool) = @_;
        my $pid = open(my $out, '-|') // die "fork: $!";
        return readline $out if $pid;
        my $future = $pool->call('echo');
        syswrite STDOUT, $future->is_ready ? $future->failure : 'pending';
        POSIX::_exit(0);
    },
);

async sub {
    my ($scope, $receive, $send) = @_;
    return await lifespan(@_) if $scope->{type} eq 'lifespan';
    return await echo(@_)     if $scope->{type} eq 'websocket';
    my $pool  = $scope->{pagi}{extensions}{worker_pool};
    my $calls = $scope->{method} eq 'POST' ? await body($receive) : undef;
    my $body  = $json->encode(await $DO{ $scope->{path} }->($scope, $pool, $calls));
    my @headers = ([ 'x-process', $$ ], [ 'content-length', length $body ]);
    await $send->({ type => 'http.response.start', status => 200, headers => \@headers });
    await $send->({ type => 'http.response.body', body => $body });
}
PERL
}

# The file of the handlers; `more` is Perl code that adds to %pool.
sub handlers {
    my ($more) = @_;
    return write_file('pool.pl', <<'PERL' . ($more // '') . "\n\\%pool;\n");
use strict;
use warnings;
use Scalar::Util ();

my %pool = (
    init     => sub { return { made => 0, pid => $$ } },
    cleanup  => sub { my ($state) = @_; warn "pool process $state->{pid} cleans up after $state->{made}\n" },
    handlers => {
        echo   => sub { my ($state, @args) = @_; $state->{made}++; return \@args },
        state  => sub { my ($state) = @_; return { %$state, made => ++$state->{made} } },
        kinds   => sub {
            my ($state, @args) = @_;
            return [ map { utf8::is_utf8($_) ? 'text' : 'bytes' } @args ];
        },
        number => sub { my ($state, $n) = @_; return $n + 1 },
        nothing => sub { return },
        length => sub { my ($state, $text) = @_; return length $text },
        large  => sub { my ($state, $n) = @_; return [ map { 'x' x 1000 } 1 .. $n ] },
        sleep  => sub { my ($state, $s) = @_; select undef, undef, undef, $s; return $$ },
        wait   => sub {
            my ($state, $gate) = @_;
            open my $reached, '>', "$gate.reached" or die "$gate.reached: $!\n";
            select undef, undef, undef, 0.02 until -e $gate;
            return $$;
        },
        note   => sub { my ($state, @args) = @_; warn "noted @args\n"; return },
        die    => sub { my ($state, $with) = @_; die $with },
        object => sub { die bless {}, 'Some::Class' },
        code   => sub { return sub { } },
        exit   => sub { exit 3 },
        spin   => sub { while (1) { } },
        grow   => sub { my ($state, $n) = @_; $state->{kept} = 'x' x $n; return $$ },
    },
);
PERL
}

sub asked {
    my ($server, $path, $calls) = @_;
    my $response =
        $calls ? post($server->port, $path, $json->encode($calls)) : get($server->port, $path);
    return $json->decode($response->{body} || 'null');
}

# The outcomes of calls, one after another.
sub calls {
    my ($server, @calls) = @_;
    return @{ asked($server, '/calls', \@calls) };
}

# Sends a request with calls, and does not wait for its response.
sub begin {
    my ($server, $path, @calls) = @_;
    my $client = TestClient->new($server->port);
    my $body   = $json->encode(\@calls);
    $client->send("POST $path HTTP/1.1\r\nHost: h\r\nContent-Length: ${\length $body}\r\n\r\n$body");
    return $client;
}

# The outcomes of the calls of such a request.
sub outcomes {
    my ($client) = @_;
    return map { $_->[0] } @{ $json->decode($client->response->{body}) };
}

# A call that waits at a gate, without a time limit.
sub waits {
    my ($gate) = @_;
    return [ wait => ["$gate->{folder}/open"], 0 ];
}

# Tests whether the pool's statistics become these figures.
sub wait_for_stats {
    my ($server, %wanted) = @_;
    my $stats;
    wait_for(sub {
        $stats = asked($server, '/stats');
        return !grep { $stats->{$_} != $wanted{$_} } keys %wanted;
    });
    is $stats->{$_}, $wanted{$_}, "$_: $wanted{$_}" for sort keys %wanted;
    return;
}

# Processes of the pool among the children of a process.
sub pool_processes {
    my ($pid) = @_;
    return grep { (TestTools::content("/proc/$_/cmdline") // '') =~ /\(pool\)/ } TestWorkers::children($pid);
}

1;
