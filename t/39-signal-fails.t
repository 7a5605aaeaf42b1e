# Signals whose handlers die, as USR2 did where no descriptor was left: the server goes on, and the log tells
# why the signal has done nothing.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use Future;
use PAGI::Server::PidFile;
use Peregrine::Process;
use Test::More;
use TestTools qw(patience);

# A server and a log with the methods that Peregrine::Process calls.
package Server;
sub new          { return bless {}, $_[0] }
sub shutdown     { push @{ $_[0]{heard} }, 'shutdown'; return Future->done }
sub fail_stalled { return 0 }
sub give_up_stop { return }

package Log;
sub new   { return bless { errors => [] }, $_[0] }
sub error { push @{ $_[0]{errors} }, $_[1]; return }
sub info  { return }

package main;

my $loop = Peregrine::Process->make_loop;
my ($server, $log) = (Server->new, Log->new);
my %reason = (
    HUP  => sub { die "no descriptor is left\n" },
    USR2 => sub { die bless {},           'Exception' },
    USR1 => sub { push @{ $_[0]{heard} }, 'reopened'; $loop->stop; return },
);
my $process = Peregrine::Process->new(loop => $loop, log => $log, server => $server, on => \%reason);
$process->attach_signals;

my $late = $loop->watch_time(after => patience(20), code => sub { $loop->stop });
for my $signal (qw(HUP USR2 USR1)) {
    my $before = @{ $log->{errors} };
    kill $signal => $$;
    next if $signal eq 'USR1';
    $loop->loop_once(1) until @{ $log->{errors} } > $before;
}
is $process->run, undef, 'no exception leaves the loop';
$loop->unwatch_time($late);
$process->detach_signals(1);
is_deeply $server->{heard}, ['reopened'], 'the next signal is heard, and nothing is stopped';
is $log->{errors}[0], "SIGHUP: no descriptor is left\n", 'the log has the reason';
like $log->{errors}[1], qr/\ASIGUSR2: Exception=HASH/, '... and that of an object';
is scalar @{ $log->{errors} }, 2, '... and nothing else';

SKIP: {
    skip 'there is no /dev/full', 3 if !-w '/dev/full';
    my $file = File::Temp->new;
    print {$file} "123456789\n";
    $file->flush;
    my $pid = bless { path => $file->filename, handle => $file, waits => 1, pid => 0 },
        'PAGI::Server::PidFile';
    ok $pid->take_over, 'a pid file is taken over';
    is TestTools::content($file->filename), "$$\n", '... and has the new process alone';
    open my $full, '+<', '/dev/full' or die "/dev/full: $!";
    my $other = bless { path => '/dev/full', handle => $full, waits => 1, pid => 0 }, 'PAGI::Server::PidFile';
    ok !$other->take_over && $!{ENOSPC}, 'a full disk is reported';
}

done_testing;
