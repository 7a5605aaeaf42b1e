# Several applications, of PAGI and of PSGI, on one listener: `peregrine --mount`, and `peregrine app.psgi`.
use strict;
use warnings;

use lib 't/lib';
use Digest::MD5 qw(md5_hex);
use File::Temp  ();
use PAGI::Server::Mounts;
use Test::More;
use TestClient qw(exchange get post);
use TestServer;
use TestTools qw(content not_repeated);

my $dir = File::Temp->newdir;

sub spew {
    my ($name, $text) = @_;
    open my $out, '>', "$dir/$name" or die "$name: $!";
    print {$out} $text;
    close $out or die $!;
    return "$dir/$name";
}

my $pagi = spew('api.pl', <<'PERL');
use strict;
use warnings;
use Future::AsyncAwait;

my $started = 0;
async sub app {
    my ($scope, $receive, $send) = @_;
    if ($scope->{type} eq 'lifespan') {
        await $receive->();
        $scope->{state}{started} = ++$started;
        await $send->({ type => 'lifespan.startup.complete' });
        await $receive->();
        warn "api: shutdown\n";
        await $send->({ type => 'lifespan.shutdown.complete' });
        return;
    }
    my ($bytes, $events, $event) = (0, 0);
    do { $event = await $receive->(); $events++; $bytes += length $event->{body} } while $event->{more};
    my $text = "pagi [$scope->{root_path}] [$scope->{path}] [$scope->{raw_path}] "
        . "started $scope->{state}{started}, "
        . "$bytes bytes" . ($events > 1 ? ' in pieces' : '');
    utf8::encode($text);
    await $send->({ type => 'http.response.start', status => 200 });
    await $send->({ type => 'http.response.body', body => $text });
}
\&app;
PERL

my $psgi = spew('site.psgi', <<'PERL');
use Digest::MD5;
sub {
    my ($env) = @_;
    die "asked to\n" if $env->{PATH_INFO} eq '/die';
    my $sum = Digest::MD5->new->addfile($env->{'psgi.input'})->hexdigest;
    return [ 200, [ 'Content-Type' => 'text/plain' ],
        ["psgi [$env->{SCRIPT_NAME}] [$env->{PATH_INFO}] [$env->{REQUEST_URI}] $sum"] ];
};
PERL
my $other = spew('other.psgi', 'sub { [ 200, [], ["other $_[0]{SCRIPT_NAME} $ENV{PLACK_ENV}"] ] }');

my $empty = md5_hex('');
delete $ENV{PLACK_ENV};

sub peregrine {
    my (@arguments) = @_;
    my $server = TestServer->spawn($^X, (map { "-I$_" } @INC),
        'bin/peregrine', '--port', 0, '--no-access-log', @arguments);
    my $port = $server->wait_for_log(qr{listening on http://127\.0\.0\.1:(\d+)/}) or die $server->log;
    return ($server, $port);
}

sub check_all {
    my ($server, $port) = @_;
    is get($port, '/')->{body},          "psgi [] [/] [/] $empty",             'PSGI at the root';
    is get($port, '/a%20b?c=d')->{body}, "psgi [] [/a b] [/a%20b?c=d] $empty", '... below it';
    is get($port, '/apix')->{body},      "psgi [] [/apix] [/apix] $empty",     '... beside the other one';
    like get($port, '/api')->{body}, qr{\Apagi \[/api\] \[\] \[/api\] started 1, }, 'PAGI at a path';
    like get($port, '/api/x%C3%A4')->{body}, qr{\Apagi \[/api\] \[/x\xc3\xa4\] \[/api/x%C3%A4\]},
        '... below it';
    like get($port, '/%61pi/x')->{body}, qr{\Apagi \[/api\] \[/x\] \[/%61pi/x\]}, '... written otherwise';
    is get($port, '/api/old/x')->{body}, "psgi [/api/old] [/x] [/api/old/x] $empty", 'the longest path';
    is exchange($port, "GET /api HTTP/1.1\r\nHost: Other.example:80\r\n\r\n")->{body}, 'other  deployment',
        'a host';
    is exchange($port, "GET /api/old/ HTTP/1.1\r\nHost: other.example\r\n\r\n")->{body}, 'other  deployment',
        '... and all that is there';
    my $body = substr join('', map { chr 32 + $_ % 90 } 1 .. 90) x 33_334, 0, 3_000_000;
    is post($port, '/up', $body)->{body}, 'psgi [] [/up] [/up] ' . md5_hex($body), 'a whole body';
    like post($port, '/api/up', $body)->{body}, qr/, 3000000 bytes in pieces/, '... and one in pieces';
    is get($port, '/die')->{status}, 500, 'an application dies';
    like get($port, '/api/y')->{body}, qr/\[\/y\]/, '... the other goes on';
    return;
}

my @mounts = (
    '--mount', "/api=$pagi",      '--mount', "/=$psgi",
    '--mount', "/api/old/=$psgi", '--mount', "/=$other,host=other.example"
);
my %ways = (
    'with a worker' => [ '--workers', 1 ],
    not_repeated(inline => [qw(--engine inline)], 'on a thread' => [qw(--engine thread)])
);
for my $way (sort keys %ways) {
    subtest $way => sub {
        my ($server, $port) = peregrine(@mounts, '-E', 'deployment', @{ $ways{$way} });
        check_all($server, $port);
        is $server->stop, 0, 'the server stops';
        like $server->log,   qr/^api: shutdown/m, '... and the application of PAGI has been told';
        unlike $server->log, qr/uninitialized|panic|Attempt to free/, 'nothing strange in the log';
    };
}

subtest 'a path without an application' => sub {
    my ($server, $port) = peregrine('--mount', "/api=$pagi", '--mount', "/site=$psgi");
    is get($port, '/')->{status},                 404, 'not found';
    is get($port, '/sit')->{status},              404, '... beside an application';
    is get($port, '/site')->{status},             200, '... which is there';
    is post($port, '/', 'x' x 500_000)->{status}, 404, '... for a request with a body';
    is $server->stop,                             0,   'the server stops';
};

subtest 'a single application' => sub {
    my ($server, $port) = peregrine($psgi, '-E', 'production');
    is get($port, '/x')->{body}, "psgi [] [/x] [/x] $empty", 'a file of PSGI';
    is $server->stop,            0,                          'the server stops';
    ($server, $port) = peregrine('-E', 'production', '-e', 'sub { [ 200, [], ["code"] ] }');
    is get($port, '/')->{body}, 'code', 'code of PSGI';
    is $server->stop,           0,      'the server stops';
    ($server, $port) = peregrine($pagi, '-E', 'production');
    like get($port, '/x')->{body}, qr{\Apagi \[\] \[/x\]}, 'a file of PAGI';
    is $server->stop, 0, 'the server stops';
};

# root_path, the part of the path that a proxy has removed, comes before the path of --mount.
subtest 'root_path' => sub {
    my @behind = ('--root-path', '/front/', '-E', 'production');
    my ($server, $port) = peregrine(@mounts[ 0 .. 3 ], @behind);
    is get($port, '/x')->{body}, "psgi [/front] [/x] [/x] $empty", 'PSGI at the root';
    like get($port, '/api/x')->{body}, qr{\Apagi \[/front/api\] \[/x\] \[/api/x\]}, 'PAGI at a path';
    like get($port, '/api/x')->{body}, qr{\Apagi \[/front/api\] \[/x\] \[/api/x\]}, '... again';
    is $server->stop, 0, 'the server stops';
    ($server, $port) = peregrine($pagi, @behind);
    like get($port, '/front/x')->{body}, qr{\Apagi \[/front\] \[/front/x\]}, 'PAGI alone; the path stays';
    is $server->stop, 0, 'the server stops';
    ($server, $port) = peregrine($psgi, @behind, '--workers', 1, '--engine', 'process');
    is get($port, '/x')->{body}, "psgi [/front] [/x] [/x] $empty", 'PSGI behind a process of the engine';
    is $server->stop,            0,                                'the server stops';
};

subtest 'development' => sub {
    my ($server, $port) = peregrine($psgi, '-E', 'development');
    my $failed = get($port, '/die');
    is $failed->{status}, 500, 'an application that dies';
    like $failed->{body}, qr/asked to.*site\.psgi/s, '... whose stack trace is shown';
    is get($port, '/x')->{body}, "psgi [] [/x] [/x] $empty", '... goes on';
    is $server->stop,            0,                          'the server stops';
};

subtest 'mistakes' => sub {
    my %problems = (
        'api=app.pl'          => qr/not PATH=APPLICATION/,
        '/api'                => qr/not PATH=APPLICATION/,
        '/api='               => qr/not PATH=APPLICATION/,
        '/a?b=app.pl'         => qr/no '\?'/,
        '/api=app.pl,what'    => qr/no setting 'what'; these are: host=NAME, pagi, psgi/,
        '/api=app.pl,host'    => qr/setting 'host' takes a value/,
        '/api=app.pl,psgi=1'  => qr/setting 'psgi' takes no value/,
        '/api=a.pl,psgi,pagi' => qr/after another one of its kind/,
    );
    for my $text (sort keys %problems) {
        ok !eval { PAGI::Server::Mounts->parse($text); 1 }, $text;
        like $@, $problems{$text}, '... says why';
        like $@, qr/\Q$text\E/,    '... and names it';
    }
    ok !eval { PAGI::Server::Mounts->parse('/a=x.pl', '/a/=y.pl'); 1 }, 'two at one place';
    like $@, qr{an application at /a already}, '... says so';
    is_deeply [ map { $_->{name} } PAGI::Server::Mounts->parse('/=a', '/x=b', '/x/y=c', '/=d,host=h') ],
        [qw(d c b a)], 'the most telling one first';
    my ($status, undef, $errors) = TestServer->finish_of('peregrine', '--mount', '/api', '--port', 0);
    is $status, 2, 'the command';
    like $errors, qr/\Aperegrine: option --mount: '\/api' is not PATH=APPLICATION.*\nTry 'peregrine --help'/,
        '... names the option';
    ($status, undef, $errors) = TestServer->finish_of('peregrine', '--mount', "/=$psgi", $psgi);
    is $status, 2, 'an application besides';
    ($status, my $version) = TestServer->finish_at('bin/peregrine', '--version');
    like $version, qr/\Aperegrine \(/, '--version';
    ($status, my $completion) = TestServer->finish_of('peregrine', '--completion', 'bash');
    like $completion, qr/^complete .* _peregrine peregrine$/m, '--completion';
};

done_testing;
