//! Buffers that an application reads where they lie, until it gives the records back that name them.
//! Does not know: the content of buffers, and how the application learns of them.
const std = @import("std");
const assert = std.debug.assert;
const depot = @import("depot.zig");
const peregrine = @import("peregrine");
const Buffer = peregrine.Pool.Buffer;

/// The buffers of one ring of events, the oldest first: a ring itself.
pub const Lent = struct {
    pieces: [pieces_max]Piece = undefined,
    first: usize = 0,
    count: usize = 0,

    const pieces_max = depot.pieces_max;

    /// A buffer, and the position of the ring of events behind all records that may name it.
    const Piece = struct { buffer: Buffer, position: u64 };

    /// Keeps a buffer until the application has given back all that is in the ring now, up to `position`.
    pub fn add(lent: *Lent, buffer: Buffer, position: u64) void {
        lent.pieces[(lent.first + lent.count) % pieces_max] = .{ .buffer = buffer, .position = position };
        lent.count += 1;
        lent.invariants();
    }

    /// Gives the buffers back that the application, which has given back all up to `released`, reads no more.
    pub fn collect(lent: *Lent, pool: *peregrine.Pool, released: u64) void {
        while (lent.count > 0) {
            const piece = lent.pieces[lent.first];
            if (piece.position > released) return;
            lent.first = (lent.first + 1) % pieces_max;
            lent.count -= 1;
            pool.give(piece.buffer);
        }
    }

    /// Gives all back: the application reads nothing any more.
    pub fn deinit(lent: *Lent, pool: *peregrine.Pool) void {
        lent.collect(pool, std.math.maxInt(u64));
        assert(lent.count == 0);
    }

    pub fn invariants(lent: *const Lent) void {
        assert(lent.count <= pieces_max and lent.first < pieces_max);
        if (lent.count < 2) return;
        const last = lent.pieces[(lent.first + lent.count - 1) % pieces_max];
        assert(last.position >= lent.pieces[lent.first].position);
    }
};

test "buffers come back in order, when the records behind them were given back" {
    var pool: peregrine.Pool = .init(std.testing.allocator);
    defer pool.deinit();
    var lent: Lent = .{};
    for (0..3 * Lent.pieces_max) |round| {
        const position = 10 * (round + 1);
        lent.add(try pool.take(600), position);
        lent.collect(&pool, position -| 15);
        try std.testing.expectEqual(@min(round + 1, 2), lent.count);
    }
    lent.add(try pool.take(1), 10_000_000);
    lent.deinit(&pool);
    try std.testing.expectEqual(0, pool.taken_bytes);
}
