//! Values that the worker and its hosts share.
const std = @import("std");
const protocol = @import("protocol");
const Limits = protocol.Limits;
const Config = @import("config.zig").Config;

/// The reason why an exchange ended before its response. PAGI has the same names in lower case
/// (PAGI::Spec::Www, Standard Disconnect Reasons). The numbers are part of the C API: numbers are only added.
pub const Reason = enum(u32) {
    client_closed = 1,
    client_timeout = 2,
    idle_timeout = 3,
    keepalive_timeout = 4,
    write_timeout = 5,
    write_error = 6,
    read_error = 7,
    protocol_error = 8,
    server_shutdown = 9,
    server_error = 10,
    body_too_large = 11,
    queue_overflow = 12,
};

/// The importance of a notice. The numbers are part of the C API.
pub const Level = enum(u32) { err = 1, warn = 2, info = 3, debug = 4 };

/// The name of a peer in logs, from the text of its address, which is empty for Unix sockets.
pub fn peerName(address: []const u8) []const u8 {
    return if (address.len > 0) address else "unix";
}

/// A worker's counters and sizes at one moment.
pub const Stats = struct {
    connections: u32 = 0,
    exchanges: u32 = 0,
    connections_max: u32 = 0,
    accepted: u64 = 0,
    rejected: u64 = 0,
    requests: u64 = 0,
    refused: u64 = 0,
    memory_bytes: u64 = 0,
    allocations: u64 = 0,
    shed: u64 = 0,
    memory_max: u64 = 0,
};

/// The limits of sessions, from the configuration.
pub fn limitsOf(config: *const Config) Limits {
    return .{
        .request_line_bytes_max = config.request_line_bytes_max,
        .head_bytes_max = config.head_bytes_max,
        .header_count_max = config.header_count_max,
        .body_bytes_max = config.body_bytes_max,
        .trailer_bytes_max = config.trailer_bytes_max,
        .chunk_line_bytes_max = config.chunk_line_bytes_max,
    };
}

/// The limits of connections with streams, from the configuration.
pub fn multiplexedOf(config: *const Config) protocol.Multiplexed.Config {
    return .{
        .streams_max = config.h2_streams_max,
        .stream_window_bytes = @intCast(config.h2_window_bytes),
        .connection_window_bytes = @intCast(config.h2_connection_window_bytes),
        .frame_bytes_max = @intCast(config.h2_frame_bytes_max),
        .linger_bytes_max = config.drain_bytes_max,
        .list_bytes_max = config.h2_list_bytes_max,
        .extended_connect = config.h2_connect,
        .resets = .{ .burst = config.h2_resets_max, .per_second = config.h2_resets_rate },
    };
}

/// The limit of connections in force: `connections_max`, or the descriptor limit less the reserved
/// descriptors.
pub fn connectionsMax(config: *const Config) u32 {
    if (config.connections_max != 0) return config.connections_max;
    const limit = std.posix.getrlimit(.NOFILE) catch return 1000;
    const descriptors: u32 = @intCast(@min(limit.cur, 1 << 30));
    return @max(descriptors -| config.descriptors_reserved, 1);
}
