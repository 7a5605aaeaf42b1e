package PAGI::Server::CertificateCommand;

use strict;
use warnings;

our $VERSION = '0.003000';

use PAGI::Server::CommandLine;
use PAGI::Server::Subcommand;
use POSIX       qw(strftime);
use Time::HiRes qw(sleep);

# Seconds between two looks whether a server has made the renewal.
use constant ASKS_S => 0.25;

my %COMMANDS = (certificates => \&_list, renew => \&_renew);

# Whether words of a command line mean certificates, and no application of that name.
sub is_meant {
    my (@words) = @_;
    return @words && $COMMANDS{ $words[0] } && !-f $words[0] ? 1 : 0;
}

# Runs the command; returns its exit status.
sub command {
    my ($class, $command, @words) = @_;
    my ($given, @names) = PAGI::Server::CommandLine->parse(@words);
    PAGI::Server::Subcommand::refuse_others($command, 'acme_folder', $given);
    require Peregrine::Server::Certificates;
    my $missing = Peregrine::Server::Certificates::missing();
    die \"$command $missing" if defined $missing;
    my $self = bless { store => Peregrine::Acme::Store->new(_folder($given)) }, $class;
    return $COMMANDS{$command}->($self, map { lc } @names);
}

sub _folder {
    my ($given) = @_;
    return PAGI::Server::Subcommand::path($given, 'acme_folder',
        \&Peregrine::Server::Certificates::default_folder);
}

# ---- The folder's certificates --------------------------------------------------------------------

# All certificates, or those for these names; dies if there is none for a name.
sub _chosen {
    my ($self, @names) = @_;
    my $store = $self->{store};
    my @all   = map { $self->_about($_) } $store->names;
    return @all if !@names;
    my @chosen;
    for my $name (@names) {
        my ($about) = grep {
            grep { $_ eq $name }
                @{ $_->{names} }
        } @all;
        die "no server orders a certificate for $name in ${\$store->folder}\n" if !$about;
        push @chosen, $about if !grep { $_ == $about } @chosen;
    }
    return @chosen;
}

sub _about {
    my ($self, $name) = @_;
    my $pem   = $self->{store}->certificate($name);
    my $facts = defined $pem ? Peregrine::Acme::Certificate::facts($pem) : undef;
    my $state = $self->{store}->state($name);
    my $names = [ $name, $facts ? grep { $_ ne $name } @{ $facts->{names} } : () ];
    return { name => $name, names => $names, certificate => $facts, state => $state };
}

sub _list {
    my ($self, @names) = @_;
    my @all = $self->_chosen(@names);
    return _print("There is no certificate in ${\$self->{store}->folder}.\n") if !@all;
    return _print(join "\n", map { $self->_text($_) } @all);
}

sub _print {
    my ($text) = @_;
    print $text;
    return 0;
}

sub _text {
    my ($self, $about)        = @_;
    my ($certificate, $state) = @{$about}{qw(certificate state)};
    my $due  = Peregrine::Acme::Keeper::next_attempt(@{$about}{qw(names certificate state)});
    my @rows = (
        [ issuer  => $certificate ? $certificate->{issuer}                      : '-' ],
        [ expires => $certificate ? _when($certificate->{to}, 'it has expired') : 'there is none yet' ],
        [ next    => $self->{store}->is_served ? _when($due, 'now') : _when($due, 'now') . ', by no server' ],
    );
    push @rows, [ problem => _problem($state) ] if $state->{failures};
    return join '', "@{ $about->{names} }\n", map { sprintf "    %-8s %s\n", @$_ } @rows;
}

sub _problem {
    my ($state) = @_;
    my $attempts = $state->{failures} == 1 ? '1 attempt has' : "$state->{failures} attempts have";
    return "$attempts failed: $state->{error}";
}

sub _when {
    my ($time, $passed) = @_;
    my $seconds = int $time - time;
    return $passed if $time == 0;
    my $day = strftime('%Y-%m-%d %H:%M:%S UTC', gmtime $time);
    return "$day, $passed" if $seconds <= 0;
    my ($unit, $name) =
        @{     (grep { $seconds >= 2 * $_->[0] } [ 86400, 'days' ], [ 3600, 'hours' ], [ 60, 'minutes' ])[0]
            || [ 1, 'seconds' ] };
    return "$day, in " . int($seconds / $unit) . " $name";
}

# ---- Renewal ------------------------------------------------------------------------------------

sub _renew {
    my ($self, @names) = @_;
    my $store = $self->{store};
    my @asked = $self->_chosen(@names);
    die "there is no certificate in ${\$store->folder}\n" if !@asked;
    $store->ask($_->{name}) for @asked;
    for my $about (@asked) {
        while ($store->is_asked($about->{name})) {
            die "no server has ${\$store->folder}: the next one that is started renews\n"
                if !$store->is_served;
            sleep ASKS_S;
        }
    }
    my @now = map { $self->_about($_->{name}) } @asked;
    _print(join "\n", map { $self->_text($_) } @now);
    return grep({ $_->{state}{failures} } @now) ? 1 : 0;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::CertificateCommand - certificates that servers order, for their operator

=head1 SYNOPSIS

    peregrine certificates [NAME...] [--acme-folder FOLDER | --config FILE]
    peregrine renew [NAME...] [--acme-folder FOLDER | --config FILE]

=head1 DESCRIPTION

The commands read the folder that the option C<acme_folder> of L<PAGI::Server> names, so they work for the
user of the server and for root, also while no server runs.

C<certificates> lists what the folder has: the names of each certificate, its issuer, when it expires, when
the next attempt is to be, and why the last ones have failed.

C<renew> asks the servers that have the folder for a new certificate for each of these names, or for all, at
once: also where the old one is good for months, or where a server waits after a failure. It waits for the
result; the exit status is 1 if a certificate has not come. Authorities give the same certificate a few times
a week only.

=head1 FUNCTIONS

=head2 is_meant

Whether words of a command line mean one of these commands, and no file of that name.

=head1 METHODS

=head2 command

    exit PAGI::Server::CertificateCommand->command('certificates', @words);

Dies with a sentence if the folder cannot be used, and with a reference to one if the words are wrong.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
