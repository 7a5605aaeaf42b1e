# Responses of PSGI applications to clients that read slowly: where the engine has a thread or a process of
# its own, the application is done with them at once (response_buffer).
# Not repeated for each PEREGRINE_ENGINE: its servers name their engines.
use strict;
use warnings;

use lib 't/lib';
use Digest::MD5 qw(md5_hex);
use File::Temp  ();
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools qw(wait_for);

# More than kernels take for a client that does not read.
my $pieces = 96;
my @pieces = map { sprintf('%08d', $_) x 8192 } 1 .. $pieces;
my $whole  = md5_hex(@pieces);

package Lines {
    sub new     { my ($class, @lines) = @_; return bless [@lines], $class }
    sub getline { my ($self) = @_; return shift @$self }
    sub close   { }
}

package main;

my @type   = ('Content-Type' => 'text/plain');
my %bodies = (
    list   => sub { [ 200, [@type], [@pieces] ] },
    one    => sub { [ 200, [@type], [ join '', @pieces ] ] },
    lines  => sub { [ 200, [@type], Lines->new(@pieces) ] },
    writer => sub {
        return sub {
            my $writer = $_[0]->([ 200, [@type] ]);
            $writer->write($_) for @pieces;
            $writer->close;
        };
    },
    poll => sub {
        my @left = @pieces;
        return sub {
            my $writer = $_[0]->([ 200, [ @type, 'Content-Length' => length join '', @pieces ] ]);
            $writer->poll_cb(sub { @left ? $writer->write(shift @left) : $writer->close });
        };
    },
);

my $app = sub {
    my ($env)  = @_;
    my ($name) = $env->{PATH_INFO} =~ m{\A/(\w+)};
    return $bodies{$name}->() if $name;
    # Files without a name that this process has open.
    my $files = grep { (readlink($_) // '') =~ m{\A/.*\(deleted\)\z} } glob '/proc/self/fd/*';
    return [ 200, [@type], [$files] ];
};

sub server { return TestServer->start(psgi => 1, app => $app, access_log => undef, @_) }

sub ask {
    my ($port, $name) = @_;
    return TestClient->new($port, receive_buffer => 65_536)
        ->send("GET /$name HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
}

my %placements = (thread => { engine => 'thread' }, process => { engine => 'process', workers => 1 });

for my $placement (sort keys %placements) {
    subtest $placement => sub {
        my $server = server(%{ $placements{$placement} });
        my $port   = $server->port;
        my $files  = get($port, '/')->{body};
        for my $name (sort keys %bodies) {
            my @slow = map { ask($port, $name) } 1, 2;
            is((get($port, '/') || {})->{status}, 200, "$name: another client is served meanwhile");
            is md5_hex($_->response->{body}), $whole, '... and each of the slow ones in the end' for @slow;
        }
        my @gone = map { ask($port, $_) } sort keys %bodies;
        is((get($port, '/') || {})->{status}, 200, 'others leave before the end');
        $_->close for @gone;
        ok wait_for(sub { get($port, '/')->{body} <= $files }), '... and no file is left open';
        is $server->stop, 0, 'the server stops';
    };
}

my %limits = (
    'a small buffer'  => { response_buffer => '100K' },
    'no buffer'       => { response_buffer => 0 },
    'no room for all' => { max_body_spool  => '200K' },
);

for my $name (sort keys %limits) {
    subtest $name => sub {
        my $server = server(engine => 'process', workers => 1, %{ $limits{$name} });
        for my $body (sort keys %bodies) {
            my $slow = ask($server->port, $body);
            select undef, undef, undef, 0.1;
            is md5_hex($slow->response->{body}), $whole, "$body: all of it, bit by bit";
        }
        is $server->stop, 0, 'the server stops';
    };
}

# Files that take no more than 512 KiB (RLIMIT_FSIZE) stand for a disk that is full: to write fails in the
# same place, without a file system that this test would have to mount.
my $program = File::Temp->new(SUFFIX => '.psgi');
print {$program} <<"APP";
my \@pieces = map { sprintf('%08d', \$_) x 8192 } 1 .. $pieces;
sub {
    my (\$env) = \@_;
    return [ 200, [], ['here'] ]   if \$env->{PATH_INFO} eq '/';
    return [ 200, [], [\@pieces] ] if \$env->{PATH_INFO} eq '/list';
    return sub {
        my \$writer = \$_[0]->([ 200, [] ]);
        \$writer->write(\$_) for \@pieces;
        \$writer->close;
    };
};
APP
close $program;
my %full = (process => [qw(--engine process --workers 1)], clones => [qw(--engine thread --workers 2)]);

for my $placement (sort keys %full) {
    subtest "a disk that is full, $placement" => sub {
        my $server = TestServer->spawn(
            'sh',                       '-c',
            q{trap '' XFSZ; exec "$@"}, 'sh',
            $^X, (map { "-I$_" } @INC),
            'bin/peregrine',      qw(--host 127.0.0.1 --port 0 --no-access-log),
            qw(--env production), @{ $full{$placement} },
            $program->filename
        );
        my $port = $server->wait_for_log(qr{listening on http://\S+:(\d+)}) or die $server->log;
        is((get($port, '/') || {})->{status}, 200, 'the server serves');
        system('prlimit', '--pid', $_, '--fsize=524288:') == 0 or die "prlimit: $?\n" for $server->family;
        for my $name (qw(list writer)) {
            my @slow = map { ask($port, $name) } 1, 2;
            is((get($port, '/') || {})->{status}, 200, "$name: another client is served meanwhile");
            is md5_hex(($_->response || {})->{body} // ''), $whole, '... and each of the slow ones in the end'
                for @slow;
        }
        is $server->stop, 0, 'the server stops';
    };
}

done_testing;
