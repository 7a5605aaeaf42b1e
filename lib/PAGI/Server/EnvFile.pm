package PAGI::Server::EnvFile;

use strict;
use warnings;

our $VERSION = '0.003000';

use Peregrine::Handover;

# A variable that tells the program which takes the place of this one which variables come from files. Other
# programs that are started keep these variables.
use constant VARIABLE => 'PEREGRINE_ENV_FILE_NAMES';

# Names of the variables from files, for this process and those that it forks, when they read the files again.
my $from_files = '';

my %ESCAPED = (n => "\n", t => "\t", r => "\r");

# Sets the variables of files. All files are read before any variable changes.
sub apply {
    my ($class, @paths) = @_;
    my %values = map { %{ $class->read($_) } } @paths;
    delete @ENV{ split /,/, delete $ENV{ +VARIABLE } // $from_files };
    my @names = grep { !exists $ENV{$_} } sort keys %values;
    @ENV{@names} = @values{@names};
    $from_files  = join ',', @names;
    Peregrine::Handover->carry(VARIABLE, $from_files);
    return;
}

sub read {
    my ($class, $path) = @_;
    open my $in, '<:raw', $path or die \"option --env-file: cannot read '$path': $!";
    my %values;
    while (my $line = <$in>) {
        my $place = "option --env-file: $path line $.";
        $line                        =~ s/\A\xef\xbb\xbf// if $. == 1;    # a byte order mark
        $line                        =~ s/\A\s+|\s+\z//g;
        next if $line eq '' || $line =~ /\A#/;
        my ($name, $text) = $line =~ /\A(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)\z/s
            or die \"$place: expected NAME=value, not '$line'";
        die \"$place: a value has no zero byte" if $text =~ /\0/;
        $values{$name} = _value($text)
            // die \"$place: the quotes of $name are not closed at the end of the line";
    }
    close $in or die \"option --env-file: cannot read '$path': $!";
    return \%values;
}

# A value as a shell would read it, but without expansion of `$`. Nothing: its quotes are not closed.
sub _value {
    my ($text) = @_;
    return $1 if $text =~ /\A'([^']*)'(?:\s+#.*)?\z/s;
    return $1 =~ s/\\(.)/$ESCAPED{$1} || $1/gers if $text =~ /\A"((?:\\.|[^"\\])*)"(?:\s+#.*)?\z/s;
    return undef if $text =~ /\A["']/;
    return $text =~ s/(?:\A|\s+)#.*\z//sr;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::EnvFile - environment variables from files

=head1 SYNOPSIS

    PAGI::Server::EnvFile->apply('/srv/app/app.env');

=head1 DESCRIPTION

Implements C<--env-file> of L<pagi-server>. A file has lines of C<NAME=value>:

    # app.env
    DATABASE=dbi:SQLite:app.db
    export GREETING="Hello\nWorld"    # C<\n>, C<\t>, C<\"> and C<\\> in double quotes
    PASSWORD='$ecret # this, too'     # nothing has a meaning in single quotes

C<export> in front is allowed, and a comment behind a blank. Nothing is put in place of C<$>.

=head1 METHODS

=head2 apply

    PAGI::Server::EnvFile->apply(@paths);

Sets C<%ENV>. A variable that is set already stays as it is; of several files the last one counts. When it is
called again, variables of the first call that the files do not have any more are gone, all of them without
files. Problems are thrown as a reference to a text that names file and line, and nothing has changed then.

=head2 read

    my $values = PAGI::Server::EnvFile->read($path);

Returns the variables of a file by name.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
