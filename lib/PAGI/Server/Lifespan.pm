package PAGI::Server::Lifespan;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future;
use PAGI::Server::EventCheck;
use Scalar::Util qw(blessed weaken);

my %EVENTS = map { $_ => 1 } qw(
    lifespan.startup.complete lifespan.startup.failed lifespan.shutdown.complete lifespan.shutdown.failed
);

sub new {
    my ($class, %args) = @_;
    my $self = bless {
        %args{qw(app loop log mode)},
        state   => {},
        phase   => 'idle',    # idle -> startup -> started -> shutdown -> over; or declined
        queue   => [],
        waiting => [],
    }, $class;
    return $self;
}

sub is_supported {
    my ($self) = @_;
    return $self->{supported} ? 1 : 0;
}

sub state {
    my ($self) = @_;
    return $self->{state};
}

# ---- What the application gets ------------------------------------------------------------------

sub _scope {
    my ($self) = @_;
    return {
        type  => 'lifespan',
        pagi  => { version => '0.3', spec_version => '0.3', is_worker => 0 },
        state => $self->{state},
    };
}

sub _deliver {
    my ($self) = @_;
    while (@{ $self->{queue} } && @{ $self->{waiting} }) {
        my $future = shift @{ $self->{waiting} };
        next if $future->is_ready;
        $future->done(shift @{ $self->{queue} });
    }
    return;
}

sub _receive {
    my ($self) = @_;
    my $future = $self->{loop}->new_future;
    push @{ $self->{waiting} }, $future;
    $self->_deliver;
    return $future;
}

sub _send {
    my ($self, $event) = @_;
    return Future->fail("\$send: an event must be a hash reference\n", 'pagi') if ref $event ne 'HASH';
    my $type = $event->{type};
    return Future->fail("\$send: the event has no type\n", 'pagi') if !defined $type || ref $type;
    return Future->fail("\$send: unknown event type '$type' in a scope of type lifespan\n", 'pagi') if !$EVENTS{$type};
    my $problem = PAGI::Server::EventCheck::problem($event);
    return Future->fail("$problem\n", 'pagi') if defined $problem;
    my (undef, $phase, $outcome) = split /\./, $type;
    my $answer = $self->{answer};
    return Future->fail("$type: nothing waits for this answer now\n", 'pagi')
        if $self->{phase} ne $phase || !$answer || $answer->is_ready;
    my $message = defined $event->{message} ? $event->{message} : '';
    $answer->done($outcome, $message);
    return Future->done;
}

# ---- The application's end ----------------------------------------------------------------------

sub _ended {
    my ($self, $failure) = @_;
    my $answer = $self->{answer};
    if ($answer && !$answer->is_ready) {
        $answer->done(ended => $failure);
        return;
    }
    return if !defined $failure || $self->{phase} eq 'over' || $self->{phase} eq 'declined';
    $self->{log}->error("PAGI: the lifespan application died after startup: $failure");
    return;
}

sub _call_app {
    my ($self) = @_;
    weaken(my $weak = $self);
    my $receive = sub { $weak ? $weak->_receive  : Future->done({ type => 'lifespan.shutdown' }) };
    my $send    = sub { $weak ? $weak->_send(@_) : Future->done };
    my $future  = eval { $self->{app}->($self->_scope, $receive, $send) };
    return $self->_ended($@)                                          if $@;
    return $self->_ended("the application did not return a Future\n") if !blessed $future || !$future->can('on_ready');
    $self->{running} = $future;
    $future->on_ready(sub {
        my ($done) = @_;
        return if !$weak;
        delete $weak->{running};
        return $weak->_ended($done->is_cancelled ? "its Future was cancelled\n" : $done->failure);
    });
    return;
}

sub _ask {
    my ($self, $phase) = @_;
    $self->{phase}  = $phase;
    $self->{answer} = $self->{loop}->new_future;
    push @{ $self->{queue} }, { type => "lifespan.$phase" };
    return $self->{answer};
}

sub _or_timeout {
    my ($self, $answer, $seconds) = @_;
    return $answer->without_cancel if !$seconds;
    return Future->wait_any($answer->without_cancel,
        $self->{loop}->delay_future(after => $seconds)->then(sub { Future->done('timeout') }),
    );
}

# ---- Startup and shutdown -----------------------------------------------------------------------

sub startup {
    my ($self, $timeout) = @_;
    return Future->done(0) if $self->{mode} eq 'off';
    my $answer = $self->_ask('startup');
    $self->_call_app;
    return $self->_or_timeout($answer, $timeout)->then(sub {
        my ($outcome, $detail) = @_;
        return $self->_started                                                if $outcome eq 'complete';
        return $self->_declined($detail)                                      if $outcome eq 'ended';
        return $self->_failed("Lifespan startup timed out after ${timeout}s") if $outcome eq 'timeout';
        return $self->_failed(length $detail ? "Lifespan startup failed: $detail" : 'Lifespan startup failed');
    });
}

sub _started {
    my ($self) = @_;
    $self->{phase}     = 'started';
    $self->{supported} = 1;
    return Future->done(1);
}

sub _failed {
    my ($self, $message) = @_;
    $self->{phase} = 'over';
    $message =~ s/\s+\z//;
    $self->{log}->error("PAGI: $message");
    return Future->fail("$message\n", 'lifespan');
}

sub _declined {
    my ($self, $failure) = @_;
    my $reason = defined $failure ? "it died: $failure" : 'it returned';
    $reason =~ s/\s+\z//;
    return $self->_failed("Lifespan is required (lifespan_mode on), but the application does not support it: $reason")
        if $self->{mode} eq 'on';
    $self->{phase} = 'declined';
    $self->{log}->info("PAGI: the application does not support lifespan ($reason)");
    return Future->done(0);
}

sub shutdown {
    my ($self, $timeout) = @_;
    return Future->done if $self->{phase} ne 'started';
    if (!$self->{running}) {
        $self->{phase} = 'over';
        return Future->done;
    }
    my $answer = $self->_ask('shutdown');
    $self->_deliver;
    return $self->_or_timeout($answer, $timeout)->then(sub {
        my ($outcome, $detail) = @_;
        $self->{phase} = 'over';
        my $trouble =
              $outcome eq 'timeout'                  ? "lifespan shutdown timed out after ${timeout}s"
            : $outcome eq 'failed'                   ? "lifespan shutdown failed: $detail"
            : $outcome eq 'ended' && defined $detail ? "the application died during lifespan shutdown: $detail"
            :                                          undef;
        $self->{log}->error("PAGI: $trouble") if defined $trouble;
        return Future->done;
    });
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Lifespan - startup and shutdown of an application

=head1 SYNOPSIS

    my $lifespan = PAGI::Server::Lifespan->new(app => $app, loop => $loop, log => $log, mode => 'auto');
    $lifespan->startup(30)->get;
    ...
    $lifespan->shutdown(30)->get;

=head1 DESCRIPTION

Speaks the lifespan protocol of L<PAGI::Spec::Lifespan> with an application: one call with a scope of
type C<lifespan> for the life of the server.

=head1 METHODS

=head2 new

    my $lifespan = PAGI::Server::Lifespan->new(app => $app, loop => $loop, log => $log, mode => 'on');

C<mode> is C<auto> (an application may decline), C<on> (it must not) or C<off> (it is not asked).

=head2 startup

    my $supported = $lifespan->startup($seconds)->get;

Calls the application and waits for its answer, at most C<$seconds> (0: for ever). The Future resolves
with 1, or with 0 when the application declined by dying or returning, and fails when it sent
C<lifespan.startup.failed> or did not answer in time.

=head2 shutdown

    $lifespan->shutdown($seconds)->get;

Tells the application to clean up and waits for its answer, at most C<$seconds>. The Future never fails;
what goes wrong is logged.

=head2 is_supported

    my $state = $lifespan->is_supported ? $lifespan->state : undef;

Whether the application completed its startup.

=head2 state

    my $pool = $lifespan->state->{pool};

The hash that the application filled during startup. Each request gets a shallow copy.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
