package Peregrine::Server::Certificates;

use strict;
use warnings;

our $VERSION = '0.003000';

use JSON::PP   ();
use List::Util qw(max min);
use Peregrine::Acme::Store;
use Peregrine::Fork;
use Peregrine::Handover;
use Peregrine::Link;
use POSIX        qw(strftime);
use Scalar::Util qw(weaken);

# Seconds to the next start of a process that has ended unasked.
use constant AGAIN_S => 60;
# The name of the link that a hot upgrade hands over; bytes of one part of the orders.
use constant { INHERITED => 'certificates', PART => 4096 };
# Seconds between two warnings of a certificate that ends soon, and the most between two looks at the clock.
use constant { TOLD_S => 24 * 3600, LOOK_S => 3600 };
# The part of a certificate's lifetime that is left when warnings begin: renewal begins with a third.
use constant LEFT => 1 / 6;

my $JSON = JSON::PP->new->canonical->utf8;

# Objects are not copied into clones of the interpreter, see Peregrine::Threads.
sub CLONE_SKIP { return 1 }

# Why certificates cannot be ordered on this system, as the end of a sentence; nothing if they can.
sub missing {
    return if eval { require Peregrine::Acme::Keeper; 1 };
    my ($module) = $@ =~ /Can't locate (\S+)\.pm/ or die $@;
    return "needs the module ${\$module =~ s{/}{::}gr} (Debian: libcryptx-perl, libio-socket-ssl-perl)";
}

# The folder of certificates if no option names one: systemd's, the system's, or the user's.
sub default_folder {
    my ($systemd) = split /:/, $ENV{STATE_DIRECTORY} // '';
    return "$systemd/acme" if defined $systemd;
    # A program that takes over may have other rights than the one that has chosen the folder.
    my $handover = Peregrine::Handover->from_environment;
    my $before   = $handover && $handover->told('acme_folder');
    return $before                   if defined $before;
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

# ---- Before a start ------------------------------------------------------------------------------

# The actions of a server with these options, in sentences, as far as the folder can be read.
sub plan {
    my ($options, $challenges) = @_;
    my $folder = $options->{acme_folder};
    my $store  = Peregrine::Acme::Store->new($folder);
    my $from   = "from $options->{acme_directory} by " . join ', then ', @$challenges;
    my @plan;
    for my $names (@{ parse($options->{acme}) }) {
        my $pem   = $store->certificate($names->[0]);
        my $facts = defined $pem ? Peregrine::Acme::Certificate::facts($pem) : undef;
        my $due   = Peregrine::Acme::Keeper::next_attempt($names, $facts, $store->state($names->[0]));
        push @plan,
              "certificate for @$names: "
            . ($facts       ? 'there until ' . _day($facts->{to}) . ', ' : '')
            . ($due <= time ? "ordered at once $from" : 'ordered ' . _day($due) . " $from");
    }
    my $kind = _lost_kind($folder);
    push @plan,
        "warning: $folder is on $kind, which a container does not keep: a new one orders again, and authorities"
        . ' give few certificates a week; mount a volume there'
        if defined $kind;
    return @plan;
}

sub _day { return strftime('%Y-%m-%d %H:%M UTC', gmtime $_[0]) }

# The kind of a folder's file system, if its content is lost with the container or the machine.
sub _lost_kind {
    my ($folder) = @_;
    open my $mounts, '<', '/proc/self/mountinfo' or return;
    my ($place, $kind) = ('', '');
    while (my $line = <$mounts>) {
        my ($at, $type) = $line =~ /\A\S+ \S+ \S+ \S+ (\S+) .* - (\S+) / or next;
        $at =~ s/\\([0-7]{3})/chr oct $1/ge;
        ($place, $kind) = ($at, $type)
            if length $at >= length $place && "$folder/" =~ m{\A\Q${\($at =~ s{/\z}{}r)}\E/};
    }
    return $kind =~ /\A(?:overlay|tmpfs|ramfs|aufs)\z/ ? $kind : undef;
}

# `take` is called with names and descriptors of new certificates.
sub new {
    my ($class, %args) = @_;
    return bless { %args{qw(log options challenges table take)}, pid => $$ }, $class;
}

# ---- The process --------------------------------------------------------------------------------

# Starts the process of Peregrine::Acme::Process with the rights of the start, or takes over the link to it
# from the old program. Returns when all existing certificates have come.
sub begin {
    my ($self, %owner) = @_;
    my $before    = Peregrine::Handover->from_environment;
    my $inherited = $before && $before->take(INHERITED);
    $self->{link} = defined $inherited ? Peregrine::Link->from_descriptor($inherited) : $self->_start_process;
    $self->{is_inherited} = defined $inherited;
    # The user as which the server goes on may be unable to read the file, which may be gone later.
    my $eab = $self->{options}{acme_eab};
    $self->{eab} = binding($eab) if defined $eab && !defined $inherited;
    $self->_look_at_owner($owner{uid}) if defined $owner{uid} && !$inherited;
    until ($self->{is_known} || $self->{link}->has_ended) {
        $self->{link}->wait;
        $self->_hear(@$_) for $self->{link}->read_lines;
    }
    return $self;
}

# Warns if the folder belongs to the user as which the server goes on.
sub _look_at_owner {
    my ($self, $uid) = @_;
    my $folder = $self->{options}{acme_folder};
    return if $uid == $> || (stat $folder)[4] != $uid;
    $self->{log}
        ->warn("the folder $folder belongs to the server's user: applications can read the keys in it."
            . ' Root, or a user of its own, should have it');
    return;
}

sub _start_process {
    my ($self) = @_;
    my $folder = $self->{options}{acme_folder};
    eval { Peregrine::Acme::Store->new($folder)->make } or die "option 'acme_folder': $@";
    my ($here, $there) = Peregrine::Link->pair;
    $there->keep_in_child;
    my $child = $self->{child} = Peregrine::Fork::child() // die "fork: $!\n";
    Peregrine::Fork::become('certificates', 'Peregrine::Acme::Process', [ $there->descriptor ], $folder)
        if !$child;
    $there->close;
    return $here;
}

# Watches the link in the loop: challenges can be answered from now on.
sub serve {
    my ($self, $loop) = @_;
    my $link = $self->{link};
    @{$self}{qw(loop is_known)} = ($loop, 1);
    weaken($self->{loop});
    weaken(my $weak = $self);
    $link->watch($loop, sub { $weak && $weak->_hear(@_) }, sub { $weak && $weak->_gone });
    $loop->watch_process((delete $self->{child}) => sub { }) if $self->{child};
    my $orders = $JSON->encode($self->_orders);
    $link->say(part => $_) for unpack '(a' . PART . ')*', $orders;
    $link->say('orders');
    $self->_tell_ends;
    return $self;
}

sub _orders {
    my ($self) = @_;
    my $options = $self->{options};
    return {
        orders     => parse($options->{acme}),
        directory  => $options->{acme_directory},
        folder     => $options->{acme_folder},
        agrees     => $options->{acme_agree} ? 1 : 0,
        challenges => $self->{challenges},
        $options->{acme_contact} ? (contact => $options->{acme_contact}) : (),
        $options->{acme_ca}      ? (ca_file => $options->{acme_ca})      : (),
        $self->{eab}             ? (eab     => $self->{eab})             : (),
    };
}

# `descriptor`: the new standard error.
sub reopen_logs {
    my ($self, $descriptor) = @_;
    $self->{link}->say(logs => '', $descriptor) if $self->{link};
    return;
}

# Name => handle: a link for a program that is to take the server's place.
sub for_handover {
    my ($self) = @_;
    my $link = $self->{link} or return;
    my ($here, $there) = Peregrine::Link->pair;
    return if !$link->say(join => '', $there->descriptor);
    $there->close;
    $self->{for_other} = $here;
    return (INHERITED() => $here->handle);
}

# Closes the link that was kept for another program, which has it now, or has not come.
sub end_handover {
    my ($self) = @_;
    my $link = delete $self->{for_other} or return;
    return $link->close;
}

sub _hear {
    my ($self, $word, $text, @descriptors) = @_;
    if    ($word eq 'known')        { $self->{is_known} = 1 }
    elsif ($word eq 'certificates') { $self->{take}->($text, @descriptors) }
    elsif ($word eq 'fact') {
        $self->_learn(eval { $JSON->decode($text) } || {});    # Expected: a text that is too long
    }
    return;
}

sub _learn {
    my ($self,  $said) = @_;
    my ($table, $name) = ($self->{table}, $said->{certificate});
    if (defined $name) {
        $table->set($name, map { $_ => $said->{$_} } qw(from to due attempt failures problem));
        return $self->_tell_ends;
    }
    return $table->count($said->{failed}, 'failed')   if defined $said->{failed};
    return $table->count($said->{came},   'renewals') if defined $said->{came};
    return if ($said->{level} // '') !~ /\A(debug|info|warn|error)\z/;
    $self->{log}->$1($said->{text});
    return;
}

# ---- Certificates that end soon -----------------------------------------------------------------

sub now { return time }

# Warns of certificates that end soon, also if the process that renews them has ended.
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

# ---- The end of the process ----------------------------------------------------------------------

# Handles the end of the process. A server with fewer rights now cannot start another one to read the folder.
sub _gone {
    my ($self) = @_;
    delete $self->{link};
    my $certificates = Peregrine::Acme::Store->new($self->{options}{acme_folder})->certificates;
    my $may          = -r $certificates && -w _ && -x _;
    $self->{log}->error(
        'the process for certificates has ended: '
            . (
            $may
            ? "it is started again in ${\AGAIN_S} seconds"
            : 'none is renewed until the server is started anew'
            )
    );
    $self->_start_later if $may;
    return;
}

sub _start_later {
    my ($self) = @_;
    weaken(my $weak = $self);
    $self->{timer} =
        $self->{loop}->watch_time(after => AGAIN_S, code => sub { $weak && $weak->_start_again });
    return;
}

sub _start_again {
    my ($self) = @_;
    $self->{link} = eval { $self->_start_process };
    if (!$self->{link}) {
        $self->{log}->error("the process for certificates cannot be started: $@");
        return $self->_start_later;
    }
    $self->{is_inherited} = 0;
    return $self->serve($self->{loop});
}

# Closes the link. An order under way is given up, unless another program goes on: the folder has the old
# certificate or the new one.
sub stop {
    my ($self) = @_;
    return if $self->{pid} != $$;
    my ($link, @timers) = delete @{$self}{qw(link timer look)};
    $self->{loop} and $self->{loop}->unwatch_time($_) for grep { defined } @timers;
    $link->close if $link;
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Server::Certificates - the process that orders certificates

=head1 DESCRIPTION

Implements the options C<acme> and C<acme_*> of L<PAGI::Server>. The process is a program of its own
(L<Peregrine::Acme::Process>), with the rights of the server's start and nothing of its memory and sockets. It
keeps certificates in the folder and sends their descriptors. A program that takes the server's place goes on
with the same process. When a sixth of a certificate's time is left, the log has an error every day until a
new one comes.

=head1 FUNCTIONS

=head2 missing

Why this system cannot order certificates, as the end of a sentence; nothing if it can.

=head2 default_folder

=head2 parse, problem

    my $orders  = Peregrine::Server::Certificates::parse(['example.org,www.example.org']);
    my $problem = Peregrine::Server::Certificates::problem($value);

The option C<acme> as lists of names; C<parse> dies with the end of a sentence.

=head2 plan

    my @sentences = Peregrine::Server::Certificates::plan(\%options, \@challenges);

What a server with these options would order, and when, for C<--check>; and a warning if C<acme_folder> does
not outlive the container.

=head2 binding

    my ($kid, $key) = @{ Peregrine::Server::Certificates::binding($path) };

=head1 METHODS

=head2 new

    my $certificates = Peregrine::Server::Certificates->new(
        log => $log, options => \%options, table => $table,
        challenges => [ 'http-01', 'tls-alpn-01' ],
        take      => sub { my ($names, @descriptors) = @_; ... },
    );

C<table> is the L<Peregrine::Server::CertificateTable> of these orders. C<take> is called with certificates
that are there or have come: their names, separated by commas, and a descriptor for each.

=head2 begin, serve, stop

    $certificates->begin(uid => $uid);

C<begin> warns if the user with that number, as which the server goes on, has the folder. It needs the rights
that can read the folder, and returns when C<take> has had all that are there. C<serve> gets the loop, and
orders: challenges are answered. C<stop> does not wait for an attempt that is under way.

=head2 reopen_logs

    $certificates->reopen_logs(fileno STDERR);

Gives the process a new log.

=head2 for_handover, end_handover

    my %handles = $certificates->for_handover;

For a program that is to take the server's place, whose C<begin> finds it; and the end of their time here.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
