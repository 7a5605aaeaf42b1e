# Chat rooms whose people are connected to different workers: what one of them says goes through a channel.
#
#     pagi-server --channels --workers 2 examples/pagi/rooms/app.pl
#     open http://127.0.0.1:5000/ in some tabs
#
# Each message names the processes that it came from and went to.
# A connection that takes messages more slowly than they come misses some: 100 wait for it at most.
use strict;
use warnings;

use File::Basename qw(dirname);
use Future::AsyncAwait;
use JSON::PP ();

my $LONGEST = 500;                                           # characters of a message
my $json    = JSON::PP->new->canonical;
my $page    = read_file(dirname(__FILE__) . '/page.html');

async sub app {
    my ($scope, $receive, $send) = @_;
    die "Unsupported scope type: $scope->{type}\n"   if $scope->{type} !~ /\A(?:http|websocket)\z/;
    die "This example needs the option --channels\n" if !$scope->{'pagi.channels'};
    return await chat($scope, $receive, $send)       if $scope->{type} eq 'websocket';

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
    my ($room) = $scope->{path}         =~ m{\A/rooms/(\w{1,20})\z};
    my ($name) = $scope->{query_string} =~ /\bname=(\w{1,20})/;
    await $receive->();                         # websocket.connect
    return await $send->({ type => 'websocket.close' })
        if !defined $room || !defined $name;    # refused with 403

    my $channels = $scope->{'pagi.channels'};
    await $send->({ type => 'websocket.accept' });
    await $send->({ type => 'websocket.keepalive', interval => 20, timeout => 20 });
    await $channels->subscribe("room.$room");
    await say_in($channels, $room, $name, 'is here');
    while (1) {
        my $event = await $receive->();
        last if $event->{type} eq 'websocket.disconnect';
        if ($event->{type} eq 'chat.message') {
            my %shown = (%$event, to => $$);
            await $send->({ type => 'websocket.send', text => $json->encode(\%shown) });
        }
        elsif (defined $event->{text}) {
            await say_in($channels, $room, $name, substr $event->{text}, 0, $LONGEST);
        }
    }
    await say_in($channels, $room, $name, 'has left');
    return;
}

# While the channels are not available, lines are lost, and the room goes on.
async sub say_in {
    my ($channels, $room, $name, $text) = @_;
    my %message = (type => 'chat.message', name => $name, text => $text, from => $$);
    eval { await $channels->publish("room.$room", \%message); 1 } or warn "not said in $room: $@\n";
    return;
}

sub read_file {
    my ($path) = @_;
    open my $file, '<', $path or die "$path: $!\n";
    local $/;
    return readline $file;
}

\&app;
