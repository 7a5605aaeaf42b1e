package Peregrine::Master;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future;
use IO::Async::Loop;
use List::Util qw(max min);
use Peregrine;
use Peregrine::Canary;
use Peregrine::Deadline;
use Peregrine::File;
use Peregrine::Fork;
use Peregrine::Later qw(later weakly);
use Peregrine::Link;
use Peregrine::Master::BackOff;
use Peregrine::Master::Canary;
use Peregrine::Master::Growth;
use Peregrine::Spread;
use Peregrine::Tally;
use Peregrine::Templates;
use POSIX ();

# A child that ends within CRASH_S seconds of its start counts as one more failure in a row. When no process
# could be made at all, the next start is tried AGAIN_S seconds later.
use constant { CRASH_S => 5, AGAIN_S => 0.5 };
# Seconds between two looks at the deadlines of children. After LATE_S without a look silence proves nothing.
use constant { LOOK_S => 0.5, LATE_S => 3 };
# Seconds in which a child has to end that is still starting when a restart makes its code old.
use constant SUPERSEDED_S => 3;
# Seconds that a child has, beyond the time for its stop, to say that it has ended.
use constant ANSWER_S => 0.5;
# Seconds between two looks at a process that a template has forked, and how many there are.
use constant { INTRODUCED_LOOK_S => 0.01, INTRODUCED_LOOKS => 1_000 };
# Seconds that a stuck child gets for telling where it is, before it is killed.
use constant SAY_S => 3;
# Seconds that templates have for their END blocks when children have used up the time of the stop.
use constant END_LEAST_S => 1;
# A child that ended with status 0 or by TERM counts as one that ended unasked only after this many seconds: a
# TERM for the whole process group comes to the master, too, which may hear of the child's end before.
use constant ALONE_S => 0.1;
# Seconds from the end of a child's link to the end of its process. After that another process has waited for
# it, or it is no child any more.
use constant END_S => 1;

# Objects are not copied into clones of the interpreter, see Peregrine::Threads.
sub CLONE_SKIP { return 1 }

sub new {
    my ($class, %args) = @_;
    my $self = bless {
        %args{
            qw(loop log run counters on_serving before_fork stop_timeout start_timeout heartbeat_timeout
                limits first_takes_over hear stands_in sends busy_timeout role canary_time is_helper places
                identity named)
        },
        wanted     => $args{count},
        children   => {},                        # by id
        started    => 0,                         # the number of children that were started; the last one's id
        phase      => 'new',                     # -> starting -> running -> stopping -> over
        generation => 0,
        restarts   => 0,
        replaced   => 0,
        most       => 0,                         # the highest number that a child had
        pid        => $$,
        looked     => Peregrine::Deadline::now(),
    }, $class;
    my %shared = (
        column => $args{counters},
        spread => $args{spread},
        tally  => $args{tally} // ($args{canary_time} ? Peregrine::Tally->new : undef),
        busy   => ($args{busy_timeout} ? Peregrine::Spread->new : undef),
    );
    # Memory of all processes, by the word for a child's place in it.
    $self->{shared}    = { map { $_ => $shared{$_} } grep { $shared{$_} } keys %shared };
    $self->{templates} = $self->_templates(\%args) if $args{load};
    $self->{back_off} =
        Peregrine::Master::BackOff->new(loop => $self->{loop}, on_time => weakly($self, '_waited'));
    return $self;
}

sub _templates {
    my ($self, $args) = @_;
    Peregrine::adopt_orphans() or die "workers cannot be forked from a template: $!\n";
    return Peregrine::Templates->new(
        %{$args}{qw(loop log load run on_word start_timeout identity)},
        set_by    => $self->_set_by('start'),
        on_change => weakly($self, '_has_template'),
    );
}

sub _has_template {
    my ($self) = @_;
    return $self->{phase} eq 'starting' ? $self->_start_missing : $self->_balance;
}

# The generation of a child that starts now: 1, and one more for each restart that came to its end.
sub generation { return 1 + $_[0]{restarts} }

# The reason why the last restart was given up; undef: it was not given up.
sub given_up { return $_[0]{given_up} }

sub replaced { return $_[0]{replaced} }

# Whether there is no child, and the next one starts later, because others, or templates, have failed.
sub waits {
    my ($self) = @_;
    return 0 if %{ $self->{children} };
    return $self->{back_off}->waits || $self->{templates} && $self->{templates}->waits ? 1 : 0;
}

sub busy_words { return $_[0]{shared}{busy}->words }
sub tally      { return $_[0]{shared}{tally} }

# Called in a child of another master: unmaps the words that this master reads, so that the child can write
# none of them.
sub leave_words {
    my ($self) = @_;
    $_->leave for grep { defined } @{ $self->{shared} }{qw(busy tally)};
    return;
}

sub is_running { return $_[0]{phase} eq 'running' && $_[0]{pid} == $$ ? 1 : 0 }
sub wanted     { return $_[0]{wanted} }

sub children {
    return sort { $a->{number} <=> $b->{number} || $a->{id} <=> $b->{id} } values %{ $_[0]{children} };
}

# ---- Start --------------------------------------------------------------------------------------

sub start {
    my ($self) = @_;
    $self->{phase}    = 'starting';
    $self->{starting} = $self->{loop}->new_future;
    $self->_look_later;
    if (!$self->{templates}) {
        $self->_start_missing;
        return $self->{starting};
    }
    $self->{templates}->renew->on_fail(weakly($self, '_cannot_start'))->else_done->retain;
    return $self->{starting};
}

# Ends a start in which no child serves: the master starts no other child.
sub _cannot_start {
    my ($self, $reason) = @_;
    return if $self->{phase} ne 'starting';
    $self->{phase} = 'over';
    $self->{templates}->stop($self->{stop_timeout}->('stop')) if $self->{templates};
    $self->{starting}->fail("$reason\n", 'workers');
    (delete $self->{restarting})->done(0) if $self->{restarting};
    return;
}

sub _start_missing {
    my ($self) = @_;
    for my $number (1 .. $self->{wanted}) {
        next if $self->_at($number) || $self->{back_off}->waits($number);
        $self->_start_child($number);
        last if $self->{phase} eq 'over';
    }
    return;
}

# Starts a child for each number that has none, and lets children with higher numbers go.
sub _balance {
    my ($self) = @_;
    return if $self->{phase} ne 'running' || $self->_has_no_template;
    $self->_start_missing;
    my @surplus = grep { $_->{number} > $self->{wanted} && $_->{state} ne 'leaving' } $self->children;
    if (!@surplus || $self->_may_be_fewer) { $self->_let_go($_, 'fewer') for @surplus }
    else {
        $_->{due} //= 'fewer' for grep { defined } $self->_at(1, 'serving');
    }
    $self->_replace_next;
    $self->_look_at_restart;
    return;
}

sub _has_no_template {
    my ($self) = @_;
    return $self->{templates} && !$self->{templates}->current ? 1 : 0;
}

# Whether surplus children may leave. If children have sockets of their own, the first child must serve the
# sockets of children beyond the new number; it has the sockets that existed when it was started.
sub _may_be_fewer {
    my ($self) = @_;
    return 1 if !$self->{first_takes_over};
    my $first = $self->_at(1, 'serving');
    return $first && $first->{wanted} <= $self->{wanted} && $first->{most} == $self->{most} ? 1 : 0;
}

# The child that has this number, or will have it.
sub _at {
    my ($self, $number, $state) = @_;
    my ($child) =
        grep { $_->{number} == $number && ($state ? $_->{state} eq $state : $_->{state} ne 'leaving') }
        $self->children;
    return $child;
}

# ---- Processes ----------------------------------------------------------------------------------

# Starts a child. `$failure`: the reason why another child did not start, in whose place this one stands.
sub _start_child {
    my ($self, $number, $replaces, $failure) = @_;
    $self->{most} = $number if $number > $self->{most};
    my ($here, $there) =
        eval { $self->{before_fork}->($number) if $self->{before_fork}; Peregrine::Link->pair };
    my $reason = $@;
    my $canary = $self->_has_old_code ? $self->{canary} : undef;
    my $shared = $self->{shared};
    my $child  = {
        id         => ++$self->{started},
        number     => $number,
        state      => 'starting',                                                   # -> serving -> leaving
        since      => Peregrine::Deadline::now(),
        heard      => Peregrine::Deadline::now(),
        generation => $canary ? $canary->old->{generation} : $self->{generation},
        wanted     => $self->{wanted},
        most       => $self->{most},
        link       => $here,
        replaces   => $replaces ? $replaces->{id} : undef,
        failure    => $failure,
        map { $_ => scalar $shared->{$_}->claim } keys %$shared,
    };
    if (!$here || !eval { $self->_launch($child, $there); 1 }) {
        $reason = ($here ? $@ : $reason) =~ s/\s+\z//r;
        $_->close for grep { defined } $here, $there;
        $self->{log}->error($self->_kind . " $number cannot be started: $reason");
        $self->_give_back($child);
        $self->_failed_start($number, $reason);
        # No process ends here, by which the master would hear that it has to try again.
        $self->{back_off}->wait_for($number, AGAIN_S) if $self->{phase} eq 'running';
        return;
    }
    $there->close;
    $self->{children}{ $child->{id} } = $child;
    $here->refuse_descriptors;
    $here->watch($self->{loop}, weakly($self, _hear => $child), weakly($self, _link_ended => $child));
    return $child;
}

# The word for a child in messages.
sub _kind  { return 'worker' }
sub _means { return 'the process' }

# Makes the child's process, which gets `$there`: the other end of the child's link.
sub _launch {
    my ($self, $child, $there) = @_;
    return $self->{templates}
        ? $self->_fork_from_template($child, $there)
        : $self->_fork_here($child, $there);
}

# Frees the child's part of the memory that all processes share.
sub _give_back {
    my ($self, $child) = @_;
    my $shared = $self->{shared};
    $shared->{$_}->release($child->{$_}) for grep { defined $child->{$_} } keys %$shared;
    return;
}

sub _fork_here {
    my ($self, $child, $there) = @_;
    $there->keep_in_child;
    my $pid = Peregrine::Fork::child($self->{identity}) // die "fork: $!\n";
    $self->_become_child({ %$child, link => $there, pid => $$ }) if !$pid;
    $self->_watch_process($child, $pid);
    return;
}

# Closes the links of the master, and runs the child. Never returns.
sub _become_child {
    my ($self, $child) = @_;
    $child->{link}->use_in_child;
    $_->{link}->close for $self->children;
    $self->{children} = {};
    Peregrine::Fork::start_with_parent($child->{link});
    Peregrine::Fork::live(
        $child->{link},
        $self->{role} // "worker $child->{number}",
        sub { return $self->{run}->($child) }
    );
    return;
}

# Has a template fork the child's process, which tells its pid over the link and waits for `go`, so that the
# master watches it from the start.
sub _fork_from_template {
    my ($self, $child, $there) = @_;
    my ($facts, @descriptors) = $self->{sends} ? $self->{sends}->($child) : {};
    my $is_old   = $self->{canary} && $child->{generation} < $self->{canary}->child->{generation};
    my $template = $is_old ? $self->{templates}->previous : $self->{templates}->current;
    my %facts =
        (%$facts, role => $self->{role}, %{$child}{ qw(number wanted most), keys %{ $self->{shared} } });
    $child->{template} = $template && $template->fork_child(\%facts, $there, @descriptors)
        or die "the template does not answer\n";
    return;
}

sub _introduced {
    my ($self, $child, $pid) = @_;
    # A process that names a pid twice means harm: each look is a call of the kernel.
    return if ($pid // '') !~ /\A[1-9][0-9]*\z/ || $child->{introduced}++;
    return $self->_look_at_introduced($child, $pid, INTRODUCED_LOOKS);
}

# Watches the process that was named. It is the master's child only when the process that forked it has ended.
sub _look_at_introduced {
    my ($self, $child, $pid, $looks) = @_;
    return if $child->{pid} || !$self->{children}{ $child->{id} };
    my $is_own = $self->_is_own($pid);
    return later($self->{loop}, INTRODUCED_LOOK_S, $self, _look_at_introduced => $child, $pid, $looks - 1)
        if !$is_own && $looks > 0;
    # Expected: the loop watches the process already, as that of another child.
    if ($is_own && eval { $self->_watch_process($child, $pid); 1 }) {
        $child->{link}->say('go');
        return;
    }
    $child->{reason} = "its template has named process $pid, which is none of its own";
    return $self->_gone($child);
}

# Whether a named process may be watched, and killed. The code that a template of another user has loaded may
# name any process. The master, which may kill all of them, takes only a child of its own that is of that
# user.
sub _is_own {
    my ($self, $pid) = @_;
    my $identity = $self->{identity} // Peregrine::Fork::identity_of_children() // return 1;
    my $status   = Peregrine::File::text("/proc/$pid/status") // '';
    my ($parent) = $status =~ /^PPid:\s*([0-9]+)/m or return 0;
    my ($uids)   = $status =~ /^Uid:\s*(.+)/m      or return 0;
    return $parent == $$ && !grep { $_ != $identity->{uid} } split ' ', $uids;
}

sub _watch_process {
    my ($self, $child, $pid) = @_;
    $self->{loop}->watch_process($pid => weakly($self, _ended => $child));
    $child->{pid} = $pid;
    return;
}

# Handles the end of a child's link. As a rule the process has ended. But a process of a template may have
# failed to start, or another process may have waited for it; and a process that has run another program with
# exec hears nothing any more. Then the child is given up.
sub _link_ended {
    my ($self, $child) = @_;
    return $self->_gone($child) if !$child->{pid};
    later($self->{loop}, END_S, $self, _give_up => $child);
    return;
}

sub _give_up {
    my ($self, $child) = @_;
    return if !$self->{children}{ $child->{id} };
    kill KILL => $child->{pid} if $child->{state} ne 'leaving';
    $self->_gone($child) if !kill 0 => $child->{pid};
    return;
}

sub _ended {
    my ($self, $child, undef, $status) = @_;
    return $self->_gone($child, $status);
}

sub _gone {
    my ($self, $child, $status) = @_;
    delete $self->{children}{ $child->{id} } or return;
    $self->_hear($child, @$_) for $child->{link}->read_lines;
    $self->{canary}->note_end($child) if $self->{canary};
    $child->{link}->close;
    $self->_give_back($child);
    $self->{templates}->lost_child($child->{template}) if $child->{template};
    return $self->_stopped                             if $self->{phase} eq 'stopping';
    my $state = $child->{state};
    # During the start there is no such wait: other children may be ready before it is over.
    return later($self->{loop}, ALONE_S, $self, _died_alone => $child, $status)
        if $state eq 'serving' && $self->{phase} ne 'starting' && _is_like_a_stop($status);
    $self->_not_started($child, $status)      if $state eq 'starting';
    $self->_died($child, $status)             if $state eq 'serving';
    $self->_start_successor($child->{number}) if $state eq 'serving' && $self->{phase} eq 'starting';
    # A child that is still starting is told to leave by TERM.
    $self->{log}->warn($self->_name($child) . ', which was to leave, ' . _how_it_ended($status))
        if $state eq 'leaving' && $status && $status != POSIX::SIGTERM();
    $self->_look_at_start;
    $self->_balance;
    return;
}

sub _name {
    my ($self, $child) = @_;
    return $self->_kind . " $child->{number} (" . ($child->{pid} // 'not forked yet') . ')';
}

sub _how_it_ended {
    my ($status) = @_;
    return defined $status ? Peregrine::Fork::how_it_ended($status) : 'has ended';
}

# ---- A child that ended unasked ----------------------------------------------------------------

sub _is_like_a_stop {
    my ($status) = @_;
    return defined $status && ($status == 0 || $status == POSIX::SIGTERM());
}

sub _died_alone {
    my ($self, $child, $status) = @_;
    return if $self->{phase} ne 'running';
    $self->_died($child, $status);
    return $self->_balance;
}

sub _died {
    my ($self, $child, $status) = @_;
    if   ($self->_is_crash($child)) { $self->{back_off}->note_failure($child->{number}) }
    else                            { $self->{back_off}->note_success($child->{number}) }
    my $why = $child->{killed} // _how_it_ended($status);
    $self->_count_restart($child->{counts_as} // (($status // 0) & 127 ? 'signal' : 'exit'));
    return $self->_canary_died($why)    if $self->_is_canary($child);
    $self->{canary}->note_crash($child) if $self->{canary};
    $self->{log}->warn($self->_name($child) . " $why: another one takes its place");
    $self->_back_off($child->{number});
    return;
}

# Starts a child after one that has served and ended during the start: the start waits for it. Children that
# have failed to start are tried again once others serve.
sub _start_successor {
    my ($self, $number) = @_;
    return if $number > $self->{wanted} || $self->{back_off}->waits($number) || $self->_has_no_template;
    $self->_start_child($number);
    return;
}

sub _is_crash {
    my ($self, $child) = @_;
    return Peregrine::Deadline::now() - $child->{since} < CRASH_S ? 1 : 0;
}

sub _count_restart {
    my ($self, $reason) = @_;
    $self->{replaced}++;
    $self->{counters}->note_restart($reason) if $self->{counters};
    return;
}

sub _not_started {
    my ($self, $child, $status) = @_;
    my $end    = $child->{killed} // _how_it_ended($status) . ' during its start';
    my $reason = !defined $child->{killed} && $child->{reason} || $self->_means . " $end";
    my $number = $child->{number};
    $self->_count_restart('failed_start');
    if ($child->{replaces} && $self->{children}{ $child->{replaces} }) {
        $self->_replacement_failed($child, $reason);
        return;
    }
    # The first children fail for the same reason, as a rule, which is logged once.
    if (!$self->{told}{$reason}++) { $self->{log}->error($self->_kind . " $number cannot start: $reason") }
    # A child that starts in place of a failed one gets no such child itself.
    if ($self->{stands_in} && !defined $child->{failure}) { $self->_start_child($number, undef, $reason) }
    else                                                  { $self->_failed_start($number, $reason) }
    return;
}

sub _failed_start {
    my ($self, $number, $reason) = @_;
    $self->{back_off}->note_failure($number);
    return $self->_back_off($number) if $self->{phase} eq 'running';
    my @children = $self->children;
    return if $self->{phase} ne 'starting' || grep { $_->{state} ne 'leaving' } @children;
    return if grep                                 { $self->{back_off}->waits($_) } 1 .. $self->{wanted};
    # A restart has told children that were about to start to leave: this failure is the new code's first.
    return $self->{back_off}->wait_for($number, AGAIN_S) if @children;
    return $self->_cannot_start($reason);
}

sub _back_off {
    my ($self, $number) = @_;
    return if $self->{phase} !~ /\A(?:starting|running)\z/;
    my ($failures, $seconds) = $self->{back_off}->delay($number) or return;
    $self->{log}->error($self->_kind
            . " $number has failed $failures times in a row, soon after its start:"
            . " the next one starts in $seconds s");
    return;
}

sub _waited {
    my ($self) = @_;
    return $self->_balance if $self->{phase} ne 'starting';
    $self->_start_missing  if !$self->_has_no_template;
    $self->_look_at_start;
    return;
}

# ---- Messages of children ------------------------------------------------------------------------

my %HEAR = (
    pid     => \&_introduced,
    ready   => \&_ready,
    failed  => sub { my ($self, $child, $text) = @_; $child->{reason} = $text; return },
    beat    => sub { my ($self, $child, $text) = @_; $child->{connections} = $text; return },
    recycle => \&replace,
    leaves  => sub { my ($self, $child) = @_; $child->{leaves} = 1; return $self->_look_at_restart },
);

sub _hear {
    my ($self, $child, $word, $text) = @_;
    $child->{heard} = Peregrine::Deadline::now();
    my $further = ($self->{hear} || {})->{$word};
    return $further->($child, $text) if $further;
    my $do = $HEAR{$word} or return;
    $self->$do($child, $text);
    return;
}

sub _ready {
    my ($self, $child, $bytes) = @_;
    return if $child->{state} ne 'starting';
    $child->{began_with} = $bytes if ($bytes // '') =~ /\A[0-9]{1,18}\z/;
    $child->{state}      = 'serving';
    $child->{since}      = Peregrine::Deadline::now();
    # Looks at the child's memory at its start, before requests make it grow (_has_grown).
    $self->_check_limits($child, $child->{since});
    my $old = $child->{replaces} ? $self->{children}{ $child->{replaces} } : undef;
    if    ($old && $self->_is_to_be_canary($child, $old)) { $self->_begin_canary($child, $old) }
    elsif ($old)                                          { $self->_replaced($old, $child) }
    $self->_look_at_start;
    $self->_balance;
    return;
}

# Ends the start when a child serves and no kind of children, helpers or others, is only starting: requests
# for that kind would wait for children that may never come to the end of their start. If all of a kind have
# failed, they are tried again while others serve.
sub _look_at_start {
    my ($self) = @_;
    return if $self->{phase} ne 'starting';
    my %there;
    $there{ $self->_is_helper($_->{number}) }{ $_->{state} }++ for $self->children;
    $there{ $self->_is_helper($_) }{starting}++
        for grep { $self->{back_off}->waits($_) } 1 .. $self->{wanted};
    return if !grep { $_->{serving} } values %there;
    return if grep  { $_->{starting} && !$_->{serving} } values %there;
    $self->{phase} = 'running';
    $self->{on_serving}->() if $self->{on_serving};
    $self->{starting}->done($self);
    return;
}

sub _is_helper {
    my ($self, $number) = @_;
    return $self->{is_helper} && $self->{is_helper}->($number) ? 1 : 0;
}

sub _replaced {
    my ($self, $old, $new) = @_;
    $self->{canary}->note_replaced($old, $new) if $self->{canary};
    my $reason = $self->_why($old) || 'restart';
    $self->_count_restart($reason);
    $self->_let_go($old, $reason);
    return;
}

# ---- More and fewer ------------------------------------------------------------------------------

sub set_count {
    my ($self, $count) = @_;
    $self->{wanted} = $count;
    $self->_balance;
    return;
}

# ---- Replacing ----------------------------------------------------------------------------------

sub replace {
    my ($self, $child, $reason) = @_;
    $child->{due} //= $reason;
    $self->_replace_next if $self->{phase} eq 'running';
    return;
}

# The reason why a child is to be replaced, or ''. A child with old code and no reason of its own waits for
# the end of a canary.
sub _why {
    my ($self, $child) = @_;
    return '' if $child->{state} ne 'serving' || $self->_is_canary($child);
    return 'restart'
        if $self->{replacing} && !$self->{canary} && $child->{generation} < $self->{generation};
    return $child->{due} // '';
}

sub restart {
    my ($self)     = @_;
    my $restarting = $self->{restarting} //= $self->{loop}->new_future;
    delete $self->{given_up};
    $self->_end_canary('another restart begins') if $self->{canary};
    if (!$self->{templates}) {
        $self->_replace_all;
        return $restarting;
    }
    return $restarting if $self->{phase} !~ /\A(?:starting|running)\z/;
    my $renewal = $self->{templates}->renew;
    # A template that is not ready yet loads again, and this restart waits for it, too.
    return $restarting if $self->{renewal} && $self->{renewal} == $renewal;
    $self->{renewal} = $renewal;
    $renewal->on_ready(weakly($self, '_renewed'))->else_done->retain;
    $self->_replace_next;
    return $restarting;
}

# Handles the end of a renewal. If it has failed, children that wait for an earlier restart still do.
sub _renewed {
    my ($self, $renewal) = @_;
    delete $self->{renewal};
    my ($failure) = $renewal->failure or return $self->_replace_all;
    $self->{given_up} = "a new template cannot start: $failure";
    $self->{log}->error(
        "the restart is given up, $self->{given_up}; workers that go on as they are: $self->{wanted}");
    $self->_look_at_restart;
    return;
}

sub _replace_all {
    my ($self) = @_;
    $self->{generation}++;
    $self->{replacing} = 1;
    $self->_forget_failures;
    $self->_supersede($_) for grep { $_->{state} eq 'starting' } $self->children;
    $self->_start_missing if $self->{phase} eq 'starting';
    $self->_balance;
    $self->_look_at_restart;
    return;
}

# Replaces a child that is still starting: it has read code that is old by now, and may never come to its end.
# If it serves meanwhile, it leaves like one that is replaced: WebSockets that come to it are closed for
# another child.
sub _supersede {
    my ($self, $child) = @_;
    $self->_interrupt_start($child);
    $self->_tell_to_leave($child, SUPERSEDED_S, undef, 'retire', 'restart');
    $self->_start_child($child->{number}) if !$child->{replaces};
    return;
}

sub renew {
    my ($self) = @_;
    return if $self->{phase} !~ /\A(?:starting|running)\z/;
    $self->{generation}++;
    $self->_forget_failures;
    for my $child (grep { $_->{state} ne 'leaving' } $self->children) {
        $self->_interrupt_start($child);
        $self->_tell_to_leave($child, $self->{stop_timeout}->('renew'), undef, 'stop');
    }
    $self->_start_missing;
    $self->_look_at_restart;
    return;
}

# Seconds that a child has to leave in when the master stops while the child starts.
sub _start_left { return SUPERSEDED_S }

# Tells a child by a signal that it is to stop, because a child that still loads code does not read its link.
sub _interrupt_start {
    my ($self, $child) = @_;
    kill TERM => $child->{pid} if $child->{state} eq 'starting' && $child->{pid};
    return;
}

# Lets children start without waiting again, and failures be logged again.
sub _forget_failures {
    my ($self) = @_;
    $self->{back_off}->forget;
    $self->{told} = {};
    return;
}

# A restart is over when no child waits for its replacement, whether all were replaced or the restart was
# given up, and the replaced children accept no more connections.
sub _look_at_restart {
    my ($self) = @_;
    my $restarting = $self->{restarting} or return;
    return if $self->{templates} && $self->{templates}->is_renewing;
    return if $self->{canary};
    return if grep { $self->_why($_) eq 'restart' } $self->children;
    return if grep { $_->{state} eq 'starting' && $_->{replaces} } $self->children;
    return if grep { $_->{state} eq 'leaving'  && !$_->{leaves} } $self->children;
    delete @{$self}{qw(restarting replacing)};
    $self->{templates}->settle if $self->{templates};
    my $done = defined $self->{given_up} ? 0 : 1;
    $self->{restarts} += $done;
    $restarting->done($done);
    return;
}

# Whether a child that starts now gets the code that a canary is compared with. Without a template it would
# load the new code.
sub _has_old_code {
    my ($self) = @_;
    return $self->{canary} && $self->{templates} && $self->{templates}->previous ? 1 : 0;
}

# Replaces one child at a time. The new child serves before the old one leaves. If places are few, the new
# child waits for the end of children that leave.
sub _replace_next {
    my ($self) = @_;
    return if $self->{canary} && !$self->_has_old_code;
    return if $self->{places} && $self->{places} <= keys %{ $self->{children} };
    return if $self->_has_no_template || grep { $_->{state} eq 'starting' && $_->{replaces} } $self->children;
    my ($old) =
        grep { $self->_why($_) && $_->{number} <= $self->{wanted} && !$self->{back_off}->waits($_->{number}) }
        $self->children;
    $self->_start_child($old->{number}, $old) if $old;
    return;
}

# Gives up a replacement that could not start: the old child goes on.
sub _replacement_failed {
    my ($self, $child, $reason) = @_;
    my $number = $child->{number};
    $self->{back_off}->note_failure($number);
    return $self->_give_up_restart("a new worker $number cannot start: $reason")
        if $self->_why($self->{children}{ $child->{replaces} }) eq 'restart';
    $self->{log}->error($self->_kind . " $number cannot be replaced, the old one goes on: $reason");
    $self->_back_off($number);
    return;
}

sub _give_up_restart {
    my ($self, $why) = @_;
    delete $self->{replacing};
    my $new = grep { $_->{state} eq 'serving' && $_->{generation} == $self->{generation} } $self->children;
    my $old = $self->{wanted} - $new;
    $self->{log}->error("the restart is given up, $why; workers that go on as they are: $old");
    $self->{templates}->go_back if $self->{templates} && !$new;
    $self->{given_up} = $why;
    $self->_look_at_restart;
    return;
}

# ---- A canary: one child with new code beside the old ones ----------------------------------------

# Whether a child is the canary: the first one of a restart.
sub _is_to_be_canary {
    my ($self, $child, $old) = @_;
    return
           $self->{canary_time}
        && !$self->{canary}
        && !$self->_is_helper($child->{number})
        && $self->_why($old) eq 'restart'
        && $child->{generation} == $self->{generation}
        && ($self->{trusted} // -1) < $self->{generation} ? 1 : 0;
}

sub _is_canary {
    my ($self, $child) = @_;
    return $self->{canary} && $self->{canary}->is($child);
}

# Begins to compare a canary with the old code. The old child stays meanwhile.
sub _begin_canary {
    my ($self, $child, $old) = @_;
    $self->{canary} = Peregrine::Master::Canary->new(
        child   => $child,
        old     => $old,
        others  => [ $self->children ],
        tally   => $self->tally,
        seconds => $self->{canary_time},
    );
    $child->{link}->say(turns => 1);
    $self->{log}->info($self->_name($child)
            . " has the new code, and serves beside the old ones for $self->{canary_time} s");
    return;
}

sub _look_at_canary {
    my ($self, $now) = @_;
    my $canary = $self->{canary} or return;
    my ($verdict, $why, @figures) = $canary->verdict($now, $self->children);
    return                                   if !defined $verdict;
    return $self->_take_back($why, @figures) if $verdict eq 'worse';
    return $self->_trust(@figures)           if $verdict eq 'trusted';
    $self->_end_canary('it is not to serve any more');
    return $self->_balance;
}

sub _trust {
    my ($self, @figures) = @_;
    my $canary = delete $self->{canary};
    my ($child, $old) = ($canary->child, $canary->old);
    $self->{trusted} = $self->{generation};
    $child->{link}->say(turns => 0);
    $self->{log}->info($self->_name($child)
            . ' with the new code is not clearly worse, the others follow: '
            . _told(@figures));
    $self->_replaced($old, $child) if $self->{children}{ $old->{id} };
    $self->_balance;
    return;
}

sub _told {
    return join '; the others: ', map { Peregrine::Canary::text($_) } @_;
}

sub _canary_died {
    my ($self,     $how)     = @_;
    my ($is_worse, @figures) = $self->{canary}->verdict_on_crash($self->children);
    return $self->_take_back($how, @figures) if $is_worse;
    delete $self->{canary};
    $self->{log}
        ->warn("a worker with the new code $how, as others do with the old code: another one follows");
    return;
}

sub _take_back {
    my ($self, $why, @figures) = @_;
    my $name = $self->_name($self->_withdraw_canary);
    $self->_give_up_restart("$name with the new code is taken back: $why (" . _told(@figures) . ')');
    return $self->_balance;
}

# Ends a canary without a verdict: the old children go on.
sub _end_canary {
    my ($self, $why) = @_;
    my $name = $self->_name($self->_withdraw_canary);
    $self->{log}->info("$name with the new code is taken back undecided: $why");
    delete $self->{replacing};
    return;
}

# Takes back a canary, and children with the new code that took the place of others meanwhile. Without a
# template these stay, because code that is loaded now would be the new code again.
sub _withdraw_canary {
    my ($self) = @_;
    my $child = (delete $self->{canary})->child;
    if ($self->{children}{ $child->{id} }) {
        $child->{link}->say(turns => 0);
        $self->_let_go($child, 'restart');
    }
    return $child if !$self->{templates};
    $self->{templates}->go_back;
    my @new = grep { $_->{generation} == $self->{generation} } $self->children;
    $_->{due} //= 'other' for grep { $_->{state} eq 'serving' } @new;
    $self->_supersede($_) for grep { $_->{state} eq 'starting' } @new;
    return $child;
}

# ---- Telling children to end ---------------------------------------------------------------------

# Tells a child to leave once its connections have ended.
sub _let_go {
    my ($self, $child, $reason) = @_;
    return if $child->{state} eq 'leaving';
    my @message = ($reason eq 'stop' ? 'stop' : 'retire', $reason);
    my $set_by  = $message[0] eq 'stop' || $reason eq 'restart' ? 'stop' : 'recycle';
    $self->_tell_to_leave($child, $self->{stop_timeout}->(@message), $set_by, @message);
    return;
}

# Gives a child these seconds to leave. `set_by`: the key in `named` of the options that set them; undef: none
# do.
sub _tell_to_leave {
    my ($self, $child, $seconds, $set_by, @message) = @_;
    my $deadline = Peregrine::Deadline::now() + $seconds + ANSWER_S;
    # An earlier deadline still holds.
    @{$child}{qw(deadline leaves_by)} = ($deadline, $set_by)
        if $child->{state} ne 'leaving' || $deadline < $child->{deadline};
    $child->{state} = 'leaving';
    $child->{link}->say(within => sprintf '%.3f', $seconds);
    $child->{link}->say(@message);
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
        $self->_tell_to_leave($_, $seconds, 'stop', 'stop')
            for grep { $message[0] eq 'stop' } $self->children;
        return $self->{stopping};
    }
    my $before = $self->{phase};
    $self->{phase}    = 'stopping';
    $self->{stopping} = $self->{loop}->new_future;
    $self->_forget_failures;
    delete $self->{canary};
    (delete $self->{restarting})->done if $self->{restarting};
    $self->_interrupt_start($_) for $self->children;
    my $seconds = $self->{stop_timeout}->(@message);
    $self->{stop_until} = Peregrine::Deadline::now() + $seconds;
    # A child that is retiring is told to stop as all others are. A starting child has no requests.
    for my $child ($self->children) {
        my $limit = $child->{state} eq 'starting' ? min($seconds, $self->_start_left) : $seconds;
        $self->_tell_to_leave($child, $limit, $limit == $seconds ? 'stop' : undef, @message);
    }
    $self->{starting}->fail("The server was told to stop during the application's startup\n", 'stopped')
        if $before eq 'starting';
    $self->_stopped;
    return $self->{stopping};
}

# Has children answer once more on each connection, because another program accepts at the same sockets.
sub retire {
    my ($self) = @_;
    return $self->_end(retire => 'restart');
}

sub hurry {
    my ($self) = @_;
    $self->{hurried}++;
    $self->{templates}->kill('was told to stop again and again')
        if $self->{templates} && $self->{hurried} > 2;
    for my $child ($self->children) {
        $child->{link}->say('hurry');
        # The fourth request to stop kills.
        $self->_kill($child, 'was told to stop again and again') if $self->{hurried} > 2;
    }
    return;
}

sub _stopped {
    my ($self) = @_;
    return if $self->{phase} ne 'stopping' || %{ $self->{children} };
    if ($self->{templates} && !$self->{templates_gone}) {
        my $left = max(END_LEAST_S, $self->{stop_until} - Peregrine::Deadline::now());
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
    $_->{link}->say(@message) for $self->children;
    $self->{templates}->tell(@message) if $self->{templates};
    return;
}

# ---- Deadlines ----------------------------------------------------------------------------------

sub _look_later {
    my ($self) = @_;
    $self->{look} = later($self->{loop}, LOOK_S, $self, '_look');
    return;
}

# Looks at the deadlines of children. Silence proves nothing if the master was stopped, or got no processor
# time, and has not read its links.
sub _look {
    my ($self) = @_;
    return if $self->{phase} eq 'over';
    my $now = Peregrine::Deadline::now();
    if ($now - $self->{looked} > LATE_S) { $_->{heard} = $now for $self->children }
    $self->{looked} = $now;
    for my $child ($self->children) {
        my $state = $child->{state};
        my ($since, $limit, $option, $what) =
            $state eq 'starting'
            ? ($child->{since}, $self->{start_timeout}, 'start', 'did not start within %s s')
            : $state eq 'serving'
            ? ($child->{heard}, $self->_silence_of($child), 'silence', 'has not answered for %s s')
            : ($child->{deadline}, 0.001, $child->{leaves_by}, 'did not leave in time');
        $self->_kill($child, $what =~ s/%s/$limit/r . $self->_set_by($option))
            if $limit && $now >= $since + $limit;
        $self->_check_busy($child, $now);
        $self->_check_limits($child, $now) if $state eq 'serving';
    }
    $self->_look_at_canary($now);
    return $self->_look_later;
}

# The options that set a deadline, for the message about a child that has missed it.
sub _set_by {
    my ($self, $deadline) = @_;
    my $names = defined $deadline ? ($self->{named} || {})->{$deadline} : undef;
    return defined $names ? " ($names)" : '';
}

# Seconds for which a child may be silent.
sub _silence_of {
    my ($self, $child) = @_;
    my $timeout = $self->{heartbeat_timeout};
    return ref $timeout ? $timeout->($child->{number}) : $timeout;
}

sub _check_busy {
    my ($self, $child, $now) = @_;
    my $limit = defined $child->{busy} ? $self->{busy_timeout} : 0 or return;
    my $since = $self->busy_words->get($child->{busy})             or return;
    return if $now - $since / 1000 < $limit;
    $self->_kill($child, "has been at one event for $limit s" . $self->_set_by('busy'), 'request');
    return;
}

sub _check_limits {
    my ($self, $child, $now) = @_;
    my ($age, $rss) = @{ $self->{limits} || {} }{qw(age rss)};
    return $self->replace($child, 'max_worker_age')   if $age && $now - $child->{since} >= $age->($child);
    return $self->replace($child, $self->_rss_option) if $rss && $self->_has_grown($child, $rss, $now);
    return;
}

sub _rss_option { return 'max_worker_rss' }

sub _has_grown {
    my ($self, $child, $limit, $now) = @_;
    my $found = Peregrine::Master::Growth::look($child, $limit, $now);
    $self->{log}->warn($self->_name($child)
            . " has more memory at its start than ${\$self->_rss_option} allows"
            . " ($limit bytes): every ${\$self->_kind} would be replaced at once, so each may serve for"
            . " ${\Peregrine::Master::Growth::LARGE_S} seconds")
        if $found eq 'large' && !$self->{told}{max_worker_rss}++;
    return $found eq 'grown';
}

sub _kill {
    my ($self, $child, $why, $counts_as) = @_;
    return if $child->{killed};
    $child->{killed}    = "$why and was killed";
    $child->{counts_as} = $counts_as // 'heartbeat';
    $self->{log}->warn($self->_name($child) . " $why: SIGKILL") if $child->{state} eq 'leaving';
    return $self->_kill_template_of($child)                     if !$child->{pid};
    return kill KILL => $child->{pid} if $child->{state} eq 'starting' || $self->{hurried};
    # The child's signal handler writes where the child is, and ends it.
    kill Peregrine::stuck_signal() => $child->{pid};
    later($self->{loop}, SAY_S, $self, sub { kill KILL => $child->{pid} if $_[0]{children}{ $child->{id} } });
    return;
}

# Kills a template that has not forked a child. The child is given up, because a process that the template has
# forked may say nothing, and keep its end of the link open.
sub _kill_template_of {
    my ($self, $child) = @_;
    $child->{template}->kill('has not forked a worker');
    later($self->{loop}, END_S, $self, _gone => $child);
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

Peregrine::Master - starts, watches, replaces and stops child processes

=head1 SYNOPSIS

    my $master = Peregrine::Master->new(
        loop    => $loop,
        log     => $log,
        count   => 4,
        run     => sub { my ($child) = @_; return serve($child->{number}, $child->{link}) },    # there
        stop_timeout => sub { 40 },
    );
    $master->start->get;
    $loop->run;

=head1 DESCRIPTION

Keeps a number of I<children> alive, numbered from 1 on. A child is a process, or in L<Peregrine::Threads> a
clone of the interpreter. The master knows processes, descriptors and signals, and nothing of what children
do: C<run> is called in each of them, and a L<Peregrine::Child> looks after the child's end of the
L<Peregrine::Link> to the master.

A child is a hash reference with C<number>, C<pid> (undef until its process is known), C<link>, C<state>
(C<starting>, C<serving>, C<leaving>), C<connections> (as the child has told last), C<generation>, C<wanted>
(the number of children when it was started) and C<failure> (see C<stands_in>).

Children are forked from the master itself, or from a L<template|Peregrine::Templates> that has loaded the
application, which the master never does then. A restart makes a new template, whose children replace the
others one by one. If the template does not load, or the first of its children does not start, the old
template and its children go on.

=head1 METHODS

=head2 new

Besides the arguments in the synopsis:

=over

=item counters, spread

A L<Peregrine::Counters>, in which each child gets a C<column>, and a L<Peregrine::Spread>, in which each
child gets a place (C<spread>).

=item load, on_word, sends

C<load> makes children come from a template, and is called there before any child is forked. C<on_word> is
called in a template with other words that are told to all (L</tell>). C<sends> returns L<facts and
descriptors|Peregrine::Template/fork_child> for a child, beside its number.

=item on_serving, before_fork, run, hear

C<on_serving> is called when the first child serves, and the first L<helper|/is_helper>. C<before_fork> is
called with the number of a child before its start; if it dies, the child does not start. C<run> returns the
exit status of the child; an exception is the reason why the child could not start. C<hear> has functions for
further words that a child may say, called with the child and the text.

=item start_timeout, heartbeat_timeout, busy_timeout

Seconds after which a child is killed that does not start, that is silent, or that is still at one event, as
the word C<busy> of L</busy_words> says. 0: never. C<heartbeat_timeout> may be a function of the child's
number.

=item named

The names of the options that set these times, for messages: C<start>, C<silence>, C<busy>, C<stop>, and
C<recycle>, the time of a child that leaves for another reason than a stop or a restart.

=item stop_timeout

A function that returns the seconds in which a child has to leave. It gets the words that the child is told:
C<stop>, or C<retire> and the reason.

=item canary_time

Seconds for which the first child of a restart serves beside all old ones before it replaces one of them. When
it is clearly worse by then (L<Peregrine::Canary>) it is taken back, and the restart is given up. C<run> has
to count in L</tally>. 0: none.

=item is_helper

A function that gets a child's number, and says whether a child with that number works for the other children
alone. It is replaced without a trial. Without helpers all children are of one kind.

=item places

Children, old and new ones, that may be there at the same time: replacements wait until others have ended. 0:
any number.

=item identity

The user that children become (L<Peregrine::Daemon/identity>), and their template before it loads code.

=item limits

C<rss>, the bytes of memory that a child may have which it shares with no other process, and C<age>, a
function that returns the seconds after which a child is replaced. 0: never.

=item first_takes_over

When the number of children falls, the first child is replaced before, by one that serves the sockets of the
children that go, too.

=item stands_in

In place of a child that could not start another child is started, whose C<failure> is the reason, until
L</renew> is called. Not together with C<load>.

=back

=head2 start

    $master->start->get;

Forks the children. The Future resolves when the first one serves, and fails with the category C<workers>
when none can start, or C<stopped> when L</stop> came first.

=head2 stop

    $master->stop->get;

Tells all children to stop; the Future resolves when the last one has ended.

=head2 retire

    $master->retire->get;

Like C<stop>, where another program accepts at the same sockets: children answer once more on each connection.

=head2 hurry

    $master->hurry;

Makes a stop faster: the children are told to hurry, and killed the third time.

=head2 restart

    $master->restart;

Replaces all children, one after another. When a new child cannot start, the old ones stay. Returns a Future
that is done when the restart is over and replaced children accept no more connections: with 1, or with 0 if
the restart was given up.

=head2 generation, given_up, replaced

    say 'generation ', $master->generation;
    say 'the last restart was given up: ', $master->given_up if defined $master->given_up;
    say 'children that were replaced, for whatever reason: ', $master->replaced;

=head2 renew

    $master->renew;

Lets all children stop, and starts others at once. The old children accept no more connections; clients that
come meanwhile wait for the new ones. C<stop_timeout> for C<renew> is the time that old children have for
their requests.

=head2 set_count

    $master->set_count(5);

Keeps this number of children from now on.

=head2 replace

    $master->replace($child, 'max_requests');

Starts another child with the same number, and lets this child leave when that one serves. Children are
replaced one at a time.

=head2 tell

    $master->tell('reopen');

Says something to all children.

=head2 children

    say "$_->{number}: $_->{pid}" for $master->children;

In the order of their numbers. While a child is replaced, two children have its number.

=head2 busy_words

    $engine_worker->show_busy_in($master->busy_words, $child->{busy});

With C<busy_timeout>: the memory in which a child's engine writes since when the application is at one event
(L<Peregrine/show_busy_in>).

=head2 leave_words

    $other_master->leave_words;    # in a child

=head2 tally

    $master->tally->count($engine_worker, $child->{tally});

The L<Peregrine::Tally> in which each child counts: an argument of L</new>, or made with C<canary_time>.

=head2 wanted

    say 'keeps ', $master->wanted;

The number of children that the master keeps.

=head2 waits

    $engine->tell(unserved => 0) if $master->waits;

Whether there is no child, and the next one starts later, because others, or templates, have failed.

=head2 is_running

    say 'serves' if $master->is_running;

True from the first child that serves until the stop, and only in the master's own process.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
