# PAGI::Server::StackTrace: it knows where exceptions were thrown, and nothing that a program does comes out
# differently because of it.
use strict;
use warnings;

use lib 't/lib';
use Test::More;
use TestTools ();
use PAGI::Server::StackTrace;

package Thing {
    my $alive = 0;
    sub new     { my ($class, %fields) = @_; $alive++; return bless {%fields}, $class }
    sub alive   { return $alive }
    sub DESTROY { $alive-- }
}

package Noisy {
    sub new     { return bless {}, shift }
    sub DESTROY { die "in a destructor\n" }
}

package Hostile {
    use overload
        '""'     => sub { die "no text\n" },
        bool     => sub { die "no truth\n" },
        '0+'     => sub { die "no number\n" },
        '=='     => sub { die "no comparison\n" },
        'eq'     => sub { die "no comparison\n" },
        fallback => 0;
}

sub thrower { my ($what) = @_; die $what }
sub middle  { return thrower(@_) }

sub deep {
    no warnings q(recursion);
    my ($count, $what) = @_;
    return $count ? deep($count - 1, $what) : die $what;
}

my $file = quotemeta __FILE__;

subtest 'the functions that called each other' => sub {
    my $traces = PAGI::Server::StackTrace->watch;
    eval { middle("text\n") };
    my @frames = $traces->of($@);
    like $frames[0],  qr/\Athrown at $file line \d+\z/,               'the place of the die';
    like $frames[1],  qr/\Amain::thrower called at $file line \d+\z/, '... whose function was called there';
    like $frames[2],  qr/\Amain::middle called at $file line \d+\z/,  '... and the caller of that';
    unlike "@frames", qr/\(eval\)|StackTrace/,                        'evals and the recorder are none';
    is_deeply [ $traces->of("text\n") ], [], 'it is told once';
    is_deeply [ $traces->of($_) ], [], 'nothing is known of what was not thrown' for "other\n", {}, undef;

    my @thrown = map {
        my $number = $_;
        eval { middle({ number => $number }) };
        $@
    } 1 .. 3;
    is scalar(grep { ($traces->of($_))[1] =~ /thrower/ } @thrown), 3,
        'references, by themselves and not by their contents';

    eval { deep(200, "deep\n") };
    is scalar($traces->of("deep\n")), 50, '50 frames of a deep recursion';
    eval { middle("number $_\n") } for 1 .. 1000;
    is scalar(grep { $traces->of("number $_\n") } 1 .. 1000), 16, '... of the last 16 exceptions';
};

subtest 'thrown again' => sub {
    my $traces = PAGI::Server::StackTrace->watch;
    for my $what ("text\n", { a => 'reference' }) {
        eval {
            eval { middle($what) };
            die $@;
        };
        like + ($traces->of($@))[1], qr/main::thrower/, 'the first place counts';
    }
    eval { middle("text\n") };
    eval { thrower("text\n") };
    unlike join(' ', $traces->of("text\n")), qr/main::middle/,
        'but not that of an exception of long ago with the same text';
};

subtest 'the stack trace keeps no object alive' => sub {
    my $traces = PAGI::Server::StackTrace->watch;
    {
        my $argument = Thing->new;
        eval { middle(Thing->new(argument => $argument), $argument) };
        is(Thing->alive, 2, 'an exception and an argument');
    }
    $@ = '';
    is(Thing->alive, 0, '... go when the program lets them go');
    eval { middle({}) };
    $@ = q();
    is_deeply [ $traces->of({}) ], [],
        'an exception that has gone is not taken for another one at its address'
        for 1 .. 50;
};

subtest 'the stack trace changes no exception' => sub {
    my $try = sub {
        my @seen;
        $@ = 'before';
        $! = 2;
        $? = 7;
        my $ok = eval { middle("text\n"); 1 };
        push @seen, $ok, $@, $! + 0, $?;
        {
            local $@ = 'outer';
            eval { die "inner\n" };
            push @seen, $@;
        }
        push @seen, $@;
        push @seen, eval {
            local $@;
            eval { die "x\n" };
            'went on';
        };
        my @warned;
        local $SIG{__WARN__} = sub { push @warned, @_ };
        { my $noisy = Noisy->new }
        push @seen, @warned, $@;
        my $object = bless {}, 'Hostile';
        eval { die $object };
        push @seen, ref $@;
        eval {
            eval { die $object };
            push @seen, ref $@;
            die $@;
        };
        push @seen, ref $@;
        eval 'this is no perl (';
        push @seen, $@ =~ /syntax error/ ? 'syntax error' : $@;
        eval { require No::Such::Module };
        push @seen, $@ =~ /Can't locate/ ? 'not there' : $@;
        local $SIG{ALRM} = sub { die "signal\n" };
        eval { kill ALRM => $$; 1 };
        push @seen, $@;
        return \@seen;
    };
    my $plain  = $try->();
    my $traces = PAGI::Server::StackTrace->watch;
    is_deeply $try->(), $plain, 'eval, $@, $!, $?, warnings, exceptions that do not like to be asked';
};

subtest 'other handlers' => sub {
    my $traces = PAGI::Server::StackTrace->watch;
    my $more   = PAGI::Server::StackTrace->watch;
    undef $traces;
    ok $SIG{__DIE__}, 'two of them: the handler stays as long as one does';
    undef $more;
    ok !$SIG{__DIE__}, '... and goes with the last one';

    my $own = sub { };
    local $SIG{__DIE__} = $own;
    $traces = PAGI::Server::StackTrace->watch;
    is $SIG{__DIE__}, $own, 'a program that has a handler keeps it';
    undef $traces;
    is $SIG{__DIE__}, $own, '... then, too';
    delete $SIG{__DIE__};
    $traces = PAGI::Server::StackTrace->watch;
    $SIG{__DIE__} = $own;
    undef $traces;
    is $SIG{__DIE__}, $own, '... and so does one that gets one later';
};

done_testing;
