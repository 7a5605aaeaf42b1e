package TestServer;

# Runs a PAGI::Server, or the pagi-server command, in a child process for a test, and stops it at the end.
# Everything is bounded in time: a child that does not answer fails the test, it never hangs it. The output of
# servers is shown when a test fails.

use strict;
use warnings;

use Carp         qw(croak);
use POSIX        qw(WNOHANG);
use File::Temp   ();
use IO::Handle   ();
use Scalar::Util qw(weaken);
use Test2::API   ();
use TestPrepared ();
use TestTools    qw(ended patience);
use Time::HiRes  qw(sleep time);

my $OWNER = $$;
my %RUNNING;    # pid => server, weak
my $last;       # the log of the server that was destroyed last
my $server;     # in a child: the PAGI::Server

# Starts a server. Options are those of PAGI::Server; `limits`: limits of the engine that have no option, by
# their names; `psgi`: the application is one of PSGI.
sub start {
    my ($class, %options) = @_;
    # On a busy machine a client without a processor shakes hands slowly.
    $options{tls_handshake_timeout} = 600 if $options{ssl} && !exists $options{tls_handshake_timeout};
    _load(%options);
    my $log = File::Temp->new;
    pipe my $reader, my $writer or die "pipe: $!";
    my $pid = _fork();
    if (!$pid) {
        close $reader;
        _child($writer, $log, \%options);
    }
    close $writer;
    my $self = $class->_watched($pid, $log);
    $self->{reader} = $reader;
    $self->{port}   = $self->_read_line(patience(30)) or die 'the server did not start: ' . $self->log;
    return $self;
}

# Loads the server's modules before the fork, so that the servers of a test start with a quarter of the work.
sub _load {
    my (%options) = @_;
    require IO::Async::Loop;
    require PAGI::Server;
    require Plack::Handler::Peregrine::Server if $options{psgi};
    return;
}

# The PAGI::Server in the child, for an application.
sub running { return $server }

# The worker of a server that serves in this process, with its counters.
sub worker_of {
    my ($serving) = @_;
    return $serving->{part}->engine->worker;
}

sub _fork {
    my $pid = fork;
    die "fork: $!" if !defined $pid;
    return $pid;
}

# In the child: serves, tells the port, and exits with 0 after a stop by a signal.
sub _child {
    my ($writer, $log, $options) = @_;
    %RUNNING = ();
    TestPrepared::forget();
    alarm patience(1800);    # ends it behind a test that was killed
    open STDERR, '>&', $log or die "stderr: $!";
    # Makes `print` of a list one write, which no line of the engine splits: Perl would write each item.
    binmode STDERR, ':perlio' or die "stderr: $!";
    STDERR->autoflush(1);
    my $ok = eval {
        my $limits = delete $options->{limits} || {};
        my $class  = delete $options->{psgi} ? 'Plack::Handler::Peregrine::Server' : 'PAGI::Server';
        my $loop   = IO::Async::Loop->new;
        $server = $class->new((grep { $options->{$_} } qw(socket listen)) ? () : (port => 0), %$options);
        $loop->add($server);
        $server->listen->get;

        for my $name (keys %$limits) {
            worker_of($server)->set($name => $limits->{$name}) >= 0 or die "no limit $name\n";
        }
        $writer->autoflush(1);
        print {$writer} $server->port // $server->socket_path, "\n";
        $loop->run;
        1;
    };
    print STDERR "test server: $@" if !$ok;
    POSIX::_exit($ok ? 0 : 1);
}

# Runs bin/pagi-server with arguments, at a free port unless they name a place. The port, or the path of a
# Unix socket, is read from its banner.
sub command {
    my ($class, @arguments) = @_;
    return $class->command_of('pagi-server', @arguments);
}

# Like `command`, for the named program in bin/.
sub command_of {
    my ($class, $program, @arguments) = @_;
    my @port = (grep { /\A--(?:socket|listen)\b/ } @arguments) ? () : ('--port', 0);
    my $self = $class->spawn($^X, (map { "-I$_" } @INC), "bin/$program", @port, @arguments);
    my $port = $self->wait_for_log(qr{listening on (?:https?://\S+:(?=\d)|unix:)([^\s/]+(?=/ )|/\S+)});
    $self->{port} = $port or die "$program did not start: " . $self->log;
    return $self;
}

sub spawn {
    my ($class, @command) = @_;
    my $log = File::Temp->new;
    my $pid = TestPrepared::child($log, $log, 0, @command) // _fork();
    if (!$pid) {
        open STDERR, '>&', $log or die "stderr: $!";
        open STDOUT, '>&', $log or die "stdout: $!";
        exec @command or POSIX::_exit(127);
    }
    return $class->_watched($pid, $log);
}

sub _watched {
    my ($class, $pid, $log) = @_;
    my $self = bless { pid => $pid, log => $log, told => 0 }, $class;
    weaken($RUNNING{$pid} = $self);
    _listen() if $INC{'Test/Builder.pm'};
    return $self;
}

# Runs bin/pagi-server to its end: exit status, standard output, standard error.
sub finish {
    my ($class, @arguments) = @_;
    return $class->finish_at('bin/pagi-server', @arguments);
}

# Like `finish`, for the named program in bin/.
sub finish_of {
    my ($class, $program, @arguments) = @_;
    return $class->finish_at("bin/$program", @arguments);
}

# Like `finish`, for a command at another path.
sub finish_at {
    my (undef, $command, @arguments) = @_;
    my @command = ($^X, (map { "-I$_" } @INC), $command, @arguments);
    my ($out, $err) = (File::Temp->new, File::Temp->new);
    my $pid = TestPrepared::child($out, $err, int patience(60), @command) // _fork();
    if (!$pid) {
        open STDOUT, '>&', $out or die $!;
        open STDERR, '>&', $err or die $!;
        alarm patience(60);
        exec @command or die $!;
    }
    my $ended  = ended($pid, patience(70));
    my $status = !defined $ended ? 'killed' : $ended & 127 ? "signal $ended" : $ended >> 8;
    return ($status, map { open my $in, '<', $_->filename or die $!; local $/; scalar <$in> } $out, $err);
}

sub port { return $_[0]{port} }
sub pid  { return $_[0]{pid} }

# The server's process, and its descendants.
sub family {
    my ($self) = @_;
    my @family = ($self->{pid});
    for (my $at = 0; $at < @family; $at++) {
        open my $in, '<', "/proc/$family[$at]/task/$family[$at]/children" or next;
        push @family, map { split } <$in>;
    }
    return @family;
}

sub is_running { return !defined $_[0]{status} }

# The server's output, without the times at the beginning of log lines. The file is read again only when it
# has grown, because tests that wait call this fifty times a second.
sub log {
    my ($self) = @_;
    my $size = -s $self->{log}->filename;
    return $self->{text} if defined $self->{text} && $size == $self->{size};
    $self->{size} = $size;
    return $self->{text} = $self->raw_log =~ s/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[-+]\d\d:\d\d //mgr;
}

sub raw_log {
    my ($self) = @_;
    open my $handle, '<', $self->{log}->filename or die "log: $!";
    local $/;
    my $text = <$handle>;
    return defined $text ? $text : '';
}

# The first capture of a pattern once the log matches, or undef after some seconds.
sub wait_for_log {
    my ($self, $pattern, $seconds) = @_;
    my $began = time;
    my $end   = $began + ($seconds || patience(30));
    while (time < $end) {
        return defined $1 ? $1 : 1 if $self->log =~ $pattern;
        last                       if waitpid($self->{pid}, WNOHANG) == $self->{pid} && $self->_reaped($?);
        sleep TestTools::pause_since($began);
    }
    return $self->log =~ $pattern ? defined $1 ? $1 : 1 : undef;
}

sub _reaped {
    my ($self, $status) = @_;
    delete $RUNNING{ $self->{pid} };
    $self->{status} = $status;
    return 1;
}

sub _read_line {
    my ($self, $seconds) = @_;
    my $bits = '';
    vec($bits, fileno $self->{reader}, 1) = 1;
    my $end = time + $seconds;
    while (select(my $ready = $bits, undef, undef, $end - time) < 1) { return if time >= $end }
    my $line = readline $self->{reader};
    chomp $line if defined $line;
    return $line;
}

sub signal {
    my ($self, $name) = @_;
    kill $name => $self->{pid};
    return $self;
}

# Waits for the child's end; returns the wait status, or undef if the child had to be killed.
sub wait {
    my ($self, $seconds) = @_;
    my $end = time + ($seconds || patience(30));
    while (!defined $self->{status}) {
        my $pid = waitpid $self->{pid}, WNOHANG;
        last               if $pid < 0;
        $self->_reaped($?) if $pid;
        last               if time > $end;
        sleep 0.01         if !$pid;
    }
    return $self->{status} if defined $self->{status};
    kill KILL => $self->{pid};
    waitpid $self->{pid}, 0;
    $self->_reaped(undef);
    return;
}

sub stop {
    my ($self) = @_;
    return $self->{status} if defined $self->{status};
    $self->signal('TERM');
    return $self->wait;
}

sub DESTROY {
    my ($self) = @_;
    return if $$ != $OWNER;
    local ($?, $@, $!);
    $self->stop          if $RUNNING{ $self->{pid} };
    $last = $self->_news if $self->{log};               # not in global destruction
    return;
}

END {
    if ($$ == $OWNER) {
        local $?;
        for my $pid (keys %RUNNING) {
            kill KILL => $pid;
            waitpid $pid, 0;
        }
    }
}

# ---- Output of servers, when a test fails ----------------------------------------------------------

my $listening;

sub _listen {
    return if $listening++;
    Test2::API::test2_stack()->top->listen(
        sub {
            my (undef, $event) = @_;
            my $facts = $event->facet_data;
            _tell() if $facts->{assert} && !$facts->{assert}{pass} && !$facts->{amnesty};
        },
        inherit => 1
    );
    return;
}

# In a test file that dies no test has failed, which would have shown the servers' output.
END { _tell() if $? && $$ == $OWNER && $listening }

sub _tell {
    print STDERR grep { defined } $last, map { $_->_news } grep { defined } values %RUNNING;
    undef $last;
    return;
}

# The end of the output since the last call, as lines of comment.
sub _news {
    my ($self) = @_;
    my $text   = $self->raw_log;
    my $news   = substr $text, $self->{told};
    $self->{told} = length $text;
    return if $news eq '';
    $news =~ s/\A.*(?=.{4000}\z)/[...]/s;
    return "#   process $self->{pid} wrote:\n" . $news =~ s/^/#     /mgr =~ s/(?<!\n)\z/\n/r;
}

1;
