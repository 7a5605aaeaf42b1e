# The start of a Peregrine::Master: restarts that it is asked for before a child of its serves, children that
# need each other, and the size of a child.
use strict;
use warnings;

use lib 't/lib';
use Peregrine::Master;
use Test::More;
use TestMaster qw(loop master);
use TestTools  qw(patience wait_for);

my $loop = loop();

# Dies in its child, after the time in which a restart comes.
sub broken { select undef, undef, undef, 0.3; die "broken\n" }

for my $way ([ 'children', run => \&broken ], [ 'a template', load => \&broken, run => sub { 0 } ]) {
    my ($what, @arguments) = @$way;
    subtest "$what that cannot start" => sub {
        my $master  = master(@arguments);
        my $start   = $master->start;
        my $restart = $master->restart;
        my $timeout = $loop->timeout_future(after => patience(20));
        Future->wait_any($timeout, Future->wait_all($start->without_cancel, $restart->without_cancel))->await;
        ok $start->is_failed, 'the start fails';
        ok $restart->is_done, '... the restart is over';
        is(($restart->is_done ? $restart->get : undef), 0, '... and was given up');
    };
}

# Child 1 is a helper. A child begins to serve, or fails, when a byte comes for it.
sub with_helper {
    my ($code) = @_;
    my @pipes  = map { pipe my $in, my $out or die "pipe: $!"; [ $in, $out ] } 0 .. 2;
    my $served = 0;
    my $master = master(
        is_helper  => sub { my ($number) = @_; return $number == 1 },
        on_serving => sub { $served++ },
        run        => sub {
            my ($record) = @_;
            sysread $pipes[ $record->{number} ][0], my $byte, 1;
            die "broken\n" if $byte ne 'r';
            $record->{link}->say('ready');
            sleep 1000;
        },
    );
    my $start = $master->start;
    my $tell  = sub { my ($number, $byte) = @_; syswrite $pipes[$number][1], $byte };
    my $state = sub {
        my ($number) = @_;
        return join ' ', map { $_->{state} } grep { $_->{number} == $number } $master->children;
    };
    my $until = sub {
        my ($what) = @_;
        return wait_for(sub { $loop->loop_once(0.02); return $what->() });
    };
    $code->($start, $tell, $state, $until, \$served, $master);
    kill KILL => map { $_->{pid} } $master->children;
    $master->stop->await;
    return;
}

for my $case ([ 'helpers', 1, 2 ], [ 'other children', 2, 1 ]) {
    my ($who, $late, $early) = @$case;
    subtest "$who that start late" => sub {
        with_helper(sub {
            my ($start, $tell, $state, $until, $served) = @_;
            $tell->($early, 'r');
            ok $until->(sub { $state->($early) eq 'serving' }), 'the first child is ready';
            is $$served, 0, '... and alone it does not serve';
            $tell->($late, 'r');
            ok $until->(sub { $start->is_ready }), 'the other one is ready';
            is $$served, 1, '... then both serve';
        });
    };
    subtest "$who that fail" => sub {
        with_helper(sub {
            my ($start, $tell, $state, $until, $served) = @_;
            $tell->($early, 'r');
            ok $until->(sub { $state->($early) eq 'serving' }), 'the first child is ready';
            $tell->($late, 'x');
            ok $until->(sub { $start->is_ready }), 'the other one fails: the first one serves';
            is $state->($late), 'starting', '... and another one takes its place';
        });
    };
}

# TERM is like the end of a whole program, which the master waits a moment for. After the second end in a row
# the next child waits.
for my $case ([ KILL => 1 ], [ TERM => 1 ], [ KILL => 2 ]) {
    my ($signal, $times) = @$case;
    subtest "a helper that serves and ends by $signal while others start, times: $times" => sub {
        with_helper(sub {
            my ($start, $tell, $state, $until, $served, $master) = @_;
            for (1 .. $times) {
                $tell->(1, 'r');
                ok $until->(sub { $state->(1) eq 'serving' }), 'the helper is ready';
                my ($helper) = $master->children;
                kill $signal => $helper->{pid};
                ok $until->(sub {
                    !grep { $_ == $helper } $master->children;
                    }),
                    '... and has gone';
            }
            $tell->(2, 'r');
            ok $until->(sub { $state->(2) eq 'serving' }), 'the other child is ready';
            is $$served, 0, '... and does not serve alone';
            $tell->(1, 'r');
            ok $until->(sub { $start->is_ready }), 'another helper is ready';
            is $$served, 1, '... then both serve';
        });
    };
}

subtest 'a child that grows as soon as it serves' => sub {
    my $size = 50;
    no warnings 'redefine';
    local *Peregrine::resident_bytes                = sub { $size };
    local *Peregrine::Master::Growth::private_bytes = sub { $size };
    my $master = master(
        count      => 1,
        limits     => { rss => 100 },
        run        => sub { my ($child) = @_; $child->{link}->say('ready'); sleep 60; return 0 },
        on_serving => sub { $size       = 200 },
    );
    $master->start->get;
    $master->_look;
    is_deeply [ map { $_->{state} } $master->children ], [qw(serving starting)], '... is replaced';
    kill KILL => map { $_->{pid} } $master->children;
};

done_testing;
