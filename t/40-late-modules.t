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

# The application answers with the modules of its interpreter.
sub app {
    my ($name, $first) = @_;
    open my $out, '>', "$directory/$name" or die $!;
    print {$out} $first, <<'APP' or die $!;
sub {
    my ($scope, $receive, $send) = @_;
    die "no lifespan\n" if $scope->{type} ne 'http';
    my $modules = join ' ', map { s{/}{::}gr =~ s/\.pm\z//r } sort keys %INC;
    $send->({ type => 'http.response.start', status => 200, headers => [] });
    return $send->({ type => 'http.response.body', body => $modules });
}
APP
    close $out or die $!;
    return "$directory/$name";
}

sub modules {
    my ($server) = @_;
    return map { $_ => 1 } split ' ', TestClient::get($server->port, '/')->{body};
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
    my %later = modules($server);
    is_deeply([ sort keys %later ], [ sort keys %loaded ], 'a request loads no module');
    is($server->stop, 0, 'the server ends well');
};

subtest 'a server with workers' => sub {
    my $server = TestServer->command('-E', 'production', '--workers', 1, '--pid', "$directory/pid", $app);
    my %loaded = modules($server);
    ok($loaded{$_},  "$_ is loaded before the worker is forked") for @of_workers, $of{'--pid'};
    ok(!$loaded{$_}, "$_ is not loaded")                         for @of_others,  $of{'--error-log'};
    is($server->stop, 0, 'the server ends well');
};

# Relative folders of @INC lead to the modules as long as the directory stays.
subtest 'a directory that changes' => sub {
    my $here   = Cwd::getcwd();
    my $moving = app('moving.pl', qq{chdir "/" or die;\n});
    delete local $ENV{PERL5LIB};
    my @base = (
        $^X,
        (map { index($_, "$here/") ? "-I$_" : '-I' . File::Spec->abs2rel($_) } grep { !ref } @INC),
        qw(bin/pagi-server -E production --host 127.0.0.1)
    );
    for my $case (
        [ '--chdir with workers'  => '--chdir', '/', '--workers', 1, $app ],
        [ '--chdir and --reload'  => '--chdir', '/', '--reload',  '--reload-dir', "$directory", $app ],
        [ 'the application moves' => '--pid',   "$directory/pid", $moving ],
        )
    {
        my ($name, @words) = @$case;
        my $server = TestServer->spawn(@base, '--port', free_port(), @words);
        ok($server->wait_for_log(qr/listening on/), "$name: the server starts");
        is($server->stop, 0, '... and ends well');
    }
};

done_testing;
