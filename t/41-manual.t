# The manual's lists of options are those of the one table, and each option has what the table promises.
use strict;
use warnings;
use Test::More;
BEGIN { plan skip_all => 'script/lib is written for Perl 5.36' if $] < 5.036 }
use v5.36;
use lib 'script/lib', 't/lib';
use Manual;
use Peregrine;
use PAGI::Server::CommandLine;
use PAGI::Server::Mounts;
use PAGI::Server::Options;
use Peregrine::Server::Placement;
use TestTools qw(content);

for my $file (Manual::files()) {
    open my $in, '<', $file or die "$file: $!";
    my $text = do { local $/; <$in> };
    ok($text eq Manual::renewed($file), "$file has the options of the table") or diag 'run script/manual';
}

my %engine = map { $_->{name} => $_ } Peregrine::options();
my (%flags, %missing);
for my $option (PAGI::Server::Options::all()) {
    my $name = $option->{name};
    like(PAGI::Server::Options::about($option, $_), qr/\w.*\.\z/s, "$name is explained") for 0, 1;
    for my $flag (grep { defined } PAGI::Server::CommandLine::flag($option), $option->{short}) {
        ok(!$flags{$flag}++, "... and the flag $flag is its own");
    }
    next if $option->{only};
    if (my $limit = $option->{engine} && $engine{ $option->{engine} }) {
        my $default = $limit->{default} < 0 ? undef : $limit->{default} / $option->{scale};
        is($option->{default}, $default, "... and has the engine's default");
        my %type = (milliseconds => 'seconds', bytes => 'bytes', bytes_per_second => 'bytes');
        is($option->{type}, $type{ $limit->{unit} }, '... and takes its units') if $type{ $limit->{unit} };
    }
    next if !defined $option->{default};
    is(eval { PAGI::Server::Options::check($name, $option->{default}); 1 },
        1, '... and its default is allowed')
        or diag $@;
}

# Every option of the contract is there, or its absence is known.
my @contract = qw(
    app host port socket socket_mode listen ssl disable_tls disable_sendfile listener_backlog reuseport
    workers extensions max_connections max_header_size max_header_count max_body_size max_receive_queue
    max_ws_frame_size max_requests sync_file_threshold write_high_watermark write_low_watermark timeout
    request_timeout ws_idle_timeout sse_idle_timeout shutdown_timeout heartbeat_timeout
    lifespan_startup_timeout access_log access_log_format log_level quiet loop_type lifespan_mode
    validate_events on_error http2 h2_max_concurrent_streams h2_initial_window_size h2_max_frame_size
    h2_enable_push h2_enable_connect_protocol h2_max_header_list_size h2_rst_rate_limit
);
ok(PAGI::Server::Options::is_known($_), "$_ is an option") for @contract;

# Sections that manuals name are there, in this manual or in another one of ours.
my %sections;
for my $file (glob('bin/*'), split /\n/, `find lib -name '*.pm' -o -name '*.pod'`) {
    my $text = content($file);
    my $name = $file =~ s{\A(?:lib|bin)/}{}r =~ s{\.(?:pm|pod)\z}{}r =~ s{/}{::}gr;
    next if $text !~ /^=head1 NAME/m;
    $sections{$name} =
        { text => $text, has => { map { _heading($_) => 1 } $text =~ /^=(?:head\d|item) +(.*)/mg } };
}

sub _heading ($pod) {
    return $pod =~ s/[A-Z]<<? ?(.*?) ?>?>/$1/gr =~ s/\s+/ /gr;
}

for my $name (sort keys %sections) {
    my @missing;
    while ($sections{$name}{text} =~ m{L<(?:[^>|/]*\|)?([\w:-]*)/"?([^>"]+)"?>}g) {
        my ($other, $section) = ($1, $2);
        $section =~ s/\s+/ /g;
        my $there = $sections{ length $other ? $other : $name } or next;
        push @missing, "$other/$section"
            if !grep { /\A\Q$section\E(?:\z|[ ,])/ || /, \Q$section\E(?:\z|,)/ } keys %{ $there->{has} };
    }
    is("@missing", '', "$name names sections that are there");
}

# Limits of the engine that no option has, and that the server knows before there is an engine. One group is
# that of --workers.
my $config = content('engine/src/server/config.zig');
for (
    [ interpreters_max => Peregrine::Server::Placement::INTERPRETERS_MAX() ],
    [ groups_max       => PAGI::Server::Mounts::GROUPS_MAX() + 1 ],
    )
{
    my ($name, $value) = @$_;
    my ($limit) = $config =~ /^    pub const $name: \w+ = (\d+);/m;
    is($value, $limit, "$name is the engine's");
}

# Files that the documents name exist. (A tarball lacks some that only a clone needs.)
if (-e '.git') {
    for my $document (qw(README.md ARCHITECTURE.md CONTRIBUTING.md SECURITY.md)) {
        my %named = map { $_ => 1 }
            content($document) =~ m{`((?:bin|docs|engine|examples|lib|script|t|xs)/[\w./*-]+)}g;
        ok(scalar keys %named, "$document names files");
        for my $file (sort keys %named) {
            my @there = glob $file;
            ok(@there && -e $there[0], "$document: there is $file");
        }
    }
}

done_testing;
