# A server under Server::Starter that is told to stop while its application starts: it has taken nothing from
# the sockets, so requests of clients are there for the next server. Wherever engine and application run, and
# whichever of them is not ready.
# Not repeated for each PEREGRINE_ENGINE: it names the engine of each server.
use strict;
use warnings;

use lib 't/lib';
use Fcntl      qw(F_SETFD);
use File::Temp ();
use IO::Select ();
use IO::Socket::INET;
use Test::More;
use TestServer;
use TestTools qw(content patience wait_for);

my $dir = File::Temp->newdir;

# Marks that the process has come to that point.
my $note = <<"PERL";
sub note {
    my (\$mark) = \@_;
    open my \$out, '>>', "$dir/\$mark" or die \$!;
    print {\$out} "\$\$ ";
    close \$out;
}
PERL

# Marks that the process has come to that point, waits while it is held there, and marks that it does.
my $hold = <<"PERL";
$note
sub hold {
    my (\$point) = \@_;
    note("at.\$point");
    while (-e "$dir/hold.\$point") { select undef, undef, undef, 0.02; note("waiting.\$point") }
}
PERL

sub write_file {
    my ($name, $text) = @_;
    open my $out, '>', "$dir/$name" or die "$name: $!";
    print {$out} $text // '';
    close $out or die "$name: $!";
    return "$dir/$name";
}

my %app = (
    pagi => write_file('app.pl', <<"PERL"),
use Future::AsyncAwait;
use PAGI::Sync qw(sync);
$hold
hold('load');
my \$app = sync(sub { \$_[2]->({ type => 'http.response.start', status => 204 }) });
async sub {
    my (\$scope, \$receive, \$send) = \@_;
    return await \$app->(\$scope, \$receive, \$send) if \$scope->{type} ne 'lifespan';
    await \$receive->();
    my \$pool = \$scope->{'pagi.worker_pool'};
    hold(\$pool && \$pool->state ? 'handlers' : 'others');
    await \$send->({ type => 'lifespan.startup.complete' });
    await \$receive->();
    await \$send->({ type => 'lifespan.shutdown.complete' });
};
PERL
    waits => write_file('waits.pl', <<"PERL"),
use Future::AsyncAwait;
use IO::Async::Loop;
$note
async sub {
    my (\$scope, \$receive, \$send) = \@_;
    await \$receive->();
    note('at.startup');
    while (-e "$dir/hold.startup") {
        await IO::Async::Loop->new->delay_future(after => 0.02);
        note('waiting.startup');
    }
    await \$send->({ type => 'lifespan.startup.complete' });
};
PERL
    psgi => write_file('app.psgi', "$hold\nhold('load');\nsub { [ 204, [], [] ] };\n"),
);

# The point that is held; the point that others have come to before the stop; program, application, options.
my @process = qw(--engine process --workers);
my @cases   = (
    [ 'handlers that block', 'handlers', 'others', 'pagi-server', 'pagi', @process, 1, '--sync-workers', 1 ],
    [
        'interpreters before such handlers',
        'others', 'handlers', 'pagi-server', 'pagi', @process, 1, '--sync-workers', 1
    ],
    [ 'interpreters',            'load',    'load',    'pagi-server', 'pagi', @process, 2 ],
    [ 'a template',              'load',    'load',    'peregrine',   'psgi', @process, 2, '--preload-app' ],
    [ 'prefork',                 'load',    'load',    'pagi-server', 'pagi', '--workers', 2 ],
    [ 'prefork from a template', 'load',    'load',    'peregrine', 'psgi', qw(--workers 2 --preload-app) ],
    [ 'clones',                  'load',    'load',    'peregrine', 'psgi', qw(--engine thread --workers 2) ],
    [ 'a single process',        'startup', 'startup', 'pagi-server', 'waits' ],
    [ 'an engine on a thread',   'startup', 'startup', 'pagi-server', 'waits', qw(--engine thread) ],
    [ 'plackup', 'load', 'load', 'plackup', 'psgi', qw(--engine=process --workers=2 -L Delayed) ],
);

sub command {
    my ($program, $app, @options) = @_;
    my @command = $program eq 'plackup' ? qw(-S plackup -s EVHTP) : "bin/$program";
    return ($^X, (map { "-I$_" } @INC), @command, @options, '-E', 'deployment', $app{$app});
}

# The threads of a server but those that wait at a point, and how often each has run; nothing while one runs.
sub threads {
    my ($server, $held) = @_;
    my %waits = map { $_ => 1 } split ' ', content("$dir/waiting.$held");
    my @threads;
    for my $status (map { glob "/proc/$_/task/*/status" } $server->family) {
        my ($number) = $status =~ m{(\d+)/status\z};
        my $text = content($status);
        next if $waits{$number};
        return if $text !~ /^State:\s+S/m;
        push @threads, join ' ', $number, $text =~ /ctxt_switches:\s+(\d+)/g;
    }
    return join "\n", @threads;
}

# No thread of the server runs, and none has run between two looks: it has taken what it takes.
sub rests {
    my ($server, $held) = @_;
    my $before;
    return wait_for(sub {
        my $now  = threads($server, $held);
        my $same = defined $now && defined $before && $now eq $before;
        $before = $now;
        return $same;
    });
}

for my $case (@cases) {
    my ($what, $held, $before, @command) = @$case;
    subtest $what => sub {
        unlink glob "$dir/{hold,at,waiting}.*";
        write_file("hold.$held");
        my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1:0', Listen => 5) or die $@;
        fcntl $listener, F_SETFD, 0 or die "fcntl: $!";
        my $port   = $listener->sockport;
        my $client = IO::Socket::INET->new(PeerAddr => "127.0.0.1:$port") or die $@;
        print {$client} "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        my $server = do {
            local $ENV{SERVER_STARTER_PORT} = "127.0.0.1:$port=" . fileno $listener;
            TestServer->spawn(command(@command));
        };
        my $starts = sub { -e "$dir/at.$before" && -e "$dir/waiting.$held" };
        ok $server->is_running && wait_for($starts), 'it starts' or return diag $server->log;
        ok rests($server, $held),                    '... and does all that it can do';
        $server->signal('TERM');
        ok defined $server->wait(patience(20)), 'it stops';
        my $is_there = IO::Select->new($listener)->can_read(0);
        ok $is_there, 'the connection is there for another server' or return diag $server->log;
        sysread $listener->accept, my $asked, 1000;
        like $asked, qr{\AGET / HTTP/1\.1\r\n}, '... with its request';
    };
}

done_testing;
