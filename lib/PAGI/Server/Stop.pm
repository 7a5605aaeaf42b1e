package PAGI::Server::Stop;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future;
use PAGI::Server::TLS;
use POSIX        ();
use Scalar::Util qw(weaken);

# ---- Signals ------------------------------------------------------------------------------------

# Why a signal has no effect.
my %NOTHING = (
    HUP =>
        'nothing to do: it loads certificates again, and no listener speaks TLS; for new code, start the server again',
    USR2 => 'nothing to do: it would hand over to a new server, and this one has no workers; start the server again',
);

my %ON = (
    (map { $_ => \&_stop_by_signal } qw(TERM INT QUIT)),
    HUP  => \&_load_again,
    USR1 => sub { $_[0]{worker} && $_[0]{worker}->reopen_access_log },
    USR2 => sub { $_[0]{log}->warn("PAGI: SIGUSR2: $NOTHING{USR2}") },
);

sub _attach_signals {
    my ($self) = @_;
    weaken(my $weak = $self);
    my $loop = $self->loop;
    for my $name (keys %ON) {
        $self->{signals}{$name} = $loop->attach_signal($name => sub { $weak && $weak->_on_signal($name) });
    }
    return;
}

# A forked child that runs the loop is ended by a signal as if it had no server; nothing is done to its parent's.
sub _on_signal {
    my ($self, $name) = @_;
    return $ON{$name}->($self, $name) if !$self->_is_foreign;
    return                            if $ON{$name} != \&_stop_by_signal;
    $SIG{$name} = 'DEFAULT';
    my $number = POSIX->can("SIG$name")->();
    POSIX::sigprocmask(POSIX::SIG_UNBLOCK(), POSIX::SigSet->new($number));
    kill $name => $$;
    return;
}

sub _load_again {
    my ($self) = @_;
    my @tls = $self->_tls_in_use;
    return PAGI::Server::TLS->reload_all($self->{log}, @tls) if @tls;
    $self->{log}->warn("PAGI: SIGHUP: $NOTHING{HUP}");
    return;
}

sub _stop_by_signal {
    my ($self, $name) = @_;
    my $loop = $self->loop;
    return $self->_hurry($name) if $self->{stopping_by_signal}++;
    $self->{log}->info("PAGI: SIG$name: the server stops");
    $self->shutdown->on_ready(sub { $loop->stop if !_others_stop($loop) });
    return;
}

# A signal stops all servers of a loop, which goes on until the last one has stopped.
sub _others_stop {
    my ($loop) = @_;
    return grep { $_->isa(__PACKAGE__) && $_->{stopping} } $loop->notifiers;
}

# Whoever signals again does not want to wait: first for requests, then for the application's shutdown.
sub _hurry {
    my ($self, $name) = @_;
    return $self->_cut("SIG$name again") if $self->{stopped};
    $self->{log}->warn("PAGI: SIG$name again: not waiting for the application's shutdown");
    $self->{lifespan}->abandon if $self->{lifespan};
    return;
}

# IO::Async's loops go through signals, and through what is attached to each, in place: in the callback of one, detaching would hide
# the next one's from them, or end IO::Async::Loop::Epoll with "Use of freed value in iteration". So it waits for the end of the
# loop's turn, unless this is none or certainly no signal's callback.
sub _detach_signals {
    my ($self, $loop, $at_once) = @_;
    my $signals = delete $self->{signals} || {};
    my $detach  = sub { $loop->detach_signal($_ => $signals->{$_}) for keys %$signals };
    return $detach->() if $at_once || !$loop->can('is_running') || !$loop->is_running;
    $loop->later($detach);
    return;
}

# ---- Stop ---------------------------------------------------------------------------------------

# Seconds that applications have which were told that the server stops.
use constant LEAVE_S => 5;

sub shutdown {
    my ($self) = @_;
    $self->_croak_if_foreign;
    return $self->{stopping} if $self->{stopping};
    return Future->done      if !$self->{running};
    $self->{running} = 0;
    my $loop     = $self->loop;
    my $stopping = $self->{stopping} = $loop->new_future;
    # The end of an application may come in a signal's callback, see _detach_signals.
    my $steps = $self->_drain->then(sub { $self->{lifespan}->shutdown($self->{options}{shutdown_timeout}) })
        ->then(sub { $loop->later });
    $self->{steps} = $steps->on_ready(sub { $self->_finish_stop($_[0]->failure) });
    return $stopping;
}

sub _finish_stop {
    my ($self, $failure) = @_;
    my $stopping = delete $self->{stopping} or return;
    $self->{log}->error("PAGI: the stop went wrong: $failure") if defined $failure;
    $self->_close_worker($self->loop, 1);
    $self->{lifespan}->abandon;
    delete @{$self}{qw(starting steps lifespan stopping_by_signal)};
    $self->{log}->info('PAGI: the server has stopped');
    $stopping->done;
    return;
}

# Lets the requests in flight finish, and cuts what is left when the time is up.
sub _drain {
    my ($self)  = @_;
    my $loop    = $self->loop;
    my $stopped = $self->{stopped} = $loop->new_future;
    my $timer;
    $timer =
        $loop->watch_time(after => $self->{options}{shutdown_timeout}, code => sub { $self->_cut('Shutdown timeout') });
    $self->{worker}->drain;
    $self->_remove_socket_files;
    my $count = $self->{worker}->stats->{exchanges};
    $self->{log}->info("PAGI: requests in flight: $count, which have $self->{options}{shutdown_timeout} seconds")
        if $count;
    return $stopped->on_ready(sub { $loop->unwatch_time($timer) });
}

sub _cut {
    my ($self, $why) = @_;
    my $count = $self->connection_count;
    $self->{patience} = 'none';
    return $self->_stopped if !$count;
    $self->{log}->warn("PAGI: $why: force-closing $count active connections");
    $self->{worker}->cut;
    return;
}

# All connections are gone; and, after that, an application has ended. The last of them ends the stop.
sub _stopped {
    my ($self) = @_;
    my $stopped = $self->{stopped} or return;
    my ($busy, $leaving) = $self->{worker}->applications;
    my $patience = $self->{patience} || 'all';
    if ($patience ne 'none' && ($busy || $leaving && $patience eq 'all')) {
        $self->_wait_for_applications($busy + $leaving);
        return;
    }
    my $timer = delete $self->{leave_timer};
    $self->loop->unwatch_time($timer)                                                            if $timer;
    $self->{log}->warn("PAGI: not waiting for applications that run on: ${\($busy + $leaving)}") if $busy + $leaving;
    delete @{$self}{qw(stopped patience)};
    $stopped->done;
    return;
}

# Those that were told of the stop, because their connection has no end of its own, have less time than requests in flight: many
# run on regardless of what they are told.
sub _wait_for_applications {
    my ($self, $count) = @_;
    return if $self->{leave_timer};
    $self->{log}->info("PAGI: all connections are closed, applications still running: $count");
    $self->{leave_timer} = $self->loop->watch_time(
        after => LEAVE_S,
        code  => sub {
            $self->{patience} = 'busy';
            $self->_stopped;
        }
    );
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Stop - how a server comes to its end

=head1 DESCRIPTION

A base class of L<PAGI::Server>: what signals do, and C<shutdown>, which is described there.

=head1 METHODS

=head2 shutdown

    $server->shutdown->get;

See L<PAGI::Server/shutdown>.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
