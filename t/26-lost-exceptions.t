# Exceptions that are not true, or die when they are asked: Future::AsyncAwait asks them. They end their
# request, and neither others nor the server.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use Test::More;
use TestClient;
use TestServer;
use TestTools qw(wait_for);

my $file = File::Temp->new(SUFFIX => '.pl');
print {$file} <<'PERL';
use strict; use warnings;
use Future; use Future::AsyncAwait; use IO::Async::Loop;

package Lies { use overload bool => sub { 0 }, '""' => sub { 'lies' }, fallback => 1 }
package Dies { use overload bool => sub { die "no truth\n" }, '""' => sub { 'dies' }, fallback => 1 }
package Worst {
    use overload bool => sub { die bless [], 'Worst' }, '""' => sub { die "no text\n" }, fallback => 1;
}

package main;

my $loop = IO::Async::Loop->new;
my %waits = (
    now   => sub { return Future->done },
    timer => sub { return $loop->delay_future(after => 0.01) },
    idle  => sub { return $loop->later },
    # The client sends the rest of it late.
    body  => sub { return $_[0]->() },
    race  => sub {
        return Future->wait_any($loop->delay_future(after => 60), $loop->delay_future(after => 0.01));
    },
    told  => sub {
        my $future = Future->new;
        $future->on_done(sub { });
        $loop->later(sub { $future->done });
        return $future;
    },
);

async sub throw {
    my ($way, $class, $receive) = @_;
    if ($way eq 'body') {
        await $receive->();
        print {*STDERR} "the first part is there\n";
    }
    await $waits{$way}->($receive);
    die bless [], $class;
}

async sub fine { await $loop->later; return 'fine' }
async sub none { await throw(@_); return }
async sub answer {
    my ($send, $text) = @_;
    my @headers = ([ 'content-length', length $text ]);
    await $send->({ type => 'http.response.start', status => 200, headers => \@headers });
    await $send->({ type => 'http.response.body', body => $text });
}

async sub {
    my ($scope, $receive, $send) = @_;
    my (undef, $how, $way, $class) = split m{/}, $scope->{path};
    return await answer($send, 'alive') if $how eq 'alive';
    my @arguments = ($way, $class, $receive);
    await throw(@arguments)                     if $how eq 'itself' || $how eq 'deep';
    await none(@arguments)                      if $how eq 'deeper';
    await throw(@arguments)->then(sub { die })  if $how eq 'sequence';
    if ($how eq 'caught') {
        eval { await none(@arguments); 1 } or return await answer($send, "caught");
    }
    if ($how eq 'others') {
        my ($bad, @good) = (throw(@arguments), map { fine() } 1 .. 3);
        await Future->wait_all($bad, @good);
        return await answer($send, join ' ', $bad->is_failed ? 'failed' : 'ended', map { $_->get } @good);
    }
    return await answer($send, 'nothing thrown') if $how ne 'itself';
};
PERL
close $file;

for my $mode (qw(production development)) {
    my $server = TestServer->command('-E', $mode, qw(--lifespan off --no-access-log), "$file");
    my $parts  = 0;
    my $ask    = sub {
        my ($target) = @_;
        my $client = TestClient->new($server->port);
        $client->send("POST $target HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\na");
        if ($target =~ /body/) {
            $parts++;
            wait_for(sub { $parts == (() = $server->log =~ /^the first part is there$/mg) });
        }
        return $client->send('b')->response;
    };
    subtest $mode => sub {
        for my $way (qw(now timer idle body race told)) {
            for my $class (qw(Dies Worst)) {
                is $ask->("/$_/$way/$class")->{status}, 500, "$way: $class ends its request, $_"
                    for qw(itself deep deeper sequence);
                is $ask->("/caught/$way/$class")->{body}, 'caught', '... and can be caught';
            }
            is $ask->("/itself/$way/Lies")->{status}, 500,
                "$way: Lies is no exception for Future::AsyncAwait, and no response";
        }
        is $ask->("/others/$_/Dies")->{body}, 'failed fine fine fine', "$_: other async subs go on"
            for qw(timer idle told);
        is $ask->('/alive')->{body}, 'alive', 'the server is there';
        ok $server->wait_for_log(
            qr{POST /itself/timer/Dies: the application died before its response had started: .*: no truth}),
            'the log has the request and what there is to tell';
        unlike $server->log, qr/event loop|callback died|lost its returning/, '... and nothing else';
        is $server->stop, 0, 'the server ends well';
    };
}

done_testing;
