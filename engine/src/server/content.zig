//! Content of a response, in the forms in which a host has it. A value: `Worker.write` queues it.
const Held = @import("loan.zig").Held;
const FileRange = @import("outbox.zig").FileRange;
const Loan = @import("loan.zig").Loan;
const Outbox = @import("outbox.zig").Outbox;

/// A piece of a body. The host still owns a piece that an error kept from being queued.
pub const Content = union(enum) {
    /// Bytes that are copied.
    bytes: []const u8,
    /// Bytes that are not copied and must not change until the loan comes back (`Pool.loans`), which may be
    /// at once.
    lent: struct { bytes: []const u8, loan: *Loan },
    /// Bytes that are not copied; their owner keeps them until they were sent or dropped.
    held: Held,
    /// Blocks of the worker's pool, which the worker takes over.
    blocks: *Outbox,
    /// A range of an open file, the last piece of a body. The worker owns the descriptor from then on.
    file: FileRange,
    /// Bytes and file ranges in blocks of the worker's pool, `len` bytes in all: the last piece of a body.
    parts: struct { chain: *Outbox, len: u64 },
};
