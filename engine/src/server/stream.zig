//! A stream of a transport: its lane, and content that waits to be framed.
const std = @import("std");
const assert = std.debug.assert;
const protocol = @import("protocol");
const KeptHead = @import("kept_head.zig").KeptHead;
const Lane = @import("lane.zig").Lane;
const Output = @import("output.zig").Output;
const Transport = @import("transport.zig").Transport;

/// A stream of a transport, with its lane.
pub const Stream = struct {
    lane: Lane,
    /// Content that waits to be framed.
    out: Output = .{},
    /// The neighbours in the list of the transport's streams (multiplex.zig).
    previous: ?*Stream = null,
    next: ?*Stream = null,
    /// An event has come for the stream in the present turn of its transport.
    touched: bool = false,
    /// The stream has ended. Its slot is given back after the bytes that are being parsed.
    closed: bool = false,
    /// A file of the response has changed its size or could not be read.
    file_failed: bool = false,
    end: End = .open,
    /// `Multiplex.framed_bytes` at the time when the output began to wait.
    framed_before: u64 = 0,

    /// The end of the request, which follows the content that has come.
    const End = union(enum) {
        /// More content may come.
        open,
        /// A trailer section has come, and the host was not told of it yet.
        trailers: *KeptHead,
        /// The end has come, and the host was not told of it yet.
        here,
        told,
    };

    /// Whether the host must be told of the end after the content that has come.
    pub fn holdsEnd(stream: *const Stream) bool {
        return switch (stream.end) {
            .open, .told => false,
            .trailers, .here => true,
        };
    }

    /// Prepares a slot for a stream that was opened. The stream must not move afterwards.
    pub fn init(
        stream: *Stream,
        transport: *Transport,
        number: protocol.Stream,
        now: u64,
    ) void {
        assert(number != 0);
        stream.* = .{ .lane = .{
            .transport = transport,
            .stream = number,
            .phase = .{ .idle = .{ .since = now } },
            .request_count = transport.lane.request_count,
        } };
    }

    /// The number of the stream in its connection's session.
    pub fn id(stream: *const Stream) protocol.Stream {
        return stream.lane.stream;
    }

    /// The stream of a lane that belongs to a stream.
    pub inline fn of(lane: anytype) switch (@TypeOf(lane)) {
        *Lane => *Stream,
        *const Lane => *const Stream,
        else => unreachable,
    } {
        assert(lane.isStream());
        return @alignCast(@fieldParentPtr("lane", lane));
    }

    /// Asserts relations that hold between two rounds.
    pub fn invariants(stream: *const Stream) void {
        const lane = &stream.lane;
        assert(lane.transport.multiplex() != null);
        // A stream has one exchange, and ends with it.
        assert(lane.phase == .exchange or lane.phase == .closing);
        // The host was told of the end after all content.
        if (stream.end == .told and lane.phase == .exchange) assert(lane.input.isEmpty());
        if (stream.closed) assert(lane.phase == .closing);
    }

    comptime {
        // Peers open hundreds of streams.
        assert(@sizeOf(Stream) <= 300);
    }
};
