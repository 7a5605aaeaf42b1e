package HeldFiles;

# A file system whose requests wait until a test lets them go: slow storage, by hand. It speaks the kernel's
# protocol itself (/dev/fuse; Linux's include/uapi/linux/fuse.h), in a process of its own, and is mounted in a
# mount namespace of the test's, so that it ends with the test.
#
#   my $files = HeldFiles->mount(\%content) or plan skip_all => $HeldFiles::why;
#   $files->hold('read');                   # or 'lookup', 'open', 'getattr'
#   ... somebody reads "$files->{dir}/name" ...
#   $files->wait_held;                      # until a request waits
#   $files->let_go;                         # all that wait, and those that come
#
# "name-1", "name-2" and so on are files with the content of "name", because the kernel caches content that
# was read. Names are not cached.

use strict;
use warnings;

use File::Temp ();
use IO::Handle ();
use IO::Select;
use Socket    qw(AF_UNIX SOCK_STREAM PF_UNSPEC);
use TestTools qw(can_read patience);

our $why;

my %OPCODE = (
    lookup     => 1,
    forget     => 2,
    getattr    => 3,
    open       => 14,
    read       => 15,
    statfs     => 17,
    release    => 18,
    flush      => 25,
    init       => 26,
    opendir    => 27,
    readdir    => 28,
    releasedir => 29,
    access     => 34,
    interrupt  => 36,
    destroy    => 38,
    batch      => 42,
);
my %NAME_OF = reverse %OPCODE;
my ($ENOENT, $EINTR, $ENOSYS) = (2, 4, 38);
my ($NEW_NAMESPACE, $RECURSIVE_PRIVATE) = (0x20000, 0x4000 | 0x40000);

# Mounts the file system. `content`: contents by file name. If impossible, returns nothing and sets $why.
sub mount {
    my ($class, $content) = @_;
    $why = 'the numbers of system calls are not known';
    ## no critic: the file comes with perl
    return if !eval { no warnings; require 'sys/syscall.ph'; 1 };
    $why = 'no file systems can be mounted here';
    return if $^O ne 'linux' || $> != 0;
    my $self = bless { dir => File::Temp->newdir, content => $content, owner => $$ }, $class;
    open my $device, '+<:raw', '/dev/fuse' or do { $why = "/dev/fuse: $!"; return };
    my ($nothing, $root, $kind) = ('none', '/', 'fuse');
    if (   syscall(SYS_unshare(), $NEW_NAMESPACE) != 0
        || syscall(SYS_mount(), $nothing, $root, 0, $RECURSIVE_PRIVATE, 0) != 0)
    {
        $why = "no mount namespace: $!";
        return;
    }
    my $options = sprintf 'fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other', fileno $device;
    my ($name, $dir) = ('held', "$self->{dir}");
    if (syscall(SYS_mount(), $name, $dir, $kind, 7, $options) != 0) {
        $why = "mount: $!";
        return;
    }
    socketpair my $ours, my $theirs, AF_UNIX, SOCK_STREAM, PF_UNSPEC or die "socketpair: $!";
    $_->autoflush(1) for $ours, $theirs;
    my $pid = fork // die "fork: $!";
    if (!$pid) {
        close $ours;
        alarm patience(1800);    # ends it behind a test that was killed
        eval { $self->_serve($device, $theirs); 1 } or print STDERR "held files: $@";
        require POSIX;
        POSIX::_exit(0);
    }
    @$self{qw(pid control)} = ($pid, $ours);
    return $self;
}

# Makes requests of a kind wait from now on.
sub hold { my ($self, $kind) = @_; return $self->_tell("hold $kind") }

# Lets waiting requests go on, and later ones not wait. Returns the number of those that have waited.
sub let_go { my ($self) = @_; return $self->_tell('go') }

# The number of requests of a kind that have come.
sub count { my ($self, $kind) = @_; return $self->_tell("count $kind") }

sub held { my ($self) = @_; return $self->_tell('held') }

sub _tell {
    my ($self, $words) = @_;
    print { $self->{control} } "$words\n";
    can_read($self->{control}, patience(60)) or die "the file system does not answer\n";
    sysread $self->{control}, my $answer, 100 or die "the file system has gone\n";
    chomp $answer;
    return $answer;
}

sub wait_held {
    my ($self) = @_;
    TestTools::wait_for(sub { $self->held > 0 }, 30);
    return $self->held;
}

sub DESTROY {
    my ($self) = @_;
    return if $$ != $self->{owner} || !$self->{pid};
    local ($@, $?);
    kill KILL => $self->{pid};
    waitpid $self->{pid}, 0;
    my $dir = "$self->{dir}";
    syscall(SYS_umount2(), $dir, 2);
    return;
}

# ---- In the process of the file system

sub _serve {
    my ($self, $device, $control) = @_;
    $self->{names} = [];
    my (%held_kind, %count, @held);
    my $select = IO::Select->new($device, $control);
    while (1) {
        for my $ready ($select->can_read) {
            if ($ready == $control) {
                sysread $control, my $line, 100 or return;
                my ($verb, $kind) = $line =~ /(\w+)(?: (\w+))?/;
                my $answer = $verb eq 'count' ? $count{$kind} // 0 : $verb eq 'held' ? @held : 'ok';
                $held_kind{$kind} = 1 if $verb eq 'hold';
                if ($verb eq 'go') {
                    $answer = @held;
                    $self->_answer($device, @$_) for splice @held;
                    %held_kind = ();
                }
                print {$control} "$answer\n";
                next;
            }
            my $got = sysread $device, my $message, 200_000;
            return if !defined $got && !$!{ENOENT} && !$!{EINTR} && !$!{EAGAIN};
            next   if !$got;
            my (undef, $opcode, $unique, $node) = unpack 'L2 Q2', $message;
            my $kind    = $NAME_OF{$opcode} // 'unknown';
            my @request = ($kind, $unique, $node, substr $message, 40);
            if ($kind eq 'interrupt') {
                # The process that waits was killed, and does not end before its request is answered.
                my $wanted = unpack 'Q', $request[3];
                _reply($device, $wanted, $EINTR, '') for grep { $_->[1] == $wanted } @held;
                @held = grep { $_->[1] != $wanted } @held;
                next;
            }
            $count{$kind}++;
            if ($held_kind{$kind}) { push @held, \@request }
            else                   { $self->_answer($device, @request) }
        }
    }
}

sub _answer {
    my ($self, $device, $kind, $unique, $node, $arguments) = @_;
    return if $kind =~ /\A(?:forget|batch)\z/;
    my $method = $self->can("_$kind");
    my ($error, $content) = $method ? $self->$method($node, $arguments) : ($ENOSYS, '');
    return _reply($device, $unique, $error, $content);
}

sub _reply {
    my ($device, $unique, $error, $content) = @_;
    return syswrite $device, pack('L l Q', 16 + length $content, -$error, $unique) . $content;
}

sub _init {
    my ($self, undef, $arguments) = @_;
    return 0, pack 'L4 S2 L2 S2 x32', 7, 31, 131_072, 0, 64, 48, 131_072, 1, 32, 0;
}

sub _attributes {
    my ($self, $node) = @_;
    my $is_root = $node == 1;
    my $size    = $is_root ? 0 : length $self->_content($self->{names}[ $node - 2 ]);
    my $old     = 1_700_000_000;
    return pack 'Q6 L10', $node, $size, 1, ($old) x 3, 0, 0, 0,
        $is_root ? (oct('040755'), 2) : (oct('100644'), 1), 0, 0, 0, 4096, 0;
}

sub _content { my ($self, $name) = @_; return $self->{content}{ $name =~ s/-\d+\z//r } }

sub _lookup {
    my ($self, undef, $arguments) = @_;
    my ($name) = $arguments =~ /\A([^\0]*)/;
    my $names = $self->{names};
    return $ENOENT, '' if !defined $self->_content($name);
    my ($at) = grep { $names->[$_] eq $name } 0 .. $#$names;
    if (!defined $at) { push @$names, $name; $at = $#$names }
    my $node = $at + 2;
    return 0, pack('Q4 L2', $node, 0, 0, 0, 0, 0) . $self->_attributes($node);
}

sub _getattr {
    my ($self, $node) = @_;
    return 0, pack('Q L2', 0, 0, 0) . $self->_attributes($node);
}

# The flag FOPEN_KEEP_CACHE: an open that drops cached content would wait for reads.
sub _open    { return 0, pack 'Q L2', 0, 2, 0 }
sub _opendir { return 0, pack 'Q L2', 0, 0, 0 }
sub _readdir { return 0, '' }
sub _release { return 0, '' }
sub _statfs  { return 0, pack 'Q5 L10', 0, 0, 0, 0, 0, 4096, 255, 4096, (0) x 7 }

sub _releasedir { return 0, '' }

sub _read {
    my ($self, $node, $arguments) = @_;
    my (undef, $offset, $size) = unpack 'Q2 L', $arguments;
    my $content = $self->_content($self->{names}[ $node - 2 ]);
    return 0, $offset < length $content ? substr $content, $offset, $size : '';
}

1;
