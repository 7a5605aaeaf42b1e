package Peregrine::Acme::Schedule;

use strict;
use warnings;

our $VERSION = '0.003000';

use List::Util qw(max min);

# Seconds to the next attempt after the first failure; each further one doubles them.
use constant { AGAIN_S => 60, AGAIN_MAX_S => 24 * 3600 };
# Seconds that an authority may ask for patience at most.
use constant RETRY_MAX_S => 7 * 24 * 3600;
# If the authority suggests no time, a certificate is renewed when this part of its lifetime is over, earlier
# by up to the other part, so that servers which began together do not ask together.
use constant { PART => 2 / 3, SPREAD => 1 / 30 };
# A suggested time in this last part of the lifetime, or later, leaves no second attempt: it is not taken.
use constant RESERVE => 1 / 10;
# Seconds between two questions for the window of renewal (RFC 9773 section 4.3).
use constant { WINDOW_S => 6 * 3600, WINDOW_MAX_S => 24 * 3600, WINDOW_LEAST_S => 60 };

# The time of the renewal. `certificate`: { from, to }, nothing if there is none; `window`: { start, end }, as
# the authority suggests; `chance`: from 0 to 1, always equal for one certificate.
sub renewal {
    my (%facts)     = @_;
    my $certificate = $facts{certificate} or return 0;
    my $window      = $facts{window};
    my $time        = $certificate->{to} - $certificate->{from};
    my $own         = $certificate->{from} + $time * (PART - SPREAD * $facts{chance});
    return $own if !$window;
    my $advised = $window->{start} + $facts{chance} * ($window->{end} - $window->{start});
    return $advised < $certificate->{to} - $time * RESERVE ? $advised : $own;
}

# Seconds to wait after so many failures in a row. `chance`: from 0 to 1, another one each time.
sub patience {
    my (%facts) = @_;
    my $doubled = AGAIN_S * 2**min($facts{failures} - 1, 20);
    my $own     = min($doubled, AGAIN_MAX_S) * (0.75 + 0.5 * $facts{chance});
    return max($own, min($facts{retry_after} // 0, RETRY_MAX_S));
}

# A stored time to wait for; 0 if it is further away than any wait, because the clock was wrong.
sub believed {
    my ($until, $now) = @_;
    return defined $until && $until - $now <= RETRY_MAX_S ? $until : 0;
}

# Seconds to the next question for the window.
sub next_question {
    my ($retry_after) = @_;
    return max(WINDOW_LEAST_S, min($retry_after // WINDOW_S, WINDOW_MAX_S));
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Acme::Schedule - when a certificate is renewed

=head1 DESCRIPTION

Functions of their arguments and nothing else. Times are seconds since 1970.

=head1 FUNCTIONS

=head2 renewal

    my $time = Peregrine::Acme::Schedule::renewal(certificate => $facts, window => $window, chance => 0.3);

A moment of the window that the authority suggests, or else two thirds of the certificate's time. A moment in
the last tenth of that time, or behind it, is not taken. 0 without a certificate.

=head2 patience

    my $seconds = Peregrine::Acme::Schedule::patience(failures => 3, retry_after => 60, chance => rand);

A minute after the first failure, twice as long after each further one, a day at most; not less than the
authority asks for, up to a week.

=head2 believed

    my $time = Peregrine::Acme::Schedule::believed($until, time);

A time of the future that was kept; 0 if there is none, or if it is more than a week away, which no wait is.

=head2 next_question

    my $seconds = Peregrine::Acme::Schedule::next_question($retry_after);

To the next question for the window: six hours unless the authority says something else, a day at most.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
