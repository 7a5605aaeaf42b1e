# The words of plackup's command line as options: those that come several times, those that set several
# options, switches that are turned off, and addresses of IPv6.
# Not repeated for each PEREGRINE_ENGINE.
use strict;
use warnings;

use lib 't/lib';
use Plack::Handler::Peregrine;
use Plack::Handler::Peregrine::Options;
use Plack::Runner;
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools   qw(has_ipv6 ended free_port wait_for);
use TestWorkers qw(directory write_file);

# The options of the server that plackup makes of words.
sub options_of {
    my (@words) = @_;
    my $runner = Plack::Runner->new;
    $runner->parse_options('--listen', '127.0.0.1:0', @words);
    my $handler = Plack::Handler::Peregrine->new(@{ $runner->{options} });
    return Plack::Handler::Peregrine::Options::of_server(%$handler);
}

for my $case (
    [ 'static',          qw(--static /a=t --static /b=lib),                  [qw(/a=t /b=lib)] ],
    [ 'trusted_proxies', qw(--trusted-proxies ::1),                          '::1' ],
    [ 'trusted_proxies', map({ ('--trusted-proxies', "10.0.0.$_") } 1 .. 3), [ map { "10.0.0.$_" } 1 .. 3 ] ],
    [ 'max_requests',    qw(--max-requests 1 --max-requests 2),              2 ],
    [ 'header_timeout',  qw(--header-timeout 7 --timeout 60),                7 ],
    [ 'header_timeout',  qw(--timeout 60 --read-timeout 7),                  7 ],
    [ 'body_timeout',    qw(--body-timeout 7 --timeout 60),                  7 ],
    [ 'write_timeout',   qw(--body-timeout 7 --timeout 60),                  60 ],
    [ 'workers',         qw(--max-workers 3 --workers 2),                    2 ],
    [ 'disable_tls',     qw(--disable-tls),                                  1 ],
    [ 'disable_tls',     qw(--enable-tls),                                   0 ],
    [ 'listen',          qw(--disable-proctitle),                            ['127.0.0.1:0'] ],
    [ 'max_keepalive_requests', qw(--disable-keepalive),                     1 ],
    )
{
    my ($name, @words) = @$case;
    my $wanted  = pop @words;
    my %options = options_of(@words);
    is_deeply $options{$name}, $wanted, "@words: $name";
}

# A program that gives an option to plackup's runner means it in place of the command line.
is_deeply { Plack::Handler::Peregrine::Options::gathered(listen => [':5000'], listen => [':1']) },
    { listen => [':1'] }, 'the last listen counts';
ok !eval { options_of(qw(--disable-nothing)); 1 }, 'a switch that nobody knows';
like $@, qr/there is no option 'nothing'/, '... is named';

sub spawn {
    return TestServer->spawn($^X, (map { "-I$_" } @INC), qw(-S plackup -s Peregrine -E production), @_);
}

SKIP: {
    skip 'needs IPv6', 2 if !has_ipv6();
    my $port   = free_port();
    my $server = spawn('--host', '::1', '--port', $port, '-e', 'sub { [ 200, [], ["here"] ] }');
    ok $server->wait_for_log(qr{listening on http://\[::1\]:$port/}), '--host ::1';
    is $server->stop, 0, 'the server stops';
}

# The process in front waits for a line of the one that serves, of which workers have copies.
subtest '-D, and an application that has undefined $/' => sub {
    my $app   = write_file('app.psgi', 'undef $/; sub { [ 200, [], [getppid] ] }');
    my $port  = free_port();
    my $front = spawn(qw(-D --workers 1 --listen), "127.0.0.1:$port", $app);
    is ended($front->pid, 30), 0, 'the command ends';
    my $server = eval { get($port, '/')->{body} } // return fail 'the server answers';
    ok kill(TERM => $server),              '... and the server goes on';
    ok wait_for(sub { !kill 0, $server }), '... until it is told to stop';
};

done_testing;
