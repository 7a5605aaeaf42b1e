# A covering array: few rows, in which each allowed pair of settings of different factors occurs. Each row is
# made greedily (AETG): it begins with a pair that no row has yet, and each further factor takes the setting
# that adds the most new pairs, as long as the rest of the row can still be filled in. A seed always gives the
# same rows.
package Pairs::Array;
use v5.36;
use List::Util qw(first shuffle);

use constant CANDIDATES => 8;    # candidates that are tried for each row that is taken

# `factors`: a list of [ name, settings ]; `never`: a list of rules. A rule is a hash, factor => list of
# settings; a row that has one of the settings of each factor is not allowed.
sub new ($class, %given) {
    my @factors = @{ $given{factors} };
    my $self    = bless {
        names    => [ map { $_->[0] } @factors ],
        settings => { map { $_->[0] => [ @{ $_->[1] } ] } @factors },
        never    => [ map { _compiled($_) } @{ $given{never} // [] } ],
        about    => {},
    }, $class;
    for my $rule (@{ $self->{never} }) { push @{ $self->{about}{$_} }, $rule for keys %$rule }
    return $self;
}

sub _compiled ($rule) {
    return {
        map {
            my $name = $_;
            ($name => { map { $_ => 1 } @{ $rule->{$name} } })
        } keys %$rule
    };
}

# Whether no rule forbids these settings; factors without a setting break no rule. `name`: only the rules
# about this factor are tried.
sub is_allowed ($self, $row, $name = undef) {
    my $rules = defined $name ? $self->{about}{$name} // [] : $self->{never};
RULE: for my $rule (@$rules) {
        for my $factor (keys %$rule) {
            my $setting = $row->{$factor} // next RULE;
            next RULE if !$rule->{$factor}{$setting};
        }
        return 0;
    }
    return 1;
}

# A complete row with these settings; undef if there is none. `name`: without this factor the row is allowed.
sub completed ($self, $row, $name = undef) {
    return $self->is_allowed($row, $name) ? $self->_filled_in({%$row}) : undef;
}

# Fills in a row that is allowed so far.
sub _filled_in ($self, $row) {
    my $name = first { !defined $row->{$_} } @{ $self->{names} };
    return $row if !defined $name;
    for my $setting (@{ $self->{settings}{$name} }) {
        $row->{$name} = $setting;
        return $row if $self->is_allowed($row, $name) && $self->_filled_in($row);
    }
    delete $row->{$name};
    return;
}

# The names of all pairs of a row.
sub pairs_of ($self, $row) {
    my @names = grep { defined $row->{$_} } @{ $self->{names} };
    my @pairs;
    for my $at (0 .. $#names) {
        push @pairs, join "\0", map { ($_, $row->{$_}) } $names[$at], $_ for @names[ $at + 1 .. $#names ];
    }
    return @pairs;
}

# How many open pairs a row would get with this setting of a factor.
sub _gain ($self, $row, $factor, $setting, $open) {
    my ($gain, $is_behind, $own) = (0, 0, "$factor\0$setting");
    for my $name (@{ $self->{names} }) {
        if ($name eq $factor) { $is_behind = 1; next }
        my $other = $row->{$name} // next;
        $gain++ if $open->{ $is_behind ? "$own\0$name\0$other" : "$name\0$other\0$own" };
    }
    return $gain;
}

# All pairs that some allowed row has.
sub all_pairs ($self) { return @{ $self->{all_pairs} //= [ $self->_possible_pairs ] } }

sub _possible_pairs ($self) {
    my @names = @{ $self->{names} };
    my @pairs;
    for my $at (0 .. $#names) {
        for my $other ($at + 1 .. $#names) {
            for my $one (@{ $self->{settings}{ $names[$at] } }) {
                for my $two (@{ $self->{settings}{ $names[$other] } }) {
                    my $row = { $names[$at] => $one, $names[$other] => $two };
                    push @pairs, $self->pairs_of($row) if $self->completed($row);
                }
            }
        }
    }
    return @pairs;
}

# The rows in the order in which they were found, the first ones with the most new pairs; and behind them the
# given rows, which are wanted in any case.
sub rows ($self, $seed, @given) {
    srand $seed;
    my @wanted = $self->all_pairs;
    my %open   = map { $_ => 1 } @wanted;
    delete @open{ map { $self->pairs_of($_) } @given };
    my @rows;
    while (%open) {
        my @best;
        for my $begin ((shuffle grep { $open{$_} } @wanted)[ 0 .. CANDIDATES - 1 ]) {
            next if !defined $begin;
            my $row = $self->_candidate($begin, \%open);
            my $new = grep { $open{$_} } $self->pairs_of($row);
            @best = ($row, $new) if !@best || $new > $best[1];
        }
        delete @open{ $self->pairs_of($best[0]) };
        push @rows, $best[0];
    }
    return (@rows, @given);
}

sub _candidate ($self, $begin, $open) {
    my $row = { split /\0/, $begin };
    for my $name (shuffle grep { !defined $row->{$_} } @{ $self->{names} }) {
        my @ranked = shuffle @{ $self->{settings}{$name} };
        my %gain   = map { $_ => $self->_gain($row, $name, $_, $open) } @ranked;
        $row->{$name} = first { $self->completed({ %$row, $name => $_ }, $name) }
            sort { $gain{$b} <=> $gain{$a} } @ranked;
    }
    return $row;
}

1;
