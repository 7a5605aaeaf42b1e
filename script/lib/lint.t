# script/lint finds the files that break its rules of width, length and calls, and has no finding for files
# that keep these rules.
use v5.36;
use lib 'script/lib';
use Cwd        qw(getcwd);
use File::Copy qw(copy);
use File::Path qw(make_path);
use File::Temp ();
use Lint::C;
use Lint::Lines;
use Lint::Perl;
use Lint::Text;
use Lint::Zig;
use Test::More;

my $folder = File::Temp->newdir;

# The findings of a rule in a file with this name and text, without the file's name.
sub found ($rule, $name, $text) {
    open my $out, '>', "$folder/$name" or die "$name: $!";
    print {$out} $text;
    close $out or die "$name: $!";
    return join ' | ', map { s/\A.*?:(?=\d)//r } $rule->(Lint::Text->read("$folder/$name"));
}

sub width ($name, $text) { return found(\&Lint::Lines::findings, $name, "$text\n") }

subtest 'lines of 110 columns' => sub {
    my $words = substr 'word ' x 40, 0, 110;
    is width('a.zig', "//! $words" =~ s/.{4}\z//r), '', '110 columns are fine';
    is width('a.zig', "\n//! $words"),              '2: 114 columns, the limit is 110', '... 114 are not';
    is width('a.md',  "\xc3\xa4" x 50 . ' ' . 'b' x 59), '', 'it is characters that count';
    is width('a.pm',  "    die(qw($words), 1);"), '1: 127 columns, the limit is 110', 'a list of words';
    is width($_->[0], $_->[1]), '', $_->[2]
        for [ 'a.zig', qq{    const text = "$words";}, 'a string that fills a line' ],
        [ 'a.zig', "        \\\\$words",                   'a line of a string' ],
        [ 'a.pm',  "    like(\$log, qr/$words/, 'name');", 'a pattern' ],
        [ 'a.pm',  "    is(\$text, '$words');",            'a string of Perl' ],
        [ 'a.c',   qq{    say("$words");},                 'a string of C' ],
        [ 'a.md',  'see https://example.org/' . 'a' x 100, 'a word that fills a line' ],
        [ 'a.md',  "| $words | $words |", 'a row of a table' ];
    isnt width('a.zig', qq{    say("short", "also short", @{[ 'name, ' x 20 ]});}), '',
        'strings that fit into lines are no excuse';
    isnt width('a.zig', qq{    const a_long_name_of_something = "@{[ 'x' x 98 ]}";}), '',
        '... nor is one that fits into a line of its own';
    isnt width('a.pm', "| $words | $words |"), '', '... nor is a table where there are none';
};

subtest 'functions of Zig' => sub {
    no warnings 'redefine';
    local *Lint::Zig::_format = sub { return () };    # the formatter would complain, too
    my $length = sub ($head, $lines, $foot) {
        return found(\&Lint::Zig::findings, 'a.zig', "//! A test.\n$head" . "    f();\n" x $lines . $foot);
    };
    is $length->("fn f() void {\n", 78, "}\n"), '',                     '80 lines are fine';
    is $length->("fn f() void {\n", 79, "}\n"), '2: fn f has 81 lines', '... 81 are not';
    is $length->("fn f(\n    a: u8,\n) void {\n", 77, "}\n"), '2: fn f has 81 lines',
        'parameters on lines of their own count';
    is $length->("extern fn f(\n    a: u8,\n) void;\n", 90, "}\n"), '', 'what has no body has no length';
    is $length->("fn F(\n    T: type,\n) type {\n",     90, "}\n"), '', '... nor has a container';
};

subtest 'variables of C' => sub {
    my $home = getcwd;
    my $tell = sub ($path, $text) {
        open my $out, '>', $path or die "$path: $!";
        print {$out} $text;
        close $out or die "$path: $!";
        return join ' | ', Lint::C::findings(Lint::Text->read($path));
    };
    chdir $folder or die "$folder: $!";
    make_path('xs/bridge', 'xs/pagi');
    is $tell->($_, "static int one, other[2];\n"), '', $_ for 'xs/bridge/a.c', 'xs/pagi/c.c';
    is $tell->('xs/bridge/b.c', $_),
        q(xs/bridge/b.c:1: static 'other' is in xs/bridge/a.c, too: one variable), $_
        for "static const char *other;\n", "static int other = 1;\n", "static T third, other[3] = {0};\n";
    is $tell->('xs/bridge/b.c', $_), '', $_
        for "static int third;\n", "static int third(int other);\n", "int other;\n";
    chdir $home or die "$home: $!";
};

subtest 'calls that share @_' => sub {
    # With `+` in place of `&`, so that this file has no such call.
    ok Lint::Perl::shares_arguments(tr/+/&/r), $_
        for 'return +$app if $x;', '    return $y ? +$around : +$app;', 'my $f = +$app;', '+name;',
        'return +{ $self->{app} };', '+{ $code };', 'goto +$code', 'goto +name;', '  +$app',
        'map { +$_ } @x;',
        'my $x = +name;';
    ok !Lint::Perl::shares_arguments($_), $_
        for 'return $app->(@_);', '&$app(@_);', '&{ $self->{app} }(@_)', 'my $f = \&name;', 'defined &name;',
        '$a & $b', '$a && $b', 'sub builder(&) {', 'sub enable_if(&$;@) {', q{'a &amp; b'}, '# &$app',
        'my %h = (x => \&y);', '*{"x"} = \&$code;', 'if (defined &$code) {', q{'&lt;'}, 'exists &$name;',
        'name(&$code($x))';
};

subtest 'tests that compile' => sub {
    my $compile = sub ($text) { return found(\&Lint::Perl::_compile, 'a.t', $text) };
    my $begin   = "use v5.36;\nuse lib 't/lib';\nuse Test::More;\nuse TestServer;\n";
    is $compile->("${begin}ok TestServer->can('start');\ndone_testing;\n"), '', 'what loads is well';
    like $compile->("${begin}\$path = \$text;\n"), qr/\A5: perl -c: Global symbol "\$path" requires/,
        'a variable that is only the compiler\'s is none';
    like $compile->("${begin}ok 1\nok 2;\n"), qr/\A\d: perl -c: /, 'nor is an error of syntax';
    is $compile->("${begin}BEGIN { plan skip_all => 'not here' }\n"), '', 'a test that is skipped is well';
    is $compile->("${begin}ok 1;\n__END__\nno code\n"),               '', '... as is what follows its end';
    my @alike = map { "$folder/$_.pl" } qw(one two three);

    for my $path (@alike) {
        open my $out, '>', $path or die "$path: $!";
        print {$out} "use strict;\nuse Test::More ();\nok 1;\n";
        close $out or die "$path: $!";
    }
    is scalar(Lint::Perl::_compile(map { Lint::Text->read($_) } @alike)), 3,
        'files that do not import what they call, from a module that they share';
    local $ENV{PEREGRINE_BRIEF} = 1;
    ok !Lint::Perl::_is_left_out($_), "$_ is compiled in a brief run"
        for qw(script/lint t/lib/TestServer.pm examples/pagi/hello/app.pl script/lib/Tap.pm);
    ok Lint::Perl::_is_left_out($_), "... $_ is left to the tests" for qw(t/00-load.t lib/PAGI/Server.pm);
};

subtest 'the oldest Perl' => sub {
    my $new = sub ($text) { return found(\&Lint::Perl::_too_new, 'a.t', $text) };
    like $new->("use strict;\n\nuse v5.36;\n"), qr/\A3: Perl 5\.32 cannot read this/,
        'a test that it cannot read';
    is $new->("    use v5.36;\nuse v5.32;\n"),                                  '', 'an example in a manual';
    is $new->("BEGIN { plan skip_all => 'why' if \$] < 5.036 }\nuse v5.36;\n"), '', 'a test that says so';
};

subtest 'an eval that hides errors' => sub {
    my $hidden = sub ($text) { return found(\&Lint::Perl::_hidden_errors, 'a.pm', "sub f {\n$text\n}\n") };
    like $hidden->('    return eval { g() };'), qr/\A2: this eval hides errors/, 'nobody looks at $@';
    like $hidden->("    eval {\n        g();\n    };"), qr/\A2: this eval hides errors/,
        '... in several lines';
    like $hidden->('    my $x = eval "g(); 1";'), qr/\A2: this eval hides errors/, '... of a string';
    is $hidden->("    eval { g(); 1 } or die;\n    warn \$@;"), '', 'somebody looks';
    is $hidden->("    # Expected: g dies of what it gets.\n    eval { g() };"), '',
        'a comment says what is expected';
    is $hidden->("=head1 NAME\n\n    eval { g() };\n\n=cut"), '', 'a manual';
};

subtest 'texts that are tidy are remembered' => sub {
    my $root = getcwd();
    local @ENV{qw(HOME XDG_CACHE_HOME)} = ($folder, '');
    copy('.perltidyrc', "$folder/.perltidyrc") or die "copy: $!";
    mkdir "$folder/.peregrine"                 or die "mkdir: $!";
    chdir $folder                              or die "chdir: $!";
    my ($untidy, @looked) = (\&Lint::Perl::_untidy);
    no warnings 'redefine';
    local *Lint::Perl::_untidy = sub ($source) { push @looked, $source->path; return $untidy->($source) };
    my $run = sub (@files) {
        @looked = ();
        my @findings = Lint::Perl::_tidy(map { Lint::Text->read($_) } @files);
        return join ' ', (map { s/:.*//r } @findings), 'of', @looked;
    };
    my $write = sub ($name, $text) {
        open my $out, '>', $name or die "$name: $!";
        print {$out} $text;
        close $out or die "$name: $!";
    };
    $write->('one.pm', "f(1);\n");
    $write->('two.pm', "f(2);\n");
    is $run->('one.pm', 'two.pm'), 'of one.pm two.pm', 'each text is looked at once';
    is $run->('two.pm'),           'of',               '... and is remembered';
    is $run->('one.pm', 'two.pm'), 'of',               '... by runs without its file, too';
    $write->('one.pm', "f( 1 );\n");
    is $run->('one.pm'), 'one.pm of one.pm', 'a text that has changed is looked at again';
    is $run->('one.pm'), 'one.pm of one.pm', '... and a finding is found again';
    $write->('one.pm', "f(1);\n");
    is $run->('one.pm'), 'of one.pm', '... until the file is mended';
    unlink '.peregrine/tidy.texts' or die "unlink: $!";
    is $run->('one.pm', 'two.pm'), 'of', 'a new clone knows what another one has found tidy';
    my $clone = getcwd . '/clone';
    mkdir $_                                  or die "$_: $!" for $clone, "$clone/.peregrine";
    copy('.perltidyrc', "$clone/.perltidyrc") or die "copy: $!";
    chdir $clone                              or die "chdir: $!";
    $write->('.peregrine/tidy.texts', '');
    $write->('one.pm',                "f(1);\n");
    $write->('two.pm',                "g(2);\n");
    is $run->('one.pm', 'two.pm'), 'of two.pm', '... and an old clone, too';
    chdir '..'                     or die "chdir: $!";
    unlink '.peregrine/tidy.texts' or die "unlink: $!";
    is $run->('one.pm', 'two.pm'), 'of', '... whose own text does not replace this one';
    $write->('two.pm', "g(2);\n");
    is $run->('two.pm'), 'of', '... and is known here';
    chdir $root or die "chdir: $!";
};

subtest 'a brief run looks at the texts of the last commits' => sub {
    my $root       = getcwd();
    my $repository = File::Temp->newdir;
    local @ENV{qw(HOME XDG_CACHE_HOME)} = ($repository, '');
    copy('.perltidyrc', "$repository/.perltidyrc") or die "copy: $!";
    chdir $repository                              or die "chdir: $!";
    my $commits = sub ($count, $name) {
        my $first = (-e '.git/refs/heads/main' ? "from refs/heads/main^0\n" : '')
            . "M 100644 inline $name\ndata 7\nf( 1 )\n";
        open my $import, '|-', 'git fast-import --quiet' or die "git: $!";
        for my $time (1 .. $count) {
            print {$import} "commit refs/heads/main\ncommitter A <a\@b> $time +0000\ndata 0\n",
                $time == 1 ? $first : (), "\n";
        }
        close $import                      or die "git: $?";
        system('git reset -q --hard') == 0 or die "git: $?";
    };
    system('git init -q -b main') == 0 or die "git: $?";
    my $looked = sub () {
        return join ' ', map { s/:.*//r } Lint::Perl::_tidy(map { Lint::Text->read($_) } glob '*.pm');
    };
    $commits->(1, 'old.pm');
    local $ENV{PEREGRINE_BRIEF} = 1;
    is $looked->(), 'old.pm', 'there are few commits';
    $commits->(20, 'new.pm');
    open my $out, '>', 'other.pm' or die "other.pm: $!";
    print {$out} "f( 2 )\n";
    close $out or die "other.pm: $!";
    is $looked->(), 'new.pm other.pm', 'an old text is left alone';
    delete local $ENV{PEREGRINE_BRIEF};
    is $looked->(), 'new.pm old.pm other.pm', '... but by a run that is not brief';
    chdir $root or die "chdir: $!";
};

done_testing;
