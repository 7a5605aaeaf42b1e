# The C versions of what `await` calls do what Future.pm's own do: results, failures,
# cancellation, and no growth.
use strict;
use warnings;
use feature 'signatures';
no warnings 'experimental::signatures';

use Config;
use lib 't/lib';
use Future;
use Future::AsyncAwait;
use IO::Async::Loop;
use Peregrine;
use PAGI::Server::Future;
use Scalar::Util qw(refaddr weaken);
use Test::More;
use TestTools;

package My::Future {
    our @ISA = 'Future';
}

my $loop = IO::Async::Loop->new;

sub pending { return PAGI::Server::Future->new($loop) }

async sub awaits {
    my (@futures) = @_;
    my @seen;
    while (my $future = shift @futures) {
        push @seen, eval { [ await $future ] } || "died: $@";
    }
    return @seen;
}

subtest 'results' => sub {
    my @futures = map { pending() } 1 .. 3;
    my $outer   = awaits(@futures);
    ok(!$outer->is_ready, 'pending');
    $futures[1]->done('early');
    $futures[0]->done(1, 2);
    ok(!$outer->is_ready, 'the last one is missing');
    $futures[2]->fail("reason\n");
    is_deeply([ $outer->get ], [ [ 1, 2 ], ['early'], "died: reason\n" ], 'values and failures');

    my $timer = $loop->delay_future(after => 0.01);
    is_deeply([ awaits($timer)->get ], [ [] ], q{a loop's own Future});
    my $both = pending();
    my @order;
    my $first = awaits($both)->on_done(sub { push @order, 'awaited first' });
    $both->on_done(sub { push @order, "callback @_" });
    my $second = awaits($both)->on_done(sub { push @order, 'awaited second' });
    $both->done('x');
    is_deeply(\@order, [ 'awaited first', 'callback x', 'awaited second' ],   'in the order of registration');
    is_deeply([ awaits(Future->done(5), Future->fail('no'))->get ]->[0], [5], 'Futures that are ready');
};

subtest 'a Future of another class' => sub {
    my $other = My::Future->new;
    my $outer = awaits($other, pending()->done('mine'));
    $other->done('other');
    is_deeply([ $outer->get ], [ ['other'], ['mine'] ], 'its result arrives');
    $other = My::Future->new;
    $outer = awaits($other);
    $outer->cancel;
    ok($other->is_cancelled, 'the awaited Future is cancelled as well');
};

subtest 'cancellation' => sub {
    my ($one, $two) = (pending(), pending());
    my $outer = awaits($one, $two);
    my @cancelled;
    $_->on_cancel(sub { push @cancelled, shift }) for $one, $two;
    $one->done;
    $outer->cancel;
    ok($two->is_cancelled, 'the Future that is awaited is cancelled');
    is_deeply(\@cancelled, [$two], '... and no other');

    my $inner = pending();
    my $chain = async sub { await awaits($inner) }
        ->();
    $chain->cancel;
    ok($inner->is_cancelled, 'through several subs');

    my $loser = pending();
    my $race  = Future->wait_any(awaits($loser), pending()->done);
    ok($loser->is_cancelled, 'in wait_any');

    my $awaited = pending();
    $outer = awaits(pending()->done, $awaited);
    my $own  = pending();
    my $code = 0;
    $outer->on_cancel($own)->on_cancel(sub { $code++ });
    my $next = pending();
    my $more = awaits($awaited, $next);
    $outer->cancel;
    ok($own->is_cancelled && $code == 1, 'callbacks that others have registered stay');
    ok($awaited->is_cancelled,           '... beside what is awaited');
    is($more->get->[0] || 'nothing', 'nothing', 'a cancelled Future leaves its other waiter alone')
        if $more->is_ready;

    $awaited = pending();
    $outer   = awaits($awaited);
    $awaited->cancel;
    like(
        ($outer->get)[0],
        qr/\Adied: .* was cancelled/,
        'cancelling what is awaited is an exception in the waiter'
    );
};

subtest 'a reference that other code has' => sub {
    my ($first, $second) = (pending(), pending());
    my $outer = awaits($first, $second, pending());
    my $entry = \$outer->{on_cancel}[-1];
    $first->done;
    is(${$entry}, $first, 'an entry for cancellation is not changed while other code refers to it');
    undef $entry;
    my $at = refaddr(\$outer->{on_cancel}[-1]);    # refaddr holds no reference
    $second->done;
    is(refaddr(\$outer->{on_cancel}[-1]), $at, '... and is used again where no code does');
    my $pending = pending();
    my $waiter  = awaits($pending);
    my $ready   = \$waiter->{ready};
    $pending->done;
    is(${$ready}, 0, 'the number that says whether a Future is ready is not changed either');
};

subtest 'many' => sub {
    my @futures = map { pending() } 1 .. 1000;
    my $outer   = awaits(@futures);
    $_->done for @futures[ 0 .. 998 ];
    cmp_ok(scalar @{ $outer->{on_cancel} }, '<', 10, '1,000 awaits leave few entries for cancellation');
    $futures[999]->done;
    is(scalar(my @results = $outer->get), 1000, '... and all results');
    undef $outer;
    weaken($_) for @futures;
    is(scalar(grep { defined } @futures), 0, 'nothing keeps them');

    my $cycle = sub {
        my ($one, $two) = (pending(), pending());
        my $waiter = awaits($one, $two);
        $one->done({ some => 'value' });
        $_[0] % 3 == 0 ? $two->done : $_[0] % 3 == 1 ? $waiter->cancel : $two->fail("no\n");
    };
    $cycle->($_) for 1 .. 300;
    my $before = Peregrine::sv_count();
    $cycle->($_) for 1 .. 9000;
    cmp_ok(Peregrine::sv_count() - $before,
        '<', 50, '9,000 sequences of done, failed and cancelled ones leave nothing behind');
};

# The values that a piece of code returns, and how many awaits in it took a ready Future's result at once.
sub counted {
    my ($code) = @_;
    my $before = PAGI::Server::Future::_awaited_at_once();
    my @values = $code->();
    return PAGI::Server::Future::_awaited_at_once() - $before, @values;
}

subtest 'at once' => sub {
    my $three = async sub { return await(Future->done(1, 2)), scalar await pending()->done('x', 'y') };
    is_deeply([ counted(sub { $three->()->get }) ], [ 3, 1, 2, 'x' ], 'two Futures and the end');
    my $last = async sub { await pending()->done('value') };
    is_deeply([ counted(sub { $last->()->get }) ], [ 2, 'value' ], 'the last value');
    is_deeply([ counted(sub { $last->(); () }) ],  [2],            'whose Future nobody wants');
    my $none = async sub { await pending()->done; return };
    is_deeply([ counted(sub { $none->()->get }) ], [2], 'no value');
    my $keeps = async sub { my @list = (1 .. 50); return @list, await Future->done(@list) };
    is(scalar(() = $keeps->()->get), 100, 'many values');
    my $signature = async sub ($x, $y = 2) { return $x + await Future->done($y) };
    is_deeply([ counted(sub { $signature->(1)->get }) ], [ 2, 3 ], 'a signature');
    my $made = eval 'async sub { foreach my $n (1 .. 3) { await Future->done($n) } return "end" }' or die $@;
    is_deeply([ counted(sub { $made->()->get }) ], [ 4, 'end' ], 'a loop, in a sub that is compiled late');
    my $nested = async sub { return 'outer', await $last->() };
    is_deeply([ counted(sub { $nested->()->get }) ], [ 4, 'outer', 'value' ], 'one in another');
};

# An async sub that awaits a pending Future, and when it goes on calls a function between two ready ones.
async sub goes_on {
    my ($awaited, $between) = @_;
    my @seen = await $awaited;
    push @seen, await pending()->done('first');
    push @seen, $between->();
    push @seen, await pending()->done('second');
    push @seen, 'end';
    return @seen;
}

subtest 'at once after a sub was suspended' => sub {
    my ($awaited, $outer) = (pending());
    $outer = goes_on($awaited, sub { 'between' });
    is_deeply(
        [ counted(sub { $awaited->done('value'); $outer->get }) ],
        [ 2, qw(value first between second end) ],
        'each await of a ready Future'
    );

    my ($again, $loops) = (pending());
    my @each = ([ pending(), 'a' ], [ pending(), 'b' ]);
    $loops = (
        async sub {
            my @seen;
            for my $pair (@each) { push @seen, await($pair->[0]), await pending()->done($pair->[1]) }
            return @seen, await $again;
        }
    )->();
    is_deeply([ counted(sub { $each[0][0]->done(1); !!$loops->is_ready }) ], [ 1, '' ], 'in a loop');
    is_deeply([ counted(sub { $each[1][0]->done(2); !!$loops->is_ready }) ], [ 1, '' ], '... once more');
    $again->done('last');
    is_deeply([ $loops->get ], [ 1, 'a', 2, 'b', 'last' ], '... until it ends');

    my $side = pending();
    $awaited = pending();
    $outer   = goes_on($awaited, sub { my $other = awaits($side); $side->done(7); $other->get->[0] });
    $awaited->done('value');
    is_deeply(
        [ $outer->get ],
        [qw(value first 7 second end)],
        'another sub is suspended and goes on meanwhile'
    );
};

subtest 'the Future of a sub that goes on' => sub {
    my ($awaited, $outer) = (pending());
    my $reached = 0;
    $outer = goes_on($awaited, sub { $outer->cancel; $reached++; 'between' });
    my ($at_once) = counted(sub { $awaited->done('value') });
    is_deeply(
        [ $at_once, $reached, $outer->is_cancelled ],
        [ 1,        1,        1 ],
        'cancelled between two awaits: the second one ends the sub'
    );

    my @warnings;
    local $SIG{__WARN__} = sub { push @warnings, @_ };
    $awaited = pending();
    $outer   = goes_on($awaited, sub { undef $outer; 'between' });
    $awaited->done('value');
    like("@warnings", qr/\ASuspended async sub \S+ lost its returning future/, 'lost between two awaits');

    ($awaited, my $weak) = (pending());
    $outer = (async sub { await $awaited; await pending()->done; return {} })->();
    weaken($weak = $outer);
    $awaited->done;
    undef $outer;
    is($weak, undef, 'nothing keeps it when the sub has ended');

    $awaited = pending();
    $outer   = (async sub { await $awaited; await pending()->done; await pending() })->();
    weaken($weak = $outer);
    @warnings = ();
    $awaited->done;
    undef $outer;
    is($weak, undef, '... or waits again');

    $awaited = pending();
    my $fails = pending()->fail("on purpose\n");
    $outer = (
        async sub {
            await $awaited;
            my $ok = eval { await $fails; 1 };
            return $@, await pending()->done(3);
        }
    )->();
    $awaited->done;
    is_deeply([ $outer->get ], [ "on purpose\n", 3 ], 'an exception that the sub catches');
};

subtest 'asked' => sub {
    my $fails = async sub { await Future->fail("no\n") };
    is_deeply([ counted(sub { ($fails->()->failure)[0] }) ], [ 0, "no\n" ], 'a failure');
    my $dies = async sub { await Future->done; die "late\n" };
    is_deeply([ counted(sub { $dies->()->failure }) ], [ 1, "late\n" ], 'an exception behind an await');
    my $cancelled = async sub { await $_[0] };
    my $gone      = pending();
    $gone->cancel;
    like(($cancelled->($gone)->failure)[0],         qr/cancelled/,                 'one that is cancelled');
    like((async sub { await 'text' })->()->failure, qr/Expected a blessed object/, 'no Future');

    my $sees = async sub { return await Future->done('value') };
    is_deeply([ counted(sub { $sees->(My::Future->done)->get }) ], [ 2, 'value' ], 'a class that is known');
    my $other = async sub { return await My::Future->done('other') };
    is_deeply([ counted(sub { $other->()->get }) ], [ 1, 'other' ], 'a subclass');
    {
        no warnings 'redefine';
        my $original = Future->can('AWAIT_GET');
        local *Future::AWAIT_GET = sub { return 'of another' };
        is_deeply([ counted(sub { $sees->()->get }) ], [ 1, 'of another' ], 'a method that was replaced');
        local *Future::AWAIT_GET      = $original;
        local *Future::AWAIT_NEW_DONE = sub { return Future->done('made by another') };
        is_deeply([ counted(sub { $sees->()->get }) ], [ 1, 'made by another' ], 'at the end, too');
    }
    is_deeply([ counted(sub { $sees->()->get }) ], [ 2, 'value' ], 'until it is back');

    my $classed = eval q{
        use Future::AsyncAwait future_class => 'My::Future';
        async sub { return await Future->done('classed') };
    } or die $@;
    my $mine = $classed->();
    isa_ok($mine, 'My::Future');
    is($mine->get, 'classed', 'with its value');
};

subtest 'the end of a sub that has waited' => sub {
    my $values = async sub { my @got = await $_[0]; return 'got', @got };
    foreach my $wait (pending(), Future->new, $loop->new_future, My::Future->new) {
        my $class = ref $wait;
        my $ended = $values->($wait);
        is(ref $ended,   $class, "waits with a Future of class $class");
        is($ended->loop, $loop,  '... and its loop') if $ended->can('loop');
        my @order;
        $ended->on_ready(sub { push @order, 'ready: ' . join ',', $_[0]->get });
        my $further = $values->($ended);
        $ended->on_cancel(my $dropped = Future->new);
        $wait->done(1, 2);
        is_deeply([ $further->get, @order ], [ qw(got got 1 2), 'ready: got,1,2' ],
            '... all hear of its end');
        is_deeply([ grep { /\A(?:on_cancel|callbacks)\z/ } keys %$ended ], [], '... and nothing is kept');
    }
    {
        no warnings qw(redefine once);
        my $calls = 0;
        my ($new, $done) = map { Future->can($_) } qw(new done);
        my $wait = pending();
        local *Future::new  = sub { $calls++; return $new->(@_) };
        local *Future::done = sub { $calls++; return $done->(@_) };
        my $ended = $values->($wait);
        $wait->done(1);
        is_deeply([ $calls, $ended->get ], [ 1, 'got', 1 ], 'without a call but ours');
    }
    my $wait  = pending();
    my $ended = $values->($wait)->on_done(sub { die "on_done\n" });
    ok(!eval { $wait->done; 1 }, 'an exception of a callback');
    is($@, "on_done\n", '... reaches those who have resolved what it waited for');
    $wait  = pending();
    $ended = $values->($wait)->on_ready(sub { die "on_ready\n" });
    ok(!eval { $wait->done; 1 }, '... from on_ready');
    is($@, "on_ready\n", '... too');
    ok($ended->is_done, '... and it is done');

    my $itself;
    my $settles = async sub { await $_[0]; $itself->cancel; return 'late' };
    $wait   = pending();
    $itself = $settles->($wait);
    $wait->done;
    ok($itself->is_cancelled, 'one that was cancelled meanwhile stays it');
};

subtest 'values that run code' => sub {

    package My::Tied {    ## no critic (Modules::ProhibitMultiplePackages)
        sub TIESCALAR { return bless [], shift }
        sub FETCH { my @stack = deep(40); return scalar @stack }
        sub deep { my ($n) = @_; return $n ? (deep($n - 1), 1 .. 500) : () }
    }
    tie my $tied, 'My::Tied';
    my $returns = async sub { await Future->done; return 'before', $tied, $tied, 'behind' };
    is_deeply([ $returns->()->get ], [ 'before', 20_000, 20_000, 'behind' ], 'returned');
    my $future = Future->done('before', 0, 0, 'behind');
    tie $future->{result}[$_], 'My::Tied' for 1, 2;
    my $awaits = async sub { return await $future };
    is_deeply([ $awaits->()->get ], [ 'before', 20_000, 20_000, 'behind' ], 'awaited');
    my $wait  = pending();
    my $ended = async sub { await $wait; return 'before', $tied, $tied, 'behind' }
        ->();
    $wait->done;
    is_deeply([ $ended->get ], [ 'before', 20_000, 20_000, 'behind' ], 'returned after a wait');
};

# The output of another perl with the same modules.
sub printed_by {
    my ($script, @modules) = @_;
    my @load = map { "-M$_" } @modules, qw(PAGI::Server::Future Future::AsyncAwait);
    open my $perl, '-|', $^X, (map { "-I$_" } @INC), @load, '-e', $script or die "perl: $!";
    my $text = do { local $/; <$perl> };
    ok(close $perl, 'another perl ends well');
    return $text;
}

# In a process of its own: Future::AsyncAwait does not survive that a suspended sub is cloned.
subtest 'a thread' => sub {
    plan skip_all => 'this perl has no threads' unless $Config{useithreads};
    is(printed_by(<<'PERL', 'threads'), '1 2 3', 'runs what was compiled before it');
my $code = async sub { my $x = await Future->done(1); return $x, await Future->done(2) };
my $thread = threads->create({ context => 'list' },
    sub { my @values = $code->()->get; return @values, PAGI::Server::Future::_awaited_at_once() });
print join ' ', $thread->join;
PERL
};

subtest 'Futures of other classes' => sub {
    local $ENV{PAGI_PLAIN_FUTURE} = 1;
    my $script = 'my $f = async sub { await Future->done(shift) };'
        . 'print $f->(7)->get, " ", PAGI::Server::Future::_awaited_at_once()';
    is(printed_by($script), '7 0', 'nothing is replaced with PAGI_PLAIN_FUTURE');
    delete $ENV{PAGI_PLAIN_FUTURE};
    is(printed_by('print await Future->done("top")'), 'top', 'an await outside of all subs');
    like(
        printed_by('async sub x { await Future->done }', 'O=-qq,Concise,-exec,x'),
        qr/ await .* leaveasync /s,
        'tools that show ops know them by their names'
    );
};

done_testing;
