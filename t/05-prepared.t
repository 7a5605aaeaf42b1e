# A program that is forked from a process with its modules (TestPrepared) is like a program that is executed.
# Not repeated for each PEREGRINE_ENGINE: its programs end before they serve.
use strict;
use warnings;

use lib 't/lib';
use Fcntl qw(F_SETFD);
use Test::More;
use PreparedProgram ();
use TestServer;
use TestTools qw(program_path);

plan skip_all => 'no process can be prepared on this system' if !PreparedProgram::is_possible();

# Tells in lines how the program was started, and exits.
my $REPORT = <<'CODE';
my %loaded      = %INC;
my $is_prepared = delete $loaded{'PreparedProgram.pm'} ? 1 : 0;
my @report      = (
    "prepared $is_prepared", "name $0", "parent " . getppid, "group " . getpgrp, "umask " . umask,
    $^T > time - 60 ? 'young' : 'old', 'directory ' . readlink('/proc/self/cwd'),
    map({ "folder $_" } @INC), map({ "module $_" } sort keys %loaded),
    map({ "variable $_=$ENV{$_}" } sort keys %ENV),
    map({ "signal $_ " . (ref $SIG{$_} || $SIG{$_} // '') } sort keys %SIG),
);
for my $path (glob '/proc/self/fd/*') {
    my $file = readlink($path) // next;
    push @report, "$path: " . $file =~ s/\d{2,}//gr if $path !~ m{/[012]\z};
}
$SIG{ALRM} = sub { };
open my $line, '<', '/proc/self/cmdline';
push @report, 'words for ' . (readline($line) =~ /PreparedProgram/ ? 'the process' : 'this program');
push @report, alarm(0) ? 'an end' : 'no end';
print map { s/\n/ /gr . "\n" } @report;
print STDERR "an error\n";
END { print "at the end\n" }
exit 3;
CODE

sub report {
    my ($is_brief, $program, $loaded) = @_;
    local $ENV{PEREGRINE_BRIEF} = $is_brief;
    my ($status, $out, $error) = TestServer->finish_at($program, qw(-E production -e), $REPORT);
    $out =~ s/^variable PEREGRINE_BRIEF=.*\n//m;
    $out =~ s/^module $_\n//m for @$loaded;
    my ($is_prepared) = $out =~ s/\Aprepared ([01])\n// ? $1 : "no report: $error";
    return ($is_prepared, "status $status\n$out$error");
}

sub compare {
    my ($name, $expected, $program, @loaded) = @_;
    $program //= 'bin/pagi-server';
    my ($executed, $prepared) = map { [ report($_, $program, \@loaded) ] } '', 1;
    is $executed->[0], 0,         "$name: a run of a file alone executes the program";
    is $prepared->[0], $expected, $expected ? '... a default run forks it' : '... a default run, too';
    is_deeply [ split /\n/, $prepared->[1] ], [ split /\n/, $executed->[1] ], '... and nothing is different';
    return $prepared->[1];
}

my $report = compare('the first program', 1);
like $report, qr/\Astatus 3\n.*^$_$/ms, "it tells: $_" for "parent $$", 'an end', 'at the end', 'an error';
compare('a further program', 1);
{
    local @ENV{qw(PEREGRINE_NEW PATH)} = ("a\nb", "/none:$ENV{PATH}");
    my $other = compare('another environment', 1);
    like $other, qr/^variable PATH=\/none:/m, '... is that of the start';
}
{
    local $SIG{HUP} = 'IGNORE';
    compare('a signal is ignored', 1);
}
{
    local $ENV{PERL5OPT} = '-MTime::Local';
    compare('the environment has options for perl', 1);
}
{
    pipe my $out, my $in or die "pipe: $!";
    fcntl $out, F_SETFD, 0 or die "fcntl: $!";
    compare('a descriptor is inherited', 0);
}
my $umask = umask 0077;
compare('new files have other permissions', 1);
umask $umask;
compare('a program after all of these', 1);
compare('peregrine', 1, 'bin/peregrine');
SKIP: {
    my $plackup = program_path('plackup') or skip 'plackup is not installed', 4;
    # Modules of PreparedProgram, which plackup has not.
    my $report =
        compare('plackup', 1, $plackup, map { "\Q$_.pm\E" } qw(Config Fcntl File/Glob POSIX Tie/Hash));
    unlike $report, qr/^module Peregrine/m, '... its application is loaded before our modules';
}

{
    local $ENV{PEREGRINE_BRIEF} = 1;
    my @said = map { (TestServer->finish('-e', 'print rand, "\n"; exit'))[1] } 1, 2;
    isnt $said[0], $said[1], 'random numbers differ';
}

done_testing;
