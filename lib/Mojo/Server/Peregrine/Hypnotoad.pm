package Mojo::Server::Peregrine::Hypnotoad;

# The settings of Mojo::Server::Hypnotoad as options of this server.

use strict;
use warnings;

use Mojo::URL;
use Mojo::Util qw(url_unescape);

our $VERSION = '0.003000';

my %OPTION = (
    backlog            => 'listener_backlog',
    clients            => 'max_connections',
    graceful_timeout   => 'shutdown_timeout',
    heartbeat_timeout  => 'heartbeat_timeout',
    keep_alive_timeout => 'timeout',
    pid_file           => 'pid',
    requests           => 'max_keepalive_requests',
    workers            => 'workers',
);

# Values of the option for a client's certificate, by the bits of `verify`, which are OpenSSL's: 1 asks for a
# certificate, and 2 beside 1 refuses clients without one.
my @VERIFY = qw(none request none require);

sub options {
    my ($class, $settings) = @_;
    my %options = map { $OPTION{$_} => "$settings->{$_}" } grep { defined $settings->{$_} } keys %OPTION;
    if (my $places = $settings->{listen}) {
        $options{listen}    = [ map { $class->place($_) } @$places ];
        $options{reuseport} = 1 if grep { $class->is_shared($_) } @$places;
    }
    return \%options;
}

sub is_shared {
    my ($class, $location) = @_;
    return Mojo::URL->new($location)->query->param('reuse') ? 1 : 0;
}

# A location of Mojo::Server::Daemon as a value of the option `listen`.
sub place {
    my ($class, $location) = @_;
    my $url   = Mojo::URL->new($location);
    my $query = $url->query;
    my $kind  = $url->protocol;
    die "hypnotoad: cannot listen at '$location': it begins with http://, https:// or http+unix://\n"
        if $kind !~ /\A(?:https?|http\+unix)\z/;
    return 'unix:' . url_unescape($url->host) if $kind eq 'http+unix';
    my $host  = $url->host eq '*'           ? ''                          : $url->host;
    my $place = defined $query->param('fd') ? 'fd:' . $query->param('fd') : "$host:" . ($url->port // 3000);
    return "$place,plain" if $kind eq 'http';
    die "hypnotoad: '$location' names no cert and key\n"
        if !defined $query->param('cert') || !defined $query->param('key');
    warn "hypnotoad: '$location': $_ does nothing here\n"
        for grep { defined $query->param($_) } qw(ciphers version);
    my $verify = $query->param('verify');
    return join ',', $place,
        (map { "$_=" . $query->param($_) } grep { defined $query->param($_) } qw(cert key ca)),
        defined $verify ? 'verify=' . $VERIFY[ hex($verify) & $#VERIFY ] : ();
}

# The attributes of the server in an application's settings.
sub attributes {
    my ($class, $app) = @_;
    return if !$app->can('config') || $app->mode eq 'development';
    my $settings = $app->config('hypnotoad') // {};
    my %given    = (
        inactivity_timeout => $settings->{inactivity_timeout},
        reverse_proxy      => $settings->{proxy},
        trusted_proxies    => $settings->{trusted_proxies},
    );
    return map { $_ => $given{$_} } grep { defined $given{$_} } keys %given;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Mojo::Server::Peregrine::Hypnotoad - the settings of hypnotoad for this server

=head1 DESCRIPTION

In all modes but C<development> the command C<peregrine> reads the section C<hypnotoad> of the configuration
of the one application of L<Mojolicious> that it serves, when it starts. Options on the command line and in
the configuration file of the server win.

    hypnotoad            option of peregrine
    backlog              listener_backlog
    clients              max_connections
    graceful_timeout     shutdown_timeout
    heartbeat_timeout    heartbeat_timeout
    keep_alive_timeout   timeout
    listen               listen, and reuseport for ?reuse=1; ciphers and version do nothing
    pid_file             pid
    requests             max_keepalive_requests
    workers              workers

    inactivity_timeout   an attribute of Mojo::Server::Peregrine
    proxy                its attribute reverse_proxy
    trusted_proxies      its attribute trusted_proxies

    accepts              nothing: max_requests replaces interpreters, if they need it
    heartbeat_interval   nothing
    spare                nothing: a new interpreter serves before the old one stops
    upgrade_timeout      nothing

The defaults are those of this server: without C<listen> and C<workers> one process serves at port 5000.

    hypnotoad script/app                        peregrine -E production --daemonize --pid app.pid script/app
    hypnotoad -f script/app                     peregrine -E production script/app
    hypnotoad -s script/app                     kill -TERM $(cat app.pid)
    hypnotoad script/app, again: hot deployment  kill -HUP $(cat app.pid): new interpreters with new code
    kill -USR2, with a new perl or new modules  kill -USR2 $(cat app.pid): a whole new program
    kill -QUIT: stop gracefully                 kill -QUIT, and TERM and INT
    kill -TTIN, kill -TTOU                      the same

=head1 METHODS

=head2 options

    my $options = Mojo::Server::Peregrine::Hypnotoad->options($app->config('hypnotoad'));

=head2 place

    # ':8080,plain'
    my $place = Mojo::Server::Peregrine::Hypnotoad->place('http://*:8080');

A location as L<Mojo::Server::Daemon> has it in the words of the option C<listen>.

=head2 is_shared

    my $has_reuse = Mojo::Server::Peregrine::Hypnotoad->is_shared('http://*:8080?reuse=1');

=head2 attributes

    $server->inactivity_timeout(...);    # and so on

The settings that are attributes of L<Mojo::Server::Peregrine>, as a list of pairs.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
