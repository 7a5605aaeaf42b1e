package PAGI::App::Directory;

use strict;
use warnings;

our $VERSION = '0.003000';

use parent qw(PAGI::App::File);

use JSON::PP ();
use Peregrine::FileAnswer;

# Entries of a listing at most: of a larger directory the first ones by name are shown.
use constant ENTRIES_MAX => 10_000;

my %ESCAPED = ('&' => '&amp;', '<' => '&lt;', '>' => '&gt;', '"' => '&quot;', q{'} => '&#39;');

sub _options {
    my ($self) = @_;
    return { %{ $self->SUPER::_options }, show_hidden => 1 };
}

sub _missing {
    my ($self, %request) = @_;
    my $folder = $self->_folder($request{path}) // return $self->SUPER::_missing;
    if ($request{path} !~ m{/\z}) {
        my $query = length($request{query} // '') ? "?$request{query}" : '';
        return PAGI::App::File::_plain(301, 'Moved Permanently', [ location => "./$request{last}/$query" ]);
    }
    my $entries  = $self->_entries($folder) // return $self->SUPER::_missing;
    my ($accept) = map { $_->[1] } grep { lc $_->[0] eq 'accept' } @{ $request{headers} || [] };
    my $json     = ($request{accept} // $accept // '') =~ m{\bapplication/json\b};
    my $body     = $json ? _json($entries)    : _page($request{path}, $entries);
    my $type     = $json ? 'application/json' : 'text/html; charset=utf-8';
    return [
        200,
        [
            [ 'content-type'            => $type ],
            [ 'content-length'          => length $body ],
            [ 'content-security-policy' => q{default-src 'none'; style-src 'unsafe-inline'} ],
            [ vary                      => 'Accept' ],
        ],
        $body
    ];
}

# The directory of a path; undef: no directory that may be shown. Symbolic links are not followed.
sub _folder {
    my ($self, $path) = @_;
    my $folder = $self->{root};
    for my $name (grep { length && $_ ne '.' } split m{/}, $path =~ s/%([0-9A-Fa-f]{2})/chr hex $1/ger) {
        return if $name eq '..' || $name =~ /\0/ || ($name =~ /\A\./ && !$self->{show_hidden});
        $folder .= "/$name";
        return if -l $folder || !-d _;
    }
    return $folder;
}

sub _entries {
    my ($self, $folder) = @_;
    opendir my $handle, $folder or return;
    my @names = sort grep { !/\A\.\.?\z/ && ($self->{show_hidden} || !/\A\./) } readdir $handle;
    splice @names, ENTRIES_MAX if @names > ENTRIES_MAX;
    my @entries;
    for my $name (@names) {
        my ($size, $mtime) = (lstat "$folder/$name")[ 7, 9 ];
        next if !defined $size || !(-f _ || -d _);
        my $is_dir = -d _ ? 1 : 0;
        push @entries, { name => $name, is_dir => $is_dir, size => $is_dir ? 0 : $size, mtime => $mtime };
    }
    return [ sort { $b->{is_dir} <=> $a->{is_dir} || $a->{name} cmp $b->{name} } @entries ];
}

sub _json {
    my ($entries) = @_;
    my @list = map { +{%$_} } @$entries;
    # Names are bytes, which become text if they are UTF-8.
    utf8::decode($_->{name}) for @list;
    return JSON::PP->new->utf8->canonical->encode(\@list);
}

sub _page {
    my ($path, $entries) = @_;
    my $title = _escaped($path =~ s/%([0-9A-Fa-f]{2})/chr hex $1/ger);
    my @rows  = map { _row($_) } @$entries;
    unshift @rows, '<tr><td><a href="../">../</a><td><td>' if $path ne '/';
    return join "\n", '<!DOCTYPE html>', '<html lang="en"><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        "<title>$title</title>",
        '<style>body{font:1rem/1.5 system-ui,sans-serif;margin:2rem}td{padding:0 1.5rem 0 0}'
        . 'td+td{text-align:right;color:#555}a{text-decoration:none}</style>',
        "<h1>$title</h1>", '<table>', @rows, '</table>', '';
}

sub _row {
    my ($entry) = @_;
    my $slash   = $entry->{is_dir} ? '/' : '';
    my $href    = Peregrine::FileAnswer::encoded($entry->{name});
    my ($minute, $hour, $day, $month, $year) = (gmtime $entry->{mtime})[ 1 .. 5 ];
    my $time = sprintf '%04d-%02d-%02d %02d:%02d', $year + 1900, $month + 1, $day, $hour, $minute;
    my $size = $entry->{is_dir} ? '' : $entry->{size};
    return qq{<tr><td><a href="./$href$slash">${\_escaped($entry->{name})}$slash</a><td>$size<td>$time};
}

sub _escaped {
    my ($text) = @_;
    return $text =~ s/([&<>"'])/$ESCAPED{$1}/gr;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::App::Directory - serves the files of a directory, and lists what is in it

=head1 SYNOPSIS

    pagi-server                                        # the current directory
    pagi-server PAGI::App::Directory root=/var/www

    my $app = PAGI::App::Directory->new(root => '/var/www/files')->to_app;

=head1 DESCRIPTION

L<PAGI::App::File>, and a listing for directories without an index: a page, or for clients that accept
C<application/json> a list of

    { "name": "file.txt", "is_dir": 0, "size": 1234, "mtime": 1234567890 }

Symbolic links are not listed, and directories behind them are not shown. Of a directory with more than 10,000
entries the first ones by name are.

=head1 METHODS

The same options as those of L<PAGI::App::File>. C<new> has one option more:

=over

=item show_hidden

Lists and serves names that begin with a dot.

=back

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
