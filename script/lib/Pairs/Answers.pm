# The header fields of each answer in the conversation of script/pairs, as the plain case gives them: HTTP/1.1
# over TCP from one process without options. No setting of a row may change them. HTTP/2 has these fields in
# lower case, without the fields that frame HTTP/1.1.
package Pairs::Answers;
use v5.36;
use Pairs::Table;

# Values that differ from row to row: only their form is compared.
my @VARIES = (
    qr/\Adate: \K[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT\z/i,
    # The hash of a style sheet in the policy of the page for developers, which tests in t/ check.
    qr/\Acontent-security-policy: .*'sha256-\K[^']+(?==')/i,
);

# Header fields of HTTP/1.1 only: RFC 9113 section 8.2.2; section 8.5 for Upgrade; RFC 8441 section 5 for
# Sec-WebSocket-Accept.
my %FRAMES = map { $_ => 1 } qw(connection transfer-encoding upgrade sec-websocket-accept);

my @SECURITY = (
    'x-frame-options: SAMEORIGIN',
    'x-content-type-options: nosniff',
    'x-xss-protection: 1; mode=block',
    'referrer-policy: strict-origin-when-cross-origin',
);
my $POLICY = q{default-src 'none'; style-src 'sha256-*='; base-uri 'none'; form-action 'none';}
    . q{ frame-ancestors 'none'};

# Header fields of each kind of answer, by its author: applications of PAGI, of PSGI, or the engine. `LENGTH`
# stands for the length of the content.
my %OWN = (
    pagi => {
        plain  => [ 'content-type: text/plain', 'content-length: LENGTH' ],
        stream => [ 'content-type: text/plain', 'Transfer-Encoding: chunked' ],
        events => [
            'content-type: text/event-stream',
            'cache-control: no-cache',
            'Transfer-Encoding: chunked',
            'Connection: keep-alive'
        ],
        production =>
            [ 'content-type: text/plain; charset=utf-8', 'Content-Length: LENGTH', 'Connection: close' ],
        development => [
            'content-type: text/plain; charset=utf-8',
            'cache-control: no-store',
            "content-security-policy: $POLICY",
            'x-content-type-options: nosniff',
            'Content-Length: LENGTH',
            'Connection: close',
        ],
        handshake => [
            'Upgrade: websocket',
            'Sec-WebSocket-Accept: CSRGhLI2sxCKdT82Fm2+5GeBUiQ=',
            'Connection: Upgrade'
        ],
    },
    psgi => {
        plain       => [ 'Content-Type: text/plain',                'Content-Length: LENGTH' ],
        stream      => [ 'Content-Type: text/plain',                'Transfer-Encoding: chunked' ],
        events      => [ 'Content-Type: text/event-stream',         'Transfer-Encoding: chunked' ],
        production  => [ 'Content-Type: text/plain',                'Content-Length: LENGTH' ],
        development => [ 'Content-Type: text/plain; charset=utf-8', 'Content-Length: LENGTH' ],
        handshake   => [ 'Content-Type: text/plain',                'Content-Length: LENGTH' ],
    },
    engine => { refusal => [ 'Content-Type: text/plain', 'Content-Length: LENGTH', 'Connection: close' ] },
);

# The difference of an answer's fields from the plain case, in words; undef if there is none. `kind`: the
# answer's author, a key of %OWN (pagi, psgi or engine); `sort`: a key of that author's answers. The order of
# fields of different names has no meaning (RFC 9110 section 5.3).
sub difference ($row, $kind, $sort, $answer) {
    my $is_h2    = Pairs::Table::is_h2($row);
    my @expected = _expected($row, $kind, $sort, length($answer->{body} // ''));
    @expected = map { _in_h2($_) } @expected if $is_h2;
    my %open = map { $_ => 1 } @expected;
    my %known;
    my @more  = grep { !delete $open{$_} } map { _steady($_) } @{ $answer->{lines} };
    my @wrong = ((map { "'$_' is too much" } @more), map { "'$_' is missing" } sort keys %open);
    return @wrong ? join ', ', @wrong : undef;
}

sub _expected ($row, $kind, $sort, $length) {
    my @fields = map { s/LENGTH/$length/r } @{ $OWN{$kind}{$sort} // die "no answer '$sort' of $kind\n" };
    push @fields, @SECURITY
        if $kind eq 'pagi' && $row->{app} eq 'middleware' && $sort =~ /\A(?:plain|stream|events)\z/;
    push @fields, 'vary: Accept-Encoding'
        if $row->{compress} eq 'on'
        && ($sort eq 'stream'
        || $length >= 1024 && ($sort eq 'plain' || "$kind $sort" eq 'psgi development'));
    push @fields, 'Date: *' if $kind ne 'pagi' || $sort ne 'handshake' || Pairs::Table::is_h2($row);
    return @fields;
}

sub _in_h2 ($line) {
    my ($name, $value) = split /: /, $line, 2;
    return $FRAMES{ lc $name } ? () : lc($name) . ": $value";
}

# Puts a star for text that varies.
sub _steady ($line) {
    $line =~ s/$_/*/ for @VARIES;
    $line =~ s/\AVary:/vary:/;      # one middleware writes it so, another one so
    return $line;
}

1;
