# Messages between processes whose descriptors find no room: the link ends, or goes on without them where that
# is said to be so, and leaves no descriptor open. Not repeated for each PEREGRINE_ENGINE: there is none.
use strict;
use warnings;

use lib 't/lib';
use Peregrine::Link;
use Test::More;
use TestTools   ();                # for its deadline
use TestWorkers qw(descriptors);

plan skip_all => 'Linux only' if $^O ne 'linux';

my @told;
my @links = map { [ Peregrine::Link->pair ] } 1 .. 3;
for my $link (@links) {
    my ($here) = @$link;
    $here->say(first  => 'text');
    $here->say(reopen => 'text', (fileno STDERR) x 3);
    $here->say(last   => 'text');
}
my ($says, $hears) = Peregrine::Link->pair;
$says->say(lost => 'text', (fileno STDERR) x 3);
$hears->on_no_room(sub { return 1 });
my ($ends, $goes_on, $gives_up) = map { $_->[1] } @links;
$goes_on->on_no_room(sub { push @told, @_; return 1 });
$gives_up->on_no_room(sub { return 0 });

# This process has room for two of three descriptors.
open my $first, '<', '/dev/null' or die "/dev/null: $!";
my $limit = 2 + fileno $first;
close $first;
my %before = descriptors($$);
system('prlimit', '--pid', $$, "--nofile=$limit:") == 0 or die "prlimit: $?";

is_deeply [ $goes_on->read_lines ], [ [ first => 'text' ], [ last => 'text' ] ],
    'a message whose descriptors find no room is left out';
is_deeply \@told, [ "no descriptor is left for those of the message 'reopen', which is lost", 'reopen' ],
    '... and told of';
ok !$goes_on->has_ended, '... and the link goes on';
is_deeply { descriptors($$) }, \%before, '... without those that had room';

for my $link ($ends, $gives_up) {
    is_deeply [ $link->read_lines ], [ [ first => 'text' ] ], 'elsewhere nothing comes after it';
    ok $link->has_ended, '... and the link has ended';
}

# The next message comes when there is room again.
ok $hears->has_news, 'a message is read while two of its three descriptors have room';
system('prlimit', '--pid', $$, "--nofile=${\($limit + 8)}:") == 0 or die "prlimit: $?";
$says->say(next => 'text', fileno STDERR);
my @lines = $hears->read_lines;
is_deeply [ map { [ @$_[ 0, 1 ] ] } @lines ], [ [ next => 'text' ] ], 'it is left out, but not the next one';
is scalar @{ $lines[0] }, 3, '... which has its descriptor';

# `wait_for` finds both messages there. The caller has looked for something else before.
my ($tells, $waits) = Peregrine::Link->pair;
$tells->say('go');
$tells->say(next => 'text', fileno STDERR);
my $long = 'x' x 100 . 'y';
ok $long =~ /y/,                               'a pattern matches far behind that';
ok $waits->has_news && $waits->wait_for('go'), 'a word that was waited for';
@lines = $waits->read_lines;
is_deeply [ map { scalar @$_ } @lines ], [3], '... and the message behind it, with its descriptor';

done_testing;
