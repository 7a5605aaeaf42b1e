# The server uses the environment of a request again once nobody can tell. Whatever an application does to
# one, the next request sees a fresh one, and whatever an application keeps stays as it was.
use strict;
use warnings;

use lib 't/lib';
use Hash::Util   ();
use JSON::PP     ();
use Scalar::Util qw(refaddr weaken);
use Test::More;
use TestClient;
use TestServer;
use TestTools;

my $json = JSON::PP->new->utf8->canonical;
my (@kept, %weak);
my $destroyed = 0;

sub Watched::DESTROY { $destroyed++; warn "destroyed $destroyed\n"; return }

package Tied {
    require Tie::Hash;
    our @ISA = ('Tie::StdHash');
    sub FETCH { return 'tied' }
}

my @strings = qw(REQUEST_METHOD SCRIPT_NAME PATH_INFO REQUEST_URI SERVER_NAME SERVER_PORT SERVER_PROTOCOL
    REMOTE_ADDR REMOTE_PORT HTTP_HOST HTTP_ACCEPT psgi.url_scheme);
my @flags = qw(psgi.multithread psgi.multiprocess psgi.run_once psgi.nonblocking psgi.streaming
    psgix.input.buffered psgix.cleanup psgix.harakiri);
my @references = qw(psgi.version psgi.errors psgi.input psgix.cleanup.handlers psgix.informational
    psgix.peregrine.disconnected);

# Things that applications do to an environment, by name. The value that each returns is kept for ever.
my %mischief = (
    'nothing'              => sub { return },
    'adds a key'           => sub { $_[0]{'my.key'}      = 1; return },
    'adds an object'       => sub { $_[0]{'my.object'}   = bless {}, 'Watched'; return },
    'adds a wide key'      => sub { $_[0]{"my.\x{20ac}"} = bless {}, 'Watched'; return },
    'adds many keys'       => sub { $_[0]{"my.$_"}       = bless {}, 'Watched' for 1 .. 20;  return },
    'adds too many keys'   => sub { $_[0]{"my.$_"}       = bless {}, 'Watched' for 1 .. 300; return },
    'adds what is kept'    => sub { $_[0]{'my.kept'}     = 'kept'; return \$_[0]{'my.kept'} },
    'adds itself weakly'   => sub { weaken($_[0]{'my.self'} = $_[0]);         return },
    'adds itself'          => sub { $weak{circle} = $_[0]{'my.self'} = $_[0]; weaken($weak{circle}); return },
    'deletes a key'        => sub { delete $_[0]{REMOTE_ADDR};                return },
    'deletes a field'      => sub { delete $_[0]{HTTP_ACCEPT};                return },
    'deletes the input'    => sub { delete $_[0]{'psgi.input'};               return },
    'swaps a key'          => sub { delete $_[0]{HTTP_ACCEPT};                $_[0]{other} = 1; return },
    'deletes and restores' => sub { my $path = delete $_[0]{PATH_INFO}; $_[0]{PATH_INFO} = $path; return },
    'clears'            => sub { %{ $_[0] }                                       = ();             return },
    'localizes'         => sub { local @{ $_[0] }{qw(PATH_INFO SCRIPT_NAME mine)} = ('/', '/x', 1); return },
    'sets strings'      => sub { $_[0]{$_} = "changed \x{20ac}" for @strings, @flags; return },
    'sets numbers'      => sub { $_[0]{$_} = 42  for @strings, @flags, 'psgix.peregrine.queue_us'; return },
    'sets fractions'    => sub { $_[0]{$_} = 4.2 for @strings, @flags, 'psgix.peregrine.queue_us'; return },
    'sets long strings' => sub { $_[0]{$_} = 'long' x 9_999 for @strings; return },
    'sets references'   => sub { $_[0]{$_} = {}             for @references, @strings; return },
    'sets an object'    => sub { $_[0]{PATH_INFO}     = bless {}, 'Watched'; return },
    'sets another'      => sub { $_[0]{'psgi.errors'} = bless {}, 'Watched'; return },
    'sets a glob'       => sub { $_[0]{'psgi.input'}  = *STDIN; return },
    'upgrades'          => sub { utf8::upgrade($_[0]{$_}) for @strings;        return },
    'undefines'         => sub { undef $_[0]{$_}          for keys %{ $_[0] }; return },
    'blesses it'        => sub { bless $_[0], 'My::Env'; return },
    'blesses a value'   => sub { bless \$_[0]{PATH_INFO}, 'My::Path'; return },
    'blesses the handlers' => sub { bless $_[0]{'psgix.cleanup.handlers'}, 'My::Handlers'; return },
    'ties it'              => sub { tie %{ $_[0] }, 'Tied'; return },
    'ties a value'         => sub { require Tie::Scalar; tie $_[0]{PATH_INFO}, 'Tie::StdScalar'; return },
    'locks it'             => sub { Hash::Util::lock_hash(%{ $_[0] }); return },
    'locks its keys'       => sub { Hash::Util::lock_keys(%{ $_[0] }); return },
    'ties a field'         => sub { require Tie::Scalar; tie $_[0]{HTTP_ACCEPT}, 'Tie::StdScalar'; return },
    'blesses a field'      => sub { bless \$_[0]{HTTP_ACCEPT}, 'My::Field'; return },
    'freezes a field'      => sub { Internals::SvREADONLY($_[0]{HTTP_ACCEPT}, 1); return },
    'matches a field'      => sub { $_[0]{HTTP_ACCEPT} =~ /\G./gc;                return },
    'swaps fields'         =>
        sub { @{ $_[0] }{qw(HTTP_ACCEPT HTTP_HOST)} = @{ $_[0] }{qw(HTTP_HOST HTTP_ACCEPT)}; return },
    'freezes a value' => sub { Internals::SvREADONLY($_[0]{PATH_INFO}, 1); return },
    'uses numbers'    => sub { no warnings; my $sum = 0; $sum += $_[0]{$_} for @strings, @flags; return },
    'uses strings'    => sub {
        my $text = join '', map { "$_" } %{ $_[0] };
        return;
    },
    'matches with pos'     => sub { $_[0]{PATH_INFO} =~ /\G./gc; return },
    'iterates halfway'     => sub { each %{ $_[0] };             return },
    'deletes in each'      => sub { my ($key) = each %{ $_[0] }; delete $_[0]{$key}; return },
    'copies'               => sub { return { %{ $_[0] } } },
    'weakly keeps it'      => sub { weaken($weak{env} = $_[0]); return },
    'weakly keeps a value' => sub { weaken($weak{path} = \$_[0]{PATH_INFO}); return },
    'weakly keeps a field' => sub { weaken($weak{host} = \$_[0]{HTTP_ACCEPT}); return },
    'weakens a reference'  => sub { weaken($_[0]{'psgix.informational'}); return },
    'keeps it'             => sub { return $_[0] },
    'keeps a value'        => sub { return \$_[0]{PATH_INFO} },
    'keeps a field'        => sub { return \$_[0]{HTTP_ACCEPT} },
    'keeps a flag'         => sub { return \$_[0]{'psgi.streaming'} },
    'keeps a reference'    => sub { return \$_[0]{'psgix.informational'} },
    'keeps a function'     => sub { return $_[0]{'psgix.peregrine.disconnected'} },
    'keeps the handlers'   => sub { return $_[0]{'psgix.cleanup.handlers'} },
    'keeps an iterator'    => sub {
        my $env = $_[0];
        return sub { $env->{PATH_INFO} }
    },
    'cleans up' => sub {
        push @{ $_[0]{'psgix.cleanup.handlers'} }, sub { $_[0]{mine} = 1 };
        return;
    },
    'closes the input' => sub { close $_[0]{'psgi.input'}; return },
);

sub shown {
    my ($value) = @_;
    return defined $$value ? ref \$$value eq 'SCALAR' ? $$value : 'opaque' : 'undef'
        if ref $value eq 'SCALAR';
    return $json->encode({ map { $_ => "$value->{$_}" } keys %$value }) if ref $value eq 'HASH';
    return 'opaque';
}

# All that can be seen of an environment: its values, what kind of scalars they are, and what they refer to.
sub description {
    my ($env) = @_;
    my %seen;
    while (my ($key, $value) = each %$env) {
        my $flags = B::svref_2object(\$env->{$key})->FLAGS;
        my $kind  = join '', map { $flags & $_->[0] ? $_->[1] : '' } [ B::SVf_POK(), 'p' ],
            [ B::SVf_IOK(), 'i' ], [ B::SVf_NOK(), 'n' ], [ B::SVf_READONLY(), 'r' ];
        $value      = ref $value eq 'ARRAY' ? "ARRAY(@$value)" : ref $value if ref $value;
        $value      = 'a number' if $key eq 'psgix.peregrine.queue_us' && $value =~ /\A\d+\z/;
        $seen{$key} = [ $value, utf8::is_utf8($value) ? 'wide' : 'bytes', $kind, ref \$env->{$key} ];
    }
    return \%seen;
}

sub app {
    my ($env) = @_;
    my $sent;
    $env->{'psgi.input'}->read($sent, 9);
    my $answer =
        $env->{PATH_INFO} eq '/kept'
        ? {
        changed => [ map { $_->[0] } grep { shown($_->[1]) ne $_->[2] } @kept ],
        alive   => [ grep { defined $weak{$_} } sort keys %weak ]
        }
        : { sent => $sent, env => description($env) };
    my $body = $json->encode($answer);
    my $name = $env->{QUERY_STRING} =~ s/%20/ /gr;
    if ($mischief{$name}) {
        my $kept = $mischief{$name}->($env);
        push @kept, [ $name, $kept, shown($kept) ] if defined $kept;
    }
    return [ 200, [ 'Content-Type' => 'application/json' ], [$body] ];
}

require B;
my $server = TestServer->start(psgi => 1, app => \&app, access_log => undef);
my $client = TestClient->new($server->port);

sub ask {
    my ($line, $fields, $body) = @_;
    my $head     = join '', map { "$_\r\n" } "$line HTTP/1.1", 'Host: h', @{ $fields || ['Accept: a'] };
    my $response = $client->send("$head\r\n" . ($body // ''))->response;
    return $response && $json->decode($response->{body});
}

my $fresh = ask('GET /a');
is $fresh->{env}{HTTP_ACCEPT}[0], 'a', 'an environment';
is_deeply ask('GET /a'), $fresh, '... and the same one again';

# Objects that these put into the environment: they go with the request, before the next one comes.
my %objects = (
    'adds a wide key'    => 1,
    'adds an object'     => 1,
    'adds many keys'     => 20,
    'adds too many keys' => 300,
    'sets an object'     => 1,
    'sets another'       => 1,
);
my $objects = 0;
for my $name (sort keys %mischief) {
    ask('GET /mischief?' . $name =~ s/ /%20/gr, [ 'Accept: mischief', 'Cookie: more' ]);
    $objects += $objects{$name} || 0;
    ok $server->wait_for_log(qr/^destroyed $objects$/m), '... which took its objects with it'
        if $objects{$name};
    is_deeply ask('GET /a'), $fresh, "after an application that $name";
}

my $report = ask('GET /kept');
is_deeply $report->{changed}, [],         'a kept environment is as it was';
is_deeply $report->{alive},   ['circle'], '... and what was not is gone, but for a circle';

# Requests that differ, one after the other, each compared with what it gives on a connection of its own.
my @requests = (
    ['GET /a'],
    [ 'GET /a',               [ 'Accept: b', 'Cookie: c' ] ],
    [ 'GET /a',               [ 'Cookie: c', 'Accept: b' ] ],
    [ 'GET /a',               [ 'Cookie: c', 'Cookie: d' ] ],
    [ 'GET /a',               [ 'Accept: b', 'Accept: c' ] ],
    [ 'GET /a',               [] ],
    [ 'GET /a',               [ 'X-Mine: 1', 'X-Mine: 2' ] ],
    [ 'GET /a',               ['X-Mine: 1'] ],
    [ 'GET /a',               [ 'Proxy: p', 'Accept: b' ] ],
    [ 'GET /a',               [ map { "X-$_: 1" } 1 .. 50 ] ],
    [ 'GET /' . 'long' x 999, [ 'Accept: ' . 'long' x 999 ] ],
    [ 'POST /a',              [ 'Content-Length: 3', 'Content-Type: t' ], 'abc' ],
    [ 'POST /a',              [ 'Content-Length: 0', 'Content-Type: t' ] ],
    [ 'POST /a',              ['Transfer-Encoding: chunked'], "2\r\nab\r\n0\r\n\r\n" ],
    ['OPTIONS *'],
    ['MINE /%20b?'],
    ['GET http://other/c?d=e'],
);
my %alone;
for my $i (0 .. $#requests) {
    $client = TestClient->new($server->port);
    $alone{$i} = ask(@{ $requests[$i] });
}
$client = TestClient->new($server->port);
my $port = ask('GET /a')->{env}{REMOTE_PORT};
$_->{env}{REMOTE_PORT} = $port for values %alone;
for my $step (1, 5, 7) {
    my @different = grep { $json->encode(ask(@{ $requests[$_] })) ne $json->encode($alone{$_}) }
        map { $_ * $step % @requests } 0 .. 2 * @requests;
    is_deeply \@different, [], "requests that differ, in steps of $step";
}
is $server->stop, 0, 'the server stops';

done_testing;
