# A source file, and the rules that hold in every language: a header that says what the file is for, an
# implementation of bounded length, no mark of unfinished work. It knows no language's grammar.
package Lint::Text;
use v5.36;

# In pieces, so that this file does not match.
my $UNFINISHED = join '|', 'TO' . 'DO', 'FIX' . 'ME', 'X' x 3, 'HA' . 'CK';

my %HEADER = (
    zig  => [ qr{\A//!},                'a Zig file starts with a //! comment' ],
    c    => [ qr{\A\s*(?:/\*|//|\#\s)}, 'a C file starts with a comment' ],
    perl => [
        qr{\A(?:\#!.*\n)?(?:package [\w:]+;)?\s*\#|^=head1 NAME$}m,
        'a Perl file has a comment first or POD'
    ],
    shell  => [ qr{\A\#!.*\n\#}, 'a script says what it does first' ],
    python => [ qr{\A"""},       'a Python file starts with its docstring' ],
    lua    => [ qr{\A--},        'a Lua file starts with a comment' ],
);

# Reads a file; undef if there are no rules for its kind.
sub read ($class, $path) {
    open my $in, '<', $path or die "$path: $!\n";
    my $text = do { local $/; <$in> }
        // '';
    my $kind = _kind($path, $text) // return undef;
    return bless { path => $path, kind => $kind, text => $text, lines => [ split /\n/, $text ] }, $class;
}

sub path  ($self)                  { $self->{path} }
sub kind  ($self)                  { $self->{kind} }
sub text  ($self)                  { $self->{text} }
sub lines ($self)                  { @{ $self->{lines} } }
sub at    ($self, $line, $message) { "$self->{path}:$line: $message" }

# Calls $code->($line, $number) for every line.
sub each_line ($self, $code) {
    my $number = 0;
    $code->($_, ++$number) for @{ $self->{lines} };
    return;
}

# The number of lines of implementation: tests, and documentation at the end of the file, do not count.
sub implementation_lines ($self) {
    return 0 if $self->{path} =~ m{(?:^|/)(?:t|test)/|\.t\z|_test\.zig\z};
    my ($kind, $lines, $in_pod) = ($self->{kind}, 0, 0);
    for (@{ $self->{lines} }) {
        last if $kind eq 'zig' && /^test\b/;
        if ($kind eq 'perl') {
            last if /^__(?:END|DATA)__$/;
            if    (/^=cut\b/)    { $in_pod = 0; next }
            elsif (/^=[a-zA-Z]/) { $in_pod = 1 }
            next if $in_pod;
        }
        $lines++;
    }
    return $lines;
}

sub findings ($self) {
    my @findings;
    my ($pattern, $rule) = @{ $HEADER{ $self->{kind} } // [] };
    push @findings, $self->at(1, $rule) if $pattern && $self->{text} !~ $pattern;
    $self->each_line(
        sub ($line, $number) {
            push @findings, $self->at($number, "unfinished: $1") if $line =~ /\b($UNFINISHED)\b/;
            push @findings, $self->at($number, 'space at the end of the line')
                if $line =~ /[ \t]\z/;
        }
    );
    return @findings;
}

sub _kind ($path, $text) {
    return 'zig'      if $path =~ /\.zig\z/;
    return 'c'        if $path =~ /\.(?:c|h|xs|xsi)\z/;
    return 'perl'     if $path =~ /\.(?:pl|pm|t|psgi|PL)\z|(?:^|\/)cpanfile\z/;
    return 'shell'    if $path =~ /\.sh\z/ && $text =~ /\A#!/;
    return 'python'   if $path =~ /\.py\z/;
    return 'lua'      if $path =~ /\.lua\z/;
    return 'pod'      if $path =~ /\.pod\z/;
    return 'markdown' if $path =~ /\.md\z/;
    return 'plain'    if $path =~ m{\A(?:Changes|MANIFEST\.SKIP|\.gitignore)\z|\.txt\z|\.packages\z};
    return            if $path =~ /\.\w+\z/;
    return 'perl'     if $text =~ /\A#!.*\bperl\b/;
    return 'shell'    if $text =~ /\A#!.*\b(?:ba)?sh\b/;
    return;
}

1;
