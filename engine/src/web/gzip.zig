//! A gzip stream (RFC 1952) over another writer, by the engine's deflater. Does not know: responses.
const std = @import("std");
const per = @import("peregrine");
const Deflater = per.Deflater;

/// A writer, `interface`, whose bytes go compressed to another writer. Its memory is an arena's, 113 KiB.
/// Does not move.
pub const Gzip = struct {
    interface: std.Io.Writer,
    out: *std.Io.Writer,
    deflater: Deflater,
    /// Output of the deflater for a piece.
    made: []u8,
    crc: std.hash.Crc32 = .init(),
    /// Bytes that were compressed.
    taken: u64 = 0,
    begun: bool = false,

    /// A window that takes 96 KiB; half as much makes JSON about a tenth longer.
    const window_bits = 14;
    const piece_bytes = 8 * 1024;
    /// The header of the stream: deflate, no flags, no time, an unknown system.
    const header = [_]u8{ 0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff };
    /// The end of an empty stored block, which the deflater leaves out as permessage-deflate wants it.
    const block_end = [_]u8{ 0, 0, 0xff, 0xff };
    /// A block that is empty and is the last one.
    const last_block = [_]u8{ 3, 0 };

    pub fn create(arena: std.mem.Allocator) error{OutOfMemory}!*Gzip {
        const gzip = try arena.create(Gzip);
        const window = try arena.alignedAlloc(u8, .@"2", Deflater.memoryBytes(window_bits));
        gzip.* = .{
            .interface = .{
                .vtable = &.{ .drain = drain, .flush = flush },
                .buffer = try arena.alloc(u8, piece_bytes),
            },
            .out = undefined,
            .deflater = .init(window, window_bits, true),
            .made = try arena.alloc(u8, Deflater.outputBytesMax(piece_bytes)),
        };
        return gzip;
    }

    /// The writer for plain bytes. From now on compressed bytes go to `out`.
    pub fn to(gzip: *Gzip, out: *std.Io.Writer) *std.Io.Writer {
        gzip.out = out;
        return &gzip.interface;
    }

    /// Bytes that were written, those in the buffer included.
    pub fn written(gzip: *const Gzip) u64 {
        return gzip.taken + gzip.interface.end;
    }

    /// Writes the end of the gzip stream: the last block, the checksum and the length of the content.
    pub fn finish(gzip: *Gzip) std.Io.Writer.Error!void {
        try gzip.endBlock();
        try gzip.out.writeAll(&last_block);
        try gzip.out.writeInt(u32, gzip.crc.final(), .little);
        try gzip.out.writeInt(u32, @truncate(gzip.taken), .little);
    }

    fn of(interface: *std.Io.Writer) *Gzip {
        return @alignCast(@fieldParentPtr("interface", interface));
    }

    fn drain(interface: *std.Io.Writer, data: []const []const u8, splat: usize) std.Io.Writer.Error!usize {
        const gzip = of(interface);
        try gzip.takeBuffer();
        var count: usize = 0;
        for (data[0 .. data.len - 1]) |bytes| {
            try gzip.take(bytes);
            count += bytes.len;
        }
        const repeated = data[data.len - 1];
        for (0..splat) |_| try gzip.take(repeated);
        return count + repeated.len * splat;
    }

    /// Makes all bytes that were written readable from the output so far.
    fn flush(interface: *std.Io.Writer) std.Io.Writer.Error!void {
        const gzip = of(interface);
        try gzip.endBlock();
        try gzip.out.flush();
    }

    fn endBlock(gzip: *Gzip) std.Io.Writer.Error!void {
        try gzip.takeBuffer();
        try gzip.begin();
        try gzip.out.writeAll(gzip.made[0..gzip.deflater.deflate("", true, gzip.made)]);
        try gzip.out.writeAll(&block_end);
    }

    fn begin(gzip: *Gzip) std.Io.Writer.Error!void {
        if (gzip.begun) return;
        try gzip.out.writeAll(&header);
        gzip.begun = true;
    }

    fn takeBuffer(gzip: *Gzip) std.Io.Writer.Error!void {
        try gzip.compress(gzip.interface.buffered());
        gzip.interface.end = 0;
    }

    /// Few bytes wait for others: a block for each would have no use.
    fn take(gzip: *Gzip, bytes: []const u8) std.Io.Writer.Error!void {
        const interface = &gzip.interface;
        if (bytes.len > interface.unusedCapacityLen()) try gzip.takeBuffer();
        if (bytes.len > interface.unusedCapacityLen()) return gzip.compress(bytes);
        @memcpy(interface.unusedCapacitySlice()[0..bytes.len], bytes);
        interface.advance(bytes.len);
    }

    fn compress(gzip: *Gzip, bytes: []const u8) std.Io.Writer.Error!void {
        var rest = bytes;
        while (rest.len > 0) {
            const piece = rest[0..@min(rest.len, piece_bytes)];
            rest = rest[piece.len..];
            try gzip.begin();
            gzip.crc.update(piece);
            gzip.taken += piece.len;
            try gzip.out.writeAll(gzip.made[0..gzip.deflater.deflate(piece, false, gzip.made)]);
        }
    }
};

fn plainOf(arena: std.mem.Allocator, compressed: []const u8) ![]const u8 {
    var in: std.Io.Reader = .fixed(compressed);
    const window = try arena.alloc(u8, std.compress.flate.max_window_len);
    var stream: std.compress.flate.Decompress = .init(&in, .gzip, window);
    const plain = try stream.reader.allocRemaining(arena, .unlimited);
    try std.testing.expectEqual(0, in.buffered().len);
    return plain;
}

test "another implementation reads the stream, whatever it is and however it was written" {
    var memory: std.heap.ArenaAllocator = .init(std.testing.allocator);
    defer memory.deinit();
    const arena = memory.allocator();
    var random: std.Random.DefaultPrng = .init(1);
    for ([_]usize{ 0, 1, 100, 8192, 8193, 100_000, 300_000 }) |len| {
        const text = try arena.alloc(u8, len);
        for (text, 0..) |*byte, at| {
            byte.* = if (at % 1000 < 30) random.random().int(u8) else "abcdefg"[at % 7];
        }
        for ([_]usize{ 1, 977, 20_000, 1_000_000 }) |step| {
            var out: std.Io.Writer.Allocating = .init(arena);
            const gzip = try Gzip.create(arena);
            const plain = gzip.to(&out.writer);
            var at: usize = 0;
            while (at < len) : (at += step) try plain.writeAll(text[at..@min(len, at + step)]);
            try std.testing.expectEqual(len, gzip.written());
            try gzip.finish();
            try std.testing.expectEqualStrings(text, try plainOf(arena, out.written()));
            // The reader checks neither the checksum nor the length.
            const trailer = out.written()[out.written().len - 8 ..];
            const sum = std.mem.readInt(u32, trailer[0..4], .little);
            try std.testing.expectEqual(std.hash.Crc32.hash(text), sum);
            try std.testing.expectEqual(len, std.mem.readInt(u32, trailer[4..8], .little));
            if (len >= 8192) try std.testing.expect(out.written().len < len / 5);
        }
    }
}

test "behind a flush, all that was written can be read" {
    var memory: std.heap.ArenaAllocator = .init(std.testing.allocator);
    defer memory.deinit();
    const arena = memory.allocator();
    var out: std.Io.Writer.Allocating = .init(arena);
    const gzip = try Gzip.create(arena);
    const plain = gzip.to(&out.writer);
    for (0..10) |number| {
        try plain.print("line {d}\n", .{number});
        try plain.flush();
        var in: std.Io.Reader = .fixed(out.written());
        const window = try arena.alloc(u8, std.compress.flate.max_window_len);
        var stream: std.compress.flate.Decompress = .init(&in, .gzip, window);
        for (0..number + 1) |expected| {
            var buffer: [20]u8 = undefined;
            const line = try std.fmt.bufPrint(&buffer, "line {d}\n", .{expected});
            try std.testing.expectEqualStrings(line, try stream.reader.take(line.len));
        }
    }
}
