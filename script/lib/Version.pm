# The distribution's version: lib/Peregrine.pm has it, and other files have copies. Perl's form is decimal
# (0.003000), because CPAN compares such versions; Zig's form has dots (0.3.0).
package Version;
use strict;
use warnings;
use experimental 'signatures';
use File::Find ();
use version    ();

my $HOME = 'lib/Peregrine.pm';

# The place of the version in a module, in a build.zig.zon, and in the newest heading of Changes.
my $IN_MODULE  = qr/^our \$VERSION = '\K[0-9.]+(?=';$)/m;
my $IN_PACKAGE = qr/^    \.version = "\K[0-9.]+(?=",$)/m;
my $IN_CHANGES = qr/\A[^\n]+\n\n\K[0-9.]+(?=  )/;

# The version in each file; undef if a file has none.
sub carried () {
    return { map { $_ => _slurp($_) =~ _place($_) ? $& : undef } _files() };
}

# The version in a file's form: with dots in a build.zig.zon, decimal elsewhere.
sub expected ($file, $version) {
    return $file =~ /\.zon\z/ ? dotted($version) : $version;
}

sub dotted ($version) { return version->parse($version)->normal =~ s/\Av//r }

sub current () { return carried()->{$HOME} // die "$HOME has no version\n" }

# Changes the version in all files. In Changes a new heading goes before that of a released version.
sub change ($version) {
    die "'$version' is no version like 0.003000\n" if $version !~ /\A[0-9]+\.[0-9]{6}\z/;
    for my $file (_files()) {
        my $text = _slurp($file);
        $text =~ s/$IN_CHANGES/$version  Unreleased\n\n$&/ if $file eq 'Changes' && !_is_unreleased($text);
        $text =~ s/${\_place($file)}/expected($file, $version)/e or die "$file has no version\n";
        _spew($file, $text);
    }
    return;
}

# Writes the day of the release into the heading of Changes.
sub release ($day) {
    die "'$day' is no day like 2026-11-27\n" if $day !~ /\A[0-9]{4}-[0-9]{2}-[0-9]{2}\z/;
    my $text = _slurp('Changes');
    die "Changes: its newest version is released\n" if !_is_unreleased($text);
    _spew('Changes', $text =~ s/$IN_CHANGES  \KUnreleased/$day/r);
    return;
}

sub _is_unreleased ($changes) { return $changes =~ /$IN_CHANGES  Unreleased\n/ }

sub _files () {
    my @modules;
    my $take = sub { push @modules, $File::Find::name if /\.pm\z/ };
    File::Find::find({ no_chdir => 1, wanted => $take }, 'lib');
    return (sort(@modules), 'build.zig.zon', 'engine/build.zig.zon', 'Changes');
}

sub _place ($file) { return $file =~ /\.pm\z/ ? $IN_MODULE : $file =~ /\.zon\z/ ? $IN_PACKAGE : $IN_CHANGES }

sub _slurp ($file) {
    open my $in, '<', $file or die "$file: $!\n";
    local $/;
    return <$in>;
}

sub _spew ($file, $text) {
    open my $out, '>', $file or die "$file: $!\n";
    print {$out} $text;
    close $out or die "$file: $!\n";
    return;
}

1;
