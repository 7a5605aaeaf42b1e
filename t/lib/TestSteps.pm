package TestSteps;

# Applications made of steps, for tests that need many small ones: `sends(start(), body(body => 'x'),
# dies())`.

use strict;
use warnings;

use Exporter qw(import);
use Future;
use Future::AsyncAwait;
use IO::Async::Loop;

our @EXPORT = qw(
    aside body data denial event later plain refusal start
    accepts answers echoes sends streams
    at_once dies fails made reads_body takes together waits_for_end
);

# ---- Events --------------------------------------------------------------------------------------

sub event { my ($type, @fields) = @_; return { type => $type, @fields } }

sub start   { return event('http.response.start', status => 200, @_) }
sub body    { return event('http.response.body',  @_) }
sub plain   { return (start(), body(body => 'plain')) }
sub data    { return event('sse.send', data => @_) }
sub refusal { return (event('sse.http.response.start', status => 200), event('sse.http.response.body', @_)) }

sub denial {
    return (event('websocket.http.response.start', status => 401), event('websocket.http.response.body', @_));
}

# ---- Applications --------------------------------------------------------------------------------

# An application that takes steps. A step is an event to send, or a code reference that gets scope, $receive
# and $send and returns an event to send or a Future to await.
sub sends {
    my (@steps) = @_;
    return async sub {
        my ($scope, $receive, $send) = @_;
        for my $step (@steps) {
            my $what = ref $step eq 'CODE' ? $step->($scope, $receive, $send) : $step;
            await(ref $what eq 'HASH' ? $send->($what) : $what);
        }
    };
}

# Applications that take steps after the start of a response, the start of an event stream, or the acceptance
# of a WebSocket.
sub answers { return sends(start(),            @_) }
sub streams { return sends(event('sse.start'), @_) }
sub accepts { return sends(takes(),            event('websocket.accept'), @_) }

# ---- Steps ---------------------------------------------------------------------------------------

# A step that sends a part of a body, which is made anew each time.
sub made {
    my ($make) = @_;
    return sub { body($make->(@_)) }
}

# A step that sends events at once and awaits all of them; each may fail.
sub together {
    my (@events) = @_;
    return sub {
        Future->wait_all(map { $_[2]->($_) } @events);
    }
}

# A step that runs code and awaits nothing.
sub at_once {
    my ($code) = @_;
    return sub { $code->(@_); Future->done }
}

# A step that sends an event, which has to fail.
sub fails {
    my ($event) = @_;
    return sub {
        $_[2]->($event)->then(sub { die "it did not fail\n" }, sub { Future->done });
    }
}

sub dies {
    return sub { die "on purpose\n" }
}

sub takes {
    return sub { $_[1]->() }
}

sub later {
    my ($seconds) = @_;
    return sub { IO::Async::Loop->new->delay_future(after => $seconds) }
}

sub waits_for_end {
    return async sub {
        my ($scope, $receive) = @_;
        1 until (await $receive->())->{type} =~ /disconnect/;
    };
}

sub reads_body {
    return async sub {
        my ($scope, $receive) = @_;
        while (1) {
            my $event = await $receive->();
            last if $event->{type} =~ /disconnect/ || !$event->{more};
        }
    };
}

sub echoes {
    return async sub {
        my ($scope, $receive, $send) = @_;
        while ((my $event = await $receive->())->{type} eq 'websocket.receive') {
            await $send->(event('websocket.send', text => $event->{text}));
        }
    };
}

# A step that begins to wait for the end of the client, and lets the next steps go on.
sub aside {
    return at_once(sub {
        my ($scope) = @_;
        my $watch = async sub { return await $scope->{'pagi.connection'}->disconnect_future };
        $scope->{aside} = $watch->();
    });
}

1;
