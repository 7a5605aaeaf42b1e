package Plack::Handler::Peregrine::Mounted;

use strict;
use warnings;

our $VERSION = '0.003000';

use parent qw(PAGI::Server Plack::Handler::Peregrine::Server);

use PAGI::Server::Mounts;

sub _name_in_log { return 'Peregrine' }

sub _mounts {
    my ($self) = @_;
    return PAGI::Server::Mounts->of($self->{options}{app});
}

# The applications that have a lifespan.
sub _pagi_apps {
    my ($self) = @_;
    return map { $_->{app} } grep { $_->{kind} eq 'pagi' } $self->_mounts;
}

# PAGI's have a life of their own in each interpreter.
sub _can_be_cloned {
    my ($self) = @_;
    return !grep { $_->{kind} ne 'psgi' } $self->{load_app} ? $self->_planned_mounts : $self->_mounts;
}

sub _planned_mounts {
    my ($self) = @_;
    return $self->{planned_mounts} ? @{ $self->{planned_mounts} } : $self->_mounts;
}

# The engine divides requests, for applications that its process has not loaded.
sub _prepare_engine {
    my ($self, $worker) = @_;
    for my $mount ($self->_planned_mounts) {
        $worker->route({ map { $_ => $mount->{$_} } qw(path host) }, $mount->{kind} eq 'psgi');
    }
    return;
}

sub _attach {
    my ($self, $worker) = @_;
    for my $mount ($self->_mounts) {
        my %place = map { $_ => $mount->{$_} } qw(path host);
        if ($mount->{kind} eq 'psgi') {
            $worker->attach_psgi({ %place, $self->_psgi_settings($mount->{app}) });
        }
        else {
            $worker->attach({ %place, $self->_pagi_settings($mount->{app}) });
        }
    }
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Plack::Handler::Peregrine::Mounted - serves several applications, of PAGI and of PSGI, side by side

=head1 SYNOPSIS

    use PAGI::Server::Mounts;
    use Plack::Handler::Peregrine::Mounted;

    my $server = Plack::Handler::Peregrine::Mounted->new(
        app => PAGI::Server::Mounts->new(
            { path => '/api', kind => 'pagi', app => $api },
            { path => '',     kind => 'psgi', app => $site },
        ),
        port => 5000,
    );
    $server->run;

=head1 DESCRIPTION

A L<PAGI::Server> whose requests go to the first of several applications that they match, by path and by host:
the engine chooses, so that a PSGI application gets whole bodies and a PAGI one gets them in pieces. A request
that matches no application is answered with 404. Each PAGI application has a lifespan of its own; they start
one after another. An application sees where it is mounted in C<root_path> or C<SCRIPT_NAME>, and the rest of
the path in C<path> or C<PATH_INFO>.

=head1 SEE ALSO

L<peregrine>, L<PAGI::Server::Mounts>

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
