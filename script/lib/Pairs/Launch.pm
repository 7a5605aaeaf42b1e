# The command that starts a server for a row of script/pairs: its options, their sources, and programs in
# front of it (Server::Starter, a program that passes sockets as systemd does, limits on disk or descriptors).
package Pairs::Launch;
use v5.36;
use List::Util qw(sum0);
use Pairs::Content;
use Pairs::Table;
use TestTools qw(free_port);

use constant {
    MEMORY_EACH => 160,    # MiB of memory_max for each process that shares it
    DESCRIPTORS => 160,
    SPOOL       => '6m',
    KILL_S      => 14,     # request_kill_timeout of rows with a stuck interpreter; /readyz must tell before
    SHUTDOWN_S  => 4,
    CANARY_S    => 1,
    REQUESTS    => 40,     # after which a worker is replaced, where that happens
};

# `tree`: the built tree that is tried; `dir`: the row's own folder; `certificates`: a Certificates.
sub new ($class, %given) {
    my $self = bless {%given}, $class;
    my $row  = $self->{row};
    $self->{port}        = free_port()         if $row->{place} ne 'unix';
    $self->{path}        = "$self->{dir}/sock" if $row->{place} eq 'unix';
    $self->{status_port} = free_port()         if $row->{status} eq 'on';
    mkdir "$self->{dir}/$_" for qw(spool files);
    # The folders of a server that becomes another user. Others must not replace a file that root runs.
    chown +(getpwnam 'nobody')[ 2, 3 ], $self->{dir}, "$self->{dir}/spool" if $row->{user} eq 'nobody';
    return $self;
}

# Tells Pairs::Client where and how to connect.
sub place ($self) {
    my $row = $self->{row};
    return {
        at    => $self->{port} // $self->{path},
        tls   => $row->{protocol} =~ /tls/ ? 1 : 0,
        h2    => Pairs::Table::is_h2($row),
        proxy => $row->{place} eq 'proxy' ? 1 : 0,
    };
}

# The row's options by their names in PAGI::Server; a flag without a value has undef. Options that come from
# the environment are left out.
sub options ($self) {
    my $row     = $self->{row};
    my $env     = $row->{options} eq 'environment';
    my @options = ([ workers => $row->{workers} ], [ max_body_size => '8M' ]);
    push @options, [ engine         => $row->{engine} ]                   if !$env;
    push @options, [ listen         => $self->_listen ]                   if defined $self->_listen;
    push @options, [ preload_app    => undef ]                            if $row->{loading} eq 'preload';
    push @options, [ http2          => undef ]                            if $row->{protocol} eq 'h2c';
    push @options, [ proxy_protocol => '127.0.0.1/32' ]                   if $row->{place} eq 'proxy';
    push @options, [ status         => "127.0.0.1:$self->{status_port}" ] if $self->{status_port};
    push @options, [ channels       => undef ]                            if $row->{channels} eq 'on';
    push @options, [ grip           => 'pairs.' ] if $row->{channels} eq 'on' && Pairs::Table::is_psgi($row);
    push @options, [ sync_workers   => 2 ]        if $row->{app} eq 'sync';
    push @options, [ canary         => CANARY_S ] if $row->{restart} eq 'canary';
    push @options, [ warm_up        => '/hello,/one/hello' ] if $row->{restart} eq 'warm';
    push @options, [ shutdown_timeout     => SHUTDOWN_S ];
    push @options, [ access_log           => "$self->{dir}/access.log" ]       if $row->{log} ne 'off';
    push @options, [ request_kill_timeout => KILL_S ]                          if $row->{event} eq 'stuck';
    push @options, [ body_folder          => "$self->{dir}/spool" ]            if $row->{event} eq 'disk';
    push @options, [ memory_max     => MEMORY_EACH * $self->_processes . 'M' ] if $row->{event} eq 'memory';
    push @options, [ max_worker_rss => '70M' ]                                 if $row->{event} eq 'growth';
    push @options, [ static         => "/files=$self->{dir}/files" ]           if $row->{files} eq 'static';
    push @options, [ x_sendfile     => "$self->{dir}/files" ]                  if $row->{files} eq 'sendfile';
    push @options, [ compress       => undef ]                                 if $row->{compress} eq 'on';
    push @options, [ max_requests   => REQUESTS ]                              if $row->{recycle} eq 'on';
    push @options, [ user           => 'nobody' ]     if $row->{user} eq 'nobody' && $row->{app} ne 'pools';
    push @options, [ quiet          => undef ]        if $row->{event} eq 'startup-dies';
    push @options, [ lifespan_startup_timeout => 20 ] if $row->{program} !~ /plackup/;
    return @options;
}

# The value of `listen`; undef if the server is given its sockets, except for TLS at a Unix socket.
sub _listen ($self) {
    my $tls = $self->place->{tls};
    my $at  = defined $self->{path} ? $self->{path} . ($tls ? ',tls' : '') : "127.0.0.1:$self->{port}";
    return $self->{row}{under} eq 'shell' || $tls && defined $self->{path} ? $at : undef;
}

sub _processes ($self) {
    return Pairs::Table::placement($self->{row}) eq 'prefork' ? $self->{row}{workers} : 1;
}

sub _tls ($self) {
    return if !$self->place->{tls};
    return map { [ "ssl_$_->[0]", $self->{certificates}->path("server.$_->[1]") ] } [ cert => 'pem' ],
        [ key => 'key' ];
}

sub _flags (@options) {
    return map { my ($name, $value) = @$_; ('--' . $name =~ s/_/-/gr, $value // ()) } @options;
}

# Words with `=`, because plackup would take the word behind a flag for its value.
sub _words_of_plackup (@options) {
    return map { my ($name, $value) = @$_; '--' . $name =~ s/_/-/gr . '=' . ($value // 1) } @options;
}

sub app_files ($self) {
    my $row  = $self->{row};
    my $apps = "$self->{root}/script/lib/Pairs/apps";
    my %file = (
        pagi       => 'pagi.pl',
        middleware => 'middleware.pl',
        sync       => 'sync.pl',
        blocking   => 'blocking.psgi',
        delayed    => 'delayed.psgi',
        mounts     => 'mounts.psgi',
    );
    return "$self->{dir}/broken.pl"   if $row->{event} eq 'does-not-compile' && !Pairs::Table::is_psgi($row);
    return "$self->{dir}/broken.psgi" if $row->{event} eq 'does-not-compile';
    return "$apps/dies.pl"            if $row->{event} eq 'startup-dies';
    return "$apps/$file{ $row->{app} }"
        if $row->{app} !~ /\A(?:mounts|pools)\z/ || $row->{program} =~ /plackup/;
    my $own = $row->{app} eq 'pools' ? ",workers=$row->{workers}" : '';
    $own .= ',user=nobody' if $own && $row->{user} eq 'nobody';
    my $held   = defined Pairs::Table::holds_at($row) ? "$own,grip=pairs."   : '';
    my $second = $row->{program} eq 'peregrine'       ? "two.psgi,psgi$held" : 'two.pl,pagi';
    return map { ('--mount', $_) } "/one=$apps/one.pl,pagi$own", "/two=$apps/$second";
}

# How many processes of the application there are, when none of them is being replaced.
sub workers ($self) {
    my $row = $self->{row};
    my @own = map { /,workers=(\d+)/ ? $1 : () } $self->app_files;
    return sum0($row->{workers}, $row->{app} eq 'sync' ? 2 : 0, @own);
}

# The command line of the server itself.
sub program ($self) {
    my $row  = $self->{row};
    my @perl = ($^X, map { "-I$_" } $self->libs);
    return (@perl, "$self->{dir}/program.pl") if $row->{options} eq 'constructor';
    my @mode =
        $row->{options} eq 'environment'
        ? ()
        : ('-E', $row->{program} =~ /plackup/ && $row->{mode} eq 'production' ? 'deployment' : $row->{mode});
    if (my ($handler) = $row->{program} =~ /\Aplackup-(\w+)/) {
        my @loader = $row->{loading} eq 'delayed' ? qw(-L Delayed) : ();
        my @words  = _words_of_plackup($self->options, $self->_tls);
        return (@perl, '-S', 'plackup', @loader, '-s', $handler, @mode, @words, $self->app_files);
    }
    my @log = $row->{log} eq 'off' ? '--no-access-log' : ();
    my @bin = (@perl, "$self->{tree}/bin/$row->{program}");
    return (@bin, '-c', "$self->{dir}/options.conf", $self->app_files) if $row->{options} eq 'file';
    return (@bin, @mode, _flags($self->options, $self->_tls), @log, $self->app_files);
}

sub libs ($self) {
    return ("$self->{tree}/blib/lib", "$self->{tree}/blib/arch", "$self->{root}/script/lib");
}

# Writes the files that the command reads.
sub write_files ($self) {
    my $row = $self->{row};
    $self->write('version',      '1');
    $self->write('files/large',  Pairs::Content::large());
    $self->write('files/some',   Pairs::Content::some());
    $self->write('program.pl',   $self->_program_text) if $row->{options} eq 'constructor';
    $self->write('options.conf', $self->_file_text)    if $row->{options} eq 'file';
    $self->write('broken.pl',    <<'PL');
use strict;
use warnings;
use Future::AsyncAwait;
async sub {
    my ($scope, $receive, $send) = @_;
    my $total = 1;
    $totl = 2;
    await $send->({ type => 'http.response.start', status => 200 });
};
PL
    $self->write('broken.psgi', <<'PSGI');
use strict;
my $total = 1;
sub {
    $totl = 2;
    [ 200, [], [] ];
};
PSGI
    return;
}

# Writes a file in one step: a reader never sees a part of it.
sub write ($self, $name, $text) {
    my $path = "$self->{dir}/$name";
    open my $out, '>', "$path.new" or die "$path: $!\n";
    print {$out} $text;
    close $out or die "$path: $!\n";
    rename "$path.new", $path or die "$path: $!\n";
    return $path;
}

sub _file_text ($self) {
    my @lines =
        map { my ($name, $value) = @$_; $name =~ s/_/-/gr . ' = ' . ($value // 'yes') . "\n" } $self->options,
        $self->_tls, [ env => $self->{row}{mode} ];
    push @lines, "access-log = off\n" if $self->{row}{log} eq 'off';
    return join '', @lines;
}

sub _program_text ($self) {
    my $row     = $self->{row};
    my %options = map { $_->[0] => $_->[1] // 1 } $self->options;
    my %ssl;
    $ssl{ $_->[0] =~ s/\Assl_//r . '_file' } = $_->[1] for $self->_tls;
    $options{ssl}                            = \%ssl                if %ssl;
    $options{listen}                         = [ $options{listen} ] if $options{listen};
    $options{static}                         = [ $options{static} ] if $options{static};
    $options{access_log}                     = undef                if $row->{log} eq 'off';
    require Data::Dumper;
    local ($Data::Dumper::Indent, $Data::Dumper::Terse) = (1, 1);
    my $text      = Data::Dumper::Dumper(\%options);
    my ($file)    = $self->app_files;
    my ($handler) = $row->{program} =~ /\Aplackup-(\w+)/;
    return <<"PSGI" if $handler;
use Plack::Loader;
use Plack::Util;
my \$app = Plack::Util::load_psgi('$file');
Plack::Loader->load('$handler', %{ $text })->run(\$app);
PSGI
    return <<"PAGI";
use PAGI::Server;
my \$app = do '$file' or die \$@ || \$!;
PAGI::Server->new(app => \$app, %{ $text })->run;
PAGI
}

sub environment ($self) {
    my $row = $self->{row};
    my %env = (PAIRS_DIR => $self->{dir}, PERL5LIB => join(':', $self->libs));
    if ($row->{options} =~ /\A(?:environment|constructor)\z/) {
        $env{PAGI_ENV}  = $row->{mode};
        $env{PLACK_ENV} = $row->{mode} eq 'production' ? 'deployment' : $row->{mode};
    }
    $env{PAIRS_BALLAST}    = 60_000_000     if $row->{event} eq 'growth';
    $env{PEREGRINE_ENGINE} = $row->{engine} if $row->{options} eq 'environment';
    return %env;
}

# The whole command: a process group of its own, the limits of the row, a program that passes sockets, the
# server.
sub command ($self) {
    my $row  = $self->{row};
    my @call = ($^X, '-e', 'setpgrp; exec { $ARGV[0] } @ARGV');
    push @call, 'unshare', '-m', 'sh', '-c',
        "mount -t tmpfs -o size=${\SPOOL} none '$self->{dir}/spool' && exec \"\$\@\"", 'sh'
        if $row->{event} eq 'disk';
    push @call, 'prlimit', '--nofile=' . DESCRIPTORS if $row->{event} eq 'descriptors';
    push @call, $self->_starter if $row->{under} eq 'starter';
    push @call, $self->_systemd if $row->{under} eq 'systemd';
    return (@call, $self->program);
}

sub _starter ($self) {
    my @socket =
        defined $self->{path} ? ('--path', $self->{path}) : ('--port', "127.0.0.1:$self->{port}");
    my ($starter) = grep { -x } map { "$_/start_server" } split /:/, $ENV{PATH};
    die "start_server is not there (Debian: libserver-starter-perl)\n" if !$starter;
    return ($starter, @socket, '--interval', 1, '--status-file', "$self->{dir}/starter.status", '--');
}

# Binds the sockets that systemd would bind, and tells the server in systemd's way.
sub _systemd ($self) {
    my $bind = <<'PERL';
use IO::Socket::UNIX; use IO::Socket::IP; use POSIX;
my $at = shift;
my $socket = $at =~ m{/} ? IO::Socket::UNIX->new(Type => SOCK_STREAM, Local => $at, Listen => 1024)
    : IO::Socket::IP->new(LocalHost => '127.0.0.1', LocalPort => $at, Listen => 1024, ReuseAddr => 1);
$socket or die "$at: $! $@\n";
POSIX::dup2(fileno $socket, 3);
open my $handle, '+<&=', 3 or die $!;
fcntl $handle, 2, 0;
@ENV{qw(LISTEN_PID LISTEN_FDS)} = ($$, 1);
exec { $ARGV[0] } @ARGV;
PERL
    return ($^X, '-e', $bind =~ s/\n/ /gr, $self->{port} // $self->{path});
}

1;
