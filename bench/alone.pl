# Calls an application of PAGI without a server, for `script/bench-instructions --alone`:
#
#     perl bench/alone.pl FILE COUNT [plain]
#
# `$send` returns the same ready Future at each call and reads nothing. With `plain` the file is compiled
# without the words `async` and `await`: only the application's own statements are left, and its events.
use strict;
use warnings;

use Future;

my ($file, $count, $plain) = @ARGV;
open my $handle, '<', $file or die "$file: $!\n";
my $text = do { local $/ = undef; <$handle> };
$text =~ s/\b(?:async|await) +//g if $plain;
my $application = eval "#line 1 $file\n$text" or die $@ || "$file: no application\n";

my $ready   = Future->done;
my $send    = sub { return $ready };
my $receive = sub { die "the application asks for events\n" };
my %scope   = (type => 'http', method => 'GET', path => '/', headers => []);
for (1 .. $count) {
    my $end = $application->(\%scope, $receive, $send);
    die $end->failure if ref $end && $end->failure;
}
