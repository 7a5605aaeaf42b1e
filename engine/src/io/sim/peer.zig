//! Job: the other end of a simulated connection: what a client does to its socket.
//! Does not know: when our side notices, which is the `Sim`'s to decide.
const std = @import("std");
const io = @import("../io.zig");
const Link = @import("link.zig").Link;
const Pipe = @import("link.zig").Pipe;
const Sim = @import("../sim.zig").Sim;
const assert = std.debug.assert;

/// The other end of a connection, in the hands of a test. Valid as long as the `Sim`.
pub const Peer = struct {
    sim: *Sim,
    index: u32,

    /// Sends bytes, as many as the window has room for, and returns how many; 0 also when the
    /// connection is gone.
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

    /// Bytes that have arrived since the last read, in order. Valid until the next read of this peer.
    pub fn read(self: Peer) []const u8 {
        const link = self.endpoint();
        link.lent.clear();
        std.mem.swap(Pipe, &link.lent, &link.to_peer);
        return link.lent.unread();
    }

    /// Like `read`, for at most `max` bytes: a slow reader.
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

    /// Closes this peer's socket, as a client does that goes away: we see its end, and a reset once we send.
    /// With unread bytes: `reset`.
    pub fn close(self: Peer) void {
        const link = self.endpoint();
        if (link.to_peer.unread().len > 0) return self.reset();
        self.shutdown();
        link.gone = true;
    }

    /// Kills the connection. What is on the way to us may get lost.
    pub fn reset(self: Peer) void {
        self.sim.breakLink(self.endpoint());
    }

    /// How the connection ended for this peer; null while there may be more to read.
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
