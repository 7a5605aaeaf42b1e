package PAGI::Server::Compression::Coder;

use strict;
use warnings;

our $VERSION = '0.003000';

use Compress::Raw::Zlib qw(WANT_GZIP Z_BUF_ERROR Z_FINISH Z_OK Z_SYNC_FLUSH);
use Peregrine;

# zlib's level and window: 32 KiB of history, and 256 KiB of memory.
use constant { LEVEL => 6, WINDOW => WANT_GZIP };

sub names {
    return ((grep { Peregrine::Coder->new($_) } qw(br zstd)), 'gzip');
}

sub new {
    my ($class, $coding) = @_;
    return Peregrine::Coder->new($coding) || die "$coding: not here\n" if $coding ne 'gzip';
    my ($zlib, $status) =
        Compress::Raw::Zlib::Deflate->new(-Level => LEVEL, -WindowBits => WINDOW, -AppendOutput => 1);
    die "gzip: $status\n" if !$zlib;
    return bless { zlib => $zlib }, $class;
}

sub code {
    my ($self, $bytes, $last) = @_;
    die "a body must be a string of bytes\n" if !utf8::downgrade($bytes, 1);
    my $coded  = '';
    my $status = $self->{zlib}->deflate($bytes, $coded);
    $status = $self->{zlib}->flush($coded, $last ? Z_FINISH : Z_SYNC_FLUSH) if $status == Z_OK;
    # A flush without content is no mistake.
    die "gzip: $status\n" if $status != Z_OK && $status != Z_BUF_ERROR;
    return $coded;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Compression::Coder - compresses a body, piece by piece

=head1 SYNOPSIS

    my $coder = PAGI::Server::Compression::Coder->new('gzip');
    print $coder->code($piece), $coder->code('', 1);

=head1 METHODS

=head2 names

The codings that are there, the one that we like best first: C<gzip>, and C<br> and C<zstd> if the system
has their libraries.

=head2 new

An encoder. Dies if the coding is not there.

=head2 code

    my $bytes = $coder->code($piece, $last);

The coded bytes of a piece, and of earlier pieces that waited in the coder. Nothing follows the
last one.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
