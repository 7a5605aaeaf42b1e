# The development build of script/server serves, says that it is one, and is made only once. Its engine is
# compiled without engine/build.zig: this test fails if script/lib/development.sh lacks a layer.
use v5.36;
use Cwd qw(getcwd);
use lib 't/lib';
use OnlyInFull qw(only_in_full);
use Test::More;
use TestClient;
use TestServer;
use TestTools qw(free_port wait_for);

plan skip_all => 'left to script/test --all' if !only_in_full(1);

my $root    = getcwd();
my $place   = '.peregrine/development';
my $library = "$place/arch/auto/Peregrine/Peregrine.so";

is build(), 0, 'it builds' or BAIL_OUT('no development build');
my $made = (stat $library)[9];
is build(),              0,     'once more';
is + (stat $library)[9], $made, '... which is not needed';

my $port   = free_port();
my $server = TestServer->spawn($^X, '-Ilib', "-I$place/arch", 'bin/pagi-server', '--port', $port,
    'examples/pagi/hello/app.pl');
# Expected: connections are refused until the server listens.
ok wait_for(sub {
    eval { TestClient->new($port) }
    }),
    'it listens'
    or diag $server->log;
is TestClient::exchange($port, "GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")->{body},
    'Hello, World!', 'it answers';
like $server->log, qr/listening on .*Peregrine \d+\.\d+\.\d+ \(development build\)/,
    '... and says what it is';
my $header = -e '/usr/include/openssl/ssl.h';
is $server->log =~ /OpenSSL 3/ ? 1 : 0, $header ? 1 : 0, '... with TLS where OpenSSL is';
is $server->stop,                       0,               'it ends with status 0 on TERM';
done_testing;

sub build () { return system("script/lib/development.sh >$root/.peregrine/development.log 2>&1") }
