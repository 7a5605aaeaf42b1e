# Responses of PSGI that the engine holds open for topics (GRIP): streams and long polls that hold no worker,
# the applications that may have them, and their ends when something dies.
# Not repeated for each PEREGRINE_ENGINE: its servers name their engines.
use strict;
use warnings;

use lib 't/lib';
use OnlyInFull qw(crossed only_in_full);
use PAGI::Server;
use Peregrine::Threads;
use Plack::Handler::Peregrine::Grip;
use Certificates;
use JSON::PP qw(decode_json);
use Test::More;
use TestClient qw(get);
use TestHTTP2;
use TestServer;
use TestStream;
use TestTools   qw(content wait_for);
use TestWorkers qw(children directory is_gone pid_in stop_master write_file);

plan skip_all => 'Linux only' if $^O ne 'linux';

# Paths name what is wanted; the query has further header fields, a line each.
my $app = write_file('grip.psgi', <<'PERL');
use strict;
use warnings;
use Peregrine::Publisher;

my $publisher;

sub publisher { return $publisher ||= Peregrine::Publisher->of_server }

sub fields {
    my ($env) = @_;
    my $text = $env->{QUERY_STRING} =~ s/%([0-9A-F]{2})/chr hex $1/ger;
    return map { split /: /, $_, 2 } split /\n/, $text;
}

my %apps;
%apps = (
    stream => sub {
        my ($env, $topic) = @_;
        return [ 200, [ 'Content-Type' => 'text/event-stream', 'Grip-Hold' => 'stream',
            'Grip-Channel' => "$topic; prev-id=client", 'Content-Length' => 99,
            fields($env) ], [ ": by $$\n", "\n" ] ];
    },
    events => sub {
        my ($env, $topic) = @_;
        return [ 200, [ 'Content-Type' => 'text/event-stream', 'Grip-Hold' => 'stream',
            'Grip-Channel' => $topic, fields($env) ], [ ": by $$\n", "\n" ] ];
    },
    plain => sub {
        my ($env, $topic) = @_;
        return [ 200, [ 'Content-Type' => 'text/plain', 'Grip-Hold' => 'stream', 'Grip-Channel' => $topic,
            fields($env) ], ['begins;'] ];
    },
    wide => sub {
        my ($env, $what, $topic) = @_;
        $env->{$_} = qq("\x{263a}") for qw(HTTP_LAST_EVENT_ID HTTP_IF_NONE_MATCH);
        delete $env->{HTTP_LAST_EVENT_ID} if $what eq 'poll';
        my $response = $apps{$what}->($env, $topic);
        open my $handle, '<', \"begins\n\n" or die "no handle: $!\n";
        return $what eq 'poll' ? $response : [ @$response[ 0, 1 ], $handle ];
    },
    poll => sub {
        my ($env, $topic) = @_;
        return [ 203, [ 'Content-Type' => 'text/x-poll', 'Content-Length' => 7, ETag => '"own"',
            'Grip-Hold' => 'response', 'Grip-Channel' => "$topic; prev-id=client", fields($env) ],
            ['nothing'] ];
    },
    delayed => sub {
        my ($env, $topic) = @_;
        return sub {
            my ($respond) = @_;
            my $writer = $respond->([ 200, [ 'Content-Type' => 'text/plain', 'Grip-Hold' => 'stream',
                'Grip-Channel' => $topic ] ]);
            $writer->write($_) for qw(beg ins ;);
            $writer->close;
        };
    },
    changed => sub {
        my ($env, $topic, $how) = @_;
        return sub {
            my $response = [ 200, [ 'Content-Type' => 'text/plain', 'Grip-Hold' => 'stream',
                'Grip-Channel' => $topic, 'X-Own' => 'judged' ] ];
            my $writer = $_[0]->($response);
            $writer->write('begins;');
            if    ($how eq 'emptied')   { @$response = () }
            elsif ($how eq 'undefined') { $response->[1] = undef }
            else                        { @{ $response->[1] } = ('X-Own' => 'changed') }
            $writer->close;
        };
    },
    handle => sub {
        my ($env, $topic) = @_;
        open my $handle, '<', $ENV{GRIP_FILE} or die "no file: $!\n";
        return [ 200, [ 'Content-Type' => 'text/plain', 'Grip-Hold' => 'stream', 'Grip-Channel' => $topic ],
            $handle ];
    },
    long => sub {
        my ($env, $topic) = @_;
        my @body = ('x' x 40_000, 'y' x 40_000);
        my @head = (200, [ 'Grip-Hold' => 'stream', 'Grip-Channel' => $topic ]);
        return [ @head, \@body ] if $topic ne 'app.written';
        return sub {
            my $writer = $_[0]->(\@head);
            $writer->write($_) for @body;
        };
    },
    fields => sub {
        my ($env, $topic) = @_;
        return [ 200, [ 'Grip-Hold' => 'stream', 'Grip-Channel' => $topic, map { (xy => 'ab') } 1 .. 30_000 ],
            [] ];
    },
    publish => sub {
        my ($env, $topic, $count, $size) = @_;
        my @places = map { publisher()->publish($topic, $_ . 'x' x ($size // 0)) } 1 .. $count;
        return [ 200, [], ["@places"] ];
    },
    dies    => sub { die "on purpose\n" },
    error   => sub { return [ 404, [ 'Grip-Set-Meta' => 'a=b', 'Grip-Channel' => 'app.x' ], ['no'] ] },
    ping    => sub { return [ 200, [], ["pong $$"] ] },
    env     => sub {
        my ($env) = @_;
        my @keys = sort grep { /GRIP|META|CONNECTION_ID|grip/ } keys %$env;
        return [ 200, [], [ join ' ', map { "$_=$env->{$_}" } @keys ] ];
    },
);

sub {
    my ($env) = @_;
    my (undef, $what, @more) = split m{/}, $env->{PATH_INFO};
    return $apps{$what}->($env, @more);
};
PERL

my @process = qw(--engine process --workers 2 --channels --http2 --status 127.0.0.1:0 --grip app.);

sub escaped {
    return join '', map { sprintf '%%%02X', ord } split //, $_[0];
}

sub publish {
    my ($server, $topic, $count, $size) = @_;
    my $answer;
    # A request may meet an interpreter that is killed, and the hub another one.
    wait_for(sub {
        $answer = eval { get($server->port, join '/', '/publish', $topic, $count // 1, $size // 0) };
        return $answer && $answer->{status} == 200;
    });
    return split / /, $answer->{body};
}

# Whether a metric has a value, soon.
sub shows {
    my ($server, $name, $value) = @_;
    my $port = $server->wait_for_log(qr{status at http://127\.0\.0\.1:(\d+)/});
    return wait_for(sub { get($port, '/metrics')->{body} =~ /^peregrine_\Q$name\E (\d+)/m && $1 == $value });
}

# Whether the engine holds so many responses, soon.
sub holds {
    my ($server, $count) = @_;
    return shows($server, responses_held => $count);
}

# A stream that has begun, and the process of its application.
sub stream {
    my ($server, $target, %options) = @_;
    my $stream = TestStream->open($server->port, $target, %options);
    my ($pid) = ($stream->block // '') =~ /\A: by (\d+)/;
    return ($stream, $pid);
}

subtest 'streams of events' => sub {
    my $server  = TestServer->command_of("peregrine", @process, $app);
    my @streams = map { [ stream($server, '/stream/app.news') ] } 1 .. 5;
    my $head    = $streams[0][0]->head;
    is $head->{status},                   200,   'streams begin, more than there are workers';
    is $head->{header}{'content-length'}, undef, 'the length of the first part does not go out';
    is join(' ', grep { /grip/ } sort keys %{ $head->{header} }), '', 'nor does a field of GRIP';
    my $http2 = TestHTTP2->new($server->port);
    my $id    = $http2->request('/stream/app.news');
    my $text  = sub { return $http2->stream($id)->{body} // '' };
    ok $http2->until(sub { $text->() =~ /\A: by/ }), 'one over HTTP/2';
    my @places = publish($server, 'app.news', 3);

    for my $stream (map { $_->[0] } @streams) {
        is_deeply [ map { $stream->message->{id} } @places ], \@places, 'each entry once, in order';
    }
    ok $http2->until(sub { $text->() =~ /\Q$places[-1]\E/ }), 'over HTTP/2, too';
    is_deeply [ $text->() =~ /^id: (\S+)/mg ], \@places, 'each once, in order';

    for my $pid (keys %{ { map { $_->[1] => 1 } @streams } }) {
        kill KILL => $pid;
        ok wait_for(sub { is_gone($pid) }), 'the interpreter that gave them is killed';
    }
    my @more = publish($server, 'app.news', 1);
    my ($pid) = get($server->port, '/ping')->{body} =~ /(\d+)/;
    $server->signal('HUP');
    ok wait_for(sub { is_gone($pid) }), 'a HUP replaces the others';
    push @more, publish($server, 'app.news', 1);
    is_deeply [ map { $streams[0][0]->message->{id} } @more ], \@more, 'streams go on, over both';

    my ($back) = stream($server, '/stream/app.news', fields => ["Last-Event-ID: $places[0]"]);
    is_deeply [ map { $back->message->{id} } 1 .. 4 ], [ @places[ 1, 2 ], @more ], 'prev-id: what was missed';
    my ($lost) = stream($server, '/stream/app.news', fields => ['Last-Event-ID: never']);
    is $lost->message->{event}, 'reset', 'a position that is none: a reset';
    my ($wide) = stream($server, '/wide/stream/app.news');
    is $wide->message->{event}, 'reset', 'a wide character in the environment is no position';
    my $asked = TestClient->new($server->port);
    my $only  = $asked->send(
        "HEAD /stream/app.news HTTP/1.1\r\nHost: a\r\n\r\nGET /ping HTTP/1.1\r\nHost: a\r\n\r\n");
    like $only->_until(qr/pong/), qr{\AHTTP/1.1 200 .*HTTP/1.1 200 .*pong\z}s, 'HEAD is answered at once';

    is $server->stop,          0,            'the server stops';
    is $streams[1][0]->ending, 'terminated', 'and ends its streams in an orderly way';
    ok $http2->until(sub { $http2->stream($id)->{ended} }), 'that over HTTP/2, too';
};

subtest 'responses that wait' => sub {
    my $server = TestServer->command_of('peregrine', @process, $app);
    my $wait   = sub {
        my ($path, @fields) = @_;
        my $client = TestClient->new($server->port);
        $client->send(join "\r\n", "GET $path HTTP/1.1", 'Host: a', @fields, '', '');
        return $client;
    };
    my $before = publish($server, 'app.poll', 1);
    my @waits  = map { $wait->('/poll/app.poll') } 1 .. 4;
    like get($server->port, '/ping')->{body}, qr/pong/,
        'more wait than there are workers, which serve others';
    ok holds($server, 4), 'the engine holds all of them';
    my $status = get($server->wait_for_log(qr{status at http://127\.0\.0\.1:(\d+)/}), '/status.json');
    is decode_json($status->{body})->{total}{responses_held}, 4, 'the status page shows them';
    my ($place) = publish($server, 'app.poll', 1);

    for my $client (@waits) {
        my $answer = $client->response;
        is $answer->{status},                   200,           'an entry is the answer';
        is $answer->{body},                     '1',           'with its bytes';
        is $answer->{header}{etag},             qq("$place"),  'and its position';
        is $answer->{header}{'content-type'},   'text/x-poll', 'and the fields of the application';
        is $answer->{header}{'content-length'}, 1,             'but its length';
    }
    ok holds($server, 0),                           'then it holds none';
    ok shows($server, topics_delivered_total => 4), 'and has counted what it delivered';
    is $waits[0]->send("GET /ping HTTP/1.1\r\nHost: a\r\n\r\n")->response->{status}, 200,
        'the connections go on';

    my ($next) = publish($server, 'app.poll', 1);
    my $answer = $wait->('/poll/app.poll', qq(If-None-Match: "$place"))->response;
    is $answer->{header}{etag}, qq("$next"), 'prev-id: what was missed comes at once';
    $answer = $wait->('/poll/app.poll', 'If-None-Match: "never"')->response;
    is_deeply [ @$answer{qw(status body)} ], [ 203, 'nothing' ], 'a position that is none: the own response';
    is $wait->('/wide/poll/app.poll')->response->{body}, 'nothing', 'nor is one that has a wide character';
    $answer = $wait->('/poll/app.poll?' . escaped('Grip-Timeout: 1'))->response;
    is_deeply [ @$answer{qw(status body)} ], [ 203, 'nothing' ], 'the time is over: the own response';
    is $answer->{header}{etag}, '"own"', 'as it is';

    my $half = $wait->('/poll/app.poll');
    ok holds($server, 1), 'one waits';
    $half->half_close;
    is $half->response->{body}, 'nothing', 'a client that has ended its side gets the own response';
    my $gone = $wait->('/poll/app.poll');
    ok holds($server, 1), 'one waits';
    $gone->reset;
    ok holds($server, 0), 'one that has gone waits no more';
    my $last = $wait->('/poll/app.poll');
    ok holds($server, 1), 'one waits';
    is $server->stop,           0,         'the server stops';
    is $last->response->{body}, 'nothing', 'who waits gets the own response';
};

subtest 'other bodies' => sub {
    local $ENV{GRIP_FILE} = write_file('grip.txt', 'begins;');
    my $server = TestServer->command_of('peregrine', @process, $app);
    for my $path (qw(/plain/app.bytes /delayed/app.bytes /handle/app.bytes)) {
        my $stream = TestStream->open($server->port, $path);
        ok wait_for(sub { $stream->_more; $stream->{text} eq 'begins;' }), "$path: the own content";
        publish($server, 'app.bytes', 2);
        wait_for(sub { $stream->_more; $stream->{text} eq 'begins;12' });
        is $stream->{text}, 'begins;12', 'and entries behind it, as they are';
        $stream->close;
    }
    for my $how (qw(emptied undefined replaced)) {
        my $stream = TestStream->open($server->port, "/changed/app.bytes/$how");
        ok wait_for(sub { $stream->_more; $stream->{text} eq 'begins;' }), "$how before its end: the content";
        is $stream->head->{header}{'x-own'}, 'judged', 'and the fields that were judged';
        $stream->close;
    }
    my $text  = escaped("Grip-Keep-Alive: \\x2e; format=cstring; timeout=1");
    my $quiet = TestStream->open($server->port, "/plain/app.bytes?$text");
    ok wait_for(sub { $quiet->_more; $quiet->{text} =~ m{\Abegins;[.][.]+\z} }),
        'a keep-alive each second without an entry';
    my ($events) = stream($server, '/events/app.bytes?' . escaped('Grip-Channel: app.made;as=bytes'));
    publish($server, 'app.made', 1);
    ok wait_for(sub { $events->_more; $events->{text} eq '1' }), 'as=bytes: entries are events already';
    ok holds($server, 2), 'responses whose clients are there are held, no other ones';
    my $late =
        TestStream->open($server->port, '/plain/app.bytes?' . escaped('Grip-Channel: app.two;prev-id=never'));
    is $late->ending, 'cut', 'a stream of bytes has no place for a reset: it is cut';
    is $server->stop, 0,     'the server stops';
};

subtest 'limits' => sub {
    my $header = content('engine/include/peregrine.h');
    for my $name (qw(KEEPALIVE_BYTES TOPICS)) {
        my ($most) = $header =~ /\bPEREGRINE_HELD_$name = (\d+)/;
        is(Plack::Handler::Peregrine::Grip->$name, $most, "$name is that of the header for C");
    }
};

subtest 'what cannot be held' => sub {
    my $server = TestServer->command_of('peregrine', @process, '--max-held-responses', 2, $app);
    for my $case (
        [ '/stream/other.news', qr/Grip-Channel: 'other.news' does not begin with 'app.'/ ],
        [ '/stream/app.%20x',   qr/Grip-Channel: 'app. x' is no name of a topic/ ],
        [ '/stream/app.x?' . escaped('Content-Encoding: gzip'), qr/a response with Content-Encoding: gzip/ ],
        [ '/stream/app.x?' . escaped('Grip-Link: <x>'),         qr/header grip-link: the server knows/ ],
        [ '/plain/app.x?' . escaped('Grip-Keep-Alive: x;format=y'),  qr/format is raw, cstring or base64/ ],
        [ '/plain/app.x?' . escaped('Grip-Keep-Alive: x;timeout=0'), qr/timeout is a number of seconds/ ],
        [ '/poll/app.x?' . escaped('Grip-Timeout: soon'), qr/Grip-Timeout is a number of seconds/ ],
        [ '/poll/app.x?' . escaped('Grip-Hold: stream'),  qr/header Grip-Hold came twice/ ],
        [
            '/stream/app.x?' . escaped('Grip-Channel: ' . join ',', map { "app.$_" } 1 .. 32),
            qr/for 32 channels/
        ],
        map({ [ $_, qr/prev-id=client names one topic, not 2/ ] }
            '/stream/app.x?' . escaped('Grip-Channel: app.y'),
            '/poll/app.x?' . escaped('Grip-Channel: app.y'),
            '/events/app.x?' . escaped('Grip-Channel: app.y; prev-id=client')),
        [ '/long/app.x',       qr/at most 64 KiB/ ],
        [ '/long/app.written', qr/at most 64 KiB/ ],
        [ '/fields/app.x',     qr/headers or trailers are longer than 256 KiB/ ],
        )
    {
        my ($path, $reason) = @$case;
        is get($server->port, $path)->{status}, 500, "$path is refused";
        ok $server->wait_for_log($reason), 'the log says why';
    }
    is get($server->port, '/dies')->{status}, 500, 'an application that dies';
    my $error = get($server->port, '/error');
    is $error->{status},                                      404, 'an error of the application';
    is join(' ', grep { /grip/ } keys %{ $error->{header} }), '',  'has no field of GRIP';
    my $client = TestClient->new($server->port);
    $client->send(
        join "\r\n",
        'GET /env HTTP/1.1',
        'Host: a',
        'Grip-Sig: x',
        'Grip-Last: y',
        'Connection-Id: 1',
        'Meta-User: me',
        'X-Meta-Own: 2',
        '',
        ''
    );
    is $client->response->{body}, 'HTTP_X_META_OWN=2 peregrine.grip=app.',
        'nor have requests those of a proxy';

    my @held = map { (stream($server, '/stream/app.x'))[0] } 1, 2;
    is get($server->port, '/stream/app.x')->{status}, 503, 'one more than may be held';
    ok $server->wait_for_log(qr/too many responses are held, see max_held_responses/), 'the log says why';
    $held[0]->reset;
    ok holds($server, 1), 'a client leaves';
    my ($again) = stream($server, '/stream/app.x');
    ok $again, 'then there is room for another one';
    is $server->stop, 0, 'the server stops';
};

subtest 'off' => sub {
    my @without = grep { !/grip|app\./ } @process;
    my $server  = TestServer->command_of('peregrine', @without, $app);
    my $answer  = get($server->port, '/plain/app.x');
    is $answer->{status},              200,      'a response';
    is $answer->{header}{'grip-hold'}, 'stream', 'passes as it is, a proxy may be in front';
    my $client = TestClient->new($server->port);
    $client->send(join "\r\n", 'GET /env HTTP/1.1', 'Host: a', 'Grip-Sig: x', '', '');
    is $client->response->{body}, 'HTTP_GRIP_SIG=x', 'and so do fields of requests';
    is $server->stop,             0,                 'the server stops';

    my @refused = (
        [ [ '--engine',   'process', '--workers', 2, '--grip', 'app.', $app ], qr/needs option 'channels'/ ],
        [ [ '--channels', '--grip',  'app.', $app ], qr/needs an engine apart from the application/ ],
        [
            [ '--channels', '--workers', 2, '--grip', 'app.', $app ],
            qr/needs an engine apart from the application/
        ],
        [ [ @process, '--mount', "/=$app" ],              qr/--grip is a setting of a mount/ ],
        [ [ '--mount', "/=$app,grip=app." ],              qr/needs option 'channels'/ ],
        [ [ @process, '-e', 'sub { my ($scope) = @_ }' ], qr/is for applications of PSGI/ ],
        [
            [ @without, '--mount', "/=$app,workers=1,grip=app.,channels=off" ],
            qr/setting 'grip' needs topics/
        ],
        [ [ @without, '--mount', "/=$app,grip=a b" ], qr/setting 'grip' must be the beginning/ ],
    );

    for my $row (crossed(\@refused, [ '', '--check' ])) {
        my ($words, $reason) = @{ $row->[0] };
        my $check = $row->[1];
        my ($status, undef, $error) =
            TestServer->finish_of('peregrine', qw(--port 0), $check || (), @$words);
        isnt $status, 0, $check ? 'refused by --check' : 'refused at the start';
        like $error, $reason, 'and why';
    }
};

subtest 'mounts' => sub {
    my $server = TestServer->command_of(
        'peregrine', qw(--engine process --workers 2 --channels --max-held-responses 4 --status 127.0.0.1:0),
        '--mount',   "/one=$app,grip=app.", '--mount', "/two=$app,workers=1,grip=other.",
        '--mount',   "/off=$app"
    );
    for my $case ([ '/one', 'app.x', 'other.x' ], [ '/two', 'other.x', 'app.x' ]) {
        my ($mount, $own, $others) = @$case;
        my ($stream) = stream($server, "$mount/stream/$own");
        get($server->port, "$mount/publish/$own/1");
        is $stream->message->{data},                              '1', "$mount has its topics";
        is get($server->port, "$mount/stream/$others")->{status}, 500, 'and no others';
    }
    is get($server->port, '/off/plain/app.x')->{header}{'grip-hold'}, 'stream',
        'where it is off, fields pass';
    ok holds($server, 0), 'both streams have ended';
    my @held = map { (stream($server, '/two/stream/other.x'))[0] } 1, 2;
    is get($server->port, '/two/stream/other.x')->{status}, 503, 'a mount has its share of what may be held';
    ok $server->wait_for_log(qr{too many responses of the mount /two are held, see max_held_responses}),
        'the log names it';
    ok shows($server, 'mount_refused_total{mount="/two"}' => 1), 'a metric counts it';
    push @held, map { (stream($server, '/one/stream/app.x'))[0] } 1, 2;
    ok holds($server, 4), 'and takes no place of others';
    is get($server->port, '/one/stream/app.x')->{status}, 503, 'which have a share of their own, too';
    $held[0]->reset;
    ok holds($server, 3), 'a client leaves';
    is get($server->port, '/one/stream/app.x')->{status}, 503, 'its place is not for others';
    my ($again) = stream($server, '/two/stream/other.x');
    ok $again && holds($server, 4), 'but for its mount';
    is $server->stop, 0, 'the server stops';
};

# A server for each placement; a stream and a long poll over TLS.
my $files = Certificates->new;
my @tls;
if (PAGI::Server->has_tls) {
    $files->authority('ca')->issue('localhost', subject => '/CN=localhost');
    my %pair = $files->pair('localhost');
    @tls = ('--ssl-cert', $pair{cert_file}, '--ssl-key', $pair{key_file});
}
for my $how (
    [ 'plackup -s EVHTP, processes', qw(--max-workers 2 --engine process) ],
    only_in_full(
        [ 'plackup -s EVHTP',              qw(--max-workers 2) ],
        [ 'plackup -s EVHTP, one process', qw(--max-workers 0) ],
    ),
    @tls ? [ 'plackup -s EVHTP, TLS', qw(--max-workers 2), @tls ] : (),
    )
{
    my ($title, @words) = @$how;
    subtest $title => sub {
        plan skip_all => 'this Perl has no threads'
            if !grep({ $_ eq 'process' } @words) && !Peregrine::Threads::are_possible();
        my $server = TestServer->spawn(
            $^X,
            (map { "-I$_" } @INC),
            qw(-S plackup -s EVHTP -E deployment --listen 127.0.0.1:0),
            qw(--channels=1 --grip app. --status 127.0.0.1:0),
            @words, $app
        );
        $server->{port} = $server->wait_for_log(qr{listening on https?://127\.0\.0\.1:(\d+)/});
        my %tls      = $title =~ /TLS/ ? (tls => {}) : ();
        my ($stream) = stream($server, '/stream/app.news', %tls);
        my $poll     = TestClient->new($server->port, %tls);
        $poll->send("GET /poll/app.news HTTP/1.1\r\nHost: a\r\n\r\n");
        ok holds($server, 2), 'a stream and a long poll are held';
        my $client = TestClient->new($server->port, %tls);
        $client->send("GET /publish/app.news/2 HTTP/1.1\r\nHost: a\r\n\r\n");
        my @places = split / /, $client->response->{body};
        is_deeply [ map { $stream->message->{id} } 1, 2 ], \@places, 'both entries come';
        is $poll->response->{body}, '1', 'the first one is the answer';
        $stream->close;
        ok holds($server, 0), 'a client leaves: nothing is held';
        my $many = TestClient->new($server->port, %tls);
        $many->send("GET /fields/app.news HTTP/1.1\r\nHost: a\r\n\r\n");
        is $many->response->{status}, 500, 'a response of too many fields is refused';

        for my $how (qw(emptied undefined)) {
            my $changed = TestStream->open($server->port, "/changed/app.news/$how", %tls);
            is $changed->head->{header}{'x-own'}, 'judged', "a response that is $how before its end";
            $changed->close;
        }
        ($stream) = stream($server, '/stream/app.news', %tls);
        is $server->stop,   0,            'the server stops';
        is $stream->ending, 'terminated', 'and ends its stream in an orderly way';
    };
}

subtest 'a prefix that is a number' => sub {
    my $code = <<'PERL';
my ($file) = @ARGV;
my %options = (listen => ['127.0.0.1:0'], channels => 1, grip => 5, engine => 'process', max_workers => 1);
Plack::Handler::EVHTP->new(%options)->run(Plack::Util::load_psgi($file));
PERL
    my @modules = qw(-MPlack::Handler::EVHTP -MPlack::Util);
    my $server  = TestServer->spawn($^X, (map { "-I$_" } @INC), @modules, '-e', $code, $app);
    $server->{port} = $server->wait_for_log(qr{listening on http://127\.0\.0\.1:(\d+)/});
    is get($server->port, '/env')->{body}, 'peregrine.grip=5', 'the application sees it';
    my ($stream) = stream($server, '/stream/5.news');
    publish($server, '5.news', 1);
    is $stream->message->{data},                        '1', 'topics that begin so';
    is get($server->port, '/plain/app.news')->{status}, 500, 'and no others';
    ok $server->wait_for_log(qr/'app.news' does not begin with '5'/), 'the log says why';
    is $server->stop, 0, 'the server stops';
};

subtest 'a hot upgrade' => sub {
    my $pid_file = directory() . '/grip.pid';
    my $server   = TestServer->command_of('peregrine', @process, '--pid', $pid_file, $app);
    my ($stream) = stream($server, '/stream/app.news');
    my ($place)  = publish($server, 'app.news', 1);
    is $stream->message->{id}, $place, 'a stream';
    my $old = $server->pid;
    $server->signal('USR2');
    is $stream->ending, 'terminated', 'its engine goes: it ends in an orderly way';
    ok wait_for(sub { my $new = pid_in('grip.pid'); return $new && $new != $old }), 'there is a new program';
    my ($back) = stream($server, '/stream/app.news', fields => ["Last-Event-ID: $place"]);
    my ($next) = publish($server, 'app.news', 1);
    is $back->message->{id}, $next, 'the client goes on there';
    ok stop_master('grip.pid'), 'which stops';
};

subtest 'the hub' => sub {
    my $server   = TestServer->command_of('peregrine', @process, $app);
    my ($stream) = stream($server, '/stream/app.news');
    my $bytes    = TestStream->open($server->port, '/plain/app.bytes');
    my $poll     = TestClient->new($server->port);
    $poll->send("GET /poll/app.news HTTP/1.1\r\nHost: a\r\n\r\n");
    ok holds($server, 3), 'all are held';
    my ($hub) = grep { (content("/proc/$_/cmdline") // '') =~ /\(hub\)/ } children($server->pid);
    kill STOP => $hub;
    is get($server->port, '/ping')->{status}, 200, 'a hub that is stuck costs no other request anything';
    my $late = get($server->port, '/plain/app.other');
    is $late->{status}, 503, 'a response that the hub should know of is refused when its time is over';
    kill KILL => $hub;
    ok wait_for(sub { is_gone($hub) }), 'the hub dies';
    publish($server, 'app.news', 1);
    is $stream->message->{event}, 'reset',   'a stream of events gets a reset';
    is $poll->response->{body},   'nothing', 'a long poll its own response';
    publish($server, 'app.bytes', 1);
    is $bytes->ending, 'cut', 'and a stream of bytes is cut';
    ok holds($server, 1), 'nothing else is held';
    is $server->stop, 0, 'the server stops';
};

done_testing;
