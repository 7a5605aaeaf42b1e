# An application in $send keeps its own $@, whatever the server calls meanwhile.
use strict;
use warnings;

use lib 't/lib';
use Future::AsyncAwait;
use Test::More;
use TestClient qw(get);
use TestServer;

package Bomb {
    require Tie::Hash;
    our @ISA = ('Tie::StdHash');
    sub FETCH { die "not to be read\n" }
}
tie my %bomb, 'Bomb';
$bomb{type} = 'http.response.start';

sub shown {
    my ($error) = @_;
    return defined $error ? ref $error || "'$error'" =~ s/\s//gr : 'undef';
}

# The value of $@ before an event is sent, and the event.
my %errors = (
    'a text' => sub {
        eval { die "mine;\n" }
    },
    'an object' => sub {
        eval { die bless [], 'Mine' }
    },
    'none' => sub {
        eval { 1 }
    },
    'undef' => sub { undef $@ },
    'false' => sub { $@ = 0 },
);
my %events = (
    'one that fails'           => { type => 'unknown' },
    'one that does not'        => { type => 'http.response.start', status => 200, headers => [] },
    'one whose reading dies'   => \%bomb,
    'one that is wrong'        => { type => 'http.response.start', status => 'x' },
    'one that is no reference' => 'text',
);

async sub app {
    my ($scope, $receive, $send) = @_;
    die "no lifespan\n" if $scope->{type} ne 'http';
    my ($error, $event) = map { s/%20/ /gr } split /;/, $scope->{query_string};
    $errors{$error}->();
    my $before = shown($@);
    my $sent   = $send->($events{$event});
    my $after  = shown($@);
    $sent->failure;
    await $send->({ type => 'http.response.start', status => 200, headers => [] })
        if $event ne 'one that does not';
    await $send->({ type => 'http.response.body', body => "$before $after" });
    return;
}

my $server = TestServer->start(app => \&app, validate_events => 1, access_log => undef);
for my $error (sort keys %errors) {
    for my $event (sort keys %events) {
        my $target = '/?' . "$error;$event" =~ s/ /%20/gr;
        my ($before, $after) = split ' ', get($server->port, $target)->{body}, 2;
        is($after, $before, "$error before $event");
    }
}
is($server->stop, 0, 'the server ends well');

done_testing;
