# The command lines of the articles that promise this server, as they stand there. The port is the one thing
# that is not theirs, because 5000 and 5001 may be somebody else's here: pagi-server is given a socket, as by
# Server::Starter, and plackup another port.
use strict;
use warnings;
use experimental 'signatures';

use lib 't/lib';
use Cwd            qw(getcwd);
use File::Temp     ();
use IO::Socket::IP ();
use OnlyInFull     qw(only_in_full);
use PAGI::Server;
use Peregrine::Threads;
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools qw(content ended free_port patience wait_for);

my $home = File::Temp->newdir;
my $root = getcwd();

sub write_file ($name, $text, $mode = 0644) {
    my ($parent) = "$home/$name" =~ m{(.*)/};
    system 'mkdir', '-p', $parent;
    open my $out, '>', "$home/$name" or die "$name: $!";
    print {$out} $text;
    close $out or die "$name: $!";
    chmod $mode, "$home/$name";
    return "$home/$name";
}

# The event loop that an article names is not in Debian. Under its name there is another one here, so that the
# line is run as it stands; that a loop which is not installed is told so is the last test.
write_file('loops/IO/Async/Loop/EV.pm', <<'LOOP');
package IO::Async::Loop::EV;
use strict;
use warnings;
use parent 'IO::Async::Loop::Poll';
sub new { return $_[0]->__new }
1;
LOOP
write_file('that-app.psgi',   q{sub { [ 200, [ 'Content-Type' => 'text/plain' ], ['that app'] ] }});
write_file('app.psgi',        q{sub { [ 200, [ 'Content-Type' => 'text/plain' ], ['the app'] ] }});
write_file('bin/pagi-server', "#!/bin/sh\nexec $^X $root/bin/pagi-server \"\$\@\"\n", 0755);
$ENV{PATH}     = "$home/bin:$ENV{PATH}";
$ENV{PERL5LIB} = join ':', (map { m{\A/} ? $_ : "$root/$_" } @INC), $ENV{PERL5LIB} // ();

# Runs a command line in a folder, with a listening socket that it inherits; the server and its port.
sub serving ($folder, $line, %env) {
    local $^F = 100;
    my $socket = IO::Socket::IP->new(LocalHost => '127.0.0.1', Listen => 100) or die "listen: $@";
    my $port   = $socket->sockport;
    local @ENV{ 'SERVER_STARTER_PORT', keys %env } = ("127.0.0.1:$port=" . fileno $socket, values %env);
    chdir $folder or die "chdir: $!";
    my $server = TestServer->spawn('/bin/sh', '-c', $line =~ s/((?:\.\/)?bin\/pagi-server|plackup)/exec $1/r);
    chdir $root or die "chdir: $!";
    close $socket;
    return ($server, $port);
}

sub answers ($port, $body, $name) {
    my $answer;
    wait_for(
        sub {
            return $answer = eval { get($port, '/') }
        },
        60
    );
    is($answer->{body}, $body, $name);
    return $answer;
}

subtest 'PAGI::Server Performance and Hardening' => sub {
    my $line = 'LIBEV_FLAGS=8 ./bin/pagi-server --workers 16 --quiet --no-access-log --loop EV'
        . ' ./examples/01-hello-http/app.pl';
    my ($server, $port) = serving(
        $root, $line =~ s/\ALIBEV_FLAGS=8 //r,
        LIBEV_FLAGS => 8,
        PERL5LIB    => "$home/loops:$ENV{PERL5LIB}"
    );
    answers($port, "Hello from PAGI!\n", $line);
    wait_for(sub { workers_of($server->pid) == 16 }, 60);
    is(workers_of($server->pid), 16, '... by 16 workers');
    is($server->stop,            0,  '... and ends well');
    is($server->log,             '', '... and is quiet');
};

sub workers_of ($pid) {
    return scalar split ' ', content("/proc/$pid/task/$pid/children");
}

# Interpreters that are threads: those of the only child, without its first thread and the engine's; where
# Perl has no threads, its processes without the engine's.
sub interpreters_of ($pid) {
    my @children = split ' ', content("/proc/$pid/task/$pid/children");
    return @children - 1 if !Peregrine::Threads::are_possible();
    return 0             if @children != 1;
    return (() = glob "/proc/$children[0]/task/*") - 2;
}

for my $case (
    [ 'plackup -s EVHTP', 'the app', 8 ],
    only_in_full([
        'plackup -s EVHTP -E production --host 0.0.0.0 --port 5001 --max-workers 8'
            . ' --max-reqs-per-child 1000000 -a that-app.psgi',
        'that app',
        8
    ]),
    [
        'plackup -E prod -s EVHTP --port 5001 --max-workers 8 --max-reqs-per-child 99999999'
            . ' --max-keepalive-reqs 99999999 -e "sub {[200, [\'Content-Type\' => \'text/html\'],'
            . ' [\'Hello World\']]}"',
        'Hello World',
        8
    ],
    )
{
    my ($line, $body, $workers) = @$case;
    subtest $line => sub {
        my $port = free_port();
        my ($server) = serving("$home", $line =~ s/ --port 5001//r . " --port $port");
        answers($port, $body, 'the server serves');
        wait_for(sub { interpreters_of($server->pid) == $workers }, 60);
        is(interpreters_of($server->pid), $workers, "... by $workers workers");
        is($server->stop,                 0,        '... and ends well');
    };
}

# The lines for TLS, as they stand there.
subtest 'Testing your TLS configuration' => sub {
    plan skip_all => 'built without TLS' if !PAGI::Server->has_tls;
    my @lines = (
        qq{openssl req -x509 -newkey rsa:4096 -nodes \\\n    -keyout server.key -out server.crt -days 365 \\\n}
            . qq{    -subj "/CN=localhost"},
        <<~'CONF' . qq{openssl req -x509 -newkey rsa:4096 -nodes \\\n    -keyout server.key -out server.crt}
        cat > ssl.conf <<EOF
        [req]
        distinguished_name = req_distinguished_name
        x509_extensions = v3_req
        prompt = no

        [req_distinguished_name]
        CN = localhost

        [v3_req]
        subjectAltName = @alt_names

        [alt_names]
        DNS.1 = localhost
        DNS.2 = *.localhost
        IP.1 = 127.0.0.1
        EOF
        CONF
            . ' -days 365 -config ssl.conf -extensions v3_req',
    );
    # A key of that length costs seconds of a processor, and the server no line of its own.
    if (!only_in_full(1)) { s/\brsa:4096\b/rsa:2048/ for @lines }
    write_file('myapp.pl', content('examples/01-hello-http/app.pl'));
    for my $line (@lines) {
        is(shell($line), 0, 'a certificate is made');
        my ($server, $port) =
            serving("$home", 'bin/pagi-server --app myapp.pl --ssl-cert server.crt --ssl-key server.key');
        wait_for(sub { $server->log =~ /listening on/ }, 60);
        my ($status, $body) = shell("curl -sk https://localhost:$port/");
        is($status,       0,                    'curl -k');
        is($body,         "Hello from PAGI!\n", '... has the answer');
        is($server->stop, 0,                    '... and the server ends well');
    }
};

# Exit status, and in list context what was printed.
sub shell ($line) {
    my $out = File::Temp->new;
    my $pid = fork // die "fork: $!";
    if (!$pid) {
        open STDOUT, '>&', $out or die $!;
        open STDERR, '>&', $out or die $!;
        chdir $home or die $!;
        exec '/bin/sh', '-c', $line or die $!;
    }
    my $status = ended($pid, patience(60)) // 'late';
    diag content($out->filename) if $status ne 0;
    return wantarray ? ($status, content($out->filename)) : $status;
}

# Each flag that the manual of that server names for an option.
subtest 'the flags of the manual' => sub {
    my @flags = (
        '--log-level debug',
        '--max-receive-queue 500',
        '--max-ws-frame-size 1048576',
        '--max-connections 200',
        '--max-body-size 50000000',
        '--disable-sendfile',
        '--sync-file-threshold 100',
        '--max-requests 10000',
    );
    my ($status, $out, $err) =
        TestServer->finish('--check', (map { split ' ' } @flags), 'examples/01-hello-http/app.pl');
    is($status, 0, "pagi-server @flags") or diag $out, $err;
};

subtest 'a loop that is not installed' => sub {
    plan skip_all => 'IO::Async::Loop::EV is installed' if eval { require IO::Async::Loop::EV };
    my ($status, undef, $err) = TestServer->finish('--loop', 'EV', 'examples/01-hello-http/app.pl');
    isnt($status, 0, 'the start fails');
    like($err, qr/cannot load IO::Async::Loop::EV/, '... and says what is missing');
};

done_testing;
