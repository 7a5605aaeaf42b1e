# Applications that are loaded into one process do not share what their files define.
use strict;
use warnings;

use lib 't/lib';
use Cwd        qw(realpath);
use File::Path qw(make_path);
use File::Temp ();
use OnlyInFull qw(crossed);
use PAGI::Server::AppLoader;
use PAGI::Server::AppPackage;
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools;

my $dir  = realpath(File::Temp->newdir(CLEANUP => 0));
my $home = $$;
END { File::Path::remove_tree($dir) if $dir && $home && $$ == $home }

sub spew {
    my ($name, $text) = @_;
    my $path = "$dir/$name";
    make_path($path =~ s{/[^/]+\z}{}r);
    open my $out, '>', $path or die "$path: $!";
    print {$out} $text;
    close $out or die "$path: $!";
    return $path;
}

sub serve {
    my ($program, @arguments) = @_;
    my $server = TestServer->spawn(
        $^X, (map { "-I$_" } @INC), "bin/$program", '--port',
        0, '--no-access-log', '-E', 'production',
        @arguments
    );
    my $port = $server->wait_for_log(qr{listening on http://127\.0\.0\.1:(\d+)/}) or die $server->log;
    return ($server, $port);
}

# Two files with the same names for their subs, globals and data; the first one is an administrator's page.
my $SAME = <<'PERL';
use strict;
use warnings;
use FindBin qw($Bin);
use List::Util qw(first);

our %config = (name => 'NAME');
our $count  = 0;
my $arguments = @ARGV;
my $program   = $0 eq __FILE__ ? 'its own' : $0;
my $data      = do { local $/; <DATA> };
sub is_admin { return ALLOWED }

sub text {
    my ($path) = @_;
    die "on purpose" if $path eq '/die';
    $count++;
    return join ', ', $config{name}, is_admin() ? 'welcome' : 'forbidden', $count, $Bin, $FindBin::Bin,
        $arguments, $program, first { $_ } $data;
}
PERL
my %ENDS = (
    psgi => <<'PERL', pagi => <<'PERL');
sub app { return [ 200, [ 'Content-Type' => 'text/plain' ], [ text($_[0]{PATH_INFO}) ] ] }
\&app;
__DATA__
NAME-data
PERL
use Future::AsyncAwait;
async sub app {
    my ($scope, $receive, $send) = @_;
    die "no\n" if $scope->{type} ne 'http';
    my $text = text($scope->{path});
    await $send->({ type => 'http.response.start', status => 200 });
    await $send->({ type => 'http.response.body', body => $text });
    return;
}
\&app;
__DATA__
NAME-data
PERL

sub application {
    my ($kind, $name, $allowed) = @_;
    my $text = "$SAME$ENDS{$kind}" =~ s/NAME/$name/gr =~ s/ALLOWED/$allowed/r;
    return spew("$name-$kind/app.$kind", $text);
}

sub answers {
    my ($port, $path, $name, $word) = @_;
    my $folder = qr{\Q$dir\E/$name-\w+};
    return like get($port, "/$path")->{body},
        qr{\A$name, $word, \d+, ($folder), \1, 0, its own, $name-data\n\z},
        "/$path answers for itself";
}

my %WAYS = (
    'inline'                        => [],
    'with a worker'                 => [ '--workers', 1 ],
    'with a template'               => [ '--workers', 1, '--preload-app' ],
    'on a thread'                   => [ '--engine',  'thread' ],
    'engine in a process'           => [ '--engine',  'process', '--workers', 1 ],
    'engine in a process, template' => [ '--engine',  'process', '--workers', 1, '--preload-app' ],
);

sub check_apart {
    my ($program, $first, $second, @way) = @_;
    my ($admin,  $blog) = (application($first, 'admin', 0), application($second, 'blog', 1));
    my ($server, $port) = serve($program, '--mount', "/admin=$admin", '--mount', "/blog=$blog", @way);
    for (1, 2) {
        answers($port, 'admin', 'admin', 'forbidden');
        answers($port, 'blog',  'blog',  'welcome');
    }
    like get($port, '/blog')->{body},  qr/\Ablog, welcome, 3,/,    'globals are those of one file';
    like get($port, '/admin')->{body}, qr/\Aadmin, forbidden, 3,/, '... of the other';
    is get($port, '/admin/die')->{status}, 500, 'one dies';
    ok $server->wait_for_log(qr{on purpose at \Q$admin\E line 15}), '... in its file and line';
    is $server->stop, 0, 'the server stops';
    unlike $server->log, qr/redefine|uninitialized/, 'no warning';
    return;
}

my %KINDS = (
    'two of PSGI'        => [qw(peregrine psgi psgi)],
    'PAGI and PSGI'      => [qw(peregrine pagi psgi)],
    'two by pagi-server' => [qw(pagi-server pagi pagi)],
);
for my $case (crossed([ sort keys %WAYS ], [ sort keys %KINDS ])) {
    my ($way, $kind) = @$case;
    subtest "$kind, $way" => sub { check_apart(@{ $KINDS{$kind} }, @{ $WAYS{$way} }) };
}
subtest 'two of PSGI in clones' => sub {
    check_apart('peregrine', 'psgi', 'psgi', '--engine', 'thread', '--workers', 1);
};

subtest 'two mounts of the same file' => sub {
    my $file = application('psgi', 'twice', 1);
    my ($server, $port) = serve('peregrine', '--mount', "/a=$file", '--mount', "/b=$file");
    like get($port, '/a')->{body}, qr/\Atwice, welcome, 1,/, 'the first time';
    like get($port, '/a')->{body}, qr/\Atwice, welcome, 2,/, '... counts';
    like get($port, '/b')->{body}, qr/\Atwice, welcome, 1,/, 'the second time counts by itself';
    is $server->stop, 0, 'the server stops';
};

# By the loader itself: what a file finds out about its package.
subtest 'a single application' => sub {
    my $file = spew('one/app.pl', <<'PERL');
our $shared = 'of the file';
sub helper { 'helps' }
sub { return join ' ', __PACKAGE__, caller(0) ? (caller(0))[3] : '', $main::shared // 'none', helper() };
PERL
    no warnings 'once';
    my $app = PAGI::Server::AppLoader->load(app => $file);
    is $app->(), 'Peregrine::App::app_pl Peregrine::App::app_pl::__ANON__ none helps', 'a package of its own';
    is scalar PAGI::Server::AppLoader->load(app => $file)->(),
        'Peregrine::App::app_pl_2 Peregrine::App::app_pl_2::__ANON__ none helps', '... for each load';
    ok !defined &main::helper, '... nothing of it is in main';
    is scalar PAGI::Server::AppLoader->load(app => spew('2.5-x.psgi', 'sub { __PACKAGE__ }'))->(),
        'Peregrine::App::_2_5_x_psgi', 'the name of any file';
    my $main = spew('main.pl', "package main; our \$in_main = 1; sub in_main { 'in main' } \\&in_main;");
    is scalar PAGI::Server::AppLoader->load(app => $main)->(), 'in main', 'a file that says package main';
    is main::in_main(),                                        'in main', '... is there';
    is scalar PAGI::Server::AppLoader->load(code => 'sub { __PACKAGE__ }')->(), 'Peregrine::App::e',
        'code of -e';
};

subtest 'FindBin, known before' => sub {
    require FindBin;
    my $before = $FindBin::Bin;
    my $app    = PAGI::Server::AppLoader->load(app => spew('bin/app.pl', <<'PERL'));
use FindBin qw($Bin $RealScript);
sub { "$Bin $FindBin::Bin $RealScript" }
PERL
    is $app->(),      "$dir/bin $dir/bin app.pl", 'a file finds its own folder';
    is $FindBin::Bin, $before,                    '... and this one keeps that which it has found';
};

# Files without a package that are required by path are those of each application; files with one are shared.
subtest 'required files' => sub {
    my $lib = spew('helper/lib.pl', 'our %config; $config{by} = __PACKAGE__; sub help { ++our $helped } 1');
    my $own = spew('helper/own.pl',
        "package My::Counted;\nour \$loads; \$loads++; my \$count = 0; sub count { ++\$count } 1");
    my @apps = map {
        PAGI::Server::AppLoader->load(app => spew("helper/$_.pl", <<"PERL"))
our %config;
require '$lib';
require '$lib';
require '$own';
sub { join ' ', \$config{by}, help(), My::Counted::count() }
PERL
    } qw(h1 h2);
    is $apps[0]->(), 'Peregrine::App::h1_pl 1 1', 'the first application';
    is $apps[1]->(), 'Peregrine::App::h2_pl 1 2', '... and the second one have a helper each';
    is $apps[0]->(), 'Peregrine::App::h1_pl 2 3', '... which stays';
    no warnings 'once';
    is $My::Counted::loads, 1, 'a file that names its package is loaded once';
    ok exists $INC{$lib}, 'Perl knows the file';
};

# A handler for `die` of the application stays, and so does that of the program.
subtest 'a handler for die' => sub {
    local $SIG{__DIE__} = my $mine = sub { };
    PAGI::Server::AppLoader->load(app => spew('none.pl', 'sub { }'));
    is $SIG{__DIE__}, $mine, "the program's";
    PAGI::Server::AppLoader->load(app => spew('handler.pl', '$SIG{__DIE__} = sub { 17 }; sub { }'));
    is $SIG{__DIE__}->(), 17, "the application's";
};

subtest 'subs that an application takes away from another' => sub {
    my $text = "use strict; use warnings; no warnings 'redefine';\npackage main;\n"
        . "sub is_admin { 'WORD' } sub WORD_only { 1 } sub { [ 200, [], [is_admin()] ] };\n";
    my %files  = map { $_ => spew("$_.psgi", $text =~ s/WORD/$_/gr) } qw(one two);
    my @mounts = map { ('--mount', "/$_=$files{$_}") } qw(one two);
    my $warning =
        qr{PAGI: \Q$files{two}\E redefines subs that \Q$files{one}\E has defined: main::is_admin; both};
    for my $way (grep { !/thread|PSGI/ } sort keys %WAYS) {
        my ($server, $port) = serve('peregrine', @mounts, @{ $WAYS{$way} });
        ok $server->wait_for_log($warning), "main in two files, $way";
        is get($port, '/one')->{body},                'two', '... is one package';
        is $server->stop,                             0,     '... and the server stops';
        is scalar(() = $server->log =~ /redefines/g), 1,     '... the warning comes once';
    }
    my ($server, $port) = serve('peregrine', @mounts, '--workers', 3);
    ok $server->wait_for_log($warning), 'several workers';
    is $server->stop,                             0, '... which stop';
    is scalar(() = $server->log =~ /redefines/g), 1, '... have one warning';
    my $inline = "package My::Helper; sub help { 1 } package Other; sub { [ 200, [], [__PACKAGE__] ] }";
    ($server) = serve('peregrine', map { ('--mount', "/$_=" . spew("$_.psgi", $inline)) } qw(three four));
    like $server->log,
        qr{/four\.psgi redefines subs that \S+/three\.psgi has defined: My::Helper::help; both},
        'a package of one name in two files';
    is $server->stop, 0, 'the server stops';
};

# The warning is about what the files define, not about modules that they share.
subtest 'no warning about modules' => sub {
    spew('lib/Shared.pm', "package Shared; use Carp; sub once { 1 } sub late { *late = sub { 2 }; 1 } 1;\n");
    my $text = "use Shared; use POSIX qw(floor); use constant WORD => 5; use Data::Dumper; Shared::late();\n"
        . "sub { [ 200, [], [ floor(1.5) . WORD ] ] };\n";
    my @mounts = map { ('--mount', "/$_=" . spew("m$_.psgi", $text)) } 1, 2;
    my ($server, $port) = serve('peregrine', '-I', "$dir/lib", @mounts);
    is get($port, '/1')->{body}, 15, 'two that use the same modules';
    unlike $server->log, qr/redefine/, '... are not complained about';
    is $server->stop, 0, 'the server stops';
};

my %FRAMEWORKS = (
    'Mojolicious::Lite' => <<'PERL',
use Mojolicious::Lite -signatures;
get '/' => sub ($c) { $c->render(template => 'index', name => app->moniker . ' ' . app->home) };
get '/page-NAME' => { text => 'only NAME' };
app->start;
__DATA__
@@ index.html.ep
NAME <%= $name %>
PERL
    'Dancer2' => <<'PERL',
use Dancer2;
set logger => 'null';
get '/' => sub { 'NAME ' . app->name . ' ' . config->{appdir} };
get '/page-NAME' => sub { 'only NAME' };
dance;
PERL
    'Dancer2, to_app' => <<'PERL',
use Dancer2;
set logger => 'null';
get '/' => sub { 'NAME ' . app->name . ' ' . config->{appdir} };
get '/page-NAME' => sub { 'only NAME' };
__PACKAGE__->to_app;
PERL
);
my @one_and_two = ([], [ '--engine', 'process', '--workers', 1, '--preload-app' ]);
for my $case (crossed([ sort keys %FRAMEWORKS ], \@one_and_two)) {
    my ($framework, $way) = @$case;
    my $module = $framework =~ s/,.*//r;
    subtest "$framework twice @$way" => sub {
        plan skip_all => "needs $module" if !eval "require $module; 1";
        my @mounts = map {
            my $text = $FRAMEWORKS{$framework} =~ s/NAME/$_/gr;
            make_path("$dir/$module-$_/lib");    # by which Dancer2 knows the folder above
            ('--mount', "/$_=" . spew("$module-$_/bin/app.psgi", $text));
        } qw(red blue green);
        my ($server, $port) = serve('peregrine', @mounts, @$way);
        for my $name (qw(red blue green)) {
            like get($port, "/$name/")->{body}, qr{\A$name .*\Q$dir/$module-$name\E(?:/bin)?/?\s*\z},
                "$name answers";
            is get($port, "/$name/page-$name")->{body}, "only $name", '... what it has';
            my $other = $name eq 'red' ? 'blue' : 'red';
            is get($port, "/$name/page-$other")->{status}, 404, '... and nothing of another';
        }
        is $server->stop, 0, 'the server stops';
        unlike $server->log, qr/redefine/, 'no warning';
    };
}

done_testing;
