package Peregrine::Acme::Store;

use strict;
use warnings;

our $VERSION = '0.003000';

use Digest::SHA qw(sha256_hex);
use Fcntl       qw(LOCK_EX LOCK_NB LOCK_SH O_CREAT O_EXCL O_WRONLY);
use File::Path  ();
use IO::Handle  ();
use JSON::PP    ();

# Seconds after which a file of an attempt is one that a killed process has left.
use constant OLD_S => 3600;

my $JSON = JSON::PP->new->canonical->utf8;

# Folders below that of the store, and their modes. An engine that has given up rights reads the answers to
# authorities, which are no secret.
my %FOLDERS =
    (accounts => 0700, certificates => 0700, challenges => 0755, states => 0700, validations => 0755);

sub new {
    my ($class, $folder) = @_;
    return bless { folder => $folder }, $class;
}

sub folder       { return $_[0]{folder} }
sub certificates { return "$_[0]{folder}/certificates" }
sub challenges   { return "$_[0]{folder}/challenges" }
sub validations  { return "$_[0]{folder}/validations" }

# Makes the folders that are missing. Dies with a sentence.
sub make {
    my ($self) = @_;
    _make($self->{folder}, 0711);
    my ($uid, $gid) = (stat $self->{folder})[ 4, 5 ] or die "the folder $self->{folder}: $!\n";
    my $make = sub { _make("$self->{folder}/$_", $FOLDERS{$_}) for sort keys %FOLDERS };
    if ($> == 0 && $uid != 0) { _as_user($uid, $gid, $make) }
    else                      { $make->() }
    return $self;
}

# Runs code as the folder's user: below another user's folder a link could lead the superuser elsewhere.
sub _as_user {
    my ($uid, $gid, $code) = @_;
    my $groups = $);
    $) = "$gid $gid";
    $> = $uid;
    my $done  = eval { $code->(); 1 };
    my $error = $@;
    $> = $<;
    $) = $groups =~ / / ? $groups : "$groups $groups";    # a list of one group would keep the others
    return $done || die $error;
}

sub _make {
    my ($path, $mode) = @_;
    return if -d $path;
    File::Path::make_path($path, { error => \my $problems });
    my ($reason) = map { values %$_ } @$problems;
    die "the folder $path cannot be made: $reason\n" if defined $reason;
    chmod $mode, $path or die "the folder $path: $!\n";
    return;
}

# Removes files of attempts that were killed.
sub sweep {
    my ($self) = @_;
    my @left   = map { glob "\Q$self->{folder}\E/$_" } 'challenges/*', 'validations/*',
        map { "$_/.*.new.*" } sort keys %FOLDERS;
    unlink grep { time - ((stat)[9] // time) > OLD_S } @left;
    return $self;
}

# ---- Files --------------------------------------------------------------------------------------

# Writes a file in one step: a process that is killed leaves the old file or the new one.
sub _write {
    my ($path, $bytes) = @_;
    my $new = $path =~ s{([^/]+)\z}{.$1.new.$$}r;
    unlink $new;
    sysopen my $file, $new, O_WRONLY | O_CREAT | O_EXCL, 0600 or die "$new: $!\n";
    my $written = print({$file} $bytes) && $file->flush && $file->sync && close($file) && rename($new, $path);
    my $reason  = $!;
    return 1 if $written;
    close $file;    # closed here, because Perl would warn of bytes that are lost
    unlink $new;
    die "$path cannot be written: $reason\n";
}

sub _read {
    my ($path) = @_;
    open my $file, '<:raw', $path or return;
    local $/ = undef;
    return scalar <$file>;
}

sub _certificate_path { return $_[0]->certificates . "/$_[1].pem" }

# The certificate's chain and its key, as PEM; nothing if there is none.
sub certificate {
    my ($self, $name) = @_;
    return _read($self->_certificate_path($name));
}

sub keep_certificate {
    my ($self, $name, $chain, $key) = @_;
    return _write($self->_certificate_path($name), "$chain\n$key");
}

# All certificates: a name and a text each; the text is another one when the file has changed.
sub certificates_there {
    my ($self) = @_;
    opendir my $entries, $self->certificates or return;
    my @there;
    for my $name (map { /\A([^.].*)\.pem\z/ ? $1 : () } readdir $entries) {
        my @status = stat $self->_certificate_path($name) or next;
        push @there, [ $name, join ' ', @status[ 1, 7, 9, 10 ] ];
    }
    return @there;
}

sub open_certificate {
    my ($self, $name) = @_;
    open my $file, '<:raw', $self->_certificate_path($name) or return undef;    ## no critic
    return $file;
}

# The key of the account at an authority; `make` makes one that is not there.
sub account_key {
    my ($self, $directory, $make) = @_;
    my $path = "$self->{folder}/accounts/" . substr(sha256_hex($directory), 0, 16) . '.pem';
    return _read($path) // do { my $key = $make->(); _write($path, $key); $key };
}

sub present {
    my ($self, $token, $content) = @_;
    return _write_for_all($self->challenges . "/$token", $content);
}

sub _write_for_all {
    my ($path, $content) = @_;
    _write($path, $content);
    chmod 0644, $path or die "$path: $!\n";
    return;
}

sub remove {
    my ($self, $token) = @_;
    unlink $self->challenges . "/$token";
    return;
}

# The file in which the engine looks for the answer to an authority that asks by TLS (validation.zig). Its key
# is no secret: it signs this answer alone, and whoever has it has no account with the authority.
sub _validation_path { return $_[0]->validations . "/$_[1].alpn" }

sub present_certificate {
    my ($self, $name, $pem) = @_;
    return _write_for_all($self->_validation_path($name), $pem);
}

sub remove_certificate {
    my ($self, $name) = @_;
    unlink $self->_validation_path($name);
    return;
}

# The attempts for a name, as a hash; empty at first.
sub state {
    my ($self, $name) = @_;
    my $text  = _read("$self->{folder}/states/$name.json") // return {};
    my $state = eval { $JSON->decode($text) };    # Expected: a file that somebody has edited
    return ref $state eq 'HASH' ? $state : {};
}

sub keep_state {
    my ($self, $name, $state) = @_;
    return _write("$self->{folder}/states/$name.json", $JSON->encode($state));
}

# A lock on a name among all servers that share the folder, held until the result is freed; nothing if
# another process has it.
sub lock {
    my ($self, $name) = @_;
    my $path = "$self->{folder}/states/$name.lock";
    open my $file, '>>', $path or die "$path: $!\n";
    return flock($file, LOCK_EX | LOCK_NB) ? $file : ();
}

# The first names of all certificates that the folder knows.
sub names {
    my ($self) = @_;
    my %names;
    for my $folder (qw(certificates states)) {
        opendir my $entries, "$self->{folder}/$folder" or die "$self->{folder}/$folder: $!\n";
        /\A([^.].*)\.(?:pem|json)\z/ and $names{$1} = 1 for readdir $entries;
    }
    return sort keys %names;
}

# ---- Requests of `peregrine renew` --------------------------------------------------------------

sub _request_path  { return "$_[0]{folder}/states/$_[1].renew" }
sub _presence_path { return "$_[0]{folder}/states/.servers" }

sub ask      { return _write($_[0]->_request_path($_[1]), '') }
sub is_asked { return -e $_[0]->_request_path($_[1]) }
sub answer   { return unlink $_[0]->_request_path($_[1]) }

# Marks the folder as used by a server, as long as the result lives.
sub enter {
    my ($self) = @_;
    my $path = $self->_presence_path;
    open my $file, '>>', $path or die "$path: $!\n";
    flock $file, LOCK_SH or die "$path: $!\n";
    return $file;
}

sub is_served {
    my ($self) = @_;
    open my $file, '<', $self->_presence_path or return 0;
    return flock($file, LOCK_EX | LOCK_NB) ? 0 : 1;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Acme::Store - the files of certificates that a server orders

=head1 DESCRIPTION

A folder with F<accounts> (keys of accounts, by the hash of the directory's URL), F<certificates>
(F<NAME.pem>: the chain with its key behind it), F<challenges> (answers to C<http-01>), F<validations>
(F<NAME.alpn>: answers to C<tls-alpn-01>) and F<states> (F<NAME.json>: failures and the time of the next
attempt). Each file is written under another name and
renamed: a process that is killed, or a disk that is full, leaves the old file or the new one. Only the
owner can read keys.

=head1 METHODS

=head2 new

    my $store = Peregrine::Acme::Store->new($folder);

Touches nothing.

=head2 make

Makes the folders that are not there, which the user gets that has the store's own. Dies with a sentence.

=head2 sweep

Removes files of attempts that were killed an hour ago or earlier.

=head2 folder, certificates, challenges, validations

Paths of the folder and of three within.

=head2 certificates_there, open_certificate

    for my $found ($store->certificates_there) { my ($name, $status) = @$found }
    my $handle = $store->open_certificate('example.org');

All certificates of the folder, whoever has put them there; nothing where it cannot be read. C<$status> is
another text when the file has changed.

=head2 certificate, keep_certificate

    my $pem = $store->certificate('example.org');
    $store->keep_certificate('example.org', $chain, $key);

=head2 account_key

    my $pem = $store->account_key($directory, sub { return $new_key });

=head2 present, remove

    $store->present($token, $content);
    $store->remove($token);

=head2 present_certificate, remove_certificate

    $store->present_certificate('example.org', $pem);
    $store->remove_certificate('example.org');

The answer to C<tls-alpn-01>.

=head2 state, keep_state

    my $state = $store->state('example.org');
    $store->keep_state('example.org', $state);

A hash that only L<Peregrine::Acme::Keeper> knows; empty at first.

=head2 names

The first names of all certificates that the folder knows of. Dies with a sentence where it cannot be read.

=head2 ask, is_asked, answer

    $store->ask('example.org');

A request for a new certificate, whoever has the right to write into the folder; whether there is one; and
its end.

=head2 enter, is_served

    my $presence = $store->enter;

The folder is served while the result lives.

=head2 lock

    my $lock = $store->lock('example.org') or return;

Among all processes that have the folder, as long as the result lives.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
