# Handlers of signals that an application sets while it is loaded are there in its requests, whichever process
# has loaded it: `alarm` with a function, and children that nobody waits for.
use strict;
use warnings;

use lib 't/lib';
use Test::More;
use TestClient qw(get);
use TestServer;
use TestWorkers qw(write_both);

my ($psgi, $pagi) = write_both('app', <<'PERL');
$SIG{ALRM} = sub { die "late\n" };
$SIG{CHLD} = 'IGNORE';

sub alarm_in {
    my ($seconds) = @_;
    my $in_time = eval { alarm $seconds; select undef, undef, undef, 60; 1 };
    return $in_time ? 'in time' : "$$ $@";
}

# The process that has ended is gone when it is waited for: -1.
sub forked {
    my $pid = fork // die "fork: $!";
    if (!$pid) { require POSIX; POSIX::_exit(0) }
    return waitpid $pid, 0;
}

sub answer {
    my ($path) = @_;
    return $path eq '/alarm' ? alarm_in(1) : $path eq '/fork' ? forked() : $$;
}
PERL

my %WAYS = (
    'prefork'            => [ $pagi, 'pagi-server', '--workers', 1 ],
    'prefork, preloaded' => [ $pagi, 'pagi-server', '--workers', 1, '--preload-app' ],
    'process'            => [ $psgi, 'peregrine',   '--workers', 1, '--engine', 'process' ],
    'process, preloaded' => [ $psgi, 'peregrine',   '--workers', 1, '--engine', 'process', '--preload-app' ],
    'a mount, preloaded' =>
        [ "/=$psgi,workers=1,preload=on", 'peregrine', '--workers', 1, '--engine', 'process', '--mount' ],
);

for my $way (sort keys %WAYS) {
    my ($app, @command) = @{ $WAYS{$way} };
    subtest $way => sub {
        my $server = TestServer->command_of(@command, $app);
        my $port   = $server->port;
        my $pid    = get($port, '/')->{body};
        is get($port, '/alarm')->{body}, "$pid late\n", 'alarm calls the function';
        is get($port, '/fork')->{body},  -1,            'a child that has ended leaves nothing';
        is get($port, '/')->{body},      $pid,          'the process goes on';
        is $server->stop, 0, 'the server stops';
    };
}

# plackup loads the application before there is a server.
subtest 'plackup with workers' => sub {
    my $server = TestServer->spawn(
        $^X,
        (map { "-I$_" } @INC),
        qw(-S plackup -s Peregrine -E production --workers 1 --listen 127.0.0.1:0), $psgi
    );
    my $port = $server->wait_for_log(qr{listening on http://127\.0\.0\.1:(\d+)/}) or die $server->log;
    my $pid  = get($port, '/')->{body};
    is get($port, '/alarm')->{body}, "$pid late\n", 'alarm calls the function';
    is get($port, '/')->{body},      $pid,          'the process goes on';
    is $server->stop, 0, 'the server stops';
};

done_testing;
