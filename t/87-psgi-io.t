# psgix.io: applications of PSGI that speak on the connection of a WebSocket handshake themselves.
use strict;
use warnings;

use lib 't/lib';
use Certificates;
use IO::Async::Loop;
use IO::Async::Stream;
use Peregrine;
use Test::More;
use TestClient qw(exchange get);
use TestServer;
use TestTools qw(not_repeated wait_for);
use TestWebSocket;

my $answer = join "\r\n", 'HTTP/1.1 101 Switching Protocols', 'Upgrade: websocket', 'Connection: Upgrade',
    'Sec-WebSocket-Accept: ' . TestWebSocket::accept_key(), '', '';
my $megabytes = 'x' x 3_000_000;

# Echoes by blocking calls, as an application does that Starman serves.
sub blocking_echo {
    my ($io) = @_;
    syswrite $io, $answer;
    while (sysread $io, my $bytes, 65_536) {
        while (length $bytes) { substr $bytes, 0, syswrite($io, $bytes) // return, '' }
    }
    warn "its client has gone\n";
    return;
}

# Like `echo`, but waits in the event loop.
sub waiting_echo {
    my ($io) = @_;
    my $stream = IO::Async::Stream->new(
        handle  => $io,
        on_read => sub {
            my ($self, $buffer, $eof) = @_;
            $self->write(substr $$buffer, 0, length $$buffer, '') if length $$buffer;
            warn "its client has gone\n"                          if $eof;
            return 0;
        },
    );
    TestServer::running()->loop->add($stream);
    $stream->write($answer);
    return;
}

# A WebSocket by Protocol::WebSocket on psgix.io, which ends with a message "bye".
sub messages {
    my ($env) = @_;
    my $io = $env->{'psgix.io'};
    require Protocol::WebSocket::Handshake::Server;
    my $handshake = Protocol::WebSocket::Handshake::Server->new_from_psgi($env);
    $handshake->parse('') && $handshake->is_done or die 'no handshake: ' . $handshake->error;
    print {$io} $handshake->to_string;
    my $frame = $handshake->build_frame;
    while (sysread $io, my $bytes, 4096) {
        $frame->append($bytes);
        while (defined(my $message = $frame->next)) {
            print {$io} $handshake->build_frame(buffer => "you said $message")->to_bytes;
            close $io if $message eq 'bye';
        }
    }
    return;
}

my %answers = (
    '/'         => sub { [ 200, [ 'Content-Type' => 'text/plain' ], [ $_[0]{'psgix.io'} ? 'io' : 'none' ] ] },
    '/blocking' => sub { blocking_echo($_[0]{'psgix.io'}) },
    '/waiting'  => sub {
        my ($env) = @_;
        return sub { waiting_echo($env->{'psgix.io'}) }
    },
    '/messages' => \&messages,
    '/copy'     => sub {
        my %copy = %{ $_[0] };
        return [ 404, [], [ 'copy of ', ref $copy{'psgix.io'} ] ];
    },
    '/late' => sub {
        return sub {
            my ($respond) = @_;
            IO::Async::Loop->new->watch_time(
                after => 0.05,
                code  => sub { $respond->([ 200, [], ['late'] ]) }
            );
        };
    },
    '/nothing' => sub {
        return sub { }
    },
    '/raw' => sub {
        syswrite $_[0]{'psgix.io'}, "HTTP/1.1 418 I'm a teapot\r\nContent-Length: 3\r\n\r\ntea";
        return [ 200, [], ['not this one'] ];
    },
    '/much' => sub { my $io = $_[0]{'psgix.io'}; print {$io} $answer, $megabytes; [] },
);
my $app = sub { my ($env) = @_; return $answers{ $env->{PATH_INFO} }->($env) };

sub server {
    my (%options) = @_;
    return TestServer->start(
        psgi              => 1,
        app               => $app,
        access_log        => *STDERR,
        access_log_format => 'access %s %U',
        %options
    );
}

# Echoes in both directions, at once and bit by bit, and ends from both sides.
sub check_echo {
    my ($port, $path, %options) = @_;
    my $socket = TestWebSocket->open($port, $path, %options);
    my $client = $socket->{client};
    is $client->send('hello')->_bytes(5), 'hello', 'bytes come back';
    if ($options{tls}) {
        my $piece = 'x' x 100_000;
        is scalar(grep { $client->send($piece)->_bytes(length $piece) eq $piece } 1 .. 20), 20,
            '... millions of them, bit by bit';
        return $client;
    }
    my $pid = fork // die "fork: $!";
    if (!$pid) {
        $client->send($megabytes);
        POSIX::_exit(0);
    }
    is $client->_bytes(length $megabytes), $megabytes, '... millions of them';
    waitpid $pid, 0;
    return $client;
}

# Checks that each placement passes.
sub check_all {
    my ($server, $path, %options) = @_;
    my $port = $server->port;
    is get($port, '/')->{body}, 'none', 'without a handshake there is no psgix.io' if !$options{tls};
    my $client = check_echo($port, $path, %options);
    $client->close;
    ok $server->wait_for_log(qr/its client has gone/),     'the application reads the end of its client';
    ok $server->wait_for_log(qr{^access 101 \Q$path\E$}m), '... and the access log has the request';

    my $start = sub { TestWebSocket->start($port, @_, %options) };
    is $start->('/')->answer->{body},     'io',                       'an ordinary response';
    is $start->('/copy')->answer->{body}, 'copy of IO::Socket::UNIX', '... after the environment was copied';
    is eval { $start->("/nothing")->answer->{status} }, 500,          'neither a response nor a byte';
    ok $server->wait_for_log(qr/gave no response, nor spoke on psgix\.io/), '... is told';
    my $raw = $start->('/raw');
    is eval { $raw->answer->{status} }, 418,
        'bytes that the application writes itself are the answer, not its return value';
    is $raw->{client}->rest // '', '', '... and the end of its socket the end of the connection';
    ok $server->wait_for_log(qr{^access 418 /raw$}m), '... of which the access log has the status';
    return if $options{tls};
    is $start->('/late')->answer->{body}, 'late', 'a response that comes late';
    return;
}

my %placements = (
    inline => [ '/waiting', {} ],
    not_repeated(
        thread  => [ '/blocking', { engine => 'thread' } ],
        process => [ '/blocking', { engine => 'process', workers => 1 } ],
        clone   => [ '/blocking', { engine => 'thread',  workers => 1 } ],
    )
);

for my $placement (sort keys %placements) {
    my ($path, $options) = @{ $placements{$placement} };
    subtest $placement => sub {
        my $server = server(%$options);
        check_all($server, $path);
        is $server->stop, 0, 'the server stops';
        unlike $server->log, qr/panic|Attempt to free|assert/, 'nothing else in the log';
    };
    subtest "$placement, TLS" => sub {
        plan skip_all => 'built without TLS' if !Peregrine::has_tls();
        my $files  = Certificates->new->authority('ca')->issue('server', subject => '/CN=localhost');
        my $server = server(%$options, ssl => { $files->pair('server') });
        check_all($server, $path, tls => {});
        my $gone   = () = $server->log =~ /its client has gone/g;
        my $client = TestWebSocket->open($server->port, $path, tls => {})->{client};
        open my $raw, '>&', fileno $client->socket or die "dup: $!";
        syswrite $raw, 'this is no record of TLS';
        ok wait_for(sub { $gone < (() = $server->log =~ /its client has gone/g) }),
            'a broken TLS session ends';
        close $raw;
        $client->close;
        is $server->stop, 0, 'the server stops';
    };
}

subtest 'Protocol::WebSocket' => sub {
    plan skip_all => 'needs Protocol::WebSocket' if !eval { require Protocol::WebSocket };
    my $server = server(engine => 'process', workers => 1);
    my $socket = TestWebSocket->open($server->port, '/messages');
    is $socket->answer->{header}{'sec-websocket-accept'}, TestWebSocket::accept_key(), 'its handshake';
    is $socket->text('hello')->next,                      'text you said hello',       'a message';
    is $socket->text('bye')->next,                        'text you said bye',         'another one';
    is $socket->next,                                     'end',                       '... and the end';
    $socket->{client}->close;
    is $server->stop, 0, 'the server stops';
};

subtest 'a client that reads slowly' => sub {
    my $server = server(engine => 'process', workers => 1);
    my $slow   = TestWebSocket->open($server->port, '/much', receive_buffer => 65_536);
    select undef, undef, undef, 0.3;
    is length $slow->{client}->rest, length $megabytes, 'gets all of it, and then the end';
    $slow->{client}->close;
    is $server->stop, 0, 'the server stops';
};

subtest 'a server that stops' => sub {
    my $server = server(engine => 'process', workers => 1, shutdown_timeout => 30);
    my $socket = TestWebSocket->open($server->port, '/blocking');
    is $socket->{client}->send('x')->_bytes(1), 'x', 'an application at work';
    $server->signal('TERM');
    ok $server->wait_for_log(qr/its client has gone/), '... reads the end of its client';
    is $socket->{client}->rest, '', '... and ends its own';
    $socket->{client}->close;
    is $server->wait, 0, '... and so the server stops';
};

done_testing;
