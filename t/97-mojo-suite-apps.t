# Mojolicious' own tests about applications and their server, with the server of MojoOnPeregrine in place of
# the daemon.
use strict;
use warnings;

use lib 't/lib';
use MojoSuite qw(run_file run_text source_of);
use Test::More;
use TestTools ();

# Differences that Mojolicious' tests see, by file: the titles of tests that fail, behind the title of their
# subtest, and the reason. A listed test that passes is a failure here, as is another test that fails.
my $CONNECTION = 'whether a connection is kept is the engine\'s: it frames content of unknown length';
my $LENGTH     = 'content that is complete when it is sent gets a length';
my $DEFLATE    = 'the answer says that messages are compressed without those before them';
my $EXTENSION  = 'Sec-WebSocket-Extensions: permessage-deflate';
my $FRAGMENTS  = 'Binary message in two frames without FIN bit (too large for server)';
my %EXCEPTIONS = (
    longpolling_lite_app => {
        'Stream without delay and finish: connection will not be kept alive'      => $CONNECTION,
        'Stream without delay and content length: connection was not kept alive'  => $CONNECTION,
        'Stream without delay and empty write: connection will not be kept alive' => $CONNECTION,
        'Chunked response with delay: connection was not kept alive'              => $CONNECTION,
        'Stream with delay and finish: connection will not be kept alive'         => $CONNECTION,
        'Stream without delay and empty write: Content-Length: '                  => $LENGTH,
        'Stream with delay and finish: Content-Length: '                          => $LENGTH,
    },
    lite_app            => { 'Connection: close' => $CONNECTION },
    dispatcher_lite_app =>
        { 'Custom dispatcher: exact match for content' => 'a response with status 205 has no content' },
    websocket_lite_app => {
        "$FRAGMENTS: WebSocket closed with status 1009" =>
            'a message that is not complete meets the limit of the server only',
        "Compressed message (\"permessage-deflate\"): $EXTENSION"              => $DEFLATE,
        "Compressed message exceeding the limit when decompressed: $EXTENSION" => $DEFLATE,
        'Binary frame and events: right status and message'                    =>
            'the close that answers a close has its code, and no reason',
    },
    websocket => { 'Forbidden: right message'    => 'the text behind a status is the engine\'s' },
    daemon    => { 'No TLS support: right error' => 'TLS is loaded here before the test forbids it' },
);

# Lines of tests that cannot be as they are.
my %EDITS = (
    # The engine answers a request without a Host field with 400.
    longpolling_lite_app => sub { s{chunked HTTP/1\.1\\x0d\\x0a\K}{Host: a\\x0d\\x0a} },
    # The stream of an exchange ends with it.
    daemon => sub { s/^\s+is\(Mojo::IOLoop->stream\(\$tx->res->headers.*?\);\n//ms },
);

sub edited {
    my ($path, $name) = @_;
    local $_ = source_of($path);
    my $before = $_;
    $EDITS{$name}->();
    die "$path: there is nothing to edit\n" if $_ eq $before;
    return $_;
}

sub run_application {
    my ($folder, $name) = @_;
    my $exceptions = $EXCEPTIONS{$name} // {};
    my $path       = "$folder/$name.t";
    return run_file($path, $name, $exceptions, '-MMojoOnPeregrine') if !$EDITS{$name};
    return run_text($folder, edited($path, $name), $name, $exceptions, '-MMojoOnPeregrine');
}

# All tests about applications and their server. user_agent.t is not among them: it counts on a loop that
# ends when only the server is left.
run_application('t/mojo', $_)
    for qw(daemon websocket websocket_frames websocket_proxy proxy request response);
run_application('t/mojolicious', $_) for qw(
    app charset_lite_app commands dispatch dispatcher_lite_app embedded_app embedded_lite_app
    exception_lite_app external_app external_lite_app group_lite_app layouted_lite_app lite_app log_lite_app
    longpolling_lite_app multipath_lite_app ojo production_app proxy_app rebased_lite_app restful_lite_app
    signatures_lite_app static_lite_app tag_helper_lite_app testing_app tls_lite_app twinkle_lite_app
    upload_lite_app upload_stream_lite_app validation_lite_app websocket_lite_app
);

done_testing;
