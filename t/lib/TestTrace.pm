package TestTrace;

# Lines of a trace, and the command that prints them.

use strict;
use warnings;

use File::Temp  ();
use TestTools   qw(ended patience);
use Time::HiRes qw(sleep time);

my $OWNER = $$;

# The records in a text, as hashes; other lines are left out.
sub records {
    my ($text) = @_;
    my @records;
    for my $line (split /\n/, $text) {
        $line =~ m{
            \A(?<time>\d\d:\d\d:\d\d\.\d{6})[ ](?<process>\d+)(?:/(?<thread>\d+))?\s+(?<place>[a-z/]+)\s+
            (?<ticket>\S+)\s+(?<way>->|<-)[ ](?<what>\w+)(?:[ ](?<rest>.*))?\z
        }x or next;
        push @records, {%+};
    }
    return @records;
}

# The records of the exchange whose request has this path.
sub of_path {
    my ($text, $path) = @_;
    my @all     = records($text);
    my ($first) = grep { $_->{place} eq 'session' && $_->{rest} =~ m{ \Q$path\E(?: |\z)} } @all or return;
    return grep { $_->{ticket} eq $first->{ticket} } @all;
}

# A record as `place way what`.
sub step {
    my ($record) = @_;
    return join ' ', @{$record}{qw(place way what)};
}

# Starts `peregrine trace PID`, and waits until it asks for records.
sub follow {
    my ($class, $pid, %options) = @_;
    my $self = bless { out => File::Temp->new, errors => File::Temp->new }, $class;
    defined($self->{pid} = fork) or die "fork: $!";
    if (!$self->{pid}) {
        # A shell that runs tests in the background makes them ignore INT.
        $SIG{INT} = 'DEFAULT';
        $options{before}->() if $options{before};
        open STDOUT, '>&', $self->{out}    or die $!;
        open STDERR, '>&', $self->{errors} or die $!;
        exec $^X, (map { "-I$_" } @INC), 'bin/peregrine', 'trace', $pid or die $!;
    }
    return $self;
}

sub pid    { return $_[0]{pid} }
sub text   { return _content($_[0]{out}) }
sub errors { return _content($_[0]{errors}) }

sub _content {
    my ($file) = @_;
    open my $in, '<', $file->filename or die $!;
    local $/;
    return scalar(<$in>) // '';
}

# Ends the command; returns its exit status, or undef if it did not end.
sub end {
    my ($self, $signal) = @_;
    kill $signal // 'INT', $self->{pid} if $self->{pid};
    return $self->status;
}

sub status {
    my ($self) = @_;
    my $pid = delete $self->{pid} or return;
    return ended($pid, patience(20));
}

sub DESTROY {
    my ($self) = @_;
    return if $$ != $OWNER;
    local ($?, $@, $!);
    if ($self->{pid}) { kill KILL => $self->{pid}; waitpid $self->{pid}, 0 }
    return;
}

1;
