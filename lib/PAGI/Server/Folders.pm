package PAGI::Server::Folders;

use strict;
use warnings;

our $VERSION = '0.003000';

use File::Spec ();

# Settings behind a folder, and their allowed values.
my %SETTINGS = (
    host    => qr/\A[^\s,\/]+\z/,
    max_age => qr/\A[0-9]{1,9}\z/,
);

sub problem {
    my ($given) = @_;
    return if eval { _all($given); 1 };
    return 'must be PATH=FOLDER, such as /static=public, ' . $@ =~ s/\n\z//r;
}

sub parse {
    my ($given) = @_;
    my @folders = _all($given);
    for my $folder (@folders) {
        die "there is no directory '$folder->{folder}'\n" if !-d $folder->{folder};
        $folder->{folder} = File::Spec->rel2abs($folder->{folder});
    }
    return sort { rank($a, $b) } @folders;
}

sub _all {
    my ($given) = @_;
    return if !defined $given;
    my @given = ref $given eq 'ARRAY' ? @$given : ref $given ? $given : split m{,(?=/[^=]*=)}, $given;
    my (@folders, %seen);
    for my $one (@given) {
        my $folder = ref $one eq 'HASH' ? {%$one} : _parsed($one);
        _check($folder);
        my $place = lc($folder->{host} // '') . $folder->{path};
        die "not two for '$folder->{path}'\n" if $seen{$place}++;
        push @folders, $folder;
    }
    return @folders;
}

# Orders folders by precedence: those of one host first, then by the length of their paths.
sub rank {
    my ($first, $second) = @_;
    return
           defined $second->{host} <=> defined $first->{host}
        || length $second->{path}  <=> length $first->{path}
        || ($first->{host} // '') cmp($second->{host} // '')
        || $first->{path} cmp $second->{path};
}

sub _parsed {
    my ($text) = @_;
    my ($path, $rest) = !ref $text && ($text // '') =~ m{\A(/[^=]*)=(.+)\z}s
        or die 'not ' . (defined $text ? "'$text'" : 'undef') . "\n";
    my ($folder, @settings) = split /,/, $rest;
    my %settings = map { my ($key, $value) = split /=/; $key => $value } @settings;
    return { %settings, path => $path, folder => $folder };
}

sub _check {
    my ($folder) = @_;
    my ($path, $directory) = @{$folder}{qw(path folder)};
    die "with a path\n"                                  if !defined $path      || $path !~ m{\A/};
    die "with a folder, not '$path'\n"                   if !defined $directory || !length $directory;
    die "with a path without '?' and '#', not '$path'\n" if $path =~ /[?#]/;
    $folder->{path} =~ s{/+\z}{};
    $folder->{path} = '/' if !length $folder->{path};
    for my $key (grep { !/\A(?:path|folder)\z/ } sort keys %$folder) {
        my $allowed = $SETTINGS{$key} or die "with host=NAME or max_age=SECONDS, not '$key'\n";
        my $value   = $folder->{$key} // '';
        die "with another value for $key than '$value'\n" if $value !~ $allowed;
    }
    return;
}

sub serve {
    my ($worker, $given) = @_;
    for my $folder (parse($given)) {
        my %settings = map { $_ => $folder->{$_} } qw(path folder host);
        $settings{cache_control} = "public, max-age=$folder->{max_age}" if defined $folder->{max_age};
        $worker->folder(\%settings);
    }
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Folders - folders whose files the server answers with by itself

=head1 SYNOPSIS

    pagi-server --static /static=public --static /=site,max_age=3600 app.pl

    my $server = PAGI::Server->new(app => $app, static => ['/static=public']);

=head1 DESCRIPTION

Implements the option C<static> of L<PAGI::Server>. Each value is C<PATH=FOLDER>, perhaps with C<,host=NAME>
and C<,max_age=SECONDS> (C<Cache-Control>), or a hash reference with C<path>, C<folder>, C<host> and
C<max_age>; a string may have several with commas between them. Folders of a host come first, then long
paths; the first folder that has such a file answers. A relative folder is one below the current directory.

A folder is opened when the engine starts, and stays the same one wherever a symbolic link in its path leads
afterwards. With C<--engine process> HUP leaves the engine as it is, so a new release that has a folder of its
own comes with USR2.

=head2 What is served

Requests for the path and for what is below it, by the engine: no Perl code runs, in whatever process or
thread the application is, and however busy it is.

=over

=item What is not there is the application's

A request for which there is no file goes on to the next folder, and then to the application, as if the
option was not there. So C</=public> may stand before an application at the root. A file that is there is
asked for with GET or HEAD; other methods are answered with 405 and C<Allow>.

=item Folders

C<index.html> answers for its folder. A folder without the slash at its end is answered with 301 and a
relative C<Location>, if it has an index. There are no listings, see L<PAGI::App::Directory>.

=item What is never served

Names that begin with a dot, and what is below them, but for C</.well-known> (RFC 8615). What a symbolic link
leads to outside of the folder, or any link with an absolute target: the kernel refuses it while it opens
the file (C<openat2(2)>, C<RESOLVE_BENEATH>), so that it does not matter who changes links meanwhile. Links
within the folder are followed. What is no regular file: pipes, devices, sockets.

=item Conditions

C<ETag> and C<Last-Modified>, from time and size of the file; C<If-None-Match>, C<If-Modified-Since>,
C<If-Match>, C<If-Unmodified-Since> as in RFC 9110. The tag is a strong one when the last change is more than
a second ago, otherwise a weak one (C<W/>), because the next change might have the same time.

=item Ranges

One or several (C<multipart/byteranges>), with C<If-Range>. More than 16, or such that overlap, are answered
with the whole file.

=item Precompressed files

C<name.br>, C<name.zst> and C<name.gz> beside a file whose type is worth compressing answer in its place for
clients that accept that, best liked first (C<Accept-Encoding> with its weights), unless they are older than
it. Such answers have C<Vary: Accept-Encoding>, and a tag of their own.

=item Types

By the name's extension; text is C<charset=utf-8>; C<application/octet-stream> for names without one.

=back

Large files are sent by C<sendfile(2)> where TLS allows. A file that becomes shorter while it is sent ends
in a connection that is cut, so that the client can tell. If a file cannot be opened for now, for want of
descriptors for instance, the client gets 503 and C<Retry-After>.

=head2 Slow storage

A folder on a file system that waits for a network or another process (NFS, SMB, FUSE, 9p, Ceph; on Linux
whatever is not known as a local one) is looked into by helper threads: who asks for a file whose server does
not answer waits, at most C<write_timeout>, and nobody else. It counts where the folder itself lies: what is
mounted below a local folder wants a C<static> of its own. Elsewhere names and attributes are looked up at
once, and only bytes that are not in memory are left to threads (C<sync_file_threshold>). A path that an
application of PAGI sends (C<file>) is opened by a thread as well where its storage may be slow.

=head1 FUNCTIONS

=head2 parse

    my @folders = PAGI::Server::Folders::parse($value);

Hash references with C<path>, C<folder> (absolute) and settings, the most telling first. Dies with the end
of a sentence when something is wrong.

=head2 problem

    my $problem = PAGI::Server::Folders::problem($value);

Returns the mistake in a value, or nothing if it is allowed.

=head2 rank

    my @sorted = sort { PAGI::Server::Folders::rank($a, $b) } @places;

The order of places, hashes with C<path> and perhaps C<host>: a request is for the first one that fits it.

=head2 serve

    PAGI::Server::Folders::serve($worker, $value);

Tells the engine.

=head1 SEE ALSO

L<PAGI::Server>, L<PAGI::App::File>, L<PAGI::App::Directory>

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
