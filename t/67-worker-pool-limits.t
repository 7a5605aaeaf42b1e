# The memory of a process of a worker pool, and the things that it leaves behind: an alarm, END blocks.
# Not repeated for each PEREGRINE_ENGINE: its servers name their engines.
use strict;
use warnings;

use lib 't/lib';
use Test::More;
use TestPool qw(application calls);
use TestServer;
use TestTools   qw(wait_for);
use TestWorkers qw(write_file);

plan skip_all => 'Linux only' if $^O ne 'linux';

my $app  = application();
my $pool = write_file('limits-pool.pl', <<'PERL');
use strict;
use warnings;
END { print STDERR "END of the pool's file\n" }
my $kept;
{
    handlers => {
        pid   => sub { return $$ },
        grow  => sub { $kept = 'x' x (128 << 20); return $$ },
        alarm => sub { alarm 1000; return 'set' },
        left  => sub { return alarm 0 },
    },
}
PERL

sub answer {
    my ($server, $name) = @_;
    my ($outcome) = calls($server, [$name]);
    return $outcome->[0] eq 'done' ? $outcome->[1] : "@$outcome";
}

for my $engine (qw(inline process)) {
    subtest $engine => sub {
        my $loud =
            write_file('loud-app.pl', "END { print STDERR qq(END of the application\\n) }\ndo '$app';\n");
        my @placed = $engine eq 'inline' ? () : ('--workers', 1);
        my $server = TestServer->command(
            '--engine', $engine,          @placed, '--worker-pool', $pool, '--pool-workers',
            1,          '--pool-max-rss', '100M',  $loud
        );
        is answer($server, 'alarm'), 'set', 'a handler sets an alarm, and returns';
        is answer($server, 'left'),  0,     'the next call finds none';
        ok $server->wait_for_log(qr/the call of 'alarm' has left an alarm behind/), 'the log tells of it';

        my $grown = answer($server, 'grow');
        like $grown, qr/\A\d+\z/, 'a call after which the process is too large has its answer';
        my $pid;
        ok wait_for(sub { $pid = answer($server, 'pid'); return $pid =~ /\A\d+\z/ && $pid != $grown }),
            'another process takes its place';
        ok $server->wait_for_log(qr/pool_max_rss/), 'the log says why' if $engine eq 'process';
        is $server->stop, 0, 'the server stops';
        is scalar(() = $server->log =~ /END of the application/g), 1,
            'END blocks of the application run in no process of the pool';
        is scalar(() = $server->log =~ /END of the pool's file/g), 2, 'those of its own file in each';
    };
}

done_testing;
