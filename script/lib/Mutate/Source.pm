# The mutants of a Zig file: all small changes to its code that its tests should notice. The code is read as
# tokens, so that comments, strings, tests, and code that only tests use are left alone. Mutate::Bench
# compiles and runs the mutants.
package Mutate::Source;
use v5.36;

# The replacements of each token. Opposites are left out: a test that notices a similar operator notices the
# opposite one, too.
my %OPERATORS = (
    '==' => [ '!=', '<=', '>=' ],
    '!=' => [ '==', '<',  '>' ],
    '<'  => [ '<=', '>=' ],
    '<=' => [ '<',  '>' ],
    '>'  => [ '>=', '<=' ],
    '>=' => [ '>',  '<' ],
    '+'  => ['-'],
    '-'  => ['+'],
    '*'  => ['+'],
    '/'  => ['*'],
    '%'  => ['/'],
    '&'  => ['|'],
    '+=' => ['-='],
    '-=' => ['+='],
    '+|' => ['+'],
    '-|' => ['-'],
    '+%' => ['-%'],
    '-%' => ['+%'],
    '<<' => ['>>'],
    '>>' => ['<<'],
);
my %WORDS = (and => 'or', or => 'and', true => 'false', false => 'true', '@min' => '@max', '@max' => '@min');
my $OPERAND = qr/\A(?:[\w")\]}]|\.[*?])/;    # the end of a binary operator's left operand

my $TOKEN = qr{
      (?<comment> //[^\n]* )
    | (?<string>  \\\\[^\n]* | " (?: [^"\\\n] | \\. )* " | ' (?: [^'\\\n] | \\. [^'\n]* )+ ' )
    | (?<number>  0[xob][\da-fA-F_]+ | \d[\d_]* (?: \.\d[\d_]* )? (?: e-?\d+ )? )
    | (?<word>    \@?[A-Za-z_]\w* )
    | (?<sign>    <<\|= | <<= | <<\| | >>= | \.\.\. | [-+*][%|]=? | [-+*/%&|^=!<>]= | =>
                | << | >> | \+\+ | \*\* | \|\| | \.\. | \.[*?] | \S )
}x;

# The mutants of a text, in its order: hashes with `line`; `kind`; `from` and `to`, the line before and after
# the change; `text`, the whole mutated text; `edits`, the change itself; and `function`, the innermost
# function around it, undef if there can be no variant of that function (see _functions).
sub mutants ($text) {
    my @tokens = _tokens($text);
    my @changes =
        map { (_of_token(\@tokens, $_), _of_condition(\@tokens, $_)) }
        grep { $tokens[$_]{code} } 0 .. $#tokens;
    push @changes, _of_statements($text, @tokens);
    my @functions = _functions($text, @tokens);
    my %seen;
    return grep { !$seen{ $_->{text} }++ }
        map     { { %{ _mutant($text, @$_) }, function => _around($_, @functions) } }
        sort    { $a->[1][0] <=> $b->[1][0] } @changes;
}

# Makes a mutant of a change, which is a kind and edits, the last one in the text first. An edit is a place, a
# number of bytes to remove, and the text to insert.
sub _mutant ($text, $kind, @edits) {
    my $mutated = $text;
    substr $mutated, $_->[0], $_->[1], $_->[2] for @edits;
    my $start = rindex($text, "\n", $edits[-1][0] - 1) + 1;
    return {
        kind  => $kind,
        edits => \@edits,
        line  => 1 + (substr($text, 0, $start) =~ tr/\n//),
        from  => _line($text,    $start),
        to    => _line($mutated, $start),
        text  => $mutated,
    };
}

sub _line ($text, $start) {
    my ($line) = substr($text, $start) =~ /\A[ \t]*([^\n]*)/;
    return $line;
}

# ---- Reading ---------------------------------------------------------------------------------------

# Tokens with `text`, `at`, `line`, `code` (true if it may be changed), and for brackets `partner`, the index
# of the other bracket.
sub _tokens ($text) {
    my (@tokens, @open);
    my $line = 1;
    my $seen = 0;
    while ($text =~ /$TOKEN/g) {
        my ($kind) = grep { defined $+{$_} } qw(comment string number word sign);
        my $at = $-[0];
        $line += substr($text, $seen, $at - $seen) =~ tr/\n//;
        $seen = $at;
        next if $kind eq 'comment';
        my $token = { kind => $kind, text => $+{$kind}, at => $at, line => $line, code => 1 };
        push @tokens, $token;
        next if $kind ne 'sign';
        push @open, $#tokens if $token->{text} =~ /\A[(\[{]\z/;
        $token->{partner}                     = pop @open if $token->{text} =~ /\A[)\]}]\z/;
        $tokens[ $token->{partner} ]{partner} = $#tokens  if defined $token->{partner};
    }
    push @tokens,
        map { { kind => 'end', text => '', at => length $text, line => $line } } 1 .. 3;    # to look ahead
    _leave_alone(\@tokens, $text);
    return @tokens;
}

# Marks the tokens that are left alone: tests, blocks that the compiler runs, assertions (which always hold),
# and declarations that only tests use.
sub _leave_alone ($tokens, $text) {
    my $skip = sub ($from, $to) { $_->{code} = 0 for @$tokens[ $from .. $to ] };
    for my $at (0 .. $#$tokens) {
        last if $tokens->[$at]{kind} eq 'end';
        my ($word, $next) = map { $_->{text} } @$tokens[ $at, $at + 1 ];
        $skip->($at, _block($tokens, $at)) if $word eq 'test' && _begins_line($text, $tokens->[$at]);
        $skip->($at, $tokens->[ $at + 1 ]{partner} // $at + 1)
            if $word eq 'comptime' && $next eq '{' || $word eq 'assert' && $next eq '(';
    }
    my @top  = _top_level($tokens, $text);
    my $left = 0;
    until ($left == grep { $_->{code} } @$tokens) {
        $left = grep { $_->{code} } @$tokens;
        for my $declaration (@top) {
            my ($name, $from, $to) = @$declaration;
            next if !$tokens->[$from]{code};
            my @uses = grep { $tokens->[$_]{text} eq $name && ($_ < $from || $_ > $to) } 0 .. $#$tokens;
            $skip->($from, $to) if @uses && !grep { $tokens->[$_]{code} } @uses;
        }
    }
    return;
}

# Declarations that begin a line with `fn`, `const` or `var`: name, first and last token.
sub _top_level ($tokens, $text) {
    my @found;
    for my $at (0 .. $#$tokens - 1) {
        next if $tokens->[$at]{text} !~ /\A(?:fn|const|var)\z/ || !_begins_line($text, $tokens->[$at]);
        push @found, [ $tokens->[ $at + 1 ]{text}, $at, _block($tokens, $at) ];
    }
    return @found;
}

sub _begins_line ($text, $token) { return $token->{at} == 0 || substr($text, $token->{at} - 1, 1) eq "\n" }

# The index of the last token of a declaration: the brace or semicolon that ends it.
sub _block ($tokens, $at) {
    my $word = $tokens->[$at]{text};
    if ($word eq 'fn') {
        my $body = _behind_type($tokens, ($tokens->[ $at + 2 ]{partner} // $at) + 1);
        return defined $body ? $tokens->[$body]{partner} : $at;
    }
    while ($at < $#$tokens) {
        my $token = $tokens->[$at];
        return $at                  if $token->{text} eq ';';
        return $token->{partner}    if $token->{text} eq '{' && $word eq 'test';
        $at = $token->{partner} - 1 if $token->{text} =~ /\A[(\[{]\z/ && defined $token->{partner};
        $at++;
    }
    return $at;
}

# The functions, inner ones behind outer ones: `from` and `to`, their bounds; `body`, the place of the body;
# `name` and `name_at`; `head`, the text before the body; `arguments`, the names with which the head calls a
# variant; `is_inline`; `is_fixed`: there can be no variant of this type, because the function is exported, or
# returns a type that is made in its head.
sub _functions ($text, @tokens) {
    my @found;
    for my $at (grep { $tokens[$_]{text} eq 'fn' && $tokens[ $_ + 1 ]{kind} eq 'word' } 0 .. $#tokens) {
        my $open = $at + 2;
        my $body = my $result = $tokens[$open]{partner} + 1;
        $body = _behind_type(\@tokens, $body) // next;
        my $first = $at;
        $first-- while $first && $tokens[ $first - 1 ]{text} =~ /\A(?:pub|inline|noinline|export|extern)\z/;
        my ($from, $to) = ($tokens[$first]{at}, $tokens[ $tokens[$body]{partner} ]{at} + 1);
        my $is_fixed = grep { $_->{text} =~ /\A(?:struct|enum|union|type|callconv|export|extern)\z/ }
            @tokens[ $first .. $at, $result .. $body ];
        my ($head, @arguments) = _head($text, $from, $tokens[$body]{at}, @tokens[ $open + 1 .. $result - 2 ]);
        push @found,
            {
            from      => $from,
            to        => $to,
            body      => $tokens[$body]{at},
            is_fixed  => $is_fixed,
            name      => $tokens[ $at + 1 ]{text},
            name_at   => $tokens[ $at + 1 ]{at},
            head      => $head,
            arguments => \@arguments,
            is_inline => scalar grep { $_->{text} eq 'inline' } @tokens[ $first .. $at ],
            };
    }
    return @found;
}

# The index of the brace that follows a type; braces within the type are skipped.
sub _behind_type ($tokens, $at) {
    while ($at < $#$tokens) {
        my $token = $tokens->[$at];
        return undef if $token->{text} eq ';';
        if ($token->{text} eq '{') {
            my $before = $tokens->[ $at - 1 ];
            $before = $tokens->[ $before->{partner} - 1 ] if $before->{text} eq ')';
            return $at if $before->{text} !~ /\A(?:error|struct|enum|union)\z/;
        }
        $at = $token->{partner} if $token->{text} =~ /\A[(\[{]\z/;
        $at++;
    }
    return undef;
}

# The head of a function and its parameters' names; parameters without a name get one.
sub _head ($text, $from, $to, @tokens) {
    my $head = substr $text, $from, $to - $from;
    my ($depth, $moved, @arguments) = (0, 0);
    for my $at (0 .. $#tokens) {
        my $token = $tokens[$at];
        $depth += $token->{text} =~ /\A[(\[{]\z/ ? 1 : $token->{text} =~ /\A[)\]}]\z/ ? -1 : 0;
        next if $depth || $at == $#tokens || $token->{kind} ne 'word' || $tokens[ $at + 1 ]{text} ne ':';
        push @arguments, $token->{text} eq '_' ? 'unnamed_' . @arguments : $token->{text};
        substr $head, $token->{at} - $from + $moved, length $token->{text}, $arguments[-1];
        $moved += length($arguments[-1]) - length $token->{text};
    }
    return ($head, @arguments);
}

sub _around ($change, @functions) {
    my (undef, @edits) = @$change;
    my ($function) = grep { $_->{body} < $edits[-1][0] && $edits[0][0] < $_->{to} } reverse @functions;
    return $function && !$function->{is_fixed} ? $function : undef;
}

# ---- Changing --------------------------------------------------------------------------------------

sub _of_token ($tokens, $at) {
    my $token = $tokens->[$at];
    my ($before, $after) = ($at ? $tokens->[ $at - 1 ]{text} : '', $tokens->[ $at + 1 ]{text});
    my $change = sub ($kind, $with) { return [ $kind, [ $token->{at}, length $token->{text}, $with ] ] };
    if ($token->{kind} eq 'number') {
        my $is_type = $before eq '[' && $after =~ /\A[\]:]\z/ && $tokens->[ $at + 2 ]{text} =~ /\A\w/;
        my $value   = $token->{text} =~ s/_//gr;
        return if $is_type || $value =~ /\A\d.*[.e]/ && $value !~ /\A0x/ || length $value > 18;
        no warnings 'portable';    # of more than 32 bits
        $value = oct $value if $value =~ /\A0/;
        return map { $change->('constant', $_) } $value + 1, $value > 0 ? $value - 1 : ();
    }
    if ($token->{kind} eq 'word') {
        my $with = $WORDS{ $token->{text} } // return;
        # a field's name, and `while (true)`, stay
        return if $before eq '.' || $token->{text} eq 'true' && $before eq '(';
        return $change->($with =~ /\A(?:and|or)\z/ ? 'logic' : 'constant', $with);
    }
    return if $token->{kind} ne 'sign';
    my $is_binary = $before =~ $OPERAND && $before !~ /\A(?:return|and|or|if|while|else|try|catch|orelse)\z/;
    return $change->('condition', '') if $token->{text} eq '!' && !$is_binary && $after =~ /\A[\w(.]/;
    return
        # the star of a pointer type
        if !$is_binary || $token->{text} eq '*' && ($before eq ']' || $after eq 'const');
    my $kind = $token->{text} =~ /\A(?:[=!<>]=|[<>])\z/ ? 'comparison' : 'arithmetic';
    # Most numbers are unsigned: a comparison with 0 is not changed into one that means the same for them.
    my %same = $after eq '0' ? ('==' => '<=', '!=' => '>', '>' => '!=', '<=' => '==') : ();
    return map { $change->($kind, $_) }
        grep { $_ ne ($same{ $token->{text} } // '') } @{ $OPERATORS{ $token->{text} } // [] };
}

# Makes conditions that always hold or never do, in which all names stay in use. An `if` or `while` that
# captures a value has no condition.
sub _of_condition ($tokens, $at) {
    my ($token, $open) = @$tokens[ $at, $at + 1 ];
    return if $token->{text} !~ /\A(?:if|while)\z/ || !defined $open->{partner} || $open->{text} ne '(';
    my $behind = $open->{partner} + 1;
    return if $tokens->[$behind]{text} eq '|' || $behind == $at + 4 && $tokens->[ $at + 2 ]{text} eq 'true';
    my $close = $tokens->[ $open->{partner} ]{at};
    return map { [ 'condition', [ $close, 0, ") $_" ], [ $open->{at}, 0, '(' ] ] } 'and false',
        $token->{text} eq 'if' ? 'or true' : ();
}

# Mutants without a call or an assignment that fills a line, or without the call of a switch prong. Its names
# stay in use, so that the mutant compiles. Calls of `invariants` stay.
sub _of_statements ($text, @tokens) {
    my %is_code = map { $_->{at} => $_->{code} } @tokens;
    my $thing   = qr/[a-z_]\w*(?:\.[\w*?]+|\[[^\]\n]*\])*+/;
    my @changes;
    while ($text =~
        /^ +(?:(?:defer|errdefer) )?\K(?:(?:try |_ = )*$thing\(.*\)(?: catch .*)?|$thing [^\s\w()=]*= .*);$/mg
        )
    {
        push @changes, [ 'removed', [ $-[0], 0, 'if (false) ' ] ]
            if $is_code{ $-[0] } && $& !~ /\binvariants\(\)/ && _is_closed($&);
    }
    while ($text =~ /^ +[.\w][^="\n]* => (?:\|[^|\n]*\| )?\K(?:try )?$thing\(.*\),$/mg) {
        push @changes, [ 'removed', [ $-[0], 0, 'if (false) ' ] ] if $is_code{ $-[0] } && _is_closed($&);
    }
    return @changes;
}

sub _is_closed ($statement) {
    my $depth = 0;
    for my $bracket ($statement =~ /[(){}\[\]]/g) {
        $depth += $bracket =~ /[({\[]/ ? 1 : -1;
        return 0 if $depth < 0;
    }
    return $depth == 0
        && $statement !~ /\A(?:if|while|for|switch|return|const|var|break|continue|comptime)\b/;
}

1;
