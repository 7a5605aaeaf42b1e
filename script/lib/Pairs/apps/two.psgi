# The functions and variables of this file and of one.pl have the same names.
use v5.36;
use Pairs::AppPSGI;
use Pairs::Content;
Pairs::Content::version();
our %config = (name => 'two');
sub name { return $config{name} }
Pairs::AppPSGI->app(name => sub { name() });
