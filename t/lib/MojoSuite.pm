package MojoSuite;

# Mojolicious' own tests, which are in its source package (script/conformance mojolicious fetches it);
# PEREGRINE_MOJOLICIOUS is its directory.

use strict;
use warnings;

use Cwd        qw(abs_path);
use Exporter   qw(import);
use File::Temp ();
use Test::More;
use TestTools qw(content patience);

our $VERSION   = '0.003000';
our @EXPORT_OK = qw(run_file run_text source_of);

my $SOURCE = $ENV{PEREGRINE_MOJOLICIOUS} // '.peregrine/mojolicious/source';
plan skip_all => "needs Mojolicious' source: script/conformance mojolicious" if !-d "$SOURCE/t/mojo";

$ENV{MOJO_LOG_LEVEL} = 'fatal';
$ENV{$_} = 1 for qw(TEST_ASYNC_AWAIT TEST_SUBPROCESS TEST_TLS);
my @INCLUDE = map { '-I' . abs_path($_) } grep { !ref && -d } 't/lib', @INC;

sub source { return $SOURCE }

sub source_of {
    my ($path) = @_;
    return content("$SOURCE/$path");
}

sub run_text {
    my ($folder, $text, $what, $exceptions, @modules) = @_;
    my $file = File::Temp->new(DIR => "$SOURCE/$folder", TEMPLATE => 'oursXXXX', SUFFIX => '.t');
    print {$file} $text;
    close $file;
    run_file("$folder/" . ($file->filename =~ s{.*/}{}r), $what, $exceptions, @modules);
    return;
}

# Titles of failed tests, behind the titles of their subtests. A subtest with failed tests does not count.
sub failures {
    my ($text) = @_;
    my (%titles, %failed);
    for my $line (split /\n/, $text) {
        my ($indent, $rest) = $line =~ /\A((?:    )*)(.*)/ or next;
        my $depth = length $indent;
        if ($rest =~ /\A# Subtest:\s*(.*)/) { $titles{$depth} = $1 }
        next if $rest !~ /\Anot ok [0-9]+ - ?(.*)/;
        my $title = $1;
        next if $title eq ($titles{$depth} // "\n");
        my @above = map { $titles{$_} } grep { $_ < $depth } sort { $a <=> $b } keys %titles;
        $failed{ join ': ', @above, $title } = 1;
    }
    return sort keys %failed;
}

# Runs a test file. One that hangs is ended by SIGKILL, because a server catches SIGTERM.
sub run_file {
    my ($path, $what, $exceptions, @modules) = @_;
    my $output = File::Temp->new;
    my $pid    = fork // die "fork: $!";
    if (!$pid) {
        chdir $SOURCE or die "$SOURCE: $!";
        open STDOUT, '>&', $output or die $!;
        open STDERR, '>&', $output or die $!;
        exec 'timeout', '-s', 'KILL', patience(60), $^X, @INCLUDE, '-Ilib', @modules, $path;
    }
    waitpid $pid, 0;
    my $status = $?;
    my $text   = content($output->filename);
    my $failed = join "\n", failures($text);
    # Files end with the number of tests that failed.
    my $is_over = $text =~ /^1\.\.[1-9]/m && !($status & 127) && (%$exceptions || $status == 0);
    ok $is_over && $failed eq join("\n", sort keys %$exceptions), $what or diag "$failed\n$text";
    return;
}

1;
