# Under Server::Starter, the program itself: HUP starts a new server on the same socket before the old one
# goes, and no request fails.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use IO::Socket::INET;
use POSIX qw(WNOHANG);
use Test::More;
use TestClient;
use TestServer;
use TestTools   qw(content ended free_port patience program_path wait_for);
use Time::HiRes qw(sleep);

my $starter = program_path('start_server');
plan skip_all => 'needs start_server (Debian: libserver-starter-perl)' if !$starter;

my $dir = File::Temp->newdir;
my $app = "$dir/app.pl";
open my $out, '>', $app or die $!;
print {$out} <<'APP';
use Future::AsyncAwait;
async sub {
    my ($scope, $receive, $send) = @_;
    die "no $scope->{type}\n" if $scope->{type} ne 'http';
    await $send->({ type => 'http.response.start', status => 200 });
    my $body = getppid . " $$ $ENV{SERVER_STARTER_GENERATION}\n";
    await $send->({ type => 'http.response.body', body => $body });
};
APP
close $out or die $!;

# The application's answer on a new connection, or the error in parentheses.
sub ask {
    my ($port) = @_;
    my $client = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port, Timeout => 20)
        or return "($@)";
    print {$client} "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    my $answer = do { local $/; readline $client }
        // '';
    return $answer =~ m{\AHTTP/1\.1 200 .*\r\n\r\n(.+)\z}s ? $1 : "($answer)";
}

# Asks on and on, in a process of its own, until it is told to end; what went wrong is in the file.
sub ask_on {
    my ($port, $file) = @_;
    my $pid = fork // die "fork: $!";
    return $pid if $pid;
    my ($ends, $count, @wrong) = (0, 0);
    local $SIG{TERM} = sub { $ends = 1 };
    while (!$ends) {
        my $said = ask($port);
        push @wrong, $said if $said =~ /\A\(/;
        $count++;
        sleep 0.002;
    }
    open my $told, '>', $file or POSIX::_exit(1);
    print {$told} "$count requests\n@wrong";
    close $told;
    POSIX::_exit(0);
}

for my $workers (0, 2) {
    subtest "$workers workers" => sub {
        my $server = TestServer->spawn(
            $starter,                                '--port=127.0.0.1:0',
            "--status-file=$dir/status$workers",     '--interval=1',
            '--',                                    $^X,
            (map { "-I$_" } @INC),                   'bin/pagi-server',
            '-E',                                    'production',
            '--status',                              '127.0.0.1:' . free_port(),
            $workers ? ('--workers', $workers) : (), $app
        );
        my $port = $server->wait_for_log(qr{listening on http://127\.0\.0\.1:([0-9]+)/});
        ok $port, 'it listens at the socket that it was given' or return;
        like ask($port), qr/ 1\n\z/, 'the first generation answers';
        my $asking = ask_on($port, "$dir/asked$workers");
        my $kept   = TestClient->new($port);
        like $kept->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")->response->{body}, qr/ 1\n\z/,
            'a connection stays';
        $server->signal('HUP');
        # A connection that asks nothing for five seconds after the stop is closed without an answer, and
        # start_server gives the second one a second for its start, which may need more: so this one asks on.
        my ($last, @bodies);
        ok wait_for(sub {
            $last = $kept->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")->response || return 1;
            push @bodies, $last->{body};
            return ($last->{header}{connection} // '') eq 'close';
        }) && $last, 'after HUP the first one answers its connection once more, for the last time';
        ok !(grep { !/ 1\n\z/ } @bodies),                        '... as before';
        ok $server->wait_for_log(qr/SIGTERM: the server stops/), '... because it was told to stop';
        ok wait_for(sub { ask($port) =~ / 2\n\z/ }),             'the second one answers';
        ok wait_for(sub { content("$dir/status$workers") =~ /\A2:\d+\n\z/ }), 'and the first one has gone';
        sleep 0.3;
        kill TERM => $asking;
        is ended($asking, patience(30)), 0, 'whoever asked meanwhile';
        unlike $server->log, qr/in use|failed to start/,
            'the second one has taken the address of the status, too';
        like content("$dir/asked$workers"), qr/\A[1-9]\d* requests\n\z/, 'was answered each time';
        $server->signal('TERM');
        is $server->wait(patience(20)), 0, 'TERM ends all of it';
        ok !IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port), 'no process listens any more';
    };
}

done_testing;
