# Applications of Debian's frameworks and Plack's middleware, as their users start them.
use strict;
use warnings;

use lib 't/lib';
use Digest::MD5 qw(md5_hex);
use OnlyInFull  qw(crossed);
use Test::More;
use TestClient qw(exchange get post);
use TestServer;
use TestTools qw(content patience wait_for);

my $upload = substr join('', map { chr(32 + $_ % 90) } 1 .. 90) x 16_667, 0, 1_500_000;
my $form   = join "\r\n", '--b', 'Content-Disposition: form-data; name="file"; filename="large.txt"',
    'Content-Type: text/plain', '', $upload, '--b--', '';

# Checks that all frameworks pass.
sub check_all {
    my ($port, $name) = @_;
    is get($port, '/?name=x%20y')->{body},                                         'Hello x y', 'a page';
    is exchange($port, "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n", head => 1)->{status}, 200,         'HEAD';
    is post($port, '/upload', $form, 'Content-Type: multipart/form-data; boundary=b')->{body},
        length($upload) . ' large.txt',
        'an upload';
    is get($port, '/stream')->{body},                                      'abc', 'a stream';
    is exchange($port, "GET /stream HTTP/1.0\r\nHost: h\r\n\r\n")->{body}, 'abc', '... for HTTP/1.0';
    is get($port, '/die')->{status},                                       500,   'an application that dies';
    like get($port, '/url')->{body}, qr{\Ahttp://localhost:$port/}, 'its own address';
    my $first = get($port, '/count');
    my ($cookie) = ($first->{header}{'set-cookie'} // '') =~ /\A([^;]+)/;
    # A session is in the memory of one process, and where there are two the other may be asked.
    my $again;
    wait_for(sub { ($again = get($port, '/count', defined $cookie ? "Cookie: $cookie" : ())->{body}) ne '1' }
    );
    is $again, 2, 'a session';
    is_deeply [ map { get($port, '/')->{status} } 1 .. 5 ], [ (200) x 5 ], 'the server goes on';
    return;
}

my %more = (
    dancer =>
        sub { my ($port) = @_; is get($port, '/file')->{body}, content('t/psgi/dancer.psgi'), 'a file' },
    catalyst =>
        sub { my ($port) = @_; is get($port, '/file')->{body}, content('t/psgi/catalyst.psgi'), 'a file' },
    middleware => sub {
        my ($port) = @_;
        my $file = get($port, '/files/mojo.psgi');
        is $file->{body}, content('t/psgi/mojo.psgi'), 'Plack::App::File';
        is get($port, '/files/mojo.psgi', "If-Modified-Since: $file->{header}{'last-modified'}")->{status},
            304,
            'ConditionalGET';
        is get($port, '/files/../86-psgi-frameworks.t')->{status} =~ /\A40[034]\z/, 1, 'no way out';
        like get($port, '/dir/')->{body}, qr/mojo\.psgi/, 'Plack::App::Directory';
        is post($port, '/cgi?a=b', 'body')->{body}, 'POST a=b body', 'Plack::App::WrapCGI';
        is get($port, '/', 'Accept-Encoding: gzip')->{header}{'content-encoding'}, 'gzip', 'Deflater';
        is get($port, '/url', 'X-Forwarded-Host: a.example', 'X-Forwarded-Proto: https')->{body},
            'https://a.example/url',
            'ReverseProxy';
    },
);

sub start {
    my ($name, @arguments) = @_;
    my $server = TestServer->spawn($^X, (map { "-I$_" } @INC),
        '-S', 'plackup', @arguments, '--listen', '127.0.0.1:0', "t/psgi/$name.psgi");
    my $port = $server->wait_for_log(qr{listening on http://127\.0\.0\.1:(\d+)/})
        or die "$name: " . $server->log;
    return ($server, $port);
}

my %ways = (
    'development'                         => [ '-s', 'Peregrine', '-E', 'development' ],
    'production'                          => [ '-s', 'Peregrine', '-E', 'production' ],
    'production on a thread'              => [ '-s', 'Peregrine', '-E', 'production', '--engine', 'thread' ],
    'production, the engine in a process' =>
        [ '-s', 'Peregrine', '-E', 'production', '--engine', 'process', '--workers', 2 ],
    'EVHTP, one worker' => [ '-s', 'EVHTP', '-E', 'production', '--max-workers', 1 ],
);

my %needs = (
    mojo       => ['Mojolicious'],
    dancer     => ['Dancer2'],
    catalyst   => ['Catalyst'],
    middleware =>
        [qw(Plack::Middleware::Deflater Plack::Middleware::Session CGI::Emulate::PSGI CGI::Compile)],
);

for my $row (crossed([qw(mojo dancer catalyst middleware)], [ sort keys %ways ])) {
    my ($name, $way) = @$row;
    my @missing = grep { !eval "require $_; 1" } @{ $needs{$name} };
    subtest "$name, $way" => sub {
        plan skip_all => "needs @missing" if @missing;
        # Clones are the handler's own choice: it goes on with processes where EV is loaded.
        delete local $ENV{PEREGRINE_ENGINE} if $way =~ /\AEVHTP/;
        my ($server, $port) = start($name, @{ $ways{$way} });
        check_all($port, $name);
        $more{$name}->($port) if $more{$name};
        is $server->stop, 0, 'the server stops';
        unlike $server->raw_log, qr/Peregrine:.*(?:left out|cannot be sent)|panic|Attempt to free/,
            'nothing in the log but what it says';
    };
}

done_testing;
