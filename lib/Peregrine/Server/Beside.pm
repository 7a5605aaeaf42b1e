package Peregrine::Server::Beside;

use strict;
use warnings;

our $VERSION = '0.003000';

use Peregrine::Child;
use Peregrine::Master;
use Scalar::Util qw(weaken);

# Seconds that the process has to stop.
use constant SHUTDOWN_S => 1;

# See Peregrine::Threads.
sub CLONE_SKIP { return 1 }

# The log gets `failed` with the reason if the process cannot start.
sub start {
    my ($class, %args) = @_;
    my ($loop, $heartbeat, $failed) = @args{qw(loop heartbeat failed)};
    my $log    = $args{log}->of($args{role});
    my $master = Peregrine::Master->new(
        loop              => $loop,
        log               => $log,
        role              => $args{role},
        count             => 1,
        heartbeat_timeout => $heartbeat,
        start_timeout     => $heartbeat,
        stop_timeout      => sub { SHUTDOWN_S + 1 },
        run               => sub {
            my ($record) = @_;
            my ($own_loop, $server) = $args{serve}->();
            return Peregrine::Child->new(
                link              => $record->{link},
                loop              => $own_loop,
                server            => $server,
                log               => $log,
                heartbeat_timeout => $heartbeat,
            )->serve;
        },
    );
    $master->start->on_fail(sub { $args{log}->error("$failed: $_[0]") })->retain;
    my $self = bless { loop => $loop, master => $master }, $class;
    weaken($self->{loop});
    return $self;
}

# The master's Future is done within a callback of the master, which has to be there still.
sub stop {
    my ($self) = @_;
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

A L<Peregrine::Master> with one child, which is started again when it dies.

=head1 METHODS

=head2 start

    my $beside = Peregrine::Server::Beside->start(
        loop      => $loop,
        log       => $log,
        role      => 'status',                                # the name in messages and in ps
        failed    => 'status is not served',                  # the message if the process cannot start
        heartbeat => 50,
        serve     => sub { ...; return ($own_loop, $server) },
    );

C<serve> is called in the process. It closes what the process must not have, and returns a loop and a server
for a L<Peregrine::Child>.

=head2 stop

    my $future = $beside->stop;

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
