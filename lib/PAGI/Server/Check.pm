package PAGI::Server::Check;

use strict;
use warnings;

our $VERSION = '0.003000';

use PAGI::Server::AccessLog;
use PAGI::Server::Banner;
use PAGI::Server::Options;
use PAGI::Server::Options::Type;
use Peregrine::File;

sub new {
    my ($class, $server, $options) = @_;
    my @planned = $server->can('planned_listeners') ? $server->planned_listeners : ();
    my @status  = $server->can('planned_status')    ? $server->planned_status    : ();
    return bless { server => $server, options => $options, planned => \@planned, status => \@status }, $class;
}

sub problems {
    my ($self)   = @_;
    my @problems = map { $self->_own($_) } qw(own_loop checked_placement);
    push @problems, map { $self->_place($_) } grep { $_->{problem} } @{ $self->{planned} };
    push @problems, map { "option 'status': " . _in_words($_->{problem}{message}) }
        grep { $_->{problem} } @{ $self->{status} };
    return (@problems, $self->_met, _files($self->{options}));
}

# The problem with which a check of the server dies, in words.
sub _own {
    my ($self, $method) = @_;
    my $server = $self->{server};
    return if !$server->can($method) || eval { $server->$method };
    return _in_words(PAGI::Server::Options::problem_in($@) // $@);
}

sub _place {
    my ($self, $planned) = @_;
    return "option '" . $self->_option . "': " . _in_words($planned->{problem}{message});
}

# The option that says where to listen.
sub _option {
    my ($self)   = @_;
    my ($option) = grep { defined $self->{options}{$_} } qw(listen socket);
    return $option // 'host';
}

# Places that an earlier place of the same server would have taken. With `reuseport` listeners share an
# address, but not a file.
sub _met {
    my ($self) = @_;
    my (@before, @problems);
    my @places = map { [ $self->_option, $_, defined $_->{path} || !$self->{options}{reuseport} ] }
        @{ $self->{planned} };
    for my $about (@places, map { [ 'status', $_, 1 ] } @{ $self->{status} }) {
        my ($option, $place, $alone) = @$about;
        push @problems,
              "option '$option': Cannot listen on "
            . $place->url('http')
            . ': another place of this server is there'
            if $alone && grep { $place->meets($_) } @before;
        push @before, $place;
    }
    return @problems;
}

sub _files {
    my ($options) = @_;
    my %problem = (access_log => scalar PAGI::Server::AccessLog::problem($options->{access_log}));
    $problem{$_} = Peregrine::File::problem($options->{$_})
        for grep { defined $options->{$_} } qw(error_log pid);
    return map { "option '$_': $problem{$_}" } grep { defined $problem{$_} } sort keys %problem;
}

sub _in_words {
    my ($error) = @_;
    $error =~ s/\s*(?: at \S+ line [0-9]+\.?)?\s*\z//;
    return $error;
}

# Lines of a configuration file with the options that would be in force, and facts behind them.
sub lines {
    my ($self) = @_;
    my $options = $self->{options};
    my @lines;
    for my $option (PAGI::Server::Options::all()) {
        my $name = $option->{name};
        next if !exists $options->{$name} || $name =~ /\A(?:config|check|env)\z/;
        next if !defined $options->{$name} && $name ne 'access_log';
        my @values = $option->{many} ? @{ $options->{$name} } : $options->{$name};
        push @lines, map { "$name = " . _shown($option, $_) } @values;
    }
    return (@lines, map { "# $_" } $self->facts);
}

sub _shown {
    my ($option, $given) = @_;
    return 'off' if !defined $given;
    my $value = PAGI::Server::Options::Type::shown($option, $given);
    return $value if $value !~ /[#"'\n]|\A\s|\s\z/;
    return "'" . $value =~ s/'/\\'/gr . "'";
}

sub facts {
    my ($self) = @_;
    my @facts =
        map { 'listens on ' . PAGI::Server::Banner->place($_) } grep { !$_->{problem} } @{ $self->{planned} };
    push @facts,
        map { 'status at ' . PAGI::Server::Banner->place($_) } grep { !$_->{problem} } @{ $self->{status} };
    push @facts, $self->_certificates;
    push @facts, 'connections: at most ' . $self->{server}->effective_max_connections
        if $self->{server}->can('effective_max_connections');
    push @facts, 'memory: at most ' . PAGI::Server::Banner::memory($self->{server}->effective_memory_max)
        if $self->{server}->can('effective_memory_max') && $self->{server}->effective_memory_max;
    return @facts;
}

# The certificates that a server would order.
sub _certificates {
    my ($self) = @_;
    my $server = $self->{server};
    return if !$server->can('configuration') || !$server->options->{acme};
    return Peregrine::Server::Certificates::plan($server->options, $server->configuration->challenges);
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Check - what a start would trip over

=head1 SYNOPSIS

    my $check = PAGI::Server::Check->new($server, \%options);
    say for $check->facts, $check->problems;

=head1 DESCRIPTION

Looks, for C<pagi-server --check>, at what the options of a server name: the event loop, hosts, inherited
sockets, the folders of log files, of the pid file and of Unix sockets. Nothing is bound, created or opened
for writing, so that a server which is running with the same options is left in peace; a port that another
program has taken is found by a start only.

=head1 METHODS

=head2 new

    my $check = PAGI::Server::Check->new($server, \%options);

Takes a server that is not started, and the options of the command.

=head2 problems

    my @problems = $check->problems;

Sentences that name the option and its value; none if all is well.

=head2 lines

    say for $check->lines;    # port = 5000

The options that would be in force, as lines of a configuration file, and L</facts> as its comments.

=head2 facts

    my @facts = $check->facts;

Sentences about where the server would listen, with TLS or without, which certificates it would order, and how
many connections it would take.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
