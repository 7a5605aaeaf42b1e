# --mount /shop=shop.psgi,workers=2 with --engine process: interpreters of one mount, whose faults cost no
# other mount a request.
use strict;
use warnings;

use lib 't/lib';
use OnlyInFull qw(only_in_full);
use Test::More;
use TestClient qw(get);
use TestGate;
use TestServer;
use TestTools   qw(wait_for);
use TestWorkers qw(children directory is_gone load no_failure pid_in stop_master write_file);

my $dir = directory();

# Answers with its version, the process, and what is loaded there, or as TestLoad's does; does what paths
# say.
sub psgi {
    my ($name, $version, $code) = @_;
    return write_file("$name.psgi", <<"PERL");
use lib 't/lib';
use TestLoad;
BEGIN { \$main::loaded{$name} = 1 }
$code
sub {
    my (\$env) = \@_;
    my \$path = \$env->{PATH_INFO};
    exit 3 if \$path eq '/exit';
    select undef, undef, undef, 1000 if \$path eq '/block';
    my \$loaded = join '+', sort keys %main::loaded;
    my \$text = "$name $version \$\$ \$loaded [\$env->{SCRIPT_NAME}]";
    \$text = TestLoad::body_of(\$1, \$2) if \$path =~ m{\\A/(\\d+)/(\\d+)\\z};
    return [ 200, [ 'X-Process' => \$\$, 'Content-Length' => length \$text ], [\$text] ];
};
PERL
}

my $api = write_file('api.pl', <<'PERL');
use Future::AsyncAwait;
BEGIN { $main::loaded{api} = 1 }
async sub {
    my ($scope, $receive, $send) = @_;
    die "no\n" if $scope->{type} ne 'http';
    my $text = "api 1 $$ " . join('+', sort keys %main::loaded) . " [$scope->{root_path}]";
    await $send->({ type => 'http.response.start', status => 200, headers => [] });
    await $send->({ type => 'http.response.body', body => $text });
}
PERL

sub started {
    my (@arguments) = @_;
    my ($site, $shop) = (psgi('site', 1, ''), psgi('shop', 1, ''));
    return TestServer->command_of('peregrine', qw(-E production --engine process --no-access-log --workers 1),
        '--mount', "/=$site", '--mount', "/shop=$shop,workers=2", '--mount', "/api=$api,workers=1",
        @arguments);
}

# Name, version, process, what is loaded, place; or the status.
sub asked {
    my ($port, $path) = @_;
    my $answer = get($port, $path) || {};
    return ($answer->{status} // 0) == 200 ? split ' ', $answer->{body} : $answer->{status};
}

sub place { my ($port, $path) = @_; return join ' ', (asked($port, $path))[ 0, 3, 4 ] }

for my $more ([], ['--preload-app']) {
    subtest "pools @$more" => sub {
        my $server = started(@$more);
        my $port   = $server->port;
        my %places = ('/shop/x' => 'shop shop [/shop]', '/api' => 'api api [/api]');
        ok wait_for(sub {
            !grep { place($port, $_) ne $places{$_} } keys %places;
            }),
            'each mount has interpreters that have loaded it alone';
        is place($port, '/x'), 'site site []', '... and so have the other mounts';

        my @clients = load($port);
        get($port, '/shop/exit') for 1 .. 4;
        ok wait_for(sub { (asked($port, '/shop'))[0] eq 'shop' }), 'interpreters that crash are replaced';
        like $server->log, qr{^Peregrine: /shop/: worker \d}m, '... as the log says, with the mount';
        is place($port, '/api'), 'api api [/api]', '... the other mounts serve';

        my ($pid) = (asked($port, '/shop'))[2];
        psgi('shop', 2, q{die "broken\n";});
        $server->signal('HUP');
        ok $server->wait_for_log(qr{/shop/: the restart is given up, .*broken}),
            'new code of one mount that is broken';
        is((asked($port, '/shop'))[1], 1, '... its old code goes on');
        no_failure('a mount that crashes', @clients);
        psgi('shop', 3, '');
        psgi('site', 3, '');
        $server->signal('HUP');
        ok wait_for(sub { ((asked($port, '/shop'))[1] // 0) == 3 && ((asked($port, '/'))[1] // 0) == 3 }),
            'HUP replaces the interpreters of all mounts';
        my @family = $server->family;
        is $server->stop, 0, 'the end';
        ok wait_for(sub {
            !grep { !is_gone($_) } @family;
            }),
            '... of all processes';
    };
}

subtest 'a mount that cannot start' => sub {
    my ($site, $shop) = (psgi('site', 1, ''), psgi('shop', 1, 'die "no database\n";'));
    my $server =
        TestServer->command_of('peregrine',
        qw(-E production --engine process --no-access-log --workers 1 --queue-timeout 1),
        '--mount', "/=$site", '--mount', "/shop=$shop,workers=2");
    my $port = $server->port;
    is((asked($port, '/'))[0],     'site', 'the others serve');
    is((asked($port, '/shop'))[0], 503,    'its requests are refused');
    is((asked($port, '/'))[0],     'site', 'the others serve on');
    like $server->log, qr{/shop/: no worker serves, .*the next try is in \d+ s: .*no database},
        'the log says why';
    psgi('shop', 2, '');
    ok wait_for(sub { (asked($port, '/shop'))[0] eq 'shop' }), 'it is tried again';
    is $server->stop, 0, 'the end';
};

# The site's workers have ten minutes for a sign of life.
subtest 'a mount whose start does not end' => sub {
    my ($site, $shop) = (psgi('site', 1, ''), psgi('shop', 1, 'sleep 1000;'));
    my $server = TestServer->command_of(
        'peregrine',
        qw(-E production --engine process --no-access-log --workers 1),
        qw(--lifespan-startup-timeout 1 --heartbeat-timeout 600),
        '--mount',
        "/=$site",
        '--mount',
        "/shop=$shop,workers=1,heartbeat_timeout=1"
    );
    ok $server->wait_for_log(qr{/shop/.* did not start within 2 s \(lifespan_startup_timeout \+ heartbeat}),
        'it has the time that its own settings say';
    $server->stop;
};

# The limits of an end and of a restart are far longer than the test waits.
subtest 'only mounts with workers of their own' => sub {
    my @arguments = (
        qw(-E production --engine process --no-access-log --workers 1 --shutdown-timeout 300 --pid),
        "$dir/only",
        map { ('--mount', $_) } map { "$_,workers=1" } '/=' . psgi('site', 1, ''),
        '/shop=' . psgi('shop', 1, '')
    );
    for my $signal (qw(TERM QUIT USR2)) {
        my $server = TestServer->command_of('peregrine', @arguments);
        my $port   = $server->port;
        wait_for(sub { (asked($port, '/'))[0] eq 'site' && (asked($port, '/shop'))[0] eq 'shop' });
        if ($signal eq 'TERM') {
            my @old = children(pid_in('only'));
            $server->signal('HUP');
            ok wait_for(sub {
                1 == grep { !is_gone($_) } @old;
                }),
                'HUP replaces all but the engine';
        }
        $server->signal($signal);
        ok wait_for(sub { is_gone($server->pid) }), "$signal ends the process" or $server->signal('KILL');
        ok stop_master('only'), '... and so does the end of the new one' if $signal eq 'USR2';
        $server->stop;
    }
};

subtest 'a mount that is stuck' => sub {
    my $server = started('--queue-timeout', 1, '--shutdown-timeout', 1);
    my $port   = $server->port;
    wait_for(sub { (asked($port, '/shop'))[0] eq 'shop' });
    my @stuck = map { TestClient->new($port) } 1 .. 2;
    $_->send("GET /shop/block HTTP/1.1\r\nHost: h\r\n\r\n") for @stuck;
    ok wait_for(sub { (asked($port, '/shop'))[0] eq '503' }), 'its requests are refused';
    is((asked($port, '/'))[0],    'site', 'the others serve') for 1 .. 20;
    is((asked($port, '/api'))[0], 'api',  '... all of them');
    $server->stop;
};

subtest 'refused' => sub {
    my $site   = psgi('site', 1, '');
    my $engine = qr/need an engine in a process of its own: use --engine process/;
    my @reload = qw(--workers 2 --engine process --reload);
    my @sync   = qw(--workers 2 --engine process --sync-workers 1);
    for my $case (
        [ $engine,                                   "/=$site,workers=2", '--workers', 2 ],
        [ $engine,                                   "/=$site,workers=2", qw(--workers 2 --engine thread) ],
        [ $engine,                                   "/=$site,workers=2" ],
        [ qr/--reload replaces all workers at once/, "/=$site,workers=2", @reload ],
        [ qr/--sync-workers load no application/,    "/=$site,workers=2", @sync ],
        [ qr/'workers' is a number from 1 to 64/,    "/=$site,workers=0" ],
        [ qr/'workers' is a number from 1 to 64/,    "/=$site,workers=many" ],
        )
    {
        my ($message, @arguments) = @$case;
        my ($status, undef, $error) = TestServer->finish_of('peregrine', qw(--port 0 --mount), @arguments);
        isnt $status, 0, "@arguments[1 .. $#arguments]";
        like $error, $message, '... is refused, and told why';
    }
};

# As many as the engine has places for, and one more.
subtest 'too many interpreters' => sub {
    my $site    = psgi('site', 1, '');
    my $problem = qr/too many interpreters for one engine, which can have 64/;
    for my $case (
        [ 'workers: 64, and for replacements: 1', $site, '--workers', 64 ],
        [
            'workers: 33, sync_workers: 31, and for replacements: 1',
            $site, qw(--workers 33 --sync-workers 31)
        ],
        [
            'workers: 40, workers of mounts: 23, and for replacements: 2',
            '--mount', "/=$site", '--mount', "/shop=$site,workers=23", qw(--workers 40)
        ],
        )
    {
        my ($counts, @arguments) = @$case;
        my ($status, undef, $error) =
            TestServer->finish_of('peregrine', qw(--port 0 --engine process), @arguments);
        isnt $status, 0, $counts;
        like $error, qr/$problem \(\Q$counts\E\)/, '... are refused';
    }
};

subtest 'many interpreters' => sub {
    my $site = psgi('site', 1, '');
    my $server =
        TestServer->command_of('peregrine',
        qw(-E production --no-access-log --engine process --preload-app --workers 62 --pid),
        "$dir/many", $site);
    my $port = $server->port;
    is place($port, '/x'), 'site site []', '62 serve';
    $server->signal('TTIN');
    ok $server->wait_for_log(qr/SIGTTIN: workers: 63$/m), 'one more may come';
    ok wait_for(sub { children(pid_in('many')) >= 65 }),  '... comes, beside an engine and a template';
    $server->signal('TTIN');
    ok $server->wait_for_log(qr/SIGTTIN: there are 63 workers, no more/), '... but not two';
    my @old = children(pid_in('many'));
    psgi('site', 2, '');
    $server->signal('HUP');
    ok wait_for(sub {
        1 == grep { !is_gone($_) } @old;
        }),
        'HUP replaces all but the engine';
    unlike $server->log, qr/given up|cannot/, '... and is not given up';
    is $server->stop, 0, 'the end';
    }
    if only_in_full(1);

done_testing;
