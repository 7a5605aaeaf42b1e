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

# A report in the server: counts of values and memory, as text. Objects that are kept for further requests are
# freed first.
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

# The report as a hash, in the test, once no request or connection is left but the asking one. `ask` returns
# the text of a report, with or without more text. Dies if that does not happen in time.
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

# Repeats `do` in the test, five times at most, until counts of a report grow by less than `allowed`. Objects
# that are kept for more simultaneous requests than before, which happens by chance on a busy machine, make
# them grow once; a leak does it each time. Returns the reports before and after the last time.
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
