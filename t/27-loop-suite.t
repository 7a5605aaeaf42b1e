# IO::Async's own tests for loops (IO::Async::LoopTests) pass whole: for IO::Async::Loop::Peregrine as it is,
# while it waits in an engine, and while it waits in EV. Each group runs in a process of its own, all at the
# same time. Some of
# their tests are about time: a group has three attempts, in case the machine is busy.
# Not repeated for each PEREGRINE_ENGINE: it starts no server.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use Test::More;
use TestTools ();

BEGIN {
    for my $module (qw(IO::Async::Loop::Epoll IO::Async::LoopTests)) {
        plan skip_all => "needs $module: $@" if !eval "require $module; 1";
    }
}

my @loops = ([qw(IO::Async::Loop::Peregrine)], ['LoopWithEngine']);
push @loops, [ 'LoopWithEngine', '-MEV' ] if system($^X, '-MEV', '-e', '1') == 0;
my @groups = qw(control idle io process signal timer);

sub start {
    my ($loop, $group)    = @_;
    my ($class, @modules) = @$loop;
    my $output = File::Temp->new;
    my $pid    = fork // die "Cannot fork: $!\n";
    return { name => "@$loop, $group", loop => $loop, group => $group, pid => $pid, output => $output }
        if $pid;
    open STDOUT, '>&', $output or die $!;
    open STDERR, '>&', $output or die $!;
    alarm 120;
    exec $^X, (map { "-I$_" } @INC), @modules, '-MIO::Async::LoopTests', '-e', 'run_tests(@ARGV)', $class,
        $group;
}

my @running = map {
    my $loop = $_;
    map { start($loop, $_) } @groups
} @loops;

for my $attempt (1 .. 3) {
    my @failed;
    for my $run (@running) {
        waitpid $run->{pid}, 0;
        my $passed = $? == 0;
        pass $run->{name} if $passed;
        push @failed, $run if !$passed;
    }
    @running = $attempt == 3 ? @failed : map { start(@{$_}{qw(loop group)}) } @failed;
}
for my $run (@running) {
    fail $run->{name};
    seek $run->{output}, 0, 0;
    diag join '', readline $run->{output};
}

done_testing;
