package PAGI::Server::Reload;

use strict;
use warnings;

our $VERSION = '0.003000';

use File::Spec ();
use Future;
use PAGI::Server::StandIn;
use Peregrine::FileWatch;
use Scalar::Util qw(weaken);

# Seconds that a worker with old code has for what it is at.
use constant LEAVE_S => 5;
# Seconds between two reports of a worker of what it has loaded, and bytes of one message about that.
use constant { REPORT_S => 1, MESSAGE_MAX => 4000 };
# Changed files that a message names.
use constant NAMED_MAX => 3;

# ---- In the master ------------------------------------------------------------------------------

sub reload_on_change {
    my ($self, %args) = @_;
    $self->{reload} = {%args};
    return $self;
}

# Options for the master with --reload.
sub _reloading {
    my ($self) = @_;
    my $reload = $self->{reload} or return;
    weaken(my $weak = $self);
    # Before the first worker loads anything: what is written from now on is newer.
    $reload->{watch} = Peregrine::FileWatch->new(
        loop      => $self->loop,
        folders   => $reload->{folders},
        sources   => $reload->{sources},
        ignore    => $reload->{ignore},
        on_change => sub { $weak && $weak->_files_changed(@_) },
        on_excess => sub {
            my ($max) = @_;
            $weak->_tell(warn => "only $max files are watched: name other folders by --reload-dir") if $weak;
        },
    );
    $self->_tell(info => 'the application is loaded again when files change in: '
            . join(', ', map { _shown($_) } @{ $reload->{folders} }, @{ $reload->{sources} || [] }));
    return (
        stands_in => 1,
        hear      => { loaded => sub { $weak && $weak->{reload}{watch}->add(split /\n/, $_[1]) } },
    );
}

sub _files_changed {
    my ($self, @paths) = @_;
    my @names = map { _shown($_) } @paths;
    my $more  = @names - NAMED_MAX;
    splice @names, NAMED_MAX if $more > 0;
    my %own = map  { $_ => 1 } _loaded_files();
    my @own = grep { $own{$_} } @paths;
    $self->_tell(warn => "the server has loaded @own itself: for that, start it again") if @own;
    $self->_reload('changed: ' . join(', ', @names) . ($more > 0 ? " and $more more" : ''));
    return;
}

sub _shown {
    my ($path) = @_;
    my $relative = File::Spec->abs2rel($path);
    return $relative =~ m{\A\.\./} ? $path : $relative;
}

sub _reload {
    my ($self, $why) = @_;
    $self->_tell(info => "$why: the application is loaded again");
    $self->{master}->renew;
    return Future->done;
}

sub _reload_timeout { return LEAVE_S }

sub _stop_reloading {
    my ($self) = @_;
    my $watch = delete(($self->{reload} || {})->{watch}) or return;
    $watch->stop;
    return;
}

# ---- In a worker --------------------------------------------------------------------------------

# Loads the application for a worker's server, or a page in its place.
sub _load_again {
    my ($self, $server, $record) = @_;
    my ($options, $link) = ($server->{options}, $record->{link});
    if (defined $record->{failure}) {
        $options->{lifespan_mode} = 'off';
        $options->{app}           = PAGI::Server::StandIn->app($record->{failure});
        return;
    }
    my $app   = eval { $self->_load_in_worker($record->{number}) };
    my $error = $@;
    $self->_report_loaded($link);
    die $error if !$app;
    $options->{app} = $app;
    $self->_report_later($server->loop, $link);
    return;
}

sub _report_later {
    my ($self, $loop, $link) = @_;
    weaken(my $weak = $self);
    $loop->watch_time(
        after => REPORT_S,
        code  => sub {
            return if !$weak;
            $weak->_report_loaded($link);
            $weak->_report_later($loop, $link);
        }
    );
    return;
}

# A message for which there is no room is sent the next time.
sub _report_loaded {
    my ($self, $link) = @_;
    my $told  = $self->{reload}{told} ||= {};
    my @files = grep { !$told->{$_} && !/\n/ } _loaded_files();
    while (@files) {
        my $text = shift @files;
        $text .= "\n" . shift @files while @files && length("$text$files[0]") < MESSAGE_MAX;
        last if !$link->say(loaded => $text);
        $told->{$_} = 1 for split /\n/, $text;
    }
    return;
}

# Perl does not tell the path of a file that could not be compiled.
sub _loaded_files {
    my @files;
    for my $name (keys %INC) {
        my $path = $INC{$name};
        ($path) = grep { -f } map { "$_/$name" } grep { !ref } @INC if !defined $path;
        push @files, File::Spec->rel2abs($path) if defined $path && !ref $path && -f $path;
    }
    return @files;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Reload - a PAGI::Server that loads its application again when files change

=head1 DESCRIPTION

A base class of L<PAGI::Server::Base>: what its master does for C<pagi-server --reload>. It watches files
(L<Peregrine::FileWatch>): those below some folders, and those that workers say they have loaded. When they
change it lets all workers stop, and starts others (L<Peregrine::Master/renew>); connections wait in the
kernel meanwhile. In place of a worker that cannot load the application, or start it, there is one that shows
why (L<PAGI::Server::StandIn>), until files change again.

=head1 METHODS

=head2 reload_on_change

    $server->load_app_in_workers(sub { ... });
    $server->reload_on_change(folders => ['lib'], sources => ['.'], ignore => ['lib/trace']);

Before the start of a server that has workers and loads the application there. C<sources> and C<ignore> as in
L<Peregrine::FileWatch/new>.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
