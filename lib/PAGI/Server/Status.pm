package PAGI::Server::Status;

use strict;
use warnings;

our $VERSION = '0.003000';

use Carp        qw(croak);
use Digest::SHA qw(sha256_base64);
use Future::AsyncAwait;
use JSON::PP ();
use PAGI::Server::Answer;
use PAGI::Server::Status::Prometheus;
use Peregrine;
use Peregrine::Counters;
use POSIX       ();
use Time::HiRes ();

# Seconds after which a process whose event loop has not run counts as stuck.
use constant STUCK_S => 10;

my $JSON = JSON::PP->new->canonical->ascii;
my $PAGE = __FILE__ =~ s/\.pm\z/\/page.html/r;

use constant TEXT => 'text/plain; charset=utf-8';

my %PAGES = (
    '/'            => \&_page,
    '/metrics'     => \&_metrics,
    '/status.json' => sub { return (200, 'application/json', $JSON->encode($_[0]->facts) . "\n") },
    '/healthz'     => sub { return (200, TEXT,               "ok\n") },
    '/readyz'      => \&_readyz,
);

sub new {
    my ($class, %args) = @_;
    croak 'PAGI::Server::Status: counters must be a Peregrine::Counters' if !ref $args{counters};
    my %names = map { lc() => 1 } 'localhost', @{ $args{hosts} || [] };
    return bless {
        counters => $args{counters},
        is_ready => $args{is_ready} || sub { 1 },
        joins    => $args{joins},
        pool     => $args{pool},
        mounts   => $args{mounts},
        channels => $args{channels},
        $args{certificates} ? (certificates => $args{certificates}) : (),
        $args{hosts}        ? (names        => \%names)             : (),
    }, $class;
}

sub to_app {
    my ($self) = @_;
    return async sub {
        my ($scope, $receive, $send) = @_;
        die "Unsupported scope type: $scope->{type}\n" if $scope->{type} ne 'http';
        my ($status, $type, $body, @more) = $self->_answer($scope);
        my @headers = (
            [ 'content-type',           $type ],
            [ 'content-length',         length $body ],
            [ 'cache-control',          'no-store' ],
            [ 'x-content-type-options', 'nosniff' ],
        );
        return await PAGI::Server::Answer::whole($scope, $send, $status, [ @headers, @more ], $body);
    };
}

sub _answer {
    my ($self, $scope) = @_;
    my $path   = $scope->{path};
    my $method = $PAGES{$path};
    my $name   = $self->_strange_name($scope);
    return (421, TEXT, "The status is not asked for as $name: use its address, or name it in status_hosts.\n")
        if defined $name;
    # The page is mounted elsewhere, and was asked for without the slash to which its requests are relative.
    return (308, TEXT, "see $scope->{root_path}/\n", [ 'location', "$scope->{root_path}/" ])
        if $path eq '' && length($scope->{root_path} // '');
    return (404, TEXT, "There is /, /metrics, /status.json, /healthz and /readyz.\n") if !$method;
    return (405, TEXT, "Only GET and HEAD.\n", [ 'allow', 'GET, HEAD' ])
        if $scope->{method} !~ /\A(?:GET|HEAD)\z/;
    return $self->$method;
}

# A name in the request's Host field that belongs to no address of the status. By such a name another site,
# whose owner chooses its address, may have led a browser here. Browsers use no Unix sockets, and always send
# a name.
sub _strange_name {
    my ($self, $scope) = @_;
    my $names  = $self->{names} or return;
    my $server = $scope->{server};
    return if $server && !defined $server->[1];
    my ($host) = map { $_->[1] } grep { $_->[0] eq 'host' } @{ $scope->{headers} };
    return if !length($host // '');
    my $name = lc $host =~ s/:[0-9]*\z//r;
    return if $names->{$name} || $name =~ /\A(?:[0-9]{1,3}(?:\.[0-9]{1,3}){3}|\[[0-9a-f:.]+\])\z/;
    return $name =~ s/[^\w.-]/?/gr;
}

# ---- Pages --------------------------------------------------------------------------------------

sub _metrics {
    my ($self) = @_;
    return (200, PAGI::Server::Status::Prometheus::TYPE,
        PAGI::Server::Status::Prometheus::text($self->facts));
}

sub _readyz {
    my ($self) = @_;
    my $problem = $self->_problem;
    return defined $problem ? (503, TEXT, "$problem\n", [ 'retry-after', 1 ]) : (200, TEXT, "ready\n");
}

# The reason why no request would be served now, or nothing.
sub _problem {
    my ($self) = @_;
    return 'the server stops' if !$self->{is_ready}->();
    my $facts     = $self->_counted;            # a hub that hangs must not delay the answer
    my @processes = @{ $facts->{processes} };
    return 'no process serves'      if !@processes;
    return 'every process is stuck' if !grep { !$_->{stuck} } @processes;
    return                          if !$self->{joins};
    my $workers = $facts->{total}{interpreters};
    return if $workers->{idle} || $workers->{busy};
    return $workers->{stuck} ? 'every worker is stuck' : 'no worker serves';
}

my $HTML;    # the page and its policy, once it is asked for

sub _page {
    $HTML //= _read_page();
    return (200, 'text/html; charset=utf-8', $HTML->{text}, [ 'content-security-policy', $HTML->{policy} ]);
}

sub _read_page {
    open my $in, '<:raw', $PAGE or die "PAGI::Server::Status: $PAGE: $!\n";
    my $text = do { local $/; <$in> };
    my %hash = map { $_ => "'sha256-" . sha256_base64($text =~ m{<$_>(.*?)</$_>}s ? $1 : '') . "='" }
        qw(style script);
    return {
        text   => $text,
        policy => "default-src 'none'; style-src $hash{style}; script-src $hash{script}; connect-src 'self';"
            . " base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    };
}

# ---- Facts --------------------------------------------------------------------------------------

sub facts {
    my ($self) = @_;
    my $channels = $self->{channels} ? _counts_of($self->{channels}) : undef;
    return {
        %{ $self->_counted },
        pool         => $self->{pool} ? $self->{pool}->facts : undef,
        mounts       => [ $self->{mounts} ? $self->{mounts}->facts : () ],
        channels     => $channels,
        hub          => $self->{channels} ? ($channels ? JSON::PP::true : JSON::PP::false) : undef,
        certificates => [ map { _certificate($_) } $self->{certificates} ? $self->{certificates}->all : () ],
    };
}

# Counts of the hub; undef while there is no hub.
sub _counts_of {
    my ($channels) = @_;
    return eval { $channels->counts } // ($@ =~ /\A(?:Un(?:available|known)|TooMany)$/ ? undef : die $@);
}

# Facts in memory that processes share: no process is asked.
sub _counted {
    my ($self) = @_;
    my $read   = $self->{counters}->read;
    my $now    = Time::HiRes::time;
    return {
        version   => Peregrine::engine_version(),
        time      => $now,
        restarts  => $read->{restarts},
        total     => _families($read->{sum}),
        processes => [ map { _process($_, $now) } @{ $read->{processes} } ],
    };
}

# Facts of a certificate; unknown times are undef.
sub _certificate {
    my ($facts) = @_;
    return {
        %{$facts}{qw(names failures renewals failed)},
        expires => $facts->{to}      || undef,
        attempt => $facts->{attempt} || undef,
        next    => $facts->{due}     || undef,
        problem => length $facts->{problem} ? $facts->{problem} : undef,
    };
}

sub _process {
    my ($process, $now) = @_;
    my $silent = $now - $process->{beat};
    $silent = 0 if $silent < 0;
    return {
        pid      => $process->{pid},
        since    => $process->{since},
        silent   => 0 + sprintf('%.3f', $silent),
        stuck    => $silent > STUCK_S ? JSON::PP::true : JSON::PP::false,
        resident => Peregrine::resident_bytes($process->{pid}),
        worked   => _worked($process->{pid}),
        counted  => _families($process->{words}),
    };
}

# Seconds for which all threads of a process have had a processor; undef without /proc.
sub _worked {
    my ($pid) = @_;
    open my $in, '<', "/proc/$pid/stat" or return;
    # The name of the program, in parentheses, may have any characters.
    my @words = split ' ', (readline($in) // '') =~ s/\A.*\)//sr;
    return @words > 12 ? ($words[11] + $words[12]) / POSIX::sysconf(POSIX::_SC_CLK_TCK()) : undef;
}

# The counters by name: a number, a hash of numbers by their labels, or a histogram.
sub _families {
    my ($values) = @_;
    my @words = Peregrine::Counters->words;
    my %families;
    for my $at (0 .. $#words) {
        my ($name, $label, $value, $kind) = @{ $words[$at] }{qw(name label value kind)};
        if    ($kind eq 'bucket') { push @{ $families{$name}{buckets} }, [ $value, $values->[$at] ] }
        elsif ($kind eq 'sum')    { $families{$name}{seconds} = $values->[$at] / 1_000_000 }
        elsif (length $label)     { $families{$name}{$value} = $values->[$at] }
        else                      { $families{$name} = $values->[$at] }
    }
    return \%families;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Status - an application that shows what a server is at

=head1 SYNOPSIS

    my $status = PAGI::Server::Status->new(counters => $counters);
    my $app    = $status->to_app;

=head1 DESCRIPTION

A PAGI application with

=over

=item C</>

a page that shows processes, rates and times as pictures and looks again every second; it needs nothing from
elsewhere, and its Content-Security-Policy allows nothing

=item C</metrics>

all counters in the text format of Prometheus, summed over processes, also over those that are gone

=item C</status.json>

the same by process, for programs

=item C</healthz>

200 as long as somebody answers

=item C</readyz>

200 if a process serves whose event loop has run in the last ten seconds, otherwise 503 with the reason.
Where interpreters join an engine (C<--engine process>, interpreters that are threads), one must be idle, or
must have done something in the last ten seconds

=back

It is what the option C<status> of L<PAGI::Server> serves. Other applications may serve it under a path of
their own, if they keep everybody out who has no business there.

=head1 METHODS

=head2 new

    my $status = PAGI::Server::Status->new(
        counters => $counters,
        is_ready => sub { 1 },
        hosts    => ['status.example.org'],
    );

C<counters> is the L<Peregrine::Counters> that the server counts in. While C<is_ready> answers false,
C</readyz> says that the server stops. C<certificates> is a L<Peregrine::Server::CertificateTable>. C<mounts>
is a L<Peregrine::Server::MountFigures>. C<pool> is a L<Peregrine::Server::WorkerPool>. C<joins>: the server's
interpreters join an engine, which counts them. With C<hosts>, requests for another name than these, an
address or C<localhost> are answered with 421, as with the option C<status_hosts>; without, the name does not
matter.

=head2 to_app

    my $app = $status->to_app;

=head2 facts

    my $facts = $status->facts;

What C</status.json> shows, as a hash reference: C<version>, C<time>, C<restarts> by reason, C<total>, and
C<processes>, each with C<pid>, C<since> (epoch seconds), C<silent> (seconds since its event loop ran),
C<stuck>, C<resident> (bytes of memory), C<worked> (seconds of processor time; both are undef where there is
no F</proc>) and C<counted>; and C<certificates> of the option C<acme>, each with C<names>, C<expires>,
C<attempt> and C<next> (epoch seconds of its end, the last attempt and the next one; undef if there is none),
C<failures> in a row, C<problem> (the reason of the last one), C<renewals> and C<failed> (how many attempts of
this server have succeeded and failed); C<hub>, whether the hub of channels answers, undef without channels;
C<channels>, undef unless it does, with its L<counts|Peregrine::Publisher/counts>; C<mounts>, empty unless
mounts have workers of their own, with what L<Peregrine::Server::MountFigures/facts> returns; and C<pool>,
undef without a worker pool, with what L<PAGI::Server::WorkerPool/stats> returns, C<calls> by what became of
them (C<done>, C<died>, C<timeout>, C<lost>, C<refused>), and C<seconds> that processes were at calls.
C<total> and C<counted> have a value for each name of L<Peregrine/counters>: a number, a hash of numbers, or
for a histogram C<buckets>, pairs of an upper bound in seconds and how many there are in that bucket alone,
and C<seconds>, their sum.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
