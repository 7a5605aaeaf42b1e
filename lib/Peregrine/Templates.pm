package Peregrine::Templates;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future;
use List::Util       qw(min);
use Peregrine::Later qw(later weakly);
use Peregrine::Template;

# Seconds between two starts of a template that ends unasked; doubled each time.
use constant { BACK_OFF_S => 0.5, BACK_OFF_MAX_S => 30 };
# Seconds that a template which was told to leave has for its END blocks, unless the server stops before.
use constant LEAVE_S => 10;

sub new {
    my ($class, %args) = @_;
    return bless {
        %args{qw(loop log load run on_word on_change start_timeout set_by identity)},
        all    => {},       # by pid
        starts => undef,    # starts that failed in a row; undef: none was successful yet
    }, $class;
}

sub current     { return $_[0]{current} }
sub previous    { return $_[0]{previous} }
sub is_renewing { return $_[0]{renewing} ? 1 : 0 }

# Whether there is no template, and the next one starts later, because others have failed.
sub waits { return $_[0]{again} && !$_[0]{current} ? 1 : 0 }

# ---- Start --------------------------------------------------------------------------------------

# Starts a new template. One that is still loading may have read old code, and is given up.
sub renew {
    my ($self)   = @_;
    my $renewing = $self->{renewing} //= $self->{loop}->new_future;
    $self->{loop}->unwatch_time(delete $self->{again}) if $self->{again};
    $self->{next}->leave(LEAVE_S)                      if $self->{next};
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
    $self->{all}{ $template->pid } = $template;
    $template->limit($self->{start_timeout}, 'has not loaded within %s s' . $self->{set_by})
        if $self->{start_timeout};
    return $template;
}

sub _ready {
    my ($self, $template) = @_;
    return if !$self->{next} || $template != $self->{next};
    delete $self->{next};
    $self->{starts} = 0;
    my $oldest = $self->{previous};    # a restart that is not over begins anew
    $self->{previous} = $self->{current};
    $self->{current}  = $template;
    $self->_leave_if_idle($oldest);
    (delete $self->{renewing})->done($template) if $self->{renewing};
    $self->{on_change}->();
    return;
}

# Makes the template before the current one, if it still runs: children of the new template do not start.
sub go_back {
    my ($self) = @_;
    my $before = delete $self->{previous} or return;
    my $now    = $self->{current};
    $self->{current} = $before;
    $self->_leave_if_idle($now);
    return;
}

# Lets the template before leave, because all children come from the current one.
sub settle {
    my ($self) = @_;
    return $self->_leave_if_idle(delete $self->{previous});
}

# ---- Children ------------------------------------------------------------------------------------

# Notes that a child of a template has ended.
sub lost_child {
    my ($self, $template) = @_;
    $template->lost_child;
    return $self->_leave_if_idle($template);
}

# ---- End ----------------------------------------------------------------------------------------

# Lets a template leave when it has no children: files that it has made for them, a temporary directory
# perhaps, are removed at its end.
sub _leave_if_idle {
    my ($self, $template) = @_;
    return if !$template || $template->children;
    return if grep { $_ && $_ == $template } @{$self}{qw(current previous next)};
    return $template->leave(LEAVE_S);
}

sub _gone {
    my ($self, $template, $why) = @_;
    delete $self->{all}{ $template->pid };
    delete $self->{previous} if $self->{previous} && $self->{previous} == $template;
    if ($self->{stopping}) {
        $self->{stopping}->done if !%{ $self->{all} };
        return;
    }
    return if $template->was_to_leave;
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

# Without a template no child can start, so another template is started later. If no template ever was ready,
# the start of the server fails instead.
sub _not_renewed {
    my ($self, $why) = @_;
    $why =~ s/\s+\z//;
    my $lost = $self->{current} ? undef : $self->{starts};
    (delete $self->{renewing})->fail($why, 'template') if $self->{renewing};
    return if !defined $lost || $self->{stopping} || $self->{next};
    my $wait = min(BACK_OFF_MAX_S, BACK_OFF_S * 2**min(10, $lost));
    $self->{starts}++;
    $self->{log}->error("no template, and no new workers: $why; the next one starts in $wait s");
    my $again = sub { delete $_[0]{again}; $_[0]->renew->else_done->retain };
    $self->{again} = later($self->{loop}, $wait, $self, $again);
    return;
}

sub stop {
    my ($self, $seconds) = @_;
    return $self->{stopping} if $self->{stopping};
    my $stopping = $self->{stopping} = $self->{loop}->new_future;
    $self->{loop}->unwatch_time(delete $self->{again}) if $self->{again};
    $_->leave(min(LEAVE_S, $seconds)) for values %{ $self->{all} };
    $stopping->done if !%{ $self->{all} };
    return $stopping;
}

sub tell {
    my ($self, @message) = @_;
    $_->tell(@message) for values %{ $self->{all} };
    return;
}

sub kill {
    my ($self, $why) = @_;
    $_->kill($why) for values %{ $self->{all} };
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
    my $template = $templates->current;
    $template->fork_child({ number => 1 }, $there);
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
never; C<set_by>: what its message says after that. C<log> is a L<PAGI::Server::Log>.

=head2 renew

    my $future = $templates->renew;

Starts a template, in place of one that is still loading. The Future is done when a new one is the current
one, and fails with the reason when it could not be loaded.

=head2 is_renewing

    say 'loads' if $templates->is_renewing;

=head2 waits

    say 'no children for a while' if $templates->waits;

Whether there is no template, and the next one starts later, because others have failed.

=head2 current, previous

    say 'no children now' if !$templates->current;

The template that children are forked from; during a restart, the one with the code before it.

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
