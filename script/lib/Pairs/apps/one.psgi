# The functions and variables of this file and of two.psgi have the same names.
use v5.36;
use Pairs::AppPSGI;
use Pairs::Content;
Pairs::Content::version();
our %config = (name => 'one');
sub name { return $config{name} }
Pairs::AppPSGI->app(name => sub { name() });
