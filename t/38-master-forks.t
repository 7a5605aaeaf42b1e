# Children of a Peregrine::Master that cannot be forked for a moment.
use strict;
use warnings;

use lib 't/lib';
use Errno qw(EAGAIN);
use PAGI::Server::Log;
use Peregrine::Fork;
use Peregrine::Master;
use Peregrine::Process;
use Test::More;
use TestTools   qw(patience);
use Time::HiRes ();

my $loop = Peregrine::Process->make_loop;

sub master {
    my (%arguments) = @_;
    return Peregrine::Master->new(
        loop          => $loop,
        log           => PAGI::Server::Log->new(name => 'Test', quiet => 1),
        count         => 2,
        start_timeout => 0,
        stop_timeout  => sub { 5 },
        %arguments,
    );
}

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

sub loop_until {
    my ($is_so) = @_;
    my $until = Time::HiRes::time() + patience(20);
    $loop->loop_once(1) until $is_so->() || Time::HiRes::time() > $until;
    return $is_so->();
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

done_testing;
