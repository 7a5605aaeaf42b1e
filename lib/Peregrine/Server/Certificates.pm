package Peregrine::Server::Certificates;

use strict;
use warnings;

our $VERSION = '0.003000';

use File::Spec ();
use JSON::PP   ();
use List::Util qw(max min);
use Peregrine::Acme::Store;
use Peregrine::Fork;
use POSIX        qw(strftime);
use Scalar::Util qw(weaken);

# Seconds to the next start of a process that has ended unasked.
use constant AGAIN_S => 60;
# Seconds between two words about a certificate that ends soon, and the most between two looks at the clock.
use constant { TOLD_S => 24 * 3600, LOOK_S => 3600 };
# The part of a certificate's time that is left when the log becomes loud: renewal begins with a third.
use constant LEFT => 1 / 6;
# Bytes of a line that the process says.
use constant LINE_MAX => 64 * 1024;

my $JSON = JSON::PP->new->canonical->utf8;

# See Peregrine::Threads.
sub CLONE_SKIP { return 1 }

# Why certificates cannot be ordered on this system, as the end of a sentence; nothing if they can.
sub missing {
    return if eval { require Peregrine::Acme::Keeper; 1 };
    my ($module) = $@ =~ /Can't locate (\S+)\.pm/ or die $@;
    return "needs the module ${\$module =~ s{/}{::}gr} (Debian: libcryptx-perl, libio-socket-ssl-perl)";
}

# The folder of certificates where no option names one: systemd's, the system's, or the user's.
sub default_folder {
    my ($systemd) = split /:/, $ENV{STATE_DIRECTORY} // '';
    return "$systemd/acme"           if defined $systemd;
    return '/var/lib/peregrine/acme' if $> == 0;
    my $home = $ENV{XDG_STATE_HOME} // (($ENV{HOME} // (getpwuid $>)[7]) . '/.local/state');
    return "$home/peregrine/acme";
}

# The option `acme` as lists of names, one list for each certificate. Dies with the end of a sentence.
sub parse {
    my ($given) = @_;
    my (@orders, %seen);
    for my $text (ref $given eq 'ARRAY' ? @$given : $given) {
        my @names = map { lc } !ref $text && defined $text ? split /\s*,\s*/, $text, -1 : ();
        die "must be names of hosts, NAME[,NAME...]\n" if !@names;
        for my $name (@names) {
            die
                "must be names of hosts, not '$name': wildcards need a challenge in the DNS, which the server does not have\n"
                if $name =~ /\*/;
            die "must be names of hosts such as example.org, not '$name'\n"
                if length $name > 253
                || $name !~ /\A(?=.*[a-z])(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9-]+\z/;
            die "must be different names, not '$name' twice\n" if $seen{$name}++;
        }
        push @orders, \@names;
    }
    return \@orders;
}

sub problem {
    my ($given) = @_;
    return if eval { parse($given); 1 };
    return $@ =~ s/\s+\z//r;
}

# Key identifier and key of an account with the authority's operator (RFC 8555 section 7.3.4): the two words
# of a file.
sub binding {
    my ($path) = @_;
    open my $file, '<', $path or die "option 'acme_eab': $path: $!\n";
    local $/ = undef;
    my @words = split ' ', <$file>;
    return \@words if @words == 2 && $words[1] =~ /\A[\w-]+=*\z/;
    die "option 'acme_eab': $path must hold a key identifier and a key in base64url, and nothing else\n";
}

# `on_certificate` is called when a certificate has come.
sub new {
    my ($class, %args) = @_;
    return bless { %args{qw(loop log options challenge table on_certificate)}, pid => $$ }, $class;
}

sub _orders {
    my ($self) = @_;
    my $options = $self->{options};
    return {
        orders    => parse($options->{acme}),
        directory => $options->{acme_directory},
        folder    => $options->{acme_folder},
        agrees    => $options->{acme_agree} ? 1 : 0,
        challenge => $self->{challenge},
        $options->{acme_contact} ? (contact => $options->{acme_contact})      : (),
        $options->{acme_ca}      ? (ca_file => $options->{acme_ca})           : (),
        $options->{acme_eab}     ? (eab     => binding($options->{acme_eab})) : (),
    };
}

# A program of its own, which has nothing of the application and of the sockets.
sub start {
    my ($self) = @_;
    my @pipes  = map { pipe(my $reads, my $writes) or die "pipe: $!\n"; [ $reads, $writes ] } 1, 2;
    my ($orders, $facts) = @pipes;
    my $child = Peregrine::Fork::child() // die "fork: $!\n";
    _become($orders->[0], $facts->[1]) if !$child;
    close $_ for $orders->[0], $facts->[1];
    $orders->[1]->autoflush(1);
    print { $orders->[1] } $JSON->encode($self->_orders), "\n";
    @{$self}{qw(child orders facts)} = ($child, $orders->[1], $facts->[0]);
    $facts->[0]->blocking(0);
    weaken(my $weak = $self);
    $self->{loop}->watch_io(handle => $facts->[0], on_read_ready => sub { $weak && $weak->_read });
    $self->{loop}->watch_process($child => sub { $weak && $weak->_gone($_[1]) });
    return $self;
}

sub _become {
    my ($orders, $facts) = @_;
    POSIX::dup2(fileno $orders, 0);
    POSIX::dup2(fileno $facts,  1);
    my @include = map { '-I' . File::Spec->rel2abs($_) } grep { !ref } @INC;
    my @command = (
        'peregrine (certificates)', @include, '-MPeregrine::Acme::Keeper', '-e',
        'Peregrine::Acme::Keeper::main()'
    );
    exec {$^X} @command or POSIX::_exit(127);
}

sub _read {
    my ($self) = @_;
    my $text = \($self->{text} //= '');
    while (sysread $self->{facts}, $$text, 4096, length $$text) {
        while ($$text =~ s/\A([^\n]*)\n//) {
            $self->_hear(eval { $JSON->decode($1) } || {});    # Expected: a line that perl has printed
        }
        $$text = '' if length $$text > LINE_MAX;
    }
    return;
}

sub _hear {
    my ($self,  $said) = @_;
    my ($table, $name) = ($self->{table}, $said->{certificate});
    if (defined $name) {
        $table->set($name, map { $_ => $said->{$_} } qw(from to due attempt failures problem));
        return $self->_tell_ends;
    }
    return $table->count($said->{failed}, 'failed') if defined $said->{failed};
    if (defined $said->{came}) {
        $table->count($said->{came}, 'renewals');
        return $self->{on_certificate}->();
    }
    return if ($said->{level} // '') !~ /\A(debug|info|warn|error)\z/;
    $self->{log}->$1($said->{text});
    return;
}

# ---- Certificates that end soon -----------------------------------------------------------------

sub now { return time }

# Whatever has become of the process that renews them.
sub _tell_ends {
    my ($self) = @_;
    my ($wait, $now) = (LOOK_S, now());
    for my $facts (grep { $_->{to} } $self->{table}->all) {
        my $name = $facts->{names}[0];
        my $loud = $facts->{to} - LEFT * ($facts->{to} - $facts->{from});
        my $told = $self->{told}{$name} ||= { to => 0, at => 0 };
        @{$told}{qw(to at)} = ($facts->{to}, 0) if $told->{to} != $facts->{to};
        my $next = max($loud, $told->{at} + TOLD_S);
        if ($next <= $now) {
            $self->{log}->error(_ending($facts, $now));
            $told->{at} = $now;
        }
        $wait = min($wait, max($next - $now, 1));
    }
    $self->_look_again($wait);
    return;
}

sub _look_again {
    my ($self, $seconds) = @_;
    my $loop = $self->{loop} or return;
    weaken(my $weak = $self);
    $loop->unwatch_time($self->{look}) if $self->{look};
    $self->{look} = $loop->watch_time(
        after => $seconds,
        code  => sub {
            return if !$weak;
            delete $weak->{look};
            $weak->_tell_ends;
        }
    );
    return;
}

sub _ending {
    my ($facts, $now) = @_;
    my $end = strftime('%Y-%m-%d %H:%M:%S UTC', gmtime $facts->{to});
    return
          "the certificate for @{ $facts->{names} } "
        . ($facts->{to} <= $now ? "has ended at $end: clients refuse it" : "ends at $end")
        . ', and there is no new one'
        . (length $facts->{problem} ? ": $facts->{problem}" : '');
}

# ---- Its end ------------------------------------------------------------------------------------

sub _gone {
    my ($self, $status) = @_;
    $self->_read;
    $self->_forget;
    $self->{log}->error('the process for certificates '
            . Peregrine::Fork::how_it_ended($status)
            . "; it is started again in ${\AGAIN_S} seconds");
    weaken(my $weak = $self);
    $self->{timer} = $self->{loop}->watch_time(after => AGAIN_S, code => sub { $weak && $weak->start });
    return;
}

sub _forget {
    my ($self) = @_;
    my $facts = delete $self->{facts} or return;
    $self->{loop}->unwatch_io(handle => $facts, on_read_ready => 1) if $self->{loop};
    delete @{$self}{qw(child orders text)};
    return;
}

# An attempt that is under way is given up: the folder has the old certificate or the new one.
sub stop {
    my ($self) = @_;
    return if $self->{pid} != $$;
    my ($child, @timers) = delete @{$self}{qw(child timer look)};
    $self->{loop} and $self->{loop}->unwatch_time($_) for grep { defined } @timers;
    kill TERM => $child if $child;
    $self->_forget;
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Server::Certificates - the process that orders certificates

=head1 DESCRIPTION

Implements the options C<acme> and C<acme_*> of L<PAGI::Server>. The process is a program of its own
(L<Peregrine::Acme::Keeper>), with the server's user and nothing of its memory and sockets. It writes
certificates into the folder, from which the engine loads them; it is started again when it ends unasked.
When a sixth of a certificate's time is left, the log has an error every day until a new one comes.

=head1 FUNCTIONS

=head2 missing

Why this system cannot order certificates, as the end of a sentence; nothing if it can.

=head2 default_folder

=head2 parse, problem

    my $orders  = Peregrine::Server::Certificates::parse(['example.org,www.example.org']);
    my $problem = Peregrine::Server::Certificates::problem($value);

The option C<acme> as lists of names; C<parse> dies with the end of a sentence.

=head2 binding

    my ($kid, $key) = @{ Peregrine::Server::Certificates::binding($path) };

=head1 METHODS

=head2 new

    my $certificates = Peregrine::Server::Certificates->new(
        loop => $loop, log => $log, options => \%options, table => $table,
        challenge => 'http-01',
        on_certificate => sub { ... },
    );

C<table> is the L<Peregrine::Server::CertificateTable> of these orders.

=head2 start, stop

C<stop> does not wait for an attempt that is under way.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
