package PAGI::App::WrapPSGI;

use strict;
use warnings;

our $VERSION = '0.003000';

use Carp qw(croak);
use Future::AsyncAwait;
use PAGI::App::WrapPSGI::Environment;
use PAGI::App::WrapPSGI::Pool;
use PAGI::App::WrapPSGI::Response;
use PAGI::Sync;
use Scalar::Util qw(reftype);

# Headers of a refusal when no process is free and too many requests wait.
my @REFUSAL = ('Content-Type' => 'text/plain', 'Retry-After' => 1);

# Arguments, each with a function that says what is wrong with its value.
my %ARGUMENTS = (
    psgi_app => sub { ref $_[0] && reftype($_[0]) eq 'CODE' ? undef : 'must be a code reference' },
    workers  => sub {
        my $is_count = $_[0] =~ /\A\d{1,4}\z/a && $_[0] >= 1 && $_[0] <= 1024;
        return $is_count ? undef : 'must be a whole number from 1 to 1024';
    },
    max_waiting => sub { $_[0] =~ /\A\d+\z/a ? undef : 'must be a whole number' },
    in_process  => sub { undef },
);

sub new {
    my ($class, %given) = @_;
    my $self = bless { workers => 4, max_waiting => 1000, in_process => 0, %given }, $class;
    for my $name (sort keys %$self) {
        my $check = $ARGUMENTS{$name}
            or croak
            "PAGI::App::WrapPSGI: there is no argument '$name'; these are: @{[ sort keys %ARGUMENTS ]}";
        my $problem = $check->($self->{$name} // '');
        croak "PAGI::App::WrapPSGI: $name $problem" if defined $problem;
    }
    croak 'PAGI::App::WrapPSGI: psgi_app is required' if !$self->{psgi_app};
    return $self;
}

sub to_app {
    my ($self) = @_;
    my $blocking = PAGI::Sync::sync(sub { return $self->_block(@_) });
    return async sub {
        my ($scope, $receive, $send) = @_;
        my $type = $scope->{type};
        my $pool = $self->{in_process} ? undef : PAGI::Sync::pool_of($scope);
        return await $self->_live($receive, $send, $pool) if $type eq 'lifespan';
        die "Unsupported scope type: $type\n"             if $type ne 'http' && $type ne 'sse';
        return await $pool->call($blocking, args => [@_]) if $pool;
        return await $self->_answer($scope, $receive, $send);
    };
}

# Handles the lifespan: processes are forked before the first connection comes. If the server has a pool, it
# forks none.
async sub _live {
    my ($self, $receive, $send, $pool) = @_;
    for my $step ([ startup => 'start' ], [ shutdown => 'stop' ]) {
        my ($phase, $method) = @$step;
        await $receive->();
        $self->_pool->$method if !$self->{in_process} && !$pool;
        await $send->({ type => "lifespan.$phase.complete" });
    }
    return;
}

# The pool of this process; a process that was forked from another makes its own.
sub _pool {
    my ($self) = @_;
    delete $self->{pool} if $self->{pool} && !$self->{pool}->is_ours;
    return $self->{pool} //= PAGI::App::WrapPSGI::Pool->new(
        app         => $self->{psgi_app},
        workers     => $self->{workers},
        max_waiting => $self->{max_waiting},
    );
}

async sub _answer {
    my ($self, $scope, $receive, $send) = @_;
    my $body = await PAGI::App::WrapPSGI::Environment::gather($receive) or return;
    my $env  = PAGI::App::WrapPSGI::Environment::of($scope, $body->{length});
    my $sink = PAGI::App::WrapPSGI::Response::sink($send, $scope->{type});
    return await PAGI::App::WrapPSGI::Response::here($self->{psgi_app}, $env, $body, $sink)
        if $self->{in_process};
    my $pool = $self->_pool;
    return await $sink->(whole => 503, \@REFUSAL, "Service Unavailable\n") if $pool->is_full;
    return await $pool->run($env, $body, $sink);
}

# Runs the application in a process of the server that may block: $receive and $send block there.
sub _block {
    my ($self, $scope, $receive, $send) = @_;
    my $body = PAGI::App::WrapPSGI::Environment::gather($receive)->get or return;
    my $env  = PAGI::App::WrapPSGI::Environment::complete(
        PAGI::App::WrapPSGI::Environment::of($scope, $body->{length}),
        $body, 'psgi.multiprocess' => !!1,);
    my $sink  = PAGI::App::WrapPSGI::Response::sink($send, $scope->{type});
    my $say   = sub { return $sink->(@_)->get };
    my $ok    = eval { PAGI::App::WrapPSGI::Response::blocking($self->{psgi_app}, $env, $say); 1 };
    my $error = $@;
    PAGI::App::WrapPSGI::Environment::clean_up($env);
    die $error if !$ok;
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::App::WrapPSGI - serves a PSGI application inside a PAGI one

=head1 SYNOPSIS

    use PAGI::App::WrapPSGI;

    my $psgi_app = sub {
        my ($env) = @_;
        return [ 200, [ 'Content-Type' => 'text/plain' ], ['Hello'] ];
    };

    my $wrapper  = PAGI::App::WrapPSGI->new(psgi_app => $psgi_app, workers => 4);
    my $pagi_app = $wrapper->to_app;

=head1 DESCRIPTION

For PAGI applications that have a part of PSGI, on whatever PAGI server. (Where the server is Peregrine and
the part has a path of its own, C<peregrine --mount> costs less, see L<peregrine>.)

PSGI applications block, so each request is worked on in one of a few processes, which are forked from the
server's when it starts, or with the first request where the server has no lifespan. Meanwhile the event loop
goes on. A request whose processes are all at work waits for its turn. Content that the application makes is
sent as it comes; a client that reads slowly slows its application down, and nobody else.

Where the server has processes for handlers that block (C<sync_workers>, see L<PAGI::Sync>) these are used,
and none are forked: the application answers the client from there.

The application gets the whole body: up to 64 KiB in memory, more in a temporary file. It can be delayed and
stream, and has C<psgix.cleanup> and C<psgix.harakiri>. The client gets 500 if the application dies, calls
C<exit>, or its process is killed; another process takes its place.

Scopes of the types C<http> and C<sse> are served, the latter since a PSGI application may stream events; for
others it dies as PAGI applications do.

=head1 METHODS

=head2 new

    my $wrapper = PAGI::App::WrapPSGI->new(psgi_app => $app);

=over

=item psgi_app

The application, a code reference. Required.

=item workers

How many processes there are at most: so many requests are worked on at a time. Default: 4, from 1 to 1024.

=item max_waiting

Requests that may wait for a process; further requests are answered with 503. Default: 1000.

=item in_process

True: there are no processes, and the application runs in the event loop itself. For those that do not block,
but wait in the loop and respond later: C<psgi.nonblocking> is true then. Default: false.

=back

Dies of anything else.

=head2 to_app

The PAGI application.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
