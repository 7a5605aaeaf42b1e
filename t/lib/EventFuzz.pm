package EventFuzz;

# Applications that send events made of hostile Perl values, in any order, from a seed: tied, overloaded,
# magical, dying, huge, freed in the middle, referring to themselves. Reading such a value changes and frees
# other values of the event, sends, receives, runs the event loop, or dies. Equal seeds make equal events.
#
# Errors are found by the client, which sees memory that was used again on the wire, by the server's
# log and its end, and by AddressSanitizer (script/test-sanitized, script/fuzz events).

use strict;
use warnings;

use Future;
use Future::AsyncAwait;
use IO::Async::Loop;
use Scalar::Util qw(dualvar weaken);
use TestClient;
use TestServer;
use TestTools qw(patience);
use TestWebSocket;
use Time::HiRes qw(time);

use constant {
    EVENTS_MAX  => 12,
    ACTIONS_MAX => 60,     # of a request, so that no request goes on for ever
    DEPTH_MAX   => 3,
    SILENCE     => 0.1,    # seconds after which the client leaves
};

our @KINDS = qw(http sse websocket);

# The byte with which freed memory is filled. No event contains it.
my $JUNK = 'J';

# ---- Numbers from a seed ------------------------------------------------------------------------

sub _number {
    my ($self, $below) = @_;
    my $state = $self->{state};
    $state ^= ($state << 13) & 0xffff_ffff;
    $state ^= $state >> 17;
    $state ^= ($state << 5) & 0xffff_ffff;
    $self->{state} = $state;
    return $state % $below;
}

sub _pick   { my ($self, @list)    = @_; return $list[ $self->_number(scalar @list) ] }
sub _chance { my ($self, $percent) = @_; return $self->_number(100) < $percent }

# ---- Values -------------------------------------------------------------------------------------

{

    package EventFuzz::Object;
    use overload
        '""'     => sub { $_[0]{fuzz}->_misbehave($_[0]) },
        'bool'   => sub { $_[0]{fuzz}->_misbehave($_[0]) },
        '0+'     => sub { $_[0]{fuzz}->_misbehave($_[0]) },
        fallback => 1;

    # An object without conversion to a string.
    package EventFuzz::Mute;
    use overload '==' => sub { 1 };

    package EventFuzz::False;
    use overload '""' => sub { die "no string\n" }, 'bool' => sub { 0 };

    package EventFuzz::Guard;
    sub DESTROY { $_[0]{fuzz}->_act_on_destroy if $_[0]{fuzz}; return }

    package EventFuzz::Scalar;
    sub TIESCALAR { my ($class, $fuzz) = @_; return bless { fuzz => $fuzz }, $class }
    sub FETCH     { return $_[0]{fuzz}->_misbehave($_[0]) }
    sub STORE     { return }

    package EventFuzz::List;

    sub TIEARRAY {
        my ($class, $fuzz) = @_;
        return bless { fuzz => $fuzz, size => $fuzz->_number(4), slot => '' }, $class;
    }

    sub FETCHSIZE {
        my ($self) = @_;
        $self->{size} += $self->{fuzz}->_number(3) - 1 if $self->{fuzz}->_chance(20);
        return $self->{size} < 0 ? 0 : $self->{size};
    }
    sub STORE     { return }
    sub CLEAR     { $_[0]{size} = 0; return }
    sub EXTEND    { return }
    sub STORESIZE { return }

    sub FETCH {
        my ($self) = @_;
        return $self->{slot} =
            $self->{fuzz}->_chance(50) ? $self->{fuzz}->_misbehave($self) : $self->{fuzz}->_pair;
    }

    package EventFuzz::Hash;
    sub TIEHASH { my ($class, $fuzz, $hash) = @_; return bless { fuzz => $fuzz, hash => $hash }, $class }

    sub FETCH {
        my ($self, $key) = @_;
        return $self->{fuzz}->_chance(90) ? $self->{hash}{$key} : $self->{fuzz}->_misbehave($self);
    }
    sub STORE    { return }
    sub DELETE   { return delete $_[0]{hash}{ $_[1] } }
    sub CLEAR    { $_[0]{hash} = {}; return }
    sub EXISTS   { return exists $_[0]{hash}{ $_[1] } }
    sub FIRSTKEY { my ($self) = @_; keys %{ $self->{hash} }; return each %{ $self->{hash} } }
    sub NEXTKEY  { my ($self) = @_; return each %{ $self->{hash} } }
}

# A string in a buffer of its own, which is freed with it.
sub _fresh {
    my ($self, $length) = @_;
    return join '', map { chr 97 + $self->_number(9) } 1 .. $length;
}

my @PLAIN = (
    sub { $_[0]->_fresh($_[0]->_number(40)) },
    sub { $_[0]->_number(700) },
    sub { -$_[0]->_number(5) },
    sub { 1.5 },
    sub { '' },
    sub { undef },
    sub { "wide \x{263a}" },
    sub { "latin \xe9" },
    sub { my $text = "flagged"; utf8::upgrade($text); $text },
    sub { "\x{110000}" },
    sub { "a\r\nb: c" },
    sub { "\0" },
    sub { $_[0]->_fresh(10) x $_[0]->_pick(1000, 10_000, 100_000) },
    sub { dualvar(200,     'two') },
    sub { dualvar(9**9**9, 'inf') },
    sub { '9' x 30 },
    sub { 9**9**9 / 9**9**9 },
    sub { '0 but true' },
    sub { v1.22.333 },
    sub { *STDOUT },
    sub { \*STDOUT },
    sub { *STDOUT{IO} },
    sub {
        sub { }
    },
    sub { \'scalar' },
    sub { qr/regexp/ },
    sub { ${qr/regexp/} },
    sub { [] },
    sub { {} },
    sub { 'match' =~ /(.+)/; \$1 },
    sub { my $text = $_[0]->_fresh(9); \substr $text, 2, 3 },
    sub { Future->new },
    sub { bless [], 'EventFuzz::Mute' },
    sub { bless {}, 'EventFuzz::False' },
    sub { \undef },
    sub { !!0 },
    sub { local $! = 2; $! },
);

sub _plain { my ($self) = @_; return $self->_pick(@PLAIN)->($self) }

my @HOSTILE = (
    sub { bless { fuzz => $_[0] }, 'EventFuzz::Object' },
    sub { my @list; tie @list, 'EventFuzz::List', $_[0]; \@list },
    sub { my %hash; tie %hash, 'EventFuzz::Hash', $_[0], $_[0]->_event; \%hash },
    sub { $_[0]{event} },
    sub { $_[0]{event}{headers} },
    sub { my $list = []; push @$list, $list, [ $list, $list ]; weaken $list->[0]; $list },
    sub { bless { fuzz => $_[0] },    'EventFuzz::Guard' },
    sub { my @list; $#list = $_[0]->_number(5); \@list },
    sub {
        bless [ map { $_[0]->_pair } 1 .. 3 ], 'EventFuzz::Mute';
    },
);

sub _value { my ($self) = @_; return $self->_chance(50) ? $self->_plain : $self->_pick(@HOSTILE)->($self) }

sub _pair {
    my ($self) = @_;
    my @pair   = ('x-' . $self->_fresh(1 + $self->_number(12)), $self->_fresh($self->_number(60)));
    my $which  = $self->_number(2);
    $pair[$which] = $self->_value if $self->_chance(15);
    tie $pair[$which], 'EventFuzz::Scalar', $self if $self->_chance(10);
    push @pair, $self->_value if $self->_chance(2);
    pop @pair if $self->_chance(2);
    return \@pair;
}

sub _list {
    my ($self) = @_;
    my @list = map { $self->_chance(95) ? $self->_pair : $self->_value } 1 .. $self->_pick(0, 2, 4, 40);
    tie @list, 'EventFuzz::List', $self if $self->_chance(5);
    return \@list;
}

# ---- Events -------------------------------------------------------------------------------------

# Functions that make a right value for each field.
my %FIELD = (
    status      => sub { $_[0]->_pick(200, 201, 204, 304, 404, '200', 599) },
    headers     => sub { $_[0]->_list },
    trailers    => sub { $_[0]->_pick(0, 0, 1) },
    body        => sub { $_[0]->_fresh($_[0]->_pick(0, 10, 5000)) },
    more        => sub { $_[0]->_pick(0, 1, 1, 1) },
    file        => sub { $0 },
    fh          => sub { open my $handle, '<', $0 or die "$0: $!"; $handle },
    offset      => sub { $_[0]->_number(100) },
    length      => sub { $_[0]->_number(100) },
    event       => sub { $_[0]->_fresh(5) },
    data        => sub { $_[0]->_fresh($_[0]->_pick(0, 30, 5000)) },
    id          => sub { $_[0]->_fresh(3) },
    retry       => sub { $_[0]->_number(5000) },
    comment     => sub { $_[0]->_fresh(10) },
    interval    => sub { $_[0]->_pick(0, 0.01, 60) },
    timeout     => sub { $_[0]->_pick(0, 60) },
    reason      => sub { $_[0]->_fresh(20) },
    subprotocol => sub { $_[0]->_pick('one', 'two', undef) },
    text        => sub { $_[0]->_fresh($_[0]->_pick(0, 30, 5000)) },
    bytes       => sub { $_[0]->_fresh(30) },
    code        => sub { $_[0]->_pick(1000, 1001, 4000) },
);
my @BODY   = qw(body more);
my %EVENTS = (
    'http.response.start'           => [qw(status headers trailers)],
    'http.response.body'            => \@BODY,
    'http.response.trailers'        => [qw(headers)],
    'http.fullflush'                => [],
    'sse.start'                     => [qw(status headers)],
    'sse.send'                      => [qw(data event id retry)],
    'sse.comment'                   => [qw(comment)],
    'sse.keepalive'                 => [qw(interval comment)],
    'sse.close'                     => [qw(reason)],
    'sse.http.response.start'       => [qw(status headers)],
    'sse.http.response.body'        => \@BODY,
    'websocket.accept'              => [qw(subprotocol headers)],
    'websocket.send'                => [qw(text)],
    'websocket.close'               => [qw(code reason)],
    'websocket.keepalive'           => [qw(interval timeout)],
    'websocket.http.response.start' => [qw(status headers)],
    'websocket.http.response.body'  => \@BODY,
);
my %FIRST = (http => 'http.response.start', sse => 'sse.start', websocket => 'websocket.accept');

sub _type {
    my ($self) = @_;
    my $kind = $self->{kind};
    return $FIRST{$kind}                                        if !$self->{started}++ && $self->_chance(70);
    return $self->_pick(grep { /\A$kind\./ } sort keys %EVENTS) if $self->_chance(95);
    return $self->_chance(50) ? $self->_pick(sort keys %EVENTS) : $self->_value;
}

sub _event {
    my ($self) = @_;
    my $type   = $self->_type;
    my @fields = defined $type && !ref $type && $EVENTS{$type} ? @{ $EVENTS{$type} } : ();
    push @fields, $self->_pick(sort keys %FIELD) if $self->_chance(10);
    push @fields, 'fh'                           if $self->_chance(3);
    my %event = (type => $type, map { $_ => $FIELD{$_}->($self) } @fields);
    for my $name (grep { $self->_chance(12) } sort keys %event) {
        if ($self->_chance(50)) { $event{$name} = $self->_value }
        else                    { tie $event{$name}, 'EventFuzz::Scalar', $self }
    }
    return \%event;
}

# ---- Actions of a value while it is read ---------------------------------------------------------

sub _churn {
    my @list = map { $JUNK x $_ } 1 .. 100;
    return scalar @list;
}

my @ACTIONS = (
    sub { my ($self) = @_; my $event = $self->{event};  delete $event->{ $self->_pick(sort keys %FIELD) } },
    sub { my ($self) = @_; my $event = $self->{event};  %$event      = () },
    sub { my ($self) = @_; my $event = $self->{event};  $event->{$_} = 'changed' for keys %$event },
    sub { my ($self) = @_; my $list  = $self->_headers; @$list       = () },
    sub { my ($self) = @_; my @pairs = $self->_pairs;   undef @$_                 for @pairs },
    sub { my ($self) = @_; my $list  = $self->_headers; push @$list, $self->_pair for 1 .. 50 },
    sub { my ($self) = @_; my $list  = $self->_headers; $#$list = $self->_number(5) },
    sub { my ($self) = @_; my @pairs = $self->_pairs;   @$_     = ('changed' x 20) x 2 for @pairs },
    sub { my ($self) = @_; $self->_send($self->_event)                      if $self->{depth} < DEPTH_MAX },
    sub { my ($self) = @_; $self->_send($self->{event})                     if $self->{depth} < DEPTH_MAX },
    sub { my ($self) = @_; push @{ $self->{futures} }, $self->{receive}->() if $self->{receive} },
    sub { my ($self) = @_; $_->cancel for splice @{ $self->{futures} } },
    sub { my ($self) = @_; IO::Async::Loop->new->loop_once(0)               if $self->{depth} < 2 },
    sub { my ($self) = @_; delete $self->{ $self->_pick(qw(send receive)) } if $self->_chance(30) },
    sub { my ($self) = @_; %{ $self->{scope} } = ()                         if $self->_chance(30) },
    sub { my ($self) = @_; $self->_watch },
    sub { die "on purpose\n" },
    sub { die { an => 'exception' } },
    sub { die bless {}, 'EventFuzz::False' },
    sub {
        my ($self) = @_;
        local $SIG{__WARN__} = sub { die @_ };
        warn "fatal\n";
    },
    sub { my ($self) = @_; bless $self->{event}, 'EventFuzz::Mute' if ref $self->{event} },
);

# The list of header fields, if actions may change it. Lists that run code (tied) are left alone, because
# perl's own loops do not hold the arrays over which they iterate.
sub _headers {
    my ($self) = @_;
    my $event  = $self->{event};
    my $list   = tied %$event || tied $event->{headers} ? [] : $event->{headers};
    return ref $list eq 'ARRAY' && !tied @$list ? $list : [];
}

sub _pairs {
    my ($self) = @_;
    my $list = $self->_headers;
    return grep { ref eq 'ARRAY' && !tied @$_ } @$list;
}

# Subscribes to events of connection and transport, with callbacks that act, too.
sub _watch {
    my ($self) = @_;
    my $callback = sub { $self->_misbehave };
    my ($connection, $transport) = @{ $self->{scope} }{ 'pagi.connection', 'pagi.transport' };
    my $method = $self->_pick(
        qw(on_disconnect on_complete on_high_water on_drain disconnect_future is_connected buffered_amount));
    my $object = $method =~ /water|drain|amount/ ? $transport : $connection;
    push @{ $self->{kept} }, $object if $self->_chance(20);
    $object->$method($method =~ /\Aon_/ ? $callback : ()) if $object;
    return;
}

sub _misbehave {
    my ($self) = @_;
    return 'enough' if $self->{actions}++ > ACTIONS_MAX;
    local $self->{depth} = $self->{depth} + 1;
    $self->_pick(@ACTIONS)->($self) if $self->_chance(60);
    _churn();
    return $self->_chance(80) ? $self->_fresh(20) : $self->_value;
}

# Acts in a DESTROY, which runs within an assignment or a loop of perl's own: so it changes no value of the
# event.
sub _act_on_destroy {
    my ($self) = @_;
    return if !$self->{state} || $self->{actions}++ > ACTIONS_MAX;
    local $self->{depth} = $self->{depth} + 1;
    local $self->{event} = {};
    local $@;
    eval { $self->_pick(@ACTIONS)->($self) };
    _churn();
    return;
}

# ---- The application

sub _send {
    my ($self, $event) = @_;
    my $send = $self->{send} or return;
    local $self->{event} = $event;
    if ($self->_chance(5)) { tie my %tied, 'EventFuzz::Hash', $self, $event; $event = \%tied }
    if ($self->_chance(2)) { $event = $self->_value }
    if ($self->_chance(2)) { tie $event, 'EventFuzz::Scalar', $self }
    my $future = eval { $send->($event) };
    print STDERR 'finding: $send died: ', (ref $@ || $@), "\n" if !ref $future;
    push @{ $self->{futures} }, $future;
    return $future;
}

async sub _run {
    my ($self) = @_;
    for my $count (1 .. 1 + $self->_number(EVENTS_MAX)) {
        my $future = $self->_send($self->_event);
        await Future->wait_any($future, IO::Async::Loop->new->delay_future(after => SILENCE))
            if $future && $self->_chance(30) && !$future->is_failed;
        await IO::Async::Loop->new->later if $self->_chance(10);
        push @{ $self->{futures} }, $self->{receive}->() if $self->{receive} && $self->_chance(20);
    }
    @{$self}{qw(event futures)} = ({}, []);
    return $self->_end;
}

# Ends the application in one of several ways.
sub _end {
    my ($self) = @_;
    my $how = $self->_number(8);
    die "the application ends\n" if $how == 0;
    die bless {}, 'EventFuzz::False' if $how == 1;
    delete $self->{send} if $how == 2;
    push @{ $self->{kept} }, @{$self}{qw(send receive)} if $how == 3;
    $self->{send}->({ type => 'http.response.body' })
        if $how == 4 && $self->{send} && $self->{kind} eq 'http';
    return $how == 5 ? bless({ fuzz => $self }, 'EventFuzz::Object') : ();
}

# The path of a request is "/" and its seed.
sub app {
    return async sub {
        my ($scope, $receive, $send) = @_;
        die "lifespan is not supported\n" if $scope->{type} eq 'lifespan';
        my $seed = substr $scope->{path}, 1;
        if ($seed eq 'alive') {
            await $send->({ type => 'http.response.start', status => 200 });
            return await $send->({ type => 'http.response.body', body => 'alive' });
        }
        my $self = bless {
            state   => ($seed * 2_654_435_761 + 1) & 0xffff_ffff || 1,
            kind    => $scope->{type},
            scope   => $scope,
            receive => $receive,
            send    => $send,
            event   => {},
            depth   => 0,
            actions => 0,
            futures => [],
            kept    => [],
            },
            'EventFuzz';
        await $self->_run;
        return;
    };
}

# ---- The client

our %REQUEST = (
    http      => "POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    sse       => "GET /%d HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n",
    websocket => TestWebSocket::handshake('/%d', 'Sec-WebSocket-Protocol: one, two')
        . TestWebSocket::frame(1, 'hello')
        . TestWebSocket::frame(2, 'x' x 300),
);

# Sends a request of a kind and seed, and reads until the server is silent. Another client sends a request at
# the same time and has to get the right answer, even if the loop comes to it in the middle of an event.
# Returns a text if something is wrong.
sub request {
    my ($port, $kind, $seed) = @_;
    my ($client, $other) = eval {
        map { TestClient->new($port) } 1, 2;
    } or return "the server is gone: $@";
    $client->send(sprintf $REQUEST{$kind}, $seed);
    $other->send("GET /alive HTTP/1.1\r\nHost: a\r\n\r\n");
    my $bytes = '';
    my $end   = time + patience(5);
    while (time < $end && length(my $piece = $client->some(SILENCE))) { $bytes .= $piece }
    return "memory that was used again is on the wire: $1" if $bytes =~ /(.{0,40}$JUNK{2}.{0,40})/s;
    my $answer = $other->response;
    return 'another request is answered with ' . ($answer ? $answer->{body} : 'nothing')
        if !$answer || $answer->{body} ne 'alive';
    if   ($seed % 3) { $client->close }
    else             { $client->reset }
    return;
}

# Runs a range of seeds, each with all types of scopes, against a server of its own; returns problems.
sub run {
    my ($first, $last, %options) = @_;
    my @findings;
    my $server = TestServer->start(
        app        => app(),
        access_log => undef,
        quiet      => 1,
        extensions => { fullflush => {} },
        %options
    );
    for my $seed ($first .. $last) {
        for my $kind (@KINDS) {
            my $finding = request($server->port, $kind, $seed);
            push @findings, "seed $seed, $kind: $finding" if defined $finding;
        }
        last if @findings;
    }
    my $answer = eval { TestClient::get($server->port, '/alive')->{body} } // 'nothing';
    push @findings, "asked whether it is alive the server answers $answer" if $answer ne 'alive';
    my $status = $server->stop;
    push @findings, 'the server ends with ' . ($status // 'a kill') if !defined $status || $status;
    my $wrong =
        qr/panic|Attempt to free|freed (?:value|scalar)|unreferenced|Sanitizer|runtime error|assert|^finding: |uninitialized/m;
    push @findings, map { "the log says: $_" } grep { /$wrong/ } split /\n/, $server->log;
    return @findings;
}

1;
