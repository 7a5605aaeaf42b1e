# The rules for Perl: perltidy with the project's .perltidyrc, strict and warnings, `perl -c`, tests with
# deadlines and reasons to skip, subs of 80 lines at most, no wire bytes in lib/, no `eval` that hides errors.
package Lint::Perl;
use v5.36;
use Digest::SHA    qw(sha1_hex);
use File::Basename qw(dirname);
use File::Path     qw(make_path);
use POSIX          ();

my $SUB_LINES_MAX = 80;                                  # the rule says "about 70"
my $CACHE         = '.peregrine/tidy.texts';             # for each file, the digests of its tidy texts
my $TEXTS_MAX     = 3;                                   # of a file: those of several clones
my $STYLE         = '.perltidyrc';
my $RECENT        = 20;                                  # commits whose files a brief run looks at
my $NOT_OURS      = qr{\Abench/peers/};                  # others' files, which may need modules
my $RUN_BY_TESTS  = qr{\A(?:t|script/lib)/[^/]+\.t\z|\Alib/.+\.pm\z};
my $CLIENT        = 'lib/Peregrine/Server/WarmUp.pm';    # a client of our engine; may contain CR LF
my $HAS_DEADLINE  = qr{^use Test(?:Tools|Client|Server|Stream|WebSocket)\b}m;    # or loads TestTools

my @INCLUDE = qw(-Iblib/lib -Iblib/arch -It/lib -Iscript/lib);

# A module that so many files use is loaded once for all of them.
my $COMMON_MIN = 3;
# FindBin looks at the program's name when it is loaded; MojoSuite ends programs where its suite is missing.
my $LOADED_BY_EACH = qr/\A(?:FindBin|MojoSuite)\z/;

# A program that compiles files, each in a process of its own, and prints the names of those that compile. Its
# arguments are modules that it loads before, a word of no meaning, and the files.
my $COMPILES = <<'PERL';
sub compiles { return eval $_[0] }    # compiles a text out of reach of this program's variables
use strict;
use warnings;
use POSIX ();
$| = 1;
open my $told, '>&', \*STDOUT or die "output: $!\n";
open $_, '>', '/dev/null' or die "output: $!\n" for \*STDOUT, \*STDERR;
my @modules;
while (defined(my $module = shift)) {
    last if $module eq '--';
    push @modules, $module;
}
# Expected: a module that is not installed here; files that use it do not compile.
for (@modules) { eval { require s{::}{/}gr . '.pm' } }
$SIG{ALRM} = 'DEFAULT';
alarm 0;
for my $path (@ARGV) {
    open my $in, '<', $path or die "$path: $!\n";
    my $text = do { local $/; <$in> };
    my $pid  = fork // die "fork: $!\n";
    if (!$pid) {
        alarm 60;
        $0 = $path;
        @ARGV = ();
        compiles("package main; return 1;\n#line 1 \"$path\"\n$text")
            and print {$told} "$path\n" and close $told;
        POSIX::_exit(0);
    }
    waitpid $pid, 0;
}
close $told or die "output: $!\n";
POSIX::_exit(0);
PERL

# A call without a list hands on the caller's @_: in an `async sub` that awaits, Future::AsyncAwait frees that
# @_ twice. Behind a backslash, `defined` or `exists` this is no call; nor are HTML's entities.
my $NO_LIST          = qr/(?!\s*\()/;
my $SHARES_ARGUMENTS = qr/
    \bgoto \s+ &
  | (?: ^ | [({\[,!?:;] | \b(?:return|and|or|not) ) \s* (?<! \\ )
    & (?: \$\w++ $NO_LIST | (\{ (?: [^{}]++ | (?1) )* \}) $NO_LIST
      | (?!(?:amp|lt|gt|quot);) [A-Za-z_][\w:]*+ \s* (?: [;,}\])] | $ ) )
  | = \s+ & (?: \$\w++ $NO_LIST | [A-Za-z_][\w:]*+ \s* ; )
/x;

sub shares_arguments ($line) { return $line !~ /^\s*\#/ && $line =~ $SHARES_ARGUMENTS }

sub findings (@sources) {
    return () unless @sources;
    my $tidied = _meanwhile(sub { _tidy(@sources) });                 # takes as long as compiling all files
    my @others = (_compile(@sources), map { _rules($_) } @sources);
    return ($tidied->(), @others);
}

# Starts a process that looks for findings; returns a function that waits for them.
sub _meanwhile ($finds) {
    my $pid = open(my $found, '-|') // die "fork: $!\n";
    if (!$pid) {
        my $ok = eval {
            print map { s/\n?\z/\n/r } $finds->();
            1;
        } && close STDOUT;
        warn $@ || "close: $!\n" if !$ok;
        POSIX::_exit($ok ? 0 : 1);
    }
    return sub {
        chomp(my @findings = <$found>);
        close $found or die "script/lint: a process of its own has failed\n";
        return @findings;
    };
}

# perltidy is slow, so each file's text that was tidy under this style is remembered, also of files that this
# run leaves out, and also for the user's other clones. In brief runs (PEREGRINE_BRIEF) only files of the last
# commits are tidied: older files were when they were committed.
sub _tidy (@sources) {
    eval { require Perl::Tidy; 1 }
        or return "$STYLE:1: Perl::Tidy is missing; run script/bootstrap\n";
    my $style  = sha1_hex($Perl::Tidy::VERSION, _slurp($STYLE));
    my $tidy   = _known();
    my $recent = $ENV{PEREGRINE_BRIEF} ? _recent() : undef;
    my (@findings, %looked);
    for my $source (@sources) {
        my ($path, $digest) = ($source->path, sha1_hex($style, $source->text));
        next if grep { $_ eq $digest } @{ $tidy->{$path} };
        next if $recent && !$recent->{$path};
        my @found = _untidy($source);
        push @findings, @found;
        $looked{$path} = @found ? [] : [ $digest, @{ $tidy->{$path} // [] } ];
    }
    # Another clone may have written meanwhile.
    my %all   = (%{ _known() }, %looked);
    my @lines = map {
        my $path = $_;
        map { "$_ $path\n" } grep { defined } @{ $all{$path} }[ 0 .. $TEXTS_MAX - 1 ]
    } grep { -e } sort keys %all;
    _keep($_, @lines) for -d '.peregrine' ? $CACHE : (), _shared_cache();
    return @findings;
}

# For each path the digests of texts that were tidy, in this clone or another one of the user's.
sub _known () {
    my (%tidy, %seen);
    for my $line (map { split /\n/, _slurp($_) } grep { -e } $CACHE, _shared_cache()) {
        my ($digest, $path) = split / /, $line, 2;
        push @{ $tidy{$path} }, $digest if !$seen{$line}++;
    }
    return \%tidy;
}

# Files that are new or differ from an earlier commit; undef, which means all files, if the style differs.
sub _recent () {
    my @changed = split /\0/, `git diff -z --name-only HEAD~$RECENT -- 2>/dev/null`;
    return if $? || grep { $_ eq $STYLE } @changed;
    return { map { $_ => 1 } @changed, split /\0/, `git ls-files -z --others --exclude-standard` };
}

sub _shared_cache () {
    my $folder = $ENV{XDG_CACHE_HOME} || (length($ENV{HOME} // '') ? "$ENV{HOME}/.cache" : return);
    return "$folder/peregrine/tidy.texts";
}

# Writes a cache in one step, because other runs may read it. A cache that cannot be written is left out.
sub _keep ($path, @lines) {
    make_path(dirname($path), { error => \my $problems });
    open my $out, '>', "$path.$$" or return;
    print {$out} @lines;
    close $out and rename "$path.$$", $path;
    return;
}

sub _untidy ($source) {
    my ($wanted, $errors) = ('', '');
    local @ARGV;
    Perl::Tidy::perltidy(
        source      => \$source->text,
        destination => \$wanted,
        stderr      => \$errors,
        errorfile   => \$errors,
        perltidyrc  => $STYLE,
    );
    return $source->at(1, "perltidy: $errors" =~ s/\n.*//sr) if length $errors;
    my @wanted = split /\n/, $wanted;
    my @lines  = $source->lines;
    my ($at) =
        grep { ($lines[$_] // '') ne ($wanted[$_] // '') } 0 .. (@lines > @wanted ? $#lines : $#wanted);
    return defined $at ? $source->at($at + 1, 'not tidy; run perltidy -b -bext=/') : ();
}

sub _compile (@sources) {
    return "Makefile.PL:1: not built, so nothing can be compiled; run script/build"
        unless -d 'blib/arch';
    my @ours     = grep { !_is_left_out($_->path) } @sources;
    my %compiles = map  { $_ => 1 } split /\n/,
        _run($^X, @INCLUDE, '-e', $COMPILES, _common_modules(@ours), '--', map { $_->path } @ours);
    return map { _compile_alone($_) } grep { !$compiles{ $_->path } } @ours;
}

# A brief run leaves out what the other stages of script/test compile: they run the tests, and t/00-load.t
# loads each module.
sub _is_left_out ($path) {
    return $path =~ $NOT_OURS || $path =~ /cpanfile\z/ || $ENV{PEREGRINE_BRIEF} && $path =~ $RUN_BY_TESTS;
}

# Loading modules takes most of the time of compiling a file. Nothing is imported where they are loaded, so
# that a file that does not import what it calls is found.
sub _common_modules (@sources) {
    my %files;
    for my $source (@sources) {
        my %used = map { $_ => 1 } $source->text =~ /^\s*use ([A-Z][\w:]*)/mg;
        $files{$_}++ for keys %used;
    }
    return grep { $files{$_} >= $COMMON_MIN && !/$LOADED_BY_EACH/ } sort keys %files;
}

sub _compile_alone ($source) {
    my $output = _run($^X, @INCLUDE, '-c', $source->path);
    return () unless $?;
    my ($message, $line) = $output =~ /\A(.*?) at \S+ line (\d+)/;
    return $source->at($line // 1, 'perl -c: ' . ($message // 'does not compile'));
}

sub _rules ($source) {
    my $path = $source->path;
    my $bare = $path =~ /cpanfile\z/;
    my @findings;
    push @findings, $source->at(1, 'neither `use v5.36` nor strict and warnings')
        unless $bare
        || $source->text =~ /^\s*use v5\.(?:3[6-9]|[4-9]\d)/m
        || $source->text =~ /^use strict;.*^use warnings;/ms;
    push @findings, $source->at(1, 'may hang: nothing that it loads has a deadline; use TestTools')
        if $path =~ m{\At/[^/]+\.t\z} && $source->text !~ $HAS_DEADLINE;
    push @findings, _hidden_errors($source) if $path =~ m{\A(?:lib|bin)/};
    push @findings, _too_new($source)       if $path =~ m{\A(?:lib|bin|t|examples)/};
    my ($in_pod, $name, $start);
    $source->each_line(
        sub ($line, $number) {
            push @findings, $source->at($number, 'a call without a list shares @_: give it (@_)')
                if (!$in_pod || $line =~ /^ /) && shares_arguments($line);
            if ($line =~ /^=(\w+)/) { $in_pod = $1 ne 'cut'; return }
            return if $in_pod;
            push @findings, $source->at($number, 'skip_all without a reason')
                if $line =~
                /\b(?:plan|Test::More)\b.*\bskip_all\b['"]?\s*(?:;|\)|(?:=>|,)\s*(?:''|""|undef\b))/;
            push @findings, $source->at($number, 'lib/Peregrine/Server knows no face: an application does')
                if $path =~ m{\Alib/Peregrine/Server\b} && $line =~ /\bPAGI::Server(?:->|;)|\bPlack::/;
            push @findings, $source->at($number, 'lib/Peregrine knows nothing of the faces above it')
                if $path =~ m{\Alib/Peregrine\b(?!/Server\b)}
                && $line !~ /^\s*\#/
                && $line =~ /^\s*(?:use|require)\s+P[AS]GI::|\bP[AS]GI::\w+(?:::|->)/;
            push @findings, $source->at($number, 'wire bytes (CR LF) are the engine\'s')
                if $path =~ m{\Alib/}
                && $path ne $CLIENT
                && $line !~ /^\s*\#/
                && $line =~ /\\(?:r\\n|x0d\\x0a|015\\012)/i;
            if ($line =~ /^(?:async )?sub (\w+)/ && $line !~ /\}\s*\z/) {
                ($name, $start) = ($1, $number);
            }
            elsif (defined $name && $line =~ /^\}/) {
                my $length = $number - $start + 1;
                push @findings, $source->at($start, "sub $name has $length lines")
                    if $length > $SUB_LINES_MAX;
                undef $name;
            }
        }
    );
    return @findings;
}

# Finds an `eval` in installed code that may hide errors: its function must look at $@, or a comment before
# the `eval` or in its line must name the expected error (`# Expected: ...`), which may be ignored.
sub _hidden_errors ($source) {
    my @lines = ($source->lines);
    my ($in_pod, @findings) = (0);
    for my $at (0 .. $#lines) {
        if ($lines[$at] =~ /^=(\w+)/) { $in_pod = $1 ne 'cut' }
        last if $lines[$at] eq '__END__';
        next if $in_pod || $lines[$at] !~ /^[^#'"]*\beval\b(?:\s*[{"]|\s*$)/;
        my ($from, $to) = ($at, $at);
        $from-- while $from > 0 && $lines[ $from - 1 ] =~ /^\s*#/;
        $to++ while $to < $#lines && $lines[$to] !~ /^\}/;
        next if grep { /# Expected: / } @lines[ $from .. $at ];
        next if grep { /\$@|\$\{\^EVAL/ } @lines[ $at .. $to ];
        push @findings, $source->at($at + 1, 'this eval hides errors: look at $@, or say `# Expected: ...`');
    }
    return @findings;
}

# Perl 5.32 must be able to compile installed code and tests, except for tests that check the version first.
sub _too_new ($source) {
    return () if $source->text =~ /if \$\] < 5\.036/;
    my @findings;
    $source->each_line(
        sub ($line, $number) {
            push @findings,
                $source->at($number, 'Perl 5.32 cannot read this: use experimental \'signatures\'')
                if $line =~ /^use v5\.3[4-9]/;
        }
    );
    return @findings;
}

sub _run (@command) {
    open my $out, '-|', 'sh', '-c', 'exec "$@" 2>&1', 'sh', @command or die "sh: $!\n";
    local $/;
    my $output = <$out> // '';
    close $out;
    return $output;
}

sub _slurp ($path) {
    open my $in, '<', $path or die "$path: $!\n";
    local $/;
    return <$in>;
}

1;
