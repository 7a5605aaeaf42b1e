# PAGI::Server::ComingFrom: each of our options that it names is one, and those of a part work together.
use v5.36;

use lib 't/lib';
use Certificates;
use File::Temp   ();
use ManualTables qw(tables);
use PAGI::Server;
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools qw(content free_port wait_for);

plan skip_all => 'built without TLS' if !PAGI::Server->has_tls;

my $manual = 'lib/PAGI/Server/ComingFrom.pod';
my %table  = tables($manual);
my $home   = File::Temp->newdir;
my $files  = Certificates->new;
$files->authority('ca')->issue('localhost');

# Our options of a part, with files and places that are there.
sub ours ($part, $column) {
    my @words = map { split ' ' } grep { /\A-\w|\A--/ } map { $_->{$column} } @{ $table{$part} };
    for my $i (1 .. $#words) {
        $words[$i] = $files->path($words[ $i - 1 ] =~ /cert/ ? 'localhost.pem' : 'localhost.key')
            if $words[$i] eq 'FILE';
        $words[$i] = "$home/socket"             if $words[$i] =~ /\.sock\z/;
        $words[$i] = '127.0.0.1:' . free_port() if $words[$i] =~ /:9100\z/;
    }
    return @words;
}

for my $part (qw(STARMAN STARLET UWSGI HYPNOTOAD)) {
    subtest $part => sub {
        my @options = ours($part, 'plackup -s Peregrine');
        cmp_ok(scalar @options, '>', 8, 'has options') or return;
        my $port = free_port();
        my %at   = map { $options[$_] => $_ } 0 .. $#options;
        for my $named (qw(--listen --port)) {
            splice @options, (delete $at{$named}), 2 if defined $at{$named};
        }
        my @tls    = $part eq 'STARMAN' ? (tls => {}) : ();
        my @app    = ('-e',       'sub { [ 200, [], ["served"] ] }');
        my @listen = ('--listen', "127.0.0.1:$port");
        my $server = TestServer->spawn(qw(plackup -s Peregrine -E production), @listen, @options, @app);
        my $answer;
        wait_for(
            sub {
                my $client = eval { TestClient->new($port, @tls) } or return;
                $client->send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
                $answer = $client->response;
            },
            60
        );
        is($answer->{body}, 'served', "plackup -s Peregrine @options") or diag $server->log;
        is($server->stop,   0,        '... and ends well');
    };
}

subtest 'UVICORN' => sub {
    my @options = ours('UVICORN', 'pagi-server');
    cmp_ok(scalar @options, '>', 30, 'has options');
    my %at     = map { $options[$_] => $_ } 0 .. $#options;
    my @socket = splice @options, $at{'--socket'}, 2;
    for my $command ([@options], \@socket) {
        my ($status, $out, $err) = TestServer->finish('--check', @$command, 'examples/01-hello-http/app.pl');
        is($status, 0, "pagi-server @$command") or diag $err;
    }
};

# The two lines that each part begins with.
my @ours = content($manual) =~ /^    ((?:pagi-server|plackup -s|start_server .*-s Peregrine).*)$/mg;
is(scalar @ours, 5, 'five command lines');
my %option = map { $_ => 1 } map { split ' ' } map { values %$_ } map { @$_ } values %table;
for my $line (@ours) {
    my @unknown = grep { /\A--\w/ && !$option{$_} } split ' ', $line;
    is("@unknown", '', "$line has options of the tables");
}

done_testing;
