//! Job: memory for bytes to send, and their owners. Does not know: the state of sockets.
//!
//! Output for one visit to the kernel is copied into the batch: a short range of memory that each visit uses
//! again, so that it stays in the processor's cache with any number of sockets. Output that the kernel has no
//! room for moves to a block of its own until the peer has read enough.
const std = @import("std");
const sys = @import("../sys.zig");
const Slice = sys.Slice;
const assert = std.debug.assert;

/// The maximum number of bytes of a send that is copied. A longer send is made at once: a system call costs
/// less than its copy.
pub const copy_bytes_max = 4 * 1024;
/// The size of a batch, in bytes; it fits into the first level of the processor's cache.
const batch_bytes = 16 * 1024;
/// The maximum number of sends in a batch.
const batch_sends = 256;
/// The deadline that never comes.
pub const never = std.math.maxInt(u64);

/// A send in the batch. The kernel takes it with the next visit, or reports that it has not taken all.
pub const Send = struct {
    /// The socket's descriptor.
    index: u32,
    start: u32,
    len: u32,
    fate: Fate = .open,

    /// The state of a send in the batch.
    pub const Fate = enum {
        open,
        /// The socket was closed; its descriptor is to be closed after this send.
        orphaned,
        /// The outcome of the send was handled elsewhere.
        settled,
    };
};

/// Bytes that the kernel had no room for. It sends them when it has room, and reports the end.
pub const Block = struct {
    /// The block's index among all blocks.
    id: u32,
    /// The socket's descriptor.
    index: u32,
    /// The socket was closed meanwhile; its descriptor is closed when the block is done.
    orphaned: bool = false,
    /// If orphaned: the time at which the kernel must give up, in milliseconds.
    until_ms: u64 = never,
    /// Bytes that the kernel has taken.
    done: u32 = 0,
    bytes: []u8,

    /// Returns the bytes that the kernel has not taken yet.
    pub fn rest(block: *const Block) []const u8 {
        return block.bytes[block.done..];
    }
};

/// All output that the kernel has not taken yet.
pub const Outgoing = struct {
    gpa: std.mem.Allocator,
    memory: []u8,
    used: u32 = 0,
    sends: []Send,
    sends_count: u16 = 0,
    /// Blocks by number; null: the number is free.
    blocks: std.ArrayList(?*Block) = .empty,
    free_ids: std.ArrayList(u32) = .empty,
    orphans: u32 = 0,

    pub fn init(gpa: std.mem.Allocator) error{OutOfMemory}!Outgoing {
        const memory = try gpa.alloc(u8, batch_bytes);
        errdefer gpa.free(memory);
        return .{ .gpa = gpa, .memory = memory, .sends = try gpa.alloc(Send, batch_sends) };
    }

    /// Frees all memory. The kernel must not use it any more.
    pub fn deinit(outgoing: *Outgoing) void {
        for (outgoing.blocks.items) |each| if (each) |block| outgoing.free(block);
        outgoing.blocks.deinit(outgoing.gpa);
        outgoing.free_ids.deinit(outgoing.gpa);
        outgoing.gpa.free(outgoing.sends);
        outgoing.gpa.free(outgoing.memory);
    }

    /// Adds a send of `total` bytes to the batch and returns its number there; null: it does not fit.
    pub fn add(outgoing: *Outgoing, index: u32, slices: []const Slice, total: usize) ?u16 {
        if (total > copy_bytes_max or total > batch_bytes - outgoing.used or
            outgoing.sends_count == batch_sends)
        {
            return null;
        }
        const number = outgoing.sends_count;
        outgoing.sends[number] = .{ .index = index, .start = outgoing.used, .len = @intCast(total) };
        for (slices) |slice| {
            @memcpy(outgoing.memory[outgoing.used..][0..slice.len], slice.base[0..slice.len]);
            outgoing.used += @intCast(slice.len);
        }
        outgoing.sends_count += 1;
        return number;
    }

    /// Whether send `number` of the batch belongs to the socket `index`.
    pub fn holds(outgoing: *const Outgoing, number: u16, index: u32) bool {
        return number < outgoing.sends_count and outgoing.sends[number].index == index;
    }

    /// Returns the bytes of a send in the batch.
    pub fn bytesOf(outgoing: *const Outgoing, number: u16) []const u8 {
        const send = &outgoing.sends[number];
        return outgoing.memory[send.start..][0..send.len];
    }

    /// Returns the sends in the batch.
    pub fn current(outgoing: *Outgoing) []Send {
        return outgoing.sends[0..outgoing.sends_count];
    }

    /// Empties the batch after the kernel has taken it.
    pub fn turn(outgoing: *Outgoing) void {
        outgoing.used = 0;
        outgoing.sends_count = 0;
    }

    /// Copies bytes that the kernel had no room for into a block.
    pub fn keep(outgoing: *Outgoing, index: u32, bytes: []const u8) error{OutOfMemory}!*Block {
        if (outgoing.free_ids.items.len == 0) {
            // The list of free numbers has room for all blocks, so that `give` cannot fail.
            try outgoing.free_ids.ensureTotalCapacity(outgoing.gpa, outgoing.blocks.items.len + 1);
            try outgoing.blocks.append(outgoing.gpa, null);
            outgoing.free_ids.appendAssumeCapacity(@intCast(outgoing.blocks.items.len - 1));
        }
        const block = try outgoing.gpa.create(Block);
        errdefer outgoing.gpa.destroy(block);
        const copy = try outgoing.gpa.dupe(u8, bytes);
        block.* = .{ .id = outgoing.free_ids.pop().?, .index = index, .bytes = copy };
        outgoing.blocks.items[block.id] = block;
        return block;
    }

    /// Frees a block that the kernel has sent or given up.
    pub fn give(outgoing: *Outgoing, block: *Block) void {
        if (block.orphaned) outgoing.orphans -= 1;
        outgoing.blocks.items[block.id] = null;
        outgoing.free_ids.appendAssumeCapacity(block.id);
        outgoing.free(block);
    }

    fn free(outgoing: *Outgoing, block: *Block) void {
        outgoing.gpa.free(block.bytes);
        outgoing.gpa.destroy(block);
    }

    /// Marks a block whose socket was closed. The kernel may go on sending it until `until_ms`.
    pub fn orphan(outgoing: *Outgoing, block: *Block, until_ms: u64) void {
        assert(!block.orphaned);
        block.orphaned = true;
        block.until_ms = until_ms;
        outgoing.orphans += 1;
    }
};

const testing = std.testing;

test "a batch holds what its slices held, as far as there is room, and is used again" {
    var outgoing: Outgoing = try .init(testing.allocator);
    defer outgoing.deinit();
    const parts = [_]Slice{
        .{ .base = "ab", .len = 2 }, .{ .base = "", .len = 0 }, .{ .base = "cde", .len = 3 },
    };
    const first = outgoing.add(7, &parts, 5).?;
    const second = outgoing.add(8, parts[2..], 3).?;
    try testing.expectEqualStrings("abcde", outgoing.bytesOf(first));
    try testing.expectEqualStrings("cde", outgoing.bytesOf(second));
    const large: [copy_bytes_max + 1]u8 = @splat('l');
    try testing.expectEqual(null, outgoing.add(9, &.{.{ .base = &large, .len = large.len }}, large.len));
    while (outgoing.add(9, &.{.{ .base = &large, .len = copy_bytes_max }}, copy_bytes_max)) |_| {}
    while (outgoing.add(9, parts[2..], 3)) |_| {}
    try testing.expectEqualStrings("abcde", outgoing.bytesOf(first));
    try testing.expect(outgoing.holds(first, 7) and !outgoing.holds(second, 7));
    outgoing.turn();
    try testing.expect(!outgoing.holds(first, 7));
    try testing.expectEqual(0, outgoing.current().len);
    try testing.expectEqual(first, outgoing.add(9, parts[2..], 3).?);
}

test "blocks have their names to themselves, and give them back" {
    var outgoing: Outgoing = try .init(testing.allocator);
    defer outgoing.deinit();
    const first = try outgoing.keep(7, "one");
    const second = try outgoing.keep(8, "two");
    try testing.expect(first.id != second.id);
    outgoing.orphan(first, 5);
    try testing.expectEqual(1, outgoing.orphans);
    const id = first.id;
    outgoing.give(first);
    try testing.expectEqual(0, outgoing.orphans);
    try testing.expectEqual(id, (try outgoing.keep(9, "six")).id);
    try testing.expectEqualStrings("two", second.rest());
}
