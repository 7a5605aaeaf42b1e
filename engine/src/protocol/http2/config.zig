//! Limits for a peer of HTTP/2. Does not know: who enforces them (session.zig).
const Bench = @import("hpack/decoder.zig").Bench;
const fields = @import("fields.zig");
const frame = @import("frame.zig");
const Allowance = @import("patience.zig").Allowance;

/// Limits on a peer. Their owner keeps them as long as there are sessions.
pub const Config = struct {
    /// Streams that are open at a time, 1..65,534.
    streams_max: u16 = 100,
    /// Content of a stream that may be on its way or wait for its reader, in bytes.
    stream_window_bytes: u31 = 65_535,
    /// Window of all streams together, in bytes; at least 65,535.
    connection_window_bytes: u31 = 1 << 20,
    /// The payload of DATA, which is read in pieces, 16,384..16,777,215 bytes. Other frames have at most
    /// 16,384.
    frame_bytes_max: u24 = frame.payload_bytes_max,
    /// Content that comes for a stream after the end of its response, in bytes: so much is thrown away; more,
    /// and the stream is reset.
    linger_bytes_max: u32 = 256 * 1024,
    /// The fields of a message as RFC 9113 section 6.5.2 counts them, in bytes; more: 431.
    list_bytes_max: u32 = 65_536,
    /// CONNECT with a protocol (RFC 8441) is served.
    extended_connect: bool = true,
    /// Streams that may end before their responses: reset by the peer, or because it broke the rules.
    resets: Allowance = .{ .burst = 1000, .per_second = 33 },
    /// Frames that ask for work and bring nothing: see session.zig.
    noise: Allowance = .{ .burst = 2000, .per_second = 100 },
};

/// Memory in which a session reads header blocks: the bench of its decoder, then the text of fields, then a
/// block that was joined of several frames.
pub const Room = []align(@alignOf(Bench)) u8;

/// Bytes of room that a session needs.
pub fn roomBytes(config: *const Config) usize {
    return @sizeOf(Bench) + fields.roomBytes(config.list_bytes_max) + blockBytesMax(config);
}

/// The longest header block, in bytes: encoded fields are shorter than what they count.
pub fn blockBytesMax(config: *const Config) usize {
    return config.list_bytes_max;
}
