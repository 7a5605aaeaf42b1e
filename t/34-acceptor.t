# Connections at sockets that Perl serves, where the process or the system has no room for them.
use strict;
use warnings;

use lib 't/lib';
use Errno qw(ECONNABORTED EMFILE);

my ($calls, @errors) = (0);

BEGIN {
    *CORE::GLOBAL::accept = sub (*$) {
        $calls++;
        my $error = shift @errors;
        if ($error) { $! = $error; return }
        return CORE::accept($_[0], $_[1]);
    };
}

use IO::Socket::IP ();
use Peregrine::Acceptor;
use Peregrine::Process;
use Test::More;
use TestTools qw(patience);

my $loop   = Peregrine::Process->make_loop;
my $socket = IO::Socket::IP->new(LocalHost => '127.0.0.1', Listen => 100) or die "socket: $@";
my @accepted;
my $acceptor = Peregrine::Acceptor->new(
    loop          => $loop,
    socket        => $socket,
    on_connection => sub { push @accepted, $_[0]; $loop->stop },
);

sub connected {
    return IO::Socket::IP->new(PeerHost => '127.0.0.1', PeerPort => $socket->sockport) // die "connect: $@";
}

# Runs the loop until the next connection.
sub await {
    my $late = $loop->watch_time(after => patience(20), code => sub { $loop->stop });
    $loop->run;
    $loop->unwatch_time($late);
    return scalar @accepted;
}

my @clients = connected();
is await(), 1, 'a connection is accepted';

for my $error (EMFILE, ECONNABORTED) {
    local $! = $error;
    my $before = @accepted;
    $calls  = 0;
    @errors = ($error) x 2;
    push @clients, connected();
    is await(), $before + 1, "a connection is accepted after two failures ($!)";
    is_deeply \@errors, [], '... which have come';
    cmp_ok $calls, '<=', 4, '... and were all';
}

@errors = (EMFILE) x 1000;
push @clients, connected();
my $paused = $loop->watch_time(after => 0.2, code => sub { $loop->stop });
$calls = 0;
$loop->run;
is $calls, 1, 'without room the loop does not try at each turn';

$acceptor->stop;
@errors = ();
$loop->watch_time(after => Peregrine::Acceptor::PAUSE_S + 0.2, code => sub { $loop->stop });
my $before = @accepted;
$loop->run;
is scalar @accepted, $before, 'after its stop nothing is accepted';

done_testing;
