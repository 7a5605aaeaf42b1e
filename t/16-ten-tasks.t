# The ten tasks that README.md begins with: each has its part of a manual, with something to type, and a test
# that does what this manual says, in its order, runs the whole of it.
use strict;
use warnings;
use experimental 'signatures';

use lib 't/lib';
use Test::More;
use TestTools qw(content);

my %TESTED = (
    'PAGI::Tutorial'           => [ 'lib/PAGI/Tutorial.pod',          't/12-tutorial.t' ],
    'PAGI::Server::Deployment' => [ 'lib/PAGI/Server/Deployment.pod', 't/15-deployment.t' ],
    'PAGI::Server::Tutorial'   => [ 'lib/PAGI/Server/Tutorial.pod',   't/12-tutorial.t' ],
);

my ($table) = content('README.md') =~ /^\| Task \| Part \|\n.*\n((?:\|.*\n)+)/m;
my @tasks   = map { [/\A\| (.*?) \| `([\w:]+)`, ([A-Z ,]+) \|/] } split /\n/, $table // '';
is(scalar @tasks, 10, 'README.md has ten tasks') or diag $table;

for my $task (@tasks) {
    my ($name, $manual, $part) = @$task;
    my ($file, $test) = @{ $TESTED{ $manual // '' } // [] };
    ok($file, "$name: a manual") or next;
    my ($text) = content($file) =~ /^=head1 \Q$part\E\n(.*?)(?=^=head1 |\z)/ms;
    like(
        $text // '',
        qr/^    (?:\$ \w|(?:[A-Z]+=\S+ )?pagi-server )/m,
        "... with something to type in its part $part"
    );
    like(content($test), qr/\Q$file\E'/, "... and $test types it");
}
done_testing;
