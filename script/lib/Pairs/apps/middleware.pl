# An application with a lifespan, behind middleware.
use v5.36;
use Future::AsyncAwait;
use PAGI::Middleware::Builder;
use Pairs::AppPAGI;
use Pairs::Content;
Pairs::Content::version();
our %config = (name => 'not started');
sub name { return $config{name} }
my $inner = Pairs::AppPAGI->app(name => \&name);

# Without signatures, like most applications.
async sub lifespan {
    my ($receive, $send) = @_;
    await $receive->();
    await IO::Async::Loop->new->delay_future(after => 0.05);
    $config{name} = 'plain';
    await $send->({ type => 'lifespan.startup.complete' });
    await $receive->();
    await $send->({ type => 'lifespan.shutdown.complete' });
}

my $app = async sub {
    my ($scope, $receive, $send) = @_;
    return await lifespan($receive, $send) if $scope->{type} eq 'lifespan';
    await $inner->($scope, $receive, $send);
};

builder {
    enable 'SecurityHeaders';
    mount '/mounted' => $inner;
    $app;
};
