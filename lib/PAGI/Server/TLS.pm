package PAGI::Server::TLS;

use strict;
use warnings;

our $VERSION = '0.003000';

use Carp qw(croak);
use File::Spec;
use PAGI::Server::Options::Type;
use Peregrine;
use Peregrine::Handover;
use Peregrine::Link;
use Peregrine::Nearest;

# The keys of one certificate, and the keys of the policy for all certificates.
my @CERTIFICATE = qw(cert_file key_file chain_file key_password);
my @POLICY      = qw(
    cert_dir validation_dir ca_file verify_client
    min_version cipher_list cipher_suites groups session_timeout
    ticket_keys ticket_keys_file
);
my %KNOWN = map { $_ => 1 } @CERTIFICATE, @POLICY, 'certificates';

my %VERIFY      = (0 => 0, none => 0, request => 1, 1 => 2, require => 2);
my %MIN_VERSION = (TLSv1_2 => 0x0303, TLSv1_3 => 0x0304);

use constant SESSION_TIMEOUT_MAX => 7 * 24 * 60 * 60;    # RFC 8446, 4.6.1
use constant TICKET_KEYS_LENGTH  => 80;

sub new {
    my ($class, $ssl, $ticket_keys) = @_;
    my $self = bless { ticket_keys => $ticket_keys // _random_keys() }, $class;
    $self->_load($ssl, sub { $self->{engine} = Peregrine::TLS->new($_[0]) });
    return $self;
}

# Makes the TLS object of a place with certificates of its own. Errors name the place, not the option `ssl`.
sub for_place {
    my ($class, $place, $ticket_keys) = @_;
    my $tls = eval { $class->new($place->{ssl}, $ticket_keys) };
    return $tls if $tls;
    my $about = "option 'listen': '$place->{name}'";
    my $error = $@;
    die $error =~ s/option 'ssl'/$about/ ? $error : "$about: $error";
}

sub reload {
    my ($self, $ssl) = @_;
    return $self->_load($ssl, sub { $self->{engine}->reload($_[0]) }) if $ssl;
    return _in_words({}, sub { $self->{engine}->reload });
}

sub reload_all {
    my ($class, $log, @all) = @_;
    my %each = map { $_ => $_ } @all;
    for my $tls (values %each) {
        if (eval { $tls->reload }) {
            $log->info('the certificate files are loaded again');
            $class->tell_outdated($log, $tls);
            next;
        }
        $log->error("the certificate files cannot be used, the old ones stay: $@");
    }
    return;
}

# Warns of files that cannot be read any more, though they were read at the start, perhaps with rights that
# the process has given up.
sub tell_unreadable {
    my ($class, $log, @all) = @_;
    return _warn_once($log,
        map { "$_: a renewed certificate will not be loaded" } map { $_->_unreadable } @all);
}

# Warns of certificates that clients refuse because of their dates: users of the server would notice it first.
sub tell_outdated {
    my ($class, $log, @all) = @_;
    return _warn_once($log, map { $_->_outdated } @all);
}

# Logs each problem once, as several listeners may share a certificate.
sub _warn_once {
    my ($log, @problems) = @_;
    my %seen = map { $_ => 1 } @problems;
    $log->warn($_) for sort keys %seen;
    return;
}

# Takes over certificates that are handed over: their names, separated by commas, and a descriptor for each,
# which is closed. False if one of them could not be used; the log says why.
sub take {
    my ($self, $log, $names, @descriptors) = @_;
    my @names = split /,/, $names;
    my $done  = eval {
        $self->{engine}->give(map { ($names[$_] => $descriptors[$_]) } 0 .. $#names);
        1;
    };
    if (!$done) {
        for my $number (0 .. $#names) {
            eval { $self->{engine}->give($names[$number], $descriptors[$number]); 1 }
                or $log->error("the certificate for $names[$number] cannot be used, the old one stays: $@");
        }
    }
    Peregrine::Link::close_received(@descriptors);
    return $done;
}

# Frees the private keys in this process.
sub forget {
    my ($self) = @_;
    delete $self->{engine};
    substr $self->{ticket_keys}, $_, 1, "\0" for 0 .. TICKET_KEYS_LENGTH - 1;
    return;
}

sub engine { return $_[0]{engine} }

# ---- Keys of tickets for a new program -----------------------------------------------------------

# The keys as text: first that of places without certificates of their own, then those of others by name.
sub to_hand_over {
    my ($class, $tls, @places) = @_;
    my @all = map { [ $_->{name}, $_->{tls} ] } grep { $_->{tls} } sort { $a->{name} cmp $b->{name} } @places;
    unshift @all, [ '', $tls ] if $tls;
    return join "\n", map { unpack('H*', $_->[1]{ticket_keys}) . " $_->[0]" } @all;
}

# The key that the old program had for a place.
sub handed_over {
    my ($class, $name) = @_;
    my $handover = Peregrine::Handover->from_environment or return;
    my $told     = $handover->told('ticket_keys') // return;
    my %keys = map { my ($hex, $place) = split / /, $_, 2; ($place => pack 'H*', $hex) } split /\n/, $told;
    return $keys{$name};
}

sub _load {
    my ($self, $ssl, $load) = @_;
    my %given;    # absolute path => path as it was given
    my $config = $self->_config($ssl, \%given);
    _in_words(\%given, sub { $load->($config) });
    $self->{files} = _files($config);
    return 1;
}

# The kind of each file of a configuration, in words, by its path.
sub _files {
    my ($config) = @_;
    my %kinds    = (cert_file => 'certificate', key_file => 'key', chain_file => 'chain');
    my @found    = map {
        my $certificate = $_;
        map { [ $certificate->{$_} => "SSL $kinds{$_} file" ] } keys %kinds
    } @{ $config->{certificates} };
    push @found, [ $config->{ca_file} => 'SSL CA file' ], [ $config->{cert_dir} => 'SSL cert_dir' ];
    return { map { @$_ } grep { defined $_->[0] } @found };
}

sub _unreadable {
    my ($self) = @_;
    my @problems;
    for my $path (sort keys %{ $self->{files} }) {
        open my $file, '<', $path or push @problems, "$self->{files}{$path} cannot be read now: $path: $!";
    }
    return @problems;
}

sub _outdated {
    my ($self) = @_;
    my @problems;
    for (my $number = 0; defined(my $problem = $self->{engine}->concern($number, time)); $number++) {
        push @problems, $problem if length $problem;
    }
    return @problems;
}

# Runs code; dies with the engine's message, in which paths stand as they were given.
sub _in_words {
    my ($given, $code) = @_;
    return 1 if eval { $code->(); 1 };
    my $error = $@;
    $error =~ s/\Q$_\E/$given->{$_}/g for sort { length $b <=> length $a } keys %$given;
    return _die($error);
}

sub _die {
    my ($text) = @_;
    $text =~ s/\s+\z//;
    die "$text\n";
}

# ---- The options in the engine's terms -----------------------------------------------------------

sub _config {
    my ($self, $ssl, $given) = @_;
    my %ssl = map { $_ => $ssl->{$_} } grep { defined $ssl->{$_} } keys %$ssl;
    _check_keys(\%ssl, "option 'ssl'", \%KNOWN);
    my $more = $ssl{certificates} // [];
    _die("option 'ssl': certificates must be an array reference of hash references")
        if ref $more ne 'ARRAY' || grep { ref ne 'HASH' } @$more;
    my %first  = map { $_ => $ssl{$_} } grep { exists $ssl{$_} } @CERTIFICATE;
    my $number = 0;
    my $needed = %first || !@$more && !grep { defined $ssl{$_} } qw(cert_dir validation_dir);
    my @list   = map { _certificate($_, $number++, $given) } ($needed ? \%first : ()), @$more;
    return {
        certificates  => \@list,
        verify_client => _choice('verify_client', \%VERIFY,      $ssl{verify_client} // 0),
        min_version   => _choice('min_version',   \%MIN_VERSION, $ssl{min_version}   // 'TLSv1_2'),
        (map { $_ => _path($ssl{$_}, $given) } qw(cert_dir validation_dir ca_file)),
        (map { $_ => _string($ssl{$_}) } qw(cipher_list cipher_suites groups)),
        session_timeout => _session_timeout($ssl{session_timeout}),
        ticket_keys     => $self->_ticket_keys(@ssl{qw(ticket_keys ticket_keys_file)}),
    };
}

sub _check_keys {
    my ($hash, $where, $known) = @_;
    my @known = sort keys %$known;
    for my $key (grep { !$known->{$_} } sort keys %$hash) {
        _die("$where has no key '$key'" . Peregrine::Nearest::hint($key, @known) . "; there are @known");
    }
    return;
}

sub _certificate {
    my ($files, $number, $given) = @_;
    my $where = $number ? "option 'ssl': certificate " . ($number + 1) : "option 'ssl'";
    my %known = map { $_ => 1 } @CERTIFICATE;
    _check_keys($files, $where, \%known);
    for my $key (qw(cert_file key_file)) {
        _die("$where needs a $key")
            if !defined $files->{$key} || ref $files->{$key} || !length $files->{$key};
    }
    return {
        key_password => _password($files->{key_password}, $where),
        map { $_ => _path($files->{$_}, $given) } qw(cert_file key_file chain_file),
    };
}

sub _password {
    my ($password, $where) = @_;
    return _string($password) if ref $password ne 'CODE';
    my $told = eval { [ scalar $password->() ] } or return _die("$where: key_password died: $@");
    return _string($told->[0]);
}

# The engine's bridge reads several values at once, so objects become strings before.
sub _string { return defined $_[0] ? "$_[0]" : undef }

# An absolute path, as a server may change its directory before it reads the files again. No path gives undef.
sub _path {
    my ($path, $given) = @_;
    my $absolute = defined $path ? File::Spec->rel2abs($path) : undef;
    $given->{$absolute} = $path if defined $path && $absolute ne $path;
    return $absolute;
}

sub _choice {
    my ($key, $allowed, $value) = @_;
    return $allowed->{$value} if defined $allowed->{$value};
    return _die("option 'ssl': $key must be one of " . join(' ', sort keys %$allowed) . ", not '$value'");
}

sub _session_timeout {
    my ($given) = @_;
    return $given if !defined $given;
    my $seconds = PAGI::Server::Options::Type::number({ type => 'seconds' }, $given);
    return $seconds if $seconds =~ /\A[1-9][0-9]{0,5}\z/ && $seconds <= SESSION_TIMEOUT_MAX;
    return _die("option 'ssl': session_timeout must be an integer from 1 to ${\SESSION_TIMEOUT_MAX}"
            . " (seconds; s, m and h are understood), not '$given'");
}

# The key of tickets. Processes with equal keys accept one another's tickets: all forks of this process.
sub _ticket_keys {
    my ($self, $keys, $path) = @_;
    return $self->{ticket_keys} if !defined $keys && !defined $path;
    return _keys_of($path)      if !defined $keys;
    _die("option 'ssl': ticket_keys and ticket_keys_file contradict each other") if defined $path;
    return "$keys" if length $keys == TICKET_KEYS_LENGTH;
    return _die(
        "option 'ssl': ticket_keys must be ${\TICKET_KEYS_LENGTH} random bytes, not ${\length $keys}");
}

sub _keys_of {
    my ($path) = @_;
    my $about = "option 'ssl': ticket_keys_file $path";
    open my $file, '<:raw', $path or return _die("$about cannot be opened: $!");
    # One byte more shows that a file is too long; a device cannot fill the memory.
    my $length = read $file, my $keys, TICKET_KEYS_LENGTH + 1;
    return _die("$about cannot be read: $!") if !defined $length;
    return $keys                             if $length == TICKET_KEYS_LENGTH;
    my $found = $length < TICKET_KEYS_LENGTH ? $length : 'more';
    return _die("$about must hold ${\TICKET_KEYS_LENGTH} random bytes, not $found");
}

sub _random_keys {
    open my $random, '<:raw', '/dev/urandom' or croak "/dev/urandom: $!";
    read($random, my $keys, TICKET_KEYS_LENGTH) == TICKET_KEYS_LENGTH or croak "/dev/urandom: $!";
    return $keys;
}

# ---- Command line -------------------------------------------------------------------------------

# Option of pagi-server => key of the option `ssl`.
my %KEY = (
    ssl_cert            => 'cert_file',
    ssl_key             => 'key_file',
    ssl_chain           => 'chain_file',
    ssl_cert_dir        => 'cert_dir',
    ssl_ca              => 'ca_file',
    ssl_min_version     => 'min_version',
    ssl_ciphers         => 'cipher_list',
    ssl_ciphersuites    => 'cipher_suites',
    ssl_groups          => 'groups',
    ssl_session_timeout => 'session_timeout',
    ssl_ticket_keys     => 'ticket_keys_file',
);

sub key_of { return $KEY{ $_[0] } }

sub from_options {
    my ($options) = @_;
    return if !grep { /\Assl_/ && $options->{$_} } keys %$options;
    my %ssl    = map { $KEY{$_} => $options->{$_} } grep { defined $options->{$_} } keys %KEY;
    my ($lone) = grep { /\Assl_/ && $options->{$_} && !/\Assl_(?:cert|key|cert_dir)\z/ } sort keys %$options;
    my $named  = grep { defined $ssl{$_} } qw(cert_file key_file);
    die '--' . $lone =~ tr/_/-/r . " needs --ssl-cert and --ssl-key, or --ssl-cert-dir\n"
        if $lone && !$named && !defined $ssl{cert_dir};
    die "options --ssl-cert and --ssl-key must be given together\n" if $named == 1;
    $ssl{verify_client} = 'request' if $options->{ssl_request_client};
    $ssl{verify_client} = 'require' if $options->{ssl_verify_client};
    $ssl{key_password}  = _first_line($options->{ssl_key_password_file})
        if defined $options->{ssl_key_password_file};
    $ssl{certificates} = [ map { _sni($_) } @{ $options->{ssl_sni} } ] if $options->{ssl_sni};
    return \%ssl;
}

# Replaces keys of the option `ssl` by flags in a text, because the user has typed flags. Paths may contain
# the same words.
sub in_flags {
    my ($text, $options) = @_;
    my %flag = reverse %KEY;
    $flag{verify_client} = $options->{ssl_verify_client} ? 'ssl_verify_client' : 'ssl_request_client';
    $flag{key_password}  = 'ssl_key_password_file';
    my $keys = join '|', map { quotemeta } sort keys %flag;
    $text =~ s{(?:option 'ssl': |SSL )?(?<![\w/.-])($keys)(?![\w/.-])}{'--' . $flag{$1} =~ tr/_/-/r}ge;
    return $text;
}

sub _sni {
    my ($value) = @_;
    my ($cert, $key, $chain, @rest) = split /,/, $value, -1;
    die "option --ssl-sni must be CERT,KEY or CERT,KEY,CHAIN, not '$value'\n"
        if @rest || grep { defined && !length } $cert, $key // '', $chain;
    return { cert_file => $cert, key_file => $key, defined $chain ? (chain_file => $chain) : () };
}

sub _first_line {
    my ($path) = @_;
    open my $file, '<', $path or die "option --ssl-key-password-file: $path: $!\n";
    my $line = <$file> // '';
    $line =~ s/\r?\n\z//;
    return $line;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::TLS - certificates and policy of PAGI::Server

=head1 SYNOPSIS

    my $tls = PAGI::Server::TLS->new({ cert_file => 'cert.pem', key_file => 'key.pem' });
    $worker->secure($listener, $tls->engine);
    $tls->reload;

=head1 DESCRIPTION

Checks what C<< PAGI::Server->new(ssl => {...}) >> was given and hands it to the engine, which loads the
files. See L<PAGI::Server/TLS> for the keys.

=head1 METHODS

=head2 new

    my $tls = PAGI::Server::TLS->new(\%ssl);
    my $tls = PAGI::Server::TLS->new(\%ssl, $ticket_keys);

Loads the files. The keys seal tickets unless C<%ssl> has some; by default they are random. Dies with a
message that names the file or value that is wrong.

=head2 for_place

    my $tls = PAGI::Server::TLS->for_place($place);

Checks the C<ssl> of a L<Peregrine::Place>, which messages name.

=head2 reload

    $tls->reload(\%ssl);
    $tls->reload;

Uses other files or another policy for the connections that come from now on; without an argument, reads the
same files again. Dies as C<new> does, and then nothing has changed.

=head2 take

    $tls->take($log, 'example.org,example.com', @descriptors);

Takes over certificates by the descriptors of their files, each in place of one that came under the same
name. One that cannot be used is told to the log, and the one before it stays.

=head2 to_hand_over, handed_over

    my $text  = PAGI::Server::TLS->to_hand_over($tls, @places);
    my $bytes = PAGI::Server::TLS->handed_over($name);

The keys of tickets that the configuration does not name: as text for a new program, and there by the name
of the place, C<''> for the server's own.

=head2 engine

    $worker->secure($listener, $tls->engine);

The L<Peregrine/TLS> object.

=head2 reload_all

    PAGI::Server::TLS->reload_all($log, @all);

Reads the files of all of them again, each once, and tells the log whether they could be used.

=head2 tell_unreadable

    PAGI::Server::TLS->tell_unreadable($log, @all);

Warns of files that the process cannot read any more and so will not load again when they change.

=head2 tell_outdated

    PAGI::Server::TLS->tell_outdated($log, @all);

Warns of certificates that have expired, are not valid yet, or expire soon, with the date. (Of files that
changed, and that are loaded therefore, the engine says the same.)

=head1 FUNCTIONS

=head2 from_options

    my $ssl = PAGI::Server::TLS::from_options({ ssl_cert => 'cert.pem', ssl_key => 'key.pem' });

The option C<ssl> that the options of C<pagi-server> mean; nothing if they mean none. Dies with a message when
they contradict each other.

=head2 key_of

    my $key = PAGI::Server::TLS::key_of('ssl_cert');    # cert_file

The key of the option C<ssl> that an option of C<pagi-server> sets.

=head2 in_flags

    my $text = PAGI::Server::TLS::in_flags('SSL verify_client needs ca_file', $options);
    # --ssl-verify-client needs --ssl-ca

A message about that option in the words of C<pagi-server>.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
