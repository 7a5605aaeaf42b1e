# A process of a worker pool by itself: calls and answers of each length; a process that is told to leave, or
# gets signals, while it is at a call; code that takes away what the process needs; no room for descriptors.
use strict;
use warnings;

use lib 't/lib';
use Errno      qw(ETOOMANYREFS);
use File::Temp ();
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

# Code that ends a loop of its callers.
my %LEAVES = do {
    no warnings 'exiting';
    (next => sub { next }, last => sub { last }, redo => sub { redo });
};

my $said = File::Temp->new;    # by all processes

# From now on the kernel refuses each descriptor that a process sends.
sub refuse_descriptors {
    no warnings 'redefine';
    my $send = \&Peregrine::send_descriptors;
    *Peregrine::send_descriptors = sub {
        return $send->(@_) if @_ < 3;
        $! = ETOOMANYREFS;
        return undef;    ## no critic
    };
    return;
}

# A process gets no further descriptor.
sub leave_no_room {
    my ($pid) = @_;
    return system('prlimit', '--pid', $pid, '--nofile=3:') == 0 || die "prlimit: $?\n";
}

# Waits for the first message of a process: that it is ready, and how many bytes of memory it has.
sub wait_until_ready {
    my ($link) = @_;
    my @lines;
    until (@lines = $link->read_lines) {
        die "no process\n" if $link->has_ended;
        $link->wait;
    }
    my ($word, $bytes) = @{ $lines[0] };
    return if $word eq 'ready' && ($bytes // '') =~ /\A[0-9]{7,}\z/;
    die "no process says how much memory it has: @{ $lines[0] }\n";
}

# A pool, the link to its only process, and the process. A call of `read` waits for bytes in the pipe.
sub started {
    my (%options) = @_;
    my %code = map { $_ => delete $options{$_} } qw(init cleanup);
    my $pool;
    $pool = Peregrine::Server::WorkerPool->new(
        log           => PAGI::Server::Log->new(name => 'Test', quiet => 1),
        reopens       => [],
        configuration => Configuration->new(
            pool_queue   => 10,
            pool_timeout => 0,
            pool_workers => 1,
            %options,
            worker_pool => {
                %code,
                handlers => {
                    read   => sub { my $text; return sysread($input, $text, 10) ? $text : "$!" },
                    echo   => sub { return $_[1] },
                    leave  => sub { return $LEAVES{ $_[1] }->() },
                    refuse => sub { refuse_descriptors();                return 'refuses' },
                    close  => sub { POSIX::close(fileno $pool->{takes}); return 'closed' },
                    later  => sub {
                        $SIG{ALRM} = sub { die "too late\n" };
                        my $process = $$;
                        return 'waits' if fork;
                        sleep 1;
                        kill ALRM => $process;
                        POSIX::_exit(0);
                    },
                }
            },
        ),
    );
    my $place = $pool->{places}->claim;
    my ($here, $there) = Peregrine::Link->pair;
    $there->keep_in_child;
    my $pid = fork // die "fork: $!";
    if (!$pid) {
        open STDERR, '>>', $said->filename or die "$said: $!";
        $pool->_load;
        $pool->{notice} = Notice->new(
            wrong  => $wrong,
            words  => $pool->{places}->words,
            place  => $place,
            notice => $pool->{notice},
        );
        my $status = eval { $pool->_run({ link => $there->use_in_child, number => 1, spread => $place }) };
        POSIX::_exit($status // 3);
    }
    $there->close;
    wait_until_ready($here);
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

# The descriptor that ends an answer comes with the first byte of what was sent with it.
subtest 'long answers that have come as a whole before they are read' => sub {
    my ($pool, $calls, $link, $pid) = started();
    my %wrong;
    for my $length (map { 65_500 + 8 * $_, 131_000 + 800 * $_ } 0 .. 20) {
        my $text  = 'x' x $length;
        my ($one) = $pool->{counts}->get(Peregrine::PoolProcess::DONE());
        my $call  = $calls->call('echo', args => [$text]);
        wait_for(sub { $pool->{counts}->get(Peregrine::PoolProcess::DONE()) > $one && $calls->stats->{idle} }
        );
        my $answer = eval { $call->get } // $@;
        $wrong{$length} = substr $answer, 0, 60 if $answer ne $text;
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

subtest 'handlers that are left by next, last and redo' => sub {
    my ($pool, $calls, $link, $pid) = started();
    for my $way (sort keys %LEAVES) {
        is_deeply [ ($calls->call('leave', args => [$way], timeout => 20)->failure)[ 0, 2 ] ],
            [ "left by next, last or redo outside a loop\n", 'HandlerDied' ], "$way: the call fails";
        is $calls->call('echo', args => [$way])->get, $way, '... and the process goes on';
    }
    $link->say(stop => 'stop');
    is ended($pid), 0, 'it leaves when it is told to';
};

subtest 'code that takes away what the process needs' => sub {
    for my $case (
        [ close => 'closed', 'the socket of the worker pool: Bad file descriptor' ],
        [ later => 'waits',  'too late' ],
        )
    {
        my ($name, $answer, $why) = @$case;
        my ($pool, $calls, $link, $pid) = started(cleanup => sub { warn "cleaned up after $name\n" });
        is $calls->call($name)->get, $answer, "$name: the call is answered";
        my $status = ended($pid);
        is defined $status && $status >> 8, 1, '... and the process ends, for another one';
        like content($said->filename), qr/pool process 1 ends: \Q$why\E$/m, '... says why';
        like content($said->filename), qr/cleaned up after $name$/m,        '... and cleans up';
    }
    my ($pool, $calls, $link, $pid) = started(cleanup => sub { die "not clean\n" });
    $link->say(stop => 'stop');
    is ended($pid) >> 8, 1, 'a cleanup that dies is a failure';
    like content($said->filename), qr/pool process 1 could not clean up: not clean$/m,
        '... of which the log tells';
};

subtest 'init and cleanup that fork a process which dies there' => sub {
    for my $name (qw(init cleanup)) {
        my $forks = sub {
            my $copy = fork // die "fork: $!\n";
            die "a copy of $name\n" if !$copy;
            waitpid $copy, 0;
            return {};
        };
        my ($pool, $calls, $link, $pid) = started($name => $forks);
        $link->say(stop => 'stop');
        is ended($pid), 0, "$name: the process does not notice";
        like content($said->filename),
            qr/process (?!$pid\b)\d+, which code of the worker pool has forked, .*: a copy of $name$/m,
            '... and the log tells of the copy';
    }
};

subtest 'the kernel lets no descriptor be on its way to the caller' => sub {
    my ($pool, $calls, $link, $pid) = started();
    is $calls->call('refuse')->get, 'refuses', 'an answer comes without its descriptor';
    for my $length (1, 100_000) {
        my $text = 'x' x $length;
        is $calls->call('echo', args => [$text])->get, $text, "so does one of $length bytes";
    }
    $link->say(stop => 'stop');
    is ended($pid), 0, 'the process leaves when it is told to';
};

subtest 'the kernel lets no descriptor be on its way to the process' => sub {
    my ($pool, $calls, $link, $pid) = started();
    {
        no warnings 'redefine';
        local *Peregrine::send_descriptors = sub { $! = ETOOMANYREFS; return undef };    ## no critic
        like $calls->call('echo')->failure, qr/\AUnavailable: no call now: Too many references/,
            'a call says what it lacks, and not that the queue is full';
    }
    is $calls->call('echo', args => [1])->get, 1, 'the next call is made';
    $link->say(stop => 'stop');
    is ended($pid), 0, 'the process leaves when it is told to';
};

subtest 'a process without room for descriptors' => sub {
    my ($pool, $calls, $link, $pid) = started();
    leave_no_room($pid);
    my $failure = $calls->call('echo', args => [1])->failure;
    like $failure, qr/\AWorkerDied: /, 'a call fails as if its process had ended';
    my $status = ended($pid);
    is defined $status && $status >> 8, 1, '... which it does, and takes no other call';
    like content($said->filename),
        qr/pool process 1 ends: no descriptor is left for a call: Too many open files$/m,
        '... and says why';
};

# The last one: this process has no room any more.
subtest 'a caller without room for descriptors' => sub {
    my ($pool, $calls, $link, $pid) = started();
    is $calls->call('echo', args => [1])->get, 1, 'a call leaves a line for the next one';
    leave_no_room($$);
    is $calls->call('echo', args => [2])->get, 2, 'an answer comes, though not its descriptor';
    like $calls->call('echo', args => [3])->failure, qr/\AUnavailable: no call now: Too many open files/,
        'a further call says what it lacks';
    $link->say(stop => 'stop');
    is ended($pid), 0, 'the process leaves when it is told to';
};

is $wrong->get(0), 0, 'each process has said that it is idle before it looked whether it has to leave';

done_testing;
