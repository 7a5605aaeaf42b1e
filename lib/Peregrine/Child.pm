package Peregrine::Child;

use strict;
use warnings;

our $VERSION = '0.003000';

use Peregrine;
use Peregrine::Daemon;
use Peregrine::Fork;
use Peregrine::Later qw(later weakly);
use Peregrine::Process;

# Signs of life that a child sends within its master's heartbeat_timeout.
use constant BEATS => 5;

# Objects are not copied into clones of the interpreter, see Peregrine::Threads.
sub CLONE_SKIP { return 1 }

sub new {
    my ($class, %args) = @_;
    my $self   = bless { %args{qw(link loop server log is_thread)} }, $class;
    my $ignore = sub { };
    # The terminal's signals are for the master, which tells its children.
    $self->{process} = Peregrine::Process->new(
        %args{qw(loop server log)},
        is_child => 1,
        on => { (map { $_ => $ignore } qw(INT QUIT HUP USR2 TTIN TTOU)), USR1 => sub { $_[0]->reopen_logs } },
    );
    if (!$args{is_thread}) {
        $self->{process}->attach_signals;
        Peregrine::settle_children(1);
    }
    $self->{link}->on_no_room(weakly($self, '_has_no_room'));
    $self->{link}->watch($args{loop}, weakly($self, '_hear'), weakly($self, '_orphaned'));
    $self->_beat_later($args{heartbeat_timeout} / BEATS) if $args{heartbeat_timeout};
    return $self;
}

# Words of the master, and the functions for them.
my %HEAR = (
    stop   => sub { my ($self) = @_; return $self->_leave },
    within => sub { my ($self, $seconds) = @_; return $self->{server}->stop_within($seconds) },
    retire => sub { my ($self, $why)     = @_; return $self->_leave(retire => $why) },
    hurry  => sub { my ($self) = @_; return $self->{server}->hurry('the master does not want to wait') },
    reopen => sub { my ($self, undef, @descriptor) = @_; return $self->{server}->reopen_logs(@descriptor) },
    load   => sub { my ($self) = @_; return $self->{server}->load_again },
    accept => sub { my ($self) = @_; return $self->{server}->accept_connections },
    workers      => sub { my ($self, $count)   = @_; return $self->{server}->change_interpreters($count) },
    certificates => sub { my ($self, @message) = @_; return $self->{server}->take_certificates(@message) },
    turns        => sub { my ($self, $on)      = @_; return $self->{server}->take_turns($on) },
    unserved     => sub { my ($self, $group)   = @_; return $self->{server}->refuse_group($group) },
);

sub _hear {
    my ($self, $word, @message) = @_;
    my $do = $HEAR{$word} or return;
    $self->$do(@message);
    return;
}

# Stops, and tells the master that no more connections are accepted here.
sub _leave {
    my ($self, @way) = @_;
    $self->{process}->stop_once(@way);
    $self->{link}->say('leaves');
    return;
}

# Whether the process goes on without the descriptors of a message. With an old log it can. With an old
# certificate it would go on until that has expired: so it ends, and its successor has the new one.
sub _has_no_room {
    my ($self, $text, $word) = @_;
    $self->{log}->error($text);
    return $word eq 'reopen';
}

sub _orphaned {
    my ($self) = @_;
    # The master gives up a thread that does not come back.
    my $why = $self->{is_thread} ? 'it has come back: it ends' : 'the master has gone: the worker stops';
    $self->{log}->error($why);
    return $self->{process}->stop_once;
}

sub _beat_later {
    my ($self, $seconds) = @_;
    later($self->{loop}, $seconds, $self, _beat => $seconds);
    return;
}

sub _beat {
    my ($self, $seconds) = @_;
    $self->{link}->say(beat => $self->{server}->connection_count);
    return $self->_beat_later($seconds);
}

sub ready {
    my ($self) = @_;
    if (!$self->{is_thread}) {
        Peregrine::Fork::show_again();
        Peregrine::end_with_parent(0);
        Peregrine::Daemon->leave_front;
    }
    $self->{link}->say(ready => $self->{is_thread} ? () : Peregrine::resident_bytes($$));
    return;
}

sub failed {
    my ($self, $reason) = @_;
    $self->{link}->say(failed => $reason);
    return;
}

sub ask_for_replacement {
    my ($self, $why) = @_;
    return if $self->{asked}++;
    $self->{link}->say(recycle => $why);
    return;
}

sub run {
    my ($self) = @_;
    return $self->{process}->run;
}

sub serve {
    my ($self) = @_;
    $self->{server}->start or return 0;
    $self->ready;
    return defined $self->run ? 1 : 0;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Child - a child's side of a Peregrine::Master

=head1 SYNOPSIS

    my $child = Peregrine::Child->new(
        link => $link, loop => $loop, server => $server, log => $log->of('worker 1'),
        heartbeat_timeout => 50,
    );
    exit $child->serve;

=head1 DESCRIPTION

Does what the master says, tells it that the child lives, and stops the server when the master has gone. TERM
stops the child, after which the master starts another one; USR1 opens its logs anew; the other signals of a
server are the master's.

The server has the methods that L<Peregrine::Process> asks for, and C<retire>, C<stop_within>,
C<reopen_logs>, C<connection_count>, C<take_turns>, C<refuse_group>, and C<take_certificates> where
certificates come by descriptors.

=head1 METHODS

=head2 new

See above. C<heartbeat_timeout>: the seconds after which the master takes a silent child for stuck;
0: it does not ask. C<is_thread>: it is a thread (L<Peregrine::Threads>), which gets no signals.

=head2 serve

    my $status = $child->serve;

Starts the server, says so, and runs the loop until the server has stopped. The status that a process ends
with: 0, also if the server did not start and has said why; 1 if the loop was left by an exception.

=head2 ready

    $child->ready;

The server serves. The master hears how much memory the process has.

=head2 failed

    $child->failed($reason);

It cannot start, and ends.

=head2 ask_for_replacement

    $child->ask_for_replacement('max_requests');

The child serves on until another one has taken its place, and is told to leave then.

=head2 run

    my $exception = $child->run;

Runs the loop until the server has stopped, see L<Peregrine::Process/run>.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
