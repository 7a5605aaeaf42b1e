package Peregrine::Master;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future;
use IO::Async::Loop;
use List::Util qw(max min);
use Peregrine;
use Peregrine::Fork;
use Peregrine::Link;
use Peregrine::Templates;
use POSIX        ();
use Scalar::Util qw(weaken);
use Time::HiRes  qw(CLOCK_MONOTONIC);

# A worker that ends sooner than that many seconds after its start counts as one more crash in a row. The
# first is replaced at once, the next ones wait, each twice as long as the one before.
use constant { CRASH_S => 5, BACK_OFF_S => 0.5, BACK_OFF_MAX_S => 30 };
# Seconds between two looks at the workers' deadlines.
use constant { LOOK_S => 0.5, LATE_S => 3 };
# Seconds that a worker has to end in which was to serve code that is old by now.
use constant SUPERSEDED_S => 3;
# Seconds between two counts of a worker's own memory.
use constant COUNT_S => 5;
# Seconds that a worker serves at least which has more memory than it may have from its start.
use constant LARGE_S => 60;
# Seconds that a worker has, beyond the time for its stop, to say that it has ended.
use constant ANSWER_S => 0.5;
# Seconds that a stuck worker gets for telling where it is, before it is killed.
use constant SAY_S => 3;
# Seconds that templates get for END blocks when workers have used up the time of the stop.
use constant END_LEAST_S => 1;
# Workers that there may be at once, old and new ones.
use constant BUSY_MAX => 4096;
# Seconds after which a worker that ended as TERM ends it was told to by itself. A TERM for the whole process
# group comes to the master as well, which may hear of the worker's end before.
use constant ALONE_S => 0.1;
# Neither a clock that is set nor a machine that slept is a worker's fault.
sub _now { return Time::HiRes::clock_gettime(CLOCK_MONOTONIC) }

# From the end of a worker's link to that of its process; then somebody else has taken note of that.
use constant END_S => 1;

# See Peregrine::Threads.
sub CLONE_SKIP { return 1 }

sub new {
    my ($class, %args) = @_;
    my $self = bless {
        %args{
            qw(loop log name run counters on_serving before_fork stop_timeout start_timeout heartbeat_timeout
                limits first_takes_over hear stands_in sends busy_timeout role spread)
        },
        wanted     => $args{workers},
        workers    => {},               # by id
        started    => 0,                # workers that were started; the number is the last one's id
        trouble    => {},               # by number: { crashes, timer }
        waiting    => {},               # by number: why the worker there is to be replaced
        phase      => 'new',            # -> starting -> running -> stopping -> over
        generation => 0,
        most       => 0,                # the highest number that a worker had
        pid        => $$,
        looked     => _now(),
    }, $class;
    if ($self->{busy_timeout}) {
        $self->{busy_words} = Peregrine::Words->new(BUSY_MAX);
        $self->{busy_free}  = [ 0 .. BUSY_MAX - 1 ];
    }
    $self->{templates} = $self->_templates(\%args) if $args{load};
    return $self;
}

# Whatever needs one waits for it.
sub _templates {
    my ($self, $args) = @_;
    Peregrine::adopt_orphans() or die "workers cannot be forked from a template: $!\n";
    weaken(my $weak = $self);
    return Peregrine::Templates->new(
        %{$args}{qw(loop log name load run on_word start_timeout)},
        on_change => sub { $weak && $weak->_has_template },
    );
}

sub _has_template {
    my ($self) = @_;
    return $self->_balance if $self->{phase} ne 'starting';
    for my $number (1 .. $self->{wanted}) { $self->_start_worker($number) if !$self->_at($number) }
    return;
}

sub busy_words { return $_[0]{busy_words} }

sub is_running { return $_[0]{phase} eq 'running' && $_[0]{pid} == $$ ? 1 : 0 }
sub wanted     { return $_[0]{wanted} }

sub workers {
    return sort { $a->{number} <=> $b->{number} || $a->{id} <=> $b->{id} } values %{ $_[0]{workers} };
}

sub _log {
    my ($self, $level, $text) = @_;
    $self->{log}->$level("$self->{name}: $text");
    return;
}

# ---- Start --------------------------------------------------------------------------------------

sub start {
    my ($self) = @_;
    $self->{phase}    = 'starting';
    $self->{starting} = $self->{loop}->new_future;
    $self->_look_later;
    if (!$self->{templates}) {
        $self->_start_worker($_) for 1 .. $self->{wanted};
        return $self->{starting};
    }
    weaken(my $weak = $self);
    $self->{templates}->renew->on_fail(sub { $weak && $weak->_cannot_start($_[0]) })->else_done->retain;
    return $self->{starting};
}

# No worker serves, and none will.
sub _cannot_start {
    my ($self, $reason) = @_;
    return if $self->{phase} ne 'starting';
    $self->{phase} = 'over';
    $self->{templates}->stop($self->{stop_timeout}->('stop')) if $self->{templates};
    $self->{starting}->fail("$reason\n", 'workers');
    return;
}

# Each number has its worker, or is waiting for it; nobody else is there.
sub _balance {
    my ($self) = @_;
    return if $self->{phase} ne 'running' || $self->_has_no_template;
    for my $number (1 .. $self->{wanted}) {
        next if $self->_at($number) || ($self->{trouble}{$number} || {})->{timer};
        $self->_start_worker($number);
    }
    my @surplus = grep { $_->{number} > $self->{wanted} && $_->{state} ne 'leaving' } $self->workers;
    if (!@surplus || $self->_may_be_fewer) { $self->_let_go($_, 'fewer') for @surplus }
    else                                   { $self->{waiting}{1} //= 'fewer' }
    $self->_replace_next;
    $self->_look_at_restart;
    return;
}

sub _has_no_template {
    my ($self) = @_;
    return $self->{templates} && !$self->{templates}->current ? 1 : 0;
}

# If workers have sockets of their own, the first worker also serves the sockets of workers beyond the new
# number. It has the sockets that existed when it was started.
sub _may_be_fewer {
    my ($self) = @_;
    return 1 if !$self->{first_takes_over};
    my $first = $self->_at(1, 'serving');
    return $first && $first->{wanted} <= $self->{wanted} && $first->{most} == $self->{most} ? 1 : 0;
}

# The worker that has this number, or will have it.
sub _at {
    my ($self, $number, $state) = @_;
    my ($worker) =
        grep { $_->{number} == $number && ($state ? $_->{state} eq $state : $_->{state} ne 'leaving') }
        $self->workers;
    return $worker;
}

# ---- Processes ----------------------------------------------------------------------------------

# `$failure`: why the one did not start that this one stands in for.
sub _start_worker {
    my ($self, $number, $replaces, $failure) = @_;
    $self->{most} = $number if $number > $self->{most};
    my ($here, $there) =
        eval { $self->{before_fork}->($number) if $self->{before_fork}; Peregrine::Link->pair };
    my $reason = $@;
    my $column = $self->{counters} ? $self->{counters}->claim : undef;
    my $worker = {
        id         => ++$self->{started},
        number     => $number,
        state      => 'starting',                            # -> serving -> leaving
        since      => _now(),
        heard      => _now(),
        generation => $self->{generation},
        wanted     => $self->{wanted},
        most       => $self->{most},
        link       => $here,
        replaces   => $replaces ? $replaces->{id} : undef,
        column     => $column,
        failure    => $failure,
        busy       => $self->{busy_free} ? shift @{ $self->{busy_free} } : undef,
        spread     => $self->{spread}    ? $self->{spread}->claim        : undef,
    };
    if (!$here || !eval { $self->_launch($worker, $there); 1 }) {
        $reason = ($here ? $@ : $reason) =~ s/\s+\z//r;
        $_->close for grep { defined } $here, $there;
        $self->_log(error => $self->_kind . " $number cannot be started: $reason");
        $self->_give_back($worker);
        $self->_failed_start($number, $reason);
        return;
    }
    $there->close;
    $self->{workers}{ $worker->{id} } = $worker;
    weaken(my $weak = $self);
    $here->watch(
        $self->{loop},
        sub { $weak && $weak->_hear($worker, @_) },
        sub { $weak && $weak->_link_ended($worker) }
    );
    return $worker;
}

# The word for a worker in messages.
sub _kind { return 'worker' }

# Makes its process, which gets `$there`: the other end of its link.
sub _launch {
    my ($self, $worker, $there) = @_;
    return $self->{templates}
        ? $self->_fork_from_template($worker, $there)
        : $self->_fork_here($worker, $there);
}

# Frees the worker's part of the memory that all processes share.
sub _give_back {
    my ($self,   $worker) = @_;
    my ($column, $busy)   = @{$worker}{qw(column busy)};
    $self->{counters}->zero($column)            if defined $column;
    $self->{spread}->release($worker->{spread}) if defined $worker->{spread};
    return                                      if !defined $busy;
    $self->{busy_words}->set($busy, 0);
    push @{ $self->{busy_free} }, $busy;
    return;
}

sub _fork_here {
    my ($self, $worker, $there) = @_;
    $there->keep_in_child;
    my $pid = Peregrine::Fork::child() // die "fork: $!\n";
    $self->_become_worker({ %$worker, link => $there, pid => $$ }) if !$pid;
    $self->_watch_process($worker, $pid);
    return;
}

# Closes what the master has, and runs the worker. Never returns.
sub _become_worker {
    my ($self, $worker) = @_;
    $worker->{link}->use_in_child;
    $_->{link}->close for $self->workers;
    $self->{workers} = {};
    Peregrine::Fork::live(
        $worker->{link},
        $self->{role} // "worker $worker->{number}",
        sub { return $self->{run}->($worker) }
    );
    return;
}

# Its process says which one it is, and waits until somebody has taken note of it.
sub _fork_from_template {
    my ($self, $worker, $there) = @_;
    my ($facts, @descriptors) = $self->{sends} ? $self->{sends}->($worker) : {};
    $worker->{template} =
        $self->{templates}->fork_worker({ %$facts, %{$worker}{qw(number wanted most column busy spread)} },
        $there, @descriptors)
        || die "the template does not answer\n";
    return;
}

sub _introduced {
    my ($self, $worker, $pid) = @_;
    return if $worker->{pid} || $pid !~ /\A[1-9][0-9]*\z/;
    $self->_watch_process($worker, $pid);
    $worker->{link}->say('go');
    return;
}

sub _watch_process {
    my ($self, $worker, $pid) = @_;
    $worker->{pid} = $pid;
    weaken(my $weak = $self);
    $self->{loop}->watch_process($pid => sub { $weak && $weak->_gone($worker, $_[1]) });
    return;
}

# As a rule the process has ended. One of a template that has not, or whose end nobody has seen, does not
# count any more.
sub _link_ended {
    my ($self, $worker) = @_;
    return                       if !$worker->{template};
    return $self->_gone($worker) if !$worker->{pid};
    weaken(my $weak = $self);
    $self->{loop}->watch_time(
        after => END_S,
        code  => sub {
            return if !$weak || !$weak->{workers}{ $worker->{id} };
            kill KILL => $worker->{pid} if $worker->{state} ne 'leaving';
            $weak->_gone($worker) if !kill 0 => $worker->{pid};
        }
    );
    return;
}

sub _gone {
    my ($self, $worker, $status) = @_;
    delete $self->{workers}{ $worker->{id} } or return;
    $self->_hear($worker, @$_) for $worker->{link}->read_lines;
    $worker->{link}->close;
    $self->_give_back($worker);
    $self->{templates}->lost_worker($worker->{template}) if $worker->{template};
    return $self->_stopped                               if $self->{phase} eq 'stopping';
    my $state = $worker->{state};
    return $self->_died_alone($worker, $status) if $state eq 'serving' && _is_like_a_stop($status);
    $self->_not_started($worker, $status)       if $state eq 'starting';
    $self->_died($worker, $status)              if $state eq 'serving';
    # TERM is what it is told to leave with while it starts.
    $self->_log(warn => $self->_name($worker) . ', which was to leave, ' . _how_it_ended($status))
        if $state eq 'leaving' && $status && $status != POSIX::SIGTERM();
    $self->_balance;
    return;
}

sub _name {
    my ($self, $worker) = @_;
    return "worker $worker->{number} (" . ($worker->{pid} // 'not forked yet') . ')';
}

sub _how_it_ended {
    my ($status) = @_;
    return defined $status ? Peregrine::Fork::how_it_ended($status) : 'has ended';
}

# ---- A worker that ended unasked ----------------------------------------------------------------

sub _is_like_a_stop {
    my ($status) = @_;
    return defined $status && ($status == 0 || $status == POSIX::SIGTERM());
}

sub _died_alone {
    my ($self, $worker, $status) = @_;
    weaken(my $weak = $self);
    $self->{loop}->watch_time(
        after => ALONE_S,
        code  => sub {
            return if !$weak || $weak->{phase} ne 'running';
            $weak->_died($worker, $status);
            $weak->_balance;
        }
    );
    return;
}

sub _died {
    my ($self, $worker, $status) = @_;
    my $early   = _now() - $worker->{since} < CRASH_S;
    my $trouble = $self->{trouble}{ $worker->{number} } ||= { crashes => 0 };
    $trouble->{crashes} = $early ? $trouble->{crashes} + 1 : 0;
    my $why = $worker->{killed} // _how_it_ended($status);
    $self->_count_restart($worker->{counts_as} // (($status // 0) & 127 ? 'signal' : 'exit'));
    $self->_log(warn => $self->_name($worker) . " $why: another one takes its place");
    $self->_back_off($worker->{number});
    return;
}

sub _count_restart {
    my ($self, $reason) = @_;
    $self->{counters}->note_restart($reason) if $self->{counters};
    return;
}

sub _not_started {
    my ($self, $worker, $status) = @_;
    my $reason = $worker->{killed} // $worker->{reason}
        // 'it ' . _how_it_ended($status) . ' during its start';
    my $number = $worker->{number};
    $self->_count_restart('failed_start');
    if ($worker->{replaces} && $self->{workers}{ $worker->{replaces} }) {
        $self->_replacement_failed($worker, $reason);
        return;
    }
    # All of the first workers say the same, as a rule.
    if (!$self->{told}{$reason}++) { $self->_log(error => $self->_kind . " $number cannot start: $reason") }
    # Unless it was to stand in itself.
    if ($self->{stands_in} && !defined $worker->{failure}) { $self->_start_worker($number, undef, $reason) }
    else                                                   { $self->_failed_start($number, $reason) }
    return;
}

sub _failed_start {
    my ($self, $number, $reason) = @_;
    my $trouble = $self->{trouble}{$number} ||= { crashes => 0 };
    $trouble->{crashes}++;
    return $self->_back_off($number)     if $self->{phase} eq 'running';
    return $self->_cannot_start($reason) if !%{ $self->{workers} };
    return;
}

# The next start for this number has to wait, the longer the more often it went wrong.
sub _back_off {
    my ($self, $number) = @_;
    my $trouble = $self->{trouble}{$number};
    my $crashes = $trouble->{crashes};
    return if $crashes < 2 || $trouble->{timer} || $self->{phase} ne 'running';
    my $wait = BACK_OFF_S * 2**($crashes > 10 ? 8 : $crashes - 2);
    $wait = BACK_OFF_MAX_S if $wait > BACK_OFF_MAX_S;
    $self->_log(error => $self->_kind
            . " $number has failed $crashes times in a row, soon after its start: the next one starts in $wait s"
    );
    weaken(my $weak = $self);
    $trouble->{timer} = $self->{loop}->watch_time(
        after => $wait,
        code  => sub {
            delete $trouble->{timer};
            $weak->_balance if $weak;
        }
    );
    return;
}

# ---- What workers say ---------------------------------------------------------------------------

my %HEAR = (
    pid     => \&_introduced,
    ready   => \&_ready,
    failed  => sub { my ($self, $worker, $text) = @_; $worker->{reason} = $text; return },
    beat    => sub { my ($self, $worker, $text) = @_; $worker->{connections} = $text; return },
    recycle => sub { my ($self, $worker, $text) = @_; return $self->replace($worker, $text) },
    leaves  => sub { my ($self, $worker) = @_; $worker->{leaves} = 1; return $self->_look_at_restart },
);

sub _hear {
    my ($self, $worker, $word, $text) = @_;
    $worker->{heard} = _now();
    my $further = ($self->{hear} || {})->{$word};
    return $further->($worker, $text) if $further;
    my $do = $HEAR{$word} or return;
    $self->$do($worker, $text);
    return;
}

sub _ready {
    my ($self, $worker) = @_;
    return if $worker->{state} ne 'starting';
    $worker->{state} = 'serving';
    $worker->{since} = _now();
    my $old = $worker->{replaces} ? $self->{workers}{ $worker->{replaces} } : undef;
    if ($old) {
        my $reason = delete $self->{waiting}{ $worker->{number} };
        $self->_count_restart($reason // 'restart');
        $self->_let_go($old, $reason  // 'restart');
    }
    if ($self->{phase} eq 'starting') {
        $self->{phase} = 'running';
        $self->{on_serving}->() if $self->{on_serving};
        $self->{starting}->done($self);
    }
    $self->{waiting}{ $worker->{number} } //= 'restart' if $worker->{generation} < $self->{generation};
    $self->_balance;
    return;
}

# ---- More and fewer ------------------------------------------------------------------------------

sub set_workers {
    my ($self, $count) = @_;
    $self->{wanted} = $count;
    $self->_balance;
    return;
}

# ---- Replacing ----------------------------------------------------------------------------------

sub replace {
    my ($self, $worker, $reason) = @_;
    return if $worker->{state} ne 'serving' || $self->{phase} ne 'running';
    $self->{waiting}{ $worker->{number} } //= $reason;
    $self->_replace_next;
    return;
}

sub restart {
    my ($self)     = @_;
    my $restarting = $self->{restarting} //= $self->{loop}->new_future;
    if (!$self->{templates}) {
        $self->_replace_all;
        return $restarting;
    }
    return $restarting if $self->{phase} !~ /\A(?:starting|running)\z/;
    my $renewal = $self->{templates}->renew;
    # A template that was asked for before and is not ready yet loads again, and this restart waits for it,
    # too.
    return $restarting if $self->{renewal} && $self->{renewal} == $renewal;
    $self->{renewal} = $renewal;
    weaken(my $weak = $self);
    $renewal->on_ready(sub { $weak && $weak->_renewed($_[0]->failure) })->else_done->retain;
    return $restarting;
}

# Workers that wait for the restart before this one still do.
sub _renewed {
    my ($self, $failure) = @_;
    delete $self->{renewal};
    return $self->_replace_all if !defined $failure;
    $self->_log(
        error => "the restart is given up, a new template cannot start: $failure; workers that go on as"
            . " they are: $self->{wanted}");
    $self->_look_at_restart;
    return;
}

sub _replace_all {
    my ($self) = @_;
    $self->{generation}++;
    $self->_forget_failures;
    $self->_supersede($_) for grep { $_->{state} eq 'starting' } $self->workers;
    $self->{waiting}{ $_->{number} } = 'restart' for grep { $_->{state} eq 'serving' } $self->workers;
    $self->_balance;
    $self->_look_at_restart;
    return;
}

# A worker that is still starting has read code that is old by now, and may never come to its end.
sub _supersede {
    my ($self, $worker) = @_;
    $self->_interrupt_start($worker);
    $self->_tell_to_leave($worker, SUPERSEDED_S, 'stop');
    $self->_start_worker($worker->{number}) if !$worker->{replaces};
    return;
}

sub renew {
    my ($self) = @_;
    return if $self->{phase} !~ /\A(?:starting|running)\z/;
    $self->{generation}++;
    $self->_forget_failures;
    $self->{waiting} = {};
    for my $worker (grep { $_->{state} ne 'leaving' } $self->workers) {
        $self->_interrupt_start($worker);
        $self->_tell_to_leave($worker, $self->{stop_timeout}->('renew'), 'stop');
    }
    $self->_start_worker($_) for 1 .. $self->{wanted};
    $self->_look_at_restart;
    return;
}

# Seconds that a worker has which starts when all are to leave.
sub _start_left { return SUPERSEDED_S }

# A worker that still loads code does not read its link, so the stop is told to it by a signal.
sub _interrupt_start {
    my ($self, $worker) = @_;
    kill TERM => $worker->{pid} if $worker->{state} eq 'starting' && $worker->{pid};
    return;
}

# From now on workers may start that could not.
sub _forget_failures {
    my ($self) = @_;
    for my $trouble (values %{ $self->{trouble} }) {
        $self->{loop}->unwatch_time(delete $trouble->{timer}) if $trouble->{timer};
    }
    @{$self}{qw(trouble told)} = ({}, {});
    return;
}

# A restart is over when no worker waits for its replacement, whether all were replaced or the restart was
# given up, and the replaced workers accept no more connections.
sub _look_at_restart {
    my ($self) = @_;
    my $restarting = $self->{restarting} or return;
    return if $self->{templates} && $self->{templates}->is_renewing;
    return if grep { $_ eq 'restart' } values %{ $self->{waiting} };
    return if grep { $_->{state} eq 'starting' && $_->{replaces} } $self->workers;
    return if grep { $_->{state} eq 'leaving'  && !$_->{leaves} } $self->workers;
    delete $self->{restarting};
    $self->{templates}->settle if $self->{templates};
    $restarting->done;
    return;
}

# Replaces a worker at a time. The new worker serves before the old one leaves.
sub _replace_next {
    my ($self) = @_;
    return if $self->_has_no_template || grep { $_->{state} eq 'starting' && $_->{replaces} } $self->workers;
    for my $number (sort { $a <=> $b } keys %{ $self->{waiting} }) {
        my $old = $self->_at($number, 'serving');
        if (!$old || $number > $self->{wanted}) {
            delete $self->{waiting}{$number};
            next;
        }
        next if ($self->{trouble}{$number} || {})->{timer};
        $self->_start_worker($number, $old);
        return;
    }
    return;
}

# The old worker goes on.
sub _replacement_failed {
    my ($self, $worker, $reason) = @_;
    my $number  = $worker->{number};
    my $trouble = $self->{trouble}{$number} ||= { crashes => 0 };
    $trouble->{crashes}++;
    return $self->_give_up_restart("a new worker $number cannot start: $reason")
        if ($self->{waiting}{$number} // '') eq 'restart';
    $self->_log(error => $self->_kind . " $number cannot be replaced, the old one goes on: $reason");
    $self->_back_off($number);
    return;
}

sub _give_up_restart {
    my ($self, $why) = @_;
    my $waiting = $self->{waiting};
    delete @{$waiting}{ grep { $waiting->{$_} eq 'restart' } keys %$waiting };
    my $new = grep { $_->{state} eq 'serving' && $_->{generation} == $self->{generation} } $self->workers;
    my $old = $self->{wanted} - $new;
    $self->_log(error => "the restart is given up, $why; workers that go on as they are: $old");
    $self->{templates}->go_back if $self->{templates} && !$new;
    $self->_look_at_restart;
    return;
}

# ---- Telling workers to end ---------------------------------------------------------------------

# Tells a worker to leave once its connections have ended.
sub _let_go {
    my ($self, $worker, $reason) = @_;
    return if $worker->{state} eq 'leaving';
    my @message = ($reason eq 'stop' ? 'stop' : 'retire', $reason);
    $self->_tell_to_leave($worker, $self->{stop_timeout}->(@message), @message);
    return;
}

sub _tell_to_leave {
    my ($self, $worker, $seconds, @message) = @_;
    my $deadline = _now() + $seconds + ANSWER_S;
    # An earlier deadline still holds.
    $worker->{deadline} = $deadline if $worker->{state} ne 'leaving' || $deadline < $worker->{deadline};
    $worker->{state}    = 'leaving';
    $worker->{link}->say(within => sprintf '%.3f', $seconds);
    $worker->{link}->say(@message);
    return;
}

sub stop {
    my ($self) = @_;
    return $self->_end('stop');
}

sub _end {
    my ($self, @message) = @_;
    if ($self->{stopping}) {
        my $seconds = $self->{stop_timeout}->('stop');
        $self->_tell_to_leave($_, $seconds, 'stop') for grep { $message[0] eq 'stop' } $self->workers;
        return $self->{stopping};
    }
    my $before = $self->{phase};
    $self->{phase}    = 'stopping';
    $self->{stopping} = $self->{loop}->new_future;
    $self->_forget_failures;
    $self->{waiting} = {};
    (delete $self->{restarting})->done if $self->{restarting};
    $self->_interrupt_start($_) for $self->workers;
    my $seconds = $self->{stop_timeout}->(@message);
    $self->{stop_until} = _now() + $seconds;
    # A worker that is retiring already is to leave as the others; one that starts has no requests to finish.
    for my $worker ($self->workers) {
        my $limit = $worker->{state} eq 'starting' ? min($seconds, $self->_start_left) : $seconds;
        $self->_tell_to_leave($worker, $limit, @message);
    }
    $self->{starting}->fail("The server was told to stop during the application's startup\n", 'stopped')
        if $before eq 'starting';
    $self->_stopped;
    return $self->{stopping};
}

# Each serves what it has, for others accept at the same sockets.
sub retire {
    my ($self) = @_;
    return $self->_end(retire => 'restart');
}

sub hurry {
    my ($self) = @_;
    $self->{hurried}++;
    $self->{templates}->kill('was told to stop again and again')
        if $self->{templates} && $self->{hurried} > 2;
    for my $worker ($self->workers) {
        $worker->{link}->say('hurry');
        # The fourth request to stop kills.
        $self->_kill($worker, 'was told to stop again and again') if $self->{hurried} > 2;
    }
    return;
}

sub _stopped {
    my ($self) = @_;
    return if $self->{phase} ne 'stopping' || %{ $self->{workers} };
    if ($self->{templates} && !$self->{templates_gone}) {
        my $left = max(END_LEAST_S, $self->{stop_until} - _now());
        $self->{templates}->stop($left)->on_ready(sub { $self->{templates_gone} = 1; $self->_stopped });
        return;
    }
    $self->{phase} = 'over';
    $self->{loop}->unwatch_time(delete $self->{look}) if $self->{look};
    $self->{stopping}->done;
    return;
}

sub tell {
    my ($self, @message) = @_;
    $_->{link}->say(@message) for $self->workers;
    $self->{templates}->tell(@message) if $self->{templates};
    return;
}

# ---- Deadlines ----------------------------------------------------------------------------------

sub _look_later {
    my ($self) = @_;
    weaken(my $weak = $self);
    $self->{look} = $self->{loop}->watch_time(
        after => LOOK_S,
        code  => sub {
            return if !$weak || $weak->{phase} eq 'over';
            $weak->_look(_now());
            $weak->_look_later;
        }
    );
    return;
}

# A master that was stopped, or starved, has not heard what its workers said.
sub _look {
    my ($self, $now) = @_;
    if ($now - $self->{looked} > LATE_S) { $_->{heard} = $now for $self->workers }
    $self->{looked} = $now;
    for my $worker ($self->workers) {
        my $state = $worker->{state};
        my ($since, $limit, $what) =
              $state eq 'starting' ? ($worker->{since}, $self->{start_timeout}, 'did not start within %s s')
            : $state eq 'serving'
            ? ($worker->{heard}, $self->{heartbeat_timeout}, 'has not answered for %s s')
            : ($worker->{deadline}, 0.001, 'did not leave in time');
        $self->_kill($worker, $what =~ s/%s/$limit/r) if $limit && $now >= $since + $limit;
        $self->_check_busy($worker, $now);
        $self->_check_limits($worker, $now) if $state eq 'serving';
    }
    return;
}

sub _check_busy {
    my ($self, $worker, $now) = @_;
    my $limit = defined $worker->{busy} ? $self->{busy_timeout} : 0 or return;
    my $since = $self->{busy_words}->get($worker->{busy})           or return;
    return if $now - $since / 1000 < $limit;
    $self->_kill($worker, "has been at one request for $limit s", 'request');
    return;
}

sub _check_limits {
    my ($self, $worker, $now) = @_;
    my ($age, $rss) = @{ $self->{limits} || {} }{qw(age rss)};
    return $self->replace($worker, 'max_worker_age') if $age && $now - $worker->{since} >= $age->($worker);
    return $self->replace($worker, 'max_worker_rss') if $rss && $self->_has_grown($worker, $rss, $now);
    return;
}

# Whether a worker has grown beyond the limit. One that has no room for its own code has not grown: it would
# be replaced as soon as it serves, and so would the next one.
sub _has_grown {
    my ($self, $worker, $limit, $now) = @_;
    my $is_new = !$worker->{rss_from};
    $worker->{rss_from} = $now if $is_new;
    return 0 if $now < $worker->{rss_from} || !_is_beyond($worker, $limit, $now);
    return 1 if !$is_new;
    $worker->{rss_from} = $now + LARGE_S;
    $self->_log(warn => $self->_name($worker)
            . " has more memory at its start than max_worker_rss allows"
            . " ($limit bytes): every worker would be replaced at once, so each may serve for ${\LARGE_S} seconds"
    ) if !$self->{told}{max_worker_rss}++;
    return 0;
}

# Memory that a worker shares with other processes, with its template above all, does not count. The kernel
# tells it apart, but has to go through all pages of the process for that: so it is asked only if the whole
# process is large enough, and not at each look.
sub _is_beyond {
    my ($worker, $limit, $now) = @_;
    return 0 if _rss($worker->{pid}) <= $limit || $now < ($worker->{counted} // 0) + COUNT_S;
    $worker->{counted} = $now;
    return (_private($worker->{pid}) // $limit + 1) > $limit;
}

# Bytes that no other process has; undef where the kernel does not tell.
sub _private {
    my ($pid) = @_;
    open my $in, '<', "/proc/$pid/smaps_rollup" or return;
    my ($bytes, $lines) = (0, 0);
    while (defined(my $line = readline $in)) {
        $bytes += 1024 * $1 if $line =~ /\APrivate_\w+:\s+([0-9]+) kB/ && ++$lines;
    }
    return $lines ? $bytes : undef;
}

# Bytes; 0 where nobody tells.
sub _rss {
    my ($pid) = @_;
    open my $in, '<', "/proc/$pid/statm" or return 0;
    my (undef, $pages) = split ' ', readline($in) // '';
    return ($pages || 0) * POSIX::sysconf(POSIX::_SC_PAGESIZE());
}

sub _kill {
    my ($self, $worker, $why, $counts_as) = @_;
    return if $worker->{killed};
    $worker->{killed}    = "$why and was killed";
    $worker->{counts_as} = $counts_as // 'heartbeat';
    $self->_log(warn => $self->_name($worker) . " $why: SIGKILL") if $worker->{state} eq 'leaving';
    return $worker->{template}->kill('has not forked a worker')   if !$worker->{pid};
    return kill KILL => $worker->{pid} if $worker->{state} eq 'starting' || $self->{hurried};
    # The worker tells where it is, and ends.
    kill Peregrine::stuck_signal() => $worker->{pid};
    $self->{loop}->watch_time(
        after => SAY_S,
        code  => sub { kill KILL => $worker->{pid} if $self->{workers}{ $worker->{id} } }
    );
    return;
}

sub DESTROY {
    my ($self) = @_;
    return if $self->{pid} != $$ || ${^GLOBAL_PHASE} eq 'DESTRUCT';
    my $loop = $self->{loop} or return;
    $loop->unwatch_time($self->{look}) if $self->{look};
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Master - starts, watches, replaces and stops worker processes

=head1 SYNOPSIS

    my $master = Peregrine::Master->new(
        loop    => $loop,
        log     => $log,
        name    => 'PAGI',
        workers => 4,
        run     => sub { my ($worker) = @_; return serve($worker->{number}, $worker->{link}) },    # there
        stop_timeout => sub { 40 },
    );
    $master->start->get;
    $loop->run;

=head1 DESCRIPTION

Keeps so many workers alive, numbered from 1 on. Knows processes, descriptors and signals, and nothing of
what workers do: how one serves is a function that is called there, whose L<Peregrine::Link> to the master
is looked after by a L<Peregrine::WorkerProcess>.

A worker is a hash reference with C<number>, C<pid> (not yet there, perhaps), C<link>, C<state> (C<starting>,
C<serving>, C<leaving>), C<connections> (as it has told last), C<generation>, C<wanted>: how many there were
to be when it was started, and C<failure>: see C<stands_in>.

Workers are forked from the master itself, or from a L<template|Peregrine::Templates> that has loaded what
they run; then the master never does. A restart makes a new template, whose workers replace the others one by
one; when it does not load, or the first of its workers does not start, the one before goes on.

=head1 METHODS

=head2 new

Besides what the synopsis has: C<counters>, a L<Peregrine::Counters> of which each worker gets a C<column>;
C<spread>, a L<Peregrine::Spread> of which each gets a place (C<spread>);
C<load>, which makes workers come from a template: a function that is called there, before any worker;
C<sends>, which gives what such a worker has beside its number: L<facts, and
descriptors|Peregrine::Template/fork_worker>, for the worker's record; C<on_word>, called in a template with
other words that are told to all (L</tell>); C<on_serving>, called when the first worker serves;
C<before_fork>, called with the number of a worker that is about to be started, and what it dies of keeps that
from starting; C<start_timeout> and C<heartbeat_timeout>, seconds after which a worker that does not start, or
is silent, is killed (0: never). C<limits>: C<rss>, bytes of memory that the worker shares with no other
process, and C<age>, a function that gives the seconds for a worker, from which on it is replaced (0: never).
C<busy_timeout>: seconds after which a worker is killed that is still at one event, as the word C<busy> of
L</busy_words> says. C<first_takes_over>: when there are to be fewer workers, the first one is replaced
before, by one that serves the sockets of those that go, too. C<stop_timeout> is a function that gives the
seconds which a worker that was told to leave may take; it gets what that worker is told: C<stop>, or
C<retire> and the reason. C<log> is a L<PAGI::Server::Log>. C<run> returns the exit status of the worker;
what it dies of is why the worker could not start. C<hear>: functions by the word that a worker may say,
called with the worker and the text. C<stands_in>: in place of a worker that could not start another one is
started, whose C<failure> is the reason, until L</renew> is called; not together with C<load>.

=head2 start

    $master->start->get;

Forks the workers. The Future resolves when the first one serves, and fails with the category C<workers>
when none can start, or C<stopped> when L</stop> came first.

=head2 stop

    $master->stop->get;

Tells all workers to stop; the Future resolves when the last one has ended.

=head2 retire

    $master->retire->get;

Like C<stop>, for workers whose places others take: they answer once more on each connection.

=head2 hurry

    $master->hurry;

Makes a stop faster: the workers are told to hurry, and killed the third time.

=head2 restart

    $master->restart;

Replaces all workers, one after another. When a new one cannot start, the others stay. Returns a Future that
is done when no more are to be replaced, whichever way that went, and those that were accept no further
connection.

=head2 renew

    $master->renew;

Lets all workers stop, and starts others at once: the old ones accept nothing more, and what comes meanwhile
waits for the new ones. C<stop_timeout> for C<renew> is the time that old workers have for their requests.

=head2 set_workers

    $master->set_workers(5);

From now on there are so many.

=head2 replace

    $master->replace($worker, 'max_requests');

Starts another worker with its number, and lets this one leave when that serves. Workers are replaced one
at a time.

=head2 tell

    $master->tell('reopen');

Says something to all workers.

=head2 workers

    say "$_->{number}: $_->{pid}" for $master->workers;

By number; while one is replaced there are two of its number.

=head2 busy_words

    $engine_worker->show_busy_in($master->busy_words, $worker->{busy});

In a worker, with C<busy_timeout>: where it says since when it is at one event (L<Peregrine/show_busy_in>).

=head2 wanted

    say 'keeps ', $master->wanted;

How many there are to be.

=head2 is_running

    say 'serves' if $master->is_running;

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
