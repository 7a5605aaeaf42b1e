package PAGI::App::WrapPSGI::Pool;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future;
use Future::AsyncAwait;
use IO::Async::Channel;
use IO::Async::Loop;
use IO::Async::Routine;
use PAGI::App::WrapPSGI::Environment;
use PAGI::App::WrapPSGI::Response;
use Peregrine;
use Peregrine::Fork;
use Peregrine::NewLogs;
use POSIX        ();
use Scalar::Util qw(weaken);

# Pieces of a body that may be on their way to the client before the application waits.
use constant PIECES_MAX => 16;

sub new {
    my ($class, %args) = @_;
    my $self = bless { %args, pid => $$, idle => [], all => {}, waiting => [], logs => 0 }, $class;
    Peregrine::NewLogs->tell($self, 'renew');
    return $self;
}

sub is_ours {
    my ($self) = @_;
    return $self->{pid} == $$;
}

# ---- Processes ----------------------------------------------------------------------------------

sub start {
    my ($self) = @_;
    push @{ $self->{idle} }, $self->_new_interpreter while keys %{ $self->{all} } < $self->{workers};
    return;
}

sub stop {
    my ($self) = @_;
    $self->_dismiss($_) for values %{ $self->{all} };
    @{ $self->{idle} } = ();
    return;
}

# Replaces processes after logs were reopened, because a process keeps the standard error that it had at its
# start: idle processes at once, others after their request.
sub renew {
    my ($self) = @_;
    return if !$self->is_ours;
    $self->{logs}++;
    $_ = $self->_renewed($_) for @{ $self->{idle} };
    return;
}

# A process with the present logs in place of one with old ones. One that was dismissed has no successor.
sub _renewed {
    my ($self, $interpreter) = @_;
    return $interpreter
        if $interpreter->{logs} == $self->{logs} || !$self->{all}{ $interpreter->{routine} };
    # Expected: no room for a process or its pipes. Requests are worth more than the log.
    my $another = eval { $self->_new_interpreter } // return $interpreter;
    $self->_dismiss($interpreter);
    return $another;
}

# Starts a process, which ends when no other process can ask it any more. Dies if that is impossible.
sub _new_interpreter {
    my ($self) = @_;
    my ($in, $out, $app) = (IO::Async::Channel->new, IO::Async::Channel->new, $self->{app});
    my $loop    = IO::Async::Loop->new;
    my $routine = IO::Async::Routine->new(
        model        => 'fork',
        channels_in  => [$in],
        channels_out => [$out],
        code         => sub { return _work($app, $in, $out) },
        on_finish    => sub {
            my ($ended) = @_;
            $loop->later(sub { $loop->remove($ended) });
        },
    );
    my $interpreter = { in => $in, routine => $routine, loop => $loop, said => [], logs => $self->{logs} };
    my %before      = map { $_ => 1 } $loop->notifiers;
    if (!eval { $loop->add($routine); 1 }) {
        my $problem = $@;
        # The loop would keep those that were added before the failure, with their pipes.
        $loop->remove($_) for grep { !$before{$_} && !$_->parent } $loop->notifiers;
        die $problem;
    }
    # Messages of the interpreter wait in a queue; its end comes as the queue's last message.
    weaken(my $weak = $interpreter);
    weaken(my $pool = $self);
    $out->configure(
        on_recv => sub { _hear($weak, $_[1]) },
        on_eof  => sub {
            _hear($weak, ['gone']);
            $pool->_leave_out($weak) if $pool && $weak;
        },
    );
    $self->{all}{$routine} = $interpreter;
    return $interpreter;
}

sub _hear {
    my ($interpreter, $said) = @_;
    return if !$interpreter;
    push @{ $interpreter->{said} }, $said;
    my $listener = delete $interpreter->{listener} or return;
    $listener->done;
    return;
}

async sub _next_word {
    my ($interpreter) = @_;
    if (!@{ $interpreter->{said} }) {
        $interpreter->{listener} = $interpreter->{loop}->new_future;
        await $interpreter->{listener};
    }
    return shift @{ $interpreter->{said} };
}

# Drops a process that has ended between two requests, so that it gets no other one.
sub _leave_out {
    my ($self, $interpreter) = @_;
    my $idle  = $self->{idle};
    my $count = @$idle;
    @$idle = grep { $_ != $interpreter } @$idle;
    $self->_dismiss($interpreter) if @$idle < $count;
    return;
}

sub _dismiss {
    my ($self, $interpreter) = @_;
    delete $self->{all}{ $interpreter->{routine} };
    $interpreter->{in}->close;
    return;
}

# In the process: works on one request after another until the process is to end.
sub _work {
    my ($app, $in, $out) = @_;
    # Signals of terminals and service managers come to all processes, but the server tells this one when to
    # end.
    Peregrine::settle_children(1);
    Peregrine::Fork::disregard(Peregrine::Fork::MASTERS_SIGNALS);
    my $ahead;
    my $say = sub {
        # The channel prints its records, and the application may have set these for its own output.
        local ($\, $,);
        $out->send([@_]);
        Peregrine::end_with_parent(0) if $_[0] eq 'whole' || $_[0] eq 'end';
        return                        if $_[0] ne 'body'  || ++$ahead < PIECES_MAX;
        $in->recv or POSIX::_exit(0);    # the server has gone
        $ahead--;
        return;
    };
    # Expected: the end of the channel, which is no record.
    while (my $request = eval { $in->recv }) {
        my ($env, $body) = @$request;
        next if !ref $env;               # a client has taken a piece for which the application does not wait
        $ahead = 0;
        # Between requests the process ends with its channel. While the application is stuck, the process does
        # not read the channel, and it disregards TERM: so the kernel kills it when the server ends.
        Peregrine::end_with_parent(1);
        my $whole;
        my $ok = eval {
            $whole = PAGI::App::WrapPSGI::Environment::complete(
                $env, $body,
                'psgi.multiprocess' => !!1,
                'psgix.harakiri'    => !!1
            );
            PAGI::App::WrapPSGI::Response::blocking($app, $whole, $say);
            1;
        };
        $say->(died => "$@") if !$ok;
        Peregrine::end_with_parent(0);
        PAGI::App::WrapPSGI::Environment::clean_up($whole) if $whole;
        return 0                                           if $whole && $whole->{'psgix.harakiri.commit'};
        $say->('idle');
    }
    return 0;
}

# ---- Requests -----------------------------------------------------------------------------------

sub is_full {
    my ($self) = @_;
    my $waiting = $self->{waiting};
    return 0 if @$waiting < $self->{max_waiting};
    @$waiting = grep { !$_->is_ready } @$waiting;    # clients may have gone
    return @$waiting >= $self->{max_waiting};
}

# The Future of a free interpreter: done now, or when one has ended its request.
sub _take {
    my ($self) = @_;
    my $interpreter = pop @{ $self->{idle} } // $self->_another;
    return Future->done($interpreter) if $interpreter;
    push @{ $self->{waiting} }, my $turn = IO::Async::Loop->new->new_future;
    return $turn;
}

# Starts a further interpreter; nothing: the present ones have to suffice. Dies if there is none at all.
sub _another {
    my ($self) = @_;
    return if keys %{ $self->{all} } >= $self->{workers};
    # Expected: no room for a process or its pipes. The present interpreters, if any, have to suffice.
    my $interpreter = eval { $self->_new_interpreter };
    die $@ if !$interpreter && !%{ $self->{all} };
    return $interpreter;
}

sub _give {
    my ($self, $given) = @_;
    my $interpreter = $self->_renewed($given);
    while (my $turn = shift @{ $self->{waiting} }) {
        return $turn->done($interpreter) if !$turn->is_ready;    # a client that waited may have gone
    }
    push @{ $self->{idle} }, $interpreter;
    return;
}

# Lets an interpreter work on a request, and passes its messages to the sink. They are read to their end,
# whatever becomes of the request.
async sub run {
    my ($self, $env, $body, $sink) = @_;
    my $interpreter = await $self->_take;
    my $response    = IO::Async::Loop->new->new_future;
    $interpreter->{listening} = $self->_listen($interpreter, $env, $body, $sink, $response)->on_fail(sub {
        my ($problem) = @_;
        $self->_lost($interpreter);
        $response->fail($problem) if !$response->is_ready;
    })->retain;
    return await $response->without_cancel;
}

async sub _listen {
    my ($self, $interpreter, $env, $body, $sink, $response) = @_;
    my %sent = $body->{file} ? (path => $body->{file}->filename) : (bytes => $body->{bytes});
    my ($alive, $complete) = (1, 0);
    $interpreter->{in}->send([ $env, \%sent ]);
    while (1) {
        my ($word, @values) = @{ await _next_word($interpreter) };
        last if $word eq 'idle';
        if ($word eq 'gone') { $alive = 0; last }
        if ($word eq 'died') {
            $response->fail($values[0]) if !$response->is_ready;
            next;
        }
        my $sent = await $sink->($word, @values)->followed_by(sub { Future->done($_[0]) });
        $interpreter->{in}->send(['taken']) if $word eq 'body';
        $complete = 1                       if $word eq 'whole' || $word eq 'end';
        $response->fail($sent->failure)     if $sent->is_failed && !$response->is_ready;
        $response->done                     if $complete        && !$response->is_ready;
    }
    if   ($alive) { $self->_give($interpreter) }
    else          { $self->_lost($interpreter) }
    $response->fail("the process of the application has ended before its response\n") if !$response->is_ready;
    return;
}

# Starts another process if requests wait. They fail if there is no process that could take them.
sub _lost {
    my ($self, $interpreter) = @_;
    $self->_dismiss($interpreter);
    my @waiting = grep { !$_->is_ready } @{ $self->{waiting} } or return;
    my $another = eval { $self->_another };
    return $self->_give($another) if $another;
    return                        if %{ $self->{all} };
    my $problem = $@;
    @{ $self->{waiting} } = ();
    $_->fail($problem) for @waiting;
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::App::WrapPSGI::Pool - processes that a PSGI application runs in

=head1 DESCRIPTION

Part of L<PAGI::App::WrapPSGI>.

=head1 METHODS

=head2 new

    my $pool = PAGI::App::WrapPSGI::Pool->new(app => $app, workers => 4, max_waiting => 1000);

No process is there yet.

=head2 start, stop

Forks them; lets them end when they have done what they are at.

=head2 renew

Replaces the processes, when the server has opened its logs anew.

=head2 is_ours

Whether the pool was made in this process.

=head2 is_full

Whether so many requests wait that there should be no more.

=head2 run

    await $pool->run($env, $body, $sink);

Has a process work on a request. Fails with what the application has died of.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
