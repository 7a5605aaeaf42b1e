# All examples as one site: each with its source beside it, a picture, and a button that does something.
#
#     script/server examples/gallery
#     open http://127.0.0.1:5000/
#
#     GET  /                 the index
#     GET  /about/NAME       one example: picture, button, source
#     /run/NAME/...          the example itself
use strict;
use warnings;
use feature 'state';
use experimental 'signatures';

use File::Basename qw(dirname);
use File::Spec;
use Future::AsyncAwait;
use PAGI::App::WrapPSGI;
use PAGI::Middleware::Builder;
use PAGI::Middleware::SecurityHeaders;

# Before the example loads Mojo::IOLoop, which is to run on the loop of the server.
my $HAS_MOJOLICIOUS = eval { require Mojo::Server::Peregrine; 1 };

my $HERE     = File::Spec->rel2abs(dirname(__FILE__));
my $EXAMPLES = dirname($HERE);

# The examples, in the order of the index: name, file, title, what the example shows, and the command of an
# example that needs a server of its own.
my @KEYS     = qw(name file title about command);
my @EXAMPLES = map { my %example; @example{@KEYS} = @$_; \%example } (
    [
        hello => 'pagi/hello/app.pl',
        'Hello', 'Four small answers: text, HTML, JSON, and a name from the path.'
    ],
    [ echo => 'pagi/echo/app.pl', 'Echo', 'Sends a request body back as it arrives, one piece at a time.' ],
    [
        streaming => 'pagi/streaming/app.pl',
        'Streaming',
        'A response that is made while it is sent: a line every tenth of a second.'
    ],
    [
        'sse-ticker' => 'pagi/sse-ticker/app.pl',
        'Event stream',
        'A ticker whose streams end; the browser comes back with Last-Event-ID and misses nothing.'
    ],
    [
        'websocket-echo' => 'pagi/websocket-echo/app.pl',
        'WebSocket',
        'Sends every message back, text as text and bytes as bytes.'
    ],
    [
        chat => 'pagi/chat/app.pl',
        'Chat',
        'A room for everybody who has the page open; who comes late sees what was said.'
    ],
    [
        rooms => 'pagi/rooms/app.pl',
        'Rooms',
        'A chat whose people are connected to different workers: a channel brings what is said to all.'
    ],
    [
        board => 'pagi/board/app.pl',
        'Board',
        'Notices that reach browsers which were away: their streams go on where they were.'
    ],
    [
        restart => 'pagi/restart/app.pl',
        'Restart',
        'A button ends the process that has a stream: another one goes on with it, and nothing is missed.'
    ],
    [
        jobs => 'pagi/jobs/app.pl',
        'Jobs',
        'Work in processes of its own, and its progress as an event stream.'
    ],
    [
        lifespan => 'pagi/lifespan/app.pl',
        'Lifespan',
        'What is made once, before the first request, is in the state of each.'
    ],
    [
        backpressure => 'pagi/backpressure/app.pl',
        'Backpressure',
        'Three ways to be fast for fast clients and to keep nothing in memory for slow ones.'
    ],
    [
        static => 'pagi/static/app.pl',
        'Static files',
        'A folder served by the engine, by an application, and a file that Perl decides about.'
    ],
    [
        psgi => 'psgi/hello/app.psgi',
        'PSGI',
        'An application of the older kind, wrapped: it runs beside the others.'
    ],
    [
        progress => 'psgi/progress/app.psgi',
        'Progress',
        'PSGI with a progress bar that holds no worker: the engine has its event stream.',
        'peregrine --engine process --workers 2 --channels --grip app. examples/psgi/progress/app.psgi'
    ],
    $HAS_MOJOLICIOUS
    ? [
        mojolicious => 'mojolicious/live/app.pl',
        'Mojolicious',
        'An application of Mojolicious: promises, pieces and a WebSocket on the loop of the server.'
        ]
    : (),
);
my %EXAMPLE = map { $_->{name} => $_ } @EXAMPLES;

# Loads each example into a package of its own, as the server loads applications.
sub load ($example) {
    my $path = "$EXAMPLES/$example->{file}";
    return Mojo::Server::Peregrine->new->load($path) if $example->{file} =~ m{\Amojolicious/};
    state $number = 0;
    $number++;
    my $app = eval "package Gallery::Example$number; my \$app = do \$path; die \$@ if \$@; \$app"
        or die "$path: " . ($@ || $!) . "\n";
    return $path =~ /\.psgi\z/ ? PAGI::App::WrapPSGI->new(psgi_app => $app)->to_app : $app;
}

# ---- Pages --------------------------------------------------------------------------------------

sub slurp ($path) {
    open my $in, '<:encoding(UTF-8)', $path or die "$path: $!\n";
    local $/;
    return <$in>;
}

sub escaped ($text) { return $text =~ s/([&<>"])/'&#' . ord($1) . ';'/ger }

# Comments stand out; nothing else has a colour, so that nothing can have the wrong one.
sub source_of ($example) {
    my $text = escaped(slurp("$EXAMPLES/$example->{file}"));
    return $text =~ s{^(\s*\#.*)$}{<i>$1</i>}gmr;
}

sub picture ($example) { return slurp("$HERE/pictures/$example->{name}.svg") }

sub page ($title, $content, $root) {
    return <<~"HTML";
        <!DOCTYPE html>
        <html lang="en">
        <head>
        <meta charset="utf-8">
        <meta name="viewport" content="width=device-width, initial-scale=1">
        <title>$title</title>
        <link rel="stylesheet" href="$root/style.css">
        <link rel="icon" href="$root/favicon.svg">
        </head>
        <body>
        $content
        <footer>Served by Peregrine; <a href="$root/">all examples</a></footer>
        </body>
        </html>
        HTML
}

sub index_page ($root) {
    my $cards = join "\n", map {
              qq(<a class="card" href="$root/about/$_->{name}">)
            . picture($_)
            . "<h2>$_->{title}</h2><p>$_->{about}</p></a>"
    } @EXAMPLES;
    return page('Examples', qq(<h1>Examples</h1>\n<main class="cards">\n$cards\n</main>), $root);
}

sub example_page ($example, $root) {
    my ($name, $title) = @$example{qw(name title)};
    my $picture = picture($example);
    my $source  = source_of($example);
    my $try =
        $example->{command}
        ? "<p>It needs a server of its own:</p>\n<pre>" . escaped($example->{command}) . '</pre>'
        : qq(<p><button id="try" data-example="$name" data-run="$root/run/$name">Try it</button></p>\n)
        . '<pre id="result" aria-live="polite"></pre>';
    return page($title, <<~"HTML", $root);
        <nav><a href="$root/">Examples</a></nav>
        <h1>$title</h1>
        <main class="example">
        <section>
        $picture
        <p>$example->{about}</p>
        $try
        </section>
        <section>
        <p class="file">examples/$example->{file}</p>
        <pre class="source">$source</pre>
        </section>
        </main>
        <script src="$root/try.js"></script>
        HTML
}

my %FILES = (
    '/favicon.svg' => [ 'image/svg+xml',                  "$HERE/favicon.svg" ],
    '/style.css'   => [ 'text/css; charset=utf-8',        "$HERE/style.css" ],
    '/try.js'      => [ 'text/javascript; charset=utf-8', "$HERE/try.js" ],
);

async sub site ($scope, $receive, $send) {
    die "Unsupported scope type: $scope->{type}\n" if $scope->{type} ne 'http';
    my ($path, $root) = @$scope{qw(path root_path)};
    my ($name) = $path =~ m{\A/about/([\w-]+)\z};
    my ($status, $type, $body) = (404, 'text/plain; charset=utf-8', "Not found\n");
    if    ($path eq '/') { ($status, $type, $body) = (200, 'text/html; charset=utf-8', index_page($root)) }
    elsif ($name && $EXAMPLE{$name}) {
        ($status, $type, $body) = (200, 'text/html; charset=utf-8', example_page($EXAMPLE{$name}, $root));
    }
    elsif (my $file = $FILES{$path}) { ($status, $type, $body) = (200, $file->[0], slurp($file->[1])) }
    utf8::encode($body);
    my @headers = ([ 'content-type', $type ], [ 'content-length', length $body ]);
    await $send->({ type => 'http.response.start', status => $status, headers => \@headers });
    await $send->({ type => 'http.response.body', body => $body });
    return;
}

# The lifespan is for the example that is about it; the one that ends its process wants to know one thing.
my %app = map { $_->{name} => load($_) } grep { !$_->{command} } @EXAMPLES;

builder {
    enable 'SecurityHeaders';
    mount "/run/$_" => $app{$_} for sort keys %app;
    async sub ($scope, $receive, $send) {
        return await site($scope, $receive, $send) if $scope->{type} ne 'lifespan';
        $scope->{state}{is_worker} = $scope->{pagi}{is_worker};
        return await $app{lifespan}->($scope, $receive, $send);
    };
};
