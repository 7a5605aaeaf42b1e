package PAGI::Server::Application;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future;
use PAGI::Server::Connection;
use PAGI::Server::EventCheck;
use PAGI::Server::Future;
use PAGI::Server::Lifespan;
use PAGI::Server::Transport;
use PAGI::Sync;

# Objects are not copied into clones of the interpreter, see Peregrine::Threads.
sub CLONE_SKIP { return 1 }

sub new {
    my ($class, %args) = @_;
    return bless { extensions => {}, map { $_ => $args{$_} } grep { exists $args{$_} } qw(app extensions) },
        $class;
}

sub load {
    my ($self, $app) = @_;
    # Wraps an object that other code has blessed into PAGI::Sync: such an object does not hand requests over
    # by itself, as the handlers that `sync` makes do.
    $self->{app} = PAGI::Sync::is_sync($app) ? PAGI::Sync::sync($app) : $app;
    return $self;
}

# ---- Facts for the server ------------------------------------------------------------------------

sub app             { return $_[0]{app} }
sub name            { return 'PAGI' }
sub title           { return 'PAGI Server' }
sub way_to_new_code { return 'pagi-server with the file of an application' }
sub can_be_cloned   { return 0 }
sub is_async        { return 1 }
sub hosts           { return (undef) }
sub groups          { return () }
sub grips           { return () }
sub shows_errors    { return ($ENV{PAGI_ENV} || '') eq 'development' }

# The engine sends every request to this application, and its body in pieces: no route is needed.
sub add_routes { return }

# ---- The application's lifespan -----------------------------------------------------------------

sub start {
    my ($self, $instance) = @_;
    my $options = $instance->options;
    $self->{lifespan} = PAGI::Server::Lifespan->new(
        app        => $self->{app},
        loop       => $instance->loop,
        log        => $instance->log,
        mode       => $options->{lifespan_mode},
        worker_num => $instance->number,
        channels   => scalar $instance->channels,
        pool       => scalar $instance->worker_pool,
    );
    return $self->{lifespan}->startup(@{$options}{qw(lifespan_startup_timeout shutdown_timeout)});
}

sub stop_start {
    my ($self) = @_;
    $self->{lifespan}->stop_startup if $self->{lifespan};
    return;
}

sub end {
    my ($self, $seconds) = @_;
    return $self->{lifespan} ? $self->{lifespan}->shutdown($seconds->()) : Future->done;
}

sub abandon {
    my ($self) = @_;
    my $lifespan = delete $self->{lifespan} or return;
    $lifespan->abandon;
    return;
}

# ---- Requests -----------------------------------------------------------------------------------

sub attach {
    my ($self, $worker, $instance, %place) = @_;
    my ($options, $lifespan) = ($instance->options, $self->{lifespan});
    $worker->attach({
        %place,
        app         => $instance->around(pagi => $self->{app}),
        root_path   => $options->{root_path},
        server      => $instance->reports,
        loop        => $instance->loop,
        state       => $lifespan ? $lifespan->state : undef,
        extensions  => _advertised(%{ $options->{extensions} }, %{ $self->{extensions} }),
        check       => $options->{validate_events} // shows_errors() ? _event_check($instance->log) : undef,
        error_page  => shows_errors()                                ? _error_page()                : undef,
        reads_files => $options->{disable_sendfile},
        channels    => scalar $instance->channels,
        pool        => scalar $instance->worker_pool,
        $instance->sync_handlers(PAGI::Sync::is_sync($self->{app})),
    });
    return;
}

# The function that makes a page for developers when an application ends without a response.
sub _error_page {
    require PAGI::Server::ErrorPage;
    my $pages = PAGI::Server::ErrorPage->new;
    return sub { return $pages->page(@_) };
}

# A function that returns the problem with an event. It logs an advice once.
sub _event_check {
    my ($log) = @_;
    my $advised;
    return sub {
        my ($event) = @_;
        my $problem = PAGI::Server::EventCheck::problem($event);
        return $problem if defined $problem || $advised;
        $advised = PAGI::Server::EventCheck::advice($event) // return;
        $log->warn("$advised (told once)");
        return;
    };
}

# The advertised extensions, without `tls`: the bridge adds that for connections over TLS (PAGI::Spec::Tls).
sub _advertised {
    my (%advertised) = @_;
    delete $advertised{tls};
    return %advertised ? \%advertised : undef;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Application - an application of PAGI, as a server has it

=head1 DESCRIPTION

What a L<Peregrine::Server> asks of its application. L<Plack::Handler::Peregrine::Application> is the same for
one of PSGI, and L<Plack::Handler::Peregrine::Mounts> for several; they have these methods, too.

=head1 METHODS

=head2 new

    my $application = PAGI::Server::Application->new(app => $app);

Without C<app> in processes that only have to know its kind.

=head2 load

    $application->load($app);

=head2 app, name, title, way_to_new_code, can_be_cloned, is_async, grips, shows_errors

The application as it was given; the name that messages begin with; the name of the server in the line about
each listener; the program that loads newer code into new interpreters, in words; whether clones of an
interpreter may run the application; whether it uses C<async> subs; whether clients are shown errors.

=head2 add_routes

    $application->add_routes($worker);

In the process of an engine without an application: which requests there will be applications for.

=head2 start, stop_start

    my $future = $application->start($instance);

Begins the application's life. C<stop_start> fails the Future with the category C<stopped>.

=head2 attach

    $application->attach($worker, $instance, path => '/api');

From now on the engine's worker serves requests with it.

=head2 end, abandon

    my $future = $application->end(sub { return $seconds_that_are_left });

Ends the application's life. After C<abandon> nobody waits for that any more.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
