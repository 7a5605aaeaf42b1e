package Peregrine::Threads;

use strict;
use warnings;

our $VERSION = '0.003000';

use parent qw(Peregrine::Master);

use B ();
use Config;
use IO::Async::Loop;
use IO::Handle ();
use Peregrine;
use Peregrine::Link;
use POSIX ();

# Seconds that a starting interpreter has to end when all have to leave.
use constant START_LEFT_S => 0.5;

sub are_possible { return $Config{useithreads} && $^O eq 'linux' ? 1 : 0 }

# Modules that a process can have only once: another interpreter would use the data of the first one.
my %SINGLE = map { ($_ =~ s{::}{/}gr) . '.pm' => $_ } qw(Coro EV);

sub obstacle {
    my ($file) = grep { $INC{$_} } sort keys %SINGLE;
    return $file ? $SINGLE{$file} : undef;
}

# In a clone: refuses to load a module that a process can have only once.
sub _refuse_single {
    my (undef, $file) = @_;
    my $module = $SINGLE{$file} // return;
    die "$module cannot be in several threads: use another engine (--engine process)\n";
}

# Loads the module `threads`, by which modules know that there are several interpreters.
sub prepare {
    require threads;
    return;
}

sub new {
    my ($class, %args) = @_;
    my %hear = (
        exited => sub { $_[0]{exited} = 1 },
        thread => sub { $_[0]{tid}    = $_[1] },
    );
    my $self = $class->SUPER::new(%args, hear => \%hear);
    @{$self}{qw(serve facts on_lost restarts)} = @args{qw(serve facts on_lost restarts)};
    $self->{lost} = [];
    prepare();
    _put_off('main::');
    Peregrine::settle_children(1);
    # Timers of the process, which a library may start in any thread, and SIGIO end nothing.
    $SIG{$_} = sub { }
        for qw(ALRM VTALRM PROF IO);
    Peregrine::prepare_alarms();
    return $self;
}

# ---- In the interpreter that is cloned ----------------------------------------------------------

sub _kind  { return 'interpreter' }
sub _means { return 'the thread' }

sub _name {
    my ($self, $child) = @_;
    return "interpreter $child->{number}";
}

# Starts a thread with all signals blocked: another thread would run Perl's handlers in its own interpreter.
sub _launch {
    my ($self, $child, $there) = @_;
    my $handle = $there->release;
    my %facts  = (%{ $self->{facts} }, number => $child->{number});
    $facts{busy} = [ $self->busy_words, $child->{busy} ] if defined $child->{busy};
    my ($all, $before) = (POSIX::SigSet->new, POSIX::SigSet->new);
    $all->fillset;
    POSIX::sigprocmask(POSIX::SIG_BLOCK(), $all, $before);
    my ($thread, $error) = do {
        local $IO::Async::Loop::ONE_TRUE_LOOP;
        local $@;
        my %how  = (context => 'void', exit => 'threads_only');
        my $made = eval { threads->create(\%how, \&_live, $handle, $self->{serve}, \%facts) };
        ($made, $@);
    };
    POSIX::sigprocmask(POSIX::SIG_SETMASK(), $before);
    if (!$thread) {
        Peregrine::hide_from_forks(fileno $handle, 0);
        die 'a thread cannot be made' . (length $error ? ": $error" : "\n");
    }
    # A thread object would keep the thread's data until the object's own end.
    $thread->detach;
    return;
}

sub _link_ended {
    my ($self, $child) = @_;
    return $self->_gone($child);
}

sub _interrupt_start { return }

# Seconds for a clone that starts when the server stops. No signal can interrupt it, so it is left alone.
sub _start_left { return START_LEFT_S }

sub _count_restart {
    my ($self, $reason) = @_;
    $self->{restarts}->note_restart($reason) if $self->{restarts};
    return;
}

# Handles the end of an interpreter. An application's `exit` in a request is on purpose, however often.
sub _died {
    my ($self, $child, $status) = @_;
    return $self->SUPER::_died($child, $status) if !$child->{exited};
    $self->_count_restart('exit');
    $self->{log}->info($self->_name($child) . ' has called exit: another one takes its place');
    return;
}

# Gives a thread up, because it cannot be killed: it writes where it is, has the engine answer for it, and is
# left alone. Its place goes to another thread, or to none.
sub _kill {
    my ($self, $child, $why, $counts_as) = @_;
    return if $child->{killed};
    $child->{killed}    = "$why and is left alone";
    $child->{counts_as} = $counts_as;
    $self->{log}->warn($self->_name($child) . " $child->{killed}") if $child->{state} eq 'leaving';
    Peregrine::ask_stuck_thread($child->{tid})                     if $child->{tid};
    # Younger clones have copies of the handle.
    $child->{link}->cut;
    $self->_gone($child);
    return if !$self->{on_lost} || $self->{phase} ne 'running';
    # Threads that have ended meanwhile do not count.
    @{ $self->{lost} } = grep { !$_ || -d "/proc/self/task/$_" } @{ $self->{lost} }, $child->{tid};
    $self->{on_lost}->(scalar @{ $self->{lost} });
    return;
}

# Keeps the word of a thread that was left alone, because it may still write there.
sub _give_back {
    my ($self, $child) = @_;
    delete $child->{busy} if $child->{killed};
    return $self->SUPER::_give_back($child);
}

# Gives up the threads that have not left; the stop does not wait for them.
sub abandon {
    my ($self) = @_;
    $self->_kill($_, 'has not left') for $self->children;
    return;
}

# ---- CLONE --------------------------------------------------------------------------------------

# Perl calls all CLONE methods in any order, and the process ends if one dies. CLONE methods in Perl are put
# off: a clone calls them in its own thread, those of installed modules first. So an application's CLONE can
# connect to its database, which takes time, may fail, and needs that DBI's own CLONE has run.
my @LIBRARIES =
    map  { "$_/" }
    grep { defined && length }
    @Config{qw(privlibexp archlibexp sitelibexp sitearchexp vendorlibexp vendorarchexp)};
my %ORIGINAL;    # by package
my @PUT_OFF;     # CLONE methods to be called: [package, class]

sub _put_off {
    my ($stash) = @_;
    no strict 'refs';
    no warnings 'redefine';
    my ($package) = $stash =~ /\A(.*)::\z/s;
    if (defined &{"${stash}CLONE"} && !B::svref_2object(\&{"${stash}CLONE"})->XSUB && !$ORIGINAL{$package}) {
        $ORIGINAL{$package} = \&{"${stash}CLONE"};
        *{"${stash}CLONE"} = sub { push @PUT_OFF, [ $package, @_ ]; return };
    }
    for my $name (grep { /::\z/ && $_ ne 'main::' && ref \${$stash}{$_} eq 'GLOB' } keys %{$stash}) {
        _put_off($stash eq 'main::' ? $name : "$stash$name");
    }
    return;
}

sub _make_up {
    no strict 'refs';
    no warnings 'redefine';
    *{"${_}::CLONE"} = $ORIGINAL{$_} for keys %ORIGINAL;
    my %is_late = map { $_ => _is_installed($ORIGINAL{$_}) ? 0 : 1 } keys %ORIGINAL;
    for my $call (sort { $is_late{ $a->[0] } <=> $is_late{ $b->[0] } } splice @PUT_OFF) {
        my ($package, @class) = @$call;
        $ORIGINAL{$package}->(@class);
    }
    return;
}

sub _is_installed {
    my ($code) = @_;
    my $file = B::svref_2object($code)->FILE;
    return scalar grep { index($file, $_) == 0 } @LIBRARIES;
}

# ---- In a clone ---------------------------------------------------------------------------------

sub _live {
    my ($handle, $serve, $facts) = @_;
    my $link   = Peregrine::Link->of($handle);
    my $pid    = $$;
    my $at_end = Peregrine::Threads::AtEnd->new(sub {
        # In a forked child the end of this thread would end the process with status 0.
        Peregrine::leave($?) if $pid != $$;
        undef $IO::Async::Loop::ONE_TRUE_LOOP;
        Peregrine::end_clone();
        $link->close;
    });
    Peregrine::begin_clone();
    undef $handle;
    # The copy of an unbuffered handle is buffered.
    STDERR->autoflush(1);
    srand;
    unshift @INC, \&_refuse_single;
    return if eval { _make_up(); $serve->({ %$facts, link => $link }); 1 };
    $link->say(failed => $@ =~ s/\s+\z//r);
    return;
}

package Peregrine::Threads::AtEnd;

# An object that calls a function when it is destroyed: at the end of a block, however that ends.
sub new {
    my ($class, $code) = @_;
    return bless \$code, $class;
}

sub DESTROY {
    my ($self) = @_;
    return $$self->();
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Threads - interpreters that are cloned into threads of this process

=head1 SYNOPSIS

    my $threads = Peregrine::Threads->new(
        loop  => $loop, log => $log, count => 8,
        serve => \&serve, facts => { app => $app },
        stop_timeout => sub { 60 },
    );
    $threads->start->await;

=head1 DESCRIPTION

A L<Peregrine::Master> whose children are no processes: each is a clone of the interpreter that this is called
in (L<threads>), which has loaded the application and serves nothing, in a thread of its own. They are
replaced as children are: a new one serves before the old one leaves. An interpreter is cloned while
this one does nothing else, and ends in its own thread.

Methods C<CLONE> are called in the new thread: those of installed modules first, then those of the
application. If one dies the clone cannot start.

A clone starts with all signals blocked: they belong to the thread that was there first. C<alarm> is each
clone's own (L<Peregrine/prepare_alarms>). C<exit> ends the clone that calls it. A thread that does not
come back cannot be killed: it is asked where it is (L<Peregrine/ask_stuck_thread>) and forgotten, and
another one takes its place. If it comes back it ends.

=head1 METHODS

Those of L<Peregrine::Master>, and:

=head2 new

C<serve> is a function with a name, which is called in each clone with a hash: C<facts>, the C<number> of the
clone, with C<busy_timeout> what L<Peregrine/show_busy_in> wants (C<busy>), and its C<link>, over which it
says C<thread> with L<Peregrine/thread_number>, and C<exited> if it ends because of an C<exit> that was meant.
If it dies, the clone cannot start, and the exception is the reason. C<on_lost> is called with how many clones
there are that were left alone, when there is one more, and C<restarts> is told of replacements
(C<note_restart> of L<Peregrine::Counters>).

=head2 abandon

    $threads->abandon;

Does not wait any more for those that are to leave.

=head1 FUNCTIONS

=head2 are_possible

    Peregrine::Threads::are_possible()

Whether Perl has them (ithreads), and the engine can be joined: on Linux only.

=head2 obstacle

    my $module = Peregrine::Threads::obstacle();

The name of a module that is loaded and cannot be cloned, L<EV> or L<Coro>; undef if there is none. A clone
that is about to load one gets an exception.

=head2 prepare

    Peregrine::Threads::prepare();

Loads L<threads>, which is best done before the application is loaded: modules look whether it is there.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
