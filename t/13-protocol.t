# The tables of PAGI::Server::Protocol against the code: a key, an event or a field that is missing there or
# that no code knows, and one whose type is another one, fails here.
use strict;
use warnings;
use experimental 'signatures';

use lib 't/lib';
use B ();
use Certificates;
use File::Temp ();
use Future::AsyncAwait;
use IO::Socket::UNIX;
use JSON::PP     ();
use ManualTables qw(tables);
use PAGI::Server;
use PAGI::Server::EventCheck;
use Scalar::Util qw(blessed);
use Test::More;
use TestClient qw(get exchange);
use TestServer;
use TestStream;
use TestTools qw(content wait_for);
use TestWebSocket;

# ---- The manual's tables ------------------------------------------------------------------------

my %table = tables('lib/PAGI/Server/Protocol.pod');
my %sent  = map { /\ASent: (.+)/     ? ($1 => $table{$_}) : () } keys %table;
my %got   = map { /\AReceived: (.+)/ ? ($1 => $table{$_}) : () } keys %table;

sub column ($name, $rows) {
    return sort map { $_->{$name} } @$rows;
}

# ---- What may be sent ---------------------------------------------------------------------------

# For each type a good value, and a value that is not allowed.
my %VALUES = (
    text    => [ "\x{263a}\n",     [] ],
    line    => [ "\x{263a}",       "a\nb" ],
    bytes   => [ "\xff",           "\x{263a}" ],
    integer => [ 1000,             1.5 ],
    size    => [ 5,                -1 ],
    status  => [ 204,              199, 600 ],
    interim => [ 103,              101, 200 ],
    seconds => [ 0.5,              -1,  1_000_001 ],
    flag    => [ 0,                'yes' ],
    pairs   => [ [ [ 'a', 'b' ] ], 'a: b', [ ['a'] ] ],
    array   => [],
    hash    => [],
    object  => [],
    handle  => [ \*STDIN, 'STDIN' ],
);
is_deeply([ column(type => $table{Types}) ], [ sort keys %VALUES ], 'the types that the tables use');

my %known = PAGI::Server::EventCheck::events();
is_deeply([ sort keys %sent ], [ sort keys %known ], 'every event that an application may send');
for my $type (sort keys %sent) {
    is_deeply([ column(field => $sent{$type}) ], $known{$type}, "$type has its fields");
    my %given = (type => $type);
    for my $field (@{ $sent{$type} }) {
        my ($good) = @{ $VALUES{ $field->{type} } };
        $given{ $field->{field} } = $good if $field->{default} eq 'needed';
    }
    my ($either) = map { $_->{field} } grep { $_->{default} eq 'one of' } @{ $sent{$type} };
    $given{$either} = 'x' if $either;
    is(PAGI::Server::EventCheck::problem({%given}), undef, '... and needs no others');
    for my $field (@{ $sent{$type} }) {
        my ($name, $default) = @{$field}{qw(field default)};
        my ($good, @bad)     = @{ $VALUES{ $field->{type} } };
        my %other = %given;
        delete @other{qw(text bytes)} if $default eq 'one of';
        is(PAGI::Server::EventCheck::problem({ %other, $name => $good }),
            undef, "... a $field->{type} is a good $name");
        like(PAGI::Server::EventCheck::problem({ %other, $name => $_ }), qr/\b\Q$name\E must be/, '... only')
            for @bad;
        next if $default ne 'needed';
        delete $other{$name};
        like(PAGI::Server::EventCheck::problem(\%other), qr/\b\Q$name\E is missing/, '... it is needed');
    }
}

# The bridge reads these fields, and takes these events in a scope.
{
    my %text   = content('xs/pagi/pagi.h') =~ /X\((\w+), "([^"]*)"\)/g;
    my ($list) = content('xs/pagi/plain_event.c') =~ /event_fields\[\] = \{(.*?)\};/s;
    my %fields = map { $_ => 1 } map { column(field => $sent{$_}) } grep { !/\Alifespan/ } keys %sent;
    is_deeply(
        [ sort map { $text{$_} } $list =~ /PAGI_KEY_(\w+)/g ],
        [ sort 'type', keys %fields ],
        'the fields that the bridge reads'
    );
    my %of = (
        http      => [ grep { /\Ahttp\./ } keys %sent ],
        websocket => [ grep { /\A(?:websocket|topic)\./ } keys %sent ],
        sse       => [ 'http.fullflush', grep { /\A(?:sse|topic)\./ } keys %sent ],
    );
    for my $scope (sort keys %of) {
        my ($sends) = content("xs/pagi/$scope.c") =~ /${scope}_sends\[\] = \{(.*?)\};/s;
        is_deeply(
            [ sort $sends =~ /PAGI_SEND\("([^"]+)"/g ],
            [ sort @{ $of{$scope} } ],
            "the events that it takes in the scope $scope"
        );
    }
    my ($reasons) = content('engine/include/peregrine.h') =~ /enum peregrine_reason \{(.*?)\};/s;
    is_deeply(
        [ sort map { lc } $reasons =~ /PEREGRINE_(\w+) =/g ],
        [ column(reason => $table{REASONS}) ],
        'the reasons of the engine'
    );
}

# ---- Objects ------------------------------------------------------------------------------------

my %CLASS = ('pagi.connection' => 'PAGI::Server::Connection', 'pagi.transport' => 'PAGI::Server::Transport');
for my $key (sort keys %CLASS) {
    no strict 'refs';
    my $class   = $CLASS{$key};
    my @methods = grep { defined &{"${class}::$_"} && !/\A(?:_|[A-Z])/ } keys %{"${class}::"};
    is_deeply([ sort @methods ], [ column(method => $table{"Methods of $key"}) ], "the methods of $key");
}

# ---- What a real server hands out ---------------------------------------------------------------

my $json = JSON::PP->new->canonical->ascii->allow_nonref->convert_blessed;
{
    no strict 'refs';
    *{"PAGI::Server::${_}::TO_JSON"} = sub { ref $_[0] }
        for qw(Connection Transport Channels Topics WorkerPool);
}

sub note_down ($kind, $scope, $what) {
    print STDERR "$kind $scope->{type} ", $json->encode($what), "\n";
}

# Tells of every scope and event, and what becomes of events without a field that they need.
async sub app ($scope, $receive, $send) {
    my $type = $scope->{type};
    note_down(SCOPE => $scope, $scope);
    my $next = async sub {
        my $event = await $receive->();
        note_down(EVENT => $scope, $event);
        return $event;
    };
    my $in_vain = async sub ($event) {
        for my $field (grep { $_->{default} eq 'needed' } @{ $sent{$event} }) {
            my $taken = eval { await $send->({ type => $event }); 1 };
            note_down(TAKEN  => $scope, "$event $field->{field}") if $taken;
            note_down(FAILED => $scope, [ $event, $field->{field}, "$@" ]);
        }
    };
    if ($type eq 'lifespan') {
        await $next->();
        $scope->{state}{made} = 1;
        await $send->({ type => 'lifespan.startup.complete' });
        await $next->();
        await $send->({ type => 'lifespan.shutdown.complete' });
    }
    elsif ($type eq 'http') {
        1 while (await $next->())->{more};
        await $in_vain->('http.response.start');
        await $send->({ type => 'http.response.start', status => 200 });
        await $send->({ type => 'http.response.body' });
        await $next->();
    }
    elsif ($type eq 'websocket') {
        await $next->();
        await $in_vain->('websocket.http.response.start');
        await $send->({ type => 'websocket.accept' });
        await $in_vain->('websocket.keepalive');
        await $in_vain->('topic.subscribe');
        await $in_vain->('topic.unsubscribe');
        await $send->({ type => 'topic.subscribe', topic => 'news', since => 'a position that is none' });
        while (1) {
            my $event = await $next->();
            last                                         if $event->{type} eq 'websocket.disconnect';
            await $send->({ type => 'websocket.close' }) if ($event->{text} // '') eq 'close';
        }
    }
    else {
        1 while (await $next->())->{more};
        await $in_vain->('sse.http.response.start');
        await $in_vain->('sse.keepalive');
        await $send->({ type => 'sse.start' });
        for my $event (qw(sse.send sse.comment)) { await $in_vain->($event) }
        await $send->({ type => 'sse.send', data => 'x' });
        await $send->({ type => 'sse.close' });
        await $next->();
    }
}

my $home   = File::Temp->newdir;
my $server = TestServer->start(
    app         => \&app,
    listen      => [ '127.0.0.1:0', "$home/socket" ],
    channels    => 1,
    worker_pool => { workers   => 1,  handlers      => { nothing => sub { } } },
    extensions  => { fullflush => {}, informational => {} },
);
my $port = $server->port;

my $answer = get($port, '/');
is($answer->{body}, '', 'a body event without fields is the end of an empty body');
exchange($port,
          "POST /%c3%a4?x=1 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n"
        . "Connection: close\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n");
my $local = IO::Socket::UNIX->new(Peer => "$home/socket") or die "socket: $!";
$local->autoflush(1);
print {$local} "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
like(do { local $/; <$local> }, qr{\AHTTP/1\.1 200 }, 'a request over a Unix socket');

my $socket = TestWebSocket->open($port, '/', lines => ['Sec-WebSocket-Protocol: a, b']);
$socket->text('hello');
$socket->binary('bytes');
$socket->text('close');
is($socket->next, 'close 1000', 'websocket.close without fields is 1000 without a reason');
$socket->close_frame(1000);

my $stream = TestStream->open($port, '/', body => 'abc');
is($stream->head->{status},  200, 'sse.start without fields is 200');
is($stream->message->{data}, 'x', '... and a stream');
wait_for(sub { $server->log =~ /^EVENT sse .*sse\.disconnect/m && $server->log =~ /websocket\.disconnect/ },
    60);
is($server->stop, 0, 'the server ends well');

# TLS, and a worker process.
my $secure;
if (PAGI::Server->has_tls) {
    my $files = Certificates->new;
    $files->authority('ca')->issue('localhost');
    $secure = TestServer->start(app => \&app, workers => 1, ssl => { $files->pair('localhost') });
    my $client = TestClient->new($secure->port, tls => {});
    $client->send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    is($client->response->{status}, 200, 'a request over TLS');
    $client->close;
    is($secure->stop, 0, 'the server with a worker ends well');
}

my (%scopes, %events, @failed);
for my $line (map { split /\n/, $_->log } grep { defined } $server, $secure) {
    my ($kind, $scope, $what) = $line =~ /\A(SCOPE|EVENT|FAILED|TAKEN) (\w+) (.*)\z/ or next;
    my $value = $json->decode($what);
    push @{ $scopes{$scope} },           $value if $kind eq 'SCOPE';
    push @{ $events{ $value->{type} } }, $value if $kind eq 'EVENT';
    push @failed,                        $value if $kind eq 'FAILED';
    fail("$value was sent without a field that it needs") if $kind eq 'TAKEN';
}

like($_->[2], qr/\b\Q$_->[1]\E (?:is missing|must be given)/, "$_->[0] fails without $_->[1]") for @failed;
my %asked  = map { ("$_->[0] $_->[1]" => 1) } @failed;
my @needed = map {
    my $type = $_;
    map { "$type $_->{field}" } grep { $_->{default} eq 'needed' } @{ $sent{$type} }
} sort keys %sent;
is_deeply([ sort keys %asked ], [ sort @needed ], 'each field that is needed was left out once');

# ---- Scopes and events against their tables -----------------------------------------------------

# Whether a scalar began as a number.
sub is_number ($value) {
    my $flags = B::svref_2object(\$value)->FLAGS;
    return !($flags & B::SVp_POK) && !!($flags & (B::SVp_IOK | B::SVp_NOK));
}

my %IS = (
    text    => sub ($value) { !ref $value && !is_number($value) },
    bytes   => sub ($value) { !ref $value && !is_number($value) && $value !~ /[^\0-\xff]/ },
    integer => sub ($value) { !ref $value && is_number($value)  && $value == int $value },
    flag    => sub ($value) { !ref $value && $value =~ /\A[01]\z/ },
    pairs   => sub ($value) {
        ref $value eq 'ARRAY' && !grep { ref $_ ne 'ARRAY' || @$_ != 2 } @$value;
    },
    array  => sub ($value) { ref $value eq 'ARRAY' },
    hash   => sub ($value) { ref $value eq 'HASH' },
    object => sub ($value) { $value =~ /\APAGI::Server::\w+\z/ },
);

# Rows of a table against the hashes that it is about: each key is named there, and of its type; `always` is
# always true, and `perhaps` was seen once.
sub check ($name, $column, $rows, @hashes) {
    ok(scalar @hashes, "$name was seen") or return;
    my %flat = map { $_->{$column} => $_ } @$rows;
    my %seen;
    for my $hash (@hashes) {
        my %value = %$hash;
        $value{"pagi{$_}"} = $hash->{pagi}{$_} for keys %{ ref $hash->{pagi} ? $hash->{pagi} : {} };
        my @unknown = grep { !$flat{$_} } sort keys %value;
        is("@unknown", '', "$name has no key that the manual does not name");
        for my $key (sort keys %flat) {
            my $row = $flat{$key};
            if (!exists $value{$key}) {
                fail("$name always has $key") if $row->{there} eq 'always';
                next;
            }
            $seen{$key}++;
            my $may_lack = !defined $value{$key} && $row->{value} =~ /\bundef\b/;
            ok($may_lack || $IS{ $row->{type} }->($value{$key}), "$key is $row->{type}")
                or diag $json->encode($value{$key});
            is($value{$key}, $row->{value}, '... and the word of the table')
                if $key =~ /\A(?:type|pagi\{(?:spec_)?version\})\z/;
        }
    }
    my @never = grep { !$seen{$_} } sort keys %flat;
    is("@never", '', "all keys of $name were seen");
    return;
}

for my $type (qw(http websocket sse lifespan)) {
    my $rows = $table{"The scope $type"};
    subtest "the scope $type" => sub { check("scope $type", 'key', $rows, @{ $scopes{$type} }) };
}
is_deeply([ sort keys %events ], [ sort keys %got ], 'every event that an application receives');
for my $type (sort keys %got) {
    my @rows = ({ field => 'type', type => 'text', there => 'always', value => $type }, @{ $got{$type} });
    # Trailers of a stream's request come as those of any other: the bridge makes both events in one place.
    @rows = grep { $_->{field} ne 'trailers' } @rows if $type eq 'sse.request';
    subtest "the event $type" => sub { check($type, 'field', \@rows, @{ $events{$type} }) };
}

my ($over_unix) = grep { $_->{server}[0] eq "$home/socket" } @{ $scopes{http} };
is(exists $over_unix->{client} ? 1 : 0, 0, 'over a Unix socket there is no client');
is_deeply($over_unix->{server}, [ "$home/socket", undef ], '... and server is its path');
is_deeply($_->{state}, { made => 1 }, 'state is that of lifespan') for map { @{ $scopes{$_} } } qw(http sse);
is_deeply(
    [ map { $_->{pagi}{is_worker} } @{ $scopes{lifespan} } ],
    $secure ? [ 0, 1 ] : [0],
    'is_worker tells whether it is one'
);

# ---- Extensions ---------------------------------------------------------------------------------

my %there = map { $_->{extension} => $_->{there} } @{ $table{EXTENSIONS} };
my %advertised;
for my $type (qw(http websocket sse)) {
    $advertised{$_}{$type}++ for map { keys %{ $_->{extensions} } } @{ $scopes{$type} };
}
is_deeply(
    [ grep { $secure || $_ ne 'tls' } sort keys %there ],
    [ sort keys %advertised ],
    'every extension that is advertised'
);
is_deeply([ keys %{ $advertised{'websocket.http.response'} } ], ['websocket'], 'denials in WebSockets only');
if ($secure) {
    my @tls = map { $_->{extensions}{tls} // () } @{ $scopes{http} };
    subtest 'the extension tls' => sub { check('tls', 'key', $table{'The extension tls'}, @tls) };
}

done_testing;
