# Parts of files of Mojolicious: of large ones, which the kernel sends, and of small ones, which are read.
# Not repeated for each PEREGRINE_ENGINE.
use strict;
use warnings;

use lib 't/lib';
use OnlyInFull qw(only_in_full);
use Test::More;
use TestClient qw(exchange get);
use TestServer;
use TestTools   ();
use TestWorkers qw(directory write_file);

BEGIN {
    for my $module (qw(Mojolicious Linux::Epoll IO::Async::Loop::Epoll)) {
        plan skip_all => "needs $module" if !TestTools::has_module($module);
    }
}

sub bytes {
    my ($size) = @_;
    return join '', map { sprintf '%06d,', $_ } 1 .. $size / 7;
}
my %FILES = map { $_ => bytes($_) } 7_000, 140_000, 3_500_000;

mkdir directory() . '/public' or die "public: $!";
write_file("public/$_.bin", $FILES{$_}) for keys %FILES;
my $app = write_file('app.pl', <<'END');
use Mojolicious::Lite -signatures;
app->log->level('fatal');
# A part that the application has chosen itself.
get '/own/:name' => sub ($c) {
    my $asset = app->static->file($c->param('name') . '.bin')->start_range(7)->end_range(6_000);
    $c->res->headers->content_length(5_994);
    $c->res->content->asset($asset);
    $c->rendered(200);
};
app->start;
END

# First and last byte that are asked for; undef: to the end.
my @PARTS = ([ 0, 0 ], [ 10, 99 ], [ 0, 6_998 ], [ 1, 9_999_999 ], [ 5_000, undef ]);

sub part_of {
    my ($bytes, $first, $last) = @_;
    return defined $last ? substr($bytes, $first, $last - $first + 1) : substr $bytes, $first;
}

for my $placement (only_in_full([qw(inline 0)], [qw(thread 0)]), [qw(process 1)]) {
    my ($engine, $workers) = @$placement;
    subtest "--engine $engine" => sub {
        my $server = TestServer->command_of(qw(peregrine --no-access-log --workers),
            $workers, '--engine', $engine, $app);
        my $port = $server->port;
        for my $size (sort { $a <=> $b } keys %FILES) {
            my $bytes = $FILES{$size};
            ok get($port, "/$size.bin")->{body} eq $bytes, "$size bytes: the whole file";
            for my $part (@PARTS) {
                my $range = join '-', map { $_ // '' } @$part;
                my $got   = get($port, "/$size.bin", "Range: bytes=$range") || { body => 'no answer' };
                my $right = part_of($bytes, @$part);
                is $got->{status}, 206, "... bytes $range";
                ok $got->{body} eq $right, '... are those'
                    or diag length($got->{body}), ' of ', length $right;
            }
            my $own = substr $bytes, 7, 5_994;
            ok get($port, "/own/$size")->{body} eq $own, '... and those that it has chosen';
            my $head = exchange($port, "HEAD /$size.bin HTTP/1.1\r\nHost: h\r\nRange: bytes=10-99\r\n\r\n",
                head => 1);
            is "$head->{status} $head->{header}{'content-length'}", '206 90', '... HEAD';
        }
        is $server->stop, 0, 'the server ends well';
    };
}

done_testing;
