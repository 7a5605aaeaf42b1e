package PAGI::Server::Log;

use strict;
use warnings;

my %RANK = (error => 1, warn => 2, info => 3, debug => 4);
my @NAME = (undef, qw(error warn info debug));

sub new {
    my ($class, %args) = @_;
    my $rank = $args{quiet} ? $RANK{error} : $RANK{ $args{level} || 'info' };
    return bless { rank => $rank }, $class;
}

sub _write {
    my ($self, $level, $text) = @_;
    return if $RANK{$level} > $self->{rank};
    $text =~ s/\s+\z//;
    CORE::warn("$text\n");
    return;
}

sub error { my ($self, $text) = @_; return $self->_write(error => $text) }
sub warn  { my ($self, $text) = @_; return $self->_write(warn  => $text) }
sub info  { my ($self, $text) = @_; return $self->_write(info  => $text) }
sub debug { my ($self, $text) = @_; return $self->_write(debug => $text) }

sub ranked {
    my ($self, $rank, $text) = @_;
    return $self->_write($NAME[$rank] || 'error', $text);
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Log - the server's own messages

=head1 SYNOPSIS

    my $log = PAGI::Server::Log->new(level => 'info');
    $log->info('PAGI Server listening on http://127.0.0.1:5000/');

=head1 DESCRIPTION

Messages go through Perl's C<warn>, so that C<$SIG{__WARN__}> and whoever collects standard error sees
them.

=head1 METHODS

=head2 new

    my $log = PAGI::Server::Log->new(level => 'debug', quiet => 0);

C<level> is the least important level that is written: C<error>, C<warn>, C<info> or C<debug>. With a
true C<quiet> only errors are written.

=head2 error

    $log->error('the application died');

=head2 warn

    $log->warn('out of file descriptors');

=head2 info

    $log->info('listening');

=head2 debug

    $log->debug('lifespan is not supported');

=head2 ranked

    $log->ranked(2, 'out of file descriptors');

The same with the engine's number for a level: 1 is C<error>, 4 is C<debug>.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
