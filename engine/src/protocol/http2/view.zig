//! A stream of a session, as its exchange sees it. Does not know: frames, other streams, and content, which
//! the stream's owner receives directly.
const Session = @import("session.zig").Session;
const StreamId = @import("../event.zig").Stream;

/// A stream. The session must outlive it.
pub const View = struct {
    session: *Session,
    stream: StreamId,

    /// Returns read content to the windows, so that the peer may send as much again.
    pub fn release(view: *const View, bytes: usize) void {
        if (bytes > 0) view.session.release(view.stream, @intCast(bytes));
    }

    /// Whether a part of the response was sent, and the client waits for the rest or for the end.
    pub fn responseOpen(view: *const View) bool {
        const stream = view.session.streams.find(view.stream) orelse return false;
        return stream.order.isOpen() or stream.waits();
    }
};
