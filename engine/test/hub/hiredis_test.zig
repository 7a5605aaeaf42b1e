//! The parser of RESP2 against hiredis: answers, and answers with faults in them, at any cuts.
//! hiredis is more lenient in two points, and has a limit of depth alone; all else must agree.
const std = @import("std");
const hub = @import("hub");
const c = @import("c");
const resp = hub.resp;
const testing = std.testing;

/// Deeper than hiredis reads, so that lists which are too deep for it are among the cases.
const depth_max = 12;
const limits: resp.Limits = .{
    .depth_max = depth_max,
    .elements_max = 5_000,
    .bytes_max = 100_000,
    .line_bytes_max = 1_000,
};
const cases = 20_000;

/// A reader's end, and its values as text.
const Reading = struct {
    verdict: enum { open, malformed, limited },
    /// The parser is stricter than hiredis.
    strict: bool = false,
    text: []const u8,
};

/// Answers of RESP2, nested, with the integers and lengths that go wrong most easily.
const Generator = struct {
    random: std.Random,
    out: *std.Io.Writer.Allocating,

    fn answers(generator: Generator) !void {
        for (0..generator.random.intRangeAtMost(usize, 1, 4)) |_| try generator.value(0);
    }

    fn value(generator: Generator, depth: usize) std.Io.Writer.Error!void {
        const random = generator.random;
        const writer = &generator.out.writer;
        switch (random.uintLessThan(u8, if (depth <= depth_max) 9 else 6)) {
            0 => try writer.print("+{s}\r\n", .{generator.word()}),
            1 => try writer.print("-ERR {s}\r\n", .{generator.word()}),
            2 => try writer.print(":{d}\r\n", .{generator.integer()}),
            3 => try writer.print("$-1\r\n", .{}),
            4 => try writer.print("*-1\r\n", .{}),
            5 => {
                const len = random.uintLessThan(usize, 40);
                try writer.print("${d}\r\n", .{len});
                for (0..len) |_| try writer.writeByte(random.int(u8));
                try writer.writeAll("\r\n");
            },
            else => {
                const count = random.uintLessThan(usize, 5);
                try writer.print("*{d}\r\n", .{count});
                for (0..count) |_| try generator.value(depth + 1);
            },
        }
    }

    fn word(generator: Generator) []const u8 {
        const words = [_][]const u8{ "", "OK", "PONG", "LOADING Redis is loading", "\x00\xff", ":1" };
        return words[generator.random.uintLessThan(usize, words.len)];
    }

    fn integer(generator: Generator) i64 {
        const values = [_]i64{ 0, 1, -1, 10, std.math.maxInt(i64), std.math.minInt(i64) };
        const place = generator.random.uintLessThan(usize, values.len + 1);
        return if (place < values.len) values[place] else generator.random.int(i64);
    }

    /// Writes a few bytes over others, takes some out, or doubles some.
    fn spoil(generator: Generator) !void {
        const random = generator.random;
        var bytes = generator.out.toArrayList();
        defer generator.out.* = .fromArrayList(testing.allocator, &bytes);
        const likely = "+-:$*\r\n0123456789-+ x";
        for (0..random.intRangeAtMost(usize, 1, 3)) |_| {
            if (bytes.items.len == 0) return;
            const at = random.uintLessThan(usize, bytes.items.len);
            const byte = likely[random.uintLessThan(usize, likely.len)];
            switch (random.uintLessThan(u8, 4)) {
                0 => bytes.items[at] = byte,
                1 => try bytes.insert(testing.allocator, at, byte),
                2 => _ = bytes.orderedRemove(at),
                else => bytes.shrinkRetainingCapacity(at),
            }
        }
    }
};

fn readOurs(memory: *Memory, random: std.Random, wire: []const u8) !Reading {
    var parser: resp.Parser = .init(limits);
    memory.tree.clear();
    const tree = &memory.tree;
    var writer: std.Io.Writer = .fixed(&memory.ours);
    var at: usize = 0;
    var arrived: usize = 0;
    while (true) {
        arrived += @min(wire.len - arrived, random.uintLessThan(usize, 50));
        while (true) {
            const step = parser.feed(wire[at..arrived]);
            at += step.consumed;
            switch (step.event) {
                .need_more => break,
                .malformed => |fault| return .{
                    .verdict = switch (fault) {
                        .too_many_elements, .too_many_bytes, .line_too_long => .limited,
                        else => .malformed,
                    },
                    .strict = fault == .bad_line or fault == .text_not_ended,
                    .text = writer.buffered(),
                },
                else => switch (tree.add(step.event)) {
                    .more => {},
                    .full => unreachable, // the limits are the tree's
                    .complete => {
                        try describe(tree.root(), &writer);
                        try writer.writeAll("\n");
                        tree.clear();
                    },
                },
            }
        }
        if (arrived == wire.len) return .{ .verdict = .open, .text = writer.buffered() };
    }
}

fn describe(view: hub.Tree.View, writer: *std.Io.Writer) !void {
    if (view.failure()) |text| return writer.print("-{x} ", .{text});
    if (view.bytes()) |text| return writer.print("\"{x} ", .{text});
    if (view.integer()) |value| return writer.print("{d} ", .{value});
    if (view.isNothing()) return writer.writeAll("nothing ");
    try writer.print("{d}[ ", .{view.count().?});
    var items = view.items();
    while (items.next()) |item| try describe(item, writer);
    try writer.writeAll("] ");
}

fn readTheirs(random: std.Random, wire: []const u8, out: []u8) !Reading {
    const reader = c.redisReaderCreate() orelse return error.OutOfMemory;
    defer c.redisReaderFree(reader);
    var writer: std.Io.Writer = .fixed(out);
    var arrived: usize = 0;
    while (true) {
        const piece = @min(wire.len - arrived, random.uintLessThan(usize, 50));
        try testing.expectEqual(c.REDIS_OK, c.redisReaderFeed(reader, wire.ptr + arrived, piece));
        arrived += piece;
        while (true) {
            var reply: ?*anyopaque = null;
            if (c.redisReaderGetReply(reader, &reply) != c.REDIS_OK) {
                const reason = std.mem.sliceTo(&reader.*.errstr, 0);
                const is_deep = std.mem.startsWith(u8, reason, "No support for nested");
                return .{
                    .verdict = if (is_deep) .limited else .malformed,
                    .text = writer.buffered(),
                };
            }
            const answer: *c.redisReply = @ptrCast(@alignCast(reply orelse break));
            defer c.freeReplyObject(answer);
            try describeTheirs(answer, &writer);
            try writer.writeAll("\n");
        }
        if (arrived == wire.len) return .{ .verdict = .open, .text = writer.buffered() };
    }
}

fn describeTheirs(answer: *const c.redisReply, writer: *std.Io.Writer) !void {
    switch (answer.type) {
        c.REDIS_REPLY_ERROR => try writer.print("-{x} ", .{answer.str[0..answer.len]}),
        c.REDIS_REPLY_STRING, c.REDIS_REPLY_STATUS => {
            try writer.print("\"{x} ", .{answer.str[0..answer.len]});
        },
        c.REDIS_REPLY_INTEGER => try writer.print("{d} ", .{answer.integer}),
        c.REDIS_REPLY_NIL => try writer.writeAll("nothing "),
        c.REDIS_REPLY_ARRAY => {
            try writer.print("{d}[ ", .{answer.elements});
            for (0..answer.elements) |i| try describeTheirs(answer.element[i], writer);
            try writer.writeAll("] ");
        },
        else => unreachable,
    }
}

/// The memory that both readers write their values to.
const Memory = struct {
    tree: hub.Tree,
    ours: [1 << 20]u8 = undefined,
    theirs: [1 << 20]u8 = undefined,

    fn create() !*Memory {
        const memory = try testing.allocator.create(Memory);
        errdefer testing.allocator.destroy(memory);
        memory.tree = try .alloc(testing.allocator, limits.elements_max + 1, limits.bytes_max);
        return memory;
    }

    fn destroy(memory: *Memory) void {
        memory.tree.free(testing.allocator);
        testing.allocator.destroy(memory);
    }
};

/// Reads an input with both, and compares.
fn compare(memory: *Memory, random: std.Random, wire: []const u8) !Reading {
    const ours = try readOurs(memory, random, wire);
    // hiredis takes memory for as many values as are announced.
    if (ours.verdict == .limited) return .{ .verdict = .limited, .text = "" };
    const theirs = try readTheirs(random, wire, &memory.theirs);
    errdefer std.debug.print("{f}\nours {t}: {s}\ntheirs {t}: {s}\n", .{
        std.ascii.hexEscape(wire, .lower), ours.verdict, ours.text, theirs.verdict, theirs.text,
    });
    if (theirs.verdict == .limited) {
        if (!ours.strict) try testing.expect(std.mem.startsWith(u8, ours.text, theirs.text));
        return .{ .verdict = .limited, .text = "" };
    }
    if (ours.strict) {
        try testing.expect(std.mem.startsWith(u8, theirs.text, ours.text));
    } else {
        try testing.expectEqualStrings(theirs.text, ours.text);
        try testing.expectEqual(theirs.verdict, ours.verdict);
    }
    return .{ .verdict = ours.verdict, .strict = ours.strict, .text = "" };
}

test "answers, whole and spoilt, are what they are for hiredis" {
    var prng: std.Random.DefaultPrng = .init(0x2e59);
    const random = prng.random();
    const memory: *Memory = try .create();
    defer memory.destroy();
    var whole: usize = 0;
    var malformed: usize = 0;
    for (0..cases) |number| {
        var out: std.Io.Writer.Allocating = .init(testing.allocator);
        defer out.deinit();
        const generator: Generator = .{ .random = random, .out = &out };
        try generator.answers();
        if (number % 2 == 1) try generator.spoil();
        errdefer std.debug.print("case {d}\n", .{number});
        const reading = try compare(memory, random, out.written());
        if (reading.verdict == .open) whole += 1;
        if (reading.verdict == .malformed and !reading.strict) malformed += 1;
    }
    // Each kind of case is there.
    try testing.expect(whole > cases / 3 and malformed > cases / 20);
}

test "bytes of no language are malformed for both" {
    var prng: std.Random.DefaultPrng = .init(7);
    const random = prng.random();
    const memory: *Memory = try .create();
    defer memory.destroy();
    for (0..cases) |_| {
        var wire: [64]u8 = undefined;
        const len = random.intRangeAtMost(usize, 1, wire.len);
        const likely = "+-:$*$*\r\n\r\n\r\n0123456789-";
        for (wire[0..len]) |*byte| byte.* = likely[random.uintLessThan(usize, likely.len)];
        _ = try compare(memory, random, wire[0..len]);
    }
}

test "an announced billion is refused before memory is taken" {
    var prng: std.Random.DefaultPrng = .init(8);
    const memory: *Memory = try .create();
    defer memory.destroy();
    for ([_][]const u8{ "*2147483647\r\n", "$2147483647\r\n", "*1000\r\n*5000\r\n" }) |wire| {
        try testing.expectEqual(.limited, (try compare(memory, prng.random(), wire)).verdict);
    }
}
