# Mojo::IOLoop on the server's loop: Mojo::Reactor::Peregrine before it is attached, attached to an
# IO::Async::Loop::Peregrine that waits in an engine, and while that waits in EV.
# Not repeated for each PEREGRINE_ENGINE: it starts no server.
use strict;
use warnings;

use lib 't/lib';
use IO::Socket::INET ();
use Socket           ();
use Test::More;
use TestTools qw(patience);

BEGIN {
    $ENV{MOJO_REACTOR} = 'Mojo::Reactor::Peregrine';
    for my $module (qw(Mojolicious IO::Async::Loop::Epoll)) {
        plan skip_all => "needs $module" if !eval "require $module; 1";
    }
}

use LoopWithEngine;
use Mojo::IOLoop;
use Mojo::Promise;
use Mojo::Server::Daemon;
use Mojo::UserAgent;
use Mojolicious::Lite ();

my $loop    = LoopWithEngine->new;
my $reactor = Mojo::IOLoop->singleton->reactor;
isa_ok $reactor, 'Mojo::Reactor::Peregrine', 'the reactor of the singleton loop';
is ref Mojo::IOLoop->new->reactor, 'Mojo::Reactor::Poll', 'another loop has a reactor of its own';

# Ends a loop that would hang.
sub limited {
    my ($code) = @_;
    my $guard = Mojo::IOLoop->timer(patience(10) => sub { BAIL_OUT('the loop hangs') });
    $code->();
    Mojo::IOLoop->remove($guard);
    return;
}

sub pair {
    socketpair my $left, my $right, Socket::AF_UNIX(), Socket::SOCK_STREAM(), 0 or die "socketpair: $!";
    $_->blocking(0) for $left, $right;
    return ($left, $right);
}

# Checks that the reactor passes in each of its states.
my @checks = (
    'timers come in the order of their times' => sub {
        my @order;
        Mojo::IOLoop->timer(0.3 => sub { push @order, 'late'; Mojo::IOLoop->stop });
        Mojo::IOLoop->timer(0.1 => sub { push @order, 'early' });
        my $removed = Mojo::IOLoop->timer(0.2 => sub { push @order, 'removed' });
        Mojo::IOLoop->remove($removed);
        ok !Mojo::IOLoop->is_running, 'the loop does not run before its start';
        limited(sub { Mojo::IOLoop->start });
        is "@order", 'early late', 'and the one that was removed does not come';
        ok !Mojo::IOLoop->is_running, 'nor after its stop';
    },
    'a recurring timer comes again, and a timer can be put off' => sub {
        my $count = 0;
        my $put_off;
        my $id = Mojo::IOLoop->recurring(0 => sub { Mojo::IOLoop->stop if ++$count == 5 });
        $put_off = $reactor->timer(0.001 => sub { fail 'put off' });
        $reactor->again($put_off, 1000);
        limited(sub { Mojo::IOLoop->start });
        is $count, 5, 'five times';
        ok $reactor->remove($put_off),                      'the one that was put off is still there';
        ok $reactor->remove($id) && !$reactor->remove($id), 'a timer is removed once';
        ok !eval { $reactor->again($id); 1 },               'and cannot be started again then';
    },
    'handles are watched for what is asked' => sub {
        my ($left, $right) = pair();
        my @seen;
        $reactor->io($left => sub { push @seen, pop() ? 'write' : 'read'; shift->watch($left, 1, 0) });
        limited(sub { $reactor->one_tick until @seen });
        is "@seen", 'write', 'writable first';
        syswrite $right, 'x';
        limited(sub { $reactor->one_tick until @seen > 1 });
        is $seen[1], 'read', 'then only readable';
        ok $reactor->remove($left) && !$reactor->remove($left), 'a handle is removed once';
        ok !eval { $reactor->watch($left, 1, 1); 1 },           'and not watched any more';
    },
    'what dies is an event, and the loop goes on' => sub {
        my @errors;
        my $on_error = sub { push @errors, $_[1] };
        my $kept     = $reactor->subscribers('error');
        $reactor->unsubscribe('error')->on(error => $on_error);
        $reactor->next_tick(sub { die "first\n" });
        $reactor->timer(0.01 => sub { die "second\n" });
        limited(sub { $reactor->one_tick until @errors == 2 });
        like join('', sort @errors), qr/first\n.*second\n/s, 'both are told';
        $reactor->unsubscribe('error')->on(error => $_) for @$kept;
    },
    'a nested start ends by itself' => sub {
        my @order;
        Mojo::IOLoop->next_tick(sub {
            $reactor->timer(0.01 => sub { push @order, 'inner'; $reactor->stop });
            $reactor->start;
            push @order, 'behind';
            $reactor->one_tick;
            ok(Mojo::IOLoop->is_running, 'the outer loop runs on');
            ok !eval { Mojo::IOLoop->start; 1 }, 'and cannot be started again';
            Mojo::IOLoop->stop;
        });
        Mojo::IOLoop->recurring(0.005 => sub { });
        limited(sub { Mojo::IOLoop->start });
        is "@order", 'inner behind', 'the code behind it follows';
        Mojo::IOLoop->reset;
    },
    'ticks nest deeper than 16' => sub {
        my $depth = 0;
        my $dive;
        $dive = sub { $depth++ < 40 and Mojo::IOLoop->timer(0 => $dive), $reactor->one_tick };
        Mojo::IOLoop->timer(0 => $dive);
        limited(sub { $reactor->one_tick until $depth > 40 });
        is $depth, 41, 'each has its turn';
    },
    'promises, and a chain of them in one tick' => sub {
        my @results;
        Mojo::Promise->resolve(1)->then(sub { shift() + 1 })->then(sub { @results = @_ });
        Mojo::IOLoop->one_tick;
        is "@results", 2, 'resolved';
        Mojo::Promise->timer(0.01, 'slow')->then(sub { @results = @_ })->wait;
        is "@results", 'slow', 'waited for';
    },
    'a user agent, and a server of Mojolicious, here' => sub {
        my $app = Mojolicious->new;
        $app->log->level('fatal');
        $app->routes->get('/' => sub { $_[0]->render(text => 'x' x 300_000) });
        my $daemon = Mojo::Server::Daemon->new(app => $app, silent => 1);
        $daemon->listen(['http://127.0.0.1'])->start;
        my $port = $daemon->ports->[0];
        my $length;
        Mojo::UserAgent->new->get_p("http://127.0.0.1:$port/")
            ->then(sub { $length = length shift->res->body })->wait;
        is $length, 300_000, 'without blocking';
        $daemon->stop;
        my $agent = Mojo::UserAgent->new;
        $agent->server->app($app);
        is length $agent->get('/')->res->body, 300_000, 'blocking, in a loop of its own';
    },
    'a subprocess' => sub {
        my @answer;
        Mojo::IOLoop->subprocess->run_p(sub {
            my $sum = 0;
            Mojo::IOLoop->timer(0.01 => sub { $sum = 42; Mojo::IOLoop->stop });
            Mojo::IOLoop->start;
            return $sum, ref Mojo::IOLoop->singleton->reactor;
        })->then(sub { @answer = @_ })->wait;
        is "@answer", '42 Mojo::Reactor::Poll', 'has a loop of its own';
    },
);

sub check_reactor {
    my @left = @checks;
    while (my ($title, $code) = splice @left, 0, 2) { subtest $title => $code }
    return;
}

subtest 'before it is attached' => \&check_reactor;

subtest 'watchers from before move' => sub {
    my @seen;
    my ($left, $right) = pair();
    Mojo::IOLoop->timer(0.01 => sub { push @seen, 'timer' });
    Mojo::IOLoop->next_tick(sub { push @seen, 'tick' });
    $reactor->io($left => sub { push @seen, 'read'; shift->remove($left) })->watch($left, 1, 0);
    syswrite $right, 'x';
    $reactor->attach($loop);
    ok $reactor->is_attached,             'attached';
    ok !eval { $reactor->attach($loop) }, 'but not twice';
    limited(sub { $reactor->one_tick until @seen == 3 });
    is join(' ', sort @seen), 'read tick timer', 'to the loop';
    Mojo::IOLoop->timer(0.01 => sub { push @seen, 'again' });
    $reactor->detach;
    limited(sub { $reactor->one_tick until @seen == 4 });
    is $seen[3], 'again', 'and back';
    $reactor->attach($loop);
};

# Checks for a reactor on the loop of IO::Async.
sub check_attached {
    check_reactor();
    subtest "IO::Async's timers and Futures beside it" => sub {
        my @order;
        $loop->watch_time(after => 0.01, code => sub { push @order, 'async' });
        Mojo::IOLoop->timer(0.02 => sub { push @order, 'mojo' });
        limited(sub { $loop->loop_once until @order == 2 });
        is "@order", 'async mojo', 'one loop for both';
        my $future = $loop->delay_future(after => 0.01)->then(sub { push @order, 'future'; Future->done });
        limited(sub { $loop->loop_once until $future->is_ready });
        is $order[2], 'future', 'a Future becomes ready';
    };
    subtest 'a handle that is closed before it is removed' => sub {
        my ($left, $right) = pair();
        my $fd = fileno $left;
        $reactor->io($left => sub { fail 'of the old handle' })->watch($left, 1, 0);
        close $left;
        my ($next, $other) = pair();
        ($next, $other) = ($other, $next) if fileno $next != $fd;
        is fileno $next, $fd, 'the next handle has its number';
        my $seen;
        $reactor->io($next => sub { $seen = 1 })->watch($next, 1, 0);
        syswrite $other, 'x';
        limited(sub { $reactor->one_tick until $seen });
        pass 'and is watched in its place';
        $reactor->remove($next);
    };
    subtest 'a fork of the application' => sub {
        my $timer = Mojo::IOLoop->timer(1000 => sub { });
        my $pid   = fork // die "fork: $!";
        if (!$pid) {
            alarm patience(20);
            my $fired;
            Mojo::IOLoop->timer(0.01 => sub { $fired = 1; Mojo::IOLoop->stop });
            Mojo::IOLoop->start;
            POSIX::_exit($fired && !$reactor->is_attached && $reactor->remove($timer) ? 0 : 1);
        }
        waitpid $pid, 0;
        is $?, 0, 'goes on with a loop of its own';
        ok $reactor->is_attached,    'the parent with that of the server';
        ok $reactor->remove($timer), 'and its timers';
    };
    return;
}

subtest 'attached' => \&check_attached;

SKIP: {
    skip 'needs EV', 1 if !eval { require EV; 1 };
    subtest 'attached, inside EV' => sub {
        check_attached();
        my @order;
        my $watcher = EV::timer(0.01, 0, sub { push @order, 'ev' });
        Mojo::IOLoop->timer(0.02 => sub { push @order, 'mojo' });
        limited(sub { $reactor->one_tick until @order == 2 });
        is "@order", 'ev mojo', "EV's timers beside it";
    };
}

subtest 'a server that runs the loop' => sub {
    my $stops = 0;
    my $ran   = $reactor->detach->attach($loop, on_stop => sub { $stops++; $loop->stop });
    ok(Mojo::IOLoop->is_running, 'it counts as running');
    my @order;
    Mojo::IOLoop->next_tick(sub {
        $reactor->timer(0.01 => sub { push @order, 'inner'; $reactor->stop });
        $reactor->start;
        push @order, "stops: $stops";
        Mojo::IOLoop->stop;
    });
    $loop->run;
    is "@order", 'inner stops: 0', 'a stop in a nested start ends that alone';
    is $stops,   1,                'a stop outside is told to the server';
    Mojo::IOLoop->reset;
    ok(Mojo::IOLoop->is_running, 'a reset leaves the server alone');
    $reactor->detach;
    ok !Mojo::IOLoop->is_running, 'after which it does not run';
};

done_testing;
