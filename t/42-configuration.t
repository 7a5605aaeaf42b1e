# pagi-server's configuration file, --check and shell completion.
use strict;
use warnings;

use lib 't/lib';
use File::Basename qw(basename);
use File::Temp     ();
use Certificates;
use Fcntl qw(F_SETFD);
use File::Spec;
use OnlyInFull qw(only_in_full);
use PAGI::Server;
use PAGI::Server::CommandLine;
use PAGI::Server::Completion;
use PAGI::Server::ConfigFile;
use PAGI::Server::Options;
use PAGI::Server::Runner;
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools qw(refused);

my $directory = File::Temp->newdir;
my $app       = 'examples/pagi/hello/app.pl';

sub write_file {
    my ($name, $text) = @_;
    my $path = "$directory/$name";
    open my $out, '>', $path or die "$path: $!";
    print {$out} $text;
    close $out or die "$path: $!";
    return $path;
}

sub run_command { return TestServer->finish_of('pagi-server', @_) }

sub problem_of {
    my ($text) = @_;
    my $path = write_file('wrong.conf', $text);
    return '' if eval { PAGI::Server::ConfigFile->read($path); 1 };
    my $problem = ref $@ ? ${$@} : $@;
    $problem =~ s/\Q$directory\E\///g;
    return $problem;
}

subtest 'the lines of a configuration file' => sub {
    my $path = write_file('all.conf', <<'CONF');
# a comment
app = "/srv/my app.pl"   # in quotes
host = ::1
max-connections = 100
max_header_size=4096

timeout = 2.5
quiet = yes
reuseport = off
lifespan = on
loop = Epoll
lib = /a
lib = '/b # c'
access-log-format = "%h \"%r\" # %s"
access-log = off
CONF
    is_deeply(
        PAGI::Server::ConfigFile->read($path),
        {
            app               => '/srv/my app.pl',
            host              => '::1',
            max_connections   => 100,
            max_header_size   => 4096,
            timeout           => 2.5,
            quiet             => 1,
            reuseport         => 0,
            lifespan_mode     => 'on',
            loop_type         => 'Epoll',
            lib               => [ '/a', '/b # c' ],
            access_log_format => '%h "%r" # %s',
            access_log        => undef,
        },
        'is read'
    );
    my $marked = write_file('marked.conf', "\xef\xbb\xbfhost = h\n");
    is_deeply(PAGI::Server::ConfigFile->read($marked), { host => 'h' }, 'a byte order mark is no part of it');
    for my $word (qw(off no None FALSE)) {
        my $silent = write_file('silent.conf', "access-log = $word\n");
        is_deeply(PAGI::Server::ConfigFile->read($silent), { access_log => undef }, "access-log = $word");
    }
    my $file = write_file('comment.conf', qq{access-log = "a.log" # the "main" one\n});
    is_deeply(
        PAGI::Server::ConfigFile->read($file),
        { access_log => 'a.log' },
        'quotes in a comment are no part of it'
    );
};

subtest 'mistakes in a configuration file' => sub {
    my @cases = (
        [
            "port = http\n",
            qr/\Awrong\.conf line 1: option 'port' must be an integer from 0 to 65535, not 'http'/
        ],
        [ "\n# c\nprot = 1\n",    qr/\Awrong\.conf line 3: there is no option 'prot'/ ],
        [ "port 80\n",            qr/\Awrong\.conf line 1: expected 'option = value', not 'port 80'/ ],
        [ "port = 1\nport = 2\n", qr/\Awrong\.conf line 2: option 'port' is already set on line 1/ ],
        [ "port = # none\n",      qr/\Awrong\.conf line 1: option 'port' has no value/ ],
        [ "quiet = maybe\n",      qr/\Awrong\.conf line 1: option 'quiet' must be 0 or 1, not 'maybe'/ ],
        [ "config = x\n",         qr/\Awrong\.conf line 1: there is no option 'config'/ ],
        [ "on_error = x\n",       qr/\Awrong\.conf line 1: there is no option 'on_error'/ ],
        [
            "access_log_format = %z\n",
            qr/line 1: option 'access_log_format' must be clf.*not '%z' \('%z' at 0 is none of/
        ],
        [
            "access_log_format = combned\n",
            qr/line 1: option 'access_log_format' must be clf, combined.*not 'combned' \(it has no percent atom/
        ],
        [
            qq{access-log = "x\n},
            qr/line 1: option 'access-log': quotes go around the whole value; one inside is/
        ],
        [
            qq{access-log-format = "%r" %s\n},
            qr/line 1: option 'access-log-format': quotes go around the whole value/
        ],
        [
            "workers = many\n",
            qr/line 1: option 'workers' must be an integer from 0 to 1024, or auto, not 'many'/
        ],
    );
    like(problem_of($_->[0]),              $_->[1], $_->[0] =~ s/\n/; /gr) for @cases;
    like(problem_of("# \xe4\nhost = h\n"), qr/\Awrong\.conf line 1: this is not UTF-8\z/, 'another encoding');
    my $owned = write_file('owned.conf', "app = $app\n\nuser = no-such-user\n");
    for my $flags ([], ['--check']) {
        my ($status, undef, $error) = run_command('-c', $owned, @$flags);
        is($status, 2, "a user that is not there, @$flags");
        like(
            $error,
            qr/owned\.conf line 3: option --user: there is no user 'no-such-user'/,
            '... is found in the file'
        );
    }
    my ($status, undef, $error) = run_command('-c', 'one', '-c', 'two');
    is($status, 2, 'two files: status 2');
    like($error, qr/\Apagi-server: option --config is given twice$/m, '... and why');
    ($status, undef, $error) = run_command('-c', '/no/such/file');
    is($status, 2, 'a file that is not there: status 2');
    like($error, qr{cannot read the configuration file '/no/such/file': No such file}, '... and it is named');
};

subtest 'the command line wins' => sub {
    my $other = write_file('other.pl', 'sub { die }');
    my $file =
        write_file('server.conf', "app = $other\nport = 1\naccess-log = $directory/log\nlog-level = error\n");
    my $server = TestServer->command('-c', $file, '--log-level', 'info', $app);
    is(get($server->port, '/')->{body}, "Hello, World!", 'over application, port and level');
    is($server->stop,                   0,               '... and the server ends well');
    ok(-s "$directory/log", '... and what it did not say comes from the file');
};

subtest 'a place that is typed wins over another kind of place' => sub {
    my @in_file = (
        "host = ::1\nport = 1\n",
        "socket = $directory/file.sock\n",
        "listen = 127.0.0.1:1\nlisten = fd:3\n"
    );
    my @typed =
        ([ '--port', 8123 ], [ '--socket', "$directory/typed.sock" ], [ '--listen', '127.0.0.1:8124' ]);
    my @shown = ('port = 8123', "socket = $directory/typed.sock", 'listen = 127.0.0.1:8124');
    for my $text (@in_file) {
        my $file = write_file('place.conf', $text);
        for my $which ($text eq $in_file[0] ? 0 .. $#typed : (0, only_in_full(1 .. $#typed))) {
            my ($status, $out, $error) = run_command('--check', '-c', $file, @{ $typed[$which] }, $app);
            is($status, 0, "@{$typed[$which]} over " . $text =~ tr/\n/;/r) or diag $error;
            my @places = grep { /\A(?:port|socket|listen) =/ } split /\n/, $out;
            is_deeply(\@places, [ $shown[$which] ], '... and nothing else');
        }
    }
    my ($status, undef, $error) = run_command('--check', '--port', 1, '--socket', 's', $app);
    is($status, 2, 'two kinds that are typed contradict each other');
    like($error, qr/Cannot specify both/, '... and it is said');
};

subtest '--check' => sub {
    my $file = write_file('check.conf', "port = 8123\ntimeout = 5\n");
    local $ENV{PAGI_ENV} = 'none';
    my ($status, $out, $error) =
        run_command('--check', '-c', $file, '--max-connections', 7, '--no-access-log', $app);
    is($status, 0,        'a good configuration: status 0') or diag $error;
    is($out,    <<"TEXT", '... and what would run');
# PAGI::Server would run:
env = none
app = $app
port = 8123
max_connections = 7
timeout = 5
access_log = off
# listens on http://127.0.0.1:8123/
# connections: at most 7
TEXT
    my $again = write_file('again.conf', $out);
    is((run_command('--check', '-c', $again))[1], $out, '... in the words of a configuration file');
    unlike(
        (run_command('--check', qw(--workers 2), $app))[1],
        qr/^(?:user|group) =/m,
        '... and nothing that was not said'
    );
    ($status, undef, $error) = run_command('--check', 'no/such/app.pl');
    is($status, 1, 'an application that cannot be loaded: status 1');
    like($error, qr/App file not found/, '... and why');
    is((run_command('--check', '--port', 'x', $app))[0], 2, 'a wrong option: status 2');
};

subtest 'a URL that is none of a Redis' => sub {
    my ($status, undef, $error) = run_command('--check', '--channels', 'http://redis.example', $app);
    is $status, 2, 'is refused';
    like $error,
        qr{option --channels must be 0, 1, memory:// or the URL of a Redis, not 'http://redis\.example'},
        '... as one, and not as an application';
};

subtest 'a password in the URL of a Redis is shown nowhere' => sub {
    for my $secret ('secret', 'sec/ret') {
        my @printed = run_command('--check', '--channels', "redis://user:$secret\@127.0.0.1:1/0", $app);
        like "@printed[1, 2]",   qr{redis://\.\.\.\@127\.0\.0\.1:1/0}, 'the URL is shown';
        unlike "@printed[1, 2]", qr/ret/,                              '... without its password';
    }
};

subtest 'names that are not ASCII' => sub {
    my $application = "$directory/gr\xc3\xbc\xc3\x9fe.pl";
    symlink File::Spec->rel2abs($app), $application or die "$application: $!";
    mkdir "$directory/m\xc3\xbcll" or die $!;
    for my $name ("zug\xc3\xa4nge", "\xe2\x98\x83") {
        my $file = write_file('names.conf', <<"CONF");
app        = $application
access_log = $directory/$name.log
static     = /m=$directory/m\xc3\xbcll
socket     = $directory/$name.sock
CONF
        my ($status, $out, $err) = run_command('--check', '-c', $file);
        is $status, 0,  'a configuration file with such names is checked' or diag $err;
        is $err,    '', '... without a warning';
        for my $line ("access_log = $directory/$name.log", "listens on unix:$directory/$name.sock") {
            like $out, qr/\Q$line\E$/m, '... and its names are printed as they are written there';
        }
        my $server = TestServer->spawn($^X, (map { "-I$_" } @INC), 'bin/pagi-server', '-c', $file);
        ok $server->wait_for_log(qr/listening on/), 'the server starts' or diag $server->log;
        ok -S "$directory/$name.sock",              '... makes a socket of that name';
        ok -f "$directory/$name.log",               '... and a log';
        is $server->stop, 0, '... and ends well';
    }
    my $file = write_file('mode.conf', "env = \xc3\xbc\n");
    my ($status, undef, $err) = run_command('--check', '-c', $file, $app);
    is $status, 2, 'a mode that is not ASCII is refused';
    like $err, qr/option 'env' must be a word, not '\xc3\xbc'/, '... in its own bytes';
};

subtest '--check says where it would listen' => sub {
    my @tls;
    if (PAGI::Server->has_tls) {
        my $files = Certificates->new->authority('ca')->issue('server', subject => '/CN=localhost');
        @tls = ($files, '--ssl-cert', $files->path('server.pem'), '--ssl-key', $files->path('server.key'));
    }
    my $files = shift @tls;
    my ($status, $out, $error) = run_command('--check', @tls,
        (map { ('--listen', $_) } '127.0.0.1:1,proxy=10.0.0.0/8', '[::1]:0,plain', "$directory/s"), $app);
    is($status, 0, 'status 0') or diag $error;
    my $scheme = @tls ? 'https' : 'http';
    is_deeply(
        [ $out =~ /^# listens on (.*)$/mg ],
        [ "$scheme://127.0.0.1:1/ behind PROXY protocol", 'http://[::1]:0/', "unix:$directory/s" ],
        'with TLS or without, behind a proxy or not'
    );
    ok(!-e "$directory/s", '... and binds nothing');
};

subtest '--check finds what a start would trip over' => sub {
    my $nowhere = qr{No such file or directory};
    my $taken   = write_file('no-socket', 'x');
    open my $plain, '<', $app or die "$app: $!";
    fcntl $plain, F_SETFD, 0 or die "fcntl: $!";
    my $number = fileno $plain;
    my @cases  = (
        [ [ '--loop', 'Nonsense' ], qr/option 'loop_type': cannot load IO::Async::Loop::Nonsense/ ],
        [
            [ '--host', 'no.such.invalid' ],
            qr/option 'host': Cannot listen on no\.such\.invalid port \d+: \w/
        ],
        [
            [ '--listen', 'no.such.invalid:1' ],
            qr/option 'listen': Cannot listen on no\.such\.invalid port 1: \w/
        ],
        [ [ '--socket', '/no/such/s' ], qr{option 'socket': Cannot listen on unix:/no/such/s: $nowhere} ],
        [ [ '--socket', $taken ], qr/option 'socket': Cannot listen on unix:\Q$taken\E: .*not a socket/ ],
        [
            [ '--listen', 'fd:99' ],
            qr/option 'listen': Cannot listen on fd:99: descriptor 99 cannot be used/
        ],
        [ [ '--listen', "fd:$number" ], qr/Cannot listen on fd:$number: .*is not a listening socket/ ],
        [
            [ '--access-log', '/no/such/log' ],
            qr{option 'access_log': cannot write to '/no/such/log': $nowhere}
        ],
        [
            [ '--error-log', '/no/such/log' ],
            qr{option 'error_log': cannot write to '/no/such/log': $nowhere}
        ],
        [
            [ map { ('--listen', $_) } '0.0.0.0:1', '127.0.0.1:1' ],
            qr{option 'listen': Cannot listen on http://127\.0\.0\.1:1/: another place of this server}
        ],
        [
            [ '--listen', "$directory/s", '--listen', "$directory/../${\basename($directory)}/s" ],
            qr{option 'listen': Cannot listen on unix:\S+/s: another place of this server}
        ],
        [
            [ '--port', 1, '--status', '127.0.0.1:1' ],
            qr{option 'status': Cannot listen on http://127\.0\.0\.1:1/: another place of this server}
        ],
        [
            [ '--reuseport', '--listen', "$directory/s", '--listen', "$directory/s" ],
            qr{option 'listen': Cannot listen on unix:\S+/s: another place of this server}
        ],
        # The status has an address of its own kind, at which connections of IPv4 arrive, too.
        [
            [ '--port', 1, '--status', '[::]:1' ],
            qr{option 'status': Cannot listen on http://\[::\]:1/: another place of this server}
        ],
        [ [ '--pid', "$app/pid" ], qr{option 'pid': cannot write to '\S+/app\.pl/pid': Not a directory} ],
        [ [ '--pid', $directory ], qr{option 'pid': cannot write to '\Q$directory\E': Is a directory} ],
    );
    my @together = grep { $_->[0][0] =~ /\A--(?:loop|host|access-log|error-log)\z/ } @cases;
    my %together = map  { $_ => 1 } @together;

    for my $case (grep { !$together{$_} || only_in_full(1) } @cases) {
        my ($arguments, $message) = @$case;
        my ($status, undef, $error) = run_command('--check', @$arguments, $app);
        is($status, 1, "status 1: @$arguments");
        like($error, qr/\Apagi-server: .*?$message/, '... and why');
    }
    for my $apart ([ '127.0.0.1:1', '127.0.0.1:2' ], [ '[::]:1', '0.0.0.0:1' ], [ ('127.0.0.1:0') x 2 ]) {
        is((run_command('--check', map({ ('--listen', $_) } @$apart), $app))[0], 0, "places: @$apart");
    }
    is((run_command('--check', '--reuseport', ('--listen', '127.0.0.1:1') x 2, $app))[0],
        0, '... and one that both may have');
    my ($status, undef, $error) = run_command('--check', map({ @{ $_->[0] } } @together), $app);
    is(() = $error =~ /^pagi-server: option/mg, 4, 'all of it at once');
    like($error, $_->[1], "... @{$_->[0]}") for @together;
    my $log = "$directory/made.log";
    is((run_command('--check', '--access-log', $log, '--error-log', $log, '--pid', $log, $app))[0],
        0, 'what could be written');
    ok(!-e $log, '... is not made');
SKIP: {
        skip 'root may write everywhere', 1 if $> == 0;
        mkdir "$directory/locked", oct 500 or die "mkdir: $!";
        like(
            (run_command('--check', '--pid', "$directory/locked/pid", $app))[2],
            qr/option 'pid': .*Permission denied/,
            'a locked folder'
        );
    }
};

subtest '--check names the line of a place that cannot be used' => sub {
    for my $case ([ listen => '/no/such/socket' ], [ access_log => '/no/such/log' ]) {
        my ($name, $value) = @$case;
        my ($status, undef, $error) =
            run_command('--check', '-c', write_file('lines.conf', "timeout = 5\n$name = $value\n"), $app);
        is $status, 1, "$name: status 1";
        like $error, qr{lines\.conf line 2: option '$name'.*No such file or directory}, '... and the line';
    }
};

subtest 'completion' => sub {
    my ($status, $script) = run_command('--completion', 'bash');
    is($status, 0, 'there is a script for bash');
    my $complete = sub {
        my (@words) = @_;
        my $list    = join ' ', map { "'$_'" } @words;
        my $ask = "COMP_WORDS=($list); COMP_CWORD=$#words; _pagi_server; printf '%s\\n' \"\${COMPREPLY[@]}\"";
        open my $bash, '-|', 'bash', '-c', "$script\n$ask" or die "bash: $!";
        chomp(my @offers = <$bash>);
        close $bash or die 'bash failed';
        return @offers;
    };
    is_deeply([ $complete->('pagi-server', '--max-header') ],
        [qw(--max-header-size --max-header-count)], 'flags');
    is_deeply([ $complete->('pagi-server', '--lifespan',  '') ], [qw(auto on off)], 'choices');
    is_deeply([ $complete->('pagi-server', '--log-level', '=') ], [qw(error warn info debug)],
        '... behind =');
    is_deeply([ $complete->('pagi-server', '--log-level', '=', 'd') ], ['debug'], '... and the start of one');
    is_deeply([ $complete->('pagi-server', '--loop', 'Pe') ],  ['Peregrine'],         'usual values');
    is_deeply([ $complete->('pagi-server', '--user', 'roo') ], ['root'],              'users');
    is_deeply([ $complete->('pagi-server', '--no-acc') ],      [qw(--no-access-log)], 'negations');
    is_deeply([ $complete->('pagi-server', '-c', 'cpan') ],    [qw(cpanfile)],        'files');
    is_deeply([ $complete->('pagi-server', 'trac') ],          ['trace'],             'the word for traces');
    is_deeply([ $complete->('pagi-server', 'rene') ],          ['renew'],    '... and for certificates');
    is_deeply([ grep { /\D/ } $complete->('pagi-server', 'trace', '') ], [], '... and processes behind it');
    my $zsh = PAGI::Server::Completion->script('zsh');

    for my $option (PAGI::Server::Options::all()) {
        my $flag  = PAGI::Server::CommandLine::flag($option) or next;
        my $typed = PAGI::Server::CommandLine::typed($option);
        like($zsh, qr/^    '\*?\Q$typed\E=?\[[^\[\]']+\](?::[^']*)?'/m, "zsh knows $typed");
    }
SKIP: {
        skip 'no zsh here', 1 if !grep { -x "$_/zsh" } split /:/, $ENV{PATH};
        write_file('_pagi-server', $zsh);
        my $ask = "fpath=($directory \$fpath); autoload -U compinit; compinit -u -D;"
            . ' whence -v $_comps[pagi-server]';
        my $said = `zsh -fc '$ask' 2>&1`;
        is(
            $said,
            "_pagi-server is an autoload shell function from $directory/_pagi-server\n",
            'zsh finds it by its file'
        );
    }
    is((run_command('--completion', 'fish'))[0], 2, 'another shell is a mistake');
};

subtest 'PEREGRINE_ENGINE is an option' => sub {
    my $shows = 'sub { [ 200, [], [ join " ", map { $_ // "-" } $ENV{PEREGRINE_ENGINE}, $$, getppid ] ] }';
    my $psgi  = write_file('engine.psgi', $shows);
    my $conf  = write_file('engine.conf', "engine = inline\nworkers = 1\n");
    my @INCS  = map { "-I$_" } @INC;
    local $ENV{PEREGRINE_ENGINE} = 'process';
    for my $program (qw(pagi-server peregrine)) {
        my $named  = $program eq 'peregrine' ? $psgi : $app;
        my $server = TestServer->spawn($^X, @INCS, "bin/$program", qw(--port 0 --workers 1), $named);
        my $port   = $server->wait_for_log(qr{listening on http://127\.0\.0\.1:(\d+)/.*engine: process});
        ok $port, "$program takes it" or diag $server->log;
        is get($port, '/')->{status}, 200, '... and serves';
        like get($port, '/')->{body}, qr/\A- \d+ \d+\z/, '... its workers do not have it' if $named eq $psgi;
        is $server->stop, 0, '... and stops';
        my ($status, undef, $says) = TestServer->finish_of($program, '--port', 0, $named);
        is $status, 2, '... it is checked with other options';
        like $says,
            qr/\A$program: the environment variable PEREGRINE_ENGINE \(option 'engine'\): process needs workers/,
            '... and named';

        for my $options ([qw(--engine inline --workers 1)], [ '--config', $conf ]) {
            $server = TestServer->spawn($^X, @INCS, "bin/$program", qw(--port 0), @$options, $named);
            ok $server->wait_for_log(qr/listening on .*engine: inline/), "... @$options wins";
            is $server->stop, 0, '... and the server stops';
        }
    }
    my $file  = write_file('engine.env', "PEREGRINE_ENGINE=thread\n");
    my @there = ('--port', 0, '--env-file', $file, $app);
    delete $ENV{PEREGRINE_ENGINE};
    my $server = TestServer->spawn($^X, @INCS, 'bin/pagi-server', @there);
    ok $server->wait_for_log(qr/listening on .*engine: thread/), 'it may come from --env-file';
    is $server->stop, 0, '... and the server stops';
    $ENV{PEREGRINE_ENGINE} = 'proces';
    my ($status, undef, $says) = run_command('--port', 0, $app);
    is $status, 2, 'a wrong one';
    like $says, qr/PEREGRINE_ENGINE \(option 'engine'\) must be one of inline thread process, not 'proces'/,
        '... is refused';
    like refused(app => sub { }), qr/PEREGRINE_ENGINE .* not 'proces'/, '... by the constructor, too';
    $ENV{PEREGRINE_ENGINE} = '';
    is refused(app => sub { }), '', 'an empty one is none';
    local $ENV{PAGI_ENV} = 'two words';
    ($status, undef, $says) = run_command('--port', 0, $app);
    is $status, 2, 'a wrong PAGI_ENV';
    like $says, qr/the environment variable PAGI_ENV \(option 'env'\) must be a word, not 'two words'/,
        '... is refused';
};

subtest 'listen_backlog is listener_backlog' => sub {
    my $server = PAGI::Server->new(app => sub { }, listen_backlog => '1_5');
    is $server->options->{listener_backlog}, 15, 'in the constructor';
    like refused(app => sub { }, listen_backlog => 0),
        qr/option 'listener_backlog' must be an integer from 1/,
        '... where it is checked';
    like refused(app => sub { }, listen_backlog => 5, listener_backlog => 5), qr/are the same one/,
        '... both of them';
    my $path = write_file('backlog.conf', "listen-backlog = 7\n");
    is(PAGI::Server::ConfigFile->read($path)->{listener_backlog}, 7, 'in a file');
    my ($given) = PAGI::Server::CommandLine->parse('--listen-backlog', 7);
    is $given->{listener_backlog}, 7, 'on the command line';
    my $runner = PAGI::Server::Runner->new(listen_backlog => 7);
    is $runner->{options}{listener_backlog}, 7, 'for the runner';
};

subtest 'an event loop that is not installed' => sub {
    my ($status, undef, $says) = run_command('--port', 0, '--loop', 'NoSuchLoop', $app);
    is $status, 1, '--loop';
    like $says,
        qr/\AError: option 'loop_type': cannot load IO::Async::Loop::NoSuchLoop: it is not installed\. /,
        '... says so';
    like $says, qr/Install it from CPAN, or name one that is: Peregrine, Poll, Select\n\z/,
        '... and what to do';
    local $ENV{IO_ASYNC_LOOP} = 'NoSuchLoop,Nor::This';
    ($status, undef, $says) = run_command('--port', 0, $app);
    is $status, 1, 'IO_ASYNC_LOOP';
    like $says, qr/\AError: the environment variable IO_ASYNC_LOOP: cannot load IO::Async::Loop::NoSuchLoop/,
        '... is named';
    local $ENV{IO_ASYNC_LOOP} = 'NoSuchLoop,Poll';
    my $server = TestServer->command('--quiet', '--no-quiet', $app);
    like $server->log, qr/loop: Poll/, 'the first one that is there';
    is $server->stop, 0, 'the server stops';
};

done_testing;
