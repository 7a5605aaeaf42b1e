//! Bytes that are sent from where their owner has them, who may have them back when they were sent or will
//! not be. Does not know: who owns them, and what a connection is.
const std = @import("std");
const assert = std.debug.assert;

/// The owner's mark for bytes that he lends. It lies in his memory, and is the engine's until it comes back.
pub const Loan = extern struct { next: ?*Loan = null };

/// Bytes that several may send at a time, kept unchanged by somebody who is told when one of them has no more
/// use for them.
pub const Held = struct {
    bytes: []const u8,
    holder: *anyopaque,
    /// Called once for each use, by the worker's thread, in the midst of its work: it answers to nobody, and
    /// asks nothing of the server.
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
    /// Those that have come back, the last one first.
    returned: ?*Loan = null,
    /// Bytes that have not.
    bytes: usize = 0,

    /// Somebody lends so many bytes.
    pub fn begin(loans: *Loans, bytes: usize) void {
        loans.bytes += bytes;
    }

    /// They are his again, and he will be told.
    pub fn end(loans: *Loans, loan: *Loan, bytes: usize) void {
        loans.cancel(bytes);
        loans.decline(loan);
    }

    /// The same for one who knows.
    pub fn cancel(loans: *Loans, bytes: usize) void {
        assert(bytes <= loans.bytes);
        loans.bytes -= bytes;
    }

    /// Nothing was lent after all: a copy was made.
    pub fn decline(loans: *Loans, loan: *Loan) void {
        loan.next = loans.returned;
        loans.returned = loan;
    }

    /// All that have come back since the last call, linked by `next`.
    pub fn take(loans: *Loans) ?*Loan {
        defer loans.returned = null;
        return loans.returned;
    }
};

test "what has come back is told once" {
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
