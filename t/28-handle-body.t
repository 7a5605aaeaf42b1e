# Response bodies from handles that are no files: pipes, sockets, devices, files of /proc, in-memory and tied
# handles.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use Future;
use Future::AsyncAwait;
use IO::Async::Loop;
use PAGI::Server::HandleBody;
use POSIX  qw(uname);
use Socket qw(AF_UNIX PF_UNSPEC SOCK_STREAM);
use Symbol qw(gensym);
use Test::More;
use TestClient qw(get);
use TestServer;

package Tied {
    sub TIEHANDLE { my ($class, @pieces) = @_; return bless \@pieces, $class }

    sub READ {
        my ($self, undef, $size) = @_;
        my $piece = shift(@$self) // '';
        die "no more of this\n" if $piece eq 'die';
        $_[1] = $piece;
        return length $piece;
    }
}

sub later    { return IO::Async::Loop->new->delay_future(after => $_[0]) }
sub say_line { print STDERR @_, "\n"; return }

sub tied_handle { my @pieces = @_; my $glob = gensym; tie *$glob, 'Tied', @pieces; return $glob }

sub pipe_of {
    my (@pieces) = @_;
    pipe my $reader, my $writer or die "pipe: $!";
    $writer->autoflush(1);
    print {$writer} @pieces;
    return ($reader, $writer);
}

# A descriptor that is no pipe, socket or device, and says EAGAIN: eventfd2(0, EFD_NONBLOCK).
sub event_counter {
    my $number = syscall((uname())[4] eq 'aarch64' ? 19 : 290, 0, oct '4000');
    open my $fh, '+<&=', $number or die "eventfd2: $!";
    return $fh;
}

sub memory { my ($text) = @_; open my $fh, '<', \$text or die $!; return $fh }

sub opened { my ($mode, $path) = @_; open my $fh, $mode, $path or die "$path: $!"; return $fh }

my $large = join '', map { "$_\n" } 1 .. 100_000;

# Fields of a body event, and the content that the client gets.
my %good = (
    'a pipe'           => [ sub { return fh => (pipe_of("one\ntwo\n"))[0] },              "one\ntwo\n" ],
    'a part of a pipe' => [ sub { return fh => (pipe_of("one\ntwo\n"))[0], length => 5 }, "one\nt" ],
    'a command'        =>
        [ sub { open my $fh, '-|', $^X, '-e', 'print 1 .. 9' or die $!; return fh => $fh }, '123456789' ],
    'a pipe begun before' => [
        sub {
            my ($reader) = pipe_of("one\ntwo\nthree\n");
            my $line = <$reader>;
            return fh => $reader;
        },
        "two\nthree\n"
    ],
    'a socket' => [
        sub {
            socketpair my $here, my $there, AF_UNIX, SOCK_STREAM, PF_UNSPEC or die "socketpair: $!";
            syswrite $there, 'from a socket';
            return fh => $here;
        },
        'from a socket'
    ],
    'a device'          => [ sub { return file => '/dev/zero', length => 200_000 }, "\0" x 200_000 ],
    'an empty device'   => [ sub { return fh   => opened('<', '/dev/null') },       '' ],
    'an empty file'     => [ sub { return file => '/dev/null' },                    '' ],
    'a file in /proc'   => [ sub { return file => '/proc/version' }, qr/\ALinux version .*\n\z/s ],
    'a part of it'      => [ sub { return file => '/proc/version', offset => 6, length => 7 }, 'version' ],
    'a handle in /proc' =>
        [ sub { return fh => opened('<', '/proc/version'), offset => 6, length => 7 }, 'version' ],
    'a handle in memory'     => [ sub { return fh => memory($large) }, $large ],
    'a part of it in memory' =>
        [ sub { return fh => memory('0123456789'), offset => 2, length => 3 }, '234' ],
    'a tied handle'     => [ sub { return fh => tied_handle('tied', ' and ', 'read') }, 'tied and read' ],
    'an encoded handle' =>
        [ sub { return fh => opened('<:encoding(UTF-16)', '/proc/version'), length => 5 }, 'Linux' ],
);

# Fields of a body event that fails, and the error; the application sends something else then.
my %bad = (
    'a directory' =>
        [ sub { return file => '/' }, qr{file '/' \(a directory\) cannot be sent: it cannot be read} ],
    'a handle for writing' =>
        [ sub { return fh => (pipe_of())[1] }, qr/fh must be open for reading, not for writing only/ ],
    'a pipe at an offset' =>
        [ sub { return fh => (pipe_of('x'))[0], offset => 1 }, qr/fh \(a pipe\) cannot begin at offset 1: / ],
    'a tied handle at one' => [
        sub { return fh => tied_handle('x'), offset => 1 },
        qr/fh \(a tied handle\) cannot begin at offset 1: /
    ],
    'a tied handle' =>
        [ sub { return fh => tied_handle('die') }, qr/fh \(a tied handle\) cannot be read: no more of this/ ],
    'wide characters' => [ sub { return fh => memory_of_characters() }, qr/body has a wide character/ ],
    'no handle'       => [ sub { return fh => {} },                     qr/fh must be an open file handle/ ],
);

sub memory_of_characters { my $bytes = "\xe2\x82\xac"; open my $fh, '<:utf8', \$bytes or die $!; return $fh }

my %handlers = (
    '/good' => async sub {
        my ($scope, $receive, $send) = @_;
        my ($fields) = $good{ $scope->{query_string} =~ s/%20/ /gr }->@*;
        await $send->({ type => 'http.response.body', $fields->() });
    },
    '/bad' => async sub {
        my ($scope, $receive, $send) = @_;
        my ($fields) = $bad{ $scope->{query_string} =~ s/%20/ /gr }->@*;
        my $problem = eval { await $send->({ type => 'http.response.body', $fields->() }); 1 } ? 'none' : $@;
        await $send->({ type => 'http.response.body', body => $problem });
    },
    '/slow' => async sub {
        my ($scope, $receive, $send) = @_;
        my ($reader, $writer) = pipe_of('first');
        my $sent = $send->({ type => 'http.response.body', fh => $reader });
        await later(0.2);
        print {$writer} ' second';
        await later(0.2);
        close $writer;
        await $sent;
        say_line('the pipe is sent, open=', defined fileno $reader ? 1 : 0);
    },
    '/quiet' => async sub {
        my ($scope, $receive, $send) = @_;
        my ($reader, $writer) = pipe_of('first');
        await $send->({ type => 'http.response.body', fh => $reader });
        say_line('the quiet pipe is left');
    },
    '/counter' => async sub {
        my ($scope, $receive, $send) = @_;
        my $counter = event_counter();
        my $sent    = $send->({ type => 'http.response.body', fh => $counter, length => 8 });
        await later(0.2);
        syswrite $counter, pack 'Q', 7;
        await $sent;
    },
    '/endless' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->({ type => 'http.response.body', file => '/dev/zero' });
        say_line('the endless file is left');
    },
    '/broken' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->({ type => 'http.response.body', fh => tied_handle('x', 'die') });
    },
    '/ignored' => async sub {
        my ($scope, $receive, $send) = @_;
        my ($reader, $writer) = pipe_of('first');
        $send->({ type => 'http.response.body', fh => $reader });
        close $writer;
        await later(0.2);
    },
    '/missing' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->({ type => 'http.response.body', file => '/no/such/file' });
    },
);

my $server = TestServer->start(
    quiet => 1,
    app   => async sub {
        my ($scope, $receive, $send) = @_;
        die "no lifespan\n" if $scope->{type} ne 'http';
        await $send->({ type => 'http.response.start', status => 200 });
        await $handlers{ $scope->{path} }->(@_);
    }
);
my $port = $server->port;

sub request {
    my ($line, %options) = @_;
    return TestClient->new($port, %options)->send("$line HTTP/1.1\r\nHost: h\r\n\r\n");
}

for my $name (sort keys %good) {
    my $expected = $good{$name}[1];
    my $body     = get($port, '/good?' . $name =~ s/ /%20/gr)->{body};
    ok(ref $expected ? $body =~ $expected : $body eq $expected, "$name is sent") or diag substr $body, 0, 200;
}

for my $name (sort keys %bad) {
    my $body = get($port, '/bad?' . $name =~ s/ /%20/gr)->{body};
    like($body, qr/\Ahttp\.response\.body: $bad{$name}[1]/, "$name fails, and the application goes on");
}

subtest 'while it waits' => sub {
    my $client = request('GET /slow');
    is(get($port, '/good?a%20pipe')->{body}, "one\ntwo\n", 'other requests are served while a pipe is quiet');
    is($client->response->{body},            'first second', '... which is sent to its end');
    ok($server->wait_for_log(qr/^the pipe is sent, open=1$/m), '... and stays open');
    is(get($port, '/counter')->{body}, pack('Q', 7),
        'what says "not now" is waited for, whatever kind it is');
    is(get($port, '/ignored')->{body}, 'first', 'no other request waits for it');
};

subtest 'the end of a handle' => sub {
    # A client that leaves before the application has begun is never worked for.
    my $client = request('GET /quiet');
    ok(defined $client->_until(qr/first/), 'a pipe has given what it had');
    $client->reset;
    ok($server->wait_for_log(qr/^the quiet pipe is left$/m), 'a client that leaves ends the wait for a pipe');
    $client = request('GET /endless', receive_buffer => 65_536);
    ok(defined $client->_until(qr/\0/), 'a body without an end has begun');
    is(get($port, '/good?a%20pipe')->{body},
        "one\ntwo\n", 'other requests are served while a client takes nothing');
    $client->reset;
    ok($server->wait_for_log(qr/^the endless file is left$/m), 'a client that leaves ends what has no end');
    $client = request('GET /broken');
    $client->rest;
    ok($server->wait_for_log(qr/fh \(a tied handle\) cannot be read: no more of this/),
        'a failure in the middle is the application\'s');
};

subtest 'neither side makes it wait' => sub {
    my $loop   = IO::Async::Loop->new;
    my $memory = $large x 10;
    open my $fh, '<', \$memory or die "memory: $!";
    my $sent = PAGI::Server::HandleBody->send(
        { type => 'http.response.body', fh => $fh },
        loop => $loop,
        send => sub { Future->done },
        gone => Future->new
    );
    my $turns = 0;
    until ($sent->is_ready) { $loop->loop_once; $turns++ }
    cmp_ok($turns, '>=', length($memory) / (16 * 65_536) - 1, 'others have their turn after a mebibyte');
};

subtest 'disable_sendfile' => sub {
    my $file = File::Temp->new;
    print {$file} $large;
    $file->flush;
    my %begun = (
        before => sub { my $fh = opened('<', "$file"); seek $fh, 6, 0;          return $fh },
        read   => sub { my $fh = opened('<', "$file"); readline $fh for 1 .. 3; return $fh },
    );
    my @cases = (
        [ 'a file', $large, sub { return file => "$file" } ],
        [
            'a part of it',
            substr($large, 7, 100_000),
            sub { return file => "$file", offset => 7, length => 100_000 }
        ],
        [ 'a handle from where it is',          substr($large, 6), sub { return fh => $begun{before}->() } ],
        [ 'a handle from behind what was read', substr($large, 6), sub { return fh => $begun{read}->() } ],
        [ 'a handle from its beginning', $large, sub { return fh   => $begun{before}->(), offset => 0 } ],
        [ 'nothing beyond the end',      '',     sub { return file => "$file", offset => 10_000_000 } ],
    );
    my $read = \&PAGI::Server::HandleBody::send;
    no warnings 'redefine';
    local *PAGI::Server::HandleBody::send = sub { say_line('it is read'); goto $read };

    for my $disabled (0, 1) {
        my $files = TestServer->start(
            disable_sendfile => $disabled,
            app              => async sub {
                my ($scope, $receive, $send) = @_;
                die "no lifespan\n" if $scope->{type} ne 'http';
                await $send->({ type => 'http.response.start', status => 200 });
                await $send->({ type => 'http.response.body',  $cases[ $scope->{query_string} ][2]->() });
            }
        );
        for my $case (0 .. $#cases) {
            ok(
                get($files->port, "/?$case")->{body} eq $cases[$case][1],
                "$cases[$case][0], disable_sendfile $disabled"
            );
        }
        is($files->stop, 0, 'the server ends well');
        is(
            scalar(() = $files->log =~ /^it is read$/mg),
            $disabled * @cases,
            '... and has read what it had to'
        );
        like($files->log, $disabled ? qr/sendfile: disabled/ : qr/sendfile: on/, '... as the banner says');
    }
};

my $client = request('HEAD /missing');
is($client->response(head => 1)->{status}, 200, 'HEAD is answered without a look at the file');
is($client->send("GET /good?a%20pipe HTTP/1.1\r\nHost: h\r\n\r\n")->response->{body},
    "one\ntwo\n", '... and goes on');

is($server->stop, 0, 'the server ends well');
unlike($server->log, qr/callback|async sub|lost|uninitialized/, 'without complaints') or diag $server->log;

done_testing;
