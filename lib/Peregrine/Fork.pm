package Peregrine::Fork;

use strict;
use warnings;

our $VERSION = '0.003000';

use B ();
use Config;
use Errno      qw(EBADF);
use File::Spec ();
use IO::Async::Loop;
use Peregrine;
use Peregrine::Daemon;
use POSIX ();

# Signals of a terminal, and those that are meant for the server, which only its master handles.
use constant MASTERS_SIGNALS => qw(TERM INT QUIT HUP USR1 USR2 TTIN TTOU);

# Exit status of a process that could not start.
use constant NOT_STARTED => 3;

# The user that a child of this process becomes, as Peregrine::Daemon has it; undef: the user that this
# process is. No process below inherits that.
our $CHILDREN;

sub children_become {
    my ($identity) = @_;
    $CHILDREN = $identity;
    return;
}

sub identity_of_children { return $CHILDREN }

# Forks a child that keeps the process's user, where other children give up their rights.
sub equal_child {
    local $CHILDREN = undef;
    return child();
}

# Forks. Signals wait until the child has handlers of its own, or none.
sub child {
    my ($identity) = @_;
    $identity //= $CHILDREN;
    my ($all, $before) = (POSIX::SigSet->new, POSIX::SigSet->new);
    $all->fillset;
    POSIX::sigprocmask(POSIX::SIG_BLOCK(), $all, $before);
    my $settles = Peregrine::settle_children(0);
    my $pid     = fork;
    my $reason  = $!;
    Peregrine::settle_children($settles) if $pid || !defined $pid;

    if (defined $pid && !$pid) {
        _become($identity) if $identity;
        $SIG{$_} = 'DEFAULT' for grep { ref $SIG{$_} eq 'CODE' && !_stays($_) } keys %SIG;
        $before->emptyset;
        _leave_loop();
        # Lets EV make a new epoll instance: in a shared one, parent and child would get each other's events.
        EV::default_loop()->loop_fork if defined &EV::default_loop;
    }
    POSIX::sigprocmask(POSIX::SIG_SETMASK(), $before);
    $! = $reason;
    return $pid;
}

# Signals that the processes of a server have handlers for.
my %SERVERS = map { $_ => 1 } MASTERS_SIGNALS, 'CHLD';

# Whether a child keeps a handler: the application's, for a signal that no process of the server waits for.
# Without a handler of SIGALRM, `alarm` in a request would end the process.
sub _stays {
    my ($name) = @_;
    return 1 if $name =~ /\A(?:__|(?:PIPE|XFSZ)\z)/;
    return 0 if $SERVERS{$name};
    my $stash   = B::svref_2object($SIG{$name})->STASH;
    my $package = $stash->can('NAME') ? $stash->NAME // '' : '';
    return $package !~ /\A(?:IO::Async|PAGI::Server|Peregrine(?!::App)|Plack::Handler)\b/;
}

# Closes the copy of the parent's epoll descriptor, by which the child could end the parent's watches. A loop
# makes another descriptor when it is used.
sub _leave_loop {
    my $loop = $IO::Async::Loop::ONE_TRUE_LOOP;
    delete $loop->{epoll} if $loop && $loop->isa('IO::Async::Loop::Epoll');
    return;
}

# Gives up rights. A process that cannot do that must not go on.
sub _become {
    my ($identity) = @_;
    undef $CHILDREN;
    return if eval { Peregrine::Daemon->become($identity); 1 };
    print STDERR "$@";
    POSIX::_exit(NOT_STARTED);
}

# The text that ps shows of all processes of a server, and of this one.
my ($title, $shown);

sub name_program {
    my ($text) = @_;
    $title = $text;
    return _show($text);
}

sub _show {
    my ($text) = @_;
    $shown = $text;
    Peregrine::show_title($text);
    return;
}

# Shows the program's name again after `local $0`, which shows the program's path.
sub show_again {
    Peregrine::show_title($shown) if defined $shown;
    return;
}

# Makes signals end neither the process nor system calls that can be repeated. They are not ignored, because
# programs that the process starts would inherit that.
sub disregard {
    my (@names) = @_;
    for my $name (@names) {
        my $action = POSIX::SigAction->new(sub { }, POSIX::SigSet->new, POSIX::SA_RESTART());
        $action->safe(1);
        POSIX::sigaction(POSIX->can("SIG$name")->(), $action);
    }
    return;
}

# Has the kernel end this process with its parent: a process that is not ready reads no link, and may load
# code that does not return.
sub start_with_parent {
    my ($link) = @_;
    Peregrine::end_with_parent(1);
    # The parent may have ended before that.
    Peregrine::leave(NOT_STARTED) if $link->has_news && $link->has_ended;
    return;
}

sub live {
    my ($link, $role, $code) = @_;
    $title //= $0;
    _show("$title ($role)");
    my $status;
    my $came_back = runs_through(sub {
        undef $IO::Async::Loop::ONE_TRUE_LOOP;
        srand;
        $status = $code->();
    });
    if (!$came_back || !defined $status) {
        my $reason = $@ =~ s/\s+\z//r;
        $link->say(failed => $reason);
        $status = NOT_STARTED;
    }
    Peregrine::leave($status);
}

# Runs code; false with `$@`: it has died, or was left by `next` or the like. Perl looks for the loop of a
# `next` in the callers, too, and would end it in a loop of ours.
sub runs_through {
    my ($code)    = @_;
    my $error     = "left by next, last or redo outside a loop\n";
    my $has_begun = 0;
    my $is_done;
    for my $once (1) {
        last if $has_begun++;    # redo
        $is_done = eval { $code->(); 1 };
        $error   = $@;
    }
    $@ = $error;
    return $is_done;
}

# Runs code in a process of its own, and returns its text.
sub said {
    my ($identity, $code) = @_;
    pipe my $reader, my $writer or die "pipe: $!\n";
    my $pid = child($identity) // die "fork: $!\n";
    if (!$pid) {
        close $reader;
        my $text = eval { $code->() };
        print {$writer} defined $text ? "text $text" : ref $@ eq 'SCALAR' ? "misuse ${$@}" : "problem $@";
        close $writer;
        POSIX::_exit(0);
    }
    close $writer;
    my ($kind, $text) = split / /, do { local $/ = undef; <$reader> }, 2;
    waitpid $pid, 0;
    return undef if !defined $text;       ## no critic
    die \$text   if $kind eq 'misuse';
    die $text    if $kind eq 'problem';
    return $text;
}

sub become {
    my ($role, $module, $descriptors, @arguments) = @_;
    POSIX::dup2($descriptors->[$_], $_) for 0 .. $#$descriptors;
    my @include = map { '-I' . File::Spec->rel2abs($_) } grep { !ref } @INC;
    exec {$^X} "peregrine ($role)", @include, "-M$module", '-e', $module . '::main()', @arguments
        or POSIX::_exit(127);
}

my @STANDARD = ([ \*STDIN, '<' ], [ \*STDOUT, '>' ], [ \*STDERR, '>' ]);

# Opens /dev/null in place of standard handles, and at their descriptors, that code has closed. The server's
# next socket would be there otherwise, and programs that the application starts would read it and write to
# it.
sub fill_standard_descriptors {
    for my $number (0 .. 2) {
        my ($handle, $mode) = @{ $STANDARD[$number] };
        # A class of tied handles may have no FILENO.
        my $is_open = tied *$handle || defined fileno $handle;
        open $handle, $mode, '/dev/null' or return if !$is_open;
        my $copy = POSIX::dup($number);
        if    (defined $copy) { POSIX::close($copy) }
        elsif ($! == EBADF)   { POSIX::open('/dev/null', POSIX::O_RDWR()) }
    }
    return;
}

sub how_it_ended {
    my ($status) = @_;
    my $signal = $status & 127;
    return 'has exited with status ' . ($status >> 8) if !$signal;
    my $name = (split / /, $Config{sig_name})[$signal];
    return 'was killed by ' . ($name =~ /\ANUM/ ? "signal $signal" : "SIG$name");
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Fork - the first and the last thing that a process of a Peregrine::Master does

=head1 SYNOPSIS

    my $pid = Peregrine::Fork::child() // die "fork: $!\n";
    Peregrine::Fork::live($link, 'worker 1', sub { return serve() }) if !$pid;
    ...
    print 'the child ', Peregrine::Fork::how_it_ended($?), "\n";

=head1 FUNCTIONS

=head2 child

    my $pid = Peregrine::Fork::child();

Like C<fork>, but the child's signals are those of a program that has just been started, except that what was
ignored is ignored, and that handlers of the application for signals that the server does not use stay.

    my $pid = Peregrine::Fork::child($identity);

The child becomes that user (L<Peregrine::Daemon/identity>), or ends.

=head2 children_become, identity_of_children, equal_child

    Peregrine::Fork::children_become($identity);
    my $identity = Peregrine::Fork::identity_of_children();
    my $pid = Peregrine::Fork::equal_child();

From then on each C<child> without a user of its own becomes that one, for a process that keeps its rights
only to start others; C<equal_child> has the rights of this process.

=head2 MASTERS_SIGNALS

    Peregrine::Fork::disregard(Peregrine::Fork::MASTERS_SIGNALS);

The names of the signals that only the master of a server handles. A terminal or a service manager may send
them to all processes of the server.

=head2 disregard

    Peregrine::Fork::disregard(qw(TERM INT));

From then on these signals do nothing in this process. Programs that it starts have them as usual.

=head2 live

    Peregrine::Fork::live($link, 'worker 1', sub { return $exit_status });

In a child: C<ps> shows the second argument in parentheses behind the program's name. Runs the code, and then
leaves after its END blocks, without tearing down the heap. There is no loop yet of which L<IO::Async::Loop>
would say that it is the only one. An exception of the code is sent as C<failed> over the L<Peregrine::Link>.
Never returns.

=head2 runs_through

    Peregrine::Fork::runs_through(sub { ... }) or warn "it did not come to its end: $@";

Calls code of others. False with C<$@> if it dies, or if it is left by C<next>, C<last> or C<redo>, which
would lead into a loop of the caller.

=head2 said

    my $text = Peregrine::Fork::said($identity, sub { return 'text' }) // die how_it_ended($?);

The text that code returns in a process of its own, which is of that user if there is one. Exceptions of the
code are thrown here: a text, or a reference to one. Without a text the process has ended before, and C<$?>
says how.

=head2 become

    Peregrine::Fork::become('certificates', 'Peregrine::Acme::Process', [ fileno $socket ], @arguments);

In a child: becomes a program that runs C<main> of the module and has nothing of the application nor of the
sockets. C<ps> shows the first argument. The listed descriptors are its standard input and output. Never
returns.

=head2 fill_standard_descriptors

    Peregrine::Fork::fill_standard_descriptors();

Opens F</dev/null> in place of standard handles, and at their descriptors, that code has closed when it was
loaded.

=head2 name_program

    Peregrine::Fork::name_program('pagi-server app.pl');

Sets the text that C<ps> shows for this process, and for the processes that it forks, each with a
label. C<$0> stays as it is.

=head2 show_again

    Peregrine::Fork::show_again();

Shows that once more: an assignment to C<$0>, also one that a C<local> undoes, has shown another text.

=head2 how_it_ended

    my $text = Peregrine::Fork::how_it_ended($?);    # was killed by SIGKILL

The end of a sentence.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
