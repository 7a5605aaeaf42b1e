# Ends under channels: of the hub, a worker, all workers (HUP), the program (USR2). Each costs what was under
# way at most; subscribers that live on stay subscribed, and no ordinary request notices.
# Not repeated for each PEREGRINE_ENGINE: its servers name their engines.
use strict;
use warnings;
use feature qw(state);

use lib 't/lib';
use OnlyInFull qw(only_in_full);
use Test::More;
use TestChannels qw(application asked chat on_both);
use TestClient   qw(get);
use TestServer;
use TestTools   qw(content wait_for);
use TestWorkers qw(children directory is_gone load no_failure pid_in stop_master write_file);

plan skip_all => 'Linux only' if $^O ne 'linux';

my $app = application();

# The process of a server's hub.
sub hub {
    my ($master) = @_;
    my ($hub)    = wait_for(sub {
        return (grep { (content("/proc/$_/cmdline") // '') =~ /\(hub\)/ } children($master))[0];
    });
    return $hub;
}

# A WebSocket of a worker of that master.
sub of_program {
    my ($server, $master) = @_;
    my ($socket, $pid);
    wait_for(sub {
        ($socket, $pid) = chat($server, 'room');
        return grep { $_ == ($pid // 0) } children($master);
    });
    return $socket;
}

# Says something in a room until it is heard there: what was under way may be lost.
sub is_heard {
    my ($by, $socket, $title) = @_;
    state $number = 0;
    my $heard;
    $socket->{client}{timeout} = 0.2;
    wait_for(sub {
        my $text = 'heard ' . ++$number;
        $by->text($text);
        while (1) {
            $heard = $socket->next;
            return 1 if $heard eq "text $text";
            return 0 if $heard eq 'nothing' || $heard eq 'end';
        }
    });
    like $heard, qr/\Atext heard /, $title;
    return;
}

for my $engine (only_in_full('inline'), 'process') {
    subtest "engine $engine" => sub {
        my $server = TestServer->command('--engine', $engine, '--workers', 2, '--channels', $app);
        my @rooms  = on_both(sub { return chat($server, 'room') });
        my @load   = load($server->port);

        subtest 'the hub is killed' => sub {
            my $hub = hub($server->pid);
            kill KILL => $hub;
            is_heard(@rooms,          'what is said is heard again, by a subscriber of before');
            is_heard(reverse(@rooms), 'and the other way round');
            isnt hub($server->pid), $hub, 'there is another hub';
            ok $server->wait_for_log(qr/hub.*$hub/), 'the log says so';
        };

        subtest 'the hub hangs' => sub {
            my $hub = hub($server->pid);
            kill STOP => $hub;
            ok wait_for(sub { (content("/proc/$hub/stat") // '') =~ /\) T / }), 'the hub stops';
            is get($server->port, '/pid')->{status}, 200, 'a request is served';
            my $said = asked($server, '/calls', [ [ publish => 't', { type => 'x' } ] ])->[0];
            is $said, 'Unknown', 'publish says that nobody knows, after its deadline';
            kill CONT => $hub;
            is_heard(@rooms, 'what is said is heard again');
        };
        no_failure('the hub', @load);

        subtest 'a worker is killed' => sub {
            my ($third, $pid) = chat($server, 'room');
            kill KILL => $pid;
            $_->{client}{timeout} = 10 for @rooms, $third;
            wait_for(sub { is_gone($pid) });
            my ($fourth) = chat($server, 'room');
            my ($fifth)  = chat($server, 'room');
            is_heard($fourth, $fifth, 'those of others hear each other');
        };
        is $server->stop, 0, 'the server stops';
    };
}

subtest 'HUP' => sub {
    my $server = TestServer->command(qw(--engine inline --workers 2 --channels), $app);
    my ($before, $pid) = chat($server, 'room');
    my $hub = hub($server->pid);
    $server->signal('HUP');
    my ($after, $other);
    wait_for(sub { ($after, $other) = chat($server, 'room'); return ($other // $pid) != $pid });
    is hub($server->pid), $hub, 'the hub stays';
    my ($one) = chat($server, 'room');
    my ($two) = chat($server, 'room');
    is_heard($one, $two, 'new workers hear each other');
};

subtest 'USR2' => sub {
    my $pid_file = directory() . '/usr2.pid';
    my $server   = TestServer->command(qw(--engine inline --workers 2 --channels --shutdown-timeout 20 --pid),
        $pid_file, $app);
    my ($before) = chat($server, 'room');
    my $old = $server->pid;
    $server->signal('USR2');
    ok wait_for(sub { my $pid = pid_in('usr2.pid'); return $pid && $pid != $old }), 'a new program serves';
    my ($one, $two) = map { of_program($server, pid_in('usr2.pid')) } 1, 2;
    is_heard($one, $two, 'connections of the new program hear each other');
    wait_for(sub { is_gone($old) });
    is_heard($one, $two, 'and do so when the old program has gone');
    stop_master('usr2.pid');
};

subtest 'USR2, and no new program comes' => sub {
    my $own    = write_file('usr2.pl', content($app));
    my $server = TestServer->command(qw(--engine inline --workers 1 --channels), $own);
    my ($before, $pid) = chat($server, 'room');
    write_file('usr2.pl', "die 'not today';\n");
    $server->signal('USR2');
    ok $server->wait_for_log(qr/not today/), 'the new program dies';
    write_file('usr2.pl', content($app));
    $server->signal('HUP');
    my ($one, $other);
    wait_for(sub { ($one, $other) = chat($server, 'room'); return ($other // $pid) != $pid });
    my ($two) = chat($server, 'room');
    is_heard($one, $two, 'a worker that is started behind it is heard');
};

done_testing;
