# Settings that script/pairs combines, combinations that do not exist or that a start must refuse, and the
# placement that decides what an event may cost. This file is data: Pairs::Array and Pairs::Run read it, and
# Manual.pm writes the refusals into the manual.
package Pairs::Table;
use v5.36;
use List::Util qw(uniq);

my @PLACKUP = ('plackup-Peregrine', 'plackup-EVHTP');
my @PSGI    = qw(blocking delayed);
my @PAGI    = qw(pagi middleware sync);

my @FACTORS = (
    [ program  => [ qw(pagi-server peregrine), @PLACKUP ] ],
    [ under    => [qw(shell starter systemd)] ],
    [ engine   => [qw(inline thread process)] ],
    [ workers  => [qw(0 1 2)] ],
    [ loading  => [qw(plain preload delayed)] ],
    [ protocol => [qw(http1 h2c tls-http1 tls-h2)] ],
    [ place    => [qw(tcp unix proxy)] ],
    [ options  => [qw(command environment file constructor)] ],
    [ mode     => [qw(production development)] ],
    [ log      => [qw(on off rotated)] ],
    [ status   => [qw(on off)] ],
    [ channels => [qw(off on)] ],
    [ restart  => [qw(plain canary warm)] ],
    [ files    => [qw(none static sendfile)] ],
    [ compress => [qw(off on)] ],
    [ user     => [ 'same', $> == 0 ? 'nobody' : () ] ],
    [ recycle  => [qw(off on)] ],
    [ count    => [qw(same changed)] ],
    [ app      => [ @PAGI, @PSGI, 'mounts', 'pools' ] ],
    [
        event => [ qw(none hup hup-twice usr2 term killed stuck exit disk descriptors memory growth
            startup-dies does-not-compile) ]
    ],
);

# Combinations that cannot be started, with the reason.
my @NONE = (
    [ { program => \@PLACKUP, options => ['file'] }, 'C<plackup> reads no file of options' ],
    [ { program => \@PLACKUP, app     => \@PAGI },   'C<plackup> serves no applications of PAGI' ],
    [
        { program => ['pagi-server'], app => \@PSGI },
        'C<pagi-server> serves no applications of PSGI: C<peregrine> does'
    ],
    [
        { program => ['peregrine'], options => ['constructor'] },
        'C<peregrine> is a command: there is no constructor of its options'
    ],
    [
        { program => ['pagi-server'], options => ['constructor'], app => [qw(mounts pools)] },
        'the constructor of PAGI::Server takes one application, and no mounts'
    ],
    [
        { program => [qw(pagi-server peregrine)], loading => ['delayed'] },
        'only C<plackup> has loaders (C<-L Delayed>)'
    ],
    [
        { options => ['constructor'], loading => [qw(preload delayed)] },
        'a program that makes the server has its application: there is nothing to load, or to preload'
    ],
    [
        { program => \@PLACKUP, loading => ['preload'] },
        'C<plackup> has loaded the application before there is a server: there is nothing to preload'
    ],
    [
        { loading => ['delayed'], event => [qw(startup-dies does-not-compile)] },
        'a delayed application is loaded by its first request'
    ],
    [ { loading => [qw(plain delayed)], event => ['growth'] }, 'without preload_app workers share little' ],
    [ { engine => ['thread'], app => \@PSGI, event => ['growth'] }, 'clones are copies: they share nothing' ],
    [ { workers => ['0'], event => [qw(killed growth)] },  'nobody replaces a server without workers' ],
    [ { app => \@PSGI, event => ['startup-dies'] },        'PSGI has no lifespan' ],
    [ { program => \@PLACKUP, event => ['startup-dies'] }, 'PSGI has no lifespan' ],
    [
        { app => [qw(mounts pools)], event => [qw(startup-dies does-not-compile)] },
        'one application is enough'
    ],
    [
        { app => ['pools'], engine => [qw(inline thread)] },
        'mounts have workers of their own with C<--engine process> only'
    ],
    [ { program => \@PLACKUP, app => ['pools'] }, 'C<plackup> has no mounts with workers of their own' ],
    [
        { app => ['sync'], engine => [qw(inline thread)] },
        'handlers that block have processes of their own with C<--engine process> only'
    ],
    [
        { program => \@PLACKUP, log => ['rotated'] },
        'C<plackup> writes the access log by itself, and USR1 does not open it anew'
    ],
    [ { program => \@PLACKUP, user => ['nobody'] }, 'C<plackup> does not become another user' ],
    [
        { options => ['constructor'], user => ['nobody'] },
        'a program that makes the server does not become another user'
    ],
    [
        { user => ['nobody'], protocol => [qw(tls-http1 tls-h2)], event => ['usr2'] },
        'another user cannot read the key again'
    ],
    [ { recycle => ['on'], workers => ['0'] }, 'nobody replaces a server without workers' ],
    [
        { recycle => ['on'], event => ['growth'] },
        'processes that are replaced for their requests do not grow'
    ],
    [
        {
            count => ['changed'],
            event => [qw(disk descriptors memory growth stuck exit startup-dies does-not-compile)]
        },
        'the count of workers is changed while clients ask'
    ],
    [ { app     => ['sync'],   event => ['stuck'] },  'a handler that may block is not stuck' ],
    [ { app     => ['sync'],   event => ['memory'] }, 'a slow upload has a process for handlers to itself' ],
    [ { restart => ['canary'], workers => ['0'] },    'nobody replaces a server without workers' ],
    [
        { restart => ['canary'], engine => ['thread'], program => \@PLACKUP },
        'workers of C<plackup> with C<--engine thread> are clones, which have no canary'
    ],
);

# Combinations that the server refuses to start with: settings, the manual's sentence, the server's message.
my @REFUSED = (
    [
        { engine => ['process'], workers => ['0'] },
        'C<--engine process> without C<--workers> does not start, for no process would run the application',
        qr/process needs workers, which join it/,
    ],
    map({ [
            { channels => ['on'], engine => ['inline'], %$_ },
            'C<--grip> with C<--engine inline> does not start, for an engine apart from the application holds '
                . 'responses',
            qr/option 'grip' needs an engine apart from the application/,
        ] } { app => \@PSGI },
        { program => \@PLACKUP }),
    [
        { restart => ['canary'], engine => ['thread'], app => \@PSGI },
        'C<--canary> with clones does not start, for they are replaced together',
        qr/interpreters that are threads are replaced together/,
    ],
);

# Known faults of the server that are not yet mended: settings, and a pattern for the finding. `script/pairs`
# counts them; with --slice they are shown and do not count. Whoever mends one removes its line.
my @OPEN = ();

# Events that take too long for a slice.
my %IS_LONG = map { $_ => 1 } qw(stuck memory growth);

# Rows with three settings or more that together once uncovered a fault.
my @ALWAYS = (
    'program=pagi-server workers=2 event=hup-twice',
    'program=pagi-server engine=thread workers=2 event=stuck',
    'program=pagi-server engine=process workers=2 protocol=h2c',
    'program=pagi-server workers=2 event=hup',
    'program=pagi-server under=starter event=term',
    'program=peregrine engine=process workers=2 protocol=h2c event=memory',
    'program=plackup-EVHTP engine=thread workers=2 app=blocking',
    'program=peregrine engine=thread workers=2 app=blocking event=descriptors',
);

sub always () {
    return map { from_words($_) } @ALWAYS;
}

sub is_long ($row) { return $IS_LONG{ $row->{event} } }

# Whether a finding of a row is known and open.
sub is_open ($row, $finding) {
    return scalar grep { holds($_->[0], $row) && $finding =~ $_->[1] } @OPEN;
}

sub factors () {
    return map { [ $_->[0], [ @{ $_->[1] } ] ] } @FACTORS;
}

sub never () {
    return map { $_->[0] } @NONE, @REFUSED;
}

sub refused () {
    return map { { when => $_->[0], sentence => $_->[1], says => $_->[2] } } @REFUSED;
}

# Sentences for the manual about combinations that a user can choose.
sub for_manual () {
    return uniq(map { ucfirst "$_->[1]." } grep { !$_->[0]{event} } @NONE, @REFUSED);
}

# A row's settings in words, and back. Settings that the words leave out are the plain ones.
sub in_words ($row) {
    return join ' ', map { "$_->[0]=$row->{ $_->[0] }" } @FACTORS;
}

sub from_words ($text) {
    my %row = map { $_->[0] => $_->[1][0] } @FACTORS;
    for my $word (split ' ', $text) {
        my ($name, $setting) = split /=/, $word, 2;
        my ($factor) = grep { $_->[0] eq $name } @FACTORS
            or die "there is no factor '$name': " . join(', ', map { $_->[0] } @FACTORS) . "\n";
        grep { $_ eq ($setting // '') } @{ $factor->[1] }
            or die "'$name' is one of @{ $factor->[1] }, not '" . ($setting // '') . "'\n";
        $row{$name} = $setting;
    }
    return \%row;
}

# The reason why a combination of settings does not exist, or undef.
sub why_not ($row) {
    my ($rule) = grep { holds($_->[0], $row) } @NONE, @REFUSED;
    return $rule ? $rule->[1] : undef;
}

# Whether a row has these settings.
sub holds ($when, $row) {
    for my $name (keys %$when) {
        return 0 if !grep { $row->{$name} eq $_ } @{ $when->{$name} };
    }
    return 1;
}

sub is_psgi ($row) {
    return $row->{app} =~ /\A(?:blocking|delayed)\z/ || $row->{program} =~ /\Aplackup/ ? 1 : 0;
}

# Whether an interpreter works on one request at a time.
sub blocks ($row) { return is_psgi($row) || $row->{app} eq 'sync' ? 1 : 0 }

# Whether the application is one of PAGI with topics.
sub has_topics ($row) { return $row->{channels} eq 'on' && !is_psgi($row) ? 1 : 0 }

# The path of an application of PSGI whose responses the engine holds for topics (GRIP), or undef.
sub holds_at ($row) {
    my $has_mounts = $row->{app} =~ /\A(?:mounts|pools)\z/;
    my $is_one     = is_psgi($row) || $has_mounts && $row->{program} eq 'peregrine';
    return if $row->{channels} eq 'off' || $row->{engine} eq 'inline' || !$is_one;
    return !$has_mounts ? '' : is_psgi($row) ? '/one' : '/two';
}

# The path of files; undef: there are none.
sub files_at ($row, $prefix) {
    return { none => undef, static => '/files', sendfile => "$prefix/sent" }->{ $row->{files} };
}

# Whether topics survive all events of a row: there is always a hub to take over from.
sub keeps_topics ($row) {
    return $row->{channels} eq 'on' && $row->{workers} && $row->{under} eq 'shell' ? 1 : 0;
}

sub is_h2 ($row) { return $row->{protocol} =~ /h2/ ? 1 : 0 }

# The placement of the application, which decides how many requests are lost with an interpreter.
sub placement ($row) {
    return 'process' if $row->{engine} eq 'process';
    return 'clones'  if $row->{engine} eq 'thread' && $row->{workers} && are_clones($row);
    return $row->{workers} ? 'prefork' : 'single';
}

# With the thread engine, workers are clones if all applications are of PSGI.
sub are_clones ($row) { return is_psgi($row) }

1;
