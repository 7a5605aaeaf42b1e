package Peregrine::Server::Beside;

use strict;
use warnings;

our $VERSION = '0.003000';

use List::Util qw(min);
use Peregrine::Child;
use Peregrine::Later qw(later);
use Peregrine::Master;
use Scalar::Util qw(weaken);

# Seconds in which the process has to stop.
use constant SHUTDOWN_S => 1;

# Seconds between two attempts to start a process that cannot start; doubled each time.
use constant { TRY_S => 1, TRY_MAX_S => 30 };

# Objects are not copied into clones of the interpreter, see Peregrine::Threads.
sub CLONE_SKIP { return 1 }

# Starts the process. `failed`: logged with the reason if it cannot start. `named`: the option that sets
# `heartbeat`; undef: none does.
sub start {
    my ($class, %args) = @_;
    my $self = bless { %args{qw(loop log role failed heartbeat named serve)}, tries => 0 }, $class;
    weaken($self->{loop});
    $self->_start;
    return $self;
}

# Makes a new master, because a master whose first child cannot start has ended.
sub _start {
    my ($self) = @_;
    delete $self->{timer};
    my ($heartbeat, $named, $serve) = @{$self}{qw(heartbeat named serve)};
    my $log = $self->{log}->of($self->{role});
    weaken(my $weak = $self);
    $self->{master} = Peregrine::Master->new(
        loop              => $self->{loop},
        log               => $log,
        role              => $self->{role},
        count             => 1,
        heartbeat_timeout => $heartbeat,
        start_timeout     => $heartbeat,
        named             => { start => $named, silence => $named },
        stop_timeout      => sub { SHUTDOWN_S + 1 },
        run               => sub {
            my ($record) = @_;
            my ($own_loop, $server) = $serve->();
            return Peregrine::Child->new(
                link              => $record->{link},
                loop              => $own_loop,
                server            => $server,
                log               => $log,
                heartbeat_timeout => $heartbeat,
            )->serve;
        },
    );
    $self->{master}->start->on_fail(sub { $weak->_not_started(@_) if $weak })->retain;
    return;
}

sub _not_started {
    my ($self, $reason) = @_;
    my $text = "$self->{failed}: " . $reason =~ s/\s+\z//r;
    return $self->{log}->error($text) if $self->{stopping};
    my $wait = min(TRY_MAX_S, TRY_S * 2**min(8, $self->{tries}++));
    $self->{log}->error("$text; the next try is in $wait s");
    $self->{timer} = later($self->{loop}, $wait, $self, '_start');
    return;
}

sub tell {
    my ($self, @message) = @_;
    $self->{master}->tell(@message) if $self->{master};
    return;
}

# Stops the master. Its Future is done within a callback of the master, which must exist until that returns.
sub stop {
    my ($self) = @_;
    $self->{stopping} = 1;
    my $timer = delete $self->{timer};
    $self->{loop}->unwatch_time($timer) if $timer;
    return $self->{master}->stop->on_ready(sub {
        $self->{loop}->later(sub { delete $self->{master} });
    });
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Server::Beside - a process beside the interpreters: that of the status, or of the hub

=head1 DESCRIPTION

A L<Peregrine::Master> with one child, which is started again when it dies, and when it could not start.

=head1 METHODS

=head2 start

    my $beside = Peregrine::Server::Beside->start(
        loop      => $loop,
        log       => $log,
        role      => 'status',                                # the name in messages and in ps
        failed    => 'status is not served',                  # the message if the process cannot start
        heartbeat => 50,
        named     => 'heartbeat_timeout',                     # the option that sets these seconds, if any
        serve     => sub { ...; return ($own_loop, $server) },
    );

C<serve> is called in the process. It closes what the process must not have, and returns a loop and a server
for a L<Peregrine::Child>.

=head2 tell

    $beside->tell('reopen', undef, fileno STDERR);

Says something to the process.

=head2 stop

    my $future = $beside->stop;

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
