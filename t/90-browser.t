# The live examples in a real browser: headless Chromium, two tabs where two people are needed.
use strict;
use warnings;

use lib 't/lib';
use HTTP::Tiny;
use JSON::PP qw(decode_json);
use Test::More;
use TestBrowser;
use TestServer;
use TestTools qw(free_port);
use Tutorial;

plan skip_all => 'needs chromium and chromedriver' if !TestBrowser->is_there;

my $browser = TestBrowser->start;

sub serve {
    my ($example, @options) = @_;
    my $server = TestServer->command(@options, "examples/pagi/$example/app.pl");
    return ($server, 'http://127.0.0.1:' . $server->port);
}

subtest 'chat: two tabs see each other, and one comes back' => sub {
    my ($server, $url) = serve('chat');
    my $anna = $browser->tab;
    $browser->go("$url/?name=anna");
    like $browser->wait_for_text('#state', qr/^connected/), qr/^connected as anna/,
        'the first tab is connected';
    my $bert = $browser->new_tab;
    $browser->go("$url/?name=bert");
    like $browser->wait_for_text('#state', qr/^connected/), qr/^connected as bert/, 'the second too';

    $browser->submit('#text', "gr\x{fc}\x{df}e <b>an</b> alle \x{1f426}");
    $browser->turn_to($anna);
    like $browser->wait_for_text('#messages', qr/alle/),
        qr/^bert\s*gr\x{fc}\x{df}e <b>an<\/b> alle \x{1f426}$/,
        'anna sees what bert says, as text';
    $browser->submit('#text', 'hello bert');
    $browser->turn_to($bert);
    like $browser->wait_for_text('#messages', qr/hello/), qr/anna\s*hello bert$/, 'and bert what anna says';

    $browser->script('window.kept = socket; socket.close()');
    ok $browser->wait_for('kept.readyState === WebSocket.CLOSED'), 'bert loses the connection';
    $browser->turn_to($anna);
    $browser->submit('#text', 'where are you?');
    $browser->turn_to($bert);
    ok $browser->wait_for('connections === 2'), 'and is back by himself';
    like $browser->wait_for_text('#messages', qr/where/), qr/anna\s*where are you\?$/,
        'with what was said meanwhile';
    is $browser->script(q(return document.querySelectorAll('#messages li').length)), 3, 'and nothing twice';
};

subtest 'chat: the server restarts and both come back' => sub {
    my $port = free_port();
    my ($server, $url) = serve('chat', '--port', $port);
    $browser->go("$url/?name=carl");
    ok $browser->wait_for('connections === 1'), 'connected';
    is $server->stop, 0, 'the server stops though a WebSocket is open';
    like $browser->wait_for_text('#state', qr/lost/), qr/connection lost/, 'the page says so';
    my $again = TestServer->command('examples/pagi/chat/app.pl', '--port', $port);
    ok $browser->wait_for('connections === 2'), 'the page is back';
};

subtest 'the chat and the ticker of the tutorial' => sub {
    my $tutorial = Tutorial->new('lib/PAGI/Server/Tutorial.pod');
    my $server   = TestServer->command('--channels', '--workers', 2, $tutorial->path('chat.pl'));
    my $url      = 'http://127.0.0.1:' . $server->port;
    my $anna     = $browser->tab;
    $browser->go($url);
    ok $browser->wait_for('socket.readyState === WebSocket.OPEN'), 'the first tab is connected';
    my $bert = $browser->new_tab;
    $browser->go($url);
    ok $browser->wait_for('socket.readyState === WebSocket.OPEN'), 'the second too';
    $browser->submit('#text', "gr\x{fc}\x{df}e");
    like $browser->wait_for_text('#messages', qr/./), qr/^guest: gr\x{fc}\x{df}e$/,
        'who says something sees it';
    $browser->turn_to($anna);
    like $browser->wait_for_text('#messages', qr/./), qr/^guest: gr\x{fc}\x{df}e$/, 'and so does the other';

    my $ticker = TestServer->command($tutorial->path('ticker.pl'));
    $browser->go('http://127.0.0.1:' . $ticker->port);
    like $browser->wait_for_text('#tick', qr/tick [2-9]/), qr/^tick [2-9]$/, 'the page ticks';
};

subtest 'sse-ticker: EventSource comes back with Last-Event-ID and misses nothing' => sub {
    my ($server, $url) = serve('sse-ticker');
    $browser->go($url);
    like $browser->wait_for_text('#count', qr/^[1-9]/), qr/^[1-9]/, 'the page ticks';
    ok $browser->wait_for(q(Number(document.getElementById('reconnects').textContent) > 0)),
        'the stream ended and the browser has come back';
    my $seen = $browser->text('#count');
    ok $browser->wait_for('Number(document.getElementById("count").textContent) > arguments[0]', $seen),
        'it ticks on';
    is $browser->text('#missed'), 0, 'and has missed nothing';
};

subtest 'jobs: a page shows the progress of what runs elsewhere' => sub {
    my ($server, $url) = serve('jobs');
    $browser->go($url);
    $browser->script(q(document.getElementById('new').requestSubmit()));
    $browser->script(q(document.getElementById('new').requestSubmit()));
    ok $browser->wait_for(q(document.querySelectorAll('#jobs li').length === 2)), 'two jobs';
    ok $browser->wait_for(
        q([...document.querySelectorAll('#jobs span')].every(e => e.textContent === 'done'))),
        'both end';
    is $browser->script(q(return document.querySelector('[data-number="1"] progress').value)), 100,
        'at the full length';
    my $steps = $browser->script(q(return document.querySelector('[data-number="1"]').dataset.steps));
    my @steps = split ' ', $steps;
    cmp_ok scalar @steps, '>', 3, "progress was seen on the way:$steps";
    is_deeply [@steps], [ sort { $a <=> $b } @steps ], 'and never went back';

    my $state = HTTP::Tiny->new->get("$url/jobs/2");
    is_deeply decode_json($state->{content}), { number => 2, percent => 100, state => 'done' },
        'the job as JSON';
    is(HTTP::Tiny->new->get("$url/jobs/9")->{status}, 404, 'no such job');
    is(HTTP::Tiny->new->get("$url/jobs/9", { headers => { accept => 'text/event-stream' } })->{status},
        404, 'nor for those who want events');
};

done_testing;
