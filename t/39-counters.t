# Workers count in shared memory: sums cover all processes, also those that have gone, while others read.
use strict;
use warnings;

use lib 't/lib';
use Peregrine;
use Peregrine::Counters;
use Peregrine::Server::Monitor;
use POSIX ();
use Test::More;
use TestTools qw(ended patience);

my @words = Peregrine::Counters->words;
my %at    = map {
    join('/', grep { length } @{ $words[$_] }{qw(name value)}) => $_
} 0 .. $#words;

# A process that runs the code and ends; its number.
sub child {
    my ($code) = @_;
    my $pid = fork // die "fork: $!";
    return $pid if $pid;
    my $ok = eval { $code->(); 1 } or warn $@;
    POSIX::_exit($ok ? 0 : 1);
}

subtest 'each word has a description' => sub {
    ok !(grep { $_->{kind} !~ /\A(?:counter|gauge|bucket|sum)\z/ || !length $_->{summary} } @words),
        'all are described';
    is $words[ $at{'requests/2xx'} ]{label},        'status', 'requests are told apart by their status';
    is $words[ $at{'connections/idle'} ]{kind},     'gauge',  'a present number is a gauge';
    is $words[ $at{'request_time/0.0005'} ]{label}, 'le',     'a bucket has its bound';
    is $words[ $at{'request_time'} ]{kind},         'sum',    'a histogram has a sum';
};

subtest 'sums over processes, and what was counted stays' => sub {
    my $counters = Peregrine::Counters->new(processes => 2);
    my @columns  = map { $counters->claim } 1 .. 3;
    pipe my $reader, my $writer or die "pipe: $!";
    my @children;
    for my $column (@columns) {
        push @children, child(sub {
            close $writer;
            $counters->begin($column);
            my $from = Peregrine::Counters::_offset($column);
            $counters->{memory}->add($from + $at{'requests/2xx'}, 10 * $column);
            $counters->{memory}->set($from + $at{'connections/idle'}, $column);
            readline $reader;    # until the parent has looked
        });
    }
    TestTools::wait_for(sub { @{ $counters->read->{processes} } == 3 });
    my $before = $counters->read;
    is_deeply [ sort map { $_->{pid} } @{ $before->{processes} } ], [ sort @children ],
        'three processes have begun';
    is $before->{sum}[ $at{'requests/2xx'} ],                      60, 'their requests add up';
    is $before->{sum}[ $at{'connections/idle'} ],                  6,  'and so do their connections';
    is $before->{processes}[0]{words}[ $at{'requests/2xx'} ] % 10, 0,  'each has its own';
    close $writer;
    is ended($_, patience(60)), 0, 'a process has ended' for @children;

    $counters->release($columns[1]);
    $counters->note_restart('heartbeat');
    my $after = $counters->read;
    is @{ $after->{processes} },                 2,  'the master has cleared its column';
    is $after->{sum}[ $at{'requests/2xx'} ],     60, 'its counts stay';
    is $after->{sum}[ $at{'connections/idle'} ], 4,  'its gauges do not';
    is $after->{restarts}{heartbeat},            1,  'why it is replaced is counted';
    $counters->note_restart('mood');
    is $counters->read->{restarts}{other}, 1, 'so is what nobody has thought of';
};

subtest 'columns run out, and come back' => sub {
    my $counters = Peregrine::Counters->new(processes => 1);
    my @columns;
    while (defined(my $column = $counters->claim)) { push @columns, $column }
    is @columns,         18,    'twice the workers and sixteen';
    is $counters->claim, undef, 'then there is none';
    $counters->release($columns[4]);
    is $counters->claim, $columns[4], 'until one is given back';
};

# TTIN brings more workers, and old ones may stay for long.
subtest 'a server has columns for all workers that there may be' => sub {
    my $monitor =
        Peregrine::Server::Monitor->new(options => { status => '127.0.0.1:0', log_format => 'text' });
    $monitor->bind({});
    my $counters = $monitor->counters;
    my @columns  = grep { defined } map { $counters->claim } 1 .. 2 * 1024;
    is @columns, 2 * 1024, 'also while each of them is replaced';
    $counters->begin($columns[-1]);
    $counters->{memory}->add(Peregrine::Counters::_offset($columns[-1]) + $at{'requests/2xx'}, 7);
    is $counters->read->{sum}[ $at{'requests/2xx'} ], 7,  'readers see the last one';
    is $counters->read->{processes}[0]{pid},          $$, '... with its process';
};

subtest 'a sum never falls while columns are moved' => sub {
    my $counters = Peregrine::Counters->new(processes => 1);
    pipe my $reader, my $writer or die "pipe: $!";
    my $pid = child(sub {
        close $reader;
        my ($last, $fell, $looks) = (0, 0, 0);
        my $end = time + patience(60);
        while (1) {
            my $sum = $counters->read->{sum}[ $at{'requests/2xx'} ];
            $fell++ if $sum < $last || $sum > 3000;
            $looks++;
            last if ($last = $sum) == 3000 || time > $end;
        }
        syswrite $writer, "$fell $looks\n";
    });
    close $writer;
    for (1 .. 3000) {
        my $column = $counters->claim;
        $counters->begin($column);
        $counters->{memory}->add(Peregrine::Counters::_offset($column) + $at{'requests/2xx'}, 1);
        $counters->release($column);
    }
    my ($fell, $looks) = split ' ', readline $reader;
    is $fell, 0, 'it did not fall, nor was anything there twice';
    cmp_ok $looks, '>', 1, "in $looks looks";
    is ended($pid, patience(60)), 0, 'the reader has ended';
};

subtest 'words that are not there' => sub {
    my $words = Peregrine::Words->new(4);
    is_deeply [ $words->get(0, 4) ], [ (0) x 4 ], 'new words are 0';
    ok !eval { $words->get(3, 2); 1 }, 'there are no more than there are';
    like $@, qr/there are 4 words: not 2 from 3 on/, 'which the error says';
    ok !eval { $words->set(~0, 1);       1 }, 'however large the number';
    ok !eval { Peregrine::Words->new(0); 1 }, 'nor are there none';
};

done_testing;
