package Peregrine::Server::Clones;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future;
use PAGI::Server::Options;
use Peregrine;
use Peregrine::Listeners;
use Peregrine::Server::Configuration;
use Peregrine::Server::Instance;
use Peregrine::Threads;
use Peregrine::Child;
use Scalar::Util qw(weaken);
use Socket       qw(AF_UNIX PF_UNSPEC SOCK_SEQPACKET);

# Event loops that hold no state outside of their interpreter.
my %LOOPS = map { $_ => 1 } qw(Epoll Peregrine Poll Select);

# Interpreters that do not come back and are left alone; with one more their process is replaced.
use constant LOST_MAX => 4;

# Objects are not copied into clones of the interpreter, see Peregrine::Threads.
sub CLONE_SKIP { return 1 }

# ---- Before clones exist -------------------------------------------------------------------------

sub check_options {
    my ($options) = @_;
    die PAGI::Server::Options::exception(
              "option 'canary': interpreters that are threads are replaced together,"
            . " with their process; use another 'engine', process or inline")
        if $options->{canary};
    my $type = $options->{loop_type} // $ENV{IO_ASYNC_LOOP} // return;
    return if $LOOPS{$type};
    die PAGI::Server::Options::exception("option 'loop_type': $type cannot be in several threads; one of "
            . join(', ', sort keys %LOOPS)
            . ", or another 'engine'");
}

sub check_application {
    my $module = Peregrine::Threads::obstacle();
    die
        "the application has loaded $module, which cannot be cloned into threads: use another engine (--engine"
        . " process)\n"
        if defined $module;
    die "the application has made an IO::Async::Loop when it was loaded, which cannot be cloned into threads:"
        . " make it at the first request, or use another engine (--engine process)\n"
        if defined $IO::Async::Loop::ONE_TRUE_LOOP;
    return;
}

# Loads an application before there is a loop. The application may make none, as clones would lack it.
sub load {
    my ($load) = @_;
    Peregrine::Threads::prepare();
    local $IO::Async::Loop::ONE_TRUE_LOOP;
    my $app = $load->();
    check_application();
    return $app;
}

# ---- In the process of the engine and the clones -------------------------------------------------

# The clones join the engine through a pair of sockets. The process's own interpreter serves nothing.
sub new {
    my ($class) = @_;
    my $self    = bless {}, $class;
    socketpair $self->{engine_socket}, $self->{clone_socket}, AF_UNIX, SOCK_SEQPACKET, PF_UNSPEC
        or die "socketpair: $!\n";
    return $self;
}

sub engine_socket { return $_[0]{engine_socket} }

# Waits until the first clone serves. False: the server was told to stop meanwhile.
sub start {
    my ($self, $instance, $count, $restarts) = @_;
    my ($configuration, $options, $log) = map { $instance->$_ } qw(configuration options log);
    weaken(my $weak = $instance);
    my $told;
    $self->{threads} = Peregrine::Threads->new(
        loop          => $instance->loop,
        log           => $log,
        count         => $count,
        start_timeout => $configuration->start_timeout,
        named         => $configuration->deadline_names,
        stop_timeout  => sub { $weak->deadline->for_interpreter($weak->options, @_) },
        serve         => \&_serve_in_clone,
        facts         => {
            class       => ref $instance->application,
            app         => $instance->application->app,
            options     => { %$options, app => undef },
            join_socket => fileno $self->{clone_socket},
        },
        busy_timeout => $options->{request_kill_timeout},
        restarts     => $restarts,
        on_lost      => sub {
            return if $_[0] < LOST_MAX || !$weak || $told++;
            $weak->log->error(
                'interpreters that do not come back: ' . LOST_MAX . ': a new process takes over');
            $weak->ask_for_replacement('lost');
        },
    );
    return Peregrine::Server::Instance::awaited($self->{threads}->start, $instance);
}

sub set_count {
    my ($self, $count) = @_;
    $self->{threads}->set_count($count) if $self->{threads};
    return;
}

# Ends the clones when no request is left.
sub end {
    my ($self) = @_;
    return $self->{threads} ? $self->{threads}->stop : Future->done;
}

sub abandon {
    my ($self) = @_;
    $self->{threads}->abandon if $self->{threads};
    return;
}

# ---- In a clone ---------------------------------------------------------------------------------

sub _serve_in_clone {
    my ($facts) = @_;
    my ($link, $number, $app) = @{$facts}{qw(link number app)};
    my $application   = $facts->{class}->new(app => $app);
    my $configuration = Peregrine::Server::Configuration->of({ %{ $facts->{options} }, app => $app });
    my $loop          = $configuration->make_loop;
    # The loop of a clone must not let signals in while it waits, as IO::Async::Loop::Epoll would.
    $loop->{sigmask}->fillset if $loop->isa('IO::Async::Loop::Epoll');
    open my $join_socket, '+<&=', $facts->{join_socket} or die "the engine's join socket: $!\n";
    my $instance = Peregrine::Server::Instance->new(
        role          => 'clone',
        number        => $number,
        loop          => $loop,
        log           => $configuration->make_log($application->name),
        configuration => $configuration,
        listeners     => Peregrine::Listeners->new,
        application   => $application,
        link          => $link,
        join_socket   => $join_socket,
        busy          => $facts->{busy},
    );
    my $pid    = $$;
    my $at_end = Peregrine::Threads::AtEnd->new(sub { $instance->leave_thread if $pid == $$ });
    my $child  = Peregrine::Child->new(
        link              => $link,
        loop              => $loop,
        server            => $instance,
        log               => $instance->log->of("interpreter $number"),
        heartbeat_timeout => 0,
        is_thread         => 1,
    );
    $instance->on_replace(sub { my ($why) = @_; $child->ask_for_replacement($why) });
    $child->serve;
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Server::Clones - interpreters that are cloned into threads, for one engine

=head1 DESCRIPTION

C<engine =E<gt> 'thread'> with C<workers>, for applications of PSGI. The master keeps one process. There the
engine runs on a thread of its own; the interpreter that has loaded the application serves nothing, but is
cloned C<workers> times (L<Peregrine::Threads>). Clones join the engine as processes do.

=head1 METHODS

=head2 new, engine_socket

    my $clones = Peregrine::Server::Clones->new;

=head2 start

    my $serves = $clones->start($instance, $count, $counters);

Waits until one of the interpreters serves; false if the server was told to stop meanwhile.

=head2 set_count, end, abandon

    $clones->set_count(8);
    my $future = $clones->end;
    $clones->abandon;

=head1 FUNCTIONS

=head2 check_options, check_application

    Peregrine::Server::Clones::check_options(\%options);
    Peregrine::Server::Clones::check_application();

Die when the loop cannot be in several threads, or when the program has loaded or made what cannot.

=head2 load

    my $app = Peregrine::Server::Clones::load(sub { return load_application() });

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
