package PAGI::Server::AppPackage;

use strict;
use warnings;

our $VERSION = '0.003000';

use B          ();
use File::Spec ();

# The package below which each loaded file has a package of its own.
use constant ABOVE => 'Peregrine::App::';
# Subs that a message names at most.
use constant NAMED_MAX => 5;

# Bytes of a required file in which a package name is looked for.
use constant TEXT_MAX => 1 << 20;

my %TAKEN;
# Keys of %INC of required files that name no package.
my %HELPERS;

# `/srv/app.pl` is Peregrine::App::app_pl, and Peregrine::App::app_pl_2 when it is loaded again. The order of
# loads decides, so that interpreters have the same names for the same applications.
sub name {
    my ($origin) = @_;
    my (undef, undef, $file) = File::Spec->splitpath($origin);
    my $word = $file =~ s/[^A-Za-z0-9]/_/gr =~ s/\A(?=[0-9])/_/r;
    my ($name, $count) = ($word, 1);
    $name = $word . '_' . ++$count while $TAKEN{$name};
    $TAKEN{$name} = 1;
    return ABOVE . $name;
}

# Calls a function that loads a file, and returns its value. Modules that are loaded already do not see the
# files that were loaded before.
sub with_own_state {
    my ($load) = @_;
    # Mojolicious::Lite finds its folder, and its name, by the first file that uses it.
    delete local $ENV{MOJO_EXE};
    _forget_bin();
    # The `dance` of Dancer2 makes one application of all applications that it knows.
    my $dancers = $Dancer2::runner ? $Dancer2::runner->apps : [];
    my @others  = splice @$dancers;
    my $value   = _with_own_helpers($load);
    unshift @$dancers, @others;
    return $value;
}

# Calls a function that loads a file. Perl loads a required file once, into the package that asks first. Files
# that name no package are loaded again for each application file, into its package.
sub _with_own_helpers {
    my ($load) = @_;
    delete local @INC{ keys %HELPERS };
    my %before = %INC;
    my $value  = $load->();
    for my $name (grep { !exists $before{$_} && !/\.pm\z/ } keys %INC) {
        $HELPERS{$name} = 1 if _names_no_package($INC{$name});
    }
    return $value;
}

sub _names_no_package {
    my ($path) = @_;
    return 0 if !defined $path || ref $path || !open my $in, '<', $path;
    read $in, my $text, TEXT_MAX;
    return ($text // '') =~ /^[\s{]*package\s+[A-Za-z_]/m ? 0 : 1;
}

# Makes FindBin look for the folder again, which it does once, when it is compiled. Code that is loaded next
# gets new variables; code that was compiled before keeps the old ones.
sub _forget_bin {
    delete $INC{'FindBin.pm'} or return;
    delete @FindBin::{ keys %FindBin:: };
    return;
}

# ---- Subs that a load has replaced --------------------------------------------------------------

sub new {
    my ($class) = @_;
    return bless { subs => {} }, $class;
}

# Sentences about subs that a load has replaced. A reference to each sub is kept, so that a new sub never has
# the address of an old one.
sub complaints {
    my ($self)  = @_;
    my $before  = $self->{subs};
    my $now     = $self->{subs} = _subs();
    my @changed = grep { $before->{$_} && $before->{$_} != $now->{$_} } sort keys %$now;
    my %names;
    for my $name (@changed) {
        my ($old, $new) = map { B::svref_2object($_)->FILE } $before->{$name}, $now->{$name};
        next if _is_of_module($name) && !_is_application($new);
        push @{ $names{$new}{$old} }, $name;
    }
    return map { _complaint($_, $names{$_}) } sort keys %names;
}

sub _complaint {
    my ($new, $names) = @_;
    return map {
        my @names = @{ $names->{$_} };
        my $more  = @names - NAMED_MAX;
        splice @names, NAMED_MAX if $more > 0;
        my $and = $more > 0 ? " and $more more" : '';
        "$new redefines subs that $_ has defined: @names$and; both applications call the new ones. Mounted"
            . ' applications need packages with different names';
    } sort keys %$names;
}

# Whether the package of a sub has a file of its own.
sub _is_of_module {
    my ($name)    = @_;
    my ($package) = $name =~ /\A(.+)::/ or return 0;
    return exists $INC{ $package =~ s{::}{/}gr . '.pm' } ? 1 : 0;
}

# Whether a file was loaded by `do`, which enters it in %INC under its own path.
sub _is_application {
    my ($file) = @_;
    return ($INC{$file} // '') eq $file ? 1 : 0;
}

# All subs of the process by name, except those of packages that each load has for itself.
sub _subs {
    my %subs;
    my @stashes = ([ '', \%main:: ]);
    while (my $next = pop @stashes) {
        my ($prefix, $stash) = @$next;
        for my $name (keys %$stash) {
            my $entry = \$stash->{$name};
            if ($name =~ /::\z/) {
                my $package = "$prefix$name";
                next if $package eq 'main::' || $package eq ABOVE || ref $entry ne 'GLOB';
                push @stashes, [ $package, *{$entry}{HASH} ] if *{$entry}{HASH};
                next;
            }
            # A sub that was never looked up by name is not in a glob.
            my $code = ref $entry eq 'GLOB' ? *{$entry}{CODE} : ref $$entry eq 'CODE' ? $$entry : undef;
            $subs{ ($prefix eq '' ? 'main::' : $prefix) . $name } = $code if $code;
        }
    }
    return \%subs;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::AppPackage - keeps loaded application files apart

=head1 SYNOPSIS

    my $package = PAGI::Server::AppPackage::name('/srv/app.pl');    # 'Peregrine::App::app_pl'
    my $load    = eval "package $package; sub { do \$_[0] }";
    my $app     = PAGI::Server::AppPackage::with_own_state(sub { $load->('/srv/app.pl') });

=head1 DESCRIPTION

Application files mostly name no package. Each load of a file gets one, so that two files in one process do
not share subs and globals of the same names.

=head1 FUNCTIONS

=head2 name

    my $package = PAGI::Server::AppPackage::name($file);

The name of a package that no load has had in this process.

=head2 with_own_state

    my $value = PAGI::Server::AppPackage::with_own_state(sub { return load($file) });

Calls the function. Meanwhile L<FindBin>, L<Mojolicious::Lite> and L<Dancer2> know nothing of files that were
loaded before, and C<require> loads files that name no package again (no C<.pm>).

=head1 METHODS

=head2 new

    my $subs = PAGI::Server::AppPackage->new;

=head2 complaints

    load('blog.pl');
    $subs->complaints;
    load('admin.pl');
    warn "$_\n" for $subs->complaints;

To be called after each load: sentences about subs that this load has redefined. The first call returns none.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
