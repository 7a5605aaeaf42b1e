# PAGI::Server::Runner for programs: options, loading, a server to go on with.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use IO::Async::Loop;
use PAGI::Server::Runner;
use Scalar::Util qw(refaddr);
use Test::More;
use TestClient;
use TestServer;

my $dir = File::Temp->newdir;

sub file {
    my ($name, $text) = @_;
    open my $out, '>', "$dir/$name" or die $!;
    print {$out} $text;
    close $out or die $!;
    return "$dir/$name";
}

my $file = file('app.pl', <<'APP');
use Future::AsyncAwait;
$main::LOADED++;
async sub {
    my ($scope, $receive, $send) = @_;
    die "no $scope->{type}\n" if $scope->{type} ne 'http';
    await $send->({ type => 'http.response.start', status => 200 });
    await $send->({ type => 'http.response.body', body => $ENV{PAGI_ENV} });
};
APP

file('Some.pm', <<'MODULE');
package Some;
sub new    { my ($class, %args) = @_; return bless {%args}, $class }
sub to_app { my ($self) = @_; return sub { "some $self->{word}" } }
1;
MODULE

# Why something is refused; an empty string if it is not.
sub refused {
    my ($code) = @_;
    return eval { $code->(); 1 } ? '' : $@;
}

local $ENV{PAGI_ENV} = 'none';

subtest 'options' => sub {
    my $runner = PAGI::Server::Runner->new(port => 0, quiet => 1, timeout => '30s');
    is(
        refaddr $runner->parse_options('--quiet', $file, '--host', '127.0.0.2'),
        refaddr $runner,
        'parse_options gives the runner'
    );
    my $server = $runner->load_server;
    isa_ok($server, 'PAGI::Server');
    is_deeply($server->listeners, [ { type => 'tcp', host => '127.0.0.2', port => 0 } ], 'both count');
    is($server->options->{timeout}, 30, 'values are read as anywhere');
    my $config = file('some.conf', "port = 7\nhost = 127.0.0.3\n");
    $server =
        PAGI::Server::Runner->new(port => 8, quiet => 1)
        ->parse_options('-c', $config, '--host', '127.0.0.4', $file)->load_server;
    is_deeply(
        $server->listeners,
        [ { type => 'tcp', host => '127.0.0.4', port => 7 } ],
        'what is typed, the file, what was given'
    );
    $server =
        PAGI::Server::Runner->new(port => 8, quiet => 1, app => $file)->parse_options('--socket', "$dir/s")
        ->load_server;
    is($server->socket_path, "$dir/s", 'another kind of place takes the place of the one that was given');

    my %ways = (
        'a file'  => [ $file,     'CODE' ],
        '-e'      => [ '-e',      'sub { }',  'CODE' ],
        '--mount' => [ '--mount', "/b=$file", 'PAGI::Server::Mounts' ],
    );
    for my $way (sort keys %ways) {
        my @words = @{ $ways{$way} };
        my $class = pop @words;
        for my $line ("app = $file", 'code = 1', "mount = /a=$file") {
            my $in_file = file('app.conf', "$line\n");
            my $app = eval { PAGI::Server::Runner->new->parse_options('-c', $in_file, @words)->load_app; };
            is(ref $app, $class, "$way takes the place of '$line' in the file") or diag $@;
        }
    }

    like(
        refused(sub { PAGI::Server::Runner->new(prot => 1) }),
        qr/\APAGI::Server::Runner: there is no option 'prot'.*'port'.* at \S+48-runner\.t line/s,
        'an unknown option'
    );
    like(
        refused(sub { PAGI::Server::Runner->new(port => 'x') }),
        qr/\APAGI::Server::Runner: option 'port' must be.* at \S+48-runner\.t line/s,
        'a wrong value'
    );
    like(
        refused(sub { PAGI::Server::Runner->new->parse_options('--prot') }),
        qr/\APAGI::Server::Runner: unknown option '--prot'/,
        'an unknown flag'
    );
    like(
        refused(sub { PAGI::Server::Runner->new->parse_options('a.pl', 'b.pl') }),
        qr/unexpected argument 'b\.pl'/,
        'an unexpected word'
    );
    like(
        refused(sub { PAGI::Server::Runner->new->parse_options('-c', file('bad.conf', "port = x\n")) }),
        qr/bad\.conf line 1: option 'port' must be/,
        'a wrong configuration file'
    );
    like(
        refused(sub { PAGI::Server::Runner->new(app => "$dir/none.pl")->load_app }),
        qr/\AApp file not found: /,
        'one that is not there'
    );
    like(
        refused(sub { PAGI::Server::Runner->new(app => $file, port => 1, listen => '[::1]:2')->load_server }),
        qr/\APAGI::Server::Runner: .*both/,
        'options that contradict'
    );
};

subtest 'mode' => sub {
    is(PAGI::Server::Runner->new->mode,                      'none',       'that of PAGI_ENV');
    is(PAGI::Server::Runner->new(env => 'production')->mode, 'production', 'that which was given');
    is($ENV{PAGI_ENV},                                       'production', '... becomes PAGI_ENV');
    is(PAGI::Server::Runner->new(env => 'production')->parse_options('-E', 'none')->mode,
        'none', 'that which is typed');
};

subtest 'applications' => sub {
    my $runner = PAGI::Server::Runner->new(app => $file, env => 'none', quiet => 1);
    local $main::LOADED = 0;
    is(ref $runner->load_app,                'CODE',               'load_app gives code');
    is($runner->prepare_app,                 $runner->prepare_app, 'prepare_app gives it prepared');
    is($runner->load_server->options->{app}, $runner->prepare_app, '... as the server has it');
    is($main::LOADED,                        1,                    '... and it is loaded once');
    my $other = PAGI::Server::Runner->new(lib => ["$dir"], env => 'none');
    is($other->load_app('Some', word => 'thing')->(),               'some thing', 'a module with arguments');
    is($other->parse_options('Some', 'word=body')->prepare_app->(), 'some body',  '... also as words');
    is($other->load_app(sub { 'given' })->(),                       'given',      'code');
    is(PAGI::Server::Runner->new(app => sub { 'here' })->prepare_app->(), 'here', '... also as an option');
};

subtest 'the middleware of development' => sub {
    mkdir "$dir/PAGI";
    mkdir "$dir/PAGI/Middleware";
    file('PAGI/Middleware/Lint.pm', <<'MODULE');
package PAGI::Middleware::Lint;
sub new  { my ($class, %args) = @_; return bless {%args}, $class }
sub wrap { my ($self, $app) = @_; return sub { 'watched ' . $app->() } }
1;
MODULE
    local @INC = ("$dir", @INC);
    my $app = sub { 'app' };
    is(PAGI::Server::Runner->new(app => $app, env => 'development')->load_app->(),
        'app', 'load_app gives the application itself');
    is(PAGI::Server::Runner->new(app => $app, env => 'development')->prepare_app->(),
        'watched app', 'prepare_app the wrapped one');
    is(
        PAGI::Server::Runner->new(app => $app, env => 'development', default_middleware => 0)
            ->prepare_app->(),
        'app',
        '... unless that is off'
    );
    is(PAGI::Server::Runner->new(app => $app, env => 'production')->prepare_app->(),
        'app', '... and in development only');
};

subtest 'a server' => sub {
    my $program = <<'PROGRAM';
use IO::Async::Loop; use PAGI::Server::Runner;
my ($way, $file) = @ARGV;
my $runner = PAGI::Server::Runner->new(port => 0, env => 'none', access_log => undef);
if ($way eq 'run')          { exit $runner->parse_options($file)->run }
if ($way eq 'run words')    { exit $runner->run($file) }
if ($way eq 'wrong')        { exit $runner->run($file, '--prot') }
$runner->load_app($file);
my $loop   = IO::Async::Loop->new;
my $server = $runner->load_server;
$loop->add($server);
$server->listen->get;
$loop->run;
PROGRAM
    for my $way ('run', 'run words', 'embed') {
        my $server = TestServer->spawn($^X, (map { "-I$_" } @INC), '-e', $program, $way, $file);
        my $port   = $server->wait_for_log(qr{listening on http://127\.0\.0\.1:(\d+)/});
        is(TestClient::get($port, '/')->{body}, 'none', "$way: it serves");
        is($server->stop,                       0,      '... and ends well');
    }
    my $server = TestServer->spawn($^X, (map { "-I$_" } @INC), '-e', $program, 'wrong', $file);
    is($server->wait >> 8, 2, 'run gives a status');
    like($server->log, qr/^pagi-server: unknown option '--prot'/m, '... and says what is wrong');
};

done_testing;
