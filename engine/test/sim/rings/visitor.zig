//! A client of the application: requests in one go or a WebSocket, and the check that what came back is what
//! the application has said.
const std = @import("std");
const Client = @import("client").Client;
const frame = @import("protocol").websocket.frame;
const record_file = @import("record.zig");
const Record = record_file.Record;
const last_message = @import("job.zig").last_message;
const testing = std.testing;

/// A client with a connection.
pub const Visitor = struct {
    client: Client,
    kind: Kind,
    /// The visitor's requests.
    records: []Record,
    /// For a WebSocket: the received bytes that were looked at, and the messages among them.
    read: usize = 0,
    echoed: usize = 0,
    closed: bool = false,
    /// The visitor was dismissed before it had all that was due to it.
    dismissed: bool = false,

    pub const Kind = enum { http, socket, malformed };
    pub const requests_max = 6;

    pub fn deinit(visitor: *Visitor) void {
        visitor.client.deinit();
    }

    /// Makes up what it sends.
    pub fn plan(visitor: *Visitor, random: std.Random) !void {
        for (visitor.records, 1..) |*record, count| switch (visitor.kind) {
            .http, .malformed => try visitor.planRequest(random, record, count == visitor.records.len),
            .socket => try visitor.planSocket(random, record),
        };
        if (visitor.kind == .malformed) {
            const gpa = visitor.client.gpa;
            try visitor.client.script.appendSlice(gpa, ([_][]const u8{
                "GET / HTTP/1.1\r\n\r\n",
                "GET /\x01 HTTP/1.1\r\nHost: sim\r\n\r\n",
                "POST / HTTP/1.1\r\nHost: sim\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
                "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            })[random.uintLessThan(usize, 4)]);
        }
    }

    fn planRequest(visitor: *Visitor, random: std.Random, record: *Record, last: bool) !void {
        const gpa = visitor.client.gpa;
        const script = &visitor.client.script;
        record.method = @fromBackingInt(@intCast(random.weightedIndex(u8, &.{ 6, 1, 4 })));
        if (record.method == .post) record.sends = random.uintAtMost(
            usize,
            ([_]usize{ 0, 300, 20_000, 200_000 })[random.uintLessThan(usize, 4)],
        );
        const method = ([_][]const u8{ "GET", "HEAD", "POST" })[@backingInt(record.method)];
        try script.print(gpa, "{s} /{d} HTTP/1.1\r\nHost: sim\r\n", .{ method, record.id });
        if (last and visitor.kind == .http) try script.appendSlice(gpa, "Connection: close\r\n");
        if (record.method != .post) return script.appendSlice(gpa, "\r\n");
        if (random.uintLessThan(u8, 4) == 0) try script.appendSlice(gpa, "Expect: 100-continue\r\n");
        const body = try gpa.alloc(u8, record.sends);
        defer gpa.free(body);
        record_file.pattern(body, record.id, 0);
        if (random.boolean()) {
            try script.print(gpa, "Content-Length: {d}\r\n\r\n", .{body.len});
            return script.appendSlice(gpa, body);
        }
        try script.appendSlice(gpa, "Transfer-Encoding: chunked\r\n\r\n");
        var at: usize = 0;
        while (at < body.len) {
            const len = @min(body.len - at, random.intRangeAtMost(usize, 1, 9_000));
            try script.print(gpa, "{x}\r\n{s}\r\n", .{ len, body[at..][0..len] });
            at += len;
        }
        try script.appendSlice(gpa, if (random.boolean()) "0\r\n\r\n" else "0\r\nX-Sum: 1\r\n\r\n");
    }

    fn planSocket(visitor: *Visitor, random: std.Random, record: *Record) !void {
        const gpa = visitor.client.gpa;
        record.handshake = true;
        visitor.client.manners.half_closes = false;
        const head = "GET /{d} HTTP/1.1\r\nHost: sim\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" ++
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        try visitor.client.script.print(gpa, head, .{record.id});
        for (0..random.uintAtMost(usize, 8)) |_| {
            const bytes = try gpa.alloc(
                u8,
                random.uintAtMost(usize, if (random.uintLessThan(u8, 6) == 0) 150_000 else 500),
            );
            defer gpa.free(bytes);
            record_file.pattern(bytes, record.id, 0);
            try visitor.put(if (random.boolean()) .text else .binary, bytes, random.int(u32));
            record.sends += 1;
        }
        try visitor.put(.text, last_message, 0);
    }

    fn put(visitor: *Visitor, opcode: frame.Opcode, payload: []const u8, key: u32) !void {
        const gpa = visitor.client.gpa;
        const script = &visitor.client.script;
        const mask: frame.MaskKey = @bitCast(key);
        var header: [frame.header_bytes_max]u8 = undefined;
        const len = frame.encode(
            .{ .fin = true, .opcode = opcode, .mask = mask, .payload_len = payload.len },
            &header,
        );
        try script.appendSlice(gpa, header[0..len]);
        try script.appendSlice(gpa, payload);
        frame.maskScalar(script.items[script.items.len - payload.len ..], mask, 0);
    }

    /// Runs a round. True: something has moved.
    pub fn step(visitor: *Visitor, random: std.Random) !bool {
        const client = &visitor.client;
        if (client.done) return false;
        const sent = client.sent;
        const got = client.got.items.len;
        try client.step(random);
        if (visitor.kind == .socket) try visitor.readFrames();
        return client.done or client.sent != sent or client.got.items.len != got;
    }

    /// The visitor leaves, whatever it has got.
    pub fn dismiss(visitor: *Visitor) void {
        if (visitor.client.done) return;
        visitor.dismissed = true;
        visitor.client.done = true;
        visitor.client.wire.peer().reset();
    }

    // ---- WebSocket

    fn readFrames(visitor: *Visitor) !void {
        const got = visitor.client.got.items;
        if (visitor.read == 0) {
            const end = std.mem.find(u8, got, "\r\n\r\n") orelse return;
            if (!std.mem.startsWith(u8, got, "HTTP/1.1 101 ")) return;
            visitor.read = end + 4;
        }
        while (true) {
            const rest = got[visitor.read..];
            const header = switch (frame.decode(rest)) {
                .need => return,
                .header => |found| found,
                else => return error.NotAFrame,
            };
            const size = header.bytes + header.value.payload_len;
            if (rest.len < size) return;
            visitor.read += @intCast(size);
            try visitor.hear(header.value.opcode, rest[header.bytes..@intCast(size)]);
        }
    }

    fn hear(visitor: *Visitor, opcode: frame.Opcode, payload: []const u8) !void {
        try testing.expect(!visitor.closed);
        switch (opcode) {
            .text, .binary => {
                const said = visitor.records[0].said.items;
                try testing.expect(visitor.echoed < said.len);
                const due = said[visitor.echoed];
                try testing.expectEqual(due.text, opcode == .text);
                try testing.expectEqualStrings(due.bytes, payload);
                visitor.echoed += 1;
            },
            .ping => {},
            .close => {
                visitor.closed = true;
                try visitor.put(.close, payload[0..@min(payload.len, 2)], 1);
            },
            else => return error.UnexpectedFrame,
        }
    }

    // ---- What it must have got

    /// `calm`: the connection lasted as long as both wanted.
    pub fn check(visitor: *Visitor, calm: bool) !void {
        var whole = calm and !visitor.dismissed and visitor.client.manners.leaves_after == null;
        // A connection that is cut takes earlier answers with it.
        for (visitor.records) |*record| whole = whole and record.end != .cut;
        if (whole) for (visitor.records) |*record| {
            if (record.came and record.end == .aborted) return error.AbortedWithoutReason;
        };
        if (visitor.kind == .socket and visitor.records[0].status == 101) return visitor.checkSocket(whole);
        var rest: []const u8 = visitor.client.got.items;
        for (visitor.records) |*record| {
            const answer = try readAnswer(&rest, record) orelse {
                if (whole and record.isComplete()) return error.AnswerMissing;
                return;
            };
            if (answer.complete) continue;
            if (whole and record.isComplete()) return error.AnswerCutShort;
            return;
        }
        if (visitor.kind != .malformed or rest.len == 0) return;
        // The visitor may have been too slow to send its malformed request.
        if (!calm and std.mem.startsWith(u8, rest, "HTTP/1.1 408 ")) return;
        const refusal = "HTTP/1.1 400 ";
        return testing.expectStringStartsWith(rest, refusal[0..@min(refusal.len, rest.len)]);
    }

    fn checkSocket(visitor: *Visitor, whole: bool) !void {
        const record = &visitor.records[0];
        if (!whole) return;
        errdefer std.debug.print("\nid {d}: {t}, {d} of {d} messages got, client got {d} of {d}\n", .{
            record.id,
            record.end,
            record.got,
            record.sends + 1,
            visitor.echoed,
            record.said.items.len,
        });
        try testing.expectEqual(record.said.items.len, visitor.echoed);
        try testing.expectEqual(record.sends + 1, record.got);
        try testing.expectEqual(.closed, record.end);
        try testing.expect(visitor.closed);
    }

    const Answer = struct { complete: bool };

    /// The next response, which has to be the one that the application gave; null: there is none, or only a
    /// part of its head.
    fn readAnswer(rest: *[]const u8, record: *const Record) !?Answer {
        var informed: u8 = 0;
        const head = while (true) {
            const end = std.mem.find(u8, rest.*, "\r\n\r\n") orelse return null;
            const head = rest.*[0 .. end + 2];
            rest.* = rest.*[end + 4 ..];
            if (!std.mem.startsWith(u8, head, "HTTP/1.1 1")) break head;
            if (std.mem.startsWith(u8, head, "HTTP/1.1 103 ")) informed += 1;
        };
        const status = try std.fmt.parseInt(u16, head["HTTP/1.1 ".len..][0..3], 10);
        if (status != record.status) {
            // The engine's own words, which are its last ones.
            if (status == 400 or status == 408 or status == 503 or status == 500) return null;
            std.debug.print("\nid {d}: {d} in place of {d}\n", .{ record.id, status, record.status });
            return error.WrongStatus;
        }
        try testing.expectEqual(record.informed, informed);
        try testing.expect(std.mem.find(u8, head, "X-Kind: simulated\r\n") != null or record.handshake);
        if (record.method == .head or status == 204 or status == 304) return .{ .complete = true };
        if (valueOf(head, "Content-Length: ")) |text| {
            const length = try std.fmt.parseInt(usize, text, 10);
            const part = rest.*[0..@min(length, rest.len)];
            rest.* = rest.*[part.len..];
            try expectPart(record, part, part.len == length);
            return .{ .complete = part.len == length };
        }
        try testing.expectEqualStrings("chunked", valueOf(head, "Transfer-Encoding: ").?);
        return try readChunks(rest, record);
    }

    fn expectPart(record: *const Record, part: []const u8, complete: bool) !void {
        const due = record.content.items;
        if (part.len > due.len or (complete and part.len != due.len)) {
            std.debug.print("\nid {d}: {d} bytes of {d}\n", .{ record.id, part.len, due.len });
            return error.WrongLength;
        }
        if (!std.mem.eql(u8, due[0..part.len], part)) return error.WrongContent;
    }

    fn readChunks(rest: *[]const u8, record: *const Record) !Answer {
        var at: usize = 0;
        while (true) {
            const line_end = std.mem.find(u8, rest.*, "\r\n") orelse return .{ .complete = false };
            const size = try std.fmt.parseInt(usize, rest.*[0..line_end], 16);
            rest.* = rest.*[line_end + 2 ..];
            if (size == 0) break;
            const part = rest.*[0..@min(size, rest.len)];
            const due = record.content.items;
            if (at + part.len > due.len) return error.WrongLength;
            if (!std.mem.eql(u8, due[at..][0..part.len], part)) return error.WrongContent;
            at += part.len;
            if (rest.len < size + 2) {
                rest.* = "";
                return .{ .complete = false };
            }
            rest.* = rest.*[size + 2 ..];
        }
        var trailers: u8 = 0;
        while (std.mem.find(u8, rest.*, "\r\n")) |line_end| {
            rest.* = rest.*[line_end + 2 ..];
            if (line_end > 0) {
                trailers += 1;
                continue;
            }
            try testing.expectEqual(record.content.items.len, at);
            try testing.expectEqual(record.trailers, trailers);
            return .{ .complete = true };
        }
        return .{ .complete = false };
    }

    fn valueOf(head: []const u8, name: []const u8) ?[]const u8 {
        const at = std.mem.find(u8, head, name) orelse return null;
        const rest = head[at + name.len ..];
        return rest[0..std.mem.find(u8, rest, "\r\n").?];
    }
};
