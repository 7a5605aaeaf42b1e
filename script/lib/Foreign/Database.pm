# A PostgreSQL server in a temporary folder, which clients reach by its Unix socket only. PostgreSQL refuses
# to run as root: then it runs as the user postgres.
package Foreign::Database;
use v5.36;
use POSIX       ();
use Time::HiRes qw(sleep time);

use constant PATIENCE_S => 60;

sub start ($class, $dir) {
    my ($program) = reverse sort { (split m{/}, $a)[4] <=> (split m{/}, $b)[4] }
        glob '/usr/lib/postgresql/*/bin/postgres';
    die "there is no PostgreSQL in /usr/lib/postgresql\n" if !$program;
    my $self = bless { bin => $program =~ s{/postgres\z}{}r, dir => $dir, owner => $$ }, $class;
    $self->{user} = $> == 0 ? 'postgres' : scalar getpwuid $>;
    mkdir $dir or die "$dir: $!\n";
    chown((getpwnam $self->{user})[ 2, 3 ], $dir);
    $self->_run(qw(initdb --auth=trust --encoding=UTF8 --locale=C -U postgres -D), "$dir/data");
    $self->{pid} =
        $self->_fork('postgres', '-D', "$dir/data", '-k', $dir, '-c', 'listen_addresses=', '-c', 'fsync=off');

    for (my $end = time + PATIENCE_S; !-S "$dir/.s.PGSQL.5432"; sleep 0.1) {
        die 'PostgreSQL did not start: ', _log($dir) if time > $end;
    }
    return $self;
}

# Makes the database `foreign` anew, empty; returns its URL.
sub fresh ($self) {
    my @place = ('-h', $self->{dir}, '-U', 'postgres', 'foreign');
    $self->_run(qw(dropdb --if-exists --force), @place);
    $self->_run('createdb',                     @place);
    return 'postgresql://postgres@' . $self->{dir} =~ s{/}{%2F}gr . '/foreign';
}

sub _run ($self, @command) {
    waitpid $self->_fork(@command), 0;
    die "@command failed: ", _log($self->{dir}) if $?;
    return;
}

sub _fork ($self, $program, @arguments) {
    my $pid = fork // die "fork: $!\n";
    return $pid if $pid;
    open STDOUT, '>>', "$self->{dir}.log" or POSIX::_exit(126);
    open STDERR, '>&', \*STDOUT           or POSIX::_exit(126);
    chdir '/';
    if ($> == 0) {
        my ($uid, $gid) = (getpwnam $self->{user})[ 2, 3 ];
        $) = "$gid $gid";
        POSIX::setgid($gid);
        POSIX::setuid($uid);
    }
    delete @ENV{qw(PGHOST PGPORT PGUSER PGDATABASE)};
    exec "$self->{bin}/$program", @arguments or POSIX::_exit(127);
}

sub _log ($dir) {
    open my $in, '<', "$dir.log" or return '';
    local $/;
    return scalar <$in>;
}

# Ends PostgreSQL by SIGINT, its fast shutdown.
sub DESTROY ($self) {
    return if $self->{owner} != $$ || !$self->{pid};
    local $?;
    kill INT => $self->{pid};
    waitpid $self->{pid}, 0;
    return;
}

1;
