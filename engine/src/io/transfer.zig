//! Job: sending from a file to a socket as far as the kernel takes it; shared by all ios that make the system
//! call themselves. Does not know: events, and senders that wait for room.
const io = @import("io.zig");
const sys = @import("sys.zig");

/// The outcome of `sendFile`. `full`: the kernel has no room; a `sent` event follows when it has.
pub const Sent = struct { outcome: io.SendResult, full: bool = false };

/// Sends `total` bytes of a file from `offset` on, as far as the kernel takes them.
pub fn sendFile(socket: sys.Fd, file: sys.Fd, offset: u64, total: usize) Sent {
    var sent: usize = 0;
    // A short count may mean a full socket, the end of the file, or neither. The kernel reports room only
    // after a refusal, so the loop continues until a refusal.
    while (sent < total) switch (sys.sendFile(socket, file, offset + sent, total - sent)) {
        .done => |count| {
            if (count == 0 and sent == 0) return .{ .outcome = .end_of_file };
            if (count == 0) break;
            sent += count;
        },
        .blocked => return .{ .outcome = if (sent == 0) .blocked else .{ .sent = sent }, .full = true },
        .failed => |code| {
            if (!sys.isFileFault(code)) return .{ .outcome = .{ .failed = sys.number(code) } };
            if (sent == 0) return .{ .outcome = .{ .file_failed = sys.number(code) } };
            break;
        },
    };
    return .{ .outcome = .{ .sent = sent } };
}
