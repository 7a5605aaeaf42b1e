package Peregrine::Master::Growth;

use strict;
use warnings;

our $VERSION = '0.003000';

use List::Util qw(sum);
use Peregrine;
use Peregrine::File;

# Seconds between two counts of a child's own memory.
use constant COUNT_S => 5;
# Seconds that a child serves at least if its memory is beyond the limit from its start.
use constant LARGE_S => 60;

# Looks at the memory of a child. Returns `grown`: it is beyond the limit; `large`: it has been from the
# start, so the child serves for LARGE_S all the same, because each child would be replaced as soon as it
# serves; '': neither.
sub look {
    my ($child, $limit, $now) = @_;
    # The first look may be late, when requests have made the child grow.
    my $is_new = !$child->{rss_from} && ($child->{began_with} // $limit + 1) > $limit;
    $child->{rss_from} //= $now;
    return ''      if $now < $child->{rss_from} || !_is_beyond($child, $limit, $now);
    return 'grown' if !$is_new;
    $child->{rss_from} = $now + LARGE_S;
    return 'large';
}

# Whether memory that no other process shares is beyond the limit; memory shared with a template does not
# count. To tell them apart the kernel goes through all pages of the process: it is asked only if the whole
# process is large enough, and at most once in COUNT_S.
sub _is_beyond {
    my ($child, $limit, $now) = @_;
    return 0
        if (Peregrine::resident_bytes($child->{pid}) // 0) <= $limit
        || $now < ($child->{counted} // 0) + COUNT_S;
    $child->{counted} = $now;
    return (private_bytes($child->{pid}) // $limit + 1) > $limit;
}

sub private_bytes {
    my ($pid)  = @_;
    my $rollup = Peregrine::File::text("/proc/$pid/smaps_rollup") // '';
    my @kib    = $rollup =~ /^Private_\w+:\s+([0-9]+) kB/mg;
    return @kib ? 1024 * sum(@kib) : undef;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Master::Growth - whether a child's own memory is beyond its limit

=head1 SYNOPSIS

    my $found = Peregrine::Master::Growth::look($child, $limit, $now);    # '', 'large' or 'grown'

=head1 FUNCTIONS

=head2 look

    my $found = Peregrine::Master::Growth::look($child, $limit, $now);

Looks at a child of L<Peregrine::Master>, in whose hash it keeps C<rss_from> and C<counted>. C<$limit> is in
bytes. Memory that the child shares with its template does not count. Returns C<grown> when the child's memory
is beyond the limit, C<large> when it has been from the start (such a child serves for a minute all the same),
and otherwise C<''>.

=head2 private_bytes

    my $bytes = Peregrine::Master::Growth::private_bytes($pid);

Bytes of memory that no other process shares; undef if the kernel does not tell.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
