//! Limits for a peer of HTTP/2. Does not know: the code that enforces them (session.zig).
const Bench = @import("hpack/decoder.zig").Bench;
const fields = @import("fields.zig");
const frame = @import("frame.zig");
const Allowance = @import("patience.zig").Allowance;

/// Limits for a peer. The owner keeps them as long as sessions exist.
pub const Config = struct {
    /// The maximum number of streams that are open at a time, 1..65,534.
    streams_max: u16 = 100,
    /// The maximum of a stream's content that is under way or waits for its reader, in bytes.
    stream_window_bytes: u31 = 65_535,
    /// The window of all streams together, in bytes; at least 65,535.
    connection_window_bytes: u31 = 1 << 20,
    /// The maximum payload of DATA, which is read in pieces, 16,384..16,777,215 bytes. For other frames it is
    /// 16,384.
    frame_bytes_max: u24 = frame.payload_bytes_max,
    /// The content of a stream that is discarded after the end of its response, in bytes; more: the stream is
    /// reset.
    linger_bytes_max: u32 = 256 * 1024,
    /// The size of a message's fields as defined in RFC 9113 section 6.5.2, in bytes; more: 431.
    list_bytes_max: u32 = 65_536,
    /// CONNECT with a protocol (RFC 8441) is supported.
    extended_connect: bool = true,
    /// Streams that may end before their responses, because the peer resets them or breaks the rules.
    resets: Allowance = .{ .burst = 1000, .per_second = 33 },
    /// Frames that cause work but carry no content (see session.zig).
    noise: Allowance = .{ .burst = 2000, .per_second = 100 },
};

/// Memory in which a session reads header blocks: the decoder's state, then the text of fields, then a block
/// joined from several frames.
pub const Room = []align(@alignOf(Bench)) u8;

/// The number of bytes of room that a session needs.
pub fn roomBytes(config: *const Config) usize {
    return @sizeOf(Bench) + fields.roomBytes(config.list_bytes_max) + blockBytesMax(config);
}

/// The maximum length of a header block, in bytes: encoded fields are shorter than the size that counts for
/// `list_bytes_max`.
pub fn blockBytesMax(config: *const Config) usize {
    return config.list_bytes_max;
}
