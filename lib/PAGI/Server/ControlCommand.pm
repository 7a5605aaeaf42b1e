package PAGI::Server::ControlCommand;

use strict;
use warnings;

our $VERSION = '0.003000';

use PAGI::Server::CommandLine;
use PAGI::Server::Subcommand;
use Time::HiRes qw(CLOCK_MONOTONIC clock_gettime);

# The most words behind a command, process ids not counted.
my %COMMANDS = (reload => 1, status => 0);

# Seconds within which a server hears a command.
use constant HEARD_S => 10;

# Whether words of a command line mean a command for a running server, and no application of that name.
sub is_meant {
    my (@words) = @_;
    return @words && exists $COMMANDS{ $words[0] } && !-f $words[0] ? 1 : 0;
}

# Runs the command; returns its exit status, or nothing if the words ask for help.
sub command {
    my ($class, $command, @words) = @_;
    my ($given, @rest) = PAGI::Server::CommandLine->parse(@words);
    return if $given->{help};
    PAGI::Server::Subcommand::refuse_others($command, 'pid', $given);
    my @pids  = grep { /\A[1-9][0-9]*\z/ } @rest;
    my @names = grep { !/\A[1-9][0-9]*\z/ } @rest;
    die \"$command: unexpected argument '$names[-1]'" if @names > $COMMANDS{$command};
    die \"$command needs the id of one process, or --config or --pid with a file of it"
        if @pids + (grep { exists $given->{$_} } qw(config pid)) != 1;
    require Peregrine::Server::Control;
    my $link = Peregrine::Server::Control->connect($pids[0] // _pid_of($command, $given));
    $link->say($command, @names);
    return _answer($link);
}

# The number of the process that the pid file names.
sub _pid_of {
    my ($command, $given) = @_;
    my $path = PAGI::Server::Subcommand::path($given, 'pid')
        // die \"$command: $given->{config} names no pid file";
    open my $in, '<', $path or die "no server has the pid file $path: $!\n";
    my ($pid) = (readline($in) // '') =~ /\A([1-9][0-9]*)\n\z/;
    return $pid // die "the pid file $path has no process id\n";
}

# Prints the server's answer. Once the server has heard the command, waits for its end without a limit.
sub _answer {
    my ($link) = @_;
    my $until = clock_gettime(CLOCK_MONOTONIC) + HEARD_S;
    while (1) {
        for my $line ($link->read_lines) {
            my ($word, $text) = @$line;
            undef $until;
            print "$text\n" if $word ne 'failed' && length($text // '');
            return 0        if $word eq 'done';
            die "$text\n"   if $word eq 'failed';
        }
        die "the server has ended before it answered\n" if $link->has_ended;
        my $left = defined $until ? $until - clock_gettime(CLOCK_MONOTONIC) : undef;
        die "the server has not heard the command within ${\HEARD_S} s: it is busy or stopped\n"
            if defined $left && $left <= 0;
        $link->wait($left);
    }
    return 1;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::ControlCommand - peregrine reload, peregrine status

=head1 SYNOPSIS

    peregrine reload /shop 4711
    peregrine reload --config /etc/app.conf
    peregrine status --pid /run/app.pid

=head1 DESCRIPTION

Commands for a server with workers that runs on this machine. Its process is named by its id, by its pid file,
or by the configuration file that names the pid file. Root may give them, and the user of the server's master.

C<reload> does what the signal HUP does, and waits until it is done: the workers are replaced by others with
new code. With the path of a mount that has workers of its own (below a host if it names one:
C<example.org/shop>) those alone are replaced. If new workers cannot start, or a canary is taken back, the old
ones go on, and the command says why; its exit status is 1 then.

If a server has not heard a command within 10 seconds, because it is stopped (SIGSTOP), the command fails.

C<status> prints a line for the workers of each mount, and one for all others.

=head1 FUNCTIONS

=head2 is_meant

Whether words of a command line mean one of these commands, and no file of that name.

=head1 METHODS

=head2 command

    exit PAGI::Server::ControlCommand->command('reload', @words);

The exit status; nothing if the words ask for help. Dies with a reference to a sentence if the words are
wrong, with a sentence if it fails.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
