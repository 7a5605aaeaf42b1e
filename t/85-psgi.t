# PSGI applications get the right environment; their answers, plain, strange and wrong, reach the client.
use strict;
use warnings;

use lib 't/lib';
use Digest::MD5 qw(md5_hex);
use File::Temp  ();
use Future;
use IO::Async::Loop;
use Test::More;
use TestClient qw(exchange get post);
use TestGate;
use TestServer;
use TestTools   qw(patience wait_for);
use Time::HiRes qw(sleep time);

# ---- Values that run Perl code when they are read ------------------------------------------------

package Text {
    use overload '""' => sub { ${ $_[0] } }, fallback => 1;
    sub new { my ($class, $text) = @_; return bless \$text, $class }
}

package Bomb {
    use overload '""' => sub { die "no string\n" }, fallback => 1;
    sub new { return bless {}, shift }
}

package List {
    sub TIEARRAY  { my ($class, @list) = @_; return bless \@list, $class }
    sub FETCHSIZE { return scalar @{ $_[0] } }
    sub FETCH     { return $_[0][ $_[1] ] }
}

package Lines {
    my $closed = 0;
    sub new { my ($class, @lines) = @_; return bless \@lines, $class }

    sub getline {
        my ($self) = @_;
        my $line = shift @$self;
        die "no line\n" if ($line // '') eq 'die';
        return $line;
    }
    sub close  { $closed++; return }
    sub closed { return $closed }
}

package Mute {    # has no close
    sub new     { return bless [ 'm', 'u', 't', 'e' ], shift }
    sub getline { return shift @{ $_[0] } }
}

package main;

sub tied_list { my @values = @_; tie my @list, 'List', @values; return \@list }
sub opened { my ($mode, @path) = @_; open my $handle, $mode, @path or die "@path: $!"; return $handle }

my @plain = ('Content-Type' => 'text/plain');
my $gate  = TestGate->new;
my $file  = File::Temp->new;
print {$file} join '', map { "line $_\n" } 1 .. 20_000;
$file->flush;
my $size    = -s "$file";
my $content = do { local $/; opened('<', "$file")->getline };

sub at {
    my ($position) = @_;
    my $handle = opened('<', "$file");
    read($handle, my $skipped, $position);
    return $handle;
}

my %responses = (
    '/number'  => sub { [ 200,            @{ [ [ @plain, 'X-N' => 7 ] ] },     [ 1, 2.5, '', undef, 'x' ] ] },
    '/objects' => sub { [ Text->new(201), [ @plain, 'X-O' => Text->new('o') ], [ Text->new('a'), 'b' ] ] },
    '/tied'    => sub { [ 200,            tied_list(@plain, 'X-T' => 't'),     tied_list('tied', ' list') ] },
    '/all-tied'  => sub { tied_list(200, [@plain], ['all']) },
    '/latin'     => sub { my $text = "\x{e9}"; utf8::upgrade($text); [ 200, [ 'X-L' => $text ], [$text] ] },
    '/pieces'    => sub { [ 200, [@plain],                              [ ('0123456789' x 10_000) x 30 ] ] },
    '/empty'     => sub { [ 200, [@plain],                              [] ] },
    '/204'       => sub { [ 204, [],                                    [] ] },
    '/304'       => sub { [ 304, [ ETag => '"e"' ],                     [] ] },
    '/lines'     => sub { [ 200, [@plain],                              Lines->new('a', '', 'b', 'c') ] },
    '/mute'      => sub { [ 200, [@plain],                              Mute->new ] },
    '/file'      => sub { [ 200, [ @plain, 'Content-Length' => $size ], opened('<', "$file") ] },
    '/file-rest' => sub { [ 200, [@plain],                              at(1000) ] },
    '/file-part' => sub { [ 200, [ @plain, 'Content-Length' => 10 ],    at(1000) ] },
    '/crlf'      => sub { [ 200, [@plain],                              opened('<:crlf', \"a\r\nb\r\n") ] },
    '/memory'    => sub { [ 200, [@plain],                              opened('<',      \'in memory') ] },
    '/pipe'      => sub { [ 200, [@plain],                              opened('-|',     'echo piped') ] },
    '/closed'    => sub { [ 200, [@plain],                              [ Lines->closed ] ] },
);

# Wrong answers, and the message in the log for each.
my %wrong = (
    '/none'       => [ sub { return },             qr/no response: undef/ ],
    '/string'     => [ sub { 'text' },             qr/no response: 'text'/ ],
    '/hash'       => [ sub { {} },                 qr/no response: a reference to HASH/ ],
    '/pagi'       => [ sub { Future->done },       qr/no response: an object of Future, as .* pagi-server/ ],
    '/one'        => [ sub { [200] },              qr/not a list of 1/ ],
    '/two'        => [ sub { [ 200, [] ] },        qr/has no body/ ],
    '/four'       => [ sub { [ 200, [], [], 1 ] }, qr/not a list of 4/ ],
    '/status'     => [ sub { [ 'ok', [], [] ] },   qr/status must be a number.*'ok'/ ],
    '/status-99'  => [ sub { [ 99, [], [] ] },     qr/status must be a number/ ],
    '/status-700' => [ sub { [ 700, [], [] ] },    qr/status 700: / ],
    '/status-undef' => [ sub { [ undef, [], [] ] },                        qr/status/ ],
    '/headers'      => [ sub { [ 200, {}, [] ] },                          qr/headers are no list/ ],
    '/odd'          => [ sub { [ 200, ['A'], [] ] },                       qr/a name without a value/ ],
    '/undefined'    => [ sub { [ 200, [ A => undef ], [] ] },              qr/header A is undefined/ ],
    '/newline'      => [ sub { [ 200, [ A => "a\nSet-Cookie: b" ], [] ] }, qr/header "A": .*control byte/ ],
    '/name'         => [ sub { [ 200, [ 'A b' => 1 ], [] ] },              qr/header "A b": / ],
    '/wide-header'  => [ sub { [ 200, [ A => "\x{263a}" ], [] ] }, qr/header A has a wide character/ ],
    '/wide'         => [ sub { [ 200, [], [ 'a', "\x{263a}" ] ] }, qr/body has a wide character/ ],
    '/length'       => [ sub { [ 200, [ 'Content-Length' => 'x' ], ['a'] ] }, qr/Content-Length/ ],
    '/too-short'    => [ sub { [ 200, [ 'Content-Length' => 9 ], ['a'] ] },   qr/less body|Content-Length/ ],
    '/too-long'     => [ sub { [ 200, [ 'Content-Length' => 1 ], ['abc'] ] }, qr/more body|Content-Length/ ],
    '/bomb'         => [ sub { [ 200, [ A => Bomb->new ], [] ] },             qr/no string/ ],
    '/bomb-body'    => [ sub { [ 200, [], [ Bomb->new ] ] },                  qr/no string/ ],
    '/dies'         => [ sub { die "dies\n" },  qr/died before its response: dies/ ],
    '/dies-object'  => [ sub { die Bomb->new }, qr/died before its response/ ],
);

my $loop    = sub { IO::Async::Loop->new };
my %delayed = (
    '/delayed' => sub {
        return sub { $_[0]->([ 200, [@plain], ['delayed'] ]) };
    },
    '/later' => sub {
        return sub {
            my ($respond) = @_;
            $loop->()->watch_time(after => 0.05, code => sub { $respond->([ 200, [@plain], ['later'] ]) });
        };
    },
    '/stream' => sub {
        return sub {
            my $writer = $_[0]->([ 200, [@plain] ]);
            $writer->write($_) for 'a', Text->new('b'), '', 'c';
            $writer->close;
            $writer->close;
            $writer->write('nothing');
        };
    },
    '/dropped' => sub {
        return sub { my $writer = $_[0]->([ 200, [@plain] ]); $writer->write('dropped') };
    },
    '/poll' => sub {
        return sub {
            my $left = 50;
            $_[0]->([ 200, [@plain] ])->poll_cb(sub { $left-- ? $_[0]->write('x' x 100_000) : $_[0]->close });
        };
    },
    '/twice' => sub {
        return sub {
            my ($respond) = @_;
            $respond->([ 200, [@plain], ['once'] ]);
            eval { $respond->([ 200, [@plain], ['twice'] ]); 1 } and die "not refused\n";
            $@ =~ /was called before/ or die $@;
        };
    },
    '/forgets' => sub {
        return sub {
            my ($respond) = @_;
            $loop->()->watch_time(after => 0.05, code => sub { undef $respond });
        };
    },
    '/wide-write' => sub {
        return sub {
            my $writer = $_[0]->([ 200, [@plain] ]);
            $writer->write('half');
            eval { $writer->write("\x{263a}"); 1 } and die "not refused\n";
            warn "refused: $@";
        };
    },
    '/dies-late' => sub {
        sub { my $writer = $_[0]->([ 200, [@plain] ]); $writer->write('half'); die "late\n" }
    },
    '/dies-lines'  => sub { [ 200, [@plain],                          Lines->new('half', 'die') ] },
    '/long-lines'  => sub { [ 200, [ @plain, 'Content-Length' => 2 ], Lines->new('a', 'bcd') ] },
    '/short-lines' => sub { [ 200, [ @plain, 'Content-Length' => 9 ], Lines->new('a') ] },
    '/wide-lines'  => sub { [ 200, [@plain],                          Lines->new('a', "\x{263a}") ] },
);

# Content that the application has put into chunks.
my @chunked = (@plain, 'Transfer-Encoding' => 'chunked');
my $chunks  = "5;a=b\r\nhello\r\n1 \r\n,\r\n00a\r\n0123456789\r\n0\r\nA: b\r\n\r\n";

# Content that comes with `Transfer-Encoding: chunked`, and is not in chunks.
my @UNFRAMED = (
    'hello', '', '5', 'a1', '5;', "5\r", "fade\n", "5\rx\n", "\r\n",
    'beef and more',
    'x' x 100_000,
    '1' x 16 . "\r\n",
    '5;' . 'x' x 100 . "\r\nhello",
);

sub unframed {
    my ($how, $number) = @_;
    my $content = $UNFRAMED[$number];
    return [ 200, [@chunked], [$content] ]                                                 if $how eq 'list';
    return [ 200, [@chunked], [ length $content < 1000 ? split //, $content : $content ] ] if $how eq 'bytes';
    return [ 200, [@chunked], Lines->new(split /(?<=\n)/, $content) ]                      if $how eq 'lines';
    return sub {
        my $writer = $_[0]->([ 200, [@chunked] ]);
        $writer->write($_) for split /(;)/, $content;
        $writer->close;
    };
}
my %chunked = (
    '/chunks'         => sub { [ 200, [@chunked], [$chunks] ] },
    '/chunks-bytes'   => sub { [ 200, [@chunked], [ split //, $chunks ] ] },
    '/chunks-lines'   => sub { [ 200, [@chunked], Lines->new(split /(?<=\n)/, $chunks) ] },
    '/chunks-written' => sub {
        return sub {
            my $writer = $_[0]->([ 200, [@chunked] ]);
            $writer->write($_) for split /(,)/, $chunks;
            $writer->close;
        };
    },
    '/chunks-cut'   => sub { [ 200, [@chunked], [ substr $chunks,   0, 20 ] ] },
    '/chunks-wrong' => sub { [ 200, [@chunked], [ "5\r\nhello\r\n", 'world' ] ] },
);

my ($cleaned, @kept) = (0);

sub input {
    my ($env) = @_;
    my $input = $env->{'psgi.input'};
    my ($once, $twice) = ('', '');
    1 while read $input, $once, 10_000, length $once;
    seek $input, 0, 0;
    $input->read($twice, length $once);
    return [
        200,
        [@plain],
        [
            join ' ', length $once, md5_hex($once),
            $once eq $twice ? 1 : 0,
            $env->{CONTENT_LENGTH}         // '-',
            $env->{HTTP_TRANSFER_ENCODING} // '-'
        ]
    ];
}

my %others = (
    '/env' => sub {
        my ($env) = @_;
        return [ 200, [@plain], [ map { "$_=" . ($env->{$_} // 'undef') . "\n" } sort keys %$env ] ];
    },
    '/input'   => \&input,
    '/cleanup' => sub {
        my ($env) = @_;
        push @{ $env->{'psgix.cleanup.handlers'} }, sub { die "in cleanup\n" },
            sub { $cleaned++; $gate->block('cleanup') };
        return [ 200, [@plain], ['clean'] ];
    },
    '/cleaned' => sub { return [ 200, [@plain], [$cleaned] ] },
    '/hints'   => sub {
        my ($env) = @_;
        $env->{'psgix.informational'}->(103, [ Link => '</a.css>; rel=preload' ]);
        return [ 200, [@plain], ['final'] ];
    },
    '/keep' => sub {
        my ($env) = @_;
        push @kept, $env;
        return [ 200, [@plain], [ scalar grep { $_->{PATH_INFO} ne '/keep' } @kept ] ];
    },
    '/close-input' =>
        sub { my ($env) = @_; close $env->{'psgi.input'}; return [ 200, [@plain], ['closed'] ] },
    '/change' => sub { my ($env) = @_; %$env = (); return [ 200, [@plain], ['changed'] ] },
    '/peak'   =>
        sub { return [ 200, [@plain], [ TestTools::content('/proc/self/status') =~ /^VmHWM:\s+(\d+)/m ] ] },
    '/sum' => sub { return [ 200, [@plain], [ Digest::MD5->new->addfile($_[0]{'psgi.input'})->hexdigest ] ] },
    '/errors' =>
        sub { my ($env) = @_; $env->{'psgi.errors'}->print("to the log\n"); return [ 200, [@plain], ['ok'] ] }
    ,
);

sub app {
    my ($env) = @_;
    my $path = $env->{PATH_INFO};
    return unframed($1, $2) if $path =~ m{\A/unframed/(\w+)/(\d+)\z};
    my $code =
           $responses{$path}
        || $delayed{$path}
        || $chunked{$path}
        || $others{$path}
        || ($wrong{$path} && $wrong{$path}[0]);
    return $code ? $code->($env) : [ 404, [@plain], [$path] ];
}

# Further options, from t/85-psgi-in-a-clone.t.
our %PLACEMENT;
my $server =
    TestServer->start(psgi => 1, app => \&app, access_log => undef, max_body_size => '100M', %PLACEMENT);
my $port = $server->port;

sub body {
    my ($path) = @_;
    my $response = get($port, $path);
    return $response && $response->{complete} ? $response->{body} : undef;
}

subtest 'responses' => sub {
    is body('/number'),                        '12.5x', 'numbers, nothing and undef';
    is get($port, '/number')->{header}{'x-n'}, 7,       'a number as the value of a header';
    my $objects = get($port, '/objects');
    is "@{$objects}{qw(status body)} $objects->{header}{'x-o'}", '201 ab o',  'objects that are strings';
    is body('/tied'),                                            'tied list', 'tied lists';
    is body('/all-tied'),                                        'all',  'a response that is a tied list';
    is body('/latin'),                                           "\xe9", 'characters below 256 are bytes';
    my $pieces = get($port, '/pieces');
    is md5_hex($pieces->{body}),            md5_hex('0123456789' x 300_000), 'many pieces';
    is $pieces->{header}{'content-length'}, 3_000_000,                       '... with their length';
    is get($port, '/empty')->{header}{'content-length'}, 0,                  'no body';
    ok !exists get($port, '/204')->{header}{'content-length'}, '204 has no length';
    is get($port, '/304')->{header}{etag}, '"e"', '304 with its fields';
    is exchange($port, "HEAD /pieces HTTP/1.1\r\nHost: h\r\n\r\n", head => 1)->{header}{'content-length'},
        3_000_000,
        'HEAD';
};

subtest 'handles' => sub {
    is body('/lines'),              'abc',                          'getline of a class';
    is body('/mute'),               'mute',                         '... that cannot be closed';
    is md5_hex(body('/file')),      md5_hex($content),              'a file';
    is md5_hex(body('/file-rest')), md5_hex(substr $content, 1000), '... from where its handle stands';
    is body('/file-part'),          substr($content, 1000, 10),     '... as much as was promised';
    is body('/crlf'),               "a\nb\n",                       'a handle with a layer';
    is body('/memory'),             'in memory',                    'a handle in memory';
    is body('/pipe'),               "piped\n",                      'a pipe';
    is body('/closed'),             1,                              'bodies are closed';
    is exchange($port, "HEAD /lines HTTP/1.1\r\nHost: h\r\n\r\n", head => 1)->{status}, 200, 'HEAD';
    is body('/closed'),                                                                 2, '... closes, too';
};

subtest 'wrong responses' => sub {
    for my $path (sort keys %wrong) {
        my $response = get($port, $path);
        is $response->{status}, 500, "$path: 500";
        like $server->wait_for_log($wrong{$path}[1]) && $server->log, $wrong{$path}[1],
            "$path: the log says why";
    }
    for my $path (qw(/dies-late /dies-lines /wide-write /long-lines /short-lines /wide-lines)) {
        my $response = get($port, $path);
        is $response->{status}, 200, "$path: begun";
        ok !$response->{complete}, "$path: cut";
    }
    ok $server->wait_for_log(qr/refused: PSGI: the writer: .*wide character/), 'a writer says what is wrong';
};

subtest 'delayed and streaming' => sub {
    is body('/delayed'), 'delayed', 'a response through a responder';
    my $later = TestClient->new($port)->send("GET /later HTTP/1.1\r\nHost: h\r\n\r\n");
    is body('/number'),          '12.5x',   'others are served';
    is $later->response->{body}, 'later',   '... before one that comes later';
    is body('/stream'),          'abc',     'a writer';
    is body('/dropped'),         'dropped', 'a writer that nobody holds is closed';
    is body('/twice'),           'once',    'a responder works once';
    is length body('/poll'),     5_000_000, 'poll_cb';
    my $slow =
        TestClient->new($port, receive_buffer => 65_536)->send("GET /poll HTTP/1.1\r\nHost: h\r\n\r\n");
    sleep 0.2;
    is length $slow->response->{body}, 5_000_000, 'poll_cb and a slow client';
};

subtest 'chunks of the application' => sub {
    for my $path (qw(/chunks /chunks-bytes /chunks-lines /chunks-written)) {
        is body($path), 'hello,0123456789', $path;
        my $old = exchange($port, "GET $path HTTP/1.0\r\n\r\n");
        is $old->{body}, 'hello,0123456789', "$path for HTTP/1.0";
    }
    ok !get($port, $_)->{complete},                      "$_: cut" for qw(/chunks-cut /chunks-wrong);
    ok $server->wait_for_log(qr/last chunk is missing/), 'a missing chunk is told of';
    ok $server->wait_for_log(qr/chunked, and the content is not/), 'what is no chunk, too';
};

subtest 'a field for chunks, and content without' => sub {
    for my $number (0 .. $#UNFRAMED) {
        for my $how (qw(list bytes lines written)) {
            my $path = "/unframed/$how/$number";
            my $got  = get($port, $path);
            is $got->{body}, $UNFRAMED[$number], $path;
            ok $got->{complete}, '... whole';
            is exchange($port, "GET $path HTTP/1.0\r\n\r\n")->{body}, $UNFRAMED[$number], '... for HTTP/1.0';
        }
    }
};

subtest 'the environment' => sub {
    my $head =
        "GET /env?a=%20b HTTP/1.1\r\nHost: h:1\r\nAccept: a\r\nAccept: b\r\nCookie: c\r\nCookie: d\r\nX-A_B: spoof\r\n"
        . "Proxy: evil\r\nX-A-B: real\r\n\r\n";
    my %env      = exchange($port, $head)->{body} =~ /^(\S+?)=(.*)$/mg;
    my %expected = (
        REQUEST_METHOD         => 'GET',
        SCRIPT_NAME            => '',
        PATH_INFO              => '/env',
        REQUEST_URI            => '/env?a=%20b',
        QUERY_STRING           => 'a=%20b',
        SERVER_NAME            => '127.0.0.1',
        SERVER_PORT            => $port,
        SERVER_PROTOCOL        => 'HTTP/1.1',
        REMOTE_ADDR            => '127.0.0.1',
        HTTP_HOST              => 'h:1',
        HTTP_ACCEPT            => 'a, b',
        HTTP_COOKIE            => 'c; d',
        HTTP_X_A_B             => 'real',
        'psgi.url_scheme'      => 'http',
        'psgi.multithread'     => %PLACEMENT ? 1 : '',
        'psgi.multiprocess'    => '',
        'psgi.run_once'        => '',
        'psgi.nonblocking'     => 1,
        'psgi.streaming'       => 1,
        'psgix.input.buffered' => 1,
        'psgix.cleanup'        => 1,
        'psgix.harakiri'       => %PLACEMENT ? 1 : '',
    );
    is $env{$_}, $expected{$_}, $_ for sort keys %expected;
    ok !exists $env{$_}, "no $_" for qw(HTTP_PROXY CONTENT_LENGTH CONTENT_TYPE HTTP_CONTENT_LENGTH);
    is exchange($port, "GET http://other/env HTTP/1.1\r\nHost: h\r\n\r\n")->{body} =~ /^REQUEST_URI=(.*)$/m
        && $1,
        '/env',
        'no scheme and host in REQUEST_URI';
    is exchange($port, "GET /x%2Fy%C3%A9 HTTP/1.1\r\nHost: h\r\n\r\n")->{body}, "/x/y\xc3\xa9",
        'PATH_INFO has decoded bytes';
    is body('/keep'),                 0,         'an environment that is kept';
    is body('/env') && body('/keep'), 0,         '... stays as it is';
    is body('/change'),               'changed', 'an environment that is emptied';
    is body('/close-input'),          'closed',  'psgi.input may be closed';
    is body('/input'),                '0 d41d8cd98f00b204e9800998ecf8427e 1 - -', '... the next one is open';
    is body('/errors'),               'ok',                                       'psgi.errors';
    ok $server->wait_for_log(qr/^to the log$/m), '... is in the log';
};

subtest 'request bodies' => sub {
    for my $length (1, 70_000, 1_000_000, 3_000_000) {
        my $bytes = join '', map { chr($_ * 7 % 251) } 1 .. 1000;
        $bytes = substr $bytes x (1 + $length / 1000), 0, $length;
        my $sum = md5_hex($bytes);
        is post($port, '/input', $bytes)->{body}, "$length $sum 1 $length -", "$length bytes";
        my $chunks = join '', map { sprintf "%x\r\n%s\r\n", length, $_ } unpack '(a60000)*', $bytes;
        my $head   = "POST /input HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
        is exchange($port, "$head${chunks}0\r\n\r\n")->{body}, "$length $sum 1 $length -", '... in chunks';
    }
    my $slow =
        TestClient->new($port)->send("POST /input HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n12345");
    is body('/number'), '12.5x', 'others are served while a body comes';
    is $slow->send('67890')->response->{body}, '10 ' . md5_hex('1234567890') . ' 1 10 -',
        '... until it is there';
    is exchange($port, "POST /input HTTP/1.1\r\nHost: h\r\nContent-Length: 200000000\r\n\r\n")->{status}, 413,
        'too large';
    my $before = body('/peak');
    my $large  = 'large body' x 4_000_000;
    is post($port, '/sum', $large)->{body}, md5_hex($large), 'a large body';
    cmp_ok body('/peak') - $before, '<', 20_000, '... which is not in memory';
};

subtest 'around the response' => sub {
    is body('/cleanup'), 'clean', 'a response comes before its cleanup handlers have run';
    $gate->open('cleanup');
    is body('/cleaned'), 1, '... which do, whatever another one does';
    ok $server->wait_for_log(qr/a callback died: in cleanup/), '... and the log says what died';
    my $client = TestClient->new($port)->send("GET /hints HTTP/1.1\r\nHost: h\r\n\r\n");
    is $client->response->{status}, 103,     'an interim response';
    is $client->response->{body},   'final', '... and the final one';
};

my $spool  = File::Temp->newdir;
my $little = TestServer->start(
    psgi             => 1,
    app              => \&app,
    access_log       => undef,
    body_buffer_size => 1000,
    max_body_spool   => 100_000,
    body_folder      => "$spool",
);
is post($little->port, '/input', 'x' x 50_000)->{body} =~ s/ .*//r, 50_000, 'a body in a file';
is post($little->port, '/input', 'x' x 200_000)->{status},          507,    'no room for another in files';
ok $little->wait_for_log(qr/request body is not kept in a temporary file/),        '... which the log says';
ok wait_for(sub { post($little->port, '/input', 'x' x 90_000)->{status} == 200 }), 'room comes back';
is_deeply [ glob "$spool/*" ], [], 'files have no names';
is $little->stop, 0, 'that server stops';
my $nowhere = TestServer->start(
    psgi             => 1,
    app              => \&app,
    access_log       => undef,
    body_buffer_size => 1000,
    body_folder      => "$spool/nowhere"
);
is post($nowhere->port, '/input', 'x' x 50_000)->{status}, 507, 'no folder for files';
is post($nowhere->port, '/input', 'x' x 1000)->{status},   200, '... and none needed';
is $nowhere->stop, 0, 'that server stops';

my $limited = TestServer->start(psgi => 1, app => \&app, access_log => undef, max_keepalive_requests => 2);
my $client  = TestClient->new($limited->port)->send("GET /number HTTP/1.1\r\nHost: h\r\n\r\n" x 3);
is_deeply [ map { ($client->response || {})->{header}{connection} // '-' } 1 .. 3 ], [ '-', 'close', '-' ],
    'max_keepalive_requests';
is $limited->stop, 0, 'that server stops';

is $server->stop, 0, 'the server stops';
unlike $server->log, qr/uninitialized|at xs|panic|segfault|Attempt to free/i, 'nothing strange in the log';

done_testing;
