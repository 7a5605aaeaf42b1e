# Applications as frameworks' own generators make them: `peregrine script/my_app`, `peregrine bin/app.psgi`.
use strict;
use warnings;

use lib 't/lib';
use Cwd                qw(getcwd);
use File::Temp         ();
use OnlyInFull         qw(only_in_full);
use Future::AsyncAwait ();
use PAGI::Server::AppKind;
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools;

my $dir  = File::Temp->newdir;
my $here = getcwd;
my @perl = ($^X, map { '-I' . (m{\A/} ? $_ : "$here/$_") } @INC);

# A server that listens at a free port of all addresses, and the port.
sub serve {
    my (@command) = @_;
    my $server    = TestServer->spawn(@perl, @command);
    my $port      = $server->wait_for_log(qr{listening on http://0\.0\.0\.0:(\d+)/}) or die $server->log;
    return ($server, $port);
}

my @applications = (
    [ 'Mojolicious', [qw(mojo generate app MyApp)],     'my_app/script/my_app', qr/Mojolicious/ ],
    [ 'Dancer2',     [qw(dancer2 gen --application D)], 'D/bin/app.psgi',       qr/Dancer2/ ],
);
my @commands = (
    only_in_full([ 'peregrine', [ 'bin/peregrine', qw(-E production --no-access-log --listen :0) ] ]),
    [
        'peregrine, the engine in a process',
        [ 'bin/peregrine', qw(-E production --no-access-log --engine process --workers 1 --listen :0) ]
    ],
    [ 'plackup', [ '-S', 'plackup', qw(-s Peregrine -E deployment --listen :0) ] ],
);

# The kind is known before an application is loaded.
subtest 'the kind of an application by its text' => sub {
    my %kinds = (
        "use strict;\nuse Mojolicious::Commands;\n" => 'a Mojolicious application',
        "  use Dancer2;\n"                          => 'a Dancer2 application',
        "require Catalyst;\n"                       => 'a Catalyst application',
        "use Plack::Builder;\n"                     => 'a PSGI application',
        "use EV; use Mojolicious::Lite;\n"          => 'a Mojolicious application',
        "# use Dancer2\nuse Dancerish;\n"           => undef,
    );
    is PAGI::Server::AppKind::of_text($_, 'app'), $kinds{$_}, $_ =~ s/\n/ /gr for sort keys %kinds;
};

for my $application (@applications) {
    my ($framework, $generator, $file, $page) = @$application;
    subtest $framework => sub {
        plan skip_all => "needs $framework" if !eval "require $framework; 1";
        system "cd $dir && @$generator >generated.log 2>&1";
        -e "$dir/$file" or return fail "@$generator has made no $file";
        for my $command (@commands) {
            my ($name,   $words) = @$command;
            my ($server, $port)  = serve(@$words, "$dir/$file");
            my $response = get($port, '/') || {};
            is $response->{status}, 200, "$name $file";
            like $response->{body}, $page, '... its page';
            is $server->stop, 0, '... stops';
            # Only applications of PAGI have async subs, in which old versions have a defect.
            unlike $server->log, qr/Future::AsyncAwait/, '... and is not warned about async subs'
                if $framework ne 'Mojolicious';
        }
    };
}

for my $program (qw(pagi-server peregrine)) {
    subtest "$program --listen :PORT, an application of PAGI" => sub {
        my @command = ("bin/$program", qw(-E production --no-access-log --listen :0));
        my ($server, $port) = serve(@command, 'examples/pagi/hello/app.pl');
        is get($port, '/')->{status}, 200, 'all addresses';
        is $server->stop,             0,   '... and it stops';
        my $has_defect = Future::AsyncAwait->VERSION < 0.65 ? 1 : 0;
        is $server->log =~ /Future::AsyncAwait \S+ breaks the heap/ ? 1 : 0, $has_defect,
            '... and a version of Future::AsyncAwait with a defect is named';
    };
}

done_testing;
