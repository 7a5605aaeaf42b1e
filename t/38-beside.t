# The processes beside interpreters, those of the status and of the hub: one that cannot start is tried again,
# for the server goes on without it.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use Peregrine::Server::Beside;
use Test::More;
use TestMaster qw(loop loop_until);
use TestTools  qw(content);

# A log that keeps its messages.
package Log;
sub new   { return bless { errors => [] }, $_[0] }
sub of    { return $_[0] }
sub error { push @{ $_[0]{errors} }, $_[1]; return }
sub warn  { return }

package main;

my $loop   = loop();
my $folder = File::Temp->newdir;

# `serve` is called in the process.
sub beside {
    my ($log, $serve, @arguments) = @_;
    return Peregrine::Server::Beside->start(
        loop      => $loop,
        log       => $log,
        role      => 'test',
        failed    => 'there is none',
        heartbeat => 0,
        serve     => $serve,
        @arguments,
    );
}

# Messages that the server goes on without the process.
sub told {
    my ($log) = @_;
    return grep { /there is none/ } @{ $log->{errors} };
}

subtest 'a process that cannot start at first' => sub {
    my $log    = Log->new;
    my $serves = "$folder/serves";
    my $tries  = "$folder/tries";
    my $beside = beside(
        $log,
        sub {
            open my $out, '>>', $tries or die "$tries: $!";
            syswrite $out, "$$\n";
            die "no room\n" if 1 == (() = content($tries) =~ /\n/g);
            open my $there, '>', $serves or die "$serves: $!";
            sleep 1000;
        }
    );
    ok loop_until(sub { told($log) }), 'it fails';
    is((told($log))[0], 'there is none: no room; the next try is in 1 s', '... and the log says so');
    ok loop_until(sub { -e $serves }), 'another process takes its place';
    is scalar(told($log)), 1, '... which does not fail';
    kill KILL => (split /\n/, content($tries))[1];
    $beside->stop->await;
};

for my $named (undef, 'heartbeat_timeout') {
    subtest 'a start that takes too long, by ' . ($named // 'no option') => sub {
        my $log    = Log->new;
        my $beside = beside($log, sub { sleep 1000 }, heartbeat => 0.1, named => $named);
        ok loop_until(sub { told($log) }), 'it fails';
        my $by = defined $named ? " ($named)" : '';
        is(
            (told($log))[0],
            "there is none: the process did not start within 0.1 s$by and was killed; the next try is in 1 s",
            '... and the log says why'
        );
        $beside->stop->await;
    };
}

subtest 'a stop before the next try' => sub {
    my $log    = Log->new;
    my $beside = beside($log, sub { die "no room\n" });
    ok loop_until(sub { @{ $log->{errors} } }),     'it fails';
    ok loop_until(sub { $beside->stop->is_ready }), 'it stops';
    my $until = $loop->delay_future(after => Peregrine::Server::Beside::TRY_S + 0.3);
    loop_until(sub { $until->is_ready });
    is scalar(told($log)), 1, '... and nothing is tried any more';
};

done_testing;
