package PAGI::Server::Options::Type;

use strict;
use warnings;

our $VERSION = '0.003000';

use PAGI::Server::AccessLog;
use PAGI::Server::AppKind;
use PAGI::Server::Folders;
use PAGI::Server::PoolHandlers;
use Peregrine;
use Peregrine::Place;
use Peregrine::Processors;
use Scalar::Util qw(blessed looks_like_number reftype);

sub _in_range {
    my ($option, $value) = @_;
    return 0 if $value && $value < ($option->{least} // 0);
    return $value >= $option->{min} && $value <= $option->{max};
}

sub _is_text {
    my ($value) = @_;
    return defined $value && !ref $value && length $value;
}

sub _is_count {
    my ($option, $value) = @_;
    return _is_text($value) && $value =~ /\A[0-9]+\z/ && _in_range($option, $value);
}

sub _boolean {
    my ($text) = @_;
    return 1 if $text =~ /\A(?:1|yes|true|on)\z/i;
    return 0 if $text =~ /\A(?:0|no|false|off)\z/i;
    return $text;
}

# The bytes and the seconds of each unit.
my %BYTES   = (K  => 1 << 10, M => 1 << 20, G => 1 << 30);
my %SECONDS = (ms => 1 / 1000, s => 1, m => 60, h => 3600);
my $INTEGER = qr/[0-9]+(?:_[0-9]+)*/;

# An integer such as 1_000_000.
sub _integer {
    my ($text) = @_;
    return $text =~ /\A$INTEGER\z/ ? $text =~ tr/_//dr : $text;
}

# A number of bytes such as 64K, 10M or 1G.
sub _bytes {
    my ($text) = @_;
    return $text =~ /\A($INTEGER)([KMG])\z/i ? _integer($1) * $BYTES{ uc $2 } : _integer($text);
}

# A number of seconds such as 500ms, 1.5s, 10m or 2h.
sub _seconds {
    my ($text) = @_;
    return $text =~ /\A($INTEGER|[0-9]*\.[0-9]+)(ms|s|m|h)\z/ ? _integer($1) * $SECONDS{$2} : _integer($text);
}

# A burst and a rate, such as 1000/33.
sub _rate {
    my ($text) = @_;
    return $text =~ m{\A($INTEGER)/($INTEGER)\z} ? { burst => _integer($1), rate => _integer($2) } : $text;
}

# For each type: the allowed values in words (`words`); a check of a value, by a pattern (`like`), the kind of
# a reference (`reference`) or a function (`allows`), and with `optional` undef passes; a function that makes
# a value of a word of a command line (`parse`); and one for the number that a value stands for. Or a function
# that returns the mistake in a value (`complaint`).
my %TYPES = (
    string => { words => 'a string that is not empty', like => qr/./s },
    word   => { words => 'a word',                     like => qr/\A[\w-]+\z/ },
    hosts  => {
        words => 'names of hosts without ports, separated by commas',
        like  => qr/\A\s*[\w.-]+\s*(?:,\s*[\w.-]+\s*)*\z/,
    },
    target => {
        words => 'a path that begins with "/", without "?" and "#", of at most 255 visible ASCII characters,'
            . ' or undef',
        like     => qr{\A(?!.*[?#])/[!-~]{0,254}\z},
        optional => 1,
    },
    targets => {
        words =>
            'paths that begin with "/", separated by commas, of at most 255 visible ASCII characters each,'
            . ' or undef',
        allows => sub {
            _is_text($_[1]) && !grep { !m{\A/[!-~]{0,254}\z} || /#/ } split /,/, $_[1], -1;
        },
        optional => 1,
    },
    boolean  => { words => '0 or 1', like => qr/\A[01]?\z/, optional => 1, parse => \&_boolean },
    channels => {
        words  => '0, 1, memory:// or the URL of a Redis',
        allows => \&_is_channels,
        why    => sub { _redis_problem($_[1]) },
        parse  => \&_boolean,
        # A URL may have a password, in which a slash may not be escaped.
        shown => sub { $_[0] =~ s{//.*\@}{//...\@}sr },
    },
    topics => {
        words => 'the beginning of names of topics (letters, digits, and . - _ :)',
        like  => qr/\A[A-Za-z0-9._:-]{1,100}\z/,
    },
    integer => {
        words  => sub { "an integer from $_[0]{min} to $_[0]{max}" },
        allows => \&_is_count,
        number => \&_integer,
    },
    workers => {
        words  => sub { "an integer from $_[0]{min} to $_[0]{max}, or auto" },
        allows => \&_is_count,
        number => sub { $_[0] eq 'auto' ? Peregrine::Processors::count() : _integer($_[0]) },
    },
    bytes => {
        words => sub {
            my ($option) = @_;
            my $least = $option->{least} ? ", if not 0 at least $option->{least}" : '';
            return
                "an integer from $option->{min} to $option->{max}$least (bytes; K, M and G are understood)";
        },
        allows => \&_is_count,
        number => \&_bytes,
    },
    seconds => {
        words  => sub { "a number of seconds from $_[0]{min} to $_[0]{max} (ms, s, m and h are understood)" },
        allows => sub { _is_text($_[1]) && looks_like_number($_[1]) && _in_range(@_) },
        number => \&_seconds,
    },
    choice => {
        words  => sub { 'one of ' . join ' ', @{ $_[0]{of} } },
        allows => sub {
            my ($option, $value) = @_;
            return _is_text($value) && grep { $_ eq $value } @{ $option->{of} };
        },
    },
    class => { words => 'the name of a class', like => qr/\A[A-Za-z_]\w*(?:::\w+)*\z/, optional => 1 },
    code  => {
        words     => sub { 'a code reference' . ($_[0]{optional} ? ' or undef' : '') },
        reference => 'CODE',
        why       => sub {
            my $kind = blessed $_[1] ? PAGI::Server::AppKind::loaded() : undef;
            $kind && "it looks like $kind";
        },
    },
    rate => {
        words => sub {
            my ($of) = $_[0]{ranges};
            return 'a hash reference with '
                . join(' and ',
                map { "$_ (an integer from $of->{$_}{min} to $of->{$_}{max})" } sort keys %$of)
                . ', or these as BURST/RATE';
        },
        allows => sub {
            my ($option, $value) = @_;
            return
                   ref $value
                && reftype $value eq 'HASH'
                && !grep { !$option->{ranges}{$_} || !_is_count($option->{ranges}{$_}, $value->{$_}) }
                keys %$value;
        },
        number => \&_rate,
    },
    hash => { words => 'a hash reference', reference => 'HASH' },
    tls  => { words => 'a hash reference or undef', reference => 'HASH', optional => 1 },
    mode => {
        words  => 'an octal mode from 0000 to 0777',
        allows => sub { defined Peregrine::Place::mode_bits($_[1]) },
    },
    listen       => { complaint => \&Peregrine::Place::problem },
    networks     => { complaint => \&Peregrine::Place::networks_problem },
    certificates => { complaint => \&_problem_of_certificates },
    https        => { words     => 'a URL of https', like => qr{\Ahttps://[\w.:\[\]-]+(?:/[!-~]*)?\z} },
    pool         => { complaint => \&PAGI::Server::PoolHandlers::problem },
    folders      => { complaint => \&PAGI::Server::Folders::problem },
    log          => {
        words  => 'a path, "-" for standard output, an open file handle, or undef',
        allows => sub { PAGI::Server::AccessLog::is_target($_[1]) },
    },
    format => {
        words  => 'clf, combined, common, tiny, json, or made of percent atoms',
        allows => sub { _is_text($_[1]) && !defined PAGI::Server::AccessLog::format_problem($_[1]) },
        why    => sub { _is_text($_[1]) ? PAGI::Server::AccessLog::format_problem($_[1]) : undef },
    },
);
$TYPES{flag} = $TYPES{boolean};

# A value of an option without passwords, for people to read.
sub shown {
    my ($option, $value) = @_;
    my $shown = $TYPES{ $option->{type} }{shown};
    return $shown && defined $value ? $shown->($value) : $value;
}

sub problem {
    my ($option, $value) = @_;
    my $type = $TYPES{ $option->{type} };
    return $type->{complaint}->($value) if $type->{complaint};
    my $shown = defined $value ? q(') . shown($option, $value) . q(') : 'undef';
    if (_is_allowed($type, $option, number($option, $value))) {
        return if !$option->{missing} || !$value;
        return "cannot be $shown: $option->{missing}";
    }
    my $why   = $type->{why}       ? $type->{why}->($option, $value) : undef;
    my $words = ref $type->{words} ? $type->{words}->($option)       : $type->{words};
    return "must be $words, not $shown" . (defined $why ? " ($why)" : '');
}

sub _is_allowed {
    my ($type, $option, $value) = @_;
    return 1 if !defined $value && ($type->{optional} || $option->{optional});
    return ref $value && reftype $value eq $type->{reference} if $type->{reference};
    return defined $value && !ref $value && $value =~ $type->{like} if $type->{like};
    return $type->{allows}->($option, $value);
}

sub _is_channels {
    my (undef, $value) = @_;
    return 1 if !ref $value  && ($value // 0) =~ m{\A(?:[01]?|memory://)\z};
    return _is_redis($value) && !defined _redis_problem($value);
}

sub _redis_problem {
    my ($value) = @_;
    return if !_is_redis($value);
    return Peregrine::redis_problem($value);
}

sub _is_redis {
    my ($value) = @_;
    return _is_text($value) && $value =~ /\A(?:rediss?|unix):/;
}

# A function of its own, because only servers that order certificates load the module: JSON and others take a
# tenth of the time of a start.
sub _problem_of_certificates {
    my ($value) = @_;
    require Peregrine::Server::Certificates;
    return Peregrine::Server::Certificates::problem($value);
}

sub parse {
    my ($option, $text) = @_;
    my $parse = $TYPES{ $option->{type} }{parse};
    return $parse ? $parse->($text) : $text;
}

sub number {
    my ($option, $value) = @_;
    return $option->{also}{$value} if $option->{also} && _is_text($value) && exists $option->{also}{$value};
    my $number = $TYPES{ $option->{type} }{number};
    return $number && _is_text($value) ? $number->($value) : $value;
}

sub is_switch {
    my ($option) = @_;
    return $option->{type} =~ /\A(?:boolean|flag|channels)\z/;
}

# Whether a word is a value that a switch takes. Any other URL is a mistake, and no application.
sub is_word_of {
    my ($option, $word) = @_;
    return $option->{type} eq 'channels' && ($word =~ m{\A\w+://} || _is_redis($word));
}

# Whether an option can be switched off by `--no-`.
sub has_opposite {
    my ($option) = @_;
    return $option->{type} eq 'boolean' || $option->{type} eq 'channels' || $option->{name} eq 'access_log';
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Options::Type - what values an option may have

=head1 SYNOPSIS

    my $problem = PAGI::Server::Options::Type::problem($option, $value);

=head1 DESCRIPTION

An option is a row of L<PAGI::Server::Options::Table>.

=head1 FUNCTIONS

=head2 problem

    my $problem = PAGI::Server::Options::Type::problem($option, 70_000);
    # must be an integer from 0 to 65535, not '70000'

What is wrong with a value, as the end of a sentence; nothing if it is allowed.

=head2 parse

    my $value = PAGI::Server::Options::Type::parse($option, 'yes');    # 1

The value that a word of a command line or a configuration file stands for. It may still not be allowed.

=head2 number

    my $value = PAGI::Server::Options::Type::number($option, '64K');    # 65536

The number that a value stands for: C<_> between digits means nothing, bytes may be given with C<K>
(1024), C<M> or C<G>, times with C<ms>, C<s>, C<m> or C<h>. Everything else stays as it is, and may
still not be allowed.

=head2 is_word_of

    say 'it is the value' if PAGI::Server::Options::Type::is_word_of($option, 'redis://localhost');

Whether a word behind a switch on the command line is its value: of C<channels> the URL of a Redis.

=head2 has_opposite

    say 'there is --no-x' if PAGI::Server::Options::Type::has_opposite($option);

=head2 is_switch

    say 'no value needed' if PAGI::Server::Options::Type::is_switch($option);

Whether the option's flag stands alone.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
