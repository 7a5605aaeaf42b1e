# The page of the status in a real browser: it shows what happens, second by second, in light and in dark, on
# a phone as well, and old figures as such.
use strict;
use warnings;

use lib 't/lib';
use HTTP::Tiny;
use JSON::PP     ();
use MIME::Base64 qw(decode_base64);
use Test::More;
use TestBrowser;
use TestServer;
use TestTools qw(wait_for);

plan skip_all => 'needs chromium and chromedriver' if !TestBrowser->is_there;

my $server =
    TestServer->command('examples/pagi/hello/app.pl', '-E', 'production', '--workers', 2, '--status',
    '127.0.0.1:0');
my $port = $server->wait_for_log(qr{status at http://127\.0\.0\.1:(\d+)/});
my $url  = 'http://127.0.0.1:' . $server->port . '/';
my $http = HTTP::Tiny->new(timeout => 20);

my $browser = TestBrowser->start;

sub prefer {
    my ($scheme) = @_;
    return $browser->_call(
        POST => "$browser->{session}/goog/cdp/execute",
        {
            cmd    => 'Emulation.setEmulatedMedia',
            params => { features => [ { name => 'prefers-color-scheme', value => $scheme } ] }
        }
    );
}

# How bright the page is, and the picture of it.
sub look {
    my ($scheme) = @_;
    prefer($scheme);
    my ($red) = $browser->script('return getComputedStyle(document.body).backgroundColor') =~ /(\d+)/;
    return ($red, decode_base64($browser->_call(GET => "$browser->{session}/screenshot")));
}

$browser->go("http://127.0.0.1:$port/");
is $browser->wait_for_text('#state', qr/serving/), 'serving', 'the server serves';
ok $browser->wait_for(q{document.querySelectorAll('#processes tbody tr').length === 2}),
    'both workers are shown';

my $sent = 0;
$http->get($url), $sent++ for 1 .. 30;
ok $browser->wait_for(
    "Number(document.getElementById('about').textContent.match(/([0-9]+) requests/)[1]) === $sent"),
    'its requests are counted';
ok wait_for(sub {
    $http->get($url) for 1 .. 20;
    return $browser->script(q{return Number(document.getElementById('rate').textContent) > 0});
    }),
    'there is a rate';
like $browser->text('#p50'), qr/\A[0-9.]+ (?:ms|s)\z/, 'a median';
ok $browser->wait_for(q{/L/.test(document.querySelector('#rates .curve').getAttribute('d'))}),
    'a curve of rates';
ok $browser->wait_for(q{/L|M[1-9]/.test(document.querySelector('#times .curve').getAttribute('d'))}),
    'of times';
ok $browser->script(
    q{return [...document.querySelectorAll('#histogram rect')].some(bar => Number(bar.getAttribute('height')) > 0)}
    ),
    'and a histogram';
is $browser->script(q{return document.documentElement.scrollWidth <= innerWidth}), 1, 'nothing sticks out';

# A trickle of requests leaves the workers idle, and the page says so.
my $busy = q{[...document.querySelectorAll('#processes td.load')].map(cell => parseInt(cell.textContent))};
ok $browser->wait_for("$busy.every(share => share >= 0)"), 'how busy the workers are';
ok wait_for(sub {
    $http->get($url) for 1 .. 3;
    return $browser->script("return Math.max(...$busy) < 50 ? 1 : 0");
    }),
    'three requests a second are no load';
ok $browser->script(
    q{return [...document.querySelectorAll('#processes td.load svg')].every(bar =>
        Number(bar.lastChild.getAttribute('width')) < 50) ? 1 : 0}
    ),
    'nor are they in the picture';

# On a phone every figure has its name beside it, and nothing has to be moved sideways.
$browser->_call(
    POST => "$browser->{session}/goog/cdp/execute",
    {
        cmd    => 'Emulation.setDeviceMetricsOverride',
        params => { width => 360, height => 740, deviceScaleFactor => 1, mobile => JSON::PP::true() },
    }
);
ok $browser->wait_for('innerWidth === 360'), 'a phone';
is $browser->script(q{return document.documentElement.scrollWidth <= innerWidth}), 1,
    'nothing sticks out there';
is $browser->script(
    q{return [...document.querySelectorAll('.card')].every(card => card.scrollWidth <= card.clientWidth)}), 1,
    'nor is hidden in a card';
is $browser->script(
    q{return getComputedStyle(document.querySelector('#processes td.load'), '::before').content}), '"busy"',
    'figures have their names';
ok $browser->script(
    q{const text = document.querySelector('#rates text');
      const scale = document.querySelector('#rates svg').clientWidth / 480;
      return parseFloat(getComputedStyle(text).fontSize) * scale >= 9}
    ),
    'letters in pictures can be read';

if (my $folder = $ENV{PEREGRINE_SCREENSHOTS}) {
    my ($kept, $picture) = look('light');
    open my $file, '>:raw', "$folder/status-phone.png" or die "$folder: $!";
    print {$file} $picture;
    close $file or die "$folder: $!";
}
$browser->_call(
    POST => "$browser->{session}/goog/cdp/execute",
    { cmd => 'Emulation.clearDeviceMetricsOverride', params => {} }
);

my ($light, $by_day)   = look('light');
my ($dark,  $by_night) = look('dark');
cmp_ok $light, '>', 200, 'the page is bright by day';
cmp_ok $dark,  '<', 60,  'and dark by night';
like $_, qr/\A\x89PNG/, 'a picture' for $by_day, $by_night;
cmp_ok length, '>', 20_000, 'with something on it' for $by_day, $by_night;
if (my $folder = $ENV{PEREGRINE_SCREENSHOTS}) {
    for ([ day => $by_day ], [ night => $by_night ]) {
        open my $file, '>:raw', "$folder/status-$_->[0].png" or die "$folder: $!";
        print {$file} $_->[1];
        close $file or die "$folder: $!";
    }
}

is $server->stop, 0, 'the server stops';
like $browser->wait_for_text('#state', qr/no answer/), qr/\Ano answer/, 'which the page says';
ok $browser->wait_for(q{Number(getComputedStyle(document.querySelector('main')).opacity) < 0.5}),
    'and its figures are those of before';

done_testing;
