# Applications for other servers: whoever starts one is told what it looks like, before anybody gets a 500.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use Test::More;
use PAGI::Server;
use PAGI::Server::AppKind;
use TestClient qw(get);
use TestServer;
use TestTools qw(refused);

my $directory = File::Temp->newdir;

sub write_file {
    my ($name, $text) = @_;
    my $path = "$directory/$name";
    open my $out, '>', $path or die "$path: $!";
    print {$out} $text;
    close $out or die "$path: $!";
    return $path;
}

my %psgi = (
    'plain.pl' =>
        q{my $app = sub { my $env = shift; return [ 200, [ 'Content-Type' => 'text/plain' ], ['hello'] ] };},
    'named.psgi'   => q{sub { return [ '404', [], [] ] }},
    'later.psgi'   => q{sub { return sub { my $respond = shift; $respond->([ 200, [], ['x'] ]) } }},
    'stream.psgi'  => q{sub { return [ 200, [] ] }},
    'builder.psgi' =>
        q{use Plack::Builder; builder { enable 'ContentLength'; sub { [ 200, [], ['hello'] ] } };},
    'request.pl' => q{use Plack::Request; sub { Plack::Request->new(shift)->new_response(200)->finalize }},
);

for my $name (sort keys %psgi) {
    subtest $name => sub {
        my $file = write_file($name, $psgi{$name});
        my ($status, $out, $err) = TestServer->finish_of('pagi-server', '--port', 0, $file);
        is($status, 1, 'the start fails');
        like(
            $err,
            qr/^Error: .*did not return a Future: it looks like a PSGI application, and this server runs PAGI/m,
            '... and says why'
        );
        like($err, qr/\Q$file\E looks like a PSGI application/, '... the file looked like one before');
        unlike($err, qr/listening/, '... and nobody is served');
        ($status, $out, $err) = TestServer->finish_of('pagi-server', '--check', $file);
        is($status, 0, '--check calls no application');
        like(
            $err,
            qr/PAGI: \Q$file\E looks like a PSGI application, and this server runs PAGI .*peregrine runs/,
            '... but says what it looks like'
        );
    };
}

subtest 'without lifespan a request tells' => sub {
    my $server = TestServer->command('--lifespan', 'off', '--no-access-log',
        write_file('off.psgi', $psgi{'plain.pl'}));
    is(get($server->port, '/')->{status}, 500, 'a request is answered with 500');
    ok($server->wait_for_log(qr/the application did not return a Future: it looks like a PSGI application/),
        '... and the log says why');
    is($server->stop, 0, '... and the server ends well');
};

subtest 'applications of PAGI' => sub {
    for my $text (
        q{async sub { ... }},
        q{sub { my ($scope, $receive, $send) = @_; my $env = \%ENV; ... }},
        q{use Plack::Builder; use PAGI::App::WrapPSGI; ...},
        q{use My::App; My::App->to_app},
        )
    {
        is(PAGI::Server::AppKind::of_text($text, 'app.pl'), undef, $text);
    }
    is(PAGI::Server::AppKind::of_text('$send->({})', 'app.psgi'), undef, 'under any name');
    for my $value (undef, 42, '200', [], [200], [ 'x', [] ], [ 200, {} ], {}, bless([ 200, [] ], 'Thing')) {
        is(PAGI::Server::AppKind::of_answer($value), undef, 'an answer that says nothing');
    }
    {
        local $INC{'PAGI/App/WrapPSGI.pm'} = 'here';
        is(PAGI::Server::AppKind::of_text('My::App->to_app', 'app.psgi'), undef, 'with modules of PAGI');
    }
    my ($status, undef, $err) = TestServer->finish_of('pagi-server', '--check', 'examples/pagi/hello/app.pl');
    is($status, 0, 'an example');
    unlike($err, qr/looks like/, '... is none of another kind');
};

# The frameworks themselves were tried by hand; a module of that name is what the loader goes by.
subtest 'values that are no code references' => sub {
    mkdir "$directory/lib";
    write_file('lib/Mojolicious.pm', 'package Mojolicious; sub new { bless {}, shift } 1;');
    my @lib = ('-I', "$directory/lib");
    for my $code ('use Mojolicious; Mojolicious->new', 'use Mojolicious; 1') {
        my ($status, undef, $err) =
            TestServer->finish_of('pagi-server', '--check', @lib, write_file('mojo.pl', $code));
        is($status, 1, "$code: the start fails");
        like(
            $err,
            qr/it must give a code reference, got: .*\. It looks like a Mojolicious application, and this server runs/,
            '... and says why'
        );
    }
    my ($status, undef, $err) = TestServer->finish_of('pagi-server', '--check', @lib, 'Mojolicious');
    is($status, 1, 'a module without to_app: the start fails');
    like($err, qr/it has no method to_app\. It looks like a Mojolicious application/, '... and says why');
    unshift @INC, "$directory/lib";
    require Mojolicious;
    like(
        refused(app => Mojolicious->new),
        qr/'app' must be a code reference, not .* \(it looks like a Mojolicious/,
        'so does the constructor'
    );
};

done_testing;
