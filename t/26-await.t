# The C versions of what `await` calls do what Future.pm's own do: results, failures,
# cancellation, and no growth.
use strict;
use warnings;

use lib 't/lib';
use Future;
use Future::AsyncAwait;
use IO::Async::Loop;
use Peregrine;
use PAGI::Server::Future;
use Scalar::Util qw(weaken);
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
    ok($other->is_cancelled, 'it is cancelled as well');
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
    ok($own->is_cancelled && $code == 1, 'what others have registered stays');
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

done_testing;
