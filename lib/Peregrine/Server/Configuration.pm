package Peregrine::Server::Configuration;

use strict;
use warnings;

our $VERSION = '0.003000';

use File::Spec ();
use PAGI::Server::AccessLog;
use PAGI::Server::Folders;
use PAGI::Server::Log;
use PAGI::Server::Options;
use PAGI::Server::PoolHandlers;
use PAGI::Server::TLS;
use Peregrine::Place;
use Peregrine::Process;

# Seconds that a start has for loading code, if heartbeat_timeout does not say it.
use constant LOAD_S => 60;

use constant ENGINE_BEAT_S => PAGI::Server::Options::find('heartbeat_timeout')->{default};

# Options whose value is an existing directory.
my @DIRECTORIES = qw(x_sendfile acme_challenges);

# Options of work that a proxy may do, and the sentence for a server that cannot do it.
my %PROXY = (redirect_http => 'the proxy has to redirect', acme => 'the proxy has to have the certificates');

# Options that say where the server listens.
my $PLACES = qr/\A(?:host|port|listen|socket.*|proxy_protocol|disable_tls)\z/;

sub of {
    my ($class, $options, $variables) = @_;
    return bless { options => $options, variables => $variables || {}, named => {}, given => {} }, $class;
}

sub new {
    my ($class, %given) = @_;
    return $class->of({ PAGI::Server::Options::defaults() })->with(%given);
}

sub from_environment {
    my ($class, $whose, %given) = @_;
    my %variables = PAGI::Server::Options::from_environment();
    %given = PAGI::Server::Options::canonical(%given);
    delete @variables{ keys %given };
    my %defaults = (PAGI::Server::Options::defaults(), PAGI::Server::Options::defaults_of($whose));
    return $class->of(\%defaults, \%variables)->with(%variables, %given);
}

sub with {
    my ($self, %given) = @_;
    %given              = PAGI::Server::Options::canonical(%given);
    %given              = (PAGI::Server::PoolHandlers::options_of($given{worker_pool}), %given);
    $given{$_}          = PAGI::Server::Options::check($_, $given{$_}) for sort keys %given;
    $given{worker_pool} = _file(worker_pool => $given{worker_pool})            if defined $given{worker_pool};
    $given{access_log}  = PAGI::Server::AccessLog::located($given{access_log}) if exists $given{access_log};
    $given{static}      = _folders($given{static})                             if $given{static};
    $given{$_}          = _directory($_, $given{$_}) for grep { defined $given{$_} } @DIRECTORIES;
    my $new = bless {
        %$self,
        given   => \%given,
        options => { %{ $self->{options} }, %given },
        named   => { %{ $self->{named} },   map { $_ => defined $given{$_} } keys %given },
        },
        ref $self;
    eval { PAGI::Server::Options::check_together(@{$new}{qw(options named)}); 1 }
        or die $new->_with_variable($@);
    my @places = Peregrine::Place->all($new->{options});
    $new->{places} = \@places if !$self->{places} || grep { $_ =~ $PLACES } keys %given;
    $new->_use_authority                if $new->{options}{acme};
    $new->_check_plain('redirect_http') if $new->{options}{redirect_http};
    return $new;
}

# Checks the options of certificates that an authority issues, and sets the options for their use.
sub _use_authority {
    my ($self) = @_;
    my $options = $self->{options} = { %{ $self->{options} } };
    require Peregrine::Server::Certificates;
    my $missing = Peregrine::Server::Certificates::missing();
    die "option 'acme' $missing\n" if defined $missing;
    die "option 'acme': the authority's terms have to be agreed to: see $options->{acme_directory}, and set"
        . " 'acme_agree'\n"
        if !$options->{acme_agree};
    $options->{acme_folder} =
        File::Spec->rel2abs($options->{acme_folder} // Peregrine::Server::Certificates::default_folder());
    # A program that takes over need not be able to read the file: the process that orders has read it.
    Peregrine::Server::Certificates::binding($options->{acme_eab})
        if defined $options->{acme_eab} && !Peregrine::Handover->from_environment;
    my $store = Peregrine::Acme::Store->new($options->{acme_folder});
    my $ssl   = $options->{ssl} || {};
    die "option 'acme': the certificates are in its own folder, not in cert_dir\n"
        if defined $ssl->{cert_dir};
    $options->{acme_challenges} //= $store->challenges;
    $options->{ssl} = { %$ssl, validation_dir => $store->validations };
    $self->{given}{ssl} = $options->{ssl} if !$self->{tls} || exists $self->{given}{ssl};
    return $self->_check_plain('acme');
}

# Dies if no listener, or every listener, is without TLS. Behind a proxy that ends TLS clients would be
# redirected in circles.
sub _check_plain {
    my ($self, $option) = @_;
    my $options = $self->{options};
    my @tcp     = grep { $_->{kind} ne 'unix' } $self->places;
    my @plain   = $self->_plain;
    die "option '$option': no listener has TLS; if a proxy in front ends TLS, $PROXY{$option}\n"
        if @plain == @tcp;
    die "option '$option': every listener has TLS: name one without, such as '0.0.0.0:80,plain'\n"
        if !@plain && $option ne 'acme';
    return;
}

# Places without TLS for clients of other machines.
sub _plain {
    my ($self) = @_;
    my $options = $self->{options};
    return
        grep { $_->{kind} ne 'unix' && ($options->{disable_tls} || !($_->{ssl} // $options->{ssl})) }
        $self->places;
}

# Types of challenges of an authority (RFC 8555, RFC 8737): by HTTP first, at a place without TLS.
sub challenges { return [ $_[0]->_plain ? 'http-01' : (), 'tls-alpn-01' ] }

sub _folders {
    my ($static) = @_;
    my @folders;
    return \@folders if eval { @folders = PAGI::Server::Folders::parse($static); 1 };
    die "option 'static': $@";
}

# The absolute path of a directory, as the application may change the working directory.
sub _directory {
    my ($option, $path) = @_;
    die "option '$option': there is no directory '$path'\n" if !-d $path;
    return File::Spec->rel2abs($path);
}

sub _file {
    my ($option, $path) = @_;
    return $path                                       if ref $path;
    die "option '$option': there is no file '$path'\n" if !-f $path;
    return File::Spec->rel2abs($path);
}

# The text of a problem; for the value of an environment variable it names the variable.
sub _with_variable {
    my ($self, $problem) = @_;
    return $problem
        if $problem !~ /option '(\w+)'/ || !defined $self->{variables}{$1};
    return $problem =~ s/option '(\w+)'/PAGI::Server::Options::variable($1) . " (option '$1')"/er;
}

sub load {
    my ($self, $is_running) = @_;
    my ($given, $options, $tls) = @{$self}{qw(given options tls)};
   # Modules that only some servers need. The application, which is loaded later, may go to another directory,
   # where relative folders of @INC lead to none of them.
    require Peregrine::Threads            if ($options->{engine} // '') eq 'thread';
    require Peregrine::Server::Supervisor if $options->{workers};
    require PAGI::Server::ErrorPage       if ($ENV{PAGI_ENV} // '') eq 'development';
    my $ssl = $options->{disable_tls} ? undef : $options->{ssl};
    if (exists $given->{ssl} || exists $given->{disable_tls}) {
        if ($is_running && $tls && $ssl) { $tls->reload($ssl); delete $given->{ssl} }
        else { $self->{tls} = $ssl && PAGI::Server::TLS->new($ssl, PAGI::Server::TLS->handed_over('')) }
    }
    $self->load_own($self->places);
    return $self;
}

sub load_own {
    my ($self, @places) = @_;
    return if $self->{options}{disable_tls};
    $_->{tls} ||= PAGI::Server::TLS->for_place($_, PAGI::Server::TLS->handed_over($_->{name}))
        for grep { ref $_->{ssl} } @places;
    return;
}

sub shared_by {
    my ($self, %share) = @_;
    return $self->with_all({ %{ $self->{options} }, %share });
}

# A copy of the configuration with a new set of all options.
sub with_all {
    my ($self, $options) = @_;
    return bless { %$self, options => $options, given => {} }, ref $self;
}

# ---- Questions ----------------------------------------------------------------------------------

sub options { return $_[0]{options} }
sub given   { return $_[0]{given} }
sub places  { return @{ $_[0]{places} || [] } }
sub tls     { return $_[0]{tls} }

sub names_place {
    my ($self) = @_;
    return scalar grep { $self->{named}{$_} } qw(host port socket listen);
}

sub changes_places {
    my ($self) = @_;
    return scalar grep { $_ =~ $PLACES } keys %{ $self->{given} };
}

sub tls_for {
    my ($self, $listener) = @_;
    my $place = $listener->{place};
    return               if $self->{options}{disable_tls};
    return $place->{tls} if $place->{tls};
    return $place->{ssl} // $listener->{type} eq 'tcp' ? $self->{tls} : undef;
}

# Listeners as they would be opened, without sockets.
sub planned {
    my ($self, $listeners) = @_;
    my @planned = $listeners->plan;
    $_->{tls} = $self->tls_for($_) for grep { !$_->{problem} } @planned;
    return @planned;
}

# Opens sockets at all places, unless they are open.
sub open_sockets {
    my ($self, $listeners, $log, $owner) = @_;
    return if $listeners->is_open;
    my $options = $self->{options};
    my @unused  = $listeners->open(
        backlog   => $options->{listener_backlog},
        reuseport => $options->{reuseport},
        owner     => $owner,
    );
    $log->warn("nothing is to listen on the inherited descriptor $_: it is closed") for @unused;
    return;
}

# Makes the loop. In a process that runs no application it stays out of EV, even if that is loaded.
sub make_loop {
    my ($self, $runs_no_application) = @_;
    my $type = $self->{options}{loop_type};
    my $loop = eval { Peregrine::Process->make_loop($type) };
    die PAGI::Server::Options::exception((defined $type ? "option 'loop_type': " : '') . $@ =~ s/\s+\z//r)
        if !$loop;
    $loop->stay_out_of_ev if $runs_no_application && $loop->can('stay_out_of_ev');
    return $loop;
}

sub make_log {
    my ($self, $name) = @_;
    my $log = PAGI::Server::Log->new(name => $name);
    $self->set_log($log);
    return $log;
}

sub set_log {
    my ($self, $log) = @_;
    my $options = $self->{options};
    return $log->set(
        level  => $options->{log_level},
        format => $options->{log_format},
        quiet  => $options->{quiet}
    );
}

# Seconds that a start may take: an interpreter that loads code cannot say that it lives, and a start that
# never ends would keep all others from being replaced. The warm-up has as much time as the startup before it.
sub start_timeout {
    my ($self) = @_;
    my ($startup, $heartbeat, $warm_up) =
        @{ $self->{options} }{qw(lifespan_startup_timeout heartbeat_timeout warm_up)};
    return $startup ? $startup * (defined $warm_up ? 2 : 1) + ($heartbeat || LOAD_S) : 0;
}

# The options that set deadlines of processes, for messages: Peregrine::Master/named.
sub deadline_names {
    my ($self) = @_;
    my ($heartbeat, $warm_up) = @{ $self->{options} }{qw(heartbeat_timeout warm_up)};
    return {
        start => (defined $warm_up ? '2 * ' : '')
            . 'lifespan_startup_timeout + '
            . ($heartbeat ? 'heartbeat_timeout' : LOAD_S . ' s'),
        silence => $heartbeat ? 'heartbeat_timeout' : undef,
        busy    => 'request_kill_timeout',
        stop    => 'shutdown_timeout',
        recycle => 'shutdown_timeout + recycle_timeout',
    };
}

# Seconds between signs of life of a process without an application. It never blocks, so it gives them even if
# heartbeat_timeout is 0 because applications may block.
sub engine_heartbeat {
    my ($self) = @_;
    return $self->{options}{heartbeat_timeout} || ENGINE_BEAT_S;
}

# The value of a limit for one process, less by chance, so that not all processes reach it at the same time.
sub by_chance {
    my ($self, $name) = @_;
    my $most = $self->{options}{$name};
    return $most > 100 ? int $most - $most * (0.01 + rand 0.09) : $most;
}

# Drops private keys, which processes that run applications must not have.
sub forget_keys {
    my ($self) = @_;
    $_->forget for grep { defined } map { delete $_->{tls} } $self, $self->places;
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Server::Configuration - the options of a server, checked

=head1 SYNOPSIS

    my $configuration = Peregrine::Server::Configuration->new(port => 0, app => $app)->load;
    my $changed       = $configuration->with(timeout => 10);

=head1 DESCRIPTION

Values of the options of L<PAGI::Server/CONSTRUCTOR>, wherever they come from, with the places and
certificates that they name. A configuration does not change: L</with> makes another one. A wrong value is an
exception that names the option, and no class: the caller says it in the name of its own.

=head1 METHODS

=head2 new, from_environment

    my $configuration = Peregrine::Server::Configuration->new(%given);
    my $configuration = Peregrine::Server::Configuration->from_environment('psgi', %given);

The second one has the defaults of L<PAGI::Server::Options/defaults_of>, and the values of environment
variables where nothing else is given.

=head2 of

    my $configuration = Peregrine::Server::Configuration->of(\%options);

These values, which were checked before.

=head2 with, shared_by, with_all

    my $changed = $configuration->with(timeout => 10);
    my $part    = $configuration->shared_by(memory_max => 64 << 20);

Another configuration, in which these options have other values. C<with> checks them; C<shared_by> does not.

    my $other = $configuration->with_all(\%options);

Likewise, with all options of a hash, which is not copied.

=head2 load

    $configuration->load($is_running);

Reads the certificates that have changed. A running server that speaks TLS already goes on with the new ones.

=head2 load_own

    $configuration->load_own(@places);

Reads certificates that only these places have.

=head2 options, given, places, tls

The values of all options, those that the last change has given, the L<Peregrine::Place>s, and the
L<PAGI::Server::TLS> of places without certificates of their own.

=head2 challenges

The types of the challenges with which an authority may ask for the names of C<acme>, as a list reference.

=head2 names_place, changes_places

Whether somebody has said where to listen, and whether the last change did.

=head2 tls_for, planned

    my $tls     = $configuration->tls_for($listener);
    my @planned = $configuration->planned($listeners);

The TLS configuration of a listener, if it speaks TLS; and the listeners as they would be,
without sockets.

=head2 open_sockets

    $configuration->open_sockets($listeners, $log, { uid => $uid, gid => $gid });

=head2 make_loop

    my $loop = $configuration->make_loop($runs_no_application);

=head2 make_log, set_log

    my $log = $configuration->make_log('PAGI');
    $configuration->set_log($log);

=head2 start_timeout, engine_heartbeat

Seconds that an interpreter has for its start (0: no limit), and within which a process without an
application shows that it lives.

=head2 deadline_names

    my $names = $configuration->deadline_names;    # { start => 'lifespan_startup_timeout + ...', ... }

The options by which users set those and other deadlines, see L<Peregrine::Master/named>.

=head2 by_chance

    my $requests = $configuration->by_chance('max_requests');

That limit, or up to a tenth less, so that processes do not reach it at the same time.

=head2 forget_keys

    $configuration->forget_keys;

Wipes private keys and those of tickets from this process.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
