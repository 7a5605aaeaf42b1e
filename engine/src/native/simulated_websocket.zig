//! WebSockets of clients in a `Simulation`: messages in and out. Pings are answered, and a breach of the
//! protocol is an error of the test.
//!
//!     const chat = try simulation.openWebSocket(.{ .target = "/chat" });
//!     try chat.send(.text, "hello");
//!     try std.testing.expectEqualStrings("hello", (try chat.next()).?.bytes);
//!     try chat.close(1000, "");
//!     try std.testing.expectEqual(1000, chat.closed.?.code);
//!
//! Does not know: the network, and compression, which it does not offer.
const std = @import("std");
const websocket = @import("protocol").websocket;
const Answer = @import("answer.zig").Answer;
const Question = @import("answer.zig").Question;
const Header = @import("response.zig").Header;
const Kind = @import("ws.zig").Kind;

/// A message that a client received.
pub const Message = struct {
    kind: Kind,
    /// Valid until the simulation ends.
    bytes: []const u8,
};

/// The close frame that a client received.
pub const Closed = struct {
    /// 1005 if the frame had none.
    code: u16,
    /// Valid until the simulation ends.
    reason: []const u8,
};

/// A WebSocket on a connection of the simulation's `Client`. Lives as long as the simulation.
pub fn SimulatedWebSocket(comptime Client: type) type {
    return struct {
        const Self = @This();

        /// The connection: `client.close()` cuts it, `client.paused` makes it slow.
        client: *Client,
        /// The server's answer to the handshake.
        answer: Answer,
        /// The server's close frame; null before it has come.
        closed: ?Closed = null,
        session: websocket.Session = .init(.{
            .role = .client,
            .limits = .{ .frame_bytes_max = 0, .message_bytes_max = 0 },
        }),
        /// Bytes behind the last whole frame.
        unread: std.ArrayList(u8) = .empty,
        /// The beginning of a message whose end has not come.
        partial: std.ArrayList(u8) = .empty,
        messages: std.ArrayList(Message) = .empty,
        /// How many messages `next` has given.
        given: usize = 0,

        const key = "dGhlIHNhbXBsZSBub25jZQ==";
        /// The mask of all frames. RFC 6455 wants random ones because of proxies, which a simulation lacks.
        const mask: websocket.frame.MaskKey = .{ 0x37, 0xfa, 0x21, 0x3d };

        /// Does the handshake on a connection; the question's headers go along. `error.Refused` if the server
        /// does not switch protocols.
        pub fn open(client: *Client, question: Question) !*Self {
            const arena = client.simulation.arena.allocator();
            var asking = question;
            asking.headers = try std.mem.concat(arena, Header, &.{ handshake, question.headers });
            const answer = try client.request(asking);
            if (answer.status != 101) return error.Refused;
            var expected: [websocket.handshake.accept_bytes]u8 = undefined;
            websocket.handshake.acceptKey(key, &expected);
            const accepted = answer.header("sec-websocket-accept") orelse return error.MalformedResponse;
            if (!std.mem.eql(u8, accepted, &expected)) return error.MalformedResponse;
            const self = try arena.create(Self);
            self.* = .{ .client = client, .answer = answer };
            return self;
        }

        const handshake: []const Header = &.{
            .{ .name = "Upgrade", .text = "websocket" },
            .{ .name = "Connection", .text = "Upgrade" },
            .{ .name = "Sec-WebSocket-Version", .text = "13" },
            .{ .name = "Sec-WebSocket-Key", .text = key },
        };

        /// Sends a message, and runs until the network falls quiet.
        pub fn send(self: *Self, kind: Kind, bytes: []const u8) !void {
            if (self.session.closeSent()) return error.Closed;
            var header: [websocket.frame.header_bytes_max]u8 = undefined;
            const piece: websocket.Session.Piece = .{ .kind = kind, .len = bytes.len };
            const header_len = self.session.encodeHeader(piece, mask, &header);
            const payload = try self.client.simulation.gpa.dupe(u8, bytes);
            defer self.client.simulation.gpa.free(payload);
            websocket.frame.mask(payload, mask, 0);
            try self.client.send(header[0..header_len]);
            try self.client.send(payload);
            try self.settle();
        }

        /// The next message of the server that has come; null if there is none.
        pub fn next(self: *Self) !?Message {
            try self.settle();
            if (self.given == self.messages.items.len) return null;
            self.given += 1;
            return self.messages.items[self.given - 1];
        }

        /// Sends a close frame, and runs until the network falls quiet. The server's own is in `closed` then.
        pub fn close(self: *Self, code: u16, reason: []const u8) !void {
            var frame: [websocket.frame.control_bytes_max]u8 = undefined;
            const len = try self.session.encodeClose(code, reason, mask, &frame);
            try self.client.send(frame[0..len]);
            try self.settle();
        }

        fn settle(self: *Self) !void {
            while (true) {
                try self.client.simulation.settle();
                if (!try self.read()) return;
            }
        }

        /// Reads frames that have come. True: some were answered.
        fn read(self: *Self) !bool {
            const client = self.client;
            const arena = client.simulation.arena.allocator();
            try self.unread.appendSlice(arena, client.received.items[client.taken..]);
            client.taken = client.received.items.len;
            var answered = false;
            while (self.closed == null) {
                const step = self.session.feed(self.unread.items);
                switch (step.event) {
                    .need_more => {},
                    .pong => {},
                    .data => |data| {
                        try self.partial.appendSlice(arena, data.bytes);
                        if (data.last) try self.messages.append(arena, .{
                            .kind = data.kind,
                            .bytes = try self.partial.toOwnedSlice(arena),
                        });
                    },
                    .ping => |payload| {
                        var frame: [websocket.frame.control_bytes_max]u8 = undefined;
                        if (!self.session.closeSent()) {
                            try client.send(frame[0..self.session.encodePong(payload, mask, &frame)]);
                            answered = true;
                        }
                    },
                    .close => |given| {
                        self.closed = .{ .code = given.code, .reason = try arena.dupe(u8, given.reason) };
                        var frame: [websocket.frame.control_bytes_max]u8 = undefined;
                        if (!self.session.closeSent()) {
                            const len = try self.session.encodeClose(given.code, "", mask, &frame);
                            try client.send(frame[0..len]);
                            answered = true;
                        }
                    },
                    .failed => |failure| {
                        std.debug.print("the server broke RFC 6455: {s}\n", .{failure.reason});
                        return error.ServerAtFault;
                    },
                }
                self.unread.replaceRangeAssumeCapacity(0, step.consumed, &.{});
                if (step.event == .need_more) break;
            }
            return answered;
        }
    };
}

const testing = std.testing;
const ws = @import("ws.zig");

/// A handler that echoes messages at /echo, and closes at "leave".
const Echo = struct {
    ended_with: u16 = 0,

    pub fn handleRequest(
        _: *Echo,
        request: *@import("request.zig").Request,
        response: *@import("response.zig").Response,
    ) !void {
        if (!std.mem.eql(u8, request.getPath(), "/echo")) return error.NotFound;
        try ws.upgrader.accept(request, response, .{ .origins = .same });
    }

    pub fn handleWSFrame(_: *Echo, socket: *ws.WebSocket, frame: *ws.Frame) void {
        const bytes = frame.getPayload();
        if (std.mem.eql(u8, bytes, "leave")) return socket.close(4000, "as you say") catch {};
        _ = socket.send(if (frame.opcode == .text) .text else .binary, bytes) catch {};
    }

    pub fn handleWSDisconn(echo: *Echo, socket: *ws.WebSocket) void {
        echo.ended_with = socket.close_code;
    }
};

test "WebSockets of a handler are tested without sockets, on many networks" {
    const Simulation = @import("simulation.zig").Simulation(Echo);
    const long = try testing.allocator.alloc(u8, 30_000);
    defer testing.allocator.free(long);
    for (long, 0..) |*byte, at| byte.* = @truncate(at *% 7);
    for (0..20) |seed| {
        var simulation: Simulation = try .initWith(
            testing.allocator,
            .{},
            .{ .seed = seed, .window_bytes = 3000 },
            .{},
        );
        defer simulation.deinit();
        const config = simulation.server.config;
        try testing.expectError(error.Refused, simulation.openWebSocket(.{ .target = "/other" }));
        const foreign: []const Header = &.{.{ .name = "Origin", .text = "https://other.example" }};
        const refused = simulation.openWebSocket(.{ .target = "/echo", .headers = foreign });
        try testing.expectError(error.Refused, refused);

        const first = try simulation.openWebSocket(.{ .target = "/echo" });
        const second = try simulation.openWebSocket(.{ .target = "/echo" });
        try testing.expectEqual(null, try first.next());
        try first.send(.text, "gr\u{fc}n");
        try first.send(.binary, long);
        try second.send(.text, "");
        const text = (try first.next()).?;
        try testing.expectEqual(.text, text.kind);
        try testing.expectEqualStrings("gr\u{fc}n", text.bytes);
        const binary = (try first.next()).?;
        try testing.expectEqual(.binary, binary.kind);
        try testing.expectEqualSlices(u8, long, binary.bytes);
        try testing.expectEqual(null, try first.next());
        try testing.expectEqualStrings("", (try second.next()).?.bytes);

        // A client that answered no pings would be cut.
        for (0..4) |_| {
            try simulation.advance(config.websocket_ping_ms);
            try testing.expectEqual(null, try first.next());
            try testing.expectEqual(null, try second.next());
        }
        try first.send(.text, "leave");
        try testing.expectEqual(4000, first.closed.?.code);
        try testing.expectEqualStrings("as you say", first.closed.?.reason);
        try testing.expectError(error.Closed, first.send(.text, "too late"));
        const third = try simulation.openWebSocket(.{ .target = "/echo" });
        const large = try testing.allocator.alloc(u8, config.websocket_buffer_size + 1);
        defer testing.allocator.free(large);
        @memset(large, 'x');
        try third.send(.text, large);
        try testing.expectEqual(null, try third.next());
        try testing.expectEqual(1009, third.closed.?.code);

        try second.close(1001, "");
        try testing.expectEqual(1001, second.closed.?.code);
        try testing.expectEqual(1001, simulation.handler().ended_with);
    }
}
