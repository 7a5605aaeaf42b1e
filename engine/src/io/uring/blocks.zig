//! Job: memory for bytes that are on their way out, which the kernel may read at any time until it says that it is done.
//! Refuses to know: what becomes of sockets. Blocks never move, and are used again.
const std = @import("std");
const Slice = @import("../sys.zig").Slice;
const assert = std.debug.assert;

/// What one send may copy. Larger ones go out at once, without a copy.
pub const block_bytes = 16 * 1024;
/// More blocks than this are not handed out; sends then go out at once.
const blocks_max = 1024;
/// Blocks that are allocated together. Their length is no power of two, so that the first bytes of each, mostly the only ones, do not compete
/// for the same lines of the processor's cache.
const chunk_blocks = 8;
/// No time at all.
pub const never = std.math.maxInt(u64);

/// Bytes on their way out.
pub const Block = struct {
    /// Its place among the blocks.
    id: u32,
    state: State = .free,
    /// The socket's descriptor.
    index: u32 = 0,
    /// The socket was closed meanwhile; its descriptor is closed when the block is done.
    orphaned: bool = false,
    /// Orphaned: when the kernel has had its time.
    until_ms: u64 = never,
    len: u32 = 0,
    /// Bytes that the kernel has taken.
    done: u32 = 0,
    bytes: [block_bytes]u8 = undefined,

    /// How far it is.
    pub const State = enum {
        free,
        /// With the next visit the kernel takes all of it, or says that it has not.
        asked,
        /// There was no room. The kernel goes on when there is, and says when it is done.
        patient,
    };

    /// What the kernel has not taken yet.
    pub fn rest(block: *const Block) []const u8 {
        return block.bytes[block.done..block.len];
    }
};

/// All blocks of an io.
pub const Blocks = struct {
    gpa: std.mem.Allocator,
    all: std.ArrayList(*Block) = .empty,
    free: std.ArrayList(*Block) = .empty,
    /// Blocks that were asked for since the last visit to the kernel.
    asked: std.ArrayList(*Block) = .empty,
    orphans: u32 = 0,

    /// The kernel must be done with all of them.
    pub fn deinit(blocks: *Blocks) void {
        var id: usize = 0;
        while (id < blocks.all.items.len) : (id += chunk_blocks) {
            const chunk: *[chunk_blocks]Block = @ptrCast(blocks.all.items[id]);
            blocks.gpa.destroy(chunk);
        }
        blocks.all.deinit(blocks.gpa);
        blocks.free.deinit(blocks.gpa);
        blocks.asked.deinit(blocks.gpa);
    }

    /// A block with these bytes in it, to be asked for, or null: there is none to be had.
    pub fn take(blocks: *Blocks, slices: []const Slice, index: u32) ?*Block {
        if (blocks.free.items.len == 0) blocks.create() catch return null;
        blocks.asked.append(blocks.gpa, blocks.free.items[blocks.free.items.len - 1]) catch return null;
        const block = blocks.free.pop().?;
        block.state = .asked;
        block.index = index;
        block.len = 0;
        block.done = 0;
        for (slices) |slice| {
            @memcpy(block.bytes[block.len..][0..slice.len], slice.base[0..slice.len]);
            block.len += @intCast(slice.len);
        }
        return block;
    }

    fn create(blocks: *Blocks) error{OutOfMemory}!void {
        const first = blocks.all.items.len;
        if (first == blocks_max) return error.OutOfMemory;
        try blocks.all.ensureUnusedCapacity(blocks.gpa, chunk_blocks);
        // Room for all of them to come back.
        try blocks.free.ensureTotalCapacity(blocks.gpa, first + chunk_blocks);
        const chunk = try blocks.gpa.create([chunk_blocks]Block);
        for (chunk, first..) |*block, id| {
            block.* = .{ .id = @intCast(id) };
            blocks.all.appendAssumeCapacity(block);
            blocks.free.appendAssumeCapacity(block);
        }
    }

    /// The kernel is done with it.
    pub fn give(blocks: *Blocks, block: *Block) void {
        assert(block.state != .free);
        if (block.orphaned) blocks.orphans -= 1;
        block.orphaned = false;
        block.until_ms = never;
        block.state = .free;
        blocks.free.appendAssumeCapacity(block);
    }

    /// The socket is closed; the kernel may go on until then.
    pub fn orphan(blocks: *Blocks, block: *Block, until_ms: u64) void {
        assert(block.state != .free and !block.orphaned);
        block.orphaned = true;
        block.until_ms = until_ms;
        blocks.orphans += 1;
    }
};

test "a block holds what its slices held, and is used again" {
    var blocks: Blocks = .{ .gpa = std.testing.allocator };
    defer blocks.deinit();
    const parts = [_]Slice{ .{ .base = "ab", .len = 2 }, .{ .base = "", .len = 0 }, .{ .base = "cde", .len = 3 } };
    const first = blocks.take(&parts, 7).?;
    try std.testing.expectEqualStrings("abcde", first.rest());
    const second = blocks.take(parts[0..1], 8).?;
    try std.testing.expect(first != second);
    blocks.give(first);
    try std.testing.expectEqual(first, blocks.take(parts[2..], 9).?);
    try std.testing.expectEqualStrings("cde", first.rest());
    blocks.orphan(second, 5);
    try std.testing.expectEqual(1, blocks.orphans);
    blocks.give(second);
    try std.testing.expectEqual(0, blocks.orphans);
}
