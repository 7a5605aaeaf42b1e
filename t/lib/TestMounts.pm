package TestMounts;

# Applications whose answers tell their version and their process, for mounts with workers of their own.
use strict;
use warnings;

use Exporter   qw(import);
use TestClient qw(get);
use TestServer;
use TestTools   qw(wait_for);
use TestWorkers qw(write_file);

our @EXPORT_OK = qw(all_serve app asked serves);

# The file of an application that runs `code` with $path before it answers; `begin` runs when it is loaded.
sub app {
    my ($name, $version, $code, $begin) = @_;
    ($code, $begin) = map { $_ // '' } $code, $begin;
    return write_file("$name.psgi", <<"PERL");
use lib 't/lib';
use TestLoad;
$begin;
sub {
    my (\$env) = \@_;
    my \$path = \$env->{PATH_INFO};
    $code;
    my \$text = "$name $version \$\$";
    \$text = TestLoad::body_of(\$1, \$2) if \$path =~ m{\\A/(\\d+)/(\\d+)\\z};
    return [ 200, [ 'X-Process' => \$\$, 'Content-Length' => length \$text ], [\$text] ];
};
PERL
}

# Name, version and process of the answering application; or the status.
sub asked {
    my ($port, $path) = @_;
    my $answer = get($port, $path) || {};
    return ($answer->{status} // 0) == 200 ? split ' ', $answer->{body} : $answer->{status};
}

sub serves {
    my ($port, $path, $version) = @_;
    return wait_for(sub { ((asked($port, $path))[1] // '') eq $version });
}

# Waits until the master has heard that all workers of a mount serve, whose size it knows then.
sub all_serve {
    my ($server, $path) = @_;
    return wait_for(sub {
        my (undef, $text) = TestServer->finish_of(qw(peregrine status), $server->pid);
        return $text =~ m{^\Q$path\E .*workers (\d+) of \1$}m;
    });
}

1;
