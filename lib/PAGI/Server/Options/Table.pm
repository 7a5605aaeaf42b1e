package PAGI::Server::Options::Table;

use strict;
use warnings;

our $VERSION = '0.003000';

use List::Util qw(pairs);

# The keys of PAGI::Server->new, in the order of the manual, and the options of pagi-server alone. The
# constructor, the flags of pagi-server, the names in its configuration files, the shell completion and the
# manual's lists are all made from this table. What the manuals say about each option lies in
# PAGI/Server/Options/Texts.pod.
#
#   name    key of PAGI::Server->new; underscores are dashes in the flag and either in a file
#   flag    the flag's name if it differs from `name`; '' if there is no flag
#   short   a one-letter flag
#   alias   another name, which works in all places
#   variable   an environment variable that sets the value if nothing else does
#   type    see PAGI::Server::Options::Type
#   default, min, max   unless `engine` names the engine's limit that has them; `engines`: a limit for each
#           key of a hash. A range without `min` begins at 0
#   of      the choices
#   also    words that stand for values of another kind
#   optional  undef is allowed, too
#   offer   values that a shell's completion suggests, though others are allowed
#   many    may be given several times on the command line and in a file
#   live    a running server takes a change over at once: a limit of the engine unless it says 0
#   missing the reason why the option cannot be switched on yet
#   shown   the manual's text for a default that is no plain value; `shown_command`: the text of the command's
#           manual, if it differs
#   arg     the value's name in the manual
sub _of_the_command {
    my (@options) = @_;
    return map { { %$_, only => 'command' } } @options;
}

#<<<  a row for each option
my @SECTIONS = (
    'Application' => [
        { name => 'app', type => 'code', flag => 'app', short => 'a', arg => 'FILE|MODULE',
          shown => 'required' },
        { name => 'loop_type', flag => 'loop', short => 'l', type => 'class', arg => 'TYPE',
          offer => [qw(Peregrine Epoll Poll Select)], shown => 'Peregrine where there is epoll' },
        { name => 'engine', type => 'choice', of => [qw(inline thread process)], default => 'inline',
          default_of => { evhtp => 'thread' }, variable => 'PEREGRINE_ENGINE' },
        { name => 'lifespan_mode', flag => 'lifespan', type => 'choice', of => [qw(auto on off)],
          default => 'auto' },
        { name => 'lifespan_startup_timeout', type => 'seconds', default => 30, max => 86_400 },
        { name => 'warm_up', type => 'targets', arg => 'PATH[,PATH...]' },
        { name => 'extensions', flag => '', type => 'hash', default => {}, shown => '{}' },
        { name => 'validate_events', type => 'boolean', shown => '1 if PAGI_ENV is development' },
        { name => 'static', type => 'folders', many => 1,
          arg => 'PATH=FOLDER[,host=NAME][,max_age=SECONDS]' },
        { name => 'x_sendfile', type => 'string', arg => 'DIRECTORY' },
        { name => 'compress', type => 'boolean', default => 0 },
        { name => 'compress_min_size', type => 'bytes', default => 1024, max => 1 << 30 },
        { name => 'compress_authenticated', type => 'boolean', default => 0 },
        { name => 'channels', type => 'channels', default => 0, also => { 'memory://' => 1 }, arg => 'URL',
          variable => 'PAGI_CHANNELS_BACKEND' },
        { name => 'channels_capacity', type => 'integer', default => 100, min => 1, max => 100_000 },
        { name => 'channels_expiry', type => 'seconds', default => 60, min => 0.1, max => 86_400 },
        { name => 'channels_message_size', type => 'bytes', default => 1 << 20, min => 1024, max => 1 << 20 },
        { name => 'topics_history_entries', type => 'integer', default => 1000, min => 16, max => 1_000_000 },
        { name => 'topics_history_size', type => 'bytes', default => 4 << 20, min => 1024, max => 64 << 20 },
        { name => 'topics_history_age', type => 'seconds', default => 300, min => 1, max => 2_592_000 },
        { name => 'channels_socket', type => 'string', arg => 'PATH' },
        { name => 'grip', type => 'topics', arg => 'PREFIX' },
        { name => 'on_error', flag => '', type => 'code', optional => 1, live => 1 },
        _of_the_command(
            { name => 'code', flag => 'e', type => 'string', arg => 'CODE' },
            { name => 'mount', type => 'string', many => 1,
              arg => 'PATH=FILE|MODULE[,host=NAME][,workers=N[,OPTION=VALUE...]][,grip=PREFIX]'
                  . '[,pagi|,psgi|,mojo]' },
            { name => 'module', flag => 'M', type => 'string', many => 1, arg => 'MODULE' },
            { name => 'lib', short => 'I', type => 'string', many => 1, arg => 'DIRECTORY' },
            { name => 'env', variable => 'PAGI_ENV', short => 'E', type => 'word', arg => 'MODE',
              offer => [qw(development production none)],
              shown => 'PAGI_ENV; else development on a terminal, production otherwise' },
            { name => 'env_file', type => 'string', many => 1, arg => 'FILE' },
            { name => 'default_middleware', type => 'boolean', default => 1 },
            { name => 'server', short => 's', type => 'class', arg => 'CLASS', shown => 'PAGI::Server' },
            { name => 'extension', type => 'string', many => 1, arg => 'NAME',
              offer => [qw(fullflush informational)] },
            { name => 'reload', short => 'r', type => 'flag' },
            { name => 'reload_dir', type => 'string', many => 1, arg => 'DIRECTORY',
              shown => q{the application's, lib, and those of -I} },
            { name => 'future_xs', type => 'flag' },
        ),
    ],
    'Listening' => [
        { name => 'host', short => 'o', type => 'string', default => '127.0.0.1',
          default_of => { plackup => '0.0.0.0' }, arg => 'HOST' },
        { name => 'port', short => 'p', type => 'integer', default => 5000, max => 65_535 },
        { name => 'socket', type => 'string', arg => 'FILE' },
        { name => 'socket_mode', type => 'mode', arg => 'MODE', shown => 'what the umask leaves' },
        { name => 'socket_owner', type => 'string', arg => 'USER', shown => q{the process's} },
        { name => 'socket_group', type => 'string', arg => 'GROUP', shown => q{the process's} },
        { name => 'listen', type => 'listen', many => 1, arg => 'ADDRESS[,SETTING...]' },
        { name => 'proxy_protocol', type => 'networks', many => 1, arg => 'NETWORK' },
        { name => 'proxy_timeout', type => 'seconds', engine => 'proxy_ms' },
        { name => 'trusted_proxies', type => 'networks', many => 1, arg => 'NETWORK' },
        { name => 'forwarded_header', type => 'choice', default => 'x-forwarded',
          of => [qw(x-forwarded forwarded)], arg => 'NAME' },
        { name => 'root_path', type => 'target', arg => 'PATH' },
        { name => 'listener_backlog', alias => 'listen_backlog', short => 'b', type => 'integer',
          default => 2048, min => 1, max => 65_535 },
        { name => 'reuseport', type => 'boolean', default => 0 },
        { name => 'health_path', type => 'target', arg => 'PATH' },
    ],
    'Encryption' => [
        { name => 'ssl', flag => '', type => 'tls' },
        { name => 'disable_tls', type => 'boolean', default => 0 },
        { name => 'ktls', type => 'boolean', engine => 'ktls', live => 0 },
        { name => 'redirect_http', type => 'boolean', default => 0 },
        { name => 'acme_challenges', type => 'string', arg => 'DIRECTORY' },
        { name => 'acme', type => 'certificates', many => 1, arg => 'NAME[,NAME...]' },
        { name => 'acme_agree', type => 'boolean', default => 0 },
        { name => 'acme_directory', type => 'https', arg => 'URL',
          default => 'https://acme-v02.api.letsencrypt.org/directory' },
        { name => 'acme_folder', type => 'string', arg => 'FOLDER',
          shown => 'C</var/lib/peregrine/acme>, or below the home of a user' },
        { name => 'acme_contact', type => 'string', many => 1, arg => 'ADDRESS' },
        { name => 'acme_eab', type => 'string', arg => 'FILE' },
        { name => 'acme_ca', type => 'string', arg => 'FILE', shown => q{the system's} },
        _of_the_command(
            { name => 'ssl_cert', type => 'string', arg => 'FILE' },
            { name => 'ssl_key', type => 'string', arg => 'FILE' },
            { name => 'ssl_cert_dir', type => 'string', arg => 'DIRECTORY' },
            { name => 'ssl_chain', type => 'string', arg => 'FILE' },
            { name => 'ssl_key_password_file', type => 'string', arg => 'FILE' },
            { name => 'ssl_sni', type => 'string', many => 1, arg => 'CERT,KEY[,CHAIN]' },
            { name => 'ssl_ca', type => 'string', arg => 'FILE' },
            { name => 'ssl_verify_client', type => 'flag' },
            { name => 'ssl_request_client', type => 'flag' },
            { name => 'ssl_min_version', type => 'choice', of => [qw(TLSv1_2 TLSv1_3)], arg => 'VERSION',
              shown => 'TLSv1_2' },
            { name => 'ssl_ciphers', type => 'string', arg => 'LIST' },
            { name => 'ssl_ciphersuites', type => 'string', arg => 'LIST' },
            { name => 'ssl_groups', type => 'string', arg => 'LIST',
              shown => 'X25519MLKEM768 where OpenSSL has it (3.5), X25519, P-256, P-384' },
            { name => 'ssl_session_timeout', type => 'string', arg => 'SECONDS', shown => '7200' },
            { name => 'ssl_ticket_keys', type => 'string', arg => 'FILE', shown => 'made up' },
        ),
    ],
    'HTTP/2' => [
        { name => 'http2', type => 'boolean', engine => 'http2', shown => '1 over TLS, 0 in the clear',
          live => 0 },
        { name => 'h2_max_concurrent_streams', type => 'integer', engine => 'h2_streams_max', live => 0 },
        { name => 'h2_initial_window_size', type => 'bytes', engine => 'h2_window_bytes', live => 0 },
        { name => 'h2_connection_window_size', type => 'bytes', engine => 'h2_connection_window_bytes',
          live => 0 },
        { name => 'h2_max_frame_size', type => 'bytes', engine => 'h2_frame_bytes_max', live => 0 },
        { name => 'h2_max_header_list_size', type => 'bytes', engine => 'h2_list_bytes_max', live => 0 },
        { name => 'h2_enable_connect_protocol', type => 'boolean', engine => 'h2_connect', live => 0 },
        { name => 'h2_enable_push', type => 'boolean', default => 0,
          missing => 'a server may not say that it takes pushes (RFC 9113 section 6.5.2)' },
        { name => 'h2_rst_rate_limit', type => 'rate',
          engines => { burst => 'h2_resets_max', rate => 'h2_resets_rate' }, arg => 'BURST/RATE' },
    ],
    'Limits' => [
        { name => 'max_connections', type => 'integer', engine => 'connections_max' },
        { name => 'max_connections_per_address', type => 'integer', engine => 'address_connections_max' },
        { name => 'max_connection_rate_per_address', type => 'integer', engine => 'address_rate_max' },
        { name => 'memory_max', type => 'bytes', engine => 'memory_bytes_max', least => 16 * 1024 * 1024,
          shown => '3/4 of what the system allows' },
        { name => 'max_request_line_size', type => 'bytes', engine => 'request_line_bytes_max' },
        { name => 'max_header_size', type => 'bytes', engine => 'head_bytes_max' },
        { name => 'max_header_count', type => 'integer', engine => 'header_count_max' },
        { name => 'max_trailer_size', type => 'bytes', engine => 'trailer_bytes_max' },
        { name => 'max_keepalive_requests', type => 'integer', engine => 'connection_requests_max' },
        { name => 'max_body_size', type => 'bytes', engine => 'body_bytes_max', default_of => { mojo => 0 } },
        { name => 'queue_max', type => 'integer', engine => 'queue_max' },
        { name => 'max_held_responses', type => 'integer', engine => 'held_max' },
        { name => 'max_concurrency', type => 'integer', default => 0, max => 1_000_000 },
        { name => 'underscores_in_headers', type => 'boolean', default => 0 },
        { name => 'body_buffer_size', type => 'bytes', engine => 'body_memory_bytes_max' },
        { name => 'max_body_spool', type => 'bytes', engine => 'body_file_bytes_max' },
        { name => 'max_upload_bytes_per_address', type => 'bytes', engine => 'address_upload_bytes_max' },
        { name => 'response_buffer', type => 'bytes', default => 64 << 20, max => 1 << 50 },
        { name => 'body_folder', type => 'string', arg => 'FOLDER', shown => 'TMPDIR, or /tmp' },
        { name => 'max_receive_queue', type => 'integer', engine => 'queue_messages_max' },
        { name => 'max_receive_queue_size', type => 'bytes', engine => 'queue_bytes_max' },
        { name => 'max_ws_frame_size', type => 'bytes', engine => 'frame_bytes_max',
          default_of => { mojo => 262_144 } },
        { name => 'max_ws_message_size', type => 'bytes', engine => 'message_bytes_max' },
        { name => 'ws_per_message_deflate', type => 'boolean', engine => 'deflate' },
        { name => 'ws_deflate_min_size', type => 'bytes', engine => 'deflate_bytes_min' },
        { name => 'write_high_watermark', type => 'bytes', engine => 'write_high_bytes' },
        { name => 'write_low_watermark', type => 'bytes', engine => 'write_low_bytes' },
        { name => 'disable_sendfile', type => 'boolean', default => 0 },
        { name => 'sync_file_threshold', type => 'bytes', engine => 'file_loop_bytes_max' },
    ],
    'Times, in seconds' => [
        { name => 'timeout', type => 'seconds', engine => 'idle_ms' },
        { name => 'queue_timeout', type => 'seconds', engine => 'queue_ms' },
        { name => 'header_timeout', type => 'seconds', engine => 'head_ms' },
        { name => 'tls_handshake_timeout', type => 'seconds', engine => 'handshake_ms' },
        { name => 'body_timeout', type => 'seconds', engine => 'body_ms' },
        { name => 'min_body_rate', type => 'bytes', engine => 'body_rate_min' },
        { name => 'write_timeout', type => 'seconds', engine => 'write_ms' },
        { name => 'min_write_rate', type => 'bytes', engine => 'write_rate_min' },
        { name => 'request_timeout', type => 'seconds', engine => 'request_idle_ms' },
        { name => 'ws_idle_timeout', type => 'seconds', engine => 'websocket_idle_ms' },
        { name => 'sse_idle_timeout', type => 'seconds', engine => 'stream_idle_ms' },
        { name => 'shutdown_timeout', type => 'seconds', default => 30, max => 86_400, live => 1 },
    ],
    'Logs' => [
        { name => 'status', type => 'listen', arg => 'ADDRESS' },
        { name => 'status_hosts', type => 'hosts', arg => 'NAMES' },
        { name => 'access_log', type => 'log', default => \*STDERR, default_of => { plackup => undef },
          shown => '\*STDERR', arg => 'FILE', live => 1,
          shown_command => 'standard error, or the file of C<--error-log>; in production and with'
              . ' C<--daemonize> none' },
        { name => 'access_log_format', type => 'format', default => 'clf', arg => 'FORMAT', live => 1 },
        { name => 'access_log_buffer', type => 'bytes', engine => 'access_log_bytes' },
        { name => 'log_level', type => 'choice', of => [qw(error warn info debug)], default => 'info',
          live => 1 },
        { name => 'log_format', type => 'choice', of => [qw(text json)], default => 'text', live => 1 },
        { name => 'quiet', short => 'q', type => 'boolean', default => 0, live => 1 },
        _of_the_command(
            { name => 'error_log', type => 'string', arg => 'FILE' },
        ),
    ],
    'Processes' => [
        { name => 'workers', short => 'w', type => 'workers', default => 0, default_of => { evhtp => 8 },
          max => 1024, arg => 'NUMBER|auto' },
        { name => 'preload_app', type => 'boolean', default => 0 },
        { name => 'canary', type => 'seconds', default => 0, max => 86_400 },
        { name => 'max_requests', type => 'integer', default => 0, max => 1_000_000_000 },
        { name => 'max_worker_age', type => 'seconds', default => 0, max => 31_536_000 },
        { name => 'max_worker_rss', type => 'bytes', default => 0, max => 1 << 50, least => 1 << 20 },
        { name => 'recycle_timeout', type => 'seconds', default => 60, max => 86_400 },
        { name => 'retire_idle', type => 'seconds', engine => 'retire_idle_ms' },
        { name => 'request_kill_timeout', type => 'seconds', default => 0, max => 86_400 },
        { name => 'heartbeat_timeout', type => 'seconds', default => 50,
          default_of => { psgi => 0, plackup => 0 }, max => 86_400 },
        _of_the_command(
            { name => 'daemonize', short => 'D', type => 'flag' },
            { name => 'pid', type => 'string', arg => 'FILE' },
            { name => 'user', type => 'string', arg => 'USER' },
            { name => 'group', type => 'string', arg => 'GROUP', shown => q{the user's} },
            { name => 'no_new_privs', type => 'flag' },
            { name => 'umask', type => 'mode', arg => 'MODE', shown => q{the shell's} },
            { name => 'chdir', type => 'string', arg => 'DIRECTORY' },
        ),
    ],
    'Blocking work' => [
        { name => 'worker_pool', type => 'pool', arg => 'FILE' },
        { name => 'pool_workers', type => 'integer', default => 4, min => 1, max => 256 },
        { name => 'pool_queue', type => 'integer', default => 100, max => 500 },
        { name => 'pool_timeout', type => 'seconds', default => 30, max => 86_400 },
        { name => 'pool_max_calls', type => 'integer', default => 1000, max => 1_000_000_000 },
        { name => 'pool_max_rss', type => 'bytes', default => 0, max => 1 << 50, least => 1 << 20 },
        { name => 'pool_idle_timeout', type => 'seconds', default => 0, max => 86_400 },
        { name => 'sync_workers', type => 'integer', default => 0, max => 31 },
    ],
    'Other' => [
        _of_the_command(
            { name => 'config', short => 'c', type => 'string', arg => 'FILE' },
            { name => 'check', type => 'flag' },
            { name => 'completion', type => 'choice', of => [qw(bash zsh)] },
            { name => 'version', short => 'v', type => 'flag' },
            { name => 'help', short => 'h', type => 'flag' },
        ),
    ],
);
#>>>

sub sections {
    return map { [ $_->[0], @{ $_->[1] } ] } pairs @SECTIONS;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Options::Table - the options of PAGI::Server and pagi-server as data

=head1 SYNOPSIS

    for my $section (PAGI::Server::Options::Table::sections()) {
        my ($title, @options) = @$section;
        print "$title: @{[ map { $_->{name} } @options ]}\n";
    }

=head1 DESCRIPTION

What the keys of an option mean is written at the head of the table. L<PAGI::Server::Options> reads it.

=head1 FUNCTIONS

=head2 sections

    my @sections = PAGI::Server::Options::Table::sections();

Array references with a title and the options that belong under it.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
