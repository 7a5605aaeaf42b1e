package Peregrine::Acme::Client;

use strict;
use warnings;

our $VERSION = '0.003000';

use Crypt::Digest::SHA256 qw(sha256_b64u);
use Crypt::Mac::HMAC      qw(hmac_b64u);
use Crypt::Misc           qw(decode_b64u encode_b64u);
use Crypt::PK::ECC;
use HTTP::Tiny;
use JSON::PP ();
use Net::SSLeay;
use Peregrine::Acme::Problem;
use Time::HiRes qw(CLOCK_MONOTONIC clock_gettime sleep);

# Seconds for one answer of the authority, and for an order from its beginning to its certificate.
use constant { ANSWER_S => 30, ORDER_S => 300 };
# Seconds between two questions for a state, and at most, if the authority names none (RFC 8555 section
# 7.5.1).
use constant { LOOK_S => 1, LOOK_MAX_S => 30 };
# Bytes of one answer at most: a chain of certificates is the longest.
use constant ANSWER_MAX => 1 << 20;
# Tries of one request whose nonce is refused (RFC 8555 section 6.5).
use constant NONCE_TRIES => 8;
use constant PROBLEM     => 'urn:ietf:params:acme:error:';

my $JSON = JSON::PP->new->canonical->utf8;

sub new {
    my ($class, %args) = @_;
    my $self = bless { %args{qw(directory account_key contact agrees eab say)} }, $class;
    $self->{say} ||= sub { };
    $self->{key} = Crypt::PK::ECC->new(\$args{account_key});
    my %jwk = %{ $self->{key}->export_key_jwk('public', 1) };
    $self->{jwk}  = { map { $_ => $jwk{$_} } qw(crv kty x y) };
    $self->{http} = HTTP::Tiny->new(
        agent        => "Peregrine/$VERSION ",
        timeout      => ANSWER_S,
        max_size     => ANSWER_MAX,
        max_redirect => 0,
        verify_SSL   => 1,
        $args{ca_file} ? (SSL_options => { SSL_ca_file => $args{ca_file} }) : (),
    );
    return $self;
}

# A new private key on P-256, as PEM: of an account, or of a certificate.
sub new_key {
    my $key = Crypt::PK::ECC->new;
    $key->generate_key('secp256r1');
    return $key->export_key_pem('private_short');
}

# ---- One request --------------------------------------------------------------------------------

sub _problem {
    my ($self, @facts) = @_;
    die Peregrine::Acme::Problem->new(@facts);
}

sub _request {
    my ($self, $method, $url, %more) = @_;
    my ($host) = $url =~ m{\Ahttps://([^/]+)/}
        or $self->_problem(text => "the authority names '$url', which is no URL of https");
    my $answer = $self->{http}->request($method, $url, \%more);
    my $nonce  = $answer->{headers}{'replay-nonce'};
    $self->{nonce} = $nonce if defined $nonce && $nonce =~ /\A[\w-]+\z/;
    $self->_problem(text => "$host cannot be asked: " . $answer->{content} =~ s/\s+/ /gr)
        if $answer->{status} == 599;
    return $answer;
}

sub _json {
    my ($self, $answer) = @_;
    my $value = eval { $JSON->decode($answer->{content}) };    # Expected: no JSON
    return $value if ref $value eq 'HASH';
    return $self->_problem(
        text        => "the authority answers with status $answer->{status} and no JSON",
        retry_after => scalar $self->_retry_after($answer)
    );
}

# Seconds to wait by the answer's Retry-After; nothing: it has none.
sub _retry_after {
    my ($self, $answer) = @_;
    my $text = $answer->{headers}{'retry-after'} // return;
    return $text if $text =~ /\A[0-9]{1,7}\z/;
    my $time = HTTP::Tiny->_parse_http_date($text) // return;
    return $time > time ? $time - time : 0;
}

sub _directory {
    my ($self) = @_;
    return $self->{urls} ||= $self->_json($self->_answered('GET', $self->{directory}));
}

# An answer that is no problem document (RFC 7807, RFC 8555 section 6.7).
sub _answered {
    my ($self, @request) = @_;
    return $self->_checked($self->_request(@request));
}

sub _checked {
    my ($self, $answer) = @_;
    return $answer if $answer->{success};
    my $problem = eval { $JSON->decode($answer->{content}) };    # Expected: no JSON
    $problem = {} if ref $problem ne 'HASH';
    my ($type, $detail) = map { defined && !ref ? $_ : undef } @{$problem}{qw(type detail)};
    return $self->_problem(
        type   => ($type // '') =~ s/\A${\PROBLEM}//r,
        status => $answer->{status},
        text   => 'the authority refuses: '
            . ($detail // "status $answer->{status}")
            . join(
            '', map { "; $_->{detail}" } grep { ref && $_->{detail} } @{ $problem->{subproblems} || [] }
            ),
        retry_after => scalar $self->_retry_after($answer),
    );
}

sub _url {
    my ($self, $name) = @_;
    return $self->_directory->{$name} // $self->_problem(
        text => "the authority's directory has no $name: is $self->{directory} one of ACME?");
}

sub _fresh_nonce {
    my ($self) = @_;
    $self->_request(HEAD => $self->_url('newNonce')) if !defined $self->{nonce};
    return delete($self->{nonce}) // $self->_problem(text => 'the authority gives no nonce');
}

sub _signed {
    my ($self, $url, $payload) = @_;
    my %head = (
        alg   => 'ES256',
        nonce => $self->_fresh_nonce,
        url   => $url,
        defined $self->{account} ? (kid => $self->{account}) : (jwk => $self->{jwk}),
    );
    my ($protected, $body) = map { encode_b64u($_) } $JSON->encode(\%head),
        defined $payload ? $JSON->encode($payload) : '';
    my $signature = encode_b64u($self->{key}->sign_message_rfc7518("$protected.$body", 'SHA256'));
    return $JSON->encode({ protected => $protected, payload => $body, signature => $signature });
}

# A signed request; without a payload a question (POST-as-GET, RFC 8555 section 6.3).
sub _post {
    my ($self, $url, $payload, %headers) = @_;
    for my $try (1 .. NONCE_TRIES) {
        my $answer = $self->_request(
            POST    => $url,
            headers => { 'content-type' => 'application/jose+json', %headers },
            content => $self->_signed($url, $payload),
        );
        return $self->_checked($answer)
            if $answer->{success} || $try == NONCE_TRIES || $answer->{content} !~ /\Q${\PROBLEM}\EbadNonce/;
    }
    return;
}

# ---- The account (RFC 8555 section 7.3) ---------------------------------------------------------

sub _register {
    my ($self) = @_;
    return $self->{account} if defined $self->{account};
    my $url    = $self->_url('newAccount');
    my $answer = $self->_post(
        $url,
        {
            termsOfServiceAgreed => $self->{agrees} ? JSON::PP::true : JSON::PP::false,
            $self->{contact} ? (contact => [ map { "mailto:$_" } @{ $self->{contact} } ]) : (),
            $self->{eab}     ? (externalAccountBinding => $self->_binding($url))          : (),
        }
    );
    return $self->{account} = $answer->{headers}{location}
        // $self->_problem(text => 'the authority names no account');
}

# The external account binding (RFC 8555 section 7.3.4).
sub _binding {
    my ($self, $url)   = @_;
    my ($kid, $secret) = @{ $self->{eab} };
    my $protected = encode_b64u($JSON->encode({ alg => 'HS256', kid => $kid, url => $url }));
    my $payload   = encode_b64u($JSON->encode($self->{jwk}));
    return {
        protected => $protected,
        payload   => $payload,
        signature => hmac_b64u('SHA256', decode_b64u($secret), "$protected.$payload"),
    };
}

sub terms {
    my ($self) = @_;
    return ($self->_directory->{meta} || {})->{termsOfService};
}

# ---- An order (RFC 8555 section 7.4) ------------------------------------------------------------

# Orders a certificate. `key`: PEM; `challenge`: its type; `present` is called with token, content and name of
# each challenge, `remove` with token and name. Returns the chain, as PEM.
sub certificate {
    my ($self, %args) = @_;
    my $end = _clock() + ORDER_S;
    $self->_register;
    my $answer = $self->_order(@args{qw(names replaces)});
    my $url    = $answer->{headers}{location} // $self->_problem(text => 'the authority names no order');
    my $order  = $self->_json($answer);
    $self->_authorize($_, $end, \%args) for @{ $order->{authorizations} || [] };
    $order = $self->_await($url, $end, qr/\A(?:pending|processing)\z/);
    $self->_json($self->_post($order->{finalize}, { csr => encode_b64u(_request_of(@args{qw(key names)})) }))
        if $order->{status} eq 'ready';
    $order = $self->_await($url, $end, qr/\A(?:ready|processing)\z/) if $order->{status} eq 'ready';
    $self->_refused('the order', $order)                             if $order->{status} ne 'valid';
    my $chain = $self->_post($order->{certificate}, undef, accept => 'application/pem-certificate-chain');
    return $chain->{content} if $chain->{content} =~ /\A-----BEGIN CERTIFICATE-----/;
    return $self->_problem(text => 'the authority sends no chain of certificates');
}

# `replaces` is a hint. An authority that knows an order with the same hint refuses another one (409, RFC 9773
# section 5), also if the program that made the first one was killed before it had the certificate; and an
# authority that does not know the certificate may refuse it. The second order has no hint.
sub _order {
    my ($self, $names, $replaces) = @_;
    my $url   = $self->_url('newOrder');
    my %order = (identifiers => [ map { { type => 'dns', value => $_ } } @$names ]);
    return $self->_post($url, \%order) if !defined $replaces || !$self->_directory->{renewalInfo};
    my $answer = eval { $self->_post($url, { %order, replaces => $replaces }) };
    return $answer if $answer;
    my $problem = $@;
    die $problem if !ref $problem || !$problem->status || $problem->type eq 'rateLimited';
    return $self->_post($url, \%order);
}

# Asks until the status is none of `busy`.
sub _await {
    my ($self, $url, $end, $busy) = @_;
    while (1) {
        my $answer = $self->_post($url);
        my $value  = $self->_json($answer);
        return $value if ($value->{status} // '') !~ $busy;
        $self->_problem(text => "the authority is at it for longer than ${\ORDER_S} seconds")
            if _clock() > $end;
        my $wait = $self->_retry_after($answer) // LOOK_S;
        sleep($wait > LOOK_MAX_S ? LOOK_MAX_S : $wait || LOOK_S);
    }
}

# Seconds of a clock that is never set.
sub _clock { return clock_gettime(CLOCK_MONOTONIC) }

sub _refused {
    my ($self, $what, $value) = @_;
    my ($error) = grep { ref eq 'HASH' } $value->{error}, map { $_->{error} } @{ $value->{challenges} || [] };
    return $self->_problem(
        type => ($error->{type} // '') =~ s/\A${\PROBLEM}//r,
        text => "$what is $value->{status}" . (defined $error->{detail} ? ": $error->{detail}" : ''),
    );
}

sub _authorize {
    my ($self, $url, $end, $args) = @_;
    my $wanted = $self->_json($self->_post($url));
    return if $wanted->{status} eq 'valid';
    my $name = ($wanted->{identifier} || {})->{value} // '?';
    $self->_refused("the authorization for $name", $wanted) if $wanted->{status} ne 'pending';
    my $type = $args->{challenge};
    my ($challenge) = grep { ($_->{type} // '') eq $type } @{ $wanted->{challenges} || [] };
    $self->_problem(text => "the authority offers no $type for $name") if !$challenge;
    my $token = $challenge->{token} // '';
    $self->_problem(text => "the authority's token for $name is none") if $token !~ /\A[\w-]{1,200}\z/;
    $args->{present}->($token, "$token." . sha256_b64u($JSON->encode($self->{jwk})), $name);
    my $done = eval {
        $self->_post($challenge->{url}, {});
        $self->_await($url, $end, qr/\A(?:pending|processing)\z/);
    };
    my $error = $@;
    $args->{remove}->($token, $name);
    die $error                                            if !$done;
    $self->_refused("the authorization for $name", $done) if $done->{status} ne 'valid';
    return;
}

# A certificate signing request (RFC 2986), DER, with the names and nothing else.
sub _request_of {
    my ($key_pem, $names) = @_;
    my $bio = Net::SSLeay::BIO_new(Net::SSLeay::BIO_s_mem());
    Net::SSLeay::BIO_write($bio, $key_pem);
    my $key = Net::SSLeay::PEM_read_bio_PrivateKey($bio);
    Net::SSLeay::BIO_free($bio);
    my $request = Net::SSLeay::X509_REQ_new();
    my $made =
           $key
        && Net::SSLeay::X509_REQ_set_pubkey($request, $key)
        && Net::SSLeay::P_X509_REQ_add_extensions(
        $request,
        Net::SSLeay::NID_subject_alt_name() => join ',',
        map { "DNS:$_" } @$names
        )
        && Net::SSLeay::X509_REQ_set_version($request, 0)
        && Net::SSLeay::X509_REQ_sign($request, $key, Net::SSLeay::EVP_get_digestbyname('sha256'));
    my $pem = $made && Net::SSLeay::PEM_get_string_X509_REQ($request);
    Net::SSLeay::X509_REQ_free($request);
    Net::SSLeay::EVP_PKEY_free($key)                                                          if $key;
    die Peregrine::Acme::Problem->new(text => 'OpenSSL makes no certificate signing request') if !$pem;
    return decode_b64u($pem =~ s/-----[^-]+-----|\s//gr =~ tr{+/=}{-_}dr);
}

# ---- Times of renewal (RFC 9773) ----------------------------------------------------------------

# { start, end, retry_after } of a certificate by its ARI name; nothing if the authority does not tell.
sub renewal_window {
    my ($self, $name) = @_;
    my $url    = $self->_directory->{renewalInfo} // return;
    my $answer = $self->_answered(GET => "$url/$name");
    my $window = $self->_json($answer)->{suggestedWindow};
    return if ref $window ne 'HASH';
    my ($start, $end) = map { _time_of($_) } @{$window}{qw(start end)};
    return if !defined $start || !defined $end || $end < $start;
    return { start => $start, end => $end, retry_after => scalar $self->_retry_after($answer) };
}

# The time of a text by RFC 3339, in seconds since 1970; nothing: it is no time.
sub _time_of {
    my ($text) = @_;
    my ($year, $month, $day, $hour, $minute, $second, $sign, $off_hour, $off_minute) =
        ($text // '') =~
        /\A(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.\d+)?(?:[Zz]|([+-])(\d\d):(\d\d))\z/
        or return;
    require Time::Local;
    # Expected: a day that does not exist.
    my $time = eval { Time::Local::timegm_modern($second, $minute, $hour, $day, $month - 1, $year) };
    return if !defined $time;
    my $off = defined $sign ? 60 * (60 * $off_hour + $off_minute) : 0;
    return ($sign // '+') eq '+' ? $time - $off : $time + $off;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Acme::Client - orders certificates from an ACME authority

=head1 SYNOPSIS

    my $client = Peregrine::Acme::Client->new(
        directory   => 'https://acme-v02.api.letsencrypt.org/directory',
        account_key => Peregrine::Acme::Client->new_key,
        agrees      => 1,
    );
    my $key   = Peregrine::Acme::Client->new_key;
    my $chain = $client->certificate(
        names   => ['example.org'],
        key     => $key,
        challenge => 'http-01',
        present   => sub { my ($token, $content, $name) = @_; ... },
        remove    => sub { my ($token, $name) = @_; ... },
    );

=head1 DESCRIPTION

A client of RFC 8555 with the challenges C<http-01> and C<tls-alpn-01> and the windows of renewal of RFC
9773. It blocks: a request for 30 seconds at most, an order for five minutes. Nonces that are refused,
C<Retry-After> and problem documents are handled as the RFC says. What goes wrong is a
L<Peregrine::Acme::Problem>. CryptX signs, Net::SSLeay makes the request for a certificate.

=head1 METHODS

=head2 new

C<contact>: addresses of mail. C<eab>: key identifier and key in base64url (external account binding).
C<ca_file>: the authorities that the directory's own certificate is checked by, in place of the system's.

=head2 new_key

A new private key on P-256, as PEM.

=head2 certificate

Returns the chain as PEM. C<present> gets the token of a challenge, the name that it is about, and the key
authorization: for C<http-01> the content that has to be at F</.well-known/acme-challenge/TOKEN>, for
C<tls-alpn-01> that of a L<Peregrine::Acme::Validation>. C<remove> is called when the challenge is over,
however that was.
C<replaces>: the name of the certificate that is renewed (RFC 9773 section 5). An authority that refuses the
order is asked once more without it.

=head2 terms

The URL of the authority's terms of service, or undef.

=head2 renewal_window

    my $window = $client->renewal_window($certificate->{ari});

C<start> and C<end> in seconds since 1970, and perhaps the seconds of C<retry_after>; nothing if the
authority does not tell.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
