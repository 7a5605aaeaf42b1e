package PAGI::Middleware;

# A module of Peregrine. Makefile.PL knows it by that sentence, and replaces no other distribution's module.
use strict;
use warnings;

our $VERSION = '0.003000';

use Carp qw(croak);
use Future::AsyncAwait;

sub new {
    my ($class, %config) = @_;
    my $self = bless { config => \%config }, $class;
    $self->_init(\%config);
    return $self;
}

sub _init { return }

sub wrap {
    my ($self) = @_;
    croak ref($self) . ' has no method wrap';
}

sub modify_scope {
    my (undef, $scope, $additions) = @_;
    return { %$scope, %{ $additions || {} } };
}

sub intercept_send {
    my (undef, $send, $interceptor) = @_;
    return sub { return $interceptor->($_[0], $send) };
}

async sub buffer_request_body {
    my (undef, $receive) = @_;
    my $body = '';
    my $event;
    do {
        $event = await $receive->();
        $body .= $event->{body} if defined $event->{body};
    } while $event->{more};
    return ($body, $event);
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Middleware - what middleware has in common

=head1 SYNOPSIS

    package My::Runtime;
    use v5.36;
    use parent 'PAGI::Middleware';
    use Future::AsyncAwait;
    use Time::HiRes qw(time);

    sub wrap ($self, $app) {
        return async sub ($scope, $receive, $send) {
            return await $app->($scope, $receive, $send) if $scope->{type} ne 'http';
            my $began = time;
            my $timed = $self->intercept_send($send, sub ($event, $original) {
                return $original->($event) if $event->{type} ne 'http.response.start';
                my @headers = (@{ $event->{headers} || [] }, [ 'x-runtime', time - $began ]);
                return $original->({ %$event, headers => \@headers });
            });
            await $app->($scope, $receive, $timed);
        };
    }

=head1 DESCRIPTION

Middleware takes an application and gives another one: it sees what goes in, and what comes out, and may
change both. A class of middleware is a subclass of this one that overrides L</wrap>;
L<PAGI::Middleware::Builder> puts several around an application.

It has the methods that C<PAGI::Middleware> of the distribution PAGI-Tools documents, so that middleware for
one of them works with the other. If that distribution is installed, this module is not.

=head1 METHODS

=head2 new

    my $middleware = My::Runtime->new(%config);

The settings are in C<< $self->{config} >>. Calls L</_init>.

=head2 _init

    sub _init ($self, $config) { ... }

For subclasses: called once, by L</new>, with the settings. Does nothing here.

=head2 wrap

    my $app = $middleware->wrap($app);

The application with the middleware around it. A subclass has to have it; this one dies.

=head2 modify_scope

    my $inner = $self->modify_scope($scope, { 'my.user' => $user });

A copy of the scope with additions. Both scopes refer to the same objects (C<pagi.connection>, C<state>).
The first scope stays as it was, so that middleware around this one does not see the additions.

=head2 intercept_send

    my $send = $self->intercept_send($send, sub ($event, $original) { return $original->($event) });

A function for events to be used in place of C<$send>: it calls the interceptor with each event and the
original C<$send>, and gives its Future.

=head2 buffer_request_body

    my ($body, $event) = await $self->buffer_request_body($receive);

The whole body of a request, and the last event that was received for it: C<http.disconnect> if the client
left in the middle. It is in memory then, up to C<max_body_size> of L<PAGI::Server>.

=head1 CALLING THE APPLICATION

Middleware calls what it wraps with a list: C<< $app->($scope, $receive, $send) >>. C<&$app> and
C<goto &$app> hand on C<@_> itself, which L<Future::AsyncAwait> before version 0.65 (Debian 12 has 0.63) frees
when the async sub that was called so waits, and its caller frees once more: requests end with 500, or the
process with SIGSEGV. PAGI::Server says so when it starts with such a version. Other people's middleware is
worth a look: C<grep -rn '&\$' lib>.

Another defect is in each version up to 0.71, on Perls with threads: a long string that the compiler makes
of constants (C<'y' x 65536>) is empty from the second time on, if its C<async sub> has waited. To be made
outside of the sub, or with a variable: C<'y' x $size>.

=head1 SEE ALSO

L<PAGI::Middleware::Builder>, L<PAGI::Middleware::SecurityHeaders>.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
