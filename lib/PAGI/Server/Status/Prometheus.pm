package PAGI::Server::Status::Prometheus;

use strict;
use warnings;

our $VERSION = '0.003000';

use List::Util qw(max sum0);
use Peregrine::Counters;

use constant TYPE => 'text/plain; version=0.0.4; charset=utf-8';

my @ABOUT = ([ version => 'gauge', 'build_info', 'The version of the server.', 'version' ]);

# A family of metrics; each line is a pair of labels and a value.
sub _family {
    my ($name, $type, $help, @lines) = @_;
    my $text =
          "# HELP peregrine_$name "
        . ($help =~ s/([\\\n])/$1 eq '\\' ? '\\\\' : '\\n'/ger)
        . "\n# TYPE peregrine_$name $type\n";
    $text .= "peregrine_$name$_->[0] $_->[1]\n" for @lines;
    return $text;
}

sub _label {
    my ($name, $value) = @_;
    return '' if !length $name;
    $value =~ s/([\\"\n])/$1 eq "\n" ? '\\n' : "\\$1"/ge;
    return qq({$name="$value"});
}

# Families for the rows of a table: a fact, the type of the metric, its name and its help. A family has a line
# for each subject, which is a label and a hash of facts. With a label in the row the fact is a hash, and the
# family has a line for each of its keys. Without subjects there are no families.
sub _table {
    my ($rows, @subjects) = @_;
    return if !@subjects;
    return map {
        my ($fact, $type, $name, $help, $label) = @$_;
        my @lines = map { [ $_->[0], $_->[1]{$fact} ] } @subjects;
        if (defined $label) {
            my $values = $lines[0][1];
            @lines = map { [ _label($label => $_), $values->{$_} ] } sort keys %$values;
        }
        _family($name, $type, $help, @lines);
    } @$rows;
}

sub _counted {
    my ($total) = @_;
    my (@names, %words);
    for my $word (Peregrine::Counters->words) {
        push @names,                       $word->{name} if !$words{ $word->{name} };
        push @{ $words{ $word->{name} } }, $word;
    }
    return map { _counter($_, $total->{$_}, @{ $words{$_} }) } @names;
}

sub _counter {
    my ($name, $values, @words) = @_;
    my ($kind, $label,  $help)  = @{ $words[0] }{qw(kind label summary)};
    return _histogram($name =~ s/_time\z/_duration_seconds/r, $help, $values) if $kind eq 'bucket';
    my @lines =
        map { [ _label($label, $_->{value}), ref $values ? $values->{ $_->{value} } : $values ] } @words;
    return _family($kind eq 'counter' ? "${name}_total" : $name, $kind, $help, @lines);
}

# A histogram, in which each bucket counts the buckets below it, too.
sub _histogram {
    my ($name, $help, $histogram) = @_;
    my $count = 0;
    my @lines;
    for my $bucket (@{ $histogram->{buckets} }) {
        $count += $bucket->[1];
        push @lines, [ '_bucket' . _label(le => $bucket->[0]), $count ];
    }
    return _family($name, 'histogram', $help, @lines, [ '_sum', $histogram->{seconds} ],
        [ '_count', $count ]);
}

my @PROCESSES = (
    [ processes => 'gauge', 'processes',       'Processes that serve.' ],
    [ stuck     => 'gauge', 'processes_stuck', 'Processes whose event loop is blocked.' ],
    [
        silent => 'gauge',
        'loop_silence_seconds', 'How long ago an event loop ran, of the process where that is longest.'
    ],
    [
        resident => 'gauge',
        'resident_memory_bytes', 'Memory of all these processes; what they share counts in each.'
    ],
    [ restarts => 'counter', 'process_restarts_total', 'Processes that were replaced.', 'reason' ],
);

sub _workers {
    my ($facts)   = @_;
    my @processes = @{ $facts->{processes} };
    my %all       = (
        processes => scalar @processes,
        stuck     => scalar(grep { $_->{stuck} } @processes),
        silent    => max(0, map { $_->{silent} } @processes),
        resident  => sum0(map { $_->{resident} || 0 } @processes),
        restarts  => $facts->{restarts},
    );
    return _table(\@PROCESSES, [ '', \%all ]);
}

# The workers of each mount; those of all other mounts have the label *.
my @MOUNTS = (
    [ generation => 'gauge',   'mount_generation',            'How often new code has come, from 1 on.' ],
    [ wanted     => 'gauge',   'mount_workers_wanted',        'Workers that the mount should have.' ],
    [ serving    => 'gauge',   'mount_workers',               'Workers of the mount that serve.' ],
    [ replaced   => 'counter', 'mount_worker_restarts_total', 'Workers of the mount that were replaced.' ],
    [ asked      => 'counter', 'mount_requests_total',   'Requests that workers of the mount have got.' ],
    [ answered   => 'counter', 'mount_answers_total',    'Answers of workers of the mount.' ],
    [ failed     => 'counter', 'mount_failures_total',   'Answers with a status of 500 and more, or cut.' ],
    [ unanswered => 'counter', 'mount_unanswered_total', 'Requests that ended without an answer.' ],
    [ refused    => 'counter', 'mount_refused_total',    'Requests refused for want of a worker or place.' ],
);

# The hub's counts. A hub that is started again counts anew, which is allowed for counters.
my @CHANNELS = (
    [ interpreters    => 'gauge', 'channels_connections', 'Interpreters and programs that the hub has.' ],
    [ subscribed      => 'gauge', 'channels_topics', 'Topics of channels to which somebody has subscribed.' ],
    [ topics          => 'gauge', 'topics',          'Topics with history.' ],
    [ history_bytes   => 'gauge',   'topics_history_bytes',     'Memory of the entries of all topics.' ],
    [ entries         => 'counter', 'topics_entries_total',     'Entries that were published to topics.' ],
    [ entry_bytes     => 'counter', 'topics_entry_bytes_total', 'Bytes of these entries.' ],
    [ readers         => 'gauge', 'topics_readers', 'Connections that read topics, once for each.' ],
    [ orphans         => 'gauge', 'topics_orphans', 'Connections that read topics without an interpreter.' ],
    [ lag             => 'gauge', 'topics_lag',     'Entries that the slowest reader has yet to get.' ],
    [ delivered       => 'counter', 'topics_delivered_total',       'Entries that went to readers.' ],
    [ delivered_bytes => 'counter', 'topics_delivered_bytes_total', 'Bytes of these, with their framing.' ],
    [ resets          => 'counter', 'topics_resets_total',          'Readers that were told of a reset.' ],
    [ readers_cut   => 'counter', 'topics_readers_cut_total', 'Readers that were too far behind, and cut.' ],
    [ published     => 'counter', 'channels_published_total', 'Messages to topics of channels.' ],
    [ sent          => 'counter', 'channels_sent_total',      'Messages to single channels.' ],
    [ message_bytes => 'counter', 'channels_message_bytes_total', 'Bytes of messages of both kinds.' ],
    [ mailed        => 'counter', 'channels_mailed_total',        'Messages that came to mailboxes.' ],
    [ mailed_bytes  => 'counter', 'channels_mailed_bytes_total',  'Bytes of these.' ],
    [ cut           => 'counter', 'channels_cut_total', 'Connections to the hub that read too slowly.' ],
    [
        dropped => 'counter',
        'channels_dropped_total', 'Messages that channels have dropped, by reason.', 'reason'
    ],
);

my @REDIS = (
    [ redis_up   => 'gauge',   'channels_redis_up',         'Whether the hub has its connections to Redis.' ],
    [ redis_lost => 'counter', 'channels_redis_lost_total', 'Connections to Redis that ended.' ],
    [ redis_failed => 'counter', 'channels_redis_failed_total', 'Messages that did not get to Redis.' ],
);

sub _hub {
    my ($facts) = @_;
    my @up = _family('channels_hub_up', 'gauge', 'Whether the hub answers.', [ '', $facts->{hub} ? 1 : 0 ]);
    my $counts = $facts->{channels} or return @up;
    my %counts = (
        %$counts,
        redis_up => ($counts->{redis} // 0) > 1 ? 1 : 0,
        dropped  => { map { $_ => $counts->{"dropped_$_"} } qw(full expired) },
    );
    return (@up, map { _table($_, [ '', \%counts ]) } \@CHANNELS, $counts->{redis} ? \@REDIS : ());
}

my @POOL = (
    [ processes   => 'gauge',   'pool_processes', 'Processes of the worker pool by what they do.', 'state' ],
    [ queue_depth => 'gauge',   'pool_queue',              'Calls that wait for a process.' ],
    [ queue_limit => 'gauge',   'pool_queue_limit',        'How many calls may wait.' ],
    [ seconds     => 'counter', 'pool_busy_seconds_total', 'Time that processes of the pool were at calls.' ],
    [ calls       => 'counter', 'pool_calls_total',        'Calls by what became of them.', 'outcome' ],
);

# Facts of certificates. Each has a line for each name, so that an alert can be about one host.
my @CERTIFICATES = (
    [
        left => 'gauge',
        'certificate_expires_seconds',
        'Seconds until the certificate of a host expires; 0 if there is none, negative when it has.'
    ],
    [ attempt  => 'gauge', 'certificate_attempt_timestamp_seconds', 'When a certificate was ordered last.' ],
    [ failures => 'gauge',   'certificate_failures',       'Attempts in a row that brought no certificate.' ],
    [ renewals => 'counter', 'certificate_renewals_total', 'Certificates that have come.' ],
    [ failed   => 'counter', 'certificate_failures_total', 'Attempts that brought no certificate.' ],
);

sub _certificates {
    my ($facts) = @_;
    my @subjects = map {
        my %one = (%$_, attempt => $_->{attempt} // 0);
        $one{left} = $one{expires} ? sprintf '%d', $one{expires} - $facts->{time} : 0;
        map { [ _label(host => $_), \%one ] } @{ $one{names} }
    } @{ $facts->{certificates} };
    return _table(\@CERTIFICATES, @subjects);
}

sub text {
    my ($facts) = @_;
    my @mounts  = map { [ _label(mount => $_->{mount}), $_ ] } @{ $facts->{mounts} };
    my @pool    = map { [ '', { %$_, processes => { %{$_}{qw(busy idle)} } } ] } $facts->{pool} // ();
    return join '', _table(\@ABOUT, [ '', { version => { $facts->{version} => 1 } } ]),
        _counted($facts->{total}), _workers($facts), _table(\@MOUNTS, @mounts), _certificates($facts),
        defined $facts->{hub} ? _hub($facts) : (), _table(\@POOL, @pool);
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Status::Prometheus - the text format of Prometheus

=head1 FUNCTIONS

=head2 text

    my $text = PAGI::Server::Status::Prometheus::text($status->facts);

The facts of a L<PAGI::Server::Status>, as metrics whose names begin with C<peregrine_>.
C<PAGI::Server::Status::Prometheus::TYPE> is their media type.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
