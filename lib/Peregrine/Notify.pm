package Peregrine::Notify;

use strict;
use warnings;

our $VERSION = '0.003000';

use Peregrine::Deadline;
use Scalar::Util qw(weaken);
use Socket       qw(AF_UNIX MSG_DONTWAIT SOCK_DGRAM pack_sockaddr_un);

# Signs of life in the time after which systemd gives up: so one may be late by half of it.
use constant PINGS => 2;
# Bytes of a socket's path at most.
use constant PATH_LENGTH_MAX => 107;

# The environment's values, kept for a process that serves more than once.
my %SAID;

sub from_environment {
    my ($class) = @_;
    my %given =
        map { exists $ENV{$_} ? ($_ => delete $ENV{$_}) : () } qw(NOTIFY_SOCKET WATCHDOG_USEC WATCHDOG_PID);
    %SAID = (%given, to => $$) if defined $given{NOTIFY_SOCKET};
    my $path = $SAID{NOTIFY_SOCKET} // return;
    return if ($SAID{to} // 0) != $$ || $path !~ m{\A[/\@].} || length $path > PATH_LENGTH_MAX;
    socket my $socket, AF_UNIX, SOCK_DGRAM, 0 or return;
    my $to = pack_sockaddr_un($path =~ s/\A\@/\0/r);
    return bless {
        socket   => $socket,
        to       => $to,
        pid      => $$,
        watchdog => scalar _watchdog(@SAID{qw(WATCHDOG_USEC WATCHDOG_PID)})
        },
        $class;
}

# Seconds between two signs of life; undef: systemd expects none.
sub _watchdog {
    my ($usec, $pid) = @_;
    return if !defined $usec || $usec !~ /\A[1-9][0-9]{0,17}\z/;
    return if defined $pid && $pid ne $$;
    return $usec / 1e6 / PINGS;
}

sub environment {
    return map { defined $SAID{$_} ? ($_ => $SAID{$_}) : () } qw(NOTIFY_SOCKET WATCHDOG_USEC);
}

# Sends fields to systemd, and never waits. A socket that no program reads is no error.
sub say {
    my ($self, @fields) = @_;
    return 0 if $self->{pid} != $$;
    my @lines;
    while (my ($name, $value) = splice @fields, 0, 2) {
        utf8::encode($value) if utf8::is_utf8($value);
        push @lines, "$name=" . $value =~ tr/\n/ /r;
    }
    local $SIG{PIPE} = 'IGNORE';
    return defined send($self->{socket}, join("\n", @lines), MSG_DONTWAIT, $self->{to}) ? 1 : 0;
}

sub ready {
    my ($self, $status) = @_;
    return $self->say(READY => 1, MAINPID => $$, STATUS => $status);
}

# Tells systemd of a reload. By the time a service of Type=notify-reload knows which READY belongs to it.
sub reloading {
    my ($self) = @_;
    my $now = Peregrine::Deadline::now();
    return $self->say(RELOADING => 1, MONOTONIC_USEC => sprintf('%.0f', $now * 1e6), STATUS => 'reloading');
}

sub stopping {
    my ($self) = @_;
    return $self->say(STOPPING => 1, STATUS => 'stopping');
}

sub watch {
    my ($self, $loop) = @_;
    return if !$self->{watchdog} || $self->{watches}++;
    return $self->_ping($loop);
}

sub _ping {
    my ($self, $loop) = @_;
    $self->say(WATCHDOG => 1);
    weaken(my $weak = $self);
    weaken(my $in   = $loop);
    $loop->watch_time(after => $self->{watchdog}, code => sub { $weak->_ping($in) if $weak && $in });
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Notify - tells systemd how far a service is

=head1 SYNOPSIS

    my $service = Peregrine::Notify->from_environment;
    if ($service) {
        $service->ready('serving');
        $service->watch($loop);
    }

=head1 DESCRIPTION

The protocol of L<sd_notify(3)>: messages to the socket that C<NOTIFY_SOCKET> names, a path or an abstract one
(C<@name>). The process never waits for the receiver.

=head1 METHODS

=head2 from_environment

    my $service = Peregrine::Notify->from_environment;

The object for this process; nothing if nobody wants to be told. The variables are removed from the
environment, so that what the process starts does not speak in its name.

=head2 environment

    local @ENV{keys %given} = values %given if my %given = Peregrine::Notify->environment;

The variables, for a program that is to take this one's place.

=head2 say

    $service->say(STATUS => '12 requests in flight');

Any message. False if it was not sent, in a forked child for instance.

=head2 ready

    $service->ready('serving on http://127.0.0.1:5000/');

The service is up, or has been reloaded: C<READY>, with C<MAINPID> and C<STATUS>.

=head2 reloading

    $service->reloading;

=head2 stopping

    $service->stopping;

=head2 watch

    $service->watch($loop);

Says C<WATCHDOG> as often as C<WATCHDOG_USEC> wants it, twice in that time, as long as the loop runs. Nothing
if systemd does not ask for it.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
