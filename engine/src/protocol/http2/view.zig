//! A stream of a session as its exchange sees it, with the functions of a session that has one exchange at a
//! time. The stream's owner keeps content that has come and was not taken; `feed` reads it, and tells of the
//! end when all of it was taken. Does not know: frames, and other streams.
const std = @import("std");
const assert = std.debug.assert;
const http1 = @import("../http1/session.zig");
const base_event = @import("../event.zig");
const session_file = @import("session.zig");
const Field = @import("../http/header.zig").Field;
const Head = session_file.Head;
const Session = session_file.Session;
const Step = base_event.Step;
const StreamId = base_event.Stream;

/// A stream. The session outlives it.
pub const View = struct {
    session: *Session,
    stream: StreamId,
    /// Trailers and the end, behind the content.
    end: End = .open,

    /// How much is known of the end of a request.
    const End = union(enum) {
        /// More content may come.
        open,
        /// A trailer section, which has to be told yet; kept by the owner of the stream.
        trailers: *const Head,
        /// Nothing; it has to be told yet.
        here,
        told,
    };

    /// Nothing comes behind the content, but for a trailer section, if there is one: it has to stay as it is
    /// until `feed` has told of it.
    pub fn noteEnd(view: *View, trailers: ?*const Head) void {
        assert(view.end == .open);
        view.end = if (trailers) |head| .{ .trailers = head } else .here;
    }

    /// Whether there is something to tell without further content.
    pub fn holdsEnd(view: *const View) bool {
        return switch (view.end) {
            .open, .told => false,
            .trailers, .here => true,
        };
    }

    /// Reads on: `bytes` are all content that has come and was not consumed. `head` is filled at `.trailers`.
    pub fn feed(view: *View, bytes: []const u8, head: *Head) Step {
        const step: Step = .{ .consumed = bytes.len, .stream = view.stream, .event = .need_more };
        if (bytes.len > 0) return told(step, .{ .body = bytes });
        switch (view.end) {
            .open => return step,
            .trailers => |kept| {
                const storage = head.storage;
                head.* = kept.*;
                head.storage = storage;
                view.end = .here;
                return told(step, .trailers);
            },
            .here => {
                view.end = .told;
                return told(step, .end);
            },
            .told => return step,
        }
    }

    fn told(step: Step, event: base_event.Event) Step {
        var full = step;
        full.event = event;
        return full;
    }

    /// So much content was taken: the peer may send as much again.
    pub fn release(view: *View, bytes: usize) void {
        if (bytes > 0) view.session.release(view.stream, @intCast(bytes));
    }

    /// Whether the response, as far as it was framed, is a part of one.
    pub fn responseOpen(view: *const View) bool {
        const stream = view.session.streams.find(view.stream) orelse return false;
        return stream.order.isOpen() or stream.waits();
    }

    /// See Session.planBody.
    pub fn planBody(view: *const View, piece: http1.Piece) http1.BodyError!http1.Plan {
        return common(try view.session.planBody(view.stream, piece));
    }

    /// See Session.planEnd.
    pub fn planEnd(view: *View, trailers: []const Field, out: []u8) http1.EndError!http1.Plan {
        return common(try view.session.planEnd(view.stream, trailers, out));
    }

    fn common(plan: session_file.Plan) http1.Plan {
        return .{ .len = plan.len, .payload = plan.payload, .change = .{
            .order = plan.change.order,
            .dropped_hop_field = plan.change.dropped_field,
            .queued = plan.change.queued,
            .trailers = plan.change.trailers,
        } };
    }

    /// See Session.apply.
    pub fn apply(view: *View, plan: http1.Plan) void {
        view.session.apply(view.stream, .{ .len = plan.len, .payload = plan.payload, .change = .{
            .order = plan.change.order,
            .queued = plan.change.queued,
            .trailers = plan.change.trailers,
            .dropped_field = plan.change.dropped_hop_field,
        } });
    }
};
