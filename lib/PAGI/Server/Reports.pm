package PAGI::Server::Reports;

use strict;
use warnings;

our $VERSION = '0.003000';

use PAGI::Server::AccessLog;
use PAGI::Server::AppKind;
use PAGI::Server::Exception;
use PAGI::Server::FileEvents;
use PAGI::Server::Options;
use PAGI::Server::RequestName;
use Peregrine::Nearest;
use Peregrine::Process;
use Scalar::Util qw(weaken);

# Objects are not copied into clones of the interpreter, see Peregrine::Threads.
sub CLONE_SKIP { return 1 }

sub new {
    my ($class, $instance) = @_;
    my $self = bless { instance => $instance }, $class;
    weaken($self->{instance});
    return $self;
}

sub _log { return $_[0]{instance}->log }

# ---- Events of the engine's worker ---------------------------------------------------------------

# Called when all connections are gone, and again when an application has ended after that.
sub _stopped { return $_[0]{instance}->connections_gone }

sub _requests_reached { return $_[0]{instance}->ask_for_replacement('max_requests') }

# Called in a forked child that runs the loop for a purpose of its own.
sub _leave_loop {
    my $engine = $_[0]{instance}->engine;
    $engine->unwatch if $engine;
    return;
}

# Takes lines of an access log whose handle has no descriptor.
sub _access_lines { return PAGI::Server::AccessLog::take($_[0]{instance}->engine->line_handle, $_[1]) }

# Lets in signals that are pending because the loop blocks them.
sub _signals_pending {
    my $loop = $_[0]{instance}->loop;
    return $loop ? Peregrine::Process->let_signals_in($loop) : ();
}

# Asks for a new process in place of this one, as an application of PSGI wants it.
sub _harakiri { return $_[0]{instance}->ask_for_replacement('psgix.harakiri.commit') }

# ---- Files that a PAGI application sends --------------------------------------------------------

sub _files           { return $_[0]{files} ||= PAGI::Server::FileEvents->new($_[0]{instance}) }
sub _open_aside      { my ($self, @event) = @_; return $self->_files->open_aside(@event) }
sub _send_after      { my ($self, @event) = @_; return $self->_files->send_after(@event) }
sub _send_by_reading { my ($self, @event) = @_; return $self->_files->send_by_reading(@event) }

# ---- Messages -----------------------------------------------------------------------------------

sub _notice {
    my ($self, $rank, $text) = @_;
    $text =~ s/, see \K([a-z0-9_]+)/PAGI::Server::Options::of_limit($1)/e;
    $self->_log->ranked($rank, $text);
    return;
}

# Logs a notice of the engine about a request whose application runs. Its number and peer come from the scope.
sub _request_notice {
    my ($self, $text, $about) = @_;
    $text =~ s/\Arequest [0-9]+-[0-9]+ \([^()]*\)(?: \S+ \S+)?: //;
    $self->_log->ranked($about->[0], $text, _request($about));
    return;
}

sub _poll_failed {
    my ($self, $reason) = @_;
    $self->_log->error("the engine cannot wait for events: $reason");
    return;
}

sub _no_future {
    my ($self, $returned) = @_;
    return PAGI::Server::AppKind::no_future($returned);
}

# The end of a sentence about an unknown event type: the nearest known ones.
sub _nearest_type {
    my ($type, $known) = @_;
    return Peregrine::Nearest::hint($type, @$known);
}

# The text for an exception that Future::AsyncAwait has lost, because it died with `$exception` when it was
# tested for truth.
sub _lost {
    my ($exception) = @_;
    return 'an exception that cannot be told: it dies when it is asked whether it is true: '
        . PAGI::Server::Exception::text($exception);
}

sub _state_lost {
    my ($self, $exception) = @_;
    $self->_log->error(
        'the lifespan state cannot be copied for a request: ' . PAGI::Server::Exception::text($exception));
    return;
}

# Logs an exception. Messages about a request come with [text, scope, number of the connection, number of the
# request in it].
sub _app_died {
    my ($self, $exception, $about) = @_;
    return $self->_fault("the application died $about->[0]", $exception, $about);
}

# Logs an exception at level debug only: the application may just have noticed that its client had gone.
sub _app_left {
    my ($self, $exception, $about) = @_;
    my $text = PAGI::Server::Exception::text($exception);
    $self->_log->debug("the application died $about->[0]: $text", _request($about));
    return;
}

sub _sent_late {
    my ($self, $type, $about) = @_;
    $self->_log->debug("$type does nothing: the response is complete", _request($about));
    return;
}

# Reports an application that has ended too early: most often it does not wait for a Future of its own.
sub _app_fell_short {
    my ($self, undef, $about) = @_;
    my $text = "the application ended $about->[0]: was an `await` forgotten?";
    return $self->_report("PAGI: $text", $about, $text);
}

sub _bad_response  { my $self = shift; return $self->_fault('the response cannot be sent',          @_) }
sub _no_input      { my $self = shift; return $self->_fault('the body of a request cannot be read', @_) }
sub _callback_died { my $self = shift; return $self->_fault('a callback died',                      @_) }

sub _fault {
    my ($self, $what, $exception, $about) = @_;
    return $self->_report($exception, $about, "$what: " . PAGI::Server::Exception::text($exception));
}

# Name and option of the idle limit, by type of scope. Applications of Mojolicious set limits of their own.
my %IDLE = (
    http      => ['request'],
    sse       => [qw(SSE sse_idle_timeout)],
    websocket => [qw(WebSocket ws_idle_timeout)],
);

sub _idle_timeout {
    my ($self, undef, $about) = @_;
    my ($name, $option) = @{ $IDLE{ $about->[0] } };
    # An application may have changed its scope. A locked hash dies when a missing key is read.
    my $scope   = $about->[1];
    my $version = ref $scope eq 'HASH' && exists $scope->{http_version} ? $scope->{http_version} : undef;
    my $streams = ($version // '') eq '2';
    my $end     = $streams ? 'resetting stream' : 'closing connection';
    my $limit   = $option && $self->{instance}->options->{$option};
    my $whose   = $limit ? "(${limit}s)" : "of the application's";
    my $text    = "$name idle timeout $whose - $end";
    $self->_log->warn($text, _request($about));
    return;
}

sub _request {
    my ($about) = @_;
    return $about ? PAGI::Server::RequestName::of(@{$about}[ 1 .. 3 ]) : {};
}

sub _report {
    my ($self, $exception, $about, $text) = @_;
    my $request = _request($about);
    $self->_log->error($text, $request);
    my $on_error = $self->{instance}->options->{on_error} or return;
    eval { $on_error->($exception, $about ? $about->[1] : undef, $request); 1 }
        or $self->_log->error('on_error died: ' . PAGI::Server::Exception::text($@));
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Reports - what the bridge tells the server

=head1 DESCRIPTION

The object that an engine's worker is given as C<server>: L<Peregrine>'s bridge calls its methods by their
names. Most write a message to the log, and call C<on_error> for exceptions. A message about one request comes
with what happened, the request's scope, the number of its connection and its number there.

=head1 METHODS

=head2 new

    my $reports = PAGI::Server::Reports->new($instance);

For a L<Peregrine::Server::Instance>, which has to keep it as long as it has the worker.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
