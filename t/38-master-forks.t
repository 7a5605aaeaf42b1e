# Children of a Peregrine::Master that cannot be forked for a moment, whose code is left by `next`, that
# become another program, or that do not leave; and a process that only says something.
use strict;
use warnings;

use lib 't/lib';
use Errno qw(EAGAIN);
use Peregrine::Fork;
use Peregrine::Master;
use POSIX ();
use Test::More;
use TestMaster qw(loop_until master);
use TestTools  ();                      # for its deadline

# Serves until it is told to leave.
sub serve {
    my ($child) = @_;
    my $link = $child->{link};
    $link->say('ready');
    until ($link->has_ended) {
        for my $word (map { $_->[0] } $link->read_lines) {
            return 0 if $word eq 'stop';
            if ($word eq 'retire') { $link->say('leaves'); return 0 }
        }
        vec(my $bits = '', $link->descriptor, 1) = 1;
        select $bits, undef, undef, undef;
    }
    return 0;
}

# Forks of this process that fail from now on.
my $failures = 0;
{
    no warnings 'redefine';
    my $fork = \&Peregrine::Fork::child;
    *Peregrine::Fork::child = sub {
        return $fork->(@_) if $failures-- <= 0;
        $! = EAGAIN;
        return undef;    ## no critic
    };
}

sub serving {
    my ($master) = @_;
    return grep { $_->{state} eq 'serving' } $master->children;
}

# A child that ended soon after its start is waited for in any case.
use constant LONG_S => Peregrine::Master::CRASH_S + 1;

subtest 'a fork fails once when a child has ended' => sub {
    my $master = master(count => 1, run => \&serve);
    $master->start->get;
    my ($child) = serving($master);
    $child->{since} -= LONG_S;
    $failures = 1;
    kill KILL => $child->{pid};
    ok loop_until(sub {
        grep { $_ != $child } serving($master);
        }),
        'another child serves';
    is $failures, -1, '... after the second attempt';
    $master->stop->get;
};

subtest 'a fork fails once in a restart' => sub {
    my $master = master(run => \&serve);
    $master->start->get;
    loop_until(sub { 2 == serving($master) });
    $failures = 1;
    my $restart = $master->restart;
    ok loop_until(sub { $restart->is_ready }), 'the restart is over';
    is $restart->is_ready && $restart->get, 1,  '... and all children were replaced';
    is $failures,                           -2, '... after the third attempt';
    $master->stop->get;
};

# Children that do not come to the end of their start, until the test is ready.
my $is_ready;

sub wait_and_serve {
    my ($child) = @_;
    return serve($child) if $is_ready;
    local $SIG{TERM} = 'IGNORE';
    $child->{link}->say(beat => 0);
    sleep 1000;
    return 0;
}

my $refusals = 0;
my %once     = (
    'a fork fails once' => {
        code => sub { $failures = 1 }
    },
    'what comes before the fork fails once' => {
        code      => sub { $refusals = 1 },
        arguments => [ before_fork => sub { die "not now\n" if $refusals-- > 0 } ],
    },
    'a child fails once' => {
        code      => sub { $refusals = 1 },
        arguments => [ run => sub { die "broken\n" if $refusals > 0; return wait_and_serve(@_) } ],
        launched  => sub { $refusals = 0 },
    },
    'a template fails to fork once' => {
        arguments => [ load => sub { $failures = 1 if $is_ready } ],
        ways      => ['restart'],
    },
);
for my $what (sort keys %once) {
    my $once = $once{$what};
    for my $way (@{ $once->{ways} || [qw(restart renew)] }) {
        subtest "$what in a $way before the first child serves" => sub {
            ($is_ready, $failures, $refusals) = (0, 0, 0);
            my $master = master(count => 1, run => \&wait_and_serve, @{ $once->{arguments} || [] });
            my $start  = $master->start;
            loop_until(sub {
                grep { defined $_->{connections} } $master->children;
            });
            $is_ready = 1;
            $once->{code}->() if $once->{code};
            $master->$way;
            $once->{launched}->() if $once->{launched};
            ok loop_until(sub { $start->is_ready }), 'the start is over';
            ok $start->is_done,                      '... and a child serves';
            kill KILL => map { $_->{pid} } grep { $_->{state} eq 'leaving' } $master->children;
            $master->stop->get;
        };
    }
}

subtest 'the first fork of all fails' => sub {
    $failures = 1;
    my $master = master(count => 3, run => \&serve);
    my $start  = $master->start;
    ok $start->is_failed, 'the start fails';
    is $failures, 0, '... and no other child is forked';
    is_deeply [ $master->children ], [], '... nor there';
    kill KILL => map { $_->{pid} } $master->children;
};

subtest 'a template cannot be forked once in a restart' => sub {
    my $master = master(run => \&serve, load => sub { });
    $master->start->get;
    loop_until(sub { 2 == serving($master) });
    $failures = 1;
    my $restart = $master->restart;
    ok loop_until(sub { $restart->is_ready }), 'the restart is over';
    is $restart->is_ready && $restart->get, 0, '... and was given up';
    is scalar serving($master),             2, '... and the children serve';
    $master->stop->get;
};

subtest 'code of a child is left by next' => sub {
    no warnings 'exiting';
    my $master   = master(count => 1, run => sub { next });
    my $starting = $master->start;
    ok loop_until(sub { $starting->is_ready }), 'the start comes to an end';
    like $starting->failure, qr/\Aleft by next, last or redo outside a loop$/, '... which tells of that';
};

subtest 'a child runs another program' => sub {
    my $execs  = 1;
    my $master = master(
        count => 1,
        run   => sub {
            my ($child) = @_;
            return serve($child) if !$execs;
            $child->{link}->say('ready');
            exec 'sleep', 60;
        }
    );
    $master->start->get;
    my ($child) = serving($master);
    $execs = 0;
    ok loop_until(sub {
        grep { $_ != $child } serving($master);
        }),
        'another child takes its place';
    ok !kill(0 => $child->{pid}), '... and the program has gone';
    $master->stop->get;
};

# The stop leaves more time than the child had before.
subtest 'a child that does not leave' => sub {
    my $master = master(
        count        => 1,
        named        => { stop => 'by the stop', recycle => 'by the recycling' },
        stop_timeout => sub { my ($way)   = @_; return $way eq 'stop' ? 600 : 300 },
        run          => sub { my ($child) = @_; $child->{link}->say('ready'); sleep 1000 },
    );
    $master->start->await;
    my ($child) = $master->children;
    $master->_let_go($child, 'max_requests');
    my $stop = $master->stop;
    $child->{deadline} = 0;
    $master->_look;
    like $child->{killed}, qr/did not leave in time \(by the recycling\)/,
        'the message names the option that set the earlier end';
    kill KILL => $child->{pid};
    ok loop_until(sub { $stop->is_ready }), 'it ends';
};

subtest 'a process that says something' => sub {
    my $process = $$;
    my $said    = sub {
        my ($code) = @_;
        my $text   = eval { Peregrine::Fork::said(undef, $code) };
        my $error  = $@;
        POSIX::_exit(1) if $$ != $process;
        return $text // $error;
    };
    is $said->(sub { return 'a text' }),      'a text',   'a text';
    is ${ $said->(sub { die \'a misuse' }) }, 'a misuse', 'a mistake of the user';
    like $said->(sub { die "broken\n" }),    qr/\Abroken/, 'an exception';
    like $said->(sub { die { code => 1 } }), qr/\AHASH/,   'an exception that is another reference';
};

done_testing;
