# An application of PSGI that blocks when it waits.
use v5.36;
use Pairs::AppPSGI;
use Pairs::Content;
Pairs::Content::version();
our %config = (name => 'plain');
sub name { return $config{name} }
Pairs::AppPSGI->app(name => \&name);
