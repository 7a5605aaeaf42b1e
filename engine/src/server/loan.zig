//! Bytes that are sent from their owner's memory. The owner gets them back when they were sent or dropped.
//! Does not know: owners, and connections.
const std = @import("std");
const assert = std.debug.assert;

/// An owner's record of lent bytes. It lies in the owner's memory, which may not use it until the loan comes
/// back.
pub const Loan = extern struct { next: ?*Loan = null };

/// Bytes that several connections may send at a time. Their owner keeps them unchanged, and is told when a
/// connection no longer needs them.
pub const Held = struct {
    bytes: []const u8,
    holder: *anyopaque,
    /// The owner bounds the memory of the bytes, so they count for no connection.
    is_shared: bool = false,
    /// Called once for each use by the worker's thread, in the midst of its work, so the function may not
    /// call the server.
    release: *const fn (holder: *anyopaque) void,

    /// Bytes that are unchanged for as long as the server runs.
    pub fn constant(bytes: []const u8) Held {
        const nobody = struct {
            fn release(_: *anyopaque) void {}
        };
        return .{ .bytes = bytes, .holder = @constCast(bytes.ptr), .release = nobody.release };
    }
};

pub const Loans = struct {
    /// Loans that have come back and whose owners were not told yet, the last one first.
    returned: ?*Loan = null,
    /// Bytes of these loans, without those that were declined.
    returned_bytes: usize = 0,
    /// Bytes of loans that have not come back.
    bytes: usize = 0,
    /// Uses of shared bytes (`Held.is_shared`), which count for no connection.
    shared: usize = 0,

    /// Counts bytes that are lent.
    pub fn begin(loans: *Loans, bytes: usize) void {
        loans.bytes += bytes;
    }

    /// Ends a loan; its owner will be told.
    pub fn end(loans: *Loans, loan: *Loan, bytes: usize) void {
        loans.cancel(bytes);
        loans.decline(loan);
        loans.returned_bytes += bytes;
    }

    /// Ends a loan whose owner needs no notice.
    pub fn cancel(loans: *Loans, bytes: usize) void {
        assert(bytes <= loans.bytes);
        loans.bytes -= bytes;
    }

    /// Gives back a loan that was not used, because the bytes were copied.
    pub fn decline(loans: *Loans, loan: *Loan) void {
        loan.next = loans.returned;
        loans.returned = loan;
    }

    /// Whether any bytes are lent, so that several connections may send the same bytes.
    pub fn any(loans: *const Loans) bool {
        return loans.bytes > 0 or loans.shared > 0;
    }

    /// Counts another use of held bytes; `unuse` ends it.
    pub fn use(loans: *Loans, held: *const Held) void {
        if (held.is_shared) loans.shared += 1 else loans.begin(held.bytes.len);
    }

    pub fn unuse(loans: *Loans, held: *const Held) void {
        if (!held.is_shared) return loans.cancel(held.bytes.len);
        assert(loans.shared > 0);
        loans.shared -= 1;
    }

    /// Takes all loans that have come back since the last call, linked by `next`.
    pub fn take(loans: *Loans) ?*Loan {
        defer loans.returned = null;
        loans.returned_bytes = 0;
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
    try std.testing.expectEqual(20, loans.returned_bytes);
    try std.testing.expectEqual(&marks[2], loans.take().?);
    try std.testing.expectEqual(&marks[0], marks[2].next.?);
    try std.testing.expectEqual(null, marks[0].next);
    try std.testing.expectEqual(null, loans.take());
    loans.cancel(10);
    try std.testing.expectEqual(0, loans.bytes + loans.returned_bytes);
}
