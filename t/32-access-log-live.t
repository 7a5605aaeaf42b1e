# The access log of a running server goes elsewhere, in another format, or nowhere, by configure.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use Future::AsyncAwait;
use IO::Async::Loop;
use Test::More;

use PAGI::Server;
use TestClient;
use TestTools   qw(content patience);
use Time::HiRes qw(time);

my $directory = File::Temp->newdir;
my $loop      = IO::Async::Loop->new;

# /wait: answered when $go is done.
my $go;
my $app = async sub {
    my ($scope, $receive, $send) = @_;
    die "no lifespan\n" if $scope->{type} ne 'http';
    await $go           if $scope->{path} eq '/wait';
    await $send->({ type => 'http.response.start', status => 204 });
    await $send->({ type => 'http.response.body' });
};

my @warnings;
local $SIG{__WARN__} = sub { push @warnings, @_ };

my $server = PAGI::Server->new(
    app               => $app,
    port              => 0,
    log_level         => 'warn',
    access_log        => "$directory/one",
    access_log_format => 'one %U'
);
$loop->add($server);
$server->listen->get;

# Turns the loop until that holds.
sub comes {
    my ($what) = @_;
    my $end = time + patience(30);
    $loop->loop_once(0.05) while !$what->() && time < $end;
    return $what->();
}

sub client {
    my ($path) = @_;
    return TestClient->new($server->port)->send("GET $path HTTP/1.1\r\nHost: h\r\n\r\n");
}

sub is_answered {
    my ($client) = @_;
    my $got = '';
    comes(sub { $got .= $client->some(0.01); $got =~ /\r\n\r\n/ });
    like($got, qr{\AHTTP/1\.1 204 }, 'answered');
    return;
}

sub ask { is_answered(client(@_)) }

# A client whose request waits for $go.
sub waiting {
    $go = $loop->new_future;
    my $client = client('/wait');
    ok(comes(sub { $server->{part}->engine->worker->stats->{exchanges} }), 'a request waits');
    return $client;
}

subtest 'another file, another format' => sub {
    ask('/a');
    $server->configure(access_log => "$directory/two", access_log_format => 'two %U');
    is(content("$directory/one"), "one /a\n", 'ended requests are in the old file at once');
    ask('/b');
    ok(comes(sub { content("$directory/two") eq "two /b\n" }), 'later requests go to the new file');
    $server->configure(access_log_format => 'three %U');
    ask('/c');
    ok(comes(sub { content("$directory/two") eq "two /b\nthree /c\n" }), 'the format alone');
    is(content("$directory/one"), "one /a\n", '... and the old file is left alone');
};

subtest 'a request that is open meanwhile' => sub {
    my $client = waiting();
    $server->configure(access_log => "$directory/open", access_log_format => 'new %U');
    $go->done;
    ok(comes(sub { length content("$directory/open") }), 'has its line in the new file');
    is(content("$directory/open"), "three /wait\n", '... in the format that it began under');
};

subtest 'the log is switched off, and on again' => sub {
    my $client = waiting();
    $server->configure(access_log => undef);
    $go->done;
    is_answered($client);
    ask('/silent');
    unlike(content("$directory/open"), qr/silent|new/, 'no line');
    my $memory = '';
    open my $handle, '>', \$memory or die $!;
    $server->configure(access_log => $handle);
    ask('/memory');
    $server->configure(access_log => "$directory/last");
    ok(comes(sub { $memory eq "new /memory\n" }),
        'a handle without a descriptor has its lines, also those on their way');
    ask('/last');
    ok(comes(sub { content("$directory/last") eq "new /last\n" }), '... and then it is over');
    is($memory, "new /memory\n", '... for the handle');
};

subtest 'changes that are refused' => sub {
    my $error =
        eval { $server->configure(access_log => "$directory/no/such", log_level => 'error'); 1 } ? '' : $@;
    like(
        $error,
        qr{option 'access_log': cannot write to '\Q$directory\E/no/such': No such file or directory at \Q$0\E},
        'a path without a folder dies'
    );
    ask('/still');
    ok(comes(sub { content("$directory/last") =~ m{^new /still$}m }), '... and nothing has changed');
    ok(!eval { $server->configure(access_log_format => '%z'); 1 },    'a wrong format dies');
    ask('/too');
    ok(comes(sub { content("$directory/last") =~ m{^new /too$}m }), '... as well');
};

$server->shutdown->get;
is_deeply(\@warnings, [], 'no word of a restart');

done_testing;
