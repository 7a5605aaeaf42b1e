# The server tells its state to a service manager (sd_notify), with and without workers: nothing before it
# serves, and from the right process.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use HTTP::Tiny;
use IO::Socket::INET;
use IO::Socket::UNIX;
use Peregrine::Notify;
use Socket qw(AF_UNIX SOCK_DGRAM pack_sockaddr_un);
use Test::More;
use TestServer;
use TestTools   qw(can_read freeze patience wait_for);
use Time::HiRes qw(time);

my $dir = File::Temp->newdir;
my $app = "$dir/app.pl";
open my $out, '>', $app or die $!;
print {$out} <<'APP';
use Future::AsyncAwait;
select undef, undef, undef, 0.3;    # so long it takes to load
async sub {
    my ($scope, $receive, $send) = @_;
    die "no $scope->{type}\n" if $scope->{type} ne 'http';
    select undef, undef, undef, $1 if $scope->{path} =~ m{\A/block/([\d.]+)\z};
    await $send->({ type => 'http.response.start', status => 200 });
    my @set = grep { defined } @ENV{qw(NOTIFY_SOCKET WATCHDOG_USEC)};
    await $send->({ type => 'http.response.body', body => join ' ', $$, @set });
};
APP
close $out or die $!;
my $http = HTTP::Tiny->new(timeout => 20, keep_alive => 0);

# A service manager: a socket, and what it is called in the environment.
sub manager {
    my ($name) = @_;
    socket my $socket, AF_UNIX, SOCK_DGRAM, 0 or die "socket: $!";
    bind $socket, pack_sockaddr_un($name =~ s/\A\@/\0/r) or die "bind: $!";
    return $socket;
}

# The next message, as a hash; nothing after some seconds.
sub message {
    my ($socket, $seconds) = @_;
    return if !can_read($socket, $seconds // patience(60));
    recv $socket, my $text, 65_536, 0 // return;
    return { map { split /=/, $_, 2 } split /\n/, $text };
}

# The next message that has a field; other messages are passed over.
sub message_with {
    my ($socket, $name) = @_;
    while (my $message = message($socket)) { return $message if exists $message->{$name} }
    return {};
}

for my $workers (0, 2) {
    subtest "$workers workers" => sub {
        my $path   = "$dir/notify$workers";
        my $socket = manager($path);
        local @ENV{qw(NOTIFY_SOCKET WATCHDOG_USEC)} = ($path, 1_000_000);
        my $server = TestServer->command($app, '-E', 'production', $workers ? ('--workers', $workers) : ());
        my $url    = 'http://127.0.0.1:' . $server->port;
        my $ready  = message($socket);
        is $ready->{READY},   1,            'the first message says that it serves';
        is $ready->{MAINPID}, $server->pid, 'by the process that was started';
        like $ready->{STATUS}, qr{\Aserving on http://127\.0\.0\.1:\d+/\z}, 'and where';
        my $content = $http->get($url)->{content};
        like $content, qr/\A\d+\s*\z/, 'the application has nothing of it in its environment';

        my $from = time;
        message_with($socket, 'WATCHDOG') for 1 .. 4;
        cmp_ok time - $from, '<', patience(60), 'signs of life come';
        is message_with($socket, 'WATCHDOG')->{WATCHDOG}, 1, 'and go on';

        my %before = map { $http->get($url)->{content} =~ s/\s.*//r => 1 } 1 .. 20;
        $server->signal('HUP');
        my $reload = message_with($socket, 'RELOADING');
        is $reload->{RELOADING}, 1, 'HUP is a reload';
        like $reload->{MONOTONIC_USEC}, qr/\A\d{6,}\z/, 'with its time';
        is message_with($socket, 'READY')->{MAINPID}, $server->pid, 'which ends';
        if ($workers) {
            my @after = map { $http->get($url)->{content} =~ s/\s.*//r } 1 .. 20;
            is_deeply [ grep { $before{$_} } @after ], [], 'when all workers are new';
        }

        $server->signal('TERM');
        is message_with($socket, 'STOPPING')->{STOPPING}, 1, 'the stop is told';
        is $server->wait,                                 0, 'before it is over';
        my $late = grep { exists $_->{READY} } map { message($socket, 0) // () } 1 .. 20;
        is $late, 0, 'and nothing comes after it';
    };
}

# Of two requests at once a worker that blocks takes one.
sub two_workers {
    my ($port) = @_;
    my %workers;
    wait_for(sub {
        my @sockets = map { IO::Socket::INET->new("127.0.0.1:$port") || die "connect: $@" } 1 .. 2;
        for my $socket (@sockets) {
            print {$socket} "GET /block/0.2 HTTP/1.0\r\n\r\n";
            $socket->flush;
            select undef, undef, undef, 0.05;
        }
        for my $socket (@sockets) { local $/; $workers{$1} = 1 if readline($socket) =~ /(\d+)\s*\z/ }
        return keys %workers == 2;
    }) or fail('no two workers answer');
    return keys %workers;
}

# The workers are stopped, so that they cannot say that they accept no more connections.
subtest 'a reload is not over while old workers accept' => sub {
    my $socket = manager("$dir/old");
    local $ENV{NOTIFY_SOCKET} = "$dir/old";
    my $server = TestServer->command($app, '-E', 'production', '--workers', 2);
    message_with($socket, 'READY');
    my @old = two_workers($server->port);
    ok freeze(@old), 'old workers stand still';
    $server->signal('HUP');
    is message_with($socket, 'RELOADING')->{RELOADING}, 1, 'HUP is a reload';
    my %new = map { $_ => 1 } two_workers($server->port);
    ok !(grep { $new{$_} } @old), 'new workers serve';
    is_deeply [ grep { $_->{READY} } message($socket, 0.5) // {} ], [], '... and it is not over';
    kill CONT => @old;
    is message_with($socket, 'READY')->{READY}, 1, 'the old ones hear that they are to leave: it is';
    $server->signal('TERM');
    is $server->wait, 0, 'the server ends';
};

subtest 'a reload that is given up' => sub {
    my $socket = manager("$dir/given-up");
    local $ENV{NOTIFY_SOCKET} = "$dir/given-up";
    my $broken = "$dir/broken";
    my $code   = "$dir/breaks.pl";
    open my $breaks, '>', $code or die $!;
    print {$breaks} "die 'no database' if -e '$broken'; do '$app'";
    close $breaks or die $!;
    my $server = TestServer->command($code, '-E', 'production', '--workers', 1);
    my $status = message_with($socket, 'READY')->{STATUS};
    open my $flag, '>', $broken or die $!;
    close $flag or die $!;
    $server->signal('HUP');
    is message_with($socket, 'READY')->{STATUS}, "$status; the last reload was given up: the log tells why",
        'the service manager hears of it';
    unlink $broken or die $!;
    $server->signal('HUP');
    message_with($socket, 'RELOADING');
    is message_with($socket, 'READY')->{STATUS}, $status, '... until another one succeeds';
    $server->signal('TERM');
    is $server->wait, 0, 'the server ends';
};

subtest 'a blocked loop is silent' => sub {
    my $socket = manager("$dir/blocked");
    local @ENV{qw(NOTIFY_SOCKET WATCHDOG_USEC)} = ("$dir/blocked", 200_000);
    my $server = TestServer->command($app, '-E', 'production');
    message_with($socket, 'WATCHDOG');
    my $client = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $server->port) or die $!;
    print {$client} "GET /block/3 HTTP/1.0\r\n\r\n";
    my $longest = 0;
    my $last    = time;

    for (1 .. 60) {
        last if $longest > 1;
        message_with($socket, 'WATCHDOG');
        my $now = time;
        $longest = $now - $last if $now - $last > $longest;
        $last    = $now;
    }
    cmp_ok $longest, '>', 1, 'no sign of life for more than a second';
    is $server->stop, 0, 'the server stops';
};

subtest 'whom it does not concern' => sub {
    my $path   = "\@peregrine-test-$$";
    my $socket = manager($path);
    {
        local @ENV{qw(NOTIFY_SOCKET WATCHDOG_USEC WATCHDOG_PID)} = ($path, 100_000, 1);
        my $server = TestServer->command($app, '-E', 'production');
        is message($socket)->{READY}, 1,     'an abstract socket';
        is message($socket, 1),       undef, 'the watchdog of another process is not ours';
        is $server->stop,             0,     'the server stops';
    }
    local $ENV{NOTIFY_SOCKET} = "$dir/nobody";
    my $server = TestServer->command($app, '-E', 'production');
    is $http->get('http://127.0.0.1:' . $server->port)->{status}, 200,
        'a socket where nobody listens does no harm';
    is $server->stop, 0, 'nor at the end';
    local $ENV{NOTIFY_SOCKET} = 'vsock:1:2';
    is(Peregrine::Notify->from_environment, undef, 'one of another kind is none');
    local $ENV{NOTIFY_SOCKET} = "$dir/nobody";
    my $service = Peregrine::Notify->from_environment;
    is_deeply { Peregrine::Notify->environment }, { NOTIFY_SOCKET => "$dir/nobody" },
        'a successor gets the variables';
    ok !exists $ENV{NOTIFY_SOCKET}, 'others do not';
    is $service->say(STATUS => 'x'), 0, 'the server knows what it could not send';
};

done_testing;
