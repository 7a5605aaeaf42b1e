package TestUsage;

# The values and memory that a TestServer holds, for tests that look for leaks: the application answers with
# `report`, and the test asks until all earlier requests are over.

use strict;
use warnings;

use Exporter qw(import);
use Peregrine;
use TestServer;
use TestTools   qw(content patience);
use Time::HiRes qw(sleep time);

our @EXPORT_OK = qw(growth report settled);

# In the server: what it holds, as text. What is kept for the next requests is freed first.
sub report {
    my $server = TestServer::running();
    my ($kib)  = content('/proc/self/status') =~ /^VmRSS:\s+(\d+)/m;
    my %now    = (
        requests    => TestServer::worker_of($server)->trim,
        connections => $server->connection_count,
        descriptors => scalar(() = glob '/proc/self/fd/*'),
        values      => Peregrine::sv_count(),
        kib         => $kib // 0,
    );
    return join ' ', map { "$_=$now{$_}" } sort keys %now;
}

# In the test: the same as a hash once there is no request or connection but the one that asks. `ask` gives
# the text of a report, perhaps with more behind it. Dies if that does not come.
sub settled {
    my ($ask) = @_;
    my $end = time + patience(60);
    my %now;
    do {
        %now = $ask->() =~ /(\w+)=(\d+)/g;
        return \%now if $now{requests} == 1 && $now{connections} == 1;
        sleep 0.002;
    } while (time < $end);
    die
        "after a while there are still $now{requests} requests and $now{connections} connections, with the one that asks\n";
}

# In the test: does something again and again until values or memory, by the names of a report, grow by less
# than `allowed`; five times at most. What is kept for more requests at a time than there were before, which
# chance decides on a busy machine, grows once; what leaks grows each time. The reports around the last time.
sub growth {
    my ($ask, $do, %allowed) = @_;
    my ($before, $after);
    for (1 .. 5) {
        $before = settled($ask);
        $do->();
        $after = settled($ask);
        last if !grep { $after->{$_} - $before->{$_} >= $allowed{$_} } keys %allowed;
    }
    return ($before, $after);
}

1;
