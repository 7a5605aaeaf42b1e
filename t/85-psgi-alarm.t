# alarm ends what blocks an application, wherever that runs, and nothing else.
# Not repeated for each PEREGRINE_ENGINE: its servers name their engines.
use strict;
use warnings;

use lib 't/lib';
use Peregrine::Threads;
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools   qw(program_path);
use TestWorkers qw(write_both);

# All applications here have these paths: an alarm after a second ends a wait of a minute.
my $do = <<'PERL';
use strict;
use warnings;
use Time::HiRes ();

sub limited {
    my ($blocks) = @_;
    my $began = time;
    my $done  = eval {
        local $SIG{ALRM} = sub { die "late\n" };
        alarm 1;
        $blocks->();
        alarm 0;
        1;
    };
    my $error = $done ? 'not late' : $@;
    chomp $error;
    return $error . (time - $began < 40 ? ', soon' : ', far too late');
}

my %DO = (
    '/sleep'  => sub { limited(sub { sleep 60 }) },
    '/select' => sub { limited(sub { select undef, undef, undef, 60 }) },
    '/read'   => sub { pipe my $in, my $out or die $!; limited(sub { my $line = readline $in }) },
    '/loop'   => sub { limited(sub { my $end = time + 60; 1 while time < $end }) },
    '/eval'   => sub { limited(eval 'sub { alarm 1; sleep 60 }') },
    '/left'   => sub { alarm 100; my $left = alarm 50; my $last = alarm 0; join ' ', $left > 98, $last > 48 },
    '/after'  => sub { local $SIG{ALRM} = 'IGNORE'; alarm 1; Time::HiRes::sleep(1.5); 'went on' },
    '/kill'   => sub { kill ALRM => $$; 'told' },
    '/fork'   => sub {
        my $pid = fork // die $!;
        if (!$pid) {
            $SIG{ALRM} = sub { require POSIX; POSIX::_exit(7) };
            alarm 1;
            sleep 60;
            require POSIX;
            POSIX::_exit(1);
        }
        waitpid $pid, 0;
        return $? >> 8;
    },
);
sub answer { return ($DO{ $_[0] } || sub { 'hello' })->() }
PERL

my ($psgi, $pagi) = write_both('alarm', $do);

my %EXPECTED = (
    (map { $_ => 'late, soon' } qw(/sleep /select /read /loop /eval)),
    '/left'  => '1 1',
    '/after' => 'went on',
    '/fork'  => 7,
);

my $plackup = program_path('plackup');

sub plackup {
    my ($psgi, @options) = @_;
    return TestServer->spawn($^X, (map { "-I$_" } @INC), $plackup, @options, $psgi);
}

sub port_of {
    my ($server) = @_;
    return ($server->wait_for_log(qr{listening on http://127\.0\.0\.1:(\d+)}) =~ /(\d+)\z/)[0];
}

# Asks for all paths at once; the server answers them one after the other.
sub asked {
    my ($server) = @_;
    my $client = TestClient->new($server->port // port_of($server));
    $client->send(join '', map { "GET $_ HTTP/1.1\r\nHost: h\r\n\r\n" } sort(keys %EXPECTED), '/');
    return [ $server, $client ];
}

sub try_alarms {
    my ($server, $client) = @_;
    is $client->response->{body}, $EXPECTED{$_}, $_ for sort keys %EXPECTED;
    is $client->response->{body}, 'hello',       'the server goes on';
    is $server->stop,             0,             'to its end';
}

my @at    = qw(--listen 127.0.0.1:0);
my %START = (
    'PAGI, inline'  => sub { TestServer->command(qw(--engine inline),              $pagi) },
    'PAGI, thread'  => sub { TestServer->command(qw(--engine thread),              $pagi) },
    'PAGI, process' => sub { TestServer->command(qw(--engine process --workers 1), $pagi) },
    'PSGI, inline'  => sub { plackup($psgi, qw(-s Peregrine --engine inline),              @at) },
    'PSGI, thread'  => sub { plackup($psgi, qw(-s Peregrine --engine thread),              @at) },
    'PSGI, process' => sub { plackup($psgi, qw(-s Peregrine --engine process --workers 1), @at) },
);

# All servers wait for their alarms at the same time.
my %begun = map { $_ => asked($START{$_}->()) } sort keys %START;
for my $name (sort keys %begun) {
    subtest $name => sub { try_alarms(@{ $begun{$name} }) };
}

subtest 'PSGI, clones' => sub {
    plan skip_all => 'this Perl has no threads, or this is not Linux' if !Peregrine::Threads::are_possible();
    my $server = plackup($psgi, qw(-s EVHTP --max-workers 2), @at);
    my $port   = port_of($server);
    # A clone waits for its alarm while another clone sets and unsets an alarm.
    my $waits = TestClient->new($port)->send("GET /sleep HTTP/1.1\r\nHost: h\r\n\r\n");
    is get($port, '/left')->{body}, '1 1',            'an alarm of another clone';
    is $waits->response->{body},    'late, soon',     '... leaves that of the first one';
    is get($port, "/$_")->{body},   $EXPECTED{"/$_"}, "/$_" for qw(select read loop eval after fork);
    is get($port, '/kill')->{body}, 'told',           'SIGALRM to the process';
    is get($port, '/')->{body},     'hello',          '... ends nothing';
    is $server->stop,               0,                'the server stops';
};

done_testing;
