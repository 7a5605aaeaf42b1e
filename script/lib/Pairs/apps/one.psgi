# A mount: its functions and variables have the names of those in two.psgi.
use v5.36;
use Pairs::AppPSGI;
use Pairs::Content;
Pairs::Content::version();
our %config = (name => 'one');
sub name { return $config{name} }
Pairs::AppPSGI->app(name => sub { name() });
