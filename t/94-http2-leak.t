# In whichever way streams and connections of HTTP/2 end, no requests, connections, descriptors, Perl values
# or memory of theirs stay.
use strict;
use warnings;

use lib 't/lib';
use Future::AsyncAwait;
use OnlyInFull qw(only_in_full);
use Test::More;
use TestHTTP2 qw(frame);
use TestServer;
use TestUsage qw(report settled);

use constant { WARMING => only_in_full(40) || 20, ROUNDS => only_in_full(200) || 60 };

my $LENT = join ' ', 1 .. 50_000;

# /usage: what the server holds; /wait: until the client has gone; /big: more than any window lets out; /lent:
# the same string each time; /dies; /late dies in its response; everything else reads what comes and says how
# long it was.
async sub app {
    my ($scope, $receive, $send) = @_;
    die "no $scope->{type}\n" if $scope->{type} ne 'http';
    my $path = $scope->{path};
    die "on purpose\n" if $path eq '/dies';
    if ($path eq '/wait') {
        $scope->{'pagi.connection'}->on_disconnect(sub { });
        1 while (await $receive->())->{type} ne 'http.disconnect';
        return;
    }
    my ($length, $more) =
        (0, $path ne '/usage' && $scope->{method} eq 'POST');
    while ($more) {
        my $event = await $receive->();
        return if $event->{type} ne 'http.request';
        $length += length $event->{body};
        $more = $event->{more};
    }
    await $send->({ type => 'http.response.start', status => 200,      headers => [] });
    await $send->({ type => 'http.response.body',  body   => 'begun ', more    => 1 });
    die "on purpose\n" if $path eq '/late';
    my $body =
          $path eq '/usage' ? report()
        : $path eq '/big'   ? 'x' x 300_000
        : $path eq '/lent'  ? $LENT
        :                     $length;
    await $send->({ type => 'http.response.body', body => $body });
    return;
}

my $server = TestServer->start(
    app        => \&app,
    http2      => 1,
    access_log => undef,
    log_level  => 'error'
);

sub connected { return TestHTTP2->new($server->port, @_) }

my %ENDINGS = (
    'requests that are answered' => sub {
        my $h2 = connected();
        $h2->response($_) for map { $h2->request($_) } qw(/ /big /dies /late);
        $h2->response($h2->request(
            '/',
            method   => 'POST',
            body     => 'x' x 10_000,
            trailers => [ 'x-a' => 1 ]
        ));
        $h2->close;
    },
    'streams that are reset' => sub {
        my $h2  = connected(manual => 1);
        my @ids = map { $h2->request($_) } qw(/wait /big /wait /big);
        push @ids, $h2->request('/', method => 'POST', open => 1);
        $h2->data($ids[-1], 'x' x 100);
        $h2->is_alive;
        $h2->reset($_) for @ids;
        $h2->is_alive;
        $h2->close;
    },
    'a connection that is cut' => sub {
        my $h2 = connected(manual => 1);
        $h2->request($_) for qw(/wait /big /wait /big);
        $h2->data($h2->request('/', method => 'POST', open => 1), 'x' x 100);
        $h2->is_alive;
        $h2->{client}->reset;
    },
    'a connection that is cut within a frame' => sub {
        my $h2 = connected(manual => 1);
        my $id = $h2->request('/', method => 'POST', open => 1);
        $h2->send(substr frame(TestHTTP2::DATA, 0, $id, 'x' x 5000), 0, 3000);
        $h2->send_frame(TestHTTP2::HEADERS, 0, 3, 'xx');
        $h2->close;
    },
    'GOAWAY' => sub {
        my $h2 = connected();
        my $id = $h2->request('/');
        $h2->send_frame(TestHTTP2::GOAWAY, 0, 0, pack 'NN', 0, 0);
        $h2->response($id);
        $h2->close;
    },
    'content of which one string is lent to streams that end each in its way' => sub {
        my $cut    = connected(manual => 1);
        my @halves = map { $cut->request('/lent') } 1 .. 3;
        $cut->is_alive;
        $cut->reset($halves[1]);
        my $whole = connected();
        my $id    = $whole->request('/lent');
        $cut->{client}->reset;
        $whole->response($id)->{body} eq "begun $LENT" or die 'not what was lent';
        $whole->close;
    },
    'a rule that is broken' => sub {
        my $h2 = connected();
        $h2->request($_) for qw(/wait /big);
        $h2->send_frame(TestHTTP2::DATA, 0, 0, 'x');
        $h2->end;
        $h2->close;
    },
);

sub usage {
    return settled(sub {
        my $h2   = connected();
        my $text = $h2->get('/usage')->{body};
        $h2->close;
        return $text;
    });
}

for my $name (sort keys %ENDINGS) {
    subtest $name => sub {
        $ENDINGS{$name}->() for 1 .. WARMING;
        my $before = usage();
        $ENDINGS{$name}->() for 1 .. ROUNDS;
        my $after = usage();
        is $after->{$_}, $before->{$_}, "no more $_" for qw(requests connections descriptors);
        cmp_ok $after->{values}, '<', $before->{values} + ROUNDS / 2, 'no more values';
        cmp_ok $after->{kib},    '<', $before->{kib} + 8192,          'no more memory, in KiB';
        note join ' ', map { "$_ $before->{$_}->$after->{$_}" } qw(values kib);
    };
}
is $server->stop, 0, 'the server ends well';
unlike $server->log, qr/unreferenced/, '... and has let go of no value twice';

done_testing;
