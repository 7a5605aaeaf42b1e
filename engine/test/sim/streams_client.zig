//! A client of many streams: sends requests on one connection, their bodies in turns, gives windows as it
//! reads, and knows each byte of every answer.
const std = @import("std");
const host = @import("host.zig");
const http2 = @import("protocol").http2;
const frame = http2.frame;
const Client = @import("client.zig").Client;
const testing = std.testing;

pub const StreamsClient = struct {
    client: Client,
    exchanges: [requests_max]Exchange = undefined,
    count: usize = 0,
    /// Received bytes that were handled.
    read: usize = 0,
    window: u31 = 0,
    decoder: http2.hpack.Decoder = .{},
    bench: http2.hpack.Bench = undefined,
    /// The highest number of a stream that the server has looked at, as far as it has said.
    last_stream: u32 = frame.max_31,
    /// The server has ended the connection for something that the client did, or did not do in time.
    blamed: bool = false,

    pub const requests_max = 6;
    /// All bodies together have room in the windows that a client begins with.
    const body_bytes_max = 60_000;
    const room_bytes = 16 * 1024;

    const Exchange = struct {
        stream: u32,
        id: usize,
        size: usize,
        /// The size of the request's own body.
        unsent: usize = 0,
        status: ?u16 = null,
        got: std.ArrayList(u8) = .empty,
        end: enum { open, whole, reset } = .open,
    };

    pub fn deinit(self: *StreamsClient) void {
        for (self.exchanges[0..self.count]) |*exchange| exchange.got.deinit(self.client.gpa);
        self.client.deinit();
    }

    pub fn plan(self: *StreamsClient, random: std.Random, first_id: usize, count: usize) !void {
        self.client.manners.half_closes = false; // a half-close would be the end of the connection
        self.window = ([_]u31{ 100, 5_000, 65_535, 1 << 20 })[random.weightedIndex(u8, &.{ 1, 3, 4, 4 })];
        try self.client.script.appendSlice(self.client.gpa, frame.preface);
        var setting: [frame.setting_bytes]u8 = undefined;
        const value: frame.SettingValue = .{ .setting = .initial_window_size, .value = self.window };
        value.write(&setting);
        try self.put(.settings, 0, 0, &setting);
        for (first_id..first_id + count, 0..) |id, index| {
            const modes = [_]host.Mode{ .whole, .chunked, .file, .echo };
            const mode = modes[random.uintLessThan(usize, modes.len)];
            const size_max: usize = if (host.pieceSize(id) < 100)
                30
            else if (self.window >= 65_535 and random.uintLessThan(u8, 10) == 0) body_bytes_max else 3_000;
            const exchange = &self.exchanges[index];
            exchange.* = .{
                .stream = @intCast(2 * index + 1),
                .id = id,
                .size = random.uintAtMost(usize, size_max),
            };
            if (mode == .echo) exchange.unsent = exchange.size;
            self.count += 1;
            try self.planRequest(random, mode, exchange);
            while (random.boolean()) try self.planPiece(random);
        }
        while (try self.owesBody()) try self.planPiece(random);
    }

    fn planRequest(
        self: *StreamsClient,
        random: std.Random,
        mode: host.Mode,
        exchange: *const Exchange,
    ) !void {
        var path: [64]u8 = undefined;
        const target = try std.fmt.bufPrint(&path, "/{t}/{d}/{d}", .{ mode, exchange.id, exchange.size });
        var block: [256]u8 = undefined;
        var len: usize = 0;
        for ([_][2][]const u8{
            .{ ":method", if (mode == .echo) "POST" else "GET" },
            .{ ":scheme", "http" },
            .{ ":authority", "sim" },
            .{ ":path", target },
            .{ "priority", if (random.boolean()) "u=1, i" else "u=4" },
        }) |field| len += http2.hpack.stateless(.other, field[0], field[1], block[len..]);
        const ends: u8 = if (mode == .echo and exchange.size > 0) 0 else frame.flag.end_stream;
        if (random.uintLessThan(u8, 4) > 0) {
            return self.put(.headers, ends | frame.flag.end_headers, exchange.stream, block[0..len]);
        }
        const cut = random.uintAtMost(usize, len);
        try self.put(.headers, ends, exchange.stream, block[0..cut]);
        try self.put(.continuation, frame.flag.end_headers, exchange.stream, block[cut..len]);
    }

    fn owesBody(self: *StreamsClient) !bool {
        for (self.exchanges[0..self.count]) |exchange| if (exchange.unsent > 0) return true;
        return false;
    }

    /// A piece of some body.
    fn planPiece(self: *StreamsClient, random: std.Random) !void {
        if (self.count == 0) return;
        const exchange = &self.exchanges[random.uintLessThan(usize, self.count)];
        if (exchange.unsent == 0) return;
        var buffer: [body_bytes_max]u8 = undefined;
        const body = host.pattern(&buffer, exchange.id, 0, exchange.size);
        const len = @min(exchange.unsent, random.intRangeAtMost(usize, 1, 9_000));
        const piece = body[exchange.size - exchange.unsent ..][0..len];
        exchange.unsent -= len;
        try self.put(.data, if (exchange.unsent == 0) frame.flag.end_stream else 0, exchange.stream, piece);
    }

    fn put(self: *StreamsClient, kind: frame.Kind, flags: u8, stream: u32, payload: []const u8) !void {
        const script = &self.client.script;
        const header: frame.Header = .{
            .len = @intCast(payload.len),
            .kind = kind,
            .flags = flags,
            .stream = stream,
        };
        header.write(try script.addManyAsArray(self.client.gpa, frame.header_bytes));
        try script.appendSlice(self.client.gpa, payload);
    }

    pub fn step(self: *StreamsClient, random: std.Random) !void {
        if (self.client.done) return;
        try self.client.step(random);
        while (try self.take()) {}
        if (self.client.done or self.isWaiting()) return;
        self.client.done = true;
        try self.client.wire.close();
    }

    fn isWaiting(self: *const StreamsClient) bool {
        for (self.exchanges[0..self.count]) |exchange| {
            if (exchange.end == .open and exchange.stream <= self.last_stream) return true;
        }
        return false;
    }

    /// Deals with the next frame, if it is there.
    fn take(self: *StreamsClient) !bool {
        const rest = self.client.got.items[self.read..];
        if (rest.len < frame.header_bytes) return false;
        const header: frame.Header = .parse(rest[0..frame.header_bytes]);
        if (rest.len < frame.header_bytes + header.len) return false;
        self.read += frame.header_bytes + header.len;
        const payload = rest[frame.header_bytes..][0..header.len];
        switch (header.kind) {
            .settings => if (!header.has(frame.flag.ack)) try self.put(.settings, frame.flag.ack, 0, ""),
            .ping => if (!header.has(frame.flag.ack)) try self.put(.ping, frame.flag.ack, 0, payload),
            .headers => try self.takeHead(header, payload),
            .data => try self.takeData(header, payload),
            .rst_stream => self.takeReset(header.stream, payload),
            .goaway => {
                self.last_stream = std.mem.readInt(u32, payload[0..4], .big);
                const code = std.mem.readInt(u32, payload[4..8], .big);
                self.blamed = self.blamed or code != @backingInt(frame.Code.no_error);
            },
            .window_update => {},
            else => return error.UnexpectedFrame,
        }
        return true;
    }

    fn exchangeOf(self: *StreamsClient, stream: u32) !*Exchange {
        for (self.exchanges[0..self.count]) |*exchange| if (exchange.stream == stream) return exchange;
        return error.UnknownStream;
    }

    fn takeHead(self: *StreamsClient, header: frame.Header, payload: []const u8) !void {
        const exchange = try self.exchangeOf(header.stream);
        try testing.expect(header.has(frame.flag.end_headers) and exchange.end == .open);
        try testing.expectEqual(null, exchange.status);
        var room: [room_bytes]u8 = undefined;
        var block = self.decoder.begin(payload, &self.bench);
        while (try block.next(&room)) |field| {
            if (std.mem.eql(u8, field.name, ":status")) {
                exchange.status = try std.fmt.parseInt(u16, field.value, 10);
            }
        }
        try testing.expect(exchange.status != null);
        if (header.has(frame.flag.end_stream)) exchange.end = .whole;
    }

    fn takeData(self: *StreamsClient, header: frame.Header, payload: []const u8) !void {
        const exchange = try self.exchangeOf(header.stream);
        try testing.expect(exchange.status != null and exchange.end == .open);
        try exchange.got.appendSlice(self.client.gpa, payload);
        if (header.has(frame.flag.end_stream)) exchange.end = .whole;
        if (payload.len == 0) return;
        var credit: [4]u8 = undefined;
        std.mem.writeInt(u32, &credit, @intCast(payload.len), .big);
        try self.put(.window_update, 0, 0, &credit);
        if (exchange.end == .open) try self.put(.window_update, 0, header.stream, &credit);
    }

    fn takeReset(self: *StreamsClient, stream: u32, payload: []const u8) void {
        const exchange = self.exchangeOf(stream) catch return;
        const code = std.mem.readInt(u32, payload[0..4], .big);
        // The rest of a request whose answer is complete is not wanted.
        if (exchange.end == .whole and code == @backingInt(frame.Code.no_error)) return;
        exchange.end = .reset;
    }

    /// `broken`: streams and the connection may have ended at any time. Otherwise every byte must have come
    /// of those that the server has not asked to be sent elsewhere.
    pub fn check(self: *const StreamsClient, broken: bool) !void {
        if (!broken) try testing.expect(!self.blamed);
        for (self.exchanges[0..self.count]) |exchange| {
            if (broken and exchange.status orelse 200 != 200) continue;
            if (!broken and exchange.stream > self.last_stream) {
                try testing.expectEqual(null, exchange.status);
                continue;
            }
            var buffer: [body_bytes_max]u8 = undefined;
            const expected = host.pattern(&buffer, exchange.id, 0, exchange.size);
            if (!broken or exchange.end == .whole) {
                try testing.expectEqual(200, exchange.status.?);
                try testing.expectEqual(.whole, exchange.end);
                try testing.expectEqualStrings(expected, exchange.got.items);
            } else {
                const got = exchange.got.items;
                try testing.expect(got.len <= expected.len);
                try testing.expectEqualStrings(expected[0..got.len], got);
            }
        }
    }
};
