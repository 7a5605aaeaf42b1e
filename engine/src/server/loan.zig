//! Bytes that are sent from their owner's memory. The owner gets them back when they were sent or dropped.
//! Does not know: owners, and connections.
const std = @import("std");
const assert = std.debug.assert;

/// An owner's mark for lent bytes. It lies in the owner's memory, and is the engine's until it comes back.
pub const Loan = extern struct { next: ?*Loan = null };

/// Bytes that several connections may send at a time. Their owner keeps them unchanged, and is told when a
/// connection has no more use for them.
pub const Held = struct {
    bytes: []const u8,
    holder: *anyopaque,
    /// The owner bounds the memory, however many connections send it: no connection is charged.
    is_shared: bool = false,
    /// Called once for each use, by the worker's thread, in the midst of its work: the function returns
    /// nothing, and asks nothing of the server.
    release: *const fn (holder: *anyopaque) void,

    /// Bytes that stay as they are for as long as the server runs.
    pub fn constant(bytes: []const u8) Held {
        const nobody = struct {
            fn release(_: *anyopaque) void {}
        };
        return .{ .bytes = bytes, .holder = @constCast(bytes.ptr), .release = nobody.release };
    }
};

/// The loans of a worker.
pub const Loans = struct {
    /// Loans that came back and whose owners were not told yet, the last one first.
    returned: ?*Loan = null,
    /// Bytes of loans that have not come back.
    bytes: usize = 0,
    /// Uses of bytes that several connections send, and that count for none of them (`Held.is_shared`).
    shared: usize = 0,

    /// An owner lends bytes.
    pub fn begin(loans: *Loans, bytes: usize) void {
        loans.bytes += bytes;
    }

    /// The bytes are their owner's again, who will be told.
    pub fn end(loans: *Loans, loan: *Loan, bytes: usize) void {
        loans.cancel(bytes);
        loans.decline(loan);
    }

    /// Like `end`, for an owner that needs no notice.
    pub fn cancel(loans: *Loans, bytes: usize) void {
        assert(bytes <= loans.bytes);
        loans.bytes -= bytes;
    }

    /// The loan is not needed, because the bytes were copied.
    pub fn decline(loans: *Loans, loan: *Loan) void {
        loan.next = loans.returned;
        loans.returned = loan;
    }

    /// Whether several connections may wait for the same bytes.
    pub fn any(loans: *const Loans) bool {
        return loans.bytes > 0 or loans.shared > 0;
    }

    /// Bytes are used once more, or no more.
    pub fn use(loans: *Loans, held: *const Held) void {
        if (held.is_shared) loans.shared += 1 else loans.begin(held.bytes.len);
    }

    pub fn unuse(loans: *Loans, held: *const Held) void {
        if (!held.is_shared) return loans.cancel(held.bytes.len);
        assert(loans.shared > 0);
        loans.shared -= 1;
    }

    /// All that have come back since the last call, linked by `next`.
    pub fn take(loans: *Loans) ?*Loan {
        defer loans.returned = null;
        return loans.returned;
    }
};

test "a loan that has come back is told once" {
    var loans: Loans = .{};
    var marks: [3]Loan = @splat(.{});
    for (0..3) |_| loans.begin(10);
    loans.end(&marks[0], 10);
    loans.end(&marks[2], 10);
    try std.testing.expectEqual(10, loans.bytes);
    try std.testing.expectEqual(&marks[2], loans.take().?);
    try std.testing.expectEqual(&marks[0], marks[2].next.?);
    try std.testing.expectEqual(null, marks[0].next);
    try std.testing.expectEqual(null, loans.take());
    loans.cancel(10);
    try std.testing.expectEqual(0, loans.bytes);
}
