//! Memory beside a ring, for bytes that are too long for a record: the writer puts them here in one piece,
//! and a record says where. Both sides map it, as they do the ring. Does not know: what the bytes are.
//!
//! Pieces are given back in the order in which they were put here: the reader is done with a piece when it
//! gives back the record behind it. An annex without pieces begins at its start again, so that the same few
//! pages serve a stream of pieces of which one is there at a time.
const std = @import("std");
const assert = std.debug.assert;
const api_limits = @import("peregrine").api_limits;

/// Bytes of each annex. Only bytes that were ever used take memory.
pub const bytes = api_limits.annex_bytes;

pub const alignment = std.heap.page_size_min;

/// The memory beside both rings of a pair.
pub const Both = struct {
    commands: []align(alignment) u8,
    events: []align(alignment) u8,
};

/// The reader's view: where a piece would be. Another process may change its bytes at any time.
pub const View = struct {
    memory: []align(alignment) const u8,

    /// The bytes from an offset on that a record names.
    pub fn from(view: View, offset: u64) error{Malformed}![]const u8 {
        if (offset > view.memory.len) return error.Malformed;
        return view.memory[@intCast(offset)..];
    }
};

/// The writer's side.
pub const Writer = struct {
    memory: []align(alignment) u8,
    /// Pieces that the reader has yet to give back: a ring, the oldest at `first`.
    pieces: [pieces_max]Piece = undefined,
    first: usize = 0,
    count: usize = 0,

    /// More pieces than there are records in a ring are never wanted.
    const pieces_max = api_limits.annex_pieces_max;

    const Piece = struct {
        begin: usize,
        end: usize,
        /// The ring's position behind the record that names the piece.
        position: u64,
    };

    pub fn init(memory: []align(alignment) u8) Writer {
        return .{ .memory = memory };
    }

    /// Whether a piece finds room. `released`: the position up to which the reader has given records back.
    pub fn hasRoom(writer: *Writer, len: usize, released: u64) bool {
        writer.collect(released);
        return writer.placeOf(len) != null;
    }

    /// Puts a piece here, for which there is room; its offset. The piece stays until `follow` has said which
    /// record names it, and that was given back.
    pub fn put(writer: *Writer, piece: []const u8) u64 {
        const begin = writer.placeOf(piece.len).?;
        @memcpy(writer.memory[begin..][0..piece.len], piece);
        writer.pieces[(writer.first + writer.count) % pieces_max] = .{
            .begin = begin,
            .end = begin + std.mem.alignForward(usize, piece.len, std.atomic.cache_line),
            .position = std.math.maxInt(u64),
        };
        writer.count += 1;
        writer.invariants();
        return begin;
    }

    /// The record that names the piece that was put here last ends at this position.
    pub fn follow(writer: *Writer, position: u64) void {
        writer.newest().position = position;
        writer.invariants();
    }

    fn newest(writer: *Writer) *Piece {
        assert(writer.count > 0);
        return &writer.pieces[(writer.first + writer.count - 1) % pieces_max];
    }

    fn collect(writer: *Writer, released: u64) void {
        while (writer.count > 0 and writer.pieces[writer.first].position <= released) {
            writer.first = (writer.first + 1) % pieces_max;
            writer.count -= 1;
        }
    }

    fn placeOf(writer: *const Writer, len: usize) ?usize {
        if (writer.count == 0) return if (len <= writer.memory.len) 0 else null;
        if (writer.count == pieces_max) return null;
        const oldest = writer.pieces[writer.first];
        const last = writer.pieces[(writer.first + writer.count - 1) % pieces_max];
        const goes_round = last.begin < oldest.begin;
        const behind = if (goes_round) oldest.begin - last.end else writer.memory.len -| last.end;
        if (len <= behind) return last.end;
        return if (!goes_round and len <= oldest.begin) 0 else null;
    }

    /// Asserts what always holds.
    pub fn invariants(writer: *const Writer) void {
        assert(writer.count <= pieces_max and writer.first < pieces_max);
        if (writer.count == 0) return;
        const last = writer.pieces[(writer.first + writer.count - 1) % pieces_max];
        assert(last.begin < last.end);
        assert(last.position >= writer.pieces[writer.first].position);
    }
};

const testing = std.testing;

test "pieces lie apart from each other, go round, and are given back in order" {
    var memory: [4096]u8 align(alignment) = undefined;
    var writer: Writer = .init(&memory);
    const view: View = .{ .memory = &memory };
    const piece: [1500]u8 = @splat('a');
    var positions: u64 = 0;
    for (0..2) |_| {
        try testing.expect(writer.hasRoom(piece.len, 0));
        positions += 10;
        const offset = writer.put(&piece);
        writer.follow(positions);
        try testing.expectEqualStrings(&piece, (try view.from(offset))[0..piece.len]);
    }
    try testing.expect(!writer.hasRoom(piece.len, 0));
    try testing.expect(writer.hasRoom(1000, 0));
    try testing.expect(!writer.hasRoom(piece.len, 9));
    // The first one is given back: the next one goes to the start.
    try testing.expect(writer.hasRoom(piece.len, 10));
    try testing.expectEqual(0, writer.put(&piece));
    writer.follow(30);
    try testing.expect(!writer.hasRoom(100, 10));
    // All are given back: no piece is left in the way of a long one.
    try testing.expect(writer.hasRoom(memory.len, 30));
    try testing.expect(!writer.hasRoom(memory.len + 1, 30));
    const all: [4096]u8 = @splat('b');
    try testing.expectEqual(0, writer.put(&all));
    writer.follow(40);
    try testing.expect(!writer.hasRoom(1, 39));
    try testing.expectError(error.Malformed, view.from(memory.len + 1));
    try testing.expectEqual(0, (try view.from(memory.len)).len);
}

test "no more pieces than there are places for, and one whose record is not known stays" {
    const memory = try testing.allocator.alignedAlloc(u8, .fromByteUnits(alignment), 64 * 1024);
    defer testing.allocator.free(memory);
    var writer: Writer = .init(memory);
    for (0..Writer.pieces_max) |count| {
        try testing.expect(writer.hasRoom(1, 0));
        _ = writer.put("x");
        writer.follow(count + 1);
    }
    try testing.expect(!writer.hasRoom(1, 0));
    try testing.expect(writer.hasRoom(1, 1));
    _ = writer.put("y");
    try testing.expect(!writer.hasRoom(1, 1));
    try testing.expect(writer.hasRoom(64, 1_000));
    try testing.expectEqual(1, writer.count);
}

test "no two pieces ever share a byte" {
    const memory = try testing.allocator.alignedAlloc(u8, .fromByteUnits(alignment), 64 * 1024);
    defer testing.allocator.free(memory);
    var writer: Writer = .init(memory);
    var random: std.Random.DefaultPrng = .init(7);
    const Known = struct { begin: u64, len: usize, position: u64 };
    var known: std.ArrayList(Known) = .empty;
    defer known.deinit(testing.allocator);
    const content = try testing.allocator.alloc(u8, 30_000);
    defer testing.allocator.free(content);
    var released: u64 = 0;
    for (1..20_000) |position| {
        const len = random.random().uintAtMost(usize, content.len - 1) + 1;
        if (random.random().uintLessThan(u32, 3) == 0) released = @min(released + 2, position - 1);
        while (known.items.len > 0 and known.items[0].position <= released) _ = known.orderedRemove(0);
        if (!writer.hasRoom(len, released)) continue;
        const begin = writer.put(content[0..len]);
        writer.follow(position);
        for (known.items) |other| {
            try testing.expect(begin + len <= other.begin or other.begin + other.len <= begin);
        }
        try testing.expect(begin + len <= memory.len);
        try known.append(testing.allocator, .{ .begin = begin, .len = len, .position = position });
    }
}
