//! Job: the other end of a simulated connection: the actions of a client on its socket. Does not know: when
//! our side learns of them, which the `Sim` decides.
const std = @import("std");
const io = @import("../io.zig");
const Link = @import("link.zig").Link;
const Pipe = @import("link.zig").Pipe;
const Sim = @import("../sim.zig").Sim;
const assert = std.debug.assert;

/// The other end of a connection, for a test. Valid as long as the `Sim`.
pub const Peer = struct {
    sim: *Sim,
    index: u32,

    /// Sends bytes, as many as fit into the window, and returns their number; 0 also if the connection is
    /// dead.
    pub fn write(self: Peer, bytes: []const u8) error{OutOfMemory}!usize {
        const link = self.endpoint();
        assert(link.peers != .shut);
        if (link.peers == .reset or link.ours == .reset) return 0;
        if (link.closed) {
            link.ours = .reset;
            return 0;
        }
        const count = @min(bytes.len, self.sim.options.window_bytes - link.to_us.unread().len);
        const room = try link.to_us.reserve(self.sim.gpa, count);
        @memcpy(room, bytes[0..count]);
        link.to_us.commit(count);
        return count;
    }

    /// Returns the bytes that came since the last read. Valid until the next read of this peer.
    pub fn read(self: Peer) []const u8 {
        const link = self.endpoint();
        link.lent.clear();
        std.mem.swap(Pipe, &link.lent, &link.to_peer);
        return link.lent.unread();
    }

    /// Like `read`, for at most `max` bytes, as a slow reader does.
    pub fn readSome(self: Peer, max: usize) error{OutOfMemory}![]const u8 {
        const link = self.endpoint();
        link.lent.clear();
        const part = link.to_peer.unread()[0..@min(max, link.to_peer.unread().len)];
        @memcpy(try link.lent.reserve(self.sim.gpa, part.len), part);
        link.lent.commit(part.len);
        link.to_peer.consume(part.len);
        return link.lent.unread();
    }

    /// Ends this peer's sending side; it can still read.
    pub fn shutdown(self: Peer) void {
        const link = self.endpoint();
        if (link.peers == .open) link.peers = .shut;
    }

    /// Closes this peer's socket: our side sees the end, and a reset after it sends. If bytes are unread,
    /// like `reset`.
    pub fn close(self: Peer) void {
        const link = self.endpoint();
        if (link.to_peer.unread().len > 0) return self.reset();
        self.shutdown();
        link.gone = true;
    }

    /// Resets the connection. Bytes on the way to our side may be lost.
    pub fn reset(self: Peer) void {
        self.sim.breakLink(self.endpoint());
    }

    /// Returns how our side ended the connection; null: it has not, or bytes are unread.
    pub fn ended(self: Peer) ?io.Ended {
        const link = self.endpoint();
        if (link.to_peer.unread().len > 0) return null;
        return switch (link.ours) {
            .open => null,
            .shut => .eof,
            .reset => .reset,
        };
    }

    fn endpoint(self: Peer) *Link {
        return &self.sim.links.items[self.index];
    }
};
