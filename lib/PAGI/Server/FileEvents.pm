package PAGI::Server::FileEvents;

use strict;
use warnings;

our $VERSION = '0.003000';

use PAGI::Server::HandleBody;
use PAGI::Server::SlowFiles;
use Scalar::Util qw(weaken);

sub new {
    my ($class, $instance) = @_;
    my $self = bless { instance => $instance }, $class;
    weaken($self->{instance});
    return $self;
}

# Opens a file that may be on slow storage; returns two Futures of PAGI::Server::SlowFiles.
sub open_aside {
    my ($self, $event, $means)      = @_;
    my ($send, $more)               = @$means;
    my ($gone, $connection, $where) = @$more;
    delete $self->{slow} if $self->{slow} && !$self->{slow}->is_usable;
    my $slow = $self->{slow} ||= PAGI::Server::SlowFiles->new($self->{instance}->loop);
    my %copy = %$event;
    return $slow->send(
        \%copy,
        send       => $send,
        gone       => $gone,
        where      => $where,
        by_reading => sub { $self->send_by_reading(\%copy, [ $send, $gone, $connection ]) },
    );
}

# Sends an event that follows a file which a thread is opening.
sub send_after {
    my ($self, $event, $means) = @_;
    my ($send, $opening) = @$means;
    my %copy   = %$event;
    my $future = $opening->without_cancel->then(sub { $send->(\%copy) }, sub { $send->(\%copy) });
    $future->retain if !$future->is_ready;
    return $future;
}

# Reads and sends a body that the engine cannot send by itself.
sub send_by_reading {
    my ($self, $event, $means)      = @_;
    my ($send, $gone,  $connection) = @$means;
    return PAGI::Server::HandleBody->send(
        $event,
        loop       => $self->{instance}->loop,
        send       => $send,
        gone       => $gone,
        connection => $connection,
        patience   => $self->{instance}->options->{write_timeout} || 60,
    );
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::FileEvents - sends files that the engine cannot send at once

=head1 DESCRIPTION

A PAGI application names a file by path or by handle (L<PAGI::Spec::Www>). The engine sends what is a file of
this machine. L<PAGI::Server::Reports> asks this class for the rest: files that a thread has to open, because
their storage may be slow, and handles that have to be read.

=head1 METHODS

=head2 new

    my $files = PAGI::Server::FileEvents->new($instance);

=head2 open_aside, send_after, send_by_reading

    my $futures = $files->open_aside($event, [ $send, [ $gone, $connection, $where ] ]);
    my $future  = $files->send_after($event, [ $send, $opening ]);
    my $future  = $files->send_by_reading($event, [ $send, $gone, $connection ]);

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
