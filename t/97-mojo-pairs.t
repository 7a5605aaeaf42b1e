# Mojolicious beside other features of the server: uploads over HTTP/2 to processes, HUP within a response
# that is written in pieces, a handler that waits for an answer of its own server, mounts of other kinds,
# workers that are replaced for their memory, certificates that are renewed, reactors that the environment or
# the application asks for, --reload, and plackup.
use strict;
use warnings;

use lib 't/lib';
use Certificates;
use Digest::MD5 qw(md5_hex);
use OnlyInFull  qw(crossed only_in_full);
use Peregrine;
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools qw(content free_port program_path wait_for);
use TestWebSocket;
use TestWorkers qw(directory write_file);

BEGIN {
    for my $module (qw(Mojolicious Linux::Epoll IO::Async::Loop::Epoll)) {
        plan skip_all => "needs $module" if !TestTools::has_module($module);
    }
}

my $dir  = directory();
my $text = <<'END_APP';
use Mojolicious::Lite -signatures;
use Digest::MD5 qw(md5_hex);
use Mojo::UserAgent;
app->log->level('fatal');
app->secrets(['a secret']);
app->renderer->compress(0);
get '/'       => sub ($c) { $c->render(text => "$$ " . ref Mojo::IOLoop->singleton->reactor) };
post '/upload' => sub ($c) {
    my $file = $c->req->upload('file');
    my $kind = $file->asset->is_file ? 'file' : 'memory';
    $c->render(text => join ' ', $file->size, $kind, md5_hex($file->slurp));
};
get '/pieces' => sub ($c) {
    my ($left, $next) = (8);
    $next = sub ($c, @) {
        return $c->finish('end') if !$left--;
        Mojo::IOLoop->timer(0.2 => sub { $c->write_chunk("$left;" => $next) });
    };
    $c->write_chunk("begin;" => $next);
};
get '/inner'  => sub ($c) {
    my $tx = Mojo::UserAgent->new(request_timeout => 20)->get($c->url_for('/')->to_abs);
    $c->render(text => "$$ " . ($tx->res->body || 'nothing'));
};
get '/child'  => sub ($c) {
    my $child = Mojo::IOLoop->subprocess->run_p(sub { $$ });
    $child->then(sub ($pid) { $c->render(text => $pid == $$ ? 'no' : 'yes') });
};
get '/count'  => sub ($c) { $c->render(text => ++$c->session->{count}) };
my $grown = 150_000_000;    # no constant, which the application would have from its start
get '/grow' => sub ($c) { state $held = ''; $held .= 'x' x $grown; $c->render(text => $$) };
websocket '/ws' => sub ($c) { $c->on(message => sub ($c, $text) { $c->send("$text $$") }) };
app->start;
END_APP
my $app  = write_file('app.pl', $text);
my @curl = (qw(curl -sk --max-time 60 --http2-prior-knowledge), '-w', ' %{http_version}');

sub body { return ($_[0] || { body => 'no answer' })->{body} }

sub asked {
    my (@words) = @_;
    open my $out, '-|', @words or die "$words[0]: $!";
    local $/;
    return scalar <$out>;
}

subtest 'uploads over HTTP/2, to processes' => sub {
    my $server =
        TestServer->command_of(qw(peregrine --no-access-log --http2 --engine process --workers 2), $app);
    my $url = "http://127.0.0.1:$server->{port}/upload";
    for my $size (1000, 3_000_000) {
        my $data = substr join('', map { chr } 0 .. 250) x (1 + $size / 251), 1, $size;
        my $file = write_file("upload.$size", $data);
        my $kind = $size > 262_144 ? 'file' : 'memory';
        is asked(@curl, '-F', "file=\@$file", $url), "$size $kind " . md5_hex($data) . ' 2', "$size bytes";
    }
};

subtest 'processes: HUP, handlers that wait, sessions, children' => sub {
    my $server = TestServer->command_of(qw(peregrine --no-access-log --engine process --workers 2), $app);
    my $port   = $server->{port};
    my ($outer, $inner) = body(get($port, '/inner')) =~ /\A(\d+) (\d+) /;
    ok $outer && $inner && $outer != $inner,
        'a handler that waits for its own server is answered by the other';
    is body(get($port, '/child')), 'yes', 'a subprocess';
    my $first = get($port, '/count');
    my ($cookie) = ($first->{header}{'set-cookie'} // '') =~ /\A([^;]+)/;
    is body(get($port, '/count', "Cookie: $cookie")), 2, 'a session';
    my $client = TestClient->new($port)->send("GET /pieces HTTP/1.1\r\nHost: h\r\n\r\n");
    my ($before) = body(get($port, '/')) =~ /(\d+)/;
    $server->signal('HUP');
    ok wait_for(sub { TestWorkers::is_gone($before) || body(get($port, '/')) !~ /\A$before / }), 'HUP';
    is body($client->response), 'begin;7;6;5;4;3;2;1;0;end', 'and a response in pieces comes whole';
};

subtest 'mounts' => sub {
    my $pagi = write_file('pagi.pl', <<'END_APP');
use Future::AsyncAwait;
async sub {
    my ($scope, $receive, $send) = @_;
    die "no $scope->{type}\n" if $scope->{type} ne 'http';
    await $send->({ type => 'http.response.start', status => 200 });
    await $send->({ type => 'http.response.body', body => "PAGI $scope->{path}" });
};
END_APP
    my $psgi = write_file('app.psgi', 'sub { [ 200, [], ["PSGI $_[0]{PATH_INFO}"] ] }');
    for my $words (only_in_full([]), [qw(--engine process --workers 2)]) {
        my $server =
            TestServer->command_of('peregrine', '--no-access-log', @$words, map { ('--mount', $_) } "/=$app",
            "/pagi=$pagi", "/psgi=$psgi");
        my $name = @$words ? 'processes' : 'one process';
        like body(get($server->{port}, '/')), qr/Mojo::Reactor::Peregrine/, "Mojolicious, $name";
        is body(get($server->{port}, '/pagi/x')), 'PAGI /x', 'PAGI';
        is body(get($server->{port}, '/psgi/x')), 'PSGI /x', 'PSGI';
        my $socket = TestWebSocket->open($server->{port}, '/ws');
        $socket->text('hello');
        like $socket->next, qr/\Atext hello \d/, 'a WebSocket';
    }
};

subtest 'a worker that has grown too large' => sub {
    my $server = TestServer->command_of(
        qw(peregrine --no-access-log --engine process --workers 1 --max-worker-rss 100M --recycle-timeout 1),
        $app
    );
    my $port = $server->{port};
    # The master looks each second: memory that a worker has from its start does not count. The socket is
    # there before the worker grows: the next look may replace the worker at once.
    sleep 3;

    my $socket = TestWebSocket->open($port, '/ws');
    my $pid    = body(get($port, '/grow'));
    ok wait_for(sub { body(get($port, '/')) =~ /\A(\d+)/ && $1 != $pid }), 'is replaced';
    like $socket->next, qr/\Aclose 1012/, 'and its WebSocket told so';
};

subtest 'a certificate that is renewed' => sub {
    plan skip_all => 'built without TLS' if !Peregrine::has_tls();
    my $made   = Certificates->new->authority('server')->authority('other');
    my %files  = map { $_ => write_file("tls.$_", content($made->path("server.$_"))) } qw(pem key);
    my $server = TestServer->command_of(qw(peregrine --no-access-log --engine process --workers 2 --listen),
        "127.0.0.1:0,cert=$files{pem},key=$files{key}", $app);
    my $port = $server->{port};
    my $name = sub { TestClient->new($port, tls => {})->socket->peer_certificate('commonName') };
    my ($first, $before) = ($name->(), TestWebSocket->open($port, '/ws', tls => {}));
    write_file("tls.$_", content($made->path("other.$_"))) for qw(pem key);
    $server->signal('HUP');
    ok wait_for(sub { $name->() ne $first }), 'new connections see the new one';
    my $socket = TestWebSocket->open($port, '/ws', tls => {});
    $socket->text('hello');
    like $socket->next, qr/\Atext hello/, 'a WebSocket over it';
};

subtest 'reactors' => sub {
    my $ev           = system($^X, '-MEV', '-e', '1') == 0;
    my @applications = ([ 'without EV' => $app ]);
    unshift @applications, [ 'with EV', write_file('ev.pl', "use EV; $text") ] if $ev;
    my @wishes = ('', 'Mojo::Reactor::Poll', $ev ? 'Mojo::Reactor::EV' : ());
    for my $case (crossed(\@wishes, \@applications)) {
        my ($wish, $name, $file) = ($case->[0], @{ $case->[1] });
        local $ENV{MOJO_REACTOR} = $wish;
        delete $ENV{MOJO_REACTOR} if !$wish;
        my $server = TestServer->command_of(qw(peregrine --no-access-log), $file);
        my $about  = join ', ', $name, $wish || 'none in the environment';
        like body(get($server->{port}, '/')), qr/ Mojo::Reactor::Peregrine\z/, "the server's: $about";
        is body(get($server->{port}, '/child')), 'yes', 'a subprocess';
    }
};

subtest '--reload' => sub {
    my $lite   = write_file('lite.pl', $text =~ s/"\$\$ "/'one '/r);
    my $server = TestServer->command_of(qw(peregrine --no-access-log --reload), $lite);
    like body(get($server->{port}, '/')), qr/\Aone /, 'a script of Mojolicious::Lite';
    write_file('lite.pl', $text =~ s/"\$\$ "/'two '/r);
    ok wait_for(sub { body(get($server->{port}, '/')) =~ /\Atwo / }), 'and another version of it';
    return if !only_in_full(1);

    system("cd $dir && mojo generate app MyApp >/dev/null 2>&1") == 0
        or return fail 'mojo generate app';
    my $full = TestServer->command_of(qw(peregrine --no-access-log --reload), "$dir/my_app/script/my_app");
    like body(get($full->{port}, '/')), qr/Welcome/, 'an application of many files';
    my $template   = "my_app/templates/example/welcome.html.ep";
    my $controller = 'my_app/lib/MyApp/Controller/Example.pm';
    write_file($controller, content("$dir/$controller") =~ s/Welcome to/Back to/r);
    ok wait_for(sub { body(get($full->{port}, '/')) =~ /Back to/ }), 'a controller that has changed';
    write_file($template, 'A new page');
    ok wait_for(sub { body(get($full->{port}, '/')) =~ /A new page/ }), 'a template that has changed';
};

subtest 'plackup' => sub {
    my $plackup = program_path('plackup') or plan skip_all => 'needs plackup';
    my $port    = free_port();
    my $server  = TestServer->spawn(
        $^X, (map { "-I$_" } @INC),
        $plackup,          qw(-s Peregrine -E deployment --listen),
        "127.0.0.1:$port", $app
    );
    ok $server->wait_for_log(qr/listening on/), 'starts' or diag $server->log;
    like body(get($port, '/')), qr/\A\d+ Mojo::Reactor::/, 'by PSGI';
};

done_testing;
