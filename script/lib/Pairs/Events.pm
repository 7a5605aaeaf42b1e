# The events that happen to a server while clients of script/pairs use it, and the requests that may be lost
# by each event, according to the manual.
package Pairs::Events;
use v5.36;
use Pairs::Client;
use Pairs::Content;
use Pairs::Launch;
use Pairs::Load;
use Pairs::Table;
use POSIX       ();
use TestTools   qw(content wait_for);
use TestClient  ();
use Time::HiRes qw(sleep time);

use constant {
    EVENT_S          => 30,          # seconds for the last effect of an event
    HELD_EACH        => 1100,
    SPREAD           => 60,
    SHARE_MAX        => 0.85,        # of connections at one worker; more by chance once in a hundred million
    FLOOD            => 60,
    FLOOD_BYTES      => 6_000_000,
    STOP_EXTRA_S     => 10,
    STUCK_EXTRA_S    => 4,
    LEAVES_S         => 10,
    UPLOADS_FIRST    => 100,
    UPLOADS          => 200,
    GROWS_KIB        => 12_000,
    DESCRIPTORS_MORE => 14,
    STUCK_S          => 10,          # the manual of the status listener calls a process stuck after this
};

my %HAPPENS = (
    none        => \&_nothing,
    hup         => \&_hup,
    'hup-twice' => \&_hup_twice,
    usr2        => \&_usr2,
    term        => \&_term,
    killed      => \&_killed,
    stuck       => \&_stuck,
    exit        => \&_exit,
    disk        => \&_disk,
    descriptors => \&_descriptors,
    memory      => \&_memory,
    growth      => \&_growth,
);

sub new ($class, $run) {
    return bless { run => $run, row => $run->row, placement => Pairs::Table::placement($run->row) }, $class;
}

# The message of a start that must fail; undef for other rows.
sub refusal ($class, $row) {
    for my $refused (Pairs::Table::refused()) {
        return $refused->{says} if Pairs::Table::holds($refused->{when}, $row);
    }
    return $row->{event} eq 'does-not-compile'
        ? qr/Global symbol "\$totl" requires explicit package name/
        : undef;
}

sub happen ($self) {
    my %before = $self->{run}->descriptors;
    $HAPPENS{ $self->{row}{event} }->($self);
    return $self->_leaks(%before);
}

# Processes that have lived through it have no more descriptors than before, but for a few that come with use.
sub _leaks ($self, %before) {
    my $run = $self->{run};
    my (%now, @more);
    wait_for(
        sub {
            %now  = $run->descriptors;
            @more = grep { $now{$_} > $before{$_} + DESCRIPTORS_MORE } grep { defined $before{$_} } keys %now;
            return !@more;
        },
        LEAVES_S
    ) && return;
    $self->found("descriptors: $before{$_} before, $now{$_} now: " . Pairs::Run::called($_)) for @more;
    return;
}

sub found ($self, $text) { return $self->{run}->found("$self->{row}{event}: $text") }

# ---- Clients during an event -----------------------------------------------------------------------

sub _begin ($self) {
    my $run   = $self->{run};
    my @kinds = (qw(kept fresh), Pairs::Table::is_psgi($self->{row}) ? () : 'websocket');
    my $keeps = Pairs::Table::keeps_topics($self->{row});
    my $held  = Pairs::Table::holds_at($self->{row});
    push @kinds, 'topic' if $keeps && Pairs::Table::has_topics($self->{row});
    $self->{begun} = time;
    $self->{load}  = [ map { Pairs::Load->start($_, $run->place, $run->prefix) } @kinds ];
    push @{ $self->{load} }, Pairs::Load->start('held',   $run->place, $held) if $keeps && defined $held;
    push @{ $self->{load} }, Pairs::Load->start('upload', $run->place, $run->prefix);
    my $files = Pairs::Table::files_at($self->{row}, $run->prefix);
    push @{ $self->{load} }, Pairs::Load->start('file', $run->place, $files) if defined $files;
    $self->_count_more if $self->{row}{count} eq 'changed';
    $self->_rotate     if $self->{row}{log} eq 'rotated';
    sleep 0.3;
    return;
}

# The log under another name, as logrotate does it: no process goes on with it.
sub _rotate ($self) {
    my $run  = $self->{run};
    my $file = $run->dir . '/access.log';
    my $old  = "$file." . ++$self->{rotations};
    rename $file, $old or return $self->found("access.log: $!");
    kill USR1 => $run->servers;
    my @open;
    wait_for(sub { @open = $run->having($old); !@open && -e $file }, LEAVES_S) && return;
    $self->found('USR1 does not make a new log') if !-e $file;
    $self->found('after USR1 the old log is still open in: ' . Pairs::Run::called($_)) for @open;
    return;
}

# One worker more before the event, and one fewer behind it.
sub _count_more ($self) {
    my $run = $self->{run};
    kill TTIN => $run->servers;
    my $said = $self->{row}{workers} ? qr/SIGTTIN: workers: (\d+)/ : qr/SIGTTIN: nothing to do/;
    $run->wait_for_log($said)        || return $self->found("the log says nothing of TTIN");
    return if !$self->{row}{workers} || $self->{placement} eq 'clones';
    return $self->_until('a worker more', sub { $run->workers > $run->launch->workers });
}

sub _count_fewer ($self) {
    my $run = $self->{run};
    my $said =
        !$self->{row}{workers} ? qr/SIGTTOU: nothing to do/ : qr/SIGTTOU: (?:workers: \d|there is one)/;
    kill TTOU => $run->servers;
    $run->wait_for_log($said) || $self->found('the log says nothing of TTOU');
    return;
}

# Whether as many workers are left as are wanted. A new program has the count of its command.
sub _count_is_right ($self) {
    my ($run, $row) = @{$self}{qw(run row)};
    return if !$row->{workers}                                        || $self->{placement} eq 'clones';
    my $is_new = $row->{under} eq 'starter' && $row->{event} =~ /hup/ || $row->{event} eq 'usr2';
    my $count =
        $run->launch->workers - ($is_new && $row->{workers} > 1 && $run->log =~ /SIGTTOU: workers: 1/);
    my $now;
    wait_for(sub { $now = $run->workers; $now == $count }, EVENT_S)
        || $self->found("$now workers are left, not $count: " . join ' / ',
        map { Pairs::Run::called($_) } $run->workers);
    return;
}

# Each request that was answered is in the log, once.
sub _is_logged ($self, @targets) {
    my $dir = $self->{run}->dir;
    my @wrong;
    my $look = sub {
        my %lines;
        $lines{$_}++ for map { content($_) =~ m{"GET (\S*/who\?\S+) HTTP/}g } glob "$dir/access.log*";
        @wrong = grep { ($lines{$_} // 0) != 1 } @targets;
        return !@wrong;
    };
    wait_for($look, LEAVES_S) && return;
    return $self->found(
              scalar(@wrong) . ' of '
            . @targets
            . " answered requests are not in the log once: @wrong[0..($#wrong > 2 ? 2 : $#wrong)]");
}

# Ends the clients. Each lost request is a finding unless it is excused; no entry of a topic may be lost.
sub _finish ($self, $excuse = undef) {
    my $row     = $self->{row};
    my $is_over = $row->{event} eq 'term';
    $self->_count_fewer if $row->{count} eq 'changed' && !$is_over;
    $self->_rotate      if $row->{log} eq 'rotated'   && !$is_over;
    my @told = map { $_->finish } @{ delete $self->{load} };
    $self->_count_is_right if $row->{count} eq 'changed' && !$is_over;
    $self->_is_logged(map { @{ $_->{sure} // [] } } @told)
        if $row->{log} ne 'off' && $row->{event} ne 'killed';
    my @lost  = grep { !$excuse || $_->{kind} eq 'topic' || !$excuse->($_) } map { @{ $_->{lost} } } @told;
    my $asked = 0;
    $asked += $_->{asked} for @told;
    $self->found("no client could ask") if !$asked;
    return                              if !@lost;
    my %why;

    for my $lost (@lost) {
        my $when = sprintf ', %.2f to %.2f s', map { $lost->{$_} - $self->{begun} } qw(begun failed);
        $why{"$lost->{kind}: $lost->{why}$when"}++;
    }
    my @most = (sort { $why{$b} <=> $why{$a} } keys %why)[ 0 .. 2 ];
    return $self->found(
              scalar(@lost)
            . " requests of $asked were lost ("
            . join('; ', map { "$why{$_} $_" =~ s/\s+/ /gr } grep { defined } @most)
            . ')');
}

sub _until ($self, $what, $code, $seconds = EVENT_S) {
    my $came = wait_for($code, $seconds);
    $self->found("$what does not come within $seconds s") if !$came;
    return $came;
}

sub _is_alive ($pid) { return content("/proc/$pid/stat") =~ /\) [^Z]/ }

sub _version ($self) { return ($self->{run}->who)[3] // '' }

sub _signal ($self, $name) { return kill $name => $self->{run}->masters }

sub _new_code ($self, $version) { return $self->{run}->launch->write('version', $version) }

# Whether the program loads the application anew by itself; Server::Starter starts any program anew.
sub _loads_anew ($self) {
    my $row = $self->{row};
    return 1 if $row->{under} eq 'starter';
    return $row->{workers} && $row->{program} !~ /plackup/ && $row->{options} ne 'constructor' ? 1 : 0;
}

# ---- No event --------------------------------------------------------------------------------------

# Nor does a process grow by what it was sent.
sub _nothing ($self) {
    my $run = $self->{run};
    $self->_begin;
    sleep 0.5;
    $self->_finish;
    my $kib = sub {
        map { $_ => content("/proc/$_/status") =~ /^VmRSS:\s+(\d+)/m ? $1 : 0 } $run->processes;
    };
    my ($client, %before);
    for my $number (1 .. UPLOADS) {
        %before = $kib->() if $number == UPLOADS_FIRST;
        undef $client      if $client && !$client->goes_on;
        $client //= Pairs::Client->new($run->place);
        my $answer = $client->ask($run->prefix . '/echo', body => $number . Pairs::Content::some());
        $self->found("an upload: status $answer->{status}")
            if $answer->{status} ne '200' && !$answer->{again};
    }
    my %now = $kib->();
    for my $pid (grep { $before{$_} && $now{$_} } keys %now) {
        my $more = $now{$pid} - $before{$pid};
        $self->found("a process grows by $more KiB: " . Pairs::Run::called($pid)) if $more > GROWS_KIB;
    }
    return;
}

# Checks the server before the event happens, except in rows whose event is there from the start (a full disk,
# few descriptors, little memory, workers that grow).
sub before ($self) {
    my $row = $self->{row};
    return       if $row->{event} =~ /\A(?:disk|descriptors|memory|growth)\z/;
    $self->_held if $self->{placement} eq 'process' && !Pairs::Table::blocks($row);
    $self->_spread
        if $self->{placement} eq 'prefork'
        && $row->{workers} == 2
        && $row->{place} ne 'unix'
        && $row->{recycle} eq 'off';
    $self->_status if $row->{status} eq 'on';
    $self->_labels;
    $self->_access_log;
    return;
}

# Requests that wait for their application must not keep other requests waiting.
sub _held ($self) {
    my $run   = $self->{run};
    my $count = HELD_EACH * $self->{row}{workers};
    my $each  = $run->place->{h2} ? 100 : 1;
    my @held;
    # many TLS handshakes at once are left to other tests
    return if $run->place->{tls} && !$run->place->{h2};
    for (1 .. $count / $each) {
        my $client = Pairs::Client->new($run->place);
        $client->send($run->prefix . '/held') for 1 .. $each;
        push @held, $client;
    }
    my $answer = eval {
        Pairs::Client->new($run->place, timeout => TestTools::patience(10))->ask($run->prefix . '/hello');
    };
    $self->found(
        "beside $count held requests a GET is answered with " . ($answer ? $answer->{status} : 'nothing'))
        if !$answer || $answer->{status} ne '200';
    $run->launch->write('open.held', '');
    $_->close for @held;
    unlink $run->dir . '/open.held';
    return;
}

# Long-lived connections must spread over the workers.
sub _spread ($self) {
    my (%count, @kept);
    for (1 .. SPREAD) {
        push @kept, Pairs::Client->new($self->{run}->place);
        my ($pid) = split ' ', $kept[-1]->ask($self->{run}->prefix . '/who')->{body};
        $count{ $pid // 0 }++;
    }
    my ($most) = sort { $b <=> $a } values %count;
    $self->found("of ${\SPREAD} connections one worker has $most") if $most > SHARE_MAX * SPREAD;
    $_->close for @kept;
    return;
}

sub _asked_status ($self, $path, $host = 'localhost') {
    my $client = TestClient->new($self->{run}->launch->{status_port}, timeout => 10);
    return ($client->send("GET $path HTTP/1.1\r\nHost: $host\r\n\r\n")->response || { status => 0 })
        ->{status};
}

sub _status ($self) {
    for my $path (qw(/readyz /healthz /metrics /)) {
        my $status = $self->_asked_status($path);
        $self->found("the status listener answers $path with $status") if $status ne '200';
    }
    my $status = $self->_asked_status('/', 'evil.example');
    $self->found("the status listener answers another host's name with $status") if $status eq '200';
    return;
}

# `ps` must show the role of each process below the master.
sub _labels ($self) {
    my $run  = $self->{run};
    my %is   = map  { $_ => 1 } $run->masters;
    my @bare = grep { !$is{$_} && content("/proc/$_/cmdline") =~ /\A[^(]+\z/ } $run->processes;
    @bare = grep { my ($parent) = content("/proc/$_/stat") =~ /\) \S (\d+) /; !$is{$parent} } @bare
        if $self->{row}{under} eq 'starter';
    $self->found('ps shows no label of ' . content("/proc/$_/cmdline") =~ s/\0/ /gr) for @bare;
    return;
}

sub _access_log ($self) {
    my $file = $self->{run}->dir . '/access.log';
    if ($self->{row}{log} eq 'off') {
        $self->found('it writes an access log') if -s $file;
        return;
    }
    my $path  = $self->{run}->prefix;
    my $lacks = sub ($what, $status) { content($file) !~ m{\Q$path\E/$what [^"]*" $status } };
    # plackup's own log has no line for a request whose application dies.
    my @wanted = ([ hello => 200 ], $self->{row}{program} =~ /plackup/ ? () : [ die => 500 ]);
    wait_for(
        sub {
            !grep { $lacks->(@$_) } @wanted;
        },
        5
    ) || $self->found('the access log lacks requests');
    return;
}

# ---- Signals ---------------------------------------------------------------------------------------

sub _hup ($self) {
    my $row = $self->{row};
    my ($before) = $self->{run}->who;
    $self->_begin;
    $self->_new_code(2);
    $self->_signal('HUP');
    if ($self->_loads_anew) {
        $self->_until('the new code', sub { $self->_version eq '2' });
    }
    elsif ($row->{workers}) {
        $self->_until('another worker', sub { (($self->{run}->who)[0] // $before) ne $before });
    }
    sleep 1;
    return $self->_finish;
}

# Two HUPs: the first code hangs while it is loaded, the second code is sound. A delayed application is loaded
# by a request, which has no longer than shutdown_timeout when its server is replaced, so one HUP is enough.
sub _hup_twice ($self) {
    my $run = $self->{run};
    return $self->_hup if !$self->_loads_anew || $self->{row}{loading} eq 'delayed';
    $self->_begin;
    $run->launch->write('hangs.2', '');
    $self->_new_code(2);
    $self->_signal('HUP');
    $self->_until('the load that hangs', sub { -e $run->dir . '/hung.2' });
    $self->_new_code(3);
    $self->_signal('HUP');
    $self->_until('the code of the second HUP', sub { $self->_version eq '3' });
    unlink $run->dir . '/hangs.2';
    sleep 1;
    # Server::Starter has ended the old server by then: the new one refuses requests that wait for the mount.
    my $is_refused = $self->{row}{app} eq 'pools' && $self->{row}{under} eq 'starter';
    return $self->_finish($is_refused ? sub { $_[0]{why} =~ /\Astatus 503/ } : ());
}

sub _usr2 ($self) {
    my ($run, $row) = @{$self}{qw(run row)};
    my @old = $run->masters;
    $self->_begin;
    $self->_new_code(2);
    if ($row->{workers} && $row->{under} eq 'shell') {
        $self->_signal('USR2');
        $self->_until('the new program', sub { $self->_version eq '2' });
        $self->_until(
            'the end of the old one',
            sub {
                !grep { _is_alive($_) } @old;
            }
        );
    }
    elsif ($row->{under} ne 'starter') {    # start_server does not pass USR2 on
        $self->_signal('USR2');
        $self->_until('a line that says that USR2 does nothing', sub { $run->log =~ /USR2/ }, 5);
    }
    sleep 0.5;
    return $self->_finish;
}

# Requests in flight are answered: a request that waits for the application, a request whose client has read
# little of its answer, and all requests that were sent before the signal.
sub _term ($self) {
    my $run    = $self->{run};
    my $held   = Pairs::Client->new($run->place);
    my $slow   = Pairs::Client->new($run->place, receive_buffer => 65_536);
    my $slowly = $slow->send($run->prefix . '/large');
    sleep 0.2;
    $self->_begin;
    my $id = $held->send($run->prefix . '/held');
    sleep 0.5;
    my $told = time;
    $self->_signal('TERM');
    sleep 0.3;
    $run->launch->write('open.held', '');
    my $answer = $held->answer($id);
    $self->found("the request in flight: status $answer->{status}, " . ($answer->{body} // ''))
        if $answer->{status} ne '200' || $answer->{body} !~ /held/;
    $answer = $slow->answer($slowly);
    $self->found("3 MB on their way: status $answer->{status}, ${\length($answer->{body} // '')} bytes")
        if $answer->{status} ne '200' || $answer->{body} ne Pairs::Content::large();
    $self->_until('the end', sub { $run->has_ended }, Pairs::Launch::SHUTDOWN_S() + STOP_EXTRA_S);
   # Later clients find no server, idle connections are closed, and the manual promises 503 to requests on
   # other connections. A request whose answer has begun is not excused, nor is a reset stream of which HTTP/2
   # does not say that no application has seen it.
    return $self->_finish(sub ($lost) {
        return $lost->{failed} >= $told if $lost->{why} =~ /\Astatus 503/;
        return $lost->{begun} > $told - 0.01 && $lost->{is_unheard};
    });
}

# ---- Interpreters ----------------------------------------------------------------------------------

sub _killed ($self) {
    my $run = $self->{run};
    my ($victim) = $run->who;
    $self->_begin;
    my $at = time;
    kill KILL => $victim;
    $self->_until('the end of a killed process', sub { !_is_alive($victim) });
    my $gone = time + 0.5;
    $self->_until('another one in its place', sub { (($run->who)[0] // $victim) ne $victim });
    sleep 0.5;
    my $meanwhile = sub ($lost) { $lost->{begun} <= $gone && $lost->{failed} >= $at };
    # The manual promises (PAGI::Server, "Interpreters that are stuck"): the connections of the killed process
    # are lost. Plack::Handler::Peregrine: with the engine in a process of its own, only the request in the
    # killed process (502), and no connection. Plack::Handler::EVHTP: a crash ends all connections.
    my %excuse = (
        prefork => sub ($lost) { $lost->{process} == $victim || !$lost->{process} && $meanwhile->($lost) },
        process => sub ($lost) { $meanwhile->($lost) && $lost->{why} =~ /\A(?:status 502|a WebSocket)/ },
        clones  => $meanwhile,
    );
    return $self->_finish($excuse{ $self->{placement} });
}

# A request blocks its interpreter, while other interpreters serve other requests. Then all are blocked.
sub _stuck ($self) {
    my ($run, $row) = @{$self}{qw(run row)};
    my $blocked = sub { scalar(() = content($run->dir . '/blocked.stuck') =~ /\n/g) };
    my @stuck   = ($self->_ask_stuck);
    $self->_until('a request that is stuck', sub { $blocked->() >= 1 }) or return;
    if ($row->{workers} > 1) {
        # An engine leaves new connections to others when its application has been at one event for 5 ms.
        sleep 0.1;
        my $missed = 0;
        for (1 .. 10) {
            my $answer = eval { Pairs::Client->new($run->place, timeout => 5)->ask($run->prefix . '/hello') };
            $missed++ if !$answer || $answer->{status} ne '200';
            last      if $missed > 2;
        }
        $self->found("$missed new connections wait while one interpreter of $row->{workers} is stuck")
            if $missed;
    }
    push @stuck, $self->_ask_stuck for 2 .. $row->{workers};
    # A mount with stuck workers of its own leaves the server ready for the other mounts.
    if ($row->{workers} && $row->{status} eq 'on' && $row->{app} ne 'pools') {
        if (wait_for(sub { $blocked->() >= $row->{workers} }, 3)) {
            wait_for(sub { $self->_asked_status('/readyz') ne '200' }, STUCK_S + STUCK_EXTRA_S)
                || $self->found('all interpreters are stuck, and /readyz says that it is ready');
        }
    }
    # Stuck workers are killed, or left alone, and others take their places; a single process goes on later.
    $run->launch->write('open.stuck', '') if !$row->{workers};
    $self->_until(
        'service after interpreters were stuck',
        sub { $run->who },
        Pairs::Launch::KILL_S() + EVENT_S
    );
    unlink $run->dir . '/open.stuck';
    return $self->_stop_a_stuck_one;
}

sub _ask_stuck ($self) {
    my $client = Pairs::Client->new($self->{run}->place, timeout => 60);
    $client->send($self->{run}->prefix . '/stuck');
    return $client;
}

# A stop takes no longer than shutdown_timeout, whatever the application does. A server without workers may
# get several TERMs.
sub _stop_a_stuck_one ($self) {
    my $run = $self->{run};
    unlink $run->dir . '/blocked.stuck';
    my $stuck = $self->_ask_stuck;
    wait_for(sub { -s $run->dir . '/blocked.stuck' }, 10) || return;
    my $told  = time;
    my $limit = Pairs::Launch::SHUTDOWN_S();
    $self->_signal('TERM');
    my $ended = wait_for(
        sub {
            $self->_signal('TERM') if !$self->{row}{workers} && (time - $told) * 2 % 2;
            $run->has_ended;
        },
        $limit + STUCK_EXTRA_S
    );
    $self->found(sprintf 'a stop takes more than %.0f s, with shutdown_timeout %d', time - $told, $limit)
        if !$ended;
    return;
}

sub _exit ($self) {
    my ($run, $row) = @{$self}{qw(run row)};
    my ($before) = $run->who;
    my $answer = eval { Pairs::Client->new($run->place, timeout => 20)->ask($run->prefix . '/exit') }
        || { status => 0 };
    if ($row->{workers} || $row->{under} eq 'starter') {
        my %status = (process => 502, clones => 500);
        my $wanted = $status{ $self->{placement} };
        $self->found("the request that exits is answered with $answer->{status}, not $wanted")
            if $wanted && $answer->{status} ne $wanted;
        $self->_until('service again', sub { $run->who });
    }
    else {
        $self->_until('the end', sub { $run->has_ended });
        waitpid $run->server->pid, 0;
        $run->server->{status} = $?;
        $self->found('the server ends with status 0') if $? == 0;
    }
    $run->wait_for_log(qr/\bexit(?:ed)?\b/) || $self->found('the log says nothing of exit');
    return;
}

# ---- Shortages -------------------------------------------------------------------------------------

sub _disk ($self) {
    my $run       = $self->{run};
    my ($process) = $run->masters;
    my $folder    = "/proc/$process/root" . $run->dir . '/spool';
    system "dd if=/dev/zero of=$folder/full bs=64k >/dev/null 2>&1";
    my $large  = Pairs::Content::large();
    my $client = Pairs::Client->new($run->place, receive_buffer => 65_536);
    my $id     = $client->send($run->prefix . '/large');
    sleep 1;
    my $answer = $client->answer($id);
    $self->found(
        "3 MB to a slow client: status $answer->{status}, " . length($answer->{body} // '') . ' bytes')
        if $answer->{status} ne '200' || $answer->{body} ne $large;
    $answer = Pairs::Client->new($run->place)->ask($run->prefix . '/echo', body => $large);
    $self->found("3 MB up: status $answer->{status}") if $answer->{status} !~ /\A(?:200|413|503|507)\z/;
    unlink "$folder/full";
    $answer = Pairs::Client->new($run->place)->ask($run->prefix . '/echo', body => $large);
    $self->found("3 MB up when the disk is free again: status $answer->{status}")
        if $answer->{status} ne '200' || $answer->{body} ne $large;
    return;
}

# More connections than descriptors: each is answered or closed, and older connections are still served.
sub _descriptors ($self) {
    my $run   = $self->{run};
    my $kept  = Pairs::Client->new($run->place);
    my $hello = $run->prefix . '/hello';
    my @others;
    $kept->ask($hello);
    my %place = (%{ $run->place }, $run->place->{tls} ? (tls => 0, h2 => 0) : ());
    for (1 .. Pairs::Launch::DESCRIPTORS() + 60) {
        my $client = eval { Pairs::Client->new(\%place, timeout => 10) } or last;
        my $id     = $run->place->{tls} ? 0 : $client->send($hello);
        push @others, [ $client, $id ];
    }
    my $answer = $kept->ask($hello);
    $self->found("a connection that was there: status $answer->{status}") if $answer->{status} ne '200';
    if (!$run->place->{tls}) {
        my $end  = time + 20;
        my $hang = 0;
        for my $other (@others) {
            my ($client, $id) = @$other;
            $client->wire->{timeout} = $end - time > 0.05 ? $end - time : 0.05;
            my $answer = $client->answer($id);
            $hang++ if !$answer->{status} && !$client->wire->{ended};
        }
        $self->found("$hang of ${\scalar @others} connections are neither answered nor closed") if $hang;
    }
    $_->[0]->close for @others;
    return $self->_until('service when they have gone', sub { $run->who });
}

# While clients make the server hold much memory, it serves new clients that hold none, and a held stream
# survives.
sub _memory ($self) {
    my $run    = $self->{run};
    my $path   = Pairs::Table::holds_at($self->{row});
    my $stream = defined $path && Pairs::Client->new($run->place);
    my $id     = $stream       && $stream->send("$path/hold");
    $stream->reads_until($id, qr/: held\n\n/) if $stream;
    my $pid = fork // die "fork: $!\n";
    if (!$pid) {
        alarm TestTools::patience(100);
        local $SIG{ALRM} = 'DEFAULT';
        eval { $run->place->{h2} ? $self->_hold_streams : $self->_hold_uploads };
        POSIX::_exit(0);
    }
    sleep 3;
    my $missed = 0;
    my $why    = '';
    for (1 .. 10) {
        my $answer = eval {
            Pairs::Client->new($run->place, timeout => TestTools::patience(15))->ask($run->prefix . '/hello');
        };
        $why = $answer ? $answer->{status} : $@;
        $missed++ if !$answer || $answer->{status} ne '200';
        sleep 0.1;
    }
    kill KILL => $pid;
    waitpid $pid, 0;
    $self->found("$missed of 10 clients that hold nothing are not served: $why") if $missed;
    $self->_until('service when memory is free again', sub { $run->who }) && $stream or return;
    Pairs::Client->new($run->place)->ask("$path/publish?after");
    return if $stream->reads_until($id, qr/data: after\n/);
    return $self->found('a held stream that waits does not outlive clients that hold much');
}

sub _hold_streams ($self) {
    my @held;
    for (1 .. FLOOD) {
        my $client = Pairs::Client->new($self->{run}->place, settings => [ 4, 0 ]);
        $client->send($self->{run}->prefix . '/fresh') for 1 .. 100;
        push @held, $client;
    }
    sleep 100;
    return;
}

sub _hold_uploads ($self) {
    my @held;
    for (1 .. FLOOD) {
        my $client = Pairs::Client->new($self->{run}->place);
        my $head =
            "POST ${\$self->{run}->prefix}/echo HTTP/1.1\r\nHost: h\r\nContent-Length: 7000000\r\n\r\n";
        eval { $client->wire->send($head . 'x' x FLOOD_BYTES) };
        push @held, $client;
    }
    sleep 100;
    return;
}

# Counts processes that have served: memory that workers share does not count as a worker's growth.
sub _growth ($self) {
    my %seen;
    for (1 .. 40) {
        my ($pid) = $self->{run}->who;
        $seen{ $pid // 0 }++;
        sleep 0.2;
    }
    my $count = keys %seen;
    $self->found("$count processes have served in 8 s, of $self->{row}{workers} workers that did not grow")
        if $count > $self->{row}{workers};
    return;
}

1;
