# Extensions of PSGI's environment, and options in the words of other servers.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use Plack::Handler::Peregrine::Options;
use Test::More;
use TestClient qw(exchange get);
use TestServer;
use TestTools   qw(content freeze patience wait_for);
use Time::HiRes qw(sleep time);

my @plain = ('Content-Type' => 'text/plain');

# Works until the client has left, for a while at most.
sub long_work {
    my ($env) = @_;
    my $left  = $env->{'psgix.peregrine.disconnected'};
    my $end   = time + patience(30);
    warn $left->() ? "left at once\n" : "waited for\n";
    sleep 0.01 while !$left->() && time < $end;
    warn $left->() ? "noticed\n" : "not noticed\n";
    return [ 200, [@plain], ['late'] ];
}

my $kept;
my %answers = (
    '/long'   => \&long_work,
    '/queue'  => sub { [ 200, [@plain], [ $_[0]{'psgix.peregrine.queue_us'} ] ] },
    '/sleep'  => sub { sleep 0.2; [ 200, [@plain], [ $_[0]{'psgix.peregrine.queue_us'} ] ] },
    '/header' => sub { [ 200, [@plain], [ $_[0]{HTTP_X_A_B} // 'none' ] ] },
    '/keep'   => sub { $kept = $_[0]{'psgix.peregrine.disconnected'}; [ 200, [@plain], [$$] ] },
    '/kept'   => sub { [ 200, [@plain], [ $kept->() ? 'over' : 'waited for' ] ] },
    '/pid'    => sub {
        my ($env) = @_;
        $env->{'psgix.harakiri.commit'} = 1 if $env->{QUERY_STRING};
        return [ 200, [@plain], [ ($env->{'psgix.harakiri'} ? 'may ' : 'may not ') . $$ ] ];
    },
);
my $app = sub { my ($env) = @_; return $answers{ $env->{PATH_INFO} }->($env) };

sub server { return TestServer->start(psgi => 1, app => $app, access_log => undef, @_) }

subtest 'while the application works' => sub {
    my $server = server();
    my $port   = $server->port;
    my $client = TestClient->new($port)->send("GET /long HTTP/1.1\r\nHost: h\r\n\r\n");
    ok $server->wait_for_log(qr/^waited for/m), 'a client waits';
    $client->close;
    ok $server->wait_for_log(qr/^noticed/m), '... and has left';
    get($port, '/keep');
    is get($port, '/kept')->{body}, 'over', 'a request that is over';
    like get($port, '/queue')->{body}, qr/\A\d+\z/,   'time in queue';
    like get($port, '/pid')->{body},   qr/\Amay not/, 'psgix.harakiri without workers';
    is exchange($port, "GET /header HTTP/1.1\r\nHost: h\r\nX_A-B: 1\r\n\r\n")->{body}, 'none',
        'no underscores';
    is $server->stop, 0, 'the server stops';
};

subtest 'time in queue' => sub {
    my $log    = File::Temp->new;
    my $server = server(access_log => $log->filename, access_log_format => '%Q %{us}Q %{ms}Q %{s}Q %D');
    my @two    = map { TestClient->new($server->port) } 1, 2;
    $_->send("GET /queue HTTP/1.1\r\nHost: h\r\n\r\n")->response for @two;
    # The server reads both requests in one round, so that one of them waits for the other.
    freeze($server->pid);
    $_->send("GET /sleep HTTP/1.1\r\nHost: h\r\n\r\n") for @two;
    kill CONT => $server->{pid};
    my ($short, $long) = sort { $a <=> $b } map { $_->response->{body} } @two;
    cmp_ok $long, '>=', 200_000, 'one has waited as long as the other one has taken';
    is $server->stop, 0, 'the server stops';
    my @lines = sort { $a->[0] <=> $b->[0] } map { [split] } split /\n/, content($log->filename);
    my ($us, $same, $ms, $s, $whole) = @{ $lines[-1] };
    cmp_ok $us, '>=', 200_000, '... as the access log says';
    is_deeply [ $same, int $ms, $s ], [ $us, int $us / 1000, int $us / 1_000_000 ], '... in each unit';
    cmp_ok $us, '<', $whole, '... which is a part of the whole';
    is @lines, 4, '... of all requests';
};

subtest 'underscores' => sub {
    my $server = server(underscores_in_headers => 1);
    is exchange($server->port, "GET /header HTTP/1.1\r\nHost: h\r\nX_A-B: 1\r\n\r\n")->{body}, 1,
        'allowed when that is asked for';
    is $server->stop, 0, 'the server stops';
};

subtest 'harakiri' => sub {
    my $server = server(workers => 1, engine => 'inline');
    my $port   = $server->port;
    my ($pid)  = get($port, '/pid')->{body} =~ /\Amay (\d+)\z/ or return fail 'no worker';
    is get($port, '/pid')->{body},   "may $pid", 'a worker';
    is get($port, '/pid?x')->{body}, "may $pid", '... answers, and asks for its end';
    ok wait_for(sub { (get($port, '/pid') || { body => "may $pid" })->{body} ne "may $pid" }),
        '... another one has taken its place';
    ok wait_for(sub { !kill 0, $pid }), '... and it is gone';
    is $server->stop, 0, 'the server stops';
};

# ---- Words of other servers -----------------------------------------------------------------------

sub options {
    my %options = Plack::Handler::Peregrine::Options::of_server(@_);
    delete $options{heartbeat_timeout};
    return \%options;
}

subtest 'words of other servers' => sub {
    is_deeply options(max_workers => 3, max_reqs_per_child => 9, min_reqs_per_child => 5),
        { workers => 3, max_requests => 9 }, 'Starlet';
    is_deeply options(timeout => 7),
        { header_timeout => 7, body_timeout => 7, write_timeout => 7 }, '... its timeout';
    is_deeply options(read_timeout => 7, keepalive_timeout => 2, disable_keepalive => 1),
        { header_timeout => 7, timeout => 2, max_keepalive_requests => 1 }, 'Starman';
    is_deeply options(pre_fork => 2, keepalive => 1, max_connection_reqs => 4, accept_priority => 1),
        { workers => 2, max_keepalive_requests => 4 }, 'Feersum';
    is_deeply options(listen => [ ':1:ssl', ':2' ], ssl_cert => 'c', ssl_key => 'k'),
        { listen => [ '0.0.0.0:1,tls', '0.0.0.0:2,plain' ], ssl => { cert_file => 'c', key_file => 'k' } },
        'listeners of Starman with TLS and without';
    my $manual = content('lib/Plack/Handler/Peregrine.pm');
    for my $word (Plack::Handler::Peregrine::Options::words()) {
        my ($name, $whose) = @$word;
        my $flag = '--' . $name =~ tr/_/-/r;
        ok $manual =~ /\Q$flag\E\b/ || $whose eq 'plackup', "the manual knows $flag";
    }
    ok !eval { options(wrokers => 1) }, 'a word that nobody knows';
    like $@, qr/no option 'wrokers'.*workers/, '... is an error with a hint';
};

done_testing;
