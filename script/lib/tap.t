# The failures that script/test keeps for the end of its output.
use v5.36;
use Cwd            qw(realpath);
use File::Basename qw(dirname);
my $HERE;
BEGIN { $HERE = realpath(dirname(__FILE__)) }
use lib $HERE;
use Failures;
use File::Temp qw(tempdir);
use Tap;
use Test::More;

my $folder = tempdir(CLEANUP => 1);
my %code   = (
    passes  => 'ok 1; warn "not shown\n"; done_testing;',
    fails   => 'is 3, 4, "sums"; ok 1; done_testing;',
    dies    => 'ok 1, "before"; die "oops\n";',
    no_plan => 'ok 1, "the only one";',
    skipped => 'plan skip_all => "not here";',
);

sub write_test ($name, $code) {
    open my $out, '>', "$name.t" or die "$name.t: $!\n";
    print {$out} "use Test::More; $code\n";
    close $out or die "$name.t: $!\n";
    return;
}

sub quietly ($run) {
    open my $stdout, '>&', \*STDOUT or die "output: $!\n";
    close STDOUT;
    open STDOUT, '>', 'output' or die "output: $!\n";
    my %count = $run->();
    open STDOUT, '>&', $stdout or die "output: $!\n";
    return %count;
}

chdir $folder or die "$folder: $!\n";    # where no times are recorded
write_test($_, $code{$_}) for sort keys %code;
my %count = quietly(sub { Tap::run({}, glob '*.t') });
is_deeply \%count, { passed => 4, failed => 3, skipped => 1 }, 'single tests are counted';

my @failures = sort { $a cmp $b } Failures::all();
is scalar @failures, 3, 'each failed file is kept, and no other';
like $failures[0], qr/\Adies\.t:\n.*status 255.*No plan found.*oops/s, 'an exception is named';
like $failures[1], qr/\Afails\.t:\n.*not ok 1 - sums.*got: '3'/s,
    'a failed test is named, with its diagnostics';
unlike $failures[1], qr/not ok 2/,                        'a test that passed is not';
like $failures[2],   qr/\Ano_plan\.t:\n.*No plan found/s, 'a file that has no plan is named';

Failures::add('long', join "\n", 1 .. 100);
like + (Failures::all())[-1], qr/\Along:\n    \(60 lines before these\)\n    61\n.*100\z/s,
    'of a long text the end is kept';

# The deadline of TestTools: each look at it is a signal here.
my $LOOK = 'kill ALRM => $$;';
mkdir 'deadline' or die "deadline: $!\n";
write_test('deadline/goes_on',
          "use TestTools; pass; $LOOK pass; $LOOK"
        . "subtest inner => sub { $LOOK pass; $LOOK pass; $LOOK pass }; $LOOK done_testing;");
write_test('deadline/hangs', "use TestTools; pass; $LOOK subtest inner => sub { pass; $LOOK $LOOK pass };");
%count = quietly(sub { Tap::run({ before => ["$HERE/../../t/lib"] }, glob 'deadline/*.t') });
is_deeply \%count, { passed => 4, failed => 1, skipped => 0 }, 'a test that goes on has no deadline';
like + (Failures::all())[-1], qr{\Adeadline/hangs\.t:\n.*no test has ended for \d+ s.*inner}s,
    '... and another one is told where it stood';

# A test without output until all others have ended, which are more than run at the same time. It is the
# longest, and so begins first.
my $others = 3 * Tap::at_once();
mkdir 'silent' or die "silent: $!\n";
write_test('silent/waits', <<~"PERL" . ' ' x 100_000);
    my \$ended = 0;
    for (1 .. 300) {
        last if (\$ended = () = glob 'ended.*') == $others;
        select undef, undef, undef, 0.1;
    }
    is \$ended, $others;
    done_testing;
    PERL
write_test("silent/ends_$_", "pass; done_testing; open my \$out, '>', 'ended.$_';") for 1 .. $others;
%count = quietly(sub { Tap::run({}, glob 'silent/*.t') });
is_deeply \%count, { passed => 1 + $others, failed => 0, skipped => 0 },
    'a test that says nothing keeps no other from beginning';

chdir '/';    # so that the temporary folder can be removed
done_testing;
