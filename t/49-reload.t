# pagi-server --reload: an application that is loaded again when its files change, and a page that says what
# is wrong with it until it is mended. Files are written as editors write them.
use strict;
use warnings;

use lib 't/lib';
use Cwd            ();
use File::Path     qw(make_path);
use File::Temp     ();
use IO::Socket::IP ();
use OnlyInFull     qw(only_in_full);
use POSIX          ();
use Test::More;
use TestClient qw(exchange get);
use TestServer;
use TestTools   qw(content freeze not_repeated patience wait_for);
use Time::HiRes qw(time);

my $dir   = Cwd::realpath(File::Temp->newdir(CLEANUP => 0));
my $other = Cwd::realpath(File::Temp->newdir(CLEANUP => 0));
my $owner = $$;
END { File::Path::remove_tree($dir, $other) if $dir && $$ == $owner }
make_path("$dir/lib/My", "$dir/templates", "$dir/blind/Linux");

# Writes a file in place, as `echo` does, or puts another file in its place, as editors do.
sub write_file {
    my ($path, $text) = @_;
    open my $out, '>', $path or die "$path: $!";
    print {$out} $text;
    close $out or die "$path: $!";
    return $path;
}

sub replace_file {
    my ($path, $text) = @_;
    my $new = $path =~ s{([^/]+)\z}{.$1.swp}r;
    write_file($new, $text);
    rename $new, $path or die "$path: $!";
    return;
}

my $app     = "$dir/app.pl";
my @ignored = (
    '.app.pl.swp',         'app.pl~', '#app.pl#',   'debug.log',
    'data.sqlite-journal', 'output',  'upload.jpg', 'data.json'
);

# The code of an application that answers with its version, the values of two modules, and its process id.
sub code {
    my ($version, $more) = @_;
    return <<"APP" . <<'APP';
use lib '$dir/lib', '$other';
my \$version = '$version';
${\($more // '')}
APP
use Future::AsyncAwait;
use My::Name;
use Elsewhere;
async sub {
    my ($scope, $receive, $send) = @_;
    if ($scope->{type} eq 'lifespan') {
        await $receive->();
        my $failure = __PACKAGE__->can(q{failure}) && failure();
        return await $send->({ type => 'lifespan.startup.failed', message => $failure }) if $failure;
        await $send->({ type => 'lifespan.startup.complete' });
        await $receive->();
        return await $send->({ type => 'lifespan.shutdown.complete' });
    }
    if ($scope->{path} eq '/loop') { print STDERR "in a loop\n"; 1 while 1 }
    await $send->({ type => 'http.response.start', status => 200 });
    my $body = join ' ', $version, My::Name::name(), Elsewhere::place(), $$;
    await $send->({ type => 'http.response.body', body => $body });
};
APP
}
sub module { return "package $_[0]; sub $_[1] { '$_[2]' } 1;\n" }

write_file($app,                  code(1));
write_file("$dir/lib/My/Name.pm", module('My::Name',  name  => 'name'));
write_file("$other/Elsewhere.pm", module('Elsewhere', place => 'here'));
# In place of the module: as where there is none.
write_file("$dir/blind/Linux/Inotify2.pm", q[die "Can't locate Linux/Inotify2.pm in \@INC\n";]);

sub reloads { return scalar(() = $_[0]->log =~ /the application is loaded again$/mg) }

sub page {
    my ($port, @lines) = @_;
    return get($port, '/', @lines) || { status => 0, body => '' };
}

# Changes files while the server does not look.
sub at_once {
    my ($server, $code) = @_;
    freeze($server->pid);
    $code->();
    kill CONT => $server->pid;
    return;
}

# Waits until the answer is like that.
sub becomes {
    my ($server, $pattern, $what) = @_;
    my $answer;
    wait_for(sub { $answer = page($server->port)->{body}; $answer =~ $pattern });
    return like($answer, $pattern, $what);
}

# Asks all the time, each time on a new connection: tells each answer that is another one than that before it.
sub asker {
    my ($port) = @_;
    pipe my $here, my $tell or die "pipe: $!";
    my $pid = fork // die "fork: $!";
    if (!$pid) {
        alarm patience(230);
        my ($over, $last) = (0, '');
        local $SIG{USR1} = sub { $over = 1 };
        close $here;
        while (!$over) {
            my $answer = eval { get($port, '/') };
            my $text   = $answer ? "$answer->{status} " . ($answer->{body} // '') =~ s/ \d+\z//r : "none: $@";
            syswrite $tell, ($last = $text) =~ s/\n/ /gr . "\n" if $text ne $last && !$over;
        }
        POSIX::_exit(0);
    }
    close $tell;
    # The function stops the client after the answer that it names.
    return sub {
        my ($last) = @_;
        my @lines;
        while (defined(my $line = readline $here)) {
            push @lines, $line =~ s/\n\z//r;
            kill USR1 => $pid if index($line, $last) == 0;
        }
        waitpid $pid, 0;
        return @lines;
    };
}

sub command {
    my ($told, @arguments) = @_;
    local @INC = ($told ? () : "$dir/blind", @INC);
    return TestServer->command('--reload', '-E', 'development', '--no-access-log', @arguments, $app);
}

# Changes are found by the master, which has no engine: in one way where the file is repeated.
for my $told (eval { require Linux::Inotify2; 1 } ? (1, only_in_full(not_repeated(0))) : 0) {
    subtest $told ? 'the kernel tells of changes' : 'a look each second' => sub {
        write_file($app, code(1));
        my $server = command($told);
        my $port   = $server->port;
        my $stop   = asker($port);
        like(page($port)->{body}, qr/\A1 name here \d+\z/, 'the server serves');
        my ($worker) = page($port)->{body} =~ /(\d+)\z/;
        my $pid      = $server->pid;
        my @told     = grep { (readlink($_) // q()) =~ /inotify/ } glob("/proc/$pid/fd/*");
        is(scalar @told, $told, '... and asks the kernel, if it can');

        my $kept = TestClient->new($port)->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        like($kept->response->{body}, qr/\A1 name here/, '... on a connection that stays');
        replace_file($app, code(2));
        becomes($server, qr/\A2 name here/, 'a file that is replaced is loaded again');
        is($kept->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")->response, undef, '... and no old code answers');
        my $name = "$dir/lib/My/Name.pm";
        at_once($server, sub { write_file($name, module('My::Name', name => 'other')) });
        becomes($server, qr/\A2 other here/, '... and one that is written to, in a folder');
        replace_file("$other/Elsewhere.pm", module('Elsewhere', place => 'there'));
        becomes($server, qr/\A2 other there/, '... and one that it has loaded from elsewhere');
        is(reloads($server), 3, 'once each');

        write_file("$dir/$_", 'x') for @ignored;
        at_once(
            $server,
            sub {
                write_file($name, module('My::Name', name => "n$_")) for 1 .. 5;
                replace_file("$dir/templates/$_.html", $_) for 1 .. 5;
                replace_file($app, code(3));
            }
        );
        becomes($server, qr/\A3 n5 there/, 'several files that change at once');
        is(reloads($server), 4, '... are one change');
        like(
            $server->log,
            qr{changed: \Q$app\E, \Q$dir\E/lib/My/Name\.pm, \Q$dir\E/templates/1\.html and 4 more: },
            '... which is named; what editors, logs and applications leave does not count'
        );
        unlink "$dir/templates/3.html";
        ok(wait_for(sub { reloads($server) == 5 }), 'a file that is removed is a change');
        make_path("$dir/lib/New");
        becomes($server, qr/\A3/, 'the server serves');
        write_file("$dir/lib/New/File.txt", 'x');
        ok(wait_for(sub { reloads($server) == 6 }), 'so is one in a new folder');
        becomes($server, qr/\A3/, 'the server serves');
        my @answers = $stop->('200 3 n5 there');
        is_deeply(
            \@answers,
            [
                '200 1 name here',
                '200 2 name here',
                '200 2 other here',
                '200 2 other there',
                '200 3 n5 there'
            ],
            'no client was refused, and none was answered by old code after new one'
        );
        is(system("kill -0 $worker 2>/dev/null") == 0 ? 'there' : 'gone', 'gone', 'old workers are gone');
        is($server->stop,                                                 0,      'and it stops');
        File::Path::remove_tree("$dir/lib/New", map { "$dir/templates/$_.html" } 1 .. 5);
        unlink map { "$dir/$_" } @ignored;
        write_file("$dir/lib/My/Name.pm", module('My::Name',  name  => 'name'));
        write_file("$other/Elsewhere.pm", module('Elsewhere', place => 'here'));
    };
}

subtest 'code that cannot be loaded is shown until it can' => sub {
    write_file($app, code(1));
    my $server = command(1);
    my $port   = $server->port;
    my $stop   = asker($port);
    my @html   = ('Accept: text/html');
    replace_file($app, code(2) . "\n}\n");
    ok(wait_for(sub { page($port)->{status} == 500 }), 'a syntax error is answered with 500');
    my $page = page($port, @html);
    like(
        $page->{body},
        qr/<pre>[^<]*Unmatched right curly bracket at \Q$app\E line \d+/,
        '... and says what it is'
    );
    like($page->{header}{'content-security-policy'}, qr/\Adefault-src 'none'/,   '... without scripts');
    like(page($port)->{body}, qr/\AThe application died.*Unmatched/s,            '... as text for others');
    like($server->log,        qr/cannot start: .*Unmatched right curly bracket/, 'the terminal says it, too');
    my $socket = exchange(
        $port, join "\r\n", 'GET / HTTP/1.1',
        'Host: h',
        'Connection: upgrade',
        'Upgrade: websocket',
        'Sec-WebSocket-Version: 13',
        'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
        '', ''
    );
    is($socket->{status},                                  403, 'a WebSocket is refused');
    is(page($port, 'Accept: text/event-stream')->{status}, 500, 'and an event stream');

    replace_file($app, code(2, 'BEGIN { die qq{<b>& not this} }'));
    ok(wait_for(sub { page($port, @html)->{body} =~ /&lt;b&gt;&amp; not this/ }), 'the next one is escaped');
    replace_file($app, code(2));
    becomes($server, qr/\A2 name/, 'when it is mended it serves');
    replace_file($app, code(3, q{sub failure { "no database\n<b>" }}));
    ok(wait_for(sub { page($port)->{status} == 500 }), 'a startup that fails');
    like(page($port, @html)->{body}, qr/no database\n&lt;b&gt;/, '... is shown as well');
    replace_file("$dir/lib/My/Name.pm", "exit 3;\n");
    ok(
        wait_for(
            sub { page($port, @html)->{body} =~ /the process has exited with status 3 during its start/ }
        ),
        'and an exit, and a change in a module while nothing runs'
    );
    unlink "$dir/lib/My/Name.pm";
    ok(wait_for(sub { page($port, @html)->{body} =~ m{locate My/Name\.pm} }), 'and a file that is gone');
    write_file($app,                  code(4));
    write_file("$dir/lib/My/Name.pm", module('My::Name', name => 'name'));
    becomes($server, qr/\A4 name/, 'then it serves again');
    my @answers = map { substr $_, 0, 5 } $stop->('200 4');
    is($answers[-1], '200 4', 'clients see the last one');
    is_deeply([ grep { !/\A(?:200 [1-4]|500 T)/ } @answers ], [], '... and were answered all the time');

    my $handles = sub { my @all = glob '/proc/' . $server->pid . '/fd/*'; return scalar @all };
    my $before  = $handles->();
    for my $version (5 .. 7) {
        replace_file($app, code($version));
        becomes($server, qr/\A$version name/, "version $version");
    }
    ok(wait_for(sub { $handles->() <= $before }), 'nothing is left open');
    is($server->stop, 0, 'and it stops');
};

subtest 'from the beginning' => sub {
    write_file($app, "die { why => 'nothing yet' };\n");
    my $server = command(1, '--workers', 2);
    is(page($server->port)->{status}, 500, 'an application that cannot be loaded');
    like(page($server->port)->{body}, qr/nothing yet/, '... is shown');
    replace_file($app, code(1));
    becomes($server, qr/\A1 name/, '... until it can');
    my $client = TestClient->new($server->port)->send("GET /loop HTTP/1.1\r\nHost: h\r\n\r\n");
    $server->wait_for_log(qr/in a loop/);
    replace_file($app, code(2));
    becomes($server, qr/\A2 name/, 'new code is served while the old one is in a loop');
    $server->signal('HUP');
    is($server->wait_for_log(qr/(SIGHUP): the application is loaded again/), 'SIGHUP', 'HUP does it by hand');
    becomes($server, qr/\A2 name/, '... and it serves');
    ok($server->wait_for_log(qr/did not leave in time: SIGKILL/), 'a worker that is in a loop is killed');
    is($server->stop, 0, 'and it stops');
};

subtest 'modes and mistakes' => sub {
    write_file($app, "die qq{secret\\n};\n");
    my $server = TestServer->command(qw(--reload -E production), $app);
    my $answer = page($server->port);
    is($answer->{status}, 500, 'in production');
    unlike($answer->{body}, qr/secret/, '... nobody sees why');
    is($server->stop, 0, 'and it stops');
    my %wrong = (
        'without an application' => [ [ '--reload', "$dir/none.pl" ], 1, qr/App file not found/ ],
        'folders alone'  => [ [ '--reload-dir', $dir, $app ], 2, qr/--reload-dir means nothing without/ ],
        'another server' =>
            [ [ '--reload', '--server', 'My::Server', $app ], 2, qr/--reload works with PAGI::Server/ ],
    );
    for my $what (sort keys %wrong) {
        my ($arguments, $status, $says) = @{ $wrong{$what} };
        my ($got,       undef,   $err)  = TestServer->finish(@$arguments);
        is($got, $status, $what);
        like($err, $says, '... is an error');
    }
};

done_testing;
