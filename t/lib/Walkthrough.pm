package Walkthrough;

# Follows a manual step by step, in a folder of its own. Of the blocks of code in a POD file:
#
#   - one whose first line is the name of a file in a comment (`# chat.pl`, `<!-- page.html -->`) becomes that
#     file;
#   - one that begins with `$ ` has commands and their output: each command is run by a shell, and has to end
#     well and to print the lines below it. `...` stands for any part of a line, or alone for any lines;
#   - other blocks are left alone: their number has to be given (`shows`).
#
# A command that serves is started in the background, like a user's in another terminal. It runs until the
# same program is started again, or to the end. Each port of a manual is replaced by a free one.

use strict;
use warnings;

use Carp             qw(croak);
use Cwd              qw(getcwd);
use File::Spec       ();
use File::Temp       ();
use IO::Socket::INET ();
use POSIX            ();
use Test::More;
use TestServer;
use TestTools qw(content ended for_this_perl free_port patience wait_for);

my $PORTS  = qr/\b(?:500[0-2]|808[01]|8443|9100)\b/;
my $SERVES = qr/\A(?:pagi-server|start_server|nginx|haproxy)\b(?!.*--(?:check|version|help)\b)/;

# Reads a manual. Options: `shows`, the number of blocks that are neither files nor commands; `only`, the
# heading (=head1) of the one part to take.
sub new {
    my ($class, $manual, %options) = @_;
    my $text = content($manual);
    ($text) = $text =~ /^=head1 \Q$options{only}\E\n(.*?)(?=^=head1 |\z)/ms if $options{only};
    croak "$manual has no part $options{only}" if !defined $text;
    my $folder = File::Temp->newdir;
    my $self   = bless { manual => $manual, folder => $folder, port => {}, steps => [], shown => 0 }, $class;
    while ($text =~ /((?:^    .*\n|^\n(?=(?:\n)*    ))+)/mg) {
        $self->_add($_) for split /\n\n(?=\$ )/, $1 =~ s/\A\n+//r =~ s/^    //mgr;
    }
    is($self->{shown}, $options{shows} // 0, "$manual: blocks that are neither files nor commands");
    $self->_prepare;
    return $self;
}

sub _add {
    my ($self, $block) = @_;
    if ($block =~ m{\A(?:#|<!--|//) ([\w.-]+\.\w+|Containerfile)(?: -->)?\n}) {
        push @{ $self->{steps} }, { file => $1, text => "$block\n" };
    }
    elsif ($block =~ /\A\$ /) { push @{ $self->{steps} }, _commands($block) }
    else                      { $self->{shown}++ }
    return;
}

sub _commands {
    my ($block) = @_;
    my @commands;
    for my $line (split /\n/, $block) {
        if    ($line =~ /\A\$ (.*)\z/) { push @commands, { command => $1 } }
        elsif (@commands && $commands[-1]{command} =~ s/\\\z//) {
            $commands[-1]{command} .= $line =~ s/\A\s+//r;
        }
        else { push @{ $commands[-1]{prints} }, $line }
    }
    return @commands;
}

# Makes a folder in which commands of this clone are found by name, as if they were installed.
sub _prepare {
    my ($self) = @_;
    my $home = getcwd();
    mkdir "$self->{folder}/.bin" or die "mkdir: $!";
    my @include = map { '-I' . File::Spec->rel2abs($_) } @INC;
    $self->{bin} = "$self->{folder}/.bin";
    $self->tool('pagi-server', "exec $^X @include $home/bin/pagi-server \"\$@\"");
    $self->{env} = { PATH => "$self->{bin}:$ENV{PATH}", PERL5LIB => join(':', map { s/\A-I//r } @include) };
    return;
}

# Adds a command that is a line of shell.
sub tool {
    my ($self, $name, $line) = @_;
    my $file = "$self->{bin}/$name";
    open my $out, '>', $file or die "$file: $!";
    print {$out} "#!/bin/sh\n$line\n";
    close $out or die "$file: $!";
    chmod 0755, $file;
    return $self;
}

sub folder { return "$_[0]{folder}" }

# The test's port in place of a port that the manual names.
sub port {
    my ($self, $named) = @_;
    return $self->{port}{$named} //= free_port();
}

sub _ported {
    my ($self, $text) = @_;
    return $text =~ s/($PORTS)/$self->port($1)/ger;
}

# Takes all steps. `after`: pairs of a pattern and a function, which is called with this object after each
# command that matches; each pattern has to match a command.
sub run {
    my ($self, @after) = @_;
    local @ENV{ keys %{ $self->{env} } } = values %{ $self->{env} };
    delete local @ENV{qw(PAGI_ENV PLACK_ENV)};
    my $home = getcwd();
    chdir $self->{folder} or die "chdir: $!";
    my $ok = eval {
        for my $step (@{ $self->{steps} }) {
            $self->_write($step)   if $step->{file};
            $self->_command($step) if $step->{command};
            for my $i (grep { !($_ % 2) } 0 .. $#after) {
                next if !$step->{command} || $step->{command} !~ $after[$i];
                $after[ $i + 1 ]->($self);
                $self->{done}{$i}++;
            }
        }
        $self->_stop;
        1;
    };
    my $problem = $@;
    chdir $home or die "chdir: $!";
    die $problem if !$ok;
    ok($self->{done}{$_}, "$self->{manual} has a command like $after[$_]")
        for grep { !($_ % 2) } 0 .. $#after;
    return $self;
}

sub _write {
    my ($self, $step) = @_;
    open my $out, '>', $step->{file} or die "$step->{file}: $!";
    print {$out} for_this_perl($self->_ported($step->{text}));
    close $out or die "$step->{file}: $!";
    return;
}

# Ends servers by the names of their programs; without names all of them, the latest first.
sub _stop {
    my ($self, @programs) = @_;
    @programs = reverse @{ $self->{order} || [] } if !@programs;
    for my $program (@programs) {
        my $server = delete $self->{servers}{$program} or next;
        my $status = $server->signal('TERM')->wait(patience(60)) // 'not';
        # haproxy ends so without a master
        $status = 0 if $program eq 'haproxy' && $status eq POSIX::SIGTERM();
        is($status, 0, "... $program ends well");
        $self->{order} = [ grep { $_ ne $program } @{ $self->{order} } ];
        delete $self->{server} if $server == ($self->{server} // 0);
    }
    return;
}

sub log { return $_[0]{server}->log }

sub pid { return $_[0]{server}->pid }

# The command of the server that was started last.
sub serving { return $_[0]{server} ? $_[0]{command} : '' }

sub _command {
    my ($self, $step) = @_;
    my $command = $self->_ported($step->{command});
    return $self->_serve($command) if $command =~ $SERVES;
    my $out = File::Temp->new;
    my $pid = fork // die "fork: $!";
    if (!$pid) {
        open STDOUT, '>&', $out or die "stdout: $!";
        open STDERR, '>&', $out or die "stderr: $!";
        alarm 240;
        exec '/bin/sh', '-c', $command;
        die "sh: $!";
    }
    my $status  = ended($pid, patience(180)) // 'it did not end';
    my $printed = content($out->filename) =~ s/(?<=[^\n])\z/\n/r;
    is($status, 0, $step->{command}) or diag $printed;
    my $prints = $self->_ported(join '', map { "$_\n" } @{ $step->{prints} || [] });
    my $wanted = join '', map { $_ eq '...' ? '(?:.*\n)*' : "\Q$_\E\n" =~ s/\\\.\\\.\\\./.*/gr }
        split /\n/, $prints;
    like($printed, qr/\A$wanted\z/, '... prints what the manual says') if $step->{prints};
    return;
}

# Starts a server, and waits until its log says that it listens, or, for other programs, until its port
# answers.
sub _serve {
    my ($self, $command) = @_;
    my ($program) = $command =~ /\A([\w-]+)/;
    $self->_stop($program);
    my ($config) = $command                                       =~ / -[cf] (\S+)/;
    my ($port)   = ($command . ($config ? content($config) : '')) =~ /(?:--port|listen|bind) [\d.]+:(\d+)/;
    $command =~ s/\A(\S+)/"$1 --port " . $self->port(5000)/e
        if $program eq 'pagi-server' && $command !~ / (?:--port|--listen|--socket|-c) /;
    $self->{command} = $command;
    $self->{server}  = $self->{servers}{$program} = TestServer->spawn('/bin/sh', '-c', "exec $command");
    push @{ $self->{order} }, $program;
    my $serves =
          $program eq 'pagi-server'
        ? $self->{server}->wait_for_log(qr/listening on/, patience(60))
        : wait_for(sub { IO::Socket::INET->new(PeerAddr => "127.0.0.1:$port") }, 60);
    ok($serves, "$command serves") or diag $self->{server}->log;
    return;
}

1;
