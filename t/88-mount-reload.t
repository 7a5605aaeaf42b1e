# peregrine reload: the workers of one mount are replaced, those of others are not; its exit status tells the
# result. peregrine status. It is the same wherever the engine runs: it runs once.
use strict;
use warnings;

use lib 't/lib';
use OnlyInFull qw(only_in_full);
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools   qw(content wait_for);
use TestWorkers qw(directory load no_failure pid_in write_file);

my $dir = directory();

sub app {
    my ($name, $version, $code) = @_;
    return write_file("$name.psgi", <<"PERL");
use lib 't/lib';
use TestLoad;
${\($code // '')}
sub {
    my (\$env) = \@_;
    my \$text = "$name $version \$\$";
    \$text = TestLoad::body_of(\$1, \$2) if \$env->{PATH_INFO} =~ m{\\A/(\\d+)/(\\d+)\\z};
    return [ 200, [ 'X-Process' => \$\$, 'Content-Length' => length \$text ], [\$text] ];
};
PERL
}

sub asked { my ($port, $path) = @_; return split ' ', (get($port, $path) || {})->{body} // '' }

# Exit status and all that is printed.
sub command {
    my ($status, $out, $err) = TestServer->finish_of('peregrine', @_);
    return ($status, "$out$err");
}

my ($site, $shop, $api) = map { app($_, 1) } qw(site shop api);

for my $more (only_in_full([]), ['--preload-app']) {
    subtest "reload @$more" => sub {
        app($_, 1) for qw(site shop api);
        my $server =
            TestServer->command_of('peregrine',
            qw(-E production --engine process --no-access-log --workers 2 --pid),
            "$dir/pid", '--mount', "/=$site", '--mount', "/shop=$shop,workers=2",
            '--mount',  "/api=$api,workers=1,host=127.0.0.1", @$more);
        my ($port, $pid) = ($server->port, $server->pid);
        wait_for(sub {
            3 == grep { ((asked($port, $_))[0] // '') =~ /\A(?:site|shop|api)/ } qw(/ /shop /api);
        });
        my @clients = load($port);
        my %before  = map { $_ => (asked($port, $_))[2] } '/', '/api';
        app($_, 2) for qw(site shop api);
        my ($status, $text) = command('reload', '/shop', $pid);
        is "$status $text", "0 /shop: generation 2\n", 'the workers of one mount';
        is((asked($port, '/shop'))[1], 2, '... have new code') for 1 .. 4;
        for my $path ('/', '/api') {
            is((asked($port, $path))[1], 1, "... those of $path have not") for 1 .. 4;
        }

        app('shop', 3, qq{die "no database\\n";});
        ($status, $text) = command('reload', $pid, '/shop');
        is $status, 1, 'new code that does not start: the exit status';
        like $text, qr{the old workers go on: /shop: .*no database}, '... and why';
        is((asked($port, '/shop'))[1], 2, '... and the old code goes on');
        ($status, $text) = command('status', '--pid', "$dir/pid");
        is $status, 0, 'status';
        like $text, qr{^\*\s+generation 1, workers 2 of 2$}m, '... of the workers of all others';
        like $text, qr{^/shop\s+generation 2, workers 2 of 2: .*no database}m,
            '... of a mount whose code is broken';
        like $text, qr{^127\.0\.0\.1/api\s+generation 1, workers 1 of 1$}m, '... of a mount with a host';

        app('shop', 4);
        my $file = write_file('server.conf', "pid = $dir/pid\n");
        ($status, $text) = command('reload', '127.0.0.1/api', '--config', $file);
        is "$status $text", "0 127.0.0.1/api: generation 2\n",
            'a mount with a host, by the configuration file';
        ($status, $text) = command('reload', '/api', $pid);
        is "$status $text", "0 127.0.0.1/api: generation 3\n", '... without its host';
        is((asked($port, '/'))[1], 1, '... alone');
        ($status, $text) = command('reload', $pid);
        is "$status $text", "0 all workers: replaced\n", 'all';
        is((asked($port, '/'))[1],     2, '... have new code');
        is((asked($port, '/shop'))[1], 4, '... those of mounts, too');
        no_failure("reload @$more", @clients);

        ($status, $text) = command('reload', '/shop/', $pid);
        like "$status $text", qr{\A0 /shop: generation \d+\n\z}, 'a slash at the end makes no difference';

        ($status, $text) = command('reload', '/sho', $pid);
        is $status, 1, 'a mount that is none';
        like $text, qr{no mount '/sho' has workers of its own; these have: .*/shop},
            '... the answer names the mounts that have some';
        ($status, $text) = command('reload', '/', $pid);
        like $text, qr{no mount '/' has workers of its own}, '... as for one without workers of its own';
        is $server->stop, 0, 'the end';
        ($status, $text) = command('reload', '/shop', $pid);
        is $status, 1, 'a server that has gone';
        like $text, qr{process $pid is no server with workers}, '... is not there';
    };
}

subtest 'a mount that could not start' => sub {
    app('shop', 1, qq{die "no database\\n";});
    my $server =
        TestServer->command_of('peregrine',
        qw(-E production --engine process --no-access-log --workers 1 --queue-timeout 1 --status),
        "$dir/status", '--mount', "/=$site", '--mount', "/shop=$shop,workers=1");
    my $metric = sub {
        my ($name) = @_;
        my $client = TestClient->new("$dir/status");
        $client->send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        my ($value) = (($client->response || {})->{body} // '') =~ /^peregrine_\Q$name\E ([0-9]+)$/m;
        return $value // -1;
    };
    wait_for(sub { $server->log =~ /no worker serves/ });
    is $metric->('mount_workers{mount="/shop"}'), 0, 'metrics: no worker of it serves';
    ok wait_for(sub { $metric->('mount_workers{mount="*"}') == 1 }), '... those of all others do';
    get($server->port, '/') for 1 .. 3;
    is $metric->('mount_requests_total{mount="*"}'), 3, '... and their requests are counted';
    my ($status, $text) = command('reload', '/shop', $server->pid);
    is $status, 1, 'reload tries at once';
    like $text, qr{^/shop: no worker serves: .*no database}m, '... and says why it fails';
    app('shop', 2);
    ($status, $text) = command('reload', '/shop', $server->pid);
    is $status, 0, '... or that the workers serve';
    is((asked($server->port, '/shop'))[1], 2, '... which they do');
    is $metric->('mount_requests_total{mount="/shop"}'), 1, '... and count';
    ($status, $text) = command('reload', '/shop', $server->pid);
    my %expected = (requests => 1, answers => 1, failures => 0, unanswered => 0);
    ok wait_for(sub { $metric->('mount_generation{mount="/shop"}') == 2 }), 'the generation of the mount';
    is $metric->('mount_generation{mount="*"}'), 1, '... is not that of others';
    is $metric->("mount_${_}_total{mount=\"/shop\"}"), $expected{$_}, "$_ count when their workers have gone"
        for sort keys %expected;
    cmp_ok $metric->('mount_worker_restarts_total{mount="/shop"}'), '>=', 1, '... and so do replacements';
    is $server->stop, 0, 'the end';
};

subtest 'strangers' => sub {
    plan skip_all => 'only root can become another user' if $> != 0 || !defined getpwnam 'nobody';
    my $server = TestServer->command_of('peregrine', qw(-E production --no-access-log --workers 1), $site);
    my $pid    = $server->pid;
    my $uid    = getpwnam 'nobody';
    my $child  = fork // die "fork: $!";
    if (!$child) {
        require Peregrine::Server::Control;
        require POSIX;
        POSIX::setuid($uid);
        my $link = Peregrine::Server::Control->connect($pid);
        $link->say('reload');
        my $bits = '';
        vec($bits, $link->descriptor, 1) = 1;
        select $bits, undef, undef, 30;
        my @lines   = $link->read_lines;
        my $refusal = qr/only root and the user of the server \(root\) may give it commands/;
        POSIX::_exit(@lines == 1 && $lines[0][0] eq 'failed' && $lines[0][1] =~ $refusal ? 0 : 1);
    }
    waitpid $child, 0;
    is $?, 0, 'a user who may not send signals is not heard, and told why';
    unlike $server->log, qr/SIGHUP|reload/, '... and changes nothing';
    is $server->stop, 0, 'the end';
};

# Two containers in the network of their host, asked from there.
subtest 'two servers, each process 1 of a namespace' => sub {
    my @apart = qw(unshare --pid --fork --kill-child --mount-proc);
    plan skip_all => 'no namespace of processes can be made' if $> != 0 || system(@apart, 'true') != 0;
    my @command = ($^X, (map { "-I$_" } @INC), 'bin/peregrine');
    my @servers = map {
        TestServer->spawn(@apart, @command,
            qw(-E production --port 0 --no-access-log --workers 1 --engine process),
            '--mount', "$_=$site,workers=1")
    } qw(/one /two);
    for my $which (0, 1) {
        my $server = $servers[$which];
        $server->wait_for_log(qr/listening on (\S+)/) or diag $server->log;
        my $path  = '/proc/' . $server->pid . '/task/' . $server->pid . '/children';
        my ($pid) = split ' ', content($path) or return fail 'a server has started';
        my ($status, $text) = command('status', $pid);
        is $status, 0, 'a server hears a command';
        like $text, (qr{^/one }m, qr{^/two }m)[$which], '... and it is the one that was meant' or diag $text;
        kill TERM => $pid;
        is $server->wait, 0, '... and ends';
    }
};

subtest 'a server that is stopped' => sub {
    my $server = TestServer->command_of('peregrine', qw(-E production --no-access-log --workers 1), $site);
    my $pid    = $server->pid;
    $server->signal('STOP');
    my ($status, $text) = command('status', $pid);
    is $status, 1, 'status does not wait for ever';
    like $text, qr/the server has not heard the command within 10 s/, '... and says so';
    $server->signal('CONT');
    is $server->stop, 0, 'the end';
};

subtest 'help' => sub {
    for my $command (qw(reload status)) {
        my ($status, $text) = command($command, '--help');
        is $status, 0, "$command --help";
        like $text, qr/^ +peregrine reload \[MOUNT\] PID$/m, '... shows the manual';
    }
};

subtest 'misused' => sub {
    for my $case (
        [ [qw(reload /shop)],         qr/reload needs the id of one process, or --config or --pid/ ],
        [ [qw(reload /shop 1 2)],     qr/reload needs the id of one process/ ],
        [ [qw(reload /shop /api 1)],  qr{reload: unexpected argument '/api'} ],
        [ [qw(status /shop 1)],       qr{status: unexpected argument '/shop'} ],
        [ [qw(reload --workers 2 1)], qr/reload takes --pid, --config and --chdir, not --workers/ ],
        )
    {
        my ($words,  $message) = @$case;
        my ($status, $text)    = command(@$words);
        is $status, 2, "@$words";
        like $text, $message, '... is refused, and told why';
    }
};

done_testing;
