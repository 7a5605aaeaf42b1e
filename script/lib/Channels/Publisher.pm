# Publishes entries to a topic at one server, again and again, and logs which ones were acknowledged. An entry
# that was not is never sent again: the next entry has the next number.
package Channels::Publisher;
use v5.36;
use IO::Select ();
use IO::Socket::INET;
use POSIX       ();
use Time::HiRes qw(sleep time);

use constant ANSWER_S => 10;

# `name`, `topic`, `address` (of the server), `rate` (entries a second), `bytes` (of an entry), `log`. Ends
# when standard input ends, or after `last` entries.
sub run ($class, %args) {
    my $self = bless { %args, before => '-' }, $class;
    open $self->{out}, '>>', $args{log} or die "$args{log}: $!\n";
    $self->{out}->autoflush;
    my $orders = IO::Select->new(\*STDIN);
    my $next   = time;
    for (my $number = 1; !$args{last} || $number <= $args{last}; $number++) {
        my $place = $self->publish($number);
        my $fact  = $place =~ /\A[0-9a-f]{12}\./ ? 'ack' : 'fail';
        printf { $self->{out} } "%s %s %s %d %s %.3f\n", $fact, $self->{topic}, $self->{name}, $number,
            $place =~ s/\s.*//sr, time;
        # An entry contains the position of the entry before, if that was acknowledged: readers may resume
        # from it.
        $self->{before} = $fact eq 'ack' ? $place : '-';
        $next += 1 / $self->{rate};
        $next = time if $next < time;
        return       if $orders->can_read($next - time);
    }
    return;
}

# Publishes an entry; returns its position, or the reason why there is none.
sub publish ($self, $number) {
    local $SIG{PIPE} = 'IGNORE';
    my $text = "$self->{name} $number $self->{before} ";
    $text .= 'x' x ($self->{bytes} - length $text);
    my $socket = $self->{socket} //= IO::Socket::INET->new(PeerAddr => $self->{address}, Timeout => 2)
        or return 'not-connected';
    my $asked = syswrite $socket, join "\r\n", "POST /publish/$self->{topic} HTTP/1.1", 'Host: channels',
        'Content-Length: ' . length $text, '', $text;
    my $answer = $asked ? $self->_answer($socket) : 'not-sent';
    delete $self->{socket} if $answer !~ /\A(?:[0-9a-f]{12}\.|failed)/;
    return $answer =~ s/\Afailed //r;
}

sub _answer ($self, $socket) {
    my $select = IO::Select->new($socket);
    my $got    = '';
    my $until  = time + ANSWER_S;
    while (1) {
        my ($head, $body) = split /\r\n\r\n/, $got, 2;
        if (defined $body) {
            my ($length) = $head =~ /^content-length: *(\d+)/mi or return 'no-length';
            return substr($head, 9, 3) == 200 ? $body : 'status-' . substr $head, 9, 3
                if length $body >= $length;
        }
        return 'no-answer' if !$select->can_read($until - time);
        sysread $socket, $got, 65_536, length $got or return 'cut';
    }
    return;
}

1;
