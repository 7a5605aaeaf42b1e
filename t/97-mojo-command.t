# How applications of Mojolicious are started: by peregrine, which recognises them, by a mount, by their own
# command; modes, and the settings of hypnotoad.
# The same for each PEREGRINE_ENGINE.
use strict;
use warnings;

use lib 't/lib';
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools qw(free_port);
use TestWebSocket;
use TestWorkers qw(directory write_file);

BEGIN {
    for my $module (qw(Mojolicious Linux::Epoll IO::Async::Loop::Epoll)) {
        plan skip_all => "needs $module" if !TestTools::has_module($module);
    }
}

delete @ENV{qw(MOJO_MODE PAGI_ENV PLACK_ENV MOJO_REACTOR)};
my $port = free_port();
my $lite = write_file('lite.pl', <<"END");
use Mojolicious::Lite -signatures;
app->log->level('fatal');
app->config(hypnotoad => {
    listen => ['http://127.0.0.1:$port'], workers => 2, proxy => 1, inactivity_timeout => 77, requests => 2,
});
get '/' => sub (\$c) {
    my \$timeout = Mojo::IOLoop->stream(\$c->tx->connection)->timeout;
    \$c->render(text => join ' ', app->mode, \$c->tx->remote_address, \$timeout, \$c->url_for('/x'));
};
get '/pid' => sub (\$c) { \$c->render(text => \$\$) };
get '/die' => sub (\$c) { die 'on purpose' };
websocket '/ws' => sub (\$c) { \$c->on(message => sub (\$c, \$text) { \$c->send("heard \$text") }) };
app->start;
END
chmod 0755, $lite;
mkdir directory() . "/$_" for qw(lib script);
write_file('lib/MyApp.pm', <<'END');
package MyApp;
use Mojo::Base 'Mojolicious', -signatures;
sub startup ($self) {
    $self->routes->get('/' => sub ($c) {
        $c->render(text => join ' ', 'full', $c->app->mode, $c->url_for('/x'));
    });
}
1;
END
my $full = write_file('script/my_app', <<'END');
#!/usr/bin/env perl
use strict;
use warnings;
use Mojo::File qw(curfile);
use lib curfile->dirname->sibling('lib')->to_string;
use Mojolicious::Commands;
Mojolicious::Commands->start_app('MyApp');
END

my @perl = ($^X, map { "-I$_" } @INC);

sub started {
    my (@command) = @_;
    my $server = TestServer->spawn(@command);
    $server->{port} = $server->wait_for_log(qr{listening on http://\S+?:(\d+)}) or die $server->log;
    return $server;
}

sub peregrine { return started(@perl, 'bin/peregrine', '--no-access-log', @_) }

sub text { return (get(@_) || { body => 'no answer' })->{body} }

subtest 'a Lite application' => sub {
    my $server = peregrine(qw(--port 0 -E development), $lite);
    is text($server->port, '/'), 'development 127.0.0.1 30 /x',
        'is recognised; in development no settings of hypnotoad';
    my $socket = TestWebSocket->open($server->port, '/ws');
    $socket->text('hello');
    is $socket->next, 'text heard hello', 'and served natively';
    like text($server->port, '/die'), qr{mojo.*on purpose}is, 'its exception page is that of Mojolicious';
};

subtest 'modes, and the settings of hypnotoad' => sub {
    local $ENV{MOJO_MODE} = 'production';
    my $server = peregrine($lite);
    is $server->port, $port, 'listen';
    like $server->log, qr/workers: 2/, 'workers';
    is text($port, '/', 'X-Forwarded-For: 192.0.2.1'), 'production 192.0.2.1 77 /x',
        'MOJO_MODE, proxy, inactivity_timeout';
    my $client  = TestClient->new($port);
    my @answers = map { $client->send("GET /pid HTTP/1.1\r\nHost: h\r\n\r\n")->response } 1 .. 2;
    is_deeply [ map { $_->{header}{connection} } @answers ], [ undef, 'close' ], 'requests';
    undef $server;
    $server = peregrine(qw(--port 0 --workers 1 -E staging), $lite);
    isnt $server->port, $port, 'options win';
    like text($server->port, '/'), qr/\Astaging /, '-E, too';
};

subtest 'an application with a script' => sub {
    my $server = peregrine(qw(--port 0 -E production), $full);
    is text($server->port, '/'), 'full production /x', 'by its script';
    undef $server;
    $server = peregrine(
        qw(--port 0 -E production -I),
        directory() . '/lib',
        '--mount', '/in=MyApp,mojo', '--mount', "/=$lite"
    );
    is text($server->port, '/in'), 'full production /in/x', 'by its class, below a path';
    like text($server->port, '/'), qr{\Aproduction .* /x\z}, 'beside another one';
};

subtest 'the command of an application' => sub {
    local $ENV{PERL5LIB} = join ':', @INC;
    my $server = started(
        $^X, $lite,
        qw(peregrine -m production -l),
        'http://127.0.0.1:' . free_port(),
        qw(--workers 0)
    );
    like text($server->port, '/'),              qr/\Aproduction /,              'serves it, with the mode';
    like `$^X $lite peregrine -l ftp://h 2>&1`, qr{cannot listen at 'ftp://h'}, 'refuses what cannot be';
};

subtest 'locations' => sub {
    require Mojo::Server::Peregrine::Hypnotoad;
    my $place = sub { return Mojo::Server::Peregrine::Hypnotoad->place(@_) };
    is $place->($_->[0]), $_->[1], $_->[0]
        for [ 'http://*:8080', ':8080,plain' ], [ 'http://[::]', '[::]:3000,plain' ],
        [ 'https://h:1?cert=/c&key=/k&ca=/a', 'h:1,cert=/c,key=/k,ca=/a' ],
        [ 'http+unix://%2Ftmp%2Fa.sock', 'unix:/tmp/a.sock' ], [ 'http://h?fd=3', 'fd:3,plain' ];
    my $tls = 'h:1?cert=/c&key=/k&ca=/a';
    is $place->("https://$tls&verify=$_->[0]"), "h:1,cert=/c,key=/k,ca=/a,verify=$_->[1]", "verify=$_->[0]"
        for [ '0x00', 'none' ], [ '0x01', 'request' ], [ '0x02', 'none' ], [ '0x03', 'require' ],
        [ '0x07', 'require' ];
    my @warnings;
    {
        local $SIG{__WARN__} = sub { push @warnings, @_ };
        is $place->("https://$tls&ciphers=x&version=TLSv1_2"), 'h:1,cert=/c,key=/k,ca=/a', 'other words';
    }
    like "@warnings", qr/'https:.*: ciphers does nothing here\n.*: version does nothing here\n\z/,
        '... are named';
    require Mojolicious::Command::peregrine;
    my $words = sub { return join ' ', Mojolicious::Command::peregrine::_words(@_) };
    is $words->('-l', 'http://*:1?reuse=1'), '--listen :1,plain --reuseport', '-l with reuse';
    is $words->('-l', 'http://*:1'),         '--listen :1,plain',             '... and without';
    ok !eval { $place->('https://h') }, 'TLS needs a certificate';
};

done_testing;
