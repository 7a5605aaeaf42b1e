# A module that looks for the program's folder in a request finds it, in each placement, although ps shows
# another text than the program's path.
# Not repeated for each PEREGRINE_ENGINE: its servers name their engines.
use strict;
use warnings;

use lib 't/lib';
use Cwd            qw(realpath);
use File::Basename qw(dirname);
use OnlyInFull     qw(crossed);
use Peregrine::Threads;
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools   qw(program_path);
use TestWorkers qw(write_both);

my $look = <<'PERL';
sub answer {
    delete $INC{'FindBin.pm'};
    eval { local $SIG{__WARN__} = sub { }; require FindBin; 1 } or return "died: $@";
    open my $in, '<', '/proc/self/cmdline' or return "$FindBin::RealBin\n";
    return "$FindBin::RealBin\n" . (readline($in) =~ s/\0/ /gr);
}
PERL
my ($psgi, $pagi) = write_both('late', $look);

my $plackup = program_path('plackup');

sub try_program {
    my ($program, $label, @words) = @_;
    my $server = TestServer->spawn($^X, (map { "-I$_" } @INC), $program, qw(--listen 127.0.0.1:0), @words);
    my ($port) = $server->wait_for_log(qr{listening on http://127\.0\.0\.1:(\d+)}) =~ /(\d+)\z/;
    my ($folder, $shown) = split /\n/, (get($port, '/') || { body => 'no answer' })->{body};
    is $folder, dirname(realpath($program)), "$program @words: the folder";
    like $shown, qr/\Q$label\E/, '... and ps shows its label' if length $label && defined $shown;
    is $server->stop, 0, '... to the end';
    return;
}

my @workers = (
    [ '(worker 1)', '--workers', 1 ],
    [ '(worker 1)', qw(--workers 1 --engine process) ],
    [ '(worker 1)', qw(--workers 1 --preload-app) ]
);
my @programs = ([ 'bin/pagi-server', $pagi ], [ 'bin/peregrine', $psgi ], [ $plackup, $psgi ]);
for my $case (crossed([ [''], [ '', qw(--engine thread) ], @workers ], \@programs)) {
    my ($label,   @options) = @{ $case->[0] };
    my ($program, $app)     = @{ $case->[1] };
    @options = ('-s', 'Peregrine', map { s/\A--preload-app\z/$&=1/r } @options) if $program eq $plackup;
    try_program($program, $label, @options, $app);
}
try_program($plackup, '', qw(-s EVHTP --max-workers 1), $psgi) if Peregrine::Threads::are_possible();
try_program($plackup, '(worker 1)', qw(-L Delayed -s Peregrine --workers 1), $psgi);

done_testing;
