# The C door stays honest: every examples/c/*.c compiles without a warning against peregrine.h and
# the static library, serves requests, and ends cleanly. Each takes the port as its only argument.
use v5.36;
use IO::Socket::INET;
use POSIX ();
use Test::More;
use Time::HiRes qw(sleep time);

my $DEADLINE = 10;                    # seconds for anything that ought to take milliseconds
my $LIBRARY  = '.peregrine/engine';

my @sources = glob 'examples/c/*.c';
ok @sources > 0, 'there is a C example';
mkdir '.peregrine/c';
for my $source (@sources) {
    my ($name) = $source =~ m{(\w+)\.c\z};
    subtest $source => sub { try_example($source, ".peregrine/c/$name") };
}
done_testing;

sub try_example ($source, $program) {
    my @flags = qw(-std=c11 -D_GNU_SOURCE -O1 -g -Wall -Wextra -Werror);
    is
        system('cc', @flags, '-o', $program, '-Iengine/include', $source,
        "$LIBRARY/lib/libperegrine.a", qw(-lssl -lcrypto -lpthread -lm)),
        0, 'compiles without a warning'
        or return;

    my $port = free_port();
    my $pid  = fork // die "fork: $!";
    if (!$pid) {
        exec $program, $port or POSIX::_exit(127);
    }
    my $socket = connect_to($port);
    ok $socket, 'listens' or do { kill KILL => $pid; waitpid $pid, 0; return };
    like ask($socket, "GET / HTTP/1.1\r\nHost: here\r\n\r\n"), qr{\AHTTP/1\.1 200 }, 'answers';
    like ask($socket, "GET / HTTP/1.1\r\nHost: here\r\n\r\n"), qr{\AHTTP/1\.1 200 },
        'answers again on the same connection';
    my $seen = ask($socket, "GET http://target.example/head HTTP/1.1\r\nA: b\r\nHost: other.example\r\n\r\n");
    is $seen =~ s/.*?\r\n\r\n//sr, "path /head\nhost target.example\nA: b\nHost: target.example\n",
        'an absolute-form target takes the place of Host, and brings no query along';
    $seen = ask(connect_to($port), "GET http://target.example/head?q HTTP/1.0\r\nA: b\r\n\r\n");
    is $seen =~ s/.*?\r\n\r\n//sr, "path /head\nquery q\nhost target.example\nA: b\nhost: target.example\n",
        'HTTP/1.0 without Host gets one';
    like ask($socket, "GET / HTTP/1.1\r\n\r\n"), qr{\AHTTP/1\.1 400 }, 'refuses a request without Host';
    is sysread($socket, my $rest, 1), 0, 'and closes the connection';
    kill TERM => $pid;
    is wait_for($pid), 0, 'ends with status 0 on TERM';
}

sub free_port {
    my $probe = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1) or die "listen: $!";
    return $probe->sockport;
}

sub connect_to ($port) {
    for (my $end = time + $DEADLINE; time < $end; sleep 0.02) {
        my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port);
        return $socket if $socket;
    }
    return;
}

# Sends a request, reads one counted answer.
sub ask ($socket, $request) {
    local $SIG{PIPE} = 'IGNORE';
    local $SIG{ALRM} = sub { die "no answer in $DEADLINE s\n" };
    alarm $DEADLINE;
    my $answer = '';
    eval {
        syswrite $socket, $request;
        until ($answer =~ /\r\n\r\n/) { sysread $socket, $answer, 4096, length $answer or last }
        my ($head, $body) = split /\r\n\r\n/, $answer, 2;
        my ($length) = ($head // '') =~ /^content-length: *(\d+)/mi;
        while (length($body // '') < ($length // 0)) {
            sysread $socket, $body, 4096, length $body or last;
        }
    };
    alarm 0;
    diag $@ if $@;
    return $answer;
}

sub wait_for ($pid) {
    for (my $end = time + $DEADLINE; time < $end; sleep 0.02) {
        return $? if waitpid($pid, POSIX::WNOHANG) == $pid;
    }
    kill KILL => $pid;
    waitpid $pid, 0;
    return 'killed after the deadline';
}
