# `make install` into an empty folder keeps the manual's promises: the synopsis of PAGI::Server serves from
# there, and so does pagi-server. The test runs in a folder without files of this tree.
use v5.36;
use Cwd        qw(getcwd);
use File::Find ();
use File::Temp qw(tempdir);
use HTTP::Tiny;
use lib 't/lib';
use POSIX qw(WNOHANG);
use Test::More;
use TestTools   qw(free_port);
use Time::HiRes qw(sleep time);

my $DEADLINE = 60;                      # seconds for steps that should take milliseconds
my $root     = getcwd();
my $target   = tempdir(CLEANUP => 1);

is system("make -s install DESTDIR=$target >$target/log 2>&1 </dev/null"), 0, 'make install'
    or diag slurp("$target/log");

my %found;
File::Find::find(
    {
        no_chdir => 1,
        wanted   => sub { $found{$1} = $_ if m{/(PAGI/Server\.pm|pagi-server|bin/peregrine|Peregrine\.so)\z} }
    },
    $target
);
ok $found{$_}, "$_ is installed" for 'PAGI/Server.pm', 'pagi-server', 'bin/peregrine', 'Peregrine.so';
for my $command (qw(pagi-server peregrine)) {
    my ($bash) = glob "$target/*/{,*/}share/bash-completion/completions/$command";
    my ($zsh)  = glob "$target/*/{,*/}share/zsh/site-functions/_$command";
    like slurp($bash // '/dev/null'), qr/^complete .* \Q$command\E$/m, "bash completes $command";
    like slurp($zsh  // '/dev/null'), qr/\A#compdef \Q$command\E\n/,   "zsh completes $command";
    my ($page) = glob "$target/*/{,*/}{,share/}man/man1/$command.1*";
    ok $page, "man knows $command";
}
for my $module (qw(PAGI::Server PAGI::Server::Deployment PAGI::Server::Tutorial)) {
    my ($page) = glob "$target/*/{,*/}{,share/}man/man3/$module.3*";
    ok $page, "man knows $module";
}
my @inc = map { "-I$_" }
    map { s{/auto/Peregrine/Peregrine\.so\z|/PAGI/Server\.pm\z}{}r }
    @found{ 'PAGI/Server.pm', 'Peregrine.so' };

chdir tempdir(CLEANUP => 1) or die "chdir: $!";

subtest 'the synopsis' => sub {
    my $port = free_port();
    my ($synopsis) = slurp($found{'PAGI/Server.pm'}) =~ /^=head1 SYNOPSIS\n+(.*?)^=/ms;
    ok $synopsis, 'the manual has one' or return;
    is $synopsis =~ s/\b5000\b/$port/g, 1, 'with one port';
    my $application = <<~'PERL';
        use v5.36;
        use Future::AsyncAwait;
        async sub my_pagi_app ($scope, $receive, $send) {
            die "no\n" if $scope->{type} ne 'http';
            await $send->({ type => 'http.response.start', status => 200 });
            await $send->({ type => 'http.response.body', body => "served from $INC{'PAGI/Server.pm'}" });
        }
        PERL
    spew('synopsis.pl', $application . $synopsis);
    answers($port, qr{^served from \Q$found{'PAGI/Server.pm'}\E$}, $^X, @inc, 'synopsis.pl');
};

subtest 'pagi-server' => sub {
    my $port = free_port();
    answers($port, qr/hello/i, $^X, @inc, $found{'pagi-server'}, '--quiet', '--port', $port,
        "$root/examples/pagi/hello/app.pl");
};

subtest 'peregrine' => sub {
    my $port = free_port();
    spew('hello.psgi', 'sub { [ 200, [], ["hello"] ] }');
    answers($port, qr/hello/, $^X, @inc, $found{'bin/peregrine'}, '--quiet', '--port', $port, 'hello.psgi');
};

done_testing;

# Starts a command, asks for / until there is an answer, and stops the command with TERM.
sub answers ($port, $expected, @command) {
    my $pid = fork // die "fork: $!";
    if (!$pid) {
        open STDERR, '>', 'stderr' or die "stderr: $!";
        exec @command or POSIX::_exit(127);
    }
    my $response;
    for (my $end = time + $DEADLINE; time < $end; sleep 0.05) {
        $response = HTTP::Tiny->new(timeout => 5)->get("http://127.0.0.1:$port/");
        last if $response->{success} || waitpid($pid, WNOHANG) == $pid;
    }
    is $response->{status}, 200, 'answers' or diag slurp('stderr');
    like $response->{content}, $expected, 'with what the application says';
    kill TERM => $pid;
    my $ended = 0;
    for (my $end = time + $DEADLINE; time < $end && !$ended; sleep 0.02) { $ended = waitpid($pid, WNOHANG) }
    ok $ended, 'ends on TERM';
    is $?, 0, 'with status 0' or diag slurp('stderr');
    kill KILL => $pid if !$ended;
}

sub slurp ($path) {
    open my $handle, '<', $path or die "$path: $!";
    local $/;
    return readline $handle;
}

sub spew ($path, $text) {
    open my $handle, '>', $path or die "$path: $!";
    print {$handle} $text;
    close $handle or die "$path: $!";
}
