//! Fuzz target `ring`: an application that writes anything into its ring pair. The first two bytes say how
//! much of it (in units of eight), the rest is the ring's memory. What is read lies within, and ends; what is
//! a command was encoded as such.
const std = @import("std");
const spoken = @import("spoken");
const ring = spoken.ring;
const testing = std.testing;

const gpa = std.heap.smp_allocator;
var memory: [ring.memoryBytes(ring.bytes_min)]u8 align(std.atomic.cache_line) = undefined;

/// Beside the ring, where commands may say that their content is.
var annex: [4096]u8 align(spoken.annex.alignment) = @splat(0);

pub fn run(input: []const u8) !void {
    if (input.len < 2) return;
    const bytes = input[2..][0..@min(input.len - 2, ring.bytes_min)];
    @memset(&memory, 0);
    @memcpy(memory[memory.len - ring.bytes_min ..][0..bytes.len], bytes);
    const header: *ring.Header = @ptrCast(&memory);
    header.tail.store(@as(u64, std.mem.readInt(u16, input[0..2], .little)) * ring.alignment, .release);
    var reader: ring.Reader = .init(&memory);
    var joiner: ring.Joiner = .{ .gpa = gpa, .bytes_max = 1 << 20 };
    defer joiner.deinit();
    var fields: std.ArrayList(spoken.Field) = .empty;
    defer fields.deinit(gpa);
    while (reader.next() catch return) |record| {
        try testing.expect(record.bytes.len <= ring.record_bytes_max);
        const message = (joiner.add(record) catch return) orelse continue;
        try look(message, &fields);
        joiner.clear();
        _ = reader.release();
    }
}

fn placeInAnnex(content: []const u8) ?u64 {
    const begin, const at = .{ @intFromPtr(&annex), @intFromPtr(content.ptr) };
    if (at < begin or at > begin + annex.len) return null;
    std.debug.assert(at + content.len <= begin + annex.len);
    return at - begin;
}

fn look(message: []align(ring.alignment) const u8, fields: *std.ArrayList(spoken.Field)) !void {
    const beside: spoken.Beside = .{ .annex = .{ .memory = &annex } };
    const said = spoken.decode(gpa, message, beside, fields) catch |err| switch (err) {
        error.Malformed => return,
        error.OutOfMemory => return err,
    };
    const again = try gpa.alloc(u8, message.len);
    defer gpa.free(again);
    if (placeInAnnex(spoken.contentOf(&said))) |offset| {
        try testing.expectEqual(message.len, spoken.sizeApart(&said));
        spoken.encodeApart(&said, offset, again);
    } else {
        try testing.expectEqual(message.len, spoken.size(&said));
        spoken.encode(&said, again);
    }
    try testing.expectEqualSlices(u8, message, again);
}
