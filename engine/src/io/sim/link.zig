//! Job: a connection of the fake network: what is on its way in both directions, and how far each side is.
//! Does not know: who reads and writes when.
const std = @import("std");
const Address = @import("../io.zig").Address;
const assert = std.debug.assert;

/// A connection: two pipes, and how far each side's sending went.
pub const Link = struct {
    address: Address,
    to_us: Pipe = .{},
    to_peer: Pipe = .{},
    /// Bytes that the peer's last read gave out.
    lent: Pipe = .{},
    peers: Side = .open,
    ours: Side = .open,
    /// Our side closed its socket.
    closed: bool = false,
    /// The peer closed its socket: whatever we send is answered with a reset.
    gone: bool = false,

    /// How far one end of a connection is.
    pub const Side = enum { open, shut, reset };

    pub fn deinit(self: *Link, gpa: std.mem.Allocator) void {
        self.to_us.deinit(gpa);
        self.to_peer.deinit(gpa);
        self.lent.deinit(gpa);
    }
};

/// Bytes in order.
pub const Pipe = struct {
    list: std.ArrayList(u8) = .empty,
    head: usize = 0,

    /// Bytes that are not consumed yet.
    pub fn unread(self: *const Pipe) []const u8 {
        return self.list.items[self.head..];
    }

    /// Room for exactly `count` bytes at the end; they count after `commit`.
    pub fn reserve(self: *Pipe, gpa: std.mem.Allocator, count: usize) error{OutOfMemory}![]u8 {
        self.list.replaceRangeAssumeCapacity(0, self.head, &.{});
        self.head = 0;
        try self.list.ensureUnusedCapacity(gpa, count);
        return self.list.unusedCapacitySlice()[0..count];
    }

    /// Notes that `count` bytes were written into the free space.
    pub fn commit(self: *Pipe, count: usize) void {
        self.list.items.len += count;
    }

    /// Removes the first `count` bytes.
    pub fn consume(self: *Pipe, count: usize) void {
        assert(count <= self.unread().len);
        self.head += count;
    }

    /// Forgets all bytes on their way: no reader wants them any more.
    pub fn clear(self: *Pipe) void {
        self.list.clearRetainingCapacity();
        self.head = 0;
    }

    pub fn deinit(self: *Pipe, gpa: std.mem.Allocator) void {
        self.list.deinit(gpa);
        self.* = .{};
    }
};
