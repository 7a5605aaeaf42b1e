package PAGI::Sync;

use strict;
use warnings;

our $VERSION = '0.003000';

use Carp     qw(croak);
use Exporter qw(import);
use Future;
use Scalar::Util qw(blessed reftype);

our @EXPORT_OK = qw(is_sync sync);

# The class of handlers of `sync`. Other code may bless a handler into PAGI::Sync itself, whose handlers do
# not hand requests over.
@PAGI::Sync::Handler::ISA = (__PACKAGE__);

# Makes a handler that hands its request over to a process that may block, so that routers need not know it.
# If the server is Peregrine and nothing wraps $receive and $send, the server's C code does it.
sub sync {
    my ($code) = @_;
    croak 'PAGI::Sync: sync takes a code reference' if !ref $code || reftype($code) ne 'CODE';
    return $code                                    if ref $code eq 'PAGI::Sync::Handler';
    return bless sub {
        my $transport = $_[0]{'pagi.transport'};
        if (ref $transport eq 'PAGI::Server::Transport') {
            my $future = $transport->_sync($code, @_[ 0 .. 2 ]);
            return $future if defined $future;
        }
        my ($scope) = @_;
        return Future->fail("a sync handler has no lifespan\n") if $scope->{type} eq 'lifespan';
        my $pool = pool_of($scope) or return run($code, @_);
        return $pool->handle($code, @_);
    }, 'PAGI::Sync::Handler';
}

sub is_sync {
    my ($thing) = @_;
    return blessed $thing && $thing->isa(__PACKAGE__) ? 1 : 0;
}

# The pool of the server, if it takes sync handlers.
sub pool_of {
    my ($scope)    = @_;
    my $extensions = $scope->{pagi}{extensions};
    my $pool       = ref $extensions eq 'HASH' ? $extensions->{worker_pool} : $scope->{'pagi.worker_pool'};
    return $pool && $pool->can('takes_sync') && $pool->takes_sync ? $pool : undef;
}

# Calls a handler in this process, with a $receive and a $send that block. Returns a Future.
sub run {
    my ($handler, $scope, @functions) = @_;
    my $returned;
    my @blocking = map { _blocking($_) } @functions;
    eval { $returned = $handler->($scope, @blocking); 1 } or return Future->fail($@ || "died\n");
    return blessed $returned && $returned->isa('Future') ? $returned : Future->done;
}

# A function that waits for the Future of another one and returns it: an `await` of it goes on at once.
sub _blocking {
    my ($function) = @_;
    return sub {
        my $future = $function->(@_);
        $future->await if !$future->is_ready;
        $future->get   if $future->is_failed;
        return $future;
    };
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Sync - marks handlers that block

=head1 SYNOPSIS

    use PAGI::Sync qw(sync);

    my $report = sync(sub {
        my ($scope, $receive, $send) = @_;
        my $rows = $scope->{pagi}{worker_state}{db}->selectall_arrayref('SELECT ...');
        $send->({ type => 'http.response.start', status => 200, headers => [] });
        $send->({ type => 'http.response.body', body => encode_json($rows) });
    });

    # pagi-server --engine process --workers 2 --sync-workers 8 app.pl
    async sub app {
        my ($scope, $receive, $send) = @_;
        return await $report->(@_) if $scope->{path} eq '/report';
        ...
    }

=head1 DESCRIPTION

The marker of PAGI's design document F<docs/design/worker-pool.mkdn>. A handler that C<sync> has marked may
block: a server with the option L<sync_workers|PAGI::Server/sync_workers> runs it in a process that has
nothing else to do meanwhile. Response, uploads and backpressure go between the client and that process.

The process has the whole application. It is called there with the request, from its beginning, as if the
request had just come: middleware and routers do their work a second time, and their changes of the scope, or
wraps around C<$send>, are there. When they come to the handler again it runs. So nothing is copied, and the
code of the handler may be made at any time, by a closure too. What comes before the handler should not
count on being called once for a request; and it must not have read the body, or sent anything: then the
handler's Future fails (C<InvalidCall>).

In the process:

=over

=item *

C<< $scope->{pagi}{worker_state} >> is what C<init> of the option L<worker_pool|PAGI::Server::WorkerPool> has
returned there, an empty hash without it.

=item *

C<$send> returns when the client has taken so much that more may be sent, and dies if the event is wrong.
C<$receive> returns when there is an event. Both return a Future that is ready: the event is
C<< $receive->()->get >>. So a handler may be an C<async sub> as well.

=item *

The handler's exception is the application's: the client gets 500, or a response that is cut.

=back

Where all these processes are at work, requests wait, as many as C<pool_queue> says; further ones get 503 with
C<Retry-After>. A WebSocket or an event stream keeps its process as long as it lasts.

Where the whole application, or that of a mount, is a C<sync> handler, its requests go to these processes at
once, and the other interpreters do not hear of them. Behind a router a request goes through two interpreters,
one after the other: where most requests are short, C<peregrine --mount> of an application of PSGI costs less
(C<script/bench-pool sync> compares them). A process works on one request at a time, also in the turns of a
loop that its handler waits in; a short request may wait for it behind another one, for 2 ms at most.

Where the server has no such processes the handler runs where it is called, and blocks.

=head1 FUNCTIONS

=head2 sync

    my $handler = sync(sub { my ($scope, $receive, $send) = @_; ... });

A code reference that is blessed into a class of this one, and is called as any application of PAGI.

=head2 is_sync

    my $marked = is_sync($handler);

=head2 run, pool_of

For servers and middleware: calls a handler here, with functions that block; the server's pool if it takes
handlers of this kind.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
