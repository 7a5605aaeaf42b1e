# Attacks by clients of HTTP/2, each under its name. Each is measured against honest requests of the same run:
# the server spends no more processor time and memory on a byte of the attack, or ends the connection
# (ENHANCE_YOUR_CALM). A malformed request ends its stream, and no application gets it.
use strict;
use warnings;

use lib 't/lib';
use Future::AsyncAwait;
use List::Util qw(max);
use Test::More;
use TestHPACK qw(block huffman indexed integer literal table_size);
use TestHTTP2 qw(frame request_fields settings);
use TestServer;
use TestTools qw(content patience wait_for);

# Bytes that an attack sends if the connection does not end before.
use constant { FLOOD => 1_000_000, PIECE => 16_000 };

my $calls = 0;

# /N: N bytes in pieces; /wait: answers nobody; everything else: how often it was called, this time included.
async sub app {
    my ($scope, $receive, $send) = @_;
    die "no $scope->{type}\n" if $scope->{type} ne 'http';
    $calls++                  if $scope->{path} ne '/calls';
    my ($bytes) = $scope->{path} =~ m{\A/(\d+)\z};
    if ($scope->{path} eq '/wait') {
        1 while (await $receive->())->{type} ne 'http.disconnect';
        return;
    }
    await $send->({ type => 'http.response.start', status => 200, headers => [ [ 'x-calls', $calls ] ] });
    while (($bytes || 0) > 65_536) {
        await $send->({ type => 'http.response.body', body => 'x' x 65_536, more => 1 });
        $bytes -= 65_536;
    }
    await $send->({ type => 'http.response.body', body => 'x' x ($bytes || 5) });
    return;
}

my $server = TestServer->start(
    app           => \&app,
    http2         => 1,
    quiet         => 1,
    access_log    => undef,
    body_timeout  => 3,
    write_timeout => 3,
    # A client that gets no processor sends half a frame. Windows of nothing end by this limit, too.
    limits => { head_ms => 20_000 },
);

sub connected { return TestHTTP2->new($server->port, @_) }

# Nanoseconds of processor time that the server has used, on all its threads.
sub cpu_ns {
    my $sum = 0;
    for my $file (glob '/proc/' . $server->pid . '/task/*/schedstat') {
        my ($ns) = content($file) =~ /\A(\d+)/;
        $sum += $ns || 0;
    }
    return $sum;
}

# KiB that the server holds: now, or at most since `forget_peak`.
sub kib {
    my ($name) = @_;
    return content('/proc/' . $server->pid . '/status') =~ /^$name:\s+(\d+)/m ? $1 : 0;
}

sub forget_peak {
    open my $out, '>', '/proc/' . $server->pid . '/clear_refs' or return;
    print {$out} '5';
    close $out or diag "clear_refs: $!";
    return;
}

sub calls {
    my $h2 = connected();
    return $h2->get('/calls')->{header}{'x-calls'};
}

# Runs what sends `bytes` by way of a client: what it has cost, and how the connection stands.
sub cost_of {
    my ($run, $h2) = @_;
    forget_peak();
    my ($cpu, $kib) = (cpu_ns(), kib('VmRSS'));
    my $bytes = $run->($h2);
    my $alive = !$h2->{goaways} && !$h2->{client}{ended} && $h2->is_alive;
    return {
        bytes => $bytes,
        cpu   => (cpu_ns() - $cpu) / $bytes,
        kib   => kib('VmHWM') - $kib,
        alive => $alive,
        code  => $alive ? 'open' : ($h2->end || { code => 'open' })->{code},
    };
}

# Sends what `next` makes, again and again, until the server has had enough. It has read each piece before
# the next one goes, so that its bytes are counted; `blindly`: not so, for nothing may stand within a header
# block.
sub flood {
    my ($h2, $next, $blindly) = @_;
    my $sent = 0;
    while ($sent < FLOOD) {
        my $piece = '';
        while (length $piece < PIECE) { $piece .= $next->() }
        $sent += length $piece;
        last if !$h2->pour($piece) || !$blindly && !$h2->is_alive;
    }
    return $sent;
}

sub request_frame {
    my ($id, $path, %options) = @_;
    my $flags = TestHTTP2::END_HEADERS | ($options{open} ? 0 : TestHTTP2::END_STREAM);
    return frame(TestHTTP2::HEADERS, $flags, $id, block(request_fields($path, %options)));
}

# ---- The measure ------------------------------------------------------------------------------------

sub honest {
    my ($h2) = @_;
    my $sent = 0;
    for (1 .. 40) {
        my @ids   = map { $h2->next_id } 1 .. 50;
        my $bytes = join '', map { request_frame($_, '/') } @ids;
        $h2->send($bytes);
        $sent += length $bytes;
        $h2->response($_)->{status} == 200 or die "an honest request fails\n" for @ids;
    }
    return $sent;
}

honest(connected());    # memory that the first requests take for good
my $quiet = cost_of(\&honest, connected());

# The measure beside the last attack.
my $honest = $quiet;
is $honest->{code}, 'open', 'honest requests are answered';
note sprintf 'honest: %.0f ns a byte', $honest->{cpu};

# The cost of an attack on a connection of its own. Other work of the machine makes each byte dearer for a
# while, so an attack that seems dear is tried again, and measured beside an honest client once more. The
# memory is the most that an attempt has taken.
sub measured {
    my ($attack, @how) = @_;
    my ($cost, $kib);
    $honest = $quiet;
    for (1 .. 5) {
        my $h2 = connected(manual => 1, @how);
        $cost = cost_of(sub { return $attack->($h2) }, $h2);
        $kib  = $cost->{kib} = max($cost->{kib}, $kib // $cost->{kib});
        last if $cost->{cpu} <= 2 * $honest->{cpu};
        $honest = cost_of(\&honest, connected());
    }
    return $cost;
}

# Twice, because both are measured on a machine that does other things as well.
sub is_cheap {
    my ($name, $cost) = @_;
    note sprintf '%s: %d bytes, %.0f ns a byte, %d KiB, %s', $name, @{$cost}{qw(bytes cpu kib code)};
    cmp_ok $cost->{cpu}, '<=', 2 * $honest->{cpu},
        "... processor time of a byte: at most an honest one's, twice";
    cmp_ok $cost->{kib}, '<=', 8 * 1024, '... memory in KiB';
    return;
}

# An attack whose connection ends by ENHANCE_YOUR_CALM.
sub ends_calmly {
    my ($name, $next, %options) = @_;
    subtest $name => sub {
        my $cost = measured(sub {
            my ($h2) = @_;
            return flood($h2, sub { return $next->($h2) }, $options{blindly});
        });
        is $cost->{code}, 'ENHANCE_YOUR_CALM', 'the connection ends';
        is_cheap($name, $cost);
        is connected()->get('/')->{status}, 200, 'others are answered';
    };
    return;
}

# ---- Streams that are begun and thrown away -----------------------------------------------------------

ends_calmly 'rapid reset (CVE-2023-44487)' => sub {
    my ($h2) = @_;
    my $id = $h2->next_id;
    return request_frame($id, '/wait') . frame(TestHTTP2::RST_STREAM, 0, $id, pack 'N', 8);
};

# Requests whose clients make the server reset them (CVE-2025-8671).
my %RESETS = (
    'credit of nothing'       => sub { frame(TestHTTP2::WINDOW_UPDATE, 0, $_[0], pack 'N',  0) },
    'a window that overflows' => sub { frame(TestHTTP2::WINDOW_UPDATE, 0, $_[0], pack 'N',  0x7fffffff) },
    'a stream of itself'      => sub { frame(TestHTTP2::PRIORITY,      0, $_[0], pack 'NC', $_[0], 0) },
    'a PRIORITY too short'    => sub { frame(TestHTTP2::PRIORITY,      0, $_[0], 'xxx') },
    'content behind the end'  => sub { frame(TestHTTP2::DATA,          0, $_[0], 'x') },
    'a head behind the end'   => sub { frame(TestHTTP2::HEADERS,       5, $_[0], block('x-a' => 'b')) },
);
for my $how (sort keys %RESETS) {
    ends_calmly "made-you-reset (CVE-2025-8671) by $how" => sub {
        my ($h2) = @_;
        my $id = $h2->next_id;
        return request_frame($id, '/wait') . $RESETS{$how}->($id);
    };
}

ends_calmly 'heads without anything in them' => sub {
    my ($h2) = @_;
    return frame(TestHTTP2::HEADERS, TestHTTP2::END_HEADERS | TestHTTP2::END_STREAM, $h2->next_id);
};

# ---- Frames that bring nothing ------------------------------------------------------------------------

my %NOTHING = (
    'pings'                                 => frame(TestHTTP2::PING, 0, 0, '12345678'),
    'settings'                              => settings(4, 65_535),
    'empty settings'                        => settings(),
    'PRIORITY'                              => frame(TestHTTP2::PRIORITY,        0, 1, pack 'NC', 0, 16),
    'PRIORITY_UPDATE'                       => frame(TestHTTP2::PRIORITY_UPDATE, 0, 0, pack('N', 1) . 'u=0'),
    'frames of a kind that nobody knows'    => frame(77,                         0, 0, ''),
    'credit for the connection'             => frame(TestHTTP2::WINDOW_UPDATE,   0, 0, pack 'N', 1),
    'the size of the table, back and forth' => settings(1, 0) . settings(1, 4096),
);
for my $name (sort keys %NOTHING) {
    ends_calmly "flood: $name" => sub { return $NOTHING{$name} };
}

sub behind_a_request {
    my ($bytes, %options) = @_;
    my $id;
    return sub {
        my ($h2) = @_;
        return $bytes->($id) if $id;
        $id = $h2->next_id;
        return request_frame($id, '/wait', open => 1, method => 'POST', %options);
    };
}

ends_calmly 'DATA without content' => behind_a_request(sub { frame(TestHTTP2::DATA, 0, $_[0], '') });
ends_calmly 'DATA of nothing but padding' =>
    behind_a_request(sub { frame(TestHTTP2::DATA, TestHTTP2::PADDED, $_[0], "\0") });
ends_calmly 'credit of one byte for a stream' =>
    behind_a_request(sub { frame(TestHTTP2::WINDOW_UPDATE, 0, $_[0], pack 'N', 1) });

# ---- Header blocks ------------------------------------------------------------------------------------

sub unended {
    my ($piece, $first) = @_;
    my $id;
    return sub {
        my ($h2) = @_;
        return frame(TestHTTP2::CONTINUATION, 0, $id, $piece) if $id;
        $id = $h2->next_id;
        return frame(TestHTTP2::HEADERS, 0, $id, defined $first ? $first : block(request_fields('/')));
    };
}
ends_calmly 'CONTINUATION without end, empty' => unended(''), blindly => 1;
ends_calmly 'CONTINUATION without end, small' => unended(literal('x', 'y')), blindly => 1;
ends_calmly 'CONTINUATION without end, large' => unended(literal('x', 'y' x 15_000)), blindly => 1;
ends_calmly
    'CONTINUATION of a field without end' =>
    unended('y' x 16_000, block(request_fields('/')) . "\0\1x" . integer(0, 7, 1 << 30)),
    blindly => 1;

# Puts a field into the table, and names it again and again.
sub bomb {
    my ($count) = @_;
    my $kept;
    return sub {
        my ($h2) = @_;
        my $bytes = block(request_fields('/'));
        $bytes .= literal('x-bomb', 'y' x 4000, keep => 1) if !$kept++;
        return frame(TestHTTP2::HEADERS, TestHTTP2::END_HEADERS | TestHTTP2::END_STREAM,
            $h2->next_id, $bytes . indexed(62) x $count);
    };
}
ends_calmly 'HPACK bomb: a field of 4,000 bytes, 12,000 times' => bomb(12_000);
ends_calmly 'HPACK bomb: a field of 4,000 bytes, 15 times'     => bomb(15);

subtest 'fields that clear and fill the table cost no more than other fields' => sub {
    my $h2   = connected(manual => 1);
    my $next = sub {
        return frame(
            TestHTTP2::HEADERS,
            TestHTTP2::END_HEADERS | TestHTTP2::END_STREAM,
            $h2->next_id,
            table_size(0) . table_size(4096) . block(request_fields('/')) . join '',
            map { literal("x-$_", $_ x 20, keep => 1) } 1 .. 30
        );
    };
    my $run = sub {
        my $sent = 0;
        for (1 .. 30) {
            my $piece = join '', map { $next->() } 1 .. 10;
            $sent += length $piece;
            last if !$h2->pour($piece) || !$h2->is_alive;
        }
        return $sent;
    };
    $honest = $quiet;
    my $cost = cost_of($run, $h2);
    is $cost->{code}, 'open', 'all of it is taken';
    is_cheap('table', $cost);
};

# ---- Peers that do not read ---------------------------------------------------------------------------

# The server holds a bounded number of bytes for each of many streams, and ends the streams.
subtest 'windows of nothing' => sub {
    my $h2   = connected(manual => 1, settings => [ 4, 0 ]);
    my $cost = cost_of(
        sub {
            my $bytes = join '', map { request_frame($h2->next_id, '/10000000') } 1 .. 100;
            $h2->send($bytes);
            return length $bytes;
        },
        $h2
    );
    note "$cost->{kib} KiB";
    cmp_ok $cost->{kib}, '<', 100 * 160 * 1.5, 'each stream holds what its mark allows, in KiB';
    ok defined $h2->end, 'the connection ends: nothing was taken in time';
    is connected()->get('/')->{status}, 200, 'others are answered';
};

subtest 'windows of one byte' => sub {
    my $cost = measured(
        sub {
            my ($h2) = @_;
            my $id = $h2->request('/1000000');
            return flood($h2, sub { frame(TestHTTP2::WINDOW_UPDATE, 0, $id, pack 'N', 1) });
        },
        settings => [ 4, 1 ]
    );
    is $cost->{code}, 'ENHANCE_YOUR_CALM', 'the connection ends';
    is_cheap('one byte', $cost);
};

subtest 'requests that are begun and forgotten' => sub {
    my $before = calls();
    my $h2     = connected();
    my @ids =
        map { $h2->request('/wait', method => 'POST', open => 1, fields => [ 'content-length' => 10 ]) }
        1 .. 100;
    my $more = $h2->request('/wait', method => 'POST', open => 1);
    is $h2->response($more)->{reset}, 'REFUSED_STREAM', 'one more than there may be is refused';
    ok wait_for(
        sub {
            $h2->is_alive;
            !grep { !%{ $h2->stream($_) } } @ids;
        },
        20
        ),
        'each of them ends: nothing has come in time';
    is connected()->get('/')->{status}, 200, 'others are answered';
    cmp_ok calls() - $before, '<=', 102, 'no more of them have got to the application than may be open';
};

# ---- What is malformed --------------------------------------------------------------------------------

my @GOOD      = request_fields('/');
my %MALFORMED = (
    'an upper-case name'                => [ @GOOD,           'X-Upper'           => 1 ],
    'Connection'                        => [ @GOOD,           connection          => 'close' ],
    'Keep-Alive'                        => [ @GOOD,           'keep-alive'        => 'timeout=5' ],
    'Proxy-Connection'                  => [ @GOOD,           'proxy-connection'  => 'close' ],
    'Transfer-Encoding'                 => [ @GOOD,           'transfer-encoding' => 'chunked' ],
    'Upgrade'                           => [ @GOOD,           upgrade             => 'h2c' ],
    'TE other than trailers'            => [ @GOOD,           te                  => 'gzip' ],
    'a pseudo field behind another one' => [ @GOOD[ 0 .. 3 ], 'x-a'               => 1, @GOOD[ 4 .. 7 ] ],
    'a pseudo field twice'              => [ @GOOD,           ':path'             => '/' ],
    'a pseudo field of responses'       => [ @GOOD,           ':status'           => 200 ],
    'a pseudo field that nobody knows'  => [ ':x' => 1, @GOOD ],
    'no method'                         => [ @GOOD[ 2 .. 7 ] ],
    'no path'                           => [ @GOOD[ 0 .. 3, 6, 7 ] ],
    'an empty path'                     => [ @GOOD[ 0 .. 3 ], ':path' => '', @GOOD[ 6, 7 ] ],
    'a name with a space'               => [ @GOOD, 'x a'            => 1 ],
    'an empty name'                     => [ @GOOD, ''               => 1 ],
    'a line feed in a value'            => [ @GOOD, 'x-a'            => "1\nx-b: 2" ],
    'a carriage return in a value'      => [ @GOOD, 'x-a'            => "1\rx-b: 2" ],
    'NUL in a value'                    => [ @GOOD, 'x-a'            => "1\0" ],
    'a space before a value'            => [ @GOOD, 'x-a'            => ' 1' ],
    'Host that is not :authority'       => [ @GOOD, host             => 'elsewhere' ],
    'two lengths'                       => [ @GOOD, 'content-length' => 0, 'content-length' => 1 ],
    'a length that is none'             => [ @GOOD, 'content-length' => '1x' ],
    'a length without content'          => [ @GOOD, 'content-length' => 1 ],
);
subtest 'malformed heads' => sub {
    my $before = calls();
    for my $name (sort keys %MALFORMED) {
        my $h2 = connected();
        my $id = $h2->next_id;
        $h2->send_frame(TestHTTP2::HEADERS, TestHTTP2::END_HEADERS | TestHTTP2::END_STREAM,
            $id, block(@{ $MALFORMED{$name} }));
        my $stream = $h2->response($id) || {};
        my $says   = $stream->{reset}   || $stream->{status} || 'nothing';
        like $says, qr/\A(?:PROTOCOL_ERROR|400)\z/, "$name: refused";
        is $h2->get('/calls')->{status}, 200, '... and the connection goes on';
    }
    is calls(), $before, 'no application has heard of them';
};

subtest 'content that is not what its length says' => sub {
    for my $case ([ 'more' => 3, 'xxxx' ], [ 'less' => 5, 'xxxx' ], [ 'none' => 1, '' ]) {
        my ($name, $length, $body) = @$case;
        my $h2 = connected();
        my $id = $h2->request(
            '/wait',
            method => 'POST',
            body   => $body,
            fields => [ 'content-length' => $length ]
        );
        is $h2->response($id)->{reset}, 'PROTOCOL_ERROR', "$name: its stream ends";
        ok $h2->is_alive, '... alone';
    }
};

subtest 'trailers that are none' => sub {
    my %trailers = (
        'a pseudo field'     => [ ':path'      => '/' ],
        'an upper-case name' => [ 'X-A'        => 1 ],
        'Connection'         => [ 'connection' => 'close' ],
    );
    for my $name (sort keys %trailers) {
        my $h2 = connected();
        my $id = $h2->request('/wait', method => 'POST', body => 'x', trailers => $trailers{$name});
        is $h2->response($id)->{reset}, 'PROTOCOL_ERROR', "$name: its stream ends";
        ok $h2->is_alive, '... alone';
    }
    my $h2 = connected();
    my $id = $h2->next_id;
    $h2->send(
        request_frame($id, '/wait', method => 'POST', open => 1),
        frame(TestHTTP2::HEADERS, TestHTTP2::END_HEADERS, $id, block('x-a' => 1)),
    );
    is $h2->response($id)->{reset}, 'PROTOCOL_ERROR', 'trailers that end nothing: its stream ends';
};

is $server->stop, 0, 'the server ends well';
done_testing;
