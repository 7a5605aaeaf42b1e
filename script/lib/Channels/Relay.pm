# Passes bytes on between a hub and Redis. After SIGUSR1 the answer to the next publication is lost: Redis has
# run the script that publishes, and the relay closes both connections.
package Channels::Relay;
use v5.36;
use IO::Select ();
use IO::Socket::INET;

sub run ($class, $from, $to) {
    my $listener = IO::Socket::INET->new(LocalAddr => $from, Listen => 20, ReuseAddr => 1)
        or die "$from: $@\n";
    my $select = IO::Select->new($listener);
    my $self   = bless { to => $to, select => $select, peer => {}, is_near => {}, loses => 0 }, $class;
    local $SIG{USR1} = sub { $self->{loses}++ };
    local $SIG{PIPE} = 'IGNORE';
    local $|         = 1;
    while (1) {
        for my $ready ($select->can_read) {
            $ready == $listener ? $self->_accept($listener) : $self->_pass($ready);
        }
    }
    return;
}

sub _accept ($self, $listener) {
    my $near = $listener->accept                                            or return;
    my $far  = IO::Socket::INET->new(PeerAddr => $self->{to}, Timeout => 2) or return;
    @{ $self->{peer} }{ $near, $far } = ($far, $near);
    $self->{is_near}{$near} = 1;
    $self->{select}->add($near, $far);
    return;
}

sub _pass ($self, $ready) {
    my $peer = $self->{peer}{$ready} or return;
    my $got  = sysread $ready, my $bytes, 65_536;
    return $self->_close($ready, $peer) if !$got;
    if ($self->{loses} && $self->{is_near}{$ready} && $bytes =~ /EVAL/) {
        $self->{loses}--;
        $self->{waits}{$peer} = 1;
    }
    elsif (delete $self->{waits}{$ready}) {
        say 'lost ', $bytes =~ s/\s+/ /gr;
        return $self->_close($ready, $peer);
    }
    return $self->_close($ready, $peer) if (syswrite($peer, $bytes) // 0) != $got;
    return;
}

sub _close ($self, @both) {
    $self->{select}->remove(@both);
    delete $self->{$_}->@{@both} for qw(peer is_near waits);
    close $_ for @both;
    return;
}

1;
