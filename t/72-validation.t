# validate_events: mistakes that a server could live with fail while an application is written, with the
# event, the field and what is allowed.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use JSON::PP   ();
use Future;
use Future::AsyncAwait;
use Test::More;
use TestClient qw(get exchange);
use TestServer;
use TestStream;
use PAGI::Server::EventCheck;

my $file = File::Temp->new;
open my $handle, '<', $file->filename or die "$file: $!";
open my $closed, '<', $file->filename or die "$file: $!";
close $closed;

sub event { my ($type, %fields) = @_; return { type => $type, %fields } }

my @wrong_headers = (
    [ {}                    => 'an array reference of \[name, value\] pairs, not HASH reference' ],
    [ 'x: y'                => q{an array reference of \[name, value\] pairs, not 'x: y'} ],
    [ ['x']                 => 'each an array reference of two' ],
    [ [ [ 'a', 'b', 'c' ] ] => 'each an array reference of two' ],
    [ [ [ "a\rb", 1 ] ]          => 'names are strings without spaces and control characters' ],
    [ [ [ 'a b',  1 ] ]          => 'names are strings without spaces and control characters' ],
    [ [ [ undef,  1 ] ]          => 'names are strings without spaces and control characters' ],
    [ [ [ '',     1 ] ]          => 'names are strings without spaces and control characters' ],
    [ [ [ [],     1 ] ]          => 'names are strings without spaces and control characters' ],
    [ [ [ 'x',    undef ] ]      => 'values are byte strings' ],
    [ [ [ 'x',    [] ] ]         => 'values are byte strings' ],
    [ [ [ 'x',    "a\nb" ] ]     => 'values are byte strings without CR, LF and NUL \(that of x is not\)' ],
    [ [ [ 'x',    "\x{20ac}" ] ] => 'values are byte strings' ],
);
my @wrong_flags = (
    [ 'yes' => q{0 or 1, not 'yes'} ],
    [ 0.5   => '0 or 1' ],
    [ []    => '0 or 1, not ARRAY reference' ],
    [ \1    => '0 or 1' ],
);
my @wrong_counts = (
    [ -1       => 'not negative' ],
    [ 1.5      => 'an integer' ],
    [ 'x'      => 'an integer' ],
    [ []       => 'an integer' ],
    [ 'inf'    => 'an integer' ],
    [ 'nan'    => 'an integer' ],
    [ '0x1'    => 'an integer' ],
    [ '9' x 30 => 'an integer' ]
);
my @wrong_status = (
    [ 199      => '200 to 599' ],
    [ 600      => '200 to 599' ],
    [ '200 OK' => 'an integer' ],
    [ 200.5    => 'an integer' ],
    [ []       => 'an integer' ]
);
my @wrong_bytes = (
    [ []         => 'a byte string, not ARRAY reference' ],
    [ {}         => 'a byte string' ],
    [ "\x{263a}" => 'it has a wide character' ]
);
my @wrong_text = (
    [ []      => 'a string, not ARRAY reference' ],
    [ {}      => 'a string' ],
    [ sub { } => 'a string, not CODE reference' ]
);
my @wrong_line = (
    [ []     => 'a string without line ends and NULs, not ARRAY reference' ],
    [ "a\nb" => 'without line ends' ],
    [ "a\r"  => 'without line ends' ],
    [ "\0"   => 'without line ends and NULs' ]
);
my @wrong_seconds = (
    [ -1    => 'a number of seconds' ],
    [ 'x'   => 'a number of seconds' ],
    [ 'nan' => 'a number of seconds' ],
    [ 'inf' => 'a number of seconds' ],
    [ []    => 'a number of seconds' ]
);
my @wrong_path   = ([ [] => 'a string' ], [ {} => 'a string' ]);
my @wrong_handle = (
    [ 'word'  => 'an open file handle' ],
    [ $closed => 'an open file handle' ],
    [ {}      => 'an open file handle' ]
);

# Each event: fields that make it right, and what makes each of them wrong.
my %events = (
    'http.response.start' => [
        { status => 200, headers => [ [ 'x-a', 'b' ] ], trailers => 1 },
        status   => \@wrong_status,
        headers  => \@wrong_headers,
        trailers => \@wrong_flags
    ],
    'http.response.body' => [ { body => "\xe9", more => 0 }, body => \@wrong_bytes, more => \@wrong_flags ],
    'http.response.trailers'      => [ { headers => [ [ 'x-a', 'b' ] ] }, headers => \@wrong_headers ],
    'http.response.informational' => [
        { status => 103, headers => [ [ 'x-a', 'b' ] ] },
        status  => [ [ 101 => 'an integer from 102 to 199' ], [ 200 => 'an integer from 102 to 199' ] ],
        headers => \@wrong_headers
    ],
    'http.fullflush' => [ {} ],
    'sse.start' => [ { status => 200, headers => [] }, status => \@wrong_status, headers => \@wrong_headers ],
    'sse.send'  => [
        { data => "a\n\x{20ac}", event => 'tick', id => 1, retry => 0 },
        data  => \@wrong_text,
        event => \@wrong_line,
        id    => \@wrong_line,
        retry => \@wrong_counts
    ],
    'sse.comment'   => [ { comment => "a\nb" }, comment => \@wrong_text ],
    'sse.keepalive' =>
        [ { interval => 0.5, comment => 'x' }, interval => \@wrong_seconds, comment => \@wrong_text ],
    'sse.close'               => [ { reason => 'done' }, reason => \@wrong_text ],
    'sse.http.response.start' =>
        [ { status => 404, headers => [] }, status => \@wrong_status, headers => \@wrong_headers ],
    'sse.http.response.body' => [ { body => 'x', more => 1 }, body => \@wrong_bytes, more => \@wrong_flags ],
    'lifespan.startup.complete'  => [ {} ],
    'lifespan.startup.failed'    => [ { message => 'why' }, message => \@wrong_text ],
    'lifespan.shutdown.complete' => [ {} ],
    'lifespan.shutdown.failed'   => [ { message => 'why' }, message => \@wrong_text ],
);
my %required = (
    'http.response.start'     => ['status'],
    'sse.send'                => ['data'],
    'sse.comment'             => ['comment'],
    'sse.keepalive'           => ['interval'],
    'sse.http.response.start' => ['status'],
);

sub problem { return PAGI::Server::EventCheck::problem(event(@_)) }

for my $type (sort keys %events) {
    my ($right, %wrong) = @{ $events{$type} };
    my %required_here = map { $_ => 1 } @{ $required{$type} || [] };
    is(problem($type, %$right), undef, "$type: a right one");
    is(problem($type, %$right, other => \'any'), undef, '... with a field that nobody knows');
    is(problem($type, %$right, map { $_ => undef } grep { !$required_here{$_} } keys %$right),
        undef, '... with fields that are undefined');
    is(problem($type, %$right, $_ => undef), "$type: $_ is missing", "... without $_")
        for sort keys %required_here;
    for my $field (sort keys %wrong) {
        for my $case (@{ $wrong{$field} }) {
            my ($value, $allowed) = @$case;
            my $shown = ref $value || "$value";
            $shown =~ s/([^ -~])/sprintf '\\x{%x}', ord $1/ge;
            like(
                problem($type, %$right, $field => $value),
                qr/\A\Q$type: $field\E must be .*$allowed/,
                "... with $field => $shown"
            );
        }
    }
}

subtest 'files' => sub {
    my $path = $file->filename;
    is(problem('http.response.body', file => $path, offset => 0, length => 5), undef, 'a file and a range');
    is(problem('http.response.body', file => 'relative'),
        undef, 'a relative path: whether it can be opened decides');
    is(problem('http.response.body', fh => $handle, offset => 0), undef, 'a handle');
    is(problem('http.response.body', fh => $file), undef, '... which is an object with a name');
    like(
        problem('http.response.body', file => $_->[0]),
        qr/\Ahttp\.response\.body: file must be $_->[1]/,
        "file => $_->[0]"
    ) for @wrong_path;
    like(
        problem('http.response.body', fh => $_->[0]),
        qr/\Ahttp\.response\.body: fh must be $_->[1]/,
        "fh => $_->[0]"
    ) for @wrong_handle;
    for my $field (qw(offset length)) {
        like(
            problem('http.response.body', file => $path, $field => $_->[0]),
            qr/\Ahttp\.response\.body: $field must be .*$_->[1]/,
            "$field => $_->[0]"
        ) for @wrong_counts;
    }
    is(
        problem('http.response.body', body => 'x', file => $path),
        'http.response.body: only one of body file may be given',
        'two of them'
    );
};

is(
    problem('http.response.start', status => 200, headers => [ [ 'a', 'b' ], [ 'x y', 'b' ] ]),
    q{http.response.start: headers must be a list whose names are strings without spaces and control characters,}
        . q{ not 'x y' in headers[1]},
    'the header in question is named'
);

# Odd values whose types are right.
{

    package Stringy;
    use overload '""' => sub { ${ $_[0] } }, fallback => 1;
    sub of { my ($class, $text) = @_; return bless \$text, $class }
}
is(
    problem(
        'http.response.start',
        status  => 200,
        headers => [ [ 'Content-Type', 'text/plain' ], [ 'ETag', 1 ] ]
    ),
    undef,
    'names of headers may have capitals'
);
is(problem('http.response.start', status => 200, headers => bless [ bless [ 'a', 'b' ], 'Pair' ], 'List'),
    undef, 'a list may be an object, and a pair');
is(
    problem(
        'http.response.start',
        status  => Stringy->of(200),
        headers => [ [ Stringy->of('x'), Stringy->of('y') ] ]
    ),
    undef,
    'objects that are strings are strings'
);
is(problem('http.response.body', body => '', more => $_), undef, 'booleans of JSON are flags')
    for JSON::PP::true(), JSON::PP::false();
is(problem('http.response.body', body => '', more => $_),
    undef, "more => '$_': an integer, or what Perl calls false")
    for 2, -1, 1 == 1, 1 == 0;
is(problem('http.response.body', file => 'x', length => $_), undef, "length => $_: an integer")
    for 1e15, '1e3', "5\n", 9_223_372_036_854_775_807;

sub advice { return PAGI::Server::EventCheck::advice(event(@_)) }

is(advice('http.response.start', status => 200, headers => [ [ 'x', 'y' ] ]),
    undef, 'no advice where none is needed');
is(advice('http.response.body', body => 'x'), undef, '... or nothing has a name');
is(
    advice(
        'http.response.start',
        status  => 200,
        headers => [ [ 'x', 'y' ], [ 'Content-Type', 'text/plain' ] ]
    ),
    q{http.response.start: names of headers are lower case in PAGI; 'Content-Type' goes out as 'content-type'},
    'capitals are worth one'
);

is(
    problem('websocket.send'),
    'websocket.send: one of text and bytes must be given',
    'a message has a payload'
);
is(problem('no.such.event', x => []), undef, 'what is not known here is nothing to complain of');

# Each case sends a wrong event, then what it takes to answer.
my $app = async sub {
    my ($scope, $receive, $send) = @_;
    if ($scope->{type} eq 'lifespan') {
        await $receive->();
        print STDERR 'lifespan: ', $send->({ type => 'lifespan.startup.failed', message => [] })->failure;
        await $send->({ type => 'lifespan.startup.complete' });
        await $receive->();
        await $send->({ type => 'lifespan.shutdown.complete' });
        return;
    }
    my @failures;
    my $try = sub { push @failures, $_[0]->failure // "none\n" };
    if ($scope->{type} eq 'sse') {
        await $send->({ type => 'sse.start' });
        $try->($send->({ type => 'sse.keepalive', interval => 'soon' }));
        await $send->({ type => 'sse.send', data => join '', @failures });
        return;
    }
    await $send->({ type => 'http.response.start', status => 200, headers => [ [ 'X-Upper', 1 ] ] });
    $try->($send->({ type => 'http.response.body', body => '', more => 'yes' }));
    await $send->({ type => 'http.response.body', body => join '', @failures });
};

my $expected =
    qr/\Ahttp\.response\.body: more must be 0 or 1, not 'yes' at \S+72-validation\.t line \d+\.\n\z/;

subtest 'on by option' => sub {
    my $server = TestServer->start(app => $app, validate_events => 1);
    like(get($server->port, '/')->{body}, $expected, 'http events');
    like(
        TestStream->open($server->port, '/')->message->{data},
        qr/sse\.keepalive: interval must be a number of seconds from 0 to 1000000, not 'soon' at/,
        'sse events'
    );
    like(
        $server->log,
        qr/^lifespan: lifespan\.startup\.failed: message must be a string, not ARRAY reference$/m,
        'lifespan events'
    );
    get($server->port, '/') for 1 .. 3;
    is($server->stop, 0, 'the server ends well');
    my @advice = $server->log =~ /^(PAGI: .*X-Upper.*)$/mg;
    is_deeply(
        \@advice,
        [
            "PAGI: http.response.start: names of headers are lower case in PAGI; 'X-Upper' goes out as 'x-upper' (told once)"
        ],
        'advice is given once'
    );
};

subtest 'on in development, off by option, off otherwise' => sub {
    for my $case (
        [ 'development', {},                       1 ],
        [ 'development', { validate_events => 0 }, 0 ],
        [ 'production',  {},                       0 ],
        [ undef,         {},                       0 ]
        )
    {
        my ($environment, $options, $on) = @$case;
        local $ENV{PAGI_ENV} = $environment;
        delete $ENV{PAGI_ENV} if !defined $environment;
        my $server = TestServer->start(app => $app, %$options);
        my $body   = get($server->port, '/')->{body};
        my $name   = ($environment // 'no environment') . join ' ', '', %$options;
        if ($on) { like($body, $expected, $name) }
        else     { is($body, "none\n", $name) }
    }
};

done_testing;
