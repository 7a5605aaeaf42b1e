package Peregrine::Processors;

use strict;
use warnings;

our $VERSION = '0.003000';

use Peregrine::File;
use POSIX ();

# The numbers of sysconf(_SC_NPROCESSORS_ONLN), for which POSIX has no name.
my %ONLINE = (linux => 84, freebsd => 58, darwin => 58, openbsd => 503, netbsd => 1002);

sub count {
    my $allowed = _allowed() || _online() || 1;
    my $quota   = _quota();
    return $quota && $quota < $allowed ? POSIX::ceil($quota) : $allowed;
}

# The processors on which the kernel may run this process.
sub _allowed {
    my ($mask) = (Peregrine::File::text('/proc/self/status') // '') =~ /^Cpus_allowed:\s*([0-9a-f,]+)/m
        or return 0;
    return unpack '%32b*', pack 'H*', _even($mask =~ tr/,//dr);
}

sub _even {
    my ($digits) = @_;
    return length($digits) % 2 ? "0$digits" : $digits;
}

sub _online {
    my $name = $ONLINE{$^O} // return 0;
    return POSIX::sysconf($name) // 0;
}

# The processors' time that a control group may use, as a number of processors. 0: no limit.
sub _quota {
    my ($path) = (Peregrine::File::text('/proc/self/cgroup') // '') =~ /^0::(\S+)/m or return 0;
    my $least = 0;
    for (my $at = $path;; $at =~ s{/[^/]*\z}{}) {
        my $limit = Peregrine::File::text("/sys/fs/cgroup$at/cpu.max") // '';
        my ($quota, $period) = $limit =~ /\A([0-9]+) ([1-9][0-9]*)/;
        $least = $quota / $period if $quota && (!$least || $quota / $period < $least);
        last if $at eq '' || $at eq '/';
    }
    return $least;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Processors - how many processors there are for this process

=head1 SYNOPSIS

    my $workers = Peregrine::Processors::count();

=head1 FUNCTIONS

=head2 count

    my $count = Peregrine::Processors::count();

The processors that the process may run on (its affinity), and not more than the time that its control group
allows, a container's for instance (C<cpu.max>, rounded up). At least 1.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
