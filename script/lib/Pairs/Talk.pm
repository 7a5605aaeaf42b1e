# The conversation that each row of script/pairs holds, step by step. The answers are compared with those of
# the plain case, byte by byte.
package Pairs::Talk;
use v5.36;
use IO::Uncompress::Gunzip qw(gunzip $GunzipError);
use Pairs::Answers;
use Pairs::Client;
use Pairs::Content;
use Pairs::Table;
use TestWebSocket;
use Time::HiRes qw(sleep time);

# The content of an error page without details.
my %FAILED = (pagi => "Internal Server Error\n", psgi => 'Internal Server Error');

# `run`: a Pairs::Run, which has the row, the place and the log, and collects findings.
sub new ($class, $run) {
    my $kind = Pairs::Table::is_psgi($run->row) ? 'psgi' : 'pagi';
    return bless { run => $run, kind => $kind }, $class;
}

sub connect ($self, %options) { return Pairs::Client->new($self->{run}->place, %options) }

# Asks on one connection as long as it lasts.
sub _ask ($self, $name, $path, %request) {
    my $client = $self->{kept};
    $client = $self->{kept} = $self->connect if !$client || !$client->goes_on;
    return $client->ask($self->{run}->prefix . $path, %request);
}

# Checks that an answer has the fields of the plain case. `sort`: see Pairs::Answers.
sub _compare ($self, $name, $sort, $answer, $kind = $self->{kind}) {
    my $difference = Pairs::Answers::difference($self->{run}->row, $kind, $sort, $answer);
    $self->{run}->found("$name: its field $difference") if defined $difference;
    return;
}

# Takes a step of the conversation: its name, the path to ask for, the expected body.
sub _says ($self, $name, $path, $body, %request) {
    my $answer = $self->_ask($name, $path, %request);
    return $self->{run}->found("$name: status $answer->{status}, not 200: " . _shown($answer->{body}))
        if $answer->{status} ne '200';
    return $self->{run}->found("$name: the answer is cut off") if !$answer->{complete};
    $self->_compare($name, $name eq 'a stream' ? 'stream' : 'plain', $answer);
    return if $answer->{body} eq $body;
    return $self->{run}->found("$name: " . _difference($answer->{body}, $body));
}

sub _shown ($text) { return substr $text =~ s/\s+/ /gr, 0, 120 }

sub _difference ($got, $wanted) {
    my ($same) = ($got ^. $wanted) =~ /\A(\0*)/;
    my $at = length $same;
    return sprintf "%d bytes in place of %d, and from %d on '%s' in place of '%s'", length $got,
        length $wanted,
        $at, map { _shown(substr "$_", $at, 20) } $got, $wanted;
}

sub hold ($self) {
    my $row    = $self->{run}->row;
    my $large  = Pairs::Content::large();
    my @pieces = Pairs::Content::pieces();
    $self->_says("hello $_",         '/hello',  "hello\n") for 1 .. 3;
    $self->_says('3 MB down',        '/large',  $large);
    $self->_says('3 MB up',          '/echo',   $large,            body   => $large);
    $self->_says('chunked',          '/echo',   join('', @pieces), pieces => \@pieces);
    $self->_says('a stream',         '/stream', join '',           @pieces);
    $self->_says("$_ in two pieces", '/echo',   'first, second',   two => [ 'first, ', 'second' ]) for 1 .. 3;
    $self->compressed;
    $self->files;
    $self->events;
    $self->websocket;
    $self->topics if Pairs::Table::has_topics($row);
    $self->held   if defined Pairs::Table::holds_at($row);
    $self->names;
    $self->_says('a program', '/child', "SIGPIPE ends it\n");
    $self->_says('alarm',     '/alarm', "alarm\n") if $row->{app} eq 'blocking';
    $self->refused;
    $self->dying;
    $self->_says('hello after all', '/hello', "hello\n");
    delete $self->{kept};
    return;
}

# A client that takes compressed content gets the same as the others.
sub compressed ($self) {
    my $run    = $self->{run};
    my %wanted = ('/large' => Pairs::Content::large(), '/stream' => join '', Pairs::Content::pieces());
    for my $path (sort keys %wanted) {
        my $answer = $self->_ask("$path, compressed", $path, fields => [ 'Accept-Encoding' => 'gzip' ]);
        my $coding = $answer->{header}{'content-encoding'} // 'off';
        my $is     = $run->row->{compress} eq 'on' ? 'gzip' : 'off';
        $run->found("$path: compression is $coding, not $is") if $coding ne $is;
        my $body = _plain($answer);
        $run->found("$path, compressed: " . _difference($body, $wanted{$path})) if $body ne $wanted{$path};
    }
    return;
}

sub _plain ($answer) {
    return $answer->{body} if ($answer->{header}{'content-encoding'} // '') ne 'gzip';
    my $body = $answer->{body};
    my $plain;
    return gunzip(\$body => \$plain) ? $plain : "no gzip: $GunzipError";
}

# Files that the engine sends by itself, or in place of the application's content.
sub files ($self) {
    my $run  = $self->{run};
    my $path = Pairs::Table::files_at($run->row, $run->prefix) // return;
    my $file = Pairs::Content::large();
    my $ask  = sub (@fields) { $self->connect->ask("$path/large", fields => \@fields) };
    my $all  = $ask->('Accept-Encoding' => 'gzip');
    $run->found("a file: status $all->{status}, " . _difference(_plain($all), $file))
        if _plain($all) ne $file;
    my $part = $ask->(Range => 'bytes=100-70099');
    $run->found("a part of a file: status $part->{status}, not 206, or other bytes")
        if $part->{status} ne '206' || $part->{body} ne substr $file, 100, 70_000;
    my $same = $ask->('If-None-Match' => $all->{header}{etag} // '');
    $run->found("a file that has not changed: status $same->{status}, not 304") if $same->{status} ne '304';
    my $none = $self->connect->ask("$path/none");
    $run->found("a file that is not there: status $none->{status}, not 404") if $none->{status} ne '404';
    return;
}

sub events ($self) {
    my @accept = (Accept => 'text/event-stream');
    for my $last (undef, 3) {
        my $text = join '', map { "id: $_\ndata: event $_\n\n" } Pairs::Content::events($last);
        delete $self->{kept};    # an EventSource reconnects
        my @fields = (@accept, $last ? ('Last-Event-ID' => $last) : ());
        my $answer = $self->_ask('events', '/events', fields => \@fields);
        # The server decides on the order of lines within an event.
        my $sorted = join "\n\n", map { join "\n", reverse sort split /\n/ } split /\n\n/, $answer->{body};
        my $wanted = $text =~ s/\n\n\z//r;
        $self->{run}->found("events: status $answer->{status}, " . _shown($answer->{body}))
            if $answer->{status} ne '200' || $sorted ne $wanted;
        $self->_compare('events', 'events', $answer);
    }
    delete $self->{kept};
    return;
}

sub websocket ($self) {
    my $run    = $self->{run};
    my $large  = substr Pairs::Content::large(), 0, 60_000;
    my $client = $self->connect;
    my @said   = $client->converse(
        $run->prefix . '/ws',
        [ TestWebSocket::TEXT,   'hello' ],
        [ TestWebSocket::BINARY, $large ],
        [ TestWebSocket::CLOSE,  pack 'n', 1000 ]
    );
    $self->_compare('the handshake of a WebSocket', 'handshake', $client->handshake);
    if (Pairs::Table::is_psgi($run->row)) {
        $run->found("the handshake of a WebSocket: status $said[0], not 404") if $said[0] ne '404';
        return;
    }
    my @wanted = ('open', 'text hello', "binary $large", 'close 1000');
    for my $at (0 .. $#wanted) {
        next if ($said[$at] // '') eq $wanted[$at];
        my ($got, $instead) = map { _shown($_ // 'nothing') } $said[$at], $wanted[$at];
        return $run->found("WebSocket: '$got' in place of '$instead'");
    }
    return;
}

# A client reads a topic while other clients publish; another client reads on from the first one's position.
sub topics ($self) {
    my $run     = $self->{run};
    my @said    = $self->_words('reads', 'publishes one', 'place', 'publishes two');
    my ($place) = ($said[3] // '') =~ /\Atext at (\S+)\z/
        or return $run->found('a topic: its position is ' . _shown($said[3] // 'nothing'));
    my @again  = $self->_words("reads $place");
    my @got    = (@said[ 0 .. 2, 4 ], @again);
    my @wanted = ('open', 'text reads', 'text one', 'text two', 'open', 'text two');
    for my $at (0 .. $#wanted) {
        next if ($got[$at] // '') eq $wanted[$at];
        my ($got, $instead) = map { _shown($_ // 'nothing') } $got[$at], $wanted[$at];
        return $run->found("a topic: '$got' in place of '$instead'");
    }
    return;
}

# Responses that the engine holds: a stream and a long poll get what other requests publish.
sub held ($self) {
    my $run    = $self->{run};
    my $path   = Pairs::Table::holds_at($run->row);
    my $stream = $self->connect;
    my $id     = $stream->send("$path/hold");
    $stream->reads_until($id, qr/: held\n\n/) or return $run->found('a held stream: it does not begin');
    my $one  = $self->connect->ask("$path/publish?one");
    my $poll = $self->connect;
    my $wait = $poll->send("$path/wait?$one->{body}");
    my $two  = $self->connect->ask("$path/publish?two");
    $run->found("publishing for held responses: status $_->{status}, " . _shown($_->{body}))
        for grep { $_->{status} ne '200' } $one, $two;
    my $answer = $poll->answer($wait);
    $run->found("a long poll: status $answer->{status}, " . _shown($answer->{body}))
        if $answer->{body} ne 'two' || ($answer->{header}{etag} // '') ne qq("$two->{body}");
    my $text   = $stream->reads_until($id, qr/data: two\n\n/) // 'it ends';
    my @events = $text =~ /^id: (\S+)\ndata: (\S+)$/mg;
    $run->found('a held stream: ' . _shown($text)) if "@events" ne "$one->{body} one $two->{body} two";
    return;
}

sub _words ($self, @texts) {
    return $self->connect->converse($self->{run}->prefix . '/ws', map { [ TestWebSocket::TEXT, $_ ] } @texts);
}

# Each mount answers with its own functions and variables.
sub names ($self) {
    my $run = $self->{run};
    return $self->_says('its name', '/name', "plain\n") if $run->row->{app} !~ /\A(?:mounts|pools)\z/;
    for my $name (qw(one two)) {
        my $answer = $self->connect->ask("/$name/name");
        $run->found("mount /$name: the answer is " . _shown($answer->{body})) if $answer->{body} ne "$name\n";
    }
    return;
}

# Sends requests that the engine has to refuse, and looks for them in the log.
sub refused ($self) {
    my $run    = $self->{run};
    my @much   = (method => 'POST', fields => [ 'Content-Length' => 900_000_000 ], open => 1);
    my $answer = $self->connect->ask($run->prefix . '/echo', @much);
    $run->found("a body of 900 MB: status $answer->{status}, not 413: " . _shown($answer->{body}))
        if $answer->{status} ne '413' || $answer->{body} ne "content too large\n";
    $self->_compare('a body of 900 MB', 'refusal', $answer, 'engine');
    $run->wait_for_log(qr/max_body_size/)
        || $run->found('a body of 900 MB: the log does not name max_body_size');
    return if Pairs::Table::is_h2($run->row);
    my $refusal = $self->connect->ask($run->prefix . '/hello', fields => [ Host => 'b' ]);
    $run->found("two fields Host: status $refusal->{status}, not 400: " . _shown($refusal->{body}))
        if $refusal->{status} ne '400' || $refusal->{body} ne "repeated Host field\n";
    $self->_compare('two fields Host', 'refusal', $refusal, 'engine');
    return;
}

# A handler that dies: the answer is 500, the connection lasts, and the log names the request.
sub dying ($self) {
    my $run    = $self->{run};
    my $path   = $run->prefix . '/die';
    my $answer = $self->_ask('a dying handler', '/die');
    $run->found("a dying handler: status $answer->{status}, not 500") if $answer->{status} ne '500';
    # Clients of PSGI see the exception by middleware of plackup and peregrine only.
    my $row   = $run->row;
    my $bare  = $row->{options} eq 'constructor' && Pairs::Table::is_psgi($row);
    my $shows = $answer->{body} =~ /on purpose/ ? 'development' : 'production';
    $run->found("a dying handler: its answer is that of $shows")
        if $shows ne ($bare ? 'production' : $row->{mode});
    $self->_compare('a dying handler', $shows, $answer);
    $run->found('a dying handler: its content is ' . _shown($answer->{body}))
        if $shows eq 'production' && $answer->{body} ne $FAILED{ $self->{kind} };
    $run->wait_for_log(qr/on purpose/)
        || return $run->found('a dying handler: the log does not have its message');
    # In development plackup's own middleware has caught the exception.
    return if $run->row->{mode} eq 'development' && Pairs::Table::is_psgi($run->row);
    $run->wait_for_log(qr/request [0-9]+-[0-9]+ \(.*GET \Q$path\E/s)
        || $run->found('a dying handler: the log does not name the request');
    return;
}

1;
