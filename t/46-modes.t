# The modes of pagi-server decide where the access log goes by default, and whether the start warns that it
# goes to a terminal.
use strict;
use warnings;

use lib 't/lib';
use Fcntl      qw(O_NOCTTY O_RDWR);
use File::Temp ();
use IO::Async::Loop;
use PAGI::Server;
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools qw(content patience wait_for);

my $directory = File::Temp->newdir;
my $app       = 'examples/pagi/hello/app.pl';
my $line      = qr{"GET / HTTP/1\.1" 200};

# Both ends of a terminal.
sub terminal {
    my ($TIOCSPTLCK, $TIOCGPTN) = (0x40045431, 0x80045430);    # linux/tty.h
    sysopen my $master, '/dev/ptmx', O_RDWR | O_NOCTTY or die "/dev/ptmx: $!";
    my $number = my $unlocked = pack 'i', 0;
    ioctl $master, $TIOCSPTLCK, $unlocked or die "unlock: $!";
    ioctl $master, $TIOCGPTN,   $number   or die "number: $!";
    my $path = '/dev/pts/' . unpack 'i', $number;
    sysopen my $slave, $path, O_RDWR | O_NOCTTY or die "$path: $!";
    return ($master, $slave, $path);
}

# The access log that the start names, and whether a request is in what the server writes.
sub log_of {
    my (@arguments) = @_;
    my $server      = TestServer->command(@arguments, $app);
    my ($named)     = $server->log =~ /access_log: ([^,]+),/;
    is(get($server->port, '/')->{status}, 200, "@arguments: a request is answered");
    is($server->stop,                     0,   '... and the server ends well');
    return ($named, $server->log =~ $line ? 1 : 0);
}

subtest 'the access log by mode' => sub {
    my $file  = "$directory/access.log";
    my @cases = (
        [ [qw(-E development)]                      => 'stderr', 1 ],
        [ [qw(-E none)]                             => 'stderr', 1 ],
        [ [qw(-E staging)]                          => 'stderr', 1 ],
        [ [qw(-E production)]                       => 'off',    0 ],
        [ [ qw(-E production --access-log), $file ] => $file,    0 ],
        [ [qw(-E development --no-access-log)]      => 'off',    0 ],
    );
    for my $case (@cases) {
        my ($arguments, @expected) = @$case;
        is_deeply([ log_of(@$arguments) ], \@expected, '... and its access log is where it should be');
    }
    like(content($file), $line, 'a file that is named has it in production');
    my ($status, $help) = TestServer->finish_of('pagi-server', '--help');
    like(
        $help =~ s/\s+/ /gr,
        qr/--access-log.*?Default: standard error, or the file of "?--error-log"?; in production and with "?--daemonize"? none\./,
        '--help tells the default'
    );
};

subtest 'a mode with a typing error' => sub {
    my (undef, undef, $error) = TestServer->finish_of('pagi-server', qw(--check -E prodution), $app);
    like($error,
        qr/'prodution' is none of the modes development production none \(did you mean 'production'\?\)/,
        'is told');
    (undef, undef, $error) = TestServer->finish_of('pagi-server', qw(--check -E staging), $app);
    is($error, '', 'a mode of the application is in order');
};

subtest 'development for others' => sub {
    my $warned = qr/in development whoever can connect to (\S+) is shown exceptions and stack traces/;
    for my $case (
        [ [qw(-E development --host 0.0.0.0)]                       => qr{\Atcp://0\.0\.0\.0:\d+/\z} ],
        [ [ qw(-E development --socket), "$directory/development" ] => undef ],
        [ [qw(-E development --host localhost)]                     => undef ],
        [ [qw(-E development)]                                      => undef ],
        [ [qw(-E production --host 0.0.0.0)]                        => undef ],
        )
    {
        my ($arguments, $expected) = @$case;
        my $server = TestServer->command(@$arguments, $app);
        is($server->stop, 0, "@$arguments: the server starts and ends well");
        my ($named) = $server->log =~ $warned;
        $expected
            ? like($named, $expected, '... with a warning')
            : is($named, undef, '... without a warning');
    }
};

subtest 'a terminal' => sub {
    my ($master, $slave, $path) = terminal();
    my $loop   = IO::Async::Loop->new;
    my $warned = qr/the access log goes to a terminal.*--access-log FILE, --no-access-log/;
    my @cases  = (
        [ 'a handle'       => $slave,                 1 ],
        [ 'its path'       => $path,                  1 ],
        [ 'no access log'  => undef,                  0 ],
        [ 'a file'         => "$directory/plain.log", 0 ],
        [ 'another device' => '/dev/null',            0 ],
    );
    for my $case (@cases) {
        my ($name, $target, $expected) = @$case;
        my @said;
        local $SIG{__WARN__} = sub { push @said, @_ };
        my $server = PAGI::Server->new(app => sub { die "no\n" }, port => 0, access_log => $target);
        $loop->add($server);
        $server->listen->get;
        is((grep { $_ =~ $warned } @said) ? 1 : 0, $expected, $name) or diag @said;
        $server->shutdown->get;
        $loop->remove($server);
    }
};

subtest 'a terminal under pagi-server' => sub {
    my ($master, $slave) = terminal();
    my $pid = fork // die "fork: $!";
    if (!$pid) {
        open STDIN,  '<&', $slave or die $!;
        open STDERR, '>&', $slave or die $!;
        alarm patience(230);
        exec $^X, (map { "-I$_" } @INC), 'bin/pagi-server', '--port', 0, $app or die $!;
    }
    close $slave;
    my $shown = '';
    my $read  = sub {
        my ($pattern) = @_;
        wait_for(sub {
            my $ready = '';
            vec($ready, fileno $master, 1) = 1;
            sysread $master, $shown, 65_536, length $shown if select $ready, undef, undef, 0.1;
            return $shown =~ $pattern;
        });
        return $shown =~ $pattern;
    };
    ok(
        $read->(qr/listening on \S+:(\d+)\/ .*access_log: stderr/),
        'development on a terminal: the log goes there'
    ) or diag $shown;
    ok($read->(qr/the access log goes to a terminal/), '... with a warning');
    my ($port) = $shown =~ m{listening on \S+:(\d+)/};
    is(get($port, '/')->{status}, 200, '... and a request is answered');
    ok($read->($line), '... and logged');
    kill TERM => $pid;
    waitpid $pid, 0;
    is($?, 0, '... and the server ends well');
};

done_testing;
