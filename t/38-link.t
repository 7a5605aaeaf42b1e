# Links between processes: a message whose descriptors find no room ends a link, as the end of the other process
# does, but is told apart from it.
# Not repeated for each PEREGRINE_ENGINE: there is none.
use strict;
use warnings;

use lib 't/lib';
use Peregrine::Child;
use Peregrine::Link;
use Test::More;
use TestTools ();    # for its deadline

plan skip_all => 'Linux only' if $^O ne 'linux';

package Log {
    sub error { my ($self, $text) = @_; $$self = $text; return }
}

package Process {
    sub stop_once { return }
}

# The log of a child whose link has ended.
sub told {
    my ($link) = @_;
    my $text   = '';
    my $log    = bless \$text, 'Log';
    Peregrine::Child::_orphaned({ link => $link, log => $log, process => bless({}, 'Process') });
    return $text;
}

my ($gone, $left) = Peregrine::Link->pair;
$gone->close;
is_deeply [ $left->read_lines ], [], 'nothing comes from a process that has ended';
ok $left->has_ended,   '... which is seen';
ok !$left->lacks_room, '... as its end';
is told($left), 'the master has gone: the worker stops', '... and said';

my ($here, $there) = Peregrine::Link->pair;
$here->say(first => 'text');
$here->say(reopen => 'text', fileno STDERR);
$here->say('last');
system('prlimit', '--pid', $$, '--nofile=3:') == 0 or die "prlimit: $?";
is_deeply [ $there->read_lines ], [ [ first => 'text' ] ], 'messages come until descriptors find no room';
ok $there->has_ended,  'the link ends there';
ok $there->lacks_room, '... for that reason';
is told($there), 'no descriptor is left for those that the master sends: the worker stops', '... and says so';

done_testing;
