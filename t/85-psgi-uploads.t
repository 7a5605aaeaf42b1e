# Request bodies on their way into temporary files: the quota of a client address, a folder that is nearly
# full, and one that lies in memory.
# Not repeated for each PEREGRINE_ENGINE: its servers name their engines.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use OnlyInFull qw(only_in_full);
use Test::More;
use TestClient;
use TestHTTP2;
use Peregrine::Threads;
use TestServer;
use TestTools qw(content wait_for);

my $app = sub {
    my ($env) = @_;
    my $bytes = 0;
    while (my $got = $env->{'psgi.input'}->read(my $piece, 65_536)) { $bytes += $got }
    return [ 200, [ 'Content-Type' => 'text/plain' ], [$bytes] ];
};

plan skip_all => 'open files are looked at in /proc' if !-e '/proc/self/fd';

my @placements = (
    [ 'inline', engine => 'inline' ],
    [ 'thread', engine => 'thread' ],
    # Without threads in Perl each of them would be an engine of its own, with a quota of its own.
    Peregrine::Threads::are_possible() ? [ 'clones', engine => 'thread', workers => 2 ] : (),
    [ 'process', engine => 'process', workers => 1 ],
);

sub server { return TestServer->start(psgi => 1, app => $app, access_log => undef, @_) }

# A request of this many bytes, of which the first have been sent.
sub begun {
    my ($port, $length, $first, %options) = @_;
    my $fields = delete $options{fields} // '';
    my $client = TestClient->new($port, %options);
    return $client->send(
        "POST / HTTP/1.1\r\nHost: h\r\n${fields}Content-Length: $length\r\n\r\n" . 'x' x $first);
}

# DATA frames of 16,000 bytes.
sub frames {
    my ($id, $count, $ends) = @_;
    my @frames = (TestHTTP2::frame(TestHTTP2::DATA, 0, $id, 'x' x 16_000)) x $count;
    $frames[-1] = TestHTTP2::frame(TestHTTP2::DATA, TestHTTP2::END_STREAM, $id, 'x' x 16_000) if $ends;
    return join '', @frames;
}

sub finished {
    my ($client, $left) = @_;
    my $response = $client->send('x' x $left)->response || { body => 'none', status => 0 };
    return "$response->{status} $response->{body}";
}

# The bytes in a folder's files that have no name.
sub spooled {
    my ($dir) = @_;
    my $bytes = 0;
    $bytes += -s $_ // 0 for grep { (readlink($_) // '') =~ m{\A\Q$dir\E/} } glob '/proc/[0-9]*/fd/*';
    return $bytes;
}

# Whether the server has read all that was sent to its port.
sub is_read {
    my ($port) = @_;
    my $name   = sprintf '%04X', $port;
    for (split /\n/, content('/proc/net/tcp')) {
        my (undef, $local, $peer, $state, $queues) = split;
        next     if $state ne '01' || "$local $peer" !~ /:$name\b/;
        return 0 if $queues ne '00000000:00000000';
    }
    return 1;
}

sub is_refused {
    my ($client, $name) = @_;
    my $response = $client->response || {};
    is $response->{status},                429, "$name: 429";
    is $response->{header}{'retry-after'}, 5,   '... and when to come again';
    like $response->{body}, qr/too many unfinished request bodies/, '... and why';
    return;
}

for my $placement (@placements) {
    my ($name, @placement) = @$placement;
    subtest "$name: a quota for each client address" => sub {
        my $dir    = File::Temp->newdir;
        my $server = server(
            @placement,
            http2                        => 1,
            h2_initial_window_size       => 1_000_000,
            quiet                        => 0,
            body_folder                  => "$dir",
            body_buffer_size             => 1000,
            max_upload_bytes_per_address => 500_000,
        );
        my $port  = $server->port;
        my $first = begun($port, 700_000, 600_000);
        ok wait_for(sub { spooled($dir) && is_read($port) }), 'the first one is longer than the quota';
        is_refused(begun($port, 300_000, 100_000), 'a second one');
        ok $server->wait_for_log(
            qr/Refused with 429 \(connection .*\): 127[.]0[.]0[.]1 has too many .*, see max_upload_bytes_per_address$/m
        ), '... which the log says';
        is finished(begun($port, 60_000, 1000), 59_000), '200 60000', 'a short one is not';
        is finished(begun($port, 300_000, 200_000, local => '127.0.0.2'), 100_000), '200 300000',
            'nor one of another address';
        my $h2 = TestHTTP2->new($port);
        my $id = $h2->request('/', method => 'POST', open => 1);
        $h2->send(frames($id, 12, 0));
        my $stream = $h2->response($id) || {};
        is $stream->{status},         429,          'a stream of HTTP/2: 429';
        is $h2->get('/')->{status},   200,          '... that alone: the connection goes on';
        is finished($first, 100_000), '200 700000', 'the first one is complete';
        $id = $h2->request('/', method => 'POST', open => 1);
        $h2->send(frames($id, 18, 1));
        is $h2->response($id)->{body}, 288_000, '... and there is room again';
        is $server->stop,              0,       'the server stops';
    };
}

subtest 'the client address that a body counts for' => sub {
    my $dir    = File::Temp->newdir;
    my $server = server(
        engine                       => 'inline',
        listen                       => [ '127.0.0.1:0', "unix:$dir/socket" ],
        trusted_proxies              => ['127.0.0.1'],
        body_folder                  => "$dir",
        body_buffer_size             => 1000,
        max_upload_bytes_per_address => 300_000,
    );
    my $port = $server->port;
    my %open = (
        'a client that a proxy names' =>
            begun($port, 300_001, 300_000, fields => "X-Forwarded-For: 192.0.2.1\r\n"),
        'another one' => begun($port, 300_001, 300_000, fields => "X-Forwarded-For: 192.0.2.2\r\n"),
        'a proxy that names nobody'    => begun($port,         300_001, 300_000),
        '... once more'                => begun($port,         300_001, 300_000),
        'a client on a Unix socket'    => begun("$dir/socket", 300_001, 300_000),
        'another one on a Unix socket' => begun("$dir/socket", 300_001, 300_000),
    );
    ok wait_for(sub { spooled($dir) && is_read($port) }), 'all of them are there';
    is_refused(begun($port, 300_000, 200_000, fields => "X-Forwarded-For: 192.0.2.1\r\n"),
        'one more of an address that the proxy names');
    is finished($open{$_}, 1), '200 300001', $_ for sort keys %open;
    is $server->stop,          0,            'the server stops';
};

# ---- File systems of their own, in a mount namespace of this test's

my ($NEW_NAMESPACE, $RECURSIVE_PRIVATE) = (0x20000, 0x4000 | 0x40000);

# A folder in memory of this many bytes; nothing, and why not.
sub in_memory {
    my ($size) = @_;
    return (undef, 'mounting takes Linux and root') if $^O ne 'linux' || $> != 0;
    ## no critic: the file comes with perl
    return (undef, 'the numbers of system calls are not known')
        if !eval { no warnings; require 'sys/syscall.ph'; 1 };
    my ($nothing, $root, $kind) = ('none', '/', 'tmpfs');
    syscall(SYS_unshare(), $NEW_NAMESPACE) == 0
        && syscall(SYS_mount(), $nothing, $root, 0, $RECURSIVE_PRIVATE, 0) == 0
        or return (undef, "no mount namespace: $!");
    my $dir = File::Temp->newdir;
    my ($path, $options) = ("$dir", "size=$size");
    syscall(SYS_mount(), $nothing, $path, $kind, 0, $options) == 0 or return (undef, "mount: $!");
    return $dir;
}

sub fill {
    my ($path, $bytes) = @_;
    open my $out, '>', $path or die "$path: $!";
    print {$out} 'x' x $bytes;
    close $out or die "$path: $!";
    return;
}

subtest 'a part of the folder stays free' => sub {
    my ($dir, $why) = in_memory(20_971_520);
    plan skip_all => $why if !$dir;
    for my $engine (only_in_full('inline'), 'process') {
        my $server = server(
            engine => $engine,
            $engine eq 'process' ? (workers => 1) : (),
            body_folder      => "$dir",
            body_buffer_size => 1000,
            quiet            => 0,
        );
        my $port = $server->port;
        is finished(begun($port, 2_000_000, 0), 2_000_000), '200 2000000', "$engine: while there is room";
        fill("$dir/others", 19_500_000);
        is((begun($port, 2_000_001, 2_000_000)->response || {})->{status}, 507, '... none is left');
        ok $server->wait_for_log(
            qr/not kept in a temporary file in \Q$dir\E: .* is nearly full, 1 MB have to stay free/),
            '... which the log says, with the folder';
        unlink "$dir/others" or die "$dir/others: $!";
        ok wait_for(sub { finished(begun($port, 2_000_000, 0), 2_000_000) eq '200 2000000' }),
            '... room again';
        is $server->stop, 0, 'the server stops';
    }
    syscall(SYS_umount2(), my $path = "$dir", 0);
};

subtest 'files in memory count for memory_max' => sub {
    my ($dir, $why) = in_memory(1_000_000_000);
    plan skip_all => $why if !$dir;
    my %sent;
    my $server = server(
        engine                       => 'process',
        workers                      => 1,
        body_folder                  => "$dir",
        body_buffer_size             => 1000,
        max_body_size                => '100M',
        max_upload_bytes_per_address => 0,
        memory_max                   => 200_000_000,
        quiet                        => 0,
    );
    my $port    = $server->port;
    my @uploads = map { begun($port, 50_000_001, 50_000_000) } 1 .. 6;
    ok $server->wait_for_log(qr/Memory: \d+ MB are in use, memory_max is 200 MB: requests that were refused/),
        'the log tells of memory';
    my @answers = map { finished($_, 1) } @uploads;
    cmp_ok scalar(grep { /\A413 / } @answers), '>', 1, 'some are refused';
    cmp_ok scalar(grep { /\A200 / } @answers), '>', 0, '... not all of them';
    is $server->stop, 0, 'the server stops';
    syscall(SYS_umount2(), my $path = "$dir", 0);
};

done_testing;
