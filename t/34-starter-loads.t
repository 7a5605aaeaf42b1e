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
use TestTools qw(patience wait_for);

my $dir = File::Temp->newdir;

# Marks that the code has come to that point, and waits while it is held there.
my $hold = <<"PERL";
sub hold {
    my (\$point) = \@_;
    open my \$mark, '>', "$dir/at.\$point" or die \$!;
    close \$mark;
    select undef, undef, undef, 0.02 while -e "$dir/hold.\$point";
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
async sub {
    my (\$scope, \$receive, \$send) = \@_;
    await \$receive->();
    open my \$mark, '>', "$dir/at.startup" or die \$!;
    await IO::Async::Loop->new->delay_future(after => 0.02) while -e "$dir/hold.startup";
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

for my $case (@cases) {
    my ($what, $held, $before, @command) = @$case;
    subtest $what => sub {
        unlink glob "$dir/{hold,at}.*";
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
        ok $server->is_running && wait_for(sub { -e "$dir/at.$before" }), 'it starts'
            or return diag $server->log;
        # A server that would take the request does so at once.
        IO::Select->new($client)->can_read(0.5);
        $server->signal('TERM');
        ok defined $server->wait(patience(20)), 'it stops';
        my $is_there = IO::Select->new($listener)->can_read(0);
        ok $is_there, 'the connection is there for another server' or return diag $server->log;
        sysread $listener->accept, my $asked, 1000;
        like $asked, qr{\AGET / HTTP/1\.1\r\n}, '... with its request';
    };
}

done_testing;
