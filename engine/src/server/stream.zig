//! One of the streams that a connection carries, as the worker holds it.
const std = @import("std");
const Connection = @import("connection.zig").Connection;
const KeptHead = @import("kept_head.zig").KeptHead;

/// A stream, which for hosts is a connection without a socket.
pub const Stream = struct {
    connection: Connection,
    /// The neighbours in the list of its carrier's streams (multiplex.zig).
    previous: ?*Stream = null,
    next: ?*Stream = null,
    /// Something has come for it in the present turn of its carrier.
    touched: bool = false,
    /// A file that is part of its response is not what it was.
    file_failed: bool = false,
    /// A trailer section of the request that the host was not told of yet.
    trailers: ?*KeptHead = null,
    /// While output waits: `Multiplex.framed_bytes` at the time when that began.
    framed_before: u64 = 0,

    /// Asserts that the connection is a stream.
    pub inline fn of(connection: anytype) switch (@TypeOf(connection)) {
        *Connection => *Stream,
        *const Connection => *const Stream,
        else => unreachable,
    } {
        std.debug.assert(connection.carrier != null);
        return @alignCast(@fieldParentPtr("connection", connection));
    }
};
