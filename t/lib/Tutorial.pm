package Tutorial;

# The programs of a manual as files, word for word: each block of code that begins with the name of a file.

use strict;
use warnings;

use File::Temp ();
use TestTools  qw(for_this_perl);

# Writes the tutorial's programs into a folder that lasts as long as the object.
sub new {
    my ($class, $manual) = @_;
    open my $in, '<', $manual or die "$manual: $!";
    my $text   = do { local $/; <$in> };
    my $folder = File::Temp->newdir;
    my @names;
    while ($text =~ /^    # (\w+\.pl)\n((?:    .*\n|\n)*)/mg) {
        my ($name, $code) = ($1, $2);
        $code =~ s/^    //mg;
        open my $out, '>', "$folder/$name" or die "$name: $!";
        print {$out} for_this_perl($code);
        close $out or die "$name: $!";
        push @names, $name;
    }
    return bless { folder => $folder, names => \@names }, $class;
}

# The names of the programs, in the order of the manual.
sub names { return @{ $_[0]{names} } }

sub folder { return "$_[0]{folder}" }

sub path {
    my ($self, $name) = @_;
    return "$self->{folder}/$name";
}

1;
