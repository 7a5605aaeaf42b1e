# Two files of PSGI at paths, by the builder of Plack.
use v5.36;
use File::Basename qw(dirname);
use Plack::Builder;
use Plack::Util;
my $here = dirname(__FILE__);
builder {
    mount '/one' => Plack::Util::load_psgi("$here/one.psgi");
    mount '/two' => Plack::Util::load_psgi("$here/two.psgi");
};
