# The http scope: every key of the specification, from requests of every shape.
use strict;
use warnings;

use lib 't/lib';
use JSON::PP ();
use Test::More;
use TestClient qw(get exchange);
use TestServer;

my $json = JSON::PP->new->utf8->canonical->allow_nonref;

# The application answers with its scope. Objects are shown as their class.
my $app = sub {
    my ($scope, $receive, $send) = @_;
    my %shown = map { $_ => $scope->{$_} } grep { !/\Apagi\./ } keys %$scope;
    $shown{$_}           = ref $scope->{$_} for grep { /\Apagi\./ } keys %$scope;
    $shown{path_is_text} = utf8::is_utf8($scope->{path}) ? 1 : 0;
    my $body = $json->encode(\%shown);
    $scope->{extensions}{touched} = 1;
    $scope->{state}{touched}      = 1 if $scope->{state};
    $scope->{pagi}{touched}       = 1;
    $scope->{$_}                  = 'touched' for qw(type method scheme path root_path http_version);
    push @{ $scope->{headers} }, [ 'touched', 1 ];
    $scope->{client}[0] = 'touched';
    $send->(
        { type => 'http.response.start', status => 200, headers => [ [ 'content-length', length $body ] ] });
    return $send->({ type => 'http.response.body', body => $body });
};

my $server = TestServer->start(
    app => sub {
        my ($scope, $receive, $send) = @_;
        return $app->(@_) if $scope->{type} eq 'http';
        $scope->{state}{made} = 'at startup';
        return $send->({ type => 'lifespan.startup.complete' });
    },
    extensions => { fullflush => {} },
);
my $port = $server->port;

sub scope_of {
    my ($bytes) = @_;
    my $response = exchange($port, $bytes) or return;
    return $json->decode($response->{body});
}

my $host  = "127.0.0.1:$port";
my $scope = scope_of("GET /a/b?x=1&y=%20 HTTP/1.1\r\nHost: $host\r\nX-Test: One\r\n\r\n");
is($scope->{type},         'http',      'type');
is($scope->{http_version}, '1.1',       'http_version');
is($scope->{method},       'GET',       'method');
is($scope->{scheme},       'http',      'scheme');
is($scope->{path},         '/a/b',      'path');
is($scope->{raw_path},     '/a/b',      'raw_path');
is($scope->{query_string}, 'x=1&y=%20', 'query_string');
is($scope->{root_path},    '',          'root_path');
is_deeply($scope->{pagi},    { version => '0.3', spec_version => '0.3' }, 'pagi');
is_deeply($scope->{headers}, [ [ 'host', $host ], [ 'x-test', 'One' ] ],  'headers');
is($scope->{client}[0], '127.0.0.1', 'the address of client');
cmp_ok($scope->{client}[1], '>', 1023, '... and its port');
is_deeply($scope->{server},     [ '127.0.0.1', $port ], 'server');
is_deeply($scope->{extensions}, { fullflush => {} },           'extensions');
is_deeply($scope->{state},      { made      => 'at startup' }, 'state');
is($scope->{'pagi.connection'}, 'PAGI::Server::Connection', 'pagi.connection');
is($scope->{'pagi.transport'},  'PAGI::Server::Transport',  'pagi.transport');
like($json->encode($scope->{client}), qr/,\d+\]\z/, 'ports are numbers');

my $again = scope_of("GET /a/b?x=1&y=%20 HTTP/1.1\r\nHost: $host\r\nX-Test: One\r\n\r\n");
delete $_->{client} for $scope, $again;
is_deeply($again, $scope, "no other request sees an application's changes of its scope");

subtest 'many requests on a connection' => sub {
    my $client = TestClient->new($port);
    for my $round (1 .. 5) {
        $client->send("GET /$round HTTP/1.1\r\nHost: $host\r\nX-Round: $round\r\n\r\n");
        my $seen = $json->decode($client->response->{body});
        is($seen->{path}, "/$round", "round $round has its own path");
        is_deeply($seen->{headers}, [ [ 'host', $host ], [ 'x-round', $round ] ], '... and headers');
        is_deeply(
            [ @{$seen}{qw(type scheme root_path http_version)} ],
            [ 'http', 'http', '', '1.1' ],
            '... and constants'
        );
        is_deeply($seen->{pagi}, { version => '0.3', spec_version => '0.3' }, '... and versions');
        is_deeply(
            [ $seen->{extensions}, $seen->{state} ],
            [ { fullflush => {} }, { made => 'at startup' } ],
            '... and hashes'
        );
        is($seen->{client}[0], '127.0.0.1', '... and client');
    }
};

subtest 'headers' => sub {
    my $fields = join "\r\n", 'Z-Last: 1', 'A-First: 2', 'X_C: under', 'X-C: dash', 'Z-Last: 3',
        'Set-Cookie: a',
        'Empty:';
    my $seen = scope_of("GET / HTTP/1.1\r\nHost: h\r\n$fields\r\n\r\n");
    is_deeply(
        $seen->{headers},
        [
            [ 'host',       'h' ],
            [ 'z-last',     '1' ],
            [ 'a-first',    '2' ],
            [ 'x_c',        'under' ],
            [ 'x-c',        'dash' ],
            [ 'z-last',     '3' ],
            [ 'set-cookie', 'a' ],
            [ 'empty',      '' ]
        ],
        'order, duplicates and underscores are kept'
    );
    my $cookies =
        scope_of(
        "GET / HTTP/1.1\r\nHost: h\r\nCookie: a=1\r\nX: y\r\nCOOKIE: b=2; c=3\r\ncookie: d=4\r\n\r\n");
    is_deeply(
        $cookies->{headers},
        [ [ 'host', 'h' ], [ 'cookie', 'a=1; b=2; c=3; d=4' ], [ 'x', 'y' ] ],
        'several Cookie fields become one, where the first was'
    );
    my $many = scope_of("GET / HTTP/1.1\r\nHost: h\r\n" . join('', map { "X-$_: $_\r\n" } 1 .. 60) . "\r\n");
    is(scalar @{ $many->{headers} }, 61, 'sixty fields arrive');
    my $high = exchange($port, "GET / HTTP/1.1\r\nHost: h\r\nX: \xe9\xff\r\n\r\n");
    is($json->decode($high->{body})->{headers}[1][1], "\xe9\xff", 'bytes above 127 stay bytes');
};

subtest 'paths' => sub {
    my @cases = (
        # raw path, path, whether it was decoded to text
        [ '/',                       '/',                   0 ],
        [ '/a%20b',                  '/a b',                0 ],
        [ '/a+b',                    '/a+b',                0 ],
        [ '/%2F%2f',                 '///',                 0 ],
        [ '/caf%C3%A9',              "/caf\x{e9}",          1 ],
        [ "/caf\xc3\xa9",            "/caf\x{e9}",          1 ],
        [ '/%E2%82%AC/%F0%9F%90%AA', "/\x{20ac}/\x{1f42a}", 1 ],
        [ '/%FF%FE',                 "/\xff\xfe",           0 ],
        [ '/%C3',                    "/\xc3",               0 ],
        [ '/%ED%A0%80',              "/\xed\xa0\x80",       0 ],
        [ '/%C0%AF',                 "/\xc0\xaf",           0 ],
        [ '/a%2525',                 '/a%25',               0 ],
    );
    for my $case (@cases) {
        my ($raw, $path, $text) = @$case;
        my $seen = scope_of("GET $raw HTTP/1.1\r\nHost: h\r\n\r\n");
        my $name = $raw =~ s/([^ -~])/sprintf '\\x%02x', ord $1/ger;
        is($seen->{path},         $path, "$name is decoded");
        is($seen->{raw_path},     $raw,  '... and kept raw');
        is($seen->{path_is_text}, $text, $text ? '... as text' : '... as bytes');
    }
    is(scope_of("GET /? HTTP/1.1\r\nHost: h\r\n\r\n")->{query_string}, '', 'an empty query is empty');
    is(scope_of("GET /?a?b HTTP/1.1\r\nHost: h\r\n\r\n")->{query_string},
        'a?b', 'a query may have a question mark');
};

subtest 'other targets' => sub {
    my $seen = scope_of("GET http://other.example:8080/x?y HTTP/1.1\r\nHost: h\r\nA: b\r\n\r\n");
    is($seen->{path},         '/x', 'the path of an absolute-form target');
    is($seen->{raw_path},     '/x', '... raw');
    is($seen->{query_string}, 'y',  '... and its query');
    is_deeply(
        $seen->{headers},
        [ [ 'host', 'other.example:8080' ], [ 'a', 'b' ] ],
        'its authority takes the place of Host'
    );
    is(scope_of("GET http://other.example HTTP/1.1\r\nHost: h\r\n\r\n")->{path},
        '/', 'an absolute-form target without a path');
    my $old = scope_of("GET http://other.example/ HTTP/1.0\r\n\r\n");
    is_deeply($old->{headers}, [ [ 'host', 'other.example' ] ], 'Host is added where there was none');
    is($old->{http_version}, '1.0', '... in HTTP/1.0');
    my $client = TestClient->new($port);
    my @hosts;

    for my $target ('/', 'http://a.example/', '/', 'http://b.example:1?q', '/') {
        $client->send("GET $target HTTP/1.1\r\nHost: h\r\n\r\n");
        push @hosts, $json->decode($client->response->{body})->{headers}[0][1];
    }
    is_deeply(\@hosts, [qw(h a.example h b.example:1 h)], 'each request of a connection has its own host');
    my $star = scope_of("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n");
    is_deeply([ @{$star}{qw(method path)} ], [ 'OPTIONS', '*' ], 'asterisk-form');
};

subtest 'methods' => sub {
    is(scope_of("$_ / HTTP/1.1\r\nHost: h\r\n\r\n")->{method}, $_, $_)
        for qw(GET PUT DELETE PATCH OPTIONS PROPFIND M-SEARCH FOO);
    for my $line ('head /', 'Get /', 'delete /', 'CONNECT h:443') {
        my $client = TestClient->new($port)->send("$line HTTP/1.1\r\nHost: h:443\r\n\r\n");
        is($client->response->{status}, 501, "$line is refused");
        is($client->rest,               '',  '... and the connection ends');
    }
    is(TestClient->new($port)->send("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n")->response(head => 1)->{status},
        200, 'HEAD');
};

is($server->stop, 0, 'the server ends well');
unlike($server->log, qr{application died|uninit}, 'nothing to complain about') or diag $server->log;

my $plain = TestServer->start(app => $app);
my $bare  = $json->decode(get($plain->port, '/')->{body});
ok(!exists $bare->{state}, 'no state without lifespan');
is_deeply($bare->{extensions}, {}, 'extensions is an empty hash');

done_testing;
