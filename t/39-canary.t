# --canary: at HUP one interpreter with new code serves beside the old ones. It is taken back when it is
# clearly worse; otherwise the others follow.
use strict;
use warnings;

use lib 't/lib';
use Peregrine::Canary;
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools   qw(patience wait_for);
use TestWorkers qw(write_both);
use Time::HiRes qw(sleep time);

# ---- The rule -----------------------------------------------------------------------------------

# Figures: answers by their time, of which some have failed, and requests that have no answer.
sub figures {
    my ($times, %more) = @_;
    my @times = (@$times, (0) x (16 - @$times));
    my $all   = 0;
    $all += $_ for @times;
    return {
        asked        => $all + ($more{unanswered} // 0),
        answered     => $all,
        failed       => $more{failed}       // 0,
        crashes      => $more{crashes}      // 0,
        interpreters => $more{interpreters} // 1,
        times        => \@times,
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

# The applications answer with their version and the process.
sub applications {
    my ($version, $deed) = @_;
    return write_both('app', "sub answer { $deed; return qq{$version \$\$} }");
}

# Asks until it is so: with a connection for each request, which any interpreter may get.
sub asks_until {
    my ($port, $is_so, $seconds) = @_;
    my ($end, %seen) = (time + patience($seconds // 30));
    while (time < $end) {
        my $answer = get($port, '/') || {};
        $seen{ $answer->{status} // 'none' }++;
        my ($version, $process) = ($answer->{body} // '') =~ /\A(v\d) (\d+)\z/;
        $seen{ $version // 'other' }++;
        $seen{processes}{$process}++ if $process;
        return \%seen                if $is_so->(\%seen);
        sleep 0.005;
    }
    return;
}

# Looks at each tenth answer.
sub logged {
    my ($server, $pattern) = @_;
    my $count = 0;
    return sub { return $count++ % 10 == 0 && $server->log =~ $pattern };
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

for my $way (sort keys %WAYS) {
    subtest $way => sub {
        my $server = started($way, qw(--workers 2 --canary 5));
        my $port   = $server->port;
        for my $deed ($way =~ /PSGI, process/ ? sort keys %DEEDS : 'failures') {
            my ($code, $words) = @{ $DEEDS{$deed} };
            applications('v2', $code);
            $server->signal('HUP');
            ok asks_until($port, logged($server, qr/serves beside the old ones for 5 s/)), "$deed: a canary";
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
            $seen = asks_until($port, sub { ($_[0]{v1} // 0) > 50 });
            ok $seen && !$seen->{v2}, '... the old code serves alone';
        }
        applications('v3', '');
        $server->signal('HUP');
        ok asks_until($port, logged($server, qr/is not clearly worse, the others follow: answers: /)),
            'new code that is as good';
        ok asks_until($port, sub { ($_[0]{v3} // 0) > 3 }), '... serves';
        ok wait_for(sub {
            my $seen = asks_until($port, sub { ($_[0]{v1} // 0) + ($_[0]{v3} // 0) > 50 });
            $seen && !$seen->{v1};
            }),
            '... alone in the end';
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
    $seen = asks_until($port, sub { ($_[0]{v1} // 0) > 50 });
    ok $seen && !$seen->{v2}, '... and the first one is gone';
    is $server->stop, 0, 'TERM ends all';
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
    my ($psgi) = applications('v1', '');
    my ($status, undef, $error) =
        TestServer->finish_at('bin/peregrine', qw(--port 0 --engine thread --workers 2 --canary 5), $psgi);
    isnt $status, 0, 'refused';
    like $error, qr/option 'canary': interpreters that are threads are replaced together/,
        '... with the reason';
};

done_testing;
