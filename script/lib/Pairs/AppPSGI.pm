# The PSGI application that rows of script/pairs serve: `blocking` answers at once and waits without an event
# loop, `delayed` answers later, from the event loop, and streams.
package Pairs::AppPSGI;
use v5.36;
use IO::Async::Loop ();
use Pairs::Content;
use Peregrine::Publisher;

sub app ($class, %given) {
    my %do = %{ _table($given{name}) };
    return sub ($env) {
        my $path = $env->{PATH_INFO} =~ s{\A/(?:one|two)(?=/)}{}r;
        my $type = $path eq '/events' ? 'text/event-stream' : 'text/plain';
        return _streamed($type, $given{delayed}, Pairs::Content::pieces()) if $path eq '/stream';
        return _streamed($type, $given{delayed},
            map { "id: $_\ndata: event $_\n\n" } Pairs::Content::events($env->{HTTP_LAST_EVENT_ID}))
            if $path eq '/events';
        my $held = _held($path, $env->{QUERY_STRING}, $env->{HTTP_LAST_EVENT_ID});
        return $given{delayed} ? sub ($respond) { $respond->($held) } : $held if $held;
        my $do     = $do{$path};
        my $body   = $do ? $do->($env) : "not here\n";
        my @fields = ('Content-Type' => $type, 'Content-Length' => length $body);
        my ($file) = $path =~ m{\A/sent/(\w+)\z};
        push @fields, 'X-Sendfile' => Pairs::Content::file($file) if $file;
        my $answer = [ $do || $file ? 200 : 404, \@fields, [$body] ];
        return $answer if !$given{delayed};
        return sub ($respond) {
            _later(0.005, sub { $respond->($answer) });
        };
    };
}

sub _table ($name) {
    return {
        '/hello' => sub { "hello\n" },
        '/held'  => sub { Pairs::Content::block('held') },
        '/name'  => sub { $name->() . "\n" },
        '/large' => sub { Pairs::Content::large() },
        '/fresh' => sub { Pairs::Content::fresh() },
        '/echo'  => sub ($env) { local $/; my $in = $env->{'psgi.input'}; return readline($in) // '' },
        '/who'   => sub { Pairs::Content::who() },
        '/die'   => sub { die "on purpose\n" },
        '/exit'  => sub { exit 3 },
        '/stuck' => sub { Pairs::Content::block('stuck') },
        '/child' => sub { Pairs::Content::child() },
        '/alarm' => sub { Pairs::Content::interrupted() },
    };
}

my $publisher;

# Responses that the engine holds, and paths for tests of them: /hold, /wait?POSITION, /publish?TEXT, /place.
sub _held ($path, $query, $last) {
    my $channel = 'pairs.news' . (length($query || $last // '') ? '; prev-id=' . ($query || $last) : '');
    my @holds   = ('Grip-Channel' => $channel, 'Grip-Hold');
    return [ 200, [ 'Content-Type' => 'text/event-stream', @holds, 'stream' ], [": held\n\n"] ]
        if $path eq '/hold';
    return [ 200, [ 'Content-Type' => 'text/plain', @holds, 'response' ], ["nothing\n"] ] if $path eq '/wait';
    return if $path !~ m{\A/(?:publish|place)\z};
    $publisher ||= Peregrine::Publisher->of_server;
    # Expected: for a moment there may be no hub.
    my $place = eval {
        $path eq '/place' ? $publisher->position('pairs.news') : $publisher->publish('pairs.news', $query);
    };
    return [ defined $place ? 200 : 503, [ 'Content-Type' => 'text/plain' ], [ $place // $@ ] ];
}

sub _later ($seconds, $code) {
    return IO::Async::Loop->new->watch_time(after => $seconds, code => $code);
}

# A response in pieces whose length is not known: written from the event loop, or the lines of an object.
sub _streamed ($type, $delayed, @pieces) {
    my @head = (200, [ 'Content-Type' => $type ]);
    return [ @head, Pairs::AppPSGI::Pieces->new(@pieces) ] if !$delayed;
    return sub ($respond) {
        my $writer = $respond->([@head]);
        my $next;
        $next = sub {
            if (@pieces) {
                $writer->write(shift @pieces);
                return _later(0.01, $next);
            }
            undef $next;
            $writer->close;
        };
        $next->();
    };
}

package Pairs::AppPSGI::Pieces;
sub new     ($class, @pieces) { return bless [@pieces], $class }
sub getline ($self)           { return shift @$self }
sub close   ($self)           { return }

1;
