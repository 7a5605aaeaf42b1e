# The mutants that no test can kill, because they do what the original code does, each with the reason. The
# list names lines by their text, so that it survives changes of other lines; `stale` finds entries whose
# lines are gone.
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

# The reason why a mutant is equivalent; undef if the list does not have it.
sub reason ($self, $mutant) {
    my $key = _key(@$mutant{qw(path from to)});
    $self->{used}{$key} = 1 if exists $self->{reasons}{$key};
    return $self->{reasons}{$key};
}

# Entries for these files that no call of `reason` has asked for.
sub stale ($self, @paths) {
    my %of = map { $_ => 1 } @paths;
    return sort grep { $of{ (split /\n/)[0] } && !$self->{used}{$_} } keys %{ $self->{reasons} };
}

1;
