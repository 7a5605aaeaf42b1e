# The server uses a scope again once nobody can tell. Whatever an application does to one, the next request
# sees a fresh one, and whatever an application keeps stays as it was.
use strict;
use warnings;

use lib 't/lib';
use Future::AsyncAwait;
use JSON::PP     ();
use Scalar::Util qw(refaddr weaken);
use Test::More;
use TestClient;
use TestServer;

my $json = JSON::PP->new->utf8->canonical->allow_blessed;
my (@kept, %weak, $destroyed);

sub Watched::DESTROY { $destroyed++ }

package Tied {
    require Tie::Hash;
    our @ISA = ('Tie::StdHash');
    sub FETCH { return 'tied' }
}

# Things that applications do to a scope, by name. The value that each returns is kept for ever.
my %mischief = (
    'nothing'              => sub { return },
    'adds a key'           => sub { $_[0]{'my.key'}    = 1;                   return },
    'adds an object'       => sub { $_[0]{'my.object'} = bless {}, 'Watched'; return },
    'deletes a key'        => sub { delete $_[0]{client}; return },
    'swaps a key'          => sub { delete $_[0]{client}; $_[0]{other} = 1; return },
    'deletes and restores' => sub { my $path   = delete $_[0]{path}; $_[0]{path} = $path; return },
    'clears'               => sub { %{ $_[0] } = (); return },
    'sets strings'         => sub {
        $_[0]{$_} = "changed \x{20ac}"
            for qw(type method path raw_path query_string root_path scheme http_version);
        return;
    },
    'changes strings in place' => sub {
        for (@{ $_[0] }{qw(type method path raw_path query_string root_path scheme http_version)}) {
            tr/a-zA-Z0-9/x/;
            substr $_, 0, 1, 'y' if length;
            chop;
        }
        return;
    },
    'sets numbers' => sub {
        $_[0]{$_} = 42 for qw(type method path raw_path query_string root_path scheme http_version);
        return;
    },
    'sets references' =>
        sub { $_[0]{$_} = {} for qw(type path headers client server pagi extensions pagi.connection); return }
    ,
    'undefines'            => sub { undef $_[0]{$_} for keys %{ $_[0] }; return },
    'blesses the scope'    => sub { bless $_[0], 'My::Scope'; return },
    'blesses the headers'  => sub { bless $_[0]{headers}, 'My::Headers';  return },
    'blesses the versions' => sub { bless $_[0]{pagi},    'My::Versions'; return },
    'ties the scope'       => sub { tie %{ $_[0] }, 'Tied'; return },
    'pushes a header'      => sub { push @{ $_[0]{headers} }, [ 'x-pushed', 1 ]; return },
    'changes a header'     => sub { $_[0]{headers}[0][1]   = 'changed'; return },
    'renames a header'     => sub { $_[0]{headers}[0][0]   = 'changed'; return },
    'empties a header'     => sub { @{ $_[0]{headers}[0] } = ();        return },
    'extends a header'     => sub { push @{ $_[0]{headers}[0] }, 'more'; return },
    'replaces a header'    => sub { $_[0]{headers}[0]   = 'changed'; return },
    'empties the headers'  => sub { @{ $_[0]{headers} } = ();        return },
    'shifts a header'      => sub { shift @{ $_[0]{headers} }; return },
    'changes the client'   => sub { $_[0]{client}        = [ 'changed', 1 ]; return },
    'changes the server'   => sub { $_[0]{server}[0]     = 'changed'; push @{ $_[0]{server} }, 1; return },
    'changes the versions' => sub { $_[0]{pagi}{version} = 'changed'; $_[0]{pagi}{more} = 1;      return },
    'swaps a version'      => sub { delete $_[0]{pagi}{version}; $_[0]{pagi}{other} = '0.3'; return },
    'blesses the pools'    => sub { bless $_[0]{pagi}{extensions} //= {}, 'My::Pools'; return },
    'replaces the pool'    => sub { $_[0]{pagi}{extensions}{worker_pool} = bless {}, 'My::Pool'; return },
    'adds a second pool'   => sub { $_[0]{pagi}{extensions}{other} = 1; return },
    'weakens the pool'     => sub { weaken($_[0]{pagi}{extensions}{worker_pool} //= []); return },
    'keeps the pools'      => sub { return $_[0]{pagi}{extensions} // [] },
    'adds an extension'    => sub { $_[0]{extensions}{mine} = bless {}, 'Watched'; return },
    'adds to the state'    => sub { $_[0]{state}{mine}      = bless {}, 'Watched'; return },
    'uses numbers'         => sub {
        my $sum = 0;
        { no warnings; $sum += $_[0]{$_} for qw(http_version path); $sum .= $_[0]{client}[1] }
        return;
    },
    'matches with pos'    => sub { $_[0]{path} =~ /\G./gc; $_[0]{raw_path} =~ /\G./g; return },
    'iterates halfway'    => sub { each %{ $_[0] };        each %{ $_[0]{pagi} };     return },
    'copies'              => sub { return { %{ $_[0] } } },
    'freezes'             => sub { Internals::SvREADONLY(%{ $_[0] }, 1); return },
    'freezes a value'     => sub { Internals::SvREADONLY($_[0]{path}, 1); return },
    'weakens an object'   => sub { weaken($_[0]{'pagi.connection'}); return },
    'weakly keeps it'     => sub { weaken($weak{scope} = $_[0]); return },
    'weakly keeps a part' =>
        sub { weaken($weak{headers} = $_[0]{headers}); weaken($weak{pair} = $_[0]{headers}[0]); return },
    'weakly keeps a value' =>
        sub { weaken($weak{path} = \$_[0]{path}); weaken($weak{host} = \$_[0]{headers}[0][1]); return },
    'weakly keeps $send' =>
        sub { weaken($weak{send} = $_[2]); weaken($weak{connection} = $_[0]{'pagi.connection'}); return },
    'keeps the scope'     => sub { return $_[0] },
    'keeps a value'       => sub { return \$_[0]{path} },
    'keeps the headers'   => sub { return $_[0]{headers} },
    'keeps a pair'        => sub { return $_[0]{headers}[0] },
    'keeps a name'        => sub { return \$_[0]{headers}[0][0] },
    'keeps the client'    => sub { return $_[0]{client} },
    'keeps the port'      => sub { return \$_[0]{client}[1] },
    'keeps the versions'  => sub { return $_[0]{pagi} },
    'keeps the state'     => sub { return $_[0]{state} },
    'keeps $receive'      => sub { return $_[1] },
    'keeps the transport' => sub { return $_[0]{'pagi.transport'} },
    'keeps an iterator'   => sub {
        my $scope = $_[0];
        return sub { $scope->{path} }
    },
);

sub shown {
    my ($value) = @_;
    return $$value if ref $value eq 'SCALAR';
    return JSON::PP->new->canonical->allow_blessed->allow_unknown->pretty(0)
        ->encode(ref $value eq 'CODE' ? [] : $value)
        if ref $value eq 'HASH' || ref $value eq 'ARRAY';
    return 'opaque';
}

async sub http {
    my ($scope, $receive, $send) = @_;
    my %seen = map { $_ => $scope->{$_} } grep { !/\Apagi\./ } keys %$scope;
    $seen{objects} = join ' ', map { ref $scope->{$_} } sort grep { /\Apagi\./ } keys %$scope;
    $seen{pool}    = refaddr($scope->{pagi}{extensions}{worker_pool}) if $scope->{pagi}{extensions};
    $seen{parts}   = join ' ', map { refaddr $_ } $scope, @{$scope}{qw(headers pagi server)}
        if $scope->{path} eq '/parts';
    my $body = $scope->{path} eq '/kept' ? kept_report() : $json->encode(\%seen);
    await $send->(
        { type => 'http.response.start', status => 200, headers => [ [ 'content-length', length $body ] ] });
    await $send->({ type => 'http.response.body', body => $body });
    my $name = $scope->{query_string} =~ s/%20/ /gr;
    return if !$mischief{$name};
    my $kept = $mischief{$name}->($scope, $receive, $send);
    push @kept, [ $name, $kept, shown($kept) ] if defined $kept;
    return;
}

# Names of kept things that have changed, of weak references that still hold, and how many
# objects were destroyed.
sub kept_report {
    my @changed = map  { $_->[0] } grep { shown($_->[1]) ne $_->[2] } @kept;
    my @alive   = grep { defined $weak{$_} } sort keys %weak;
    return $json->encode(
        { kept => scalar @kept, changed => \@changed, alive => \@alive, destroyed => $destroyed || 0 });
}

sub run_with {
    my (%options) = @_;
    my $server = TestServer->start(
        extensions => $options{extensions} || {},
        @{ $options{pool} || [] },
        app => sub {
            my ($scope, $receive, $send) = @_;
            return http(@_) if $scope->{type} eq 'http';
            die "no\n"      if !$options{state};
            $scope->{state}{made} = 1;
            return $send->({ type => 'lifespan.startup.complete' });
        },
    );
    my $client = TestClient->new($server->port);
    my $ask    = sub {
        my ($target, @headers) = @_;
        my $lines    = join '', map { "$_\r\n" } 'Host: h', @headers;
        my $response = $client->send("GET $target HTTP/1.1\r\n$lines\r\n")->response;
        return $response && $json->decode($response->{body});
    };
    my $first = $ask->('/check?x=1', 'User-Agent: me', 'X-Own: 1');
    my $again = $ask->('/check?x=1', 'User-Agent: me', 'X-Own: 1');
    is_deeply($again, $first, 'two requests in a row see the same');
    my %parts = map { $ask->('/parts')->{parts} => 1 } 1 .. 10;
    is(scalar keys %parts, 1, '... in one scope');
    for my $name (sort keys %mischief) {
        next if $name =~ /state/ && !$options{state};
        my $encoded = $name =~ s/ /%20/gr;
        for my $round (1 .. 2) {
            my $seen = $ask->("/mischief?$encoded", 'User-Agent: me');
            is($seen->{path}, '/mischief', "one that $name") if $round == 1;
        }
        my $after = $ask->('/check?x=1', 'User-Agent: me', 'X-Own: 1');
        is_deeply($after, $first, '... is not noticed by the next request');
    }
    $ask->("/other/$_", "User-Agent: other $_", "Accept: $_") for 1 .. 5;
    my $report = $ask->('/kept');
    cmp_ok($report->{kept}, '>', 15, 'things were kept');
    is_deeply($report->{changed}, [], '... and have not changed');
    is_deeply($report->{alive},   [], 'a scope that was kept weakly is gone');
    cmp_ok(
        $report->{destroyed}, '==',
        $options{state} ? 6 : 4,
        'objects that were put into a scope went with their request'
    );
    my @sizes = map {
        scalar @{ $ask->('/', map { "X-$_: y" } 1 .. $_)->{headers} }
    } 0, 5, 1, 90, 2, 2;
    is_deeply(\@sizes, [ 1, 6, 2, 91, 3, 3 ], 'requests of all sizes follow each other');
    my @cookies =
        map { $_->[1] }
        grep { $_->[0] eq 'cookie' } map { @{ $ask->('/', @$_)->{headers} } }[ 'Cookie: a=1', 'Cookie: b=2' ],
        [ 'Cookie: c=3', 'Accept: x' ];
    is_deeply(\@cookies, [ 'a=1; b=2', 'c=3' ], '... merged or not');
    is($ask->('http://other/x')->{headers}[0][1], 'other', '... with another host');
    is($ask->('/x')->{headers}[0][1],             'h',     '... and without');
    is_deeply(
        [ map { $ask->($_)->{path} } '/%E2%82%AC', '/plain', '/%FF',  '/plain' ],
        [ "/\x{20ac}",                             '/plain', "/\xff", '/plain' ],
        '... as text or as bytes'
    );
    is($server->stop, 0, 'the server ends well');
    unlike($server->log, qr/application died/, 'nothing died') or diag $server->log;
    return;
}

subtest 'plain'                     => sub { run_with() };
subtest 'with state and extensions' => sub { run_with(state => 1, extensions => { fullflush => {} }) };
subtest 'with a worker pool'        => sub {
    run_with(pool => [ worker_pool => { handlers => { nothing => sub { } } }, pool_workers => 1 ]);
};

done_testing;
