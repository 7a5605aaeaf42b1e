# --canary: new code in which no request comes to an answer is taken back; interpreters with the old code that
# are killed meanwhile are replaced by others with the old code.
use strict;
use warnings;

use lib 't/lib';
use CanaryTrials qw(applications asks_until);
use OnlyInFull   qw(only_in_full);
use Test::More;
use TestClient qw(get);
use TestServer;
use TestStream;
use TestTools   qw(patience wait_for);
use TestWorkers qw(write_file);
use Time::HiRes qw(sleep time);

my %WAYS = (
    'PSGI, process'          => [ 'peregrine',   0, qw(--engine process) ],
    'PAGI, process, preload' => [ 'pagi-server', 1, qw(--engine process --preload-app) ],
);

sub started {
    my ($way, @arguments) = @_;
    my ($program, $app, @own) = @{ $WAYS{$way} };
    my @apps = applications('v1', '');
    my $server =
        TestServer->command_of($program, qw(-E production --no-access-log), @arguments, @own, $apps[$app]);
    # An interpreter that starts while HUP comes is no canary.
    my ($count) = "@arguments" =~ /--workers (\d)/;
    asks_until($server->port, sub { keys %{ $_[0]{processes} } == $count }) or die 'no interpreters';
    return $server;
}

subtest 'interpreters that are killed meanwhile' => sub {
    my $server = started('PAGI, process, preload', qw(--workers 2 --canary 300 --shutdown-timeout 2));
    my $port   = $server->port;
    my $seen   = asks_until($port, sub { keys %{ $_[0]{processes} } == 2 });
    my %old    = %{ $seen->{processes} };
    applications('v2', '');
    $server->signal('HUP');
    ok $server->wait_for_log(qr/serves beside the old ones/), 'the canary serves';
    kill KILL => keys %old;
    ok wait_for(sub { my ($now) = (get($port, '/')->{body} // '') =~ /\Av1 (\d+)/; $now && !$old{$now} }),
        'another one with the old code takes the place of one';
    is $server->stop, 0, 'the end';
};

# Asks until the canary is taken back. True: the old code serves alone.
sub _taken_back {
    my ($server) = @_;
    my $port     = $server->port;
    my $end      = time + patience(60);
    my @waiting;
    while (time < $end && $server->log !~ /taken back/) {
        my $client = TestClient->new($port);
        $client->send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        push @waiting, $client;
        shift @waiting if @waiting > 200;
        sleep 0.02;
    }
    return $server->log =~ /is taken back: no request has ended for \d+ s/
        && wait_for(sub { (get($port, '/')->{body} // '') =~ /\Av1/ });
}

for my $way (only_in_full('PSGI, process'), 'PAGI, process, preload') {
    subtest "a canary in which a request never ends: $way" => sub {
        my $server = started($way, qw(--workers 2 --canary 300 --shutdown-timeout 2));
        my $port   = $server->port;
        applications('v2', 'sleep 1000');
        write_file('app.pl', <<'PERL');    # nothing has been sent then
use Future::AsyncAwait;
async sub { sleep 1000 if $_[0]{type} eq 'http'; die "no lifespan\n" };
PERL
        $server->signal('HUP');
        ok $server->wait_for_log(qr/serves beside the old ones/), 'it serves';
        ok _taken_back($server), '... and is taken back, and the old code serves';
        is $server->stop, 0, 'the end';
    };
}

# Responses whose head was sent, and whose body never ends.
for my $way ('PSGI, process', only_in_full('PAGI, process, preload')) {
    subtest "a canary in which a response never ends: $way" => sub {
        my $server = started($way, qw(--workers 2 --canary 300 --shutdown-timeout 2));
        my $port   = $server->port;
        write_file('app.psgi', <<'PERL');
sub {
    return sub { my $writer = $_[0]->([ 200, [] ]); $writer->write("v2 $$"); sleep 1000 };
};
PERL
        write_file('app.pl', <<'PERL');
use Future::AsyncAwait;
async sub {
    my ($scope, $receive, $send) = @_;
    die "no lifespan\n" if $scope->{type} ne 'http';
    await $send->({ type => 'http.response.start', status => 200, headers => [] });
    await $send->({ type => 'http.response.body', body => "v2 $$", more => 1 });
    sleep 1000;
};
PERL
        $server->signal('HUP');
        ok $server->wait_for_log(qr/serves beside the old ones/), 'it serves';
        ok _taken_back($server),                                  '... and is taken back';
        is $server->stop, 0, 'the end';
    };
}

# An event stream that goes on says nothing about the new code.
subtest 'a canary with an event stream' => sub {
    my $code = <<'PERL';
use Future::AsyncAwait;
async sub {
    my ($scope, $receive, $send) = @_;
    die "no lifespan\n" if $scope->{type} eq 'lifespan';
    if ($scope->{type} eq 'sse') {
        await $send->({ type => 'sse.start' });
        await $send->({ type => 'sse.send', data => VERSION });
        await $receive->();
        return;
    }
    await $send->({ type => 'http.response.start', status => 200, headers => [] });
    await $send->({ type => 'http.response.body', body => VERSION . " $$" });
};
PERL
    my $app    = write_file('app.pl', "use constant VERSION => 'v1';\n$code");
    my $server = TestServer->command(
        qw(-E production --no-access-log --engine process --workers 2 --canary 8 --shutdown-timeout 2), $app);
    my $port = $server->port;
    asks_until($port, sub { keys %{ $_[0]{processes} } == 2 }) or die 'no interpreters';
    write_file('app.pl', "use constant VERSION => 'v2';\n$code");
    $server->signal('HUP');
    ok $server->wait_for_log(qr/serves beside the old ones/), 'it serves';
    my @streams;
    wait_for(sub {
        push @streams, TestStream->open($port, '/');
        return $streams[-1]->message->{data} eq 'v2';
    });
    asks_until($port, sub { $server->log =~ /taken back|the others follow/ }, 60);
    like $server->log,   qr/is not clearly worse, the others follow/, '... and the others follow it';
    unlike $server->log, qr/taken back/,                              '... as nothing speaks against it';
    is $server->stop, 0, 'the end';
};

done_testing;
