package ChannelLogs;

# Looks through the logs of script/channels: each subscriber of a topic got each entry once and in order, or
# was told of a reset. The log of the clients has a line for each event of a subscriber:
#
#     # phase NAME
#     17 s news since now                 it subscribes: from now on, or behind a position
#     17 s news from POSITION             the server has told where it begins
#     17 s news + a 12 POSITION           entry 12 of publisher a (a WebSocket gets no position)
#     17 s news reset POSITION
#     17 s news end                       the connection is gone
#
# The first letter behind the number is `s` (event stream) or `w` (WebSocket); numbers of slow readers begin
# with `x`. Logs of publishers have `ack TOPIC a 12 POSITION SECONDS` and `fail TOPIC a 12 REASON SECONDS`.

use strict;
use warnings;
use experimental 'signatures';

# Problems that are printed one by one, at most.
use constant TOLD_MAX => 20;

# Takes the clients' log, logs of publishers, and the phases in which acknowledged entries may be lost.
sub new ($class, $log, $acknowledged, %args) {
    my $self = bless {
        log       => $log,
        may_lose  => { map { $_ => 1 } @{ $args{may_lose} // [] } },
        problems  => [],
        count     => 0,
        place     => {},
        text      => {},
        before    => {},
        resets    => {},
        delivered => 0,
        failed    => {},
        phases    => [],
    }, $class;
    $self->_read_acknowledged($_) for @$acknowledged;
    $self->_read_places;
    $self->_read_subscribers;
    $self->_check_acknowledged;
    return $self;
}

sub problems      ($self) { return @{ $self->{problems} } }
sub problem_count ($self) { return $self->{count} }
sub delivered     ($self) { return $self->{delivered} }
sub phases        ($self) { return @{ $self->{phases} } }

# The number of resets of fast, or of slow readers.
sub resets ($self, $phase, $speed = 'fast') { return $self->{resets}{$phase}{$speed} // 0 }

# Entries without an acknowledgement; acknowledged entries that are lost.
sub failed ($self, $phase) { return $self->{failed}{$phase} // 0 }
sub lost   ($self, $phase) { return $self->{lost}{$phase}   // 0 }

sub _found ($self, $problem) {
    push @{ $self->{problems} }, $problem if $self->{count}++ < TOLD_MAX;
    return;
}

sub _lines ($self, $path, $code) {
    open my $in, '<', $path or die "$path: $!\n";
    while (my $line = <$in>) {
        chomp $line;
        $code->(split / /, $line);
    }
    return;
}

sub _read_acknowledged ($self, $path) {
    my $phase = '';
    $self->_lines(
        $path,
        sub ($what, @more) {
            if ($what eq '#') {
                $phase = $more[1];
                return;
            }
            my ($topic, $publisher, $number, $position, $time) = @more;
            if ($what eq 'fail') {
                $self->{failed}{$phase}++;
                return;
            }
            $self->{acknowledged}{$topic}{$position} = [ "$publisher $number", $phase, $time ];
            $self->_has_place($topic, "$publisher $number", $position);
        }
    );
    return;
}

# Checks that an entry is at one place only, and the place has one entry only.
sub _has_place ($self, $topic, $entry, $position) {
    my $place = $self->{place}{$topic}{$entry} //= $position;
    return $self->_found("$topic: entry $entry is at $place and at $position") if $place ne $position;
    my $text = $self->{text}{$topic}{$position} //= $entry;
    return $self->_found("$topic: at $position are $text and $entry") if $text ne $entry;
    return;
}

sub _read_places ($self) {
    $self->_lines(
        $self->{log},
        sub ($id, $kind, $topic, $what = '', @more) {
            $self->_has_place($topic, "$more[0] $more[1]", $more[2]) if $what eq '+' && @more == 3;
        }
    );
    return;
}

# ---- Subscribers ---------------------------------------------------------------------------------

sub _read_subscribers ($self) {
    my %reader;
    my $phase = '';
    $self->_lines(
        $self->{log},
        sub ($id, $kind, $topic, $what = '', @more) {
            if ($id eq '#') {
                $phase = $topic;
                push @{ $self->{phases} }, $phase if !grep { $_ eq $phase } @{ $self->{phases} };
                return;
            }
            my $reader = $reader{$id} //= { name => "$id $kind $topic", kind => $kind, topic => $topic };
            $reader->{phase} = $phase;
            if    ($what eq '+')     { $self->_entry($reader, @more) }
            elsif ($what eq 'reset') { $self->_reset($reader, $more[0]) }
            elsif ($what eq 'since') { $self->_since($reader, $more[0]) }
            elsif ($what eq 'from')  { $self->_from($reader, $more[0]) }
            elsif ($what eq 'end')   { $self->_end($reader) }
            else                     { die "a line of no kind: $id $kind $topic $what\n" }
        }
    );
    for my $reader (values %reader) {
        $self->_end($reader);
        my $last = ($self->{place}{ $reader->{topic} } // {})->{'z 1'} // 'no last entry';
        $self->_found("$reader->{name} ends at @{[ $reader->{at} // 'nothing' ]}, not at the last entry")
            if ($reader->{at} // '') ne $last;
    }
    return;
}

# Checks the position with which a client comes back: the end of its log, or for a WebSocket an earlier one.
sub _since ($self, $reader, $position) {
    my $at = $reader->{at};
    if (defined $at && $position ne 'now') {
        my $is_there = $reader->{kind} eq 's' ? $position eq $at : _is_behind($at, $position);
        $self->_found("$reader->{name}: it comes back at $position, and its log ends at $at") if !$is_there;
    }
    @{$reader}{qw(since at)} = ($position, $position eq 'now' ? undef : $position);
    return;
}

sub _is_behind ($at, $position) {
    my ($epoch,  $offset)  = split /\./, $at;
    my ($before, $earlier) = split /\./, $position;
    return $epoch eq $before && $earlier <= $offset;
}

sub _from ($self, $reader, $position) {
    my $since = delete $reader->{since};
    return $self->_found("$reader->{name}: a place that was not asked for") if !defined $since;
    # An event stream may have had its reset already.
    $self->_jump($reader, $position)
        if $since ne 'now' && $since ne $position && $reader->{at} ne $position;
    $reader->{at} = $position;
    return;
}

# Notes that a reader goes on after another position. A reset has said so, or will before the connection ends:
# the application of a WebSocket is told of a reset while entries are sent.
sub _jump ($self, $reader, $position) {
    my $offset = _offset($position);
    my $told   = $reader->{told} // {};
    return if ($told->{$offset} // 0) > 0 && $told->{$offset}--;
    push @{ $reader->{untold}{$offset} },
        "from @{[ $reader->{at} // 'nothing' ]} to $position, in $reader->{phase}";
    return;
}

sub _offset ($position) { return $position =~ s/\.[^.]*\z//r }

sub _reset ($self, $reader, $position) {
    $self->{resets}{ $reader->{phase} }{ $reader->{name} =~ /\Ax/ ? 'slow' : 'fast' }++;
    if ($reader->{kind} eq 's') { $reader->{at} = $position }
    my $offset = _offset($position);
    return                     if shift @{ ($reader->{untold} // {})->{$offset} // [] };
    $reader->{told}{$offset}++ if $reader->{kind} eq 'w';
    return;
}

sub _end ($self, $reader) {
    my $untold = delete $reader->{untold} // {};
    delete $reader->{told};
    $self->_found("$reader->{name}: no reset $_") for map { @$_ } values %$untold;
    return;
}

# Checks that an entry follows the last one of its reader, and follows no other entry in any log.
sub _entry ($self, $reader, $publisher, $number, $position = undef) {
    $self->{delivered}++;
    my $topic = $reader->{topic};
    my $at    = $reader->{at};
    return $self->_found("$reader->{name}: an entry before its place is known") if !defined $at;
    my ($epoch, $offset) = split /\./, $at;
    my $next = "$epoch." . ($offset + 1);
    # If only WebSockets have read an entry, its check is not known.
    $position //= $self->{place}{$topic}{"$publisher $number"} // "$next.?";
    if (index($position, "$next.") != 0) {
        my ($is_epoch, $is_offset) = split /\./, $position;
        if ($reader->{kind} eq 'w') { $self->_jump($reader, "$is_epoch." . ($is_offset - 1) . '.?') }
        else {
            $self->_found(
                "$reader->{name}: entry $publisher $number at $position behind $at, in $reader->{phase}");
        }
    }
    elsif ($at !~ /\?\z/ && $position !~ /\?\z/) {
        my $before = $self->{before}{$topic}{$position} //= $at;
        $self->_found("$reader->{name}: $position is behind $at, and elsewhere behind $before")
            if $before ne $at;
    }
    $reader->{at} = $position;
    return;
}

# Checks that each acknowledged entry is in the sequence of entries that ends with the last one.
sub _check_acknowledged ($self) {
    for my $topic (sort keys %{ $self->{acknowledged} // {} }) {
        my %kept = $self->_sequence($topic);
        while (my ($position, $known) = each %{ $self->{acknowledged}{$topic} }) {
            my ($entry, $phase) = @$known;
            next if $kept{$position};
            $self->{lost}{$phase}++;
            $self->_found("$topic: entry $entry at $position was acknowledged, and is lost")
                if !$self->{may_lose}{$phase};
        }
    }
    return;
}

# The positions from the last entry back to the first one.
sub _sequence ($self, $topic) {
    my $position = $self->{place}{$topic}{'z 1'} // return;
    my (%kept, %there);
    push @{ $there{ _offset($_) } }, $_ for keys %{ $self->{text}{$topic} };
    while (defined $position) {
        $kept{$position} = 1;
        my ($epoch, $offset) = split /\./, $position;
        # A subscriber that has got both entries shows which one was before. If all have had a reset instead,
        # it is the entry that was acknowledged last: others at its offset are lost.
        my $others = $there{ "$epoch." . ($offset - 1) } // [];
        my ($latest) = sort { $self->_time($topic, $b) <=> $self->_time($topic, $a) } @$others;
        $position = $self->{before}{$topic}{$position} // $latest;
    }
    return %kept;
}

sub _time ($self, $topic, $position) { return ($self->{acknowledged}{$topic}{$position} // [])->[2] // 0 }

1;
