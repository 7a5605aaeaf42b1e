package Peregrine::Templates;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future;
use List::Util       qw(min);
use Peregrine::Later qw(later weakly);
use Peregrine::Template;

# Seconds between two starts of a template that ends unasked; each time twice as long.
use constant { BACK_OFF_S => 0.5, BACK_OFF_MAX_S => 30 };
# Seconds that a template which was told to leave has for its END blocks, unless the server stops before.
use constant LEAVE_S => 10;

sub new {
    my ($class, %args) = @_;
    return bless {
        %args{qw(loop log load run on_word on_change start_timeout identity)},
        all    => {},       # by pid: { template, children, timer, dismissed }
        starts => undef,    # how many failed in a row; undef before the first one that did not
    }, $class;
}

# The template that children are forked from; undef while there is none.
sub current { return $_[0]{current} }

# During a restart: the template with the code before it, if there is one.
sub previous { return $_[0]{previous} }

sub is_renewing { return $_[0]{renewing} ? 1 : 0 }

# ---- Start --------------------------------------------------------------------------------------

# A template that is still loading may have read old code.
sub renew {
    my ($self)   = @_;
    my $renewing = $self->{renewing} //= $self->{loop}->new_future;
    $self->{loop}->unwatch_time(delete $self->{again}) if $self->{again};
    $self->_dismiss($self->{next})                     if $self->{next};
    $self->{next} = eval { $self->_start };
    $self->_not_renewed($@) if !$self->{next};
    return $renewing;
}

sub _start {
    my ($self) = @_;
    my $template = Peregrine::Template->start(
        %{$self}{qw(loop load run on_word identity)},
        on_ready => weakly($self, '_ready'),
        on_end   => weakly($self, '_gone'),
    );
    my $entry = $self->{all}{ $template->pid } = { template => $template, children => 0 };
    $self->_limit($entry, $self->{start_timeout}, 'has not loaded within %s s') if $self->{start_timeout};
    return $template;
}

# Kills a template that has not ended after this many seconds.
sub _limit {
    my ($self, $entry, $seconds, $what) = @_;
    $self->_unlimit($entry);
    my $template = $entry->{template};
    $entry->{timer} = $self->{loop}->watch_time(
        after => $seconds,
        code  => sub {
            delete $entry->{timer};
            $template->kill(sprintf $what, $seconds);
        }
    );
    return;
}

sub _unlimit {
    my ($self, $entry) = @_;
    $self->{loop}->unwatch_time(delete $entry->{timer}) if $entry->{timer};
    return;
}

sub _ready {
    my ($self, $template) = @_;
    $self->_unlimit($self->{all}{ $template->pid });
    return if !$self->{next} || $template != $self->{next};
    delete $self->{next};
    $self->{starts} = 0;
    my $oldest = $self->{previous};    # a restart that is not over begins anew
    $self->{previous} = $self->{current};
    $self->{current}  = $template;
    $self->_leave_if_idle($oldest)              if $oldest;
    (delete $self->{renewing})->done($template) if $self->{renewing};
    $self->{on_change}->();
    return;
}

# Children of the new template do not start: they come from the template before again, if that is still there.
sub go_back {
    my ($self) = @_;
    my $before = delete $self->{previous} or return;
    my $now    = $self->{current};
    $self->{current} = $before;
    $self->_leave_if_idle($now);
    return;
}

# All children come from the current template: the one before may leave.
sub settle {
    my ($self) = @_;
    my $before = delete $self->{previous} or return;
    $self->_leave_if_idle($before);
    return;
}

# ---- Children ------------------------------------------------------------------------------------

# `template`: the current or the previous one. False if it cannot fork now.
sub fork_child {
    my ($self, $template, $facts, $link, @descriptors) = @_;
    return if !$template;
    if (!$template->fork_child($facts, $link, @descriptors)) {
        $template->kill('does not listen');
        return;
    }
    $self->{all}{ $template->pid }{children}++;
    return $template;
}

# A child of that template has ended.
sub lost_child {
    my ($self, $template) = @_;
    my $entry = $self->{all}{ $template->pid } or return;
    $entry->{children}--;
    $self->_leave_if_idle($template);
    return;
}

# ---- End ----------------------------------------------------------------------------------------

# Things that a template has made for its children, a temporary directory perhaps, stay until they have gone.
sub _leave_if_idle {
    my ($self, $template) = @_;
    return if grep { $_ && $_ == $template } @{$self}{qw(current previous next)};
    my $entry = $self->{all}{ $template->pid } or return;
    $self->_dismiss($template) if $entry->{children} <= 0;
    return;
}

sub _dismiss {
    my ($self, $template) = @_;
    my $entry = $self->{all}{ $template->pid } or return;
    return if $entry->{dismissed}++;
    # A template that is loading does not read its link.
    return $template->kill('was not needed any more') if !$template->is_ready;
    $template->leave;
    $self->_limit($entry, LEAVE_S, 'did not leave within %s s');
    return;
}

sub _gone {
    my ($self, $template, $why) = @_;
    my $entry = delete $self->{all}{ $template->pid };
    $self->_unlimit($entry);
    delete $self->{previous} if $self->{previous} && $self->{previous} == $template;
    if ($self->{stopping}) {
        $self->{stopping}->done if !%{ $self->{all} };
        return;
    }
    return if $entry->{dismissed};
    if ($self->{next} && $self->{next} == $template) {
        delete $self->{next};
        return $self->_not_renewed($why);
    }
    return if !$self->{current} || $self->{current} != $template;
    delete $self->{current};
    $self->{log}->warn("the template (${\$template->pid}) has ended: $why");
    $self->renew->else_done->retain if !$self->{next};
    return;
}

# Without a template no child can start, so another template is started later. If there never was a template
# nothing serves yet, and the start of the server fails instead.
sub _not_renewed {
    my ($self, $why) = @_;
    $why =~ s/\s+\z//;
    my $lost = $self->{current} ? undef : $self->{starts};
    (delete $self->{renewing})->fail($why, 'template') if $self->{renewing};
    return if !defined $lost || $self->{stopping} || $self->{next};
    my $wait = min(BACK_OFF_MAX_S, BACK_OFF_S * 2**min(10, $lost));
    $self->{starts}++;
    $self->{log}->error("no template, and no new workers: $why; the next one starts in $wait s");
    $self->{again} = later($self->{loop}, $wait, $self, '_renew_again');
    return;
}

sub _renew_again {
    my ($self) = @_;
    delete $self->{again};
    return $self->renew->else_done->retain;
}

sub stop {
    my ($self, $seconds) = @_;
    return $self->{stopping} if $self->{stopping};
    my $stopping = $self->{stopping} = $self->{loop}->new_future;
    $self->{loop}->unwatch_time(delete $self->{again}) if $self->{again};
    for my $entry (values %{ $self->{all} }) {
        $self->_dismiss($entry->{template});
        $self->_limit($entry, min(LEAVE_S, $seconds), 'did not leave within %.3g s');
    }
    $stopping->done if !%{ $self->{all} };
    return $stopping;
}

sub tell {
    my ($self, @message) = @_;
    $_->{template}->tell(@message) for values %{ $self->{all} };
    return;
}

sub kill {
    my ($self, $why) = @_;
    $_->{template}->kill($why) for values %{ $self->{all} };
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Templates - the templates of a Peregrine::Master, old and new

=head1 SYNOPSIS

    my $templates = Peregrine::Templates->new(
        loop      => $loop,
        log       => $log,
        load      => sub { ... },
        run       => sub { my ($child) = @_; ... },
        on_change => sub { ... },                       # there is a new one
    );
    $templates->renew->get;
    my $template = $templates->fork_child($templates->current, { number => 1 }, $there);
    ...
    $templates->lost_child($template);                 # it has ended
    $templates->stop(30)->get;

=head1 DESCRIPTION

At any time children are forked from one L<Peregrine::Template>, the current one. A new one, which has loaded
what it runs anew, becomes the current one when it has done so; if it cannot, the current one stays. An old
one goes when its last child has gone: what it has made for them, a temporary directory for instance, is
there as long.

A current one that ends unasked is replaced, with growing pauses while that fails. Children live without it.

=head1 METHODS

=head2 new

C<load>, C<run> and C<on_word>: see L<Peregrine::Template/start>. C<on_change> is called when another template
has become the current one. C<start_timeout>: seconds after which one that is still loading is killed; 0:
never. C<log> is a L<PAGI::Server::Log>.

=head2 renew

    my $future = $templates->renew;

Starts a template, in place of one that is still loading. The Future is done when a new one is the current
one, and fails with the reason when it could not be loaded.

=head2 is_renewing

    say 'loads' if $templates->is_renewing;

=head2 current

    say 'no children now' if !$templates->current;

=head2 fork_child

    my $template = $templates->fork_child($template, \%facts, $link, @descriptors);

See L<Peregrine::Template/fork_child>. Returns the template that forks the child; undef if there is none now.

=head2 lost_child

    $templates->lost_child($template);

A child of that template has ended.

=head2 go_back, settle

    $templates->go_back;
    $templates->settle;

After a renewal there are two: the one before is the current one again, because the new one's children do not
start; or it is not needed any more.

=head2 tell

    $templates->tell('reopen');

Says something to all of them.

=head2 stop, kill

    $templates->stop(30)->get;
    $templates->kill('was told to stop again and again');

All of them leave, within so many seconds; what has not left by then is killed. Or they are killed at once.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
