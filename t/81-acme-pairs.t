# Certificates that the server orders, together with what else may start, change or replace a server: plackup,
# Server::Starter, sockets of systemd, a configuration file, HUP and USR2 during an order.
use strict;
use warnings;
use experimental 'signatures';

use lib 't/lib';
use OnlyInFull qw(only_in_full);
use PAGI::Server;
use Test::More;
use Time::HiRes qw(time);

use TestClient;
use TestServer;
use TestTools   qw(content free_port patience program_path wait_for);
use TestWorkers qw(directory is_gone pid_in stop_master write_file);

plan skip_all => 'built without TLS'       if !PAGI::Server->has_tls;
plan skip_all => 'pebble is not installed' if !program_path('pebble');
plan skip_all => 'CryptX is not installed' if !eval { require CryptX; 1 };
require Pebble;
require Peregrine::Acme::Store;

my $dir     = directory();
my %port    = map { $_ => free_port() } qw(plain tls);
my $pebble  = Pebble->new(http_port => $port{plain}, tls_port => $port{tls});
my $app     = 'examples/pagi/hello/app.pl';
my $psgi    = write_file('app.psgi', q{sub { [ 200, [], ["app $_[0]{'psgi.url_scheme'}"] ] }});
my @include = map { "-I$_" } @INC;
my @listen  = ('--listen', "127.0.0.1:$port{plain},plain", '--listen', "127.0.0.1:$port{tls}");

sub acme ($folder, $authority = $pebble) {
    return (
        '--acme' => 'example.org',
        '--acme-agree',
        '--acme-directory' => $authority->directory,
        '--acme-ca'        => $authority->roots,
        '--acme-folder'    => "$dir/$folder",
    );
}

sub served ($authority = $pebble) { return $authority->served($port{tls}) }
sub renewed ($folder, $authority = $pebble) { return $authority->renewed($port{tls}, "$dir/$folder") }

sub count ($log, $pattern) { return scalar(() = $log =~ /$pattern/g) }

# Processes that order for the folder.
sub keepers ($folder) {
    my $path = "$dir/$folder/states/.servers";
    my @open = grep { my $to = readlink; defined $to && $to eq $path } glob '/proc/[0-9]*/fd/*';
    return map { m{\A/proc/(\d+)} } @open;
}

# A busy machine gets three tries.
subtest 'a fresh start' => sub {
    my @took;
    for my $try (1 .. 3) {
        my $began = time;
        my $server =
            TestServer->command(@listen, '--engine', 'process', '--workers', 2, acme("fresh$try"), $app);
        ok wait_for(sub { served() }), 'HTTPS is served';
        push @took, time - $began;
        is $server->stop, 0, 'the server ends well';
        last if $took[-1] < patience(10);
    }
    cmp_ok $took[-1], '<', patience(10), '... within ten seconds' or diag "@took";
};

for my $workers (only_in_full(0), 2) {
    subtest "plackup, workers: $workers" => sub {
        my $folder = "plackup$workers";
        my $server = TestServer->spawn(
            $^X, @include, program_path('plackup'), '-s', 'Peregrine', '-E', 'production',
            @listen, ($workers ? ('--workers', $workers) : ()),
            (map { $_ eq '--acme-agree' ? '--acme-agree=1' : $_ } acme($folder)), $psgi
        );
        ok wait_for(sub { served() }), 'a certificate is served' or diag $server->log;
        ok renewed($folder),           '... and renewed';
        is $server->stop, 0, 'the server ends well';
        ok wait_for(sub { !keepers($folder) }), '... and its process for certificates with it';
    };
}

subtest 'a configuration file' => sub {
    my $config = write_file('app.conf', <<"CONF");
listen = 127.0.0.1:$port{plain},plain
listen = 127.0.0.1:$port{tls}
acme = example.org,www.example.org
acme = example.com
acme-agree = yes
acme-directory = ${\$pebble->directory}
acme-ca = ${\$pebble->roots}
acme-folder = $dir/config
redirect-http = yes
app = $app
CONF
    my $server = TestServer->spawn($^X, @include, 'bin/pagi-server', '-c', $config);
    ok wait_for(sub { served() }), 'a certificate is served' or diag $server->log;
    ok $server->wait_for_log(qr/certificate for example\.com has come/), '... as is the other one';
    my $client = TestClient->new($port{plain});
    $client->send("GET /x HTTP/1.1\r\nHost: example.org\r\n\r\n");
    my $answer = $client->response;
    is $answer->{status}, 308, 'HTTP leads to HTTPS';
    is $server->stop,     0,   'the server ends well';
};

subtest 'Server::Starter' => sub {
    my $starter = program_path('start_server') or plan skip_all => 'needs start_server';
    my $server  = TestServer->spawn($starter, (map { "--port=127.0.0.1:$_" } @port{qw(plain tls)}),
        '--interval=1',  '--', $^X, @include, 'bin/pagi-server', '-E', 'production', @listen, '--workers', 2,
        acme('starter'), $app);
    ok wait_for(sub { served() }), 'a certificate is served' or diag $server->log;
    my $before = served();
    my ($old) = keepers('starter');
    $server->signal('HUP');
    ok wait_for(sub { $old && is_gone($old) }), 'a HUP: the old server has gone, with its process';
    is served(), $before, '... and the new one has the certificate';
    ok renewed('starter'), '... and renews it';
    is count($server->log, qr/is ordered from/), 2, 'each certificate was ordered once';
    is $server->stop,                            0, 'the server ends well';
    ok wait_for(sub { !keepers('starter') }), '... with all processes';
};

subtest 'sockets of systemd' => sub {
    my $activate = program_path('systemd-socket-activate')
        or plan skip_all => 'needs systemd-socket-activate';
    my $server = TestServer->spawn($activate, (map { ('-l', "127.0.0.1:$_") } @port{qw(plain tls)}),
        $^X, @include, 'bin/pagi-server', '-E', 'production', @listen, acme('systemd'), $app);
    ok wait_for(sub { served() }), 'a certificate is served' or diag $server->log;
    ok renewed('systemd'),         '... and renewed';
    is $server->stop, 0, 'the server ends well';
};

# An authority that takes its time before it asks.
my $slow = Pebble->new(http_port => $port{plain}, tls_port => $port{tls}, sleep => 8);

subtest 'HUP and USR2 during an order' => sub {
    my $server = TestServer->spawn(
        $^X,           @include,   'bin/pagi-server',     '-E',
        'production',  @listen,    '--workers',           2,
        '--engine',    'process',  '--pid',               "$dir/pid",
        '--error-log', "$dir/log", acme('during', $slow), $app
    );
    my $log = sub { return content("$dir/log") };
    ok wait_for(sub { $log->() =~ /is ordered from/ }), 'a certificate is ordered';
    my $old = pid_in('pid');
    kill HUP => $old;
    ok wait_for(sub { $log->() =~ /SIGHUP/ }), 'HUP';
    kill USR2 => $old;
    ok wait_for(sub { pid_in('pid') && pid_in('pid') != $old }), 'USR2: a new program serves';
    ok wait_for(sub { is_gone($old) }),                          '... and the old one leaves';
    ok wait_for(sub { served($slow) }), 'the certificate of the order is served' or diag $log->();
    is count($log->(), qr/is ordered from/), 1, '... which was one order';
    is scalar(keepers('during')),            1, '... of one process';
    ok renewed('during', $slow), 'it is renewed';
    $server->wait;
    ok stop_master('pid'),                   'the new program ends';
    ok wait_for(sub { !keepers('during') }), '... and the process for certificates with it';
};

subtest 'USR2 with other names, and without any' => sub {
    my $config = sub (@lines) {
        return write_file('names.conf', join "\n", @lines, "acme-folder = $dir/names", '');
    };
    my @acme =
        ('acme-agree = yes', "acme-directory = ${\$pebble->directory}", "acme-ca = ${\$pebble->roots}");
    my $path = $config->('acme = example.org', @acme);
    my $server =
        TestServer->spawn($^X, @include, 'bin/pagi-server', '-E', 'production', @listen, '--workers', 2,
        '--pid', "$dir/pid", '--error-log', "$dir/names.log", '-c', $path, $app);
    ok wait_for(sub { served() }), 'a certificate is served';
    my $again = sub ($says) {
        my $old = pid_in('pid');
        kill USR2 => $old;
        ok wait_for(sub { pid_in('pid') && pid_in('pid') != $old }), "USR2: a new program with $says";
        return ok wait_for(sub { is_gone($old) }), '... and the old one leaves';
    };
    $config->('acme = example.org', 'acme = example.com', @acme);
    $again->('another name');
    ok wait_for(sub { content("$dir/names.log") =~ /certificate for example\.com has come/ }),
        '... which is ordered';
    is count(content("$dir/names.log"), qr/for example\.org is ordered/), 1,
        '... and the first one is not again';
    is $server->wait,            0, 'the first program has ended well';
    is scalar(keepers('names')), 1, 'one process orders';
    $config->();
    $again->('no name');
    ok wait_for(sub { !keepers('names') }), '... and the process for certificates ends';
    ok stop_master('pid'),                  'the last program ends';
};

subtest '--check' => sub {
    my $folder = "$dir/check";
    my ($status, $out, $error) =
        TestServer->finish_of('pagi-server', @listen, acme('check'), '--acme', 'b.example,c.example',
        '--check', $app);
    is $status, 0, 'it is well' or diag $error;
    my $from = 'from ' . $pebble->directory . ' by http-01, then tls-alpn-01';
    like $out, qr/^# certificate for $_: ordered at once \Q$from\E$/m, "what would be ordered: $_"
        for 'example.org', 'b.example c.example';
    ok !-e $folder, '... and nothing is made';
    my $server = TestServer->command(@listen, acme('check'), $app);
    ok $server->wait_for_log(qr/has come/), 'a certificate is there';
    is $server->stop, 0, 'the server ends well';
    ($status, $out) = TestServer->finish_of('pagi-server', @listen, acme('check'), '--check', $app);
    my $day = qr/\d{4}-\d\d-\d\d \d\d:\d\d UTC/;
    like $out, qr/^# certificate for example\.org: there until $day, ordered $day from/m,
        'how long it is good';
    require Peregrine::Server::Certificates;
    is Peregrine::Server::Certificates::_lost_kind('/dev/shm/acme'), 'tmpfs', 'a folder in memory is found';
    is Peregrine::Server::Certificates::_lost_kind('/proc/acme'),    undef,   '... and others are none';
    ($status, $out) =
        TestServer->finish_of('pagi-server', @listen, acme('check'), '--acme-folder', '/dev/shm/acme',
        '--check', $app);
    like $out, qr{^# warning: /dev/shm/acme is on tmpfs, which a container does not keep}m, '... and told';
};

done_testing;
