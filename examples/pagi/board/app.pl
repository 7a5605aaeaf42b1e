# A board of notices: whoever posts one, at whichever worker, all browsers show it; a browser that was away
# gets what was posted meanwhile, because its event stream goes on behind the last notice that it has seen.
#
#     pagi-server --channels --workers 2 examples/pagi/board/app.pl
#     open http://127.0.0.1:5000/ in some tabs, switch one to offline for a while
#
# The server sends the notices by itself: no line of this program runs for them.
use strict;
use warnings;

use File::Basename qw(dirname);
use Future::AsyncAwait;

my $LONGEST = 500;                                           # bytes of a notice
my $page    = read_file(dirname(__FILE__) . '/page.html');

async sub app {
    my ($scope, $receive, $send) = @_;
    my $type = $scope->{type};
    die "Unsupported scope type: $type\n"            if $type !~ /\A(?:http|sse)\z/;
    die "This example needs the option --channels\n" if !$scope->{'pagi.topics'};
    return await notices($scope, $receive, $send)    if $type eq 'sse';
    return await post($scope, $receive, $send)       if $scope->{method} eq 'POST';

    # The page begins where the topic is now: its stream has all that is posted from here on.
    my $position = await $scope->{'pagi.topics'}->position('board');
    return await answer($send, 200, 'text/html; charset=utf-8', $page =~ s/POSITION/$position/r);
}

async sub notices {
    my ($scope, $receive, $send) = @_;
    my ($last)  = map { $_->[1] } grep { $_->[0] eq 'last-event-id' } @{ $scope->{headers} };
    my ($first) = $scope->{query_string} =~ /\bsince=([0-9a-f.]+)/;
    await $send->({ type => 'sse.start' });
    await $send->({ type => 'sse.keepalive',   interval => 20 });
    await $send->({ type => 'topic.subscribe', topic    => 'board', since => $last // $first });
    while ((await $receive->())->{type} ne 'sse.disconnect') { }
    return;
}

async sub post {
    my ($scope, $receive, $send) = @_;
    my ($notice, $event) = ('');
    do {
        $event = await $receive->();
        return if $event->{type} ne 'http.request';
        $notice .= $event->{body};
    } while ($event->{more} && length $notice <= $LONGEST);
    return await answer($send, 422, 'text/plain', "A notice has 1 to $LONGEST bytes\n")
        if !length $notice || length $notice > $LONGEST;
    my $place = eval { await $scope->{'pagi.topics'}->publish(board => $notice) };
    my $error = $@;
    return await refuse($send, $error) if !$place;
    return await answer($send, 200, 'text/plain', "$place\n");
}

# The names of failures are those of PAGI::Server::Channels.
async sub refuse {
    my ($send, $error) = @_;
    warn "not published: $error\n";
    return await answer($send, 503, 'text/plain', "Try again\n") if $error =~ /\A(?:Unavailable|TooMany)\b/;
    return await answer($send, 504, 'text/plain', "It may be there: look before you try again\n")
        if $error =~ /\AUnknown\b/;
    return await answer($send, 500, 'text/plain', "Not published\n");
}

async sub answer {
    my ($send, $status, $type, $body) = @_;
    await $send->({
        type    => 'http.response.start',
        status  => $status,
        headers => [ [ 'content-type', $type ], [ 'content-length', length $body ] ],
    });
    await $send->({ type => 'http.response.body', body => $body });
    return;
}

sub read_file {
    my ($path) = @_;
    open my $file, '<', $path or die "$path: $!\n";
    local $/;
    return readline $file;
}

\&app;
