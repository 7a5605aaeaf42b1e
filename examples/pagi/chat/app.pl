# A chat room: a page, and a WebSocket for each tab that has it open.
#
#     pagi-server examples/pagi/chat/app.pl
#     open http://127.0.0.1:5000/ in two tabs
#
# A tab that lost its connection comes back with the number of the last message it has seen and
# gets what it missed.
# A tab that does not take its messages is sent away: it must not cost the others, or our memory.
use strict;
use warnings;

use File::Basename qw(dirname);
use Future::AsyncAwait;
use JSON::PP ();

my $KEPT     = 100;                                           # messages that newcomers can catch up on
my $LONGEST  = 500;                                           # characters of a message
my $json     = JSON::PP->new->canonical;
my $page     = read_file(dirname(__FILE__) . '/page.html');
my $messages = 0;                                             # counts all there ever were
my (@history, %room);                                         # the last messages; $send by connection

async sub app {
    my ($scope, $receive, $send) = @_;
    return await chat($scope, $receive, $send)     if $scope->{type} eq 'websocket';
    die "Unsupported scope type: $scope->{type}\n" if $scope->{type} ne 'http';

    my ($status, $type, $body) =
        $scope->{path} eq '/' ? (200, 'text/html; charset=utf-8', $page) : (404, 'text/plain', "Not found\n");
    await $send->({
        type    => 'http.response.start',
        status  => $status,
        headers => [ [ 'content-type', $type ], [ 'content-length', length $body ] ],
    });
    await $send->({ type => 'http.response.body', body => $body });
    return;
}

async sub chat {
    my ($scope, $receive, $send) = @_;
    my ($name)  = $scope->{query_string} =~ /\bname=(\w{1,20})/;
    my ($after) = $scope->{query_string} =~ /\bafter=(\d{1,15})/;
    await $receive->();                                                       # websocket.connect
    return await $send->({ type => 'websocket.close' }) if !defined $name;    # refused with 403

    await $send->({ type => 'websocket.accept' });
    await $send->({ type => 'websocket.keepalive', interval => 20, timeout => 20 });
    for my $message (grep { $_->{number} > ($after // 0) } @history) {
        await $send->({ type => 'websocket.send', text => $json->encode($message) });
    }
    $room{ 0 + $scope } = { send => $send, transport => $scope->{'pagi.transport'} };
    while (1) {
        my $event = await $receive->();
        last                                                  if $event->{type} eq 'websocket.disconnect';
        say_to_all($name, substr $event->{text}, 0, $LONGEST) if defined $event->{text};
    }
    delete $room{ 0 + $scope };
    return;
}

# Does not wait for anybody: who falls behind by more than the high-water mark leaves, and is
# sent nothing more.
sub say_to_all {
    my ($name, $text) = @_;
    my $message = { number => ++$messages, name => $name, text => $text };
    push @history, $message;
    shift @history if @history > $KEPT;
    my $encoded = $json->encode($message);
    for my $key (keys %room) {
        my $member = $room{$key};
        my $late   = $member->{transport}->buffered_amount >= $member->{transport}->high_water_mark;
        $member->{send}->(
            $late
            ? { type => 'websocket.close', code => 1013, reason => 'too slow' }
            : { type => 'websocket.send', text => $encoded }
        )->retain;
        delete $room{$key} if $late;
    }
    return;
}

sub read_file {
    my ($path) = @_;
    open my $file, '<', $path or die "$path: $!\n";
    local $/;
    return readline $file;
}

\&app;
