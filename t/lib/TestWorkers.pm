package TestWorkers;

# Functions for tests of worker processes: files of an application that changes, processes and their kinds,
# and clients that send requests all the time.

use strict;
use warnings;

use Exporter   qw(import);
use File::Temp ();
use Test::More;
use TestLoad;
use TestTools qw(content wait_for);

our @EXPORT_OK = qw(
    are_gone children descriptors directory is_gone load no_failure pid_in stop_master write_both write_file
);

my $DIRECTORY;

# The folder of the test's files, which is removed at the end.
sub directory { return $DIRECTORY //= File::Temp->newdir }

# Writes a file there, which readers always see whole. Returns its path.
sub write_file {
    my ($name, $text) = @_;
    my $path = directory() . "/$name";
    open my $out, '>', "$path.new" or die "$path: $!";
    print {$out} $text;
    close $out or die "$path: $!";
    rename "$path.new", $path or die "$path: $!";
    return $path;
}

# Writes NAME.psgi and NAME.pl, and returns their paths: `code`, and an application of PSGI and one of PAGI
# that answer with its function `answer`, which gets the path.
sub write_both {
    my ($name, $code) = @_;
    my $psgi = "$code\nsub { [ 200, [], [ answer(\$_[0]{PATH_INFO}) ] ] }\n";
    my $pagi = $code . <<'PERL';

use Future::AsyncAwait;
async sub {
    my ($scope, $receive, $send) = @_;
    die "no\n" if $scope->{type} ne 'http';
    await $send->({ type => 'http.response.start', status => 200, headers => [] });
    await $send->({ type => 'http.response.body', body => answer($scope->{path}) });
}
PERL
    return (write_file("$name.psgi", $psgi), write_file("$name.pl", $pagi));
}

# The processes that a process has forked, or adopted.
sub children {
    my ($pid) = @_;
    return split ' ', content("/proc/$pid/task/$pid/children");
}

# The open files of a process by descriptor, except those that it closes meanwhile.
sub descriptors {
    my ($pid) = @_;
    my %leads_to;
    for my $path (glob "/proc/$pid/fd/*") {
        my $what = readlink($path) // next;
        $leads_to{$1} = $what if $path =~ m{(\d+)\z};
    }
    return %leads_to;
}

sub is_gone { my ($pid) = @_; return content("/proc/$pid/stat") =~ /\) [^Z]/ ? 0 : 1 }

sub are_gone {
    return !grep { !is_gone($_) } @_;
}

# The process named by a pid file there; 0: there is no such file.
sub pid_in {
    my ($name) = @_;
    return content(directory() . "/$name") =~ /\A(\d+)\n\z/ ? $1 : 0;
}

# Ends the server of a pid file, which may be no child of the test.
sub stop_master {
    my ($name) = @_;
    my $pid = pid_in($name) or return 0;
    kill TERM => $pid;
    return wait_for(sub { is_gone($pid) && !-e directory() . "/$name" });
}

# Kills servers that a failed test has left, which are no children of it.
my $OWNER = $$;

END {
    if ($$ == $OWNER && $DIRECTORY) {
        local $?;
        kill KILL => grep { $_ } map { m{([^/]+)\z} && pid_in($1) } glob "$DIRECTORY/*.pid";
    }
}

# Two clients, one of which makes a connection for each request.
sub load {
    my ($port, %options) = @_;
    return map { TestLoad->start($port, %options, fresh => $_) } 0, 1;
}

# Ends clients, and tests that none of their requests has failed.
sub no_failure {
    my ($name,  @clients)  = @_;
    my ($asked, @failures) = (0);
    for my $client (@clients) {
        my ($count, $failed) = $client->finish;
        $asked += $count;
        push @failures, @$failed;
    }
    is(scalar @failures, 0, "$name: no request failed") or diag join "\n", map { "@$_" } @failures;
    cmp_ok($asked, '>', 100, "... of $asked");
    return;
}

1;
