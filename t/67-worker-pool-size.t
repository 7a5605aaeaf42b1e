# How many processes a worker pool has with pool_idle_timeout, and when a restart of it is over: its master
# hears what the processes say and reads their words in shared memory. No process is started: the test says
# what each one does.
use strict;
use warnings;

my @SIGNALS;

BEGIN {
    *CORE::GLOBAL::kill = sub { push @SIGNALS, "@_"; return 1 };
}

use lib 't/lib';
use IO::Async::Loop;
use Peregrine::PoolProcess;
use Peregrine::Server::WorkerPool;
use Peregrine::Spread;
use POSIX ();
use Test::More;
use TestTools ();

use constant { IDLE => Peregrine::PoolProcess::IDLE(), AT_A_CALL => Peregrine::PoolProcess::FOREVER() };

package Log {
    sub warn { return }
}

my $untaken = 0;

package Master {
    use parent -norequire, 'Peregrine::Server::WorkerPool::Master';

    # A process that has ended, and is not waited for: signals do nothing.
    sub _launch {
        my ($self, $child) = @_;
        $child->{pid} = fork // die "fork: $!";
        POSIX::_exit(0) if !$child->{pid};
        return;
    }
}

# A master whose processes serve, each with its word.
sub master {
    my ($at_most, @words) = @_;
    my $spread = Peregrine::Spread->new;
    my $master = Master->new(
        loop              => IO::Async::Loop->new,
        log               => bless({}, 'Log'),
        count             => $at_most,
        spread            => $spread,
        heartbeat_timeout => 0,
        start_timeout     => 0,
        limits            => {},
        notice            => Peregrine::Words->new(1),
        untaken           => sub { return $untaken },
        stop_timeout      => sub { return 60 },
    );
    $master->start;
    $master->_hear($_, 'ready') for $master->children;
    $master->set_count(scalar @words);
    $master->_gone($_, 0) for grep { $_->{state} eq 'leaving' } $master->children;
    word($master, $_, $words[ $_ - 1 ]) for 1 .. @words;
    return $master;
}

sub at {
    my ($master, $number) = @_;
    return $master->_at($number);
}

sub word {
    my ($master, $number, $word) = @_;
    $master->{shared}{spread}->words->set(at($master, $number)->{spread}, $word);
    return;
}

sub says {
    my ($master, $number, $word) = @_;
    $master->_hear(at($master, $number), $word);
    return $master->wanted;
}

my $master = master(2, AT_A_CALL, IDLE);
is says($master, 2, 'idle'), 2, 'the only process that is idle stays, whatever calls go on';
$master = master(2, IDLE, AT_A_CALL);
is says($master, 1, 'idle'), 2, 'a process that is at a call stays when one before it is idle';
$master = master(3, IDLE, IDLE, AT_A_CALL);
is says($master, $_, 'idle'), 3, "... and so does process $_ before it" for 1, 2;
$master = master(3, AT_A_CALL, IDLE, IDLE);
is says($master, 2, 'idle'), 3,         'a process that is not the last one stays';
is says($master, 3, 'idle'), 2,         'the last one goes';
is at($master, 3),           undef,     '... and is told to leave';
is "@SIGNALS",               '',        '... by no signal, which could come when it has got a call';
is says($master, 2, 'idle'), 2,         'the one before it stays: no other one that takes calls is idle';
is at($master, 2)->{state},  'serving', '... and serves';
$master = master(3, IDLE, IDLE, AT_A_CALL);
is says($master, 3, 'idle'), 3, 'a process that has got a call since it said that it is idle stays';

# A process looks after each call whether it has to leave.
$master = master(3, IDLE, IDLE, IDLE);
my $last = at($master, 3);
says($master, 3, 'idle');
$master->{shared}{spread}->words->set($last->{spread}, AT_A_CALL);
$last->{deadline} = 0;
$master->_look;
is $last->{killed}, undef, 'a process that gets a call while it is told to leave is not killed for that';
$master->{shared}{spread}->words->set($last->{spread}, 0);
$master->_look;
like $last->{killed}, qr/did not leave in time/, '... but when it has ended the call and does not leave';

$master = master(4, AT_A_CALL, IDLE);
is says($master, 1, 'busy'), 2, 'no process starts while one is idle';
word($master, 2, AT_A_CALL);
is says($master, 2, 'busy'), 3,          'a process starts when none is idle';
is at($master, 3)->{state},  'starting', '... at once';
is says($master, 1, 'busy'), 3,          '... and no further one, until it serves';
$untaken = 2;
$master  = master(5, AT_A_CALL);
is says($master, 1, 'busy'), 3, 'processes start for calls that wait';
$untaken = 9;
$master->_ready($_) for grep { $_->{state} eq 'starting' } $master->children;
word($master, $_, AT_A_CALL) for 2, 3;
is says($master, 1, 'busy'), 5, '... up to pool_workers';
$untaken = 0;
$master  = master(2, AT_A_CALL, AT_A_CALL);
is says($master, 1, 'busy'), 2, 'there are no more than pool_workers';

# The process that got a call saw the last one idle, which was told to leave at that time.
$master = master(2, IDLE, IDLE);
is says($master, 2, 'idle'), 1, 'a process that is to leave';
word($master, 1, AT_A_CALL);
$master->_look;
is $master->wanted,         2,          '... is none that takes calls: the master looks whether one is there';
is at($master, 2)->{state}, 'starting', '... and starts one';

# Calls of new code find processes with new code when the restart is over.
sub restarted {
    my ($word)     = @_;
    my $master     = master(1, $word);
    my $old        = at($master, 1);
    my $restarting = $master->restart;
    @SIGNALS = ();
    $master->_ready(grep { $_->{state} eq 'starting' } $master->children);
    return ($master, $old, $restarting);
}

my ($restarting, $old);
($master, $old, $restarting) = restarted(AT_A_CALL);
ok $restarting->is_done, 'a process that is at a call takes no further one: the restart is over';
is $master->{notice}->get(0), 1,  '... as it sees before the next call that it has to leave';
is "@SIGNALS",                '', '... and the call is not interrupted';
($master, $old, $restarting) = restarted(IDLE);
is "@SIGNALS", "TERM $old->{pid}", 'a process that is idle is told by a signal';
$master->_look;
ok !$restarting->is_ready, '... and may take a call until it has heard that';
$master->_hear($old, 'leaves');
ok $restarting->is_done, '... which it says';
($master, $old, $restarting) = restarted(IDLE);
$master->{shared}{spread}->words->set($old->{spread}, AT_A_CALL);
$master->_look;
ok $restarting->is_done, 'a process that has got a call meanwhile takes no further one';

done_testing;
