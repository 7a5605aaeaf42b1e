# A server loads the modules that its options need, when it starts.
use strict;
use warnings;

use lib 't/lib';
use Cwd        ();
use File::Spec ();
use File::Temp ();
use Test::More;
use TestClient;
use TestServer;
use TestTools qw(free_port);

my $directory = File::Temp->newdir;

# The application answers with the modules of its interpreter: at /at-start with those of its lifespan.
sub app {
    my ($name, $first) = @_;
    open my $out, '>', "$directory/$name" or die $!;
    print {$out} $first, <<'APP' or die $!;
my $at_start = '';
sub {
    my ($scope, $receive, $send) = @_;
    my $modules = join ' ', map { s{/}{::}gr =~ s/\.pm\z//r } sort keys %INC;
    $at_start = $modules if $scope->{type} eq 'lifespan';
    die "no lifespan\n" if $scope->{type} ne 'http';
    $modules = $at_start if $scope->{path} eq '/at-start';
    $send->({ type => 'http.response.start', status => 200, headers => [] });
    return $send->({ type => 'http.response.body', body => $modules });
}
APP
    close $out or die $!;
    return "$directory/$name";
}

sub modules {
    my ($server, $path) = @_;
    return map { $_ => 1 } split ' ', TestClient::get($server->port, $path // '/')->{body};
}

my $app        = app('app.pl', '');
my @of_workers = qw(Peregrine::Master Peregrine::Server::Supervisor Peregrine::Child);
my %of         = ('--pid' => 'PAGI::Server::PidFile', '--error-log' => 'PAGI::Server::ErrorLog');
my @of_others  = qw(Peregrine::Threads Peregrine::Server::Reload Digest::SHA PAGI::Server::ControlCommand
    PAGI::Server::ConfigFile PAGI::Server::Mounts);

subtest 'a server without workers' => sub {
    my $server = TestServer->command('-E', 'production', $app);
    my %loaded = modules($server);
    ok(!$loaded{$_}, "$_ is not loaded") for @of_workers, @of_others, sort values %of;
    my %at_start = modules($server, '/at-start');
    is_deeply([ sort keys %loaded ], [ sort keys %at_start ], 'a request loads no module');
    is($server->stop, 0, 'the server ends well');
};

subtest 'a server with workers' => sub {
    my $server = TestServer->command('-E', 'production', '--workers', 1, '--pid', "$directory/pid", $app);
    my %loaded = modules($server);
    ok($loaded{$_},  "$_ is loaded before the worker is forked") for @of_workers, $of{'--pid'};
    ok(!$loaded{$_}, "$_ is not loaded")                         for @of_others,  $of{'--error-log'};
    is($server->stop, 0, 'the server ends well');
};

sub starts {
    my ($name, @command) = @_;
    my $server = TestServer->spawn(@command);
    ok($server->wait_for_log(qr/listening on/), "$name: the server starts");
    is($server->stop, 0, '... and ends well');
    return;
}

# Relative folders of @INC lead to the modules as long as the directory stays.
subtest 'a directory that changes' => sub {
    my $here   = Cwd::getcwd();
    my $moving = app('moving.pl', qq{chdir "/" or die;\n});
    delete local $ENV{PERL5LIB};
    my @base = (
        $^X,
        (map { index($_, "$here/") ? "-I$_" : '-I' . File::Spec->abs2rel($_) } grep { !ref } @INC),
        qw(bin/pagi-server --host 127.0.0.1)
    );
    my @chdir = (qw(-E production --chdir /), $app);
    for my $case (
        [ '--chdir'                => @chdir ],
        [ '--chdir with workers'   => @chdir, qw(--workers 1 --status), '127.0.0.1:' . free_port() ],
        [ '--chdir and --compress' => @chdir, qw(--compress --channels) ],
        [ '--chdir and --reload'   => @chdir, '--reload', '--reload-dir', "$directory" ],
        [ '--chdir without a name' => qw(-E production --chdir),         "$directory" ],
        [ 'the application moves'  => qw(-E production --pid),           "$directory/pid", $moving ],
        [ '... in development'     => qw(-E development),                $moving ],
        [ '... beside a thread'    => qw(-E production --engine thread), $moving ],
        )
    {
        my ($name, @words) = @$case;
        starts($name, @base, '--port', free_port(), @words);
    }
    my @in_program = ($^X, (grep { /\A-I/ } @base), '-e', <<'PROGRAM', free_port());
use PAGI::Server;
my $server = PAGI::Server->new(app => sub { die "no lifespan\n" }, port => shift, workers => 1);
chdir '/' or die;
$server->run;
PROGRAM
    starts('a program moves', @in_program);
};

done_testing;
