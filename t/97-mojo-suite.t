# Mojolicious' own tests about its loop, with a loop that waits in an engine, with and without EV.
# Not repeated for each PEREGRINE_ENGINE.
use strict;
use warnings;

use lib 't/lib';
use MojoSuite qw(run_text source_of);
use Test::More;
use TestTools ();

# The text of a test, with the reactor of this server where its first lines ask for Mojolicious' own.
sub adapted {
    my ($name) = @_;
    my $text = source_of("t/mojo/$name.t");
    $text =~ s/^BEGIN \{ \$ENV\{MOJO_REACTOR\} = .*$/BEGIN { \$ENV{MOJO_REACTOR} = 'AttachedReactor' }/m;
    return $text if $name ne 'reactor_poll';
    $text =~ s/^(?:is ref .*|is\(Mojo::Reactor::Poll->detect.*|undef \$reactor;)$//mg;
    $text =~ s/^use_ok 'Mojo::IOLoop';$//m;
    $text =~ s/^my \$reactor = .*$/use Mojo::IOLoop; my \$reactor;/m;
    return $text;
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

done_testing;
