# Held responses (GRIP) of frameworks and behind middleware that buffers or changes responses, with Redis as
# the store of the hub, to a client that never reads, and by the thousand that end at once.
# Not repeated for each PEREGRINE_ENGINE: its servers name their engines.
use strict;
use warnings;

use lib 't/lib';
use OnlyInFull qw(only_in_full);
use Test::More;
use TestClient qw(get);
use TestRedis;
use TestServer;
use TestStream;
use TestTools   qw(content wait_for);
use TestWorkers qw(children descriptors write_file);

plan skip_all => 'Linux only' if $^O ne 'linux';

# All applications below answer: /stream, /poll, /publish?COUNT,BYTES and /ping.
my $common = write_file('Common.pm', <<'PERL');
package Common;
use strict;
use warnings;
use Peregrine::Publisher;
my $publisher;
our %fields = (
    stream => [ 'Grip-Hold' => 'stream',   'Grip-Channel' => 'app.news; prev-id=client' ],
    poll   => [ 'Grip-Hold' => 'response', 'Grip-Channel' => 'app.news; prev-id=client' ],
);
our %types  = (stream => 'text/event-stream', map { $_ => 'text/plain' } qw(poll publish ping));
our %bodies = (
    stream  => sub { return ": begins\n\n" },
    poll    => sub { return 'nothing' },
    ping    => sub { return 'pong' },
    publish => sub {
        my ($count, $bytes) = split /,/, $_[0];
        $publisher ||= Peregrine::Publisher->of_server;
        return join ' ', map { $publisher->publish('app.news', 'x' x $bytes) } 1 .. $count;
    },
);
sub app {
    my ($env) = @_;
    my ($name) = $env->{PATH_INFO} =~ m{(\w+)\z};
    my $body   = $bodies{$name}->($env->{QUERY_STRING});
    return [ 200, [ 'Content-Type' => $types{$name}, @{ $fields{$name} || [] } ], [$body] ];
}
1;
PERL
my ($folder) = $common =~ m{(.*)/};

my %apps = (
    middleware => <<'PERL',
use Common;
use Plack::Builder;
my @types    = (content_type => [ 'text/plain', 'text/event-stream' ]);
my $deflates = eval { require Plack::Middleware::Deflater };    # Expected: it is not installed.
builder {
    mount '/length'   => builder { enable 'ContentLength'; \&Common::app };
    mount '/lint'     => builder { enable 'Lint'; \&Common::app };
    mount '/trace'    => builder { enable 'StackTrace', force => 1; \&Common::app };
    mount '/buffered' => builder {
        enable 'BufferedStreaming';
        enable 'SimpleContentFilter', filter => sub { s/begins/filtered/ };
        \&Common::app;
    };
    mount '/chunked' => builder { enable 'Chunked'; \&Common::app };
    mount '/deflate' => builder { enable 'Deflater', @types if $deflates; \&Common::app };
    mount '/skipped' => builder {
        enable 'Deflater', @types if $deflates;
        sub { $_[0]{'plack.skip-deflater'} = 1; Common::app($_[0]) };
    };
    mount '/' => \&Common::app;
};
PERL
    Mojolicious => <<'PERL',
use Mojolicious::Lite;
use Common;
for my $name (keys %Common::types) {
    get "/$name" => sub {
        my ($c) = @_;
        my @fields = @{ $Common::fields{$name} || [] };
        while (my ($field, $value) = splice @fields, 0, 2) { $c->res->headers->header($field => $value) }
        $c->res->headers->content_type($Common::types{$name});
        $c->render(data => $Common::bodies{$name}->($c->req->url->query->to_string));
    };
}
app->start;
PERL
    Dancer2 => <<'PERL',
package Own;
use Dancer2;
use Common;
for my $name (keys %Common::types) {
    get "/$name" => sub {
        my @fields = @{ $Common::fields{$name} || [] };
        while (my ($field, $value) = splice @fields, 0, 2) { response_header($field => $value) }
        content_type $Common::types{$name};
        return $Common::bodies{$name}->(request->env->{QUERY_STRING});
    };
}
Own->to_app;
PERL
    Catalyst => <<'PERL',
package Own::Controller::Root;
use Moose;
use Common;
BEGIN { extends 'Catalyst::Controller'; $INC{'Own/Controller/Root.pm'} = __FILE__ }
__PACKAGE__->config(namespace => '');
sub any : Path : Args(1) {
    my ($self, $c, $name) = @_;
    my @fields = @{ $Common::fields{$name} || [] };
    while (my ($field, $value) = splice @fields, 0, 2) { $c->res->header($field => $value) }
    $c->res->content_type($Common::types{$name});
    $c->res->body($Common::bodies{$name}->($c->req->uri->query));
}
package Own;
use Moose;
use Catalyst;
extends 'Catalyst';
$INC{'Own.pm'} = __FILE__;
sub locate_components { return 'Own::Controller::Root' }
__PACKAGE__->setup;
Own->psgi_app;
PERL
);

sub started {
    my ($name, @more) = @_;
    local $ENV{PERL5LIB} = join ':', $folder, split /:/, $ENV{PERL5LIB} // '';
    my @options = @more ? @more : '--channels';
    return TestServer->command_of(
        'peregrine', qw(--engine process --workers 1 --status 127.0.0.1:0),
        @options,
        qw(--grip app.),
        write_file("$name.psgi", $apps{$name})
    );
}

sub stream {
    my ($server, $path, @fields) = @_;
    return TestStream->open($server->port, $path, fields => [ 'Accept-Encoding: gzip', @fields ]);
}

sub poll {
    my ($server, $path, @fields) = @_;
    my $client = TestClient->new($server->port);
    return $client->send(join "\r\n", "GET $path HTTP/1.1", 'Host: a', @fields, '', '');
}

sub holds {
    my ($server, $count) = @_;
    my $port = $server->wait_for_log(qr{status at http://127\.0\.0\.1:(\d+)/});
    return wait_for(sub { get($port, '/metrics')->{body} =~ /^peregrine_responses_held $count$/m });
}

# A stream and a long poll get an entry.
sub is_held {
    my ($server, $mount, $begins) = @_;
    my $stream = stream($server, "$mount/stream");
    is $stream->block, ": $begins\n\n", "$mount/stream: the own content";
    my $poll = poll($server, "$mount/poll");
    ok holds($server, 2), 'both are held';
    my $place   = get($server->port, "$mount/publish?1,3")->{body};
    my $message = $stream->message;
    is_deeply [ @$message{qw(id data)} ], [ $place, 'xxx' ], 'the stream gets an entry';
    my $answer = $poll->response;
    is_deeply [ $answer->{body}, $answer->{header}{etag} ], [ 'xxx', qq("$place") ], 'and the long poll';
    $_->close for $stream, $poll;
    ok holds($server, 0), 'their clients leave: none is held';
    return;
}

subtest 'middleware' => sub {
    # Expected: it is not installed.
    plan skip_all => 'Plack::Middleware::Deflater is not installed'
        if !eval { require Plack::Middleware::Deflater };
    my $server = started('middleware');
    is_held($server, $_, $_ eq '/buffered' ? 'filtered' : 'begins')
        for '', qw(/length /lint /trace /buffered /skipped);
    for my $case ([ '/chunked', 'Transfer-Encoding: chunked' ], [ '/deflate', 'Content-Encoding: gzip' ]) {
        my ($mount, $field) = @$case;
        is stream($server, "$mount/$_")->head->{status}, 500, "$mount/$_ is refused" for qw(stream poll);
        ok $server->wait_for_log(qr{GET $mount/poll: .* a response with $field cannot be held}),
            'the log says why';
    }
    is $server->stop, 0, 'the server stops';
};

for my $framework ('Mojolicious', only_in_full('Dancer2', 'Catalyst')) {
    subtest $framework => sub {
        # Expected: it is not installed.
        plan skip_all => "$framework is not installed" if !eval "require $framework; 1";
        my $server = started($framework);
        is_held($server, '', 'begins');
        is $server->stop, 0, 'the server stops';
    };
}

subtest 'Redis as the store of the hub' => sub {
    my $redis = TestRedis->new or plan skip_all => 'redis-server is not installed';
    my $url   = 'redis://127.0.0.1:' . $redis->port . '?prefix=grip:';
    my @both  = map { started('middleware', '--channels', $url) } 1, 2;
    is_held($_, '', 'begins') for @both;
    my $stream = stream($both[0], '/stream');
    is $stream->block, ": begins\n\n", 'a stream';
    my ($first, $second) = split / /, get($both[1]->port, '/publish?2,3')->{body};
    is_deeply [ map { $stream->message->{id} } 1, 2 ], [ $first, $second ], 'gets entries of another server';
    $stream->close;
    my $back = stream($both[1], '/stream', "Last-Event-ID: $first");
    $back->block;
    is $back->message->{id}, $second, 'and goes on there';
    $redis->kill;
    is get($_->port, '/ping')->{status}, 200, 'without Redis other requests are answered' for @both;
    $redis->start;
    my $next;
    my $is_there = wait_for(sub {
        my $answer = get($both[0]->port, '/publish?1,3');
        $next = $answer->{body};
        return $answer->{status} == 200;
    });
    ok $is_there, 'Redis is there again';
    is $back->message->{id}, $next, 'the stream goes on, too';
    is $_->stop,             0,     'the server stops' for @both;
};

subtest 'a client that never reads' => sub {
    my $server = started('middleware', '--channels', '--topics-history-size', '64K');
    my $stuck  = TestStream->open($server->port, '/stream', receive_buffer => 65_536);
    my $fast   = stream($server, '/stream');
    is $_->block, ": begins\n\n", 'a stream' for $stuck, $fast;
    my ($last, @others);
    # More than the sockets take, and then more than the history.
    for (1 .. only_in_full(400) || 200) {
        for my $place (split / /, get($server->port, '/publish?2,16000')->{body}) {
            $last = $fast->message->{id};
            push @others, $last if $last ne $place;
        }
    }
    is_deeply \@others, [], 'another stream has all entries';
    my ($reset, $message);
    while ($message = $stuck->message) {
        $reset ||= ($message->{event} // '') eq 'reset';
        last if ($message->{id} // '') eq $last;
    }
    ok $reset, 'the client reads at last: a reset, as the history is shorter';
    is $message->{id}, $last, 'and the last entry';
    my $gone = stream($server, '/stream');
    $gone->block;
    get($server->port, '/publish?2,16000') for 1 .. 200;
    ok holds($server, 3), 'one more that does not read';
    $_->close for $stuck, $fast, $gone;
    ok holds($server, 0), 'all are freed when their clients leave';
    is $server->stop, 0, 'the server stops';
};

subtest 'thousands that end at once' => sub {
    my $server   = started('middleware');
    my ($engine) = grep { (content("/proc/$_/cmdline") // '') =~ /\(engine\)/ } children($server->pid);
    my ($before) = split / /, get($server->port, '/publish?2,10')->{body};
    my $flood    = sub {
        my ($times) = @_;
        my $other = 0;
        my $client;
        # An entry is there already.
        for (1 .. $times) {
            my $request = qq(GET /poll HTTP/1.1\r\nHost: a\r\nIf-None-Match: "$before"\r\n\r\n);
            $client ||= TestClient->new($server->port);
            $other++ if $client->send($request)->response->{body} ne 'x' x 10;
        }
        $client->close;
        # Clients leave as soon as their streams have begun.
        for (1 .. $times / 10) {
            my $stream = stream($server, '/stream');
            $other++ if $stream->block ne ": begins\n\n";
            $stream->reset;
        }
        return $other;
    };
    my $kilobytes = sub { return content("/proc/$engine/status") =~ /^RssAnon:\s+(\d+)/m ? $1 : -1 };
    my $times     = only_in_full(500) || 150;
    is $flood->($times), 0, 'long polls whose entry is there, and streams whose clients leave';
    ok holds($server, 0), 'none is held';
    my $open    = keys %{ { descriptors($engine) } };
    my $settled = $kilobytes->();
    is $flood->(4 * $times), 0, 'four times as many';
    ok holds($server, 0), 'none is held';
    cmp_ok $kilobytes->(), '<', $settled + 400, "the engine's memory does not grow (KiB)";
    ok wait_for(sub { keys %{ { descriptors($engine) } } <= $open }), 'nor do its descriptors';
    is $server->stop, 0, 'the server stops';
};

done_testing;
