# The server of script/bench-thread: `server.pl PORT ENGINE`, with the engine in the loop or on a thread.
use strict;
use warnings;

use Future::AsyncAwait;
use IO::Async::Loop;
use PAGI::Server;
use Time::HiRes qw(sleep);

my ($port, $engine) = @ARGV;
my $large = 'x' x 65536;
my ($server, $asked);

async sub answer {
    my ($send, $body) = @_;
    my @headers = ([ 'content-type', 'text/plain' ]);
    await $send->({ type => 'http.response.start', status => 200, headers => \@headers });
    await $send->({ type => 'http.response.body', body => $body });
    return;
}

# The memory and objects of the process, as text.
sub usage {
    my $stats = $server->{part}->engine->worker->stats;
    open my $status, '<', '/proc/self/status' or die "status: $!";
    my ($kib) = do { local $/ = undef; <$status> =~ /^VmRSS:\s+(\d+)/m };
    close $status;
    my %now = (
        values      => Peregrine::sv_count(),
        descriptors => scalar(() = glob '/proc/self/fd/*'),
        kib         => $kib,
        live        => $server->{part}->engine->worker->trim,
        map { $_ => $stats->{$_} } qw(connections exchanges ledger memory_bytes requests),
    );
    return join ' ', map { "$_=$now{$_}" } sort keys %now;
}

my %handlers = (
    '/'      => async sub { await answer($_[2], 'Hello, World!') },
    '/large' => async sub { await answer($_[2], $large) },
    '/usage' => async sub { await answer($_[2], usage()) },

    # Each hundredth request keeps all others waiting.
    '/sometimes' => async sub {
        sleep 0.05 if ++$asked % 100 == 0;
        await answer($_[2], 'Hello, World!');
    },
    '/later' => async sub {
        my ($scope, $receive, $send) = @_;
        await IO::Async::Loop->new->delay_future(after => 0.02);
        await answer($send, 'Hello, World!');
    },
    '/stream' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->({ type => 'http.response.start', status => 200, headers => [] });
        my $left = 64;
        await $send->({ type => 'http.response.body', body => $large, more => $left }) while $left--;
    },
    '/upload' => async sub {
        my ($scope, $receive, $send) = @_;
        my ($len, $event) = (0);
        do { $event = await $receive->(); $len += length($event->{body} // '') } while $event->{more};
        await answer($send, "took $len");
    },
);

$server = PAGI::Server->new(
    port          => $port,
    engine        => $engine,
    access_log    => undef,
    quiet         => 1,
    health_path   => '/health',
    max_body_size => 100_000_000,
    app           => sub { $_[0]{type} eq 'http' ? $handlers{ $_[0]{path} }->(@_) : die "no\n" },
);
$server->run;
