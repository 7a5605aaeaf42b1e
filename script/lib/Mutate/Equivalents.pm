# The mutants that no test can kill, each with the reason why: they do what the original does. The
# list names lines by their text, so that it survives changes elsewhere; `stale` finds entries that
# name nothing any more.
#
#     protocol/http1/framing.zig
#     - the line
#     + the line after the change
#     = why no test can tell them apart
package Mutate::Equivalents;
use v5.36;

sub read ($class, $path) {
    open my $in, '<', $path or die "$path: $!\n";
    my (%reasons, $file, %entry);
    while (my $line = <$in>) {
        chomp $line;
        if    ($line =~ /\A(?:#|\z)/)       { next }
        if    ($line =~ /\A([-+]) (.*)/)    { $entry{$1} = $2 }
        elsif ($line =~ /\A= (.+)/)         { $reasons{ _key($file, @entry{qw(- +)}) } = $1 }
        elsif ($line =~ /\A  (.+)/)         { $reasons{ _key($file, @entry{qw(- +)}) } .= " $1" }
        elsif ($line =~ m{\A[\w/]+\.zig\z}) { $file = "engine/src/$line" }
        else                                { die "$path:$.: not understood\n" }
    }
    return bless { reasons => \%reasons, used => {} }, $class;
}

sub _key ($file, $from, $to) { return join "\n", $file, $from, $to }

# Why a mutant is equivalent; undef if it is not in the list.
sub reason ($self, $mutant) {
    my $key = _key(@$mutant{qw(path from to)});
    $self->{used}{$key} = 1 if exists $self->{reasons}{$key};
    return $self->{reasons}{$key};
}

# Entries for these files that `reason` was never asked for.
sub stale ($self, @paths) {
    my %of = map { $_ => 1 } @paths;
    return sort grep { $of{ (split /\n/)[0] } && !$self->{used}{$_} } keys %{ $self->{reasons} };
}

1;
