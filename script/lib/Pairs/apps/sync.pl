# The application of pagi.pl, whose handlers of requests may block: they run in processes of their own.
use v5.36;
use Future::AsyncAwait;
use PAGI::Sync qw(sync);
use Pairs::AppPAGI;
use Pairs::Content;
Pairs::Content::version();
our %config = (name => 'plain');
sub name { return $config{name} }
my $inner  = Pairs::AppPAGI->app(name => \&name);
my $blocks = sync($inner);

async sub ($scope, $receive, $send) {
    return await $inner->($scope, $receive, $send) if $scope->{type} ne 'http';
    return await $blocks->($scope, $receive, $send);
};
