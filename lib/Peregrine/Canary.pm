package Peregrine::Canary;

use strict;
use warnings;

our $VERSION = '0.003000';

use List::Util qw(max min sum0);

# A share of failures is clearly larger if it has this many events, by this difference, by this factor, and by
# this many standard errors of the difference. The limits are high, because shares are compared often.
use constant { EVENTS_LEAST => 5, SHARE_LEAST => 0.02, FACTOR => 2, ERRORS => 4 };
# The least number of answers of the old code that show how long it takes; "most answers" are this part of
# them.
use constant { TIMES_LEAST => 20, MOST => 0.95 };
# Classes of times, each twice as long as the one before: an answer is slow that is this number of classes
# above most answers of the old code, and in this class at least (16 ms).
use constant { CLASSES_ABOVE => 2, CLASS_LEAST => 5 };
# Crashes for each interpreter with old code, from which on a crash says nothing about the new code.
use constant CRASHES_OF_OTHERS => 0.5;
# Code in which no request ends is stuck after this many seconds, and after this many times the longest
# response of the old code, if meanwhile 20 requests have ended in each of the other interpreters.
use constant { STALL_S => 5, STALL_FACTOR => 4, ENDED_EACH => 20 };

sub worse {
    my ($new, $old) = @_;
    return 'it has crashed'
        if $new->{crashes} && $old->{crashes} < CRASHES_OF_OTHERS * max(1, $old->{interpreters});
    for my $count ([ failed => 'answers with a status of 5xx' ],
        [ unanswered => 'requests without an answer' ])
    {
        my ($name, $words) = @$count;
        my ($mine, $theirs) = map { _share($_, $name) } $new, $old;
        return _told($words, $mine, $theirs) if _is_clearly_more($mine, $theirs);
    }
    my $stuck = _stuck($new, $old);
    return $stuck if defined $stuck;
    my $class = _slow_class($old) // return;
    my ($mine, $theirs) = map { [ _slow($_, $class), sum0 @{ $_->{times} } ] } $new, $old;
    return _told('answers that took ' . 2**($class - 1) . ' ms and more', $mine, $theirs)
        if _is_clearly_more($mine, $theirs);
    return;
}

# The seconds for which no request has ended in the new code, if that is too long. If a response of the old
# code is in the last class of times, which has no upper end, requests may take any time.
sub _stuck {
    my ($new, $old) = @_;
    my $stalled = $new->{stalled} || 0;
    my $times   = $old->{ever}    || $old->{times};
    my $longest = max(0, grep { $times->[$_] } 0 .. $#$times);
    return if $longest == $#$times;
    return if $stalled < max(STALL_S, STALL_FACTOR * 2**$longest / 1000);
    my $meanwhile = $old->{ended_meanwhile} || 0;
    return if $meanwhile < ENDED_EACH * max(1, $old->{interpreters});
    return sprintf 'no request has ended for %d s: at work %d, ended in the others meanwhile %d',
        $stalled, $new->{asked} - $new->{ended} - $new->{unanswered}, $meanwhile;
}

# The number of such events, and the number of requests among which they are.
sub _share {
    my ($figures, $name) = @_;
    return [ min(@{$figures}{qw(failed answered)}), $figures->{answered} ] if $name eq 'failed';
    return [ $figures->{unanswered}, $figures->{answered} + $figures->{unanswered} ];
}

sub _is_clearly_more {
    my ($mine,   $theirs)    = @_;
    my ($events, $all)       = @$mine;
    my ($others, $of_others) = @$theirs;
    return 0 if $events < EVENTS_LEAST || !$of_others;
    my ($share, $other_share) = ($events / $all, $others / $of_others);
    return 0 if $share < FACTOR * $other_share || $share - $other_share < SHARE_LEAST;
    my $both  = ($events + $others) / ($all + $of_others);
    my $error = sqrt($both * (1 - $both) * (1 / $all + 1 / $of_others));
    return $share - $other_share >= ERRORS * $error ? 1 : 0;
}

sub _told {
    my ($words, @shares) = @_;
    return "$words: " . join ', of the others ', map { "$_->[0] of $_->[1]" } @shares;
}

# The lowest class of times that are slow beside the old code's; nothing if none is, or too little is known.
sub _slow_class {
    my ($old) = @_;
    my $class = _class_of_most($old) // return;
    $class = max(CLASS_LEAST, $class + CLASSES_ABOVE);
    return $class < @{ $old->{times} } ? $class : undef;
}

sub _class_of_most {
    my ($figures) = @_;
    my @times     = @{ $figures->{times} };
    my $all       = sum0 @times;
    return if $all < TIMES_LEAST;
    my ($class, $seen) = (0, $times[0]);
    $seen += $times[ ++$class ] while $seen < MOST * $all;
    return $class;
}

sub _slow {
    my ($figures, $class) = @_;
    my $times = $figures->{times};
    return sum0 @{$times}[ $class .. $#$times ];
}

sub text {
    my ($figures) = @_;
    my $class = _class_of_most($figures);
    return
          "answers: $figures->{answered} of $figures->{asked}, 5xx: $figures->{failed}"
        . ($figures->{crashes} ? ", crashes: $figures->{crashes}"                             : '')
        . (defined $class      ? ', ' . 100 * MOST . ' % of them within ' . 2**$class . ' ms' : '');
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Canary - whether an interpreter with new code is clearly worse than those with the old code

=head1 SYNOPSIS

    my $why = Peregrine::Canary::worse($new, $old);
    say "taken back: $why" if defined $why;

=head1 DESCRIPTION

Functions of figures, without state. Figures are a hash reference with C<asked> (requests), C<answered>,
C<failed> (answers with a status of 500 and more), C<unanswered> (requests that the application, or its
silence for C<request_timeout>, has ended without an answer; neither requests that it still works on, nor
requests whose client has left), C<ended> (answers that are over; an event stream from its beginning on),
C<times> (answers by time: the first number has those within a millisecond,
each further one those that took up to twice as long as those of the number before), C<crashes> and
C<interpreters>. The new code's may have C<stalled>, the seconds for which requests have been at work of which
none has ended, and the old code's C<ended_meanwhile>, the
requests that have ended in that time, and C<ever>, all its answers since its interpreters have started, by
the time until they were over.

=head1 FUNCTIONS

=head2 worse

    my $why = Peregrine::Canary::worse($new, $old);

In words why the new code is clearly worse; undef if it is not, or if nothing can be said. It is worse when it
has crashed, unless every second one of the others has, too; or when its share of failed answers, of requests
without an answer, or of slow answers is clearly larger: with five of them at least, twice the share of the
others and two percent points more, and four standard errors of the difference. An answer is slow that took
more than twice as long as 95 % of the old code's, and 16 ms at least. It is stuck, which is worse, too, when
no request has ended for five seconds, and for four times as long as the longest answer of the old code took,
while 20 have ended in each of the others; but where answers of the old code took more than 16 seconds, nobody
knows how long a request may take.

=head2 text

    say Peregrine::Canary::text($figures);

The figures in words, for the log: the answers and requests, the answers with a status of 5xx, the crashes if
there are any, and the time within which 95 % of the answers came, if there are enough answers.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
