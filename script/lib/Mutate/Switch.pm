# Mutants side by side in one program: each changed function stands there in all its variants, and a number
# that is set at the start of the program says which one runs. So a suite is compiled once for a file, not
# once for each mutant.
# Does not know: how a program is compiled, and what its tests say.
package Mutate::Switch;
use v5.36;

# Of a text and its mutants (as of Mutate::Source, with `function`): a switch, and `alone`, those that cannot
# be part of it, since they are outside of functions or in one that answers with a type of its own.
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

# The mutants that are part of the program, with their numbers, in order.
sub mutants ($self) {
    my %all = map { %$_ } values %{ $self->{functions} };
    return map { [ $_, $all{$_} ] } sort { $a <=> $b } keys %all;
}

# Removes mutants whose fate is known from the text.
sub drop ($self, @numbers) {
    for my $variants (values %{ $self->{functions} }) {
        delete @$variants{@numbers};
    }
    delete @{ $self->{functions} }{ grep { !%{ $self->{functions}{$_} } } keys %{ $self->{functions} } };
    return;
}

# The whole text. Remembers which mutant each of its lines belongs to.
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

# The compiler complains of a line: the mutant on it, or the whole function, gets a program of its own. False
# if the line belongs to neither.
sub give_up_line ($self, $line) {
    my ($part) = grep { $_->[0] <= $line } reverse @{ $self->{lines} } or return 0;
    my (undef, $from, $number) = @$part;
    return $self->_give_up($from, $number);
}

# The compiler complains of the name of a mutant's function, which gets a program of its own.
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

# The function's name and head stay; what is evaluated at compile time knows no number.
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
