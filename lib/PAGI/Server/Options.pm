package PAGI::Server::Options;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future::Exception;
use PAGI::Server::Options::Table;
use PAGI::Server::Options::Type;
use Peregrine;
use Scalar::Util qw(blessed);

my @SECTIONS = PAGI::Server::Options::Table::sections();
my @ALL      = map { my (undef, @options) = @$_; @options } @SECTIONS;
my %BY_NAME  = map {
    my $option = $_;
    map { $_ => $option } grep { defined } @{$option}{qw(name alias)}
} @ALL;
my %ENGINE = map { $_->{name} => $_ } Peregrine::options();

# Options of the constructor that environment variables may set. (The mode's variable is for the application.)
my @VARIABLES = grep { $_->{variable} && !$_->{only} } @ALL;

# An option that sets a limit of the engine has the limit's default and range.
for my $option (grep { $_->{engine} } @ALL) {
    my $limit = $ENGINE{ $option->{engine} }
        or die "PAGI::Server: the engine has no limit '$option->{engine}' for option '$option->{name}'\n";
    # The engine has milliseconds where an option has seconds.
    my $scale = $option->{scale} = $option->{engine} =~ /_ms\z/ ? 1000 : 1;
    # An integer stays one, however large: divided, it would be printed with an exponent.
    $option->{$_} = $limit->{$_} % $scale ? $limit->{$_} / $scale : int($limit->{$_} / $scale)
        for qw(default min max);
    $option->{live} //= 1;
    # The engine computes a limit that is below 0 by itself; a value that is given cannot be negative.
    $option->{min} = 0        if $option->{min} < 0;
    delete $option->{default} if $option->{default} < 0;
}

# An option that sets several limits has their ranges and defaults.
for my $option (grep { $_->{engines} } @ALL) {
    my %limits = map { $_ => $ENGINE{ $option->{engines}{$_} } } keys %{ $option->{engines} };
    $option->{ranges}  = { map { $_ => { min => $limits{$_}{min}, max => $limits{$_}{max} } } keys %limits };
    $option->{default} = { map { $_ => $limits{$_}{default} } keys %limits };
    $option->{shown}   = '{ ' . join(', ', map { "$_ => $limits{$_}{default}" } sort keys %limits) . ' }';
    $option->{shown_command} = join '/', map { $limits{$_}{default} } sort keys %limits;
}

for my $option (@ALL) {
    $option->{min}   //= 0      if defined $option->{max};
    $option->{shown} //= 'none' if !$option->{only} && !grep { exists $option->{$_} } qw(default engine);
}

# The option that sets a limit of the engine; the limit's own name if no option does.
sub of_limit {
    my ($limit)  = @_;
    my ($option) = grep { ($_->{engine} // '') eq $limit } @ALL;
    return $option ? $option->{name} : $limit;
}

sub sections { return @SECTIONS }

# Texts by option: that of the constructor's manual, and that of the command's manual if it differs.
my $TEXTS;

sub about {
    my ($option, $for_command) = @_;
    $TEXTS ||= _texts();
    my ($text, $command) = @{ $TEXTS->{ $option->{name} } || [] };
    return $for_command ? $command // $text : $text;
}

sub _texts {
    my $path = __FILE__ =~ s/\.pm\z/\/Texts.pod/r;
    open my $in, '<', $path or die "$path: $!\n";
    local $/ = '';
    my (%texts, $name);
    while (defined(my $paragraph = readline $in)) {
        my ($command, $text) = $paragraph =~ s/\s+/ /gr =~ /\A(=\w+(?: \w+)?)? ?(.*?) \z/;
        if    (!defined $command)              { $texts{$name}[0] = $text if defined $name }
        elsif ($command eq '=for command')     { $texts{$name}[1] = $text }
        elsif ($command =~ /\A=head2 (\w+)\z/) { $name = $1 }
        else                                   { undef $name }
    }
    return \%texts;
}

sub all { return @ALL }

sub find {
    my ($name) = @_;
    return $BY_NAME{$name};
}

sub names {
    return sort map { $_->{name} } grep { !$_->{only} } @ALL;
}

sub is_known {
    my ($name) = @_;
    return $BY_NAME{$name} && !$BY_NAME{$name}{only} ? 1 : 0;
}

# Options under the names of the table, which may be given under their aliases.
sub canonical {
    my (%given) = @_;
    my %named;
    for my $key (sort keys %given) {
        my $name = $BY_NAME{$key} ? $BY_NAME{$key}{name} : $key;
        die "options '$name' and '$BY_NAME{$name}{alias}' are the same one: only one can be given\n"
            if exists $named{$name};
        $named{$name} = $given{$key};
    }
    return %named;
}

# Options of the constructor that environment variables have.
sub from_environment {
    my %given;
    for my $option (grep { length($ENV{ $_->{variable} } // '') } @VARIABLES) {
        my $value   = $ENV{ $option->{variable} };
        my $problem = PAGI::Server::Options::Type::problem($option, $value);
        die variable($option->{name}) . " (option '$option->{name}') $problem\n"
            if defined $problem;
        $given{ $option->{name} } = $value;
    }
    return %given;
}

# An exception for a mistake in an option that is found only at the start: with the text for programs, and the
# text without PAGI::Server's name, for servers with another name.
sub exception {
    my ($problem) = @_;
    return Future::Exception->new("PAGI::Server: $problem\n", 'option', $problem);
}

# The text of the problem, if the error was made by `exception`; otherwise undef.
sub problem_in {
    my ($error) = @_;
    my $is_ours = blessed $error && $error->isa('Future::Exception') && $error->category eq 'option';
    return $is_ours ? ($error->details)[0] : undef;
}

sub variable {
    my ($name) = @_;
    return "the environment variable $BY_NAME{$name}{variable}";
}

# Deletes the environment variables of options, which are meant only for the process that a user has started.
sub forget_environment {
    delete @ENV{ map { $_->{variable} } @VARIABLES };
    return;
}

sub defaults {
    return map { $_->{name} => $_->{default} } grep { !$_->{only} && exists $_->{default} } @ALL;
}

# The options that have another default for a kind of application.
sub defaults_of {
    my ($whose) = @_;
    return map { $_->{name} => $_->{default_of}{$whose} }
        grep { exists +($_->{default_of} || {})->{$whose} } @ALL;
}

sub check {
    my ($name, $value) = @_;
    my $problem = PAGI::Server::Options::Type::problem($BY_NAME{$name}, $value);
    die "option '$name' $problem\n" if defined $problem;
    return PAGI::Server::Options::Type::number($BY_NAME{$name}, $value);
}

sub engine_limits {
    my ($options) = @_;
    my %limits;
    for my $option (grep { $_->{engine} && defined $options->{ $_->{name} } } @ALL) {
        my $value = $options->{ $option->{name} };
        $limits{ $option->{engine} } =
            $option->{type} eq 'boolean' ? ($value ? 1 : 0) : _in_units($value * $option->{scale});
    }
    for my $option (grep { $_->{engines} && $options->{ $_->{name} } } @ALL) {
        my $values = $options->{ $option->{name} };
        $limits{ $option->{engines}{$_} } = int $values->{$_} for keys %$values;
    }
    return \%limits;
}

# A number in the engine's unit, as an integer. A value above 0 does not become 0, which often means no limit.
sub _in_units {
    my ($number) = @_;
    return $number > 0 && $number < 1 ? 1 : int($number + 0.5);
}

sub check_together {
    my ($options, $named) = @_;
    for my $pair ([qw(socket host)], [qw(socket port)], map { [ 'listen', $_ ] } qw(host port socket)) {
        die "Cannot specify both '$pair->[0]' and '$pair->[1]' options\n"
            if 2 == grep { $named->{$_} } @$pair;
    }
    die "option 'engine': process needs workers, which join it: set 'workers' as well\n"
        if $options->{engine} eq 'process' && !$options->{workers};
    die "option 'sync_workers': they join an engine in its own process: set 'engine' to process as well\n"
        if $options->{sync_workers} && $options->{engine} ne 'process';
    my ($low, $high) = @{$options}{qw(write_low_watermark write_high_watermark)};
    return if $low <= $high;
    die "option 'write_low_watermark' ($low) must not be above 'write_high_watermark' ($high)\n";
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Options - what PAGI::Server accepts, and what is allowed

=head1 SYNOPSIS

    PAGI::Server::Options::check(port => 5000);    # dies with a readable message
    my $limits = PAGI::Server::Options::engine_limits(\%options);

=head1 DESCRIPTION

Reads L<PAGI::Server::Options::Table>, where the options of C<pagi-server> alone have a key C<only>. An
option that sets a limit of the engine has no default or range there: they come from the engine's own list,
so that they are written down only once.

=head1 FUNCTIONS

=head2 sections

    my @sections = PAGI::Server::Options::sections();

Array references with a title and the options that belong under it, in the order of the manual.

=head2 all

    my @options = PAGI::Server::Options::all();

All rows of the table, with defaults and ranges filled in.

=head2 find

    my $option = PAGI::Server::Options::find('port');

A row by its name, or undef.

=head2 names

    my @names = PAGI::Server::Options::names();

The keys of the constructor, sorted.

=head2 is_known

    die "no such option" if !PAGI::Server::Options::is_known($name);

Whether the constructor has a key of that name.

=head2 canonical

    my %options = PAGI::Server::Options::canonical(listen_backlog => 5);    # listener_backlog => 5

The options under the names that the table has for them. Dies where one is given under two names.

=head2 from_environment

    my %options = PAGI::Server::Options::from_environment();    # engine => 'thread'

Values of environment variables, by the name of the option that they stand for. Dies unless they are allowed.

=head2 variable

    my $words = PAGI::Server::Options::variable('engine');    # the environment variable PEREGRINE_ENGINE

For messages.

=head2 forget_environment

    PAGI::Server::Options::forget_environment();

Removes these variables.

=head2 defaults

    my %options = PAGI::Server::Options::defaults();

The defaults of all options that have one.

=head2 about

    my $text = PAGI::Server::Options::about($option, $for_command);

What the manual says about an option, in POD: see L<PAGI::Server::Options::Texts>.

=head2 exception, problem_in

    die PAGI::Server::Options::exception("option 'access_log': cannot write to 'x': $!");
    my $problem = PAGI::Server::Options::problem_in($@);

A mistake in an option that shows only at the start: a L<Future::Exception> of the category C<option>,
whose text names PAGI::Server, and which also has the problem alone.

=head2 defaults_of

    my %options = PAGI::Server::Options::defaults_of('psgi');

The defaults that are other ones where there is an application of PSGI, by name.

=head2 check

    my $timeout = PAGI::Server::Options::check(timeout => '5m');    # 300
    PAGI::Server::Options::check(log_level => 'loud');
    # option 'log_level' must be one of error warn info debug, not 'loud'

Returns the value, as a number where it stands for one. Dies unless it is allowed.

=head2 check_together

    PAGI::Server::Options::check_together(\%options, { host => 1 });

Dies when options contradict each other. The second argument has the names of those that are no defaults.

=head2 engine_limits

    my $limits = PAGI::Server::Options::engine_limits({ timeout => 5 });    # { idle_ms => 5000 }

The limits to give to the engine, in its names and units.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
