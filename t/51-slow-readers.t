# Clients that take their time: what waits for them is there once, changes for nobody, and its memory goes
# back to the system when they are gone.
use strict;
use warnings;

use lib 't/lib';
use Certificates;
use Future::AsyncAwait;
use OnlyInFull qw(only_in_full);
use PAGI::Server;
use Test::More;
use TestClient qw(get);
use TestServer;
use TestSteps;
use TestStream;
use TestTools qw(content freeze patience);
use TestUsage qw(report settled);
use TestWebSocket;
use Time::HiRes qw(sleep time);

my $mib     = 1024 * 1024;
my $size    = 6 * $mib;
my $readers = 40;
my $large   = 'y' x $size;

# ---- Applications --------------------------------------------------------------------------------

sub appended { my $text = ''; $text .= 'y' x 65_536 for 1 .. $size / 65_536; return $text }

# The bytes that are sent are those of the event when it was sent, even if the event, or a value in it,
# changes afterwards. `make` gives it a body, and returns a function that changes the body.
sub changed {
    my ($make) = @_;
    return async sub {
        my (undef, undef, $send) = @_;
        my $event  = body();
        my $change = $make->($event);
        await $send->(start());
        my $sent = $send->($event);
        $change->();
        await $sent;
    };
}

{

    package Tied;
    sub TIESCALAR { my ($class, $value) = @_; return bless { value => $value }, $class }
    sub FETCH     { return $_[0]{value} }
    sub STORE     { $_[0]{value} = $_[1]; return }
}

# Strings that Perl keeps, shares and changes in ways of their own, as bodies.
my %strings = (
    key => sub {
        my ($event) = @_;
        my %keys = ($large => 1);
        ($event->{body}) = keys %keys;
        return sub { %keys = (); $event->{body} = 'z' };
    },
    headless => sub {
        my ($event) = @_;
        $event->{body} = "zz$large";
        substr $event->{body}, 0, 2, '';
        return sub { substr $event->{body}, -9, 9, 'z' x 9 };
    },
    file => sub {
        my ($event) = @_;
        open my $file, '+>', \$event->{body} or die $!;
        $file->autoflush;
        print {$file} $large;
        return sub { seek $file, 0, 0; print {$file} 'z' x $size };
    },
    tied => sub {
        my ($event) = @_;
        tie $event->{body}, 'Tied', $large;
        return sub { $event->{body} = 'z' x $size };
    },
    input => sub {
        my ($event) = @_;
        $event->{body} = appended();
        return sub { open my $zero, '<', '/dev/zero' or die $!; sysread $zero, $event->{body}, $size };
    },
    upgraded => sub {
        my ($event) = @_;
        utf8::upgrade($event->{body} = appended());
        return sub { $event->{body} .= chr 256 };
    },
    constant => sub {
        my ($event) = @_;
        Internals::SvREADONLY($event->{body} = appended(), 1);
        return sub { Internals::SvREADONLY($event->{body}, 0); $event->{body} =~ tr/y/z/ };
    },
    deleted => sub {
        my ($event) = @_;
        $event->{body} = appended();
        return sub {
            delete $event->{body};
            my @others = map { 'z' x $size } 1 .. 3;
        };
    },
    vector => sub {
        my ($event) = @_;
        $event->{body} = appended();
        return sub { vec($event->{body}, $size - $_, 8) = ord 'z' for 1 .. 9 };
    },
);

my %handlers = (
    '/usage'   => answers(made(sub { body => report() })),
    '/hello'   => answers(body(body => 'hello')),
    '/shared'  => answers(made(sub { body => $large })),
    '/made'    => answers(made(sub { body => appended() })),
    '/stream'  => streams(sub { data($large) }),
    '/awaited' => async sub {
        my (undef, undef, $send) = @_;
        await $send->(start());
        await $send->({ type => 'http.response.body', body => $large });
    },
    '/kept' => async sub {
        my (undef, undef, $send) = @_;
        my $own = $large;
        await $send->(start());
        await $send->({ type => 'http.response.body', body => $own });
    },
    '/socket' => accepts(
        sub { event('websocket.send', text  => $large) },
        sub { event('websocket.send', bytes => $large) }
    ),
    '/changed' => changed(sub {
        my ($event) = @_;
        my $text = $event->{body} = appended();
        return sub {
            $text =~ tr/y/z/;
            substr $event->{body}, 0, $size / 2, 'z' x ($size / 2);
            $event->{body} .= 'z';
        };
    }),
    map { ("/changed/$_" => changed($strings{$_})) } keys %strings
);

sub server {
    my (%options) = @_;
    return TestServer->start(
        quiet      => 1,
        access_log => undef,
        app        => sub { $_[0]{type} eq 'lifespan' ? die "no\n" : $handlers{ $_[0]{path} }->(@_) },
        %options
    );
}

# ---- Clients -------------------------------------------------------------------------------------

my %tls;

sub asking {
    my ($server, $path) = @_;
    return TestClient->new($server->port, receive_buffer => 16_384, %tls)
        ->send("GET $path HTTP/1.1\r\nHost: h\r\n\r\n");
}

# By path: connects a client, which reads nothing for some time; and tells whether the bytes that it reads
# later are those that were sent.
my %kinds = (
    (
        map {
            my $path = $_;
            $path => [ sub { asking($_[0], $path) }, sub { $_[0]->response->{body} eq $large } ]
        } qw(/shared /made /changed)
    ),
    '/stream' => [
        sub { TestStream->open($_[0]->port, '/stream', receive_buffer => 16_384, %tls) },
        sub { $_[0]->message->{data} eq $large }
    ],
    '/socket' => [
        sub { TestWebSocket->start($_[0]->port, '/socket', receive_buffer => 16_384, %tls) },
        sub { $_[0]->next eq "text $large" && $_[0]->next eq "binary $large" }
    ],
);

# ---- Memory --------------------------------------------------------------------------------------

sub usage {
    my ($server) = @_;
    return settled(sub { get($server->port, '/usage')->{body} });
}

# The most that a server has used, in MiB.
sub peak {
    my ($server) = @_;
    return (content('/proc/' . $server->pid . '/status') =~ /^VmHWM:\s+(\d+)/m)[0] / 1024;
}

# Waits until a server does not use more than this many MiB.
sub shrinks_to {
    my ($server, $limit) = @_;
    my $end = time + patience(60);
    my $now;
    do {
        $now = usage($server)->{kib} / 1024;
        return 1 if $now <= $limit;
        sleep 0.1;
    } while (time < $end);
    diag(sprintf 'still %.0f MiB, not %.0f', $now, $limit);
    return 0;
}

# MiB by which all clients of a kind together may raise the peak. If all get the same string, it is in memory
# once.
my %adds_at_most = ('/shared' => 24, '/socket' => 24);

for my $path (sort keys %kinds) {
    my ($connect, $is_whole) = @{ $kinds{$path} };
    my $server = server();
    my $client = $connect->($server);
    ok($is_whole->($client), "$path: a client that reads gets it as it was sent");
    $client->close;
    my $before  = usage($server)->{kib} / 1024;
    my @clients = map { $connect->($server) } 1 .. $readers;
    is(get($server->port, '/hello')->{body}, 'hello',
        "... and $readers that do not read keep nobody waiting");
    ok($is_whole->($clients[-1]), '... of whom one reads after all') if $path ne '/stream';
    my $added = peak($server) - $before;
    note(sprintf 'from %.0f MiB, %.0f more', $before, $added);
SKIP: {
        my $limit = $adds_at_most{$path} or last;
        skip 'an engine on a thread of its own has a copy for each', 1
            if ($ENV{PEREGRINE_ENGINE} // '') eq 'thread';
        cmp_ok($added, '<', $limit, '... and what they are sent is there once');
    }
    # Most clients leave when the server has to give back what the first ones have left.
    $_->reset for splice @clients, 0, 4;
    sleep 0.05;
    freeze($server->pid);
    $_->reset for splice @clients;
    sleep 0.2;
    $server->signal('CONT');
SKIP: {
        skip 'a sanitizer keeps what is freed', 1 if $ENV{ASAN_OPTIONS};
        ok(shrinks_to($server, $before + 16), '... and when they are gone its memory is, too');
    }
    is($server->stop, 0, '... and the server ends well');
}

# Perl lets 255 scalars share a string. An application that waits in `await` would keep the event of its call,
# and its own variables.
for my $path ('/awaited', '/kept') {
    subtest "a string that 300 clients wait for is in memory once ($path)" => sub {
        plan skip_all => 'an engine on a thread of its own has a copy for each'
            if ($ENV{PEREGRINE_ENGINE} // '') eq 'thread';
        my $server  = server();
        my $before  = usage($server)->{kib} / 1024;
        my @clients = map { asking($server, $path) } 1 .. 300;
        is(get($server->port, '/hello')->{body}, 'hello', 'the server serves');
        cmp_ok(peak($server) - $before, '<', 5 * $size / $mib, 'the string is not copied');
        ok($clients[-1]->response->{body} eq $large, 'the last client gets the string');
        is($server->stop, 0, 'the server ends well');
    };
}

subtest 'strings of many kinds are sent as they were' => sub {
    my $server = server();
    for my $kind (sort keys %strings) {
        ok(asking($server, "/changed/$kind")->response->{body} eq $large, $kind);
    }
    is($server->stop, 0, 'the server ends well');
};

SKIP: {
    skip 'built without TLS', 1 if !PAGI::Server->has_tls;
    my $certificates = Certificates->new->authority('ca')->issue('localhost');
    %tls = (tls => {});
    for my $ktls (only_in_full(0), 1) {
        my $server = server(ssl => { $certificates->pair('localhost') }, limits => { ktls => $ktls });
        for my $path (sort keys %kinds) {
            my ($connect, $is_whole) = @{ $kinds{$path} };
            ok($is_whole->($connect->($server)), "TLS, ktls $ktls: $path");
        }
    }
}

subtest 'a server that goes with much unsent' => sub {
    %tls = ();
    my $server  = server(shutdown_timeout => 0.1);
    my @clients = map { asking($server, '/made') } 1 .. 5;
    is(get($server->port, '/hello')->{body}, 'hello', 'the server serves');
    is($server->stop,                        0,       '... and ends well');
};

done_testing;
