//! Pieces of an application's annex that the engine sends from there: nothing copies them on their way to the
//! socket. The annex stays until the last piece is sent, even when the application has gone.
//! Does not know: what the pieces are, and to whom they go.
const std = @import("std");
const assert = std.debug.assert;
const annex = @import("annex.zig");
const peregrine = @import("peregrine");
const Held = peregrine.Held;

/// Used by the engine's thread only. Never moves.
pub const Borrowed = struct {
    gpa: std.mem.Allocator,
    region: []align(annex.alignment) u8,
    memory: Memory,
    pieces: [annex.View.units_max]Piece = undefined,
    /// Pieces that are borrowed.
    count: u32 = 0,
    /// The application has gone, and gets none of the pieces back.
    is_left: bool = false,

    /// The memory that the region is a part of, and how it is given back.
    pub const Memory = struct {
        bytes: []align(annex.alignment) u8,
        close: *const fn (bytes: []align(annex.alignment) u8) void,
    };

    /// A place in the annex where a piece may begin.
    const Piece = struct { home: *Borrowed, is_taken: bool = false };

    /// `region`: the annex of the ring of commands.
    pub fn create(
        gpa: std.mem.Allocator,
        region: []align(annex.alignment) u8,
        memory: Memory,
    ) error{OutOfMemory}!*Borrowed {
        assert(region.len == annex.region_bytes);
        const borrowed = try gpa.create(Borrowed);
        borrowed.* = .{ .gpa = gpa, .region = region, .memory = memory };
        for (&borrowed.pieces) |*piece| piece.* = .{ .home = borrowed };
        return borrowed;
    }

    /// The application has gone: the memory is closed when the last piece is released.
    pub fn leave(borrowed: *Borrowed) void {
        assert(!borrowed.is_left);
        borrowed.is_left = true;
        if (borrowed.count == 0) borrowed.destroy();
    }

    fn destroy(borrowed: *Borrowed) void {
        assert(borrowed.count == 0 and borrowed.is_left);
        borrowed.memory.close(borrowed.memory.bytes);
        borrowed.gpa.destroy(borrowed);
    }

    /// Borrows a piece of the annex, whose bytes stay until it is released. Null, by the application's fault:
    /// the piece is borrowed already, or no piece can begin there.
    pub fn borrow(borrowed: *Borrowed, bytes: []const u8) ?Held {
        assert(!borrowed.is_left);
        const unit = annex.View.of(borrowed.region).unitOf(bytes) orelse return null;
        const piece = &borrowed.pieces[unit];
        if (piece.is_taken) return null;
        piece.is_taken = true;
        borrowed.count += 1;
        annex.Kept.of(borrowed.region).keep(unit);
        return .{ .bytes = bytes, .holder = piece, .release = release };
    }

    fn release(holder: *anyopaque) void {
        const piece: *Piece = @ptrCast(@alignCast(holder));
        const borrowed = piece.home;
        assert(piece.is_taken and borrowed.count > 0);
        piece.is_taken = false;
        borrowed.count -= 1;
        const unit = (@intFromPtr(piece) - @intFromPtr(&borrowed.pieces)) / @sizeOf(Piece);
        annex.Kept.of(borrowed.region).giveBack(unit);
        if (borrowed.is_left and borrowed.count == 0) borrowed.destroy();
    }
};

test "the memory goes with the last piece, whenever the application goes" {
    const testing = std.testing;
    const Home = struct {
        var closed: u32 = 0;
        fn close(bytes: []align(annex.alignment) u8) void {
            testing.allocator.free(bytes);
            closed += 1;
        }
    };
    for (0..2) |round| {
        const region = try testing.allocator.alignedAlloc(
            u8,
            .fromByteUnits(annex.alignment),
            annex.region_bytes,
        );
        @memset(region, 0);
        const borrowed: *Borrowed = try .create(testing.allocator, region, .{
            .bytes = region,
            .close = Home.close,
        });
        const unit = annex.bytes / annex.View.units_max;
        const one = borrowed.borrow(region[0..100]).?;
        const other = borrowed.borrow(region[unit..][0..100]).?;
        try testing.expectEqual(null, borrowed.borrow(region[0..50]));
        try testing.expectEqual(null, borrowed.borrow(region[1..50]));
        try testing.expectEqual(null, borrowed.borrow("elsewhere"));
        one.release(one.holder);
        if (round == 0) borrowed.leave();
        const closed = Home.closed;
        other.release(other.holder);
        if (round == 1) borrowed.leave();
        try testing.expectEqual(closed + 1, Home.closed);
    }
}
