# Restarts of one mount with workers of its own that meet something else: another reload while a canary is
# judged, workers that grow while a template loads, held responses of GRIP. It is the same wherever the engine
# runs: it runs once.
use strict;
use warnings;

use lib 't/lib';
use OnlyInFull qw(only_in_full);
use Test::More;
use TestClient qw(get);
use TestGate;
use TestMounts qw(all_serve app asked serves);
use TestServer;
use TestStream;
use TestTools   qw(wait_for);
use TestWorkers qw(is_gone load no_failure);

my ($site, $shop) = map { app($_, 1) } qw(site shop);

sub started {
    my ($settings, @more) = @_;
    return TestServer->command_of('peregrine',
        qw(-E production --engine process --no-access-log --workers 1 --shutdown-timeout 5),
        '--mount', "/=$site", '--mount', "/shop=$shop,workers=2$settings", @more);
}

# A worker of this version publishes. A request may meet one that leaves, which may have published, too.
sub publishes {
    my ($port, $what, $version) = @_;
    return wait_for(sub { ((get($port, "/shop/publish/$what") || {})->{body} // '') eq "by $version" });
}

# The stream brings this message, after others perhaps.
sub brings {
    my ($stream, $text) = @_;
    while (my $message = $stream->message) {
        return 1 if $message->{data} eq $text;
    }
    return 0;
}

# `peregrine reload /shop` in a process of its own; its exit status, once it has ended.
sub begin_reload {
    my ($server) = @_;
    my $pid = fork // die "fork: $!";
    return $pid if $pid;
    open STDOUT, '>', '/dev/null' or die "$!";
    open STDERR, '>', '/dev/null' or die "$!";
    exec $^X, '-Mblib', 'bin/peregrine', 'reload', '/shop', $server->pid or die "exec: $!";
}

sub status_of { my ($pid) = @_; waitpid $pid, 0; return $? >> 8 }

for my $more (only_in_full([]), ['--preload-app']) {
    subtest "a reload while a canary is judged @$more" => sub {
        app('shop', 1);
        my $server = started(',canary=300', @$more);
        my $port   = $server->port;
        serves($port, '/shop', 1);
        my @clients = load($port);
        app('shop', 2);
        my $first = begin_reload($server);
        ok $server->wait_for_log(qr/has the new code, and serves beside/), 'a canary';
        app('shop', 3);
        my $second = begin_reload($server);
        ok $server->wait_for_log(qr/taken back undecided: another restart begins/), '... is taken back';
        ok wait_for(sub { (() = $server->log =~ /has the new code, and serves beside/g) == 2 }),
            '... for another one';
        my %versions;
        wait_for(sub { $versions{ (asked($port, '/shop'))[1] }++; return keys %versions > 1 });
        is_deeply [ sort keys %versions ], [ 1, 3 ], '... which serves beside the old code';
        app('shop', 4, '', 'die "no database\n"');
        my $third = begin_reload($server);
        ok $server->wait_for_log(qr/the restart is given up, .*no database/), 'code that does not load';
        is status_of($_), 1, '... fails all that wait for it' for $first, $second, $third;
        %versions = map { (asked($port, '/shop'))[1] => 1 } 1 .. 20;
        is_deeply [ sort keys %versions ], [1], '... and the old code goes on';
        no_failure('canaries', @clients);
        is $server->stop, 0, 'the end';
    };
}

subtest 'workers that grow while a template does not load' => sub {
    my $gate = TestGate->new;
    app('shop', 1, q{push @main::kept, 'x' x ($$ * 0 + (120 << 20)) if $path eq '/grow'});
    my $server = started(',memory=100M', '--preload-app');
    my $port   = $server->port;
    serves($port, '/shop', 1);
    my @clients = load($port);
    ok all_serve($server, '/shop'), 'all workers serve';
    app('shop', 2, '', <<"PERL");
require TestGate;
print {*STDERR} "it loads\n";
bless({ folder => '$gate->{folder}' }, 'TestGate')->block('load');
PERL
    my $reload = begin_reload($server);
    ok $server->wait_for_log(qr/it loads/), 'a template loads';

    for (1, 2) {
        my $grown = (asked($port, '/shop/grow'))[2] // 0;
        ok wait_for(sub { $grown && is_gone($grown) }), 'a worker that has grown is replaced meanwhile';
    }
    ok serves($port, '/shop', 1), '... by others with the old code';
    $gate->open('load');
    is status_of($reload), 0, 'the new code serves';
    no_failure('workers that grow', @clients);
    is $server->stop, 0, 'the end';
};

subtest 'held responses' => sub {
    my $code_of = sub {
        my ($version) = @_;
        return <<"PERL";
require Peregrine::Publisher;
return [ 200, [ 'Content-Type' => 'text/event-stream', 'Grip-Hold' => 'stream', 'Grip-Channel' => 'shop.x' ],
    [": held\n\n"] ] if \$path eq '/stream';
if (\$path =~ m{\\A/publish/(\\w+)\\z}) {
    Peregrine::Publisher->of_server->publish('shop.x', "\$1 by $version");
    return [ 200, [], ["by $version"] ];
}
exit 3 if \$path eq '/exit';
PERL
    };
    app('shop', 1, $code_of->(1));
    my $server = started(',grip=shop.', '--channels');
    my $port   = $server->port;
    serves($port, '/shop', 1);
    my $stream = TestStream->open($port, '/shop/stream');
    $stream->block;
    for my $version (2 .. 4) {
        app('shop', $version, $code_of->($version));
        is status_of(begin_reload($server)), 0, 'a reload';
        ok publishes($port, 'reloaded', $version),  '... whose workers publish';
        ok brings($stream, "reloaded by $version"), '... to the response that is held';
    }
    get($port, '/shop/exit') for 1 .. 2;
    serves($port, '/shop', 4);
    publishes($port, 'crashed', 4);
    ok brings($stream, 'crashed by 4'), 'workers that crash leave it, too';
    is $server->stop, 0, 'the end';
};

done_testing;
