# A log that is as long as the system lets files be (ulimit -f): the server answers, and tells of it.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use OnlyInFull qw(only_in_full);
use Test::More;
use TestClient qw(get);
use TestServer;

# Longer than the memory that processes of a server share, which is of files, too.
use constant LIMIT => 512 << 20;

my $directory = File::Temp->newdir;
my $app       = 'examples/pagi/hello/app.pl';

for my $way ([], only_in_full([qw(--workers 1)], [qw(--engine thread)]), [qw(--engine process --workers 1)]) {
    my $log = "$directory/access.log";
    open my $full, '>', $log or die "$log: $!";
    truncate $full, LIMIT or die "$log: $!";    # without a block on the disk
    close $full or die "$log: $!";
    my $limited = 'ulimit -f ' . LIMIT / 512 . '; exec "$@"';
    my $server  = TestServer->spawn(
        'sh', '-c', $limited, 'sh', $^X,
        (map { "-I$_" } @INC),
        qw(bin/pagi-server -E production --port 0 --access-log),
        $log, @$way, $app
    );
    my $port = $server->wait_for_log(qr{listening on http://127\.0\.0\.1:([0-9]+)/}) or die $server->log;
    is(get($port, '/')->{status}, 200, "@$way: a request");
    is(get($port, '/')->{status}, 200, '... and another one are answered');
    is($server->stop, 0, '... the server ends well');
    like(
        $server->log,
        qr/Access log '\S+': it cannot be written \(file too large\)/,
        '... the log tells of it'
    );
    is(-s $log, LIMIT, '... the file is as it was');
}

subtest 'a file limit below the shared memory' => sub {
    my $server = TestServer->spawn(
        'sh', '-c', 'ulimit -f ' . (20 << 20) / 512 . '; exec "$@"',
        'sh', $^X,
        (map { "-I$_" } @INC),
        qw(bin/pagi-server -E production --port 0 --no-access-log --engine process --workers 1), $app
    );
    isnt($server->wait, 0, 'the server does not start');
    my $why = 'the memory that it shares with the engine counts as a file of \d+ MiB';
    like(
        $server->log,
        qr/cannot join the engine: $why, and files may not be so long: see ulimit -f/,
        '... and the log says why'
    );
};

done_testing;
