//! A stream of a session, as its exchange sees it. Does not know: frames, other streams, and content, which
//! the stream's owner gets as it comes.
const Session = @import("session.zig").Session;
const StreamId = @import("../event.zig").Stream;

/// A stream. The session outlives it.
pub const View = struct {
    session: *Session,
    stream: StreamId,

    /// Content was taken: the peer may send as much again.
    pub fn release(view: *const View, bytes: usize) void {
        if (bytes > 0) view.session.release(view.stream, @intCast(bytes));
    }

    /// Whether the response, as far as it was framed, is a part of one.
    pub fn responseOpen(view: *const View) bool {
        const stream = view.session.streams.find(view.stream) orelse return false;
        return stream.order.isOpen() or stream.waits();
    }
};
