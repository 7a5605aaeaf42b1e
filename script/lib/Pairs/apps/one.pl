# The functions and variables of this file and of two.pl, two.psgi, have the same names.
use v5.36;
use Pairs::AppPAGI;
use Pairs::Content;
Pairs::Content::version();
our %config = (name => 'one');
sub name { return $config{name} }
Pairs::AppPAGI->app(name => sub { name() });
