//! A WebSocket client: sends messages in fragments, with pings between them, and must get each message and
//! each ping's payload back, in order. With its last message it asks the server to close, and answers that.
const std = @import("std");
const per = @import("peregrine");
const host = @import("host.zig");
const frame = @import("protocol").websocket.frame;
const Client = @import("client.zig").Client;
const testing = std.testing;

pub const SocketClient = struct {
    client: Client,
    /// The messages that must come back, in order: kind and bytes.
    messages: std.ArrayList(Message) = .empty,
    echoed: usize = 0,
    pings: u8 = 0,
    pongs: u8 = 0,
    /// Received bytes that were handled; the answer to the handshake is the first of them.
    read: usize = 0,
    closing: bool = false,
    /// The server has closed because it stops, or is replaced.
    dismissed: bool = false,

    const Message = struct { opcode: frame.Opcode, bytes: []u8 };
    const message_bytes_max = 150_000;
    const accept = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";

    pub fn deinit(self: *SocketClient) void {
        for (self.messages.items) |message| self.client.gpa.free(message.bytes);
        self.messages.deinit(self.client.gpa);
        self.client.deinit();
    }

    pub fn plan(self: *SocketClient, random: std.Random, id: usize) !void {
        const gpa = self.client.gpa;
        // The client has to answer the server's close frame.
        self.client.manners.half_closes = false;
        try self.client.script.print(
            gpa,
            "GET /socket/{d}/0 HTTP/1.1\r\nHost: sim\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" ++
                "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            .{id},
        );
        for (0..random.uintAtMost(usize, 8)) |n| {
            const size = random.uintAtMost(
                usize,
                if (random.uintLessThan(u8, 8) == 0) message_bytes_max else 500,
            );
            const bytes = try gpa.alloc(u8, size);
            _ = host.pattern(bytes, id + n, 0, size);
            const opcode: frame.Opcode = if (random.boolean()) .text else .binary;
            try self.messages.append(gpa, .{ .opcode = opcode, .bytes = bytes });
            try self.planMessage(random, opcode, bytes);
        }
        try self.put(.text, true, host.last_message, 0);
    }

    fn planMessage(self: *SocketClient, random: std.Random, opcode: frame.Opcode, bytes: []const u8) !void {
        var at: usize = 0;
        var first = true;
        while (first or at < bytes.len) {
            const len = random.uintAtMost(usize, bytes.len - at);
            const fin = random.uintLessThan(u8, 3) > 0;
            const piece = if (fin) bytes[at..] else bytes[at..][0..len];
            try self.put(if (first) opcode else .continuation, fin, piece, random.int(u32));
            first = false;
            at += piece.len;
            if (random.uintLessThan(u8, 5) == 0) {
                try self.put(.ping, true, &.{self.pings}, random.int(u32));
                self.pings += 1;
            }
            if (fin) return;
        }
        try self.put(.continuation, true, "", 0);
    }

    fn put(self: *SocketClient, opcode: frame.Opcode, fin: bool, payload: []const u8, key: u32) !void {
        const gpa = self.client.gpa;
        const script = &self.client.script;
        const mask: frame.MaskKey = @bitCast(key);
        var header: [frame.header_bytes_max]u8 = undefined;
        const len = frame.encode(
            .{ .fin = fin, .opcode = opcode, .mask = mask, .payload_len = payload.len },
            &header,
        );
        try script.appendSlice(gpa, header[0..len]);
        try script.appendSlice(gpa, payload);
        frame.maskScalar(script.items[script.items.len - payload.len ..], mask, 0);
    }

    pub fn step(self: *SocketClient, random: std.Random) !void {
        try self.client.step(random);
        if (self.read == 0) {
            const end = std.mem.find(u8, self.client.got.items, "\r\n\r\n") orelse return;
            const head = self.client.got.items[0 .. end + "\r\n".len];
            // A client that was too slow with its handshake is told so, and one that came too late.
            if (std.mem.startsWith(u8, head, "HTTP/1.1 503 ")) return;
            if (!std.mem.startsWith(u8, head, "HTTP/1.1 101 ")) {
                return testing.expectStringStartsWith(head, "HTTP/1.1 408 ");
            }
            try testing.expect(std.mem.find(u8, head, accept) != null);
            self.read = end + "\r\n\r\n".len;
        }
        while (try self.readFrame()) {}
    }

    fn readFrame(self: *SocketClient) !bool {
        const rest = self.client.got.items[self.read..];
        const header = switch (frame.decode(rest)) {
            .need => return false,
            .header => |found| found,
            else => return error.NotAFrame,
        };
        const size = header.bytes + header.value.payload_len;
        if (rest.len < size) return false;
        const payload = rest[header.bytes..@intCast(size)];
        self.read += @intCast(size);
        try testing.expect(header.value.fin and header.value.mask == null and !self.closing);
        switch (header.value.opcode) {
            .text, .binary => {
                const due = self.messages.items[self.echoed];
                try testing.expectEqual(due.opcode, header.value.opcode);
                try testing.expectEqualStrings(due.bytes, payload);
                self.echoed += 1;
            },
            .pong => {
                try testing.expectEqualSlices(u8, &.{self.pongs}, payload);
                self.pongs += 1;
            },
            .close => {
                self.dismissed = std.mem.eql(u8, payload, "\x03\xe9") or std.mem.eql(u8, payload, "\x03\xf4");
                if (!self.dismissed) try testing.expectEqualStrings("\x03\xe8" ++ host.last_message, payload);
                self.closing = true;
                try self.put(.close, true, payload, 1);
            },
            else => return error.UnexpectedFrame,
        }
        return true;
    }

    /// The worker may have closed it at any time, or refused it: what came before that was whole.
    pub fn checkDismissed(self: *const SocketClient) !void {
        if (self.closing) try testing.expectEqual(self.client.got.items.len, self.read);
    }

    pub fn check(self: *const SocketClient, broken: bool) !void {
        if (broken) return;
        try testing.expectEqual(self.messages.items.len, self.echoed);
        try testing.expectEqual(self.pings, self.pongs);
        try testing.expect(self.closing and !self.dismissed);
        try testing.expectEqual(self.client.got.items.len, self.read);
    }
};
