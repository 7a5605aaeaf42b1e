# The application of PAGI for the rows about bodies and JSON: /echo sends a body back, /drop reads a body and
# forgets it, /json answers with an object, /mib.txt with a mebibyte, every other path says hello.
use strict;
use warnings;

use Cpanel::JSON::XS ();
use Future::AsyncAwait;

my $json = Cpanel::JSON::XS->new->utf8;
my $mib  = 'x' x 2**20;

async sub answer {
    my ($send, $type, $body) = @_;
    await $send->({
        type    => 'http.response.start',
        status  => 200,
        headers => [ [ 'content-type', $type ], [ 'content-length', length $body ] ],
    });
    await $send->({ type => 'http.response.body', body => $body });
    return;
}

async sub echo {
    my ($receive, $send) = @_;
    my $event = await $receive->();
    my $body  = delete $event->{body};
    while ($event->{more}) {
        $event = await $receive->();
        $body .= $event->{body};
    }
    await answer($send, 'application/octet-stream', $body);
    return;
}

async sub drop {
    my ($receive, $send) = @_;
    my $more = 1;
    while ($more) {
        my $event = await $receive->();
        $more = $event->{more};
    }
    await answer($send, 'text/plain', "Hello, World!\n");
    return;
}

my %pages = (
    '/echo'    => \&echo,
    '/drop'    => \&drop,
    '/json'    => sub { answer($_[1], 'application/json', $json->encode({ message => 'Hello, World!' })) },
    '/mib.txt' => sub { answer($_[1], 'text/plain',       $mib) },
);

sub app {
    my ($scope, $receive, $send) = @_;
    die "Unsupported scope type: $scope->{type}\n" if $scope->{type} ne 'http';
    my $page = $pages{ $scope->{path} };
    return $page ? $page->($receive, $send) : answer($send, 'text/plain', "Hello, World!\n");
}

\&app;
