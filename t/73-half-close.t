# A client that ends its side in the middle of a request (TCP FIN): its application is told at once, and what
# it sends still goes out.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use Future;
use Future::AsyncAwait;
use IO::Async::Loop;
use Certificates;
use PAGI::Server;
use IO::Socket::INET;
use Socket qw(IPPROTO_TCP SOL_SOCKET SO_LINGER);
use Test::More;
use TestClient qw(get);
use TestServer;
use TestStream;
use TestTools qw(wait_for);

sub start { return $_[0]->({ type => 'http.response.start', status => 200, headers => [ @_[ 1 .. $#_ ] ] }) }
sub body  { return $_[0]->({ type => 'http.response.body',  body   => $_[1], more => $_[2] }) }
sub later    { return IO::Async::Loop->new->delay_future(after => $_[0] || 0.05) }
sub say_line { print STDERR @_, "\n"; return }

# Not written where they are used: Future::AsyncAwait 0.63 loses a folded constant in a loop
# that it has resumed.
my $piece  = 'x' x 100_000;
my $pieces = 50;
my $large  = join '', map { "$_\n" } 1 .. 200_000;

my $file = File::Temp->new;
print {$file} $large;
$file->flush;

# The events about the end of its request that the application gets, in order.
my %seen;

# Registers for every way to be told, and waits for the first.
async sub watch {
    my ($scope)    = @_;
    my $connection = $scope->{'pagi.connection'};
    my $told       = $seen{ $scope->{query_string} } = [];
    $connection->disconnect_future->on_done(
        sub { push @$told, "future $_[0] " . ($connection->is_connected ? 'connected' : 'gone') });
    $connection->on_disconnect(sub { push @$told, "disconnected $_[0] " . $connection->disconnect_reason });
    $connection->on_complete(sub { push @$told, 'completed' });
    await $connection->disconnect_future;
    return $told;
}

# The two ends of a TCP connection.
sub connected {
    my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen   => 1)                   or return;
    my $far      = IO::Socket::INET->new(PeerAddr  => '127.0.0.1', PeerPort => $listener->sockport) or return;
    return (scalar $listener->accept, $far);
}

# Makes the other end fail to read.
sub reset_socket {
    my ($socket) = @_;
    setsockopt $socket, SOL_SOCKET, SO_LINGER, pack 'ii', 1, 0 or die "linger: $!\n";
    close $socket;
    return;
}

my %handlers = (
    '/at-once' => async sub { await start($_[2]); await body($_[2], 'at once') },
    '/later' => async sub { my $send = $_[2]; await later(); await start($send); await body($send, 'later') },
    '/told'  => async sub {
        my ($scope, $receive, $send) = @_;
        my $told = await watch($scope);
        await start($send);
        await body($send, 'told', 1);
        await later();
        push @$told, 'wrong events: ' . join ' ',
            map { $_->state } start($send), $send->({}), body($send, "\x{100}"), $send->([]);
        for my $number (1 .. 3) { push @$told, 'read: ' . (await $receive->())->{type} }
        await body($send, ' all');
        push @$told, 'last: ' . $scope->{'pagi.connection'}->response_complete;
    },
    '/receive' => async sub {
        my ($scope, $receive, $send) = @_;
        my $told = $seen{ $scope->{query_string} } = [];
        say_line("$scope->{query_string} began");
        my $event;
        do {
            $event = await $receive->();
            push @$told,
                $event->{type}
                . (exists $event->{body} ? ' ' . length($event->{body}) . " more=$event->{more}" : '');
        } while $event->{type} eq 'http.request';
        await start($send);
        await body($send, 'received');
    },
    # Reads the body when the test has opened the gate.
    '/reads-late' => async sub {
        my ($scope, $receive, $send) = @_;
        say_line("$scope->{query_string} began");
        await watch($scope);
        my ($length, $event) = (0);
        do { $event = await $receive->(); $length += length($event->{body} // '') }
            while $event->{type} eq 'http.request' && $event->{more};
        my $last = await $receive->();
        say_line("$scope->{query_string} read $event->{type} $length");
        await start($send);
        await body($send, "$event->{type} $length $last->{type}");
    },
    '/stream' => async sub {
        my ($scope, $receive, $send) = @_;
        await watch($scope);
        await start($send);
        for my $number (1 .. $pieces) { await body($send, $piece, 1) }
        await body($send, 'end');
    },
    '/file' => async sub {
        my ($scope, $receive, $send) = @_;
        await watch($scope);
        await start($send);
        await $send->({ type => 'http.response.body', file => "$file" });
    },
    '/pipe' => async sub {
        my ($scope, $receive, $send) = @_;
        await watch($scope);
        pipe my $reader, my $writer or die "pipe: $!";
        $writer->autoflush(1);
        print {$writer} 'from ';
        await start($send);
        my $sent = $send->({ type => 'http.response.body', fh => $reader });
        await later();
        print {$writer} 'a pipe';
        close $writer;
        await $sent;
    },
    '/quiet-pipe' => async sub {
        my ($scope, $receive, $send) = @_;
        pipe my $reader, my $writer or die "pipe: $!";
        await start($send);
        my $sent = $send->({ type => 'http.response.body', fh => $reader });
        say_line('the pipe is quiet');
        await $sent;
        say_line('the quiet pipe is left');
    },
    # A socket that cannot be read any more behind the client's end.
    '/broken' => async sub {
        my ($scope, $receive, $send) = @_;
        my ($near, $far) = connected();
        syswrite $far, 'half';
        await start($send, [ 'content-length', 100 ]);
        my $sent = $send->({ type => 'http.response.body', fh => $near });
        say_line('the socket is quiet');
        await watch($scope);
        reset_socket($far);
        eval { await $sent };
        say_line(join ' ', 'broken:', $sent->state, $sent->failure // ());
    },
    '/returns' => async sub { await watch($_[0]); return },
    '/dies'    => async sub { await watch($_[0]); die "after the end\n" },
    '/half'    => async sub {
        my ($scope, $receive, $send) = @_;
        await start($send);
        await body($send, 'half', 1);
        await watch($scope);
        return;
    },
    '/polls' => async sub {
        my ($scope) = @_;
        say_line("$scope->{query_string} began");
        while ($scope->{'pagi.connection'}->is_connected) { await later(0.01) }
        say_line("$scope->{query_string} polled");
    },
    '/waits' => async
        sub { my ($scope) = @_; await watch($scope); say_line("$scope->{query_string} waited") },
    # Sends as long as there is somebody, and does not look.
    '/endless' => async sub {
        my ($scope, $receive, $send) = @_;
        my $connection = $scope->{'pagi.connection'};
        $connection->on_disconnect(sub { say_line("$scope->{query_string} disconnected: $_[0]") });
        await start($send);
        while (1) {
            await body($send, $piece, 1);
            await later(0.01);
            say_line("$scope->{query_string} holds ", $scope->{'pagi.transport'}->buffered_amount);
        }
    },
    '/seen' => async
        sub { await start($_[2]); await body($_[2], join "\n", @{ $seen{ $_[0]{query_string} } }) },
);

my %streams = (
    '/told' => async sub {
        my ($scope, $receive, $send) = @_;
        my $told = $seen{stream} = [];
        my $event;
        await $send->({ type => 'sse.start' });
        await $send->({ type => 'sse.send', data => 'first' });
        do {
            $event = await $receive->();
            push @$told, join ' ', grep { defined } @{$event}{qw(type reason)};
        } while $event->{type} eq 'sse.request';
        await $send->({ type => 'sse.send', data => 'second' });
        await later();
        push @$told, 'wrong events: ' . join ' ', map { $_->state } $send->({ type => 'sse.start' }),
            $send->({});
        await $send->({ type => 'sse.send', data => 'third' });
    },
    '/dies' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->({ type => 'sse.start' });
        await $send->({ type => 'sse.send', data => 'first' });
        1 while (await $receive->())->{type} eq 'sse.request';
        die "after the end of a stream\n";
    },
    '/declines' => async sub {
        my ($scope, $receive, $send) = @_;
        1 while (await $receive->())->{type} eq 'sse.request';
        await $send->({ type => 'sse.http.response.start', status => 404 });
        await $send->({ type => 'sse.http.response.body',  body   => 'not here' });
    },
    '/waits' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->({ type => 'sse.start' });
        1 while (await $receive->())->{type} eq 'sse.request';
        say_line('stream waited');
    },
);

my %options = (
    app => sub {
        my ($scope) = @_;
        die "no lifespan\n" if $scope->{type} eq 'lifespan';
        return ($scope->{type} eq 'sse' ? \%streams : \%handlers)->{ $scope->{path} }->(@_);
    },
    limits => { write_ms => 1000 },
);
my $server = TestServer->start(%options);
my $port   = $server->port;

my %tls;    # for requests over TLS

sub request {
    my ($line, %options) = @_;
    my $version = delete $options{version} || '1.1';
    my $extra   = delete $options{extra}   || '';
    my $client  = TestClient->new($port, %tls, %options);
    return $client->send("$line HTTP/$version\r\nHost: h\r\n$extra\r\n" . ($options{body} // ''));
}

# The body of the next response; undef if there is none.
sub body_of { my ($client) = @_; return ($client->response || {})->{body} }

sub seen { return [ split /\n/, body_of(request("GET /seen?$_[0]")) // '' ] }

# Like `seen`, after the application has got http.disconnect.
sub last_seen {
    my ($name) = @_;
    my $seen;
    wait_for(sub { $seen = seen($name); return @$seen && $seen->[-1] eq 'http.disconnect' });
    return $seen;
}

my @left = ('future client_closed gone', 'disconnected client_closed client_closed');

sub answers {
    my ($name) = @_;
    is(body_of(request('GET /at-once?x')->half_close), 'at once', "$name: an answer at once arrives");
    is(body_of(request('GET /later?x')->half_close),   'later',   '... one that takes its time as well');
    my $client = request('GET /told?told')->half_close;
    is(body_of($client), 'told all', '... and one that comes after the application was told');
    is($client->rest,    '',         '... then the connection is closed');
    is_deeply(
        seen('told'),
        [
            @left,
            'wrong events: done done done done',
            'read: http.request',
            'read: http.disconnect',
            'read: http.disconnect',
            'last: 1'
        ],
        '... in the order of the specification, and of no other end'
    );
    return;
}

subtest 'http' => sub {
    answers('HTTP/1.1');
    my $client = request('GET /receive?receive')->half_close;
    is(body_of($client), 'received', 'an answer after http.disconnect arrives');
    is_deeply(
        seen('receive'),
        [ 'http.request 0 more=0', 'http.disconnect' ],
        '... which came behind the request'
    );
    is(request('GET /told?http10', version => '1.0')->half_close->rest =~ s/.*\r\n\r\n//sr,
        'told all', 'HTTP/1.0 gets its answer');
    is(request('HEAD /told?head')->half_close->response(head => 1)->{status}, 200, 'and so does HEAD');
};

subtest 'the request has a body' => sub {
    my $body   = 'b' x 300;
    my %length = (extra => "Content-Length: 300\r\n", body => $body);
    is(
        body_of(request('POST /reads-late?late', %length)->half_close),
        'http.request 300 http.disconnect',
        'what came before the end can be read after it'
    );
    is(body_of(request('POST /receive?whole', %length)->half_close), 'received', 'a whole one is read');
    is_deeply(
        seen('whole'),
        [ 'http.request 300 more=0', 'http.disconnect' ],
        '... and then comes the disconnect'
    );
    for my $framing ("Content-Length: 301\r\n", "Transfer-Encoding: chunked\r\n") {
        my $name   = $framing =~ /chunked/ ? 'half-chunked'     : 'half';
        my $sent   = $framing =~ /chunked/ ? "12c\r\n$body\r\n" : $body;
        my $client = request("POST /receive?$name", extra => $framing, body => $sent);
        # A request that is cut short before its application begins is never given to the application.
        $server->wait_for_log(qr/^$name began$/m);
        $client->half_close->rest;
        my $seen = last_seen($name);
        is($seen->[-1], 'http.disconnect', 'a body that ends too early ends with a disconnect');
        unlike("@$seen", qr/more=0/, '... and never looks complete');
    }
};

# A request whose application is called before the first byte of its body is sent.
sub upload {
    my ($name, $path, $length) = @_;
    my $client = request("POST $path?$name", extra => "Content-Length: $length\r\n");
    ok($server->wait_for_log(qr/^$name began$/m), "$name: an application does not read the body");
    return $client->send('b' x 50_000)->half_close;
}

subtest 'the end is behind a body that is not read' => sub {
    my $client = upload('unread', '/polls', 50_000);
    ok($server->wait_for_log(qr/^unread polled$/m), '... and is told of the end behind it');
    $client = upload('read-late', '/reads-late', 50_000);
    is(body_of($client), 'http.request 50000 http.disconnect', '... may read it then');
    is_deeply(seen('read-late'), \@left, '... and comes to no other end');
    $client = upload('cut-short', '/reads-late', 50_001);
    $client->rest;
    ok($server->wait_for_log(qr/^cut-short read http\.disconnect 50000$/m),
        '... learns then that it is cut short');
    is_deeply(seen('cut-short'), \@left, '... and comes to no other end');
};

subtest 'a request that the end cuts short' => sub {
    my $half   = "POST /receive?x HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhalf";
    my $client = request('GET /later?x')->send($half)->half_close;
    is(body_of($client), 'later', 'requests before it are answered');
    is($client->rest,    '',      '... and it is not');
    $client = request('GET /later?x')->send('GET /half-a-hea')->half_close;
    is(body_of($client), 'later', 'half a head');
    $client = TestClient->new($port)->send($half =~ s/receive/at-once/r)->half_close;
    is(body_of($client), 'at once', 'an application that does not care answers it');
    is($client->rest,    '',        '... then the connection is closed');
    ok(!$client->was_reset, '... in order');
};

subtest 'bodies of every kind' => sub {
    my $client = request('GET /stream?x', receive_buffer => 65_536)->half_close;
    is(length body_of($client),                     $pieces * length($piece) + 3, 'a streamed body arrives');
    is(body_of(request('GET /file?x')->half_close), $large,                       'a file arrives');
    is(body_of(request('GET /pipe?x')->half_close), 'from a pipe',                'a pipe arrives');
    $client = request('GET /quiet-pipe?x')->half_close;
    $server->wait_for_log(qr/^the pipe is quiet$/m);
    is($client->some(0.2) =~ s/.*\r\n\r\n//sr, '', 'a quiet one is waited for');
    $client->reset;
    ok($server->wait_for_log(qr/^the quiet pipe is left$/m), '... as long as the client is there');
};

subtest 'a body that cannot be read to its end' => sub {
    my $client = request('GET /broken?x');
    ok($server->wait_for_log(qr/^the socket is quiet$/m), 'half of it is there');
    my $text = $client->some(1);
    $text .= $client->some(1) if $text !~ /half\z/;
    like($text, qr/half\z/, '... and arrives');
    $client->half_close;
    ok($server->wait_for_log(qr/^broken: done$/m),
        'that it fails after the client\'s end is no failure of $send');
    is($client->rest, '', '... and the client gets no more');
};

subtest 'pipelined requests' => sub {
    for my $path (qw(at-once later told)) {
        my $client =
            TestClient->new($port)->send("GET /$path?first HTTP/1.1\r\nHost: h\r\n\r\n" x 3)->half_close;
        my @bodies = map { body_of($client) } 1 .. 3;
        is_deeply(
            \@bodies,
            [ ({ 'at-once' => 'at once', later => 'later', told => 'told all' }->{$path}) x 3 ],
            "$path: all are answered"
        );
        is($client->rest, '', '... then the connection is closed');
    }
};

subtest 'an application that does not answer' => sub {
    for my $path (qw(returns dies)) {
        my $client = request("GET /$path?$path")->half_close;
        is($client->rest, '', "$path: the connection is closed");
        is_deeply(seen($path), \@left, '... and the application knows why');
    }
    my $client = request('GET /half?half')->half_close;
    like($client->rest, qr/half/, 'bytes that it sent before it gave up arrive');
    unlike($client->rest // '', qr/^0\r\n/m, '... and does not look complete');
    is(body_of(request('GET /later?x')->half_close), 'later', 'the next one is served');
    unlike($server->log, qr/application (?:died|ended)/, 'that the application gave up is nobody\'s error');
};

subtest 'event streams' => sub {
    my $stream = TestStream->open($port, '/told')->half_close;
    is_deeply([ map { ($stream->message || {})->{data} } 1 .. 3 ],
        [qw(first second third)], 'all messages arrive');
    is($stream->ending, 'terminated', '... and the end of the stream');
    is_deeply(
        seen('stream'),
        [ 'sse.request', 'sse.disconnect client_closed', 'wrong events: done done' ],
        '... the application was told'
    );
    $stream = TestStream->open($port, '/dies')->half_close;
    is(($stream->message || {})->{data}, 'first', 'a stream whose application dies of that');
    is($stream->ending,                  'cut',   '... is cut');
    unlike($server->log, qr/application (?:died|ended)/, '... and that is nobody\'s error');
    is(body_of(TestStream->open($port, '/declines')->half_close), 'not here', 'a response instead arrives');
};

# Connections of the server whose client has gone.
sub forgotten {
    my $local = sprintf '0100007F:%04X', $port;
    open my $sockets, '<', '/proc/net/tcp' or die "/proc/net/tcp: $!";
    return scalar grep { my @field = split; $field[1] eq $local && $field[3] eq '08' } <$sockets>;
}

subtest 'clients that have gone altogether' => sub {
    for my $what (qw(poll wait)) {
        my @clients = map { request("GET /${what}s?gone") } 1 .. 100;
        $_->close for @clients;
        ok(wait_for(sub { return 100 == (() = $server->log =~ /^gone ${what}ed$/mg) }),
            "$what: 100 applications end");
        ok(wait_for(sub { return !forgotten() }), '... and no connection stays');
        is(forgotten(), 0, '... in CLOSE-WAIT');
    }
    my @streams = map { TestStream->open($port, '/waits') } 1 .. 100;
    $_->close for @streams;
    ok(wait_for(sub { return 100 == (() = $server->log =~ /^stream waited$/mg) }),
        'streams: 100 applications end');
    ok(wait_for(sub { return !forgotten() }), '... and no connection stays');
    my $client = request('GET /endless?gone')->half_close;
    ok($server->wait_for_log(qr/^gone disconnected: client_closed$/m), 'a sender without end is told');
    $client->close;
    ok(wait_for(sub { return !forgotten() }), '... and its connection ends with what it sends next');
};

subtest 'a client that does not read' => sub {
    my $client = request('GET /endless?deaf', receive_buffer => 65_536)->half_close;
    ok($server->wait_for_log(qr/^deaf disconnected: client_closed$/m), 'its application is told');
    my $local = sprintf '0100007F:%04X', $port;
    my $far   = sprintf '0100007F:%04X', $client->socket->sockport;
    ok(
        wait_for(sub {
            open my $sockets, '<', '/proc/net/tcp' or die "/proc/net/tcp: $!";
            return !grep { /\Q$local $far\E/ } <$sockets>;
        }),
        '... and write_timeout cuts it'
    );
    my ($most) = sort { $b <=> $a } $server->log =~ /^deaf holds (\d+)$/mg;
    cmp_ok($most // 0, '<', 1_000_000, '... with little held for it until then');
};

# Sends two requests, the second with a body, and the end of the sending side in one flight. Returns the
# bodies of their answers.
sub one_flight {
    my ($client, $length, $body) = @_;
    my $cork = 3;    # TCP_CORK
    setsockopt $client->socket, IPPROTO_TCP, $cork, pack 'i', 1;
    $client->send("GET /later?flight HTTP/1.1\r\nHost: h\r\n\r\n");
    $client->send("POST /receive?flight HTTP/1.1\r\nHost: h\r\nContent-Length: $length\r\n\r\n$body");
    $client->half_close;
    setsockopt $client->socket, IPPROTO_TCP, $cork, pack 'i', 0;
    return map { body_of($client) } 1 .. 2;
}

sub flights {
    my $body = 'b' x 40_000;
    is_deeply(
        [ one_flight(TestClient->new($port, %tls), 40_000, $body) ],
        [ 'later', 'received' ],
        'requests and the end in one flight are answered'
    );
    is_deeply(
        [ one_flight(TestClient->new($port, %tls), 5, 'half') ],
        [ 'later', undef ],
        '... but for one that the end cuts short'
    );
    return;
}
flights();

sub ends_well {
    is($server->stop, 0, 'the server ends well');
    unlike($server->log, qr/application (?:died|ended)|callback|uninitialized/, 'without complaints')
        or diag $server->log;
    return;
}
ends_well();

SKIP: {
    skip 'built without TLS' if !PAGI::Server->has_tls;
    my $files = Certificates->new;
    $files->authority('ca')->issue('localhost');
    $server = TestServer->start(%options, ssl => { $files->pair('localhost') });
    $port   = $server->port;
    %tls    = (tls => {});
    answers('TLS');
    flights();
    my $client =
        TestClient->new($port, %tls)
        ->send("POST /receive?short HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhalf");
    $server->wait_for_log(qr/^short began$/m);
    $client->half_close->rest;
    my $seen = last_seen('short');
    is($seen->[-1], 'http.disconnect', 'a body that close_notify cuts short ends with a disconnect');
    unlike("@$seen", qr/more=0/, '... and does not look complete');
    ends_well();
}

subtest 'a body from a handle that gives nothing' => sub {
    my $quiet = TestServer->start(
        app => async sub {
            my ($scope, $receive, $send) = @_;
            die if $scope->{type} ne 'http';
            my ($near, $far) = connected();
            syswrite $far, 'half';
            await start($send);
            my $sent = $send->({ type => 'http.response.body', fh => $near });
            await watch($scope);
            if ($scope->{path} eq '/late') {
                await later(0.3);
                syswrite $far, ' and the rest';
                close $far;
            }
            await $sent;
            say_line("$scope->{path}: " . $sent->state);
        },
        write_timeout => 1,
    );
    my %answer;
    for my $path ('/late', '/never') {
        my $client = TestClient->new($quiet->port)->send("GET $path HTTP/1.0\r\n\r\n");
        $client->half_close;
        $answer{$path} = $client->rest;
        ok($quiet->wait_for_log(qr/^$path: done$/m), "$path: the send ends");
    }
    like(
        $answer{'/late'},
        qr/half and the rest\z/,
        'what comes within write_timeout is sent to a client that still reads'
    );
    unlike($answer{'/never'}, qr/rest/, 'no client waits for ever');
    is($quiet->stop, 0, 'the server ends well');
};

done_testing;
