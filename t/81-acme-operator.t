# The operator's view of certificates that a server orders: commands, metrics, the status page's
# facts, and an error every day when one ends soon.
use strict;
use warnings;
use experimental 'signatures';

use lib 't/lib';
use File::Temp ();
use HTTP::Tiny;
use JSON::PP   qw(decode_json);
use OnlyInFull qw(only_in_full);
use PAGI::Server;
use Test::More;
use Time::HiRes qw(time);

use TestBrowser;
use TestServer;
use TestTools qw(content free_port program_path wait_for);

plan skip_all => 'built without TLS'       if !PAGI::Server->has_tls;
plan skip_all => 'pebble is not installed' if !program_path('pebble');
plan skip_all => 'CryptX is not installed' if !eval { require CryptX; 1 };
require Pebble;
require Peregrine::Server::Certificates;
require Peregrine::Server::CertificateTable;

my $dir  = File::Temp->newdir;
my $http = HTTP::Tiny->new(timeout => 20);
my $app  = 'examples/pagi/hello/app.pl';
my %port = map { $_ => free_port() } qw(plain tls status);

sub options ($pebble, $folder) {
    return (
        '--listen', "127.0.0.1:$port{plain},plain",
        '--listen', "127.0.0.1:$port{tls}",
        '--acme-agree',
        '--acme'           => 'example.org,www.example.org',
        '--acme-directory' => $pebble->directory,
        '--acme-ca'        => $pebble->roots,
        '--acme-folder'    => $folder,
        '--status'         => "127.0.0.1:$port{status}",
    );
}

sub metrics () {
    my $text = $http->get("http://127.0.0.1:$port{status}/metrics")->{content};
    return { $text =~ /^peregrine_certificate_(\S+) (\S+)$/mg };
}

sub facts () {
    return decode_json($http->get("http://127.0.0.1:$port{status}/status.json")->{content})->{certificates};
}

sub command (@words) {
    my ($status, $out, $error) = TestServer->finish_of('peregrine', @words);
    return { status => $status, out => $out, error => $error };
}

sub on_the_page () {
    return if !TestBrowser->is_there;
    my $browser = TestBrowser->start;
    $browser->go("http://127.0.0.1:$port{status}/");
    my $row = $browser->wait_for_text('#certificates tbody tr', qr/is invalid/);
    like $row, qr/example\.org www\.example\.org\s+\d+ d\s+\S+ \S+ ago\s+in \S+ \S+\s+1\s+the auth/,
        'the page shows it';
    return;
}

my $authority = Pebble->new(http_port => $port{plain}, tls_port => $port{tls});

for my $workers (only_in_full(0), 2) {
    subtest "workers: $workers" => sub {
        my $folder = "$dir/workers$workers";
        my @where  = ('--acme-folder', $folder);
        my $server = TestServer->command(options($authority, $folder), '--workers', $workers, $app);
        ok $server->wait_for_log(qr/certificate for example\.org www\.example\.org has come/),
            'a certificate comes';
        ok wait_for(sub { (metrics()->{'renewals_total{host="example.org"}'} // 0) == 1 }), '... is counted';
        ok wait_for(sub { (metrics()->{'expires_seconds{host="www.example.org"}'} // 0) > 86400 }),
            '... and its end is known, by the name of each host';
        my $values = metrics();
        is $values->{'failures{host="example.org"}'},       0, 'nothing has failed';
        is $values->{'failures_total{host="example.org"}'}, 0, '... ever';
        cmp_ok abs(time - $values->{'attempt_timestamp_seconds{host="example.org"}'}), '<', 120,
            'the last attempt was just now';
        my ($shown) = @{ facts() };
        is_deeply $shown->{names}, [qw(example.org www.example.org)], 'the status has the names';
        cmp_ok $shown->{next}, '>', time + 86400, '... and the next attempt';
        is $shown->{problem}, undef, '... and no problem';

        my $list = command('certificates', @where);
        is $list->{status}, 0, 'certificates are listed';
        like $list->{out}, qr/\Aexample\.org\ www\.example\.org\n
                \s+issuer\s+Pebble\ .*\n
                \s+expires\s+\d{4}-\d\d-\d\d\ [\d:]+\ UTC,\ in\ \d+\ days\n
                \s+next\s+\d{4}-\d\d-\d\d\ [\d:]+\ UTC,\ in\ \d+\ days\n\z/x, '... with all that is known';
        my $before = content("$folder/certificates/example.org.pem");
        my $renew  = command('renew', 'WWW.example.org', @where);
        is $renew->{status}, 0, 'a certificate is renewed' or diag $renew->{error};
        like $renew->{out}, qr/\Aexample\.org /, '... and shown';
        isnt content("$folder/certificates/example.org.pem"), $before, '... at once';
        ok wait_for(sub { metrics()->{'renewals_total{host="example.org"}'} == 2 }), '... and counted';
        is command('renew', 'other.example', @where)->{status}, 1, 'names without a certificate are refused';

        $authority->forget_challenges;
        $renew = command('renew', @where);
        is $renew->{status}, 1, 'an attempt that fails';
        like $renew->{out}, qr/problem\s+1 attempt has failed: the auth\S+ for \S+ is invalid: \S/,
            '... is told';
        ok wait_for(sub { metrics()->{'failures{host="example.org"}'} == 1 }), '... and counted';
        is metrics()->{'failures_total{host="example.org"}'}, 1, '... twice';
        like facts()->[0]{problem}, qr/is invalid/, '... with its reason';
        on_the_page() if $workers;
        $authority->know_challenges;
        is command('renew', @where)->{status}, 0, 'the next one does not have to wait for its time';
        ok wait_for(sub { metrics()->{'failures{host="example.org"}'} == 0 }), '... and ends the row';
        is $server->stop, 0, 'the server ends well';

        $renew = command('renew', @where);
        is $renew->{status}, 1, 'without a server';
        like $renew->{error}, qr/no server has \S+: the next one that is started renews/, '... it says so';
        like command('certificates', @where)->{out}, qr/next\s.*, by no server/, '... and so does the list';
        $before = content("$folder/certificates/example.org.pem");
        $server = TestServer->command(options($authority, $folder), $app);
        ok wait_for(sub { content("$folder/certificates/example.org.pem") ne $before }),
            'the next one does it';
        is $server->stop, 0, 'the server ends well';
    };
}

subtest 'a configuration file names the folder' => sub {
    my $path = "$dir/app.conf";
    open my $out, '>', $path or die $!;
    print {$out} "acme-folder = workers2\nchdir = $dir\nworkers = 4\n";
    close $out or die $!;
    like command('certificates', '--config', $path)->{out}, qr/\Aexample\.org/, 'as for the server';
};

subtest 'mistakes' => sub {
    my $none = command('certificates', '--acme-folder', "$dir/none");
    is $none->{status}, 1, 'no folder';
    like $none->{error}, qr{\Q$dir\E/none/certificates: No such file}, '... is told';
    my $wrong = command('renew', '--workers', 2);
    isnt $wrong->{status}, 0, 'options of servers';
    like $wrong->{error}, qr/renew takes --acme-folder, --config and --chdir, not --workers/,
        '... are refused';
    ok !-e "$dir/none", 'nothing is made';
};

subtest 'an end that comes near' => sub {
    my $short  = Pebble->new(http_port => $port{plain}, validity => 12);
    my $server = TestServer->command(options($short, "$dir/near"), $app);
    ok $server->wait_for_log(qr/has come/), 'a certificate comes';
    $short->stop;
    ok $server->wait_for_log(
        qr/the certificate for example\.org www\.example\.org ends at [\d-]+ [\d:]+ UTC, and there is no new one: \S/
        ),
        'the log has an error before it ends';
    is $server->stop, 0, 'the server ends well';
};

# The clock of these is the test's.
my $now;
{
    no warnings 'redefine', 'once';
    *Peregrine::Server::Certificates::_look_again = sub { };
    *Peregrine::Server::Certificates::now         = sub { $now };
}

package TestLog {
    sub error ($self, $text) { push @$self, $text; return }
}

subtest 'an error every day' => sub {
    my $log   = bless [], 'TestLog';
    my $table = Peregrine::Server::CertificateTable->new([ ['a.example'], ['b.example'] ]);
    my $day   = 86400;
    my $it    = Peregrine::Server::Certificates->new(log => $log, table => $table, loop => undef);
    $table->set('a.example', from => 0, to => 0);
    $table->set('b.example', from => 10 * $day, to => 100 * $day, problem => 'no answer');
    my @days;
    for (my $hour = 60 * 24; $hour < 103 * 24; $hour++) {
        $now = $hour * 3600;
        my $before = @$log;
        $it->_tell_ends;
        push @days, $hour / 24 if @$log > $before;
    }
    is_deeply \@days, [ 85 .. 102 ], 'from the day on when a sixth of the time is left';
    like $log->[0],
        qr/\Athe certificate for b\.example ends at 1970-04-11 .*there is no new one: no answer\z/,
        'with the reason';
    like $log->[-1], qr/has ended at .*: clients refuse it/, 'and when it has ended';
    $table->set('b.example', from => 102 * $day, to => 192 * $day);
    my $count = @$log;
    $now = 103 * $day;
    $it->_tell_ends;
    is @$log, $count, 'a new one ends that';
};

done_testing;
