# Every option of the table, each from constructor, configure, command line and configuration file: a good
# value arrives, a bad one is refused by an error that names the option, the value and what is allowed.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use IO::Async::Loop;
use PAGI::Server;
use PAGI::Server::CommandLine;
use PAGI::Server::ConfigFile;
use PAGI::Server::Options;
use Peregrine::Server::Certificates;
use Test::More;
use TestTools qw(refused);

my $directory = File::Temp->newdir;
my $app       = sub { die "no\n" };

# By type: a good value, and one that cannot be. What has a range or a list of choices has them from there.
my %SAMPLES = (
    code         => [ $app,                     'word' ],
    class        => [ 'Poll',                   'a b' ],
    hash         => [ { x => {} },              'word' ],
    boolean      => [ 1,                        'maybe' ],
    flag         => [ 1,                        'maybe' ],
    channels     => [ 'redis://localhost',      'redis://localhost:0' ],
    topics       => [ 'app.',                   'app /' ],
    string       => [ 'word',                   '' ],
    word         => [ 'word',                   'two words' ],
    mode         => [ '0660',                   '0999' ],
    listen       => [ '[::1]:8080',             '127.0.0.1:99999' ],
    networks     => [ '10.0.0.0/8',             '10.0.0.0/33' ],
    hosts        => [ 'a.example, b',           'http://a.example' ],
    pool         => [ $0,                       '' ],
    folders      => [ '/s=t',                   'public' ],
    https        => [ 'https://ca.example/dir', 'http://ca.example/dir' ],
    certificates => [ 'a.example',              'localhost' ],
    target       => [ '/alive',                 'alive' ],
    targets      => [ '/,/login',               '/,login' ],
    tls          => [ undef,                    'word' ],
    rate         => [ '20/10',                  '20/x' ],
    log          => [ '-',                      [] ],
    format       => [ 'tiny',                   '%z' ],
    integer      => [],
    workers      => [],
    bytes        => [],
    seconds      => [],
    choice       => [],
);

# Values for options that do not take the sample of their type.
my %GOOD = (
    socket_owner         => $<,
    socket_group         => 0 + $(,
    disable_tls          => 0,
    x_sendfile           => '/tmp',
    acme_challenges      => '/tmp',
    redirect_http        => 0,
    sync_workers         => 1,
    h2_enable_push       => 0,
    max_header_count     => 50,
    write_high_watermark => 20_000,
);

# Other options that an option needs, with their values.
my %WITH = (
    engine       => { workers => 1 },
    sync_workers => { engine  => 'process', workers => 1 },
    acme         => {
        acme_agree  => 1,
        acme_folder => '/nonexistent/acme',
        listen      => [ '127.0.0.1:0,plain', '127.0.0.1:0' ],
    },
    map { $_ => { socket => '/tmp/x' } } qw(socket_mode socket_owner socket_group),
);

sub is_switch { return $_[0]{type} =~ /\A(?:boolean|flag)\z/ }

# A good value and a bad one.
sub samples {
    my ($option) = @_;
    my ($good, $bad) = @{ $SAMPLES{ $option->{type} } or BAIL_OUT("no sample of type $option->{type}") };
    ($good, $bad) = ($option->{of}[-1], 'none of them') if $option->{type} eq 'choice';
    ($good, $bad) = ($option->{least} || $option->{min} || 1, $option->{max} + 1)
        if $option->{type} =~ /\A(?:integer|workers|bytes|seconds)\z/;
    return ($GOOD{ $option->{name} } // $good, $bad);
}

# The part of an error's text that says which values are allowed.
sub allowed {
    my ($option) = @_;
    return qr/must be one of @{ $option->{of} }/ if $option->{of};
    return qr/must be \w/                        if is_switch($option) || !defined $option->{max};
    return qr/must be .* from \Q$option->{min}\E to \Q$option->{max}\E/;
}

sub says_why {
    my ($text, $option, $bad, $how) = @_;
    my @names  = ($option->{name}, grep { defined } PAGI::Server::CommandLine::flag($option));
    my ($name) = grep { $text =~ /option (?:'|--?)\Q$_\E\b/ } @names;
    my $shown  = ref $bad ? '' : $bad;
    my $ok     = $name && $text =~ /\Q$shown\E/ && $text =~ allowed($option);
    return ok($ok, "... a bad one is refused $how") || diag $text;
}

sub read_as_file {
    my ($line) = @_;
    my $path = "$directory/options.conf";
    open my $out, '>', $path or die "$path: $!";
    print {$out} "$line\n";
    close $out or die "$path: $!";
    return PAGI::Server::ConfigFile->read($path);
}

# Numbers as people write them.
my %WRITTEN = (
    integer => [ [ '1_000', 1000 ] ],
    bytes   => [
        [ '1_000',  1000 ],
        [ '2K',     2048 ],
        [ '2k',     2048 ],
        [ '1M',     1 << 20 ],
        [ '1G',     1 << 30 ],
        [ '1_000K', 1_024_000 ]
    ],
    seconds => [
        [ '500ms', 0.5 ],
        [ '30s',   30 ],
        [ '1.5m',  90 ],
        [ '2h',    7200 ],
        [ '.5s',   0.5 ],
        [ '1_000', 1000 ],
        [ '2.5',   2.5 ]
    ],
);
my %MALFORMED = (
    integer => [ '1__0', '_1',    '1_', '10K', '1e3',   '-1',  '0x10' ],
    bytes   => [ '1.5G', '10MB',  'K',  '1 K', '-1K',   '1_K', '9999999999G' ],
    seconds => [ '30 s', '30sec', '1d', 's',   '1m30s', '-1s', '1_s', '30S', 'inf', 'nan' ],
);

# A value from the command line or a file, or what is wrong with it.
sub value_of {
    my ($name, $read) = @_;
    my $values = eval { $read->() } or return (undef, ref $@ ? ${$@} : $@);
    my $value  = $values->{$name};
    return (ref $value eq 'ARRAY' ? $value->[0] : $value, '');
}

sub from_command_line {
    my ($option, $word) = @_;
    my $typed = PAGI::Server::CommandLine::typed($option);
    return value_of(
        $option->{name},
        sub {
            my ($given) = PAGI::Server::CommandLine->parse(is_switch($option) ? $typed : ($typed, $word));
            return PAGI::Server::CommandLine->values_of($given);
        }
    );
}

my @all = PAGI::Server::Options::all();
for my $option (@all) {
    my $name = $option->{name};
    my ($good, $bad) = samples($option);
    subtest $name => sub {
        my $lacks = $name eq 'acme' ? Peregrine::Server::Certificates::missing() : undef;
        plan skip_all => $lacks if $lacks;
        if (!$option->{only}) {
            my %with = (app => $app, quiet => 1, %{ $WITH{$name} || {} });
            is(refused(%with, $name => $good), '', 'the constructor takes a good value');
            says_why(refused(%with, $name => $bad), $option, $bad, 'by the constructor');
            my $server = PAGI::Server->new(%with);
            ok(eval { $server->configure($name => $good); 1 }, 'configure takes a good value') or diag $@;
            says_why(eval { $server->configure($name => $bad); 1 } ? '' : $@, $option, $bad, 'by configure');
        }
        return if !defined PAGI::Server::CommandLine::flag($option);
        my ($value, $problem) = from_command_line($option, $good // '');
        my $means = $option->{type} eq 'rate' ? { burst => 20, rate => 10 } : $good;
        if (!$option->{missing} && $option->{type} ne 'code') {
            is_deeply($value, is_switch($option) ? 1 : $means, 'the command line takes it') or diag $problem;
        }
        if (!is_switch($option) && $option->{type} ne 'code' && !ref $bad && length $bad) {
            says_why((from_command_line($option, $bad))[1], $option, $bad, 'from the command line');
        }
        my $in_file = $name !~ /\A(?:config|check|completion|future_xs|version|help)\z/;
        if (!$in_file) {
            like(
                (value_of($name, sub { read_as_file("$name = x") }))[1],
                qr/there is no option '$name'/,
                'no file has it'
            );
            return;
        }
        is_deeply((value_of($name, sub { read_as_file("$name = $good") }))[0], $means, 'a file has it')
            if $option->{type} ne 'code';
        if ($option->{type} ne 'code' && !ref $bad && length $bad) {
            $problem = (value_of($name, sub { read_as_file("\n$name = $bad") }))[1];
            like($problem, qr/options\.conf line 2: /, '... and a bad one is refused by file and line');
            says_why($problem, $option, $bad, 'from a file');
        }
    };
}

subtest 'numbers as people write them' => sub {
    my %option = (integer => 'max_requests', bytes => 'max_body_size', seconds => 'heartbeat_timeout');
    for my $type (sort keys %option) {
        my $name   = $option{$type};
        my $option = PAGI::Server::Options::find($name);
        for my $pair (@{ $WRITTEN{$type} }) {
            my ($text, $number) = @$pair;
            is((from_command_line($option, $text))[0], $number, "$name = $text on the command line");
            is((value_of($name, sub { read_as_file("$name = $text") }))[0], $number, '... in a file');
            is(PAGI::Server->new(app => $app, quiet => 1, $name => $text)->options->{$name},
                $number, '... in the constructor');
        }
        for my $text (@{ $MALFORMED{$type} }) {
            says_why((from_command_line($option, $text))[1], $option, $text, "from the command line: $text");
            says_why((value_of($name, sub { read_as_file("$name = $text") }))[1],
                $option, $text, 'from a file');
            says_why(refused(app => $app, $name => $text), $option, $text, 'by the constructor');
        }
    }
    my $limits = PAGI::Server::Options::engine_limits({ timeout => 0.0001, max_body_size => 0 });
    is_deeply($limits, { idle_ms => 1, body_bytes_max => 0 }, 'what is not 0 does not become 0: no limit');
};

subtest 'an option that sets several limits' => sub {
    my $name = 'h2_rst_rate_limit';
    my $limits =
        sub { PAGI::Server::Options::engine_limits({ $name => PAGI::Server::Options::check($name, $_[0]) }) };
    is_deeply(
        $limits->({ burst => 7, rate => 3 }),
        { h2_resets_max => 7, h2_resets_rate => 3 },
        'all of them'
    );
    is_deeply($limits->({ rate => 1 }), { h2_resets_rate => 1 }, 'one of them');
    for my $bad ({ burst => 0 }, { burst => 1, speed => 1 }, { rate => 'x' }, { rate => -1 }, [], 5) {
        like(
            refused(app => $app, $name => $bad),
            qr/\QPAGI::Server: option '$name' must be a hash reference with burst (an integer from 1 to 1000000) and\E/,
            'a bad value is refused'
        );
    }
};

subtest 'a running server' => sub {
    my $loop = IO::Async::Loop->new;
    my @said;
    local $SIG{__WARN__} = sub { push @said, @_ };
    my $server = PAGI::Server->new(app => $app, port => 0, access_log => undef, log_level => 'warn');
    $loop->add($server);
    $server->listen->get;
    for my $option (grep { $_->{live} && !$_->{only} } @all) {
        my $name = $option->{name};
        my ($good) = samples($option);
        ok(eval { $server->configure($name => $good); 1 }, "takes $name over") or diag $@;
        # A level of the log or its silence would hide what is said of the others.
        $server->configure(quiet => 0, log_level => 'warn', log_format => 'text');
    }
    is("@said", '', '... without a word') or diag @said;
    ok(!eval { $server->configure(max_header_count => 10_000); 1 }, 'what it cannot have now is refused');
    like($@, qr/option 'max_header_count' cannot be raised above 100 while the server runs/, '... in words');
    $server->configure(listener_backlog => 7, disable_sendfile => 1);
    like(
        "@said",
        qr/the running server keeps its disable_sendfile listener_backlog until/,
        '... and what it never can'
    );
    $server->shutdown->get;
};

done_testing;
