# Lets testssl.sh judge the defaults of our TLS: starts pagi-server with a certificate that it makes, and
# fails when testssl.sh finds a weakness of the server. Arguments go to testssl.sh, which script/conformance
# has installed.
use v5.36;
use Cwd            qw(realpath);
use File::Basename qw(dirname);
use JSON::PP       ();

my $ROOT = realpath(dirname(__FILE__) . '/../..');
use lib realpath(dirname(__FILE__) . '/../..') . '/t/lib';
use Certificates;
use TestServer;

# Findings that do not concern the server: the certificate's authority and revocation, DNS, headers of
# applications, and errors of testssl.sh itself.
my %NOT_OURS = map { $_ => 1 } qw(cert_revocation DNS_CAArecord HSTS security_headers engine_problem);
my %HARMLESS = map { $_ => 1 } qw(OK INFO);

my $PATIENCE = 1500;    # seconds; testssl.sh takes three minutes on a quiet machine

chdir $ROOT or die "$ROOT: $!\n";
exit main(@ARGV);

sub main (@arguments) {
    alarm $PATIENCE;
    my $files = Certificates->new->authority('ca');
    my $found = 0;
    for my $bits (0, 2048) {
        my $name = $bits ? 'rsa' : 'ecdsa';
        $files->issue(
            $name,
            bits       => $bits,
            days       => 90,
            subject    => '/CN=localhost',
            extensions => [ 'subjectAltName=DNS:localhost', 'extendedKeyUsage=serverAuth' ],
        );
        $found += judge($files, $name, @arguments);
    }
    return $found ? 1 : 0;
}

sub judge ($files, $name, @arguments) {
    my $server = TestServer->command(
        'examples/pagi/hello/app.pl',
        '--ssl-cert' => $files->path("$name.pem"),
        '--ssl-key'  => $files->path("$name.key"),
    );
    my $report = $files->path("$name.json");
    my $status = system qw(testssl --quiet --color 0 --warnings off --ip one), '--add-ca',
        $files->path('ca.pem'),
        '--jsonfile', $report, @arguments, 'localhost:' . $server->port;
    $server->stop;
    -s $report or die "conformance: testssl.sh made no report (status $status)\n";
    my $list     = JSON::PP->new->decode($files->read("$name.json"));
    my @findings = grep { !$HARMLESS{ $_->{severity} } && !$NOT_OURS{ $_->{id} } } @$list;
    say "$name: @{[scalar @$list]} checks, @{[scalar @findings]} findings";
    say "  $_->{severity} $_->{id}: $_->{finding}" for @findings;
    return scalar @findings;
}
