# The ends of a server of Mojolicious: TERM and QUIT with WebSockets open, as hypnotoad's users know them, and
# USR2, a whole new program, under load. Two applications of Mojolicious in one server share its loop, and
# each hears of beginning and end.
# Not repeated for each PEREGRINE_ENGINE.
use strict;
use warnings;

use lib 't/lib';
use OnlyInFull qw(crossed only_in_full);
use Test::More;
use TestClient qw(get);
use TestLoad;
use TestServer;
use TestTools qw(content wait_for);
use TestWebSocket;
use TestWorkers qw(directory is_gone pid_in stop_master write_file);

BEGIN {
    for my $module (qw(Mojolicious Linux::Epoll IO::Async::Loop::Epoll)) {
        plan skip_all => "needs $module" if !TestTools::has_module($module);
    }
}

my $dir = directory();

# An application that writes down what happens to it.
sub application {
    my ($name) = @_;
    return <<"APP" . <<'APP';
my \$NAME = '$name';
my \$FILE = '$dir/said';
APP
use Mojolicious::Lite -signatures;
use lib 't/lib';
use TestLoad;
app->log->level('fatal');
app->renderer->compress(0);
# Both applications have one of this name.
helper who => sub ($c) { return $NAME };
my $ticks = 0;
sub note ($text) {
    open my $out, '>>', $FILE or die $!;
    syswrite $out, "$NAME $text\n";
}
hook before_server_start => sub ($server, $app) {
    note('begins');
    $server->ioloop->recurring(0.01 => sub { $ticks++ });
};
Mojo::IOLoop->next_tick(sub { note('first turn') });
Mojo::IOLoop->singleton->on(finish => sub { note('finish') });
get '/who' => sub ($c) {
    $c->render(text => join ' ', $c->who, $$, $c->url_for('/x'), $ticks > 0 ? 'ticks' : 'none');
};
get '/slow' => sub ($c) { $c->render_later; Mojo::IOLoop->timer(1 => sub { $c->render(text => 'slow') }) };
get '/:first/:size' => sub ($c) {
    $c->res->headers->header('x-process' => $$);
    $c->res->headers->header('x-version' => $NAME);
    $c->render(data => TestLoad::body_of($c->param('first'), $c->param('size')));
};
websocket '/ws' => sub ($c) {
    $c->inactivity_timeout(300)->on(message => sub ($c, $text) { $c->send("$NAME $text") });
    $c->on(finish => sub ($c, $code, $reason) { note("WebSocket $code") });
};
app->start;
APP
}

sub said { return sort split /\n/, content("$dir/said") }

sub count_of {
    my ($line) = @_;
    return scalar grep { $_ eq $line } said();
}

my @PLACEMENTS = ([qw(inline 0)], only_in_full([qw(inline 2)], [qw(thread 0)]), [qw(process 2)]);

my $app = write_file('app.pl', application('one'));
for my $case (crossed(\@PLACEMENTS, [qw(TERM QUIT)])) {
    my ($engine, $workers, $signal) = (@{ $case->[0] }, $case->[1]);
    subtest "$signal, --engine $engine --workers $workers" => sub {
        write_file('said', '');
        my $server = TestServer->command_of(
            qw(peregrine --no-access-log -E production --engine), $engine,
            '--workers' => $workers,
            $app
        );
        my $port      = $server->port;
        my $processes = $workers || 1;
        ok wait_for(sub { count_of('one first turn') == $processes }), 'the loop runs in each process';
        is count_of('one begins'), $processes, '... where before_server_start has come';
        my @sockets = map { TestWebSocket->open($port, '/ws') } 1 .. 6;
        $_->text('hello') for @sockets;
        is_deeply [ map { $_->next } @sockets ], [ ('text one hello') x @sockets ], 'WebSockets are open';
        my $slow = TestClient->new($port)->send("GET /slow HTTP/1.1\r\nHost: h\r\n\r\n");
        get($port, '/who') for 1 .. 4;
        $server->signal($signal);
        like $_->next, qr/\Aclose 1001/, 'a WebSocket is closed' for @sockets;
        $_->close_frame(1001) for @sockets;
        is(($slow->response || {})->{body}, 'slow', 'a request gets its answer');
        is $server->wait,                  0,               'the server ends well';
        is count_of('one WebSocket 1001'), scalar @sockets, 'actions have heard of each WebSocket';
        is count_of('one finish'),         $processes,      'and the application of the end of each loop';
    };
}

for my $placement (grep { $_->[1] } @PLACEMENTS) {
    my ($engine, $workers) = @$placement;
    subtest "USR2, --engine $engine --workers $workers" => sub {
        write_file('app.pl', application('one'));
        my $server = TestServer->spawn(
            $^X, (map { "-I$_" } @INC),
            'bin/peregrine', qw(-E production --no-access-log --port 0 --pid),
            "$dir/pid", '--error-log', "$dir/log", '--engine', $engine, '--workers', $workers, $app
        );
        my $port;
        wait_for(sub { ($port) = content("$dir/log") =~ m{listening on http://\S+:(\d+)/} })
            or die content("$dir/log");
        my $socket = TestWebSocket->open($port, '/ws');
        $socket->text('hello');
        is $socket->next, 'text one hello', 'a WebSocket is open';
        my @clients = map { TestLoad->start($port, fresh => $_) } 0, 1;
        my $old     = pid_in('pid');
        write_file('app.pl', application('two'));
        kill USR2 => $old;
        ok wait_for(sub { pid_in('pid') && pid_in('pid') != $old }), 'the new program is in the pid file';
        like $socket->next, qr/\Aclose 1012/, 'a WebSocket is closed with 1012';
        undef $socket;
        ok wait_for(sub { is_gone($old) }), 'the old program has gone';
        like get($port, '/who')->{body}, qr/\Atwo /, 'the new code serves';
        $socket = TestWebSocket->open($port, '/ws');
        $socket->text('hello');
        is $socket->next, 'text two hello', '... WebSockets, too';
        undef $socket;
        my ($asked, @failures) = (0);

        for my $client (@clients) {
            my ($count, $failures) = $client->finish;
            $asked += $count;
            push @failures, map { $_->[3] } @$failures;
        }
        is_deeply \@failures, [], "$asked requests meanwhile: none is lost";
        is $server->wait, 0, 'the first program has ended well';
        ok stop_master('pid'), 'the second stops on TERM';
        unlink "$dir/log";
    };
}

my $other = write_file('other.pl', application('other'));
write_file('app.pl', application('one'));
for my $placement (only_in_full(@PLACEMENTS[ 0 .. $#PLACEMENTS - 1 ]), $PLACEMENTS[-1]) {
    my ($engine, $workers) = @$placement;
    subtest "two applications, --engine $engine --workers $workers" => sub {
        write_file('said', '');
        my $server = TestServer->command_of(
            qw(peregrine --no-access-log -E production --engine), $engine,
            '--workers' => $workers,
            '--mount'   => "/other=$other",
            '--mount'   => "/=$app"
        );
        my $port      = $server->port;
        my $processes = $workers || 1;
        ok wait_for(sub { count_of('one begins') == $processes && count_of('other begins') == $processes }),
            'each hears of the beginning of each process';
        ok wait_for(sub { get($port, '/who')->{body} =~ m{\Aone \d+ /x ticks\z} }), 'one has its timers';
        ok wait_for(sub { get($port, '/other/who')->{body} =~ m{\Aother \d+ /other/x ticks\z} }),
            'and so has the other, with its helper and the path of the mount';
        for my $case ([ '/ws' => 'one' ], [ '/other/ws' => 'other' ]) {
            my ($path, $name) = @$case;
            my $socket = TestWebSocket->open($port, $path);
            $socket->text('hello');
            is $socket->next, "text $name hello", "a WebSocket of $name";
            $socket->close_frame(1000);
            $socket->next;
        }
        is $server->stop,                 0,  'the server ends well';
        is count_of("$_ WebSocket 1000"), 1,  "$_ has heard of the end of its WebSocket" for qw(one other);
        is count_of("$_ finish"), $processes, "... and once of the end of each loop"     for qw(one other);
    };
}

done_testing;
