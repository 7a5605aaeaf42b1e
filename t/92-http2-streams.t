# A stream of HTTP/2 has deadlines of its own, beside other streams of its connection.
# Not repeated for each PEREGRINE_ENGINE: its servers name their engines.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use Future::AsyncAwait;
use OnlyInFull qw(only_in_full);
use PAGI::Server;
use Test::More;

use Certificates;
use TestHTTP2;
use TestServer;
use TestTools   qw(wait_for);
use Time::HiRes qw(sleep time);

use constant WRITE_TIMEOUT => 2;    # seconds

# A gigabyte that is nowhere.
my $hole = File::Temp->new;
truncate $hole, 1 << 30 or die "truncate: $!";

my $urgent = 0;

my %ACTIONS = (
    '/download' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->({ type => 'http.response.start', status => 200, headers => [] });
        await $send->({ type => 'http.response.body', file => $hole->filename });
    },
    '/flush' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->({ type => 'http.response.start', status => 200, headers => [] });
        for my $word (qw(one two three)) {
            await $send->({ type => 'http.response.body', body => $word, more => 1 });
            await $send->({ type => 'http.fullflush' });
        }
        await $send->({ type => 'http.response.body', body => '' });
    },
    '/urgent' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->({ type => 'http.response.start', status => 200, headers => [] });
        await $send->({ type => 'http.response.body', body => 'urgent' });
        $urgent++;
    },
    '/said' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->({ type => 'http.response.start', status => 200, headers => [] });
        await $send->({ type => 'http.response.body', body => $urgent });
    },
);

async sub app {
    my ($scope, $receive, $send) = @_;
    die "no $scope->{type}\n" if $scope->{type} ne 'http';
    await $ACTIONS{ $scope->{path} }->($scope, $receive, $send);
}

my @places = { host => '127.0.0.1', port => 0 };
my $files;
if (PAGI::Server->has_tls) {
    $files = Certificates->new;
    $files->authority('ca');
    $files->issue('localhost', extensions => ['subjectAltName=DNS:localhost,IP:127.0.0.1']);
    push @places, { host => '127.0.0.1', port => 0, ssl => { $files->pair('localhost') } };
}

my (@servers, %connect);
for my $engine (only_in_full('inline'), 'thread') {
    my $server = TestServer->start(
        app           => \&app,
        http2         => 1,
        engine        => $engine,
        access_log    => undef,
        listen        => \@places,
        extensions    => { fullflush => {} },
        write_timeout => WRITE_TIMEOUT,
        # The file is read as fast as it is sent.
        sync_file_threshold => 1 << 30,
    );
    push @servers, $server;
    my %ports = $server->log =~ m{(?<=listening on )(https?)://127\.0\.0\.1:(\d+)/}g;

    for my $scheme (sort keys %ports) {
        my @windows = (settings => [ 4, 0x7fffffff ], window => 0x7fff0000);
        my $connect = sub {
            return TestHTTP2->new($ports{$scheme}, @windows, $scheme eq 'https' ? (tls => {}) : (), @_);
        };
        $connect{"$engine, $scheme"} = $connect;

        subtest "an urgent response, $engine, $scheme" => sub {
            my ($h2, $other) = ($connect->(receive_buffer => 65_536), $connect->());
            my $said     = $other->get('/said')->{body};
            my $download = $h2->stream($h2->request('/download'));
            my $bytes    = 0;
            my $count    = sub {
                $bytes += length($download->{body} // '');
                $download->{body} = '';
                return $bytes;
            };
            ok $h2->until(sub { $count->() > 3_000_000 }), 'a download that its client stops reading';
            sleep 0.3;    # bytes that the kernel takes meanwhile go first
            my ($id, $before) = ($h2->request('/urgent', fields => [ priority => 'u=0' ]), $bytes);
            ok wait_for(sub { $other->get('/said')->{body} > $said }),    '... another response is given';
            ok $h2->until(sub { $count->(); $h2->stream($id)->{ended} }), '... comes';
            cmp_ok $bytes - $before, '<', 2_000_000, '... and before most of it, in bytes';
            $h2->close;
        };

        subtest "http.fullflush beside a download, $engine, $scheme" => sub {
            my $h2       = $connect->();
            my $download = $h2->stream($h2->request('/download'));
            ok $h2->until(sub { length($download->{body} // '') > 1_000_000 }), 'a download';
            my $flushed = $h2->stream($h2->request('/flush'));
            my $ended   = $h2->until(sub {
                $download->{body} = '';
                sleep 0.001;
                return $flushed->{ended};
            });
            ok $ended, '... lets others flush';
            is $flushed->{body}, 'onetwothree', '... all that they say';
            $h2->close;
        };
    }
}

# All requests run at the same time, which is a long one.
subtest 'a response that has to wait for others' => sub {
    my (%h2, %wait);
    for my $name (sort keys %connect) {
        my $h2 = $h2{$name} = $connect{$name}->(manual => 1, window => 1);
        $wait{$name} =
            [ map { $h2->stream($h2->request('/download', fields => [ priority => "u=$_" ])) } 1, 6 ];
    }
    my $end = time + 3 * WRITE_TIMEOUT;
    while (time < $end) {
        for my $h2 (values %h2) {
            $h2->credit(0, 16_384);
            $h2->is_alive;
        }
        sleep 0.05;
    }
    for my $name (sort keys %wait) {
        my ($urgent, $other) = @{ $wait{$name} };
        cmp_ok length $urgent->{body}, '>', 65_536, "$name: an urgent one takes all that its client allows";
        is $other->{body},  undef, '... and leaves nothing to the other one';
        is $other->{reset}, undef, '... which goes on all the same';
    }
    my %last =
        map { $_ => $h2{$_}->stream($h2{$_}->request('/urgent', fields => [ priority => 'u=6' ])) } keys %h2;
    ok $h2{$_}->until(sub { $last{$_}{reset} }), "$_: when their client takes no more, they end"
        for sort keys %last;
};
is $_->stop, 0, 'the server ends well' for @servers;

done_testing;
