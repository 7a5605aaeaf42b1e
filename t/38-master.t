# A process that owns the sockets and serves nothing, and others, forked from it, that serve on them: what a
# master is made of.
use strict;
use warnings;

use lib 't/lib';
use Certificates;
use File::Temp       ();
use IO::Socket::IP   ();
use IO::Socket::UNIX ();
use Peregrine::Listeners;
use Peregrine::Master;
use Peregrine::Place;
use Peregrine::Process;
use POSIX ();
use Test::More;
use TestClient qw(get);
use TestTools  qw(ended patience);

my $folder = File::Temp->newdir;
my $path   = "$folder/app.sock";
my $log    = "$folder/log";        # words of the workers
my $master = $$;

my $certificates = Certificates->new->authority('server');
my @secure =
    Peregrine::has_tls() ? { host => '127.0.0.1', port => 0, ssl => { $certificates->pair('server') } } : ();

my $listeners = Peregrine::Listeners->new;
$listeners->choose([ Peregrine::Place->all({ listen => [ '127.0.0.1:0', $path, @secure ] }) ]);

# The application answers with its process, and the signals that have handlers there.
my $app = sub {
    my ($scope, $receive, $send) = @_;
    die "no lifespan\n" if $scope->{type} ne 'http';
    my $text = join ' ', $$, grep { ref $SIG{$_} } sort qw(HUP INT TERM USR1 USR2);
    $send->({ type => 'http.response.start', status => 200 });
    return $send->({ type => 'http.response.body', body => $text });
};

# Serves until the process is told to stop. Which signals do that is decided by Peregrine::Process.
sub serve {
    require PAGI::Server;
    my $server = PAGI::Server->new(app => $app, access_log => undef);
    my $loop   = $server->use_listeners($listeners)->ignore_signals->own_loop;
    $server->listen->get;
    my $process = Peregrine::Process->new(loop => $loop, log => $server->{log}, server => $server);
    $process->attach_signals;
    return defined $process->run ? 1 : 0;
}

sub start_worker {
    my $pid = fork // die "fork: $!";
    return $pid if $pid;
    alarm patience(60);
    open STDERR, '>>', $log;
    my $status = eval { serve() };
    print STDERR $@ if !defined $status;
    POSIX::_exit($status // 2);
}

sub ask_unix {
    my $socket = IO::Socket::UNIX->new(Peer => $path) or die "$path: $!";
    print {$socket} "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    local $/;
    return readline $socket;
}

sub stop_worker {
    my ($pid, $signal) = @_;
    kill $signal => $pid;
    return ended($pid);
}

is_deeply(
    [ map { $_->{type} } $listeners->facts ],
    [ qw(tcp unix), map { 'tcp' } @secure ],
    'before they are open: what was asked for'
);
ok(!$listeners->is_open, '... and none is open');
$listeners->open(backlog => 16);
my $port = $listeners->first_with('port');
ok($port,    'they are open: the first one has a port');
ok(-S $path, '... the second one a file');

my %worker = (first => start_worker());
my $answer = get($port, '/');
is($answer->{status}, 200,                       'a worker serves on them');
is($answer->{body},   "$worker{first} INT TERM", '... and takes no signals but those that its process wants');
like(ask_unix(), qr/\r\n$worker{first} INT TERM/, '... at the Unix socket as well');
SKIP: {
    skip 'built without TLS', 2 if !@secure;
    my ($secure_port) = map { $_->{place}{ssl} ? $_->{port} : () } $listeners->all;
    $answer = TestClient->new($secure_port, tls => {})->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")->response;
    is($answer->{body}, "$worker{first} INT TERM", '... and over TLS');
    ok(!(grep { $_->{tls} } $listeners->places), '... with keys that the owner of the socket has not loaded');
}

$worker{second} = start_worker();
is(stop_worker($worker{first}, 'TERM'), 0, 'TERM ends a worker well');
ok(-S $path, '... the file is still there: it is its maker\'s');
like(get($port, '/')->{body}, qr/\A$worker{second} /, 'another worker goes on on the same port');

stop_worker($worker{second}, 'KILL');
my $client = TestClient->new($port)->send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
pass('a connection that comes while there is no worker is taken by the sockets');
$worker{third} = start_worker();
like($client->response->{body}, qr/\A$worker{third} /, '... and answered by the next worker');
is(stop_worker($worker{third}, 'INT'), 0, 'it ends');

$listeners->close;
ok(!-e $path, 'when the owner closes them, the file goes');
ok(!IO::Socket::IP->new(PeerHost => '127.0.0.1', PeerPort => $port), '... and the port');
is($$, $master, 'only the owner got here');

# An application that plackup has loaded may have set it.
SKIP: {
    skip 'the kernel does not tell', 1 if !-r "/proc/$$/smaps_rollup";
    local $/;
    ok defined Peregrine::Master::Growth::private_bytes($$), 'memory of a process is counted, whatever $/ is';
}

done_testing;
