//! Job: a connection of the simulated network: the bytes under way in both directions, and the state of each
//! side. Does not know: when each side reads and writes.
const std = @import("std");
const Address = @import("../io.zig").Address;
const assert = std.debug.assert;

/// A connection: two pipes, and the state of each side.
pub const Link = struct {
    address: Address,
    to_us: Pipe = .{},
    to_peer: Pipe = .{},
    /// Bytes that the peer's last read returned.
    lent: Pipe = .{},
    peers: Side = .open,
    ours: Side = .open,
    /// Our side has closed its socket.
    closed: bool = false,
    /// The peer has closed its socket: bytes that we send cause a reset.
    gone: bool = false,

    /// The state of one side of a connection.
    pub const Side = enum { open, shut, reset };

    pub fn deinit(self: *Link, gpa: std.mem.Allocator) void {
        self.to_us.deinit(gpa);
        self.to_peer.deinit(gpa);
        self.lent.deinit(gpa);
    }
};

/// A queue of bytes.
pub const Pipe = struct {
    list: std.ArrayList(u8) = .empty,
    head: usize = 0,

    /// Returns the bytes that were not consumed yet.
    pub fn unread(self: *const Pipe) []const u8 {
        return self.list.items[self.head..];
    }

    /// Returns room for exactly `count` bytes at the end; they belong to the pipe after `commit`.
    pub fn reserve(self: *Pipe, gpa: std.mem.Allocator, count: usize) error{OutOfMemory}![]u8 {
        self.list.replaceRangeAssumeCapacity(0, self.head, &.{});
        self.head = 0;
        try self.list.ensureUnusedCapacity(gpa, count);
        return self.list.unusedCapacitySlice()[0..count];
    }

    /// Appends the first `count` bytes of the reserved room.
    pub fn commit(self: *Pipe, count: usize) void {
        self.list.items.len += count;
    }

    /// Removes the first `count` bytes.
    pub fn consume(self: *Pipe, count: usize) void {
        assert(count <= self.unread().len);
        self.head += count;
    }

    /// Removes all bytes.
    pub fn clear(self: *Pipe) void {
        self.list.clearRetainingCapacity();
        self.head = 0;
    }

    pub fn deinit(self: *Pipe, gpa: std.mem.Allocator) void {
        self.list.deinit(gpa);
        self.* = .{};
    }
};
