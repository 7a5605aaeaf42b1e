# Every kind of PSGI response, and every way in which one ends, leaves neither descriptors nor
# live values behind.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use IO::Async::Loop;
use OnlyInFull qw(only_in_full);
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools qw(wait_for);
use TestUsage qw(report settled);

package Lines {
    my $open = 0;

    sub new {
        my ($class, $count, $line) = @_;
        $open++;
        return bless { count => $count, line => $line }, $class;
    }
    sub getline { my ($self) = @_; return $self->{count}-- > 0 ? $self->{line} : undef }
    sub close   { my ($self) = @_; $open--; return }
    sub open    { return $open }
}

package main;

my @plain = ('Content-Type' => 'text/plain');
my $large = 'x' x 1_000_000;
my $file  = File::Temp->new;
print {$file} $large x 4;
$file->flush;

sub opened { open my $handle, '<', "$file" or die $!; return $handle }

my %kinds = (
    list   => sub { [ 200, [@plain], [ 'a',    'b' ] ] },
    large  => sub { [ 200, [@plain], [ $large, $large, $large, $large ] ] },
    file   => sub { [ 200, [@plain], opened() ] },
    lines  => sub { [ 200, [@plain], Lines->new(20, $large) ] },
    few    => sub { [ 200, [@plain], Lines->new(2,  'line') ] },
    writer => sub {
        sub { my $writer = $_[0]->([ 200, [@plain] ]); $writer->write($large) for 1 .. 4; $writer->close }
    },
    dropped => sub {
        sub { $_[0]->([ 200, [@plain] ])->write($large x 4) }
    },
    polled => sub {
        sub {
            my $n = 20;
            $_[0]->([ 200, [@plain] ])->poll_cb(sub { $n-- ? $_[0]->write($large) : $_[0]->close });
        }
    },
    later => sub {
        sub {
            my ($respond) = @_;
            IO::Async::Loop->new->later(sub { $respond->([ 200, [@plain], ['l'] ]) });
        }
    },
    forgets => sub {
        sub {
            my ($respond) = @_;
            IO::Async::Loop->new->later(sub { undef $respond });
        }
    },
    body => sub { my ($env) = @_; local $/; [ 200, [@plain], [ length readline $env->{'psgi.input'} ] ] },
    kept => sub {
        my ($env) = @_;
        push @{ $env->{'psgix.cleanup.handlers'} }, sub { delete $_[0]{mine} };
        $env->{mine} = $env;
        [ 200, [@plain], ['k'] ];
    },
    cleanup => sub {
        my ($env) = @_;
        push @{ $env->{'psgix.cleanup.handlers'} }, sub { };
        [ 200, [@plain], ['c'] ];
    },
    dies  => sub { die "dies\n" },
    wrong => sub { [ 200, [ A => "\n" ], [] ] },
    half  => sub {
        sub { my $writer = $_[0]->([ 200, [@plain] ]); $writer->write('half'); die "half\n" }
    },
);

sub app {
    my ($env) = @_;
    my $path  = substr $env->{PATH_INFO}, 1;
    return [ 200, [@plain], [ report() . ' bodies=' . Lines->open ] ] if $path eq 'usage';
    return $kinds{$path}->($env);
}

my $server =
    TestServer->start(psgi => 1, app => \&app, access_log => undef, quiet => 1, max_body_size => '100M');
my $port = $server->port;

sub request {
    my ($kind) = @_;
    return "GET /$kind HTTP/1.1\r\nHost: h\r\n\r\n" if $kind ne 'body';
    return "POST /body HTTP/1.1\r\nHost: h\r\nContent-Length: 2000000\r\n\r\n" . 'b' x 2_000_000;
}

my %ends = (
    whole => sub { my ($client, $kind) = @_; $client->send(request($kind))->response;     $client->close },
    early => sub { my ($client, $kind) = @_; $client->send(request($kind));               $client->reset },
    part  => sub { my ($client, $kind) = @_; $client->send(substr request($kind), 0, -1); $client->reset },
    some  => sub {
        my ($client, $kind) = @_;
        $client->send(request($kind));
        $client->some(5);
        $client->reset;
    },
    fin => sub {
        my ($client, $kind) = @_;
        $client->send(request($kind))->half_close;
        $client->rest;
        $client->close;
    },
);

sub usage {
    return settled(sub { get($port, '/usage', 'Connection: close')->{body} });
}

my $rounds = only_in_full(10) || 4;
for my $kind (sort keys %kinds) {
    for my $end (sort keys %ends) {
        my @narrow = $end =~ /whole|fin/ ? () : (receive_buffer => 8192);
        my $round  = sub { $ends{$end}->(TestClient->new($port, @narrow), $kind) };
        $round->() for 1 .. 3;
        usage() for 1 .. 2;
        my ($before, $after);
        # Memory for several requests at a time is kept for later ones: it grows once, a leak in each round.
        for (1 .. 4) {
            $before = usage();
            $round->() for 1 .. $rounds;
            usage();
            # A thread may still be at a file that nobody waits for any more.
            wait_for(sub { $after = usage(); $after->{descriptors} <= $before->{descriptors} });
            last if $after->{values} - $before->{values} < $rounds;
        }
        my ($text) = get($port, '/usage')->{body} =~ /bodies=(\d+)/;
        # Fewer descriptors are open if the thread was still at a request before.
        cmp_ok $after->{descriptors}, '<=', $before->{descriptors}, "$kind, $end: no descriptor";
        cmp_ok $after->{values} - $before->{values}, '<', $rounds,  "$kind, $end: no live value";
        is $text, 0, "$kind, $end: every body is closed";
    }
}
is $server->stop, 0, 'the server stops';

done_testing;
