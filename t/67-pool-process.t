# A process of a worker pool by itself: calls of each length, and a process that is told to leave, or gets
# signals, while it is at a call.
use strict;
use warnings;

use lib 't/lib';
use IO::Async::Loop;
use PAGI::Server::Log;
use Peregrine::Link;
use Peregrine::PoolProcess;
use Peregrine::Server::WorkerPool;
use POSIX ();
use Test::More;
use TestTools qw(content ended wait_for);

plan skip_all => 'Linux only' if $^O ne 'linux';

pipe my $input, my $output or die "pipe: $!";

package Configuration {
    sub new       { my ($class, %options) = @_; return bless {%options}, $class }
    sub options   { return $_[0] }
    sub by_chance { return 0 }
}

# The states of processes, read at a moment that a test chooses.
package States {
    sub new { my ($class, $words, $before) = @_; return bless { words => $words, before => $before }, $class }

    sub get {
        my ($self, @which) = @_;
        my $before = delete $self->{before};
        $before->() if $before;
        return $self->{words}->get(@which);
    }
}

# A process's notice, which counts how often it is read while the process does not say that it is idle.
package Notice {
    sub new { my ($class, %args) = @_; return bless {%args}, $class }

    sub get {
        my ($self) = @_;
        $self->{wrong}->add(0, 1)
            if $self->{words}->get($self->{place}) != Peregrine::PoolProcess::IDLE();
        return $self->{notice}->get(0);
    }
}

my $wrong = Peregrine::Words->new(1);

# A pool, the link to its only process, and the process. A call of `read` waits for bytes in the pipe.
sub started {
    my (%options) = @_;
    my $pool = Peregrine::Server::WorkerPool->new(
        log           => PAGI::Server::Log->new(name => 'Test', quiet => 1),
        configuration => Configuration->new(
            pool_queue   => 10,
            pool_timeout => 0,
            pool_workers => 1,
            %options,
            worker_pool => {
                handlers => {
                    read => sub { my $text; return sysread($input, $text, 10) ? $text : "$!" },
                    echo => sub { return $_[1] },
                }
            },
        ),
    );
    my $place = $pool->{places}->claim;
    my ($here, $there) = Peregrine::Link->pair;
    $there->keep_in_child;
    my $pid = fork // die "fork: $!";
    if (!$pid) {
        $pool->_load;
        $pool->{notice} = Notice->new(
            wrong  => $wrong,
            words  => $pool->{places}->words,
            place  => $place,
            notice => $pool->{notice},
        );
        POSIX::_exit($pool->_run({ link => $there->use_in_child, number => 1, spread => $place }));
    }
    $there->close;
    $here->wait_for('ready') or die 'no process';
    my $calls = $pool->for_interpreter(IO::Async::Loop->new);
    wait_for(sub { $calls->stats->{idle} }) or die 'the process does not wait for calls';
    return ($pool, $calls, $here, $pid);
}

subtest 'calls that fit the message, and longer ones' => sub {
    my ($pool, $calls, $link, $pid) = started();
    my %wrong;
    for my $length (1 .. 300) {
        my $text = substr join('', 'a' .. 'zz'), 0, $length;
        my $said = $calls->call('echo', args => [$text])->get;
        $wrong{$length} = $said if $said ne $text;
    }
    is_deeply \%wrong, {}, 'all come as they are';
    $link->say(stop => 'stop');
    is ended($pid), 0, 'the process leaves when it is told to';
};

subtest 'a process that is told to leave while it is at a call' => sub {
    my ($pool, $calls, $link, $pid) = started();
    my @calls = map { $calls->call($_) } qw(read echo);
    ok wait_for(sub { $calls->stats->{busy} }), 'it is at a call';
    $link->say(retire => 'restart');
    $pool->{notice}->add(0, 1);
    syswrite $output, 'text';
    is $calls[0]->get, 'text', '... which it ends';
    is ended($pid),    0,      '... and leaves';
    ok !$calls[1]->is_ready, '... without the next call';
    is $calls->untaken, 1, '... which waits for another process';
    $calls->{message_size} /= 1.5;
    is $calls->untaken, 1, '... and is one call, though it takes more memory than was measured';
    ok $link->wait_for('leaves'), '... and has told that';
    is $calls->stats->{workers}, 0, '... and is none that makes calls';
};

subtest 'a call that the process takes while the next one is made' => sub {
    my ($pool, $calls, $link, $pid) = started(pool_queue => 1);
    kill STOP => $pid;
    wait_for(sub { content("/proc/$pid/stat") =~ /\) T / }) or die 'the process goes on';
    my $first = $calls->call('read');
    my $words = $calls->{words};
    $calls->{words} = States->new(
        $words,
        sub {
            kill CONT => $pid;
            wait_for(sub {
                !grep { $_ == Peregrine::PoolProcess::IDLE } $words->get(1, $words->get(0));
            })
                or die 'the process takes no call';
        }
    );
    my $second = $calls->call('echo', args => ['text']);
    ok !$second->is_failed, 'the queue has room for the next call';
    syswrite $output, 'text';
    is $first->get,  'text', 'the process makes both of them';
    is $second->get, 'text', '... in turn' if !$second->is_failed;
    $link->say(stop => 'stop');
    is ended($pid), 0, 'it leaves when it is told to';
};

subtest 'calls while the process is replaced' => sub {
    my ($pool, $calls, $link, $pid) = started(pool_queue => 1);
    $link->say(stop => 'stop');
    is ended($pid), 0, 'it leaves when it is told to';
    my @calls = map { $calls->call('echo') } 1 .. 3;
    is_deeply [ map { $_->is_failed ? ($_->failure)[2] : 'waits' } @calls ],
        [ 'waits', 'waits', 'Backpressure' ],
        'one call waits for its successor, and the queue has another one';
};

subtest 'signals for all processes while it is at a call' => sub {
    my ($pool, $calls, $link, $pid) = started();
    for my $signal (qw(TERM INT HUP USR1)) {
        my $call = $calls->call('read');
        wait_for(sub { $calls->stats->{busy} });
        wait_for(sub { content("/proc/$pid/stat") =~ /\) S / });
        kill $signal => $pid;
        ok wait_for(sub { content("/proc/$pid/status") =~ /^ShdPnd:\s+0+$/m }), "$signal comes";
        syswrite $output, 'text';
        is $call->get, 'text', '... and its handler reads on';
    }
    $link->say(stop => 'stop');
    is ended($pid), 0, 'it leaves when it is told to';
};

is $wrong->get(0), 0, 'each process has said that it is idle before it looked whether it has to leave';

done_testing;
