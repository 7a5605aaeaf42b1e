# script/fuzz events SECONDS: sends events made of hostile Perl values (t/lib/EventFuzz.pm) from ever new
# seeds to the bridge, compiled with AddressSanitizer. PEREGRINE_SEED=N: only this seed. A finding is reported
# with its seed, and ends the run.
use v5.36;
use File::Basename qw(dirname);
use lib dirname(__FILE__);
use Sanitized;

my $AT_ONCE = 100;    # seeds for one server

chdir dirname(__FILE__) . '/../..' or die "script/fuzz: $!\n";
exit main(@ARGV);

sub main ($seconds) {
    my $folder      = Sanitized::build();
    my %environment = Sanitized::environment();
    local @ENV{ keys %environment } = values %environment;
    Sanitized::forget();
    my $single = $ENV{PEREGRINE_SEED};
    my $first  = $single // time * 1000 % 1_000_000_000;
    for (my $end = time + $seconds; time < $end; $first += $AT_ONCE) {
        my $last = $single // $first + $AT_ONCE - 1;
        my $code =
              'my @found = EventFuzz::run(@ARGV[0, 1], validate_events => $ARGV[0] % 2);'
            . ' print "$_\n" for @found; exit !!@found';
        my $failed = system $^X, "-I$folder", '-Iblib/lib', '-It/lib', '-MEventFuzz', '-e', $code, $first,
            $last;
        my @found = Sanitized::findings();
        print "$_\n" for @found;
        return 1 if $failed || @found;
        say "events: no finding from seed $first to $last";
        last if defined $single;
    }
    return 0;
}
