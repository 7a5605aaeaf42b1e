# USR2 to a server that plackup has started: plackup has written the application's name over its command line
# by then, and the new program is the whole command all the same.
use strict;
use warnings;
use experimental 'signatures';

use lib 't/lib';
use File::Temp ();
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools qw(free_port wait_for);

my $home = File::Temp->newdir;

sub write_app ($word) {
    open my $out, '>', "$home/app.psgi" or die "app.psgi: $!";
    print {$out} qq{sub { [ 200, [], ["$word ", getppid] ] }\n};
    close $out or die "app.psgi: $!";
    return;
}

my %ways = (
    'with PERL5LIB' => sub { return (\@INC, 'plackup') },
    'with -I'       => sub {
        return ([], $^X, (map { "-I$_" } @INC), '-S', 'plackup');
    },
);

for my $way (sort keys %ways) {
    subtest $way => sub {
        my ($folders, @command) = $ways{$way}->();
        local $ENV{PERL5LIB} = join ':', @$folders, $ENV{PERL5LIB} // ();
        write_app('old');
        my $port   = free_port();
        my @listen = ('--host', '127.0.0.1', '--port', $port);
        my $server =
            TestServer->spawn(@command, qw(-s Peregrine -E production --workers 1), @listen,
            "$home/app.psgi");
        my $said = sub {
            (eval { get($port, '/') } || { body => '' })->{body};
        };
        wait_for(sub { $said->() =~ /old/ }, 60);
        is($said->(), 'old ' . $server->pid, 'plackup serves, with a worker');

        write_app('new');
        $server->signal('USR2');
        # The old program's worker may answer once more after that.
        my $master;
        my $is_new = sub { ($master) = $said->() =~ /\Anew (\d+)\z/ };
        wait_for(sub { $is_new->() || $server->log =~ /Error: |cannot/ }, 60);
        ok($master, 'after USR2 the new code serves at the same port') or diag $server->log;
        return $server->stop if !$master;
        is($server->wait(60), 0, '... and the old program has left');
        kill TERM => $master;
        my $is_gone = sub {
            return !eval { TestClient->new($port) }
        };
        ok(wait_for($is_gone, 60), 'the new one ends when it is told');
    };
}

done_testing;
