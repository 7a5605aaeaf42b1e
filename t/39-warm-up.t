# --warm-up: an interpreter serves when it has answered these paths. An answer of 500 and more, one that does
# not come and one that ends the process give the start up.
use strict;
use warnings;

use lib 't/lib';
use OnlyInFull qw(crossed only_in_full);
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools   qw(patience wait_for);
use TestWorkers qw(children directory is_gone pid_in stop_master write_both write_file);
use Peregrine::Server::Configuration;

my $dir = directory();

mkdir "$dir/tmp" or die "$dir/tmp: $!";
local $ENV{TMPDIR} = "$dir/tmp";
sub sockets { my @found = glob "$dir/tmp/peregrine-*"; return @found }

# Seconds for code that answers, too, on a busy machine.
my $SECONDS = int patience(2);

# The applications answer with their version and the paths that they were asked for before. The first word in
# a file of theirs says what happens at /login.
sub applications {
    my ($version, $deed) = @_;
    return write_both('app', <<"PERL");
my \@asked;
sub answer {
    my (\$path) = \@_;
    my \$text = "$version: \@asked";
    push \@asked, \$path;
    if (\$path eq '/login') { $deed }
    return \$path eq '/big' ? 'x' x (4 << 20) : \$text;
}
PERL
}

my %DEEDS = (
    # An application of PAGI has begun its response when it dies.
    'an exception' => [ q{die "no database\n"}, qr{GET /login: (?:status 500|an answer that was cut)} ],
    'an exit'      => [ q{exit 3},              qr{the process has exited with status 3 during its start} ],
    'a process that dies' => [ q{kill KILL => $$}, qr{the process was killed by SIGKILL during its start} ],
    'code that blocks'    =>
        [ q{select undef, undef, undef, 1000}, qr{GET /login: no answer within $SECONDS s} ],
);

my @SOME = ('an exception', 'code that blocks');

my @ARGUMENTS = ('--warm-up', '/,/big,/login', '--lifespan-startup-timeout', $SECONDS);

sub started {
    my ($program, @arguments) = @_;
    return TestServer->command_of($program, qw(-E production --no-access-log), @ARGUMENTS, @arguments);
}

sub body_of { my ($port) = @_; return (get($port, '/x') || {})->{body} // '' }

my @APPLICATIONS = applications(1, '');
my %WAYS         = (
    'PSGI, prefork'          => [ 'peregrine', $APPLICATIONS[0], qw(--workers 1) ],
    'PSGI, process'          => [ 'peregrine', $APPLICATIONS[0], qw(--workers 1 --engine process) ],
    'PSGI, process, preload' =>
        [ 'peregrine', $APPLICATIONS[0], qw(--workers 1 --engine process --preload-app) ],
    'PAGI, prefork' => [ 'pagi-server', $APPLICATIONS[1], qw(--workers 1) ],
    'PAGI, process' => [ 'pagi-server', $APPLICATIONS[1], qw(--workers 1 --engine process) ],
);

my @ways = (
    'PSGI, process',
    'PSGI, process, preload',
    'PAGI, prefork',
    only_in_full('PSGI, prefork', 'PAGI, process')
);
my %deeds;
push @{ $deeds{ $_->[0] } }, $_->[1] for crossed(\@ways, \@SOME);
$deeds{'PSGI, process'} = [ sort keys %DEEDS ];

for my $way (@ways) {
    my ($program, $app, @arguments) = @{ $WAYS{$way} };
    subtest $way => sub {
        applications(1, '');
        my $server = started($program, @arguments, $app);
        my $port   = $server->port;
        is body_of($port), '1: / /big /login', 'the paths were asked for before, in their order';
        for my $deed (@{ $deeds{$way} }) {
            my ($code, $message) = @{ $DEEDS{$deed} };
            applications(2, $code);
            $server->signal('HUP');
            ok $server->wait_for_log(
                qr/the restart is given up, a new worker 1 cannot start: (?:warm-up: )?$message/),
                "$deed: the restart is given up"
                or diag $server->log;
            like body_of($port), qr/\A1:/, '... the old code goes on';
        }
        applications(3, '');
        $server->signal('HUP');
        ok wait_for(sub { body_of($port) =~ m{\A3: / /big /login} }), 'code that answers takes over';
        is $server->stop, 0, 'the end';
        is_deeply [ sockets() ], [], '... leaves no socket';
    };
}

# Between the end of its time and the end of the interpreter. Its parent is the master then.
subtest 'a client whose interpreter is killed' => sub {
    applications(1, '');
    my $server = started('peregrine', qw(--workers 1 --engine process --preload-app), $APPLICATIONS[0]);
    my $port   = $server->port;
    my $file   = "$dir/blocked";
    applications(2,
              qq{open my \$out, '>', '$file.new'; print {\$out} "\$\$\n"; close \$out;}
            . qq{rename '$file.new', '$file'; select undef, undef, undef, 1000});
    $server->signal('HUP');
    ok wait_for(sub { -e $file }),   'the application blocks the interpreter';
    ok wait_for(sub { !sockets() }), 'the time of its client is over';
    my $interpreter = pid_in('blocked');
    my @clients     = children($interpreter);
    is @clients, 1, '... which has a client';
    kill KILL => $interpreter;
    ok wait_for(sub { is_gone($clients[0]) }), 'the client ends after its time';
    like body_of($port), qr/\A1:/, '... alone';
    is $server->stop, 0, '... the master lives';
    is_deeply [ sockets() ], [], '... there is no socket left';
};

subtest 'a first start' => sub {
    for my $case (crossed([ [], [ '--workers', 2 ], [qw(--workers 2 --engine process)] ], \@SOME)) {
        my ($arguments, $deed)    = @$case;
        my ($code,      $message) = @{ $DEEDS{$deed} };
        my ($psgi) = applications(1, $code);
        my ($status, undef, $error) =
            TestServer->finish_at('bin/peregrine', '--port', 0, @ARGUMENTS, '--shutdown-timeout', 1,
            @$arguments, $psgi);
        like $error, $message, "@$arguments: $deed is told";
        isnt $status, 0, '... and the server does not start';
        unlike $error, qr/listening on/, '... nor serves';
    }
    my $busy = $SECONDS + 5;
    # A signal ends a wait, and not this code.
    my ($late) =
        applications(1, "my \$end = time + $busy; select undef, undef, undef, 0.1 while time < \$end");
    my ($ended, undef, $words) = TestServer->finish_at('bin/peregrine', '--port', 0, @ARGUMENTS, $late);
    like $words, $DEEDS{'code that blocks'}[1], 'code that blocks and returns later is told';
    like $ended, qr{\A[1-9][0-9]*\z},           '... and the server does not start, without a signal';
    my (undef, $pagi) = applications(1, 'die "no\n"');
    my ($status, undef, $error) = TestServer->finish('--port', 0, @ARGUMENTS, $pagi);
    like $error, qr{warm-up: GET /login: an answer that was cut}, 'PAGI';
    isnt $status, 0, '... does not start';
};

subtest 'the time for a start' => sub {
    my %options = (lifespan_startup_timeout => 20, heartbeat_timeout => 5);
    my @both    = map { Peregrine::Server::Configuration->new(%options, @$_) } [], [ warm_up => '/' ];
    is_deeply [ map { $_->start_timeout } @both ], [ 25, 45 ], 'is longer by that of the warm-up';
    is_deeply [ map { $_->deadline_names->{start} } @both ],
        [ map { "${_}lifespan_startup_timeout + heartbeat_timeout" } '', '2 * ' ], '... as messages say';
};

subtest 'USR2' => sub {
    my ($psgi) = applications(1, '');
    my $server = started('peregrine', qw(--workers 1 --pid), "$dir/server.pid", $psgi);
    my $port   = $server->port;
    my $old    = pid_in('server.pid');
    applications(2, 'die "no\n"');
    $server->signal('USR2');
    ok $server->wait_for_log(qr/has not taken over: this one goes on/), 'a new program that is not warm';
    like body_of($port), qr/\A1:/, '... leaves the old one alone';
    applications(3, '');
    $server->signal('USR2');
    ok wait_for(sub { body_of($port) =~ /\A3: / }),    'one that is warm takes over';
    ok wait_for(sub { pid_in('server.pid') != $old }), '... with the pid file';
    stop_master('server.pid');
};

subtest 'threads' => sub {
    my ($psgi) = applications(1, '');
    my $server = started('peregrine', qw(--workers 2 --engine thread), $psgi);
    is body_of($server->port), '1: / /big /login', 'a clone';
};

subtest 'mounts' => sub {
    my $answers = 'sub { push @asked, "$_[0]{HTTP_HOST}$_[0]{PATH_INFO}"; [ 200, [], ["@asked"] ] }';
    my $site    = write_file('site.psgi', "my \@asked; $answers");
    my $shop    = write_file('shop.psgi', "my \@asked; $answers");
    my $server  = started('peregrine', '--mount', "/=$site", '--mount', "/login=$shop,host=shop.example");
    my $port    = $server->port;
    my $asked   = join ' ', map { ("shop.example$_", "localhost$_") } '/', '/big';
    like get($port, '/')->{body}, qr{\A\Q$asked\E localhost/login localhost:}, 'the first application';
    my $got =
        TestClient::exchange($port, "GET /login HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n");
    like $got->{body}, qr{\Ashop\.example shop\.example\z}, 'that of a host';
};

subtest 'TERM during the warm-up' => sub {
    my $server = TestServer->spawn(
        $^X,
        (map { "-I$_" } @INC),
        qw(bin/pagi-server -E production --port 0 --warm-up /),
        write_file('await.pl', <<'PERL'));
use Future::AsyncAwait;
use IO::Async::Loop;
async sub {
    my ($scope, $receive, $send) = @_;
    die "no\n" if $scope->{type} ne 'http';
    print STDERR "asked\n";
    await IO::Async::Loop->new->delay_future(after => 1000);
}
PERL
    ok $server->wait_for_log(qr/^asked/m), 'it waits';
    $server->signal('TERM');
    is $server->wait(patience(20)), 0, 'the server ends';
    unlike $server->log, qr/listening/, '... and has not served';
};

done_testing;
