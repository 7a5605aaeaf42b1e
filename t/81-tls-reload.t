# Certificates are replaced while the server runs: because the files changed, on HUP, and by configure. What
# cannot be used is refused loudly, and the old ones stay. The command's flags are tried here, too.
use strict;
use warnings;

use lib 't/lib';
use IO::Async::Loop;
use Test::More;
use Time::HiRes qw(sleep time);

use Certificates;
use PAGI::Server;
use TestClient;
use TestServer;
use TestSteps qw(answers made);
use TestTools qw(ended freeze patience);

plan skip_all => 'built without TLS' if !PAGI::Server->has_tls;

my $files = Certificates->new->authority('ca');
$files->issue($_, subject => "/CN=$_", extensions => ['subjectAltName=DNS:localhost'])
    for qw(first second third);
$files->encrypt('first', 'encrypted', 'secret');

# A certificate with its key in the live place, both in one step each.
sub install {
    my ($name) = @_;
    $files->replace("live.$_", "$name.$_") for qw(key pem);
    return;
}

# Changes files while the server does not look: half of a change would be one as well.
sub at_once {
    my ($server, $code) = @_;
    freeze($server->pid);
    $code->();
    $server->signal('CONT');
    return;
}

my $app = answers(made(sub { body => $_[0]{scheme} }));

sub start {
    return TestServer->start(app => $app, quiet => 0, ssl => { $files->pair('live') }, @_);
}

sub shown_by {
    my ($port) = @_;
    return TestClient->new($port, tls => {})->socket->peer_certificate('cn');
}

# Connects until that certificate is shown; whether it came.
sub comes {
    my ($port, $name) = @_;
    my $end = time + patience(30);
    while (time < $end) {
        return 1 if shown_by($port) eq $name;
        sleep 0.1;
    }
    return 0;
}

sub ask {
    my ($client) = @_;
    my $got = $client->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")->response;
    return $got && $got->{complete} ? $got->{body} : undef;
}

subtest 'changed files are seen' => sub {
    install('first');
    my $server = start();
    is(shown_by($server->port), 'first', 'the first certificate');
    my $old = TestClient->new($server->port, tls => {});
    at_once($server, sub { install('second') });
    ok(comes($server->port, 'second'), 'the second, without anybody asking for it');
    ok($server->wait_for_log(qr/certificate files have changed and are loaded/), '... and the log says so');
    is(ask($old), 'https', 'connections that were open go on');

    at_once($server, sub { $files->write('live.pem', substr $files->read('third.pem'), 0, 300) });
    sleep 1.2;
    is(shown_by($server->port), 'second', 'a damaged file changes nothing');
    sleep 1.2;
    shown_by($server->port);
    ok(
        $server->wait_for_log(
            qr/cannot be used, the old ones stay: SSL certificate file is damaged: \S+live\.pem/),
        '... and is refused loudly'
    );
    sleep 1.2;
    is(shown_by($server->port), 'second', 'the old one stays');
    my @complaints = $server->log =~ /cannot be used/g;
    is(scalar @complaints, 1, '... and is complained of once');
    install('third');
    ok(comes($server->port, 'third'), 'a good one is taken again');
};

subtest 'HUP' => sub {
    install('first');
    my $server = start();
    $files->replace('live.key', 'second.key');
    $server->signal('HUP');
    ok($server->wait_for_log(qr/cannot be used, the old ones stay: SSL key file does not match/),
        'a key without its certificate is refused');
    is(shown_by($server->port), 'first', '... and the old pair stays');
    $files->replace('live.pem', 'second.pem');
    $server->signal('HUP');
    ok($server->wait_for_log(qr/certificate files are loaded again/), 'the pair is loaded');
    is(shown_by($server->port), 'second', '... at once');
};

subtest 'configure' => sub {
    my $loop   = IO::Async::Loop->new;
    my $server = PAGI::Server->new(app => $app, port => 0, quiet => 1, ssl => { $files->pair('first') });
    $loop->add($server);
    $server->listen->get;
    my $port = $server->port;
    my $look = sub {
        my ($reader, $pid) = shown_in_child($port);
        my $text = '';
        my $done = $loop->new_future;
        $loop->watch_io(
            handle        => $reader,
            on_read_ready => sub { sysread($reader, $text, 100, length $text) or $done->done }
        );
        $done->get;
        $loop->unwatch_io(handle => $reader, on_read_ready => 1);
        ended($pid);
        return $text;
    };
    is($look->(), 'first', 'the first');
    $server->configure(ssl => { $files->pair('second') });
    is($look->(), 'second', 'configure replaces it at once');
    my $error = eval { $server->configure(ssl => { $files->pair('nowhere') }); 1 } ? '' : $@;
    like($error, qr/SSL certificate file not found/, 'what cannot be used dies');
    is($look->(), 'second', '... and changes nothing');
    $server->shutdown->get;
};

sub shown_in_child {
    my ($port) = @_;
    pipe my $reader, my $writer or die "pipe: $!";
    my $pid = fork // die "fork: $!";
    if (!$pid) {
        alarm patience(60);
        my $name = eval { shown_by($port) } // $@;
        syswrite $writer, $name;
        POSIX::_exit(0);
    }
    return ($reader, $pid);
}

# New connections and requests on old ones, all the time, while the files change five times.
subtest 'a certificate is swapped under load' => sub {
    install('first');
    my $server = start();
    my @pids   = map { load($server->port) } 1 .. 2;
    for my $name (qw(second third first second third)) {
        install($name);
        $server->signal('HUP') if $name ne 'third';
        ok(comes($server->port, $name), "$name is shown");
    }
    for my $pid (@pids) {
        kill TERM => $pid;
        is(ended($pid), 0, 'no request failed');
    }
};

# A child that asks until TERM; exits with 1, and says why, if an answer was not what it should be.
sub load {
    my ($port) = @_;
    my $pid = fork // die "fork: $!";
    return $pid if $pid;
    my $going = 1;
    local $SIG{TERM} = sub { $going = 0 };
    my $term = POSIX::SigSet->new(POSIX::SIGTERM);
    alarm patience(230);
    my $kept = TestClient->new($port, tls => {});
    my $bad  = 0;

    while ($going) {
        # Let in between two rounds only: a system call that it interrupts is not the server's failure.
        POSIX::sigprocmask(POSIX::SIG_BLOCK, $term);
        my $fresh = eval { TestClient->new($port, tls => {}) } or print STDERR "# no connection: $@";
        for my $client ($fresh, $kept) {
            my $answer = $client && ask($client);
            next if defined $answer && $answer eq 'https';
            $bad++;
            print STDERR '# ', $client == $kept ? 'kept' : 'new', ' connection: ', $answer // 'no answer',
                "\n"
                if $client;
        }
        POSIX::sigprocmask(POSIX::SIG_UNBLOCK, $term);
    }
    POSIX::_exit($bad ? 1 : 0);
}

subtest 'flags' => sub {
    my @app = (
        '-e',
        'sub { my ($scope, $receive, $send) = @_; $send->({ type => "http.response.start", status => 204 }) '
            . '->then(sub { $send->({ type => "http.response.body" }) }) }'
    );
    my @pair = ('--ssl-cert' => $files->path('first.pem'), '--ssl-key' => $files->path('first.key'));
    $files->write('password', "secret\n");
    my $server = TestServer->command(
        @app,                          '--ssl-cert',
        $files->path('first.pem'),     '--ssl-key',
        $files->path('encrypted.key'), '--ssl-key-password-file',
        $files->path('password'),      '--ssl-min-version',
        'TLSv1_3',                     '--ssl-sni',
        join(',', map { $files->path("second.$_") } qw(pem key)),
    );
    is(shown_by($server->port), 'first', 'a certificate with an encrypted key');
    ok(!eval { TestClient->new($server->port, tls => { SSL_version => 'TLSv1_2' }); 1 },
        '... and the least version');
    is($server->stop, 0, 'stops');

    my %wrong = (
        'must be given together'                  => [ '--ssl-cert', 'x' ],
        '--ssl-ca needs --ssl-cert and --ssl-key' => [ '--ssl-ca',   'x' ],
        'SSL certificate file not found: x'       => [ '--ssl-cert', 'x',                 '--ssl-key', 'y' ],
        'unknown cipher RUBBISH'                  => [ @pair,        '--ssl-ciphers',     'RUBBISH' ],
        "min-version must be one of .*'1'"        => [ @pair,        '--ssl-min-version', '1' ],
        '--ssl-verify-client needs --ssl-ca:'     => [ @pair,        '--ssl-verify-client' ],
        '--ssl-session-timeout must be an integ'  => [ @pair,        '--ssl-session-timeout',   0 ],
        '--ssl-sni must be CERT,KEY'              => [ @pair,        '--ssl-sni',               'x' ],
        '--ssl-ticket-keys /nowhere cannot be op' => [ @pair,        '--ssl-ticket-keys',       '/nowhere' ],
        '--ssl-key-password-file: /nowhere: No '  => [ @pair,        '--ssl-key-password-file', '/nowhere' ],
    );

    for my $message (sort keys %wrong) {
        my ($status, undef, $error) =
            TestServer->finish_of('pagi-server', '--port', 0, @app, @{ $wrong{$message} });
        is($status, 2, "status of: $message");
        like($error, qr/\Apagi-server: .*$message/, '... and the message');
    }
};

subtest 'dates' => sub {
    my $day   = 86_400;
    my $dates = Certificates->new->authority('ca')->issue('old')->issue('new')->issue('good');
    my ($past, $future) = (1_700_000_000, time + 9 * $day);
    my $date = qr/\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC/;
    $dates->date('old', $past - $day, $past)->date('new', $future, $future + $day);
    my @pair   = ('--ssl-cert', $dates->path('old.pem'), '--ssl-key', $dates->path('old.key'));
    my $place  = '127.0.0.1:0,cert=' . $dates->path('new.pem') . ',key=' . $dates->path('new.key');
    my @listen = ('--listen', $place, '--listen', '127.0.0.1:0');
    my @app    = ('-e', 'sub { die }');
    my $old    = qr/PAGI: SSL certificate file \S+old\.pem has expired on 2023-11-14 22:13:20 UTC$/m;
    my $new    = qr/PAGI: SSL certificate file \S+new\.pem is not valid before $date$/m;
    my ($status, undef, $error) = TestServer->finish_of('pagi-server', '--check', @pair, @listen, @app);
    is($status, 0, '--check passes') or diag $error;
    like($error, $old, '... and tells of an old certificate');
    like($error, $new, '... and of one for later');
    my $server = TestServer->command(@pair, @listen, @app);
    ok($server->wait_for_log($_), 'a start tells as well') for $old, $new;
    $server->stop;

    $dates->write('site.pem', $dates->read('good.pem'))->write('site.key', $dates->read('good.key'));
    $server = TestServer->command('--ssl-cert', $dates->path('site.pem'),
        '--ssl-key', $dates->path('site.key'), @app);
    unlike($server->log, qr/SSL certificate file/, 'a good one is not mentioned');
    $dates->replace('site.key', 'old.key')->replace('site.pem', 'old.pem');
    $server->signal('HUP');
    ok($server->wait_for_log(qr/site\.pem has expired on $date/), 'what HUP loads is looked at, too');

    $dates->issue('soon')->date('soon', time - 80 * $day, time + 8 * $day);
    $dates->replace('site.key', 'soon.key')->replace('site.pem', 'soon.pem');
    ok(comes($server->port, 'soon'), 'other files, without HUP');
    ok($server->wait_for_log(qr/PAGI: SSL certificate file \S+site\.pem expires soon, on $date$/m),
        '... are looked at as well');
    $server->stop;
};

# An error in a configuration file names the line.
subtest 'a configuration file' => sub {
    my @pair  = ('ssl-cert = ' . $files->path('first.pem'), 'ssl-key = ' . $files->path('first.key'));
    my $at    = $files->path('pagi.conf');
    my @wrong = (
        [
            "$pair[0]\n# the wrong one\nssl-key = " . $files->path('second.key'),
            "lines 1, 3: SSL key file does not match"
        ],
        [ "$pair[0]\n",                                  'line 1: options --ssl-cert and --ssl-key must be' ],
        [ "\n$pair[0]\nssl_key = /nowhere\n",            'line 3: SSL key file not found: /nowhere' ],
        [ "$pair[0]\n$pair[1]\nssl-ciphers = RUBBISH\n", 'line 3: --ssl-ciphers: unknown cipher RUBBISH' ],
        [
            "$pair[0]\n$pair[1]\nssl-session-timeout = 0\n",
            'line 3: --ssl-session-timeout must be an integer'
        ],
        [
            "write_high_watermark = 7\n\nwrite_low_watermark = 8\n",
            q{lines 1, 3: option 'write_low_watermark' (8) must}
        ],
        [
            "listen = 127.0.0.1:1\nlisten = 127.0.0.1:2,cert=/c,key=/k\n",
            q{line 2: option 'listen': '127.0.0.1:2,cert=/c,key=/k': SSL certificate file not found: /c}
        ],
    );
    for my $case (@wrong) {
        my ($text, $message) = @$case;
        $files->write('pagi.conf', $text);
        my ($status, undef, $error) =
            TestServer->finish_of('pagi-server', '-c', $at, '--check', '-e', 'sub { }');
        is($status, 2, "status of: $message");
        like($error, qr/\Apagi-server: \Q$at $message\E/, '... and the message');
    }
    $files->write('pagi.conf', "write_high_watermark = 70000\nwrite_low_watermark = 7\n");
    my (undef, undef, $error) =
        TestServer->finish_of('pagi-server', '-c', $at, '--write-high-watermark', 6,
        '--write-low-watermark', 8, '--check', '-e', 'sub { }');
    like($error, qr/\Apagi-server: option 'write_low/, 'what is typed is in no file');
};

done_testing;
