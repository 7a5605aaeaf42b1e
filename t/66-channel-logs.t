# The checker of script/channels: it finds each line that is missing in the logs of a run, each line that is
# there twice, and lines in the wrong order.
# Not repeated for each PEREGRINE_ENGINE: it has no server.
use strict;
use warnings;
use experimental 'signatures';

use lib 't/lib';
use ChannelLogs;
use File::Temp ();
use Test::More;
use TestTools;

my $folder = File::Temp->newdir;
my $check  = sub ($offset) { return sprintf '%012x', $offset * 7919 };
my $place  = sub ($offset, $epoch = 'aaaaaaaaaaaa') { return "$epoch.$offset." . $check->($offset) };

# Entries 1 to 6 of publisher a; the last entry is the one of publisher z.
my %entry = (map({ $_ => "a $_" } 1 .. 6), 7 => 'z 1');

sub stream ($id, @offsets) {
    return map { "$id s news + $entry{$_} " . $place->($_) } @offsets;
}

sub websocket ($id, @offsets) {
    return map { "$id w news + $entry{$_}" } @offsets;
}

my @acknowledged = ('# phase quiet', map { "ack news $entry{$_} " . $place->($_) } 1 .. 7);
my @log          = (
    '# phase quiet',
    '1 s news since now',
    '1 s news from ' . $place->(0),
    '2 w news since now',
    '2 w news from ' . $place->(0),
    'x3 w news since now',
    'x3 w news from ' . $place->(0),
    stream(1, 1, 2),
    websocket(2, 1, 2),
    '1 s news end',
    '2 w news end',
    '1 s news since ' . $place->(2),
    '1 s news from ' . $place->(2),
    '2 w news since ' . $place->(1),
    '2 w news from ' . $place->(1),
    '# phase slow',
    stream(1, 3 .. 5),
    websocket(2,    2 .. 7),
    websocket('x3', 1, 2, 5, 6),
    'x3 w news reset ' . $place->(4),
    websocket('x3', 7),
    stream(1, 6, 7),
);

sub write_lines ($name, @lines) {
    open my $out, '>', "$folder/$name" or die "$name: $!\n";
    print {$out} "$_\n" for @lines;
    close $out or die "$name: $!\n";
    return "$folder/$name";
}

sub checked ($log, $acknowledged = \@acknowledged, @more) {
    my @logs = (write_lines(log => @$log), [ write_lines(acknowledged => @$acknowledged) ]);
    return ChannelLogs->new(@logs, @more);
}

my $good = checked(\@log);
is_deeply [ $good->problems ], [], 'a whole log has no problem';
is $good->delivered, 20, 'its deliveries are counted';
is_deeply [ map { $good->resets('slow', $_) } qw(fast slow) ], [ 0, 1 ], 'as are resets, by phase and speed';

# Two entries are missed by no reader: the first came again when its client came back, the second one lies at
# the beginning of what the reset has told of.
my %is_told = ('2 w news + a 2' => 1, 'x3 w news + a 2' => 1);

subtest 'a line that is missing' => sub {
    for my $at (grep { $log[$_] !~ /\A#| end\z/ } 0 .. $#log) {
        my @without = @log;
        splice @without, $at, 1;
        # Expected: a line without which nothing can be told makes the checker die.
        my $count = eval { checked(\@without)->problem_count } // 1;
        # A client that comes back needs no word from where: it has said it.
        my $is_needed = $log[$at] =~ / from / ? $log[ $at - 1 ] =~ /now\z/ : 1;
        next if !$is_needed || delete $is_told{ $log[$at] };
        cmp_ok $count, '>', 0, "line $at: $log[$at]";
    }
};

subtest 'a line that is there twice' => sub {
    for my $at (grep { $log[$_] =~ / \+ / } 0 .. $#log) {
        my @twice = @log;
        splice @twice, $at, 0, $log[$at];
        cmp_ok checked(\@twice)->problem_count, '>', 0, "line $at: $log[$at]";
    }
};

subtest 'two lines that have changed places' => sub {
    for my $at (grep { $log[$_] =~ / \+ / && $log[ $_ + 1 ] =~ / \+ / } 0 .. $#log - 1) {
        my @changed = @log;
        my @ids     = map { /\A(\S+)/ } @changed[ $at, $at + 1 ];
        next if $ids[0] ne $ids[1];
        @changed[ $at, $at + 1 ] = @changed[ $at + 1, $at ];
        cmp_ok checked(\@changed)->problem_count, '>', 0, "lines $at and the next";
    }
};

subtest 'an acknowledged entry that no subscriber got' => sub {
    my @more = (@acknowledged[ 0 .. 6 ], 'ack news a 99 ' . $place->(6, 'bbbbbbbbbbbb'), $acknowledged[7]);
    is checked(\@log, \@more)->problem_count, 1, 'is lost';
    my $allowed = checked(\@log, \@more, may_lose => ['quiet']);
    is_deeply [ $allowed->problem_count, $allowed->lost('quiet') ], [ 0, 1 ], 'which a failover may do';
};

subtest 'an entry that was published twice' => sub {
    my @twice = map { / a 4 /a ? s/a 4/a 3/r : $_ } @log;
    cmp_ok checked(\@twice)->problem_count, '>', 0, 'has two places';
};

subtest 'a failover: another entry has taken an offset' => sub {
    my @silent = map { /\A1 .* 4\.|\A1 .* a 4/ ? s/\.[0-9a-f]{12}\z/.ffffffffffff/r : $_ } @log;
    cmp_ok checked(\@silent)->problem_count, '>', 0, 'a subscriber that is not told is found';
};

done_testing;
