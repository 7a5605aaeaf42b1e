# Workers that accept at the same sockets get as many connections each.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use List::Util qw(max min sum);
use OnlyInFull qw(only_in_full);
use Test::More;
use TestClient;
use TestServer;
use TestTools qw(wait_for);

my $folder = File::Temp->newdir;
my $file   = "$folder/app.pl";
open my $handle, '>', $file or die $!;
print {$handle} <<'APPLICATION';
use strict;
use warnings;
use Future::AsyncAwait;
async sub {
    my ($scope, $receive, $send) = @_;
    die "HTTP only\n" if $scope->{type} ne 'http';
    await $send->({ type => 'http.response.start', status => 200, headers => [] });
    await $send->({ type => 'http.response.body', body => "$$" });
};
APPLICATION
close $handle or die $!;

# Clients that connect at once.
my $at_once = 50;

# How many of these connections each process has, and a client for each connection. Those of a group ask when
# all of them are there.
sub connected {
    my ($server, $count) = @_;
    my (%count, @clients);
    while (my $more = min($at_once, $count - @clients)) {
        my @group = map { TestClient->new($server->port) } 1 .. $more;
        $_->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n") for @group;
        $count{ ($_->response || {})->{body} // 'nobody' }++ for @group;
        push @clients, @group;
    }
    return \%count, @clients;
}

sub share_of_most {
    my ($count, $workers) = @_;
    return max(values %$count) * $workers / sum(values %$count);
}

# Connects until the new connections, with the existing ones (`before`), are spread evenly. A worker that
# gets no processor on a busy machine loses its share to others, and gets more of the next ones.
sub evenly_connected {
    my ($server, $count, $title, %before) = @_;
    my ($first, @clients) = connected($server, $count);
    my %all = %before;
    $all{$_} += $first->{$_} for keys %$first;
    for (1 .. 20) {
        last if share_of_most(\%all, 4) <= 1.3;
        my ($next, @more) = connected($server, $at_once);
        $all{$_} += $next->{$_} for keys %$next;
        push @clients, @more;
    }
    ok(!$all{nobody}, "$title: each was answered");
    cmp_ok(share_of_most(\%all, 4), '<=', 1.3, '... and no worker has more than 1.3 times its share')
        or diag(join ' ', map { "$_: $all{$_}" } sort keys %all);
    return \%all, @clients;
}

for my $way (only_in_full([]), [qw(--engine thread)], [qw(--preload-app)]) {
    subtest "four workers @$way" => sub {
        my $server =
            TestServer->command(qw(-E production --workers 4 --listener-backlog 1024 --max-connections 4000),
            @$way, $file);
        my $serving = sub { keys %{ (connected($server, 12))[0] } == 4 };
        ok(wait_for($serving, 60), 'all of them serve');
        my ($first, @kept) = evenly_connected($server, 400, '400 connections');

        # New workers have none, and the old ones with 100 each are no measure for them.
        $server->signal('HUP');
        my $replaced = sub {
            my ($now) = connected($server, 12);
            return keys %$now == 4 && !grep { $first->{$_} } keys %$now;
        };
        ok(wait_for($replaced, 60), 'after HUP others accept');
        my ($second, @new) = evenly_connected($server, 200, '200 connections');

        # A worker that died leaves no count behind, and its successor gets the connections that it lacks.
        my ($victim) = sort keys %$second;
        kill KILL => $victim;
        my $restarted = sub {
            my ($now) = connected($server, 8);
            return grep { !$second->{$_} } keys %$now;
        };
        ok(wait_for($restarted, 60), 'another one takes the place of a worker that died');
        my %has = %$second;
        delete $has{$victim};
        my (undef, @more) = evenly_connected($server, 200, '200 more', %has);
        $_->close for @kept, @new, @more;
        is($server->stop, 0, 'the server ends well');
    };
}

done_testing;
