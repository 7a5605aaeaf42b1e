# Workers of one mount that crash at each request, fill their memory or have worse code than before cost
# requests of their own mount, and no request of others. Canary, warm-up and hot upgrades beside mounts with
# workers of their own. It is the same wherever the engine runs: it runs once.
use strict;
use warnings;

use lib 't/lib';
use OnlyInFull qw(only_in_full);
use Peregrine;
use POSIX ();
use Test::More;
use TestClient qw(get);
use TestMounts qw(all_serve app asked serves);
use TestServer;
use TestTools   qw(wait_for);
use TestWorkers qw(directory is_gone load no_failure pid_in stop_master write_file);

my $dir = directory();

my ($site, $shop) = map { app($_, 1) } qw(site shop);

sub started {
    my ($settings, @more) = @_;
    return TestServer->command_of('peregrine',
        qw(-E production --engine process --no-access-log --workers 2 --shutdown-timeout 5),
        '--mount', "/=$site", '--mount', "/shop=$shop,workers=2$settings", @more);
}

sub reload { return TestServer->finish_of(qw(peregrine reload), @_) }

subtest 'workers that crash at each request' => sub {
    my $server = started(',queue_timeout=1');
    my $port   = $server->port;
    serves($port, '/shop', 1);
    app('shop', 2, 'exit 3');
    is((reload('/shop', $server->pid))[0], 0, 'the code looks well at its start');
    my @clients = load($port);
    my %answers;
    $answers{ (asked($port, '/shop'))[0] // 'none' }++ for 1 .. 12;
    is_deeply [ grep { !/\A50[23]\z/ } keys %answers ], [], 'each request of the mount fails with 502 or 503';
    ok $server->wait_for_log(qr{/shop/: worker \d has failed \d+ times in a row}),
        '... the master takes its time';
    no_failure('workers that crash', @clients);
    app('shop', 3);
    is((reload('/shop', $server->pid))[0], 0, 'better code');
    ok serves($port, '/shop', 3), '... serves at once';
    is $server->stop, 0, 'the end';
};

subtest 'workers that fill their memory' => sub {
    app('shop', 1, q{push @main::kept, 'x' x ($$ * 0 + (120 << 20)) if $path eq '/grow'});
    my $server = started(',memory=100M');
    my $port   = $server->port;
    serves($port, '/shop', 1);
    my @clients = load($port);
    ok all_serve($server, '/shop'), 'workers that are small';
    for (1, 2) {
        my $grown = (asked($port, '/shop/grow'))[2] // 0;
        ok wait_for(sub { $grown && is_gone($grown) }), '... are replaced when they have grown';
    }
    ok serves($port, '/shop', 1), '... by others that serve';
    no_failure('workers that fill their memory', @clients);
    is $server->stop, 0, 'the end';
};

subtest 'a canary of one mount' => sub {
    app('shop', 1);
    my $server = started(',canary=20', '--preload-app');
    my $port   = $server->port;
    serves($port, '/shop', 1);
    my @clients = load($port);
    app('shop', 2, q{return [ 500, [], ['broken'] ]});
    my $asker = fork // die "fork: $!";
    if (!$asker) {
        while (getppid != 1) { get($port, '/shop') }
        require POSIX;
        POSIX::_exit(0);
    }
    my ($status, undef, $error) = reload('/shop', $server->pid);
    kill KILL => $asker;
    waitpid $asker, 0;
    is $status, 1, 'code that fails is taken back: the exit status';
    like $error, qr{the old workers go on: /shop: .*is taken back: }, '... and why';
    ok serves($port, '/shop', 1), '... the old code goes on';
    is((asked($port, '/'))[1], 1, '... and the other mount has no part in it');
    no_failure('a canary', @clients);
    is $server->stop, 0, 'the end';
};

subtest 'warm-up' => sub {
    app('site', 1, q{$main::warm{$path}++; return [ 200, [], [ "site 1 $main::warm{'/warm'}" ] ]});
    app('shop', 1, q{$main::warm{$path}++; return [ 200, [], [ "shop 1 $main::warm{'/warm'}" ] ]});
    my $server = started('', '--warm-up', '/warm,/shop/warm');
    my $port   = $server->port;
    ok serves($port, '/shop', 1), 'paths of several mounts';
    is((asked($port, '/shop'))[2], 1, '... workers of a mount have answered its own');
    is((asked($port, '/'))[2],     1, '... and those of all others theirs');
    app('shop', 2, q{return [ 500, [], ['cold'] ] if $path eq '/warm'});
    my ($status, undef, $error) = reload('/shop', $server->pid);
    is $status, 1, 'a warm-up that fails gives the reload up';
    ok serves($port, '/shop', 1), '... the old code goes on';
    app('site', 2, q{return [ 500, [], ['cold'] ] if $path eq '/warm'});
    app('shop', 3);
    is((reload('/shop', $server->pid))[0], 0, 'a reload of one mount does not ask the others');
    is $server->stop, 0, 'the end';
    app('site', 1);
};

subtest 'warm-up of one mount' => sub {
    app('shop', 1, q{$main::warm{$path}++; return [ 200, [], [ "shop 1 @main::warm{qw(/a /b)}" ] ]});
    app('site', 1, q{return [ 200, [], [ "site 1 " . ++$main::asked ] ]});
    my $server = started(',warm_up=/shop/a,warm_up=/shop/b', '--warm-up', '/none');
    my $port   = $server->port;
    ok serves($port, '/shop', 1), 'it is ready';
    is join(' ', asked($port, '/shop')), 'shop 1 1 1',
        '... when its workers have answered each path, and no other';
    app('shop', 2, q{return [ 500, [], ['cold'] ] if $path eq '/b'});
    my ($status, undef, $error) = reload('/shop', $server->pid);
    is $status, 1, 'a warm-up that fails gives the reload up';
    like $error, qr{GET /shop/b}, '... and says which path has failed';
    ok serves($port, '/shop', 1), '... the old code goes on';
    is $server->stop, 0, 'the end';
    app('site', 1);
};

# New code of one mount that is slow to warm up, beside a canary of it, and a reload of another one.
subtest 'canary and warm-up of one mount' => sub {
    app('shop', 1);
    my $server = started(',canary=2,warm_up=/shop/warm');
    my $port   = $server->port;
    serves($port, '/shop', 1);
    my @clients = load($port);
    app('shop', 2, q{return [ 500, [], ['cold'] ] if $path eq '/warm'});
    my ($status, undef, $error) = reload('/shop', $server->pid);
    is $status, 1, 'a canary that does not get warm';
    like $error, qr{the old workers go on: /shop: .*GET /shop/warm}, '... is told as such';
    app('shop', 3);
    is((reload('/shop', $server->pid))[0], 0, 'a canary that gets warm and answers');
    ok serves($port, '/shop', 3), '... is followed by the others';
    no_failure('canary and warm-up', @clients);
    is $server->stop, 0, 'the end';
};

# Code of a mount's user, which has its template name another process than the one that the template has
# forked.
my $LIE = <<'PERL';
my ($victim) = VICTIM;
my $say = \&Peregrine::Link::say;
no warnings 'redefine';
*Peregrine::Link::say = sub {
    my ($link, $word, @text) = @_;
    return $say->($link, $word, $word eq 'pid' ? $victim : @text);
};
PERL
my $ENGINE = <<'PERL';
do {
    my $of = getppid;
    open my $in, '<', "/proc/$of/task/$of/children" or die "children: $!";
    my ($pid) = grep {
        open my $line, '<', "/proc/$_/cmdline" or die "cmdline: $!";
        readline($line) =~ /\(engine\)/;
    } split ' ', readline $in;
    $pid;
}
PERL

subtest 'a template that names processes of others' => sub {
    plan skip_all => 'needs root' if $> != 0;
    chmod oct 755, $dir or die $!;
    my $bystander = fork // die "fork: $!";
    if (!$bystander) {
        Peregrine::end_with_parent(1);
        sleep 1000;
        POSIX::_exit(0);
    }
    for my $case ([ 'a process of root' => $bystander ], only_in_full([ 'the engine' => $ENGINE ])) {
        my ($whose, $victim) = @$case;
        app('shop', 1, '', $LIE =~ s/VICTIM/$victim/r);
        my $server = started(',user=nobody,preload_app=on,heartbeat_timeout=1');
        my $named  = $server->wait_for_log(qr{/shop/: .*its template has named process (\d+), which is none});
        ok $named, "$whose is named, and not taken";
        is $named, $bystander, '... by its number' if $whose ne 'the engine';
        ok serves($server->port, '/', 1), '... other mounts serve';
        is $server->stop, 0, '... and the server ends well';
    }
    app('shop', 1, '', $LIE =~ s/VICTIM/undef/r =~ s/(?=return)/return 1 if \$word eq 'pid'; /r);
    my $silent = started(',user=nobody,preload_app=on');
    ok serves($silent->port, '/', 1), 'a template that names no process';
    is $silent->stop,                         0, '... does not hold up the end of the server';
    is waitpid($bystander, POSIX::WNOHANG()), 0, 'the process of root lives on';
    kill KILL => $bystander;
    waitpid $bystander, 0;
    app('shop', 1);
    my $server = started(',user=nobody,preload_app=on');
    ok serves($server->port, '/shop', 1), 'a template that tells the truth';
    is $server->stop, 0, '... ends well';
};

subtest 'a hot upgrade beside a mount that cannot start' => sub {
    app('shop', 1);
    my $server = started('', '--pid', "$dir/up.pid");
    my $port   = $server->port;
    serves($port, '/shop', 1);
    write_file('shop.psgi', qq{die "no database\\n";\n});
    my @clients = load($port);
    my $old     = $server->pid;
    kill USR2 => $old;
    ok wait_for(sub { my $pid = pid_in('up.pid'); $pid && $pid != $old && is_gone($old) }),
        'the new program takes over';
    no_failure('a hot upgrade', @clients);
    my $new = pid_in('up.pid');
    my ($status, $text) = TestServer->finish_of(qw(peregrine status), $new);
    like $text, qr{^/shop .*workers 0 of 2: .*no database}m, '... its status tells of the mount';
    app('shop', 2);
    is((reload('/shop', $new))[0], 0, '... a reload starts it');
    ok serves($port, '/shop', 2), '... and it serves';
    is((reload('/shop', $old))[0], 1, 'the old program is not asked any more');
    ok stop_master('up.pid'), 'the end';
};

done_testing;
