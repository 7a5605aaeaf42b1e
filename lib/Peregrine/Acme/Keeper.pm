package Peregrine::Acme::Keeper;

use strict;
use warnings;

our $VERSION = '0.003000';

use Digest::SHA qw(sha256);
use JSON::PP    ();
use List::Util  qw(max min);
use Peregrine::Acme::Certificate;
use Peregrine::Acme::Client;
use Peregrine::Acme::Schedule;
use Peregrine::Acme::Store;
use POSIX qw(strftime);

# Seconds between two looks at the clock, which may be set, and at a lock that another server has.
use constant { LOOK_S => 60, LOCKED_S => 5 };

my $JSON = JSON::PP->new->canonical->utf8;

# `orders`: lists of names, one for each certificate; `directory`, `folder`, `contact`, `eab`, `ca_file`,
# `agrees`; `say` gets facts.
sub new {
    my ($class, %args) = @_;
    return bless { %args, store => Peregrine::Acme::Store->new($args{folder})->make }, $class;
}

# The process: reads its orders as JSON from standard input, and ends when that does, which is when the server
# has gone. Says facts as JSON, a line each.
sub main {
    my $orders = $JSON->decode(scalar <STDIN> // '{}');
    $| = 1;
    $0 = 'peregrine (certificates)';
    my $keeper = __PACKAGE__->new(%$orders, say => sub { print $JSON->encode({@_}), "\n" or exit 1 });
    while (1) {
        my $seconds = $keeper->work;
        my $reads   = '';
        vec($reads, fileno STDIN, 1) = 1;
        select($reads, undef, undef, $seconds) and return;
    }
    return;
}

sub _tell {
    my ($self, $level, $text) = @_;
    $self->{say}->(level => $level, text => $text);
    return;
}

# Does what is due. Returns the seconds to the next look.
sub work {
    my ($self) = @_;
    my $wait = LOOK_S;
    for my $names (@{ $self->{orders} }) {
        my $due = $self->_due($names);
        $due  = $self->_try($names) if $due <= time;
        $wait = min($wait, max($due - time, 1));
    }
    return $wait;
}

# ---- When ---------------------------------------------------------------------------------------

sub _facts {
    my ($self, $names) = @_;
    my $pem   = $self->{store}->certificate($names->[0]) // return;
    my $facts = Peregrine::Acme::Certificate::facts($pem);
    return $facts && "@{[ sort @{ $facts->{names} } ]}" eq "@{[ sort @$names ]}" ? $facts : ();
}

# A number from 0 to 1, the same for a certificate each time.
sub _chance {
    my ($names, $certificate) = @_;
    return unpack('N', sha256("@$names $certificate->{from}")) / 2**32;
}

# When the certificate is to be renewed; a time that has passed: now.
sub _due {
    my ($self, $names)       = @_;
    my ($name, $certificate) = ($names->[0], $self->_facts($names));
    my $state = $self->{store}->state($name);
    my $due   = Peregrine::Acme::Schedule::renewal(
        certificate => $certificate,
        $certificate
        ? (window => $self->_window($name, $certificate, $state), chance => _chance($names, $certificate))
        : (),
    );
    $self->{say}->(
        certificate => $name,
        to          => $certificate ? $certificate->{to} : 0,
        failures    => $state->{failures} // 0,
        error       => $state->{error},
        due         => max($due, $state->{next} // 0),
    );
    return max($due, $state->{next} // 0);
}

# The window that the authority suggests for a certificate. An authority that does not answer is asked again
# later.
sub _window {
    my ($self, $name, $certificate, $state) = @_;
    my $ari   = $certificate->{ari} // return;
    my $known = $state->{window} || {};
    $known = {} if ($known->{ari} // '') ne $ari;
    if (($known->{ask} // 0) <= time) {
        my $window = eval { $self->_client->renewal_window($ari) };
        $self->_tell(debug => "the authority suggests no time for renewal: $@") if $@;
        $known = {
            %$known,
            ari => $ari,
            ask => time + Peregrine::Acme::Schedule::next_question($window && $window->{retry_after}),
            $window ? map { $_ => $window->{$_} } qw(start end) : (),
        };
        $self->{store}->keep_state($name, { %$state, window => $known });
    }
    return defined $known->{start} ? $known : undef;
}

# ---- What ---------------------------------------------------------------------------------------

sub _client {
    my ($self) = @_;
    my $key = $self->{store}->account_key($self->{directory}, \&Peregrine::Acme::Client::new_key);
    return Peregrine::Acme::Client->new(
        account_key => $key,
        map { $_ => $self->{$_} } qw(directory contact eab ca_file agrees)
    );
}

# Several servers may share the folder: the first one to come has the certificate for all. Returns when to try
# again.
sub _try {
    my ($self, $names) = @_;
    my ($store, $name) = ($self->{store}, $names->[0]);
    my $lock = $store->lock($name) or return time + LOCKED_S;
    my $due  = $self->_due($names);
    return $due if $due > time;
    my $state = $store->state($name);
    my $facts = $self->_facts($names);
    if (eval { $self->_order($names, $state->{window} && $facts ? $facts->{ari} : undef); 1 }) {
        $store->keep_state($name, {});
        return $self->_due($names);
    }
    my $problem  = $@;
    my $failures = ($state->{failures} // 0) + 1;
    my $wait     = Peregrine::Acme::Schedule::patience(
        failures    => $failures,
        retry_after => ref $problem ? $problem->retry_after : undef,
        chance      => rand,
    );
    my $text = "$problem" =~ s/\s+\z//r;
    $store->keep_state($name, { %$state, failures => $failures, next => int(time + $wait), error => $text });
    $self->_tell(error => "no certificate for @$names: $text"
            . ($facts ? '; the old one stays until ' . _day($facts->{to}) : '')
            . "; the next attempt is in ${\_in_words($wait)}");
    return time + $wait;
}

sub _order {
    my ($self,  $names,  $replaces) = @_;
    my ($store, $client, $key)      = ($self->{store}, $self->_client, Peregrine::Acme::Client::new_key());
    $self->_tell(info => "a certificate for @$names is ordered from $self->{directory}");
    my $chain = $client->certificate(
        names    => $names,
        key      => $key,
        replaces => $replaces,
        present  => sub { $store->present(@_) },
        remove   => sub { $store->remove(@_) },
    );
    my $facts = Peregrine::Acme::Certificate::facts($chain)
        or die "the authority's certificate cannot be read\n";
    $store->keep_certificate($names->[0], $chain, $key);
    $self->{say}->(came => $names->[0]);
    $self->_tell(info => "a certificate for @$names has come, good until " . _day($facts->{to}));
    return;
}

sub _day { return strftime('%Y-%m-%d %H:%M UTC', gmtime $_[0]) }

sub _in_words {
    my ($seconds) = @_;
    return
          $seconds < 120  ? int($seconds) . ' seconds'
        : $seconds < 7200 ? int($seconds / 60) . ' minutes'
        :                   int($seconds / 3600) . ' hours';
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Acme::Keeper - orders certificates and renews them

=head1 SYNOPSIS

    my $keeper = Peregrine::Acme::Keeper->new(
        orders    => [ [ 'example.org', 'www.example.org' ] ],
        directory => $url,
        folder    => $folder,
        agrees    => 1,
        say       => sub { my (%fact) = @_; ... },
    );
    while (1) { sleep $keeper->work }

=head1 DESCRIPTION

The work of the process that L<Peregrine::Server::Certificates> starts. After a failure it waits as
L<Peregrine::Acme::Schedule> says, which a restart does not forget. Where several servers have one folder,
the first one that finds a certificate due orders it for all.

=head1 METHODS

=head2 new

See above; C<contact>, C<eab> and C<ca_file> are those of L<Peregrine::Acme::Client>. C<say> gets C<level> and
C<text> for the log; C<came> with a name when a certificate has come; and C<certificate> with C<to>, C<due>,
C<failures> and C<error> when it was looked at.

=head2 main

The program: takes these arguments as JSON from standard input, and says facts as JSON, a line each, until
the input ends.

=head2 work

Does what is due. Returns the seconds to the next look, a minute at most: the clock may be set.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
