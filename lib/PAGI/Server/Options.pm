package PAGI::Server::Options;

use strict;
use warnings;

use PAGI::Server::AccessLog;
use Peregrine;
use Scalar::Util qw(looks_like_number reftype);

# What the constructor accepts. `engine` names the engine's limit that an option sets, and `scale` how
# many of the engine's units one unit of the option has: the default and the range come from there.
# The others state both here.
my %OPTIONS = (
    app                      => { type => 'code' },
    host                     => { type => 'string',  default => '127.0.0.1' },
    port                     => { type => 'integer', default => 5000, min => 0, max => 65_535 },
    listener_backlog         => { type => 'integer', default => 2048, min => 1, max => 65_535 },
    quiet                    => { type => 'boolean', default => 0 },
    log_level                => { type => 'choice',  default => 'info', of => [qw(error warn info debug)] },
    loop_type                => { type => 'class' },
    access_log               => { type => 'log',     default => \*STDERR },
    access_log_format        => { type => 'format',  default => 'clf' },
    access_log_buffer        => { type => 'integer', engine  => 'access_log_bytes' },
    on_error                 => { type => 'code' },
    extensions               => { type => 'hash', default => {} },
    validate_events          => { type => 'boolean' },
    lifespan_mode            => { type => 'choice',  default => 'auto',           of    => [qw(auto on off)] },
    lifespan_startup_timeout => { type => 'number',  default => 30,               min   => 0, max => 86_400 },
    shutdown_timeout         => { type => 'number',  default => 30,               min   => 0, max => 86_400 },
    timeout                  => { type => 'number',  engine  => 'idle_ms',        scale => 1000 },
    sse_idle_timeout         => { type => 'number',  engine  => 'stream_idle_ms', scale => 1000 },
    max_connections          => { type => 'integer', engine  => 'connections_max' },
    max_header_size          => { type => 'integer', engine  => 'head_bytes_max' },
    max_header_count         => { type => 'integer', engine  => 'header_count_max' },
    max_body_size            => { type => 'integer', engine  => 'body_bytes_max' },
    write_high_watermark     => { type => 'integer', engine  => 'write_high_bytes' },
    write_low_watermark      => { type => 'integer', engine  => 'write_low_bytes' },
    max_receive_queue        => { type => 'integer', engine  => 'queue_messages_max' },
    max_receive_queue_size   => { type => 'integer', engine  => 'queue_bytes_max' },
    max_ws_frame_size        => { type => 'integer', engine  => 'frame_bytes_max' },
    max_ws_message_size      => { type => 'integer', engine  => 'message_bytes_max' },
    ws_idle_timeout          => { type => 'number',  engine  => 'websocket_idle_ms', scale => 1000 },
);

my %ENGINE = map { $_->{name} => $_ } Peregrine::options();

for my $name (keys %OPTIONS) {
    my $option = $OPTIONS{$name};
    my $engine = $option->{engine} or next;
    my $limit  = $ENGINE{$engine}  or die "PAGI::Server: the engine has no limit '$engine' for option '$name'\n";
    my $scale  = $option->{scale} ||= 1;
    $option->{$_} = $limit->{$_} / $scale for qw(default min max);
}

sub names { return sort keys %OPTIONS }

sub is_known {
    my ($name) = @_;
    return exists $OPTIONS{$name};
}

sub defaults {
    return map { $_ => $OPTIONS{$_}{default} } grep { exists $OPTIONS{$_}{default} } keys %OPTIONS;
}

sub _range {
    my ($kind, $option) = @_;
    return "$kind from $option->{min} to $option->{max}";
}

sub _in_range {
    my ($option, $value) = @_;
    return looks_like_number($value) && $value >= $option->{min} && $value <= $option->{max};
}

# Per type: what is allowed in words, and whether a value is.
my %TYPES = (
    string  => [ sub { 'a string' },                  sub { defined $_[1] && !ref $_[1] && length $_[1] } ],
    boolean => [ sub { '0 or 1' },                    sub { !ref $_[1] } ],
    integer => [ sub { _range('an integer', $_[0]) }, sub { defined $_[1] && $_[1] =~ /\A[0-9]+\z/ && _in_range(@_) } ],
    number  => [ sub { _range('a number of seconds', $_[0]) }, sub { defined $_[1] && _in_range(@_) } ],
    choice  => [
        sub { "one of @{$_[0]{of}}" },
        sub {
            my ($option, $value) = @_;
            return defined $value && grep { $_ eq $value } @{ $option->{of} };
        }
    ],
    class => [
        sub { q{the last part of a loop's class, such as Epoll} },
        sub { !defined $_[1] || $_[1] =~ /\A[A-Za-z_]\w*(?:::\w+)*\z/ }
    ],
    code => [ sub { 'a code reference' }, sub { ref $_[1] && reftype($_[1]) eq 'CODE' } ],
    hash => [ sub { 'a hash reference' }, sub { ref $_[1] && reftype($_[1]) eq 'HASH' } ],
    log  => [
        sub { 'a path, "-" for standard output, an open file handle, or undef' },
        sub { PAGI::Server::AccessLog::is_target($_[1]) }
    ],
    format => [
        sub { 'clf, combined, common, tiny, json, or made of percent atoms' },
        sub { defined $_[1] && !ref $_[1] && !defined PAGI::Server::AccessLog::format_problem($_[1]) }
    ],
);

sub check {
    my ($name, $value) = @_;
    my $option = $OPTIONS{$name};
    my ($allowed, $is_allowed) = @{ $TYPES{ $option->{type} } };
    return if $is_allowed->($option, $value);
    my $shown = defined $value ? "'$value'" : 'undef';
    die "PAGI::Server: option '$name' must be ${\$allowed->($option)}, not $shown\n";
}

sub engine_limits {
    my ($options) = @_;
    my %limits;
    for my $name (grep { $OPTIONS{$_}{engine} && defined $options->{$_} } keys %OPTIONS) {
        my $option = $OPTIONS{$name};
        $limits{ $option->{engine} } = int($options->{$name} * $option->{scale} + 0.5);
    }
    return \%limits;
}

sub check_together {
    my ($options) = @_;
    my ($low, $high) = @{$options}{qw(write_low_watermark write_high_watermark)};
    return if $low <= $high;
    die "PAGI::Server: option 'write_low_watermark' ($low) must not be above 'write_high_watermark' ($high)\n";
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Options - what PAGI::Server accepts, and what is allowed

=head1 SYNOPSIS

    PAGI::Server::Options::check(port => 5000);    # dies with a readable message
    my $limits = PAGI::Server::Options::engine_limits(\%options);

=head1 DESCRIPTION

One table. An option that sets a limit of the engine has no default or range here: they come from the
engine's own list, so that they are written down only once.

=head1 FUNCTIONS

=head2 names

    my @names = PAGI::Server::Options::names();

All option names, sorted.

=head2 is_known

    die "no such option" if !PAGI::Server::Options::is_known($name);

Whether there is an option of that name.

=head2 defaults

    my %options = PAGI::Server::Options::defaults();

The defaults of all options that have one.

=head2 check

    PAGI::Server::Options::check(log_level => 'loud');
    # PAGI::Server: option 'log_level' must be one of error warn info debug, not 'loud'

Dies unless the value is allowed.

=head2 check_together

    PAGI::Server::Options::check_together(\%options);

Dies when options contradict each other.

=head2 engine_limits

    my $limits = PAGI::Server::Options::engine_limits({ timeout => 5 });    # { idle_ms => 5000 }

The limits to give to the engine, in its names and units.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
