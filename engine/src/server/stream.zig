//! A stream of a transport: its lane, and content that waits to be framed.
const std = @import("std");
const assert = std.debug.assert;
const protocol = @import("protocol");
const KeptHead = @import("kept_head.zig").KeptHead;
const Lane = @import("lane.zig").Lane;
const Output = @import("output.zig").Output;
const Ticket = @import("slab.zig").Ticket;
const Transport = @import("transport.zig").Transport;

/// A lane of a transport that carries many.
pub const Stream = struct {
    lane: Lane,
    /// Content that waits to be framed.
    out: Output = .{},
    /// The neighbours in the list of the transport's streams (multiplex.zig).
    previous: ?*Stream = null,
    next: ?*Stream = null,
    /// Something has come for the stream in the present turn of its transport.
    touched: bool = false,
    /// The stream is over; the slot is given back when the bytes that are being parsed are done with.
    closed: bool = false,
    /// A file that is part of the response has changed.
    file_failed: bool = false,
    end: End = .open,
    /// While output waits: `Multiplex.framed_bytes` at the time when that began.
    framed_before: u64 = 0,

    /// The state of the request's end, behind the content that has come.
    const End = union(enum) {
        /// More content may come.
        open,
        /// A trailer section, of which the host has to be told.
        trailers: *KeptHead,
        /// The end, of which the host has to be told.
        here,
        told,
    };

    /// Whether the host has to be told of the end when the content that has come is taken.
    pub fn holdsEnd(stream: *const Stream) bool {
        return switch (stream.end) {
            .open, .told => false,
            .trailers, .here => true,
        };
    }

    /// Prepares a slot for a stream that was opened; it must not move afterwards.
    pub fn init(
        stream: *Stream,
        ticket: Ticket,
        transport: *Transport,
        number: protocol.Stream,
        now: u64,
    ) void {
        assert(number != 0);
        stream.* = .{ .lane = .{
            .ticket = ticket,
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

    /// The stream of a lane that is one.
    pub inline fn of(lane: anytype) switch (@TypeOf(lane)) {
        *Lane => *Stream,
        *const Lane => *const Stream,
        else => unreachable,
    } {
        assert(lane.isStream());
        return @alignCast(@fieldParentPtr("lane", lane));
    }

    /// Asserts what always holds between two rounds.
    pub fn invariants(stream: *const Stream) void {
        const lane = &stream.lane;
        assert(lane.transport.multiplex() != null);
        // A stream has one exchange, and closes with it.
        assert(lane.phase == .exchange or lane.phase == .closing);
        // The host was told of the end when it had all content.
        if (stream.end == .told and lane.phase == .exchange) assert(lane.input.isEmpty());
        if (stream.closed) assert(lane.phase == .closing);
    }

    comptime {
        // Peers open them by the hundred.
        assert(@sizeOf(Stream) <= 300);
    }
};
