package Plack::Handler::Peregrine::Command;

use strict;
use warnings;

our $VERSION = '0.003000';

use parent qw(PAGI::Server::Runner);

use PAGI::Server::AppLoader;

sub program { return 'peregrine' }

# The mounts; a single application of PSGI is mounted at the root.
sub _mounts {
    my ($self) = @_;
    my $options = $self->{options};
    return $self->SUPER::_mounts if $options->{mount} || $self->{mounts} || ref $options->{app};
    my %which = map { defined $options->{$_} ? ($_ => $options->{$_}) : () } qw(app code);
    return if !%which;
    my $kind = PAGI::Server::AppLoader->kind(%which);
    return if $kind eq 'pagi';
    my $mount = { path => '', kind => $kind };
    $mount->{name}  = $which{app}  if defined $which{app};
    $mount->{code}  = $which{code} if defined $which{code};
    $self->{mounts} = [$mount];
    return $mount;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Plack::Handler::Peregrine::Command - what the peregrine command does

=head1 SYNOPSIS

    use Plack::Handler::Peregrine::Command;

    exit Plack::Handler::Peregrine::Command->run(@ARGV);

=head1 DESCRIPTION

A L<PAGI::Server::Runner> whose application may be one of PSGI: one whose file ends in C<.psgi>, or whose
source looks like it.

=head1 METHODS

=head2 program

C<peregrine>.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
