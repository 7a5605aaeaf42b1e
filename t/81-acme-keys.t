# Keys of certificates that the server orders, after a start as root with another user: no process with an
# application can read one, and renewals are served.
use strict;
use warnings;
use experimental 'signatures';

use lib 't/lib';
use File::Temp   ();
use HTTP::Tiny   ();
use JSON::PP     qw(decode_json encode_json);
use MIME::Base64 qw(decode_base64);
use OnlyInFull   qw(only_in_full);
use PAGI::Server;
use POSIX ();
use Test::More;
use Time::HiRes qw(time);

use TestServer;
use TestTools   qw(content free_port patience program_path wait_for);
use TestWorkers qw(children is_gone pid_in);

plan skip_all => 'built without TLS'       if !PAGI::Server->has_tls;
plan skip_all => 'not root'                if $> != 0;
plan skip_all => 'pebble is not installed' if !program_path('pebble');
plan skip_all => 'CryptX is not installed' if !eval { require CryptX; 1 };
plan skip_all => 'no user nobody'          if !getpwnam 'nobody';
require Pebble;
require Peregrine::Acme::Store;

my $dir = TestWorkers::directory();
chmod 0755, $dir or die $!;
my %port      = map { $_ => free_port() } qw(plain tls);
my $authority = Pebble->new(http_port => $port{plain});
chmod 0755, $authority->roots =~ s{/[^/]+\z}{}r or die $!;

# Tries what the file `places` says, and answers with the places that it could open.
my $app = write_file('app.pl', <<"PERL");
use strict;
use warnings;
use experimental 'signatures';
use Future::AsyncAwait;
use JSON::PP qw(decode_json encode_json);

sub opened () {
    open my \$list, '<', '$dir/places' or die "\$!";
    my \$places = decode_json(readline \$list);
    return [ grep { open(my \$in, '<:raw', \$_) || opendir(my \$names, \$_) } \@\$places ];
}

async sub (\$scope, \$receive, \$send) {
    die "unsupported\\n" if \$scope->{type} ne 'http';
    await \$send->({ type => 'http.response.start', status => 200 });
    await \$send->({ type => 'http.response.body', body => encode_json([ \$\$, \$>, opened() ]) });
};
PERL

sub write_file ($name, $text) {
    open my $out, '>', "$dir/$name" or die "$name: $!";
    print {$out} $text;
    close $out or die "$name: $!";
    return "$dir/$name";
}

sub serve ($folder, @more) {
    return TestServer->command(
        '--listen' => "127.0.0.1:$port{plain},plain",
        '--listen' => "127.0.0.1:$port{tls}",
        '--acme-agree',
        '--acme'           => 'example.org',
        '--acme-directory' => $authority->directory,
        '--acme-ca'        => $authority->roots,
        '--acme-folder'    => $folder,
        '--user'           => 'nobody',
        '--pid'            => "$dir/pid",
        @more, $app
    );
}

sub served ()         { return $authority->served($port{tls}) }
sub renewed ($folder) { return $authority->renewed($port{tls}, $folder) }

# Files of the folder with a key, and places that lead into the memory and to the descriptors of a process.
sub places ($folder, @pids) {
    my @keys = grep { -f && content($_) =~ /PRIVATE KEY/ } glob "$folder/* $folder/*/*";
    return (\@keys, [ map { ("/proc/$_/mem", "/proc/$_/fd", glob "/proc/$_/fd/*") } @pids ]);
}

# All processes of the server, by pid, with their command lines.
sub family ($pid) {
    my %family;
    for (my @left = $pid; @left;) {
        my $one = shift @left;
        $family{$one} = content("/proc/$one/cmdline") =~ tr/\0/ /r;
        push @left, children($one);
    }
    return \%family;
}

# The scalar of the key, as OpenSSL has it in memory. CryptX leaves zeros out at its beginning: one key of 256
# has some.
sub secret_of ($folder) {
    my ($der) =
        content("$folder/certificates/example.org.pem") =~ /-----BEGIN EC PRIVATE KEY-----\n(.*?)-----END/s;
    my ($key) = decode_base64($der) =~ m{\x02\x01\x01\x04(.*)}s or die 'not such a key';
    return scalar reverse unpack 'C/a*', $key;
}

sub has_in_memory ($pid, $bytes) {
    open my $maps,   '<',     "/proc/$pid/maps" or return 0;
    open my $memory, '<:raw', "/proc/$pid/mem"  or return 0;
    no warnings qw(portable);
    while (my $line = readline $maps) {
        my ($from, $to, $what) = $line =~ /\A([0-9a-f]+)-([0-9a-f]+) rw.. \S+ \S+ \S+ *(.*)/ or next;
        next if $what =~ m{\A/};
        sysseek $memory, hex $from, 0 or next;
        sysread $memory, my $block, hex($to) - hex $from or next;
        return 1 if index($block, $bytes) >= 0;
    }
    return 0;
}

# The application's, which may just be replaced.
sub answer () {
    return wait_for(sub {
        my $answer = HTTP::Tiny->new(timeout => 20)->get("http://127.0.0.1:$port{plain}/");
        return $answer->{success} && $answer->{content};
    });
}

# An application's process and all that it tries. Its pid.
sub cannot_read ($folder, $when) {
    my $master = pid_in('pid');
    my $family = family($master);
    my ($keys, $others) = places($folder, sort { $a <=> $b } keys %$family);
    write_file('places', encode_json([ @$keys, @$others ]));
    my ($pid, $uid, $opened) = @{ decode_json(answer()) };
    is $uid, scalar getpwnam 'nobody', "$when: the application has another user";
    cmp_ok scalar(@$keys), '>=', 2, '... there are files with keys' or diag "@$keys";
    # The interpreter's own descriptors and memory are the application's.
    my @opened = grep { !m{^/proc/$pid/} } @$opened;
    is_deeply \@opened, [], '... none of which it can open, nor what leads to them';
    my $secret = secret_of($folder);
    my @have   = grep { has_in_memory($_, $secret) } sort keys %$family;
    ok scalar(@have), '... a key is in memory';
    is_deeply [ grep { $family->{$_} =~ /\(worker|\(template/ } @have ], [],
        '... but in no process with an application';
    return $pid;
}

# With a template there is one process more with the application, and none less.
for my $preload (only_in_full('--no-preload-app'), '--preload-app') {
    subtest "process, $preload" => sub {
        my $folder = "$dir/process$preload";
        my $server = serve($folder, '--engine', 'process', '--workers', 1, $preload);
        ok wait_for(sub { served() }), 'a certificate is served';
        cannot_read($folder, 'after the start');
        ok renewed($folder), 'a renewal is served, which nobody had the right to read';
        my $pid = cannot_read($folder, 'after a renewal');

        $server->signal('HUP');
        ok wait_for(sub { is_gone($pid) }), 'a HUP replaces the worker';
        ok served(),                        '... and the certificate stays';
        unlike $server->log, qr/cannot be (?:used|read)/, '... without a complaint';
        $pid = cannot_read($folder, 'after a HUP');
        ok renewed($folder), 'a renewal after a HUP is served';

        my ($engine) = grep { content("/proc/$_/cmdline") =~ /\(engine/ } children($server->pid);
        my $before = served();
        kill KILL => $engine;
        ok wait_for(sub { served() eq $before }), 'after the end of an engine the next one has it';
        cannot_read($folder, 'after the end of an engine');

        my $old = pid_in('pid');
        kill USR2 => $old;
        ok wait_for(sub { pid_in('pid') && pid_in('pid') != $old }), 'another program takes over';
        ok wait_for(sub { is_gone($old) }),                          '... and the old one leaves';
        is served(), $before, '... with the same certificate';
        cannot_read($folder, 'after USR2');
        ok renewed($folder), 'a renewal after USR2 is served';
        is((stat "$folder/certificates/example.org.pem")[4], 0, '... whose file is root\'s');

        ok(Peregrine::Acme::Store->new($folder)->is_served, '... and certificates are ordered still');
        my $new = pid_in('pid');
        kill TERM => $new;
        ok wait_for(sub { is_gone($new) }), 'the last program ends';
        ok wait_for(sub { !Peregrine::Acme::Store->new($folder)->is_served }),
            '... and so does the process for certificates';
        $server->wait;
    };
}

subtest 'a folder that another user has' => sub {
    my $folder = "$dir/owned";
    my ($uid, $gid) = (getpwnam 'daemon')[ 2, 3 ];
    mkdir $folder or die $!;
    chown $uid, $gid, $folder or die $!;
    my $server = serve($folder, '--engine', 'process', '--workers', 1);
    ok wait_for(sub { served() }), 'a certificate is served';
    is((stat "$folder/certificates/example.org.pem")[4], $uid, 'certificates are that user\'s');
    cannot_read($folder, 'with that');
    ok renewed($folder), 'a renewal is served';

    my $lock = "$folder/states/.servers";
    my ($child) =
        map { m{(\d+)} } grep { my $to = readlink; defined $to && $to eq $lock } glob '/proc/[0-9]*/fd/*';
    my ($keeper) = content("/proc/$child/stat") =~ /\) \S (\d+)/;
    kill KILL => $child;
    ok $server->wait_for_log(qr/orders certificates was killed by SIGKILL; it is started again in 60 s/),
        'the end of the process that orders is told';
    kill KILL => $keeper;
    ok $server->wait_for_log(qr/the process for certificates has ended: none is renewed until the server is/),
        'the end of the one with the rights is told, too';
    ok served(), '... and the certificate stays';
    is $server->stop, 0, 'the server ends well';
};

subtest 'a folder that the application can read' => sub {
    my $folder = "$dir/open";
    mkdir $folder or die $!;
    chown +(getpwnam 'nobody')[ 2, 3 ], $folder or die $!;
    my $server = serve($folder, '--engine', 'process', '--workers', 1);
    ok $server->wait_for_log(qr/the folder \Q$folder\E belongs to the server's user: applications can read/),
        'is told';
    ok wait_for(sub { served() }), 'a certificate is served';
    is $server->stop, 0, 'the server ends well';
};

package TestLog {
    sub error ($self, $text) { push @$self, $text; return }
}

subtest 'a file that cannot be used' => sub {
    my $log  = bless [], 'TestLog';
    my $tls  = PAGI::Server::TLS->new({ validation_dir => $dir });
    my $good = content("$dir/owned/certificates/example.org.pem");
    my $take = sub (@texts) {
        my @names = map { write_file("given$_", $texts[$_]) && "given$_.example" } 0 .. $#texts;
        my @fds   = map { POSIX::open("$dir/given$_") // die $! } 0 .. $#texts;
        @$log = ();
        my $taken = $tls->take($log, join(',', @names), @fds);
        is_deeply [ map { defined POSIX::dup($_) ? 1 : 0 } @fds ], [ map { 0 } @fds ],
            'descriptors are closed';
        return $taken;
    };
    ok $take->($good, $good), 'good ones are taken';
    is_deeply [@$log], [], '... without a word';
    ok !$take->($good, $good =~ s/-----BEGIN EC.*//sr, $good), 'one without a key is not';
    is scalar(@$log), 1, '... which is told once';
    like $log->[0],
        qr/\Athe certificate for given1\.example cannot be used, the old one stays: .*no PEM private key: given1/,
        '... by its name';
    ok !$take->('x' x (1 << 20)), 'nor is a file that is too long';
    like $log->[0], qr/cannot be read, or is too long: given0\.example/, '... which is told, too';
    $log = bless [], 'TestLog';
    my $other = PAGI::Server::TLS->new({ cert_dir => "$dir/owned/certificates" });
    is $other->take($log, 'a.example', POSIX::open("$dir/given1")), undef,
        'where none are ordered, none is taken';
    like $log->[0], qr/only where there is a validation_dir/, '... which is told';
};

for my $case (only_in_full([ inline => [] ]), [ prefork => [ '--workers', 2, '--preload-app' ] ]) {
    my ($name, $options) = @$case;
    subtest $name => sub {
        my $folder = "$dir/$name";
        my $server = serve($folder, @$options);
        ok wait_for(sub { served() }), 'a certificate is served';
        ok renewed($folder),           'a renewal is served, though its file is root\'s';
        is((stat "$folder/certificates/example.org.pem")[4], 0, '... by its owner');
        is $server->stop, 0, 'the server ends well';
    };
}

done_testing;
