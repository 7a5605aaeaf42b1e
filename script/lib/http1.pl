# Questions of HTTP/1.1 to pagi-server with its defaults: `http1.pl http1` asks for RFC 9110 and 9112,
# `http1.pl smuggling` with messages whose end two servers could see in two places. Each message is sent whole
# and byte by byte, to each placement of the engine. Prints a line for each group of questions and for each
# wrong answer, and fails when there is one.
use v5.36;
use FindBin;
use lib "$FindBin::Bin/../../t/lib";
use File::Temp ();
use TestClient;
use TestServer;

my $END  = "\r\n\r\n";
my $GET  = "GET / HTTP/1.1\r\nHost: h\r\n";
my $POST = "POST /body HTTP/1.1\r\nHost: h\r\n";
# A request that is smuggled in content: a server that is fooled would answer it.
my $LOOT = "GET /loot HTTP/1.1\r\nHost: h\r\n\r\n";

# Groups of questions: a name, a message, the expected statuses, and further checks: `body` of the last
# response, `has` and `lacks` patterns of the whole answer, `open` tells whether the connection stays open.
my %GROUPS = (
    http1 => [
        'request lines' => [
            [ 'origin form',                "GET /a?b HTTP/1.1\r\nHost: h$END",        [200], body => '/a' ],
            [ 'absolute form',              "GET http://h/a HTTP/1.1\r\nHost: h$END",  [200], body => '/a' ],
            [ 'asterisk form',              "OPTIONS * HTTP/1.1\r\nHost: h$END",       [200] ],
            [ 'an empty line before it',    "\r\n$GET\r\n",                            [200] ],
            [ 'an unknown method',          "PURGE / HTTP/1.1\r\nHost: h$END",         [200] ],
            [ 'a method in lower case',     "get / HTTP/1.1\r\nHost: h$END",           [501] ],
            [ 'CONNECT',                    "CONNECT h:1 HTTP/1.1\r\nHost: h:1$END",   [501] ],
            [ 'two spaces',                 "GET  / HTTP/1.1\r\nHost: h$END",          [400] ],
            [ 'no version',                 "GET /\r\nHost: h$END",                    [400] ],
            [ 'another version',            "GET / HTTP/3.0\r\nHost: h$END",           [505] ],
            [ 'a version that is none',     "GET / HTTP/1.x\r\nHost: h$END",           [400] ],
            [ 'a control byte in a target', "GET /\x01 HTTP/1.1\r\nHost: h$END",       [400] ],
            [ 'a target too long',          'GET /' . 'x' x 100_000 . " HTTP/1.1$END", [414] ],
        ],
        'fields' => [
            [ 'names in any case', "GET /echo HTTP/1.1\r\nhOST: h\r\nX-a: b$END", [200], has => qr/x-a=b/ ],
            [
                'blanks round a value',
                "GET /echo HTTP/1.1\r\nHost: h\r\nX-A: \t b \t$END",
                [200], has => qr/x-a=b$/m
            ],
            [ 'an empty value', "GET /echo HTTP/1.1\r\nHost: h\r\nX-A:$END", [200], has => qr/x-a=$/m ],
            [ 'a line that is folded',        "$GET" . "X-A: b\r\n c$END",   [400] ],
            [ 'a blank before the colon',     "$GET" . "X-A : b$END",        [400] ],
            [ 'no colon',                     "$GET" . "X-A$END",            [400] ],
            [ 'an empty name',                "$GET" . ": b$END",            [400] ],
            [ 'a NUL in a value',             "$GET" . "X-A: b\0c$END",      [400] ],
            [ 'a carriage return in a value', "$GET" . "X-A: b\rc$END",      [400] ],
            [
                'fields too large',
                $GET . join('', map { "X-$_: " . 'x' x 1000 . "\r\n" } 1 .. 90) . "\r\n", [431]
            ],
            [ 'too many fields', $GET . join('', map { "X-$_: x\r\n" } 1 .. 1000) . "\r\n", [431] ],
        ],
        'host' => [
            [ 'missing in 1.1',   "GET / HTTP/1.1$END",                       [400] ],
            [ 'missing in 1.0',   "GET / HTTP/1.0$END",                       [200] ],
            [ 'twice',            "GET / HTTP/1.1\r\nHost: h\r\nHost: h$END", [400] ],
            [ 'two names in one', "GET / HTTP/1.1\r\nHost: a, b$END",         [400] ],
            [ 'a path in it',     "GET / HTTP/1.1\r\nHost: h/x$END",          [400] ],
            [ 'an IPv6 address',  "GET / HTTP/1.1\r\nHost: [::1]:80$END",     [200] ],
            [ 'empty',            "GET / HTTP/1.1\r\nHost:$END",              [200] ],
        ],
        'content' => [
            [ 'by length',   "${POST}Content-Length: 5${END}hello", [200], body => 'hello' ],
            [ 'of no bytes', "${POST}Content-Length: 0$END",        [200], body => '' ],
            [
                'in chunks', "${POST}Transfer-Encoding: chunked${END}2\r\nhe\r\n3\r\nllo\r\n0$END",
                [200],       body => 'hello'
            ],
            [
                'hexadecimal lengths',
                "${POST}Transfer-Encoding: chunked${END}0A\r\n0123456789\r\n00$END",
                [200], body => '0123456789'
            ],
            [
                'chunk extensions',
                "${POST}Transfer-Encoding: chunked${END}2;a=b;c\r\nhe\r\n0$END",
                [200], body => 'he'
            ],
            [
                'trailers', "${POST}Transfer-Encoding: chunked${END}2\r\nhe\r\n0\r\nX-T: 1$END",
                [200],      body => 'he'
            ],
            [
                'waits for 100', "${POST}Content-Length: 2\r\nExpect: 100-continue${END}he", [200],
                waits => 1,
                body  => 'he'
            ],
            [ 'another expectation', "${POST}Content-Length: 0\r\nExpect: magic$END",      [200] ],
            [ 'more than is taken',  "${POST}Content-Length: 99999999999$END",             [413] ],
            [ 'a coding unknown',    "${POST}Transfer-Encoding: gzip, chunked${END}0$END", [501] ],
        ],
        'responses' => [
            [
                'a date and a length', "$GET\r\n",
                [200],                 has => qr/^date: \w{3}, \d\d \w{3} \d{4} .* GMT\r\n/mi
            ],
            [
                'HEAD has no content', "HEAD /a HTTP/1.1\r\nHost: h$END", [200],
                has  => qr/content-length: 2\r\n/i,
                body => ''
            ],
            [
                '204 has none', "GET /204 HTTP/1.1\r\nHost: h$END",
                [204],          lacks => qr/content-length|transfer-encoding/i
            ],
            [ '304 has none', "GET /304 HTTP/1.1\r\nHost: h$END", [304], lacks => qr/transfer-encoding/i ],
            [
                'chunked without length',
                "GET /stream HTTP/1.1\r\nHost: h$END",
                [200],
                has => qr/transfer-encoding: chunked\r\n/i
            ],
            [
                'to 1.0 until it closes', "GET /stream HTTP/1.0$END", [200],
                lacks => qr/transfer-encoding/i,
                open  => 0
            ],
            [ 'a line break in a field', "GET /split HTTP/1.1\r\nHost: h$END", [500], lacks => qr/injected/ ],
        ],
        'connections' => [
            [ '1.1 persists',            "$GET\r\n",                                     [200], open => 1 ],
            [ '1.1 closes when asked',   "${GET}Connection: close$END",                  [200], open => 0 ],
            [ 'among other words',       "${GET}Connection: x, Close$END",               [200], open => 0 ],
            [ '1.0 closes',              "GET / HTTP/1.0$END",                           [200], open => 0 ],
            [ '1.0 persists when asked', "GET / HTTP/1.0\r\nConnection: keep-alive$END", [200], open => 1 ],
            [
                'pipelined, in order',
                "GET /a HTTP/1.1\r\nHost: h${END}${POST}Content-Length: 2${END}he"
                    . "GET /b HTTP/1.1\r\nHost: h$END",
                [ 200, 200, 200 ],
                body => '/b'
            ],
            [ 'an upgrade unknown', "${GET}Connection: Upgrade\r\nUpgrade: magic$END", [200] ],
            [ 'closes behind a refusal', "GET / HTTP/1.x\r\nHost: h$END$GET\r\n", [400], open => 0 ],
        ],
    ],
    smuggling => [
        'length and chunks at once' => [
            map { [ $_->[0], "$POST$_->[1]${END}0\r\n\r\n$LOOT", [400] ] } (
                [ 'length first', "Content-Length: 4\r\nTransfer-Encoding: chunked" ],
                [ 'chunks first', "Transfer-Encoding: chunked\r\nContent-Length: 4" ],
                [ 'of length 0',  "Content-Length: 0\r\nTransfer-Encoding: chunked" ],
                [
                    'in 1.1 with close',
                    "Connection: close\r\nContent-Length: 4\r\nTransfer-Encoding: chunked"
                ],
            )
        ],
        'disguised codings' => [
            map { [ $_->[0], "$POST$_->[1]${END}0\r\n\r\n$LOOT", [400] ] } (
                [ 'a blank before the colon', 'Transfer-Encoding : chunked' ],
                [ 'a tab before the colon',   "Transfer-Encoding\t: chunked" ],
                [ 'folded',                   "Transfer-Encoding:\r\n chunked" ],
                [ 'a blank before the name',  " Transfer-Encoding: chunked" ],
                [ 'a bare line feed',         "X: y\nTransfer-Encoding: chunked" ],
                [ 'a bare carriage return',   "X: y\rTransfer-Encoding: chunked" ],
                [ 'a vertical tab',           "Transfer-Encoding: \x0bchunked" ],
                [ 'a NUL',                    "Transfer-Encoding: chunked\0" ],
                [ 'twice',                    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked" ],
                [ 'twice in one',             'Transfer-Encoding: chunked, chunked' ],
                [ 'not the last',             'Transfer-Encoding: chunked, identity' ],
                [ 'in quotes',                'Transfer-Encoding: "chunked"' ],
                [ 'a longer word',            'Transfer-Encoding: xchunked' ],
                [ 'identity',                 'Transfer-Encoding: identity' ],
                [ 'empty',                    'Transfer-Encoding:' ],
            )
        ],
        'lengths' => [
            map { [ $_->[0], "$POST$_->[1]${END}$LOOT", [ $_->[2] // 400 ] ] } (
                [ 'two that differ',      "Content-Length: 0\r\nContent-Length: 5" ],
                [ 'a list that differs',  'Content-Length: 0, 5' ],
                [ 'a sign',               'Content-Length: +0' ],
                [ 'negative',             'Content-Length: -1' ],
                [ 'hexadecimal',          'Content-Length: 0x0' ],
                [ 'a blank within',       'Content-Length: 0 0' ],
                [ 'empty',                'Content-Length:' ],
                [ 'a fraction',           'Content-Length: 0.0' ],
                [ 'beyond 64 bits',       'Content-Length: 18446744073709551616', 413 ],
                [ 'letters behind it',    'Content-Length: 0a' ],
                [ 'a blank before colon', 'Content-Length : 0' ],
            )
        ],
        'chunks' => [
            map { [ $_->[0], "${POST}Transfer-Encoding: chunked$END$_->[1]$LOOT", [ $_->[2] // 400 ] ] } (
                [ 'a sign',                      "+0\r\n\r\n" ],
                [ 'a prefix',                    "0x0\r\n\r\n" ],
                [ 'a blank before',              " 0\r\n\r\n" ],
                [ 'no length',                   ";x\r\n\r\n" ],
                [ 'beyond 64 bits',              "10000000000000000\r\n\r\n", 413 ],
                [ 'a bare line feed',            "0\n\n" ],
                [ 'a line feed in an extension', "1;a\nb\r\nx\r\n0\r\n\r\n" ],
                [ 'a carriage return there',     "1;a\rb\r\nx\r\n0\r\n\r\n" ],
                [ 'too much behind a chunk',     "1\r\nxyz\r\n0\r\n\r\n" ],
                [ 'a line feed behind it',       "1\r\nx\n0\r\n\r\n" ],
            )
        ],
        'trailers, versions, ends' => [
            [
                'a length in trailers',
                "${POST}Transfer-Encoding: chunked${END}0\r\nContent-Length: 30$END$LOOT",
                undef, loot => 1
            ],
            [
                'chunks in 1.0',
                "POST /body HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked${END}0\r\n\r\n$LOOT", [400]
            ],
            [
                'content of GET',
                "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: " . length($LOOT) . "$END$LOOT", [200]
            ],
            [
                'content of HEAD',
                "HEAD / HTTP/1.1\r\nHost: h\r\nContent-Length: " . length($LOOT) . "$END$LOOT", [200]
            ],
            [
                'an upgrade that is refused',
                "${GET}Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: "
                    . length($LOOT)
                    . "$END$LOOT",
                undef
            ],
            [ 'behind a refusal', "GET / HTTP/1.x\r\nHost: h$END$LOOT", [400] ],
            [
                'h2c',
                "${GET}Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
                    . "HTTP2-Settings: AAMAAABk\r\nContent-Length: "
                    . length($LOOT)
                    . "$END$LOOT",
                undef
            ],
        ],
    ],
);

my $judged = shift // '';
my @groups = @{ $GROUPS{$judged} or die "usage: http1.pl http1|smuggling\n" };
my $folder = File::Temp->newdir;
my $wrong  = 0;
my (%asked, %right);
for my $engine (qw(inline thread process)) {
    my $server = serve($engine);
    for (my $at = 0; $at < @groups; $at += 2) {
        my ($group, $questions) = @groups[ $at, $at + 1 ];
        for my $question (@$questions) {
            for my $way (qw(whole apart)) {
                my ($name, $message, undef, %look) = @$question;
                next if length $message > 5000 && $way eq 'apart';
                $asked{$group}++;
                my @problems = ask($server, $way, $question);
                $right{$group}++ if !@problems;
                $wrong++         if @problems;
                say "WRONG $engine, $way, $group, $name: $_" for @problems;
            }
        }
    }
    $server->stop;
}
for (my $at = 0; $at < @groups; $at += 2) {
    printf "%s: %d of %d\n", $groups[$at], $right{ $groups[$at] } // 0, $asked{ $groups[$at] };
}
say "$judged: $wrong wrong answers";
exit($wrong ? 1 : 0);

sub serve ($engine) {
    my $app = "$folder/app.pl";
    if (!-e $app) {
        open my $out, '>', $app or die "$app: $!\n";
        print {$out} <<~'APP';
            use Future::AsyncAwait;
            async sub {
                my ($scope, $receive, $send) = @_;
                die "no $scope->{type}\n" if $scope->{type} ne 'http';
                my ($body, $path) = ('', $scope->{path});
                while (1) {
                    my $event = await $receive->();
                    return if $event->{type} ne 'http.request';
                    $body .= $event->{body} // '';
                    last if !$event->{more};
                }
                my $text = $path eq '/body' ? $body : $path;
                $text = join '', map { "$_->[0]=$_->[1]\n" } @{ $scope->{headers} } if $path eq '/echo';
                my $status  = $path =~ m{\A/([23]04)\z} ? $1 : 200;
                my @headers = $path eq '/stream' || $status != 200 ? () : [ 'content-length', length $text ];
                push @headers, [ 'x-split', "a\r\ninjected: b" ] if $path eq '/split';
                await $send->({ type => 'http.response.start', status => $status, headers => \@headers });
                await $send->({ type => 'http.response.body', body => 'some of ', more => 1 })
                    if $path eq '/stream';
                await $send->({ type => 'http.response.body', body => $status == 200 ? $text : '' });
            }
            APP
        close $out or die "$app: $!\n";
    }
    my @workers = $engine eq 'process' ? qw(--workers 1) : ();
    return TestServer->command($app, '--engine', $engine, @workers, '-E', 'production', '--no-access-log');
}

# Returns the mistakes in the answers to a message. A request after the message shows whether the connection
# stays open; a smuggler's message contains a request already, which the server must not answer.
sub ask ($server, $way, $question) {
    my (undef, $message, $expected, %look) = @$question;
    my $smuggles = index($message, $LOOT) >= 0;
    my $client   = TestClient->new($server->port);
    my $end      = $smuggles ? '' : "GET /end HTTP/1.1\r\nHost: h\r\nConnection: close$END";
    if ($look{waits}) {
        my ($head, $rest) = $message =~ /\A(.*?\r\n\r\n)(.*)\z/s;
        $client->send($head);
        my $got = $client->some(30);
        return 'no 100 came' if $got !~ m{\AHTTP/1\.1 100 };
        $message = $rest;
    }
    $client->send($_) for $way eq 'whole' ? $message . $end : (split(//, $message), $end);
    $client->half_close;
    my $answer   = $client->rest // return 'the connection does not end';
    my @statuses = $answer =~ m{HTTP/1\.1 (\d{3}) }g;
    my @problems;
    if ($smuggles) {
        push @problems, 'the smuggled request was answered'  if !$look{loot} && $answer =~ m{\r\n\r\n/loot\z};
        push @problems, "answered @statuses, not @$expected" if $expected    && "@statuses" ne "@$expected";
        push @problems, 'no answer'                          if !@statuses;
        return @problems;
    }
    my $is_open = $answer =~ s{HTTP/1\.1 200 OK\r\n(?:(?!\r\n\r\n).)*\r\n\r\n/end\z}{}s;
    pop @statuses if $is_open;
    push @problems, "answered @statuses, not @$expected" if "@statuses" ne "@$expected";
    push @problems, $is_open ? 'the connection goes on' : 'the connection ends'
        if defined $look{open} && $is_open != $look{open};
    push @problems, 'not as it should be: ' . $answer =~ s/\r?\n/ | /gr
        if $look{has} && $answer !~ $look{has};
    push @problems, 'what should not be there: ' . $answer =~ s/\r?\n/ | /gr
        if $look{lacks} && $answer =~ $look{lacks};
    push @problems, "another content, not '$look{body}': " . $answer =~ s/\r?\n/ | /gr
        if defined $look{body} && $answer !~ /\r\n\r\n\Q$look{body}\E\z/;
    return @problems;
}
