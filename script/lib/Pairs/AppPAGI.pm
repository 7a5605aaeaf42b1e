# The PAGI application that rows of script/pairs serve. Its paths behave as those of Pairs::AppPSGI.
package Pairs::AppPAGI;
use v5.36;
use Future::AsyncAwait;
use IO::Async::Loop;
use Pairs::Content;

# `name`: a function of the application's file that returns the file's name.
sub app ($class, %given) {
    my %do = %{ _table($given{name}) };
    return async sub {
        my ($scope, $receive, $send) = @_;
        die "no $scope->{type}\n" if $scope->{type} eq 'lifespan';
        my $path = $scope->{path} =~ s{\A\Q$scope->{root_path}\E}{}r =~ s{\A/(?:one|two|mounted)(?=/)}{}r;
        return await _websocket($scope, $receive, $send) if $scope->{type} eq 'websocket';
        return await _events($scope, $send)              if $scope->{type} eq 'sse';
        my $body = await _body($receive);
        await _hear_itself($scope, $receive);
        return await _stream($send) if $path eq '/stream';
        await _wait_for('held')     if $path eq '/held';
        return await _answer($send, 200, "not sent\n", [ 'x-sendfile', Pairs::Content::file($1) ])
            if $path =~ m{\A/sent/(\w+)\z};
        my $do = $do{$path} or return await _answer($send, 404, "not here\n");
        await _answer($send, 200, $do->($body));
    };
}

sub _table ($name) {
    return {
        '/hello' => sub { "hello\n" },
        '/held'  => sub { "held\n" },
        '/name'  => sub { $name->() . "\n" },
        '/large' => sub { Pairs::Content::large() },
        '/fresh' => sub { Pairs::Content::fresh() },
        '/echo'  => sub ($body) { $body },
        '/who'   => sub { Pairs::Content::who() },
        '/die'   => sub { die "on purpose\n" },
        '/exit'  => sub { exit 3 },
        '/stuck' => sub { Pairs::Content::block('stuck') },
        '/child' => sub { Pairs::Content::child() },
    };
}

async sub _answer ($send, $status, $body, @more) {
    my @headers = ([ 'content-type', 'text/plain' ], [ 'content-length', length $body ], @more);
    await $send->({ type => 'http.response.start', status => $status, headers => \@headers });
    await $send->({ type => 'http.response.body', body => $body });
}

async sub _body ($receive) {
    my $body = '';
    while (1) {
        my $event = await $receive->();
        last if $event->{type} ne 'http.request';
        $body .= $event->{body};
        last if !$event->{more};
    }
    return $body;
}

# With channels each request sends itself a message and waits for it, so that the code behind it runs in a
# callback of the loop, as does a request that is stuck. A hub that ends may lose it; then `send` fails.
async sub _hear_itself ($scope, $receive) {
    my ($channels, $me) = @$scope{qw(pagi.channels pagi.channel)};
    my $is_there = $channels && eval { await $channels->send($me, { type => 'pairs.said' }) };
    while ($is_there) {
        my $event = await $receive->();
        last if $event->{type} =~ /\A(?:pairs\.said|http\.disconnect)\z/;
    }
    return;
}

async sub _stream ($send) {
    my $loop    = IO::Async::Loop->new;
    my @headers = ([ 'content-type', 'text/plain' ]);
    await $send->({ type => 'http.response.start', status => 200, headers => \@headers });
    for my $piece (Pairs::Content::pieces()) {
        await $loop->delay_future(after => 0.01);
        await $send->({ type => 'http.response.body', body => $piece, more => 1 });
    }
    await $send->({ type => 'http.response.body', body => '' });
}

async sub _events ($scope, $send) {
    my ($last) = map { $_->[1] } grep { $_->[0] eq 'last-event-id' } @{ $scope->{headers} };
    await $send->({ type => 'sse.start' });
    for my $id (Pairs::Content::events($last)) {
        await $send->({ type => 'sse.send', id => $id, data => "event $id" });
    }
}

async sub _websocket ($scope, $receive, $send) {
    my $topic = $scope->{'pagi.topics'} && { topics => $scope->{'pagi.topics'}, send => $send };
    await $receive->();
    await $send->({ type => 'websocket.accept' });
    while ((my $event = await $receive->())->{type} =~ /\A(?:websocket\.receive|topic\.reset)\z/) {
        next if $topic && await _topic($topic, $event);
        my $kind = defined $event->{text} ? 'text' : 'bytes';
        await $send->({ type => 'websocket.send', $kind => $event->{$kind} });
    }
}

# With channels the messages `reads POSITION`, `publishes TEXT` and `place` are about a topic. A client that
# reads gets entries, and no answers except to `place`. Returns false if the message is none of these.
async sub _topic ($topic, $event) {
    my ($topics, $send) = @$topic{qw(topics send)};
    my $text = $event->{type} eq 'topic.reset' ? 'reset' : $event->{text} // '';
    my ($verb, $words) = $text =~ /\A(reads|publishes|place|reset)\b ?(.*)\z/s or return 0;
    my $answer = $verb;
    if ($verb eq 'reads') {
        $topic->{reads} = 1;
        await $send->({ type => 'topic.subscribe', topic => 'pairs', since => $words || undef });
        return 1 if $words;
    }
    elsif ($verb eq 'publishes') {
        # Expected: for a moment there may be no hub.
        my $place = eval { await $topics->publish(pairs => $words) };
        return 1 if $topic->{reads};
        $answer = $place ? "at $place" : 'failed';
    }
    elsif ($verb eq 'place') {
        # Expected: for a moment there may be no hub.
        my $place = eval { await $topics->position('pairs') };
        $answer = $place ? "at $place" : 'failed';
    }
    await $send->({ type => 'websocket.send', text => $answer });
    return 1;
}

# A thousand requests wait for one file. Only one of them looks at it, and leaves the processor to others.
async sub _wait_for ($name) {
    state %opened;
    return if Pairs::Content::is_open($name);
    $opened{$name} //= _opened($name)->on_ready(sub { delete $opened{$name} });
    await $opened{$name}->without_cancel;
}

async sub _opened ($name) {
    my $loop = IO::Async::Loop->new;
    do { await $loop->delay_future(after => 0.1) } until Pairs::Content::is_open($name);
    return;
}

1;
