# A stream that survives a restart: a button ends the process that has the stream, the server starts another
# one, and the page has missed nothing, because the topic is not in that process.
#
#     pagi-server --channels --workers 1 examples/pagi/restart/app.pl
#     open http://127.0.0.1:5000/ and press the buttons
#
# With --engine process the stream does not even break: the engine has the connection.
use strict;
use warnings;

use File::Basename qw(dirname);
use Future::AsyncAwait;
use IO::Async::Loop;

my $page = read_file(dirname(__FILE__) . '/page.html');

async sub app {
    my ($scope, $receive, $send) = @_;
    my $type = $scope->{type};
    return await life($scope, $receive, $send)       if $type eq 'lifespan';
    die "Unsupported scope type: $type\n"            if $type !~ /\A(?:http|sse)\z/;
    die "This example needs the option --channels\n" if !$scope->{'pagi.topics'};
    return await follow($scope, $receive, $send)     if $type eq 'sse';
    return await post($scope, $send)                 if $scope->{method} eq 'POST';

    # The page begins where the topic is now: its stream has all that is published from here on.
    my $position = await $scope->{'pagi.topics'}->position('restart');
    return await answer($send, 200, 'text/html; charset=utf-8', $page =~ s/POSITION/$position/gr);
}

# Only a worker may end: the server starts another one.
async sub life {
    my ($scope, $receive, $send) = @_;
    await $receive->();    # lifespan.startup
    $scope->{state}{is_worker} = $scope->{pagi}{is_worker};
    await $send->({ type => 'lifespan.startup.complete' });
    await $receive->();    # lifespan.shutdown
    await $send->({ type => 'lifespan.shutdown.complete' });
    return;
}

async sub follow {
    my ($scope, $receive, $send) = @_;
    my ($last)  = map { $_->[1] } grep { $_->[0] eq 'last-event-id' } @{ $scope->{headers} };
    my ($first) = $scope->{query_string} =~ /\bsince=([0-9a-f.]+)/;
    await $send->({ type => 'sse.start' });
    await $send->({ type => 'topic.subscribe', topic => 'restart', since => $last // $first });
    while ((await $receive->())->{type} ne 'sse.disconnect') { }
    return;
}

async sub post {
    my ($scope, $send) = @_;
    my $ends = $scope->{path} eq '/restart';
    return await answer($send, 409, 'text/plain', "Without --workers nobody starts another process\n")
        if $ends && !$scope->{state}{is_worker};
    my $place = eval { await $scope->{'pagi.topics'}->publish(restart => $ends ? "$$ ends" : "$$ is here") };
    my $error = $@;
    return await refuse($send, $error) if !$place;
    await answer($send, 200, 'text/plain', "$place\n");
    IO::Async::Loop->new->watch_time(after => 0.2, code => sub { kill KILL => $$ }) if $ends;
    return;
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
