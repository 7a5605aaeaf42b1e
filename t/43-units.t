# The unit files in examples/systemd: systemd finds nothing wrong with them, and their options are
# those of pagi-server.
use strict;
use warnings;

use lib 't/lib';
use Cwd        qw(getcwd);
use File::Temp ();
use PAGI::Server::CommandLine;
use Test::More;
use TestTools qw(content);

my @units   = glob 'examples/systemd/*';
my $service = content('examples/systemd/app.service');

my ($command) = $service =~ m{^ExecStart=/usr/local/bin/pagi-server (.*)$}m;
my ($given, @words) = PAGI::Server::CommandLine->parse(split ' ', $command);
is_deeply \@words, ['/srv/app/app.pl'], 'the command line is understood';
ok eval { PAGI::Server::CommandLine->values_of($given); 1 }, 'with its values' or diag ref $@ ? ${$@} : $@;
like $service, qr/^Type=notify$/m,      'systemd waits for the start';
like $service, qr/^ExecReload=.*-HUP/m, 'and reloads by HUP';

subtest 'systemd-analyze verify' => sub {
    my ($analyze) = grep { -x } map { "$_/systemd-analyze" } split /:/, $ENV{PATH};
    plan skip_all => 'needs systemd-analyze (Debian: systemd)' if !$analyze;
    # systemd-analyze looks for the programs that the units name.
    my $dir = File::Temp->newdir;
    for my $unit (@units) {
        my $text = content($unit) =~ s{/usr/local/bin/pagi-server}{${\getcwd()}/bin/pagi-server}r;
        open my $out, '>', $dir . $unit =~ s{.*(?=/)}{}r or die $!;
        print {$out} $text;
        close $out or die $!;
    }
    my $said = `SYSTEMD_UNIT_PATH=$dir: $analyze verify $dir/app.service $dir/app.socket 2>&1`;
    is $?, 0, 'both are well';
    unlike $said, qr/app\.(?:service|socket)/, 'nothing is said of them' or diag $said;
    system qq(echo 'Tipe=notify' >> $dir/app.service);
    like `SYSTEMD_UNIT_PATH=$dir: $analyze verify $dir/app.service 2>&1`, qr/Tipe/, 'a mistake would be seen';
};

# The files of script/deb's package, which are not in the tarball.
subtest 'the Debian package' => sub {
    plan skip_all => 'needs a clone' if !-d 'packaging/debian';
    my $unit = content('packaging/debian/peregrine@.service');
    my ($words) = $unit =~ m{^ExecStart=/usr/bin/peregrine (.*)$}m;
    my ($read, @more) = PAGI::Server::CommandLine->parse(split ' ', $words);
    is_deeply [ $read, @more ], [ { config => '/etc/peregrine/%i.conf' } ], 'its unit reads a file';
    like $unit, qr/^User=peregrine$/m, '... as the user that the package makes';
    like content('packaging/debian/peregrine.postinst'), qr/adduser .* peregrine$/ms, '... which it does';

    my ($depends) = content('packaging/debian/control') =~ /^Depends: (.*?)^\S/ms;
    my %version = $depends =~ /lib([\w-]+)-perl \(>= ([\d.]+)\)/g;
    my %needed;
    for (split /\n/, content('cpanfile') =~ s/^on .*//msr) {
        my ($module, $least) = /^requires '([A-Z][\w:]*)'\s*=> '([\d.]+)'/;
        $needed{ lc($module) =~ s/::/-/gr } = $least if defined $module;
        $needed{'io-async-loop-epoll'}      = $1     if /^recommends 'IO::Async::Loop::Epoll' => '([\d.]+)'/;
    }
    is_deeply \%version, \%needed, 'it depends on what cpanfile names';
};

done_testing;
