//! Server-sent events (WHATWG HTML, section 9.2): a response that stays open, and events for it from any
//! thread. The engine keeps a quiet stream alive with comments.
//! Does not know: which clients get which events, and which events a client has missed.
const std = @import("std");
const protocol = @import("protocol");
const Detached = @import("detached.zig").Detached;
const Request = @import("request.zig").Request;
const response_file = @import("response.zig");
const Response = response_file.Response;

/// A message of an event stream.
pub const Event = protocol.http.event_stream.Event;

/// How a stream begins.
pub const Options = struct {
    /// Milliseconds before a client that has lost the stream comes back; null: the client's choice.
    retry_ms: ?u32 = null,
    /// Milliseconds between two comments, which keep proxies from taking the connection for dead; 0: no
    /// comments.
    heartbeat_ms: u32 = 15_000,
};

/// An open stream. A value: any thread may use it, and one of them ends it, once, by `end`, also when
/// `handleAbort` has told that the client is gone. Until then sending does no harm.
pub const EventStream = struct {
    detached: Detached,

    /// Why a stream does not begin.
    pub const OpenError = response_file.SendError || response_file.HeaderError;
    /// Why an event was not taken. `error.Full`: the client is slow, and `detached_bytes_max` bytes wait.
    pub const SendError = Detached.Error || error{InvalidEvent};

    /// Answers the request with a stream. Headers that the response has already go along. When the
    /// handler returns the stream stays open.
    pub fn open(response: *Response, options: Options) OpenError!EventStream {
        if (!response.hasHeader("content-type")) {
            try response.addNewHeader("Content-Type", "text/event-stream");
        }
        if (!response.hasHeader("cache-control")) try response.addNewHeader("Cache-Control", "no-store");
        // nginx passes events on at once only if it is told to.
        try response.addNewHeader("X-Accel-Buffering", "no");
        var buffer: [32]u8 = undefined;
        const first = if (options.retry_ms) |ms|
            std.fmt.bufPrint(&buffer, "retry: {d}\n\n", .{ms}) catch unreachable // the buffer is long enough
        else
            ":\n\n";
        _ = try response.write(first);
        if (options.heartbeat_ms > 0) try response.link.repeat(response, ":\n\n", options.heartbeat_ms);
        return .{ .detached = try response.detach() };
    }

    /// The id of the last event that the client has seen; a client that comes back sends it, to get the
    /// events behind that one. Null: it sends none. Borrowed from the request.
    pub fn lastEventId(request: *const Request) ?[]const u8 {
        const id = request.findHeader("last-event-id") orelse return null;
        return if (id.len > 0) id else null;
    }

    /// Sends a copy of an event, or nothing of it. Events of one thread arrive in their order.
    pub fn send(stream: EventStream, event: Event) SendError!void {
        const len = try event.size();
        var small: [1024]u8 = undefined;
        if (len <= small.len) return stream.sendIn(event, small[0..len]);
        const gpa = stream.detached.inbox.gpa;
        const large = try gpa.alloc(u8, len);
        defer gpa.free(large);
        return stream.sendIn(event, large);
    }

    fn sendIn(stream: EventStream, event: Event, space: []u8) SendError!void {
        var writer: std.Io.Writer = .fixed(space);
        event.write(&writer) catch unreachable; // `size` has counted the same bytes
        return stream.detached.write(space);
    }

    /// Ends the stream; its client comes back after a while, unless it was told not to. Frees what the stream
    /// holds, whether its client and the server are there or not.
    pub fn end(stream: EventStream) void {
        stream.detached.end() catch stream.detached.drop();
    }
};
