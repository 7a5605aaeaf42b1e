package PAGI::Server::ConfigFile;

use strict;
use warnings;

our $VERSION = '0.003000';

use PAGI::Server::CommandLine;
use PAGI::Server::Options;
use Peregrine::Nearest;

# Values of access_log that turn it off; a file of such a name is written ./off.
my %OFF = map { $_ => 1 } qw(off no false none);

# Options that are not allowed in a file: it would read itself, or the program would end at once.
my %NOT_HERE = map { $_ => 1 } qw(config check completion future_xs version help);

# Options by their name and by their flag, with dashes or underscores.
my %NAMES;
for my $option (grep { !$NOT_HERE{ $_->{name} } } PAGI::Server::Options::all()) {
    my $flag = PAGI::Server::CommandLine::flag($option) or next;
    $NAMES{$_} = $option for $option->{name}, $flag =~ tr/-/_/r, $option->{alias} // ();
}

# Reads a configuration file. Dies with a reference to the text of a problem, like the command line.
sub read {
    my ($class, $path, $noted) = @_;
    open my $in, '<:raw', $path or die \"cannot read the configuration file '$path': $!";
    my (%values, %line_of);
    while (my $line = <$in>) {
        my $place = "$path line $.";
        utf8::decode($line) or die \"$place: this is not UTF-8";
        $line =~ s/\A\x{feff}// if $. == 1;    # a byte order mark
        my ($name, $text) = _setting($line, $place) or next;
        utf8::encode($text);    # bytes, as on the command line: names of files are made of them
        my $option = $NAMES{ $name =~ tr/-/_/r }
            or
            die \("$place: there is no option '$name'" . Peregrine::Nearest::hint($name, sort keys %NAMES));
        my $key = $option->{name};
        die \"$place: option '$name' is already set on line $line_of{$key}"
            if $line_of{$key} && !$option->{many};
        $line_of{$key} = $.;
        push @$noted, { option => $option, text => $text, line => $. };
        my $word = $key eq 'access_log' && $OFF{ lc $text } ? undef : $text;
        my $value =
            PAGI::Server::CommandLine->values_of({ $key => $option->{many} ? [$word] : $word }, $place)
            ->{$key};
        if ($option->{many}) { push @{ $values{$key} }, @$value }
        else                 { $values{$key} = $value }
    }
    close $in or die \"cannot read the configuration file '$path': $!";
    return \%values;
}

# Adds the line of the file to an error that is found later, when all values are known.
sub located {
    my ($class, $problem, $path, @noted) = @_;
    my @lines = map { $_->{line} } grep { _is_about($problem, $_) } @noted;
    return $problem if !@lines;
    return "$path line" . (@lines > 1 ? 's ' : ' ') . join(', ', @lines) . ": $problem";
}

# Whether a problem is about a setting: it names the option, or, if files do not belong together, its file.
sub _is_about {
    my ($problem, $setting) = @_;
    my ($option,  $text)    = @{$setting}{qw(option text)};
    my $names = join '|', map { quotemeta } "'$option->{name}'", PAGI::Server::CommandLine::typed($option);
    return $problem        =~ /(?:$names)(?![\w-])/ && (!$option->{many} || index($problem, $text) >= 0)
        || $option->{name} =~ /\Assl_/ && grep { $problem =~ m{(?<![\w/.-])\Q$_\E(?![\w/-])} } split /,/,
        $text;
}

# The name and the value of a line; nothing: the line has none.
sub _setting {
    my ($line, $place) = @_;
    $line =~ s/\A\s+|\s+\z//g;
    return if $line eq '' || $line =~ /\A#/;
    my ($name, $text) = $line =~ /\A([\w-]+)\s*=\s*(.*)\z/s
        or die \"$place: expected 'option = value', not '$line'";
    if ($text =~ /\A(["'])/) {
        my $quote = $1;
        ($text) = $text =~ /\A$quote((?:\\$quote|[^$quote])*)$quote\s*(?:#.*)?\z/s
            or die \
            "$place: option '$name': quotes go around the whole value; one inside is written as \\$quote";
        $text =~ s/\\$quote/$quote/g;
    }
    else {
        $text =~ s/(?:\A|\s+)#.*\z//s;
    }
    die \"$place: option '$name' has no value" if !length $text;
    return ($name, $text);
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::ConfigFile - the configuration file of pagi-server

=head1 SYNOPSIS

    my $options = PAGI::Server::ConfigFile->read('/etc/app.conf');

=head1 DESCRIPTION

Lines of C<option = value>. Names are those of L<PAGI::Server>'s options or of C<pagi-server>'s flags; dashes
and underscores are the same. A value may be in quotes, with C<\"> for one inside; C<#> begins a comment.
C<access_log = off> means none.

    # production
    app             = /srv/app/app.pl
    host            = ::
    max-connections = 5000
    access-log      = /var/log/app.log

=head1 METHODS

=head2 read

    my $options = PAGI::Server::ConfigFile->read($path);
    my $options = PAGI::Server::ConfigFile->read($path, \my @noted);

The values, checked. A problem is thrown as a reference to a text that names file and line. The second
argument gets a hash reference for each setting, with C<option> (a row of the table), C<text> and C<line>.

=head2 located

    die \PAGI::Server::ConfigFile->located($problem, $path, @noted);

A problem that only shows when all options are known, with file and lines if it is about settings from there.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
