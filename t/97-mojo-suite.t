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
use TestTools qw(content);

my $source = $ENV{PEREGRINE_MOJOLICIOUS} // '.peregrine/mojolicious/source';
plan skip_all => "needs Mojolicious' source: script/conformance mojolicious" if !-d "$source/t/mojo";

$ENV{MOJO_LOG_LEVEL} = 'fatal';
$ENV{$_} = 1 for qw(TEST_ASYNC_AWAIT TEST_SUBPROCESS TEST_TLS);
my @include = map { '-I' . abs_path($_) } grep { !ref && -d } 't/lib', @INC;

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

sub run {
    my ($name, @modules) = @_;
    my $file = File::Temp->new(DIR => "$source/t/mojo", TEMPLATE => 'oursXXXX', SUFFIX => '.t');
    print {$file} adapted($name);
    close $file;
    run_file('t/mojo/' . ($file->filename =~ s{.*/}{}r), join(' ', $name, @modules), @modules);
    return;
}

# A server catches SIGTERM, so a test that hangs is ended by SIGKILL.
sub run_file {
    my ($path, $what, @modules) = @_;
    my $output = File::Temp->new;
    my $pid    = fork // die "fork: $!";
    if (!$pid) {
        chdir $source or die "$source: $!";
        open STDOUT, '>&', $output or die $!;
        open STDERR, '>&', $output or die $!;
        exec 'timeout', '-s', 'KILL', 60, $^X, @include, '-Ilib', @modules, $path;
    }
    waitpid $pid, 0;
    my $status = $?;
    my $text   = content($output->filename);
    ok $status == 0 && $text =~ /^1\.\.[1-9]/m, $what or diag $text;
    return;
}

my @modules = ([]);
push @modules, ['-MEV'] if eval { require EV; 1 };
for my $name (qw(reactor_poll ioloop promise promise_async_await subprocess daemon websocket user_agent)) {
    # subprocess.t is not run with EV: libev reaps all children of the process, so Mojo::IOLoop::Subprocess
    # often finds no exit code. The file fails with Mojo::Reactor::EV, too.
    run($name, @$_) for $name eq 'subprocess' ? [] : @modules;
}

# All tests of these files pass. Other files have failures, some of which the manual of
# Mojo::Server::Peregrine explains under "Differences from the daemon".
my @apps = qw(
    app charset_lite_app dispatch embedded_app embedded_lite_app external_app external_lite_app group_lite_app
    layouted_lite_app log_lite_app multipath_lite_app rebased_lite_app restful_lite_app signatures_lite_app
    static_lite_app tag_helper_lite_app testing_app twinkle_lite_app upload_lite_app upload_stream_lite_app
    validation_lite_app
);
run_file("t/mojolicious/$_.t", $_, '-MMojoOnPeregrine') for @apps;

done_testing;
