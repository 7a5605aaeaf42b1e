# Compares this server with Mojolicious' daemon on applications by other authors. Called by script/foreign,
# which has installed the applications:
#     foreign.pl [--list] [--keep] [APPLICATION ...]
use v5.36;
use Cwd            qw(realpath);
use File::Basename qw(basename dirname);
use File::Temp     ();
use Getopt::Long   qw(GetOptions);
use IO::Socket::INET;
use POSIX       ();
use Time::HiRes qw(sleep time);

use lib map { realpath(dirname(__FILE__) . "/../../$_") } qw(script/lib t/lib blib/lib blib/arch);
use Foreign::Client;
use Foreign::Database;
use TestServer;

use constant RUN_MAX_S => 3600;

my $ROOT     = realpath(dirname(__FILE__) . '/../..');
my $EXAMPLES = '/usr/share/doc';
my @PERL     = ($^X, "-I$ROOT/blib/lib", "-I$ROOT/blib/arch");

my %PLACEMENTS = (
    inline  => [],
    workers => [qw(--workers 2)],
    process => [qw(--engine process --workers 2)],
);

# `folder`: the folder to copy; `file`: the script in it; `ask`: the conversation; `alone`: the application
# keeps state in its process; `job`: a command of the application to run beside it; `beside`: a script that
# the daemon serves beside it.
my @APPLICATIONS = (
    {
        name   => 'minion',
        folder => "$EXAMPLES/libminion-perl/examples/linkcheck",
        file   => 'script/linkcheck',
        job    => [qw(minion worker)],
        ask    => \&ask_minion,
    },
    {
        name   => 'blog',
        folder => "$EXAMPLES/libmojo-pg-perl/examples/blog",
        file   => 'script/blog',
        ask    => \&ask_blog,
    },
    {
        name   => 'pg-chat',
        folder => "$EXAMPLES/libmojo-pg-perl/examples",
        file   => 'chat.pl',
        ask    => \&ask_chat,
    },
    {
        name   => 'chat',
        folder => "$EXAMPLES/libmojolicious-perl/examples",
        file   => 'chat.pl',
        alone  => 1,
        ask    => \&ask_chat_and_leave,
    },
    {
        name   => 'responses',
        folder => "$EXAMPLES/libmojolicious-perl/examples",
        file   => 'responses.pl',
        ask    => \&ask_responses,
    },
    {
        name   => 'login',
        folder => "$EXAMPLES/libmojolicious-perl/examples/login",
        file   => 'script/login_app',
        ask    => \&ask_login,
    },
    {
        name   => 'proxy',
        folder => "$EXAMPLES/libmojolicious-perl/examples",
        file   => 'proxy.pl',
        beside => 'responses.pl',
        ask    => \&ask_proxy,
    },
);

exit main();

sub main () {
    GetOptions('list' => \my $list, 'keep' => \my $keep) or return 2;
    if ($list) {
        say for map { $_->{name} } @APPLICATIONS;
        return 0;
    }
    my %wanted  = map { $_ => 1 } @ARGV;
    my @unknown = grep {
        my $name = $_;
        !grep { $_->{name} eq $name } @APPLICATIONS
    } @ARGV;
    die "There is no application @unknown: see --list\n" if @unknown;
    $| = 1;
    $SIG{$_} = sub { exit 2 }
        for qw(HUP INT PIPE TERM);    # ends the database, too
    alarm RUN_MAX_S;                           # TestTools sets a shorter limit
    my $dir = File::Temp->newdir(CLEANUP => !$keep);
    chmod 0755, "$dir" or die "$dir: $!\n";    # for the database's user
    my $database  = Foreign::Database->start("$dir/pg");
    my $different = 0;

    for my $application (grep { !@ARGV || $wanted{ $_->{name} } } @APPLICATIONS) {
        $different += compare($application, $_, "$dir", $database) for qw(development production);
    }
    say $different ? "$different conversations differ" : 'all answers are the same';
    say "kept: $dir" if $keep;
    return $different ? 1 : 0;
}

# The number of servers whose answers differ from the daemon's.
sub compare ($application, $mode, $dir, $database) {
    my $expected  = conversation($application, $mode, 'daemon', $dir, $database);
    my $different = 0;
    for my $server (qw(inline workers process)) {
        next if $application->{alone} && $server ne 'inline';
        my $got = conversation($application, $mode, $server, $dir, $database);
        my $is  = $got eq $expected;
        printf "%-10s %-12s %-8s %s\n", $application->{name}, $mode, $server,
            $is ? 'as by the daemon: ' . scalar(() = $got =~ /^=== /mg) . ' answers' : 'DIFFERENT';
        next if $is;
        $different++;
        show_difference($dir, $expected, $got);
    }
    return $different;
}

sub show_difference ($dir, $expected, $got) {
    spew("$dir/daemon.txt", $expected);
    spew("$dir/ours.txt",   $got);
    system 'diff', '-u', "$dir/daemon.txt", "$dir/ours.txt";
    return;
}

# All answers of an application with a server, as one text.
sub conversation ($application, $mode, $server, $dir, $database) {
    my $home = "$dir/app";
    system('rm', '-rf', $home) == 0 or die "$home: $!\n";
    system('cp', '-rL', $application->{folder}, $home) == 0 or die "$application->{folder}: $!\n";
    my $url = $database->fresh;
    # The configurations have the URL of their author's database.
    for my $file (glob("$home/*.conf"), glob("$home/*.pl")) {
        my $text = slurp($file);
        spew($file, $text) if $text =~ s{postgresql://[^']*}{$url}g;
    }
    chdir $home or die "$home: $!\n";
    local $ENV{MOJO_MODE} = $mode;
    my $script  = "$home/$application->{file}";
    my $running = $server eq 'daemon' ? start_daemon($script, $mode) : start_ours($server, $script, $mode);
    my $job     = $application->{job}    && TestServer->spawn(@PERL, $script, @{ $application->{job} });
    my $beside  = $application->{beside} && start_daemon("$home/$application->{beside}", 'production');
    my $client  = Foreign::Client->new($running->{port}, $beside && $beside->{port});
    my $ok      = eval { $application->{ask}->($client); 1 };
    my $why     = $@;
    chdir $ROOT or die "$ROOT: $!\n";
    $_->stop for grep { $_ } $job, $beside, $running;
    die "$application->{name}, $mode, $server: $why", map { last_lines($_->log) } grep { $_ } $running, $job
        if !$ok;
    return $client->heard;
}

sub start_daemon ($script, $mode) {
    my $port = free_port();
    return started($port, $script, 'daemon', '-m', $mode, '-l', "http://127.0.0.1:$port");
}

sub start_ours ($server, $script, $mode) {
    my $port = free_port();
    return started(
        $port,      "$ROOT/bin/peregrine", '--no-access-log', @{ $PLACEMENTS{$server} },
        '--listen', "127.0.0.1:$port",     '-E',              $mode,
        $script
    );
}

sub started ($port, @command) {
    my $server = TestServer->spawn(@PERL, @command);
    $server->{port} = $port;
    for (my $end = time + 60; time < $end; sleep 0.05) {
        return $server if IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port);
    }
    die "@command did not start:\n", $server->log;
}

sub last_lines ($text) {
    my @lines = split /^/, $text;
    return join '', splice @lines, @lines > 20 ? -20 : 0;
}

sub free_port () {
    my $probe = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1) or die "listen: $!\n";
    return $probe->sockport;
}

sub slurp ($file) {
    open my $in, '<:raw', $file or die "$file: $!\n";
    local $/;
    return scalar <$in>;
}

sub spew ($file, $text) {
    open my $out, '>:raw', $file or die "$file: $!\n";
    print {$out} $text;
    close $out or die "$file: $!\n";
    return;
}

# ---- Conversations ------------------------------------------------------------------------------

sub ask_minion ($client) {
    $client->get($_) for '/', '/links', '/minion', '/minion/jobs', '/minion/locks', '/missing';
    # The worker checks the links of this very server, while other requests come; a job without a URL fails.
    $client->post('/links', url => '');
    $client->until('/minion/stats', qr/"failed_jobs":1/);
    $client->post('/links', url => $client->url('/links'));
    $client->until('/links/2', qr/200/);
    $client->get($_)
        for '/links/1', '/links/2', '/links/77', '/minion/jobs?id=1', '/minion/jobs?state=finished',
        '/minion/jobs?limit=x', '/minion/stats', '/minion/workers', '/minion/app.js', '/minion/app.css';
    $client->get('/minion/bootstrap/bootstrap.js', 'Accept-Encoding: gzip');
    $client->get('/minion/app.js',                 'Range: bytes=10-99');
    $client->head('/minion');
    $client->form(PATCH => '/minion/jobs', id => 2, do => 'retry');
    $client->get('/minion/jobs?id=77');    # with the flash message
    $client->until('/minion/stats', qr/"active_jobs":0,.*"finished_jobs":1,"inactive_jobs":0/);
    $client->form(PATCH => '/minion/jobs', id => 2, do => 'remove');
    $client->get('/minion/jobs?id=2');
    $client->form(PATCH => '/minion/jobs', id => 1, do => 'nonsense');
    $client->form(DELETE => '/minion/locks', name => 'none');
    $client->get($_) for '/minion/locks', '/minion/history';
    return;
}

sub ask_blog ($client) {
    $client->get($_) for '/', '/posts', '/posts/create';
    $client->post('/posts', title => '',                    body => 'without a title');
    $client->post('/posts', title => "Gr\xc3\xbc\xc3\x9fe", body => "\xe2\x82\xac " x 3000);
    $client->get($_) for '/posts/1', '/posts/1/edit', '/posts/none';
    $client->post('/posts/1?_method=PUT', title => 'New', body => '<b>');
    $client->get('/posts/1');
    $client->get('/posts', 'Accept-Encoding: gzip');
    $client->post('/posts/1?_method=DELETE');
    $client->get($_) for '/posts', '/posts/1';
    return;
}

sub ask_chat ($client) {
    $client->get('/');
    my @sockets;
    # Each socket gets its own message, which shows that both listen.
    for my $name ('first', 'second') {
        push @sockets, $client->websocket('/channel');
        $sockets[-1]->text($name);
        $client->hear($_) for @sockets;
    }
    for my $text ('hello', "Gr\xc3\xbc\xc3\x9fe", 'x' x 7000) {
        $sockets[0]->text($text);
        $client->hear($_) for @sockets;
    }
    $client->get('/channel');
    $client->hear($client->websocket('/missing'));
    return @sockets;
}

# Not for the chat of Mojo::Pg: its `finish` dies of too many arguments, and even with the daemon the other
# sockets get later messages only sometimes.
sub ask_chat_and_leave ($client) {
    my @sockets = ask_chat($client);
    $sockets[0]->close_frame(1000);    # in answer this server sends no reason
    $client->hear($sockets[0]);
    $sockets[1]->text('left');
    $client->hear($sockets[1]);
    return;
}

sub ask_responses ($client) {
    $client->get("/res$_")  for 1 .. 5;
    $client->head("/res$_") for 1 .. 5;
    $client->post('/res1', a => 1);
    $client->get('/res1', 'If-None-Match: *');
    $client->get('/favicon.ico');
    return;
}

sub ask_login ($client) {
    $client->get($_) for '/', '/protected';
    $client->post('/', user => 'sebastian', pass => 'wrong');
    $client->post('/', user => 'sebastian', pass => 'secr3t');
    $client->get($_) for '/protected', '/', '/logout', '/protected';
    return;
}

sub ask_proxy ($client) {
    $client->get("http://127.0.0.1:$client->{beside}/res$_") for 1 .. 5;
    $client->get('http://127.0.0.1:1/nobody');
    return;
}
