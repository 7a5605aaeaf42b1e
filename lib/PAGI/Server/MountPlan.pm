package PAGI::Server::MountPlan;

use strict;
use warnings;

our $VERSION = '0.003000';

use File::Spec ();
use PAGI::Server::AppLoader;
use PAGI::Server::EnvFile;
use PAGI::Server::Mounts;
use Peregrine::Daemon;

# The mounts that the command's options tell. `directory`: that of --chdir; undef without that option.
sub of {
    my ($options, $directory) = @_;
    my @mounts = eval { PAGI::Server::Mounts->parse(@{ $options->{mount} }) };
    die \('option --mount: ' . $@ =~ s/\s+\z//r) if !@mounts;
    for my $mount (@mounts) {
        _locate($mount, $directory // ());
        $mount->{kind} //= PAGI::Server::AppLoader->kind(app => $mount->{name});
        die \"option --mount: '$mount->{text}': setting 'grip' is for applications of PSGI"
            if defined $mount->{grip} && $mount->{kind} ne 'psgi';
        $mount->{identity} = _identity_of($mount, $options);
    }
    return @mounts;
}

# Relative paths of a mount are below its `chdir`, as those of the server are below --chdir.
sub _locate {
    my ($mount, @directory) = @_;
    my $own = $mount->{options};
    $own->{chdir} = File::Spec->rel2abs($own->{chdir}, @directory) if defined $own->{chdir};
    my @base = $own->{chdir} // @directory;
    $own->{$_} = [ map { File::Spec->rel2abs($_, @base) } @{ $own->{$_} } ]
        for grep { $own->{$_} } qw(env_file lib);
    my $file = File::Spec->rel2abs($mount->{name}, @base);
    $mount->{name} = $file if @base && (PAGI::Server::AppLoader::is_file($mount->{name}) || -f $file);
    return;
}

# The user of a mount's workers; undef if it is the server's user.
sub _identity_of {
    my ($mount, $options) = @_;
    my ($user,  $group)   = @{ $mount->{options} }{qw(user group)};
    return undef if !defined $user && !defined $group;    ## no critic
    my $servers = Peregrine::Daemon->identity(@{$options}{qw(user group)}) || { uid => $>, gid => $) + 0 };
    my @words   = map { "setting '$_'" } qw(user group);
    my $to      = eval { Peregrine::Daemon->identity($user, $group, @words, "settings 'user' and 'group'"); };
    die \"option --mount: '$mount->{text}': ${$@}" if !$to;
    $to->{uid} = $servers->{uid}                   if !defined $user;
    return $to->{uid} == $servers->{uid} && $to->{gid} == $servers->{gid} ? undef : $to;
}

sub check {
    my ($options, $of_server, @mounts) = @_;
    my ($mount) = grep { $_->{workers} } @mounts or return;
    my $what = "--mount $mount->{path}/=$mount->{name},workers=$mount->{workers}";
    die \"$what: workers of one mount need an engine in a process of its own: use --engine process"
        if $of_server->{engine} ne 'process';
    die \
        "$what: --sync-workers load no application of a mount that has workers of its own: use only one of the two"
        if $of_server->{sync_workers};
    die \"$what: --reload replaces all workers at once, so mounts have none of their own with it"
        if $options->{reload};
    my ($confined) = grep { defined $_->{topics} } @mounts;
    die \"--mount '$confined->{text}': setting 'topics' is about --channels, which are off"
        if $confined && !$of_server->{channels};
    return;
}

sub enter {
    my ($mount, $options) = @_;
    my $own  = $mount->{options};
    my $fail = sub { die \"option --mount: '$mount->{text}': setting $_[0]" };
    @INC = map { ref ? $_ : File::Spec->rel2abs($_) } @INC;
    my @lib = map { File::Spec->rel2abs($_) } @{ $options->{lib} || [] };
    if (defined $own->{chdir}) {
        chdir $own->{chdir} or $fail->("'chdir': cannot go to '$own->{chdir}': $!");
    }
    for my $folder (@{ $own->{lib} || [] }) {
        stat $folder or $fail->("'lib': '$folder' cannot be used: $!");
        -d _         or $fail->("'lib': '$folder' cannot be used: it is no folder");
    }
    $options->{lib} = [ @{ $own->{lib} || [] }, @lib ];
    return if !$own->{env_file};
    $options->{env_file} = [ @{ $options->{env_file} || [] }, @{ $own->{env_file} } ];
    eval { PAGI::Server::EnvFile->read($_) for @{ $own->{env_file} }; 1 }
        or $fail->("'env_file': " . (ref $@ ? ${$@} =~ s/\Aoption --env-file: //r : $@));
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::MountPlan - where the mounts of a command lie, and the user and the settings of their workers

=head1 SYNOPSIS

    my @mounts = PAGI::Server::MountPlan::of(\%options, '/srv/site');
    PAGI::Server::MountPlan::check(\%options, $server->options, @mounts);
    PAGI::Server::MountPlan::enter($mounts[0], \%options);

=head1 DESCRIPTION

L<PAGI::Server::Mounts> reads the words of C<--mount>. This module asks the machine about them: it finds the
files, the kinds of the applications and the users.

=head1 FUNCTIONS

A wrong setting is an exception that is a reference to a sentence, which names the mount and the setting.

=head2 of

    my @mounts = PAGI::Server::MountPlan::of(\%options, $directory);

The mounts, as L<PAGI::Server::Mounts/parse> returns them, with absolute paths, C<kind>, and C<identity>, the
user of the mount's workers if that is not the server's. Relative paths are below the directory.

=head2 check

    PAGI::Server::MountPlan::check(\%options, $server->options, @mounts);

Dies if the options of the command or those of the server do not allow workers of one mount: these are a group
of interpreters behind one engine.

=head2 enter

    PAGI::Server::MountPlan::enter($mount, \%options);

Applies a mount's own settings in a process of its workers, before any code or file of the mount is read: the
process is in the mount's folder, and the options have its C<lib> and C<env_file>.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
