# Counts of topics in the status, wherever they are delivered: entries and bytes in and out, readers, the lag
# of the slowest, resets, connections without interpreter; and a hub that does not answer.
# Not repeated for each PEREGRINE_ENGINE: its servers name their engines.
use strict;
use warnings;

use lib 't/lib';
use JSON::PP   ();
use OnlyInFull qw(only_in_full);
use Test::More;
use TestClient qw(get);
use TestServer;
use TestStream;
use TestTools   qw(content free_port wait_for);
use TestWorkers qw(children is_gone write_file);

plan skip_all => 'Linux only' if $^O ne 'linux';

my $app = write_file('counts.pl', <<'PERL');
use Future::AsyncAwait;
async sub {
    my ($scope, $receive, $send) = @_;
    die "no lifespan\n" if $scope->{type} eq 'lifespan';
    if ($scope->{type} eq 'sse') {
        my ($since) = map { $_->[1] } grep { $_->[0] eq 'last-event-id' } @{ $scope->{headers} };
        await $send->({ type => 'sse.start' });
        await $send->({ type => 'topic.subscribe', topic => 'news', since => $since });
        await $send->({ type => 'sse.send', data => "by $$" });
        while ((await $receive->())->{type} ne 'sse.disconnect') { }
        return;
    }
    my (undef, $count, $size) = split m{/}, $scope->{path};
    for my $i (1 .. $count) { await $scope->{'pagi.topics'}->publish(news => 'x' x $size) }
    await $send->({ type => 'http.response.start', status => 200, headers => [ [ 'content-length', 0 ] ] });
    await $send->({ type => 'http.response.body' });
};
PERL

sub facts {
    my ($status) = @_;
    return JSON::PP::decode_json(get($status, '/status.json')->{body});
}

# Waits until the hub's counts are the wanted ones.
sub counted {
    my ($status, $what, %wanted) = @_;
    my $counts;
    my $is_so = sub {
        $counts = facts($status)->{channels} or return 0;
        return !grep { $wanted{$_}->($counts->{$_}) ? 0 : 1 } keys %wanted;
    };
    return pass $what if wait_for($is_so);
    diag join ', ', map { "$_ $counts->{$_}" } sort keys %wanted;
    return fail $what;
}

sub is_number {
    my ($wanted) = @_;
    return sub { $_[0] == $wanted }
}
my $is_some = sub { $_[0] > 0 };

for my $how (
    [ 'process' => '--engine', 'process', '--workers', 2 ],
    only_in_full(
        [ 'inline' => '--engine', 'inline' ],
        [ 'thread' => '--engine', 'thread' ],
        [ 'inline, two workers' => '--engine', 'inline', '--workers', 2 ],
    ),
    )
{
    my ($title, @arguments) = @$how;
    subtest $title => sub {
        my $status = free_port();
        my $server = TestServer->command(@arguments, '--channels', '--status', "127.0.0.1:$status",
            '--topics-history-size', '64M', $app);
        my @readers = map { TestStream->open($server->port, '/read') } 1 .. 3;
        my ($pid) = $readers[0]->message->{data} =~ /(\d+)/;
        $_->message for @readers[ 1, 2 ];
        get($server->port, '/4/100');
        $_->message for map { ($_) x 4 } @readers;
        counted(
            $status, 'entries, bytes and readers',
            readers     => is_number(3),
            entries     => is_number(4),
            entry_bytes => is_number(400),
            delivered   => is_number(12),
            lag         => is_number(0),
            resets      => is_number(0),
            orphans     => is_number(0),
        );
        cmp_ok facts($status)->{channels}{delivered_bytes}, '>', 1200, 'bytes with their framing';
        my $metrics = get($status, '/metrics')->{body};
        like $metrics, qr/^peregrine_topics_readers 3$/m,          'metrics: readers';
        like $metrics, qr/^peregrine_topics_delivered_total 12$/m, 'and entries';
        like $metrics, qr/^peregrine_channels_hub_up 1$/m,         'and the hub';

        my $again = TestStream->open($server->port, '/read', fields => ['Last-Event-ID: nonsense']);
        counted($status, 'a reset', readers => is_number(4), resets => is_number(1));
        get($server->port, '/400/65536');
        counted($status, 'a client that does not read lags', lag => $is_some);
        $_->close for $again, @readers[ 1, 2 ];
        counted($status, 'clients that have gone are none', readers => is_number(1));
        if ($title eq 'process') {
            kill KILL => $pid;
            counted(
                $status, 'a connection without interpreter',
                readers => is_number(1),
                orphans => is_number(1)
            );
        }
        $readers[0]->close;
        counted(
            $status, 'the last one',
            readers => is_number(0),
            orphans => is_number(0),
            lag     => is_number(0)
        );
        is $server->stop, 0, 'the server stops';
    };
}

subtest 'a hub that does not answer' => sub {
    my $status = free_port();
    my $server = TestServer->command('--channels', '--workers', 1, '--status', "127.0.0.1:$status", $app);
    ok wait_for(sub { facts($status)->{hub} }), 'there is a hub';
    my ($hub) = grep { (content("/proc/$_/cmdline") // '') =~ /\(hub\)/ } children($server->pid);
    kill STOP => $hub;
    my $facts;
    # The stopped hub's threads stop one by one.
    ok wait_for(sub { $facts = facts($status); return defined $facts->{hub} && !$facts->{hub} }),
        'the status says so';
    is $facts->{channels}, undef, 'and has no counts';
    like get($status, '/metrics')->{body}, qr/^peregrine_channels_hub_up 0$/m, 'as do metrics';
    kill KILL => $hub;
    ok wait_for(sub { facts($status)->{hub} }), 'another hub answers';
    is $server->stop, 0, 'the server stops';
};

subtest 'without channels' => sub {
    my $status = free_port();
    my $server = TestServer->command('--status', "127.0.0.1:$status", $app);
    is facts($status)->{hub}, undef, 'there is no hub';
    unlike get($status, '/metrics')->{body}, qr/hub_up/, 'and no metric of it';
};

done_testing;
