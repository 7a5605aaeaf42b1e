# Every kind of response, and every way in which one ends, leaves neither descriptors nor live values behind.
use strict;
use warnings;

use lib 't/lib';
use Certificates;
use File::Temp ();
use Future;
use Future::AsyncAwait;
use IO::Async::Loop;
use IO::Socket::SSL ();
use List::Util      qw(max);
use OnlyInFull      qw(only_in_full);
use Socket          qw(AF_UNIX PF_UNSPEC SOCK_STREAM);
use Symbol          qw(gensym);
use Test::More;
use TestServer;
use TestSteps;
use TestTools qw(patience);
use TestUsage qw(report settled);
use TestVisit;
use Time::HiRes qw(sleep time);

# ---- What is sent --------------------------------------------------------------------------------

package Tied {
    sub TIEHANDLE { my ($class, @pieces) = @_; return bless \@pieces, $class }

    sub READ {
        my ($self) = @_;
        $_[1] = shift(@$self) // '';
        die "no more of this\n" if $_[1] eq 'die';
        return length $_[1];
    }
}

my $large = 'x' x 1_000_000;
my $huge  = 'x' x 4_000_000;
my $file  = File::Temp->new;
print {$file} substr $large, 0, 300_000;
$file->flush;

sub opened      { my ($mode, @path) = @_; open my $fh, $mode, @path or die "@path: $!"; return $fh }
sub memory      { my $text   = 'y' x 200_000; return opened('<', \$text) }
sub tied_handle { my @pieces = @_; my $glob = gensym; tie *$glob, 'Tied', @pieces; return $glob }

sub piped {
    my ($text, $writers) = @_;
    pipe my $reader, my $writer or die "pipe: $!";
    syswrite $writer, $text;
    push @$writers, $writer if $writers;
    return $reader;
}

# A pipe that stays open for as long as a scope.
sub quiet { my ($scope) = @_; return (fh => piped('first', $scope->{writers} = [])) }

sub socket_of {
    my ($text) = @_;
    socketpair my $here, my $there, AF_UNIX, SOCK_STREAM, PF_UNSPEC or die "socketpair: $!";
    syswrite $there, $text;
    return $here;
}

# ---- What an application does --------------------------------------------------------------------

sub more { return body(body => $_[0] // 'first', more => 1) }

# Keeps something for ever; other names, other things.
my %kept;

sub keeps {
    my ($name, $what) = @_;
    return at_once(sub { $kept{$name} = $what->(@_) });
}

sub disconnect_future { return $_[0]{'pagi.connection'}->disconnect_future }

# Races a Future, which loses.
sub races {
    my ($future) = @_;
    return sub { Future->wait_any($future->(@_), later(0.001)->()) };
}

# Registers callbacks that hold all there is.
sub registers {
    my ($scope, $receive, $send) = @_;
    my ($connection, $transport) = @{$scope}{qw(pagi.connection pagi.transport)};
    my $all = sub { return ($scope, $receive, $send, $connection, $transport) };
    $connection->$_($all) for qw(on_disconnect on_complete);
    $transport->$_($all)  for qw(on_high_water on_drain);
    $connection->disconnect_future->on_ready($all);
    return;
}

# ---- The kinds -----------------------------------------------------------------------------------

my @accepts_stream = (fields => ['Accept: text/event-stream']);
my @trailers       = (event('http.response.trailers', headers => [ [ 'x-a', 'b' ] ]));
my $promises       = start(trailers => 1);
my $length         = sub { start(headers => [ [ 'content-length', $_[0] ] ]) };
my @chunked        = (method => 'POST', framed => 1, fields => ['Transfer-Encoding: chunked']);
my $head           = "HTTP/1.1\r\nHost: h\r\n";

# Name, client, application; `slow`: the number of tries that is enough for a slow one.
my @kinds = (

    # Responses
    [ 'a body',                  asks(), sends($length->(5), body(body => 'plain')) ],
    [ 'an empty body',           asks(), answers(body()) ],
    [ 'a body in pieces',        asks(), answers(more(), more(), body()) ],
    [ 'a body in slow pieces',   asks(), answers(more(), later(0.001), more(), later(0.001), body()) ],
    [ 'a large body',            asks(), answers(body(body => $large)) ],
    [ 'a body that has to wait', asks(), answers(more($large), more($large), body()) ],
    [ 'sends that overlap',      asks(), sends(together(start(), more(), more($large), more(), body())) ],
    [ 'many on a connection',    asks(times => 5),       sends(plain()) ],
    [ 'HTTP/1.0',                asks(version => '1.0'), sends(plain()) ],
    [ 'HEAD',                    asks(method => 'HEAD'), sends(plain()) ],
    [ 'HEAD of a file',          asks(method => 'HEAD'), answers(body(file => "$file")) ],
    [ 'HEAD of a pipe',          asks(method => 'HEAD'), answers(made(sub { fh => piped('x') })) ],
    [ '204',                     asks(status => 204),    sends(start(status => 204), body()) ],
    [ '304',                     asks(status => 304),    sends(start(status => 304), body()) ],
    [ 'trailers',                asks(),                 sends($promises, body(body => 'x'), @trailers) ],
    [ 'trailers that come late', asks(), sends($promises, body(body => 'x'), later(0.001), @trailers) ],
    [ 'fullflush',               asks(), answers(more(), event('http.fullflush'), body()) ],
    [ 'a head that is wrong',    asks(), sends(fails(start(headers => [ [ 'a b', 'c' ] ])), plain()) ],

    # Files, by sendfile or by reading
    [ 'a file',           asks(), answers(body(file => "$file")) ],
    [ 'a part of a file', asks(), answers(body(file => "$file", offset => 1000, length => 100_000)) ],
    [ 'a handle',         asks(), answers(made(sub { fh => opened('<', "$file") })) ],
    [
        'a part of a handle',
        asks(), answers(made(sub { fh => opened('<', "$file"), offset => 9, length => 99 }))
    ],
    [ 'a file with trailers',     asks(),              sends($promises, body(file => "$file"), @trailers) ],
    [ 'a file that is not there', asks(status => 500), sends(body(file => '/no/such/file')) ],
    [ 'another instead of it', asks(), answers(fails(body(file => '/no/such/file')), body(file => "$file")) ],
    [ 'a file shorter than said', asks(cut => 1), sends($length->(999_999), body(file => "$file")) ],

    # Files that the server always reads, as sendfile does not work for them
    [ 'a file of /proc', asks(), answers(body(file => '/proc/version')) ],
    [
        'a part of its handle',
        asks(), answers(made(sub { fh => opened('<', '/proc/version'), offset => 2, length => 3 }))
    ],
    [ 'a device',                asks(), answers(body(file => '/dev/zero', length => 150_000)) ],
    [ 'a pipe',                  asks(), answers(made(sub { fh => piped('x' x 10_000) })) ],
    [ 'a part of a pipe',        asks(), answers(made(sub { fh => piped('x' x 10_000), length => 10 })) ],
    [ 'a command',               asks(), answers(made(sub { fh => opened('-|', 'echo', 'hello') })) ],
    [ 'a socket',                asks(), answers(made(sub { fh => socket_of('x' x 1000) })) ],
    [ 'a handle in memory',      asks(), answers(made(sub { fh => memory(), offset => 5 })) ],
    [ 'a tied handle',           asks(), answers(made(sub { fh => tied_handle(qw(one two)) })) ],
    [ 'a tied handle that dies', asks(cut => 1), answers(made(sub { fh => tied_handle(qw(one die)) })) ],
    [ 'a pipe with trailers', asks(),         sends($promises, made(sub { fh => piped('x') }), @trailers) ],
    [ 'a pipe at an offset',  asks(cut => 1), answers(made(sub { fh => piped('x'), offset => 1 })) ],
    [
        '... that nobody awaits',
        asks(), answers(at_once(sub { $_[2]->(body(fh => piped('x'))) }), waits_for_end())
    ],
    [ '... that is cancelled', asks(), answers(at_once(sub { $_[2]->(body(quiet(@_)))->cancel }), body()) ],
    [ '... that loses a race', asks(), answers(races(sub { $_[2]->(body(quiet(@_))) }),           body()) ],
    [
        '... overtaken by an end',
        asks(), answers(at_once(sub { $_[2]->(body(quiet(@_))) }), later(0.001), body())
    ],
    [ '... whose client leaves', leaves(undef, until => 'first'), answers(made(\&quiet)) ],
    [ '... whose app returns',   asks(cut => 1), answers(at_once(sub { $_[2]->(body(quiet(@_))) })) ],
    [ '... whose app dies',      asks(cut => 1), answers(at_once(sub { $_[2]->(body(quiet(@_))) }), dies()) ],
    [
        '... disconnect_future kept',
        asks(times => 2),
        answers(keeps(pipe => \&disconnect_future), made(sub { fh => piped('x') }))
    ],
    [
        'a device until the client leaves',
        leaves(undef, slow => 1, until => 'HTTP'),
        answers(body(file => '/dev/zero'))
    ],

    # Requests
    [ 'a request body', asks(method => 'POST', payload => 'x' x 100_000), sends(reads_body(), plain()) ],
    [ '... that nobody reads', asks(method => 'POST', payload => 'x' x 1000),      sends(plain()) ],
    [ '... a long one',        asks(method => 'POST', payload => 'x' x 1_000_000), sends(plain()) ],
    [ '... in part',           asks(method => 'POST', payload => 'x' x 1_000_000), sends(takes(), plain()) ],
    [ '... that fails in the end', asks(@chunked, status => 400, payload => "x\r\n"), sends(reads_body()) ],
    [
        'trailers of a request',
        asks(@chunked, payload => "3\r\nabc\r\n0\r\nX-T: 1\r\n\r\n"),
        sends(reads_body(), plain())
    ],
    [
        '100 Continue',
        asks(fields => [ 'Expect: 100-continue', 'Content-Length: 3' ], status => 100),
        sends(takes(), plain())
    ],
    [ 'a bad request', is_refused(400, "GET / HTTP/1.1\r\n\r\n"),  sends(plain()) ],
    [ 'a slow head',   is_refused(408, "GET / HTTP/1.1\r\nHost:"), sends(plain()), slow => 8 ],
    [
        'a body too large',
        is_refused(413, "POST / ${head}Content-Length: 99999999999\r\n\r\n"),
        sends(plain())
    ],
    [ 'a target too long', is_refused(414, 'GET /' . 'x' x 20_000 . " $head\r\n"),           sends(plain()) ],
    [ 'a head too large',  is_refused(431, "GET / ${head}X: " . 'x' x 100_000 . "\r\n\r\n"), sends(plain()) ],
    [
        'an unknown coding',
        is_refused(501, "POST / ${head}Transfer-Encoding: gzip, chunked\r\n\r\n"),
        sends(plain())
    ],

    # Applications that do not end as they should
    [ 'an app that dies at once', asks(status => 500), sub { die "on purpose\n" } ],
    [ '... later',                asks(status => 500), sends(later(0.001), dies()) ],
    [ '... before its response',  asks(status => 500), sends(takes(), dies()) ],
    [ '... in the middle',        asks(cut => 1),      answers(more(), dies()) ],
    [ '... in a file', asks(cut => 1), answers(at_once(sub { $_[2]->(body(file => '/dev/zero')) }), dies()) ],
    [ '... after its response',      asks(),              sends(plain(), dies()) ],
    [ 'an app that returns at once', asks(status => 500), sends() ],
    [ '... in the middle',           asks(cut => 1),      answers(more()) ],
    [ '... no Future',               asks(status => 500), sub { return 'x' } ],
    [
        '... a cancelled one',
        asks(status => 500),
        sub { my $future = Future->new; $future->cancel; return $future }
    ],
    [
        'events that are wrong',
        asks(), sends(together(undef, {}, event('x'), start(status => 'x'), body()), plain())
    ],
    [ '... that come too late', asks(), sends(plain(), together(plain())) ],

    # Clients that leave
    [ 'a client that says nothing', leaves(''),                     sends(plain()) ],
    [ '... leaves in its head',     leaves("GET / HTTP/1.1\r\nHo"), sends(plain()) ],
    [
        '... leaves in its body',
        leaves(undef, method => 'POST', fields => ['Content-Length: 9']),
        sends(reads_body(), plain())
    ],
    [ '... leaves before the response', leaves(undef), sends(waits_for_end()) ],
    [ '... closes before the response', leaves(undef, politely => 1),    sends(later(0.002), plain()) ],
    [ '... leaves in the response',     leaves(undef, until => 'first'), answers(more(), waits_for_end()) ],
    [
        '... and the app goes on',
        leaves(undef, until => 'first'),
        answers(more(), waits_for_end(), more(), body())
    ],
    [
        '... leaves while a send waits',
        leaves(undef, slow => 1, until => 'HTTP'),
        answers(more($huge), more($huge))
    ],
    [
        '... leaves while a flush waits',
        leaves(undef, slow => 1, until => 'HTTP'),
        answers(at_once(sub { $_[2]->(more($huge)) }), event('http.fullflush'))
    ],
    [ '... leaves in a file', leaves(undef, slow => 1, until => 'HTTP'), answers(body(file => "$file")) ],
    [ '... leaves after the response',  leaves(undef, until => 'plain'), sends(plain()) ],
    [ '... leaves after many requests', leaves("GET /0 $head\r\n" x 20), sends(plain()) ],
    [ '... and the app outlives it',    leaves(undef),                   sends(later(0.003)) ],

    # Applications that keep or drop objects
    [ '$receive, pending',         asks(), sends(at_once(sub { $_[1]->() for 1 .. 3 }), plain()) ],
    [ '$receive, kept',            asks(), sends(takes(), keeps(event => sub { $_[1]->() }),  plain()) ],
    [ '$receive, cancelled',       asks(), sends(takes(), at_once(sub { $_[1]->()->cancel }), plain()) ],
    [ '$receive in a race',        asks(), sends(takes(), races(sub { $_[1]->() }),           plain()) ],
    [ '$send, cancelled',          asks(cut => 1),   answers(at_once(sub { $_[2]->(more($huge))->cancel })) ],
    [ 'callbacks that hold all',   asks(times => 2), sends(at_once(\&registers), plain()) ],
    [ '... and the client leaves', leaves(undef),    sends(at_once(\&registers), waits_for_end()) ],
    [ 'disconnect_future, kept',     asks(),         sends(keeps(gone => \&disconnect_future), plain()) ],
    [ 'disconnect_future in a race', asks(),         sends(races(\&disconnect_future),         plain()) ],
    [
        '... that it wins',
        leaves(undef), sends(sub { Future->wait_any(disconnect_future(@_), later(60)->()) })
    ],
    [ 'disconnect_future aside',   asks(),           sends(aside(),                       plain()) ],
    [ '... and the client leaves', leaves(undef),    sends(aside(),                       waits_for_end()) ],
    [ 'a scope, kept',             asks(times => 2), sends(keeps(scope => sub { $_[0] }), plain()) ],

    # Event streams
    [ 'a stream',           hears('terminated'), streams(data("a\nb", id => 1, event => 'e', retry => 5)) ],
    [ '... with comments',  hears('terminated'), streams(event('sse.comment',   comment => 'c'), data('x')) ],
    [ '... with keepalive', hears('terminated'), streams(event('sse.keepalive', interval => 60), data('x')) ],
    [
        '... that the app closes',
        hears('terminated'), streams(data('x'), event('sse.close', reason => 'enough'), takes())
    ],
    [ '... whose app dies', hears('cut'), streams(data('x'), dies()) ],
    [
        '... whose client leaves',
        hears('leave'), streams(event('sse.keepalive', interval => 0.001), data('x'), waits_for_end())
    ],
    [
        '... of a POST',
        hears('terminated', body => 'x' x 10_000),
        sends(takes(), event('sse.start'), data('x'))
    ],
    [ '... over HTTP/1.0',         asks(version => '1.0', @accepts_stream), streams(data('x')) ],
    [ '... declined',              asks(@accepts_stream), sends(refusal(body => 'no')) ],
    [ '... declined, and awaited', asks(@accepts_stream), sends(refusal(body => 'no'), takes(), takes()) ],
    [ '... declined with a file',  asks(@accepts_stream), sends(refusal(file => "$file")) ],
    [ '... declined with a pipe',  asks(@accepts_stream), sub { sends(refusal(fh => piped('x')))->(@_) } ],

    # WebSockets
    [
        'a WebSocket',
        talks(sub {
            says('text hello')->($_[0]->text('hello'))
                && says('close 1000', 'end')->($_[0]->close_frame(1000));
        }),
        accepts(echoes())
    ],
    [
        '... that the app closes',
        talks(sub { says('close 4000 why')->($_[0]) && says('end')->($_[0]->close_frame(4000)) }),
        accepts(event('websocket.close', code => 4000, reason => 'why'), takes())
    ],
    [ '... whose app returns',     talks(says('close 1000')),                    accepts() ],
    [ '... whose app dies',        talks(says('close 1011')),                    accepts(dies()) ],
    [ '... whose client vanishes', talks(sub { 1 }),                             accepts(waits_for_end()) ],
    [ '... in the handshake',      talks(sub { 1 }, at_once => 1),               sends(waits_for_end()) ],
    [ '... in a message', talks(sub { $_[0]->send_frame(1, 'half', fin => 0) }), accepts(waits_for_end()) ],
    [ '... in a frame',   talks(sub { $_[0]{client}->send("\x81\xfe\x10") }),    accepts(waits_for_end()) ],
    [ '... in its end',   talks(says('close 1000')), accepts(event('websocket.close'), takes()) ],
    [
        '... while a send waits',
        talks(sub { 1 }, receive_buffer => 4096),
        accepts((event('websocket.send', bytes => $huge)) x 2)
    ],
    [
        '... with messages unread',
        talks(sub { $_[0]->text('unread') for 1 .. 5; $_[0]->close_frame(1000) }),
        accepts(later(0.003))
    ],
    [
        '... with too many of them',
        talks(
            says('close 1008 Message queue overflow'),
            at_once => 1,
            more    => TestWebSocket::frame(1, 'unread') x 20
        ),
        accepts(later(0.5), waits_for_end()),
        slow => 8
    ],
    [
        '... with pings',
        talks(says('ping ')),
        accepts(event('websocket.keepalive', interval => 0.001), waits_for_end()),
        slow => 8
    ],
    [
        '... without pongs',
        talks(sub { 1 while $_[0]->next =~ /ping/; 1 }),
        accepts(event('websocket.keepalive', interval => 0.001, timeout => 0.005), waits_for_end()),
        slow => 8
    ],
    [
        '... that breaks the rules',
        talks(sub { $_[0]->send_frame(1, 'x', masked => 0)->next =~ /close 1002/ }),
        accepts(waits_for_end())
    ],
    [
        '... compressed',
        talks(sub { $_[0]->next_frame->[3] }, lines => ['Sec-WebSocket-Extensions: permessage-deflate']),
        accepts(event('websocket.send', text => 'x' x 5000), waits_for_end())
    ],
    [
        '... that is refused',
        talks(sub { $_[0]->answer->{status} == 403 }, at_once => 1),
        sends(event('websocket.close'))
    ],
    [
        '... that is denied',
        talks(sub { $_[0]->answer->{status} == 401 }, at_once => 1),
        sends(denial(body => 'no'), takes(), takes())
    ],
    [
        '... half denied',
        talks(sub { $_[0]->answer->{status} == 401 }, at_once => 1),
        sends(denial(body => 'no', more => 1))
    ],
    [
        '... that is not answered',
        talks(sub { $_[0]->answer->{status} == 500 }, at_once => 1),
        sends(takes())
    ],
    [
        '... with wrong events',
        talks(says('close 1000')),
        accepts(together(event('websocket.send'), event('websocket.accept'), event('x')))
    ],
    [
        '... $receive in a race',
        talks(says('close 1000')),
        accepts(at_once(sub { $_[1]->()->cancel }), races(sub { $_[1]->() }))
    ],
);

# ---- Servers -------------------------------------------------------------------------------------

sub server {
    my ($name, $client, %options) = @_;
    my $server = TestServer->start(
        log_level         => 'error',
        on_error          => sub { },
        max_receive_queue => 10,
        access_log        => '/dev/null',
        extensions        => { fullflush => {} },
        limits            => { head_ms   => 20 },
        app               => sub {
            my ($scope) = @_;
            return $kinds[$1][2]->(@_) if ($scope->{path} // '') =~ m{\A/([0-9]+)\z};
            die "no lifespan\n"        if $scope->{type} ne 'http';
            return answers(made(sub { body => report() }))->(@_);
        },
        %options,
    );
    @{$server}{qw(name client)} = ($name, $client);
    $server->{asker} = connected($server);
    return $server;
}

# The values and descriptors that the server holds when all requests before are over.
sub usage {
    my ($server) = @_;
    return settled(sub { $server->{asker}->send(request_for('/usage'))->response->{body} });
}

# Lets a client visit a number of times; why it went wrong.
sub problem {
    my ($server, $number, $times) = @_;
    for (1 .. $times) {
        next if eval { $kinds[$number][1]->($server, "/$number") };
        return $@ || "went wrong\n";
    }
    return;
}

# Runs a kind several times, and says in words what has leaked. Less than half a value for each time is
# allowed, because of caches.
sub leftovers {
    my ($server, $number, $tries) = @_;
    my $problem = problem($server, $number, 8);
    return $problem if defined $problem;
    my $before = usage($server);
    $problem = problem($server, $number, $tries);
    return $problem if defined $problem;
    my $end = time + patience(30);
    while (1) {
        my $after = usage($server);
        my ($values, $descriptors) = map { $after->{$_} - $before->{$_} } qw(values descriptors);
        return ''                                         if $values < $tries / 2 && $descriptors <= 0;
        return "$values values, $descriptors descriptors" if time > $end;
        sleep 0.005;
    }
}

# Without sendfile the server reads files itself. All other kinds end as they do with sendfile.
my ($first_of_files, $last_of_files) =
    grep { $kinds[$_][0] =~ /\Aa (?:file|device until the client leaves)\z/ } 0 .. $#kinds;
die "no kinds of responses from files\n" if !defined $last_of_files;
my @of_files = $first_of_files .. $last_of_files;

my $certificates = Certificates->new->authority('ca')->issue('server');
my $tls          = IO::Socket::SSL::SSL_Context->new(SSL_verify_mode => 0);
my $tries        = $ENV{PEREGRINE_LEAK_TRIES} || only_in_full(40) || 24;
my $only         = $ENV{PEREGRINE_LEAK_ONLY}  || '';

for (
    [ 'sendfile', $tries, {} ],
    [ 'reading',  $tries, {}, disable_sendfile => 1 ],
    [
        'TLS',
        max(20, $tries / 2),
        { tls => { SSL_reuse_ctx => $tls } },
        ssl => { $certificates->pair('server') }
    ],
    )
{
    my ($name, $tries, @setup) = @$_;
    my $server = server($name, @setup);
    my @which  = $name eq 'reading' && !only_in_full(1) ? @of_files : 0 .. $#kinds;
    for my $number (grep { $kinds[$_][0] =~ /$only/ } @which) {
        my ($kind, undef, undef, %how) = @{ $kinds[$number] };
        my $from = time;
        my $left = leftovers($server, $number, $how{slow} || $tries);
        # A value that is made once, when chance takes a code path first, does not come again. A leak does.
        $left = leftovers($server, $number, $how{slow} || $tries) if $left =~ /values/;
        is($left, '', "$name: $kind");
        note(sprintf '%.2f', time - $from);
    }
    is($server->stop, 0, "$name: the server ends well");
}

done_testing;
