package AcmeTrials;

# Trials of accidents to certificates that a server orders from pebble: script/acme makes them at length,
# t/81-acme-trials.t in small. The code that orders runs in the test's process, so that trials can set its
# clock and watch its files; `renewals` has a whole server. Load this before other modules of Peregrine::Acme.

use strict;
use warnings;
use experimental 'signatures';

our $AHEAD;    # seconds that the clock of code loaded from here on is ahead
our $STEP;     # called before and after each file changes, and each request

BEGIN {
    die "AcmeTrials: Peregrine::Acme::Store is loaded already\n" if $INC{'Peregrine/Acme/Store.pm'};
    $AHEAD = 0;
    no warnings 'once';
    *CORE::GLOBAL::time   = sub : prototype() () { CORE::time() + $AHEAD };
    *CORE::GLOBAL::rename = sub : prototype($$) ($from, $to) {
        $STEP->() if $STEP;
        my $done = CORE::rename($from, $to);
        $STEP->() if $STEP;
        return $done;
    };
    *CORE::GLOBAL::unlink = sub (@paths) {
        $STEP->() if $STEP;
        my $done = CORE::unlink(@paths);
        $STEP->() if $STEP;
        return $done;
    };
}

use Crypt::PK::ECC;
use File::Temp      ();
use IO::Handle      ();
use IO::Socket::SSL ();
use JSON::PP        qw(decode_json encode_json);
use List::Util      qw(max);
use Pebble;
use Peregrine::Acme::Keeper;
use POSIX ();
use Test::More;
use TestServer;
use TestTools   qw(content free_port wait_for);
use Time::HiRes qw(sleep);

{
    no warnings qw(prototype redefine);
    # Pebble needs less time than the authorities for which the code waits.
    *Peregrine::Acme::Client::sleep = sub ($seconds) { return Time::HiRes::sleep(0.1) };
    my %before = (sync => \&IO::Handle::sync, request => \&Peregrine::Acme::Client::_request);
    *IO::Handle::sync                  = sub { $STEP->() if $STEP; return $before{sync}->(@_) };
    *Peregrine::Acme::Client::_request = sub {
        my (undef, undef, $url) = @_;
        $STEP->() if $STEP;
        my $canned = ($AcmeTrials::ANSWER && $AcmeTrials::ANSWER->($url));
        my $answer = $canned // $before{request}->(@_);
        $STEP->() if $STEP;
        return $answer;
    };
}
our $ANSWER;    # a function that answers requests to a URL in place of the authority

use constant DAY => 86400;

# An object with a server that answers challenges, and an authority that asks it.
sub new ($class) {
    my $self = bless { dir => File::Temp->newdir, port => free_port(), tls_port => free_port() }, $class;
    chmod 0755, $self->{dir};
    for my $folder (qw(challenges validations)) {
        mkdir "$self->{dir}/$folder" or die $!;
        chmod 0777, "$self->{dir}/$folder" or die $!;
    }
    $self->{pebble} = $self->_pebble;
    chmod 0755, $self->{pebble}->roots =~ s{/[^/]+\z}{}r or die $!;
    $self->{server} = TestServer->command(
        '--listen',          "127.0.0.1:$self->{port},plain",
        '--acme-challenges', "$self->{dir}/challenges",
        'examples/pagi/hello/app.pl'
    );
    # A server whose own orders reach no authority: it answers the challenges of the trials.
    mkdir "$self->{dir}/other" or die $!;
    symlink "$self->{dir}/validations", "$self->{dir}/other/validations" or die $!;
    $self->{tls_server} = TestServer->command(
        '--listen' => "127.0.0.1:$self->{tls_port}",
        '--acme'   => 'other.example',
        '--acme-agree',
        '--acme-directory' => 'https://127.0.0.1:' . free_port() . '/dir',
        '--acme-folder'    => "$self->{dir}/other",
        'examples/pagi/hello/app.pl'
    );
    return $self;
}

sub _pebble ($self, %args) {
    return Pebble->new(http_port => $self->{port}, tls_port => $self->{tls_port}, %args);
}

# A new folder, whose challenges the server answers.
sub folder ($self, $place = "$self->{dir}/" . ++$self->{folders}) {
    -d $place or mkdir $place or die "$place: $!";
    symlink "$self->{dir}/$_", "$place/$_" or die $! for qw(challenges validations);
    return $place;
}

# The code that orders, as it is after a start; {said} lists its facts.
sub keeper ($self, $folder, %more) {
    my @said;
    my $keeper = Peregrine::Acme::Keeper->new(
        orders     => [ ['example.org'] ],
        directory  => $self->{pebble}->directory,
        ca_file    => $self->{roots} // $self->{pebble}->roots,
        folder     => $folder,
        agrees     => 1,
        challenges => $self->{challenges} // ['http-01'],
        say        => sub (%fact) { push @said, \%fact },
        %more,
    );
    $keeper->{said} = \@said;
    return $keeper;
}

# Texts of the log at a level; the number of facts of a kind.
sub texts ($keeper, $level) {
    return map { $_->{text} } grep { ($_->{level} // '') eq $level } @{ $keeper->{said} };
}

sub ordered ($keeper) {
    return scalar grep { / is ordered from / } texts($keeper, 'info');
}

sub came ($keeper) {
    return scalar grep { defined $_->{came} } @{ $keeper->{said} };
}

sub failed ($keeper) {
    return scalar grep { defined $_->{failed} } @{ $keeper->{said} };
}

sub certificate ($folder) {
    return -e "$folder/certificates/example.org.pem" && content("$folder/certificates/example.org.pem");
}

# Lets `seconds` pass for the code, which works meanwhile: in steps of its own waits, or of a hundredth if
# these are shorter.
sub live ($keeper, $seconds) {
    my $end = time + $seconds;
    while (time < $end) { $AHEAD += max($keeper->work, $seconds / 100) }
    return;
}

# The damaged files in a folder that a killed process has left.
sub damage ($folder) {
    my @damage;
    for my $path (glob "$folder/certificates/*.pem") {
        my $ctx = Net::SSLeay::CTX_new();
        Net::SSLeay::CTX_use_certificate_chain_file($ctx, $path)
            && Net::SSLeay::CTX_use_PrivateKey_file($ctx, $path, Net::SSLeay::FILETYPE_PEM())
            && Net::SSLeay::CTX_check_private_key($ctx)
            or push @damage, $path;
        Net::SSLeay::CTX_free($ctx);
    }
    eval { decode_json(content($_)); 1 } or push @damage, $_ for glob "$folder/states/*.json";
    eval { Crypt::PK::ECC->new($_);  1 } or push @damage, $_ for glob "$folder/accounts/*.pem";
    return @damage;
}

# ---- Trials -------------------------------------------------------------------------------------

# Renewals on request, one after the other, while clients come all the time, over HTTP/1 and HTTP/2.
sub renewals ($self, $count) {
    my $pebble = Pebble->new(http_port => my $plain = free_port(), nonce_reject => 20);
    my ($port, $folder) = (free_port(), "$self->{dir}/renewals");
    my $server = TestServer->command(
        '--listen',         "127.0.0.1:$plain,plain",
        '--listen',         "127.0.0.1:$port",
        '--http2',          '--acme',
        'example.org',      '--acme-agree',
        '--acme-directory', $pebble->directory,
        '--acme-ca',        $pebble->roots,
        '--acme-folder',    $folder,
        '--workers',        2,
        '--engine',         'process',
        'examples/pagi/hello/app.pl'
    );
    $server->wait_for_log(qr/has come/) or return fail 'the first certificate';
    my $store = Peregrine::Acme::Store->new($folder);
    wait_for(sub { _shake($pebble, $port) }) or return fail 'TLS is served';
    my @clients = map { _client($pebble, $port) } 1, 2;
    my $renewed = 0;

    for (1 .. $count) {
        my $before = certificate($folder);
        $store->ask('example.org');
        wait_for(sub { !$store->is_asked('example.org') }) or last;
        $renewed++ if certificate($folder) ne $before;
    }
    # Closes the pipes of all clients, because each client has copies of the earlier ones' ends.
    close $_->{stop} for @clients;
    my (%serials, @failed, $asked);
    for my $client (@clients) {
        my $seen = decode_json(readline $client->{results});
        waitpid $client->{pid}, 0;
        $asked += $seen->{asked};
        push @failed, @{ $seen->{failed} };
        @serials{ keys %{ $seen->{serials} } } = ();
    }
    is $renewed, $count, "$count renewals";
    is scalar(@failed), 0, "... and no failed handshake among $asked" or diag join "\n", @failed;
    # Clients do not connect during each certificate's time.
    cmp_ok scalar(keys %serials), '>', $count / 2, '... with certificates that change: ' . keys %serials;
    ok wait_for(sub { $count <= (() = $server->log =~ /the certificate files are loaded again/g) }),
        '... each without a signal';
    is $server->stop, 0, 'the server ends well';
    return;
}

# The serial number of the certificate that a server shows; nothing if the handshake fails.
sub _shake ($pebble, $port) {
    my $socket = IO::Socket::SSL->new(
        PeerAddr            => '127.0.0.1',
        PeerPort            => $port,
        SSL_hostname        => 'example.org',
        SSL_verifycn_name   => 'example.org',
        SSL_verifycn_scheme => 'http',
        SSL_alpn_protocols  => [ rand() < 0.5 ? 'h2' : 'http/1.1' ],
        SSL_verify_mode     => IO::Socket::SSL::SSL_VERIFY_PEER(),
        SSL_ca_file         => $pebble->roots,
        Timeout             => 30,
    ) or return;
    return Net::SSLeay::P_ASN1_INTEGER_get_hex(Net::SSLeay::X509_get_serialNumber($socket->peer_certificate));
}

sub _client ($pebble, $port) {
    pipe my $stops,   my $stop or die $!;
    pipe my $results, my $told or die $!;
    my $pid = fork // die $!;
    if ($pid) { close $_ for $stops, $told; return { pid => $pid, stop => $stop, results => $results } }
    close $_ for $stop, $results;
    my %seen = (asked => 0, failed => [], serials => {});
    vec(my $reads = '', fileno $stops, 1) = 1;
    srand $$;

    while (!select my $readable = $reads, undef, undef, 0.02) {
        $seen{asked}++;
        if (my $serial = _shake($pebble, $port)) { $seen{serials}{$serial}++ }
        else { push @{ $seen{failed} }, time . " $IO::Socket::SSL::SSL_ERROR" }
    }
    print {$told} encode_json(\%seen), "\n";
    close $told;
    POSIX::_exit(0);
}

# Kills an order at a step, the first order or a renewal, by HTTP or by TLS: the folder is whole, and the next
# start completes it. `every`: kills at each step, or at each seventh.
sub kills ($self, $every = 1) {
    for my $case (
        map {
            my $type = $_;
            map { [ $type, $_ ] } 0, 1
        } qw(http-01 tls-alpn-01)
        )
    {
        my ($type, $renewal) = @$case;
        local $self->{challenges} = [$type];
        my $steps = $self->_killed_at(0, $renewal) // return fail 'an order is not killed';
        cmp_ok $steps, '>', 30, ($renewal ? 'a renewal' : 'a first order') . " by $type has $steps steps";
        my (@damaged, @stays, $kills);
        for (my $step = 1; $step <= $steps; $step += $every) {
            my ($folder, $before, $killed) = $self->_killed_at($step, $renewal);
            $kills++ if $killed;
            push @damaged, "step $step: $_" for damage($folder);
            my $keeper = $self->keeper($folder);
            my $wait   = $keeper->work;
            push @stays, "step $step: $wait s, " . join '; ', texts($keeper, 'error')
                if (certificate($folder) || '') eq $before;
            push @damaged, "step $step, after the next start: $_" for damage($folder);
        }
        cmp_ok $kills, '>=', $steps / $every - 2, "it was killed at $kills of them";
        is_deeply \@damaged, [], '... and has left old files or new ones';
        is_deeply \@stays,   [], '... and the next start has the certificate at once';
    }
    return;
}

# Kills an order at a step. Returns the folder, the certificate before, and whether the process was killed;
# for step 0 the number of steps.
sub _killed_at ($self, $wanted, $renewal) {
    my $folder = $self->folder;
    if ($renewal) {
        $self->keeper($folder)->work;
        Peregrine::Acme::Store->new($folder)->ask('example.org');
    }
    my $before = certificate($folder) || '';
    pipe my $reads, my $told or die $!;
    my $pid = fork // die $!;
    if (!$pid) {
        my $step = 0;
        $STEP = sub { kill KILL => $$ if ++$step == $wanted };
        my $keeper = $self->keeper($folder);
        $keeper->work;
        syswrite $told, $step;
        POSIX::_exit(came($keeper) ? 0 : 1);
    }
    close $told;
    my $steps = readline $reads;
    waitpid $pid, 0;
    return $? == 0 ? $steps : undef if !$wanted;
    return ($folder, $before, $? == POSIX::SIGKILL());
}

# The authority suggests when to renew (RFC 9773), and is told which certificate the new one replaces.
sub advice ($self) {
    plan skip_all => 'this pebble gives no advice: script/conformance acme builds one'
        if !$self->{pebble}->advises;
    local $AHEAD = 0;
    my $pebble = $self->{pebble};
    my $folder = $self->folder;
    my $keeper = $self->keeper($folder);
    my $due    = sub {
        return (grep { $_->{certificate} } @{ $keeper->{said} })[-1];
    };
    $keeper->work;
    is came($keeper), 1, 'a certificate comes';
    my $first = $due->();
    my $third = $first->{to} - ($first->{to} - $first->{from}) / 3;
    cmp_ok abs($first->{due} - $third), '<=', DAY + 2, 'its renewal is due when the authority advises';
    my $window = decode_json(content("$folder/states/example.org.json"))->{window};
    cmp_ok $window->{end} - $window->{start}, '>=', 2 * DAY - 2, '... in a window of two days';
SKIP: {
        skip 'this pebble cannot be told what to advise: script/conformance acme builds one', 1
            if !$pebble->takes_advice;
        $self->other_advice($folder, $keeper, $due);
    }
    return;
}

# Suggestions that change, that are invalid, and of the past. `$due` tells of the present certificate.
sub other_advice ($self, $folder, $keeper, $due) {
    my $pebble = $self->{pebble};
    my $first  = $due->();

    # Six hours later the authority suggests another time.
    my $at = sub ($from, $to) {
        my ($start, $end) = map { POSIX::strftime('%Y-%m-%dT%H:%M:%SZ', gmtime time + $_) } $from, $to;
        return encode_json({ suggestedWindow => { start => $start, end => $end } });
    };
    $pebble->advise(certificate($folder), $at->(10 * DAY, 11 * DAY));
    live($keeper, 5 * 3600);
    is $due->()->{due}, $first->{due}, 'the authority is not asked again before its time';
    live($keeper, 2 * 3600);
    cmp_ok $due->()->{due} - CORE::time(), '<', 11 * DAY + 10, '... but then';
    cmp_ok $due->()->{due} - CORE::time(), '>', 10 * DAY - 10, '... and what it says counts';
    for my $nonsense (
        '{', '{}',
        '{"suggestedWindow":{"start":"soon","end":"2026-13-40T00:00:00Z"}}',
        $at->(9, 3)
        )
    {
        my $before = $due->()->{due};
        $pebble->advise(certificate($folder), $nonsense);
        live($keeper, 7 * 3600);
        is $due->()->{due}, $before, "an answer that is none changes nothing: $nonsense";
    }
    is came($keeper), 1, '... and orders nothing';

    $pebble->advise(certificate($folder), $at->(-3600, -1800));
    my $old = certificate($folder);
    live($keeper, 7 * 3600);
    is came($keeper),          2,    'a window of the past: it is renewed at once';
    isnt certificate($folder), $old, '... by another one';
    like $pebble->log, qr/ARI: order "\S+" is a replacement of /,
        '... which replaces it, as the authority knows';

    # The state after an order that was killed when the authority had issued the certificate.
    $keeper->work;
    my $newest = certificate($folder);
    my $store  = Peregrine::Acme::Store->new($folder);
    my ($chain, $key) = $old =~ /\A(.*-----END CERTIFICATE-----\n)(.*)\z/s;
    $store->keep_certificate('example.org', $chain, $key);
    $AHEAD = 0;
    $pebble->advise($old, $at->(10 * DAY, 11 * DAY));
    $keeper = $self->keeper($folder);
    $keeper->work;
    $store->ask('example.org');
    $keeper->work;
    is came($keeper), 1, 'a certificate that was replaced before is renewed all the same'
        or diag join "\n", texts($keeper, 'error');
    is ordered($keeper), 1, '... in one attempt';
    ok certificate($folder) ne $old && certificate($folder) ne $newest, '... by a new one';
    return;
}

# The authority cannot reach one port: the other one is tried, and from then on tried first.
sub fallback ($self) {
    local $AHEAD = 0;
    my $pebble = Pebble->new(http_port => free_port(), tls_port => $self->{tls_port});
    local $self->{pebble}     = $pebble;
    local $self->{challenges} = [ 'http-01', 'tls-alpn-01' ];
    my $folder = $self->folder;
    my $keeper = $self->keeper($folder);
    $keeper->work;
    is failed($keeper), 1, 'port 80 is closed to the authority';
    like + (texts($keeper, 'error'))[0],
        qr/is invalid: .*; the next attempt is in \d+ seconds and by tls-alpn-01/,
        '... and the log says what is done';
    live($keeper, 300);
    is came($keeper),   1, 'the next attempt, by TLS, has a certificate';
    is failed($keeper), 1, '... at once';
    $keeper = $self->keeper($folder);
    Peregrine::Acme::Store->new($folder)->ask('example.org');
    $keeper->work;
    is came($keeper),   1, 'a renewal is by TLS';
    is failed($keeper), 0, '... from the beginning';
    return;
}

sub _away { die Peregrine::Acme::Problem->new(text => 'nobody answers') }

# The clock is set: forward beyond the time of renewal, back, and back after it was wrong by years.
sub clock ($self) {
    local $AHEAD = 0;
    my $folder = $self->folder;
    my $keeper = $self->keeper($folder);
    $keeper->work;
    is came($keeper), 1, 'a certificate comes';
    my ($fact) = grep { $_->{certificate} } reverse @{ $keeper->{said} };
    $AHEAD = $fact->{due} - time + 10;
    $keeper->work;
    is came($keeper), 2, 'the clock is beyond the time of renewal: there is a new one';
    $AHEAD = -400 * DAY;
    live($keeper, 3600);
    is ordered($keeper), 2, 'the clock is a year behind: nothing is ordered again';
    $AHEAD = 0;
    live($keeper, 3600);
    is ordered($keeper), 2, '... nor when it is right again';

    my $wrong = $self->folder;
    local $ANSWER = \&_away;
    $AHEAD  = 12 * 365 * DAY;
    $keeper = $self->keeper($wrong);
    live($keeper, 3 * DAY);
    cmp_ok failed($keeper), '>', 3, 'the clock is ahead by years, and nobody answers';
    $ANSWER = undef;
    $AHEAD  = 0;
    $keeper->work;
    is came($keeper), 1, 'the clock is right again: no wait of those years is kept';
    return;
}

# The authority is away for days: there are few attempts, the old certificate stays, and a later attempt gets
# a new one.
sub away ($self) {
    local $AHEAD = 0;
    my $pebble = $self->_pebble(validity => 40 * DAY);
    local $self->{pebble} = $pebble;
    my $folder = $self->folder;
    my $keeper = $self->keeper($folder);
    $keeper->work;
    my $old = certificate($folder);
    local $ANSWER = \&_away;
    # Nothing is due in two thirds of the certificate's time. Attempts come a day apart in the end.
    $AHEAD += 26 * DAY;
    live($keeper, 1 * DAY) for 27 .. 29;
    live($keeper, 9 * DAY);
    cmp_ok failed($keeper), '>', 10, 'the authority is away when a certificate is due: it is asked again';
    cmp_ok failed($keeper), '<', 30, '... a few times, and then once a day';
    is certificate($folder), $old, 'the old certificate stays';
    # After an attempt the next one is a day away.
    my $failed = failed($keeper);
    for (1 .. 100) {
        last if failed($keeper) > $failed;
        $AHEAD += 1800;
        $keeper->work;
    }
    $keeper = $self->keeper($folder);
    live($keeper, 600);
    is failed($keeper), 0, 'a restart does not forget to wait';
    for (1 .. 200) {
        $AHEAD += 0.4 * DAY;
        $keeper->work;
    }
    cmp_ok failed($keeper), '>', 60, 'after two lifetimes it is still asked';
    like + (texts($keeper, 'error'))[-1],
        qr/nobody answers; the old one stays until .*; the next attempt is in/,
        '... and the log says why';
    $ANSWER = undef;
    live($keeper, 2 * DAY);
    cmp_ok came($keeper), '>=', 1, 'the authority is back: there is a new certificate';
    # Pebble's clock is the machine's, so its certificates have expired months ago.
    cmp_ok came($keeper), '<', 20, '... and no order at each look, though it should be renewed at once';
    like + (texts($keeper, 'error'))[-1], qr/should be renewed at once: is the clock right\?/,
        '... which is told';
    isnt certificate($folder), $old, '... in place of the old one';
    return;
}

# The authority refuses further orders, and says for how long.
sub rate_limit ($self) {
    local $AHEAD = 0;
    my $folder = $self->folder;
    my $asked  = 0;
    local $ANSWER = sub ($url) {
        return if $url !~ /order-plz/;
        $asked++;
        return {
            status  => 429,
            success => '',
            headers => { 'retry-after' => 5 * 3600 },
            content => encode_json({
                type   => 'urn:ietf:params:acme:error:rateLimited',
                detail => 'too many certificates for these names'
            }),
        };
    };
    my $keeper = $self->keeper($folder);
    live($keeper, 4 * 3600);
    is $asked, 1, 'an authority that has had enough is asked once';
    like + (texts($keeper, 'error'))[0], qr/too many certificates .*; the next attempt is in [45] hours/,
        '... and the log says so';
    live($keeper = $self->keeper($folder), 1800);
    is $asked, 1, '... and not again after a restart';
    $ANSWER = undef;
    live($keeper, 3600);
    is came($keeper), 1, '... but when the time is over';
    return;
}

# A request for a renewal is removed after the state tells how the attempt has ended, because `peregrine
# renew` reads the state then.
sub asked ($self) {
    my $folder = $self->folder;
    my $store  = Peregrine::Acme::Store->new($folder);
    my $keeper = $self->keeper($folder);
    my $answer = \&Peregrine::Acme::Store::answer;
    my @failures;
    no warnings 'redefine';
    local *Peregrine::Acme::Store::answer = sub ($of, $name) {
        push @failures, $of->state($name)->{failures} // 0;
        return $answer->($of, $name);
    };
    for my $away (0, 1, 0) {
        local $ANSWER = $away ? \&_away : undef;
        $store->ask('example.org');
        $keeper->work;
        ok !$store->is_asked('example.org'), $away ? 'an attempt that fails is an answer' : 'a renewal is';
    }
    is "@failures", '0 1 0', '... which comes when the state has the outcome';
    $self->asked_late;
    return;
}

# A request that comes during an order which was due is for the next order.
sub asked_late ($self) {
    my $folder = $self->folder;
    my $store  = Peregrine::Acme::Store->new($folder);
    my $keeper = $self->keeper($folder);
    {
        local $ANSWER = sub ($url) { $store->ask('example.org') if $url =~ /order-plz/; return };
        $keeper->work;
    }
    is ordered($keeper), 1, 'a first certificate is ordered';
    ok $store->is_asked('example.org'), '... which is no answer to a request that has come meanwhile';
    $keeper->work;
    is ordered($keeper), 2, '... but the next one';
    ok !$store->is_asked('example.org'), '... is';
    return;
}

# The disk is full before an order, and during one. Needs root, for a small file system.
sub disk_full ($self) {
    local $AHEAD = 0;
    my $place = "$self->{dir}/small";
    mkdir $place or die $!;
    system('mount', '-t', 'tmpfs', '-o', 'size=128k', 'tmpfs', $place) == 0
        or plan skip_all => 'no file system can be mounted';
    my $done  = eval { $self->_fill($self->folder("$place/acme"), "$place/filler"); 1 };
    my $error = $@;
    system('umount', $place) == 0 or diag 'umount failed';
    return $done || die $error;
}

sub _fill ($self, $folder, $filler) {
    my $fill = sub {
        open my $out, '>', $filler or die $!;
        1 while syswrite $out, 'x' x 1024;
    };
    my $keeper = $self->keeper($folder);
    $fill->();
    live($keeper, 3 * 3600);
    is ordered($keeper), 0, 'the disk is full: nothing is ordered that could not be kept';
    cmp_ok failed($keeper), '>', 3, '... it is tried again';
    like + (texts($keeper, 'error'))[0], qr/No space left on device; the next attempt is in/,
        '... and the log says why';
    unlink $filler;
    live($keeper, 3 * 3600);
    is came($keeper), 1, 'there is room: the certificate comes';
    my $old = certificate($folder);

    Peregrine::Acme::Store->new($folder)->ask('example.org');
    my $kept = \&Peregrine::Acme::Store::keep_certificate;
    {
        no warnings 'redefine';
        local *Peregrine::Acme::Store::keep_certificate = sub { $fill->(); return $kept->(@_) };
        $keeper = $self->keeper($folder);
        $keeper->work;
        live($keeper, 3600);
    }
    is ordered($keeper),     1,    'the disk becomes full during an order: it is not repeated';
    is came($keeper),        0,    '... while the certificate cannot be kept';
    is certificate($folder), $old, '... the old one stays';
    is_deeply [ damage($folder) ], [], '... and all files are whole';
    unlink $filler;
    live($keeper, 2 * 3600);
    is ordered($keeper), 1, 'there is room: nothing is ordered again';
    is came($keeper),    1, '... and the certificate is kept';
    ok certificate($folder) ne $old, '... in place of the old one';
    return;
}

# The right to write is taken away, from all folders, or from that of certificates.
sub unwritable ($self) {
    plan skip_all => 'there is no user but the superuser, who may write anywhere'
        if !$self->_as_user(sub { $self->_unwritable });
    return;
}

# Runs code with the rights of `nobody`, whose results are the test's. False if there is no such user.
sub _as_user ($self, $code) {
    return $code->() || 1 if $> != 0;
    my ($uid, $gid) = (getpwnam 'nobody')[ 2, 3 ] or return 0;
    local ($), $>) = ("$gid $gid", $uid);
    $code->();
    return 1;
}

sub _unwritable ($self) {
    local $AHEAD = 0;
    my $folder = $self->folder(File::Temp::tempdir(CLEANUP => 1) . '/acme');
    my $keeper = $self->keeper($folder);
    chmod 0500, "$folder/states" or die $!;
    live($keeper, 3600);
    is ordered($keeper), 0, 'states cannot be written: nothing is ordered';
    like + (texts($keeper, 'error'))[0], qr/Permission denied; the next attempt is in/,
        '... and the log says why';
    chmod 0700, "$folder/states";
    live($keeper, 2 * 3600);
    is came($keeper), 1, '... until they can';
    chmod 0500, "$folder/certificates";
    Peregrine::Acme::Store->new($folder)->ask('example.org');
    live($keeper, 3600);
    is ordered($keeper), 2, 'certificates cannot be written: one is ordered';
    is came($keeper),    1, '... and waits';
    chmod 0700, "$folder/certificates";
    live($keeper, 2 * 3600);
    is ordered($keeper), 2, '... until they can';
    is came($keeper),    2, '... and is kept then';
    return;
}

1;
