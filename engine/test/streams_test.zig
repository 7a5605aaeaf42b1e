//! The memory of an idle connection of many streams, over the simulated network, and the memory for its
//! peer's header fields, which grows with them.
const std = @import("std");
const per = @import("peregrine");
const alike = @import("alike.zig");
const testing = std.testing;
const gpa = testing.allocator;

/// Says what was asked for, and by which `x-value`.
const Echo = struct {
    allocator: std.mem.Allocator,

    pub fn init(allocator: std.mem.Allocator) !*Echo {
        const self = try allocator.create(Echo);
        self.* = .{ .allocator = allocator };
        return self;
    }

    pub fn deinit(self: *Echo) void {
        self.allocator.destroy(self);
    }

    pub fn handleRequest(_: *Echo, request: *per.Request, response: *per.Response) void {
        const value = request.findHeader("x-value") orelse "none";
        _ = response.setBody(value) catch unreachable;
    }
};

const Simulation = alike.Simulation(Echo);
const Client = Simulation.Client;

fn open(seed: u64) !Simulation {
    return .init(gpa, .{ .limits = .{ .http2 = .everywhere } }, .{ .seed = seed });
}

/// The preface, settings, and that those of the server have been seen.
const hello = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" ++
    "\x00\x00\x00\x04\x00\x00\x00\x00\x00" ++ "\x00\x00\x00\x04\x01\x00\x00\x00\x00";

/// A request's header block.
const Block = struct {
    bytes: [4096]u8 = undefined,
    len: usize = 0,

    /// GET http://h/
    fn begin() Block {
        var block: Block = .{};
        block.put("\x82\x86\x84\x01\x01h");
        return block;
    }

    fn put(block: *Block, bytes: []const u8) void {
        @memcpy(block.bytes[block.len..][0..bytes.len], bytes);
        block.len += bytes.len;
    }

    /// A field that the peer is to keep; both of less than 127 bytes.
    fn keep(block: *Block, name: []const u8, value: []const u8) void {
        block.put(&.{ 0x40, @intCast(name.len) });
        block.put(name);
        block.put(&.{@intCast(value.len)});
        block.put(value);
    }

    fn send(block: *const Block, client: *Client, stream: u8) !void {
        try client.send(&.{ 0, @intCast(block.len >> 8), @truncate(block.len), 1, 5, 0, 0, 0, stream });
        try client.send(block.bytes[0..block.len]);
    }
};

/// The header fields that Chrome sends when a page is opened.
const browser = [_][2][]const u8{
    .{ "cache-control", "max-age=0" },
    .{ "sec-ch-ua", "\"Chromium\";v=\"140\", \"Not=A?Brand\";v=\"24\", \"Google Chrome\";v=\"140\"" },
    .{ "sec-ch-ua-mobile", "?0" },
    .{ "sec-ch-ua-platform", "\"Linux\"" },
    .{ "upgrade-insecure-requests", "1" },
    .{ "user-agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/140.0.0.0 Safari/537.36" },
    .{ "accept", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8" },
    .{ "sec-fetch-site", "none" },
    .{ "sec-fetch-mode", "navigate" },
    .{ "sec-fetch-user", "?1" },
    .{ "sec-fetch-dest", "document" },
    .{ "accept-encoding", "gzip, deflate, br, zstd" },
    .{ "accept-language", "en-GB,en;q=0.9,de;q=0.8" },
    .{ "cookie", "session=8f14e45fceea167a5a36dedd4bea2543; theme=dark; consent=1" },
    .{ "priority", "u=0, i" },
};

/// Memory of the worker for each of some connections that have asked, then said nothing for this time.
fn idleBytes(block: *const Block, answer: []const u8, quiet_ms: u64) !usize {
    var simulation = try open(1);
    defer simulation.deinit();
    const count = 256;
    var held: [2]usize = undefined;
    for (&held) |*bytes| {
        for (0..count) |_| {
            const client = try simulation.connect();
            try client.send(hello);
            try block.send(client, 1);
            try simulation.settle();
            try testing.expect(std.mem.find(u8, client.text(), answer) != null);
        }
        try simulation.advance(quiet_ms);
        bytes.* = simulation.worker().statistics().memory_bytes;
    }
    return (held[1] - held[0]) / count;
}

test "an idle connection that a browser has asked for a page by takes no more than 6 KiB" {
    var block: Block = .begin();
    for (browser) |field| block.keep(field[0], field[1]);
    block.keep("x-value", "asked for");
    const each = try idleBytes(&block, "asked for", 0);
    try testing.expect(each > 1024 and each <= 6 * 1024);
}

test "a connection whose streams have ended for a while takes little, and its peer's fields a part of it" {
    var block: Block = .begin();
    const least = try idleBytes(&block, "none", 2000);
    try testing.expect(least > 512 and least <= 1700);
    for (browser) |field| block.keep(field[0], field[1]);
    const more = try idleBytes(&block, "none", 2000);
    try testing.expect(more > least + 1024 and more <= least + 3 * 1024);
}

test "after a pause fields go on as before: the peer's are known, and ours begin anew" {
    var simulation = try open(1);
    defer simulation.deinit();
    const client = try simulation.connect();
    try client.send(hello);
    var block: Block = .begin();
    block.keep("x-value", "kept over the pause");
    try block.send(client, 1);
    try simulation.settle();
    var again: Block = .begin();
    again.put("\xbe");
    var lengths: [4]usize = undefined;
    for (&lengths, 1..) |*length, round| {
        if (round % 2 == 1) try simulation.advance(2000);
        const before = client.text().len;
        try again.send(client, @intCast(2 * round + 1));
        try simulation.settle();
        try testing.expectEqual(1 + round, std.mem.count(u8, client.text(), "kept over the pause"));
        length.* = client.text().len - before;
    }
    // The response behind a pause says its fields, the one behind that their numbers.
    try testing.expect(lengths[0] > lengths[1] + 20);
    try testing.expectEqual(lengths[0], lengths[2]);
    try testing.expectEqual(lengths[1], lengths[3]);
}

test "a request that comes in pieces, with pauses between them, finds its place" {
    var simulation = try open(1);
    defer simulation.deinit();
    const client = try simulation.connect();
    try client.send(hello);
    const start = "\x82\x86\x84";
    const end = "\x01\x01h";
    for ([_][2][]const u8{
        // A single frame, and two of which the second is CONTINUATION.
        .{ "\x00\x00\x06\x01\x05\x00\x00\x00\x01" ++ start, end },
        .{
            "\x00\x00\x03\x01\x01\x00\x00\x00\x03" ++ start,
            "\x00\x00\x03\x09\x04\x00\x00\x00\x03" ++ end,
        },
    }, 1..) |pieces, answers| {
        for (pieces) |piece| {
            try client.send(piece);
            try simulation.settle();
            try simulation.advance(2000);
        }
        try testing.expectEqual(answers, std.mem.count(u8, client.text(), "none"));
    }
}

test "a stream without memory for it is refused, and the next one has its answer" {
    var simulation = try open(1);
    defer simulation.deinit();
    const client = try simulation.connect();
    try client.send(hello);
    try simulation.settle();
    const pages = &simulation.worker().shared.?.desks.allocator;
    const kept = pages.*;
    for ([_]u8{ 1, 3 }) |stream| {
        var failing: testing.FailingAllocator = .init(kept, .{ .fail_index = 0 });
        pages.* = failing.allocator();
        defer pages.* = kept;
        const before = client.text().len;
        try Block.begin().send(client, stream);
        try simulation.settle();
        try testing.expect(failing.has_induced_failure);
        // RST_STREAM: REFUSED_STREAM
        try testing.expectEqualStrings(
            &.{ 0, 0, 4, 3, 0, 0, 0, 0, stream, 0, 0, 0, 7 },
            client.text()[before..],
        );
    }
    try Block.begin().send(client, 5);
    try simulation.settle();
    try testing.expect(std.mem.endsWith(u8, client.text(), "none"));
}

test "content behind a request that the engine has answered is refused by nobody, however much comes" {
    var simulation: Simulation = try .init(gpa, .{ .limits = .{
        .http2 = .everywhere,
        .body_bytes_max = 100,
    } }, .{ .seed = 5 });
    defer simulation.deinit();
    try simulation.worker().setHealthPath("/");
    const client = try simulation.connect();
    try client.send(hello);
    // No window for responses: the answer waits, and its stream stays.
    try client.send("\x00\x00\x06\x04\x00\x00\x00\x00\x00" ++ "\x00\x04\x00\x00\x00\x00");
    const block: Block = .begin();
    try client.send(&.{ 0, 0, @intCast(block.len), 1, 4, 0, 0, 0, 1 });
    try client.send(block.bytes[0..block.len]);
    try simulation.settle();
    try testing.expect(std.mem.find(u8, client.text(), "ok\n") == null);
    const content: [200]u8 = @splat('x');
    try client.send("\x00\x00\xc8\x00\x00\x00\x00\x00\x01");
    try client.send(&content);
    try simulation.settle();
    try client.send("\x00\x00\x04\x08\x00\x00\x00\x00\x01" ++ "\x00\x00\x10\x00");
    try simulation.settle();
    try testing.expect(std.mem.find(u8, client.text(), "ok\n") != null);
}

test "connections keep their peers' fields apart, however much they keep" {
    for (0..10) |seed| {
        var simulation = try open(seed);
        defer simulation.deinit();
        var clients: [3]*Client = undefined;
        for (&clients) |*client| {
            client.* = try simulation.connect();
            try client.*.send(hello);
        }
        for (0..40) |round| {
            for (clients, 0..) |client, number| {
                // Kept by this request, and named by one behind it.
                var text: [120]u8 = @splat('x');
                const value = text[0 .. 20 * number + 16 + round];
                const prefix = try std.fmt.bufPrint(&text, "client {d}, {d} ", .{ number, round });
                try testing.expect(prefix.len <= value.len);
                var block: Block = .begin();
                block.keep("x-value", value);
                try block.send(client, @intCast(round * 4 + 1));
                var again: Block = .begin();
                again.put("\xbe");
                try again.send(client, @intCast(round * 4 + 3));
                try simulation.settle();
                try testing.expectEqual(2, std.mem.count(u8, client.text(), value));
            }
        }
    }
}

test "a connection ends whose peer's fields find no memory" {
    var simulation = try open(1);
    defer simulation.deinit();
    const client = try simulation.connect();
    try client.send(hello);
    try Block.begin().send(client, 1);
    try simulation.settle();
    var failing: testing.FailingAllocator = .init(gpa, .{ .fail_index = 0 });
    const worker = simulation.worker();
    worker.gpa = failing.allocator();
    defer worker.gpa = gpa;
    var block: Block = .begin();
    block.keep("x-value", "too much");
    try block.send(client, 3);
    try simulation.settle();
    try testing.expect(failing.has_induced_failure);
    try testing.expect(client.ended() != null);
    try testing.expectEqual(null, std.mem.find(u8, client.text(), "too much"));
    // Other clients are served as before.
    worker.gpa = gpa;
    const other = try simulation.connect();
    try other.send(hello);
    try block.send(other, 1);
    try simulation.settle();
    try testing.expect(std.mem.find(u8, other.text(), "too much") != null);
}
