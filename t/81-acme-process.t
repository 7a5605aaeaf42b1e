# The process that shows certificates, where it cannot start the one that orders them: no other process could
# take its place, because the server has given up the rights for that.
use strict;
use warnings;

use lib 't/lib';
use Errno      qw(EAGAIN EMFILE);
use File::Temp ();
use JSON::PP   ();
use Peregrine::Acme::Process;
use Peregrine::Acme::Store;
use Peregrine::Link;
use POSIX ();
use Test::More;
use TestTools;

my $now = 1000;
my (@errors, @started);
{
    no warnings 'redefine';
    *Peregrine::Deadline::now = sub { return $now };
    *Peregrine::Fork::child   = sub {
        my $error = shift @errors;
        if ($error) { $! = $error; return undef }    ## no critic
        my $pid = fork // die "fork: $!";
        POSIX::_exit(0) if !$pid;
        push @started, $pid;
        return $pid;
    };
}

my $folder = File::Temp->newdir;
my ($here, $there) = Peregrine::Link->pair;
my $process = bless {
    store   => Peregrine::Acme::Store->new("$folder")->make,
    shown   => {},
    servers => [],
    orders  => { orders => [] },
    },
    'Peregrine::Acme::Process';
$process->_join($there);

# A turn of its loop, which waits for nothing here.
sub turn {
    $here->say('turn');
    my $goes_on = eval { $process->_turn };
    diag $@ if !defined $goes_on;
    return $goes_on;
}

sub told {
    return map { $_->{text} }
        map { JSON::PP::decode_json($_->[1]) } grep { $_->[0] eq 'fact' } $here->read_lines;
}

told();
@errors = (EAGAIN, EMFILE);
for my $error (my @all = @errors) {
    ok turn(), 'a fork fails: the process goes on';
    my ($told) = told();
    local $! = $error;
    is $told, "the process that orders certificates cannot be started: fork: $!, which is tried again in"
        . ' 60 seconds', '... and says so';
    ok turn(), 'it goes on';
    is_deeply [ told() ], [], '... and tries nothing before that time';
    $now += Peregrine::Acme::Process::AGAIN_S;
}
is_deeply \@errors,  [], 'two attempts have failed';
is_deeply \@started, [], '... and nothing was started';
ok turn(), 'the third attempt';
is scalar @started, 1, '... starts the process';
waitpid $_, 0 for @started;

# The server opens its logs anew: the process has the new one, and so has the next one that orders.
{
    my ($log, $before) = (File::Temp->new);
    open $before, '>&', \*STDERR or die $!;
    $here->say(logs => '', fileno $log);
    ok turn(), 'a new log';
    my $leads_to = readlink '/proc/self/fd/2';
    open STDERR, '>&', $before or die $!;
    is $leads_to, "$log", '... takes the place of the standard error';
    ok turn(), 'it goes on';
    is scalar @started, 2, '... and starts another process that orders';
    waitpid $started[-1], 0;
}

done_testing;
