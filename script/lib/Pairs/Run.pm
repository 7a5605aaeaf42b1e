# Runs a row of script/pairs: starts the server, holds the conversation, lets the event happen, ends the
# server, and lists the findings.
package Pairs::Run;
use v5.36;
use File::Temp ();
use Pairs::Client;
use Pairs::Events;
use Pairs::Launch;
use Pairs::Table;
use Pairs::Talk;
use TestServer;
use TestTools   qw(content patience wait_for);
use Time::HiRes qw(sleep time);

use constant START_S => 30;

# `row`, `root` (the source tree of this program), `tree` (the built tree that is tried), `certificates`.
sub new ($class, %given) {
    my $dir  = File::Temp->newdir('pairs-XXXXXX', TMPDIR => 1);
    my $self = bless { %given, findings => [], dir => $dir }, $class;
    $self->{launch} =
        Pairs::Launch->new((map { $_ => $given{$_} } qw(row root tree certificates)), dir => "$self->{dir}");
    return $self;
}

sub row    ($self) { return $self->{row} }
sub place  ($self) { return $self->{launch}->place }
sub launch ($self) { return $self->{launch} }
sub dir    ($self) { return "$self->{dir}" }
sub server ($self) { return $self->{server} }

sub prefix ($self) {
    return { mounts => '/one', pools => '/one', middleware => '/mounted' }->{ $self->{row}{app} } // '';
}

sub found ($self, $text) {
    push @{ $self->{findings} }, $text;
    return;
}

sub findings ($self) { return @{ $self->{findings} } }

sub log ($self) { return $self->{server} ? $self->{server}->raw_log : '' }

sub wait_for_log ($self, $pattern) {
    return wait_for(sub { $self->log =~ $pattern }, 5);
}

sub run ($self) {
    my $row    = $self->{row};
    my $launch = $self->{launch};
    local $SIG{PIPE} = sub { };    # not 'IGNORE', which the server would inherit
    $launch->write_files;
    my $talk = Pairs::Talk->new($self);
    my $ok   = eval {
        $self->start;
        if    (my $expected = Pairs::Events->refusal($row)) { $self->refuses($expected) }
        elsif ($row->{event} eq 'startup-dies')             { $self->starts_all_the_same }
        elsif (!$self->serves) { $self->found('it does not serve: ' . $self->last_words) }
        else {
            $talk->hold;
            my $events = Pairs::Events->new($self);
            $events->before;
            $events->happen;
        }
        1;
    };
    $self->found("the client: " . $@ =~ s/\s+/ /gr) if !$ok;
    eval { $self->end; 1 } or $self->found("the end: $@");
    return;
}

sub start ($self) {
    my %env = $self->{launch}->environment;
    local @ENV{ keys %env } = values %env;
    $self->{server} = TestServer->spawn($self->{launch}->command);
    $self->{group}  = $self->{server}->pid;
    open my $told, '>', $self->{told} or die "$self->{told}: $!\n";
    print {$told} $self->{group};
    close $told;
    return;
}

sub serves ($self) {
    return wait_for(sub { my @who = $self->who; return @who || $self->has_ended }, START_S)
        && !$self->has_ended;
}

sub has_ended ($self) {
    return content("/proc/${\$self->{server}->pid}/stat") !~ /\) [^Z]/ && !$self->processes;
}

# Process, parent, thread and version of the application; nothing if there is no answer.
sub who ($self, %options) {
    my $answer = eval { Pairs::Client->new($self->place, timeout => 5)->ask($self->prefix . '/who') }
        or return;
    return split ' ', $answer->{status} eq '200' ? $answer->{body} : '';
}

# The processes of the row's process group.
sub processes ($self) {
    return grep { content("/proc/$_/stat") =~ /\A\d+ \(.*\) [^Z] \d+ $self->{group} /s }
        map { m{/(\d+)/} } glob '/proc/[0-9]*/stat';
}

# The processes that get a signal for the server: the processes of the group whose parents are outside of it.
sub masters ($self) {
    my @all    = $self->processes;
    my %is     = map { $_ => 1 } @all;
    my $is_top = sub ($pid) { content("/proc/$pid/stat") =~ /\) \S (\d+) /s && !$is{$1} };
    return grep { $is_top->($_) } @all;
}

# The processes that take the signals of an administrator: Server::Starter passes few of them on.
sub servers ($self) {
    my @masters = $self->masters;
    return @masters if $self->{row}{under} ne 'starter';
    my %is = map { $_ => 1 } @masters;
    return grep { content("/proc/$_/stat") =~ /\) \S (\d+) /s && $is{$1} } $self->processes;
}

# Processes that run the application, or that start clones of it.
sub workers ($self) {
    return grep { content("/proc/$_/cmdline") =~ /\(worker \d+\)/ } $self->processes;
}

# How many descriptors each process has, by its number.
sub descriptors ($self) {
    return map { my @open = glob "/proc/$_/fd/*"; ($_ => scalar @open) } $self->processes;
}

# Which processes have a file open.
sub having ($self, $path) {
    return grep {
        grep { (readlink($_) // q()) eq $path }
            glob "/proc/$_/fd/*"
    } $self->processes;
}

sub called ($pid) { return content("/proc/$pid/cmdline") =~ s/\0/ /gr }

sub last_words ($self) {
    return join ' / ', grep { defined } (split /\n/, $self->log)[ -3 .. -1 ];
}

# A start that must fail, with this sentence in the log.
sub refuses ($self, $expected) {
    # start_server tries to start the server again and again.
    my $tries = $self->{row}{under} eq 'starter';
    my $ended = wait_for(sub { $self->has_ended || $tries && $self->log =~ $expected }, START_S);
    $self->found('it starts, and should not')                 if !$ended;
    $self->found("it does not say why: " . $self->last_words) if $self->log !~ $expected;
    return;
}

# An exception in the application's startup is logged, and the server serves.
sub starts_all_the_same ($self) {
    my $answer;
    wait_for(
        sub {
            $answer = eval { Pairs::Client->new($self->place, timeout => 5)->ask('/') };
            return $answer || $self->has_ended;
        },
        START_S
    );
    $self->found('it does not serve: ' . $self->last_words) if !$answer || $answer->{status} ne '200';
    $self->wait_for_log(qr/the startup dies on purpose/)
        || $self->found('the log does not say that the startup has died');
    return;
}

sub end ($self) {
    my @masters = $self->masters;
    kill TERM => @masters;
    my $ended = wait_for(sub { !$self->processes }, 30);
    $self->found('TERM does not end it within 30 s') if !$ended;
    kill KILL => $self->processes;
    my $path = $self->{launch}{path};
    # A server without workers that its application has ended leaves the file: the next start replaces it.
    my $ends_itself = $self->{row}{event} eq 'exit' && !$self->{row}{workers};
    $self->found('the file of its socket is left')
        if $path && -e $path && $self->{row}{under} eq 'shell' && !$ends_itself;
    $self->{server}{status} //= do { waitpid $self->{server}->pid, 0; $? };

    for my $pattern (qr/panic|Attempt to free|segfault|SIGSEGV|SIGABRT|double free|corrupted/i) {
        # The lines behind the message tell the place.
        my ($lines) = $self->log =~ /^(.*$pattern.*(?:\n.*){0,40})$/m;
        $self->found("the log: $lines") if defined $lines;
    }
    return;
}

1;
