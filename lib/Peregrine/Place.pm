package Peregrine::Place;

use strict;
use warnings;

our $VERSION = '0.003000';

use B ();
use File::Spec;
use Peregrine;
use Peregrine::Nearest;

use constant {
    PATH_LENGTH_MAX => 107,      # 108 in the kernel, one for a NUL
    PORT_MAX        => 65_535,
    ALLOWED         => 'HOST:PORT, :PORT, /path, ./path, unix:path or fd:NUMBER, perhaps with settings,'
        . ' or a hash reference',
};

# The keys of a place, by kind.
my @SOCKET_KEYS = qw(socket_mode socket_owner socket_group);
my %KEYS        = (tcp => [qw(host port)], unix => [ 'socket', @SOCKET_KEYS ], inherited => ['fd']);
my @COMMON_KEYS = qw(ssl proxy_protocol);

# Settings behind an address: key, and the effect on the place.
my %SETTINGS = (
    plain  => sub { $_[0]{ssl}            = 0 },
    direct => sub { $_[0]{proxy_protocol} = [] },
    proxy  => sub { push @{ $_[0]{proxy_protocol} }, $_[1] },
    tls    => sub { $_[0]{ssl} ||= 1 },
    mode   => sub { $_[0]{socket_mode}  = $_[1] },
    owner  => sub { $_[0]{socket_owner} = $_[1] },
    group  => sub { $_[0]{socket_group} = $_[1] },
);

# Settings that are keys of a place's own `ssl`.
my %SSL_SETTINGS = (
    cert    => 'cert_file',
    key     => 'key_file',
    chain   => 'chain_file',
    certs   => 'cert_dir',
    ca      => 'ca_file',
    verify  => 'verify_client',
    tickets => 'ticket_keys_file',
);
for my $setting (keys %SSL_SETTINGS) {
    my $key = $SSL_SETTINGS{$setting};
    $SETTINGS{$setting} = sub { _ssl($_[0])->{$key} = $_[1] };
}
my %TAKES_VALUE = map { $_ => 1 } qw(mode owner group proxy), keys %SSL_SETTINGS;

# A setting, and the settings that contradict it.
my %CONTRADICTS = (plain => [ 'tls', sort keys %SSL_SETTINGS ], direct => ['proxy']);

sub all {
    my ($class, $options) = @_;
    my $listen = $options->{listen};
    my @wanted = defined $listen ? (ref $listen eq 'ARRAY' ? @$listen : $listen) : _single($options);
    my @places = map { $class->new($_)->with_defaults($options) } @wanted;
    for my $place (@places) {
        die "'$place->{name}' is to speak TLS, but there is no option 'ssl'\n"
            if $place->{ssl} && !ref $place->{ssl} && !$options->{ssl};
    }
    my ($useless) = grep { defined $options->{$_} } @SOCKET_KEYS;
    die "option '$useless' is given, but no Unix socket\n"
        if $useless && !grep { $_->{kind} eq 'unix' } @places;
    return @places;
}

sub _single {
    my ($options) = @_;
    return { socket => $options->{socket} } if defined $options->{socket};
    return { map { $_ => $options->{$_} } qw(host port) };
}

sub with_defaults {
    my ($self, $options) = @_;
    $self->{proxies} //= networks($options->{proxy_protocol});
    return $self if $self->{kind} ne 'unix';
    $self->{mode} //= mode($options->{socket_mode}) if defined $options->{socket_mode};
    $self->{uid}  //= user($options->{socket_owner});
    $self->{gid}  //= group($options->{socket_group});
    return $self;
}

my %FACTS = (tcp => [qw(host port)], unix => [qw(path mode)], inherited => ['descriptor']);

sub facts {
    my ($self) = @_;
    my $kind   = $self->{kind};
    my %facts  = (type => $kind, map { $_ => $self->{$_} } @{ $FACTS{$kind} });
    $facts{socket_mode} = delete $facts{mode} if $kind eq 'unix';
    return \%facts;
}

# The mistake in a value of the option `listen`, or nothing.
sub problem {
    my ($value) = @_;
    my @wanted = ref $value eq 'ARRAY' ? @$value : $value;
    return 'must name at least one address' if !@wanted;
    for my $wanted (@wanted) {
        next if eval { __PACKAGE__->new($wanted); 1 };
        my $reason = $@;
        $reason =~ s/\s+\z//;
        return $reason;
    }
    return;
}

sub new {
    my ($class, $wanted) = @_;
    die 'must be ' . ALLOWED . ", or an array reference of these, not undef\n" if !defined $wanted;
    my $name = ref $wanted ? _named($wanted) : $wanted;
    my $self = eval { _checked(ref $wanted ? $wanted : _read($wanted)) };
    return bless { %$self, name => $name }, $class if $self;
    my $reason = $@;
    $reason =~ s/\s+\z//;
    die "cannot have '$name': $reason\n";
}

# A hash reference in words, for messages.
sub _named {
    my ($wanted) = @_;
    return "$wanted" if ref $wanted ne 'HASH';
    return join ', ',
        map { "$_ => " . (ref $wanted->{$_} ? '...' : $wanted->{$_} // 'undef') } sort keys %$wanted;
}

# ---- A place in one word: an address, perhaps with settings behind it -----------------------------

sub _read {
    my ($text) = @_;
    my ($address, @settings) = split /,/, $text, -1;
    my $place = _address($address // '');
    my %count;
    for my $setting (@settings) {
        my ($key, $value) = split /=/, $setting, 2;
        my $set = $SETTINGS{ $key // '' } or die _unknown('setting', $key // '', '', keys %SETTINGS);
        die "setting '$key' needs a value\n"  if $TAKES_VALUE{$key}  && (!defined $value || !length $value);
        die "setting '$key' takes no value\n" if !$TAKES_VALUE{$key} && defined $value;
        die "setting '$key' is given twice\n" if $count{$key}++      && $key ne 'proxy';
        $set->($place, $value);
    }
    for my $key (grep { $count{$_} } sort keys %CONTRADICTS) {
        my ($other) = grep { $count{$_} } @{ $CONTRADICTS{$key} } or next;
        die "settings '$key' and '$other' contradict each other\n";
    }
    return $place;
}

sub _unknown {
    my ($what, $name, $where, @known) = @_;
    my $hint = Peregrine::Nearest::hint($name, sort @known);
    return "there is no $what '$name'$where$hint; there are " . join(' ', sort @known) . "\n";
}

sub _address {
    my ($text) = @_;
    return { socket => $1 }    if $text =~ /\Aunix:(.+)\z/s;
    return { socket => $text } if $text =~ m{\A\.{0,2}/};
    return { fd     => $1 }    if $text =~ /\Afd:(.*)\z/s;
    return { host => $1, port => $2 } if $text =~ /\A\[([^\]]+)\]:(.*)\z/s || $text =~ /\A([^:]+):([^:]*)\z/;
    return { host => '0.0.0.0', port => $1 } if $text =~ /\A:([0-9]+)\z/;
    die "an IPv6 address needs brackets: [::1]:5000\n" if $text =~ /.:/;
    die 'it must be ' . ALLOWED . "\n";
}

sub _ssl {
    my ($place) = @_;
    return ref $place->{ssl} ? $place->{ssl} : ($place->{ssl} = {});
}

# ---- A place as a hash reference -------------------------------------------------------------------

sub _checked {
    my ($wanted) = @_;
    die 'it must be ' . ALLOWED . "\n" if ref $wanted ne 'HASH';
    my %given = map { $_ => $wanted->{$_} } grep { defined $wanted->{$_} } keys %$wanted;
    my @kinds = grep {
        my $kind = $_;
        grep { exists $given{$_} } @{ $KEYS{$kind} }
    } sort keys %KEYS;
    die "it needs host and port, a socket, or fd\n"                         if !@kinds;
    die "it cannot have both $KEYS{$kinds[0]}[0] and $KEYS{$kinds[1]}[0]\n" if @kinds > 1;
    my %known = map { $_ => 1 } @{ $KEYS{ $kinds[0] } }, @COMMON_KEYS;
    for my $key (sort keys %given) {
        die _unknown('key', $key, ' here', keys %known) if !$known{$key};
    }
    my $ssl = $given{ssl};
    die "ssl must be a hash reference, 0 or 1\n" if defined $ssl && ref $ssl ne 'HASH' && $ssl !~ /\A[01]\z/;
    my %check   = (tcp => \&_tcp, unix => \&_unix, inherited => \&_inherited);
    my $proxies = $given{proxy_protocol};
    my $problem = defined $proxies && networks_problem($proxies);
    die "proxy_protocol $problem\n" if $problem;
    return { kind => $kinds[0], ssl => $ssl, proxies => networks($proxies), $check{ $kinds[0] }->(\%given) };
}

sub _tcp {
    my ($given) = @_;
    for my $key (qw(host port)) {
        die "$key is missing\n" if !defined $given->{$key} || $given->{$key} =~ /\A(?:\[\])?\z/;
    }
    die "the port must be an integer from 0 to ${\PORT_MAX}, not '$given->{port}'\n"
        if $given->{port} !~ /\A[0-9]{1,5}\z/ || $given->{port} > PORT_MAX;
    return (host => $given->{host}, port => $given->{port} + 0);
}

sub _unix {
    my ($given) = @_;
    my $path = $given->{socket};
    die "the path of a Unix socket is missing\n"
        if !defined $path || ref $path || !length $path || $path =~ /\0/;
    my $absolute = File::Spec->rel2abs($path);
    my $length   = length $absolute;
    die "the path of a Unix socket may have ${\PATH_LENGTH_MAX} bytes, and '$absolute' has $length\n"
        if $length > PATH_LENGTH_MAX;
    return (
        path => $absolute,
        mode => defined $given->{socket_mode} ? mode($given->{socket_mode}) : undef,
        uid  => user($given->{socket_owner}),
        gid  => group($given->{socket_group}),
    );
}

sub _inherited {
    my ($given) = @_;
    die "fd must be the number of a descriptor, not '$given->{fd}'\n" if $given->{fd} !~ /\A[0-9]{1,9}\z/;
    return (descriptor => $given->{fd} + 0);
}

# ---- Values -----------------------------------------------------------------------------------------

# Permission bits: '0660', or the number that Perl makes of 0660. '440' without a 0 could be octal or decimal.
sub mode_bits {
    my ($value) = @_;
    my $bits    = _is_integer($value) ? $value : ($value // '') =~ /\A0[0-7]{1,4}\z/ ? oct $value : -1;
    return $bits >= 0 && $bits <= oct '0777' ? $bits + 0 : undef;
}

sub mode {
    my ($value) = @_;
    return mode_bits($value)
        // die "socket_mode must be an octal mode from 0000 to 0777, not '" . ($value // 'undef') . "'\n";
}

# Whether a value is an integer of Perl, and not a text that looks like one.
sub _is_integer {
    my ($value) = @_;
    return B::svref_2object(\$value)->FLAGS & B::SVf_IOK;
}

# Networks for the engine: a list as one string; undef if no networks are given.
sub networks {
    my ($value) = @_;
    return ref $value ? join ',', @$value : $value || undef;
}

# The mistake in a list of networks, or nothing.
sub networks_problem {
    my ($value) = @_;
    my $allowed = q{networks like '10.0.0.0/8' or '::1', or 'unix'};
    return "must be a list of $allowed, not " . (defined $value ? "'$value'" : 'undef')
        if !defined $value || ref $value && ref $value ne 'ARRAY';
    for my $text (ref $value ? @$value : $value) {
        return "must be a list of $allowed, and has an element that is none"
            if !defined $text || ref $text || $text =~ /\0/;
        my ($network, undef, $reason) = Peregrine::networks_fault($text) or next;
        return "must be a list of $allowed: '$network' $reason";
    }
    return;
}

sub user {
    my ($value) = @_;
    return _number($value, 'user', sub { scalar getpwnam $_[0] });
}

sub group {
    my ($value) = @_;
    return _number($value, 'group', sub { scalar getgrnam $_[0] });
}

sub _number {
    my ($value, $what, $find) = @_;
    return $value if !defined $value || $value =~ /\A[0-9]{1,9}\z/;
    return $find->($value) // die "there is no $what '$value'\n";
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Place - one place to listen at

=head1 SYNOPSIS

    my $place = Peregrine::Place->new('127.0.0.1:5000');
    my $other = Peregrine::Place->new({ socket => '/run/app.sock', socket_mode => '0660' });

=head1 DESCRIPTION

A place to listen at, as the options C<host>, C<port>, C<socket> and C<listen> name it, checked; see
L<PAGI::Server/LISTENERS>.

An object has C<kind> (C<tcp>, C<unix> or C<inherited>), C<name> (as it was given), C<ssl>, C<proxies>
(networks, one string), and, by kind, C<host> and C<port>; C<path>, C<mode>, C<uid> and C<gid>; C<descriptor>.

=head1 METHODS

=head2 all

    my @places = Peregrine::Place->all(\%options);

All places that the options of a server ask for. Dies with a text when they make no sense together.

=head2 new

    my $place = Peregrine::Place->new($wanted);

Dies with a text, the end of a sentence about the option, when it cannot be.

=head2 with_defaults

    $place->with_defaults(\%options);

Takes what the place says nothing about from the options of the server; returns the place.

=head2 facts

    my $facts = $place->facts;    # { type => 'tcp', host => 'localhost', port => 0 }

The values that were asked for, see L<PAGI::Server/listeners>.

=head1 FUNCTIONS

=head2 networks, networks_problem

    my $text    = Peregrine::Place::networks([ '10.0.0.0/8', 'unix' ]);    # '10.0.0.0/8,unix'
    my $problem = Peregrine::Place::networks_problem('10.0.0.1/8');

A list of networks as one string, and what is wrong with it.

=head2 problem

    my $problem = Peregrine::Place::problem($value);

The mistake in a value of the option C<listen>, or nothing.

=head2 mode_bits

    my $bits = Peregrine::Place::mode_bits('0660');

Permission bits for what was given; undef if there are none.

=head2 mode, user, group

    my $bits = Peregrine::Place::mode('0660');
    my $uid  = Peregrine::Place::user('www-data');

Numbers for what was given; die with a text if there are none.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
