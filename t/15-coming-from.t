# PAGI::Server::ComingFrom: each of our options that it names is one, and those of a part work together.
use strict;
use warnings;
use experimental 'signatures';

use lib 't/lib';
use Certificates;
use File::Temp   ();
use ManualTables qw(tables);
use PAGI::Server;
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools qw(content free_port wait_for);

plan skip_all => 'built without TLS' if !PAGI::Server->has_tls;

my $manual = 'lib/PAGI/Server/ComingFrom.pod';
my %table  = tables($manual);
my $home   = File::Temp->newdir;
my $files  = Certificates->new;
local $ENV{PERL5LIB} = join ':', @INC, $ENV{PERL5LIB} // ();
$files->authority('ca')->issue('localhost');
open my $variables, '>', "$home/app.env" or die "$home/app.env: $!";
print {$variables} "COLOUR=blue\n";
close $variables or die $!;

# Our options of a part, with files and places that are there.
sub ours ($part, $column) {
    my @words = map { split ' ' }
        grep { /\A-\w|\A--/ } map { $_->{$column} } @{ $table{$part} };
    for my $i (1 .. $#words) {
        $words[$i] = $files->path($words[ $i - 1 ] =~ /cert/ ? 'localhost.pem' : 'localhost.key')
            if $words[$i] eq 'FILE';
        $words[$i] = "$home/app.env"            if $words[$i] eq 'app.env';
        $words[$i] = "$home/socket"             if $words[$i] =~ /\.sock\z/;
        $words[$i] = '127.0.0.1:' . free_port() if $words[$i] =~ /:9100\z/;
    }
    return @words;
}

# The words of another handler, as they are.
subtest 'STARLET' => sub {
    my @options = ours('STARLET', 'plackup -s Peregrine');
    cmp_ok(scalar @options, '>', 8, 'has options') or return;
    my $port   = free_port();
    my @app    = ('-e',       'sub { [ 200, [], ["served"] ] }');
    my @listen = ('--listen', "127.0.0.1:$port");
    my $server = TestServer->spawn(qw(plackup -s Peregrine -E production), @listen, @options, @app);
    is(answer_of($port)->{body}, 'served', "plackup -s Peregrine @options")
        or diag $server->log;
    is($server->stop, 0, '... and ends well');
};

sub answer_of ($port) {
    my $answer;
    wait_for(
        sub {
            return $answer = eval { get($port, '/') }
        },
        60
    );
    return $answer // {};
}

# Options that exclude each other are looked at one after the other.
my %other = ('--listen' => 1, '--port' => 1, '--socket' => 1, '--mount' => 1);
for my $case (
    [ STARMAN   => 'peregrine',   'examples/psgi/hello/app.psgi' ],
    [ UWSGI     => 'peregrine',   'examples/psgi/hello/app.psgi' ],
    [ HYPNOTOAD => 'peregrine',   'examples/psgi/hello/app.psgi' ],
    [ UVICORN   => 'pagi-server', 'examples/01-hello-http/app.pl' ],
    )
{
    my ($part, $command, $app) = @$case;
    subtest $part => sub {
        my @words = ours($part, $command);
        cmp_ok(scalar @words, '>', 15, 'has options');
        my (@together, @alone);
        while (@words) {
            my @option = shift @words;
            push @option, shift @words while @words && $words[0] !~ /\A--/;
            if ($option[0] eq '--mount') {
                push @alone, [ '--mount', "$option[1]=$app" =~ s/=.*=/=/r ];
            }
            elsif ($other{ $option[0] }) { push @alone, [ @option, $app ] }
            else                         { push @together, @option }
        }
        for my $options ([ @together, $app ], @alone) {
            # Only root may become somebody else.
            my %needs_root = $> ? ('--user' => 1, '--group' => 1) : ();
            for (my $at = 0; $at < @$options;) {
                if ($needs_root{ $options->[$at] }) { splice @$options, $at, 2 }
                else                                { $at++ }
            }
            my ($status, undef, $err) = TestServer->finish_of($command, '--check', @$options);
            is($status, 0, "$command @$options") or diag $err;
        }
    };
}

subtest 'a script of Mojolicious' => sub {
    plan skip_all => 'Mojolicious is not installed'
        if !eval { require Mojolicious::Lite };
    open my $out, '>', "$home/app" or die $!;
    print {$out} "use Mojolicious::Lite;\nget '/' => sub { \$_[0]->render(text => 'mojo') };\napp->start;\n";
    close $out or die $!;
    my $port = free_port();
    my @run =
        ($^X, (map { "-I$_" } @INC), 'bin/peregrine', qw(--workers 1));
    # Mojolicious takes EV if that is installed, and clones cannot use EV.
    local $ENV{MOJO_REACTOR} = 'Mojo::Reactor::Poll';
    my $server = TestServer->spawn(@run, '--listen', "127.0.0.1:$port", '--mount', "/=$home/app,psgi");
    is(answer_of($port)->{body}, 'mojo', 'is served by --mount with ,psgi')
        or diag $server->log;
    is($server->stop, 0, '... and ends well');
};

# The two lines that each part begins with.
my @ours = content($manual) =~ /^    ((?:pagi-server --|peregrine --|start_server .*-s Peregrine).*)$/mg;
is(scalar @ours, 5, 'five command lines');
my %option = map { $_ => 1 }
    map { split ' ' } map { values %$_ } map { @$_ } values %table;
for my $line (@ours) {
    my @unknown = grep { /\A--\w/ && !$option{$_} } split ' ', $line;
    is("@unknown", '', "$line has options of the tables");
}

done_testing;
