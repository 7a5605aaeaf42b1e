# When certificates are renewed: functions of their arguments, whatever the authority advises.
# The same wherever the engine runs, and so not repeated for each PEREGRINE_ENGINE.
use strict;
use warnings;

use lib 't/lib';
use Peregrine::Acme::Schedule;
use Test::More;
use TestTools;

use constant DAY => 24 * 3600;

my %certificate = (from => 0, to => 90 * DAY);

sub renewal {
    my ($chance, @window) = @_;
    return Peregrine::Acme::Schedule::renewal(
        certificate => \%certificate,
        chance      => $chance,
        (@window ? (window => { start => $window[0] * DAY, end => $window[1] * DAY }) : ())
        ) /
        DAY;
}

is(Peregrine::Acme::Schedule::renewal(chance => 0.5), 0,  'without a certificate at once');
is(renewal(0),                                        60, 'without an advice after two thirds of the time');
is(renewal(1),                                        57, '... or somewhat earlier');
is(renewal(0,   70, 72),  70, 'at the beginning of the window that the authority advises');
is(renewal(0.5, 70, 72),  71, '... or within it');
is(renewal(1,   70, 72),  72, '... or at its end');
is(renewal(0.5, -3, -1),  -2, 'a window of the past: at once');
is(renewal(1,   60, 100), 57, 'no advice lets a certificate expire');
is(renewal(1,   60, 85),  57, '... nor leaves it so little time that a failure would');
is(renewal(0,   60, 100), 60, '... while the beginning of such a window is good');

done_testing;
