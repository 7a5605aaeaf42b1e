package TestTools;

# What several tests need beside a server and a client.

use strict;
use warnings;

use Exporter       qw(import);
use IO::Socket::IP ();
use Time::HiRes    qw(sleep time);

our @EXPORT_OK = qw(content has_ipv6 patience refused wait_for);

# How long a test waits for what should come at once, in seconds. Where programs run much slower than here, as under script/vm,
# PEREGRINE_PATIENCE says how many times as long.
sub patience {
    my ($seconds) = @_;
    return $seconds * ($ENV{PEREGRINE_PATIENCE} || 1);
}

# What a file holds; nothing if it is not there.
sub content {
    my ($path) = @_;
    open my $in, '<', $path or return '';
    local $/;
    my $text = <$in>;
    return defined $text ? $text : '';
}

# Whether this machine has an IPv6 address to listen at.
sub has_ipv6 {
    my $socket = IO::Socket::IP->new(LocalHost => '::1', Listen => 1, LocalPort => 0);
    return defined $socket;
}

# Why PAGI::Server takes no such options; an empty string if it takes them.
sub refused {
    my (%options) = @_;
    require PAGI::Server;
    return eval { PAGI::Server->new(%options); 1 } ? '' : $@;
}

# What a code reference answers, as soon as that is true, after some seconds in any case.
sub wait_for {
    my ($what) = @_;
    my $end = time + patience(10);
    sleep 0.02 while !$what->() && time < $end;
    return $what->();
}

1;
