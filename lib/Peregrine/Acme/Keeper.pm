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
use Peregrine::Acme::Validation;
use POSIX qw(strftime);

# Seconds between two looks at the clock, which may be set; at a lock that another server has; and at requests
# of `peregrine renew`.
use constant { LOOK_S => 60, LOCKED_S => 5, ASKED_S => 1 };

# The failure of an order whose certificate should be renewed at once: without it each look would order again.
use constant EARLY => 'the certificate that has come should be renewed at once: is the clock right?';

my $JSON = JSON::PP->new->canonical->utf8;

# `orders`: lists of names, one for each certificate; `directory`, `folder`, `contact`, `eab`, `ca_file`,
# `agrees`, `challenges` (their types, the first one is tried first); `say` gets facts.
sub new {
    my ($class, %args) = @_;
    my $store = Peregrine::Acme::Store->new($args{folder})->make->sweep;
    return bless { %args, store => $store, presence => $store->enter }, $class;
}

# Characters of a problem that are told: an authority's text may be long.
use constant PROBLEM_MAX => 2000;

# The process: reads its orders as JSON from standard input, and ends when that does, which is when the server
# has gone. Says facts as JSON, a line each.
sub main {
    my $orders = $JSON->decode(scalar <STDIN> // '{}');
    $| = 1;
    # SIGPIPE comes from an authority that closes a connection, or from a server that has gone.
    $SIG{PIPE} = 'IGNORE';
    $0 = 'peregrine (certificates, orders)';
    my $keeper = __PACKAGE__->new(%$orders, say => sub { print $JSON->encode({@_}), "\n" or exit 1 });
    1 while $keeper->_wait($keeper->work);
    return;
}

# Waits `seconds`, or until a renewal is asked for. False: the input has ended.
sub _wait {
    my ($self, $seconds) = @_;
    while ($seconds > 0) {
        vec(my $reads = '', fileno STDIN, 1) = 1;
        return 0 if select $reads, undef, undef, min($seconds, ASKED_S);
        return 1 if grep { $self->{store}->is_asked($_->[0]) } @{ $self->{orders} };
        $seconds -= ASKED_S;
    }
    return 1;
}

sub _tell {
    my ($self, $level, $text) = @_;
    $self->{say}->(level => $level, text => substr $text, 0, 2 * PROBLEM_MAX);
    return;
}

# Makes the orders that are due. Returns the seconds to the next look.
sub work {
    my ($self) = @_;
    my $wait = LOOK_S;
    for my $names (@{ $self->{orders} }) {
        my $due = eval { $self->_work_for($names) } // $self->_troubled($names, $@);
        $wait = min($wait, max($due - time, 1));
    }
    return $wait;
}

sub _work_for {
    my ($self, $names) = @_;
    my $held = $self->{trouble}{ $names->[0] };
    return $held->{until}
        if $held
        && Peregrine::Acme::Schedule::believed($held->{until}, time) > time
        && !$self->{store}->is_asked($names->[0]);
    my $due = $self->_due($names);
    $due = $self->_try($names) if $due <= time;
    $self->_report($names, $due);
    delete $self->{trouble}{ $names->[0] };
    return $due;
}

# Handles a folder that cannot be used: nothing is ordered, as it could not be stored. The wait before the
# next attempt cannot be stored either, so it is kept in memory.
sub _troubled {
    my ($self, $names, $problem) = @_;
    my $held = $self->{trouble}{ $names->[0] } ||= { failures => 0 };
    my $wait = Peregrine::Acme::Schedule::patience(failures => ++$held->{failures}, chance => rand);
    $held->{until} = time + $wait;
    $self->{say}->(failed => $names->[0]);
    $self->_fail($names, $problem, $wait);
    eval { $self->_report($names, $held->{until}, $problem); 1 }
        or $self->_tell(debug => "the folder cannot be read: $@");
    return $held->{until};
}

# ---- Times of renewals --------------------------------------------------------------------------

sub _facts {
    my ($self, $names) = @_;
    my $pem   = $self->{store}->certificate($names->[0]) // return;
    my $facts = Peregrine::Acme::Certificate::facts($pem);
    return $facts && "@{[ sort @{ $facts->{names} } ]}" eq "@{[ sort @$names ]}" ? $facts : ();
}

# A number from 0 to 1, always equal for one certificate.
sub _chance {
    my ($names, $certificate) = @_;
    return unpack('N', sha256("@$names $certificate->{from}")) / 2**32;
}

# The time at which the certificate is to be renewed; a time that has passed: now.
sub _due {
    my ($self, $names)       = @_;
    my ($name, $certificate) = ($names->[0], $self->_facts($names));
    $self->_ask_for_window($name, $certificate->{ari}) if $certificate && defined $certificate->{ari};
    return $self->_due_by($names, $certificate, $self->{store}->state($name));
}

# Like next_attempt; but an order that `peregrine renew` asks for is due at once, and one whose certificate
# could not be stored waits as after a failure.
sub _due_by {
    my ($self, $names, $certificate, $state) = @_;
    return 0                                                         if $self->{store}->is_asked($names->[0]);
    return Peregrine::Acme::Schedule::believed($state->{next}, time) if $self->{unkept}{ $names->[0] };
    return next_attempt($names, $certificate, $state);
}

# The time of the next attempt, as far as the folder knows; 0: no certificate, and nothing to wait for.
sub next_attempt {
    my ($names, $certificate, $state) = @_;
    my $window = $state->{window};
    my $due    = Peregrine::Acme::Schedule::renewal(
        certificate => $certificate,
        $certificate
        ? (
            chance => _chance($names, $certificate),
            window => _is_of($window, $certificate->{ari})
                && defined $window->{start} ? $window : undef,
            )
        : (),
    );
    return max($due, Peregrine::Acme::Schedule::believed($state->{next}, time));
}

sub _is_of {
    my ($window, $ari) = @_;
    return ref $window eq 'HASH' && defined $ari && ($window->{ari} // '') eq $ari;
}

# The window that the authority suggests for a certificate becomes part of the state. An authority that does
# not answer is asked again later. While another server has the lock, the state is that server's to change.
sub _ask_for_window {
    my ($self, $name, $ari) = @_;
    my $store = $self->{store};
    my $known = $store->state($name)->{window};
    return if _is_of($known, $ari) && Peregrine::Acme::Schedule::believed($known->{ask}, time) > time;
    my $lock   = $store->lock($name) or return;
    my $window = eval { $self->_client->renewal_window($ari) };
    $self->_tell(debug => "the authority suggests no time for renewal: $@") if $@;
    my $state = $store->state($name);
    $store->keep_state(
        $name,
        {
            %$state,
            window => {
                _is_of($state->{window}, $ari) ? %{ $state->{window} } : (),
                ari => $ari,
                ask => time + Peregrine::Acme::Schedule::next_question($window && $window->{retry_after}),
                $window ? map { $_ => $window->{$_} } qw(start end) : (),
            }
        }
    );
    return;
}

# Says the facts of a certificate, which the server shows.
sub _report {
    my ($self, $names, $due, $problem) = @_;
    my $facts = $self->_facts($names);
    my $state = $self->{store}->state($names->[0]);
    $self->{say}->(
        certificate => $names->[0],
        from        => $facts ? $facts->{from} : 0,
        to          => $facts ? $facts->{to}   : 0,
        due         => int $due,
        attempt     => $state->{attempt}  // 0,
        failures    => $state->{failures} // 0,
        problem     => substr($problem // $state->{error} // '', 0, PROBLEM_MAX),
    );
    return;
}

# ---- Orders -------------------------------------------------------------------------------------

sub _client {
    my ($self) = @_;
    my $key = $self->{store}->account_key($self->{directory}, \&Peregrine::Acme::Client::new_key);
    return Peregrine::Acme::Client->new(
        account_key => $key,
        map { $_ => $self->{$_} } qw(directory contact eab ca_file agrees)
    );
}

# Orders a certificate that is due. Of several servers that share the folder, the first one orders it for all.
# Returns the time of the next attempt.
sub _try {
    my ($self, $names) = @_;
    my ($store, $name) = ($self->{store}, $names->[0]);
    my $lock  = $store->lock($name) or return time + LOCKED_S;
    my $facts = $self->_facts($names);
    my $state = $store->state($name);
    my $due   = $self->_due_by($names, $facts, $state);
    return $due if $due > time;
    # A request that comes while a certificate is ordered for another reason is for the next order.
    my $asked = $store->is_asked($name);
    $state = $self->_begin($name, $state);
    my $window = $state->{window};
    my $came   = eval {
        $self->_order(
            $names, $self->_type($state),
            # An authority that has suggested a window knows the certificate.
            $facts && _is_of($window, $facts->{ari}) && defined $window->{start} ? $facts->{ari} : undef
        );
        1;
    };
    my $problem = $@;
    $due = eval { $came ? $self->_came($names, $state) : $self->_failed($names, $state, $problem) };
    my $trouble = $@;
    # `peregrine renew` reads the state when its request is gone, so the request goes after the state is kept.
    # The request goes even where the state cannot be kept: there would be an order at each look.
    $store->answer($name) if $asked;
    die $trouble          if !defined $due;
    undef $lock;
    return $due || $self->_due($names);
}

# Notes that an order was successful. Returns the time of the next attempt; 0 if the certificate says that.
sub _came {
    my ($self, $names, $state) = @_;
    $self->{say}->(came => $names->[0]);
    return $self->_failed($names, $state, EARLY) if next_attempt($names, $self->_facts($names), {}) <= time;
    $self->{store}
        ->keep_state($names->[0], { attempt => $state->{attempt}, challenge => $self->_type($state) });
    return 0;
}

# The type of the challenges of an attempt. A port may be closed to the authority: after a failure the other
# type is tried, and the one that was successful at last is the first of the next renewal.
sub _type {
    my ($self, $state) = @_;
    my @types = @{ $self->{challenges} };
    my ($good) = grep { $types[$_] eq ($state->{challenge} // '') } 0 .. $#types;
    return $types[ (($good // 0) + ($state->{failures} // 0)) % @types ];
}

# Notes an attempt in the folder before anything is asked of the authority: if the folder cannot be written,
# nothing is ordered, and attempts that die with the process count. The first of these is repeated at once.
sub _begin {
    my ($self, $name, $state) = @_;
    my $broken = $state->{broken} // 0;
    my $began  = { %$state, broken => $broken + 1, attempt => time };
    $began->{next} = int(time + Peregrine::Acme::Schedule::patience(failures => $broken, chance => rand))
        if $broken;
    $self->{store}->keep_state($name, $began);
    delete $began->{broken};
    return $began;
}

sub _failed {
    my ($self, $names, $state, $problem) = @_;
    my $failures = ($state->{failures} // 0) + 1;
    my $wait     = Peregrine::Acme::Schedule::patience(
        failures    => $failures,
        retry_after => ref $problem ? $problem->retry_after : undef,
        chance      => rand,
    );
    my $text   = "$problem" =~ s/\s+\z//r;
    my $failed = { %$state, failures => $failures, next => int(time + $wait), error => $text };
    my ($type, $next) = map { $self->_type($_) } $state, $failed;
    $self->{say}->(failed => $names->[0]);
    $self->_fail($names, $text, $wait, $type eq $next ? '' : " and by $next");
    $self->{store}->keep_state($names->[0], $failed);
    return time + $wait;
}

sub _fail {
    my ($self, $names, $problem, $wait, $how) = @_;
    my $facts = eval { $self->_facts($names) };
    $self->_tell(debug => "the folder cannot be read: $@") if $@;
    $self->_tell(error => "no certificate for @$names: "
            . substr("$problem" =~ s/\s+\z//r, 0, PROBLEM_MAX)
            . ($facts ? '; the old one stays until ' . _day($facts->{to}) : '')
            . "; the next attempt is in ${\_in_words($wait)}"
            . ($how // ''));
    return;
}

# Orders and stores a certificate. One that could not be stored is kept in memory for the next attempt,
# because authorities issue few.
sub _order {
    my ($self, $names, $type, $replaces) = @_;
    my $name = $names->[0];
    my $new  = $self->{unkept}{$name} ||= $self->_ordered($names, $type, $replaces);
    $self->{store}->keep_certificate($name, @{$new}{qw(chain key)});
    delete $self->{unkept}{$name};
    $self->_tell(info => "a certificate for @$names has come, good until " . _day($new->{to}));
    return;
}

sub _ordered {
    my ($self, $names, $type, $replaces) = @_;
    my ($store, $client, $key) = ($self->{store}, $self->_client, Peregrine::Acme::Client::new_key());
    $self->_tell(info => "a certificate for @$names is ordered from $self->{directory}");
    my $chain = $client->certificate(
        names    => $names,
        key      => $key,
        replaces => $replaces,
        %{ $self->_challenge($type) },
    );
    my $facts = Peregrine::Acme::Certificate::facts($chain)
        or die "the authority's certificate cannot be read\n";
    return { chain => $chain, key => $key, to => $facts->{to} };
}

# Functions that show the authority the answer to a challenge, by HTTP or by TLS, and remove it.
sub _challenge {
    my ($self, $type) = @_;
    my $store = $self->{store};
    return {
        challenge => $type,
        $type eq 'tls-alpn-01'
        ? (
            present => sub {
                my (undef, $content, $name) = @_;
                $store->present_certificate($name, Peregrine::Acme::Validation::certificate($name, $content));
            },
            remove => sub { $store->remove_certificate($_[1]) },
            )
        : (present => sub { $store->present(@_[ 0, 1 ]) }, remove => sub { $store->remove($_[0]) })
    };
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
        challenges => [ 'http-01', 'tls-alpn-01' ],
        say       => sub { my (%fact) = @_; ... },
    );
    while (1) { sleep $keeper->work }

=head1 DESCRIPTION

The work of the process that L<Peregrine::Acme::Process> starts. After a failure it waits as
L<Peregrine::Acme::Schedule> says, which a restart does not forget. Where several servers have one folder,
the first one that finds a certificate due orders it for all.

=head1 METHODS

=head2 new

See above; C<contact>, C<eab> and C<ca_file> are those of L<Peregrine::Acme::Client>. C<say> gets C<level> and
C<text> for the log; C<came> with a name when a certificate has come, C<failed> when an attempt has failed;
and C<certificate> with C<from>, C<to>, C<due>, C<attempt>, C<failures> and C<problem> after each look.

=head2 main

The program: takes these arguments as JSON from standard input, and says facts as JSON, a line each, until
the input ends.

=head2 work

Does what is due. Returns the seconds to the next look, a minute at most: the clock may be set.

=head1 FUNCTIONS

=head2 next_attempt

    my $time = Peregrine::Acme::Keeper::next_attempt(\@names, $certificate, $state);

When a certificate is ordered again, as far as its facts and its state in the folder tell.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
