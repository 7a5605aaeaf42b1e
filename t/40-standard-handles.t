# Applications that close standard handles, or set variables of Perl's output, when they are loaded.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use OnlyInFull qw(crossed);
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools qw(free_port);

my $directory = File::Temp->newdir;

sub write_file {
    my ($name, $text) = @_;
    my $path = "$directory/$name";
    open my $out, '>', $path or die "$path: $!";
    print {$out} $text;
    close $out or die "$path: $!";
    return $path;
}

my @ways = ([], [qw(--workers 1)], [qw(--engine thread)], [qw(--engine process --workers 1)]);

# STDERR stays, because the test reads the port there; descriptor 2 is like the others.
my $code = <<'APP';
close STDIN;
close STDOUT;
sub { return [ 200, [], [ join ' ', map { readlink "/proc/self/fd/$_" } 0, 1 ] ] }
APP
my $closes  = write_file('closes.psgi', $code);
my @sources = ([$closes], [ '-e', $code ]);
for my $case (crossed(\@ways, \@sources)) {
    my ($way, $source) = @$case;
    my $server = TestServer->command_of('peregrine', qw(-E production), @$way, @$source);
    is(
        get($server->port, '/')->{body},
        '/dev/null /dev/null',
        "@$way $source->[0]: no socket is at closed descriptors"
    );
    is($server->stop, 0, '... the server ends well');
    unlike($server->log, qr/reopened as/, '... and no warning of Perl is in the log');
}

SKIP: {
    # Expected: it is not installed.
    skip 'Plack is not installed', 3 if !eval { require Plack; 1 };
    my $port    = free_port();
    my $delayed = TestServer->spawn(
        $^X, (map { "-I$_" } @INC),
        qw(-S plackup -s Peregrine -E production -L Delayed --workers 1),
        '--host' => '127.0.0.1',
        '--port' => $port,
        $closes
    );
    ok($delayed->wait_for_log(qr/listening on/), 'plackup -L Delayed');
    is(get($port, '/')->{body}, '/dev/null /dev/null', '... no socket is at closed descriptors');
    is($delayed->stop,          0,                     '... the server ends well');
}

# A class of handles without FILENO.
my $tied = write_file('tied.psgi', <<'APP');
sub Tied::TIEHANDLE { return bless [], 'Tied' }
tie *STDIN, 'Tied';
sub { return [ 200, [], [ ref tied *STDIN ] ] }
APP
my $with_tied = TestServer->command_of('peregrine', qw(-E production), $tied);
is(get($with_tied->port, '/')->{body}, 'Tied', 'a tied handle stays');
is($with_tied->stop,                   0,      '... the server ends well');

my $prints = write_file('prints.psgi', <<'APP');
$\ = "|end of print|\n";
$, = '|between|';
sub { warn "a warning\n"; return [ 200, [], ['answer'] ] }
APP
for my $way (@ways) {
    my $server = TestServer->command_of('peregrine', qw(-E production), @$way, $prints);
    is(get($server->port, '/')->{body}, 'answer', "@$way: an application that sets \$\\ and \$,");
    is($server->stop,                   0,        '... the server ends well');
    like($server->log, qr/a warning$/m, '... its warning is in the log');
    unlike($server->log, qr/\|/, '... without what Perl adds to prints');
}

my $function = write_file('function.psgi', <<'APP');
package Function;
use overload '&{}' => sub { my ($self) = @_; return sub { return [ 200, [], [ $self->{text} ] ] } };
bless { text => 'an object' }, __PACKAGE__;
APP
my $server = TestServer->command_of('peregrine', qw(-E production), $function);
is(get($server->port, '/')->{body}, 'an object', 'an object that is used as a function');
is($server->stop,                   0,           '... the server ends well');

my $exits =
    write_file('exits.psgi', 'sub { exit 3 if $_[0]{PATH_INFO} eq "/exit"; return [ 200, [], ["here"] ] }');
$server = TestServer->command_of('peregrine', qw(-E production --engine process --workers 1), $exits);
is(get($server->port, '/exit')->{status}, 502, 'an application that exits in a worker');
ok($server->wait_for_log(qr/worker 1: the application has called exit at \S+ line 1: this process ends$/m),
    '... is told of');
is(get($server->port, '/')->{body}, 'here', '... and another worker serves');
is($server->stop,                   0,      '... the server ends well');

done_testing;
