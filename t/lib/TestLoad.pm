package TestLoad;

# Clients that send requests all the time, each in a process of its own, and check every byte of the
# responses. A failure is reported with the process that had served the connection before.

use strict;
use warnings;

use OnlyInFull  qw(only_in_full);
use POSIX       ();
use TestTools   qw(patience);
use Time::HiRes qw(time);

# A client that never paused would take the processor from the servers whose change it watches.
# Without --all the pauses of script/test are longer.
use constant { FAILURES_MAX => 5, REQUESTS_MIN => 60, PAUSE_S => only_in_full(0.002) || 0.016 };

# The body for a path: `$size` letters, from the place `$first` in the alphabet on.
sub body_of {
    my ($first, $size) = @_;
    my $letters = join '', 'a' .. 'z', 'A' .. 'Z', 0 .. 9, "\n";
    return substr $letters x (1 + ($first + $size) / length $letters), $first, $size;
}

# The text of an application that answers /FIRST/SIZE with such a body, and names its process.
sub application {
    my ($version) = @_;
    return <<"APP" . <<'APP';
my \$version = '$version';
APP
use Future::AsyncAwait;
use lib 't/lib';
use TestLoad;
async sub {
    my ($scope, $receive, $send) = @_;
    die "no lifespan\n" if $scope->{type} eq 'lifespan';
    if ($scope->{type} eq 'websocket') {
        await $receive->();
        await $send->({ type => 'websocket.accept' });
        await $send->({ type => 'websocket.send', text => "$$ $version" });
        while ((my $event = await $receive->())->{type} eq 'websocket.receive') {
            await $send->({ type => 'websocket.send', text => $event->{text} });
        }
        return;
    }
    my (undef, $first, $size) = split m{/}, $scope->{path};
    my $body    = defined $size ? TestLoad::body_of($first, $size) : "$$ $version";
    my @headers = ([ 'x-process', $$ ], [ 'x-version', $version ], [ 'content-length', length $body ]);
    await $send->({ type => 'http.response.start', status => 200, headers => \@headers });
    await $send->({ type => 'http.response.body', body => $body });
};
APP
}

# Starts a client. `tls`: 1 for HTTPS; `fresh`: a connection for each request; `pause`: seconds between two
# requests (default PAUSE_S).
sub start {
    my ($class, $port, %options) = @_;
    require TestClient;    # loaded here, because servers load this module, too
    pipe my $here, my $tell  or die "pipe: $!";
    pipe my $stop, my $hurry or die "pipe: $!";
    my $pid = fork // die "fork: $!";
    if (!$pid) {
        alarm patience($options{alarm} || 230);
        close $here;
        # A pipe ends the client: a signal would interrupt a request, whose answer would be taken for the next
        # one's.
        my %told = eval {
            _ask_until(sub { _has_come($stop) }, $tell, $port, %options);
        };
        print {$tell} $@ ? "died $@" : join "\n", "asked $told{asked}",
            map { "failed $_" } @{ $told{failures} };
        close $tell;
        POSIX::_exit(0);
    }
    close $tell;
    my $begun = readline $here;    # the process runs
    return bless { pid => $pid, here => $here, hurry => $hurry }, $class;
}

sub _has_come {
    my ($handle) = @_;
    my $bits = '';
    vec($bits, fileno $handle, 1) = 1;
    return select $bits, undef, undef, 0;
}

# Ends the client. Returns the number of its requests, and [ begun, failed, process, text ] for each failed
# one; `process` is the one that had the connection, 0: not known yet.
sub finish {
    my ($self) = @_;
    local $SIG{PIPE} = 'IGNORE';
    syswrite $self->{hurry}, '.';
    my ($asked, @failures) = (0);
    while (defined(my $line = readline $self->{here})) {
        chomp $line;
        if    ($line =~ /\Aasked (\d+)/) { $asked = $1 }
        elsif ($line =~ /\Afailed (.*)/) { push @failures, [ split ' ', $1, 4 ] }
        else                             { push @failures, [ time, time, 0, "the client: $line" ] }
    }
    waitpid $self->{pid}, 0;
    return ($asked, \@failures);
}

sub _ask_until {
    my ($over,   $tell, $port, %options) = @_;
    my ($asked,  @failures) = (0);
    my ($socket, $process);
    until ($asked >= REQUESTS_MIN && $over->()) {
        my $first = int rand 60;
        my $size  = $asked % 50 == 49 ? 100_000 + int rand 100_000 : int rand 2000;
        my $begun = time;
        $asked++;
        my $ok = eval {
            $process = 0 if !$socket;    # the process that will accept is not known yet
            $socket ||= TestClient->new($port, $options{tls} ? (tls => {}) : ())->socket;
            my ($served, $goes_on) = _ask($socket, $first, $size, $options{fresh});
            $process = $served;
            undef $socket if !$goes_on;
            1;
        };
        syswrite $tell, "begun\n" if $asked == 1;
        if (!$ok) {
            push @failures, join ' ', $begun, time, $process || 0, $@ =~ s/\s+/ /gr;
            undef $socket;
            last if @failures >= FAILURES_MAX;
        }
        select undef, undef, undef, $options{pause} // PAUSE_S;
    }
    return (asked => $asked, failures => \@failures);
}

sub _compare {
    my ($got, $wanted) = @_;
    return if $got eq $wanted;
    my ($same) = ($got ^ $wanted) =~ /\A(\0*)/;
    my $at = length $same;
    die 'the body is wrong: '
        . length($got)
        . ' bytes of '
        . length($wanted)
        . ", from $at on '"
        . substr($got, $at, 20)
        . "' and not '"
        . substr($wanted, $at, 20) . "'\n";
}

# Sends a request. Returns the process that has answered, and whether the connection goes on.
sub _ask {
    my ($socket, $first, $size, $last) = @_;
    local $SIG{PIPE} = 'IGNORE';
    my $request =
        "GET /$first/$size HTTP/1.1\r\nHost: h\r\n" . ($last ? "Connection: close\r\n" : '') . "\r\n";
    syswrite($socket, $request) // die "send: $!\n";
    my $text = '';
    my $end;
    while (($end = index $text, "\r\n\r\n") < 0) {
        my $read = sysread $socket, $text, 65_536, length $text;
        die "receive: $!\n"                                       if !defined $read;
        die "the connection ended after ${\length $text} bytes\n" if !$read;
    }
    my $head_length = $end + 4;
    my $head        = substr $text, 0, $head_length;
    my ($length)    = $head =~ /^content-length: (\d+)\r$/mi;
    my ($process)   = $head =~ /^x-process: (\d+)\r$/mi;
    die 'status ' . substr($head, 0, 40) . "\n"
        if $head !~ m{\AHTTP/1\.1 200 } || !defined $length || !$process;
    while (length $text < $head_length + $length) {
        my $read = sysread $socket, $text, 65_536, length $text;
        die "receive the body: $!\n"                        if !defined $read;
        die "the body ended after ${\length $text} bytes\n" if !$read;
    }
    _compare(substr($text, $head_length), body_of($first, $size));
    return ($process, $last || $head =~ /^connection: close\r$/mi ? 0 : 1);
}

1;
