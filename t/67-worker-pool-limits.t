# The memory of a process of a worker pool, and the things that it leaves behind: an alarm, END blocks.
# Not repeated for each PEREGRINE_ENGINE: its servers name their engines.
use strict;
use warnings;

use lib 't/lib';
use OnlyInFull qw(only_in_full);
use Peregrine;
use Peregrine::Child;
use Peregrine::Link;
use POSIX ();
use Test::More;
use TestMaster   qw(loop loop_until master);
use TestPool     qw(application calls);
use TestPrepared ();
use TestServer;
use TestTools   qw(ended wait_for);
use TestWorkers qw(write_file);

plan skip_all => 'Linux only' if $^O ne 'linux';

# Memory of a server that other processes share does not count.
TestPrepared::leave_out();

my $app  = application();
my $pool = write_file('limits-pool.pl', <<'PERL');
use strict;
use warnings;
END { print STDERR "END of the pool's file\n" }
my ($kept, $size);
{
    handlers => {
        pid   => sub { return $$ },
        # A constant size would make perl take the memory while it compiles.
        grow  => sub { $size = 128 << 20; $kept = 'x' x $size; return $$ },
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

# A log in memory.
my $LOGGED = '';

package Log {
    sub new   { return bless {}, shift }
    sub warn  { my ($self, $text) = @_; $LOGGED .= "$text\n"; return }
    sub error { my ($self, $text) = @_; $LOGGED .= "$text\n"; return }
    sub info  { return }
}

for my $engine (only_in_full('inline'), 'process') {
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
        is $server->stop, 0, 'the server stops';
        is scalar(() = $server->log =~ /END of the application/g), 1,
            'END blocks of the application run in no process of the pool';
        is scalar(() = $server->log =~ /END of the pool's file/g), 2, 'those of its own file in each';
    };
}

subtest 'a limit that is less than a process has at its start' => sub {
    my $server = TestServer->command(qw(--pool-workers 1 --pool-max-rss 1M --worker-pool), $pool, $app);
    ok $server->wait_for_log(qr/has more memory at its start than pool_max_rss allows \(1048576 bytes\)/),
        'the log names the option';
    is $server->stop, 0, 'the server stops';
};

# A process of a pool says it, too: t/67-pool-process.t.
subtest 'the memory that a worker begins with' => sub {
    my ($here, $there) = Peregrine::Link->pair;
    $there->keep_in_child;
    my $pid = fork // die "fork: $!";
    if (!$pid) {
        my $child = Peregrine::Child->new(link => $there->use_in_child, loop => loop(), log => Log->new);
        $child->ready;
        POSIX::_exit(0);
    }
    $there->close;
    is ended($pid), 0, 'a worker is ready';
    my ($line) = $here->read_lines;
    is $line->[0], 'ready', '... its master hears that';
    like $line->[1], qr/\A[0-9]{7,}\z/, '... and how many bytes it has';
};

subtest 'a process that has grown before its master hears that it is ready' => sub {
    my ($limit, $size) = (100 << 20, 128 << 20);
    my $serve = sub {
        my ($record) = @_;
        my $link     = $record->{link};
        my $bytes    = Peregrine::resident_bytes($$);
        my $kept     = 'x' x $size;
        $link->say(ready => $bytes);
        $link->wait until $link->read_lines || $link->has_ended;
        return length $kept ? 0 : 1;
    };
    my $master = master(count => 1, limits => { rss => $limit }, run => $serve, log => Log->new);
    $master->start->retain;
    ok loop_until(sub { $master->replaced }), 'is replaced';
    unlike $LOGGED, qr/at its start/, '... as one that has grown';
    my $stopped = $master->stop;
    ok loop_until(sub { $stopped->is_ready }), 'the master stops';
};

done_testing;
