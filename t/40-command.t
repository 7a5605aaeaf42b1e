# bin/pagi-server: every flag, every way to name an application, every way to be wrong.
use strict;
use warnings;

use lib 't/lib';
use Cwd            qw(getcwd);
use File::Temp     ();
use IO::Socket::IP ();
use PAGI::Server;
use PAGI::Server::AppLoader;
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools qw(free_port wait_for);

my $directory = File::Temp->newdir;

sub write_file {
    my ($name, $text) = @_;
    my $path = "$directory/$name";
    (my $parent = $path) =~ s{/[^/]+\z}{};
    require File::Path;
    File::Path::make_path($parent);
    open my $out, '>', $path or die "$path: $!";
    print {$out} $text;
    close $out or die "$path: $!";
    return $path;
}

sub run_command { return TestServer->finish_of('pagi-server', @_) }

sub fails {
    my ($name, $status, $says, @arguments) = @_;
    my ($got, $out, $err) = run_command(@arguments);
    is($got, $status, "$name: exit status $status");
    like($err, $says, '... and says why');
    unlike($err, qr/ at \S+\.pm line/, '... to a human') if $status == 2;
    return;
}

sub serves {
    my ($name, $body, @arguments) = @_;
    my $server = TestServer->command(@arguments);
    is(get($server->port, '/')->{body}, $body, $name);
    is($server->stop,                   0,     '... and TERM ends it with status 0');
    return $server->log;
}

my $answers = q{
    sub {
        my ($scope, $receive, $send) = @_;
        die "no\n" if $scope->{type} ne 'http';
        $send->({ type => 'http.response.start', status => 200 });
        return $send->({ type => 'http.response.body', body => %s });
    }
};
sub answering { return sprintf $answers, $_[0] }

my $file = write_file('app.pl', answering(q{'from a file'}));
write_file('lib/My/App.pm',
          'package My::App; sub new { my ($class, %args) = @_; bless {%args}, $class }'
        . ' sub to_app { my ($self) = @_; my $text = join ",", map {"$_=$self->{$_}"} sort keys %$self; return '
        . answering('"module $text"')
        . '} 1;');
write_file('lib/My/Words.pm',
          'package My::Words; use parent "Exporter"; our @EXPORT_OK = ("word"); our @EXPORT = ("other");'
        . ' sub word { "word" } sub other { "other" } 1;');
write_file('lib/Plain.pm',  'package Plain; 1;');
write_file('lib/Broken.pm', 'package Broken; sub {; 1;');
write_file('lib/Hash.pm',   'package Hash; sub new { die { a => 1 } } sub to_app { } 1;');
my @lib = ('-I', "$directory/lib");

subtest 'applications' => sub {
    serves('a file', 'from a file', $file);
    serves(
        'a file in a package of its own',
        'in Peregrine::App::main_pl',
        write_file(
            'main.pl',
            'sub doubt { die } sub load { die } sub _from_file { __PACKAGE__ } '
                . answering('"in " . _from_file()')
        )
    );
    serves('a file by --app',        'from a file',      '--app', $file);
    serves('a file by -a',           'from a file',      '-a',    $file);
    serves('code',                   'from code',        '-e',    answering(q{'from code'}));
    serves('code with modules',      'word',             @lib, '-MMy::Words=word', '-e', answering('word()'));
    serves('... by default imports', 'other',            @lib, '-M', 'My::Words', '-e', answering('other()'));
    serves('a module',               'module ',          @lib, 'My::App');
    serves('... with arguments',     'module a=1,b=x=y', "-I$directory/lib", 'My::App', 'a=1', 'b=x=y');
    serves('a provider in a file',
        'module k=v', '--lib', "$directory/lib",
        write_file('provider.pl', 'use My::App; My::App->new(k => "v")'));
    my $log = serves(
        'async code',           'async',
        '-MFuture::AsyncAwait', '-e',
        'async ' . (answering(q{'async'}) =~ s/^\s+//r)
    );
    unlike($log, qr/died before/, '... that is awaited');
};

subtest 'Future::IO, which nobody need have' => sub {
    write_file("none/$_", qq{die "Can't locate $_ in \\\@INC\\n";\n})
        for qw(Future/IO.pm Future/IO/ImplBase.pm);
    my $log = serves('without it', 'from a file', '-I', "$directory/none", $file);
    unlike($log, qr/Future::IO/, '... nothing is said');
    write_file('broken/Future/IO.pm',              "1;\n");
    write_file('broken/Future/IO/Impl/IOAsync.pm', qq{die "versions do not fit\\n";\n});
    my @broken = ('-I', "$directory/broken");
    $log = serves('versions that do not fit', 'from a file', @broken, $file);
    unlike($log, qr/Future::IO/, '... nothing is said');
    $log = serves('an application that uses it',
        'from code', @broken, '-MFuture::IO', '-e', answering(q{'from code'}));
    like($log, qr/Future::IO does not use the server's loop: versions do not fit$/m, '... is told');
};

subtest 'flags' => sub {
    my ($status, $out) = TestServer->finish('--version');
    is($status, 0, '--version');
    my $tls = PAGI::Server->has_tls ? qr/OpenSSL 3\.\d+\.\d+/ : qr/no OpenSSL/;
    my $versions =
        qr/PAGI::Server \Q$PAGI::Server::VERSION\E, Peregrine \Q${\Peregrine::engine_version()}\E, $tls, Perl 5\.\d+\.\d+/;
    like($out, qr/\Apagi-server \(PAGI 0\.3, $versions\)$/, '... prints versions');
    like(serves('the start', 'from a file', $file), qr/listening on .*, $versions\)$/m,
        '... tells them, too');
    is((run_command('-v'))[1], $out, '-v is the same');
    ($status, $out) = TestServer->finish('--help');
    is($status, 0, '--help');

    for my $flag (
        qw(--app -e -M -I --host --port --loop --env --access-log --no-access-log --log-level --quiet),
        qw(--version --help))
    {
        like($out, qr/\Q$flag\E\b/, "... explains $flag");
    }
    like(serves('--loop', 'from a file', '--loop',   'Poll', $file), qr/\(loop: Poll/, '... takes that loop');
    like(serves('-l',     'from a file', '-lSelect', $file), qr/\(loop: Select/, '... as well');
    like(serves('--host', 'from a file', '--host',   '0.0.0.0', $file),
        qr{http://0\.0\.0\.0:}, '... listens there');
    like(serves('--log-level', 'from a file', '--log-level', 'debug', $file),
        qr/listening/, '... takes a level');
    like(serves('--no-access-log', 'from a file', '--no-access-log', $file), qr/listening/,
        '... is accepted');
    is(serves('--env', 'staging', '-E', 'staging', '-e', answering('$ENV{PAGI_ENV}')) =~ /error/i,
        '', '... sets PAGI_ENV');
    serves('--extension', 'fullflush x', '--extension', 'fullflush', '--extension', 'x',
        '-e', answering('join " ", sort keys %{ $_[0]{extensions} }'));
    my $log = "$directory/access.log";
    serves('--access-log', 'from a file', '--access-log', $log, $file);
    open my $in, '<', $log or die $!;
    like(scalar <$in>, qr{"GET / HTTP/1\.1" 200}, '... writes it');

    my $port   = free_port();
    my $server = TestServer->spawn($^X, (map { "-I$_" } @INC), qw(bin/pagi-server --quiet -p), $port, $file);
    my $response;
    wait_for(sub {
        $response = eval { get($port, '/') }
    });
    is($response->{body},            'from a file', '--port and --quiet');
    is($server->signal('INT')->wait, 0,             'INT ends it with status 0');
};

subtest 'wrong command lines' => sub {
    fails(
        'a large limit',
        2,
        qr/--max-body-size must be an integer from 0 to 1125899906842624 \(bytes; K, M and G are understood\), not 'x'/,
        '--max-body-size',
        'x',
        'app.pl'
    );
    fails('an unknown flag',        2, qr/unknown option '--bogus'/,           '--bogus',         $file);
    fails('an unknown short flag',  2, qr/unknown option '-z'/,                '-z',              $file);
    fails('an abbreviated flag',    2, qr/unknown option '--quie'/,            '--quie',          $file);
    fails('a flag without a value', 2, qr/option --port requires an argument/, $file,             '--port');
    fails('two applications',       2, qr/unexpected argument 'two\.pl'/,      $file,             'two.pl');
    fails('an argument for a file', 1, qr/unexpected argument 'foo=.*the new of a module/, $file, 'foo=bar');
    fails('one for code', 1, qr/unexpected argument 'foo=.*the code of -e has none/,
        '-e', 'sub {}', 'foo=bar');
    fails('too little memory', 2, qr/--memory-max must be .* at least 16777216 /, '--memory-max', '1M',
        $file);
    fails('-e and --app', 2, qr/both -e and --app/, '-e', '1', '--app', $file);
    fails(
        'a port that is none',
        2, qr/option --port must be an integer from 0 to 65535, not 'http'/,
        '--port', 'http', $file
    );
    fails('a level that is none', 2, qr/option --log-level must be one of/,   '--log-level', 'loud',   $file);
    fails('a loop that is none',  1, qr/cannot load IO::Async::Loop::NoSuch/, '--loop',      'NoSuch', $file);
};

subtest 'applications that do not load' => sub {
    fails('no file',        1, qr/App file not found: \S+none\.pl/,           "$directory/none.pl");
    fails('a directory',    1, qr/is a directory/,                            "$directory/lib");
    fails('a syntax error', 1, qr/Error loading \S+bad\.pl: .*syntax error/s, write_file('bad.pl', 'sub {;'));
    fails(
        'one that dies',
        1,
        qr/Error loading \S+dies\.pl: on purpose/,
        write_file('dies.pl', 'die "on purpose\n"')
    );
    fails('no code reference', 1, qr/must give a code reference, got: '42'/, write_file('number.pl', '42;'));
    fails('a hash', 1, qr/must give a code reference, got: HASH reference/,  write_file('hash.pl', '+{};'));
    fails(
        'an empty file',
        1,
        qr/must give .* got: undef\. Its last statement gives it: \\&app;$/m,
        write_file('empty.pl', '')
    );
    fails('another object', 1, qr/got: an object of Thing/, write_file('object.pl', 'bless {}, "Thing"'));
    fails(
        'a bad provider',
        1,
        qr/to_app must return a code reference, got: undef/,
        write_file('provider2.pl', 'package P; sub to_app {} bless {}')
    );
    fails(
        'a dying provider',
        1,
        qr/to_app died: on purpose/,
        write_file('provider3.pl', 'package P; sub to_app { die "on purpose\n" } bless {}')
    );
    my $hash = qr/a reference to a hash with a => '1'\n/;
    fails('a hash', 1, qr/Error loading \S+hash\.pl: .*$hash/, write_file('hash.pl', 'die { a => 1 }'));
    fails('a hash of code',     1, qr/Error loading the code of -e: .*$hash/, '-e', 'die { a => 1 }');
    fails('a hash of a module', 1, qr/Error loading Hash: new died: .*$hash/, @lib, 'Hash');
    fails(
        'one that exits',
        1,
        qr/Error loading \S+exits\.pl: it called exit\(0\)/,
        write_file('exits.pl', 'exit 0')
    );
    fails('code that exits', 1, qr/Error loading the code of -e: it called exit\(0\)/, '-e', 'exit');
    fails(
        'a wide message',
        1,
        qr/\AError loading \S+wide\.pl: \xe2\x98\xba\n\z/,
        write_file('wide.pl', 'die "\x{263a}\n"')
    );
    fails('bad code', 1, qr/Error loading the code of -e: .*syntax error at -e line 1/s, '-e', 'sub {;');
    # Errors that the parser of `await` has seen take the place of what Perl says.
    my $undeclared =
        "use strict;\nuse Future::AsyncAwait;\nasync sub app {\n    if (1) { await \$xyz\n}\n\\&app;\n";
    my $global = qr/Global symbol "\$xyz" requires explicit package name[^\n]* line 5\.\nparse failed/;
    my $broken = write_file('undeclared.pl', $undeclared);
    fails('an error behind await', 1, qr/\AError loading \Q$broken\E: $global/, $broken);
    fails('... in code', 1, qr/\AError loading the code of -e: $global/, '-e', $undeclared);
    fails(
        '... in what another loads',
        1,
        qr/\AError loading \S+user\.pl: $global.*Compilation failed in require/s,
        write_file('user.pl', "require '$broken'; sub { }")
    );
    write_file('lib/My/Undeclared.pm', $undeclared);
    fails('... in a module', 1, qr/\AError loading My::Undeclared: $global/, @lib, 'My::Undeclared');
    fails('no module',       1, qr/Module not found: No::Such::Module/,      'No::Such::Module');
    fails('no module by -M', 1, qr/Module not found: No::Such/,              '-MNo::Such', $file);
    fails('a broken module', 1, qr/Error loading Broken: syntax error|Error loading Broken: /, @lib,
        'Broken');
    fails('a module without new', 1, qr/Error loading Plain: it has no method new/, @lib, 'Plain');
    fails('a bad module name', 1, qr/Invalid module name: My::-App/, 'My::-App');
    my $load = 'my @all; while (open my $in, "<", "/dev/null") { push @all, $in }'
        . ' PAGI::Server::AppLoader->load(app => shift)';
    my @perl = ($^X, (map { "-I$_" } @INC), '-MPAGI::Server::AppLoader', '-e', $load, $file);
    open my $said, '-|', 'sh', '-c', 'ulimit -n 64; exec "$@" 2>&1', 'sh', @perl or die "sh: $!";
    is(join('', <$said>), "App file cannot be read: $file: Too many open files\n", 'no descriptor is left');
    my $home = getcwd();
    chdir $directory or die "$directory: $!";
    ok(!eval { PAGI::Server::AppLoader->load(app => 'My::App'); 1 },
        'a module in lib/, which nobody has named');
    like($@, qr/\AModule not found: My::App .*; there is lib\/My\/App\.pm: -I lib$/, '... is found');
    chdir $home or die "$home: $!";
};

subtest 'a server that cannot start' => sub {
    my $taken = IO::Socket::IP->new(LocalHost => '127.0.0.1', LocalPort => 0, Listen => 1);
    my $port  = $taken->sockport;
    fails('a taken port', 1, qr/\AError: Port $port is already in use on 127\.0\.0\.1$/m,
        '--quiet', '--port', $port, $file);
    fails(
        'an unknown host',
        1, qr/\AError: Cannot listen on no-such-host\.invalid/m,
        '--quiet', '--host', 'no-such-host.invalid', $file
    );
    fails(
        'a log that cannot be written',
        1, qr{\AError: option 'access_log': cannot write to '/no/such/log': No such file}m,
        '--quiet', '--port', 0, '--access-log', '/no/such/log', $file
    );
    fails(
        'a failed startup',
        1, qr/Error: starting server: Lifespan startup failed: broken/,
        '--port', 0, '-e', 'sub { $_[2]->({ type => "lifespan.startup.failed", message => "broken" }) }'
    );
};

done_testing;
