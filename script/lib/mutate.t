# script/mutate's own machinery, on a program of some lines: a mutant that a test notices is killed, a mutant
# that no test notices survives, and nothing hangs.
use v5.36;
use lib 'script/lib', 't/lib';
use Cwd            qw(realpath);
use File::Basename qw(dirname);
use File::Temp     ();
use Mutate::Bench;
use Mutate::Equivalents;
use Mutate::Source;
use Mutate::Suites;
use OnlyInFull qw(only_in_full);
use Test::More;

plan skip_all => 'left to script/test --all' if !only_in_full(1);

my $text = <<'ZIG';
const std = @import("std");
pub fn count(limit: u32) u32 {
    var counted: u32 = 0;
    while (counted < limit) counted += 1; // a comment with 1 < 2
    return counted;
}
pub fn unseen(limit: u32) bool {
    return limit > 7 and limit != 9;
}
fn helper() u32 {
    return 3;
}
test "it counts" {
    try std.testing.expectEqual(3, count(helper()));
    try std.testing.expect(unseen(8));
}
ZIG

my %mutant = map { ("$_->{line} $_->{to}" => $_) } Mutate::Source::mutants($text);

subtest 'what is changed' => sub {
    ok $mutant{$_}, $_
        for '4 while (counted <= limit) counted += 1; // a comment with 1 < 2',
        '4 while (counted < limit) counted -= 1; // a comment with 1 < 2',
        '4 while ((counted < limit) and false) counted += 1; // a comment with 1 < 2',
        '8 return limit > 7 or limit != 9;', '8 return limit > 8 and limit != 9;',
        '8 return limit > 7 and limit < 9;';
    is scalar(grep { !/\A[348] / } keys %mutant), 0, 'nothing in tests, nor what they alone use';
    is scalar(grep { $_->{from} =~ s{//.*}{}r eq $_->{to} =~ s{//.*}{}r } values %mutant), 0, 'no comment';
};

package Tiny {
    sub folders   ($class)          { return 'src' }
    sub prepare   ($class, $folder) { return }
    sub home      ($class, $folder) { return $folder }
    sub arguments ($class, $suite)  { return 'src/tiny.zig' }
}

subtest 'what becomes of it' => sub {
    my $folder = File::Temp->newdir;
    mkdir "$folder/src" or die "$folder: $!";
    open my $out, '>', "$folder/src/tiny.zig" or die "$folder: $!";
    print {$out} $text;
    close $out or die "$folder: $!";
    my $bench = Mutate::Bench->new(
        from   => "$folder",
        suites => 'Tiny',
        zig    => $ENV{PEREGRINE_ZIG} // realpath('.peregrine/zig/zig'),
        folder => "$folder/bench",
    );
    # Mutants of Mutate::Source share a program; a text that is changed by hand is compiled alone.
    my $fate = sub ($mutated) {
        my $fate;
        $bench->try('src/tiny.zig', sub ($, $verdict) { $fate = $verdict },
            { %$mutated, suites => ['tiny'] });
        return $fate;
    };
    my $by_hand = sub ($mutated) { return $fate->({ text => $mutated }) };
    is $by_hand->($text), 'survived', 'no change survives';
    is $fate->($mutant{'8 return limit > 7 or limit != 9;'}), 'survived',
        '... as does one that nobody notices';
    is $fate->($mutant{'4 while (counted <= limit) counted += 1; // a comment with 1 < 2'}),
        'killed tiny: tiny.test.it counts', 'one that a test notices is killed';
    is $by_hand->($text =~ s/counted \+= 1/counted = 0/r), 'killed tiny: time',
        '... and one that does not end';
    is $by_hand->($text =~ s/limit > 7/limit > "x"/r), 'does not compile', '... or does not compile';
    is $by_hand->($text),                              'survived',         'nothing is left of them';
};

subtest 'the list of equivalent mutants' => sub {
    my $list = File::Temp->new;
    print {$list} "# a comment\n\nserver/tiny.zig\n- a\n+ b\n= because\n  of that\n\n- c\n+ d\n= why\n";
    $list->flush;
    my $known = Mutate::Equivalents->read("$list");
    my $path  = 'engine/src/server/tiny.zig';
    is $known->reason({ path => $path, from => 'a', to => 'b' }), 'because of that', 'a reason';
    is $known->reason({ path => $path, from => 'a', to => 'd' }), undef,             'none';
    is_deeply [ $known->stale($path) ], ["$path\nc\nd"], 'what names nothing any more';
    ok(Mutate::Equivalents->read('engine/test/equivalent-mutants.txt'), "the engine's own can be read");
};

subtest 'the suites are those of build.zig' => sub {
    ok(scalar(grep { $_ eq 'defects' } Mutate::Suites->programs), 'it has its list of programs');
    my %file = map { $_ => 1 } map { /\A-M\w+=(.+)/ && $1 !~ /_options/ ? $1 : () }
        map { Mutate::Suites->arguments($_) } Mutate::Suites->names;
    ok -e "engine/$_", $_ for sort keys %file;
};

# A module that a suite lacks would end script/mutate when it comes to that suite.
subtest 'each suite has the modules that its files import' => sub {
    for my $suite (Mutate::Suites->names) {
        my @arguments = Mutate::Suites->arguments($suite);
        my (%has, %lacks, @given);
        while (defined(my $word = shift @arguments)) {
            if    ($word eq '--dep') { push @given, shift @arguments }
            elsif ($word =~ /\A-M([^=]+)=(.+)/) {
                $has{$2} = { map { $_ => 1 } splice @given };
            }
        }
        for my $root (grep { !/_options/ } sort keys %has) {
            my @imported = imports("engine/$root");
            $lacks{"$root: $_"} = 1 for grep { !$has{$root}{$_} && !/\A(?:std|builtin|root)\z/ } @imported;
        }
        is_deeply [ sort keys %lacks ], [], $suite;
    }
};

# Names of the modules that a file and the files that it imports by path import.
sub imports ($file) {
    my (%names, %seen);
    my @files = ($file);
    while (defined(my $path = shift @files)) {
        next if $seen{$path}++;
        for my $import (slurp($path) =~ m{^[^/\n]*\@import\("([^"]+)"\)}mg) {
            if ($import =~ /\.zig\z/) { push @files, dirname($path) . "/$import" }
            else                      { $names{$import} = 1 }
        }
        for my $next (@files) { 1 while $next =~ s{[^/]+/\.\./}{} }
    }
    return keys %names;
}

# Each file of tests is imported by a program: otherwise it would never run.
subtest 'files of tests' => sub {
    my @files    = split /\n/, `find engine/test -name '*.zig' ! -path '*/.zig-cache/*'`;
    my %imported = map { $_ => 1 } map { slurp($_) =~ m{"(?:[\w/]*/)?(\w+_test\.zig)"}g } 'engine/build.zig',
        @files;
    my @tests = grep { m{_test\.zig\z} } @files;
    cmp_ok scalar @tests, '>', 30, 'there are many';
    is_deeply [ grep { !$imported{s{.*/}{}r} } @tests ], [], '... and each is compiled';
};

sub slurp ($file) {
    open my $in, '<', $file or die "$file: $!";
    local $/;
    return scalar <$in>;
}

done_testing;
