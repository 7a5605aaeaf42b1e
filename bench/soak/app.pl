# Serves the good clients of script/soak. Each answer can be computed from its request: /bytes/FIRST/SIZE, the
# body of a POST, messages of a WebSocket, and an event stream that counts from /events/FIRST on.
use strict;
use warnings;

use Future::AsyncAwait;
use IO::Async::Loop;

my $ALPHABET = join '', 'a' .. 'z', 'A' .. 'Z', 0 .. 9;
my $LETTERS  = $ALPHABET x 20_000;
my %ANSWERS  = (http => \&bytes, sse => \&events, websocket => \&messages);

async sub bytes {
    my ($scope, $receive, $send) = @_;
    my (undef, undef, $first, $size) = split m{/}, $scope->{path};
    my $body = defined $size ? substr $LETTERS, $first, $size : '';
    if ($scope->{method} eq 'POST') {
        $body = '';
        my $event;
        do {
            $event = await $receive->();
            return if $event->{type} eq 'http.disconnect';
            $body .= $event->{body} // '';
        } while ($event->{more});
    }
    my @headers = ([ 'content-length', length $body ], [ 'x-process', $$ ]);
    await $send->({ type => 'http.response.start', status => 200, headers => \@headers });
    await $send->({ type => 'http.response.body', body => $body });
    return;
}

async sub messages {
    my ($scope, $receive, $send) = @_;
    await $receive->();
    await $send->({ type => 'websocket.accept', headers => [ [ 'x-process', $$ ] ] });
    while ((my $event = await $receive->())->{type} eq 'websocket.receive') {
        my ($kind) = grep { defined $event->{$_} } qw(text bytes);
        await $send->({ type => 'websocket.send', $kind => $event->{$kind} });
    }
    return;
}

async sub events {
    my ($scope, $receive, $send) = @_;
    my $number = (split m{/}, $scope->{path})[2];
    my $loop   = IO::Async::Loop->new;
    my $end    = ended($receive);
    await $send->({ type => 'sse.start', status => 200, headers => [ [ 'x-process', $$ ] ] });
    while (!$end->is_ready) {
        await $send->({ type => 'sse.send', data => $number++ });
        await $loop->delay_future(after => 0.2);
    }
    return;
}

async sub ended {
    my ($receive) = @_;
    1 while (await $receive->())->{type} ne 'sse.disconnect';
    return;
}

async sub app {
    my ($scope, $receive, $send) = @_;
    my $answer = $ANSWERS{ $scope->{type} } or die "Unsupported scope type: $scope->{type}\n";
    await $answer->($scope, $receive, $send);
    return;
}

\&app;
