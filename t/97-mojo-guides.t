# The applications in Mojolicious' guides: each of their routes is asked by this server and by the daemon, and
# the answers are the same, byte for byte but for what clocks and chance decide.
# Not repeated for each PEREGRINE_ENGINE.
use strict;
use warnings;

use Test::More;
BEGIN { plan skip_all => 'script/lib is written for Perl 5.36'   if $] < 5.036 }
BEGIN { plan skip_all => 'script/lib is not in the distribution' if !-e 'script/lib/Foreign/Client.pm' }
use lib        qw(t/lib script/lib);
use File::Path qw(make_path);
use Foreign::Client;
use IO::Select;
use MIME::Base64 qw(encode_base64);
use MojoGuides   qw(examples questions);
use MojoSuite    ();
use TestClient;
use TestServer;
use TestTools   qw(free_port patience wait_for);
use TestWorkers qw(directory write_file);

my $SOURCE = MojoSuite::source();
my @PERL   = ($^X, map { "-I$_" } @INC);

# Examples that the daemon does not serve either.
my %LEFT_OUT = (
    'Rendering, Adding your favorite template system' => 'its module is no Perl, but a sketch',
    'Cookbook, Plack middleware'                      => 'it is for servers of PSGI',
);

# Examples about errors.
my %IS_ERROR = map { $_ => 1 } (
    'Tutorial, Built-in exception and not_found pages',
    'Cookbook, Exceptions in non-blocking operations',
    map { "Rendering, Rendering exception and not_found pages$_" } '',
    ' (2)', ' (3)', ' (4)',
);

# Files, formats, and what is mounted, are no routes.
my %MORE = (
    'Tutorial, Formats'           => [qw(/detection.html /detection.txt)],
    'Tutorial, Static files'      => [qw(/something.js /test.txt /public.txt)],
    'Routing, Mount applications' => ['/prefix'],
);

# The limit of tests is shorter.
alarm patience(1200);

# Backend web services that examples ask are here.
my $backend = write_file('backend.pl', <<'END');
use Mojolicious::Lite -signatures;
app->log->level('fatal');
get '/v1/module/_search' => sub ($c) {
    $c->render(json => { hits => { hits => [ { _source => { release => $c->param('q') . '-1' } } ] } });
};
any '/*any' => { any => '' } => sub ($c) {
    $c->render(text => '<html><head><title>Title</title></head><body><h1>H</h1></body></html>');
};
app->start;
END
my $mounted = write_file('mounted.pl', <<'END');
use Mojolicious::Lite;
app->log->level('fatal');
get '/' => { text => 'mounted' };
app->start;
END

# The credentials of the user whom an example lets in.
my $BENDER = encode_base64('Bender:rocks', '');

delete @ENV{qw(MOJO_REACTOR PAGI_ENV PLACK_ENV)};
$ENV{MOJO_MODE}               = 'production';
$ENV{MOJO_INACTIVITY_TIMEOUT} = 8;              # one example waits for it

sub begun {
    my (@command) = @_;
    my $port      = free_port();
    my $server    = TestServer->spawn(@PERL, map { s/PORT/$port/r } @command);
    $server->{port} = $port;
    return $server;
}

sub is_there {
    my ($server) = @_;
    my $port = $server->{port};
    my $peer;
    wait_for(sub {
        $peer = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port);
        return $peer || !$server->is_running;
    });
    return !!$peer;
}

make_path(map { directory() . "/$_" } 'public', 'templates/foo');
write_file('example.conf',              '{ name => "my Mojolicious application" };');
write_file('public/public.txt',         'A file');
write_file('templates/foo/bar.html.ep', 'Hello World!');

my $behind = begun($backend, qw(daemon -l http://127.0.0.1:PORT));
is_there($behind) or die $behind->log;

sub adapted {
    my ($text) = @_;
    $text =~ s{(?:https?://)?(?:docs\.|fastapi\.)?(?:mojolicious|metacpan)\.org}
        {http://127.0.0.1:$behind->{port}}g;
    $text =~ s{/home/sri/[\w/.]+}{$mounted}g;
    $text =~ s/test1\.example\.com/app.example/g;    # as Foreign::Client asks

    # Some examples declare fewer arguments than they get.
    $text =~ s/^use Mojolicious::Lite;/use Mojolicious::Lite -signatures;/m;
    $text =~ s/((?:drain = |=> )sub \(\$c)\)/$1, \@)/g;
    return "$text\n";
}

# A stream of the application's log, which does not end.
sub hear_events {
    my ($client, $path) = @_;
    my $stream = TestClient->new($client->{port})->send("GET $path HTTP/1.1\r\nHost: h\r\n\r\n");
    my $seen   = '';
    my $room   = IO::Select->new($stream->socket);
    my $read   = sub {
        return if $room->can_read(patience(20)) && $stream->socket->sysread($seen, 4096, length $seen);
        die "$path ends: $seen\n";
    };
    $read->() while $seen !~ /\r\n\r\n/;
    $client->get('/');
    $read->() while $seen !~ /\n\n/;
    push @{ $client->{heard} }, "=== $path\n", map { "$_\n" } $seen =~ m{\AHTTP/1\.1 ([0-9]+)},
        lc(($seen =~ /^(content-type: .*?)\r/mi)[0]), $seen =~ /^(event:log\ndata: \[\w+\])/m;
    return;
}

sub ask {
    my ($client, $method, $path) = @_;
    if ($method eq 'WS') {
        my $socket = $client->websocket($path);
        $socket->text('{"msg":"hello"}');
        $client->hear($socket);
    }
    elsif ($method eq 'GET') {
        return hear_events($client, $path) if $path eq '/events';
        $client->get($path,                             'User-Agent: Firefox');
        $client->get("$path?name=Bob&user=Bob&foo=bar", "Authorization: Basic $BENDER");
    }
    else { $client->form($method, $path, name => 'Bob', foo => 'bar', user => 'sebastian') }
    return;
}

sub conversation {
    my ($server, @questions) = @_;
    my $client = Foreign::Client->new($server->{port});
    for (@questions) {
        my ($method, $path) = @$_;
        eval { ask($client, $method, $path); 1 } or push @{ $client->{heard} }, "$@";
    }
    return $client->heard =~ s/\b[0-9a-f]{40}\b/TOKEN/gr;
}

sub compare {
    my ($name, $text) = @_;
    return pass "$name: $LEFT_OUT{$name}" if $LEFT_OUT{$name};
    my $file      = write_file('example.pl', adapted($text));
    my @questions = questions($file, directory() . '/lib');
    @questions = ([qw(GET /)]) if !@questions;
    push @questions, map { [ GET => $_ ] } @{ $MORE{$name} || [] };
    local $ENV{MOJO_LOG_LEVEL} = $name =~ /EventSource/ ? 'trace' : 'info';
    subtest $name => sub {
        my %server = (
            daemon    => begun($file, qw(daemon -l http://127.0.0.1:PORT)),
            peregrine => begun('bin/peregrine', qw(--no-access-log --listen 127.0.0.1:PORT), $file),
        );
        for my $by (sort keys %server) { is_there($server{$by}) or return fail "$by begins" }
        my %heard;
        for my $by (sort keys %server) {
            $heard{$by} = conversation($server{$by}, @questions);
        }
        my $good = $IS_ERROR{$name} ? qr/^[45]\d\d /m : qr/^[1-3]\d\d\b/m;
        like $heard{daemon}, $good, 'the daemon answers';
        is $heard{peregrine}, $heard{daemon}, join ', ', map { "@$_" } @questions;
    };
    return;
}

for my $guide (qw(Tutorial Routing Rendering Growing Cookbook)) {
    my ($modules, @examples) = examples($SOURCE, $guide);
    for my $name (keys %$modules) {
        my $file = "lib/$name.pm" =~ s{::}{/}gr;
        make_path(directory() . '/' . $file =~ s{/[^/]*\z}{}r);
        write_file($file, "use v5.36;\n$modules->{$name}");
    }
    local $ENV{PERL5LIB} = directory() . '/lib';
    compare(@$_) for grep { !@ARGV || $_->[0] =~ m{@ARGV} } @examples;
}

done_testing;
