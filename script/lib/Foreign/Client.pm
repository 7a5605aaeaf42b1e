# Asks a server, follows the cookies that it sets, and writes down its answers. Words replace the bytes that
# depend on clocks, processes and chance; all other bytes are kept.
package Foreign::Client;
use v5.36;
use Compress::Zlib ();
use MIME::Base64   qw(decode_base64);
use TestClient;
use TestTools qw(wait_for);
use TestWebSocket;

my $FRAMING = qr/(?:date|connection|transfer-encoding)/;
my $REFUSED = qr/\A(?:$FRAMING|content-length|upgrade|sec-websocket-accept)\z/;

# `beside`: the port of another server, which the application asks.
sub new ($class, $port, $beside = undef) {
    return bless { port => $port, beside => $beside, cookies => {}, heard => [] }, $class;
}

sub heard ($self) { return join '', @{ $self->{heard} } }

sub url ($self, $path) { return "http://127.0.0.1:$self->{port}$path" }

sub get  ($self, $path, @lines) { return $self->_ask('GET',  $path, '', @lines) }
sub head ($self, $path, @lines) { return $self->_ask('HEAD', $path, '', @lines) }
sub post ($self, $path, @form)  { return $self->form('POST', $path, @form) }

sub form ($self, $method, $path, @form) {
    my @pairs;
    while (my ($name, $value) = splice @form, 0, 2) {
        push @pairs, "$name=" . $value =~ s/([^A-Za-z0-9])/sprintf '%%%02X', ord $1/ger;
    }
    return $self->_ask($method, $path, join('&', @pairs), 'Content-Type: application/x-www-form-urlencoded');
}

# Asks until an answer's body matches; of these answers only the fact that one matched is written down.
sub until ($self, $path, $pattern) {
    my $answer;
    wait_for(sub { ($answer = $self->_exchange('GET', $path, ''))->{body} =~ $pattern }, 60)
        or die "GET $path has no $pattern: $answer->{body}\n";
    push @{ $self->{heard} }, "=== until $path\n";
    return;
}

sub _ask ($self, $method, $path, $body, @lines) {
    my $answer = $self->_exchange($method, $path, $body, @lines);
    my $is_zip = grep { $_->[0] eq 'content-encoding' && $_->[1] eq 'gzip' } @{ $answer->{fields} };
    # A copy, because memGunzip() empties the string that it gets.
    my $plain =
        _plain_page($is_zip ? Compress::Zlib::memGunzip(my $copy = $answer->{body}) : $answer->{body});
    my @fields;
    for my $field (@{ $answer->{fields} }) {
        my ($name, $value) = @$field;
        next if $name =~ /\A$FRAMING\z/;
        # A body in which words replace bytes has another length.
        $value = 'ITS OWN'
            if $name eq 'content-length'
            && ($value eq length $answer->{body} || $method eq 'HEAD' && $answer->{status} >= 400);
        push @fields, "$name: $value";
    }
    $self->_note("$method $path @lines", "$answer->{status} $answer->{reason}", @fields, '', $plain);
    return;
}

sub _exchange ($self, $method, $path, $body, @lines) {
    push @lines, 'Cookie: ' . join '; ', map { "$_=$self->{cookies}{$_}" } sort keys %{ $self->{cookies} }
        if %{ $self->{cookies} };
    push @lines, 'Content-Length: ' . length $body if $method !~ /\A(?:GET|HEAD)\z/;
    my $answer =
        TestClient->new($self->{port})
        ->send(join "\r\n", "$method $path HTTP/1.1", 'Host: app.example:3000', @lines, '', $body)
        ->response(head => $method eq 'HEAD');
    die "no answer to $method $path\n" if !$answer || !$answer->{complete};
    for my $field (@{ $answer->{fields} }) {
        $self->{cookies}{$1} = $2 if $field->[0] eq 'set-cookie' && $field->[1] =~ /\A([^=]+)=([^;]*)/;
    }
    return $answer;
}

sub websocket ($self, $path) {
    my $socket = TestWebSocket->start($self->{port}, $path);
    my $answer = $socket->answer or die "no answer to the handshake for $path\n";
    # Mojolicious' daemon answers a refused handshake with headers that it had prepared for an accepted one.
    my $skipped = $answer->{status} == 101 ? qr/\Adate\z/ : $REFUSED;
    my @fields  = map { "$_->[0]: $_->[1]" }
        sort { $a->[0] cmp $b->[0] } grep { $_->[0] !~ $skipped } @{ $answer->{fields} };
    $self->_note("WebSocket $path", $answer->{status}, @fields, '', _plain_page($answer->{body}));
    return $socket;
}

sub hear ($self, $socket) {
    $self->_note('message', $socket->answer->{status} == 101 ? $socket->next : 'none');
    return;
}

sub _note ($self, $title, @lines) {
    push @{ $self->{heard} }, '=== ' . $self->_plain($title) . "\n", map { $self->_plain($_) . "\n" } @lines;
    return;
}

sub _plain ($self, $text) {
    $text =~ s/\b127\.0\.0\.1:$self->{port}\b/127.0.0.1:PORT/g;
    $text =~ s/\b127\.0\.0\.1:$self->{beside}\b/127.0.0.1:BESIDE/g if $self->{beside};
    $text =~ s/(\Qmojolicious=\E)([^;]*?)--[0-9a-f]{40,64}/$1 . _session($2)/ge;
    $text =~ s/(expires=)[^;]* GMT/$1TIME/g;
    $text =~ s/\b1[0-9]{9}(?:\.[0-9]+)?\b/TIME/g;
    $text =~ s/\b[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(?:\.[0-9]+)?Z/TIME/g;
    # Times and durations of jobs and workers in Minion's pages.
    $text =~ s/("uptime":)"?[0-9.]+"?/$1DURATION/g;
    $text =~ s/\b0\.[0-9]{6,}\b/DURATION/g;
    $text =~ s/^( *(?:pid|repair_interval): )[0-9]+$/$1NUMBER/mg;
    $text =~ s{<td>[0-9]+</td>(?=\s*<td class="from-now">)}{<td>NUMBER</td>}g;
    return $text;
}

# Mojolicious' page for developers shows a request's id, the functions that called the application (here
# without the server's, and without the package that a loaded script gets), the program and its log, of which
# only the lines about this request are kept.
sub _plain_page ($text) {
    my ($name) = $text =~ /<!-- Request ID: (\S+) -->/ or return $text;
    $text =~ s/\Q$name\E/REQUEST/g;
    $text =~ s/Mojo::Server::Sandbox::[0-9a-f]+/main/g;
    my $frame = qr{\s*<tr>\s*<td\ class="value">\s*<pre>File\ "[^"]*",\ line\ \d+,\ in\ "([^"]*)"</pre>
        \s*</td>\s*</tr>}x;
    my @packages;
    $text =~ s{$frame}{push @packages, $1; ''}ge;
    # The last frame is the program's.
    pop @packages;
    $text .= join ' ', 'called by', grep { /\A(?:main|Mojolicious(?!::Command)::.*)\z/ } @packages;
    $text =~
        s{(<td class="key text-right">(?:Name|PID|Time):</td>\s*<td class="value"><pre>)[^<]*}{$1ITS OWN}g;
    $text =~ s{(<code class="nohighlight">)(.*?)(</code>)}{$1 . _plain_log($2) . $3}se;
    return $text;
}

sub _plain_log ($text) {
    my @lines = grep { /\[REQUEST\]/ } split /\n/, $text;
    return join "\n", map { s/\A\[[^]]*\] \[\d+\]//r =~ s/Rendering cached/Rendering/r } @lines;
}

# The text of a session cookie.
sub _session ($value) {
    return decode_base64($value =~ s/-/=/gr) =~ s/\s+\z//r;
}

1;
