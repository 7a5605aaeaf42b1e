//! A place for output: bytes in order, and whether they leave. A transport's waits for the kernel, a stream's
//! for windows and for its turn on the wire. Does not know: sockets, frames.
const Blockage = @import("blockage.zig").Blockage;
const Outbox = @import("outbox.zig").Outbox;

/// Queued output, and since when it does not leave.
pub const Output = struct {
    /// Queued output that is worth a system call before the round ends.
    pub const together_bytes = 16 * 1024;

    queue: Outbox = .{},
    /// `blocked`: the kernel took less than it was given, and will say when there is room; or content of a
    /// stream has waited since then.
    state: union(enum) { open, blocked: Blockage } = .open,
};
