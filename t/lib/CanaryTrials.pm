# Applications of two versions, and clients that ask until a version answers: for the tests of --canary.
package CanaryTrials;
use strict;
use warnings;

use Exporter    qw(import);
use TestClient  qw(get);
use TestTools   qw(patience);
use TestWorkers qw(write_both);
use Time::HiRes qw(sleep time);

our @EXPORT_OK = qw(applications asks_until);

# An application of PSGI and one of PAGI, which answer with their version and their process.
sub applications {
    my ($version, $deed) = @_;
    return write_both('app', "sub answer { $deed; return qq{$version \$\$} }");
}

# Sends requests until `$is_so` is true, each on a connection of its own, so that any interpreter may get it.
sub asks_until {
    my ($port, $is_so, $seconds) = @_;
    my ($end, %seen) = (time + patience($seconds // 30));
    while (time < $end) {
        my $answer = get($port, '/') || {};
        $seen{ $answer->{status} // 'none' }++;
        my ($version, $process) = ($answer->{body} // '') =~ /\A(v\d) (\d+)\z/;
        $seen{ $version // 'other' }++;
        $seen{processes}{$process}++ if $process;
        return \%seen                if $is_so->(\%seen);
        sleep 0.005;
    }
    return;
}

1;
