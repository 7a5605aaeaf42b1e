# Starts that fail: the last line tells what has failed, and no process is left when the command ends.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use IO::Handle ();
use POSIX      ();
use Test::More;
use TestTools qw(ended patience);

my $directory = File::Temp->newdir;

sub write_file {
    my ($name, $text) = @_;
    my $path = "$directory/$name";
    open my $out, '>', $path or die "$path: $!";
    print {$out} $text;
    close $out or die "$path: $!";
    return $path;
}

# Runs a command to its end. Returns its status, its output, and whether each process has closed the pipe to
# which all of them write.
sub start_of {
    my (@command) = @_;
    pipe my $reader, my $writer or die "pipe: $!";
    my $pid = fork;
    die "fork: $!" if !defined $pid;
    if (!$pid) {
        open STDOUT, '>&', $writer or die $!;
        open STDERR, '>&', $writer or die $!;
        close $_ for $reader, $writer;
        alarm patience(60);
        exec $^X, (map { "-I$_" } @INC), @command or POSIX::_exit(127);
    }
    close $writer;
    my $status = ended($pid, patience(70));
    $reader->blocking(0);
    my $text = '';
    my $read = 1;
    $read = sysread $reader, $text, 1 << 16, length $text while $read;
    return ($status, $text, defined $read ? 1 : 0);
}

my $good   = write_file('good.psgi',   'sub { return [ 200, [], [] ] }');
my $broken = write_file('broken.psgi', qq{die "no database\\n"});
my $killed = write_file('killed.psgi', 'kill KILL => $$; sleep 1000');
my $places = '--port 0 --status 127.0.0.1:0 --channels';
my $error  = qr/^Error: Error loading \S*broken\.psgi: no database$/m;

my @starts = (
    [ "$places --engine process --workers 2 $broken",                                      $error ],
    [ "$places --workers 2 $broken",                                                       $error ],
    [ "$places --engine process --workers 2 --mount /a=$good,workers=1 --mount /=$broken", $error ],
    [ '--port 0 --workers 2 ' . $killed, qr/^Error: the process was killed by SIGKILL during its start$/m ],
    [
        "$places --engine process --workers 2 --preload-app $killed",
        qr/^Error: the process that loads the code was killed by SIGKILL$/m
    ],
);
for my $start (@starts) {
    my ($arguments, $expected) = @$start;
    my ($status, $text, $is_over) = start_of('bin/peregrine', '-E', 'production', split / /, $arguments);
    is($status, 1 << 8, $arguments =~ s{\S*/(?=\w+\.psgi)}{}gr);
    like($text, $expected, '... the last line says why') or diag $text;
    ok($is_over, '... and each process has ended before the command');
}

subtest 'few descriptors' => sub {
    my $command = "ulimit -n 20; exec \"\$@\"";
    my ($status, $text) = start_of(
        '-e', 'exec @ARGV or die',
        'sh', '-c', $command, 'sh', $^X,
        (map { "-I$_" } @INC),
        qw(bin/peregrine -E production --port 0 --engine process --workers 4), $good
    );
    is($status, 1 << 8, 'the start fails');
    like(
        $text,
        qr/An interpreter cannot join the engine: too many open files: see ulimit -n$/m,
        'the log says why'
    );
    like($text, qr/^Error: \S.*$/m, '... and where to look') or diag $text;
};

done_testing;
