# Puts many mutants into one program: each changed function has all its variants, and a number that is set at
# the start of the program decides which variant runs. So a suite is compiled once for a file, and not once
# for each mutant. Mutate::Bench compiles and runs the program.
package Mutate::Switch;
use v5.36;

# Takes a text and its mutants (of Mutate::Source). Mutants outside of functions, or in a function that can
# have no variant, are not part of the program: `alone` lists them.
sub new ($class, $text, @mutants) {
    my $self = bless { text => $text, functions => {}, alone => [] }, $class;
    my $number;
    for my $mutant (@mutants) {
        my $function = $mutant->{function};
        if (!$function) { push @{ $self->{alone} }, $mutant }
        else            { $self->{functions}{ $function->{from} }{ ++$number } = $mutant }
    }
    return $self;
}

sub alone ($self) { return @{ $self->{alone} } }

# The mutants in the program, with their numbers, in order.
sub mutants ($self) {
    my %all = map { %$_ } values %{ $self->{functions} };
    return map { [ $_, $all{$_} ] } sort { $a <=> $b } keys %all;
}

# Removes mutants whose verdict is known.
sub drop ($self, @numbers) {
    for my $variants (values %{ $self->{functions} }) {
        delete @$variants{@numbers};
    }
    delete @{ $self->{functions} }{ grep { !%{ $self->{functions}{$_} } } keys %{ $self->{functions} } };
    return;
}

# The text of the program. Remembers which mutant each of its lines belongs to.
sub text ($self) {
    my ($text, $seen) = ('', 0);
    $self->{lines} = [];
    for my $from (sort { $a <=> $b } keys %{ $self->{functions} }) {
        my $variants = $self->{functions}{$from};
        my ($function) = map { $_->{function} } values %$variants;
        $text .= substr $self->{text}, $seen, $from - $seen;
        $seen = $function->{to};
        $self->_add(\$text, $from, 0,  _dispatch($function, sort { $a <=> $b } keys %$variants));
        $self->_add(\$text, $from, 0,  $self->_variant($function, 0));
        $self->_add(\$text, $from, $_, $self->_variant($function, $_, @{ $variants->{$_}{edits} }))
            for sort { $a <=> $b } keys %$variants;
    }
    return $text . substr($self->{text}, $seen) . "\nextern var mutant_selected: u32;\n";
}

sub _add ($self, $text, $from, $number, $part) {
    push @{ $self->{lines} }, [ 1 + ($$text =~ tr/\n//), $from, $number ];
    $$text .= "$part\n\n";
    return;
}

# After a compiler error in this line: the mutant there, or all mutants of the function, move to `alone`.
# Returns their number, 0 if the line belongs to no function.
sub give_up_line ($self, $line) {
    my ($part) = grep { $_->[0] <= $line } reverse @{ $self->{lines} } or return 0;
    my (undef, $from, $number) = @$part;
    return $self->_give_up($from, $number);
}

# After a compiler error that names the function of a mutant: this mutant moves to `alone`.
sub give_up_name ($self, $name) {
    my ($number) = $name =~ /_mutant(\d+)\z/ or return 0;
    my ($from)   = grep { $self->{functions}{$_}{$number} } keys %{ $self->{functions} };
    return defined $from && $self->_give_up($from, $number);
}

sub _give_up ($self, $from, $number) {
    my $variants = $self->{functions}{$from} or return 0;
    my @leaving =
        $number ? delete $variants->{$number} : delete @$variants{ sort { $a <=> $b } keys %$variants };
    delete $self->{functions}{$from} if !%$variants;
    push @{ $self->{alone} }, grep { defined } @leaving;
    return scalar grep { defined } @leaving;
}

# The function under its own name, which calls the selected variant. Calls at compile time cannot read the
# number: they do not compile.
sub _dispatch ($function, @numbers) {
    my $call = sub ($number) {
        "return $function->{name}_mutant$number(" . join(', ', @{ $function->{arguments} }) . ')';
    };
    my $cases = join '', map { "$_ => " . $call->($_) . ', ' } @numbers;
    return
          $function->{head}
        . '{ if (@inComptime()) @compileError("at compile time"); '
        . "switch (mutant_selected) { ${cases}else => {} } "
        . $call->(0) . '; }';
}

sub _variant ($self, $function, $number, @edits) {
    my $text = substr $self->{text}, $function->{name_at}, $function->{to} - $function->{name_at};
    substr $text, $_->[0] - $function->{name_at}, $_->[1],                  $_->[2] for @edits;
    substr $text, 0,                              length $function->{name}, "$function->{name}_mutant$number";
    return ($function->{is_inline} ? 'inline ' : '') . "fn $text";
}

1;
