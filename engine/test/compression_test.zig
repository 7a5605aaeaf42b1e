//! permessage-deflate between a server and a client with histories of their own, over the simulated
//! network: what is agreed on, what is compressed and what is not, what a client may not do, and what an
//! idle WebSocket holds.
const std = @import("std");
const per = @import("peregrine");
const alike = @import("alike.zig");
const Client = @import("websocket_client.zig").Client;
const testing = std.testing;
const gpa = testing.allocator;

const Echo = struct {
    allocator: std.mem.Allocator,
    compression: per.Command.Compression = .configured,
    codes: std.ArrayList(u16) = .empty,

    pub fn init(allocator: std.mem.Allocator) !*Echo {
        const self = try allocator.create(Echo);
        self.* = .{ .allocator = allocator };
        return self;
    }

    pub fn deinit(self: *Echo) void {
        self.codes.deinit(self.allocator);
        self.allocator.destroy(self);
    }

    pub fn handleRequest(self: *Echo, request: *per.Request, response: *per.Response) void {
        per.ws.upgrader.accept(request, response, .{ .compression = self.compression }) catch {};
        response.addNewHeader("X-Extra", "1") catch {};
    }

    pub fn handleWSFrame(_: *Echo, socket: *per.ws.WebSocket, message: *per.ws.Frame) void {
        _ = socket.send(if (message.opcode == .text) .text else .binary, message.payload) catch unreachable;
    }

    pub fn handleWSDisconn(self: *Echo, socket: *per.ws.WebSocket) void {
        self.codes.append(self.allocator, socket.close_code) catch unreachable;
    }
};

const Network = alike.Simulation(Echo);
const pmd = "permessage-deflate";

/// A server and one client.
const Bench = struct {
    simulation: Network,
    wire: *Network.Client,
    client: *Client,

    fn init(bench: *Bench, limits: per.Config, offer: []const u8, seed: u64) !void {
        bench.simulation = try .init(
            gpa,
            .{ .limits = limits, .websocket_buffer_size = 1 << 20 },
            .{ .seed = seed },
        );
        errdefer bench.simulation.deinit();
        bench.wire = try bench.simulation.connect();
        const request = try Client.handshake(gpa, offer);
        defer gpa.free(request);
        bench.client = try .create(gpa);
        errdefer bench.client.destroy();
        try bench.client.out.appendSlice(gpa, request);
    }

    fn deinit(bench: *Bench) void {
        bench.client.destroy();
        bench.simulation.deinit();
    }

    /// Sends what the client has written, and reads what comes back.
    fn run(bench: *Bench) !void {
        try bench.wire.send(bench.client.out.items);
        bench.client.out.clearRetainingCapacity();
        try bench.simulation.settle();
        try bench.client.take(bench.wire.text());
        bench.wire.clear();
    }

    fn expectEcho(bench: *Bench, bytes: []const u8, compressed: bool) !usize {
        try bench.run();
        try testing.expectEqual(1, bench.client.messages.items.len);
        const message = bench.client.messages.pop().?;
        try testing.expectEqualStrings(bytes, message.bytes);
        try testing.expectEqual(compressed, message.compressed);
        return message.wire_bytes;
    }

    /// Bytes in buffers that are in use.
    fn heldBytes(bench: *Bench) usize {
        return bench.simulation.worker().pool.taken_bytes;
    }
};

/// A text that shrinks, the same for the same number.
fn prose(buffer: []u8, seed: u64) []u8 {
    const words = [_][]const u8{
        "many ", "small ", "words ", "make ", "one ", "long ", "text, ", "and ", "then ", "another ",
    };
    var random: std.Random.DefaultPrng = .init(seed);
    var at: usize = 0;
    while (at < buffer.len) {
        const word = words[random.random().uintLessThan(usize, words.len)];
        const len = @min(word.len, buffer.len - at);
        @memcpy(buffer[at..][0..len], word[0..len]);
        at += len;
    }
    return buffer;
}

test "the answer to a handshake agrees on parameters" {
    const Case = struct { per.Config, []const u8, ?[]const u8 };
    const both = "; server_no_context_takeover; client_no_context_takeover";
    const kept: per.Config = .{ .deflate_server_takeover = true, .deflate_client_takeover = true };
    const cases = [_]Case{
        .{ .{}, pmd ++ "; client_max_window_bits", pmd ++ both },
        .{
            .{},
            "x-other, " ++ pmd ++ "; server_max_window_bits=10",
            pmd ++ both ++ "; server_max_window_bits=10",
        },
        .{ .{}, pmd ++ "; unknown=1", null },
        .{ .{}, "x-webkit-deflate-frame", null },
        .{ .{ .deflate = false }, pmd, null },
        .{ kept, pmd, pmd },
        .{ kept, pmd ++ "; client_no_context_takeover", pmd ++ "; client_no_context_takeover" },
        .{ .{ .deflate_client_window_bits = 10 }, pmd, null },
        .{
            .{ .deflate_client_window_bits = 10 },
            pmd ++ "; client_max_window_bits",
            pmd ++ both ++ "; client_max_window_bits=10",
        },
        .{
            .{ .deflate_server_window_bits = 9 },
            pmd ++ "; server_max_window_bits=12",
            pmd ++ both ++ "; server_max_window_bits=9",
        },
    };
    for (cases) |case| {
        var bench: Bench = undefined;
        try bench.init(case[0], case[1], 1);
        defer bench.deinit();
        try bench.run();
        const head = bench.client.head.?;
        try testing.expect(std.mem.startsWith(u8, head, "HTTP/1.1 101 "));
        try testing.expect(std.mem.find(u8, head, "X-Extra: 1\r\n") != null);
        const name = "Sec-WebSocket-Extensions: ";
        if (case[2]) |expected| {
            const at = std.mem.find(u8, head, name).? + name.len;
            try testing.expect(std.mem.startsWith(u8, head[at..], expected));
            try testing.expect(std.mem.startsWith(u8, head[at + expected.len ..], "\r\n"));
        } else try testing.expectEqual(null, std.mem.find(u8, head, name));
    }
}

test "messages come back compressed if that is worth it, and as they are if not" {
    var text: [100_000]u8 = undefined;
    _ = prose(&text, 1);
    var noise: [50_000]u8 = undefined;
    var random: std.Random.DefaultPrng = .init(2);
    random.random().bytes(&noise);
    for (0..8) |seed| {
        var bench: Bench = undefined;
        try bench.init(.{ .deflate_bytes_min = 1000, .frame_bytes_max = 1 << 20 }, pmd, seed);
        defer bench.deinit();
        const client = bench.client;
        for ([_]usize{ 0, 1, 999, 1000, 32 * 1024, 32 * 1024 + 1, 100_000 }) |len| {
            try client.send(.text, text[0..len], .{
                .compressed = len % 2 == 0,
                .frame_bytes = if (len % 3 == 0) 0 else 1000,
            });
            const wire_bytes = try bench.expectEcho(text[0..len], len >= 1000);
            if (len >= 1000) try testing.expect(wire_bytes < len / 2);
        }
        for ([_]usize{ 1000, 50_000 }) |len| {
            try client.send(.binary, noise[0..len], .{ .compressed = true });
            _ = try bench.expectEcho(noise[0..len], false);
        }
        try testing.expectEqual(0, bench.heldBytes());
        try client.close(1000);
        try bench.run();
        try testing.expectEqual(1000, client.closed.?);
    }
}

test "without an agreement nothing is compressed, and a compressed message is a fault" {
    for ([_]per.Config{ .{ .deflate = false }, .{ .deflate_client_window_bits = 9 } }) |config| {
        var bench: Bench = undefined;
        try bench.init(config, pmd, 3);
        defer bench.deinit();
        var buffer: [5000]u8 = undefined;
        const text = prose(&buffer, 1);
        try bench.client.send(.text, text, .{});
        _ = try bench.expectEcho(text, false);
        try bench.client.send(.text, text, .{ .compressed = true });
        try bench.run();
        try testing.expectEqual(1002, bench.client.closed.?);
    }
}

test "whoever accepts a WebSocket says whether it is compressed" {
    const Case = struct { deflate: bool, compression: per.Command.Compression, offer: []const u8, is: bool };
    for ([_]Case{
        .{ .deflate = true, .compression = .configured, .offer = pmd, .is = true },
        .{ .deflate = true, .compression = .on, .offer = pmd, .is = true },
        .{ .deflate = true, .compression = .off, .offer = pmd, .is = false },
        .{ .deflate = false, .compression = .configured, .offer = pmd, .is = false },
        .{ .deflate = false, .compression = .on, .offer = pmd, .is = true },
        .{ .deflate = false, .compression = .off, .offer = pmd, .is = false },
        .{ .deflate = false, .compression = .on, .offer = "x-other", .is = false },
    }) |case| {
        var bench: Bench = undefined;
        try bench.init(.{ .deflate = case.deflate, .message_bytes_max = 10_000 }, case.offer, 11);
        defer bench.deinit();
        bench.simulation.handler().compression = case.compression;
        var buffer: [10_001]u8 = undefined;
        const text = prose(&buffer, 1);
        try bench.client.send(.text, text[0..5000], .{});
        _ = try bench.expectEcho(text[0..5000], case.is);
        const name = "\r\nSec-WebSocket-Extensions: permessage-deflate";
        try testing.expectEqual(case.is, std.mem.find(u8, bench.client.head.?, name) != null);
        // The inflated length of a message is limited, too; without an agreement it is a fault.
        try bench.client.send(.text, text, .{ .compressed = true });
        try bench.run();
        try testing.expectEqual(@as(u16, if (case.is) 1009 else 1002), bench.client.closed.?);
    }
}

test "context takeover: the second message of a kind is a few bytes, at every window size" {
    for (8..16) |bits| for ([_]bool{ true, false }) |kept| {
        const config: per.Config = .{
            .deflate_bytes_min = 0,
            .deflate_server_takeover = kept,
            .deflate_client_takeover = kept,
            .deflate_server_window_bits = @intCast(bits),
        };
        var bench: Bench = undefined;
        try bench.init(config, pmd, bits);
        defer bench.deinit();
        var buffer: [200]u8 = undefined;
        const text = prose(&buffer, 9);
        var lens: [3]usize = undefined;
        for (&lens) |*len| {
            try bench.client.send(.text, text, .{ .compressed = true });
            len.* = try bench.expectEcho(text, true);
        }
        try testing.expectEqual(kept, lens[1] < 10);
        // A message that does not shrink goes out as it is and is not part of the history.
        try bench.client.send(.text, "q", .{ .compressed = true });
        _ = try bench.expectEcho("q", false);
        try bench.client.send(.text, text, .{ .compressed = true });
        _ = try bench.expectEcho(text, true);
    };
}

test "messages that do not inflate, or to too much, or not to text, end the connection with their code" {
    // zlib's 27 bytes for one letter 10,001 times.
    const bomb = "\xec\xc1\x01\x0d\x00\x00\x00\xc2\xa0\xda\x8f\x6f\x0f\x07\x14" ++
        "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x1c\x18\x00";
    const Case = struct { []const u8, u16 };
    for ([_]Case{
        .{ "\x06", 1007 }, // no such block
        .{ "", 1007 }, // even the empty message has a byte
        .{ "\xf2\x00\x11\x00\x00", 1007 }, // refers to a history that there is not
        .{ "\x00\x02\x00\xfd\xff\xc3\x28\x00", 1007 }, // stored, not UTF-8
        .{ bomb, 1009 },
    }) |case| for ([_]usize{ 0, 1 }) |frame_bytes| {
        var bench: Bench = undefined;
        try bench.init(.{ .message_bytes_max = 10_000 }, pmd, 4);
        defer bench.deinit();
        try bench.client.sendFrames(.text, case[0], .{ .compressed = true, .frame_bytes = frame_bytes });
        try bench.client.ping("never answered");
        try bench.run();
        try testing.expectEqual(case[1], bench.client.closed.?);
        try testing.expectEqualSlices(u16, &.{case[1]}, bench.simulation.handler().codes.items);
        try testing.expectEqual(0, bench.client.pongs);
        try testing.expectEqual(0, bench.heldBytes());
    };
}

test "a peer that begins a message holds no more of our memory than it has sent" {
    var bench: Bench = undefined;
    try bench.init(.{}, pmd, 5);
    defer bench.deinit();
    const zeros: [60_000]u8 = @splat(0);
    try bench.client.send(.binary, &zeros, .{ .compressed = true });
    const frame = bench.client.out.items;
    // All but the last byte, which nobody knows how much it inflates to.
    const request_end = std.mem.find(u8, frame, "\r\n\r\n").? + 4;
    const rest = try gpa.dupe(u8, frame[frame.len - 1 ..]);
    defer gpa.free(rest);
    const sent = frame.len - 1 - request_end;
    bench.client.out.shrinkRetainingCapacity(frame.len - 1);
    try bench.run();
    try testing.expect(sent < 500);
    try testing.expect(bench.heldBytes() <= 512);
    try bench.client.out.appendSlice(gpa, rest);
    _ = try bench.expectEcho(&zeros, true);
    try testing.expectEqual(0, bench.heldBytes());
}

test "an idle WebSocket holds no buffer, whatever it carried" {
    var bench: Bench = undefined;
    try bench.init(.{ .frame_bytes_max = 1 << 20 }, pmd, 6);
    defer bench.deinit();
    var buffer: [300_000]u8 = undefined;
    const text = prose(&buffer, 3);
    for ([_]bool{ true, false }) |compressed| for ([_]usize{ 0, 7000 }) |frame_bytes| {
        try bench.client.send(.text, text, .{ .compressed = compressed, .frame_bytes = frame_bytes });
        _ = try bench.expectEcho(text, true);
        try testing.expectEqual(0, bench.heldBytes());
    };
    const worker = bench.simulation.worker();
    // The worker holds the memory for compression, which all its WebSockets share.
    try testing.expect(worker.compression.memoryBytes() < 200 * 1024 + 1024);
    var websockets = worker.websockets.iterator();
    const websocket = websockets.next().?;
    try testing.expect(websocket.compression.?.sender == null and websocket.compression.?.receiver == null);
}
