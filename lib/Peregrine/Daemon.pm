package Peregrine::Daemon;

use strict;
use warnings;

our $VERSION = '0.003000';

use IO::Handle ();
use Peregrine;
use POSIX  ();
use Socket qw(AF_UNIX MSG_DONTWAIT SOCK_DGRAM);

# Bytes of one message of a process in the background, at most: more than the kernel lets a datagram have.
use constant TEXT_BYTES => 1 << 20;

# ---- Users --------------------------------------------------------------------------------------

# The user and group of --user and --group, as { uid, gid }; nothing if neither is given. Problems are thrown
# as a reference to their text. `named`: how it names the two options, and both together.
sub identity {
    my ($class, $user, $group, @named) = @_;
    return if !defined $user && !defined $group;
    @named = ('option --user', 'option --group', 'options --user and --group') if !@named;
    my %to = (uid => $>, gid => $) + 0);
    if (defined $user) {
        my @entry = $user =~ /\A[0-9]+\z/ ? getpwuid $user : getpwnam $user;
        die \"$named[0]: there is no user '$user'" if !@entry;
        @to{qw(uid gid name)} = @entry[ 2, 3, 0 ];
    }
    if (defined $group) {
        my @entry = $group =~ /\A[0-9]+\z/ ? getgrgid $group : getgrnam $group;
        die \"$named[1]: there is no group '$group'" if !@entry;
        $to{gid} = $entry[2];
    }
    my $other = $to{uid} != $> || $to{gid} != $) + 0;
    die \"$named[2] need a start as root" if $other && $> != 0;
    return \%to;
}

# Changes user and group for good: the process cannot get its old rights back.
sub become {
    my ($class, $to)  = @_;
    my ($uid,   $gid) = @{$to}{qw(uid gid)};
    # A program that takes over begins as that user already. Its memory is hidden from other processes of the
    # user, as the system does it at a change of user.
    if ($> != 0) {
        Peregrine::hide_memory();
        return;
    }
    $! = 0;
    $) = "$gid $gid";    # the effective group, and this one as the only supplementary one
    POSIX::setgid($gid) or die "Cannot become group $gid: $!\n";
    POSIX::setuid($uid) or die "Cannot become user $uid: $!\n";
    my %groups = map { $_ => 1 } split ' ', "$( $)";
    die "Cannot become user $uid and group $gid\n"
        if $< != $uid || $> != $uid || join(' ', keys %groups) ne $gid || $uid != 0 && POSIX::setuid(0);
    return;
}

sub forgo_privileges {
    Peregrine::forgo_privileges() or die "Cannot forgo new privileges: $!\n";
    return;
}

sub give {
    my ($class, $handle, $uid) = @_;
    my @status = stat $handle or return;
    return if !-f _ || $status[4] == $uid;
    chown $uid, -1, $handle or die "Cannot give a log file to user $uid: $!\n";
    return;
}

# ---- Going on in the background -----------------------------------------------------------------

# The pipe to the process in the foreground, which ends when this end is closed, after the last message.
my $FRONT;

# The device and the inode of the socket to the foreground, where standard error leads in the background.
my $ERRORS;

# Returns in the background process, with a function to call when all is well. The process in the foreground
# waits for that call, and then ends. Until then it writes what processes in the background send to it, by
# datagrams, to its standard error. With a copy of that standard error, each of these processes would keep a
# pipe open, for whose end a shell or a remote login waits. When the foreground has ended datagrams fail at
# once, and without a signal.
sub daemonize {
    my ($class, $errors) = @_;
    my $sockets_are_ours = ($ENV{LISTEN_PID} // '') eq $$;
    pipe my $reader, my $writer or die "Cannot go to the background: $!\n";
    socketpair my $texts, my $told, AF_UNIX, SOCK_DGRAM, 0 or die "Cannot go to the background: $!\n";
    my $pid = fork;
    die "Cannot go to the background: $!\n" if !defined $pid;
    if ($pid) {
        close $writer;
        close $told;
        my $is_well = _relay($reader, $texts);
        waitpid $pid, 0;
        POSIX::_exit($is_well ? 0 : 1);
    }
    close $reader;
    close $texts;
    $FRONT = $writer;
    POSIX::setsid();
    my $again = fork;
    die "Cannot go to the background: $!\n" if !defined $again;
    POSIX::_exit(0)                         if $again;
    # Sockets that systemd has passed to the process in the foreground are for the process that serves.
    $ENV{LISTEN_PID} = $$ if $sockets_are_ours;
    open STDIN,  '<',  '/dev/null' or die "Cannot open /dev/null: $!\n";
    open STDOUT, '>',  '/dev/null' or die "Cannot open /dev/null: $!\n";
    open STDERR, '>&', $told       or die "Cannot go to the background: $!\n";
    STDERR->autoflush(1);    # a socket has a buffer
    close $told;
    $ERRORS = _errors();
    return sub {
        if   ($errors) { $errors->settle }
        else           { open STDERR, '>', '/dev/null' or die "Cannot open /dev/null: $!\n" }
        syswrite $FRONT, "well\n";
        close $FRONT;
    };
}

sub _errors {
    my ($device, $inode) = POSIX::fstat(2) or return '';
    return "$device $inode";
}

sub leave_front {
    return if !defined $ERRORS || _errors() ne $ERRORS;
    my $null = POSIX::open('/dev/null', POSIX::O_WRONLY()) // die "Cannot open /dev/null: $!\n";
    POSIX::dup2($null, 2);
    POSIX::close($null);
    return;
}

# Writes what comes from the background to standard error, until that is well (true) or has ended.
sub _relay {
    my ($reader, $texts) = @_;
    local $SIG{PIPE} = 'IGNORE';
    my $both = '';
    vec($both, fileno $_, 1) = 1 for $reader, $texts;
    while (1) {
        select(my $ready = $both, undef, undef, undef) > 0 or next;
        # STDERR may have a layer, from PERL_UNICODE for instance, with which syswrite dies.
        my $word = vec($ready, fileno $reader, 1) ? sysread($reader, my $bytes, 1) : undef;
        while (defined recv $texts, my $text, TEXT_BYTES, MSG_DONTWAIT) {
            POSIX::write(2, $text, length $text);
        }
        return $word if defined $word;
    }
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Daemon - whose a process is, and going on in the background

=head1 SYNOPSIS

    my $to = Peregrine::Daemon->identity('www-data', undef);
    Peregrine::Daemon->become($to) if $to;

=head1 METHODS

=head2 identity

    my $to = Peregrine::Daemon->identity($user, $group);

    my $to = Peregrine::Daemon->identity($user, $group, "setting 'user'", "setting 'group'", 'both');

Looks names or numbers up. Throws a reference to a text when there is no such user or group, or when the
process may not become it.

=head2 become

    Peregrine::Daemon->become($to);

Changes user and group for good and clears the supplementary groups. Dies unless all of it worked.

=head2 forgo_privileges

    Peregrine::Daemon->forgo_privileges;

From now on neither this process nor what it starts can get more rights than it has (C<PR_SET_NO_NEW_PRIVS>).
Dies where the system has no such thing.

=head2 give

    Peregrine::Daemon->give($handle, $uid);

A file that is open, a log, belongs to that user from now on; its group stays. Nothing if it is no regular
file. Dies when that fails.

=head2 daemonize

    my $ready = Peregrine::Daemon->daemonize($error_log);
    $ready->();

Goes on in the background, in a session of its own. The process in front ends with status 0 when C<$ready> is
called, and with 1 when that does not happen. The working directory stays as it is, and sockets that systemd
has passed (C<LISTEN_PID>) are the new process's. Standard output is F</dev/null>. Standard error is the
L<PAGI::Server::ErrorLog> when the server has started, F</dev/null> without one; of processes that were forked
before, it leads nowhere then.

=head2 leave_front

    Peregrine::Daemon->leave_front;

Called in a process that the new process has forked before C<$ready> was called, when it begins to serve:
standard error is F</dev/null> from now on if it led to the process in front, which is about to end or has
ended. Programs that the application starts could not write there any more.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
