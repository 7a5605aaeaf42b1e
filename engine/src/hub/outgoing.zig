//! Memory of bytes that wait for a socket. Memory of sent bytes is freed while others wait, because a peer
//! that reads steadily would otherwise make it grow by all bytes that it was ever sent.
const std = @import("std");
const assert = std.debug.assert;

/// Bytes of memory that are kept when no bytes wait.
const kept_bytes = 64 << 10;

/// Notes that the socket has taken `count` more bytes. `sent` counts sent bytes at the front of `output`.
pub fn noteSent(gpa: std.mem.Allocator, output: *std.ArrayList(u8), sent: *usize, count: usize) void {
    sent.* += count;
    assert(sent.* <= output.items.len);
    const rest = output.items[sent.*..];
    if (rest.len == 0) {
        if (output.capacity > kept_bytes) output.clearAndFree(gpa) else output.clearRetainingCapacity();
    } else {
        // Each byte is moved at most once for each byte that was sent.
        if (sent.* < rest.len) return;
        @memcpy(output.items[0..rest.len], rest);
        output.shrinkRetainingCapacity(rest.len);
    }
    sent.* = 0;
}

test "memory does not grow by what has gone while bytes wait" {
    const gpa = std.testing.allocator;
    var output: std.ArrayList(u8) = .empty;
    defer output.deinit(gpa);
    var sent: usize = 0;
    var next_in: u8 = 0;
    var next_out: u8 = 0;
    for (0..10_000) |_| {
        for (0..100) |_| {
            try output.append(gpa, next_in);
            next_in +%= 1;
        }
        // A hundred bytes always wait.
        const count = output.items.len - sent -| 100;
        for (output.items[sent..][0..count]) |byte| {
            try std.testing.expectEqual(next_out, byte);
            next_out +%= 1;
        }
        noteSent(gpa, &output, &sent, count);
        try std.testing.expect(output.capacity < 1_000);
    }
    noteSent(gpa, &output, &sent, output.items.len - sent);
    try std.testing.expectEqual(0, output.items.len);
    try output.ensureTotalCapacity(gpa, kept_bytes + 1);
    noteSent(gpa, &output, &sent, 0);
    try std.testing.expectEqual(0, output.capacity);
}
