//! Memory beside a ring, for bytes that are too long for a record: the writer puts them here in one piece,
//! and a record says where. Both sides map it, as they do the ring. Does not know: what the bytes are.
//!
//! The reader is done with a piece when it gives back the record behind it, unless it says that it keeps the
//! piece for longer (`Kept`). A piece takes the lowest place that is free.
const std = @import("std");
const builtin = @import("builtin");
const assert = std.debug.assert;
const api_limits = @import("peregrine").api_limits;
const Atomic = @import("platform").Atomic;

/// Bytes of each annex. Only bytes that were ever used take memory.
pub const bytes = api_limits.annex_bytes;
/// Pieces begin at multiples of this number of bytes.
const unit_bytes = api_limits.annex_unit_bytes;
const units = bytes / unit_bytes;
const Units = @import("units.zig").Units(units, unit_bytes);

pub const alignment = std.heap.page_size_min;

/// Bytes of an annex together with `Kept` behind it.
pub const region_bytes = bytes + std.mem.alignForward(usize, @sizeOf(Kept), alignment);

comptime {
    assert(bytes % alignment == 0 and bytes % unit_bytes == 0);
}

/// The annexes of both rings of a pair.
pub const Both = struct {
    commands: []align(alignment) u8,
    events: []align(alignment) u8,
};

/// A bit for each unit of the annex, in memory behind it: set while the reader keeps the piece that begins
/// there. Only the reader writes the bits; a writer that does so harms its own pieces only.
pub const Kept = struct {
    words: [units / 64]Atomic(u64),

    pub fn of(region: []align(alignment) u8) *Kept {
        assert(region.len == region_bytes);
        return @ptrCast(@alignCast(region[bytes..].ptr));
    }

    /// Marks a piece as kept. To be called before the record that names the piece is given back.
    pub fn keep(kept: *Kept, unit: usize) void {
        _ = kept.words[unit / 64].fetchOr(bit(unit), .monotonic);
    }

    pub fn giveBack(kept: *Kept, unit: usize) void {
        _ = kept.words[unit / 64].fetchAnd(~bit(unit), .release);
    }

    fn has(kept: *const Kept, unit: usize) bool {
        return kept.words[unit / 64].load(.acquire) & bit(unit) != 0;
    }

    fn bit(unit: usize) u64 {
        return @as(u64, 1) << @intCast(unit % 64);
    }
};

/// The reader's view of an annex. Another process may change the bytes at any time.
pub const View = struct {
    memory: []align(alignment) const u8,

    pub fn of(region: []align(alignment) const u8) View {
        return .{ .memory = region[0..bytes] };
    }

    /// The bytes from `offset` on; Malformed: the record has named an offset outside the annex.
    pub fn from(view: View, offset: u64) error{Malformed}![]const u8 {
        if (offset > view.memory.len) return error.Malformed;
        return view.memory[@intCast(offset)..];
    }

    /// The unit at which a piece of the annex begins; null: the piece begins elsewhere.
    pub fn unitOf(view: View, piece: []const u8) ?usize {
        const at = @intFromPtr(piece.ptr) -% @intFromPtr(view.memory.ptr);
        if (at >= view.memory.len or at % unit_bytes != 0) return null;
        return at / unit_bytes;
    }

    pub const units_max = units;
};

/// The writer's side of an annex.
pub const Writer = struct {
    region: []align(alignment) u8,
    units: Units = .{},
    /// Pieces that the reader has yet to give back, in no order; the newest one is the last.
    pieces: [pieces_max]Piece = undefined,
    count: usize = 0,

    /// Each piece has a record in the ring, so there are never more pieces than records.
    const pieces_max = api_limits.annex_pieces_max;

    const Piece = struct {
        unit: u16,
        units: u16,
        /// The ring's position behind the record that names the piece.
        position: u64,
    };

    pub fn init(region: []align(alignment) u8) Writer {
        assert(region.len == region_bytes);
        return .{ .region = region };
    }

    /// Whether a piece finds room. `released`: the position up to which the reader has given records back.
    pub fn hasRoom(writer: *Writer, len: usize, released: u64) bool {
        writer.collect(released);
        return writer.placeOf(len) != null;
    }

    /// Copies a piece into the annex, which has room for it, and returns its offset. The piece stays until
    /// the record that `follow` ties to it was given back.
    pub fn put(writer: *Writer, piece: []const u8) u64 {
        const place = writer.placeOf(piece.len).?;
        const offset = place * unit_bytes;
        @memcpy(writer.region[offset..][0..piece.len], piece);
        writer.pieces[writer.count] = .{
            .unit = @intCast(place),
            .units = @intCast(Units.of(piece.len)),
            .position = std.math.maxInt(u64),
        };
        writer.count += 1;
        writer.units.take(place, Units.of(piece.len));
        writer.invariants();
        return offset;
    }

    /// Notes that the record that names the last piece ends at this position of the ring.
    pub fn follow(writer: *Writer, position: u64) void {
        writer.pieces[writer.count - 1].position = position;
        writer.invariants();
    }

    fn collect(writer: *Writer, released: u64) void {
        var at = writer.count;
        while (at > 0) {
            at -= 1;
            const piece = &writer.pieces[at];
            // The position is compared first: the reader keeps a piece before it gives the record back.
            if (piece.position > released or Kept.of(writer.region).has(piece.unit)) continue;
            writer.units.give(piece.unit, piece.units);
            writer.count -= 1;
            writer.pieces[at] = writer.pieces[writer.count];
        }
    }

    fn placeOf(writer: *const Writer, len: usize) ?usize {
        return if (writer.count == pieces_max) null else writer.units.findRoom(Units.of(len));
    }

    pub fn invariants(writer: *const Writer) void {
        assert(writer.count <= pieces_max);
        if (builtin.is_test) {
            var sum: usize = 0;
            for (writer.pieces[0..writer.count]) |piece| sum += piece.units;
            assert(sum == writer.units.taken.count());
        }
    }
};

const testing = std.testing;

/// A zeroed annex.
fn newRegion() ![]align(alignment) u8 {
    const region = try testing.allocator.alignedAlloc(u8, .fromByteUnits(alignment), region_bytes);
    @memset(region, 0);
    return region;
}

test "pieces lie apart from each other, at the lowest place that is free" {
    const region = try newRegion();
    defer testing.allocator.free(region);
    var writer: Writer = .init(region);
    const view: View = .of(region);
    const piece: [unit_bytes + 1]u8 = @splat('a');
    for ([_]u64{ 10, 20 }) |position| {
        try testing.expect(writer.hasRoom(piece.len, 0));
        const offset = writer.put(&piece);
        writer.follow(position);
        try testing.expectEqualStrings(&piece, (try view.from(offset))[0..piece.len]);
        try testing.expectEqual(offset / unit_bytes, view.unitOf((try view.from(offset))[0..piece.len]).?);
    }
    try testing.expect(!writer.hasRoom(bytes - 4 * unit_bytes + 1, 0));
    // The first piece is given back, so the next piece takes its place.
    try testing.expect(writer.hasRoom(piece.len, 10));
    try testing.expectEqual(0, writer.put(&piece));
    writer.follow(30);
    // All pieces are given back.
    try testing.expect(writer.hasRoom(bytes, 30));
    try testing.expect(!writer.hasRoom(bytes + 1, 30));
    try testing.expectError(error.Malformed, view.from(bytes + 1));
    try testing.expectEqual(0, (try view.from(bytes)).len);
    try testing.expectEqual(null, view.unitOf(&piece));
    try testing.expectEqual(null, view.unitOf(view.memory[1..]));
}

test "a piece that its reader keeps stays, and those around it go" {
    const region = try newRegion();
    defer testing.allocator.free(region);
    var writer: Writer = .init(region);
    const kept: *Kept = .of(region);
    const piece: [unit_bytes]u8 = @splat('a');
    for (0..3) |count| {
        try testing.expectEqual(count * unit_bytes, writer.put(&piece));
        writer.follow(count + 1);
    }
    kept.keep(1);
    try testing.expect(writer.hasRoom(bytes - 2 * unit_bytes, 3));
    try testing.expect(!writer.hasRoom(bytes - unit_bytes, 3));
    try testing.expectEqual(0, writer.put(&piece));
    writer.follow(4);
    kept.giveBack(1);
    try testing.expect(writer.hasRoom(bytes, 4));
}

test "no more pieces than there are places for, and one whose record is not known stays" {
    const region = try newRegion();
    defer testing.allocator.free(region);
    var writer: Writer = .init(region);
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
    const region = try newRegion();
    defer testing.allocator.free(region);
    var writer: Writer = .init(region);
    const kept: *Kept = .of(region);
    var random: std.Random.DefaultPrng = .init(7);
    const Known = struct { begin: u64, len: usize, position: u64, kept: bool };
    var known: std.ArrayList(Known) = .empty;
    defer known.deinit(testing.allocator);
    const content = try testing.allocator.alloc(u8, 600_000);
    defer testing.allocator.free(content);
    var released: u64 = 0;
    for (1..20_000) |position| {
        const len = random.random().uintAtMost(usize, content.len - 1) + 1;
        if (random.random().uintLessThan(u32, 3) == 0) released = @min(released + 2, position - 1);
        var at = known.items.len;
        while (at > 0) {
            at -= 1;
            const one = &known.items[at];
            if (one.position > released) continue;
            if (one.kept and random.random().uintLessThan(u32, 5) > 0) continue;
            if (one.kept) kept.giveBack(@intCast(one.begin / unit_bytes));
            _ = known.swapRemove(at);
        }
        if (!writer.hasRoom(len, released)) continue;
        const begin = writer.put(content[0..len]);
        writer.follow(position);
        for (known.items) |other| {
            try testing.expect(begin + len <= other.begin or other.begin + other.len <= begin);
        }
        try testing.expect(begin + len <= bytes);
        const keeps = random.random().boolean();
        if (keeps) kept.keep(@intCast(begin / unit_bytes));
        try known.append(testing.allocator, .{
            .begin = begin,
            .len = len,
            .position = position,
            .kept = keeps,
        });
    }
}
