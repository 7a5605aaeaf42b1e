package Plack::Handler::Peregrine::Options;

use strict;
use warnings;

our $VERSION = '0.003000';

use PAGI::Server::Options;
use PAGI::Server::Options::Type;
use PAGI::Server::TLS;
use Peregrine::Inherited;
use Peregrine::Nearest;

# Options of PAGI::Server that concern applications of PAGI only.
my %NOT_OURS = map { $_ => 1 } qw(
    app extensions lifespan_mode on_error max_receive_queue max_receive_queue_size pool_idle_timeout
    pool_max_calls pool_max_rss pool_queue pool_timeout pool_workers sse_idle_timeout sync_workers
    validate_events worker_pool
);

# Words of other handlers: the handlers that have them, and the option that they set here. A function gets the
# value, and returns options; \&_nothing is for words that change nothing, or have no meaning here.
my @WORDS = (
    [ max_workers             => 'Starlet, Gazelle, EVHTP', 'workers' ],
    [ pre_fork                => 'Feersum',                 'workers' ],
    [ max_reqs_per_child      => 'Starlet, Gazelle, EVHTP', 'max_requests' ],
    [ max_requests_per_worker => 'Feersum',                 'max_requests' ],
    [ min_reqs_per_child      => 'Starlet, Gazelle',        \&_nothing ],
    [ spawn_interval          => 'Starlet, Gazelle',        \&_nothing ],
    [ preload_app             => 'Starman, Feersum',        \&_nothing ],
    [ disable_proctitle       => 'Starman',                 \&_nothing ],
    [ backlog                 => 'Starman',                 'listener_backlog' ],
    [ keepalive_timeout       => 'Starman, Starlet',        'timeout' ],
    [ read_timeout            => 'Starman, Feersum',        'header_timeout' ],
    [ timeout                 => 'Starlet, Gazelle',        qw(header_timeout body_timeout write_timeout) ],
    [ keepalive               => 'Feersum',                 \&_keepalive ],
    [ no_keepalive            => 'Feersum',                 \&_no_keepalive ],
    [ disable_keepalive       => 'Starman',                 \&_no_keepalive ],
    [ max_keepalive_reqs      => 'Starlet, EVHTP',          'max_keepalive_requests' ],
    [ max_connection_reqs     => 'Feersum',                 'max_keepalive_requests' ],
    [ max_accept_per_loop     => 'Feersum',                 \&_nothing ],
    [ epoll_exclusive         => 'Feersum',                 \&_nothing ],
    [ accept_priority         => 'Feersum',                 \&_nothing ],
    [ read_priority           => 'Feersum',                 \&_nothing ],
    [ write_priority          => 'Feersum',                 \&_nothing ],
    [ enable_ssl              => 'Starman',                 \&_ssl ],
    [ ssl                     => 'Starman',                 \&_ssl ],
    [ ssl_cert                => 'Starman',                 \&_ssl ],
    [ ssl_cert_file           => 'HTTP::Server::PSGI',      \&_ssl ],
    [ ssl_key                 => 'Starman',                 \&_ssl ],
    [ ssl_key_file            => 'HTTP::Server::PSGI',      \&_ssl ],
    [ ssl_chain               => 'Peregrine',               \&_ssl ],
    [ ssl_ca                  => 'Peregrine',               \&_ssl ],
    [ argv                    => 'plackup',                 \&_nothing ],
    [ socket                  => 'plackup',                 \&_nothing ],
    [ server_software         => 'plackup',                 \&_nothing ],
);
my %WORDS = map { $_->[0] => $_ } @WORDS;

sub _nothing { return }

sub _no_keepalive {
    my ($name, $value) = @_;
    return $value ? (max_keepalive_requests => 1) : ();
}

sub _keepalive { return _no_keepalive($_[0], !$_[1]) }

# Options of `ssl` and its like. A value of `--ssl` alone has no content: others follow.
sub _ssl {
    my ($name, $value, $options) = @_;
    my $key = PAGI::Server::TLS::key_of($name =~ s/_file\z//r);
    return $key ? (ssl => { %{ $options->{ssl} || {} }, $key => $value }) : ref $value ? (ssl => $value) : ();
}

sub words {
    return map { [@$_] } @WORDS;
}

# Options by name. Values of an option that may be given several times become a list. Of other options, and of
# `listen`, which plackup always gives, the last value counts.
sub gathered {
    my (@pairs) = @_;
    my (%values, %count);
    while (my ($name, $value) = splice @pairs, 0, 2) {
        my $option = PAGI::Server::Options::find($name);
        if ($option && $option->{many} && $name ne 'listen' && $count{$name}++) {
            my ($before, $more) = map { ref eq 'ARRAY' ? $_ : [$_] } $values{$name}, $value;
            $value = [ @$before, @$more ];
        }
        $values{$name} = $value;
    }
    return %values;
}

sub of_server {
    my (%given) = @_;
    my %options;
    _place(\%options, \%given);
    # A word that sets several options comes first, so that a word for one of them wins.
    for my $name (sort { @{ $WORDS{$b} || [] } <=> @{ $WORDS{$a} || [] } || $a cmp $b } keys %given) {
        $given{$name} = _lonely($name) if !defined $given{$name};
        next                           if !defined $given{$name};
        _complain_of_next_word($name, $given{$name});
        my %set = _translated($name, $given{$name}, \%options);
        @options{ keys %set } = values %set;
    }
    return %options;
}

# The value of a word without one: plackup takes the next word for the value of a switch, and a switch at the
# end has none.
sub _lonely {
    my ($name) = @_;
    my $option = PAGI::Server::Options::find($name);
    return $INC{'Plack/Runner.pm'} && $option && PAGI::Server::Options::Type::is_switch($option) ? 1 : undef;
}

sub _complain_of_next_word {
    my ($name, $value) = @_;
    my $option = PAGI::Server::Options::find($name) or return;
    return if !PAGI::Server::Options::Type::is_switch($option) || ref $value || $value =~ /\A[01]?\z/;
    return if PAGI::Server::Options::Type::is_word_of($option, $value);
    my $typed = $name =~ tr/_/-/r;
    die "option '$name' must be 0 or 1, not '$value'"
        . " (plackup takes the next word for the value of an option: write --$typed=1)\n";
}

# Takes the address, which plackup gives three times; its `listen` has all of it.
sub _place {
    my ($options, $given) = @_;
    my $listen = delete $given->{listen};
    my ($host, $port) = delete @{$given}{qw(host port)};
    # An IPv6 address has no brackets there.
    undef $listen
        if ref $listen && defined $port && ($host // '') =~ /\A[^\[].*:/ && "@$listen" eq "$host:$port";
    return if Peregrine::Inherited->are_expected && _is_plackups_own($listen, $host, $port);
    if (defined $listen && (ref $listen ? @$listen : 1)) {
        my @places = map { s/\A(?=:[0-9]+(?::ssl)?\z)/0.0.0.0/r } ref $listen ? @$listen : $listen;
        # HOST:PORT:ssl as of Starman; places without `ssl` speak no TLS then.
        if (grep { /:[0-9]+:ssl\z/ } @places) {
            s/:ssl\z/,tls/ || s/\z/,plain/ for @places;
        }
        $options->{listen} = \@places;
        return;
    }
    $options->{host} = $host if defined $host;
    $options->{port} = $port if defined $port;
    return;
}

# Whether a place is the default that plackup gives if the user has named none.
sub _is_plackups_own {
    my ($listen, $host, $port) = @_;
    my @listen = ref $listen ? @$listen : $listen // ':5000';
    return !defined $host && ($port // 5000) == 5000 && "@listen" eq ':5000';
}

sub _translated {
    my ($name, $value, $options) = @_;
    if (my $word = $WORDS{$name}) {
        my (undef, undef, @targets) = @$word;
        return ref $targets[0] ? $targets[0]->($name, $value, $options) : map { $_ => $value } @targets;
    }
    return ($name => $value) if PAGI::Server::Options::is_known($name) && !$NOT_OURS{$name};
    my $off = "disable_$name";    # plackup makes `X`, which is false, of --disable-X
    return _translated($off, $value ? 0 : 1, $options)
        if $value =~ /\A1?\z/ && ($WORDS{$off} || PAGI::Server::Options::is_known($off));
    my @known = grep { !$NOT_OURS{$_} } PAGI::Server::Options::names();
    die "there is no option '$name'" . Peregrine::Nearest::hint($name, @known, keys %WORDS) . "\n";
}

1;

__END__

=encoding UTF-8

=head1 NAME

Plack::Handler::Peregrine::Options - the words of plackup and of other handlers, in those of the server

=head1 FUNCTIONS

=head2 of_server

    my %options = Plack::Handler::Peregrine::Options::of_server(
        max_keepalive_reqs => 100, listen => [':5000'],
    );

Options of L<Plack::Handler::Peregrine::Server>. Dies of an option that nobody knows.

=head2 gathered

    my %options = Plack::Handler::Peregrine::Options::gathered(static => '/a=a', static => '/b=b');

The options that plackup has found, by name.

=head2 words

The words of other handlers: lists of the word, whose it is, and the options that it sets.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
