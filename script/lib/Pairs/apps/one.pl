# A mount: its functions and variables have the names of those in two.pl and two.psgi.
use v5.36;
use Pairs::AppPAGI;
use Pairs::Content;
Pairs::Content::version();
our %config = (name => 'one');
sub name { return $config{name} }
Pairs::AppPAGI->app(name => sub { name() });
