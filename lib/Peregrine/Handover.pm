package Peregrine::Handover;

use strict;
use warnings;

our $VERSION = '0.003000';

use Cwd   ();
use Fcntl qw(F_GETFD F_SETFD FD_CLOEXEC);
use Peregrine;
use Peregrine::File;
use Peregrine::Link;
use Peregrine::Notify;
use POSIX ();

use constant VARIABLE => 'PEREGRINE_HANDOVER';

# How this program was started, before anything may have changed its name or directory.
my %STARTED = (
    program   => readlink('/proc/self/exe') // $^X,
    words     => _words(),
    script    => [ $0, @ARGV ],
    include   => [ grep { !ref } @INC ],
    directory => Cwd::getcwd(),
);

# The words of the command line; undef: the system does not tell them.
sub _words {
    my @words = split /\0/, Peregrine::File::text('/proc/self/cmdline') // '', -1;
    pop @words;
    # An assignment to $0 overwrites the first of these words and empties the others: plackup assigns the name
    # of the file that it loads. @ARGV stays as it was.
    return @words && $words[0] ne $0 ? \@words : undef;
}

# A command line made anew, with the folders of @INC that are not perl's usual ones: they may come from its
# -I.
sub _new_words {
    open my $out, '-|', $^X, '-e', 'print map { "$_\0" } @INC' or die "$^X: $!\n";
    local $/;
    my %usual = map { $_ => 1 } split /\0/, readline($out) // '';
    close $out;
    return ($^X, (map { "-I$_" } grep { !$usual{$_} } @{ $STARTED{include} }), @{ $STARTED{script} });
}

# ---- The old program ----------------------------------------------------------------------------

# Environment variables that only a program which takes over gets.
my %CARRIED;

sub carry {
    my ($class, $name, $value) = @_;
    $CARRIED{$name} = $value;
    return;
}

# Starts the new program. `sockets`: [ handle, port that was asked for ] each; `keep`, `also`: name => handle;
# `say`: name => text.
sub start {
    my ($class, %args)  = @_;
    my ($here,  $there) = Peregrine::Link->pair;
    my @kept    = map { values %{ $args{$_} || {} } } qw(keep also);
    my %numbers = map { $_ => fileno $args{keep}{$_} } keys %{ $args{keep} };
    my $value   = join ';', 'link=' . $there->descriptor,
        'sockets=' . join(',', map { fileno($_->[0]) . ':' . ($_->[1] // '') } @{ $args{sockets} }),
        'aside=' . join(',', map { fileno($_->[0]) . ':' . ($_->[1] // '') } @{ $args{aside} || [] }),
        ($args{all} ? 'all=1' : ()), ($args{source} ? "source=$args{source}" : ()),
        (map { "$_=$numbers{$_}" } sort keys %numbers),
        map { "$_=" . fileno $args{also}{$_} } sort keys %{ $args{also} || {} };
    my %service = Peregrine::Notify->environment;
    Peregrine::hide_from_forks($_, 0) for values %numbers;
    my $pid    = $args{fork}->($there->keep_in_child);
    my $reason = "$!";
    Peregrine::hide_from_forks($_, 1) for values %numbers;

    if (!defined $pid) {
        $_->close for $here, $there;
        die "fork: $reason\n";
    }
    if (!$pid) {
        eval {
            chdir $STARTED{directory} or die "$STARTED{directory}: $!\n";
            my @words = $STARTED{words} ? @{ $STARTED{words} } : _new_words();
            _inherit($_)
                for $there->handle, @kept, map { $_->[0] } @{ $args{sockets} }, @{ $args{aside} || [] };
            %ENV = (%ENV, %service, %CARRIED, VARIABLE, $value);
            no warnings 'exec';
            exec { $STARTED{program} } @words or die "$STARTED{program}: $!\n";
        };
        print STDERR "Error: $@";
        POSIX::_exit(127);
    }
    $there->close;
    $here->say($_ => $args{say}{$_}) for sort keys %{ $args{say} };
    return bless { pid => $pid, link => $here }, $class;
}

sub _inherit {
    my ($handle) = @_;
    my $flags    = fcntl $handle, F_GETFD, 0 or die "fcntl: $!\n";
    fcntl $handle, F_SETFD, $flags & ~FD_CLOEXEC or die "fcntl: $!\n";
    return;
}

sub pid  { return $_[0]{pid} }
sub link { return $_[0]{link} }

# ---- The new program ----------------------------------------------------------------------------

my $TAKEN;

sub from_environment {
    my ($class) = @_;
    my $value   = delete $ENV{ +VARIABLE } // return $TAKEN;
    my %given   = map { split /=/, $_, 2 } split /;/, $value;
    my %sockets = map { _descriptors_in($given{$_}) } qw(sockets aside);
    my $self    = bless {
        all     => $given{all},
        source  => $given{source} // '',
        sockets => \%sockets,
        main    => { _descriptors_in($given{sockets}) },
        pid     => $$,
        kept    => \%given
    }, $class;
    $self->{link} = Peregrine::Link->from_descriptor($given{link});
    # The old program has written all its values to the pipe before it started this program.
    return $TAKEN = $self;
}

# A text such as FD:PORT,FD:PORT as a hash.
sub _descriptors_in {
    my ($text) = @_;
    return map { split /:/, $_, 2 } split /,/, $text // '';
}

sub main_descriptors {
    return sort { $a <=> $b } keys %{ $_[0]{main} };
}

sub descriptors {
    return sort { $a <=> $b } keys %{ $_[0]{sockets} };
}
sub is_for_all { return $_[0]{all} ? 1 : 0 }
sub source     { return $_[0]{source} }

# The port that was asked for at a socket, 0 perhaps; undef: the socket is not the old program's.
sub asked_port {
    my ($self, $descriptor) = @_;
    return $self->{sockets}{$descriptor};
}

# A descriptor that the old program has kept for this one, given out once.
sub take {
    my ($self, $name) = @_;
    return delete $self->{kept}{$name};
}

# Returns a value that the old program has sent. It sends values at once, but this program may have started
# faster.
sub told {
    my ($self, $name) = @_;
    my $link = $self->{link};
    for (1 .. 20) {
        last if exists $self->{told}{$name} || $link->has_ended || !$link->handle;
        $link->wait(0.1);
        $self->{told}{ $_->[0] } = $_->[1] for $link->read_lines;
    }
    return $self->{told}{$name};
}

sub serving {
    my ($self, @unused) = @_;
    return if $self->{pid} != $$;
    $self->{link}->say(unused => $_) for @unused;
    $self->{link}->say('serving');
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Handover - a new program on the sockets of the old one

=head1 SYNOPSIS

    # in the old program
    my $handover = Peregrine::Handover->start(
        sockets => [ [ $socket, 5000 ] ],
        keep    => { pid_file => $handle },
        say     => { ticket_keys => $keys },
        fork    => sub { my ($link) = @_; return fork },
    );
    $handover->link->watch($loop, sub { my ($word) = @_; leave() if $word eq 'serving' }, sub { });

    # in the new one, which is the same command
    my $handover = Peregrine::Handover->from_environment;
    ...
    $handover->serving;

=head1 DESCRIPTION

Starts the command again by which the process was started, in the directory where it was, with its listening
sockets and other descriptors. The old program goes on until the new one says that it serves. Linux tells
how a process was started; elsewhere it is C<$0> and C<@ARGV>.

=head1 METHODS

=head2 start

    my $handover = Peregrine::Handover->start(%args);

Forks and runs the command. C<sockets>: each with the port that was asked for; C<aside>: others, which are not
meant by C<all>. C<all>: nobody said where to listen, so the sockets are those to listen at. C<source>: who
has passed sockets to the old program (L<Peregrine::Inherited/source>). C<keep>: further handles by name,
which other children do not have; C<also>: handles that they have, too. C<say>: texts by name. C<fork> forks.
Dies with a text when that fails.

=head2 carry

    Peregrine::Handover->carry(NAME => $value);

Programs that take over get this variable of the environment.

=head2 pid, link

    my $pid = $handover->pid;

The new program's process, and the L<Peregrine::Link> to it.

=head2 from_environment

    my $handover = Peregrine::Handover->from_environment;

In the new program, the same each time; nothing if there is no old one.

=head2 descriptors, main_descriptors, asked_port, is_for_all, source

    my @numbers = $handover->descriptors;         # all
    my @main    = $handover->main_descriptors;    # without those that were aside
    my $port    = $handover->asked_port(3);

The values of C<sockets>, C<all> and C<source> that the old program gave.

=head2 take

    my $descriptor = $handover->take('pid_file');

The number of what was kept by that name, once.

=head2 told

    my $keys = $handover->told('ticket_keys');

The value that was sent under that name. Waits for it two seconds at most.

=head2 serving

    $handover->serving(@unused);

Tells the old program that it may leave, and at which of its Unix sockets this one does not listen: their
addresses in hexadecimal digits (L<Peregrine::Listener/sockets>).

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
