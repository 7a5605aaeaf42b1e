# examples/gallery in a real browser: every example is in the index, has its picture and its source, and its
# button does what it says. GALLERY_PICTURES=DIRECTORY keeps what the pages look like.
use strict;
use warnings;

use lib 't/lib';
use MIME::Base64 qw(decode_base64);
use OnlyInFull   qw(only_in_full);
use Test::More;
use TestBrowser;
use TestClient qw(get);
use TestServer;
use TestTools qw(content);

sub lines { my $all = join '\n', @_; return qr/\A$all\s*\z/ }

# The text that each button shows in the end.
my %SHOWN = (
    hello            => qr/Hello, World!.*"message":"Hello from PAGI!".*Hello, World!/s,
    echo             => qr/^180000 bytes sent, 180000 came back, the same$/m,
    streaming        => qr/line 1\n.*line 5\n.*done/s,
    'sse-ticker'     => qr/^from \d+ on\n(?:tick \d+: \d\d:\d\d:\d\d\n?){5}$/,
    'websocket-echo' => qr/^came back: hello\ncame back: gr\x{fc}\x{df}e\ncame back: \x{1f426}$/,
    chat             => qr/^guest\d+: hello, everybody$/m,
    rooms            => qr/^other hello, guest\d+$/m,
    board            => qr/^notice \d+$/m,
    restart          => qr/^(\d+) is here\n\1 ends\n(?!\1)\d+ is here$/,
    jobs             => qr/^job \d+ has started\n.*100 %\ndone$/s,
    lifespan         => qr/^request \d+ since \d+\nrequest \d+ since \d+$/,
    backpressure     => qr/^\d+\.\d MB came; the last line: sent \d+ of 500$/,
    static           => lines(
        qr/story\.txt: 1307 characters, sent as (?:670 bytes of br|680 bytes of zstd)/,
        qr/with its tag: 304/,
        qr/bytes 0-23: 206 THE FALCON AND THE CLOCK/,
        qr/two ranges: 206 multipart\/byteranges/,
        qr/a listing: aquila\.txt, lyra\.txt, orion\.txt/,
        qr/out of the folder: 404/,
        qr/the report: 403/,
        qr/... with the key: Stars counted.*/,
    ),
    psgi        => qr/^Hello, World!$/,
    mojolicious => lines('\["part 1","part 2"\]', 'counting', 1 .. 5, 'HELLO!'),
);
# An example of the framework is there where that is.
delete $SHOWN{mojolicious} if system($^X, '-MMojolicious', '-e', '1') != 0;

# Compressed siblings are not used if they are older, and copies of a clone may have any times.
utime undef, undef, glob 'examples/pagi/static/site/story.txt.*';
# The gallery runs as script/server starts it.
my $server = TestServer->command(qw(--chdir examples/gallery --config examples/gallery/server.conf app.pl));
my $port   = $server->port;

my $index = get($port, '/')->{body};
my @names = $index =~ m{href="/about/([\w-]+)"}g;
is_deeply([ sort @names ], [ sort 'progress', keys %SHOWN ], 'the index has every example') or diag $index;
like(get($port, '/about/progress')->{body}, qr/<pre>peregrine .* --grip app[.] /, 'the command of one');
my %shown = map { { psgi => 'hello', mojolicious => 'live' }->{$_} // $_ => 1 } @names;
$shown{grpc} = 1;                           # browsers do not speak it
$shown{live} = 1 if !$SHOWN{mojolicious};
my @missing = grep { !$shown{$_} }
    map { m{([^/]+)/\z} } glob 'examples/pagi/*/ examples/psgi/*/ examples/mojolicious/*/';
is("@missing", '', '... that there is');
is(get($port, '/about/nothing')->{status},   404, 'another one is not there');
is(get($port, '/about/../app.pl')->{status}, 404, '... nor a file');
is(get($port, '/favicon.svg')->{status},     200, 'the picture of a tab is there');
is(get($port, '/run/hello/json')->{status},  200, 'examples run where they are mounted');
like(get($port, '/')->{header}{'x-frame-options'} // '', qr/./, 'with the headers of a careful site');

SKIP: {
    skip 'needs chromium and chromedriver', 1 if !TestBrowser->is_there;
    my $browser = TestBrowser->start;
    my $url     = "http://127.0.0.1:$port";
    $browser->_call(POST => "$browser->{session}/window/rect", { width => 1280, height => 900 });
    $browser->go($url);
    is(
        $browser->script(q(return document.querySelectorAll('.card svg').length)),
        scalar @names,
        'a picture each'
    );
    keep($browser, 'index');
    my @brief = qw(hello mojolicious static websocket-echo);

    for my $name (only_in_full(1) ? @names : grep { $SHOWN{$_} } @brief) {
        subtest $name => sub {
            $browser->go("$url/about/$name");
            like($browser->text('h1'), qr/\w/, 'a title');
            cmp_ok(
                $browser->script(q(return document.querySelector('main svg').getBoundingClientRect().height)),
                '>', 50, 'a picture'
            );
            my ($file)  = $browser->text('.file') =~ m{\A(examples/\S+)\z};
            my ($first) = content($file)          =~ /\A# (.*)/;
            like($browser->text('.source'), qr/\A# \Q$first\E/, 'its source');
            return keep($browser, $name) if !$SHOWN{$name};    # it needs a server of its own
            $browser->script(q(document.getElementById('try').click()));
            is($browser->wait_for(q(document.getElementById('result').dataset.state)), 'done', 'the button');
            like($browser->text('#result'), $SHOWN{$name}, '... does something');
            keep($browser, $name);
        };
    }
}

# Keeps a picture of the browser's page for people, in PEREGRINE_SCREENSHOTS.
sub keep {
    my ($browser, $name) = @_;
    my $folder = $ENV{GALLERY_PICTURES} or return;
    open my $out, '>:raw', "$folder/$name.png" or die "$folder/$name.png: $!";
    print {$out} decode_base64($browser->_call(GET => "$browser->{session}/screenshot"));
    close $out or die $!;
    return;
}

is($server->stop, 0, 'stops');
done_testing;
