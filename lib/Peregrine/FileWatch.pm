package Peregrine::FileWatch;

use strict;
use warnings;

our $VERSION = '0.003000';

use Fcntl      qw(F_SETFD FD_CLOEXEC);
use File::Spec ();
use Peregrine;
use Peregrine::Later qw(later weakly);
use Peregrine::Optional;
use Time::HiRes ();

# Seconds between two looks at files: if the kernel tells of changes, which it does not for all file systems;
# if it does not; and while a file is being written.
use constant { TOLD_LOOK_S => 2, LOOK_S => 1, QUIET_S => 0.1 };
# Looks for the end of a write, after which the change counts all the same.
use constant QUIET_LOOKS_MAX => 10;
# A look takes at most this part of a processor's time.
use constant SHARE => 0.05;
# Files below folders that are watched.
use constant FILES_MAX => 20_000;

# Files of editors, version control, databases and logs, and files that nobody writes by hand.
my $IGNORED = qr{
    \A (?: \. | \# | 4913 \z | node_modules \z )
    | ~ \z
    | \. (?: bak | db | lock | log | orig | pid | rej | sock | sqlite3? | sw[a-px] | tmp ) \z
    | - (?: journal | shm | wal ) \z
}x;

# Files of an application that people write: Perl, templates, configuration.
my $SOURCE = qr{\. (?: p[lm] | pod | psgi | t | ep | epl | html? | mt | tmpl | tt2? | tx | xslate
    | cfg | conf | ini | toml | ya?ml ) \z}x;

sub new {
    my ($class, %args) = @_;
    my $self = bless {
        loop      => $args{loop},
        folders   => [ map { File::Spec->rel2abs($_) } @{ $args{folders} || [] } ],
        sources   => [ map { File::Spec->rel2abs($_) } @{ $args{sources} || [] } ],
        ignored   => { map { File::Spec->rel2abs($_) => 1 } @{ $args{ignore} || [] } },
        on_change => $args{on_change},
        on_excess => $args{on_excess},
        files     => {},
        watched   => {},
        pid       => $$,
    }, $class;
    $self->_listen;
    $self->{seen} = $self->_look;
    $self->_look_later;
    return $self;
}

sub add {
    my ($self, @files) = @_;
    for my $file (grep { !$self->{files}{$_}++ } map { File::Spec->rel2abs($_) } @files) {
        $self->_ask_of_folder($file =~ s{/[^/]*\z}{}r);
        my $print = _print_of($file) // next;
        $_->{$file} //= $print for grep { defined } @{$self}{qw(seen last)};
    }
    return;
}

# ---- Looking ------------------------------------------------------------------------------------

# A text that changes when a file does: an editor may write in place, or put another file there.
sub _print_of {
    my ($path) = @_;
    my @stat = Time::HiRes::stat($path) or return;
    return -f _ ? join ' ', @stat[ 1, 7, 9 ] : undef;
}

sub _look {
    my ($self) = @_;
    my $begun = _cpu_s();
    my %prints =
        map { my $print = _print_of($_); defined $print ? ($_ => $print) : () } keys %{ $self->{files} };
    # Each file of the watched folders once, even if two folders have it.
    my @folders =
        ((map { [ $_, undef ] } @{ $self->{folders} }), map { [ $_, $SOURCE ] } @{ $self->{sources} });
    my %entered;
    my $left = FILES_MAX;
    while (my $next = shift @folders) {
        my ($folder, $names) = @$next;
        next if $entered{$folder}++;
        $self->_ask_of_folder($folder);
        opendir my $dir, $folder or next;
        for my $name (readdir $dir) {
            next if $name =~ $IGNORED;
            my $path = "$folder/$name";
            # A folder is entered by its own name only, so that there is no circle.
            if (-d $path) {
                push @folders, [ $path, $names ] if !-l $path;
                next;
            }
            next if $names && $name !~ $names || $self->{ignored}{$path};
            next if $left-- <= 0;
            my $print = _print_of($path) // next;
            $prints{$path} = $print;
        }
    }
    $self->{on_excess}->(FILES_MAX) if $left < 0 && !$self->{exceeded}++;
    $self->{took} = _cpu_s() - $begun;
    return \%prints;
}

sub _cpu_s { return Time::HiRes::clock_gettime(Time::HiRes::CLOCK_PROCESS_CPUTIME_ID()) }

sub _look_later {
    my ($self) = @_;
    delete @{$self}{qw(last quiet_looks)};
    return $self->_look_in($self->{inotify} ? TOLD_LOOK_S : LOOK_S);
}

sub _look_in {
    my ($self, $seconds) = @_;
    $self->{loop}->unwatch_time($self->{timer}) if $self->{timer};
    my $least = $self->{took} / SHARE;
    $seconds = $least if $seconds < $least;
    $self->{timer} = later($self->{loop}, $seconds, $self, '_compare');
    return;
}

# Looks for changes. Several files change at once, and a file in several steps: a change is over when two
# looks see equal files.
sub _compare {
    my ($self) = @_;
    return if $self->{pid} != $$;
    delete @{$self}{qw(timer soon)};
    my $now     = $self->_look;
    my @changed = _differences($self->{seen}, $now);
    return $self->_look_later if !@changed;
    my $is_quiet = $self->{last} && !_differences($self->{last}, $now);
    if (!$is_quiet && ++$self->{quiet_looks} < QUIET_LOOKS_MAX) {
        $self->{last} = $now;
        return $self->_look_in(QUIET_S);
    }
    $self->{seen} = $now;
    $self->_look_later;
    $self->{on_change}->(@changed);
    return;
}

sub _differences {
    my ($before, $now) = @_;
    my %all     = (%$before, %$now);
    my @changed = sort grep { ($before->{$_} // '') ne ($now->{$_} // '') } keys %all;
    return @changed;
}

# ---- Reports of the kernel ----------------------------------------------------------------------

sub _listen {
    my ($self) = @_;
    Peregrine::Optional::load('Linux::Inotify2') or return;
    my $inotify = Linux::Inotify2->new           or return;
    $inotify->blocking(0);
    $inotify->on_overflow(sub { });
    my $handle = $inotify->fh;
    fcntl $handle, F_SETFD, FD_CLOEXEC or return;
    Peregrine::hide_from_forks(fileno $handle, 1);
    @{$self}{qw(inotify handle)} = ($inotify, $handle);
    $self->{loop}->watch_io(handle => $handle, on_read_ready => weakly($self, _changes_in => $inotify));
    return;
}

sub _changes_in {
    my ($self, $inotify) = @_;
    return if $self->{pid} != $$ || !$inotify->read || $self->{soon}++;
    return $self->_look_in(QUIET_S);
}

# Has the kernel report changes in a folder. A report names the folder: the file is found by looking at each.
# A folder that was made anew needs a new watch.
sub _ask_of_folder {
    my ($self, $folder) = @_;
    my $inotify = $self->{inotify} or return;
    my @stat    = stat $folder     or return;
    my $which   = "$stat[0] $stat[1]";
    return if ($self->{watched}{$folder} // '') eq $which;
    $self->{watched}{$folder} = $which;
    $inotify->watch($folder,
        Linux::Inotify2::IN_CLOSE_WRITE() | Linux::Inotify2::IN_CREATE() | Linux::Inotify2::IN_DELETE() |
            Linux::Inotify2::IN_MOVE());
    return;
}

sub stop {
    my ($self) = @_;
    return if $self->{pid} != $$;
    my ($timer, $handle) = delete @{$self}{qw(timer handle)};
    $self->{loop}->unwatch_time($timer)                              if $timer;
    $self->{loop}->unwatch_io(handle => $handle, on_read_ready => 1) if $handle;
    Peregrine::hide_from_forks(fileno $handle, 0)                    if $handle;
    delete $self->{inotify};
    return;
}

sub DESTROY {
    my ($self) = @_;
    return if ${^GLOBAL_PHASE} eq 'DESTRUCT';
    $self->stop;
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::FileWatch - tells when files change

=head1 SYNOPSIS

    my $watch = Peregrine::FileWatch->new(
        loop      => $loop,
        folders   => [ 'lib', 'templates' ],
        on_change => sub { my (@paths) = @_; say "@paths" },
    );
    $watch->add('app.pl');

=head1 DESCRIPTION

Looks at files, and at everything below folders, and tells which have been written, replaced, made or removed
since. With L<Linux::Inotify2> the kernel says when to look, and a look every two seconds finds changes that
the kernel does not see (files of another machine for instance). Elsewhere there is a look each second. Files
that change together are told together, a tenth of a second after the last change.

Names that begin with a dot or with C<#>, or end in C<~>, are left out, as are C<node_modules>, and names of
logs, databases, locks and temporary files (F<.log>, F<.db>, F<.sqlite>, F<.tmp> and so on). Folders that are
symbolic links are not entered.

=head1 METHODS

=head2 new

    my $watch = Peregrine::FileWatch->new(%args);

C<loop>: an L<IO::Async::Loop>. C<folders> need not exist yet. C<sources>: folders in which an application may
write files of its own, so that only Perl code, templates and configuration count there. C<ignore>: paths of
files that do not count. C<on_change> is called with absolute paths; C<on_excess> once with a number, if there
are more files than that below the folders, the rest of which is not looked at.

=head2 add

    $watch->add(values %INC);

Single files, wherever they are: they count as they are now.

=head2 stop

    $watch->stop;

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
