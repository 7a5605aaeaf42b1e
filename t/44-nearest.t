# A name that nobody knows is refused by an error that suggests the nearest one: keys of the constructor,
# flags, names in a configuration file, settings and keys of a place, keys of `ssl`.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use OnlyInFull qw(only_in_full);
use PAGI::Server;
use PAGI::Server::CommandLine;
use PAGI::Server::ConfigFile;
use Peregrine::Nearest;
use PAGI::Server::Options;
use Test::More;
use TestServer;
use TestTools qw(refused);

my $directory = File::Temp->newdir;

subtest 'the nearest of several words' => sub {
    my @known = qw(
        port host timeout max_header_size max_header_count ws_idle_timeout sse_idle_timeout access_log ktls
    );
    my @cases = (
        [ 'prot',              'port' ],
        [ 'prt',               'port' ],
        [ 'tiemout',           'timeout' ],
        [ '--time-out',        'timeout' ],
        [ 'AccessLog',         'access_log' ],
        [ 'access-log',        'access_log' ],
        [ 'max_header',        'max_header_size max_header_count' ],
        [ 'idle_timeout',      'ws_idle_timeout sse_idle_timeout' ],
        [ 'keepalive_timeout', 'timeout' ],
        [ 'tls',               '' ],
        [ 'x',                 '' ],
        [ 'bogus',             '' ],
        [ '',                  '' ],
        [ 'port' x 100,        '' ],
    );
    is(join(' ', Peregrine::Nearest::names($_->[0], @known)), $_->[1], "'$_->[0]'") for @cases;
    is(join(' ', Peregrine::Nearest::names('a_word', map { "a_word_$_" } 1 .. 4)), '', 'too many');
    is(Peregrine::Nearest::hint('bogus', @known),                                  '', 'no hint');
    is(Peregrine::Nearest::hint('prot', @known), q{ (did you mean 'port'?)},           'one name');
    is(Peregrine::Nearest::hint('a_word', 'a_wor1', 'a_wor2'),
        q{ (did you mean 'a_wor1' or 'a_wor2'?)}, 'two');
    is(Peregrine::Nearest::hint('ab', qw(ax ay ac)), q{ (did you mean 'ax', 'ay' or 'ac'?)}, 'three');
};

# The last character typed twice.
sub mistyped { return $_[0] . substr $_[0], -1 }

sub problem_in_file {
    my ($name) = @_;
    my $path = "$directory/options.conf";
    open my $out, '>', $path or die "$path: $!";
    print {$out} "$name = 1\n";
    close $out or die "$path: $!";
    return eval { PAGI::Server::ConfigFile->read($path); 1 } ? '' : ref $@ ? ${$@} : $@;
}

sub suggests {
    my ($text, $wrong, $name, $where) = @_;
    return like($text, qr/\Q$wrong\E.*\(did you mean [^()]*'\Q$name\E'/, "$name $where");
}

sub in_constructor {
    my ($option) = @_;
    return if $option->{only};
    my $wrong = mistyped($option->{name});
    return suggests(refused(app => sub { }, $wrong => 1), $wrong, $option->{name}, 'of the constructor');
}

# The flag of an option that has a long one.
sub flag_of {
    my ($option) = @_;
    my $flag = PAGI::Server::CommandLine::flag($option) // '';
    return length $flag < 2 ? undef : $flag;
}

sub on_command_line {
    my ($option) = @_;
    my $flag     = flag_of($option) // return;
    my $wrong    = '--' . mistyped($flag);
    my $problem  = eval { PAGI::Server::CommandLine->parse($wrong); 1 } ? '' : ${$@};
    return suggests($problem, $wrong, "--$flag", 'of the command line');
}

sub in_file {
    my ($option) = @_;
    my $name = $option->{name};
    return if !flag_of($option) || $name =~ /\A(?:config|check|completion|future_xs|version|help)\z/;
    return suggests(problem_in_file(mistyped($name)), mistyped($name), $name, 'of a file');
}

subtest 'a typing error in each option' => sub {
    my @ways = (\&in_constructor, \&on_command_line, \&in_file);
    for my $option (PAGI::Server::Options::all()) {
        # A way that the option does not have tries nothing, and the next one has its turn.
        for my $way (@ways) { last if $way->($option) && !only_in_full(1) }
        push @ways, shift @ways;
    }
};

subtest 'elsewhere' => sub {
    my $server = PAGI::Server->new(app => sub { });
    ok(!eval { $server->configure(time_out => 1); 1 }, 'configure');
    suggests($@, 'time_out', 'timeout', 'of configure');
    like($@, qr/ at \Q$0\E line /, '... where it was called');
    suggests(refused(app => sub { }, listen => 'h:1,cret=x'), 'cret', 'cert', 'of a setting');
    suggests(refused(app => sub { }, listen => { host => 'h', prot => 1 }), 'prot', 'port', 'of a place');
    suggests(refused(app => sub { }, ssl    => { cert_fiel => 'x' }), 'cert_fiel',  'cert_file', 'of ssl');
    suggests(
        refused(
            app => sub { },
            ssl => { key_file => 'x', cert_file => 'x', certificates => [ { keyfile => 'x' } ] }
        ),
        'keyfile',
        'key_file',
        'of a certificate'
    );
    my ($status, undef, $error) = TestServer->finish('--no-acces-log', 'app.pl');
    is($status, 2, 'pagi-server refuses the flag');
    suggests($error, '--no-acces-log', '--no-access-log', 'of a negation');
};

done_testing;
