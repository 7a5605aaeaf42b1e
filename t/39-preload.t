# --preload-app: a template process loads the application once and forks the workers.
use strict;
use warnings;

use lib 't/lib';
use Config;
use IO::Socket::UNIX ();
use Peregrine;
use Peregrine::Link;
use POSIX ();
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools   qw(content wait_for);
use TestWorkers qw(are_gone children descriptors directory is_gone load no_failure write_file);

# The application answers with its process, the number of its worker, the process that has loaded it, and its
# version; or as TestLoad's does.
my $APP = <<'APP';
use Future::AsyncAwait;
use lib 't/lib';
use TestLoad;
print STDERR "loaded in $$\n";
my $loaded = $$;
my $number = 0;
sub forked {
    my $pid = open(my $child, '-|') // die;
    return join '', <$child> if $pid;
    print scalar grep { readlink =~ /^socket:/ } glob "/proc/$$/fd/*";
    close STDOUT;
    require POSIX;
    POSIX::_exit(0);
}
END { print STDERR "END in $$\n" }
BEFORE
async sub {
    my ($scope, $receive, $send) = @_;
    if ($scope->{type} eq 'lifespan') {
        await $receive->();
        $number = $scope->{pagi}{worker_num};
        STARTUP
        await $send->({ type => 'lifespan.startup.complete' });
        return await $receive->();
    }
    my (undef, $first, $size) = split m{/}, $scope->{path};
    my $open = ($first // '') eq 'sockets' ? `ls -l /proc/self/fd | grep -c socket:` . forked() : '';
    my $body = $open ? $open
        : defined $size ? TestLoad::body_of($first, $size) : "$$ $number $loaded VERSION";
    my @headers = ([ 'x-process', $$ ], [ 'content-length', length $body ]);
    await $send->({ type => 'http.response.start', status => 200, headers => \@headers });
    await $send->({ type => 'http.response.body', body => $body });
};
APP

my $FAILS = q{return await $send->({ type => 'lifespan.startup.failed', message => 'no database' });};

sub application {
    my ($version, %code) = @_;
    my $text = $APP =~ s/BEFORE/$code{before} || ''/er =~ s/STARTUP/$code{startup} || ''/er;
    return write_file('app.pl', $text =~ s/VERSION/$version/r);
}

sub command {
    my (@arguments) = @_;
    return TestServer->command(qw(-E production --preload-app), @arguments, directory() . '/app.pl');
}

# process, number, process that has loaded, version
sub who {
    my ($port) = @_;
    return split ' ', (get($port, '/') || {})->{body} // '';
}

sub template { my ($port) = @_; return (who($port))[2] }

# The workers, without the template.
sub workers {
    my ($server, $template) = @_;
    my @all = grep { $_ != $template } children($server->pid);
    return @all;
}

# Waits until this many workers serve, none of which is one of these.
sub are_others {
    my ($server, $template, $count, @before) = @_;
    my %before = map { $_ => 1 } @before;
    return wait_for(sub {
        my @now = workers($server, $template);
        return @now == $count && !grep { $before{$_} || content("/proc/$_/cmdline") !~ /\(worker/ } @now;
    });
}

# Waits until each worker has answered: a HUP that comes before that finds one worker fewer.
sub all_serve {
    my ($server, $template, $port) = @_;
    my %has_answered;
    return wait_for(sub {
        $has_answered{ (who($port))[0] // '' } = 1;
        return !grep { !$has_answered{$_} } workers($server, $template);
    });
}

sub sockets {
    my ($pid) = @_;
    my %open = descriptors($pid);
    return grep { /\Asocket:/ } values %open;
}

subtest 'loaded once' => sub {
    application(1);
    my $server = command(qw(--workers 3 --reuseport));
    my $port   = $server->port;
    my %found;
    wait_for(sub { my ($pid, $number) = who($port); $found{$number} = $pid; keys %found == 3 });
    is_deeply([ sort keys %found ], [ 1, 2, 3 ], 'each worker has its number, in its lifespan too');
    is(() = $server->log =~ /loaded in/g, 1, 'the application is loaded once');
    my $template = template($port);
    ok(!(grep { $_ == $template } values %found), '... by a process that does not serve');
    is_deeply(
        [ sort { $a <=> $b } children($server->pid) ],
        [ sort { $a <=> $b } $template, values %found ],
        'workers are processes of the master'
    );
    like(content("/proc/$template/cmdline"), qr/pagi-server .*\(template\)/, 'ps shows the template');
    like(content("/proc/$found{3}/cmdline"), qr/\(worker 3\)/,               '... and which worker it is');
    is(scalar(sockets($template)), 1, 'the template has no socket but its link to the master')
        or diag explain { descriptors($template) };
    ok(
        wait_for(sub {
            my ($one, $two, $three) = map { scalar sockets($found{$_}) } 1 .. 3;
            return $one == $two && $two == $three;
        }),
        'workers have equally many sockets'
    );

    is(get($port, '/sockets')->{body}, "0\n0", 'programs and children of the template inherit no socket');
    kill KILL => $found{2};
    ok($server->wait_for_log(qr/worker 2 \($found{"2"}\) was killed by SIGKILL: another one/),
        'the master sees how a worker ends');
    ok(wait_for(sub { my ($pid, $number) = who($port); $number == 2 && $pid != $found{2} }),
        '... and another one has its number');
    is(() = $server->log =~ /loaded in/g, 1, '... for which nothing is loaded');
    $server->signal('TTIN');
    ok(wait_for(sub { (who($port))[1] == 4 }), 'TTIN: the fourth has a socket of its own');
    $server->signal('TTOU');
    ok(wait_for(sub { workers($server, $template) == 3 }), 'TTOU');
    is((grep { get($port, '/')->{status} == 200 } 1 .. 30), 30, '... nobody waits at the fourth socket');
    $server->signal('INT');
    is($server->wait,                               0, 'the server stops');
    is(() = $server->log =~ /^END in $template$/mg, 1, 'END blocks run in the template as well');
    like($server->log, qr/END in $template\n.*the server has stopped\n\z/s, '... before the master ends');
};

subtest 'HUP' => sub {
    application(1);
    my $server  = command(qw(--workers 2));
    my $port    = $server->port;
    my @clients = load($port);
    my $old     = template($port);
    are_others($server, $old, 2);
    my @before = workers($server, $old);
    my $fds    = () = descriptors($server->pid);
    application(2);
    $server->signal('HUP');
    like(
        $server->wait_for_log(qr/(SIGHUP: .*)/),
        qr/a new template loads the application anew/,
        'the log says what happens'
    );
    ok(wait_for(sub { (who($port))[3] == 2 && are_gone(@before) }), 'the new code serves');
    ok(wait_for(sub { is_gone($old) }), '... the old template goes with its last worker');
    my $template = template($port);
    are_others($server, $template, 2);

    application(3, before => 'die "broken\n";');
    my @now = sort(workers($server, $template));
    $server->signal('HUP');
    ok(
        $server->wait_for_log(
            qr/restart is given up, a new template cannot start: Error loading \S+: broken.*as they are: 2$/m
        ),
        'code that does not load: the restart is given up'
    );
    ok(wait_for(sub { 3 == children($server->pid) }), '... the new template goes');
    is_deeply([ sort(workers($server, $template)) ], \@now, '... the workers are the same');
    kill KILL => $now[0];
    ok(are_others($server, $template, 2, $now[0]), '... one that dies is replaced');
    all_serve($server, $template, $port);
    is(template($port), $template, '... from the old template');

    application(4, startup => $FAILS);
    @now = sort(workers($server, $template));
    $server->signal('HUP');
    ok($server->wait_for_log(qr/given up, a new worker 1 cannot start: .*no database.*as they are: 2$/m),
        'code that does not start');
    ok(wait_for(sub { 3 == children($server->pid) }), '... the new template goes');
    is_deeply([ sort(workers($server, $template)) ], \@now, '... the workers are the same');
    kill KILL => $now[1];
    ok(are_others($server, $template, 2, $now[1]), '... one that dies is replaced');
    is(template($port), $template, '... from the old template');

    application(5);
    $server->signal('HUP');
    select undef, undef, undef, 0.05;
    application(6);
    $server->signal('HUP');
    ok(wait_for(sub { (who($port))[3] == 6 && is_gone($template) && 3 == children($server->pid) }),
        'HUP, HUP: the newest code serves');
    # The workers of the oldest template leave while the newest one loads.
    $template = template($port);
    application(7);
    $server->signal('HUP');
    ok(wait_for(sub { (who($port))[3] == 7 }), 'HUP');
    application(8, before => 'select undef, undef, undef, 1.5;');
    $server->signal('HUP');
    ok(wait_for(sub { (who($port))[3] == 8 && is_gone($template) && 3 == children($server->pid) }),
        '... and another one before that is over: both old templates go');
    my $failed = kill_are_excused($server, @clients);
    is($failed, 0, 'no request failed but those of the workers that were killed');
    ok(
        wait_for(sub { $fds == (() = descriptors($server->pid)) }),
        'the master has as many descriptors as before'
    );
    is($server->stop, 0, 'the server ends well');
};

# Requests that failed, but for those at workers that this test has killed.
sub kill_are_excused {
    my ($server, @clients) = @_;
    my %killed = map { $_ => 1 } $server->log =~ /\((\d+)\) was killed by SIGKILL/g;
    my @failed = map { @{ ($_->finish)[1] } } @clients;
    return scalar grep { !$killed{ $_->[2] } && $_->[2] } @failed;
}

subtest 'a template that dies' => sub {
    application(1);
    my $server = command(qw(--workers 2 --reuseport));
    my $port   = $server->port;
    my $old    = template($port);
    are_others($server, $old, 2);
    my @before  = sort(workers($server, $old));
    my @clients = load($port);
    application(2);
    kill KILL => $old;
    ok($server->wait_for_log(qr/the template \($old\) has ended: the process was killed by SIGKILL/),
        'the log says so');
    my ($template) = $server->wait_for_log(qr/loaded in (?!$old\b)(\d+)/);
    ok($template, 'another one loads the application');
    is_deeply([ sort(workers($server, $template)) ], \@before, 'the workers are the same');
    no_failure('without a template', @clients);
    kill KILL => $before[0];
    ok(are_others($server, $template, 2, $before[0]),  'a worker that dies');
    ok(wait_for(sub { template($port) == $template }), '... is forked from the new one');
    application(3, before => 'die "broken\n";');
    kill KILL => $template;
    ok($server->wait_for_log(qr/no template, and no new workers: .*broken.*; the next one starts in 0\.5 s/),
        'one that cannot load');
    ok($server->wait_for_log(qr/broken.*; the next one starts in 1 s/), '... is tried again');
    is(get($port, '/')->{status}, 200, '... the workers serve');
    application(4);
    kill KILL => (children($server->pid))[0];
    ok(wait_for(sub { ((who($port))[3] // 0) == 4 }), '... until one loads, from which workers are forked');
    is($server->stop, 0, 'the server ends well');
};

subtest 'a master that is killed while code is loaded' => sub {
    my $app = write_file('hangs.pl', 'print STDERR "hangs in $$\n"; sleep 1000');
    for my $more ([], ['--preload-app']) {
        my $server = TestServer->spawn(
            $^X, (map { "-I$_" } @INC),
            'bin/pagi-server', qw(--port 0 --workers 1),
            @$more,            $app
        );
        my $loads = $server->wait_for_log(qr/hangs in (\d+)/) or die $server->log;
        $server->signal('KILL')->wait;
        ok(wait_for(sub { is_gone($loads) }), @$more ? 'leaves no template' : 'leaves no worker')
            or kill KILL => $loads;
    }
};

subtest 'applications that cannot be preloaded' => sub {
    my %why = (
        'use IO::Async::Loop; my $loop = IO::Async::Loop->new;' =>
            qr/has made an IO::Async::Loop, which processes cannot share: it has to be made in each/,
        'die "broken\n";'  => qr/Error loading \S*app\.pl: broken/,
        'exit 3;'          => qr/Error loading \S*app\.pl: it called exit\(3\)/,
        'kill KILL => $$;' => qr/^Error: the process that loads the code was killed by SIGKILL/m,
    );
    $why{'use threads; threads->create(sub { sleep 100 })->detach;'} = qr/has started threads \(2 run\)/
        if $Config{useithreads};
    for my $code (sort keys %why) {
        application(1, before => $code);
        my ($status, undef, $error) =
            TestServer->finish(qw(-E production --port 0 --workers 2 --preload-app), directory() . '/app.pl');
        is($status, 1, $code);
        like($error, $why{$code}, '... the log says why') or diag $error;
    }
    application(1, startup => $FAILS);
    my ($status, undef, $error) =
        TestServer->finish(qw(-E production --port 0 --workers 2 --preload-app), directory() . '/app.pl');
    is($status, 1, 'an application that loads and does not start');
    like($error, qr/^Error: .*no database/m, '... is told of');
};

subtest 'logs, status and Unix sockets' => sub {
    application(1);
    my $dir    = directory();
    my $server = TestServer->spawn(
        $^X, (map { "-I$_" } @INC),
        qw(bin/pagi-server -E production --workers 1 --preload-app --status 127.0.0.1:0),
        '--socket'    => "$dir/app.sock",
        '--error-log' => "$dir/error.log",
        "$dir/app.pl"
    );
    ok(wait_for(sub { content("$dir/error.log") =~ /listening on/ }), 'the server runs');
    rename "$dir/error.log", "$dir/error.log.1" or die $!;
    $server->signal('USR1');
    ok(wait_for(sub { -e "$dir/error.log" }), 'USR1: there is a new log');
    my $ask = sub {
        my $socket = IO::Socket::UNIX->new(Peer => "$dir/app.sock") or return '';
        print {$socket} "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        return do { local $/; readline $socket };
    };
    my ($pid) = $ask->() =~ /\r\n\r\n(\d+) 1 /;
    ok($pid, 'a Unix socket is served');
    select undef, undef, undef, 0.3;
    kill KILL => $pid;
    ok(wait_for(sub { $ask->() =~ /\r\n\r\n(?!$pid\b)\d+ 1 / }), 'another worker serves');
    my ($other) = $ask->() =~ /\r\n\r\n(\d+)/;
    my ($log)   = map { $_->{2} } { descriptors($other) };
    is($log, "$dir/error.log", '... and writes to the new log');
    my @processes = children($server->pid);
    $server->signal('KILL');
    ok(wait_for(sub { are_gone(@processes) }), 'when the master is killed workers and template end');
};

subtest 'many descriptors over a link' => sub {
    my ($here, $there) = Peregrine::Link->pair;
    open my $null, '<', '/dev/null' or die $!;
    ok($here->say(many  => "a\nb %", (fileno $null) x 600), 'more than fit into one message');
    ok($here->say(plain => 'text'),                         'a line after them');
    my ($first, $second, @more)        = $there->read_lines;
    my ($word,  $text,   @descriptors) = @$first;
    is_deeply([ $word, $text, scalar @descriptors ], [ 'many', "a\nb %", 600 ], 'all come, in order');
    is_deeply($second, [ 'plain', 'text' ], 'so does the line');
    is(scalar(@more),                                                       0,   '... and no more');
    is((grep { readlink("/proc/self/fd/$_") eq '/dev/null' } @descriptors), 600, 'they are what was sent');
    POSIX::close($_) for @descriptors;
    $here->say('before');
    $here->say('go');
    ok($there->wait_for('go'), 'a word is waited for');
    is_deeply([ $there->read_lines ], [ [ 'before', undef ] ], '... others stay');
    $here->close;
    ok(!$there->wait_for('go'), '... until the end');
};

subtest 'descriptors that are not expected' => sub {
    my ($here, $there) = Peregrine::Link->pair;
    $there->refuse_descriptors;
    open my $null, '<', '/dev/null' or die $!;
    my $before = () = glob '/proc/self/fd/*';
    Peregrine::send_descriptors($here->descriptor, "$_\n", (fileno $null) x 200) for qw(one two);
    is_deeply([ $there->read_lines ], [ [ 'one', undef ], [ 'two', undef ] ], 'the words come');
    is(scalar(() = glob '/proc/self/fd/*'), $before, '... without them');
};

subtest 'a line without an end' => sub {
    my ($here, $there) = Peregrine::Link->pair;
    is(syswrite($here->handle, 'x' x 50_000), 50_000, 'as much as a line may have');
    is_deeply([ $there->read_lines ], [], '... is waited for');
    ok(!$there->has_ended, '... while the link goes on');
    is(syswrite($here->handle, 'x' x 50_000), 50_000, 'more');
    is_deeply([ $there->read_lines ], [], '... is no line');
    ok($there->has_ended, '... but the end of the link: the loop would turn for it for ever');
};

done_testing;
