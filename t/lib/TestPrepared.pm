package TestPrepared;

# Programs of a test whose modules are compiled once for the test: a process of perl loads the modules with
# which bin/pagi-server, bin/peregrine or plackup begins, and forks a child for each start (PreparedProgram).
# Compiling is most of the work of a start. The environment, the arguments and the output are those of the
# start; whatever else a program inherits is the same as when the process began, or another process begins.
# Programs of one process have one seed of hashes: the order of keys does not vary among them. Programs are
# executed where a file runs alone or with `script/test --all`, and where the test hands descriptors to them,
# which the process would keep open.

use strict;
use warnings;

use Fcntl           qw(F_SETFD);
use OnlyInFull      qw(only_in_full);
use POSIX           ();
use PreparedProgram ();
use Socket          qw(AF_UNIX PF_UNSPEC SOCK_STREAM);
use TestTools       qw(content);

use constant F_DUPFD_CLOEXEC => 1030;
use constant CLOSED_ON_EXEC  => 0x80000;    # in /proc

my $OWNER       = $$;
my $DESCRIPTORS = _descriptors();
my %PREPARED;                               # by command, and what it inherits: a process and a socket to it
my $EXECS;

# The modules with which a program begins. plackup loads its application before the handler.
my %BEGINS = (
    'pagi-server' => [qw(Peregrine::Optional PAGI::Server::Runner)],
    peregrine     => [qw(Peregrine::Optional Plack::Handler::Peregrine::Command)],
    plackup       => [qw(Plack::Runner)],
);

# Variables that are read when perl begins, or when modules are loaded.
my $EARLY = qr/\A(?:PERL|LD_|LC_|LANG|TZ\z|MALLOC_|OPENSSL_|SSL_|IO_ASYNC|PAGI_FUTURE_XS)/;

# Has all programs of this test executed: it counts memory, which processes share with the one that has forked
# them, or needs the command line of a program that was executed.
sub leave_out { $EXECS = 1; return }

# Starts a program that writes to the files `out` and `err`, and gets an ALRM after `seconds`. Returns the
# process; undef where the program has to be executed.
sub child {
    my ($out, $err, $seconds, @command) = @_;
    return if only_in_full(1) || $EXECS || $$ != $OWNER || !PreparedProgram::is_possible();
    my ($perl, $modules, $arguments) = _parsed(@command) or return;
    return if _descriptors() ne $DESCRIPTORS;
    my $prepared = $PREPARED{ join "\n", @$perl, _inherited() } //= _prepare($perl, $modules);
    my @words    = map { _bytes($_) } @$arguments, %ENV;
    my $order    = pack '(N/a*)*', $out, $err, $seconds, scalar @$arguments, @words;
    _write($prepared->{socket}, pack 'N/a*', $order);
    my $pid;
    until (defined sysread $prepared->{socket}, $pid, 4) { $!{EINTR} or die "no program is prepared: $!\n" }
    $pid = length $pid ? unpack 'l', $pid : die "no program is prepared: @$perl\n";
    return $pid > 0 ? $pid : undef;
}

# Writes all bytes. The test's alarm interrupts; a process that has ended is noticed when it is read from.
sub _write {
    my ($socket, $bytes) = @_;
    local $SIG{PIPE} = 'IGNORE';
    while (length $bytes) {
        my $count = syswrite $socket, $bytes;
        next   if !defined $count && $!{EINTR};
        return if !$count;
        substr $bytes, 0, $count, '';
    }
    return;
}

# A text as an execution passes it on.
sub _bytes {
    my ($text) = @_;
    $text //= '';
    utf8::encode($text) if utf8::is_utf8($text);
    return $text;
}

# The words of a command for perl, the modules of its program, and the program's arguments.
sub _parsed {
    my @arguments = @_;
    return if shift @arguments ne $^X;
    my @perl = $^X;
    push @perl, shift @arguments while @arguments && $arguments[0] =~ /\A-(?:I.+|S)\z/;
    my $program = shift @arguments // return;
    my ($name)  = $program =~ m{([^/]+)\z} or return;
    my $modules = $BEGINS{$name}           or return;
    return if !grep { m{\A-I(?:.*/)?t/lib\z} } @perl;
    return if grep  { $_ eq '--future-xs' } @arguments;
    return ([ @perl, $program ], $modules, \@arguments);
}

# Everything that a program inherits, except descriptors, its environment and its output.
sub _inherited {
    my @limits = content('/proc/self/limits');
    my @status = grep { /\A(?:Umask|Uid|Gid|Groups|Sig(?:Ign|Blk)|Cap|NoNewPrivs|Seccomp|Cpus_allowed)/ }
        split /^/, content('/proc/self/status');
    my @spaces = map { readlink($_) // '' } glob '/proc/self/ns/*';
    my @early  = map { "$_=$ENV{$_}" } sort grep { $_ =~ $EARLY } keys %ENV;
    return join "\n", @limits, @status, @spaces, @early, getpgrp, POSIX::getcwd();
}

# The descriptors that a program inherits, except its output.
sub _descriptors {
    my @numbers = grep { _is_inherited($_) } map { m{(\d+)\z} } glob '/proc/self/fd/*';
    return join "\n", map { "$_ " . (readlink("/proc/self/fd/$_") // '') } @numbers;
}

sub _is_inherited {
    my ($descriptor) = @_;
    return $descriptor == 0 if $descriptor < 3;
    my ($flags) = content("/proc/self/fdinfo/$descriptor") =~ /^flags:\s+(\d+)/m or return 0;
    return !(oct($flags) & CLOSED_ON_EXEC);
}

sub _prepare {
    my ($perl, $modules) = @_;
    socketpair my $here, my $there, AF_UNIX, SOCK_STREAM, PF_UNSPEC or die "socketpair: $!";
    my $pid = fork // die "fork: $!";
    if (!$pid) {
        fcntl $there, F_SETFD, 0 or die "fcntl: $!";
        open STDOUT, '>', '/dev/null' or die "/dev/null: $!";
        my ($first, @others) = @$perl;
        exec $first, '-MPreparedProgram=' . join(',', fileno $there, @$modules), @others or POSIX::_exit(127);
    }
    # A high number, so that descriptors of the test have the numbers that they have without it: `sh` knows
    # ten of them.
    my $number = fcntl $here, F_DUPFD_CLOEXEC, 200 or die "fcntl: $!";
    open my $socket, '+<&=', $number or die "socket: $!";
    return { pid => $pid, socket => $socket };
}

# Closes the sockets, in a fork of the test that goes on as a server.
sub forget { %PREPARED = (); return }

# Ends the processes, which may hang while they load modules, and waits for them: their time is the test's.
END {
    if ($$ == $OWNER) {
        local ($?, $!);
        for my $prepared (values %PREPARED) {
            kill KILL => $prepared->{pid};
            waitpid $prepared->{pid}, 0;
        }
    }
}

1;
