# --mount /shop=shop.psgi,workers=2,user=...,env_file=...: options of the interpreters of one mount.
use strict;
use warnings;

use lib 't/lib';
use OnlyInFull qw(only_in_full);
use Peregrine::Optional;
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools   qw(content wait_for);
use TestWorkers qw(children directory is_gone pid_in write_file);

my $dir = directory();
mkdir "$dir/$_" or die "$_: $!" for qw(shop shop/lib api);
chmod 0755, $dir, map { "$dir/$_" } qw(shop shop/lib api);

# Answers with what its process is.
my $app = <<'PERL';
use Cwd ();
sub {
    my ($env) = @_;
    my $path = $env->{PATH_INFO};
    my $text = join ' ', $$, $<, $(+0, Cwd::getcwd(), $ENV{SECRET} // '-', $ENV{COMMON} // '-',
        eval { require Own; Own::name() } // '-';
    if ($path =~ m{\A/read/(.+)\z}) {
        open my $in, '<', "/$1" or return [ 200, [], ["$!"] ];
        local $/;
        $text = readline $in;
    }
    warn "$path\n" if $path =~ m{\A/warn};
    push @main::kept, 'x' x ($$ * 0 + (150 << 20)) if $path eq '/grow';
    select undef, undef, undef, 1000    if $path eq '/block';
    return [ 200, [], [$text] ];
};
PERL
write_file('site.psgi',       $app);
write_file("$_/app.psgi",     $app) for qw(shop api);
write_file('shop/lib/Own.pm', "package Own;\nsub name { return 'own-module' }\n1;\n");
write_file('common.env',      "COMMON=common\nSECRET=server\n");
write_file('shop/shop.env',   "SECRET=shop-secret\n");
write_file('api/api.env',     "SECRET=api-secret\n");

my @ENV = ('--env-file', "$dir/common.env");

sub arguments {
    my ($shop, $api, @more) = @_;
    return (
        qw(-E production --engine process --no-access-log --workers 1),
        @ENV,
        '--mount',
        "/=$dir/site.psgi",
        '--mount',
        "/shop=app.psgi,workers=1,chdir=$dir/shop$shop",
        '--mount',
        "/api=$dir/api/app.psgi,workers=1,env=$dir/api/api.env$api",
        @more
    );
}

sub started { return TestServer->command_of('peregrine', arguments(@_)) }

# Process, user, group, folder, secret, common variable, module; or what is said in their place.
sub facts {
    my ($port, $path) = @_;
    my $body;
    wait_for(sub {
        my $answer = get($port, $path) || {};
        $body = $answer->{body};
        return ($answer->{status} // 0) == 200;
    });
    return split ' ', $body;
}

sub said { return join ' ', facts(@_) }

for my $preload ('on', 'off') {
    subtest "environment, folder, library path; preload=$preload" => sub {
        my $server = started(",env_file=shop.env,lib=lib,preload=$preload", '', '--preload-app');
        my $port   = $server->port;
        my ($cwd)  = (facts($port, '/'))[3];
        is join(' ', (facts($port, '/shop'))[ 3 .. 6 ]), "$dir/shop shop-secret common own-module",
            'one mount';
        is join(' ', (facts($port, '/api'))[ 3 .. 6 ]), "$cwd api-secret common -", '... another one';
        is join(' ', (facts($port, '/'))[ 4 .. 6 ]),    'server common -',          '... and the others';
        my $templates = grep { content("/proc/$_/cmdline") =~ /\(template\)/ } children($server->pid);
        is $templates, $preload eq 'on' ? 3 : 2, "templates: $templates";
        my ($before) = facts($port, '/shop');
        write_file('shop/shop.env', "SECRET=new-secret\n");
        $server->signal('HUP');
        ok wait_for(sub { ((facts($port, '/shop'))[4] // '') eq 'new-secret' }), 'HUP reads the file again';
        write_file('shop/shop.env', "SECRET=shop-secret\n");
        is $server->stop, 0, 'the end';
    };
}

# Memory of a process that it has for itself or shares, as text.
sub memory_has {
    my ($pid, $text) = @_;
    open my $maps, '<',     "/proc/$pid/maps" or die "maps: $!";
    open my $in,   '<:raw', "/proc/$pid/mem"  or die "mem: $!";
    while (my $line = <$maps>) {
        no warnings qw(portable);
        my ($from, $to) = $line =~ /\A([0-9a-f]+)-([0-9a-f]+) rw/ or next;
        ($from, $to) = (hex $from, hex $to);
        sysseek $in, $from, 0;
        sysread $in, my $bytes, $to - $from;
        return 1 if defined $bytes && index($bytes, $text) >= 0;
    }
    return 0;
}

subtest 'limits' => sub {
    my $server = started(',max_requests=5', ',memory=120M,request_kill_timeout=2', '--max-requests', 0);
    my $port   = $server->port;
    my %first  = map { $_ => (facts($port, $_))[0] } '/', '/shop', '/api';
    my %seen;
    ok wait_for(sub { $seen{ (facts($port, '/shop'))[0] }++; keys %seen > 2 }), 'max_requests of one mount';
    get($port, $_) for ('/', '/api') x 10;
    is((facts($port, $_))[0], $first{$_}, "... is not that of $_") for '/', '/api';
    # The size that a worker has when the master looks first counts as that of its start.
    select undef, undef, undef, 3;
    get($port, "$_/grow") for '', '/api';
    ok wait_for(sub { (facts($port, '/api'))[0] != $first{'/api'} }), 'memory of one mount';
    is((facts($port, '/'))[0], $first{'/'}, '... is not that of /');
    is get($port, '/api/block')->{status}, 504, 'request_kill_timeout of one mount';
    ok wait_for(sub { (get($port, '/api') || {})->{status} == 200 }), '... whose worker is replaced';
    is $server->stop, 0, 'the end';
};

subtest 'limits of the queue' => sub {
    my $server = started(',queue_timeout=1,queue_max=1', ',request_timeout=1', '--shutdown-timeout', 1);
    my $port   = $server->port;
    facts($port, $_) for '/', '/shop', '/api';
    my @stuck = map { TestClient->new($port) } 1 .. 3;
    $stuck[0]->send("GET /shop/block HTTP/1.1\r\nHost: h\r\n\r\n");
    wait_for(sub { get($port, '/shop')->{status} == 503 });
    my $began = time;
    is get($port, '/shop')->{status}, 503, 'queue_timeout of one mount';
    cmp_ok time - $began, '<', 20, '... is shorter than that of the server';
    $stuck[1]->send("GET /api/block HTTP/1.1\r\nHost: h\r\n\r\n");
    is $stuck[1]->rest, '', 'request_timeout of one mount';
    is((facts($port, '/'))[4], 'server', '... the others serve');
    $server->stop;
};

# Sockets and files in memory that a process and the master have, without the standard streams.
sub shared_with {
    my ($master, $pid) = @_;
    my %count;
    for my $process ($pid, $master) {
        my @names = map { readlink $_ } grep { !m{/[012]\z} } glob "/proc/$process/fd/*";
        my %has   = map { $_ => 1 } grep     { defined && m{\A(?:socket:|/memfd:)} } @names;
        $count{$_}++ for keys %has;
    }
    return sort grep { $count{$_} == 2 } keys %count;
}

for my $more (only_in_full([]), ['--preload-app']) {
    subtest "descriptors @$more" => sub {
        plan skip_all => 'only root can become another user' if $> != 0 || !defined getpwnam 'nobody';
        my $server = started(',user=nobody', '', '--channels', '--status', "$dir/status.fds", @$more);
        my ($port, $master) = ($server->port, $server->pid);
        my $check = sub {
            my %pid = map { $_ => (facts($port, $_))[0] } '/', '/shop', '/api';
            my (%sockets, %files);
            for my $path (sort keys %pid) {
                my @shared = shared_with($master, $pid{$path});
                $sockets{$path} = [ grep { /\Asocket/ } @shared ];
                $files{$path}   = [ grep { !/\Asocket/ } @shared ];
                is @{ $sockets{$path} }, 2, "a worker of $path has the ways to the engine and to the hub";
            }
            my %count;
            $count{$_}++ for map { @$_ } values %sockets;
            is_deeply [ sort values %count ], [ 1, 1, 1, 3 ], '... that to the engine is its own';
            my ($common) = grep { $count{$_} == 3 } keys %count;
            my @trace = ('/memfd:peregrine-trace (deleted)');
            is_deeply \%files, { '/' => \@trace, '/shop' => [], '/api' => \@trace },
                '... and the trace, but for that of another user';
            unlike content("/proc/$pid{'/shop'}/maps"), qr/peregrine-trace/, '... in no form';

            for my $pid (grep { $_ != $master } $server->family) {
                my ($role) = (content("/proc/$pid/cmdline") // '') =~ /\((template|hub|status)\)/ or next;
                my @shared = shared_with($master, $pid);
                # The hub has both ends; the status has the socket where it is served.
                is((grep { /\Asocket/ } @shared), $role eq 'template' ? 1 : 2, "sockets of the $role");
                ok + (grep { $_ eq $common } @shared), '... with the way to the hub';
                is((grep { m{/memfd:peregrine \(} } @shared), $role eq 'hub' ? 1 : 0, '... histories');
            }
            return %pid;
        };
        my %before = $check->();
        kill KILL => grep { (content("/proc/$_/cmdline") // '') =~ /\((?:hub|status)\)/ } children($master);
        $server->signal('HUP');
        ok wait_for(sub {
            !grep { (facts($port, $_))[0] == $before{$_} } sort keys %before;
            }),
            'others come';
        ok wait_for(sub {
            2 == grep { (content("/proc/$_/cmdline") // '') =~ /\((?:hub|status)\)/ } children($master);
            }),
            '... also the hub and the status';
        $check->();
        is $server->stop, 0, 'the end';
    };
}

# Tells what it found in its process while it was loaded: listening sockets, and a variable of the server's.
my $found = write_file('found.psgi', <<'PERL');
use Socket qw(SOL_SOCKET SO_ACCEPTCONN);
my @listening = grep {
    my $is_open = open my $copy, '+<&', $_;
    $is_open && unpack 'i', getsockopt($copy, SOL_SOCKET, SO_ACCEPTCONN) // pack 'i', 0;
} map { m{([0-9]+)\z} } glob '/proc/self/fd/*';
my $said = @listening . ' ' . ($ENV{PAGI_CHANNELS_BACKEND} // 'nothing');
sub { return [ 200, [], [$said] ] };
PERL
for my $more (only_in_full([]), ['--preload-app']) {
    subtest "while applications are loaded @$more" => sub {
        local $ENV{PAGI_CHANNELS_BACKEND} = 'memory://';
        my $server =
            TestServer->command_of('peregrine',
            qw(-E production --engine process --no-access-log --workers 1 --status),
            "$dir/status.load", @$more, '--mount', "/=$found", '--mount', "/shop=$found,workers=1");
        is get($server->port, $_)->{body}, '0 nothing', "that of $_ has neither" for qw(/ /shop);
        is $server->stop,                  0,           'the end';
    };
}

my ($user, $other, $third) = qw(nobody daemon games);
my %uid = map { $_ => scalar getpwnam $_ } $user, $other, $third;

SKIP: {
    skip 'only root can become another user', 1 if $> != 0 || grep { !defined } values %uid;
    chmod 0700, "$dir/$_" for qw(shop api);
    chown $uid{$other}, -1, glob("$dir/shop $dir/shop/* $dir/shop/lib/*");
    chown $uid{$third}, -1, glob("$dir/api $dir/api/*");
    for my $more (only_in_full([]), ['--preload-app']) {
        subtest "users @$more" => sub {
            my $log = "$dir/error.log";
            unlink $log;
            my $status = "$dir/status";
            my $server = TestServer->spawn(
                $^X,
                (map { "-I$_" } @INC),
                qw(bin/peregrine --port 0),
                arguments(
                    ",env=shop.env,lib=lib,user=$other",
                    ",user=$third,group=" . getgrgid(0),
                    '--user', $user, '--error-log', $log, '--status', $status, '--pid', "$dir/users", @$more
                )
            );
            my $port;
            wait_for(sub { ($port) = content($log) =~ m{listening on http://127\.0\.0\.1:(\d+)/} })
                or die content($log);
            my %facts = map { $_ => [ facts($port, $_) ] } '/', '/shop', '/api';
            is $facts{'/'}[1],     $uid{$user},   'the workers of all others are of the user of the server';
            is $facts{'/shop'}[1], $uid{$other},  '... those of a mount of its own';
            is $facts{'/api'}[1],  $uid{$third},  '... those of another one';
            is $facts{'/api'}[2],  0,             '... with the group that it names';
            is $facts{'/shop'}[4], 'shop-secret', 'a mount reads its file as its user';
            my $master = pid_in('users');
            my %of;

            for my $pid ($server->family) {
                my ($line) = content("/proc/$pid/status") =~ /^Uid:\t(.+)$/m or next;
                $of{$pid} = [ split ' ', $line ];
            }
            my %have_rights = map { $_ => 1 } grep {
                grep { $_ == 0 }
                    @{ $of{$_} }
            } keys %of;
            is_deeply [ keys %have_rights ], [$master], 'the master alone keeps the rights of root';

            my ($shop, $api, $site) = map { $facts{$_}[0] } '/shop', '/api', '/';
            for my $case ([ '', $site ], [ '/api', $api ]) {
                my ($path, $pid) = @$case;
                my @files = (
                    "$dir/shop/shop.env", "/proc/$shop/environ",
                    "/proc/$shop/mem",    "/proc/$master/environ",
                    "/proc/$master/mem"
                );
                like get($port, "$path/read$_")->{body}, qr/denied/, "a worker of '$path' cannot read $_"
                    for @files;
                ok !memory_has($pid, 'shop-secret'), '... and has not what is in there';
                unlike content("/proc/$pid/environ"), qr/shop-secret/, '... in its environment neither';
            }
            ok memory_has($shop,    'shop-secret'), '... as the worker that the file is for has';
            ok !memory_has($master, 'shop-secret'), 'the master has not read it';

            get($port, '/shop/warn1');
            ok wait_for(sub { content($log) =~ m{/warn1$}m }), 'a worker of another user writes to the log';
            rename $log, "$log.old" or die $!;
            $server->signal('USR1');
            ok wait_for(sub { -e $log }), 'the log is opened again';
            ok wait_for(sub {
                get($port, "/shop/warn2");
                select undef, undef, undef, 0.2;
                content($log) =~ m{/warn2$}m;
                }),
                '... by that worker, too';
            ok !grep({ /cannot be opened again/ } map { content($_) } "$log.old", $log),
                '... without a complaint';
            kill KILL => $shop;
            ok wait_for(sub { (facts($port, '/shop'))[0] != $shop }), 'a worker that died is replaced';
            is((facts($port, '/shop'))[1], $uid{$other}, '... by one of that user');
            get($port, '/shop/warn3');
            ok wait_for(sub { content($log) =~ m{/warn3$}m }), '... which writes to the new log';
            kill HUP => $master;
            my $now = (facts($port, '/shop'))[0];
            ok wait_for(sub { (facts($port, '/shop'))[0] != $now }), 'HUP replaces it';
            is((facts($port, '/shop'))[1], $uid{$other}, '... by one of that user');

            kill USR2 => $master;
            ok wait_for(sub { my $pid = pid_in('users'); $pid && $pid != $master && is_gone($master) }),
                'USR2 starts a new program';
            is((facts($port, '/shop'))[1], $uid{$other}, '... whose workers of the mount are of that user');
            is((facts($port, '/'))[1],     $uid{$user},  '... and the others of that of the server');
            my $next = pid_in('users');
            kill TERM => $next;
            ok wait_for(sub { is_gone($next) }), 'the end';
            $server->stop;
        };
    }
}

# Status, and all that is said, of a command that ends.
sub outcome {
    my ($status, $out, $error) = TestServer->finish_of('peregrine', @_);
    return ($status, "$out$error");
}

my @START = qw(-E production --engine process --workers 1 --port 0);

subtest '--check' => sub {
    write_file('shop/needs.psgi', <<'PERL');
require Own;
die "no secret\n" if $ENV{SECRET} ne 'shop-secret';
open my $in, '<', 'shop.env' or die "not in its folder\n";
die "as root\n" if $ENV{MUST_BE} && $< != $ENV{MUST_BE};
sub { [ 200, [], [] ] };
PERL
    my $shop = "/shop=needs.psgi,workers=1,chdir=$dir/shop,env=shop.env";
    my ($status, $text) = outcome(@START, '--check', '--mount', "$shop,lib=lib");
    is $status, 0, 'an application is loaded with the folder, environment and library path of its mount'
        or diag $text;
    ($status, $text) = outcome(@START, '--check', '--mount', $shop);
    is $status, 1, 'an application that cannot be loaded so';
    like $text, qr/Own\.pm/, '... and why';
    my $exits = write_file('exits.psgi', "exit 7;\n");
    ($status, $text) = outcome(@START, '--check', '--mount', "/x=$exits,workers=1");
    is $status, 1, 'an application that exits';
    like $text, qr/the process that checks it has exited with status 7/, '... is told';
SKIP: {
        skip 'only root can become another user', 7 if $> != 0 || grep { !defined } values %uid;
        chown $uid{$other}, -1, glob("$dir/shop $dir/shop/* $dir/shop/lib/*");
        chmod 0755, "$dir/shop";
        local $ENV{MUST_BE} = $uid{$other};
        ($status, $text) = outcome(@START, '--check', '--mount', "$shop,lib=lib,user=$other");
        is $status, 0, 'it is loaded as the user of its mount' or diag $text;
        ($status, $text) = outcome(@START, '--check', '--user', $other, '--mount', "$shop,lib=lib");
        is $status, 0, '... or of the server' or diag $text;
        ($status, $text) = outcome(@START, '--check', '--mount', "$shop,lib=lib");
        like $text, qr/as root/, '... or as the user who checks';
        my $site = write_file('as_user.psgi', <<'PERL');
die "as user $<\n" if $< != $ENV{MUST_BE};
sub { [ 200, [], [] ] };
PERL

        for my $more ([], ['--preload-app']) {
            ($status, $text) = outcome(@START, '--check', '--user', $other, '--mount', "/=$site", @$more);
            is $status, 0, "an application without workers of its own is loaded as that user: @$more"
                or diag $text;
        }
        ($status, $text) = outcome(@START, '--check', '--user', $third, '--mount', "/=$site");
        is $status, 1, '... as no other one';
        like $text, qr/as user $uid{$third}/, '... as it says';
    }
};

subtest 'the check at the start is that of the user who serves' => sub {
    plan skip_all => 'only root can become another user' if $> != 0 || grep { !defined } values %uid;
    my $file = write_file('private.env', "SECRET=1\n");
    chmod 0600, $file;
    my $mount = "/shop=$dir/site.psgi,workers=1,env=$file";
    my ($status, $text) = outcome(@START, '--user', $other, '--mount', $mount);
    is $status, 2, 'a file of root where the server is of another user';
    like $text, qr/setting 'env_file': cannot read '\S+private\.env': Permission denied/,
        '... is refused, and told why';
};

subtest 'a user who has no name' => sub {
    plan skip_all => 'only root can become another user' if $> != 0;
    my $uid   = 54_321;
    my $child = fork // die "fork: $!";
    if (!$child) {
        require POSIX;
        $) = "$uid $uid";
        POSIX::setgid($uid);
        POSIX::setuid($uid);
        my ($status, $text) = outcome(@START, '--check', '--mount', "/x=$dir/site.psgi,workers=1,group=0");
        diag $text if $text !~ /setting(?:s)? 'user' and 'group' need a start as root/;
        POSIX::_exit($text =~ /need a start as root/ ? 0 : 1);
    }
    waitpid $child, 0;
    is $?, 0, 'a group alone needs no name of the user';
};

subtest 'a missing file of an application of Mojolicious' => sub {
    plan skip_all => 'Mojolicious is not installed' if !Peregrine::Optional::load('Mojolicious');
    my $mojo  = write_file('mojo.pl', "use Mojolicious::Lite -signatures;\napp->start;\n");
    my $mount = "/=$mojo,workers=1,env=$dir/none.env";
    my ($status, $text) = outcome(@START, '--mount', $mount);
    is $status, 2, 'it is refused';
    like $text, qr/\Q'$mount': setting 'env_file': cannot read '$dir\E\S*none\.env': No such file/,
        '... and told why';
};

subtest 'refused' => sub {
    write_file('broken.env', "A B\n");
    for my $case (
        [ "user=nobody-there",         qr/setting 'user': there is no user 'nobody-there'/ ],
        [ "group=nobody-there",        qr/setting 'group': there is no group 'nobody-there'/ ],
        [ "env_file=$dir/none.env",    qr{setting 'env_file': cannot read '\S+/none\.env': No such file} ],
        [ "env=$dir/broken.env",       qr/setting 'env_file': \S+ line 1: expected NAME=value, not 'A B'/ ],
        [ "chdir=$dir/none",           qr/setting 'chdir': cannot go to '\S+none': No such file/ ],
        [ "lib=$dir/none",             qr/setting 'lib': '\S+none' cannot be used: No such file/ ],
        [ "lib=$dir/site.psgi",        qr/setting 'lib': '\S+site\.psgi' cannot be used: it is no folder/ ],
        [ 'preload=maybe',             qr/setting 'preload' must be 0 or 1, not 'maybe'/ ],
        [ 'preload=on,preload_app=on', qr/setting 'preload_app' comes after another one of its kind/ ],
        [ 'user=',                     qr/setting 'user' takes a value/ ],
        [ 'usr=nobody',                qr/there is no setting 'usr' .*'user'.*; these are: .*env_file=FILE/ ],
        [
            'us=1',
            qr/preload_app=on\|off, max_worker_rss=BYTES, max_worker_age=SECONDS, max_requests=NUMBER/
        ],
        )
    {
        my ($setting, $message) = @$case;
        my $mount     = "/shop=$dir/site.psgi,workers=1,$setting";
        my @arguments = qw(peregrine --port 0 --engine process --workers 1);
        my ($status, undef, $error) = TestServer->finish_of(@arguments, '--mount', $mount);
        is $status, 2, $setting;
        like $error, qr/option --mount: '\Q$mount\E': .*$message/, '... is refused, and told why';
        my $file = write_file('server.conf', "mount = $mount\n");
        (undef, undef, $error) = TestServer->finish_of(@arguments, '--config', $file);
        like $error, qr{\Q$file\E line 1: option --mount: .*$message}s, '... with its line';
    }
    my ($status, undef, $error) =
        TestServer->finish_of(qw(peregrine --port 0 --mount), "/shop=$dir/site.psgi,user=nobody");
    is $status, 2, 'a user of a mount without workers';
    like $error, qr/setting 'user' is for workers that only this mount has: set 'workers' as well/,
        '... is refused, and told why';
};

done_testing;
