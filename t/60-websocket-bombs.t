# Little on the wire, much in memory: compressed messages of 16 MiB that come in 16 KB. They are inflated one
# at a time, for an application that has asked for one; honest large messages pass.
use strict;
use warnings;

use lib 't/lib';
use Compress::Raw::Zlib qw(MAX_WBITS Z_SYNC_FLUSH);
use Digest::SHA         qw(sha1_hex);
use Future::AsyncAwait;
use IO::Async::Loop;
use OnlyInFull qw(only_in_full);
use Test::More;
use TestServer;
use TestWebSocket;

my $OFFER = 'Sec-WebSocket-Extensions: permessage-deflate';
my $RSV1  = 4;
my $SIZE  = 16 * 1024 * 1024;

my $go;

# Answers each message by its length and digest; at /late not before another client has asked for /go.
async sub app {
    my ($scope, $receive, $send) = @_;
    die "Unsupported protocol type: $scope->{type}" if $scope->{type} ne 'websocket';
    $go ||= IO::Async::Loop->new->new_future;
    await $receive->();
    await $send->({ type => 'websocket.accept' });
    $go->done if $scope->{path} eq '/go';
    await $go if $scope->{path} eq '/late';
    while (1) {
        my $event = await $receive->();
        last if $event->{type} eq 'websocket.disconnect';
        my $message = $event->{text} // $event->{bytes};
        if ($scope->{path} eq '/silent') {
            print STDERR sha1_hex($message), "\n";
            next;
        }
        await $send->({ type => 'websocket.send', text => length($message) . ' ' . sha1_hex($message) });
    }
    return;
}

sub deflated {
    my ($plain)   = @_;
    my ($deflate) = Compress::Raw::Zlib::Deflate->new(-WindowBits => -MAX_WBITS(), -AppendOutput => 1);
    my $bytes     = '';
    $deflate->deflate($plain, $bytes);
    $deflate->flush($bytes, Z_SYNC_FLUSH);
    return substr $bytes, 0, -4;
}

# Memory of the server in KiB, now (VmRSS) or at most so far (VmHWM).
sub kib {
    my ($server, $name) = @_;
    open my $in, '<', '/proc/' . $server->pid . '/status' or return 0;
    my ($kib) = map { /^$name:\s+(\d+)/ } <$in>;
    return $kib;
}

sub opened {
    my ($server, $target) = @_;
    return TestWebSocket->open($server->port, $target, lines => [$OFFER]);
}

my $zeros    = "\0" x $SIZE;
my $answer   = "text $SIZE " . sha1_hex($zeros);
my $bomb     = TestWebSocket::frame(TestWebSocket::BINARY, deflated($zeros), rsv => $RSV1);
my $bomb_kib = $SIZE / 1024;

subtest 'many bombs at once' => sub {
    my $server     = TestServer->start(app => \&app);
    my @bombers    = map { opened($server, '/') } 1 .. only_in_full(20) || 12;
    my $bystander  = opened($server, '/');
    my $before     = kib($server, 'VmRSS');
    my $bombs_each = only_in_full(2) || 1;
    $_->{client}->send($bomb x $bombs_each) for @bombers;
    is $bystander->text('hello')->next, 'text 5 ' . sha1_hex('hello'), 'another client is served';
    my $answers = 0;

    for my $bomber (@bombers) {
        for (1 .. $bombs_each) { $answers++ if $bomber->next eq $answer }
    }
    is $answers, @bombers * $bombs_each, 'and each of them is a message after all';
    # A message has up to five copies between the engine and the application when they work at the same time,
    # and the C library keeps a few of that size for later.
    my $most = kib($server, 'VmHWM') - $before;
    cmp_ok $most, '<', @bombers / 2 * $bomb_kib, "not all of them in memory at a time: $most KiB";
    is $server->stop, 0, 'the server ends well';
};

subtest 'bombs that nobody has asked for' => sub {
    my $server  = TestServer->start(app => \&app);
    my @bombers = map { opened($server, '/late') } 1 .. 10;
    my $before  = kib($server, 'VmRSS');
    $_->{client}->send($bomb) for @bombers;
    my $bystander = opened($server, '/');
    is $bystander->text('hello')->next, 'text 5 ' . sha1_hex('hello'), 'another client is served'
        for 1 .. 100;
    my $most = kib($server, 'VmHWM') - $before;
    cmp_ok $most, '<', $bomb_kib, "they stay as small as they came: $most KiB";
    opened($server, '/go');
    is $_->next,      $answer, 'it is inflated when it is received' for @bombers;
    is $server->stop, 0,       'the server ends well';
};

subtest 'a stop after their peers have gone' => sub {
    my $server     = TestServer->start(app => \&app);
    my @bombers    = map { opened($server, '/silent') } 1 .. 10;
    my $bombs_each = only_in_full(3) || 2;
    for my $bomber (@bombers) {
        $bomber->{client}->send($bomb x $bombs_each);
        $bomber->{client}->close;
    }
    ok $server->wait_for_log(qr/^[0-9a-f]{40}$/m), 'the application receives one of their messages';
    is $server->stop, 0, 'the server ends well';
    my $received = () = $server->log =~ /^[0-9a-f]{40}$/mg;
    cmp_ok $received, '<', @bombers * $bombs_each, "without giving the application all of them: $received";
};

subtest 'honest messages of 16 MiB' => sub {
    my $server = TestServer->start(app => \&app);
    my $text   = substr(join(' ', map { sha1_hex($_) } 1 .. $SIZE / 40), 0, $SIZE);
    my $same   = "text $SIZE " . sha1_hex($text);
    my $client = opened($server, '/');
    my $sends  = sub {
        my ($bytes, %options) = @_;
        my $at = 0;
        while ($at < length $bytes) {
            my $piece = substr $bytes, $at, 65_536;
            my %first = $at ? () : %options;
            $at += length $piece;
            $client->send_frame($at == length $piece ? TestWebSocket::TEXT : 0,
                $piece, %first, fin => $at == length $bytes ? 1 : 0);
        }
        return $client->next;
    };
    is $sends->($text),                         $same,                         'as it is';
    is $sends->(deflated($text), rsv => $RSV1), $same,                         'compressed';
    is $client->text('short')->next,            'text 5 ' . sha1_hex('short'), 'and what comes behind';
    is $sends->($text . 'x'),                   'close 1009 message too big',  'a further byte is too much';
    is $server->stop,                           0,                             'the server ends well';
};

done_testing;
