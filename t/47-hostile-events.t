# Events whose values run Perl code when they are read: tied hashes and lists, magical scalars, overloaded
# objects. What such code frees, changes, sends or throws changes nothing in what was read before, and fails
# no more than its own $send.
use strict;
use warnings;

use lib 't/lib';
use Future;
use Future::AsyncAwait;
use Test::More;
use TestClient qw(get exchange);
use TestServer;
use TestStream;
use TestWebSocket;

# An object that runs code whenever it is read as a string or asked whether it is true.
{

    package Evil;
    use overload
        '""'     => sub { $_[0]{code}->() },
        'bool'   => sub { $_[0]{code}->() },
        fallback => 1;
    sub new { my ($class, $code) = @_; return bless { code => $code }, $class }

    package Evil::Scalar;
    sub TIESCALAR { my ($class, $code) = @_; return bless { code => $code }, $class }
    sub FETCH     { return $_[0]{code}->() }

    # The entries of the list are made by code, from their index.
    package Evil::List;
    sub TIEARRAY  { my ($class, $size, $code) = @_; return bless { size => $size, code => $code }, $class }
    sub FETCHSIZE { return ref $_[0]{size} ? $_[0]{size}->() : $_[0]{size} }
    sub FETCH     { return $_[0]{code}->($_[1]) }

    package Evil::Hash;
    sub TIEHASH  { my ($class, $code, @keys) = @_; return bless { code => $code, keys => \@keys }, $class }
    sub FETCH    { return $_[0]{code}->($_[1]) }
    sub EXISTS   { return 1 }
    sub FIRSTKEY { return $_[0]{keys}[0] }

    sub NEXTKEY {
        my ($self, $last) = @_;
        my %next;
        @next{ @{ $self->{keys} } } = @{ $self->{keys} }[ 1 .. @{ $self->{keys} } ];
        return $next{$last};
    }

    package Evil::Guard;
    sub new     { my ($class, $code) = @_; return bless { code => $code }, $class }
    sub DESTROY { $_[0]{code}->();         return }

    # An exception that cannot be told. (One that cannot be asked whether it is true is lost in
    # Future::AsyncAwait.)
    package Evil::Exception;
    use overload '""' => sub { die "no string\n" }, 'bool' => sub { $_[0]{true} // 1 };
    sub new { my ($class, %fields) = @_; return bless {%fields}, $class }
}

sub evil      { return Evil->new($_[0]) }
sub list_of   { my ($size, $code) = @_; tie my @list, 'Evil::List', $size, $code; return \@list }
sub hash_of   { my ($code, @keys) = @_; tie my %hash, 'Evil::Hash', $code, @keys; return \%hash }
sub evil_slot { my ($hash, $key, $code) = @_; tie $hash->{$key}, 'Evil::Scalar', $code; return $hash }

# Fills what was freed a moment ago with something that would be noticed.
sub churn {
    my @junk = map { 'J' x $_ } 1 .. 200;
    return scalar @junk;
}

# A string with a buffer of its own.
sub fresh { my ($text) = @_; return join '', split //, $text }

my @names = map { "x-name-$_" } 0 .. 5;

# Each case makes the event of a response's start, as a hash; it sees the event and its headers while they are
# read. With what is expected: fields of the response.
my %starts = (
    'a value that drops those before it' => sub {
        my $headers = [ map { [ fresh($_), fresh("value of $_") ] } @names ];
        $headers->[4][1] = evil(sub { undef @{ $headers->[$_] } for 0 .. 3; churn(); 'evil' });
        return (
            { status => 200, headers => $headers },
            (map { $_ => "value of $_" } @names[ 0 .. 3 ]),
            'x-name-4' => 'evil',
            'x-name-5' => 'value of x-name-5'
        );
    },
    'a name that changes those before it' => sub {
        my $headers = [ map { [ fresh($_), fresh("value of $_") ] } @names ];
        $headers->[5][0] =
            evil(sub { $_->[0] = $_->[1] = 'JJJJJJJJ' x 20 for @$headers[ 0 .. 4 ]; churn(); 'x-evil' });
        return (
            { status => 200, headers => $headers },
            (map { $_ => "value of $_" } @names[ 0 .. 4 ]),
            'x-evil' => 'value of x-name-5'
        );
    },
    'a value that drops its own pair and all others' => sub {
        my $headers = [ map { [ fresh($_), fresh("value of $_") ] } @names ];
        $headers->[1][1] = evil(sub { @$headers = (); churn(); 'evil' });
        return (
            { status => 200, headers => $headers },
            'x-name-0' => 'value of x-name-0',
            'x-name-1' => 'evil',
            'x-name-2' => undef
        );
    },
    'a list that grows while it is read' => sub {
        my $headers = [ map { [ fresh($_), fresh("value of $_") ] } @names ];
        $headers->[0][1] = evil(sub {
            push @$headers, map { [ "x-more-$_", $_ ] } 1 .. 50;
            'evil';
        });
        return (
            { status => 200, headers => $headers },
            (map { $_ => "value of $_" } @names[ 1 .. 5 ]),
            map { ("x-more-$_" => $_) } 1 .. 50
        );
    },
    'a magical value that frees the event' => sub {
        my $event = { status => 200, headers => [ [ 'x-first', fresh('first') ], [ 'x-second', 'second' ] ] };
        tie $event->{headers}[1][1], 'Evil::Scalar', sub { %$event = (); churn(); 'evil' };
        return ($event, 'x-first' => 'first', 'x-second' => 'evil');
    },
    'a status that drops the headers' => sub {
        my $event = { headers => [ [ fresh('x-first'), fresh('first') ] ] };
        $event->{status} = evil(sub { delete $event->{headers}; churn(); 201 });
        return ($event, status => 201, 'x-first' => 'first');
    },
    'a promise of trailers that drops the headers' => sub {
        my $event = { status => 200, headers => [ [ fresh('x-first'), fresh('first') ] ] };
        $event->{trailers} = evil(sub { undef @{ $event->{headers} }; delete $event->{headers}; churn(); 0 });
        return ($event, 'x-first' => 'first');
    },
    'a list that gives the same scalars each time' => sub {
        my ($name, $value) = ('', '');
        my $pair = [];
        my $list = list_of(
            6,
            sub {
                my ($i) = @_;
                $pair = list_of(2, sub { $_[0] ? ($value = "value $i") : ($name = "x-name-$i") });
            }
        );
        return ({ status => 200, headers => $list }, map { ("x-name-$_" => "value $_") } 0 .. 5);
    },
    'a list that says it is longer than it is, at first' => sub {
        my $size = 1000;
        my $list = list_of(sub { $size }, sub { my ($i) = @_; $size = 3; [ "x-name-$i", "value $i" ] });
        return (
            { status => 200, headers => $list },
            (map { ("x-name-$_" => "value $_") } 0 .. 2),
            'x-name-3' => undef
        );
    },
    'a tied event' => sub {
        my %event = (type => 'http.response.start', status => 202, headers => [ [ 'x-first', 'first' ] ]);
        return (hash_of(sub { $event{ $_[0] } }, keys %event), status => 202, 'x-first' => 'first');
    },
    'a value whose destructor drops others' => sub {
        my $headers = [ [ fresh('x-first'), fresh('first') ], [ 'x-second', undef ] ];
        my $guard   = Evil::Guard->new(sub { undef @{ $headers->[0] } if $headers; churn() });
        $headers->[1][1] = evil(sub { undef $guard; 'evil' });
        return ({ status => 200, headers => $headers }, 'x-first' => 'first', 'x-second' => 'evil');
    },
    'an object that gives an object that gives a string' => sub {
        return (
            {
                status  => 200,
                headers => [ [
                    'x-first',
                    evil(sub {
                        evil(sub { 'first' });
                    })
                ] ]
            },
            'x-first' => 'first'
        );
    },
    'a file handle in place of a value' => sub {
        return ({ status => 200, headers => [ [ 'x-first', *STDERR ] ] }, 'x-first' => '*main::STDERR');
    },
);

# The error's text with validate_events, and without.
my $no_pair =
    qr/each an array reference of two, not .* in headers\[0\]|headers\[0\] must be a \[name, value\] pair/;
my $no_string =
    qr/values are byte strings .*, not an object of \w+ in headers\[0\]|is a reference, not a string/;
my $no_name = qr/names are strings .*, not undef|name of headers\[0\] is undefined/;

# Each case makes a start that fails, with what the failure says.
my %refused = (
    'an endless list' => sub {
        return ({ status => 200, headers => list_of(1e9, sub { [ 'x', $_[0] ] }) },
            qr/tied list of more than 10000 entries/);
    },
    'a pair that is an endless list' => sub {
        return ({ status => 200, headers => [ list_of(1e9, sub { 'x' }) ] }, $no_pair);
    },
    'a value that dies' => sub {
        return ({ status => 200, headers => [ [ 'x', evil(sub { die "on purpose\n" }) ] ] },
            qr/\Aon purpose$/);
    },
    'a magical value that dies' => sub {
        return (evil_slot({}, status => sub { die "by magic\n" }), qr/\Aby magic$/);
    },
    'a tied event that dies' => sub {
        return (hash_of(sub { die "no $_[0]\n" }), qr/\Ano type$/);
    },
    'a list that cannot be measured' => sub {
        return ({ status => 200, headers => list_of(sub { die "no size\n" }) }, qr/\Ano size$/);
    },
    'a value that throws an object that cannot be asked' => sub {
        my $exception = Evil::Exception->new(text => 'x', true => 0);
        return ({ status => 200, headers => [ [ 'x', evil(sub { die $exception }) ] ] },
            qr/an exception of class Evil::Exception/);
    },
    'an event that has itself in it' => sub {
        my $event = { status => 200 };
        $event->{headers} = [$event];
        return ($event, $no_pair);
    },
    'an object that is itself as a string' => sub {
        my $self = evil(sub { undef });
        $self->{code} = sub { $self };
        return ({ status => 200, headers => [ [ 'x', $self ] ] }, $no_string);
    },
    'an object with no string' =>
        sub { return ({ status => 200, headers => [ [ 'x', bless [], 'Plain' ] ] }, $no_string) },
    'a name that is undefined by magic' => sub {
        my @pair = ('x', 'y');
        tie $pair[0], 'Evil::Scalar', sub { undef };
        return ({ status => 200, headers => [ \@pair ] }, $no_name);
    },
);

sub path_of { my ($name) = @_; return $name =~ s/[^a-z]+/-/gr }
my %by_path = map { path_of($_) => $_ } keys %starts, keys %refused;

my %others = (

    # $send in the midst of $send: each event counts once, in the order in which they are complete.
    nested => async sub {
        my ($scope, $receive, $send) = @_;
        my $inner = '';
        my $outer = $send->({
            type    => 'http.response.start',
            status  => 200,
            headers => [ [
                'x-outer',
                evil(sub { $inner ||= $send->({ type => 'http.response.start', status => 203 }); 'outer' })
            ] ],
        });
        await $send->(
            { type => 'http.response.body', body => 'inner ' . $inner->state . ', outer ' . $outer->failure }
        );
    },

    # The event's code ends the response, and lets go of all that the response is held by.
    complete => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->({ type => 'http.response.start', status => 200 });
        my $more = evil(sub {
            $send->({ type => 'http.response.body', body => 'the whole of it' }) if $send;
            undef $_ for $send, $receive;
            %$scope = ();
            churn();
            1;
        });
        $send->({ type => 'http.response.body', body => 'too late', more => $more });
    },

    # Sends the wrong events after the end of the request.
    afterwards => async sub {
        my ($scope, $receive, $send) = @_;
        my $kept = $send;
        my $loop = IO::Async::Loop->new;
        await $send->({ type => 'http.response.start', status => 200 });
        await $send->({ type => 'http.response.body',  body   => 'fine' });
        $loop->later(sub {
            my $event = { type => evil(sub { undef $kept; churn(); 'http.response.body' }) };
            $kept->($event);
            print STDERR "afterwards: alive\n";
        });
    },
    callback => async sub {
        my ($scope, $receive, $send) = @_;
        my $connection = $scope->{'pagi.connection'};
        await $send->({ type => 'http.response.start', status => 200 });
        await $send->({ type => 'http.response.body',  body   => 'fine' });
        IO::Async::Loop->new->later(sub {
            $connection->on_complete(
                sub { undef $connection; %$scope = (); churn(); die "in a callback, on purpose\n" });
            print STDERR "callback: alive\n";
        });
    },
    body => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->({ type => 'http.response.start', status => 200 });
        my $event = { type => 'http.response.body', body => fresh('the body' x 10) };
        $event->{more} = evil(sub { $event->{body} = 'J'; delete $event->{body}; churn(); 0 });
        await $send->($event);
    },
    die           => async sub { die Evil::Exception->new(message => 'the database is away', code => 42) },
    'die-at-once' => sub { die Evil::Exception->new(message => 'the database is away', code => 42) },
    'die-later'   => async sub {
        await IO::Async::Loop->new->later;
        die Evil::Exception->new(message => 'the database is away', code => 42);
    },
    state => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->({ type => 'http.response.start', status => 200 });
        await $send->({
            type => 'http.response.body',
            body => join ' ',
            map { "$_=$scope->{state}{$_}" } sort keys %{ $scope->{state} }
        });
    },
);

async sub http {
    my ($scope, $receive, $send) = @_;
    my $path = substr $scope->{path}, 1;
    return await $others{$path}->($scope, $receive, $send) if $others{$path};
    my $name = $by_path{$path};
    if (my $make = $starts{$name}) {
        my ($event) = $make->();
        $event->{type} = 'http.response.start' if !tied %$event;
        await $send->($event);
        return await $send->({ type => 'http.response.body', body => 'ok' });
    }
    my ($event) = $refused{$name}->();
    $event->{type} = 'http.response.start' if !tied %$event;
    my $future  = eval { $send->($event) } or die "\$send died: $@";
    my $failure = $future->failure;
    await $send->({ type => 'http.response.start', status => 200 });
    await $send->({ type => 'http.response.body',  body   => $failure });
}

async sub sse {
    my ($scope, $receive, $send) = @_;
    await $send->({ type => 'sse.start' });
    my $event = { type => 'sse.send', event => fresh('tick' x 9), id => fresh('number' x 9) };
    $event->{data} = evil(sub { delete @{$event}{qw(event id)}; churn(); "caf\xe9" });
    await $send->($event);
    $event = { type => 'sse.send', data => fresh('the data' x 9) };
    tie $event->{retry}, 'Evil::Scalar', sub { $event->{data} = 'J'; delete $event->{data}; churn(); 10 };
    await $send->($event);
}

async sub websocket {
    my ($scope, $receive, $send) = @_;
    my $event = { type => 'websocket.accept', subprotocol => fresh('second-protocol') };
    $event->{headers} = list_of(2, sub { delete $event->{subprotocol}; churn(); [ "x-$_[0]", 'y' ] });
    my $future = $send->($event);
    print STDERR 'accept: ', $future->state, "\n";
    my $close = { type => 'websocket.close', reason => fresh('the reason' x 5) };
    $close->{code} = evil(sub { delete $close->{reason}; churn(); 4001 });
    await $send->($close);
}

sub app_for {
    my ($state) = @_;
    my %scopes = (http => \&http, sse => \&sse, websocket => \&websocket);
    return async sub {
        my ($scope, $receive, $send) = @_;
        if ($scope->{type} eq 'lifespan') {
            await $receive->();
            $state->($scope->{state}) if $state;
            my $failed = { type => 'lifespan.startup.failed', message => evil(sub { die "on purpose\n" }) };
            my $future = eval { $send->($failed) };
            print STDERR 'lifespan: ', $future ? $future->failure // 'no failure' : "died: $@";
            await $send->({ type => 'lifespan.startup.complete' });
            await $receive->();
            return await $send->({ type => 'lifespan.shutdown.complete' });
        }
        await $scopes{ $scope->{type} }->($scope, $receive, $send);
    };
}

for my $validate (0, 1) {
    my $server = TestServer->start(app => app_for(), validate_events => $validate);
    my $port   = $server->port;
    subtest 'the start of a response' . ($validate ? ', validated' : '') => sub {
        for my $name (sort keys %starts) {
            my (undef, %expected) = $starts{$name}->();
            my $response = get($port, '/' . path_of($name));
            my $status   = delete $expected{status} // 200;
            is("$response->{status} $response->{body}", "$status ok", $name) or diag $server->log;
            my %seen = map { $_ => $response->{header}{$_} } keys %expected;
            is_deeply(\%seen, \%expected, '... with the fields as they were read');
        }
        for my $name (sort keys %refused) {
            my (undef, $expected) = $refused{$name}->();
            my $response = get($port, '/' . path_of($name));
            like($response->{body}, $expected, "$name fails");
        }
    };

    subtest 'elsewhere' . ($validate ? ', validated' : '') => sub {
        my $response = get($port, '/nested');
        like(
            "$response->{status} $response->{body}",
            qr/\A203 inner done, outer http\.response\.start: the response has already started/,
            'an event that is sent while another is read'
        );
        is(
            get($port, '/body')->{body},
            'the body' x 10,
            'a body that is gone before the event is read to its end'
        );
        is(get($port, '/complete')->{body}, 'the whole of it', 'a response that ends while an event is read');
        is(get($port, '/afterwards')->{body}, 'fine',          'the last handle goes while it is called');
        ok($server->wait_for_log(qr/^afterwards: alive$/m), '... when the request is over');
        is(get($port, '/callback')->{body}, 'fine', 'the last handle goes in the callback that it was given');
        ok($server->wait_for_log(qr/^callback: alive$/m), '... when the request is over');

        my $stream  = TestStream->open($port, '/');
        my $message = $stream->message;
        is_deeply(
            $message,
            { event => 'tick' x 9, id => 'number' x 9, data => "caf\xc3\xa9" },
            'a message of a stream whose fields are gone'
        ) or diag $server->log;
        is($stream->message->{data}, 'the data' x 9, '... or changes while they are read');

        my $websocket =
            TestWebSocket->start($port, '/',
            lines => ['Sec-WebSocket-Protocol: first-protocol, second-protocol']);
        my $answer = $websocket->answer;
        is($answer->{header}{'sec-websocket-protocol'}, 'second-protocol', 'a subprotocol that is gone');
        is($websocket->next, 'close 4001 ' . 'the reason' x 5, 'the reason of a close that is gone');
        $_->close for $stream, $websocket;

        for my $when ('', '-at-once', '-later') {
            is(get($port, "/die$when")->{status}, 500, 'an exception that cannot be asked for its text');
        }
        my @lines = $server->log =~ /^PAGI: .*the application died before its response had started: (.*)$/mg;
        is_deeply(
            \@lines,
            [
                (
                    q{an exception of class Evil::Exception with code => '42', message => 'the database is away'}
                        . ' (it cannot be had as a string: no string)'
                ) x 3
            ],
            '... is told by what it consists of'
        );
        is($server->stop, 0, 'the server ends well');
    };
}

subtest 'a tied state' => sub {
    my $server = TestServer->start(
        app => app_for(sub {
            my ($state) = @_;
            tie %$state, 'Evil::Hash', sub { churn(); "value of $_[0]" }, qw(one two);
        })
    );
    for my $count (1 .. 3) {
        my $response = get($server->port, "/state?$count");
        is($response->{body}, 'one=value of one two=value of two', 'is read for each request');
    }
    like(
        $server->log,
        qr/^lifespan: on purpose$/m,
        'an event of lifespan that dies while it is read fails its $send'
    );
    is($server->stop, 0, 'the server ends well');

    my $tries = 0;
    $server = TestServer->start(
        app => app_for(sub {
            my ($state) = @_;
            $state->{plain} = 1;
            tie $state->{odd}, 'Evil::Scalar',
                sub { die Evil::Exception->new(n => 1) if ++$tries % 2; 'odd' };
        })
    );
    is(
        join(' | ', map { get($server->port, '/state')->{body} } 1 .. 4),
        ' | odd=odd plain=1 |  | odd=odd plain=1',
        'one that dies is empty'
    );
    like(
        $server->log,
        qr/the lifespan state cannot be copied for a request: an exception of class Evil::Exception with n => '1'/,
        '... and told of'
    );
    is($server->stop, 0, 'the server ends well');
};

subtest 'warnings that are fatal' => sub {
    my $app    = app_for();
    my $server = TestServer->start(
        on_error => sub { die Evil::Exception->new(why => 'on_error') },
        app      => sub {
            $SIG{__WARN__} = sub { print STDERR @_; die "a warning: @_" };
            return $app->(@_);
        }
    );
    for my $count (1 .. 3) {
        is(get($server->port, '/die')->{status}, 500, 'the server goes on');
    }
    ok($server->wait_for_log(qr/the database is away/), 'the exception is told of');
    ok(
        $server->wait_for_log(
            qr/on_error died: an exception of class Evil::Exception with why => 'on_error'/),
        '... and what on_error threw'
    );
    is($server->stop, 0, 'the server ends well');
};

done_testing;
