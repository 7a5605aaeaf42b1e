package Plack::Handler::Peregrine::Server;

use strict;
use warnings;

our $VERSION = '0.003000';

use parent qw(PAGI::Server::Base);

use File::Spec ();
use PAGI::Server::Exception;
use Plack::Handler::Peregrine::Values;
use Plack::Handler::Peregrine::Writer;

sub _name_in_log { return 'Peregrine' }

sub _way_to_new_code { return "peregrine with the file of the application, or plackup's -L Delayed" }

sub _attach {
    my ($self, $worker) = @_;
    $worker->attach_psgi({ $self->_psgi_settings($self->{options}{app}) });
    return;
}

# Each request is one function call, in whichever interpreter.
sub _can_be_cloned { return 1 }

# How the engine's worker is to serve an application. Responses wait in files where others can be served
# meanwhile.
sub _psgi_settings {
    my ($self, $app) = @_;
    my $options = $self->{options};
    my $buffer  = $options->{engine} eq 'inline' ? 0 : $options->{response_buffer};
    return (
        response_buffer => $buffer,
        max_spool       => $options->{max_body_spool} || ~0,
        folder          => $options->{body_folder} // File::Spec->tmpdir,
        app             => $self->_around(psgi => $app),
        root_path       => $self->{options}{root_path},
        server          => $self,
        loop            => $self->loop,
        multiprocess    => $options->{workers} && !$self->{clone},
        multithread     => $self->{clone},
        harakiri        => $self->{on_replace},
        underscores     => $self->{options}{underscores_in_headers},
    );
}

# Requests come with their whole bodies.
sub _prepare_engine {
    my ($self, $worker) = @_;
    $worker->route({}, 1);
    return;
}

# ---- What xs/psgi tells -------------------------------------------------------------------------

sub _bad_response {
    my ($self, $reason, $about) = @_;
    return $self->_report($reason, $about,
        'the response cannot be sent: ' . PAGI::Server::Exception::text($reason));
}

# An application has asked for a new process in place of this one.
sub _harakiri {
    my ($self) = @_;
    $self->{on_replace}->('psgix.harakiri.commit');
    return;
}

sub _no_input {
    my ($self, $reason, $about) = @_;
    return $self->_report($reason, $about,
        'the body of a request cannot be read: ' . PAGI::Server::Exception::text($reason));
}

1;

__END__

=encoding UTF-8

=head1 NAME

Plack::Handler::Peregrine::Server - serves a PSGI application in an IO::Async::Loop

=head1 SYNOPSIS

    use IO::Async::Loop;
    use Plack::Handler::Peregrine::Server;

    my $loop   = IO::Async::Loop->new;
    my $server = Plack::Handler::Peregrine::Server->new(app => $app, host => '127.0.0.1', port => 5000);
    $loop->add($server);
    $server->listen->get;
    $loop->run;

=head1 DESCRIPTION

For programs that have a loop of their own; others use L<Plack::Handler::Peregrine>. Options and methods are
those of L<PAGI::Server>, but that C<app> is a PSGI application and that there is no lifespan.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
