# A mount: its functions and variables have the names of those in one.pl and one.psgi.
use v5.36;
use Pairs::AppPSGI;
use Pairs::Content;
Pairs::Content::version();
our %config = (name => 'two');
sub name { return $config{name} }
Pairs::AppPSGI->app(name => sub { name() });
