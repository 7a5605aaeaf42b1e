# A server tells its status at an address of its own: to Prometheus, to programs, to load balancers.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use Future;
use Future::AsyncAwait;
use HTTP::Tiny;
use IO::Socket::INET;
use IO::Socket::UNIX;
use JSON::PP qw(decode_json);
use PAGI::Server::Status;
use Peregrine::Counters;
use Test::More;
use TestHTTP2;
use TestServer;
use TestTools qw(refused wait_for);

my $dir = File::Temp->newdir;
my $app = "$dir/app.pl";
open my $out, '>', $app or die $!;
print {$out} <<'APP';
use Future::AsyncAwait;
use IO::Async::Loop;
async sub {
    my ($scope, $receive, $send) = @_;
    die "no $scope->{type}\n" if $scope->{type} ne 'http';
    await IO::Async::Loop->new->delay_future(after => 0.1) if $scope->{query_string} eq 'later';
    select undef, undef, undef, $1 if $scope->{path} =~ m{\A/block/([\d.]+)\z};
    if ($scope->{path} eq '/held') {
        until (-e $ENV{TEST_GO}) { await IO::Async::Loop->new->delay_future(after => 0.01) }
    }
    await IO::Async::Loop->new->delay_future(after => $1) if $scope->{path} =~ m{\A/wait/([\d.]+)\z};
    kill KILL => $$ if $scope->{path} eq '/die';
    await $send->({ type => 'http.response.start', status => $scope->{path} eq '/none' ? 404 : 200 });
    await $send->({ type => 'http.response.body', body => "$$\n" });
};
APP
close $out or die $!;

my $http = HTTP::Tiny->new(timeout => 20, keep_alive => 0);

# A server that shows its status at a free port; the port is read from its log.
sub serve {
    my (@options) = @_;
    my $server    = TestServer->command($app, '-E', 'production', '--status', '127.0.0.1:0', @options);
    my $port      = $server->wait_for_log(qr{status at http://127\.0\.0\.1:(\d+)/});
    return ($server, 'http://127.0.0.1:' . $server->port, "http://127.0.0.1:$port");
}

# The samples of the text format, by name and labels; what is no sample and no comment fails.
sub metrics {
    my ($url) = @_;
    my $answer = $http->get("$url/metrics");
    my %value;
    for my $line (split /\n/, $answer->{content}) {
        next if $line =~ /\A# (?:HELP peregrine_\w+ \S|TYPE peregrine_\w+ (?:counter|gauge|histogram)\z)/;
        $line =~ /\A(peregrine_\w+(?:\{\w+="[^"\\]*"\})?) ([0-9.e+-]+)\z/ or fail("no sample: $line");
        ok !exists $value{$1}, "$1 is there once" if exists $value{$1};
        $value{$1} = $2;
    }
    return \%value;
}

sub requests {
    my ($url, $class) = @_;
    return metrics($url)->{qq(peregrine_requests_total{status="$class"})};
}

subtest 'metrics, JSON, health' => sub {
    my ($server, $url, $status) = serve();
    $http->get($url) for 1 .. 5;
    $http->get("$url/none") for 1 .. 2;
    my $broken = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $server->port) or die $!;
    print {$broken} "what is this\r\n\r\n";
    () = readline $broken;

    my $answer = $http->get("$status/metrics");
    is $answer->{status},                  200,                                        'there are metrics';
    is $answer->{headers}{'content-type'}, 'text/plain; version=0.0.4; charset=utf-8', 'in the text format';
    # A request is counted when its answer has been sent, so a little later than its client knows.
    wait_for(sub { requests($status, '2xx') + requests($status, '4xx') >= 8 });
    my $value = metrics($status);
    is $value->{'peregrine_requests_total{status="2xx"}'}, 5, 'requests that went well';
    is $value->{'peregrine_requests_total{status="4xx"}'}, 3,
        'and those that did not, the refused one included';
    is $value->{'peregrine_requests_refused_total{reason="malformed"}'}, 1, 'which is counted as such';
    is $value->{'peregrine_request_duration_seconds_count'}, 7,
        'those that were answered by the application are timed';
    is $value->{'peregrine_connections_accepted_total'}, 8, 'connections';
    is $value->{'peregrine_processes'},                  1, 'one process';
    cmp_ok $value->{'peregrine_resident_memory_bytes'}, '>', 1_000_000, 'with its memory';

    for my $name (qw(request queue application write)) {
        my @buckets = map { $value->{qq(peregrine_${name}_duration_seconds_bucket{le="$_"})} }
            qw(0.0005 0.001 0.0025 0.005 0.01 0.025 0.05 0.1 0.25 0.5 1 2.5 5 10 30 +Inf);
        is_deeply \@buckets, [ sort { $a <=> $b } @buckets ], "the buckets of $name times add up";
        is $buckets[-1], 7, 'to all of them';
    }

    my $facts = decode_json($http->get("$status/status.json")->{content});
    is $facts->{total}{requests}{'2xx'},                 5,            'the same as JSON';
    is $facts->{processes}[0]{pid},                      $server->pid, 'by process';
    is $facts->{processes}[0]{counted}{requests}{'4xx'}, 3,            'with what each has counted';

    my $beat = sub {
        my $now = decode_json($http->get("$status/status.json")->{content});
        return $now->{time} - $now->{processes}[0]{silent};
    };
    my $first = $beat->();
    ok wait_for(sub { $beat->() > $first + 0.5 }), 'its loop runs on';
    is $http->get("$status/healthz")->{content}, "ok\n",    'it lives';
    is $http->get("$status/readyz")->{content},  "ready\n", 'and serves';
    is $http->get("$status/other")->{status},    404,       'there is nothing else';
    is $http->post("$status/metrics")->{status}, 405,       'nor another way to ask';
    my $head = $http->head("$status/metrics");
    is $head->{status} . ($head->{content} // q{}), 200, 'HEAD has no content';
    is $server->stop,                               0,   'the server stops';
    ok !IO::Socket::INET->new(PeerAddr => $status =~ s{http://}{}r), 'and its status with it';
};

# The first line of what a status listener answers to somebody who asks for this name.
sub asked_as {
    my ($socket, $name) = @_;
    print {$socket} "GET /healthz HTTP/1.1\r\nHost: $name\r\nConnection: close\r\n\r\n" or die $!;
    my ($first, @rest) = readline $socket;
    return ($first =~ /(\d{3})/ ? $1 : $first, $rest[-1]);
}

subtest 'a page of another site does not get in by a name of its own' => sub {
    my ($server, undef, $status) = serve('--status-hosts', 'status.example.org, inner');
    my ($port) = $status =~ /(\d+)\z/;
    my $ask = sub {
        my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port) or die $!;
        return asked_as($socket, @_);
    };
    is(($ask->($_))[0], 200, "asked as $_")
        for "127.0.0.1:$port", '127.0.0.1', '[::1]:1', 'localhost', "LocalHost:$port", 'status.example.org',
        'INNER:80';
    for my $name ("rebound.example:$port", qw(localhost.example 127.0.0.1.example xinner 1.2.3.4.5)) {
        my ($code, $why) = $ask->($name);
        is $code, 421, "not as $name";
        like $why, qr/status_hosts/, '... and who means it well reads what to do';
    }
    is $server->stop, 0, 'the server stops';

    my $place = "$dir/status.sock";
    $server = TestServer->command($app, '-E', 'production', '--status', $place);
    $server->wait_for_log(qr{status at});
    my $socket = IO::Socket::UNIX->new(Peer => $place) or die $!;
    is((asked_as($socket, 'whatever'))[0], 200, 'a Unix socket, to which no browser comes, has any name');
    is $server->stop, 0, 'the server stops';

    my $asked = async sub {
        my ($name, @hosts) = @_;
        my $counters = Peregrine::Counters->new(processes => 1);
        my $page     = PAGI::Server::Status->new(counters => $counters, @hosts)->to_app;
        my @sent;
        await $page->(
            { type => 'http', method => 'GET', path => '/healthz', headers => [ [ 'host', $name ] ] },
            undef, async sub { push @sent, @_ },
        );
        return $sent[0]{status};
    };
    is $asked->('app.example')->get,              200, 'served by another application, the name is its own';
    is $asked->('app.example', hosts => [])->get, 421, 'unless it says so';
};

subtest 'by protocol' => sub {
    my ($server, $url, $status) = serve('--http2');
    $http->get($url) for 1 .. 3;
    my $h2 = TestHTTP2->new($server->port);
    is $h2->get('/')->{status}, 200, 'a request by HTTP/2';
    my @waiting = map { $h2->request('/wait/600') } 1 .. 2;
    ok $h2->is_alive, 'two more wait';
    my $counts = sub {
        my ($value) = metrics($status);
        return join ' ', map { $value->{"peregrine_$_"} // '-' } @_;
    };
    my @by  = map { qq({protocol="HTTP/$_"}) } 1, 2;
    my @now = (map({ "requests_by_protocol_total$_" } @by), map { "connections_by_protocol_total$_" } @by);
    ok wait_for(sub { $counts->(@now) eq '3 1 3 1' }, 60), 'requests and connections' or diag $counts->(@now);
    my @streams = ('streams_open', map { qq(stream_resets_total{direction="$_"}) } qw(in out));
    ok wait_for(sub { $counts->(@streams) eq '2 0 0' }, 60), 'streams' or diag $counts->(@streams);
    $h2->reset($waiting[0]);
    ok wait_for(sub { $counts->(@streams) eq '1 1 0' }, 60), 'one is reset by its client'
        or diag $counts->(@streams);
    $h2->send_frame(TestHTTP2::DATA, 0, 0, 'x');
    my @ends = map { qq(goaways_total{reason="$_"}) } qw(no_error protocol_error enhance_your_calm);
    ok wait_for(sub { $counts->(@ends) eq '0 1 0' }, 60), 'and a connection ends, whose client broke a rule'
        or diag $counts->(@ends);
    ok wait_for(sub { $counts->(@now, 'streams_open') eq '3 3 3 1 0' }, 60), 'with its streams'
        or diag $counts->(@now, 'streams_open');
    my $facts = decode_json($http->get("$status/status.json")->{content});
    is_deeply $facts->{total}{requests_by_protocol}, { 'HTTP/1' => 3, 'HTTP/2' => 3 }, 'the same as JSON';
    is $server->stop, 0, 'the server stops';
};

# Debian's package is large: script/conformance metrics fetches it and runs this.
if (my ($promtool) = grep { -x } map { "$_/promtool" } split /:/, $ENV{PATH}) {
    subtest 'promtool agrees' => sub {
        my ($server, undef, $status) = serve();
        open my $file, '>', "$dir/metrics" or die $!;
        print {$file} $http->get("$status/metrics")->{content};
        close $file or die $!;
        is system("$promtool check metrics < $dir/metrics 1>&2"), 0, 'promtool check metrics';
    };
}

subtest 'workers: sums, while all are busy, and after one has died' => sub {
    my ($server, $url, $status) = serve(qw(--workers 2));
    ok wait_for(sub { metrics($status)->{peregrine_processes} == 2 }), 'both workers have come';
    my %seen;
    for (1 .. 200) { $seen{ $http->get($url)->{content} }++ }
    wait_for(sub { requests($status, '2xx') >= 200 });
    my $total = requests($status, '2xx');
    is $total, 200, 'requests of all workers';
    my $facts = decode_json($http->get("$status/status.json")->{content});
    is_deeply [ sort map { "$_->{pid}\n" } grep { $_->{counted}{requests}{'2xx'} } @{ $facts->{processes} } ],
        [ sort keys %seen ], 'each has counted its own';
    is @{ $facts->{processes} }, 2, 'there are two';

    my @busy;
    for (1 .. 8) {
        my $client = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $server->port) or die $!;
        print {$client} "GET /block/1 HTTP/1.1\r\nHost: h\r\n\r\n";
        push @busy, $client;
    }
    is $http->get("$status/readyz")->{content}, "ready\n", 'the status answers while the workers work';
    () = readline $_ for map { $_->shutdown(1); $_ } @busy;

    $http->post("$url/die");    # a GET would be tried again
    ok wait_for(sub { metrics($status)->{'peregrine_process_restarts_total{reason="signal"}'} == 1 }),
        'a death is counted';
    cmp_ok requests($status, '2xx'), '>=', $total, 'the counts of the dead worker are not lost';
    ok wait_for(sub { metrics($status)->{peregrine_processes} == 2 }), 'and another one is there';

    my ($shows) = grep { !$seen{"$_\n"} } children($server->pid, map { $_->{pid} } @{ $facts->{processes} });
    ok $shows, "process $shows shows it";
    kill KILL => $shows;
    ok wait_for(sub { $http->get("$status/healthz")->{status} == 200 }),
        'the status process is started again when it dies';
    is requests($status, '4xx'), 0, 'and knows what the first one knew';
    cmp_ok requests($status, '2xx'), '>=', $total, 'all of it';
    is $server->stop, 0, 'all of them stop';
    ok !kill(0, $shows), 'no process is left';
};

subtest 'an engine process: readiness is that of the workers that join it' => sub {
    my ($server, $url, $status) =
        serve(qw(--engine process --workers 2 --heartbeat-timeout 0 --shutdown-timeout 1));
    my $workers = sub {
        my $value = metrics($status);
        return join ' ', map { $value->{qq(peregrine_interpreters{state="$_"})} // '-' } qw(idle busy stuck);
    };
    ok wait_for(sub { $workers->() eq '2 0 0' }), 'both workers are idle' or diag $workers->();
    is $http->get("$status/readyz")->{content}, "ready\n", '... so the server is ready';
    my @busy;
    my $occupy = sub {
        my ($path, $states, $what) = @_;
        my $client = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $server->port) or die $!;
        print {$client} "GET $path HTTP/1.1\r\nHost: h\r\n\r\n";
        push @busy, $client;
        ok wait_for(sub { $workers->() eq $states }), $what or diag $workers->();
    };
    # Requests come one by one: an interpreter that has answered and not begun its callback is as good as the
    # other one.
    $occupy->('/block/600',       '1 1 0', 'one is busy with a request');
    $occupy->('/block/600?later', '0 2 0', 'the other one is in a callback of its loop: both are busy');
    is $http->get("$status/readyz")->{status}, 200, '... which serves the next one soon';
    ok wait_for(sub { $workers->() eq '0 0 2' }, 60), 'both are stuck' or diag $workers->();
    my $answer = $http->get("$status/readyz");
    is "$answer->{status} $answer->{content}", "503 every worker is stuck\n",
        '... and the server is not ready';
    is $server->stop, 0, 'the server stops';
};

subtest 'a stop: who waits for an answer gets it, nobody else is let in' => sub {
    local $ENV{TEST_GO} = "$dir/go";
    my ($server, undef, $status) = serve(qw(--workers 1));
    my @to     = (PeerAddr => '127.0.0.1', PeerPort => $server->port);
    my $client = IO::Socket::INET->new(@to) or die $!;
    print {$client} "GET /held HTTP/1.0\r\n\r\n";
    my $working = 'peregrine_requests_open{state="working"}';
    ok wait_for(sub { metrics($status)->{$working} }), 'a request is in work';
    $server->signal('TERM');
    ok wait_for(sub { !IO::Socket::INET->new(@to) }), 'no process holds the address any more';
    is $http->get("$status/healthz")->{status}, 200, 'the status is there to the end';
    open my $go, '>', $ENV{TEST_GO} or die "$ENV{TEST_GO}: $!";
    like join('', readline $client), qr/^\d+$/m, 'the answer comes';
    is $server->wait, 0, 'and the server ends';
};

# The child of the master that is no worker: the oldest one.
sub children {
    my ($master) = @_;
    my @children = split ' ', TestTools::content("/proc/$master/task/$master/children");
    return sort { $a <=> $b } @children;
}

subtest 'a PSGI application, whose requests wait for their bodies' => sub {
    open my $file, '>', "$dir/app.psgi" or die $!;
    print {$file} q{sub { [ 200, [], ['well'] ] }};
    close $file or die $!;
    my $server = TestServer->spawn(
        $^X,
        (map { "-I$_" } @INC),
        qw(-S plackup -s Peregrine -E production --listen 127.0.0.1:0 --status 127.0.0.1:0),
        "$dir/app.psgi"
    );
    my $port   = $server->wait_for_log(qr{status at http://127\.0\.0\.1:(\d+)/});
    my $place  = $server->wait_for_log(qr{listening on http://(127\.0\.0\.1:\d+)/});
    my $client = IO::Socket::INET->new(PeerAddr => $place) or die $!;
    print {$client} "POST / HTTP/1.0\r\nContent-Length: 4\r\n\r\nbo";
    select undef, undef, undef, 0.5;
    print {$client} 'dy';
    like join('', readline $client), qr/well\z/, 'it answers';
    my $value;
    my $timed = sub {
        $value = metrics("http://127.0.0.1:$port");
        return $value->{peregrine_application_duration_seconds_count};
    };
    is wait_for($timed), 1, 'the request is timed';
    cmp_ok $value->{peregrine_application_duration_seconds_sum}, '<',
        $value->{peregrine_queue_duration_seconds_sum},
        'and waited for its body, not for the application';
    is $server->stop, 0, 'the server stops';
};

subtest 'a Unix socket' => sub {
    my $path   = "$dir/status";
    my $server = TestServer->command($app, '-E', 'production', '--status', $path);
    my $client = IO::Socket::UNIX->new($path) or die "$path: $!";
    print {$client} "GET /healthz HTTP/1.0\r\n\r\n";
    like join('', readline $client), qr/^ok$/m, 'is served';
    is $server->stop, 0, 'the server stops';
    ok !-e $path, 'and takes its file along';
};

subtest 'mistakes in the option' => sub {
    like refused(app => sub { }, status => 'localhost'), qr/option 'status'/, 'no address';
    my ($status, undef, $err) = TestServer->finish_of('pagi-server', $app, '--status', '127.0.0.1:99999');
    is $status, 2, 'the command refuses it, too';
    like $err, qr/option --status .*99999/, 'and says so';
    ($status, undef, $err) =
        TestServer->finish_of('pagi-server', '--check', '--port', 0, '--status', "$dir/no/such/folder", $app);
    is $status, 1, 'a check looks at it';
    like $err, qr/option 'status': .*no\/such/, 'and tells what it finds';
    ($status, my $said) =
        TestServer->finish_of('pagi-server', '--check', '--port', 0, '--status', '127.0.0.1:9100', $app);
    is $status, 0, 'one that is well';
    like $said, qr{^# status at http://127\.0\.0\.1:9100/$}m, 'is named';
    my $taken = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1) or die $!;
    ($status, undef, $err) =
        TestServer->finish_of('pagi-server', $app, '--port', 0, '--status', '127.0.0.1:' . $taken->sockport);
    is $status, 1, 'an address that is taken keeps the server from starting';
    like $err, qr/Port ${\$taken->sockport} is already in use on 127\.0\.0\.1/, 'with its name';
    my $public = TestServer->command($app, '-E', 'production', '--status', '0.0.0.0:0');
    ok $public->wait_for_log(qr/whoever can connect to .*0\.0\.0\.0.* sees the status/),
        'a public one is warned of';
    is $public->stop, 0, 'and served';
};

# The answer of the application itself.
sub ask {
    my (%scope) = @_;
    my $status = PAGI::Server::Status->new(
        counters => Peregrine::Counters->new,
        is_ready => sub { $scope{ready} // 1 }
    );
    my @events;
    $status->to_app->(
        { type => 'http', method => 'GET', %scope },
        sub { die "nothing is read\n" },
        sub { push @events, @_; return Future->done }
    )->get;
    return { map { %$_ } @events };
}

subtest 'as a part of another application' => sub {
    my $moved = ask(path => '', root_path => '/status');
    is $moved->{status}, 308, 'without the slash';
    is_deeply [ grep { $_->[0] eq 'location' } @{ $moved->{headers} } ], [ [ location => '/status/' ] ],
        'a redirect to it';
    my $page     = ask(path => '/', root_path => '/status');
    my %header   = map { @$_ } @{ $page->{headers} };
    my ($policy) = $header{'content-security-policy'};
    like $policy, qr/default-src 'none'; style-src 'sha256-\S+'; script-src 'sha256-\S+'; connect-src 'self'/,
        'the page has a strict policy';
    unlike $page->{body} =~ s{http://www\.w3\.org/2000/svg}{}gr, qr{https?:|//\w|\bsrc=|\@import|url\(},
        'and needs nothing from elsewhere';
    is ask(path => '/readyz')->{status}, 503, 'no worker serves yet';
    like ask(path => '/readyz')->{body},             qr/^no process serves$/, 'it says so';
    like ask(path => '/readyz', ready => 0)->{body}, qr/^the server stops$/,  'nor will again';
    ok !eval { PAGI::Server::Status->new; 1 }, 'the status needs counters';
};

done_testing;
