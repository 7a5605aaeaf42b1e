# Bad clients, on a small scale: the checks of script/abuse for a short time, and without slowhttptest.
use v5.36;
use lib 't/lib';
use Future::AsyncAwait;
use IO::Select;
use IO::Socket::INET;
use OnlyInFull qw(only_in_full);
use Test::More;
use TestClient;
use TestServer;
use Time::HiRes qw(sleep time);

$ENV{PEREGRINE_BENCH_DEBUG} = 1;    # a build without optimisation, see script/lib/bench.t

plan skip_all => 'left to script/test --all' if !only_in_full(1);

for my $check (qw(garbage bombs certificate)) {
    my $output = `script/abuse --short $check 2>&1`;
    is $? >> 8, 0, "$check: exit status" or diag $output;
    like $output, qr/^all met$/m, '... and verdict';
}

async sub app ($scope, $receive, $send) {
    die "unsupported\n" if $scope->{type} ne 'http';
    await $send->({ type => 'http.response.start', status => 200, headers => [ [ 'content-length', 2 ] ] });
    await $send->({ type => 'http.response.body', body => 'ok' });
    return;
}

subtest 'heads that do not end' => sub {
    local $SIG{PIPE} = 'IGNORE';
    my $server = TestServer->start(app => \&app, header_timeout => 1);
    my $good   = TestClient->new($server->port);
    my $open   = IO::Select->new;
    my %said;
    for (1 .. 200) {
        my $bad = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $server->port)
            or die "connect: $@";
        syswrite $bad, "GET / HTTP/1.1\r\nHost: h\r\n";
        $open->add($bad);
    }
    my ($unanswered, $end) = (0, time + 15);
    while ($open->count && time < $end) {
        syswrite $_, "X: y\r\n" for $open->handles;
        my $got = $good->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")->response;
        $unanswered++ if !$got || $got->{body} ne 'ok';
        for my $bad ($open->can_read(0.1)) {
            next if sysread $bad, $said{$bad}, 4096, length($said{$bad} // '');
            $open->remove($bad);
        }
        sleep 0.1;
    }
    is $open->count,                                            0, 'a line now and then keeps no connection';
    is scalar(grep { $_ !~ m{\AHTTP/1\.1 408 } } values %said), 0, '... each is told so';
    is scalar(keys %said),                                      200, '... all of them';
    is $unanswered,                                             0,   'a good client is answered all the time';
};

done_testing;
