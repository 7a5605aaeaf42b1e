# The scope of a WebSocket or an event stream that its application has let go takes little memory, and nobody
# can tell: on_error gets it as the application left it, and what the application keeps stays the same thing.
use strict;
use warnings;

use lib 't/lib';
use Data::Dumper ();
use Future::AsyncAwait;
use Hash::Util   ();
use Scalar::Util qw(blessed refaddr weaken);
use Test::More;
use TestClient qw(get);
use TestServer;
use TestStream;
use TestUsage qw(report settled);
use TestWebSocket;

my $sockets   = 50;
my $destroyed = 0;
my (%weak, %shown, %check);

sub Watched::DESTROY { $destroyed++; return }

package Tied {
    require Tie::Array;
    require Tie::Hash;
    require Tie::Scalar;
    our @ISA = ('Tie::StdHash');
    sub FETCH { return 'tied' }
}

sub deep {
    my ($depth) = @_;
    my $deep = [];
    $deep = [$deep] for 1 .. $depth;
    return $deep;
}

# Things that applications do to a scope, by name. Each may return a function, which on_error calls to see
# changes of the scope that a dump does not show.
my %mischief = (
    'nothing'           => sub { return },
    'adds plain values' => sub {
        my ($scope) = @_;
        @{$scope}{qw(int text wide undef empty list hash)} = (
            -42,   'text', "wide \x{20ac}",
            undef, '',
            [ 1, [], undef, 'two' ],
            { a => { b => {} }, c => "\xe9" }
        );
        return;
    },
    'adds numbers' => sub { @{ $_[0] }{qw(n u d)} = (0.5, ~0, '12' + 0); $weak{text} = "$_[0]{d}"; return },
    'adds a wide key'    => sub { $_[0]{"\x{20ac}"} = $_[0]{"\xe9"} = 1; return },
    'adds many keys'     => sub { $_[0]{$_}         = "value $_" for 1 .. 1_000; return },
    'adds too many keys' => sub {
        $_[0]{many} = { map { $_ => 1 } 1 .. 70_000 };
        return;
    },
    'adds what is long'   => sub { $_[0]{long}    = 'x' x 300_000; return },
    'adds what is deep'   => sub { $_[0]{deep}    = deep(200_000); return },
    'adds a hole'         => sub { $_[0]{hole}[3] = 1;             return },
    'adds an object'      => sub { $_[0]{object}  = bless {}, 'Watched'; return },
    'adds a blessed list' => sub { $_[0]{list}    = bless [ bless \my $x, 'Watched' ], 'My::List'; return },
    'adds code'           => sub {
        my $code = $_[0]{code} = sub { 42 };
        return sub { $_[0]{code} == $code }
    },
    'adds a glob'    => sub { $_[0]{glob}    = *STDIN; return },
    'adds a pattern' => sub { $_[0]{pattern} = qr/x/i; return },
    'adds a version' => sub { $_[0]{version} = v1.2.3; return },
    'adds a circle'  => sub {
        my $list = [];
        weaken($weak{circle} = $list);
        push @$list, $list;
        $_[0]{circle} = $list;
        return sub { $_[0]{circle} == $_[0]{circle}[0] && (pop @{ $_[0]{circle} }, 1) };
    },
    'adds itself weakly' => sub {
        weaken($_[0]{self} = $_[0]);
        return sub { $_[0]{self} == $_[0] }
    },
    'adds aliases' => sub {
        my ($scope) = @_;
        $scope->{one}     = $scope->{two} = [1];
        $scope->{of_path} = \$scope->{path};
        return sub { $_[0]{one} == $_[0]{two} && $_[0]{of_path} == \$_[0]{path} };
    },
    'changes strings' =>
        sub { $_[0]{$_} .= "changed \x{20ac}" for qw(type path raw_path query_string); return },
    'upgrades'     => sub { utf8::upgrade($_[0]{$_}) for qw(type path raw_path); return },
    'uses numbers' => sub { no warnings 'numeric'; my $sum = $_[0]{path} + $_[0]{client}[1]; return },
    'uses strings' => sub { my $text = "$_[0]{client}[1] $_[0]{server}[1]"; return },
    'undefines'    => sub { undef $_[0]{$_} for keys %{ $_[0] };                return },
    'clears'       => sub { %{ $_[0] } = (raw_path => 'x', query_string => ''); return },
    'iterates'     => sub { each %{ $_[0] }; each %{ $_[0]{pagi} }; return },
    'matches'      => sub {
        $_[0]{path} =~ m{\G.}gc;
        return sub { pos $_[0]{path} == 1 }
    },
    'shifts a header'  => sub { shift @{ $_[0]{headers} }; return },
    'changes a header' => sub { $_[0]{headers}[0][1] = "\x{20ac}"; return },
    'aliases a header' => sub { my $alias = \$_[0]{headers}[0][1]; $weak{alias} = $alias; return },
    'blesses it'       => sub { bless $_[0], 'My::Scope'; return },
    'blesses a part'   => sub { bless $_[0]{headers}, 'My::Headers'; return },
    'blesses a pair'   => sub { bless $_[0]{headers}[0], 'My::Pair'; return },
    'blesses a value'  => sub { bless \$_[0]{path}, 'My::Path'; return },
    'ties it'          => sub { tie %{ $_[0] }, 'Tied'; return },
    'ties a value'     => sub {
        tie $_[0]{path}, 'Tie::StdScalar', bless {}, 'Watched';
        return sub { tied $_[0]{path} }
    },
    'ties a part' => sub {
        tie @{ $_[0]{headers} }, 'Tie::StdArray';
        return sub { tied @{ $_[0]{headers} } }
    },
    'locks it' => sub {
        Hash::Util::lock_hash(%{ $_[0] });
        return sub { Hash::Util::hash_locked(%{ $_[0] }) }
    },
    'locks a part' => sub {
        Hash::Util::lock_keys(%{ $_[0]{pagi} });
        return sub {
            !eval { $_[0]{pagi}{other} = 1 }
        }
    },
    'freezes a value' => sub {
        Internals::SvREADONLY($_[0]{path}, 1);
        return sub { Internals::SvREADONLY($_[0]{path}) }
    },
    'freezes a part' => sub {
        Internals::SvREADONLY(@{ $_[0]{headers} }, 1);
        return sub { Internals::SvREADONLY(@{ $_[0]{headers} }) }
    },
    'keeps it' => sub {
        my $kept = $_[0];
        return sub { $_[0] == $kept }
    },
    'keeps it weakly' => sub {
        weaken(my $kept = $_[0]);
        return sub { $_[0] == $kept }
    },
    'keeps a part' => sub {
        my $kept = $_[0]{headers};
        return sub { $_[0]{headers} == $kept }
    },
    'keeps a part weakly' => sub {
        weaken(my $kept = $_[0]{pagi});
        return sub { $_[0]{pagi} == $kept }
    },
    'keeps a pair weakly' => sub {
        weaken(my $kept = $_[0]{headers}[0]);
        return sub { $_[0]{headers}[0] == $kept }
    },
    'keeps a value' => sub {
        my $kept = \$_[0]{path};
        return sub { \$_[0]{path} == $kept }
    },
    'keeps a value weakly' => sub {
        weaken(my $kept = \$_[0]{headers}[0][1]);
        return sub { \$_[0]{headers}[0][1] == $kept }
    },
    'keeps the state' => sub {
        my $kept = $_[0]{state}{object};
        return sub { $_[0]{state}{object} == $kept }
    },
    'forgets the transport' => sub { delete $_[0]{'pagi.transport'}; return },
    'keeps the transport'   => sub {
        my $kept = $_[0]{'pagi.transport'};
        return sub { $_[0]{'pagi.transport'} == $kept }
    },
);

sub shown {
    my ($scope) = @_;
    my $dumper = Data::Dumper->new([$scope])->Sortkeys(1)->Useqq(1)->Indent(0)->Terse(1)->Maxdepth(60);
    return $dumper->Dump;
}

my $go = Future->new;

async sub wait_and_die {
    my ($name, $type, $send) = @_;
    await $send->({ type => $type eq 'sse' ? 'sse.start' : 'websocket.accept' });
    await $go;
    die "on purpose: $name\n";
}

async sub answer {
    my ($send, $text) = @_;
    await $send->({ type => 'http.response.start', status => 200, headers => [] });
    await $send->({ type => 'http.response.body', body => $text });
    return;
}

sub app {
    my ($scope, $receive, $send) = @_;
    my $type = $scope->{type};
    if ($type eq 'lifespan') {
        $scope->{state}{object} = bless {}, 'Kept';
        return $send->({ type => 'lifespan.startup.complete' });
    }
    my $path = $scope->{path};
    return answer($send, report() . " destroyed=$destroyed") if $path eq '/usage';
    if ($path eq '/die') {
        my $gone = $go;
        $go = Future->new;
        $gone->done;
        return answer($send, "well\n");
    }
    my $name = $scope->{query_string} =~ s/%20/ /gr;
    my $made = $mischief{$name} or die "no $name\n";
    $check{$name} = $made->($scope);
    $shown{$name} = shown($scope) if $name ne 'nothing' || !$shown{$name};
    return wait_and_die($name, $type, $send);
}

sub heard {
    my ($exception, $scope) = @_;
    my ($name) = $exception =~ /\Aon purpose: (.*)\n/ or return print STDERR "heard $exception";
    my $check  = delete $check{$name};
    my $wrong  = $check && !$check->($scope) ? 'is another thing' : '';
    my ($before, $now) = map { s/(?<="127\.0\.0\.1",)\d+//gr } $shown{$name}, shown($scope);
    $wrong = "is $now, was $before" if !$wrong && $name ne 'adds a circle' && $now ne $before;
    print STDERR "heard $name: ", $wrong || 'as it was', "\n";
    return;
}

for my $kind (qw(websocket sse)) {
    my $server = TestServer->start(app => \&app, on_error => \&heard, access_log => undef);
    my $port   = $server->port;
    my $begin  = sub {
        my ($name) = @_;
        my $target = '/scope?' . $name =~ s/ /%20/gr;
        return $kind eq 'sse' ? TestStream->open($port, $target) : TestWebSocket->open($port, $target);
    };
    my $usage = sub { my ($body) = get($port, '/usage'); return $body->{body} };
    for my $name (sort keys %mischief) {
        my $open = $begin->($name);
        get($port, '/die');
        ok($server->wait_for_log(qr/^heard \Q$name\E: /m), "$kind: one that $name");
        my ($told) = $server->log =~ /^heard \Q$name\E: (.*)/m;
        is($told, 'as it was', '... is what it was in on_error');
    }
    my $before = settled($usage);
    is($before->{destroyed}, 3, 'objects in scopes went with their requests');
    my @open     = map { $begin->('nothing') } 1 .. $sockets;
    my ($report) = map { $_->{body} } get($port, '/usage');
    my ($values) = $report =~ /values=(\d+)/;
    note(($values - $before->{values}) / $sockets, ' values for each');
    cmp_ok($values - $before->{values}, '<', 45 * $sockets, 'a scope that was let go is in few values');
    get($port, '/die');
    $_->close for @open;
    my $after = settled($usage);
    cmp_ok($after->{values} - $before->{values}, '<', 50, '... and leaves none');
    is($server->stop, 0, 'the server ends well');
}

done_testing;
