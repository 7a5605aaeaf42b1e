package PAGI::Server::Log;

use strict;
use warnings;

our $VERSION = '0.003000';

use PAGI::Server::RequestName;
use Peregrine::Deadline;
use POSIX ();

my %RANK = (error => 1, warn => 2, info => 3, debug => 4);
my @NAME = (undef, qw(error warn info debug));
# The priorities of systemd's journal, see sd-daemon(3).
my %PRIORITY = (error => '<3>', warn => '<4>', info => '<6>', debug => '<7>');

# Messages that differ only in numbers count as equal: BURST of them are written in WINDOW seconds, further
# ones are counted.
use constant {
    BURST       => 10,
    WINDOW      => 10,
    KINDS_MAX   => 200,
    KIND_LENGTH => 200,
};

sub new {
    my ($class, %args) = @_;
    my $self = bless { name => $args{name}, manner => {}, seen => {} }, $class;
    return $self->set(%args);
}

sub set {
    my ($self, %args) = @_;
    $self->{manner}{rank} = $args{quiet} ? $RANK{error} : $RANK{ $args{level} || 'info' };
    $self->{manner}{json} = ($args{format} || 'text') eq 'json';
    return $self;
}

# A log for a part of the server, which shares `seen` and `manner` with the whole server's log.
sub of {
    my ($self, $part) = @_;
    return bless { %$self, name => join ': ', grep { defined } $self->{name}, $part }, ref $self;
}

sub _write {
    my ($self, $level, $text, $request) = @_;
    return $self->_write_after(defined $self->{name} ? "$self->{name}: " : '', $level, $text, $request);
}

# Writes a message. `begin`: the beginning of the line, before the name of the request.
sub _write_after {
    my ($self, $begin, $level, $text, $request) = @_;
    return if $RANK{$level} > $self->{manner}{rank};
    my @message = ($begin, $level, $text =~ s/\s+\z//r, $request);
    $self->_tell_suppressed(Peregrine::Deadline::now() - WINDOW);
    $self->_print(@message) if $self->_may_pass(@message);
    return;
}

sub _may_pass {
    my ($self, @message) = @_;
    my $kind = substr "$message[0]$message[2]", 0, KIND_LENGTH;
    $kind =~ s/[0-9]+/#/g;
    my $seen = $self->{seen};
    $self->flush if !$seen->{$kind} && keys %$seen >= KINDS_MAX;
    # The time when the window began, the number of messages since, and the last message.
    my $entry = $seen->{$kind} ||= [ Peregrine::Deadline::now(), 0 ];
    return 1 if ++$entry->[1] <= BURST;
    @{$entry}[ 2 .. 1 + @message ] = @message;
    return 0;
}

# Ends windows that began before a time, and logs how many messages they have held back.
sub _tell_suppressed {
    my ($self, $before) = @_;
    my $seen = $self->{seen};
    for my $kind (grep { $seen->{$_}[0] <= $before } keys %$seen) {
        my (undef, $count, $begin, @message) = @{ delete $seen->{$kind} };
        my $more = $count - BURST;
        next if $more <= 0;
        $self->_print("($more more like this) $begin", @message);
    }
    return;
}

sub flush {
    my ($self) = @_;
    $self->_tell_suppressed(Peregrine::Deadline::now());
    return;
}

# $PRINTING: the warning that is being printed is the log's own; $ADOPTER: the handler that makes other
# warnings lines of the log.
our $PRINTING = 0;
my $ADOPTER;

# Makes warnings of other code lines like the log's, unless a handler for warnings exists.
sub adopt_warnings {
    my ($class, $format) = @_;
    return if $SIG{__WARN__};
    $SIG{__WARN__} = $ADOPTER = sub {
        my ($text) = @_;
        local ($,, $\);
        print STDERR $PRINTING ? $text : $class->line($format, warn => $text =~ s/\s+\z//r);
    };
    return;
}

sub line {
    my (undef, $format, $level, $text) = @_;
    my $is_json = ($format // 'text') eq 'json';
    return _begun($is_json, $level, $is_json ? _json($level, $text, {}) : bytes_of($text) . "\n");
}

# A line with its priority or its time.
sub _begun {
    my ($is_json, $level, $line) = @_;
    return _ranked($level, $line) if _is_journal();
    return $is_json ? $line : _time() . " $line";
}

# Prints a message. A warning handler of the application gets it without time and priority.
sub _print {
    my ($self, $begin, $level, $text, $request) = @_;
    my $name = $request ? PAGI::Server::RequestName::text($request) : '';
    $text = length($name) ? "$begin$name: $text" : "$begin$text";
    my $is_json = $self->{manner}{json};
    local $PRINTING = 1;
    my $handler = $SIG{__WARN__};
    my $is_ours = !$handler || $ADOPTER && $handler eq $ADOPTER;
    my $line    = $is_json ? _json($level, $text, $request || {}) : _visible(bytes_of($text)) . "\n";
    $line = _begun($is_json, $level, $line) if $is_ours;
    local ($@, $,, $\);
    # Expected: a handler that dies, as one does that makes all warnings fatal. The caller must not be harmed.
    eval { CORE::warn($line); 1 } or print STDERR $line;
    return;
}

# Whether the standard error is systemd's journal, which notes the time of each line itself.
sub _is_journal {
    my $journal = $ENV{JOURNAL_STREAM};
    return 0 if !defined $journal;
    no warnings qw(closed unopened);
    my ($device, $inode) = stat STDERR;
    return defined $inode && $journal eq "$device:$inode" ? 1 : 0;
}

# Lines with their priority: the journal takes each line for a message of its own.
sub _ranked {
    my ($level, $lines) = @_;
    return $lines =~ s/^(?=.)/$PRIORITY{$level}/gmr;
}

# The local time by ISO 8601.
sub _time {
    return POSIX::strftime('%Y-%m-%dT%H:%M:%S%z', localtime) =~ s/(\d\d)\z/:$1/r;
}

# Escapes controls, because an exception may have a peer's words in it: they must neither look like another
# message nor command a terminal. Further lines, as of a stack trace, are indented. C2 begins a C1 control in
# UTF-8.
sub _visible {
    my ($bytes) = @_;
    $bytes =~ s/([\x00-\x08\x0b-\x1f\x7f])/sprintf '\\x%02x', ord $1/ge;
    $bytes =~ s/\xc2([\x80-\x9f])/sprintf '\\x{%02x}', ord $1/ge;
    $bytes =~ s/\n/\n    /g;
    return $bytes;
}

# A text as bytes: characters become UTF-8.
sub bytes_of {
    my ($text) = @_;
    utf8::encode($text) if utf8::is_utf8($text);
    return $text;
}

sub _json {
    my ($level, $text, $request) = @_;
    require JSON::PP;
    my %line = (%$request, time => _time(), level => $level, pid => $$, message => $text);
    return JSON::PP->new->canonical->ascii->encode(\%line) . "\n";
}

sub error { my ($self, @what) = @_; return $self->_write(error => @what) }
sub warn  { my ($self, @what) = @_; return $self->_write(warn  => @what) }
sub info  { my ($self, @what) = @_; return $self->_write(info  => @what) }
sub debug { my ($self, @what) = @_; return $self->_write(debug => @what) }

sub plain { my ($self, $level, $text) = @_; return $self->_write_after('', $level, $text) }

sub ranked {
    my ($self, $rank, @what) = @_;
    return $self->_write($NAME[$rank] || 'error', @what);
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Log - the server's own messages

=head1 SYNOPSIS

    my $log = PAGI::Server::Log->new(name => 'PAGI', level => 'info');
    $log->info('the server has stopped');              # PAGI: the server has stopped
    $log->of('status')->warn('has ended');             # PAGI: status: has ended

=head1 DESCRIPTION

Messages go through Perl's C<warn>, so that C<$SIG{__WARN__}> and whoever collects standard error sees them.
On the standard error a line of text begins with the local time (ISO 8601, with the zone), except where that
is systemd's journal (C<JOURNAL_STREAM>), which adds it: there each line begins with its priority instead
(C<< <3> >> for errors, C<< <4> >> for warnings, C<< <6> >> and C<< <7> >>, see L<sd-daemon(3)>), so that
C<journalctl -p warning> finds it. A handler gets the message alone. Of messages that
differ in nothing but numbers, ten are written in ten seconds; the others are counted, and the count follows
with the next message, or at the end. Control characters are escaped, and further lines of a message are
indented, so that nothing in it looks like another message.

=head1 METHODS

=head2 new

    my $log = PAGI::Server::Log->new(name => 'PAGI', level => 'debug', quiet => 0, format => 'json');

Messages begin with C<name>, if it is given. C<level> is the least important level that is written: C<error>,
C<warn>, C<info> or C<debug>. With a true C<quiet> only errors are written. C<format> is C<text> or C<json>:
an object with C<time>, C<level>, C<pid> and C<message> per line.

=head2 set

    $log->set(level => 'warn');

Changes level and format, for the logs of the server's parts, too.

=head2 of

    my $log = $log->of('status');

The log of a part of the server, whose messages begin with its name as well.

=head2 flush

    $log->flush;

Tells what has been held back.

=head2 adopt_warnings

    PAGI::Server::Log->adopt_warnings('json');

Makes warnings that do not come from here lines of the same kind, of level C<warn>, unless
C<$SIG{__WARN__}> is set.

=head2 line

    print STDERR PAGI::Server::Log->line(json => error => 'the application cannot be loaded');

A message as it is written in that format.

=head2 error

    $log->error('the application died', $request);

This and the next ones may be given what L<PAGI::Server::RequestName/of> tells of a request. A line of text
names it, and C<json> has the same as keys besides: C<id>, C<client>, C<method>, C<target> and C<request_id>.

=head2 warn

    $log->warn('out of file descriptors');

=head2 info

    $log->info('listening');

=head2 debug

    $log->debug('lifespan is not supported');

=head2 plain

    $log->plain(info => 'PAGI Server listening on http://127.0.0.1:5000/');

A message without the name.

=head2 ranked

    $log->ranked(2, 'out of file descriptors');

Logs with the engine's number for a level: 1 is C<error>, 4 is C<debug>.

=head1 FUNCTIONS

=head2 bytes_of

    print STDERR PAGI::Server::Log::bytes_of($text);

A text as it is written: characters as UTF-8.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
