# A client in a process of its own that sends requests to a row's server all the time while an event happens,
# and records which requests were lost, when, and which process they went to.
package Pairs::Load;
use v5.36;
use JSON::PP ();
use Pairs::Client;
use Pairs::Content;
use POSIX       ();
use TestTools   ();
use Time::HiRes qw(sleep time);

use constant {
    PAUSE_S      => 0.01,
    PAUSE_BODY_S => 0.1,
    FAILURES     => 20,
    REQUEST_S    => 40,
    ENTRY_S      => 10,
};

# `kind`: `kept`, requests on one connection as long as it lasts; `fresh`, each request on a new connection;
# `websocket`, a handshake and a message each time; `topic`, an entry each time, which a client reads from the
# position before it; `held`, an entry each time, which must reach a stream that the engine holds; `upload`, a
# body each time on one connection as long as it lasts, which must come back; `file`, a file each time, below
# the path `prefix`.
sub start ($class, $kind, $place, $prefix) {
    pipe my $told, my $tell or die "pipe: $!\n";
    pipe my $over, my $end  or die "pipe: $!\n";
    my $pid = fork // die "fork: $!\n";
    if (!$pid) {
        alarm TestTools::patience(140);
        local $SIG{ALRM} = 'DEFAULT';
        my $asked = eval { _ask_until($over, $kind, $place, $prefix) } // {
            asked => 0,
            lost  => [ { kind => $kind, why => "$@", begun => 0, failed => 0, process => 0 } ]
        };
        print {$tell} JSON::PP::encode_json($asked);
        close $tell;
        POSIX::_exit(0);
    }
    return bless { pid => $pid, told => $told, end => $end }, $class;
}

# Ends the client; returns the number of its requests, the targets of the answered ones (`sure`), and for each
# lost one: kind, begun, failed, process (0: unknown), why, is_unheard (it could not be sent, or the
# connection ended without a byte of an answer).
sub finish ($self) {
    syswrite $self->{end}, '.';
    local $/;
    my $text = readline $self->{told};
    waitpid $self->{pid}, 0;
    return JSON::PP::decode_json($text) if $text;
    return { asked => 0, lost => [ { kind => 'a client', why => 'it died', begun => 0, failed => 0 } ] };
}

sub _ask_until ($over, $kind, $place, $prefix) {
    my ($asked, $client, @lost, $process, @sure) = (0);
    my $topic = { place => $place, prefix => $prefix };
    my $keeps = $kind =~ /\A(?:kept|upload)\z/;
    my $pause = $kind =~ /\A(?:upload|file)\z/ ? PAUSE_BODY_S : PAUSE_S;
    my $bits  = '';
    vec($bits, fileno $over, 1) = 1;
    until (select(my $ready = $bits, undef, undef, $pause) || @lost >= FAILURES) {
        undef $client if !$keeps || $client && !$client->goes_on;
        my $begun = time;
        $process = 0 if !$client;
        $asked++;
        # Expected: no server listens, or the connection was closed before all was sent.
        my $told = eval {
            return _read_on($topic, $asked) if $kind eq 'topic';
            return _held_on($topic, $asked) if $kind eq 'held';
            $client //= Pairs::Client->new($place, timeout => REQUEST_S);
            return _greeted($client, $prefix) if $kind eq 'websocket';
            my %does = (upload => \&_uploaded, file => \&_got);
            return $does{$kind}->($client, $prefix, $asked) if $does{$kind};
            return _asked($client, "$prefix/who?$kind-$asked", \$process, \@sure);
        };
        my $why = $told // "$@";
        # Connections that are lost are findings of the other kinds, not of `topic`.
        $why = $topic->{at} = '' if $kind eq 'topic' && !defined $told;
        next                     if $why eq '';
        push @lost,
            {
            kind       => $kind,
            begun      => $begun,
            failed     => time,
            process    => $process || 0,
            why        => $why,
            is_unheard => !defined $told || $client && $client->wire->{ended} && $why =~ /\Astatus 0/ ? 1 : 0,
            };
        undef $client;
    }
    return { asked => $asked, lost => \@lost, sure => \@sure };
}

# The reason why a request is lost, or an empty string. A request that HTTP/2 says was not seen is not lost.
# The target of an answered request is added to `sure`.
sub _asked ($client, $target, $process, $sure) {
    my $answer = $client->ask($target);
    return '' if $answer->{again};
    my $said = substr($answer->{body} // '', 0, 100) =~ s/\s+/ /gr;
    return "status $answer->{status} $said" if $answer->{status} ne '200';
    return "not whole: $answer->{body}" if !$answer->{complete} || $answer->{body} !~ /\A\d+ \d+ \d+ \S+\n\z/;
    ($$process) = split ' ', $answer->{body};
    push @$sure, $target;
    return '';
}

# Each upload has other content, so that no answer can be taken for an earlier one.
sub _uploaded ($client, $prefix, $number) {
    my $body   = "$number " . Pairs::Content::some();
    my $answer = $client->ask("$prefix/echo", body => $body);
    return ''                         if $answer->{again};
    return "status $answer->{status}" if $answer->{status} ne '200';
    return $answer->{complete} && $answer->{body} eq $body ? '' : 'an upload comes back as another one';
}

sub _got ($client, $path, $) {
    my $answer = $client->ask("$path/some");
    return ''                                   if $answer->{again};
    return "status $answer->{status} of a file" if $answer->{status} ne '200';
    return $answer->{complete}
        && $answer->{body} eq Pairs::Content::some() ? '' : 'a file with other content';
}

# Publishes an entry, and reads it from the position of the entry before.
sub _read_on ($topic, $number) {
    my $before = delete $topic->{at} || _told($topic, 'place');
    my $at     = _told($topic, "publishes $number");
    # If a publication failed, its entry may exist or not: it is not looked for.
    return '' if $before !~ s/\Atext at // || $at !~ s/\Atext at //;
    my $got = _told($topic, "reads $before");
    # A server that ends closes its WebSockets.
    return ''                              if $got !~ /\Atext /;
    return "an entry: '$got', not $number" if $got ne "text $number";
    $topic->{at} = "text at $at";
    return '';
}

# Publishes an entry, which a held stream must get; after a complete end the stream is opened again.
sub _held_on ($topic, $number) {
    my $at = Pairs::Client->new($topic->{place}, timeout => ENTRY_S)->ask("$topic->{prefix}/publish?$number");
    # Lost requests are findings of the other kinds, not of `held`.
    return '' if $at->{status} ne '200';
    while (1) {
        my $held = $topic->{held};
        if (!$held) {
            my @last   = length($topic->{last} // '') ? ('Last-Event-ID' => $topic->{last}) : ();
            my $client = Pairs::Client->new($topic->{place}, timeout => ENTRY_S);
            my $id     = $client->send("$topic->{prefix}/hold", fields => \@last);
            return '' if !$client->reads_until($id, qr/: held\n\n/);
            $topic->{held} = { client => $client, id => $id, since => $number };
            # A stream without a position begins with the next entry.
            return '' if !@last;
            next;
        }
        my $text = $held->{client}->reads_until($held->{id}, qr/^data: $number\n\n/m);
        if (defined $text) {
            $topic->{last} = $at->{body};
            my @numbers = $text =~ /^data: (\d+)$/mg;
            my ($odd) = grep { $numbers[$_] <= $numbers[ $_ - 1 ] } 1 .. $#numbers;
            return '' if !defined $odd && $text !~ /^event: reset$/m;
            return "a held stream: @numbers" . ($text =~ /^event: reset$/m ? ' and a reset' : '');
        }
        delete $topic->{held};
        return "a held stream does not get $number, and is cut"
            if !$held->{client}->has_ended_well($held->{id});
    }
}

sub _told ($topic, $text) {
    my $client = Pairs::Client->new($topic->{place}, timeout => ENTRY_S);
    return ($client->converse("$topic->{prefix}/ws", [ 1, $text ]))[1] // '';
}

sub _greeted ($client, $prefix) {
    my @said = $client->converse("$prefix/ws", [ 1, 'hello' ]);
    return ''                               if $said[0] eq 'again';
    return "status $said[0] of a handshake" if $said[0] ne 'open';
    # A server that ends closes its WebSockets.
    return $said[1] =~ /\A(?:text hello|close 1012|close 1001)/ ? '' : "a WebSocket: $said[1]";
}

1;
