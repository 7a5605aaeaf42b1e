# Mojolicious' own tests about its loop, with a loop that waits in an engine, with and without EV, and about
# applications, with the server of MojoOnPeregrine in place of the daemon. They come
# from the source package (script/conformance mojolicious fetches it); PEREGRINE_MOJOLICIOUS is its directory.
# Not repeated for each PEREGRINE_ENGINE.
use strict;
use warnings;

use Cwd qw(abs_path);
use lib 't/lib';
use File::Temp ();
use Test::More;
use TestTools qw(content patience);

my $source = $ENV{PEREGRINE_MOJOLICIOUS} // '.peregrine/mojolicious/source';
plan skip_all => "needs Mojolicious' source: script/conformance mojolicious" if !-d "$source/t/mojo";

$ENV{MOJO_LOG_LEVEL} = 'fatal';
$ENV{$_} = 1 for qw(TEST_ASYNC_AWAIT TEST_SUBPROCESS TEST_TLS);
my @include = map { '-I' . abs_path($_) } grep { !ref && -d } 't/lib', @INC;

# What the tests see otherwise, by their file: the titles of the tests that fail, behind that of their
# subtest, and why. A listed test that passes is a failure here, as is another one that fails.
my $CONNECTION = 'whether a connection is kept is the engine\'s: it frames content of unknown length';
my $LENGTH     = 'content that is complete when it is sent gets a length';
my $DEFLATE    = 'compression is negotiated by the engine, for all WebSockets';
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
        'Compression denied by the server: WebSocket has no compression'       => $DEFLATE,
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

# Of the tests of one reactor the first lines ask for its class.
sub adapted {
    my ($name) = @_;
    my $text = content("$source/t/mojo/$name.t");
    $text =~ s/^BEGIN \{ \$ENV\{MOJO_REACTOR\} = .*$/BEGIN { \$ENV{MOJO_REACTOR} = 'AttachedReactor' }/m;
    return $text if $name ne 'reactor_poll';
    $text =~ s/^(?:is ref .*|is\(Mojo::Reactor::Poll->detect.*|undef \$reactor;)$//mg;
    $text =~ s/^use_ok 'Mojo::IOLoop';$//m;
    $text =~ s/^my \$reactor = .*$/use Mojo::IOLoop; my \$reactor;/m;
    return $text;
}

sub edited {
    my ($path, $name) = @_;
    local $_ = content("$source/$path");
    my $before = $_;
    $EDITS{$name}->();
    die "$path: there is nothing to edit\n" if $_ eq $before;
    return $_;
}

sub run_text {
    my ($folder, $text, $what, $exceptions, @modules) = @_;
    my $file = File::Temp->new(DIR => "$source/$folder", TEMPLATE => 'oursXXXX', SUFFIX => '.t');
    print {$file} $text;
    close $file;
    run_file("$folder/" . ($file->filename =~ s{.*/}{}r), $what, $exceptions, @modules);
    return;
}

# The titles of tests that failed, those of subtests in front; a subtest that fails by them does not count.
sub failures {
    my ($text) = @_;
    my (%titles, %failed);
    for my $line (split /\n/, $text) {
        my ($indent, $rest) = $line =~ /\A((?:    )*)(.*)/ or next;
        my $depth = length $indent;
        if ($rest =~ /\A# Subtest:\s*(.*)/) { $titles{$depth} = $1 }
        next if $rest !~ /\Anot ok [0-9]+ - ?(.*)/;
        my $title = $1;
        next if $title eq ($titles{$depth} // "\n");
        my @above = map { $titles{$_} } grep { $_ < $depth } sort { $a <=> $b } keys %titles;
        $failed{ join ': ', @above, $title } = 1;
    }
    return sort keys %failed;
}

# A server catches SIGTERM, so a test that hangs is ended by SIGKILL.
sub run_file {
    my ($path, $what, $exceptions, @modules) = @_;
    my $output = File::Temp->new;
    my $pid    = fork // die "fork: $!";
    if (!$pid) {
        chdir $source or die "$source: $!";
        open STDOUT, '>&', $output or die $!;
        open STDERR, '>&', $output or die $!;
        exec 'timeout', '-s', 'KILL', patience(60), $^X, @include, '-Ilib', @modules, $path;
    }
    waitpid $pid, 0;
    my $status = $?;
    my $text   = content($output->filename);
    my $failed = join "\n", failures($text);
    # Files end with the number of tests that failed.
    my $is_over = $text =~ /^1\.\.[1-9]/m && !($status & 127) && (%$exceptions || $status == 0);
    ok $is_over && $failed eq join("\n", sort keys %$exceptions), $what or diag "$failed\n$text";
    return;
}

sub run_application {
    my ($folder, $name) = @_;
    my $exceptions = $EXCEPTIONS{$name} // {};
    my $path       = "$folder/$name.t";
    return run_file($path, $name, $exceptions, '-MMojoOnPeregrine') if !$EDITS{$name};
    return run_text($folder, edited($path, $name), $name, $exceptions, '-MMojoOnPeregrine');
}

my @modules = ([]);
push @modules, ['-MEV'] if eval { require EV; 1 };
for my $name (
    qw(reactor_poll ioloop promise promise_async_await subprocess daemon websocket user_agent proxy
    websocket_frames websocket_proxy)
    )
{
    # subprocess.t is not run with EV: libev reaps all children of the process, so Mojo::IOLoop::Subprocess
    # often finds no exit code. The file fails with Mojo::Reactor::EV, too.
    run_text('t/mojo', adapted($name), join(' ', $name, @$_), {}, @$_)
        for $name eq 'subprocess' ? [] : @modules;
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
