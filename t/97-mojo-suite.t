# Mojolicious' own tests about its loop, with a loop that waits in an engine, with and without EV. They come
# from the source package (script/conformance mojolicious fetches it); PEREGRINE_MOJOLICIOUS is its directory.
# The same for each PEREGRINE_ENGINE.
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
    my $output = File::Temp->new;
    my $pid    = fork // die "fork: $!";
    if (!$pid) {
        chdir $source or die "$source: $!";
        open STDOUT, '>&', $output or die $!;
        open STDERR, '>&', $output or die $!;
        alarm 60;
        exec $^X, @include, '-Ilib', @modules, 't/mojo/' . ($file->filename =~ s{.*/}{}r);
    }
    waitpid $pid, 0;
    my $status = $?;
    my $text   = content($output->filename);
    my $what   = join ' ', $name, @modules;
    ok $status == 0 && $text =~ /^1\.\.[1-9]/m, $what or diag $text;
    return;
}

my @modules = ([]);
push @modules, ['-MEV'] if eval { require EV; 1 };
for my $name (qw(reactor_poll ioloop promise promise_async_await subprocess daemon websocket user_agent)) {
    run($name, @$_) for @modules;
}

done_testing;
