# A mount with channels=off: its workers have no way to the hub, from their start on and after HUP, and the
# engine delivers them no topics; other mounts have what they had.
# Not repeated for each PEREGRINE_ENGINE: mounts have workers of their own with `process` only.
use strict;
use warnings;

use lib 't/lib';
use OnlyInFull qw(only_in_full);
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools   qw(wait_for);
use TestWorkers qw(descriptors directory write_file);

plan skip_all => 'Linux only' if $^O ne 'linux';

write_file('said.psgi', <<'PERL');
use Peregrine::Publisher;
sub { return [ 200, [], [ "$$ ", eval { Peregrine::Publisher->of_server->publish(news => 'x') } // $@ ] ] };
PERL
write_file('keys.pl', <<'PERL');
use Future::AsyncAwait;
async sub {
    my ($scope, $receive, $send) = @_;
    die "no lifespan\n" if $scope->{type} eq 'lifespan';
    my $body = join ' ', $$, grep { /channel|topic/ } sort keys %$scope;
    await $send->({ type => 'http.response.start', status => 200, headers => [] });
    await $send->({ type => 'http.response.body', body => $body });
};
PERL

my $dir   = directory();
my $place = qr/[0-9a-f]{12}\.\d+\.[0-9a-f]{12}/;
my %says  = (
    '/'     => qr/ pagi\.channel pagi\.channels pagi\.topics\z/,
    '/in'   => qr/ $place\z/,
    '/out'  => qr/ Peregrine::Publisher: this is no process of a server with channels\n\z/,
    '/pagi' => qr/\A\d+\z/,
);

# The answer of a mount, once all of its processes are there.
sub said {
    my ($server, $path) = @_;
    my $answer = get($server->port, $path);
    return $answer->{status} == 200 ? $answer->{body} : '';
}

# How many sockets a process has in common with the master: its way to the engine, and that to the hub.
sub shared {
    my ($server, $pid) = @_;
    my %masters = descriptors($server->pid);
    my %has     = map { $_ => 1 } grep { /\Asocket:/ } values %masters;
    my %own     = descriptors($pid);
    return scalar grep { $has{$_} } values %own;
}

# The look at the own descriptors opens one more.
my %its = descriptors($$);
is_deeply [ grep { !defined } values %its ], [], 'descriptors that are closed meanwhile are left out';

for my $more (only_in_full([]), ['--preload-app']) {
    subtest "workers @$more" => sub {
        my $server = TestServer->command_of(
            'peregrine',                                       qw(--engine process --workers 1 --channels),
            @$more,                                            '--mount',
            "/=$dir/keys.pl,pagi",                             '--mount',
            "/in=$dir/said.psgi,psgi,workers=1",               '--mount',
            "/out=$dir/said.psgi,psgi,workers=1,channels=off", '--mount',
            "/pagi=$dir/keys.pl,pagi,workers=1,channels=off"
        );
        my %pid;
        for my $round ('at first', 'after HUP') {
            for my $path (sort keys %says) {
                my $said;
                my $is_new = sub {
                    $said = said($server, $path);
                    my ($pid) = $said =~ /\A(\d+)/;
                    return $pid && $pid != ($pid{$path} // 0) && ($pid{$path} = $pid);
                };
                ok wait_for($is_new), "$path serves $round";
                like $said, $says{$path}, "$path says what it has";
                is shared($server, $pid{$path}), $path =~ /out|pagi/ ? 1 : 2, "sockets of $path";
            }
            $server->signal('HUP');
        }
        is $server->stop, 0, 'the server stops';
    };
}

subtest 'what is refused' => sub {
    for my $case (
        [ 'workers=1,channels=on',           qr/setting 'channels' can only be off/ ],
        [ 'workers=1,channels=redis://host', qr/setting 'channels' can only be off/ ],
        [ 'channels=off',                    qr/setting 'channels' is for workers that only this mount has/ ],
        )
    {
        my ($settings, $why) = @$case;
        my $mount = "/x=$dir/said.psgi,psgi,$settings";
        my ($status, undef, $error) =
            TestServer->finish_of('peregrine', qw(--check --engine process --workers 1 --mount), $mount);
        isnt $status, 0, "$settings is refused";
        like $error, $why, 'and why';
    }
};

done_testing;
