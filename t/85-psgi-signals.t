# Signals, processes and programs of applications: the table of Plack::Handler::EVHTP, row by row. In each
# placement a child is as it would be in a program without a server.
# Not repeated for each PEREGRINE_ENGINE: its servers name their engines.
use strict;
use warnings;

use lib 't/lib';
use OnlyInFull qw(only_in_full);
use Peregrine::Threads;
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools   qw(program_path wait_for);
use TestWorkers qw(write_both);

plan skip_all => 'the dispositions of a process are read from /proc' if $^O ne 'linux';

# The applications' code by path; each returns the text of the answer.
my $do = <<'PERL';
use strict;
use warnings;
use POSIX ();
use Time::HiRes ();

# Signals that the process ignores, and those that it handles.
sub dispositions {
    open my $in, '<', "/proc/$$/status" or die $!;
    return join '', grep { /\ASig(?:Ign|Cgt)/ } <$in>;
}

sub unchanged_by {
    my ($code) = @_;
    my $before = dispositions();
    $code->();
    my $now = dispositions();
    return $now eq $before ? 'unchanged' : "from $before to $now";
}

# The status of a child that does something.
sub child {
    my ($code, $signal) = @_;
    pipe my $in, my $out or die $!;
    my $pid = fork // die $!;
    if (!$pid) {
        close $in;
        $code->($out);
        POSIX::_exit(99);
    }
    close $out;
    if ($signal) {
        readline $in;
        kill $signal => $pid;
    }
    waitpid $pid, 0;
    return $? & 127 ? 'signal ' . ($? & 127) : 'exit ' . ($? >> 8);
}

# Tells its parent that it waits for a signal. No child waits for ever. Perl calls a handler between two
# waits: a signal that came just before a long one would be kept to its end.
sub wait_in_child {
    my ($out) = @_;
    alarm 100;
    syswrite $out, "\n";
    select undef, undef, undef, 0.1 while 1;
}

my @suicide = ($^X, '-e', 'kill TERM => $$; exit 9');
sub ended { return $? & 127 ? 'signal ' . ($? & 127) : 'exit ' . ($? >> 8) }

# Seconds that do not pass are cut short by an alarm.
sub after {
    my ($set, $handler) = @_;
    my $called = 0;
    local $SIG{ALRM} = $handler ? sub { $called++ } : 'DEFAULT';
    $set->();
    my $end = time + 60;
    select undef, undef, undef, 60;
    return ($called ? 'called' : 'not called') . (time < $end - 20 ? ', interrupted' : '');
}

our @kept;
my %DO = (
    '/handlers' => sub {
        return unchanged_by(sub {
            local @SIG{qw(TERM INT HUP CHLD USR1 PIPE)} = (sub { }) x 6;
            @SIG{qw(TERM CHLD)} = (sub { }) x 2;
        });
    },
    '/ignore'  => sub { unchanged_by(sub { local @SIG{qw(TERM INT HUP CHLD ALRM)} = ('IGNORE') x 5 }) },
    '/default' => sub { unchanged_by(sub { @SIG{qw(TERM INT HUP CHLD ALRM PIPE)} = ('DEFAULT') x 6 }) },
    '/delete'  => sub { unchanged_by(sub { delete @SIG{qw(TERM INT HUP CHLD)} }) },
    '/sigaction' => sub {
        my $old = POSIX::SigAction->new;
        local $SIG{USR2} = 'IGNORE';
        my $same = unchanged_by(sub {
            POSIX::sigaction(POSIX::SIGTERM(), POSIX::SigAction->new('DEFAULT')) or die;
            POSIX::sigaction(POSIX::SIGUSR2(), POSIX::SigAction->new('DEFAULT'), $old) or die;
        });
        return "$same, $SIG{TERM} $SIG{USR2}, before " . $old->handler;
    },
    '/kept'       => sub { $SIG{USR2} = \&dispositions; $SIG{USR2} == \&dispositions ? 'kept' : 'lost' },
    '/alarm'      => sub { after(sub { alarm 1 }, 1) },
    '/alarm-bare' => sub { after(sub { alarm 1 }) },
    '/hires'      => sub { after(sub { Time::HiRes::alarm(0.1) }, 1) },
    '/hires-bare' => sub { after(sub { Time::HiRes::alarm(0.1) }) },
    '/ualarm'     => sub { after(sub { Time::HiRes::ualarm(100_000) }, 1) },
    '/left' => sub {
        Time::HiRes::alarm(100.5);
        my $left = Time::HiRes::alarm(0);
        return $left > 90 && $left <= 100.5 ? 1 : $left;
    },
    '/repeated'   => sub {
        my $count = 0;
        local $SIG{ALRM} = sub { $count++ };
        Time::HiRes::alarm(0.01, 0.01);
        select undef, undef, undef, 1 for 1 .. 3;
        Time::HiRes::alarm(0);
        return $count >= 3 ? 'several' : $count;
    },
    '/timers' => sub {
        local $SIG{ALRM} = 'DEFAULT';
        Time::HiRes::setitimer($_, 0.05)
            for Time::HiRes::ITIMER_REAL(), Time::HiRes::ITIMER_VIRTUAL(), Time::HiRes::ITIMER_PROF();
        my ($user) = times;
        1 while (times)[0] < $user + 0.3;
        return 'goes on';
    },
    '/watched' => sub {
        require IO::Async::Loop;
        my $loop = IO::Async::Loop->new;
        pipe my $in, my $out or die $!;
        my $pid = fork // die $!;
        if (!$pid) {
            close $out;
            readline $in;
            POSIX::_exit(3);
        }
        close $in;
        my $called = 0;
        $loop->watch_process($pid => sub { $called++ });
        close $out;
        $loop->loop_once(0.1) for 1 .. 10;
        my $taken = waitpid $pid, 0;
        $loop->unwatch_process($pid);
        return $called ? 'called' : $taken == $pid ? 'exit ' . ($? >> 8) : 'gone';
    },
    '/raise' => sub { POSIX::raise($_) for POSIX::SIGUSR1(), POSIX::SIGTERM(), POSIX::SIGPIPE(); 'goes on' },
    '/pipe' => sub {
        pipe my $in, my $out or die $!;
        close $in;
        return syswrite($out, 'x') ? 'written' : 'goes on';
    },
    '/exec'  => sub { exec $^X, '-e', '1' },
    '/die-handler' => sub {
        my ($died, $warned) = ('', '');
        local $SIG{__DIE__}  = sub { $died   = 'died' };
        local $SIG{__WARN__} = sub { $warned = 'warned' };
        warn 'x';
        eval { die 'x' };
        return "$died $warned";
    },

    '/child-exit'    => sub { child(sub { exit 3 }) },
    '/child-term'    => sub { child(\&wait_in_child, 'TERM') },
    '/child-handler' => sub {
        child(sub { $SIG{TERM} = sub { POSIX::_exit(7) }; wait_in_child(@_) }, 'TERM');
    },
    '/child-inherits' => sub {
        local $SIG{TERM} = sub { POSIX::_exit(8) };
        return child(\&wait_in_child, 'TERM');
    },
    '/child-ignores' => sub {
        local $SIG{TERM} = 'IGNORE';
        return child(sub { kill TERM => $$; POSIX::_exit(6) });
    },
    '/child-alarm' => sub { child(sub { alarm 1; sleep 100 }) },
    '/child-pipe' => sub {
        return child(sub {
            pipe my $in, my $out or die $!;
            close $in;
            syswrite $out, 'x';
            POSIX::_exit(5);
        });
    },
    '/child-exec'  => sub { child(sub { exec @suicide }) },
    '/grandchild' => sub {
        return child(sub { POSIX::_exit(child(\&wait_in_child, 'TERM') eq 'signal 15' ? 4 : 1) });
    },
    '/system'      => sub { system @suicide; ended() },
    '/system-name' => sub { system { $^X } @suicide; ended() },
    '/shell'       => sub { system "kill -TERM \$\$; exit 9"; ended() },
    '/backticks'   => sub { my $no = `kill -TERM \$\$; exit 9`; ended() },
    '/open'        => sub { open my $in, '-|', @suicide or die $!; close $in; ended() },
    '/missing' => sub {
        no warnings 'exec';
        my $got = system '/nonexistent', 'x';
        return "$got " . ($!{ENOENT} ? 'ENOENT' : $!);
    },
    '/ignoring' => sub {
        local $SIG{TERM} = 'IGNORE';
        system @suicide;
        my $first = ended();
        my $no    = `kill -TERM \$\$; exit 8`;
        return "$first " . ended();
    },
    '/status'      => sub { (system $^X, '-e', 'exit 3') >> 8 },
    '/environment' => sub {
        local $ENV{PX_SET} = 'set';
        delete local $ENV{HOME};
        return `echo "\$PX_SET,\$HOME,"`;
    },
);
sub answer { return ($DO{ $_[0] } || sub { 'hello' })->() }
PERL

my ($psgi, $pagi) = write_both('signals', $do);

# Answers that are the same in each placement.
my %CHILDREN = (
    '/child-exit'     => 'exit 3',
    '/child-term'     => 'signal 15',
    '/child-handler'  => 'exit 7',
    '/child-inherits' => 'exit 8',
    '/child-ignores'  => 'exit 6',
    '/child-alarm'    => 'signal 14',
    '/child-pipe'     => 'exit 5',
    '/grandchild'     => 'exit 4',
    '/status'         => 3,
    '/ignoring'       => 'exit 9 exit 8',
    '/missing'        => '-1 ENOENT',
    '/environment'    => "set,,\n",
    '/die-handler'    => 'died warned',
    '/pipe'           => 'goes on',
    map { $_ => 'signal 15' } qw(/child-exec /system /system-name /shell /backticks /open),
);

# The behaviour of a clone at each signal.
my %CLONE = (
    (map { $_ => 'unchanged' } qw(/handlers /ignore /default /delete)),
    '/sigaction'  => 'unchanged, DEFAULT DEFAULT, before IGNORE',
    '/kept'       => 'kept',
    '/watched'    => 'exit 3',
    '/alarm-bare' => 'not called, interrupted',
    '/hires-bare' => 'not called, interrupted',
    '/left'       => 1,
    '/repeated'   => 'several',
    (map { $_ => 'called, interrupted' } qw(/alarm /hires /ualarm)),
    (map { $_ => 'goes on' } qw(/timers /raise)),
);

my $plackup = program_path('plackup');

sub plackup {
    my (@options) = @_;
    my $server =
        TestServer->spawn($^X, (map { "-I$_" } @INC), $plackup, qw(--listen 127.0.0.1:0), @options, $psgi);
    my ($port) = $server->wait_for_log(qr{listening on http://127\.0\.0\.1:(\d+)}) =~ /(\d+)\z/;
    return ($server, $port);
}

sub try_all {
    my ($server, $port, %expected) = @_;
    is((get($port, $_) || {})->{body}, $expected{$_}, $_) for sort keys %expected;
    is get($port, '/')->{body}, 'hello', 'the server goes on';
    is $server->stop,           0,       'to its end';
    unlike $server->raw_log, qr/in cleanup|SEGV|panic|no signal handler|returned from it/,
        'nothing strange in the log';
}

subtest "PSGI, $_->[0]" => sub { try_all(plackup(qw(-s Peregrine --engine), @$_), %CHILDREN) }
    for only_in_full([qw(inline)], [qw(inline --workers 1)]), [qw(thread)], [qw(process --workers 1)];

subtest "PAGI, $_->[0]" => sub {
    my $server = TestServer->command('--engine', @$_, $pagi);
    try_all($server, $server->port, %CHILDREN);
    }
    for [qw(inline)], only_in_full([qw(thread)], [qw(process --workers 1)]);

subtest 'PSGI, clones' => sub {
    plan skip_all => 'this Perl has no threads' if !Peregrine::Threads::are_possible();
    try_all(plackup(qw(-s EVHTP --max-workers 1)), %CHILDREN, %CLONE);
};

subtest 'exec in a clone' => sub {
    plan skip_all => 'this Perl has no threads' if !Peregrine::Threads::are_possible();
    my ($server, $port) = plackup(qw(-s EVHTP --max-workers 1));
    isnt((get($port, '/exec') || {})->{status}, 200, 'ends the process');
    ok wait_for(sub { ((get($port, '/') || {})->{body} // '') eq 'hello' }, 60), '... which is replaced';
    is $server->stop, 0, 'the server goes on to its end';
};

done_testing;
