//! A place for output: bytes in order, and whether they can be sent. A transport's output waits for the
//! kernel, a stream's output for windows and for its turn. Does not know: sockets, frames.
const assert = @import("std").debug.assert;
const Blockage = @import("blockage.zig").Blockage;
const Outbox = @import("outbox.zig").Outbox;

/// Queued output, and the time since which it is blocked.
pub const Output = struct {
    /// Queued bytes that are worth a system call before the round ends.
    pub const together_bytes = 16 * 1024;

    queue: Outbox = .{},
    /// `blocked`: the kernel took only a part of the output, and will report room; or content of a stream
    /// waits for its window.
    state: union(enum) { open, blocked: Blockage } = .open,

    comptime {
        // Each idle connection has a place for output.
        assert(@sizeOf(Output) <= 56);
    }
};
