package Peregrine::Template;

use strict;
use warnings;

our $VERSION = '0.003000';

use IO::Async::Loop;
use Peregrine;
use Peregrine::Fork;
use Peregrine::Later qw(later weakly);
use Peregrine::Link;
use POSIX ();

# ---- In the master ------------------------------------------------------------------------------

sub start {
    my ($class, %args) = @_;
    my $self = bless { %args{qw(loop load run on_word on_ready on_end)} }, $class;
    my ($here, $there) = Peregrine::Link->pair;
    $there->keep_in_child;
    my $pid = Peregrine::Fork::child($args{identity});
    if (!defined $pid) {
        my $reason = "fork: $!\n";
        $_->close for $here, $there;
        die $reason;
    }
    if (!$pid) {
        $here->close;
        $self->_live($there->use_in_child);
    }
    $there->close;
    @{$self}{qw(pid link state children)} = ($pid, $here, 'loading', 0);    # -> ready -> gone
    $here->refuse_descriptors;
    $here->watch($args{loop}, weakly($self, '_hear'), sub { });
    $args{loop}->watch_process($pid => weakly($self, '_gone'));
    return $self;
}

sub pid          { return $_[0]{pid} }
sub children     { return $_[0]{children} }
sub was_to_leave { return $_[0]{leaves} }

# Kills a template that is not ready, or has not ended, after this many seconds.
sub limit {
    my ($self, $seconds, $what) = @_;
    $self->_unlimit;
    my $kill = sub { delete $_[0]{timer}; $_[0]->kill(sprintf $what, $seconds) };
    $self->{timer} = later($self->{loop}, $seconds, $self, $kill);
    return;
}

sub _unlimit {
    my ($self) = @_;
    $self->{loop}->unwatch_time(delete $self->{timer}) if $self->{timer};
    return;
}

sub _hear {
    my ($self, $word, $text) = @_;
    $self->{reason} = $text if $word eq 'failed';
    return if $word ne 'ready' || $self->{state} ne 'loading';
    $self->{state} = 'ready';
    $self->_unlimit;
    $self->{on_ready}->($self);
    return;
}

sub _gone {
    my ($self, undef, $status) = @_;
    $self->_hear(@$_) for $self->{link}->read_lines;
    $self->_unlimit;
    $self->{link}->close;
    my $process = 'the process' . ($self->{state} eq 'loading' ? ' that loads the code' : '');
    my $end     = $self->{killed} // Peregrine::Fork::how_it_ended($status);
    $self->{state} = 'gone';
    my $why = !defined $self->{killed} && $self->{reason} || "$process $end";
    delete($self->{on_end})->($self, $why, $status);
    return;
}

# Has the template fork a process. `facts`: words and numbers by name; the process gets the other end of
# `link`, and `descriptors`.
sub fork_child {
    my ($self, $facts, $link, @descriptors) = @_;
    my $text = join ' ', map { "$_=$facts->{$_}" } grep { defined $facts->{$_} } sort keys %$facts;
    return $self->kill('does not listen')
        if !$self->{link}->say(fork => $text, $link->descriptor, @descriptors);
    $self->{children}++;
    return $self;
}

sub lost_child {
    my ($self) = @_;
    $self->{children}--;
    return;
}

# Sends a message to the template, where `on_word` gets it.
sub tell {
    my ($self, @message) = @_;
    $self->{link}->say(@message);
    return;
}

# Tells a template to leave. One that is loading does not read its link, and is killed.
sub leave {
    my ($self, $seconds) = @_;
    return if $self->{state} eq 'gone';
    my $is_told = $self->{leaves}++;
    return $self->kill('was not needed any more') if $self->{state} eq 'loading';
    $self->tell('leave')                          if !$is_told;
    return $self->limit($seconds, 'did not leave within %.3g s');
}

sub kill {
    my ($self, $why) = @_;
    return if $self->{state} eq 'gone';
    $self->{killed} //= "$why and was killed";
    kill KILL => $self->{pid};
    return;
}

# ---- In the template ----------------------------------------------------------------------------

sub _live {
    my ($self, $link) = @_;
    $self->{link} = $link;
    # Processes that the template forks handle these signals as usual.
    $SIG{$_} = sub { }
        for Peregrine::Fork::MASTERS_SIGNALS;
    Peregrine::Fork::start_with_parent($link);
    Peregrine::Fork::live(
        $link,
        'template',
        sub {
            $self->{load}->();
            _check_alone();
            Peregrine::end_with_parent(0);
            $link->say('ready');
            return $self->_serve;
        }
    );
    return;
}

# Dies if the application has made threads or a loop, whose copies do not work in a child.
sub _check_alone {
    die
        "what was loaded has made an IO::Async::Loop, which processes cannot share: it has to be made in each of"
        . " them, when it starts\n"
        if $IO::Async::Loop::ONE_TRUE_LOOP;
    my $threads = () = glob '/proc/self/task/*';
    die
        "what was loaded has started threads ($threads run), of which processes that are forked have none: they"
        . " have to be started in each of them\n"
        if $threads > 1;
    return;
}

sub _serve {
    my ($self) = @_;
    my $link = $self->{link};
    while (1) {
        for my $line ($link->read_lines) {
            my ($word, @message) = @$line;
            return 0 if $word eq 'leave';
            if   ($word eq 'fork') { $self->_fork(@message) }
            else                   { $self->{on_word}->($word, @message) if $self->{on_word} }
        }
        return 0 if $link->has_ended;
        $link->wait;
    }
    return;
}

# Forks a process for the master. A process between the two ends at once, so that the master adopts the new
# one as its child.
sub _fork {
    my ($self, $text, @descriptors) = @_;
    Peregrine::hide_from_forks($_, 0) for @descriptors;
    my $chosen = $SIG{CHLD};
    local $SIG{CHLD} = 'DEFAULT';
    my $pid = Peregrine::Fork::child();
    if (defined $pid && !$pid) {
        my $child = Peregrine::Fork::child();
        if (defined $child && !$child) {
            # With the application's setting its children leave no zombies.
            $SIG{CHLD} = $chosen if length($chosen // '');
            $self->_become_child($text, @descriptors);
        }
        _failed($descriptors[0]) if !defined $child;
        POSIX::_exit(0);
    }
    if (defined $pid) { waitpid $pid, 0 }
    else              { _failed(shift @descriptors) }
    POSIX::close($_) for @descriptors;
    return;
}

sub _failed {
    my ($descriptor) = @_;
    my $reason       = "fork: $!";
    my $link         = Peregrine::Link->from_descriptor($descriptor);
    $link->say(failed => $reason);
    $link->close;
    return;
}

# Waits until the master knows the process, so that the master hears how it ends.
sub _become_child {
    my ($self, $text, @descriptors) = @_;
    $self->{link}->close;
    my $link = Peregrine::Link->from_descriptor(shift @descriptors);
    $link->say(pid => $$);
    $link->wait_for('go') or POSIX::_exit(0);
    my %facts = map { split /=/, $_, 2 } split / /, $text;
    my $child = { %facts, pid => $$, link => $link, descriptors => \@descriptors };
    Peregrine::Fork::live(
        $link,
        $facts{role} // "worker $facts{number}",
        sub { return $self->{run}->($child) }
    );
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Template - a process that has loaded an application, and forks the children that run it

=head1 SYNOPSIS

    my $template = Peregrine::Template->start(
        loop     => $loop,
        load     => sub { $app = load() },                                      # in the template
        run      => sub { my ($child) = @_; return serve($app, $child) },     # in a child
        on_ready => sub { my ($template) = @_; ... },
        on_end   => sub { my ($template, $why, $status) = @_; ... },
    );
    ...    # once it is ready
    my ($here, $there) = Peregrine::Link->pair;
    $template->fork_child({ number => 1 }, $there, fileno $socket);
    $there->close;
    $here->watch(
        $loop,
        sub {
            my ($word, $text) = @_;
            if ($word eq 'pid') { $loop->watch_process($text => sub { ... }); $here->say('go') }
        },
        sub { ... }
    );

=head1 DESCRIPTION

Loading an application takes long, and much memory. A template does it once; its children share with it what
they do not change (copy on write), and start in a millisecond or so. The process has no loop and no threads:
an L<IO::Async::Loop>, or threads, that were made by what it has loaded are why it cannot start.

It gets nothing from the application's side after that: no requests, no sockets, and signals of a terminal
have no effect on it. It ends when it is told to, and when its master has gone; END blocks run. The children
that it has forked go on.

The template forks twice, so that a child's parent is the master, which has to call L<Peregrine/adopt_orphans>
before. The descriptors that a child is to have are sent along (L<Peregrine::Link/say>). The child also has
the descriptors that the master had open when it forked the template, unless the C<load> of L</start> closes
them.

A child tells its process as C<pid> over its link, and goes on when it hears C<go>. A link that ends without
that: there is no child, because the template has ended, or could not fork (C<failed>).

=head1 METHODS

=head2 start

    my $template = Peregrine::Template->start(%args);

Forks the process. In it C<load> is called, once, and dies of the reason why it cannot start; C<on_word> is
called with other words that it is told. In each child C<run> is called with a hash reference: the facts of
L</fork_child>, C<pid>, C<link>, and C<descriptors>, numbers of its own for what was sent along, in the same
order; it returns the exit status. In the master C<on_ready> is called once, and C<on_end> with the reason, a
text, and the wait status. Dies with a text when there is no process to be had.

=head2 pid, children

    say 'has forked ', $template->children;

The process; and its children that have not been lost.

=head2 limit

    $template->limit(30, 'has not loaded within %s s');

Kills it with that reason unless it is ready by then, or has ended.

=head2 fork_child

    $template->fork_child(\%facts, $link, @descriptors);

Asks for a child: C<facts> are words without spaces, or numbers, by name. The link and what the descriptors
stand for are the child's as well; the caller closes its own copies if it does not need them. Returns the
template, or undef when it takes nothing any more, and so was killed.

=head2 lost_child

    $template->lost_child;

A child has ended.

=head2 tell

    $template->tell('reopen');

=head2 leave, was_to_leave

    $template->leave(10);

The template ends after it has forked the children that it was asked for, and is killed when it has not ended
within so many seconds, or is still loading.

=head2 kill

    $template->kill('has not answered');

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
