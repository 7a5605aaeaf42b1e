package Plack::Handler::Peregrine::Server;

use strict;
use warnings;

our $VERSION = '0.003000';

use parent qw(Peregrine::Server);

use Plack::Handler::Peregrine::Application;

sub application_class { return 'Plack::Handler::Peregrine::Application' }

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
