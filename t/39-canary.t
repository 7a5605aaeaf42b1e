# --canary: at HUP one interpreter with new code serves beside the old ones. It is taken back when it is
# clearly worse; otherwise the others follow.
use strict;
use warnings;

use lib 't/lib';
use CanaryTrials qw(applications asks_until);
use OnlyInFull   qw(only_in_full);
use Peregrine::Canary;
use Peregrine::Threads;
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools   qw(wait_for);
use TestWorkers qw(write_file);

# ---- The rule -----------------------------------------------------------------------------------

# Figures: answers by their time, of which some have failed, requests that have ended without an answer, and
# requests that are at work.
sub figures {
    my ($times, %more) = @_;
    my @times = (@$times, (0) x (16 - @$times));
    my $all   = 0;
    $all += $_ for @times;
    return {
        asked        => $all + ($more{unanswered} // 0) + ($more{at_work} // 0),
        answered     => $all,
        ended        => $all,
        unanswered   => $more{unanswered}   // 0,
        failed       => $more{failed}       // 0,
        crashes      => $more{crashes}      // 0,
        interpreters => $more{interpreters} // 1,
        times        => \@times,
        map { $_ => $more{$_} } grep { defined $more{$_} } qw(stalled ended_meanwhile),
    };
}

my @RULE = (
    [ 'nothing at all',              [ [] ],               [ [] ],     undef ],
    [ 'alike',                       [ [100] ],            [ [1000] ], undef ],
    [ 'a crash',                     [ [], crashes => 1 ], [ [] ],     qr/crashed/ ],
    [ 'a crash, as the others have', [ [], crashes => 1 ], [ [], crashes => 2, interpreters => 3 ], undef ],
    [
        'a crash of one among many',
        [ [], crashes => 1 ],
        [ [], crashes => 1, interpreters => 3 ],
        qr/crashed/
    ],
    [ 'four failures', [ [4], failed => 4 ], [ [1000] ], undef ],
    [ 'five failures', [ [5], failed => 5 ], [ [1000] ], qr/5xx: 5 of 5, of the others 0 of 1000/ ],
    [ 'one failure in a hundred',  [ [1000], failed => 10 ], [ [1000] ],                undef ],
    [ 'five in a hundred',         [ [1000], failed => 50 ], [ [1000] ],                qr/5xx: 50 of 1000/ ],
    [ 'as the others fail',        [ [100], failed => 50 ],  [ [1000], failed => 450 ], undef ],
    [ 'twice as often, few',       [ [20], failed => 6 ],    [ [1000], failed => 150 ], undef ],
    [ 'twice as often, many',      [ [400], failed => 120 ], [ [4000], failed => 600 ], qr/5xx/ ],
    [ 'no others to compare with', [ [100], failed => 100 ], [ [] ],                    undef ],
    [ 'no answers', [ [1], unanswered => 30 ], [ [1000], unanswered => 8 ], qr/without an answer: 30 of 31/ ],
    [ 'no answers yet', [ [1], at_work => 30 ], [ [1000], at_work => 8 ],   undef ],
    [
        'stuck',
        [ [],     at_work => 1, stalled => 6 ],
        [ [1000], ended_meanwhile => 20 ],
        qr/no request has ended for 6 s: at work 1, ended in the others meanwhile 20/
    ],
    [ 'stuck for a moment', [ [], at_work => 1, stalled => 4 ],  [ [1000], ended_meanwhile => 90 ], undef ],
    [ 'stuck, and few ask', [ [], at_work => 1, stalled => 60 ], [ [1000], ended_meanwhile => 19 ], undef ],
    [
        'stuck, few in each',
        [ [],     at_work => 1, stalled => 60 ],
        [ [1000], ended_meanwhile => 39, interpreters => 2 ], undef
    ],
    [
        'at work no longer than the longest of others',
        [ [], at_work => 1, stalled => 16 ],
        [ [ 900, (0) x 11, 1 ], ended_meanwhile => 900 ],
        undef
    ],
    [
        'at work four times as long',
        [ [], at_work => 1, stalled => 17 ],
        [ [ 900, (0) x 11, 1 ], ended_meanwhile => 900 ],
        qr/for 17 s/
    ],
    [
        'requests of others take for ever',
        [ [], at_work => 1, stalled => 3000 ],
        [ [ 900, (0) x 14, 1 ], ended_meanwhile => 900 ],
        undef
    ],
    [ 'twice as long', [ [ 0, 0, 0, 0, 0, 0, 100 ] ], [ [ 0, 0, 0, 0, 0, 500 ] ], undef ],
    [
        'four times as long',
        [ [ 0, 0, 0, 0, 0, 0, 0, 100 ] ],
        [ [ 0, 0, 0, 0, 0, 500 ] ],
        qr/64 ms and more: 100 of 100/
    ],
    [ 'a tenth much slower',   [ [ 180, 0, 0, 0, 0, 0, 0, 20 ] ], [ [500] ], qr/16 ms and more: 20 of 200/ ],
    [ 'slower below 16 ms',    [ [ 0, 0, 0, 0, 100 ] ],           [ [500] ], undef ],
    [ 'little known of times', [ [ 0, 0, 0, 0, 0, 0, 0, 9 ] ],    [ [19] ],  undef ],
    [ 'the others take for ever', [ [ (0) x 15, 50 ] ],           [ [ (0) x 14, 50 ] ], undef ],
);

for my $case (@RULE) {
    my ($name, $new, $old, $expected) = @$case;
    my $why = Peregrine::Canary::worse(figures(@$new), figures(@$old));
    if ($expected) { like $why, $expected, "the rule: $name" }
    else           { is $why, undef, "the rule: $name" }
}
is Peregrine::Canary::text(figures([ 90, 10 ], failed => 3, unanswered => 2, crashes => 1)),
    'answers: 100 of 102, 5xx: 3, crashes: 1, 95 % of them within 2 ms', 'figures in words';

# ---- Servers ------------------------------------------------------------------------------------

# Looks at each tenth answer.
sub logged {
    my ($server, $pattern) = @_;
    my $count = 0;
    return sub { return $count++ % 10 == 0 && $server->log =~ $pattern };
}

# An interpreter that retires may accept a last connection.
sub serves_alone {
    my ($port, $version) = @_;
    return wait_for(sub {
        my $count = 0;
        my $seen  = asks_until($port, sub { ++$count > 50 });
        $seen && ($seen->{$version} // 0) == $count;
    });
}

my %WAYS = (
    'PSGI, prefork'          => [ 'peregrine',   0 ],
    'PSGI, process'          => [ 'peregrine',   0, qw(--engine process) ],
    'PAGI, process, preload' => [ 'pagi-server', 1, qw(--engine process --preload-app) ],
    'PAGI, prefork, preload' => [ 'pagi-server', 1, qw(--preload-app) ],
);
my %DEEDS = (
    'failures'     => [ q{die "new\n"}, qr/answers with a status of 5xx: \d+ of \d+, of the others 0 of/ ],
    'slow answers' =>
        [ q{select undef, undef, undef, 0.05}, qr/answers that took \d+ ms and more: \d+ of \d+/ ],
    'a crash' => [ q{exit 3}, qr/has exited with status 3 \(/ ],
);

sub started {
    my ($way, @arguments) = @_;
    my ($program, $app, @own) = @{ $WAYS{$way} };
    my @apps = applications('v1', '');
    my $server =
        TestServer->command_of($program, qw(-E production --no-access-log), @arguments, @own, $apps[$app]);
    # An interpreter that starts while HUP comes is no canary.
    my ($count) = "@arguments" =~ /--workers (\d)/;
    asks_until($server->port, sub { keys %{ $_[0]{processes} } == $count }) or die 'no interpreters';
    return $server;
}

for my $way ('PSGI, process', 'PAGI, prefork, preload',
    only_in_full('PSGI, prefork', 'PAGI, process, preload'))
{
    subtest $way => sub {
        # Clearly worse code is taken back as soon as enough requests have come, however slowly they come.
        my $server = started($way, qw(--workers 2 --canary 300));
        my $port   = $server->port;
        for my $deed ($way =~ /PSGI, process/ ? sort keys %DEEDS : 'failures') {
            my ($code, $words) = @{ $DEEDS{$deed} };
            applications('v2', $code);
            $server->signal('HUP');
            ok asks_until($port, logged($server, qr/serves beside the old ones for 300 s/)),
                "$deed: a canary";
            my $seen = asks_until(
                $port,
                logged(
                    $server,
                    qr/the restart is given up, worker 1 \(\d+\) with the new code is taken back: .*$words/
                )
            ) or diag $server->log;
            ok $seen, '... is taken back';
            like $server->log,
                qr/; the others: answers: \d+ of \d+, 5xx: 0.*workers that go on as they are: 2/,
                '... and the figures are told';
            ok serves_alone($port, 'v1'), '... the old code serves alone';
        }
        is $server->stop, 0, 'the end';
        $server = started($way, qw(--workers 2 --canary 2));
        $port   = $server->port;
        applications('v3', '');
        $server->signal('HUP');
        ok asks_until($port, logged($server, qr/is not clearly worse, the others follow: answers: /)),
            'new code that is as good';
        ok asks_until($port, sub { ($_[0]{v3} // 0) > 3 }), '... serves';
        ok serves_alone($port, 'v3'),                       '... alone in the end';
        is $server->stop, 0, 'the end';
    };
}

subtest 'HUP and TERM' => sub {
    my $server = started('PAGI, process, preload', qw(--workers 2 --canary 60));
    my $port   = $server->port;
    applications('v2', '');
    $server->signal('HUP');
    ok asks_until($port, sub { $_[0]{v2} && $_[0]{v1} }), 'the canary serves, and the old code';
    applications('v3', '');
    $server->signal('HUP');
    ok $server->wait_for_log(qr/is taken back undecided: another restart begins/), 'HUP takes it back';
    my $seen = asks_until($port, sub { $_[0]{v3} && $_[0]{v1} });
    ok $seen, '... another canary has the newest code';
    ok wait_for(sub {
        my $seen = asks_until($port, sub { ($_[0]{v1} // 0) > 50 });
        $seen && !$seen->{v2};
        }),
        '... and the first one is gone';
    is $server->stop, 0, 'TERM ends all';
};

subtest 'answers that take longer than a look at the canary' => sub {
    my $code = sub { return <<"PERL" };
use Future::AsyncAwait;
use IO::Async::Loop;
async sub {
    my (\$scope, \$receive, \$send) = \@_;
    die "no\n" if \$scope->{type} ne 'http';
    await IO::Async::Loop->new->delay_future(after => 0.7) if \$scope->{path} eq '/long';
    await \$send->({ type => 'http.response.start', status => 200, headers => [] });
    await \$send->({ type => 'http.response.body', body => qq{$_[0] \$\$} });
}
PERL
    my $app    = write_file('long.pl', $code->('v1'));
    my $server = TestServer->command_of(
        'pagi-server',
        qw(-E production --no-access-log --engine process),
        qw(--workers 1 --canary 3), $app
    );
    my $port = $server->port;
    my $long = sub {
        my %seen;
        my @clients = map { TestClient->new($port) } 1 .. 20;
        $_->send("GET /long HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n") for @clients;
        for my $client (@clients) {
            my ($version) = $client->response->{body} =~ /\A(v\d) /;
            $seen{ $version // 'other' }++;
        }
        return \%seen;
    };
    is_deeply $long->(), { v1 => 20 }, 'the old code';
    write_file('long.pl', $code->('v2'));
    $server->signal('HUP');
    my $most = 0;
    wait_for(sub {
        my $seen = $long->();
        $most = $seen->{v2} if ($seen->{v2} // 0) > $most;
        $server->log =~ /the others follow|is taken back/;
    });
    like $server->log, qr/is not clearly worse, the others follow: answers: \d/, 'new code is not taken back';
    cmp_ok $most, '>=', 5, '... with requests enough that were at work together';
    is $server->stop, 0, 'the end';
};

for my $way (only_in_full('PSGI, process'), 'PAGI, process, preload') {
    subtest "requests that end without an answer: $way" => sub {
        my $server = started($way, qw(--workers 1 --canary 300 --request-timeout 1));
        my $port   = $server->port;
        applications('v2', 'select undef, undef, undef, 1.3');
        # The application of PAGI that answers like that of PSGI starts its response before it is silent.
        write_file('app.pl', <<'PERL');
sub {
    my ($scope, $receive, $send) = @_;
    die "no\n" if $scope->{type} ne 'http';
    select undef, undef, undef, 1.3;
    $send->({ type => 'http.response.start', status => 200, headers => [] });
    return $send->({ type => 'http.response.body', body => "v2 $$" });
}
PERL
        $server->signal('HUP');
        ok $server->wait_for_log(qr/serves beside the old ones/), 'a canary';
        my $taken_back = qr/is taken back: requests without an answer: \d+ of \d+, of the others 0 of/;
        ok asks_until($port, logged($server, $taken_back), 60), 'its silence counts';
        is $server->stop, 0, 'the end';
    };
}

# An application of PAGI with a handler that blocks.
sub with_sync {
    my ($version) = @_;
    return write_file('sync.pl', <<"PERL");
use PAGI::Sync qw(sync);
sub answer {
    my (\$send) = \@_;
    \$send->({ type => 'http.response.start', status => 200, headers => [] });
    return \$send->({ type => 'http.response.body', body => qq{$version \$\$} });
}
my \$sync = sync(sub { answer(\$_[2]) });
sub {
    my (\$scope, \$receive, \$send) = \@_;
    die "no\n" if \$scope->{type} ne 'http';
    return \$scope->{path} eq '/sync' ? \$sync->(\@_) : answer(\$send);
}
PERL
}

sub started_with_sync {
    my (@arguments) = @_;
    my $server = TestServer->command_of(
        'pagi-server',
        qw(-E production --no-access-log --engine process),
        qw(--preload-app --workers 1 --sync-workers 1),
        @arguments, with_sync('v1')
    );
    # An interpreter that starts while HUP comes is no canary.
    get($server->port, $_) for '/', '/sync';
    return $server;
}

subtest 'requests that are handed over' => sub {
    my $server = started_with_sync(qw(--canary 2));
    with_sync('v2');
    $server->signal('HUP');
    ok $server->wait_for_log(qr/serves beside the old ones/), 'a canary';
    get($server->port, '/sync') for 1 .. 20;
    ok $server->wait_for_log(qr/the others follow/), 'is not taken back';
    my ($mine, $of, $theirs, $of_others) =
        $server->log =~ /the others follow: answers: (\d+) of (\d+).*the others: answers: (\d+) of (\d+)/;
    is_deeply [ $mine, $theirs ], [ $of, $of_others ], '... they count where they are answered';
    is $server->stop, 0, 'the end';
};

subtest 'HUP, then HUP with code that does not load' => sub {
    my $server = started_with_sync(qw(--canary 300));
    my $port   = $server->port;
    with_sync('v2');
    $server->signal('HUP');
    ok $server->wait_for_log(qr/serves beside the old ones/),    'a canary';
    ok wait_for(sub { get($port, '/sync')->{body} =~ /\Av2 / }), '... and sync handlers of the new code';
    write_file('sync.pl', 'die "broken\n";');
    $server->signal('HUP');
    ok $server->wait_for_log(qr/is taken back undecided.*the restart is given up/s), 'HUP is given up';
    ok wait_for(sub { get($port, '/sync')->{body} =~ /\Av1 / }), 'sync handlers of the old code are back';
    is $server->stop, 0, 'the end';
};

subtest 'an interpreter that is to be replaced meanwhile' => sub {
    my $server = started('PAGI, process, preload', qw(--workers 1 --canary 300 --max-requests 40));
    my $port   = $server->port;
    my ($old)  = get($port, '/')->{body} =~ /(\d+)\z/;
    applications('v2', '');
    $server->signal('HUP');
    my %v1;
    my $is_replaced = sub {
        my ($seen) = @_;
        return ($seen->{v2} // 0) > 5 && ($seen->{v1} // 0) > 90 && keys %{ $seen->{processes} } > 3;
    };
    ok asks_until($port, $is_replaced), 'others with the old code take its place, and the canary serves';
    unlike $server->log, qr/the others follow|is taken back/, '... as before';
    write_file('app.pl', 'die "broken\n";');
    $server->signal('HUP');
    ok $server->wait_for_log(qr/is taken back undecided.*the restart is given up/s), 'HUP is given up';
    ok wait_for(sub { my ($now) = (get($port, '/')->{body} // '') =~ /\Av1 (\d+)/; $now && $now != $old }),
        'the old code serves';
    is $server->stop, 0, 'the end';
};

subtest 'an interpreter that is to be replaced meanwhile, without a template' => sub {
    my $server = started('PSGI, process', qw(--workers 1 --canary 300 --max-requests 40));
    my $port   = $server->port;
    my ($old)  = get($port, '/')->{body} =~ /(\d+)\z/;
    applications('v2', '');
    $server->signal('HUP');
    ok asks_until($port, sub { ($_[0]{processes}{$old} // 0) > 50 && ($_[0]{v2} // 0) > 5 }),
        'it has answered max_requests, and serves on: code that is loaded now is new';
    is $server->stop, 0, 'the end';
};

subtest 'one interpreter, no requests' => sub {
    my $server = started('PSGI, prefork', qw(--workers 1 --canary 1));
    applications('v2', '');
    $server->signal('HUP');
    ok $server->wait_for_log(qr/the others follow: answers: 0 of 0, 5xx: 0; the others: answers: 0 of 0/),
        'nothing speaks against it';
    ok wait_for(sub { get($server->port, '/')->{body} =~ /\Av2/ }), 'it serves';
};

subtest 'threads' => sub {
    plan skip_all => 'this Perl has no threads' if !Peregrine::Threads::are_possible();
    my ($psgi) = applications('v1', '');
    my ($status, undef, $error) =
        TestServer->finish_at('bin/peregrine', qw(--port 0 --engine thread --workers 2 --canary 5), $psgi);
    isnt $status, 0, 'refused';
    like $error, qr/option 'canary': interpreters that are threads are replaced together/,
        '... with the reason';
};

done_testing;
