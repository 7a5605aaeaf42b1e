package PAGI::Server::CommandLine;

use strict;
use warnings;

our $VERSION = '0.003000';

use Getopt::Long ();
use PAGI::Server::Options;
use PAGI::Server::Options::Type;
use Peregrine::Nearest;

# Parses arguments. Dies with a reference to the text of a problem, which is meant for the user.
sub parse {
    my ($class, @arguments) = @_;
    my (%given, @problems);
    @arguments = _with_words(@arguments);
    my $parser = Getopt::Long::Parser->new(config => [qw(bundling no_auto_abbrev no_ignore_case permute)]);
    my %flags =
        map { _specification($_) => _taker(\%given, $_) }
        grep { defined flag($_) } PAGI::Server::Options::all();
    $flags{'no-access-log'} = sub { $given{access_log} = undef };
    {
        local $SIG{__WARN__} = sub { push @problems, $_[0] };
        $parser->getoptionsfromarray(\@arguments, %flags) or die \_readable(@problems, 'wrong command line');
    }
    return (\%given, @arguments);
}

# All flags that can be typed for an option.
sub typed_all {
    my ($option) = @_;
    my $flag     = flag($option) // return;
    my @typed    = (typed($option), map { "-$_" } grep { defined } $option->{short});
    push @typed, "--no-$flag" if PAGI::Server::Options::Type::has_opposite($option);
    return @typed;
}

# The long flag of an option without its dashes; undef if it has none.
sub flag {
    my ($option) = @_;
    return length $option->{flag} ? $option->{flag} : undef if defined $option->{flag};
    return $option->{name} =~ tr/_/-/r;
}

# The option's name as it is typed, with its dashes.
sub typed {
    my ($option) = @_;
    my $flag = flag($option);
    return length $flag > 1 ? "--$flag" : "-$flag";
}

sub _specification {
    my ($option) = @_;
    my $alias    = defined $option->{alias} ? $option->{alias} =~ tr/_/-/r : undef;
    my $names    = join '|', grep { defined } flag($option), $alias, $option->{short};
    return $names     if $option->{type} eq 'flag';
    return "$names!"  if $option->{type} eq 'boolean';
    return "$names:s" if $option->{type} eq 'channels';
    return "$names=s";
}

# Joins a switch and its optional value to one argument, so that no other word is taken for the value.
sub _with_words {
    my (@arguments) = @_;
    my %switches = map { typed($_) => $_ } grep { $_->{type} eq 'channels' } PAGI::Server::Options::all();
    my @words;
    while (@arguments) {
        my $argument = shift @arguments;
        return @words, $argument, @arguments if $argument eq '--';
        my $is_off = $argument =~ s/\A--no-/--/;
        my $option = $switches{$argument};
        if    (!$option) { push @words, ($is_off ? $argument =~ s/\A--/--no-/r : $argument) }
        elsif ($is_off)  { push @words, "$argument=0" }
        else {
            my $has_word = @arguments && PAGI::Server::Options::Type::is_word_of($option, $arguments[0]);
            push @words, "$argument=" . ($has_word ? shift @arguments : 1);
        }
    }
    return @words;
}

sub _taker {
    my ($given, $option) = @_;
    my $name = $option->{name};
    return
        sub { $given->{$name} = defined $given->{$name} ? die "option --config is given twice\n" : "$_[1]" }
        if $name eq 'config';
    return sub { push @{ $given->{$name} }, "$_[1]" }
        if $option->{many};
    return sub { $given->{$name} = "$_[1]" };
}

sub _readable {
    my ($problem) = @_;
    $problem =~ s/\s+\z//;
    return _unknown(length $1 > 1 ? "--$1" : "-$1") if $problem =~ /\AUnknown option: (.+)\z/;
    $problem =~ s/\AOption (\S+)/'option ' . (length $1 > 1 ? '--' : '-') . $1/e;
    return lcfirst $problem;
}

sub _unknown {
    my ($typed) = @_;
    return "unknown option '$typed'"
        . Peregrine::Nearest::hint($typed,
        grep { /\A--/ } map { typed_all($_) } PAGI::Server::Options::all());
}

# Makes values of words, and checks them.
sub values_of {
    my ($class, $given, $place) = @_;
    my %values;
    for my $name (sort keys %$given) {
        my $option = PAGI::Server::Options::find($name);
        my @values =
            map { _value($option, $_, $place) } $option->{many} ? @{ $given->{$name} } : $given->{$name};
        $values{$name} = $option->{many} ? \@values : $values[0];
    }
    return \%values;
}

sub _value {
    my ($option, $text, $place) = @_;
    my $named = $place ? "$place: option '$option->{name}'" : 'option ' . typed($option);
    # The application is a name here, and no code yet.
    return $text if $option->{type} eq 'code' || !defined $text;
    my $value   = PAGI::Server::Options::Type::parse($option, $text);
    my $problem = PAGI::Server::Options::Type::problem($option, $value);
    die \"$named $problem" if defined $problem;
    return PAGI::Server::Options::Type::number($option, $value);
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::CommandLine - the flags of pagi-server

=head1 SYNOPSIS

    my ($given, @words) = PAGI::Server::CommandLine->parse(@ARGV);
    my $options = PAGI::Server::CommandLine->values_of($given);

=head1 DESCRIPTION

The flags are made from L<PAGI::Server::Options::Table>. Problems are thrown as a reference to a text.

=head1 METHODS

=head2 parse

    my ($given, @words) = PAGI::Server::CommandLine->parse('app.pl', '--port', 8080);
    # { port => '8080' }, 'app.pl'

The words of each option that is there, and the words that belong to none.

=head2 values_of

    my $options = PAGI::Server::CommandLine->values_of($given);
    my $options = PAGI::Server::CommandLine->values_of($given, 'app.conf line 3');

Turns words into values. The second argument says where they were written, for messages.

=head1 FUNCTIONS

=head2 flag

    my $flag = PAGI::Server::CommandLine::flag($option);    # 'max-connections', or 'e'

An option's flag without dashes; undef if it has none.

=head2 typed

    my $flag = PAGI::Server::CommandLine::typed($option);    # '--max-connections', or '-e'

The name with its dashes.

=head2 typed_all

    my @flags = PAGI::Server::CommandLine::typed_all($option);    # '--quiet', '-q', '--no-quiet'

All that can be typed for an option, the short flag and the negation included; nothing if it has no flag.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
