# Processes of PAGI::App::WrapPSGI when the server opens its logs anew; signals that come to all processes.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use Test::More;
use TestClient qw(get);
use TestGate;
use TestServer;
use TestTools   qw(content free_port wait_for);
use TestWorkers qw(descriptors is_gone);

my $dir  = File::Temp->newdir;
my $gate = TestGate->new;
my $port = free_port();

open my $app, '>', "$dir/app.pl" or die $!;
print {$app} <<'PL';
use strict;
use warnings;
use lib 't/lib';
use PAGI::App::WrapPSGI;
use TestGate;
my $gate = bless { folder => $ENV{TEST_GATE} }, "TestGate";
my $psgi = sub {
    my ($env) = @_;
    my $query = $env->{QUERY_STRING};
    syswrite STDERR, "asked: $query\n";
    $gate->block('held') if $query eq 'held';
    return [ 200, [ 'Content-Type' => 'text/plain' ], [$$] ];
};
PAGI::App::WrapPSGI->new(psgi_app => $psgi, workers => 2)->to_app;
PL
close $app;

$ENV{TEST_GATE} = $gate->{folder};
my $server = TestServer->spawn(
    $^X, (map { "-I$_" } @INC),
    qw(bin/pagi-server -E production --port),
    $port,
    '--error-log' => "$dir/error.log",
    "$dir/app.pl"
);
ok wait_for(sub { content("$dir/error.log") =~ /listening on/ }), 'a server runs';

# The log that a process writes to.
sub log_of {
    my ($pid) = @_;
    my %leads_to = descriptors($pid);
    return $leads_to{2} // '';
}

my $one = get($port, '/?one')->{body};
is log_of($one), "$dir/error.log", 'a process of the application writes to the log';
my $held = TestClient->new($port);
$held->send("GET /?held HTTP/1.1\r\nHost: h\r\n\r\n");
ok wait_for(sub { content("$dir/error.log") =~ /asked: held/ }), 'it is at work';
rename "$dir/error.log", "$dir/error.log.1" or die $!;
$server->signal('USR1');
ok wait_for(sub { -e "$dir/error.log" }), 'after USR1 there is a new log';
my $two = get($port, '/?two')->{body};
is log_of($two),              "$dir/error.log", '... to which a process writes that has waited for a request';
is content("$dir/error.log"), "asked: two\n",   '... what is asked there';
$gate->open('held');
my $answer = $held->response;
is $answer->{status}, 200, 'the process at work answers';
ok wait_for(sub { is_gone($answer->{body}) }), '... and is replaced then';

# A service manager sends signals to all processes of a service.
my $next = get($port, '/?last')->{body};
for my $signal (qw(HUP USR1 USR2 TTIN TTOU)) {
    kill $signal => $next;
    # Another process answers while this one ends its last request.
    ok wait_for(sub { get($port, '/?again')->{body} == $next }), "$signal to a process: it answers";
}

done_testing;
