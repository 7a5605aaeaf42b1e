# IO::Async::Loop::Peregrine keeps IO::Async's promises about time, and pagi-server runs on it
# unless told otherwise.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use Future::AsyncAwait;
use IO::Async::Loop;
use PAGI::Server;
use POSIX ();
use Test::More;
use TestClient qw(get);
use TestServer;

BEGIN {
    plan skip_all => 'needs IO::Async::Loop::Epoll' if !eval { require IO::Async::Loop::Peregrine; 1 };
}

my $loop = IO::Async::Loop::Peregrine->new;

my $app_loop;

async sub loop_app {
    my ($scope, $receive, $send) = @_;
    die "no\n" if $scope->{type} ne 'http';
    await $app_loop->delay_future(after => 0.01);
    await $send->({ type => 'http.response.start', status => 200 });
    await $send->({ type => 'http.response.body',  body   => 'slept' });
}

subtest 'timers' => sub {
    my @fired;
    my $note = sub {
        my ($what) = @_;
        return sub { push @fired, $what }
    };
    my $start = $loop->time;
    $loop->watch_time(at => $start + 0.03, code => $note->('third'));
    $loop->watch_time(at => $start + 0.01, code => $note->('first'));
    my @same = map { $loop->watch_time(at => $start + 0.02, code => $note->("same $_")) } 1 .. 4;
    $loop->unwatch_time($same[1]);
    $loop->unwatch_time($same[1]);
    $loop->watch_time(after => 0.05, code => sub { $loop->stop });
    $loop->run;
    is_deeply \@fired, [ 'first', 'same 1', 'same 3', 'same 4', 'third' ],
        'in order, without the one that was taken back';
    cmp_ok $loop->time - $start, '>=', 0.05, 'not before their time';
    $loop->unwatch_time($same[0]);
    pass 'one that has fired can be taken back';
};

subtest 'a thousand in any order' => sub {
    my $now = $loop->time;
    my (@fired, @timers);
    srand 1;
    push @timers, $loop->watch_time(
        at   => $now + int(rand 20) / 1000,
        code => do {
            my $n = $_;
            sub { push @fired, $n }
        }
    ) for 1 .. 1000;
    my %gone = map { $_ => 1 } grep { $_ % 3 == 0 } 1 .. 1000;
    $loop->unwatch_time($timers[ $_ - 1 ]) for keys %gone;
    my @expected =
        sort { $timers[ $a - 1 ][0] <=> $timers[ $b - 1 ][0] || $a <=> $b } grep { !$gone{$_} } 1 .. 1000;
    $loop->delay_future(at => $now + 0.03)->get;
    is_deeply \@fired, \@expected, 'fire by time, then by age';
};

subtest 'a signal beside a handle that is always ready' => sub {
    pipe my $reader, my $writer or die "pipe: $!";
    syswrite $writer, 'x';
    my ($turns, $came) = (0, 0);
    my $signal = $loop->attach_signal(USR1 => sub { $came = 1; $loop->stop });
    my $late   = $loop->watch_time(after => 5, code => sub { $loop->stop });
    $loop->watch_io(handle => $reader, on_read_ready => sub { kill USR1 => $$ if ++$turns == 3 });
    $loop->run;
    is $came, 1, 'its callback is called';
    cmp_ok $turns, '<', 1000, '... after a few turns';
    $loop->unwatch_io(handle => $reader, on_read_ready => 1);
    $loop->unwatch_time($late);
    $loop->detach_signal(USR1 => $signal);
};

subtest 'a clock that is set' => sub {
    for my $hours (-1, 1) {
        my @fired;
        my $start = $loop->time;
        $loop->watch_time(after => 0.06, code => sub { push @fired, 'after' });
        my $date = $loop->watch_time(at => $start + 1800, code => sub { push @fired, 'at' });
        my $gone = $loop->watch_time(at => $start + 1800, code => sub { push @fired, 'gone' });
        my $now  = \&IO::Async::Loop::time;
        no warnings 'redefine';
        {
            local *IO::Async::Loop::time = sub { return $now->(@_) + 3600 * $hours };
            my $late = $loop->watch_time(after => 10, code => sub { $loop->stop });
            my $own  = $loop->watch_time(
                at   => $loop->time + 0.09,
                code => sub { push @fired, 'own'; $loop->stop }
            );
            $loop->unwatch_time($gone);
            $loop->run;
            my @expected = $hours > 0 ? qw(at after own) : qw(after own);
            is_deeply \@fired, \@expected,
                "a timer fires by the clock that it was asked for, whenever it was set ($hours hours)";
            cmp_ok $now->($loop) - $start, '>=', 0.09, '... and not before its time';
            $loop->unwatch_time($late);
        }
        $loop->unwatch_time($date);
    }
};

subtest 'a clock that is set while it waits' => sub {
    my (@fired, $set);
    my $now = \&IO::Async::Loop::time;
    no warnings 'redefine';
    local *IO::Async::Loop::time = sub { return $now->(@_) + ($set ? 3600 : 0) };
    $loop->watch_time(at    => $now->($loop) + 1800, code => sub { push @fired, 'at'; $loop->stop });
    $loop->watch_time(after => 0.01,                 code => sub { $set = 1 });
    my $late = $loop->watch_time(after => 10, code => sub { push @fired, 'late'; $loop->stop });
    $loop->run;
    is_deeply \@fired, ['at'], 'a timer for a time of day is due';
    $loop->unwatch_time($late);
    $set = 0;
    my @times = map { $now->($loop) + $_ } 3600, 1800, 2700;
    my @dates = map {
        $loop->watch_time(at => $_, code => sub { })
    } @times;
    $loop->unwatch_time($_) for @dates;
    is $loop->{peregrine_dated}, 0, 'timers that have fired or were taken back are not counted';
};

subtest 'a signal whose callback takes the others back' => sub {
    my @names = qw(USR1 USR2 HUP TTIN TTOU WINCH URG IO);
    my (@called, $take_back);
    my %ids = map {
        my $name = $_;
        $name => $loop->attach_signal($name => sub { push @called, $name; $take_back->() });
    } @names;
    $take_back = sub { $loop->detach_signal($_ => $ids{$_}) for @names };
    kill $_ => $$ for @names;
    ok eval { $loop->loop_once(5); 1 }, 'the loop goes on' or diag $@;
    is scalar @called, 1, '... and calls none of those that were taken back';
    local $SIG{USR1} = sub { push @called, 'perl' };
    kill USR1 => $$;
    is $called[-1], 'perl', '... whose signals are Perl\'s again';
};

subtest 'a signal while the loop is never idle' => sub {
    my ($caught, $turns) = (0, 0);
    my $again;
    $again = sub { $loop->later($again) if !$caught && ++$turns < 10_000 };
    my $id = $loop->attach_signal(USR1 => sub { $caught++ });
    $again->();
    kill USR1 => $$;
    $loop->loop_once(0) while !$caught && $turns < 10_000;
    $loop->detach_signal(USR1 => $id);
    ok $caught, 'is seen' or diag "after $turns turns";
};

subtest 'the loop waits in the engine of a server' => sub {
    my $own = $app_loop = IO::Async::Loop::Peregrine->new;
    my ($first, $second) =
        map { PAGI::Server->new(app => $_, host => '127.0.0.1', port => 0, quiet => 1, access_log => undef) }
        (\&loop_app) x 2;
    $own->add($_)   for $first, $second;
    $_->listen->get for $first, $second;
    my $client = fork // die "Cannot fork: $!\n";
    if (!$client) {
        my @bodies = map { get($_->port, '/')->{body} } $first, $second, $first;
        POSIX::_exit("@bodies" eq 'slept slept slept' ? 0 : 1);
    }
    my ($status, @fired, $caught);
    pipe my $reads, my $writes or die $!;
    $own->watch_io(handle => $reads, on_read_ready => sub { sysread $reads, my $got, 1; push @fired, $got });
    $own->watch_time(after => 0.01, code => sub { syswrite $writes, 'r'; kill USR2 => $$ });
    my $id = $own->attach_signal(USR2 => sub { $caught = 1 });
    $own->watch_process($client => sub { $status = $_[1] });
    $own->watch_time(after => 60, code => sub { $status //= 'timed out' });
    $own->loop_once while !defined $status || !$caught || !@fired;
    is $status,  0,   'requests of two servers, whose application waits for a timer';
    is "@fired", 'r', 'a descriptor';
    ok $caught, 'a signal';
    $own->detach_signal(USR2 => $id);

    $own->remove($first);
    is $own->{peregrine_engine}, undef, 'a server that is taken out is forgotten';
    my $left = fork // die "Cannot fork: $!\n";
    if (!$left) {
        my $answer = get($second->port, '/')->{body};
        POSIX::_exit($answer eq 'slept' ? 0 : 1);
    }
    undef $status;
    $own->watch_process($left => sub { $status = $_[1] });
    $own->loop_once while !defined $status;
    is $status, 0, 'the other one goes on';

    my $child = fork // die "Cannot fork: $!\n";
    if (!$child) {
        my $woken;
        $own->watch_time(after => 0.01, code => sub { $woken = 1 });
        $own->loop_once while !$woken;
        POSIX::_exit(0);
    }
    waitpid $child, 0;
    is $?, 0, 'a child may run the loop for itself';
    $own->remove($second);
};

# Each in a process of its own, as EV stays.
sub after_post_fork {
    my (@modules) = @_;
    my $code = <<'PERL';
alarm 60;
my $loop = LoopWithEngine->new;
pipe my $reads, my $writes or die $!;
my $read;
$loop->watch_io(handle => $reads, on_read_ready => sub { $read = 1 });
$loop->loop_once(0);
$loop->post_fork for 1, 2;
syswrite $writes, 'x';
$loop->loop_once until $read;
print $loop->{peregrine_ev} ? 'in EV' : $loop->{peregrine_engine} ? 'in the engine' : 'alone';
PERL
    open my $out, '-|', $^X, (map { "-I$_" } @INC), qw(-Mstrict -MLoopWithEngine), @modules, '-e', $code
        or die "$^X: $!";
    return scalar <$out>;
}

# The engine's turns run no Perl code, and nothing but the clock says that a timer is due.
subtest 'a clock that is set while a loop waits in an engine' => sub {
    my $own    = IO::Async::Loop::Peregrine->new;
    my $server = PAGI::Server->new(
        app        => \&loop_app,
        host       => '127.0.0.1',
        port       => 0,
        quiet      => 1,
        access_log => undef
    );
    $own->add($server);
    $server->listen->get;
    $own->watch_time(after => 0.05, code => sub { $own->stop });
    $own->run;    # the work of the start is done
    my @fired;
    my $now   = \&IO::Async::Loop::time;
    my $start = $now->($own);
    {
        no warnings 'redefine';
        local *IO::Async::Loop::time = sub { return $now->(@_) - 3600 };
        $own->watch_time(at => $own->time + 1800, code => sub { push @fired, 'at'; $own->stop });
    }
    $own->watch_time(after => 20, code => sub { push @fired, 'late'; $own->stop });
    ok $own->{peregrine_engine}, 'the loop waits in an engine';
    $own->run;
    is_deeply \@fired, ['at'], 'a timer for a time of day is due';
    cmp_ok $now->($own) - $start, '<', 20, '... at once';
    $own->remove($server);
};

subtest 'post_fork' => sub {
    is after_post_fork(), 'in the engine', 'the engine waits for the new epoll descriptor';
    return diag('the rest needs EV') if system($^X, '-MEV', '-e', '1') != 0;
    is after_post_fork('-MEV'), 'in EV', 'so does EV';
};

subtest 'timers of timers, and what a timer holds' => sub {
    my $count = 0;
    my $again;
    $again = sub { $loop->watch_time(after => 0, code => $again) if ++$count < 5 };
    $again->();
    $loop->loop_once(0.1) while $count < 5;
    is $count, 5, 'a timer may make the next one';
    my $ended = 0;
    no warnings 'once';
    *Held::DESTROY = sub { $ended++ };
    my $timer = $loop->watch_time(
        after => 60,
        code  => do {
            my $held = bless [], 'Held';
            sub { $held }
        }
    );
    is $ended, 0, 'held while it waits';
    $loop->unwatch_time($timer);
    is $ended, 1, 'and not any more when it was taken back';
    ok !eval { $loop->watch_time(after => 1); 1 }, 'a timer without code is refused';
    ok !eval {
        $loop->watch_time(code => sub { });
        1;
    }, 'and one without a time';
};

sub served {
    my ($app) = @_;
    my $server = TestServer->command($app);
    return get($server->port, '/')->{body};
}

subtest 'which loop pagi-server makes' => sub {
    my $app = File::Temp->new(SUFFIX => '.pl');
    print {$app} <<'PERL';
use strict;
use Future::AsyncAwait;
use IO::Async::Loop;
my $mine = IO::Async::Loop->new;    # made while the application is loaded
async sub app {
    my ($scope, $receive, $send) = @_;
    die "no\n" if $scope->{type} ne 'http';
    await $mine->delay_future(after => 0.01);
    await $send->({ type => 'http.response.start', status => 200 });
    my $loop = IO::Async::Loop->new;
    await $send->({ type => 'http.response.body', body => ref($loop) . ' ' . ($mine == $loop) });
}
\&app;
PERL
    close $app;
    delete local $ENV{IO_ASYNC_LOOP};
    is served("$app"), 'IO::Async::Loop::Peregrine 1', 'by default, for the application too';
    local $ENV{IO_ASYNC_LOOP} = 'Select';
    is served("$app"), 'IO::Async::Loop::Select 1', 'what IO_ASYNC_LOOP says';
};

done_testing;
