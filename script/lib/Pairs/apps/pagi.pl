# An application of PAGI that awaits.
use v5.36;
use Pairs::AppPAGI;
use Pairs::Content;
Pairs::Content::version();
our %config = (name => 'plain');
sub name { return $config{name} }
Pairs::AppPAGI->app(name => \&name);
