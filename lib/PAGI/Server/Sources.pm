package PAGI::Server::Sources;

use strict;
use warnings;

our $VERSION = '0.003000';

use File::Basename ();
use File::Spec     ();
use PAGI::Server::AppLoader;

sub to_watch {
    my ($options, @names) = @_;
    my @written = grep { defined && !ref && length } @{$options}{qw(pid error_log access_log)};
    my @folders = $options->{reload_dir} ? @{ $options->{reload_dir} } : ('lib', @{ $options->{lib} || [] });
    my @sources;
    for my $file (grep { PAGI::Server::AppLoader::is_file($_) } @names, $options->{worker_pool} // ()) {
        die "App file not found: $file\n" if !-e $file;
        my ($volume, $folder) = File::Spec->splitpath(File::Spec->rel2abs($file));
        if (!$options->{reload_dir}) {
            push @sources, _home_of(File::Spec->catpath($volume, $folder, ''));
            push @folders, File::Spec->catdir($sources[-1], 'lib');
        }
    }
    return (folders => _without_those_within(@folders), sources => \@sources, ignore => \@written);
}

# The folder of an application whose script is in the given one: frameworks put scripts beside lib.
sub _home_of {
    my ($folder) = @_;
    my $above = File::Spec->rel2abs(File::Basename::dirname($folder));
    return $folder =~ m{/(?:script|bin)/?\z} && -d "$above/lib" ? $above : $folder;
}

# Leaves out folders below other folders of the list.
sub _without_those_within {
    my %folders = map { File::Spec->canonpath(File::Spec->rel2abs($_)) => 1 } @_;
    return [
        grep {
            my $folder = $_;
            !grep { $_ ne $folder && index($folder, "$_/") == 0 } keys %folders;
        } sort keys %folders
    ];
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Sources - the files and folders whose change loads an application again

=head1 SYNOPSIS

    $server->reload_on_change(PAGI::Server::Sources::to_watch(\%options, 'app.pl'));

=head1 FUNCTIONS

=head2 to_watch

    my %watch = PAGI::Server::Sources::to_watch(\%options, @names);

Takes the options of the command and the names of its applications. Returns arguments of
C<reload_on_change> (L<Peregrine::Server>): C<folders>, whose files are watched; C<sources>, the folders of
the applications' files; C<ignore>, the files that the server writes itself. Dies if a file is not there.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
