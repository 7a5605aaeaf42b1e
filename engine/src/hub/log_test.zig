//! Tests of a topic's history against a model that keeps all entries.
const std = @import("std");
const protocol = @import("protocol");
const log_file = @import("log.zig");
const Log = log_file.Log;
const Cursor = log_file.Cursor;
const Want = log_file.Want;
const frames_file = @import("frames.zig");
const Variant = frames_file.Variant;
const position = @import("position.zig");
const Position = position.Position;
const Deflater = protocol.websocket.deflate.Deflater;
const Inflater = protocol.websocket.deflate.Inflater;
const History = protocol.websocket.deflate.History;
const testing = std.testing;

const FramerMemory = struct {
    memory: []align(2) u8,
    deflater: Deflater,

    fn init() !FramerMemory {
        const memory = try testing.allocator.alignedAlloc(u8, .@"2", Deflater.memoryBytes(15));
        return .{ .memory = memory, .deflater = .init(memory, 15, false) };
    }

    fn deinit(room: *FramerMemory) void {
        testing.allocator.free(room.memory);
    }

    fn framer(room: *FramerMemory) frames_file.Framer {
        return .{ .deflater = &room.deflater, .deflate_bytes_min = 20 };
    }
};

/// All entries that were published, and their marks.
const Model = struct {
    /// The entry at each offset, beginning with 1.
    entries: std.ArrayList([]const u8) = .empty,
    marks: std.ArrayList(position.Mark) = .empty,
    arena: std.heap.ArenaAllocator,

    fn publish(model: *Model, mark: position.Mark, bytes: []const u8) !void {
        const gpa = model.arena.allocator();
        try model.entries.append(gpa, try gpa.dupe(u8, bytes));
        try model.marks.append(gpa, mark);
        try testing.expectEqual(model.entries.items.len, mark.offset);
    }

    fn checkAt(model: *const Model, offset: u64) position.Check {
        return if (offset == 0) 0 else model.marks.items[@intCast(offset - 1)].check;
    }

    /// Drops entries that the history has lost.
    fn cutTo(model: *Model, len: usize) void {
        model.entries.shrinkRetainingCapacity(len);
        model.marks.shrinkRetainingCapacity(len);
    }
};

/// A reader that parses its stream, and expects each entry once and in order.
const Reader = struct {
    cursor: Cursor,
    want: Want,
    /// The offset of the entry that must come next.
    expected: u64,
    input: std.ArrayList(u8) = .empty,
    is_cut: bool = false,

    fn deinit(reader: *Reader, log: *Log) void {
        log.release(&reader.cursor);
        reader.input.deinit(testing.allocator);
    }

    fn turn(reader: *Reader, log: *Log, model: *const Model, random: std.Random, room: *FramerMemory) !void {
        if (reader.is_cut) return;
        switch (try log.next(&reader.cursor, reader.want, room.framer())) {
            .nothing => {
                try testing.expectEqual(model.entries.items.len + 1, reader.expected);
                try testing.expectEqual(0, reader.input.items.len);
            },
            .bytes => |bytes| {
                try testing.expect(bytes.len > 0);
                const count = if (random.boolean()) bytes.len else random.uintAtMost(usize, bytes.len);
                try reader.input.appendSlice(testing.allocator, bytes[0..count]);
                log.sent(&reader.cursor, count);
                try reader.takeApart(model);
            },
            .skipped => |count| {
                // Entries are skipped only between two frames, and as many as are missing.
                try testing.expectEqual(0, reader.input.items.len);
                reader.expected += count;
                try testing.expectEqual(model.entries.items.len + 1, reader.expected);
            },
            .cut => {
                try testing.expectEqual(.cut, reader.want.behind);
                reader.is_cut = true;
            },
            .reset => |at| {
                try testing.expectEqual(0, reader.input.items.len);
                try testing.expectEqual(log.now(), at);
                reader.expected = at.mark.offset + 1;
            },
        }
    }

    fn takeApart(reader: *Reader, model: *const Model) !void {
        while (true) {
            const found = frame(reader.want.variant, reader.input.items) orelse return;
            var space: [1000]u8 = undefined;
            const bytes = if (found.compressed)
                try inflate(found.payload, reader.want.variant, &space)
            else
                found.payload;
            if (found.id) |id| {
                const mark = (try Position.parse(id)).mark;
                try testing.expectEqual(reader.expected, mark.offset);
            }
            if (reader.expected <= model.entries.items.len) {
                // The reader may have read an entry that the history has lost since.
                const expected = model.entries.items[@intCast(reader.expected - 1)];
                try testing.expectEqualStrings(expected, bytes);
            }
            reader.expected += 1;
            reader.input.replaceRangeAssumeCapacity(0, found.len, "");
        }
    }
};

const Found = struct { payload: []const u8, len: usize, compressed: bool = false, id: ?[]const u8 = null };

/// The first frame of a stream; null: it is incomplete.
fn frame(variant: Variant, bytes: []const u8) ?Found {
    switch (variant) {
        .websocket, .deflated => {
            const decoded = protocol.websocket.frame.decode(bytes);
            const header = switch (decoded) {
                .need => return null,
                .header => |header| header,
                else => unreachable,
            };
            const len: usize = @intCast(header.value.payload_len);
            if (bytes.len < header.bytes + len) return null;
            return .{
                .payload = bytes[header.bytes..][0..len],
                .len = header.bytes + len,
                .compressed = header.value.rsv1,
            };
        },
        // The bytes do not contain the content's length; tests of topics.zig read it.
        .content => unreachable,
        .event => {
            const end = std.mem.find(u8, bytes, "\n\n") orelse return null;
            return event(bytes[0..end], end + 2);
        },
        .event_chunk => {
            const line = std.mem.find(u8, bytes, "\r\n") orelse return null;
            const len = std.fmt.parseInt(usize, bytes[0..line], 16) catch unreachable;
            if (bytes.len < line + 2 + len + 2) return null;
            const chunk = bytes[line + 2 ..][0..len];
            std.debug.assert(std.mem.endsWith(u8, chunk, "\n\n"));
            std.debug.assert(std.mem.eql(u8, bytes[line + 2 + len ..][0..2], "\r\n"));
            return event(chunk[0 .. len - 2], line + 2 + len + 2);
        },
    }
}

fn event(text: []const u8, len: usize) Found {
    const end = std.mem.find(u8, text, "\n").?;
    const data = "\ndata: ";
    std.debug.assert(std.mem.startsWith(u8, text, "id: ") and std.mem.startsWith(u8, text[end..], data));
    return .{ .payload = text[end + data.len ..], .len = len, .id = text["id: ".len..end] };
}

/// Inflates a message with a window of the agreed size and an empty history.
fn inflate(payload: []const u8, variant: Variant, space: []u8) ![]const u8 {
    var window: [1 << 15]u8 = undefined;
    var history: History = .init(window[0 .. @as(usize, 1) << variant.deflated.window_bits]);
    var inflater: Inflater = .{};
    inflater.begin(&history, space.len);
    const step = try inflater.inflate(payload, true, space);
    try testing.expectEqual(.done, step.state);
    return space[0..step.produced];
}

/// Compares bytes, segments and marks with those of the model.
fn verify(log: *const Log, model: *const Model) !void {
    log.invariants();
    var bytes: u64 = 0;
    var framed: u64 = 0;
    var offset = log.base.offset;
    for (0..log.segments.len) |index| {
        const segment = log.segments.at(index);
        segment.invariants();
        framed += segment.framedBytes();
        if (index > 0) try testing.expectEqual(log.segments.at(index - 1).last(), segment.before.offset);
        try testing.expect(segment.place != .stale);
        try testing.expect(segment.place != .open or index == log.segments.len - 1);
    }
    var entries = log.entriesAfter(0);
    while (entries.next()) |entry| {
        offset += 1;
        bytes += entry.bytes.len;
        try testing.expectEqual(offset, entry.mark.offset);
        try testing.expectEqual(model.marks.items[@intCast(offset - 1)], entry.mark);
        try testing.expectEqualStrings(model.entries.items[@intCast(offset - 1)], entry.bytes);
    }
    try testing.expectEqual(log.tip.offset, offset);
    try testing.expectEqual(bytes, log.bytes);
    try testing.expectEqual(framed, log.framed_bytes);
    try testing.expect(log.tip.offset - log.base.offset <= log.limits.entries_max);
}

const small: log_file.Limits = .{
    .entries_max = 30,
    .bytes_max = 3_000,
    .age_ms_max = 1_000,
    .segment_entries_max = 5,
    .segment_bytes_max = 500,
    .framed_bytes_max = 2_000,
    .message_bytes_max = 900,
};

const variants = [_]Variant{
    .{ .websocket = .text },
    .{ .websocket = .binary },
    .{ .deflated = .{ .kind = .text } },
    .{ .deflated = .{ .kind = .binary, .window_bits = 8 } },
    .event,
    .event_chunk,
};

/// A history with random events.
const World = struct {
    random: std.Random,
    model: Model,
    log: Log,
    room: FramerMemory,
    readers: std.ArrayList(Reader) = .empty,
    time_ms: u64 = 1,
    sequence: u64 = 0,
    /// Counts, with which a test checks that it has seen each case.
    resumed: usize = 0,
    resets: std.EnumArray(log_file.Resumed.Why, usize) = .initFill(0),

    fn init(world: *World, random: std.Random) !void {
        world.* = .{
            .random = random,
            .model = .{ .arena = .init(testing.allocator) },
            .log = .init(testing.allocator, small, random.int(u48), .origin),
            .room = try .init(),
        };
    }

    fn deinit(world: *World) void {
        for (world.readers.items) |*reader| reader.deinit(&world.log);
        world.readers.deinit(testing.allocator);
        world.log.deinit();
        world.room.deinit();
        world.model.arena.deinit();
    }

    fn step(world: *World) !void {
        switch (world.random.uintLessThan(u8, 100)) {
            0...39 => try world.publish(),
            40...44 => world.time_ms += world.random.uintLessThan(u64, 300),
            45...46 => world.log.trim(world.time_ms),
            47...50 => try world.join(),
            51...52 => world.leave(),
            53 => if (world.random.uintLessThan(u8, 20) == 0) world.diverge(),
            else => if (world.readers.items.len > 0) {
                const place = world.random.uintLessThan(usize, world.readers.items.len);
                const reader = &world.readers.items[place];
                try reader.turn(&world.log, &world.model, world.random, &world.room);
            },
        }
        try verify(&world.log, &world.model);
    }

    fn publish(world: *World) !void {
        var buffer: [1000]u8 = undefined;
        const len = switch (world.random.uintLessThan(u8, 10)) {
            0 => 0,
            1 => world.random.uintLessThan(usize, buffer.len),
            else => world.random.uintLessThan(usize, 60),
        };
        for (buffer[0..len]) |*byte| byte.* = "aeiou "[world.random.uintLessThan(usize, 6)];
        world.sequence += 1;
        const before = world.log.tip;
        const mark = world.log.append(9, world.sequence, world.time_ms, buffer[0..len]) catch |err| {
            try testing.expectEqual(error.TooLong, err);
            try testing.expect(len > small.message_bytes_max);
            return testing.expectEqual(before, world.log.tip);
        };
        try world.model.publish(mark, buffer[0..len]);
    }

    /// The history loses its last entries, so that other entries get their offsets.
    fn diverge(world: *World) void {
        const lost = @min(world.model.entries.items.len, world.random.uintLessThan(usize, 4));
        world.model.cutTo(world.model.entries.items.len - lost);
        const marks = world.model.marks.items;
        world.log.restart(world.log.epoch, if (marks.len == 0) .origin else marks[marks.len - 1]);
    }

    fn join(world: *World) !void {
        const at: Position = .{
            .epoch = world.log.epoch +% @intFromBool(world.random.uintLessThan(u8, 10) == 0),
            .mark = .{
                .offset = world.log.tip.offset + 2 -| world.random.uintLessThan(u64, 40),
                .check = 1,
            },
        };
        var shown = at;
        const known = at.mark.offset <= world.model.marks.items.len;
        const forged = world.random.uintLessThan(u8, 10) == 0;
        if (known and !forged) {
            shown.mark.check = world.model.checkAt(at.mark.offset);
        }
        const since: position.Since =
            if (world.random.uintLessThan(u8, 5) == 0) .now else .{ .after = shown };
        const begun = world.log.begin(since);
        const cursor = switch (begun) {
            .current => |cursor| at_tip: {
                if (since == .after) try testing.expectEqual(world.log.now(), shown);
                break :at_tip cursor;
            },
            .behind => |cursor| behind: {
                world.resumed += 1;
                try testing.expect(known and !forged and shown.epoch == world.log.epoch);
                try testing.expectEqual(shown.mark.offset, cursor.offset);
                try testing.expect(cursor.offset >= world.log.base.offset);
                break :behind cursor;
            },
            .reset => |reset| now: {
                world.resets.getPtr(reset.why).* += 1;
                switch (reset.why) {
                    .epoch => try testing.expect(shown.epoch != world.log.epoch),
                    .ahead => try testing.expect(!known),
                    .trimmed => try testing.expect(shown.mark.offset < world.log.base.offset),
                    .other_entry => try testing.expect(forged),
                }
                try testing.expectEqual(world.log.tip.offset, reset.cursor.offset);
                break :now reset.cursor;
            },
        };
        try world.readers.append(testing.allocator, .{
            .cursor = cursor,
            .expected = cursor.offset + 1,
            .want = .{
                .variant = variants[world.random.uintLessThan(usize, variants.len)],
                .behind = if (world.random.boolean()) .cut else .skip,
                .quota = if (world.random.uintLessThan(u8, 4) == 0)
                    .{ .entries = 10, .bytes = 300 }
                else
                    (Want{ .variant = .event }).quota,
            },
        });
    }

    fn leave(world: *World) void {
        if (world.readers.items.len == 0) return;
        var reader = world.readers.swapRemove(world.random.uintLessThan(usize, world.readers.items.len));
        reader.deinit(&world.log);
    }

    /// Serves all readers until they have every entry.
    fn catchUp(world: *World) !void {
        for (world.readers.items) |*reader| {
            for (0..2_000) |_| {
                if (reader.is_cut or (reader.cursor.hold == null and
                    reader.cursor.generation == world.log.generation and
                    reader.expected == world.log.tip.offset + 1)) break;
                try reader.turn(&world.log, &world.model, world.random, &world.room);
            } else return error.TestUnexpectedResult;
        }
    }
};

test "each reader gets each entry once and in order, or is told, whatever happens" {
    var resumed: usize = 0;
    var resets: std.EnumArray(log_file.Resumed.Why, usize) = .initFill(0);
    for (0..20) |seed| {
        var prng: std.Random.DefaultPrng = .init(seed);
        var world: World = undefined;
        try world.init(prng.random());
        defer world.deinit();
        errdefer std.debug.print("seed {d}\n", .{seed});
        for (0..1_500) |_| try world.step();
        try world.catchUp();
        resumed += world.resumed;
        for (std.enums.values(log_file.Resumed.Why)) |why| resets.getPtr(why).* += world.resets.get(why);
    }
    try testing.expect(resumed > 100);
    for (std.enums.values(log_file.Resumed.Why)) |why| try testing.expect(resets.get(why) > 5);
}

fn expectFrames(expected: []const u8, variant: Variant, payloads: []const []const u8) !void {
    var room: FramerMemory = try .init();
    defer room.deinit();
    var log: Log = .init(testing.allocator, small, 0xabc, .origin);
    defer log.deinit();
    for (payloads, 1..) |payload, sequence| _ = try log.append(1, sequence, 0, payload);
    var cursor = log.begin(.{ .after = .{ .epoch = 0xabc, .mark = .origin } }).behind;
    defer log.release(&cursor);
    const next = try log.next(&cursor, .{ .variant = variant }, room.framer());
    try testing.expectEqualStrings(expected, next.bytes);
}

test "frames of each variant" {
    const two = [_][]const u8{ "hi", "" };
    try expectFrames("\x81\x02hi\x81\x00", .{ .websocket = .text }, &two);
    try expectFrames("\x82\x02hi\x82\x00", .{ .websocket = .binary }, &two);
    try expectFrames("\x81\x02hi\x81\x00", .{ .deflated = .{ .kind = .text } }, &two);
    // Invalid UTF-8 is replaced, because browsers end a WebSocket for it.
    try expectFrames("\x81\x05a\u{fffd}b", .{ .websocket = .text }, &.{"a\xffb"});
    try expectFrames("\x82\x03a\xffb", .{ .websocket = .binary }, &.{"a\xffb"});
    const first = position.follow(0, 1, 1);
    var buffer: [200]u8 = undefined;
    const event_text = try std.fmt.bufPrint(
        &buffer,
        "id: 000000000abc.1.{x:0>12}\ndata: a\ndata: b\n\n",
        .{first},
    );
    try expectFrames(event_text, .event, &.{"a\nb"});
    var chunk: [300]u8 = undefined;
    const chunked = try std.fmt.bufPrint(&chunk, "{x}\r\n{s}\r\n", .{ event_text.len, event_text });
    try expectFrames(chunked, .event_chunk, &.{"a\nb"});
}

test "a message is compressed for a window that is as long, and once for all of these" {
    var room: FramerMemory = try .init();
    defer room.deinit();
    var log: Log = .init(testing.allocator, small, 1, .origin);
    defer log.deinit();
    const start = log.now();
    const long: [300]u8 = @splat('x');
    for ([_][]const u8{ long[0..200], &long }, 0..) |payload, round| {
        const before = log.now();
        _ = try log.append(1, round + 1, 0, payload);
        for (8..16) |bits| {
            var cursor = log.begin(.{ .after = before }).behind;
            const variant: Variant = .{ .deflated = .{ .kind = .text, .window_bits = @intCast(bits) } };
            const bytes = (try log.next(&cursor, .{ .variant = variant }, room.framer())).bytes;
            const found = frame(variant, bytes).?;
            try testing.expect(found.compressed and found.payload.len < 50);
            var space: [1000]u8 = undefined;
            try testing.expectEqualStrings(payload, try inflate(found.payload, variant, &space));
            log.release(&cursor);
        }
    }
    // 200 bytes fit each window; 300 bytes fit all windows but the smallest.
    try testing.expectEqual(1, log.segments.at(0).frames.items.len);
    try testing.expectEqual(2, log.segments.at(1).frames.items.len);
    try testing.expectEqual(0, start.mark.offset);
}

test "short messages are the same for readers with compression and without" {
    var room: FramerMemory = try .init();
    defer room.deinit();
    var log: Log = .init(testing.allocator, small, 1, .origin);
    defer log.deinit();
    const before = log.now();
    _ = try log.append(1, 1, 0, "short");
    for ([_]Variant{
        .{ .deflated = .{ .kind = .text } },
        .{ .deflated = .{ .kind = .text, .window_bits = 8 } },
        .{ .websocket = .text },
    }) |variant| {
        var cursor = log.begin(.{ .after = before }).behind;
        const bytes = (try log.next(&cursor, .{ .variant = variant }, room.framer())).bytes;
        try testing.expectEqualStrings("\x81\x05short", bytes);
        log.release(&cursor);
    }
    try testing.expectEqual(1, log.segments.at(0).frames.items.len);
}

test "memory is the topic's, not that of its readers" {
    var room: FramerMemory = try .init();
    defer room.deinit();
    var log: Log = .init(testing.allocator, small, 1, .origin);
    defer log.deinit();
    var cursors: [1000]Cursor = undefined;
    for (&cursors) |*cursor| cursor.* = log.begin(.now).current;
    const long: [100]u8 = @splat('x');
    _ = try log.append(1, 1, 0, &long);
    var first: ?[*]const u8 = null;
    for (&cursors) |*cursor| {
        const bytes = (try log.next(cursor, .{ .variant = .event }, room.framer())).bytes;
        if (first) |same| try testing.expectEqual(same, bytes.ptr) else first = bytes.ptr;
        log.sent(cursor, 10);
    }
    try testing.expect(log.framed_bytes < 300);
    try testing.expectEqual(1000, log.segments.at(0).holds);
    // The history goes on, and each reader gets the rest of the frame that it was sent a part of.
    for (2..100) |sequence| _ = try log.append(1, sequence, 0, "y");
    try testing.expect(log.stale_bytes > 100 and log.stale_bytes < 400);
    for (&cursors) |*cursor| {
        const next = try log.next(cursor, .{ .variant = .event }, room.framer());
        try testing.expectEqual(.bytes, std.meta.activeTag(next));
        log.release(cursor);
    }
    try testing.expectEqual(0, log.stale_bytes);
    try testing.expectEqual(.cut, try log.next(&cursors[0], .{ .variant = .event }, room.framer()));
    const skipping: Want = .{ .variant = .event, .behind = .skip };
    try testing.expectEqual(
        log_file.Next{ .skipped = 99 },
        try log.next(&cursors[0], skipping, room.framer()),
    );
    try testing.expectEqual(.nothing, try log.next(&cursors[0], skipping, room.framer()));
}

test "of a segment that is no longer kept, only the frame that has begun goes out" {
    var room: FramerMemory = try .init();
    defer room.deinit();
    var log: Log = .init(testing.allocator, small, 1, .origin);
    defer log.deinit();
    var within = log.begin(.now).current;
    var between = within;
    for (1..5) |sequence| _ = try log.append(1, sequence, 0, "abc");
    const want: Want = .{ .variant = .{ .websocket = .text }, .behind = .skip };
    for ([_]*Cursor{ &within, &between }, [_]usize{ 7, 10 }) |cursor, count| {
        try testing.expectEqual(20, (try log.next(cursor, want, room.framer())).bytes.len);
        log.sent(cursor, count);
    }
    for (5..100) |sequence| _ = try log.append(1, sequence, 0, "xyz");
    // A frame has five bytes, so seven bytes are one frame and two bytes of the next.
    try testing.expectEqualStrings("abc", (try log.next(&within, want, room.framer())).bytes);
    log.sent(&within, 3);
    for ([_]*Cursor{ &within, &between }) |cursor| {
        try testing.expectEqual(log_file.Next{ .skipped = 97 }, try log.next(cursor, want, room.framer()));
    }
    try testing.expectEqual(0, log.stale_bytes);
}

test "entries that others have placed: the next, repeated ones, a gap, another history" {
    var origin: Log = .init(testing.allocator, small, 5, .origin);
    defer origin.deinit();
    var copy: Log = .init(testing.allocator, small, 5, .origin);
    defer copy.deinit();
    var placed: [40]log_file.Placed = undefined;
    for (&placed, 1..) |*entry, sequence| entry.* = .{
        .epoch = 5,
        .mark = try origin.append(7, sequence, 0, "x"),
        .hub = 7,
        .sequence = sequence,
        .bytes = "x",
    };
    try testing.expectEqual(.gap, try copy.place(placed[1], 0));
    for (placed[0..35]) |entry| try testing.expectEqual(.appended, try copy.place(entry, 0));
    for (placed[0..35]) |entry| try testing.expectEqual(.repeated, try copy.place(entry, 0));
    try testing.expectEqual(.gap, try copy.place(placed[36], 0));
    // Another entry at a known offset, at the next offset, and of another epoch.
    var other = placed[34];
    other.mark.check +%= 1;
    try testing.expectEqual(.diverged, try copy.place(other, 0));
    other = placed[35];
    other.sequence += 1;
    try testing.expectEqual(.diverged, try copy.place(other, 0));
    other = placed[35];
    other.epoch = 6;
    try testing.expectEqual(.diverged, try copy.place(other, 0));
    try testing.expectEqual(.appended, try copy.place(placed[35], 0));
    try testing.expectEqual(origin.markAt(36), copy.tip);
}

test "no memory: the history stays as it was" {
    const Scene = struct {
        fn play(gpa: std.mem.Allocator) !void {
            var room: FramerMemory = try .init();
            defer room.deinit();
            var log: Log = .init(gpa, small, 1, .origin);
            defer log.deinit();
            var cursor = log.begin(.now).current;
            defer log.release(&cursor);
            for (1..40) |sequence| {
                const before = log.now();
                errdefer log.invariants();
                _ = log.append(1, sequence, 0, "some text that is long enough to compress") catch |err| {
                    try testing.expectEqual(before, log.now());
                    return err;
                };
                if (sequence % 3 != 0) continue;
                const want: Want = .{ .variant = .{ .deflated = .{ .kind = .text } } };
                const next = try log.next(&cursor, want, room.framer());
                log.sent(&cursor, next.bytes.len);
            }
        }
    };
    // Allocations never grow in place, because each run must make the same number of allocations.
    var moving: testing.FailingAllocator = .init(testing.allocator, .{ .resize_fail_index = 0 });
    try testing.checkAllAllocationFailures(moving.allocator(), Scene.play, .{});
}
