# The manual's lists of options, made from PAGI::Server::Options::Table: in the POD of PAGI::Server (keys of
# the constructor) and of bin/pagi-server (flags), and in SECURITY.md (limits that are on by default).
# PAGI::Server::Deployment has a list of combinations that do not exist, made from Pairs::Table. Each list
# lies between two comments of its file.
package Manual;
use v5.36;
use PAGI::Server::CommandLine;
use PAGI::Server::Options;
use PAGI::Server::Options::Type;
use Pairs::Table;

my %LISTS = (
    'lib/PAGI/Server.pm' => \&_keys,
    'bin/pagi-server'    => \&_flags,
    'bin/peregrine'      => \&_flags,
    'SECURITY.md'        => \&_limits,

    'lib/PAGI/Server/Deployment.pod' => \&_combinations,
);
my $BEGIN =
    qr/^(?:=for comment|<!--) The list is made by script\/manual from (?:PAGI::Server::Options|Pairs)::Table\..*\n\n/m;
my $END = qr/^(?:=for comment|<!--) End of the list\./m;

sub files () { sort keys %LISTS }

# The text of a file with its list made anew.
sub renewed ($file) {
    open my $in, '<', $file or die "$file: $!\n";
    my $text      = do { local $/; <$in> };
    my $list      = $LISTS{$file}->();
    my ($program) = $file =~ m{\Abin/(.+)};
    $list =~ s/\bPROGRAM\b/$program/g if defined $program;
    $text =~ s/($BEGIN).*?(?=$END)/$1$list/s or die "$file has no place for the list\n";
    return $text;
}

sub _keys () {
    my $text = '';
    for my $section (PAGI::Server::Options::sections()) {
        my ($title, @options) = @$section;
        @options = grep { !$_->{only} } @options or next;
        $text .= "=head3 $title\n\n=over\n\n";
        for my $option (@options) {
            my $default = _default($option);
            $text .= "=item $option->{name}" . (defined $default ? " => $default" : '') . "\n\n";
            $text .=
                _filled(join ' ', PAGI::Server::Options::about($option), _range($option), _flag_of($option));
        }
        $text .= "=back\n\n";
    }
    return $text;
}

sub _combinations () {
    my @items = map { "=item *\n\n" . _filled($_) } Pairs::Table::for_manual();
    return join '', "=over\n\n", @items, "=back\n\n";
}

sub _flags () {
    my $text = '';
    for my $section (PAGI::Server::Options::sections()) {
        my ($title, @options) = @$section;
        @options = grep { defined PAGI::Server::CommandLine::flag($_) } @options or next;
        $text .= "=head2 $title\n\n=over 4\n\n";
        for my $option (@options) {
            my @sentences =
                (PAGI::Server::Options::about($option, 1), _range($option), _default_sentence($option));
            push @sentences, 'May be repeated.' if $option->{many};
            $text .= '=item ' . _typed($option) . "\n\n" . _filled(join ' ', @sentences);
        }
        $text .= "=back\n\n";
    }
    return $text;
}

# A table of the limits and times that hold by default, and the names of those that do not.
sub _limits () {
    my (@on, @off);
    for my $section (PAGI::Server::Options::sections()) {
        my ($title, @options) = @$section;
        next if $title !~ m{\A(?:Limits|Times|Listening|Processes|HTTP/2)};
        my $limit = qr/\A(?:(?:h2_)?max_|min_|memory_max|h2_rst_)|timeout\z/;
        for my $option (grep { $_->{name} =~ $limit } @options) {
            my $default = $option->{shown} // $option->{default};
            $default = 'as many as `ulimit -n` allows, less 50' if $option->{name} eq 'max_connections';
            if (!defined $default || !$default) { push @off, "`$option->{name}`" }
            else { push @on, "| `$option->{name}` | $default | " . _first($option) . " |\n" }
        }
    }
    my $off = _filled('Off by default, and worth a look: ' . join(', ', @off) . '.');
    return join '', "| Option | Default | What it limits |\n|---|---|---|\n", @on, "\n$off";
}

# The first sentence of an option's description, in Markdown.
sub _first ($option) {
    my ($sentence) = PAGI::Server::Options::about($option) =~ /\A(.*?[.:])(?: |\z)/s;
    $sentence        =~ s/L<(?:[^>|]*\|)?([^>]*)>/$1/g;
    $sentence        =~ s/[BC]<([^>]*)>/`$1`/g;
    return $sentence =~ s/:\z/./r;
}

sub _typed ($option) {
    my $typed = join ', ', map { "B<$_>" } defined $option->{short} ? "-$option->{short}" : (),
        PAGI::Server::CommandLine::typed($option);
    my $flag = PAGI::Server::CommandLine::flag($option);
    $typed .= ' ' . _argument($option) unless PAGI::Server::Options::Type::is_switch($option);
    $typed .= " [$option->{arg}]" if PAGI::Server::Options::Type::is_switch($option) && $option->{arg};
    $typed .= ", B<--no-$flag>"   if PAGI::Server::Options::Type::has_opposite($option);
    return $typed;
}

sub _argument ($option) {
    return $option->{arg} if defined $option->{arg};
    return join '|', @{ $option->{of} } if $option->{type} eq 'choice';
    my %argument = (bytes => 'BYTES', seconds => 'SECONDS', integer => 'NUMBER', number => 'NUMBER');
    return $argument{ $option->{type} } // die "the row of $option->{name} says no `arg`\n";
}

sub _default ($option) {
    return $option->{shown} // $option->{default};
}

sub _default_sentence ($option) {
    my $default = $option->{shown_command} // _default($option);
    return '' if !defined $default || $option->{name} eq 'app';
    return "Default: $default."
        if !PAGI::Server::Options::Type::is_switch($option) || defined $option->{shown};
    return $default ? 'On by default.' : '';
}

sub _range ($option) {
    if ($option->{type} eq 'choice') {
        return '' if PAGI::Server::Options::about($option) =~ /\AC<$option->{of}[0]>/;
        return 'One of ' . join(', ', map { "C<$_>" } @{ $option->{of} }) . '.';
    }
    return defined $option->{min}
        && $option->{type} ne 'boolean' ? "From $option->{min} to $option->{max}." : '';
}

sub _flag_of ($option) {
    return '' unless defined PAGI::Server::CommandLine::flag($option);
    return 'B<' . PAGI::Server::CommandLine::typed($option) . '>';
}

# Wraps a paragraph into lines of 99 bytes at most.
sub _filled ($text) {
    my ($line, $filled) = ('', '');
    for my $word (split ' ', $text) {
        if (length($line) + length($word) > 99 && length $line) {
            $filled .= "$line\n";
            $line = '';
        }
        $line .= (length $line ? ' ' : '') . $word;
    }
    return "$filled$line\n\n";
}

1;
