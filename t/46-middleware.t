# Middleware in the style of PAGI's documents: it wraps $send and adds fields to the start of a response, in
# the spelling of RFCs, with capitals. All of it works in development, where events are checked, as it does in
# production, and the fields go out in lower case.
use strict;
use warnings;

use lib 't/lib';
use File::Temp             ();
use IO::Uncompress::Gunzip qw(gunzip);
use Test::More;
use TestClient qw(exchange);
use TestServer;
use TestTools qw(content);

my $folder = File::Temp->newdir;
my $file   = "$folder/app.pl";
open my $out, '>', $file or die "$file: $!";
print {$out} <<'APP';
use strict;
use warnings;
use Digest::MD5 qw(md5_hex);
use Future::AsyncAwait;
use IO::Compress::Gzip qw(gzip);

sub header {
    my ($scope, $wanted) = @_;
    my ($found) = grep { $_->[0] eq $wanted } @{ $scope->{headers} };
    return $found ? $found->[1] : '';
}

# Calls the application with a $send that $change may change starts with.
sub on_start {
    my ($app, $change) = @_;
    return async sub {
        my ($scope, $receive, $send) = @_;
        my $wrapped = async sub {
            my ($event) = @_;
            $event = $change->({ %$event, headers => [ @{ $event->{headers} } ] }, $scope)
                if $event->{type} eq 'http.response.start';
            return await $send->($event);
        };
        return await $app->({%$scope}, $receive, $wrapped);
    };
}

# Collects the response of the application, and sends what $change makes of it.
sub on_response {
    my ($app, $change) = @_;
    return async sub {
        my ($scope, $receive, $send) = @_;
        my ($start, $body) = (undef, '');
        my $wrapped = async sub {
            my ($event) = @_;
            if   ($event->{type} eq 'http.response.start') { $start = $event }
            else                                           { $body .= $event->{body} }
            return;
        };
        await $app->({%$scope}, $receive, $wrapped);
        ($start, $body) = $change->({ %$start, headers => [ @{ $start->{headers} } ] }, $body, $scope);
        await $send->($start);
        await $send->({ type => 'http.response.body', body => $body, more => 0 });
    };
}

sub add { my ($event, @pairs) = @_; push @{ $event->{headers} }, @pairs; return $event }

sub security_headers {
    return on_start($_[0], sub {
        add($_[0],
            [ 'X-Frame-Options',           'DENY' ],
            [ 'X-Content-Type-Options',    'nosniff' ],
            [ 'Content-Security-Policy',   "default-src 'self'" ],
            [ 'Strict-Transport-Security', 'max-age=31536000' ],
            [ 'Referrer-Policy',           'no-referrer' ]);
    });
}

sub cors {
    return on_start($_[0], sub {
        my ($event, $scope) = @_;
        add($event, [ 'Access-Control-Allow-Origin', header($scope, 'origin') || '*' ], [ 'Vary', 'Origin' ]);
    });
}

sub session {
    my @cookies = ([ 'Set-Cookie', 'session=1; HttpOnly' ], [ 'Set-Cookie', 'seen=1' ]);
    return on_start($_[0], sub { add($_[0], @cookies) });
}
sub runtime { on_start($_[0], sub { add($_[0], [ 'X-Runtime', 0.25 ], [ 'X-Request-ID', 7 ]) }) }
sub powered { on_start($_[0], sub { add($_[0], [ 'X_Powered_By', 'x' ], [ 'X-ALL-CAPITALS-AND-9', 'y' ]) }) }

sub etag {
    return on_response($_[0], sub {
        my ($event, $body, $scope) = @_;
        my $tag = '"' . md5_hex($body) . '"';
        add($event, [ 'ETag', $tag ], [ 'Cache-Control', 'no-cache' ]);
        return ($event, $body) if header($scope, 'if-none-match') ne $tag;
        return ({ %$event, status => 304 }, '');
    });
}

sub compress {
    return on_response($_[0], sub {
        my ($event, $body, $scope) = @_;
        return ($event, $body) if header($scope, 'accept-encoding') !~ /gzip/ || !length $body;
        gzip(\$body => \my $packed);
        return (add($event, [ 'Content-Encoding', 'gzip' ], [ 'Vary', 'Accept-Encoding' ]), $packed);
    });
}

sub content_length { on_response($_[0], sub { (add($_[0], [ 'Content-Length', length $_[1] ]), $_[1]) }) }

my $app = async sub {
    my ($scope, $receive, $send) = @_;
    die "Unsupported scope type: $scope->{type}" if $scope->{type} ne 'http';
    my @headers = ([ 'Content-Type', 'text/plain' ]);
    await $send->({ type => 'http.response.start', status => 200, headers => \@headers });
    await $send->({ type => 'http.response.body', body => 'Hello from PAGI!', more => 0 });
};

security_headers(cors(session(runtime(powered(content_length(compress(etag($app))))))));
APP
close $out;

my %expected = (
    'content-type'                => 'text/plain',
    'x-frame-options'             => 'DENY',
    'x-content-type-options'      => 'nosniff',
    'content-security-policy'     => "default-src 'self'",
    'strict-transport-security'   => 'max-age=31536000',
    'referrer-policy'             => 'no-referrer',
    'access-control-allow-origin' => 'http://a.example',
    'vary'                        => 'Accept-Encoding, Origin',
    'set-cookie'                  => 'session=1; HttpOnly, seen=1',
    'x-runtime'                   => '0.25',
    'x-request-id'                => '7',
    'x_powered_by'                => 'x',
    'x-all-capitals-and-9'        => 'y',
    'cache-control'               => 'no-cache',
    'content-encoding'            => 'gzip',
);

sub request {
    my ($port, @fields) = @_;
    return exchange(
        $port, join "\r\n",
        'GET / HTTP/1.1',
        "Host: localhost:$port",
        'Origin: http://a.example',
        @fields, '', ''
    );
}

# The values of a field in the order of the lines, with its name as it is spelled there.
sub values_of {
    my ($response, $name) = @_;
    return join ', ', $response->{head} =~ /^\Q$name\E: (.*?)\r$/mg;
}

for my $mode (qw(development production)) {
    subtest $mode => sub {
        my $server   = TestServer->command('-E', $mode, $file);
        my $response = request($server->port, 'Accept-Encoding: gzip');
        is($response->{status},      200, 'the response comes through all of it') or diag $server->log;
        is(values_of($response, $_), $expected{$_}, $_) for sort keys %expected;
        gunzip(\$response->{body} => \my $body);
        is($body, 'Hello from PAGI!', 'the body');
        my $tag = values_of($response, 'etag');
        is(request($server->port, "If-None-Match: $tag")->{status}, 304, 'its ETag is known again');
        is($server->stop,                                           0,   'the server ends well');
        my @warnings = grep { /lower case/ } split /\n/, $server->log;
        is(scalar @warnings, $mode eq 'development' ? 1 : 0, 'capitals are worth one line in development')
            or diag @warnings;
        unlike($server->log, qr/application died|must be/, 'nothing else') or diag $server->log;
    };
}

done_testing;
