package Plack::Handler::Peregrine::Mounted;

use strict;
use warnings;

our $VERSION = '0.003000';

use parent qw(Peregrine::Server);

use Plack::Handler::Peregrine::Mounts;

sub application_class { return 'Plack::Handler::Peregrine::Mounts' }

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

A L<Peregrine::Server> whose requests go to the first of several applications that they match, by path and by
host: the engine chooses, so that a PSGI application gets whole bodies and a PAGI one gets them in pieces. A
request that matches no application is answered with 404. Each PAGI application has a lifespan of its own;
they start one after another. An application sees where it is mounted in C<root_path> or C<SCRIPT_NAME>, and
the rest of the path in C<path> or C<PATH_INFO>.

=head1 SEE ALSO

L<peregrine>, L<PAGI::Server::Mounts>

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
