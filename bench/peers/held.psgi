# The PSGI application of responses that the engine holds: /events reads the topic "app.news", bodies that are
# posted to /publish are published there.
use strict;
use warnings;

use Peregrine::Publisher;

my @held = (
    'Content-Type'    => 'text/event-stream',
    'Grip-Hold'       => 'stream',
    'Grip-Channel'    => 'app.news',
    'Grip-Keep-Alive' => ':\n\n; format=cstring; timeout=20',
);
my $publisher;

sub {
    my ($env) = @_;
    return [ 200, [@held], ["event: open\n\n"] ] if $env->{PATH_INFO} eq '/events';
    if ($env->{PATH_INFO} eq '/publish') {
        read $env->{'psgi.input'}, my $entry, $env->{CONTENT_LENGTH};
        $publisher ||= Peregrine::Publisher->of_server;
        $publisher->publish('app.news', $entry);
    }
    return [ 200, [ 'Content-Type' => 'text/plain' ], ["Hello, World!\n"] ];
};
