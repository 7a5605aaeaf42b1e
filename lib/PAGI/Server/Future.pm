package PAGI::Server::Future;

use strict;
use warnings;

our $VERSION = '0.003000';

use Peregrine;
use Future;
use Future::AsyncAwait ();
use parent 'IO::Async::Future';

# The keys that a Future's hash has in each state, if it is one of Future.pm's plain hashes.
my %LAYOUT = (
    pending   => 'callbacks ready u_loop',
    done      => 'ready result u_loop',
    failed    => 'failure ready u_loop',
    cancelled => 'cancelled ready u_loop',
);

sub _keys_of {
    my ($future) = @_;
    return join ' ', sort keys %$future;
}

# Whether C code may build and read Futures as hashes. Future::XS has other objects; debugging and
# timing add keys that only the constructor knows how to fill.
sub _is_plain {
    return 0 if $ENV{PERL_FUTURE_DEBUG} or $Future::TIMES;
    my %sample = map { $_ => IO::Async::Future->new('loop') } keys %LAYOUT;
    return 0 if grep { !$_->isa('HASH') } values %sample;
    return 0 if _keys_of($sample{pending}) ne $LAYOUT{pending};
    my $callback = sub { };
    $sample{pending}->AWAIT_ON_READY($callback);
    return 0 if join(' ', @{ $sample{pending}{callbacks}[0] }) ne "15 $callback";
    $sample{done}->done('value');
    $sample{failed}->fail('reason');
    $sample{cancelled}->cancel;
    return 0 if grep { _keys_of($sample{$_}) ne $LAYOUT{$_} } keys %LAYOUT;
    return $sample{done}{result}[0] eq 'value' && $sample{failed}{failure}[0] eq 'reason';
}

# Installs C versions of the functions that Future::AsyncAwait calls for each `await` and each `async sub`.
# For objects of other layouts these call the methods that Future.pm's functions call.
sub _install {
    my ($class) = @_;
    no strict 'refs';
    no warnings 'redefine';
    *{"${class}::AWAIT_$_"} = \&{ '_await_' . lc }
        for qw(IS_READY IS_CANCELLED GET ON_READY CHAIN_CANCEL NEW_DONE DONE CLONE);
    return;
}

if (_is_plain()) {
    _plain_layout();
    _install(__PACKAGE__);
    if (!$ENV{PAGI_PLAIN_FUTURE}) {
        _install('Future');
        _install_ops();
    }
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Future - the Futures that $receive and $send return

=head1 SYNOPSIS

    my $event = await $receive->();
    await $send->({ type => 'http.response.start', status => 200 });

=head1 DESCRIPTION

A subclass of L<IO::Async::Future> without methods of its own: everything that works with a Future
works with these, C<then>, C<wait_any>, C<cancel> and a blocking C<get> included.

The server makes most of them in C, already resolved. It also puts C versions of what L<Future::AsyncAwait>
calls for an C<await> and an C<async sub> (the methods C<AWAIT_IS_READY>, C<AWAIT_IS_CANCELLED>, C<AWAIT_GET>,
C<AWAIT_ON_READY>, C<AWAIT_CHAIN_CANCEL>, C<AWAIT_NEW_DONE>, C<AWAIT_DONE> and C<AWAIT_CLONE>) into L<Future>,
which makes all of them cheaper, in the whole program. They do the same as the originals.

Async subs that are compiled after this module do not even call methods when what they C<await> is ready, nor
when they end without an exception before they have ever waited: the two ops of L<Future::AsyncAwait> find
the values themselves. They call the methods in every other case, and for objects whose class has replaced
one of them.

This happens only where L<Future> is the pure-Perl one; set C<PAGI_PLAIN_FUTURE=1> in the environment to leave
L<Future> and L<Future::AsyncAwait> alone.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
