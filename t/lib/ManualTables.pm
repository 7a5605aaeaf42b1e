package ManualTables;

# The tables of a manual in POD.

use strict;
use warnings;
use experimental 'signatures';
use Exporter  qw(import);
use TestTools qw(content);

our @EXPORT_OK = qw(tables);

# Tables by their headings: lists of rows, which are hashes by column name. A table is a block of code whose
# first line names its columns, with two spaces between them; a column begins where its name does.
sub tables ($file) {
    my (%tables, $heading);
    for my $part (split /^(?==head\d )/m, content($file)) {
        $heading = $part =~ /\A=head\d (.+)/ ? $1 : '';
        die "$file has two parts $heading\n" if $heading && $tables{$heading};
        $tables{$heading} = [ map { _rows($file, split /\n/) } $part =~ /((?:^    \S.*\n){2,})/mg ];
    }
    return %tables;
}

sub _rows ($file, $first, @lines) {
    my @names = $first =~ /(\S+(?: \S+)*)/g;
    my @at    = map { index $first, $_ } @names;
    return if @names < 2;
    my @rows;
    for my $line (@lines) {
        my %row;
        for my $i (0 .. $#at) {
            my $length = $i == $#at ? length $line : $at[ $i + 1 ] - $at[$i];
            my $cell   = length $line > $at[$i] ? substr $line, $at[$i], $length : '';
            die "$file: '$line' does not stand under its columns\n"
                if $i < $#at && length $line > $at[ $i + 1 ] && $cell !~ / \z/ || $cell =~ /\S   +\S/;
            $row{ $names[$i] } = $cell =~ s/\s+\z//r;
        }
        push @rows, \%row;
    }
    return @rows;
}

1;
