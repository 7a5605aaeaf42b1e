# Flow control: a slow client makes the application wait, a slow application makes the client wait, and
# neither fills our memory.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use Future;
use Future::AsyncAwait;
use IO::Async::Loop;
use IO::Select ();
use Test::More;
use TestClient;
use TestServer;
use TestStream;

sub say_line { print STDERR @_, "\n"; return }

sub rss_kib {
    open my $in, '<', '/proc/self/status' or return 0;
    my ($kib) = map { /VmRSS:\s+(\d+)/ } <$in>;
    return $kib;
}

# Files in this folder let applications go on.
my $signals = File::Temp->newdir;

sub touch { open my $file, '>', "$signals/$_[0]" or die "$_[0]: $!"; return }

async sub wait_for {
    my ($name) = @_;
    my $loop = IO::Async::Loop->new;
    while (!-e "$signals/$name") { await $loop->delay_future(after => 0.02) }
    return;
}

# Steps that are taken with each type of scope.
my %steps = (
    http => {
        start => sub { $_[0]->({ type => 'http.response.start', status => 200 }) },
        piece => sub { $_[0]->({ type => 'http.response.body',  body   => $_[1], more => 1 }) },
        end   => sub { $_[0]->({ type => 'http.response.body' }) },
    },
    sse => {
        start => sub { $_[0]->({ type => 'sse.start' }) },
        piece => sub { $_[0]->({ type => 'sse.send', data => $_[1] }) },
        end   => sub { $_[0]->({ type => 'sse.close' }) },
    },
);

# Not written where it is used: Future::AsyncAwait 0.63 loses a folded constant in a loop that it has resumed.
my $piece = 'x' x 10_000;

my %handlers = (
    # Sends without waiting until it is told to stop, as a source that cannot pause would.
    '/push' => async sub {
        my ($scope, $receive, $send, $step) = @_;
        my $transport = $scope->{'pagi.transport'};
        my $name      = $scope->{query_string};
        my $stopped   = 0;
        say_line("$name marks: ",
            join ' ', map { $transport->$_ } qw(low_water_mark high_water_mark buffered_amount));
        $transport->on_high_water(sub { say_line("$name high: ", $transport->buffered_amount); $stopped = 1 }
        );
        $transport->on_drain(sub { say_line("$name low: ", $transport->buffered_amount); $stopped = 0 });
        await $step->{start}->($send);
        my ($pieces, $pending) = (0, undef);

        for my $round (1 .. 3) {
            until ($stopped) {
                $pending = $step->{piece}->($send, $piece);
                $pieces++;
            }
            say_line("$name pending: ", $pending->is_ready ? 0 : 1);
            await $pending;
        }
        await $step->{end}->($send);
        say_line("$name pieces: $pieces");
    },
    # Reads the body when it is told to.
    '/upload' => async sub {
        my ($scope, $receive, $send, $step) = @_;
        my $name  = $scope->{query_string};
        my $bytes = 0;
        my $first = await $receive->();
        $bytes += length $first->{body};
        say_line("$name before: ", rss_kib());
        await wait_for($name);
        say_line("$name after: ", rss_kib());
        my $more = $first->{more};

        while ($more) {
            my $event = await $receive->();
            $bytes += length $event->{body};
            $more = $event->{more};
        }
        say_line("$name end: ", rss_kib());
        await $step->{start}->($send);
        await $step->{piece}->($send, "bytes=$bytes");
        await $step->{end}->($send);
    },
);

my $app = sub {
    my ($scope) = @_;
    my $step = $steps{ $scope->{type} } or die "no\n";
    return $handlers{ $scope->{path} }->(@_, $step);
};

sub request {
    my ($server, $type, $target, @lines) = @_;
    push @lines, 'Accept: text/event-stream' if $type eq 'sse';
    my $method = $target =~ /upload/ ? 'POST' : 'GET';
    return TestClient->new($server->port, receive_buffer => 65_536, timeout => 30)
        ->send(join "\r\n", "$method $target HTTP/1.1", 'Host: h', @lines, '', '');
}

my %options = (
    default => [ 16_384, 65_536,  {} ],
    set     => [ 4096,   300_000, { write_low_watermark => 4096, write_high_watermark => 300_000 } ]
);
for my $kind (sort keys %options) {
    my ($low, $high, $options) = @{ $options{$kind} };
    my $server = TestServer->start(app => $app, %$options);
    for my $type (sort keys %steps) {
        subtest "writing: $type, $kind marks" => sub {
            my $client = request($server, $type, "/push?$type");
            ok($server->wait_for_log(qr/^$type marks: $low $high 0$/m), 'the marks') or diag $server->log;
            ok(
                $server->wait_for_log(qr/^$type pending: 1$/m),
                '$send is pending while the client does not read'
            );
            my $response = $client->response;
            ok($response->{complete},                             'the client gets everything');
            ok($server->wait_for_log(qr/^$type pieces: (\d+)$/m), '... that was sent');
            my ($pieces) = $server->log =~ /^$type pieces: (\d+)$/m;
            my $count = () = $response->{body} =~ /x{10000}/g;
            is($count, $pieces, '... once');
            my @highs = $server->log =~ /^$type high: (\d+)$/mg;
            my @lows  = $server->log =~ /^$type low: (\d+)$/mg;
            is(scalar @highs, 3, 'on_high_water fired once for each time that the mark was reached');
            cmp_ok(scalar @lows, '>=', 2, '... and on_drain for each that the application waited for');
            is(scalar(grep { $_ < $high || $_ > $high + 20_000 } @highs),
                0, '... at the high mark, not far above');
            is(scalar(grep { $_ >= $low } @lows), 0, '... below the low mark');
        };
    }
    is($server->stop, 0, 'the server ends well');
}

# Sends until the socket takes no more; the number of bytes that went.
sub push_until_stuck {
    my ($client, $bytes) = @_;
    my $socket = $client->{socket};
    my $at     = 0;
    $socket->blocking(0);
    while ($at < length $$bytes && IO::Select->new($socket)->can_write(0.5)) {
        my $written = syswrite $socket, $$bytes, 65_536, $at;
        $at += $written if $written;
    }
    $socket->blocking(1);
    return $at;
}

my $server = TestServer->start(app => $app, max_body_size => 0);
my $size   = 40_000_000;
my $body   = 'y' x $size;                                          # made after the server's process
for my $type (sort keys %steps) {
    for my $framing ("Content-Length: $size", 'Transfer-Encoding: chunked') {
        subtest "reading: $type, $framing" => sub {
            my $name   = $type . ($framing =~ /chunked/ ? 'chunked' : 'counted');
            my $bytes  = $framing =~ /chunked/ ? sprintf("%x\r\n%s\r\n0\r\n\r\n", $size, $body) : $body;
            my $client = request($server, $type, "/upload?$name", $framing);
            my $sent   = push_until_stuck($client, \$bytes);
            cmp_ok($sent, '<', $size, 'a client whose body nobody reads has to wait');
            ok($server->wait_for_log(qr/^$name before: \d+$/m),
                '... while the application does other things');
            touch($name);
            $client->send(substr $bytes, $sent);
            like($client->response->{body}, qr/bytes=$size/, '... then all of it is read');
            my %kib = $server->log =~ /^$name (before|after|end): (\d+)$/mg;
            note "RSS in KiB: before $kib{before}, after $kib{after}, end $kib{end}";
            cmp_ok($kib{after} - $kib{before}, '<', 2048, 'memory did not grow while nobody read');
            cmp_ok($kib{end} - $kib{before},   '<', 4096, '... nor while somebody did');
        };
    }
}
is($server->stop, 0, 'the server ends well');

done_testing;
