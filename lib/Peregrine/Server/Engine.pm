package Peregrine::Server::Engine;

use strict;
use warnings;

our $VERSION = '0.003000';

use File::Spec ();
use PAGI::Server::AccessLog;
use PAGI::Server::Folders;
use PAGI::Server::Options;
use Peregrine;
use Peregrine::Place;
use Scalar::Util qw(weaken);

# Seconds that an interpreter waits for an engine that does not exist yet, or has ended.
use constant JOIN_S => 30;
# The path of challenges by HTTP (RFC 8555 section 8.3), and the port of https.
use constant { CHALLENGES => '/.well-known/acme-challenge', HTTPS => 443 };

# Objects are not copied into clones of the interpreter, see Peregrine::Threads.
sub CLONE_SKIP { return 1 }

sub _new {
    my ($class, $configuration, $worker) = @_;
    return bless { configuration => $configuration, worker => $worker }, $class;
}

sub make {
    my ($class, $configuration, %args) = @_;
    my $options = $configuration->options;
    my $self    = $class->_with_limits($configuration, $args{limits});
    $self->{worker}->use_thread >= 0 || die "cannot make a thread for the engine: $!\n"
        if $options->{engine} eq 'thread';
    $self->{header_count} = $options->{max_header_count};
    $self->_start_access_log($args{owner});
    return $self;
}

# An engine that only this process uses, beside the one for clients.
sub private {
    my ($class, $configuration) = @_;
    return $class->_with_limits($configuration,
        PAGI::Server::Options::engine_limits($configuration->options));
}

sub _with_limits {
    my ($class, $configuration, $limits) = @_;
    my $worker = Peregrine::Worker->new($limits);
    $worker->body_folder($configuration->options->{body_folder} // File::Spec->tmpdir);
    return $class->_new($configuration, $worker);
}

# Joins an engine elsewhere, which has all connections. Meanwhile the master's only message can be to stop.
sub join {
    my ($class, $configuration, %args) = @_;
    for (1 .. JOIN_S) {
        my $worker = eval { Peregrine::Worker->join(fileno $args{socket}, 1000, $args{is_sync}) };
        return $class->_new($configuration, $worker) if $worker;
        next if $@ =~ /\btimed out\b/ && !$args{link}->has_news;
        my $reason = $@ =~ s/\APeregrine::Worker: //r =~ s/ at \S+ line [0-9]+\.\n\z//r;
        die $reason =~ /Connection refused\z/ ? "$reason (the engine's log says why)\n" : "$reason\n";
    }
    die "no engine has come within ${\JOIN_S} seconds\n";
}

sub worker      { return $_[0]{worker} }
sub line_handle { return $_[0]{line_handle} }

# Starts the access log. Lines on their way to a handle without a descriptor get there even if the log goes
# elsewhere.
sub _start_access_log {
    my ($self, $owner) = @_;
    my $options = $self->{configuration}->options;
    my $handle  = PAGI::Server::AccessLog->start(
        $self->{worker},
        target => $options->{access_log},
        format => $options->{access_log_format},
        owner  => $owner,
    );
    $self->{line_handle} = $handle if defined $handle;
    return;
}

# Sets the engine up before the first connection, because a peer's trust is decided when it connects.
sub prepare {
    my ($self, @listeners)       = @_;
    my ($worker, $configuration) = @{$self}{qw(worker configuration)};
    my $options = $configuration->options;
    my $trusted = Peregrine::Place::networks($options->{trusted_proxies});
    $worker->trusted_proxies($trusted, $options->{forwarded_header} eq 'forwarded' ? 1 : 0) if $trusted;
    for my $listener (@listeners) {
        my $proxies = $listener->{place}{proxies};
        $worker->proxies($listener->{number}, $proxies) if $proxies;
        my $tls = $listener->{tls} = $configuration->tls_for($listener) or next;
        $worker->secure($listener->{number}, $tls->engine);
    }
    $worker->health_path($options->{health_path}) if defined $options->{health_path};
    # The order matters: challenges are answered on port 80, folders and the application only behind the
    # redirect.
    $worker->folder({ path => CHALLENGES, folder => $options->{acme_challenges} })
        if defined $options->{acme_challenges};
    my ($secure) = map { $_->{port} // () } grep { $_->{tls} } @listeners;
    $worker->redirect_to_https($secure // HTTPS) if $options->{redirect_http};
    PAGI::Server::Folders::serve($worker, $options->{static});
    return;
}

# ---- A change of options ------------------------------------------------------------------------

# The reason why a running engine cannot take over new values: it cannot have more header fields than it was
# made for.
sub problem_with {
    my ($self, $given) = @_;
    my $problem = PAGI::Server::AccessLog::problem($given->{access_log});
    return "option 'access_log': $problem" if defined $problem;
    my ($name, $made) = ('max_header_count', $self->{header_count});
    return if !defined $made || !defined $given->{$name} || $given->{$name} <= $made;
    return "option '$name' cannot be raised above $made while the server runs, not to $given->{$name}";
}

# Returns the options that wait for the next start.
sub configure {
    my ($self, $configuration) = @_;
    my $given = $configuration->given;
    $self->{configuration} = $configuration;
    $self->_start_access_log if grep { /\Aaccess_log/ } keys %$given;
    return grep { !PAGI::Server::Options::find($_)->{live} || !$self->_takes_over($_, $given) }
        sort keys %$given;
}

# Sets a limit. False: the engine has memory for the old limit only.
sub _takes_over {
    my ($self, $name, $given) = @_;
    my $limits = PAGI::Server::Options::engine_limits({ $name => $given->{$name} });
    return !grep { $self->{worker}->set($_ => $limits->{$_}) < 0 } keys %$limits;
}

# ---- The loop -----------------------------------------------------------------------------------

sub watch {
    my ($self, $loop) = @_;
    my $worker = $self->{worker};
    $self->{loop} = $loop;
    weaken($self->{loop});
    return if $loop->can('watch_engine') && $loop->watch_engine($worker);
    open my $handle, '<&', $worker->fd or die "Cannot watch the engine: $!\n";
    $self->{handle} = $handle;
    Peregrine::hide_from_forks(fileno $handle, 1);
    $loop->watch_io(handle => $handle, on_read_ready => $worker->dispatcher);
    return;
}

sub unwatch {
    my ($self) = @_;
    my ($worker, $loop) = @{$self}{qw(worker loop)};
    $loop->unwatch_engine($worker) if $loop && $loop->can('unwatch_engine');
    my $handle = delete $self->{handle} or return;
    $loop->unwatch_io(handle => $handle, on_read_ready => 1) if $loop;
    Peregrine::hide_from_forks(fileno $handle, 0);
    return;
}

sub close {
    my ($self) = @_;
    $self->unwatch;
    $self->{worker}->close;
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Server::Engine - the engine's worker of a process, or of a clone

=head1 DESCRIPTION

Makes a worker of the engine (L<Peregrine>), or joins the one of another process, tells it
the options, and has a loop wait for it.

=head1 METHODS

=head2 make

    my $engine = Peregrine::Server::Engine->make($configuration, limits => \%limits, owner => $uid);

=head2 join

    my $engine = Peregrine::Server::Engine->join($configuration, socket => $socket, link => $link);

=head2 private

    my $engine = Peregrine::Server::Engine->private($configuration);

Another engine in the same process, with the same limits, for requests of the server's own.

=head2 worker, line_handle

The worker, and the handle without a descriptor to which lines of the access log go.

=head2 prepare

    $engine->prepare(@listeners);

Tells the worker what it has to know before the first connection comes.

=head2 problem_with, configure

    my $problem = $engine->problem_with(\%given);
    my @later   = $engine->configure($configuration);

Why the worker cannot take over options; takes them over, and returns those that wait for the next start.

=head2 watch, unwatch, close

    $engine->watch($loop);

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
