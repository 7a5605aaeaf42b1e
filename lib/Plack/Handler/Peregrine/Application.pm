package Plack::Handler::Peregrine::Application;

use strict;
use warnings;

our $VERSION = '0.003000';

use File::Spec ();
use Future;
use Plack::Handler::Peregrine::Values;
use Plack::Handler::Peregrine::Writer;

# Objects are not copied into clones of the interpreter, see Peregrine::Threads.
sub CLONE_SKIP { return 1 }

sub new {
    my ($class, %args) = @_;
    return bless { app => $args{app} }, $class;
}

sub load {
    my ($self, $app) = @_;
    $self->{app} = $app;
    return $self;
}

sub app             { return $_[0]{app} }
sub name            { return 'Peregrine' }
sub title           { return 'Peregrine' }
sub way_to_new_code { return "peregrine with the file of the application, or plackup's -L Delayed" }
sub is_async        { return 0 }
sub hosts           { return (undef) }
sub groups          { return () }
sub grips           { return $_[1] // () }
sub shows_errors    { return 0 }

# Whether clones can run the application: each request is one function call, in any interpreter.
sub can_be_cloned { return 1 }

# Has the engine gather whole bodies of requests.
sub add_routes {
    my ($self, $worker) = @_;
    $worker->route({}, 1);
    return;
}

# An application of PSGI has no lifespan: nothing happens at its start and end.
sub start      { return Future->done }
sub stop_start { return }
sub end        { return Future->done }
sub abandon    { return }

# Attaches the application. Responses wait in files if other requests can be served meanwhile.
sub attach {
    my ($self, $worker, $instance, %place) = @_;
    my $options = $instance->options;
    my $grip    = $place{grip} // $options->{grip};
    require Plack::Handler::Peregrine::Grip if defined $grip;
    $worker->attach_psgi({
        %place,
        response_buffer => $options->{engine} eq 'inline' ? 0 : $options->{response_buffer},
        max_spool       => $options->{max_body_spool} || ~0,
        folder          => $options->{body_folder} // File::Spec->tmpdir,
        app             => $instance->around(psgi => $self->{app}),
        root_path       => $options->{root_path},
        grip            => $grip,
        server          => $instance->reports,
        loop            => $instance->loop,
        multiprocess    => $options->{workers} && !$instance->is_clone,
        multithread     => $instance->is_clone,
        harakiri        => $instance->can_be_replaced,
        underscores     => $options->{underscores_in_headers},
    });
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Plack::Handler::Peregrine::Application - an application of PSGI, as a server has it

=head1 DESCRIPTION

The methods of L<PAGI::Server::Application> for an application of PSGI.

=head1 METHODS

=head2 new, load, app, name, title, way_to_new_code, can_be_cloned, is_async, grips, shows_errors

=head2 add_routes, start, stop_start, attach, end, abandon

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
