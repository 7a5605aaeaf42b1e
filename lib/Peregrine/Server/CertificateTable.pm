package Peregrine::Server::CertificateTable;

use strict;
use warnings;

our $VERSION = '0.003000';

use Peregrine;

# Words of one certificate. EPOCH is odd while the other words change.
my (@WORDS, %AT);

BEGIN {
    @WORDS = qw(epoch from to due attempt failures renewals failed);
    %AT    = map { $WORDS[$_] => $_ } 0 .. $#WORDS;
}

# Bytes of the last problem that are kept, in words of eight.
use constant { TEXT_MAX => 240, TEXT_AT => scalar @WORDS };
use constant WIDTH => TEXT_AT + TEXT_MAX / 8;
# Times that a reader reads at most, while the facts change.
use constant LOOKS_MAX => 100;

# `orders`: lists of names, one for each certificate.
sub new {
    my ($class, $orders) = @_;
    return bless { orders => $orders, memory => Peregrine::Words->new(WIDTH * @$orders) }, $class;
}

# Unmaps the memory in a process that neither writes nor reads.
sub leave {
    my ($self) = @_;
    return $self->{memory}->leave;
}

sub _offset {
    my ($self, $name) = @_;
    my $orders = $self->{orders};
    my ($number) = grep { $orders->[$_][0] eq $name } 0 .. $#$orders;
    return defined $number ? WIDTH * $number : undef;
}

# ---- The writer, which is one process -----------------------------------------------------------

sub _change {
    my ($self, $name, $code) = @_;
    my $offset = $self->_offset($name) // return;
    $self->{memory}->add($offset + $AT{epoch}, 1);
    $code->($self->{memory}, $offset);
    $self->{memory}->add($offset + $AT{epoch}, 1);
    return;
}

sub set {
    my ($self, $name, %facts) = @_;
    my $problem = delete $facts{problem};
    return $self->_change(
        $name,
        sub {
            my ($memory, $offset) = @_;
            $memory->set($offset + $AT{$_}, int $facts{$_}) for sort keys %facts;
            my @text = unpack 'Q*', pack 'a' . TEXT_MAX, _bytes($problem // '');
            $memory->set($offset + TEXT_AT + $_, $text[$_]) for 0 .. $#text;
        }
    );
}

sub _bytes {
    my ($text) = @_;
    $text =~ s/[^\x20-\x7E]/?/g;
    return $text;
}

# Adds one to `renewals` or `failed`.
sub count {
    my ($self, $name, $word) = @_;
    return $self->_change($name, sub { $_[0]->add($_[1] + $AT{$word}, 1) });
}

# ---- Readers ------------------------------------------------------------------------------------

sub all {
    my ($self) = @_;
    return map { $self->_facts($_) } 0 .. $#{ $self->{orders} };
}

sub _facts {
    my ($self, $number) = @_;
    my @words;
    for (1 .. LOOKS_MAX) {
        @words = $self->{memory}->get(WIDTH * $number, WIDTH);
        last if $words[ $AT{epoch} ] % 2 == 0 && $words[ $AT{epoch} ] == $self->_epoch($number);
    }
    my %facts = map { $_ => $words[ $AT{$_} ] } @WORDS[ 1 .. $#WORDS ];
    $facts{problem} = unpack 'Z*', pack 'Q*', @words[ TEXT_AT .. WIDTH - 1 ];
    return { %facts, names => $self->{orders}[$number] };
}

sub _epoch {
    my ($self, $number) = @_;
    return ($self->{memory}->get(WIDTH * $number + $AT{epoch}))[0];
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Server::CertificateTable - what is known of ordered certificates, in memory that processes share

=head1 DESCRIPTION

A row for each certificate of the option C<acme>. The process that hears of certificates
(L<Peregrine::Server::Certificates>) writes; the status, in another process, reads.

=head1 METHODS

=head2 new

    my $table = Peregrine::Server::CertificateTable->new([ [ 'example.org', 'www.example.org' ] ]);

=head2 set

    $table->set('example.org', from => 0, to => 0, due => $time, attempt => $time, failures => 1,
        problem => $text);

By the first name: seconds since 1970, and how many attempts in a row have failed.

=head2 count

    $table->count('example.org', 'renewals');

C<renewals>: certificates that have come; C<failed>: attempts that have failed.

=head2 leave

    $table->leave;    # in a process that neither writes nor reads

=head2 all

    my @facts = $table->all;

Hash references with all of these and C<names>. C<to> is 0 where there is no certificate yet.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
