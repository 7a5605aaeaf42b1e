# Code of a worker pool, and an application, that fork a process which comes back from them: the copy ends,
# and has neither the calls nor the state of its parent.
# Not repeated for each PEREGRINE_ENGINE: its servers name their engines.
use strict;
use warnings;

use lib 't/lib';
use Test::More;
use TestClient qw(get);
use TestPool   qw(application calls handlers);
use TestServer;
use TestWorkers qw(write_file);

plan skip_all => 'Linux only' if $^O ne 'linux';

my $app  = application();
my $pool = handlers(<<'PERL');
$pool{handlers}{back} = sub {
    my ($state, $way) = @_;
    my $pid = fork // die "fork: $!\n";
    if (!$pid) { die "the copy dies\n" if $way eq 'dies'; return 'the copy returns' }
    waitpid $pid, 0;
    return "the copy has gone, here is $$";
};
my $init = $pool{init};
$pool{init} = sub { my $pid = fork // die "fork: $!\n"; waitpid $pid, 0 if $pid; return $init->() };
PERL

my @ways = (
    [ 'one process' => () ],
    [ 'workers'     => '--workers', 1 ],
    [ 'process'     => '--workers', 1, '--engine', 'process' ],
);

for my $way (@ways) {
    my ($title, @arguments) = @$way;
    subtest "$title: a forked process comes back" => sub {
        my $server = TestServer->command(@arguments, '--pool-workers', 1, '--worker-pool', $pool, $app);
        for my $how (qw(dies returns)) {
            my ($said) = calls($server, [ back => [$how], 20 ]);
            like $said->[1], qr/\Athe copy has gone, here is \d+\z/,
                "its end is seen, and the call answered ($how)";
        }
        is $server->stop,                                   0, 'the server stops';
        is scalar(() = $server->log =~ /cleans up after/g), 1, 'the state is cleaned up once';
        like $server->log,
            qr/process \d+, which code of the worker pool has forked, returned from it: the copy dies$/m,
            'the log has told of the copies';
    };
}

my $forking = handlers(<<'PERL');
$pool{handlers}{pid} = sub { return $$ };
my $pid = fork // die "fork: $!\n";
waitpid $pid, 0 if $pid;
die "the copy dies\n" if !$pid && $ENV{COPY_DIES};
PERL

for my $way (@ways) {
    my ($title, @arguments) = @$way;
    subtest "$title: a file of a worker pool that forks while it is loaded" => sub {
        for my $dies (0, 1) {
            local $ENV{COPY_DIES} = $dies;
            my $server =
                TestServer->command(@arguments, '--pool-workers', 1, '--worker-pool', $forking, $app);
            my ($said) = calls($server, [ pid => [], 20 ]);
            like $said->[1], qr/\A\d+\z/, 'the pool works';
            my $told =
                  'process (\d+), which the file of the worker pool has forked while it was loaded,'
                . ' returned from that'
                . ($dies ? ': .*the copy dies' : '');
            like $server->log, qr/$told$/m, 'the log has told of the copy';
            is $server->stop, 0, 'the server stops';
        }
    };
}

subtest 'a process for handlers that block loads such a file' => sub {
    local $ENV{COPY_DIES} = 0;
    my $server = TestServer->command(
        @{ $ways[2] }[ 1 .. 4 ],
        qw(--sync-workers 1 --pool-workers 1 --worker-pool),
        $forking, $app
    );
    ok $server->wait_for_log(qr/which code of the worker pool has forked while it was loaded, returned/),
        'the log tells of the copy';
    is $server->stop, 0, 'the server stops';
};

my $forks = write_file('forks.psgi', <<'PERL');
my $pid = fork // die "fork: $!\n";
waitpid $pid, 0 if $pid;
die "the copy dies\n" if !$pid && $ENV{COPY_DIES};
sub { [ 200, [], [ $pid ? 'the application' : 'its copy' ] ] };
PERL

for my $way (
    [],
    [ '--workers', 1 ],
    [ '--engine',  'process', '--workers', 1, '--no-preload-app' ],
    [ '--engine',  'process', '--workers', 1, '--preload-app' ],
    )
{
    subtest "an application that forks while it is loaded: @$way" => sub {
        for my $dies (0, 1) {
            local $ENV{COPY_DIES} = $dies;
            my $server = TestServer->command_of('peregrine', @$way, $forks);
            is get($server->port, '/')->{body}, 'the application', 'it serves';
            my $told = 'process \d+, which the application has forked while it was loaded, returned from that'
                . ($dies ? ': Error loading \S+: the copy dies' : '');
            like $server->log,   qr/$told$/m,             'the log has told of the copy';
            unlike $server->log, qr/the master has gone/, '... and not of the master';
            is $server->stop, 0, 'the server stops';
        }
    };
}

done_testing;
