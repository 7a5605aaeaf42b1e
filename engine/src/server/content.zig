//! Content of a response, in the forms that a host has it in. A value: `Worker.write` queues it.
const Held = @import("loan.zig").Held;
const FileRange = @import("outbox.zig").FileRange;
const Loan = @import("loan.zig").Loan;
const Outbox = @import("outbox.zig").Outbox;

/// A piece of a body. If it is not taken, because of an error, it stays its owner's.
pub const Content = union(enum) {
    /// Copied.
    bytes: []const u8,
    /// Not copied: they must not change until the loan comes back (`Pool.loans`), which may be at once.
    lent: struct { bytes: []const u8, loan: *Loan },
    /// Not copied: their owner holds them until they were sent or dropped.
    held: Held,
    /// Blocks of the worker's pool, which are taken over.
    blocks: *Outbox,
    /// A range of a file that is known to be there, the last piece of its body. The descriptor is the
    /// worker's from then on.
    file: FileRange,
    /// Bytes and file ranges in blocks of the worker's pool, `len` bytes in all, the last piece of their
    /// body.
    parts: struct { chain: *Outbox, len: u64 },
};
