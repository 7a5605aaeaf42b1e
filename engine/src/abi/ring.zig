//! A ring of records in a piece of memory that a writer and a reader share: two threads, or two processes. It
//! holds no pointer, and neither side believes the other: each keeps its own position, checks the position of
//! the other, and copies content that it has to look at twice. Does not know: what a record means, and how
//! the other side is woken.
//!
//! Positions count bytes up for ever; a record lies in one piece at its position modulo the size, and a
//! record that does not fit before the end of the memory begins at its start. The payload is written first,
//! and the position that makes it visible last, so that a torn record is never seen. A side that finds
//! nothing to read, or no room to write, says so in a word (`sleeps`) and looks again; a side that has
//! written, or made room, looks at the other's word afterwards. Both exchange the word: with two loads and
//! two stores a wake-up could be lost.
const std = @import("std");
const assert = std.debug.assert;
const Atomic = @import("platform").Atomic;

/// Records begin and end at multiples of this number of bytes.
pub const alignment = 8;
/// The longest record: a body of 64 KiB and its head. A longer message takes several, see `Record.part`.
pub const record_bytes_max = 65 * 1024;
/// The least that a ring holds: a record of any length finds room wherever the last one ended.
pub const bytes_min = 256 * 1024;

/// `pausing`: sleeps for a moment only, and need not be woken.
pub const State = enum(u32) { awake, sleeping, pausing };

/// The beginning of the shared memory. Its other bytes are the records.
pub const Header = extern struct {
    /// Written by the writer: the position up to which bytes may be read.
    tail: Atomic(u64) align(std.atomic.cache_line) = .init(0),
    /// Written by the reader: the position up to which bytes are free again.
    head: Atomic(u64) align(std.atomic.cache_line) = .init(0),
    reader: Atomic(u32) align(std.atomic.cache_line) = .init(@backingInt(State.awake)),
    writer: Atomic(u32) align(std.atomic.cache_line) = .init(@backingInt(State.awake)),

    fn swap(word: *Atomic(u32), state: State) bool {
        return word.swap(@backingInt(state), .acq_rel) == @backingInt(State.sleeping);
    }

    /// Wakes a side that sleeps; a side that pauses goes on without that.
    fn rouse(word: *Atomic(u32)) bool {
        return word.fetchAnd(~@as(u32, @backingInt(State.sleeping)), .acq_rel) &
            @backingInt(State.sleeping) != 0;
    }
};

/// The memory that a ring of this size takes, with its header.
pub fn memoryBytes(bytes: usize) usize {
    return @sizeOf(Header) + bytes;
}

/// The header of a record.
const Mark = extern struct {
    len: u32,
    kind: u32,
};

/// A record, as the reader sees it.
pub const Record = struct {
    /// Bytes in the ring, valid until `Reader.release`. Another process may change them meanwhile.
    bytes: []align(alignment) const u8,
    part: Part,

    /// A message of more than `record_bytes_max` goes in several records, one behind the other.
    pub const Part = enum(u32) {
        /// The record is a whole message.
        whole = 1,
        /// Further records of the message follow.
        more = 2,
        /// The message ends with this record.
        last = 3,
    };
};

/// The kind of a record without content, which fills the memory up to its end.
const filler = 4;

/// The other side does not keep to the rules: nothing more can be read or written.
pub const Error = error{Malformed};

const Shared = struct {
    header: *Header,
    bytes: []align(alignment) u8,

    fn of(memory: []align(std.atomic.cache_line) u8) Shared {
        const bytes: []align(alignment) u8 = @alignCast(memory[@sizeOf(Header)..]);
        assert(bytes.len >= bytes_min and std.math.isPowerOfTwo(bytes.len));
        return .{ .header = @ptrCast(memory.ptr), .bytes = bytes };
    }

    fn index(shared: Shared, position: u64) usize {
        return @intCast(position & (shared.bytes.len - 1));
    }

    fn mark(shared: Shared, position: u64) *Mark {
        return @ptrCast(@alignCast(shared.bytes[shared.index(position)..][0..@sizeOf(Mark)]));
    }
};

comptime {
    assert(@sizeOf(Mark) == alignment);
    assert(bytes_min >= Writer.room_wanted);
}

fn recordBytes(len: usize) u64 {
    return @sizeOf(Mark) + std.mem.alignForward(usize, len, alignment);
}

/// The side that writes records.
pub const Writer = struct {
    shared: Shared,
    /// The position of the next record.
    at: u64 = 0,
    /// The position up to which the reader is known to have given bytes back.
    head_seen: u64 = 0,
    /// The length of the reserved record; null: none is reserved.
    reserved: ?u32 = null,

    /// `memory` is zeroed, and shared with one reader.
    pub fn init(memory: []align(std.atomic.cache_line) u8) Writer {
        return .{ .shared = .of(memory) };
    }

    /// Room for a record, to be filled and committed; null: there is none now.
    pub fn reserve(writer: *Writer, len: usize) Error!?[]align(alignment) u8 {
        assert(len <= record_bytes_max and writer.reserved == null);
        const left = writer.shared.bytes.len - writer.shared.index(writer.at);
        const wanted = recordBytes(len);
        const skipped = if (wanted > left) left else 0;
        if (!try writer.hasRoom(skipped + wanted)) return null;
        if (skipped > 0) {
            writer.shared.mark(writer.at).* = .{ .len = @intCast(skipped - @sizeOf(Mark)), .kind = filler };
            writer.at += skipped;
        }
        writer.reserved = @intCast(len);
        const begin = writer.shared.index(writer.at) + @sizeOf(Mark);
        return @alignCast(writer.shared.bytes[begin..][0..len]);
    }

    /// The reserved record is filled. The reader sees it after `publish`.
    pub fn commit(writer: *Writer, part: Record.Part) void {
        const len = writer.reserved.?;
        writer.shared.mark(writer.at).* = .{ .len = len, .kind = @backingInt(part) };
        writer.at += recordBytes(len);
        writer.reserved = null;
    }

    /// Shows the reader all that was committed. True: it sleeps and is to be woken.
    pub fn publish(writer: *Writer) bool {
        writer.shared.header.tail.store(writer.at, .release);
        return Header.rouse(&writer.shared.header.reader);
    }

    /// Whether the reader looks around now, or will in a moment.
    pub fn isReaderAwake(writer: *const Writer) bool {
        return writer.shared.header.reader.load(.monotonic) != @backingInt(State.sleeping);
    }

    /// Whether the reader is neither asleep nor about to look around: it works on what it has read.
    pub fn isReaderAtWork(writer: *const Writer) bool {
        return writer.shared.header.reader.load(.monotonic) == @backingInt(State.awake);
    }

    /// Whether the reader pauses although there is something to read.
    pub fn hasUnreadInPause(writer: *Writer) Error!bool {
        if (writer.shared.header.reader.load(.acquire) != @backingInt(State.pausing)) return false;
        return try writer.released() != writer.at;
    }

    /// Whether the longest record would find room, wherever it begins. If not, the reader will say when it
    /// has made some (`Reader.release`).
    pub fn awaitRoom(writer: *Writer) Error!bool {
        if (try writer.hasRoom(room_wanted)) return true;
        _ = Header.swap(&writer.shared.header.writer, .sleeping);
        if (!try writer.hasRoom(room_wanted)) return false;
        _ = Header.swap(&writer.shared.header.writer, .awake);
        return true;
    }

    /// The position up to which the reader has given bytes back.
    pub fn released(writer: *Writer) Error!u64 {
        const head = writer.shared.header.head.load(.acquire);
        if (head < writer.head_seen or head > writer.at) return error.Malformed;
        writer.head_seen = head;
        return head;
    }

    /// Whether the reader has given back more than `position`. If not, it will say when (`Reader.release`).
    pub fn awaitRelease(writer: *Writer, position: u64) Error!bool {
        _ = Header.swap(&writer.shared.header.writer, .sleeping);
        if (try writer.released() == position) return false;
        _ = Header.swap(&writer.shared.header.writer, .awake);
        return true;
    }

    /// Asserts what always holds of the writer's own positions.
    pub fn invariants(writer: *const Writer) void {
        assert(writer.head_seen <= writer.at);
        assert(writer.at % alignment == 0);
        const reserved = if (writer.reserved) |len| recordBytes(len) else 0;
        assert(writer.at - writer.head_seen + reserved <= writer.shared.bytes.len);
    }

    /// Whether `len` bytes would find room, in as many records as they need.
    pub fn hasRoomFor(writer: *Writer, len: usize) Error!bool {
        const records = len / record_bytes_max + 1;
        return writer.hasRoom(len + records * 2 * @sizeOf(Mark) + recordBytes(record_bytes_max));
    }

    /// The most that can find room at once (`hasRoomFor`), in a ring of `bytes_min`.
    pub const room_max = bytes_min - recordBytes(record_bytes_max) - 1024;

    const room_wanted = 2 * recordBytes(record_bytes_max);

    fn hasRoom(writer: *Writer, len: u64) Error!bool {
        const size = writer.shared.bytes.len;
        if (writer.at + len - writer.head_seen <= size) return true;
        return writer.at + len - try writer.released() <= size;
    }
};

/// The side that reads records.
pub const Reader = struct {
    shared: Shared,
    /// The position of the next record.
    at: u64 = 0,
    /// The position up to which records may be read.
    tail_seen: u64 = 0,
    /// The position up to which records were given back.
    released: u64 = 0,

    /// `memory` is zeroed, and shared with one writer.
    pub fn init(memory: []align(std.atomic.cache_line) u8) Reader {
        return .{ .shared = .of(memory) };
    }

    /// The next record; null: there is none now.
    pub fn next(reader: *Reader) Error!?Record {
        while (true) {
            if (!try reader.hasMore()) return null;
            // The length is read once, so that the checked value is the used one.
            const mark: Mark = @as(*const volatile Mark, reader.shared.mark(reader.at)).*;
            const left = @min(
                reader.shared.bytes.len - reader.shared.index(reader.at),
                reader.tail_seen - reader.at,
            );
            if (mark.len > left - @sizeOf(Mark)) return error.Malformed;
            const begin = reader.shared.index(reader.at) + @sizeOf(Mark);
            const length = recordBytes(mark.len);
            if (length > left) return error.Malformed;
            reader.at += length;
            if (mark.kind == filler) continue;
            const part = std.enums.fromInt(Record.Part, mark.kind) orelse return error.Malformed;
            if (mark.len > record_bytes_max) return error.Malformed;
            return .{ .bytes = @alignCast(reader.shared.bytes[begin..][0..mark.len]), .part = part };
        }
    }

    fn hasMore(reader: *Reader) Error!bool {
        if (reader.at != reader.tail_seen) return true;
        const tail = reader.shared.header.tail.load(.acquire);
        if (tail < reader.tail_seen or tail - reader.released > reader.shared.bytes.len) {
            return error.Malformed;
        }
        if (tail % alignment != 0) return error.Malformed;
        reader.tail_seen = tail;
        return tail != reader.at;
    }

    /// The position up to which the writer says that there are records: no more than the ring has room for.
    pub fn written(reader: *const Reader) u64 {
        const tail = reader.shared.header.tail.load(.acquire);
        return @min(tail, reader.released + reader.shared.bytes.len);
    }

    /// Gives back the records that were read. True: the writer waits for room and is to be woken.
    pub fn release(reader: *Reader) bool {
        if (reader.released == reader.at) return false;
        reader.released = reader.at;
        reader.shared.header.head.store(reader.at, .release);
        return Header.swap(&reader.shared.header.writer, .awake);
    }

    /// To be called before the reader waits. False: there is something to read after all.
    pub fn sleeps(reader: *Reader) Error!bool {
        _ = Header.swap(&reader.shared.header.reader, .sleeping);
        if (!try reader.hasMore()) return true;
        reader.wakes();
        return false;
    }

    /// Like `sleeps`, for a reader that waits for a moment only.
    pub fn pauses(reader: *Reader) Error!bool {
        _ = reader.shared.header.reader.swap(@backingInt(State.pausing), .acq_rel);
        if (!try reader.hasMore()) return true;
        reader.wakes();
        return false;
    }

    /// Asserts what always holds of the reader's own positions.
    pub fn invariants(reader: *const Reader) void {
        assert(reader.released <= reader.at and reader.at <= reader.tail_seen);
        assert(reader.tail_seen - reader.released <= reader.shared.bytes.len);
        assert(reader.at % alignment == 0 and reader.tail_seen % alignment == 0);
    }

    /// The reader looks around again: the writer need not wake it.
    pub fn wakes(reader: *Reader) void {
        _ = Header.swap(&reader.shared.header.reader, .awake);
    }
};

/// Puts messages together that came in several records.
pub const Joiner = struct {
    gpa: std.mem.Allocator,
    bytes: std.ArrayListAligned(u8, .fromByteUnits(alignment)) = .empty,
    /// The longest message that is taken.
    bytes_max: usize,

    const kept_bytes = record_bytes_max;

    pub fn deinit(joiner: *Joiner) void {
        joiner.bytes.deinit(joiner.gpa);
    }

    /// Adds a record. Returns the message that it completes, or null. The message is valid until the record
    /// is released and the next one added.
    pub fn add(joiner: *Joiner, record: Record) (Error || error{OutOfMemory})!?[]align(alignment) const u8 {
        switch (record.part) {
            .whole => {
                if (joiner.bytes.items.len > 0) return error.Malformed;
                return record.bytes;
            },
            .more, .last => {
                if (record.bytes.len > joiner.bytes_max - joiner.bytes.items.len) return error.Malformed;
                try joiner.bytes.appendSlice(joiner.gpa, record.bytes);
                return if (record.part == .last) joiner.bytes.items else null;
            },
        }
    }

    /// Makes room for a message of this length, which has begun.
    pub fn expect(joiner: *Joiner, bytes: usize) (Error || error{OutOfMemory})!void {
        if (bytes > joiner.bytes_max) return error.Malformed;
        try joiner.bytes.ensureTotalCapacityPrecise(joiner.gpa, bytes);
    }

    /// Whether no message has begun.
    pub fn isEmpty(joiner: *const Joiner) bool {
        return joiner.bytes.items.len == 0;
    }

    /// Forgets the message.
    pub fn clear(joiner: *Joiner) void {
        if (joiner.bytes.items.len == 0) return;
        if (joiner.bytes.capacity > kept_bytes) {
            joiner.bytes.clearAndFree(joiner.gpa);
        } else {
            joiner.bytes.clearRetainingCapacity();
        }
    }

    /// Gives the message to the caller, who frees it with the joiner's allocator.
    pub fn take(joiner: *Joiner) error{OutOfMemory}![]align(alignment) u8 {
        return joiner.bytes.toOwnedSlice(joiner.gpa);
    }
};

const testing = std.testing;

const Bench = struct {
    memory: []align(std.atomic.cache_line) u8,
    writer: Writer,
    reader: Reader,

    fn init() !Bench {
        const memory = try testing.allocator.alignedAlloc(
            u8,
            .fromByteUnits(std.atomic.cache_line),
            memoryBytes(bytes_min),
        );
        @memset(memory, 0);
        return .{ .memory = memory, .writer = .init(memory), .reader = .init(memory) };
    }

    fn deinit(bench: *Bench) void {
        testing.allocator.free(bench.memory);
    }

    fn put(bench: *Bench, len: usize, byte: u8) !bool {
        const space = try bench.writer.reserve(len) orelse return false;
        @memset(space, byte);
        bench.writer.commit(.whole);
        return true;
    }
};

test "records come out as they went in, at every place of the ring" {
    var bench: Bench = try .init();
    defer bench.deinit();
    var random: std.Random.DefaultPrng = .init(1);
    var put: u32 = 0;
    var taken: u32 = 0;
    var lens: [4096]u32 = undefined;
    while (taken < 20_000) {
        const len = random.random().uintLessThan(
            u32,
            if (random.random().boolean()) 50 else record_bytes_max + 1,
        );
        while (try bench.put(len, @truncate(put))) {
            lens[put % lens.len] = len;
            put += 1;
            if (random.random().uintLessThan(u8, 20) == 0 or put - taken == lens.len) break;
        }
        _ = bench.writer.publish();
        while (try bench.reader.next()) |record| {
            try testing.expectEqual(lens[taken % lens.len], record.bytes.len);
            for (record.bytes) |byte| {
                if (byte != @as(u8, @truncate(taken))) return error.TestUnexpectedResult;
            }
            taken += 1;
            if (random.random().uintLessThan(u8, 30) == 0) break;
        }
        _ = bench.reader.release();
    }
}

test "a record that is not published is not seen, and sleepers are woken once" {
    var bench: Bench = try .init();
    defer bench.deinit();
    try testing.expect(try bench.reader.sleeps());
    try testing.expect(try bench.put(1, 'a'));
    try testing.expectEqual(null, try bench.reader.next());
    try testing.expect(bench.writer.publish());
    try testing.expect(try bench.put(1, 'b'));
    try testing.expect(!bench.writer.publish());
    try testing.expect(!try bench.reader.sleeps());
    try testing.expectEqualStrings("a", (try bench.reader.next()).?.bytes);
    try testing.expectEqualStrings("b", (try bench.reader.next()).?.bytes);
}

test "a reader that pauses is not woken, but is seen to have something to read" {
    var bench: Bench = try .init();
    defer bench.deinit();
    try testing.expect(try bench.reader.pauses());
    try testing.expect(!try bench.writer.hasUnreadInPause());
    try testing.expect(try bench.put(1, 'a'));
    try testing.expect(!bench.writer.publish());
    try testing.expect(try bench.writer.hasUnreadInPause());
    bench.reader.wakes();
    try testing.expect(!try bench.writer.hasUnreadInPause() and !try bench.reader.pauses());
}

test "a writer without room is told when there is some" {
    var bench: Bench = try .init();
    defer bench.deinit();
    while (try bench.put(record_bytes_max, 'x')) {}
    _ = bench.writer.publish();
    try testing.expect(!try bench.writer.awaitRoom());
    try testing.expect(!bench.reader.release()); // nothing was read
    while (try bench.reader.next()) |_| {}
    try testing.expect(bench.reader.release());
    try testing.expect(try bench.writer.awaitRoom());
}

test "messages in parts" {
    var joiner: Joiner = .{ .gpa = testing.allocator, .bytes_max = 12 };
    defer joiner.deinit();
    const text: [5]u8 align(alignment) = @splat('x');
    const part: []align(alignment) const u8 = &text;
    try testing.expectEqual(null, try joiner.add(.{ .bytes = part, .part = .more }));
    try testing.expectEqual(null, try joiner.add(.{ .bytes = part, .part = .more }));
    try testing.expectError(error.Malformed, joiner.add(.{ .bytes = part, .part = .whole }));
    try testing.expectError(error.Malformed, joiner.add(.{ .bytes = part, .part = .last }));
    try testing.expectEqualStrings(
        "xxxxxxxxxxxx",
        (try joiner.add(.{ .bytes = part[0..2], .part = .last })).?,
    );
    joiner.clear();
    try testing.expectEqualStrings("xxxxx", (try joiner.add(.{ .bytes = part, .part = .whole })).?);
}

test "a side that breaks the rules is found out" {
    var bench: Bench = try .init();
    defer bench.deinit();
    const header = bench.reader.shared.header;
    for ([_]u64{ 4, bytes_min + alignment, std.math.maxInt(u64) }) |tail| {
        header.tail.store(tail, .release);
        try testing.expectError(error.Malformed, bench.reader.next());
        bench.reader = .init(bench.memory);
    }
    const mark = bench.reader.shared.mark(0);
    header.tail.store(32, .release);
    for ([_]Mark{
        .{ .len = 25, .kind = 1 },
        .{ .len = std.math.maxInt(u32), .kind = 1 },
        .{ .len = 0, .kind = 0 },
        .{ .len = 0, .kind = 5 },
    }) |wrong| {
        mark.* = wrong;
        try testing.expectError(error.Malformed, bench.reader.next());
        bench.reader = .init(bench.memory);
    }
    while (try bench.put(record_bytes_max, 'x')) {}
    for ([_]u64{ bench.writer.at + 8, std.math.maxInt(u64) }) |head| {
        header.head.store(head, .release);
        try testing.expectError(error.Malformed, bench.writer.reserve(record_bytes_max));
    }
}

const Passage = struct {
    fn write(bench: *Bench, count: u32) void {
        var random: std.Random.DefaultPrng = .init(2);
        var number: u32 = 0;
        while (number < count) {
            const len = 4 + random.random().uintLessThan(usize, 2000);
            const space = (bench.writer.reserve(len) catch unreachable) orelse {
                if (!(bench.writer.awaitRoom() catch unreachable)) std.Thread.yield() catch {};
                continue;
            };
            @memset(space, @truncate(number));
            std.mem.writeInt(u32, space[0..4], number, .little);
            bench.writer.commit(.whole);
            _ = bench.writer.publish();
            number += 1;
        }
    }
};

test "two threads: nothing is lost, torn or out of order" {
    const count = 20_000;
    var bench: Bench = try .init();
    defer bench.deinit();
    const thread: std.Thread = try .spawn(.{}, Passage.write, .{ &bench, count });
    defer thread.join();
    var number: u32 = 0;
    while (number < count) {
        const record = try bench.reader.next() orelse {
            _ = bench.reader.release();
            if (try bench.reader.sleeps()) std.Thread.yield() catch {};
            continue;
        };
        try testing.expectEqual(number, std.mem.readInt(u32, record.bytes[0..4], .little));
        for (record.bytes[4..]) |byte| {
            if (byte != @as(u8, @truncate(number))) return error.TestUnexpectedResult;
        }
        number += 1;
    }
}
