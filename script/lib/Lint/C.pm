# The rules for C: the folders of xs/ include only headers of folders that they may know, the bridge names
# nothing of a face, and no static variable is in two files of a folder.
package Lint::C;
use v5.36;

# Folders whose headers a folder may include, besides its own headers, peregrine.h, Perl's and the system's. A
# face knows the bridge, and no other face.
my %MAY = (
    bridge => [],
    pagi   => ['bridge'],
    psgi   => ['bridge'],
);

my $OUTSIDE = qr/\A(?:peregrine|EXTERN|perl|perliol|XSUB)\.h\z/;

sub findings (@sources) {
    my @inside = grep { $_->path =~ m{\Axs/\w+/} } @sources;
    return ((map { (_includes($_), _names($_)) } @inside), _statics(@inside));
}

sub _folder ($source) { return $source->path =~ m{\Axs/(\w+)/} ? $1 : undef }

sub _includes ($source) {
    my $folder = _folder($source);
    my $may    = $MAY{$folder} // return $source->at(1, "folder 'xs/$folder' is not in the table of folders");
    my @findings;
    $source->each_line(
        sub ($line, $number) {
            my ($file) = $line =~ /^\s*#\s*include\s*"([^"]+)"/ or return;
            return if $file =~ $OUTSIDE;
            my ($owner) = $file =~ m{\A(\w+)/\w+\.h\z};
            push @findings, $source->at($number, "xs/$folder may not include '$file'")
                unless grep { $_ eq ($owner // '') } $folder, @$may;
        }
    );
    return @findings;
}

# Finds names of folders that a folder must not know, in code: comments may mention them.
sub _names ($source) {
    my $folder = _folder($source);
    my %known  = map  { $_ => 1 } $folder, @{ $MAY{$folder} // [] };
    my @others = grep { !$known{$_} && $_ ne 'bridge' } sort keys %MAY;
    my @findings;
    for my $other (@others) {
        my $name = qr/\b\Q$other\E_\w+/i;
        $source->each_line(
            sub ($line, $number) {
                return if $line =~ m{^\s*(?:/?\*|\#)};
                my $code = $line =~ s{/\*.*}{}r;
                push @findings, $source->at($number, "xs/$folder knows nothing of xs/$other")
                    if $code =~ $name;
            }
        );
    }
    return @findings;
}

# The files of a folder become one object (Makefile.PL). In one object two static functions of one name are an
# error, but two static variables without a value become one variable: such variables are found here.
sub _statics (@sources) {
    my %files;
    for my $path (map { glob "xs/$_/*.c" } sort keys %MAY) {
        for my $names (_slurp($path) =~ /^static\s+([^(={;]+)[=;]/mg) {
            push @{ $files{ _folder_of($path) }{$_} }, $path
                for map { /(\w+)\s*(?:\[.*)?\z/s } split /,/, $names;
        }
    }
    my @findings;
    for my $source (grep { $_->path =~ /\.c\z/ } @sources) {
        my $in_folder = $files{ _folder_of($source->path) };
        for my $name (sort keys %$in_folder) {
            my @others = grep { $_ ne $source->path } @{ $in_folder->{$name} };
            next if !@others || @others == @{ $in_folder->{$name} };
            push @findings, $source->at(1, "static '$name' is in $others[0], too: one variable");
        }
    }
    return @findings;
}

sub _folder_of ($path) { return $path =~ s{/[^/]+\z}{}r }

# Compares the functions that peregrine.h declares with those that the shared library exports (peregrine.map),
# and their versions.
sub exports (@files) {
    my ($header, $map) = map { "engine/include/peregrine.$_" } qw(h map);
    return if !grep { $_ eq $header || $_ eq $map } @files;
    my ($declared, $exported) = map { _slurp($_) } $header, $map;
    $declared =~ s{/\*.*?\*/}{}gs;
    $declared =~ s{^static inline .*?^\}$}{}gms;
    my %declared  = map { $_ => 1 } $declared =~ /\b(peregrine_\w+)\s*\(/g;
    my %exported  = map { $_ => 1 } $exported =~ /^\h+(peregrine_\w+);$/gm;
    my ($version) = $declared =~ /^#define PEREGRINE_ABI_VERSION (\d+)$/m;
    my @findings  = map { "$map:1: $_ is missing, which peregrine.h declares" }
        grep { !$exported{$_} } sort keys %declared;
    push @findings,
        map { "$map:1: peregrine.h does not declare $_" } grep { !$declared{$_} } sort keys %exported;
    push @findings, "$map:1: there is no node PEREGRINE_$version" if $exported !~ /^PEREGRINE_$version \{$/m;
    return @findings;
}

sub _slurp ($path) {
    open my $in, '<', $path or die "$path: $!\n";
    local $/;
    return readline $in;
}

1;
